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
	bool freed;	    /* no longer metadata; stays until its image is home or dropped */
};

/* Any mode. The block, or -EAGAIN with *miss filled. Valid until the meta lock is dropped. */
int nvefs_cache_get(struct nvefs_store *st, struct nvefs_block_ref at, uint16_t type,
		    struct nvefs_miss *miss, struct nvefs_mblk **ret_b);

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
/* Writer. The address was freed: the content need not reach the disk any more. */
void nvefs_cache_forget(struct nvefs_txn *t, struct nvefs_mblk *b);

#endif
