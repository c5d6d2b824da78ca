/* SPDX-License-Identifier: MIT */
/*
 * The inside of a store, shared by the files of this folder only.
 *
 * Locks, outermost first: `meta` -> the allocator's locks -> `commit.lock`.
 * commit.lock is a leaf: nothing is locked and no callback runs under it.
 * super_write -> super_lock stand apart: nothing else is held or taken with them.
 *
 * Owners: the commit thread alone writes the journal and home locations, owns
 * `journal` and every image buffer, and links images under meta for writing.
 * Before it is started and after it has stopped, the opening thread is in its place.
 */
#ifndef NVEFS_STORE_STATE_H
#define NVEFS_STORE_STATE_H

#include "format/root.h"
#include "store/alloc.h"
#include "store/cache.h"
#include "store/copies.h"
#include "store/mutation.h"
#include "store/store.h"

struct nvefs_alloc;

#define NVEFS_CACHE_BYTES_DEFAULT (64ull << 20)
#define NVEFS_CACHE_BYTES_MIN (4ull << 20)
#define NVEFS_COMMIT_INTERVAL_NS 5000000000ull
#define NVEFS_CACHE_GENS 4096u

/* cache.c. Guarded by meta: lookups shared, all else for writing. */
struct nvefs_cache {
	struct nvefs_mblk **buckets;
	uint32_t nbuckets; /* a power of two */
	uint32_t nblks;		 /* all */
	uint32_t nclean, max_blks; /* evictable ones */
	struct nvefs_list clock; /* these, by mblk.lru; the hand is at its front */
	struct nvefs_list dirty; /* of the running transaction, by dirty_link */
	uint32_t ndirty;
	struct nvefs_list freed; /* by dirty_link, in order of the freeing transaction (dirty_txn) */
	struct nvefs_list home;	 /* with an image, by home_link */
	uint32_t nhome;
	struct nvefs_list heal; /* with a bad copy, by heal_link */
	uint32_t nheal;		/* also read without the lock */
	bool check_header;	/* atomic: the commit thread shall look at the journal's header */
	uint32_t *gens; /* by hash of pblk: how many blocks have left the cache, see nvefs_miss.gen */
};

/* journal.c, checkpoint.c, recover.c. The commit thread's. */
struct nvefs_journal {
	uint64_t log_pblk; /* of position 0 */
	uint32_t log_blks;
	uint32_t max_blks; /* images in one group at most */
	uint64_t epoch;
	uint64_t header_seq; /* of the newest header; its slot is header_seq % 2 */
	uint64_t tail_txn;   /* as in the durable header */
	uint32_t tail_pos;
	uint32_t head_pos;  /* where the next group goes */
	uint32_t live_blks; /* from tail to head; read by stats with atomics */
};

/* commit.c. Guarded by `lock`, but for the last group. */
struct nvefs_commit {
	struct nvefs_mutex lock;
	struct nvefs_cond wake;	  /* the commit thread has work */
	struct nvefs_cond change; /* freeze, end of a round, failure, start and end of the thread */
	struct nvefs_list waiters;
	uint64_t reclaims_asked, reclaims_done; /* rounds that are to empty the journal */
	bool ask, kick, reclaim, stop;
	bool tried, up; /* the thread came so far; it takes requests */
	int start_err;

	bool started; /* atomic: transactions may begin */
	int stop_err;
	pthread_t thread, self; /* for joining; as the thread itself knows it */
	struct nvefs_queue *q;	/* the commit thread's */
};

struct nvefs_store {
	struct nvefs_dev *dev;
	struct nvefs_store_opts opts;
	struct nvefs_super super; /* label and seq by super_lock; the rest never changes */
	struct nvefs_mutex super_lock;
	struct nvefs_mutex super_write; /* one writer of the slots after the other; held across its I/O */
	bool flush_needed; /* the device has a volatile cache */
	bool fua_commit;

	struct nvefs_rwlock meta;
	/* guarded by meta */
	struct nvefs_root root;
	struct nvefs_root root_saved; /* as of the last commit */
	struct nvefs_mblk *root_blk;  /* cached for ever */
	struct nvefs_cache cache;
	bool in_txn; /* a transaction is open: nothing may be evicted */

	/* The module's own locking; NULL until nvefs_alloc_init. */
	struct nvefs_alloc *alloc;

	/* atomics */
	uint64_t txn_running; /* changed under meta for writing */
	uint64_t txn_changed; /* newest transaction that changed anything */
	uint64_t txn_durable;
	int error; /* first cause, negative errno */

	struct nvefs_journal journal;
	struct nvefs_commit commit;
	struct nvefs_store_stats stats; /* counters only; atomics */
};

#define nvefs_stat_add(st, name, n) __atomic_fetch_add(&(st)->stats.name, (n), __ATOMIC_RELAXED)
#define nvefs_stat_get(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)

/* ---- cache.c ---- */
int nvefs_cache_init(struct nvefs_store *st);
void nvefs_cache_done(struct nvefs_store *st);
/* For writing. The block as cached, or NULL. */
struct nvefs_mblk *nvefs_cache_peek(struct nvefs_store *st, uint64_t pblk);
/* For writing. A block with `data` (taken over), not cached before. NULL: out of memory, data stays the caller's. */
struct nvefs_mblk *nvefs_cache_insert(struct nvefs_store *st, uint64_t pblk, void *data, bool pinned);
/* For writing. `image` (taken over) is the newest committed content of b. */
void nvefs_cache_image_set(struct nvefs_store *st, struct nvefs_mblk *b, void *image, uint64_t txn);
/* For writing. The image is home, or needs not go there. */
void nvefs_cache_image_drop(struct nvefs_store *st, struct nvefs_mblk *b);
/* For writing. The copies named in `bad` are not what they must be: nvefs_heal_run writes them. */
void nvefs_cache_heal_add(struct nvefs_store *st, struct nvefs_mblk *b, uint8_t bad);
/* For writing. They have been written, or cannot be. */
void nvefs_cache_heal_drop(struct nvefs_store *st, struct nvefs_mblk *b);
/* For writing. Remove the blocks that were freed by transactions up to `durable`. */
void nvefs_cache_purge(struct nvefs_store *st, uint64_t durable);
/* For writing, not in a transaction. Keep to max_blks. */
void nvefs_cache_shrink(struct nvefs_store *st);

/* ---- heal.c ---- */
/*
 * What a write in place, outside of the journal's order, ended with. One that timed out may still come,
 * over newer content: that ends writing. Returns err. Any thread.
 */
int nvefs_heal_result(struct nvefs_store *st, int err);
/*
 * On the commit thread: write bad copies anew, of blocks whose content at home is
 * the newest there is. Those that wait for a commit or a checkpoint are written
 * by that one. A failure is counted and told, and does not end writing.
 */
void nvefs_heal_run(struct nvefs_store *st, struct nvefs_queue *q);
/* Any thread, no lock: count what a read of both or one of the copies found, and tell it if one was good. */
void nvefs_heal_note(struct nvefs_store *st, const struct nvefs_block_expect *want, const struct nvefs_copies *c);

/* ---- commit.c ---- */
/* On the commit thread: commit what is there and answer nobody. `checkpoint`: empty the journal, too. */
int nvefs_commit_now(struct nvefs_store *st, bool checkpoint);
/* Not on the commit thread: until transaction `txn` is no longer the running one. 0 or -EIO. */
int nvefs_commit_wait_room(struct nvefs_store *st, uint64_t txn);
bool nvefs_commit_thread_is_self(struct nvefs_store *st);

#endif
