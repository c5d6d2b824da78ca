/* SPDX-License-Identifier: MIT */
/*
 * Blocks: who uses them, which are free, when they come back.
 *
 * Two kinds of references keep a data block:
 *  - tree references: mappings that the tree (as the running transaction sees
 *    it) holds. The bitmap bit is set while there is at least one; a share item
 *    counts them from two on.
 *  - memory references: mappings in a dirty segment map that are not in the
 *    tree yet, pins of a dedup candidate or of a clone under way. Never on disk.
 *
 * Life of a block:
 *	free --alloc--> reserved --map--> live --last reference dropped--> quarantined --> free
 *	                reserved --unreserve--> free (the write failed and the queue is known to be through)
 * A quarantined block comes back when (1) the transaction in which it lost its
 * last reference is durable, (2) every reader that started before is through,
 * (3) its discard, if any, has completed; when that timed out it does not come back in this mount. A metadata block comes back when no
 * live journal group can hold an image of it.
 *
 * Per group 24 bytes; once it is used a bitmap `busy` (not free in any sense);
 * and for each 64 blocks with something that the bitmap block on disk does not
 * say (memory references, quarantine, metadata of this mount) a small record.
 * Lock: one of a few alloc locks, by group; innermost in the lock order. Functions marked [txn] run in a transaction, the others in any
 * thread under no lock but the inode lock, unless they do I/O (a `q` argument:
 * no lock at all).
 */
#ifndef NVEFS_STORE_ALLOC_H
#define NVEFS_STORE_ALLOC_H

#include "store/store.h"

/* Where a writer goes on allocating; one per worker. Zero-initialise, set `seed` to spread workers. */
struct nvefs_alloc_cursor {
	uint32_t seed;
	uint32_t group;
	uint64_t next_pblk;
	uint64_t end_pblk; /* of the run reserved for this cursor's sequence */
};

/*
 * Reserve up to `want` contiguous blocks for data: whole IU-aligned free runs
 * first, behind the cursor, then smaller holes. Leaves the metadata reserve
 * alone. May load bitmaps on q. -ENOSPC: nothing free now; *ret_more (may be
 * NULL) tells whether quarantined blocks will come back after a commit.
 */
int nvefs_alloc_data(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_alloc_cursor *c,
		     uint32_t want, uint64_t *ret_pblk, uint32_t *ret_got, bool *ret_more);
/*
 * One block out of the metadata reserve, of which half stays. For who gives back another one by the next
 * commit, and has tried nvefs_alloc_data after all that was to come back had come back.
 */
int nvefs_alloc_data_last(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_alloc_cursor *c,
			  uint64_t *ret_pblk);
/*
 * What is said to whoever found no space and has tried all there is: -EIO for -ENOSPC when the bitmap of
 * a group that has free blocks could not be read, so that they are out of reach. Other errors stay. Any thread.
 */
int nvefs_alloc_errno(struct nvefs_store *st, int err);
/* Reserved, but not written: free again at once. */
void nvefs_block_unreserve(struct nvefs_store *st, uint64_t pblk, uint32_t count);
/* Reserved, but in an unknown state (a write timed out): out of use until the next mount. */
void nvefs_block_retire(struct nvefs_store *st, uint64_t pblk, uint32_t count);

/* Reserved and completely written: one memory reference each. */
void nvefs_block_map(struct nvefs_store *st, uint64_t pblk, uint32_t count);
/*
 * One more memory reference for a live data block. -ESTALE when it is not live
 * (free, reserved, quarantined, metadata, out of range, group never used),
 * -EMLINK when the count is at its limit.
 */
int nvefs_block_pin(struct nvefs_store *st, uint64_t pblk);
/* The group's bitmap must be known before a pin can succeed; loads it. 0 or -errno. */
int nvefs_block_pin_load(struct nvefs_store *st, struct nvefs_queue *q, uint64_t pblk);
/* Drop a memory reference. True when it was the last reference of any kind: quarantined now. */
bool nvefs_block_unpin(struct nvefs_store *st, uint64_t pblk);

/* [txn] Everything that ref_up and ref_down of this block need is cached. 0, -EAGAIN, -EUCLEAN. */
int nvefs_ref_prepare(struct nvefs_txn *t, uint64_t pblk);
/* [txn] One more tree reference. The block is reserved-and-mapped or live. -EMLINK at the limit, -EUCLEAN. */
int nvefs_ref_up(struct nvefs_txn *t, uint64_t pblk);
/* [txn] One tree reference less; *ret_last (may be NULL): no reference of any kind is left. -EUCLEAN. */
int nvefs_ref_down(struct nvefs_txn *t, uint64_t pblk, bool *ret_last);
/* Dirty blocks per ref_up or ref_down at most, group item and share item included. */
uint32_t nvefs_ref_credits(const struct nvefs_store *st);
/* Tree references of a block: 0, 1 or the share count. Meta lock. */
int nvefs_ref_count(struct nvefs_store *st, uint64_t pblk, struct nvefs_miss *miss, uint32_t *ret_count);

