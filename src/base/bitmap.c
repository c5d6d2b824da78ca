/* SPDX-License-Identifier: MIT */
#include "base/bitmap.h"

#include <endian.h>
#include <string.h>

void nvefs_bitmap_set_run(uint8_t *map, uint32_t bit, uint32_t count)
{
	for (; count && (bit & 7); bit++, count--)
		nvefs_bitmap_set(map, bit);
	memset(map + (bit >> 3), 0xff, count >> 3);
	for (bit += count & ~7u, count &= 7; count; bit++, count--)
		nvefs_bitmap_set(map, bit);
}

void nvefs_bitmap_clear_run(uint8_t *map, uint32_t bit, uint32_t count)
{
	for (; count && (bit & 7); bit++, count--)
		nvefs_bitmap_clear(map, bit);
	memset(map + (bit >> 3), 0, count >> 3);
	for (bit += count & ~7u, count &= 7; count; bit++, count--)
		nvefs_bitmap_clear(map, bit);
}

/* Words are compared eight bytes at a time; `flip` turns "find zero" into "find set". */
static uint32_t next_set(const uint8_t *map, uint32_t from, uint32_t end, uint64_t flip)
{
	while (from < end) {
		uint64_t w;

		if (from & 63 || end - from < 64) {
			if (((map[from >> 3] ^ (uint8_t)flip) >> (from & 7)) & 1)
				return from;
			from++;
			continue;
		}
		memcpy(&w, map + (from >> 3), sizeof(w));
		w = le64toh(w) ^ flip;
		if (w)
			return from + (uint32_t)__builtin_ctzll(w);
		from += 64;
	}
	return end;
}

uint32_t nvefs_bitmap_next_zero(const uint8_t *map, uint32_t from, uint32_t end)
{
	return next_set(map, from, end, ~UINT64_C(0));
}

uint32_t nvefs_bitmap_next_set(const uint8_t *map, uint32_t from, uint32_t end)
{
	return next_set(map, from, end, 0);
}

uint32_t nvefs_bitmap_count(const uint8_t *map, uint32_t nbits)
{
	uint32_t n = 0, i = 0;

	for (; i + 8 <= nbits; i += 8)
		n += (uint32_t)__builtin_popcount(map[i >> 3]);
	for (; i < nbits; i++)
		n += nvefs_bitmap_test(map, i);
	return n;
}
