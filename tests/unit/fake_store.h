/* SPDX-License-Identifier: MIT */
/*
 * A store without device, cache, journal and tree, so that the allocator can be
 * tested at every turn: bitmaps and items are arrays, blocks are "cached" or not
 * as the test says, and the test decides what is durable.
 */
#ifndef FAKE_STORE_H
#define FAKE_STORE_H

#include "store/alloc_parts.h"

#define FAKE_GROUPS 6u

struct fake {
	struct nvefs_store st;
	struct nvefs_dev_limits lim;
	struct nvefs_disk_bitmap *bitmaps;
	struct nvefs_mblk mblks[FAKE_GROUPS];
	struct nvefs_disk_group items[FAKE_GROUPS];
	uint32_t *shares; /* by pblk; 0: no item */
	struct nvefs_disk_share share_val;
	bool bitmap_cached[FAKE_GROUPS], item_cached[FAKE_GROUPS];
	int bitmap_err[FAKE_GROUPS];
	uint32_t loads;
	uint64_t discarded; /* blocks */
	uint64_t discard_min_pblk, discard_max_pblk;
	void (*on_discard)(struct fake *f, uint64_t pblk, uint32_t nblks);
	struct nvefs_txn txn;
};

/* ngroups <= FAKE_GROUPS; the device has `iu` blocks per IU. Opened. */
struct fake *fake_new(uint32_t ngroups, uint32_t iu);
void fake_free(struct fake *f);
/* The allocator again, from what the bitmaps and items say, as after a mount. */
int fake_reopen(struct fake *f);
/* A transaction handle; prepared for `credits` dirty blocks. */
int fake_begin(struct fake *f, uint32_t credits, uint32_t flags, struct nvefs_txn *t);
void fake_end(struct fake *f, struct nvefs_txn *t);
/* The running transaction becomes durable, and (checkpoint) leaves the journal; release. */
void fake_commit(struct fake *f, bool checkpoint);
/* Prepare until nothing misses. */
int fake_ref_up(struct fake *f, struct nvefs_txn *t, uint64_t pblk);
int fake_ref_down(struct fake *f, struct nvefs_txn *t, uint64_t pblk, bool *last);
int fake_free_meta(struct fake *f, struct nvefs_txn *t, uint64_t pblk);
bool fake_on_disk(const struct fake *f, uint64_t pblk);
/* All counts agree with each other and with the bitmaps. */
void fake_check(struct fake *f);

#endif
