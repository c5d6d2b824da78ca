/* SPDX-License-Identifier: MIT */
/*
 * Contents of a medium in layers, copy on write. A layer holds the blocks that were
 * changed in it; all others are those of its base, or zeros. So a snapshot costs
 * one table, and a state of the medium what it changes.
 *
 * While layers lie on top of one and hold blocks, the one below must not change. A
 * layer may be read and written by any threads, as a device is: not the same
 * block at once.
 */
#ifndef NVEFS_DEVICE_COW_H
#define NVEFS_DEVICE_COW_H

#include "device/media.h"

struct nvefs_cow;

/* An empty layer over `base`, which outlives it, or over zeros (NULL). NULL: out of memory. */
struct nvefs_cow *nvefs_cow_new(const struct nvefs_cow *base, uint64_t nblks);
void nvefs_cow_free(struct nvefs_cow *c); /* NULL is fine */
/* Forget all changes. */
void nvefs_cow_reset(struct nvefs_cow *c);

uint64_t nvefs_cow_nblks(const struct nvefs_cow *c);
/* The block as it is now; valid until it is written or the layer that holds it is reset. */
const uint8_t *nvefs_cow_block(const struct nvefs_cow *c, uint64_t pblk);
/* Has this layer itself a content of the block? */
bool nvefs_cow_holds(const struct nvefs_cow *c, uint64_t pblk);
/* Within one block. `data` NULL: bytes of `value`. 0 or -ENOMEM. */
int nvefs_cow_write(struct nvefs_cow *c, uint64_t off, uint32_t len, const void *data,
		    uint8_t value);

/*
 * The same for equal contents, whatever the layers; what changed since the last
 * call is all that is looked at. No writer at work.
 */
uint64_t nvefs_cow_hash(struct nvefs_cow *c);
/* Of those blocks only that `want` says yes to; NULL: all. */
typedef bool nvefs_cow_want_fn(const void *arg, uint64_t pblk);
uint64_t nvefs_cow_hash_some(struct nvefs_cow *c, nvefs_cow_want_fn *want, const void *arg);

/* As a medium that the caller keeps: closing it leaves `c` alone; with `own` it frees it. */
int nvefs_media_cow_open(struct nvefs_cow *c, bool own, struct nvefs_media **ret_media);

#endif
