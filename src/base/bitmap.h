/* SPDX-License-Identifier: MIT */
/*
 * Bitmaps as arrays of bytes, least significant bit first, which is also their
 * form on disk. Bit numbers count from 0. The owner provides the locking. Pure.
 */
#ifndef NVEFS_BASE_BITMAP_H
#define NVEFS_BASE_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

static inline bool nvefs_bitmap_test(const uint8_t *map, uint32_t bit)
{
	return map[bit >> 3] >> (bit & 7) & 1;
}
static inline void nvefs_bitmap_set(uint8_t *map, uint32_t bit)
{
	map[bit >> 3] |= (uint8_t)(1u << (bit & 7));
}
static inline void nvefs_bitmap_clear(uint8_t *map, uint32_t bit)
{
	map[bit >> 3] &= (uint8_t) ~(1u << (bit & 7));
}
void nvefs_bitmap_set_run(uint8_t *map, uint32_t bit, uint32_t count);
void nvefs_bitmap_clear_run(uint8_t *map, uint32_t bit, uint32_t count);

/* First bit at or after `from` and below `end` that is zero (set); `end` when there is none. */
uint32_t nvefs_bitmap_next_zero(const uint8_t *map, uint32_t from, uint32_t end);
uint32_t nvefs_bitmap_next_set(const uint8_t *map, uint32_t from, uint32_t end);

/* Number of set bits among the first `nbits`. */
uint32_t nvefs_bitmap_count(const uint8_t *map, uint32_t nbits);

#endif
