/* SPDX-License-Identifier: MIT */
/*
 * Blocks read before their turn, for whoever knows which come next: a walk over
 * the tree, a look at all bitmaps. By the queue's thread, and only while nobody changes
 * what is on the device, for what was read is not looked at again.
 *
 * A fixed number of blocks is held or in flight. What is not there, or could not be
 * read, is read when its turn comes, so that errors are met as without all this.
 */
#ifndef NVEFS_STORE_AHEAD_H
#define NVEFS_STORE_AHEAD_H

#include <nvefs/device.h>

#include "format/block.h"

/* Leaves, and nodes of each level above, that a walk is ahead; two blocks each. */
#define NVEFS_AHEAD_LEAVES 64u
#define NVEFS_AHEAD_INNER 2u
#define NVEFS_AHEAD_BLKS (2u * (NVEFS_AHEAD_LEAVES + 12u * NVEFS_AHEAD_INNER))

struct nvefs_ahead_slot;

struct nvefs_ahead {
	struct nvefs_queue *q;
	uint64_t nblks; /* of the file system: nothing beyond is read */
	bool twins;	/* for the owner to set: second copies are read as well */
	struct nvefs_ahead_slot *slots;
	uint8_t *bufs;
	uint64_t pblk[NVEFS_AHEAD_BLKS]; /* what the slot holds or waits for; 0: nothing */
	uint16_t idle[NVEFS_AHEAD_BLKS];
	uint32_t nidle;
};

/* 0 or -ENOMEM. */
int nvefs_ahead_init(struct nvefs_ahead *a, struct nvefs_queue *q, uint64_t nblks);
/* Waits for what is in flight. Fine after a failed init, and on zeros. */
void nvefs_ahead_done(struct nvefs_ahead *a);

/*
 * The block will be asked for: send for it, unless that has been done. Each call that
 * returned true is followed by a nvefs_ahead_drop when the block's turn is over, or by
 * nvefs_ahead_clear; a drop too many costs a read at most. False: there is no room now.
 */
bool nvefs_ahead_send(struct nvefs_ahead *a, struct nvefs_block_ref at);
void nvefs_ahead_drop(struct nvefs_ahead *a, struct nvefs_block_ref at);
/* Forget all; waits for what is in flight. Before anything is written. */
void nvefs_ahead_clear(struct nvefs_ahead *a);

/* The block at this address into buf (4096 bytes), waiting for it if need be. False: read it. */
bool nvefs_ahead_get(struct nvefs_ahead *a, uint64_t pblk, void *buf);

#endif
