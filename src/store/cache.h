/* SPDX-License-Identifier: MIT */
/*
 * Cached metadata blocks. Used inside src/store/ (tree, allocation, journal)
 * and by checking tools. Everything here is under the meta lock; "writer"
 * means inside a transaction.
 *
 * States of a block: clean -> dirty in the running transaction -> (commit
 * copies the image) clean with a committed image not yet home -> home.
 * Only clean blocks without such an image, and without a bad copy, are ever evicted.
 */
#ifndef NVEFS_STORE_CACHE_H
#define NVEFS_STORE_CACHE_H

#include "format/block.h"
#include "store/store.h"

struct nvefs_mblk {
	uint64_t pblk;
	void *data; /* 4096 bytes, in on-disk form; checksum is only valid on disk */
	bool checked; /* tree.c: the node's structure was checked since it was read; false at first */
	/* below: cache.c and journal.c only */
	struct nvefs_mblk *hash_next;
	struct nvefs_list lru, dirty_link, home_link, heal_link;
	void *image;	    /* newest committed content that is not home yet */
	uint64_t image_txn;
	uint64_t dirty_txn; /* running transaction's number when dirty; the freeing one's; else 0 */
	uint32_t referenced;
	uint8_t bad;	    /* NVEFS_COPY_*: these are to be written anew */
	bool pinned;	    /* never evicted */
	bool replayed;	    /* in memory only: what is at home may be older */
	bool freed;	    /* no longer metadata; stays until its image is home or dropped */
};

/* Any mode. The block, or -EAGAIN with *miss filled. Valid until the meta lock is dropped. */
int nvefs_cache_get(struct nvefs_store *st, struct nvefs_block_ref at, uint16_t type,
		    struct nvefs_miss *miss, struct nvefs_mblk **ret_b);

/* Any mode. The block is cached, whatever it is. */
bool nvefs_cache_has(struct nvefs_store *st, uint64_t pblk);

/*
 * Writer. Before changing b->data: joins the running transaction and stamps
 * hdr.txn with its number. True when the block was not dirty in it before, so
 * that whoever holds its generation must be changed as well.
 */
bool nvefs_cache_dirty(struct nvefs_txn *t, struct nvefs_mblk *b);
/*
 * Writer. A block for a freshly allocated address: header filled (without a second
 * copy), body zero, dirty. -ENOMEM, -EUCLEAN: it is in use.
 */
int nvefs_cache_new(struct nvefs_txn *t, uint64_t pblk, uint16_t type, struct nvefs_mblk **ret_b);
/*
 * A check of the copies that the device has, of a block that others may be changing.
 * Under the meta lock, any mode: note what `at` must be there now. Then, not under
 * the lock, nvefs_copies_check reads all copies. It says nothing (ret->bad 0) of a
 * block that is dirty or waits to go home, which will be written anyway. A bad copy is
 * counted and, unless the store is read-only, left to the commit thread to write
 * anew; also when none is good, if the block is in the cache. 0; -EUCLEAN or -EIO:
 * none is good, nor cached; -ESTALE: it was changed meanwhile, note it again; -ENOMEM.
 */
struct nvefs_copies_look {
	struct nvefs_block_ref at;
	uint16_t type;
	bool settled;
	const struct nvefs_mblk *b; /* to compare with only */
	uint32_t gen;
	struct nvefs_ahead *ahead; /* as in nvefs_miss; for the caller to set */
};
struct nvefs_copies;
void nvefs_copies_look(struct nvefs_store *st, struct nvefs_block_ref at, uint16_t type,
		       struct nvefs_copies_look *ret);
int nvefs_copies_check(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_copies_look *look,
		       struct nvefs_copies *ret);

/* Writer. The address was freed: the content need not reach the disk any more. */
void nvefs_cache_forget(struct nvefs_txn *t, struct nvefs_mblk *b);

#endif
