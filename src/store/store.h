/* SPDX-License-Identifier: MIT */
/*
 * The store: metadata blocks under transactions, on a device.
 *
 * All metadata in memory (cached blocks, tree, root, the running transaction)
 * is guarded by one reader-writer lock, the *meta lock*. It is only held for
 * work in memory. Whoever needs a block that is not cached gets -EAGAIN and a
 * filled nvefs_miss, drops the lock, calls nvefs_store_load and starts over
 * ("drop, read, look again"):
 *
 *	do {
 *		nvefs_store_rdlock(st);
 *		err = ...lookups, with &miss...;
 *		nvefs_store_rdunlock(st);
 *	} while (err == -EAGAIN && !(err = nvefs_store_load(st, q, &miss)) && (err = -EAGAIN));
 *
 * (nvefs_store_retry does the second half of that condition.)
 *
 * A change is made between nvefs_txn_begin, which returns with the meta lock
 * held for writing, and nvefs_txn_end: it is atomic against other threads and
 * against a power cut. Inside, do every lookup and *_prepare call first; they
 * may answer -EAGAIN, and nothing may have been changed by then. After the
 * first change nothing asks for I/O any more.
 *
 * Order of durability: see src/store/journal.h. Lock order: src/README.md.
 */
#ifndef NVEFS_STORE_STORE_H
#define NVEFS_STORE_STORE_H

#include <nvefs/device.h>
#include <nvefs/format.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/thread.h"
#include "format/super.h"

struct nvefs_ahead;
struct nvefs_mmp;
struct nvefs_store;

/* A metadata block that must be read first. Filled by nvefs_cache_get only, but for `ahead`. */
struct nvefs_miss {
	uint64_t pblk;
	uint64_t twin; /* its second copy; 0: there is none */
	uint64_t txn;  /* expected hdr.txn; 0: not known */
	uint32_t gen;  /* tells whether the block was freed meanwhile */
	uint16_t type; /* enum nvefs_block_type */
	struct nvefs_ahead *ahead; /* where it may have been read already; NULL: nowhere */
};

/*
 * The layer above. Called by the commit thread, outside any lock: fold what is
 * dirty in memory (segment maps, inodes) into the tree by transactions of its
 * own on queue `q`. Called before each commit that was asked for by time,
 * pressure or nvefs_commit_request with fold = true. 0 or -errno.
 */
typedef int nvefs_fold_fn(void *arg, struct nvefs_queue *q);

struct nvefs_store_opts {
	bool read_only;	       /* never writes, except recovery */
	bool no_recovery;      /* with read_only: ignore the journal */
	bool replay_in_memory; /* with read_only: apply the journal to the cache, write nothing */
	bool repair;	       /* see repair.h */
	bool discard;	       /* discard freed blocks before they are used again */
	bool fua_commit;       /* commit block by FUA in place of the second Flush */
	uint64_t cache_bytes;  /* clean metadata kept; 0: default */
	uint64_t commit_interval_ns; /* 0: default, 5 s */
	/*
	 * Of a file system with multiple mount protection: taken by the caller, and his to let go after
	 * nvefs_store_free. Without, nothing that writes is opened: -EBUSY.
	 */
	struct nvefs_mmp *mmp;
	nvefs_fold_fn *fold;   /* may be NULL */
	void *fold_arg;
};

/*
 * Read superblock, recover the journal, read the root block. The device stays
 * the caller's. -EUCLEAN (damaged), -EMEDIUMTYPE (no nvefs here), -ENOTSUP
 * (newer version or feature), -EROFS (must recover but cannot), -EIO ...
 */
int nvefs_store_open(struct nvefs_dev *dev, const struct nvefs_store_opts *opts,
		     struct nvefs_store **ret_st, struct nvefs_error *err);
/* Start / stop the commit thread. Stop commits and checkpoints all, so that the journal is empty. */
int nvefs_store_start(struct nvefs_store *st);
int nvefs_store_stop(struct nvefs_store *st);
/* Frees without writing anything. NULL is fine. */
void nvefs_store_free(struct nvefs_store *st);

/* As mkfs made it. The label in it and seq change while mounted: for these there is the copy. */
const struct nvefs_super *nvefs_store_super(const struct nvefs_store *st);
struct nvefs_dev *nvefs_store_dev(const struct nvefs_store *st);
/* A copy, with the label of now. */
void nvefs_store_super_copy(struct nvefs_store *st, struct nvefs_super *ret_sb);
/*
 * Rewrite all superblock slots, one after the other, each flushed. Of `sb` only the label may differ
 * from what is there. Not under any lock; callers at the same time follow one another.
 */
int nvefs_store_super_write(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_super *sb);

/* The root record; guarded by the meta lock. Changing it needs a transaction, which writes it. */
struct nvefs_root *nvefs_store_root(struct nvefs_store *st);

void nvefs_store_rdlock(struct nvefs_store *st);
void nvefs_store_rdunlock(struct nvefs_store *st);
void nvefs_store_wrlock(struct nvefs_store *st);
void nvefs_store_wrunlock(struct nvefs_store *st);

