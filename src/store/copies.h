/* SPDX-License-Identifier: MIT */
/*
 * The two copies of a metadata block (SPEC.md, section 2). Below the cache: what
 * the device has. For the store itself, and for tools that work on a device
 * nobody else writes.
 */
#ifndef NVEFS_STORE_COPIES_H
#define NVEFS_STORE_COPIES_H

#include <nvefs/device.h>

#include "format/block.h"

struct nvefs_ahead;

#define NVEFS_COPY_FIRST 1u
#define NVEFS_COPY_TWIN 2u

struct nvefs_copies {
	uint8_t bad;			   /* NVEFS_COPY_*: looked at, and not what it must be */
	int good;			   /* the one that `buf` holds: 0 first, 1 twin, -1 neither */
	int err[2];			   /* of reading it; 0 when it was read or not looked at */
	enum nvefs_block_status status[2]; /* if it was read */
};

/*
 * Read the block that `want` describes from whichever copy is good into buf
 * (4096 bytes). The first copy alone when it is good, unless `both` asks for a look
 * at the other as well. Of two intact ones that differ in age the newer one
 * counts (want->txn 0), the other is stale. Of two intact ones of one age of which
 * one says what is impossible (nvefs_content_possible, want->super set) the other counts; when both do it is left to
 * whoever decodes the block. 0, also when one is bad; -EUCLEAN or
 * -EIO: there is no good one, and buf has what was read last; -ENOMEM.
 */
int nvefs_copies_read(struct nvefs_queue *q, const struct nvefs_block_expect *want, bool both, void *buf,
		      struct nvefs_copies *ret);
/* The same; what has been read ahead (ahead.h) is taken from there. `ahead` may be NULL. */
int nvefs_copies_read_ahead(struct nvefs_queue *q, struct nvefs_ahead *ahead, const struct nvefs_block_expect *want,
			    bool both, void *buf, struct nvefs_copies *ret);

/*
 * Write `buf` (sealed) over the copies named in `bad`, in place, then Flush if
 * `flush`. Safe when buf is the durable content and nobody else writes the block. 0 or -errno.
 */
int nvefs_copies_rewrite(struct nvefs_queue *q, const struct nvefs_block_expect *want, const void *buf,
			 uint8_t bad, bool flush);

/* What is wrong with copy i (0, 1), in words. */
const char *nvefs_copies_text(const struct nvefs_copies *c, int i);
static inline uint64_t nvefs_copies_pblk(const struct nvefs_block_expect *want, int i)
{
	return i ? want->twin : want->pblk;
}

#endif
