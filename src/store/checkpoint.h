/* SPDX-License-Identifier: MIT */
/* Images on their way home; used by checkpoint and recovery. */
#ifndef NVEFS_STORE_CHECKPOINT_H
#define NVEFS_STORE_CHECKPOINT_H

#include "store/store.h"

struct nvefs_home {
	uint64_t pblk; /* of the first copy; the second is where the image says */
	uint64_t order; /* of several images of a block the highest counts */
	void *image;
};

/* Sort by pblk and keep the newest of each. Returns how many are left. */
uint32_t nvefs_home_sort(struct nvefs_home *h, uint32_t n);
/*
 * Write them (sorted) and their second copies, many at a time, neighbours
 * together, then Flush. `h` has room for 2 n, and is used up. 0 or -errno.
 */
int nvefs_home_write(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_home *h, uint32_t n);

#endif