/*
 * [txn] A block for metadata, bit set in this transaction; freed likewise, each
 * copy by itself. Used by the tree. They count root->meta_blks, nobody else does.
 */
int nvefs_alloc_meta(struct nvefs_txn *t, uint64_t *ret_pblk);
/* One for its second copy, in another group if there is room; *ret_twin 0 without second copies. */
int nvefs_alloc_meta_twin(struct nvefs_txn *t, uint64_t *ret_twin);
int nvefs_free_meta(struct nvefs_txn *t, uint64_t pblk);
int nvefs_free_meta_prepare(struct nvefs_txn *t, uint64_t pblk);

/*
 * Promise that `blks` metadata blocks, each with its second copy, can be had
 * later (a dirty segment map will need tree space when folded). -ENOSPC when
 * they cannot. Give back with nvefs_alloc_unpledge. last_resort: out of the
 * reserve, up to a quarter of it: for what was promised earlier, or frees something.
 */
int nvefs_alloc_pledge(struct nvefs_store *st, uint32_t blks, bool last_resort);
/* So many blocks are free at this moment, beside the reserve and pledges. */
bool nvefs_alloc_has_room(const struct nvefs_store *st, int64_t blks);
void nvefs_alloc_unpledge(struct nvefs_store *st, uint32_t blks);

/*
 * Readers: between enter and exit no block that was mapped at enter is used
 * anew. Cheap; nests. The token is passed back, from any thread. Never wait
 * for a commit or for space inside: blocks do not come back meanwhile.
 */
uint32_t nvefs_reader_enter(struct nvefs_store *st);
void nvefs_reader_exit(struct nvefs_store *st, uint32_t token);

/*
 * One consistent view, in blocks: what df shows. `free` counts what nothing
 * refers to, quarantined blocks included (a commit gives them back), so that
 * overwriting does not make it swing; `avail` is `free` without the metadata
 * reserve and pledges. `reserved`: handed out, not mapped yet (not free).
 */
struct nvefs_space {
	uint64_t total, free, avail, quarantined, reserved, meta_reserve, pledged;
	uint64_t shared_blks, shared_refs; /* blocks with a share item; references saved by them */
	uint64_t meta_blks, inodes;
};
void nvefs_space_get(struct nvefs_store *st, struct nvefs_space *ret);

/*
 * Discard free runs of at least min_blks within [start, start + count), aligned
 * inwards to the device's granularity; a run is out of reach of allocation
 * while its discard is in flight; quarantined blocks are left alone.
 */
int nvefs_alloc_trim(struct nvefs_store *st, struct nvefs_queue *q, uint64_t start, uint64_t count,
		     uint64_t min_blks, uint64_t *ret_blks);

/* ---- For the store itself (journal.c, txn.c, store.c) ---- */

/* At open, after recovery: reads all group items. 0, -EUCLEAN, -ENOMEM, -EIO. */
int nvefs_alloc_init(struct nvefs_store *st, struct nvefs_queue *q);
void nvefs_alloc_done(struct nvefs_store *st); /* sets st->alloc to NULL; harmless when it was */
/*
 * Commit thread, outside locks: transactions up to `durable` are durable, and
 * the journal holds groups from `tail` on only (empty: tail is durable + 1).
 * Discards (on q) and frees what may come back.
 */
void nvefs_alloc_release(struct nvefs_store *st, struct nvefs_queue *q, uint64_t durable, uint64_t tail);
/*
 * [txn begin] Under the meta lock for writing: the allocator can serve `blks`
 * metadata blocks, each with its second copy, without I/O. 0, -EAGAIN, -ENOSPC (see nvefs_alloc_more), -ENOMEM, -EUCLEAN.
 * With NVEFS_TXN_FREEING it may use the reserve and what is pledged: transactions that free, and those that
 * fold what was pledged for. Without, it leaves half of the reserve alone, and of the other half may use
 * as much as is pledged, most of which comes back.
 */
int nvefs_alloc_meta_ready(struct nvefs_store *st, uint32_t blks, uint32_t txn_flags, struct nvefs_miss *miss);
/* True when -ENOSPC may go away by a commit (and a checkpoint): something is quarantined. Any thread. */
bool nvefs_alloc_more(struct nvefs_store *st);
/* True when it may go away by folding, or when requests end: blocks are pledged. */
bool nvefs_alloc_promised(const struct nvefs_store *st);
/*
 * [txn] Called by nvefs_txn_end before it drops the meta lock: brings the items
 * of the groups whose bitmaps were changed up to date. Not done on each change,
 * since the tree allocates while it is being changed itself.
 */
void nvefs_alloc_txn_end(struct nvefs_txn *t);

#endif
