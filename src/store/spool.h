/* SPDX-License-Identifier: MIT */
/*
 * Writing many single blocks in any ascending order with bounded memory: fill a
 * buffer, name its address; neighbours go out together, many at a time. Where its
 * header names a second copy, that is written as well.
 */
#ifndef NVEFS_STORE_SPOOL_H
#define NVEFS_STORE_SPOOL_H

#include "store/iobatch.h"

#define NVEFS_SPOOL_BLKS 512u

struct nvefs_spool {
	struct nvefs_iobatch batch;
	uint8_t *buf;
	struct iovec iov[NVEFS_SPOOL_BLKS];
	uint64_t pblk[NVEFS_SPOOL_BLKS];
	uint32_t n;
	int err; /* the first; later blocks are not written */
};

int nvefs_spool_init(struct nvefs_spool *s, struct nvefs_queue *q);
void nvefs_spool_done(struct nvefs_spool *s);
/* Zeroed room for the block to go to `pblk`; may write those before. Each address once per flush. */
void *nvefs_spool_next(struct nvefs_spool *s, uint64_t pblk);
/* Seal and write what is there. The first error of all, or 0. No device Flush. */
int nvefs_spool_write(struct nvefs_spool *s);

#endif
