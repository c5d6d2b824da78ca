/* SPDX-License-Identifier: MIT */
/*
 * Inside the file system layer: the mount, the inode in memory, the worker.
 *
 * Lock order: meta lock (store) -> inode table shard -> inode lock -> alloc
 * lock. No I/O and no wait under any of them. The inode lock is held for
 * short work in memory only; what must exclude others for longer (a write from
 * its first step until its remap, truncate, copy) takes a range lock, which is
 * a queued object, not a thread lock (range.h).
 *
 * Names and inode items are changed in the tree at once, by transactions. File
 * data maps (windows) and what writing changes in the inode (size, mtime,
 * blks) change in memory first, and are folded into the tree later (fold.c).
 */
#ifndef NVEFS_FS_FS_H
#define NVEFS_FS_FS_H

#include <nvefs/nvefs.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "dedup/index.h"
#include "format/inode.h"
#include "store/alloc.h"
#include "store/store.h"
#include "store/tree.h"

#define NVEFS_INODE_SHARDS 256u

struct nvefs_window_mem;

/* An inode in memory. Found by number in the table; freed when nothing holds it and it is clean. */
struct nvefs_inode {
	struct nvefs_inode *hash_next; /* table shard */
	struct nvefs_fs *fs;
	uint64_t ino;
	/* by the table shard's lock */
	uint32_t refs;	  /* pointers held by code */
	uint64_t nlookup; /* by the kernel */
	uint32_t nopen;
	bool bg_queued; /* in fs->bg_orphans, which holds a ref */
	bool dying;	/* the background thread removes it: nobody gets it any more */
	struct nvefs_list bg_link; /* by fs->bg_lock */

	struct nvefs_mutex lock; /* all below */
	struct nvefs_inode_rec rec; /* as seen by callers: size, times, blks include what is not folded */
	uint64_t disk_size;	    /* size and blks of the item in the tree */
	uint64_t disk_blks;
	bool gone;     /* removed from the tree: nothing may be written any more */
	bool orphan;   /* nlink is 0, an ORPHAN item exists */
	bool rec_dirty; /* rec differs from the item */
	uint64_t last_txn; /* newest transaction that changed an item of this inode: fsync waits for it */

	/* file data, owned by window.c, range.c, fold.c */
	struct nvefs_window_mem **windows; /* hash by window number */
	uint32_t nbuckets, nwindows;
	struct nvefs_list dirty_windows;
	uint32_t ndirty;
	/*
	 * In fs->dirty_inodes, by fs->dirty_lock. Being there keeps the struct in memory
	 * without a reference, since it is entered under the inode lock.
	 */
	struct nvefs_list fold_link;
	struct nvefs_list ranges, range_waiters;
};

struct nvefs_inode_shard {
	struct nvefs_mutex lock;
	struct nvefs_inode **buckets;
	uint32_t nbuckets, count;
};

struct nvefs_fs {
	struct nvefs_dev *dev;
	struct nvefs_store *st;
	struct nvefs_mmp *mmp; /* NULL: the file system has no multiple mount protection, or is only read */
	struct nvefs_mount_opts opts;
	uint64_t hash_seed;
	bool read_only;

	struct nvefs_inode_shard shards[NVEFS_INODE_SHARDS];

	struct nvefs_mutex dirty_lock; /* dirty_inodes and fold_link; innermost beside the alloc lock */
	struct nvefs_list dirty_inodes;
	_Atomic uint64_t dirty_map_bytes, map_bytes; /* windows in memory */
	_Atomic uint32_t shrink_hand;		     /* next shard to drop clean windows of */

	struct nvefs_dedup_index *_Atomic index; /* NULL: never used in this mount */
	_Atomic bool dedup_on;

	struct nvefs_mutex workers_lock;
	struct nvefs_worker **workers;
	uint32_t nworkers, max_workers;

	/* background thread: orphans, filling the dedup index */
	pthread_t bg_thread;
	struct nvefs_mutex bg_lock;
	struct nvefs_cond bg_cond;
	bool bg_started, bg_up, bg_stop, bg_busy;
	int bg_err; /* of starting */
	bool bg_fill; /* the dedup index is to be filled from the tree */
	struct nvefs_list bg_orphans; /* nvefs_inode.bg_link, by bg_lock; innermost */
	uint32_t bg_norphans;

