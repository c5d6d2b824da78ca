/* SPDX-License-Identifier: MIT */
/*
 * The segment map of one window: two flat arrays in memory, extents and
 * checksums on disk. Pure.
 */
#ifndef NVEFS_FORMAT_MAP_H
#define NVEFS_FORMAT_MAP_H

#include <nvefs/format.h>
#include <stdint.h>

#include "format/super.h"

/* Entry of the pblk array: 0 for a hole, else enum nvefs_extent_type in the top byte. */
#define NVEFS_WENT_TYPE_SHIFT 56

struct nvefs_window {
	uint64_t pblk[NVEFS_WINDOW_BLKS]; /* nvefs_went_make, or 0 */
	uint64_t csum[NVEFS_WINDOW_BLKS]; /* of NVEFS_EXT_DATA entries, else 0 */
};

static inline uint64_t nvefs_went_make(uint8_t type, uint64_t pblk)
{
	return (uint64_t)type << NVEFS_WENT_TYPE_SHIFT | pblk;
}
static inline uint8_t nvefs_went_type(uint64_t ent) /* 0: hole */
{
	return (uint8_t)(ent >> NVEFS_WENT_TYPE_SHIFT);
}
static inline uint64_t nvefs_went_pblk(uint64_t ent)
{
	return ent & ((1ull << NVEFS_WENT_TYPE_SHIFT) - 1);
}

/*
 * The item's value into ret_val (NVEFS_VALUE_MAX bytes); its length, 0 when
 * all are holes: such a window has no item.
 */
uint32_t nvefs_map_encode(const struct nvefs_window *w, void *ret_val);
/*
 * An untrusted value: extents ascend, do not overlap, are of a known type and
 * within the data area, and the checksums are as many as they must be. 0 or
 * -EUCLEAN.
 */
int nvefs_map_decode(const void *val, uint32_t len, const struct nvefs_super *sb,
		     struct nvefs_window *ret_w);
/* Bytes that the encoded window takes; 0 for an empty one. */
uint32_t nvefs_map_bytes(const struct nvefs_window *w);

#endif
