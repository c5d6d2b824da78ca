/* SPDX-License-Identifier: MIT */
/*
 * Cutting an io that is above the device's limits into parts that fit. Parts
 * come from a pool of the queue, fixed at its making, so that the write path
 * allocates nothing. The owner thread of the queue only.
 */
#ifndef NVEFS_DEVICE_SPLIT_H
#define NVEFS_DEVICE_SPLIT_H

#include "device/backend.h"

/* Pieces that one part can hold when a cut goes through a piece of the caller's. */
#define NVEFS_SPLIT_IOV 64u

struct nvefs_split {
	struct nvefs_io io;
	struct iovec iov[NVEFS_SPLIT_IOV];
	struct nvefs_split *next;
};

int nvefs_split_pool_init(struct nvefs_queue *q); /* 0 or -ENOMEM */
void nvefs_split_pool_done(struct nvefs_queue *q);

/* 0 when the device can take the io somehow, else the errno that it ends with. */
int nvefs_split_check(const struct nvefs_queue *q, const struct nvefs_io *io);
bool nvefs_split_needed(const struct nvefs_queue *q, const struct nvefs_io *io);

/* Set the cursor of a checked io to its start. `max_blks` bounds a part, besides the limits; 0: it does not. */
void nvefs_split_start(struct nvefs_io *io, uint32_t max_blks);
/* No part is left to be sent. */
bool nvefs_split_at_end(const struct nvefs_io *io);
/* Nothing more of it is sent: a part has failed. */
void nvefs_split_stop(struct nvefs_io *io);
/*
 * Take the next part off the io. NULL when the pool is empty; *ret_err is set when what
 * comes next cannot be expressed as one command. nvefs_split_undo gives it back unsent.
 */
struct nvefs_split *nvefs_split_next(struct nvefs_queue *q, struct nvefs_io *io, int *ret_err);
void nvefs_split_undo(struct nvefs_queue *q, struct nvefs_split *part);
void nvefs_split_free(struct nvefs_queue *q, struct nvefs_split *part);

#endif