	/* pledge.c: requests that hold a metadata pledge, or ask for one just now; that wait for the turn, or have it */
	_Atomic uint32_t pledge_holders, space_waiting;
	struct nvefs_mutex space_lock;
	struct nvefs_list space_waiters; /* nvefs_op.link, by space_lock */
	struct nvefs_op *space_turn;	 /* by space_lock */

	uint64_t fixed_blks; /* superblocks, journal, bitmaps: never allocated */
	_Atomic uint64_t logical_blks_mem; /* mapped blocks not folded yet, signed sum */
	_Atomic uint64_t checksum_errors, io_errors;
	struct nvefs_ratelimit log_limit;
};

/* ---- inode.c (names side) ---- */

/* Get by number with a reference, loading it; -ESTALE when there is none. May do I/O on q: no lock held. */
int nvefs_inode_get(struct nvefs_fs *fs, struct nvefs_queue *q, uint64_t ino, struct nvefs_inode **ret_in);
/* Only when it is in memory; no I/O. NULL otherwise. */
struct nvefs_inode *nvefs_inode_peek(struct nvefs_fs *fs, uint64_t ino);
void nvefs_inode_ref(struct nvefs_inode *in); /* when one is held already */
/* The last reference of an orphan without lookups and opens hands it to the background thread. */
void nvefs_inode_put(struct nvefs_inode *in);

/* [txn] [inode lock] Write the inode item: rec with disk_size and disk_blks. Prepared by nvefs_inode_prepare. */
int nvefs_inode_prepare(struct nvefs_txn *t, struct nvefs_inode *in);
int nvefs_inode_write_locked(struct nvefs_txn *t, struct nvefs_inode *in);
/* [inode lock] for the answer to callers */
void nvefs_inode_attr_locked(const struct nvefs_inode *in, struct nvefs_attr *ret);
/* now, with the granularity that all times have */
struct timespec nvefs_time_now(void);
/* [inode lock] Somebody read it: the mount's atime rule; marks it dirty when atime changes. */
void nvefs_inode_accessed_locked(struct nvefs_inode *in);

/*
 * ---- orphan.c: [txn] the KIND_ORPHAN items ----
 * Reasons are bits: put adds them to what is there, del takes them away and
 * removes the item with the last one (none there: fine).
 */
int nvefs_orphan_prepare(struct nvefs_txn *t, uint64_t ino);
int nvefs_orphan_put(struct nvefs_txn *t, uint64_t ino, uint32_t reason);
int nvefs_orphan_del(struct nvefs_txn *t, uint64_t ino, uint32_t reason);
/*
 * Space is short: let the background thread hurry, wait until it is through. No
 * lock held; not from the commit thread. Commit afterwards to have the blocks back.
 */
void nvefs_orphan_drain(struct nvefs_fs *fs, struct nvefs_queue *q);

/* ---- data side, used by the names side ---- */

/* [inode lock] at creation of the struct; at its freeing (no dirty window is left). */
void nvefs_inode_data_init(struct nvefs_inode *in);
void nvefs_inode_data_done(struct nvefs_inode *in);
/* Fold what this inode has dirty into the tree; I/O, transactions: no lock held. */
int nvefs_inode_fold(struct nvefs_inode *in, struct nvefs_queue *q);
/* The store's fold callback: all dirty inodes. */
int nvefs_fs_fold(void *arg, struct nvefs_queue *q);
/* [inode lock] rec changed in memory only: it will be folded. */
void nvefs_inode_mark_dirty_locked(struct nvefs_inode *in);
/*
 * Remove the mappings from lblk `from` on, in the tree and in memory, in
 * bounded transactions. Nobody else may work on that range. Restartable.
 */
int nvefs_inode_free_blocks(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t from_lblk);
/*
 * Memory of an unlinked inode's dirty windows: dropped without folding; takes it
 * off fs->dirty_inodes. No lock held; the caller has a reference.
 */
int nvefs_inode_data_discard(struct nvefs_inode *in);

struct nvefs_queue *nvefs_worker_queue(struct nvefs_worker *w);
struct nvefs_fs *nvefs_worker_fs(struct nvefs_worker *w);

/* ---- mount.c asks for these at start and end ---- */
int nvefs_bg_start(struct nvefs_fs *fs);
void nvefs_bg_stop(struct nvefs_fs *fs);

#endif
