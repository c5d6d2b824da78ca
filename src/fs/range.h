/* SPDX-License-Identifier: MIT */
/*
 * Range locks on an inode's blocks: queued objects, so that waiting for one
 * blocks a request and never a thread. A write holds its range from its first
 * step until its remap; truncate, fallocate and copy hold theirs throughout.
 * Reads take none: they see the map before or after a remap, and reader tokens
 * keep the blocks they resolved.
 *
 * Two ranges are taken in the order of the inode numbers, never while waiting
 * for a second range of the same inode.
 */
#ifndef NVEFS_FS_RANGE_H
#define NVEFS_FS_RANGE_H

#include "fs/fs.h"

struct nvefs_range {
	struct nvefs_list link; /* in the inode's ranges or range_waiters */
	uint64_t lo, hi;	/* blocks [lo, hi) */
	bool exclusive;
	bool held; /* by the owner's thread: nvefs_range_get said true or granted ran */
	/* Called when a waiting range was granted, by whichever thread released: record and wake only. */
	void (*granted)(struct nvefs_range *r);
};

/* True: held now. False: `granted` will be called once. */
bool nvefs_range_get(struct nvefs_inode *in, struct nvefs_range *r, uint64_t lo, uint64_t hi, bool exclusive);
/* Harmless when it is not held. */
void nvefs_range_put(struct nvefs_inode *in, struct nvefs_range *r);

#endif
