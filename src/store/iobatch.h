/* SPDX-License-Identifier: MIT */
/*
 * Many transfers in flight on one queue, by the queue's thread. Which of them
 * completes first is open, so a batch never has two on one block; what must be
 * ordered is separated by nvefs_iobatch_wait.
 */
#ifndef NVEFS_STORE_IOBATCH_H
#define NVEFS_STORE_IOBATCH_H

#include <nvefs/device.h>

struct nvefs_iobatch_slot;

struct nvefs_iobatch {
	struct nvefs_queue *q;
	struct nvefs_iobatch_slot *slots, *idle;
	uint32_t inflight;
	int err; /* the first */
};

/* Up to `depth` transfers at a time. 0 or -ENOMEM. */
int nvefs_iobatch_init(struct nvefs_iobatch *b, struct nvefs_queue *q, uint32_t depth);
/* Waits for what is in flight. Fine after a failed init. */
void nvefs_iobatch_done(struct nvefs_iobatch *b);
/*
 * Start a transfer of the `niov` blocks of 4096 bytes each; waits while `depth`
 * are in flight. iov and buffers stay valid until nvefs_iobatch_wait. After an
 * error nothing new is started.
 */
void nvefs_iobatch_submit(struct nvefs_iobatch *b, enum nvefs_io_op op, uint64_t pblk, struct iovec *iov,
			  uint32_t niov);
/* Until all have completed. The first error since the last wait, or 0. */
int nvefs_iobatch_wait(struct nvefs_iobatch *b);

#endif