/*
 * Read the missing block into the cache, from its second copy when the first is
 * bad; the bad one is written anew by the commit thread later (heal.c). Not under
 * the meta lock. 0 (look again: it is there, or the miss is out of date), -EIO,
 * -EUCLEAN, -ENOMEM.
 */
int nvefs_store_load(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_miss *miss);
/*
 * For scrub. Compare all copies of what lies at fixed places (superblock slots, root
 * block, bitmaps) with what they must be; `bad` is told of a block of which none is
 * good, and a non-zero return ends it. Bad copies are counted and left to
 * nvefs_store_heal, which also looks at the journal's header: it commits, writes
 * everything home and then those copies, and waits for it. Both: no lock held.
 */
int nvefs_store_fixed_check(struct nvefs_store *st, struct nvefs_queue *q,
			    int (*bad)(void *arg, uint64_t pblk, int err), void *arg);
int nvefs_store_heal(struct nvefs_store *st); /* 0 or -EIO */
/* For loops: true when *err was -EAGAIN and the block is there now; else false, *err the result. */
bool nvefs_store_retry(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_miss *miss, int *err);

/*
 * Turn read-only for good: `why` is logged once. Later transactions get -EROFS.
 * nvefs_store_error gives the first cause, 0 while all is well. Any thread, any lock.
 */
void nvefs_store_fail(struct nvefs_store *st, int err, const char *why);
int nvefs_store_error(const struct nvefs_store *st);
/*
 * What a caller of the file system is told of an error of the device: -EIO. Only -ENOSPC, -EROFS and
 * -ENOMEM mean the same to him, and -EUCLEAN is ours.
 */
int nvefs_caller_errno(int err);

/* ---- Transactions ---- */

struct nvefs_txn {
	struct nvefs_store *st;
	uint64_t id; /* of the running transaction */
	struct nvefs_miss miss;
};

#define NVEFS_TXN_FREEING 1u /* frees space: may use the metadata reserve */
#define NVEFS_TXN_NOALLOC 2u /* takes no block: the metadata allocator need not be ready */

/*
 * Wait (outside locks) until the running transaction has room for `credits`
 * more dirty blocks and that many free blocks can be had for new metadata;
 * then return holding the meta lock for writing, with the metadata allocator
 * ready. -EROFS, -ENOSPC, -EIO. `credits` must not exceed nvefs_txn_max_credits.
 */
int nvefs_txn_begin(struct nvefs_store *st, struct nvefs_queue *q, uint32_t credits, uint32_t flags,
		    struct nvefs_txn *ret_txn);
/* Drops the meta lock. */
void nvefs_txn_end(struct nvefs_txn *t);
uint32_t nvefs_txn_max_credits(const struct nvefs_store *st);

/* ---- Durability ---- */

/* The running transaction's number: what was changed until now is durable once that one is. Any thread. */
uint64_t nvefs_txn_running(const struct nvefs_store *st);
uint64_t nvefs_txn_durable(const struct nvefs_store *st);

/*
 * Ask for the running transaction to be committed soon and be told. With
 * `fold` everything dirty in memory goes with it. `done` is called once, by
 * the commit thread, outside locks: record and wake, nothing else. err: 0 or
 * the error that ended writing. If the store is already durable up to `txn`
 * and fold is false, done may be called before this returns. With `reclaim` the
 * journal is emptied as well, and done is called when all quarantined blocks that
 * can come back have come back.
 */
struct nvefs_commit_waiter {
	struct nvefs_list link;
	uint64_t txn; /* in: durable up to this one (0: the running one) */
	bool fold, reclaim;
	int err;
	void (*done)(struct nvefs_commit_waiter *w);
};
void nvefs_commit_request(struct nvefs_store *st, struct nvefs_commit_waiter *w);
/* The same, blocking. Not from the commit thread. */
int nvefs_commit_run(struct nvefs_store *st, bool fold);
/* Hint: memory or space is short, commit soon, with folding. Never blocks. */
void nvefs_commit_kick(struct nvefs_store *st);
/*
 * Space is short: commit and empty the journal, so that every quarantined block
 * that can come back does. Blocks, without folding; no lock held. 0 or -EIO.
 */
int nvefs_commit_reclaim(struct nvefs_store *st);

struct nvefs_store_stats {
	uint64_t commits, commit_blks, checkpoints, checkpoint_blks, loads, recovered_txns, recovered_blks;
	uint64_t journal_blks, journal_live_blks, cache_blks, cache_dirty_blks;
	uint64_t txn_running, txn_durable;
	uint64_t total_blks, free_blks, quarantined_blks, reserve_blks;
	/* copies of metadata blocks: found bad; of these, written anew; and not, since that failed */
	uint64_t copies_bad, copies_healed, copies_unhealed;
};
void nvefs_store_stats(struct nvefs_store *st, struct nvefs_store_stats *ret);

#endif
