/* SPDX-License-Identifier: MIT */
#include "store/alloc_parts.h"

/* Bits of `flip ? ~w : w` from `from` on; words at a time. */
static uint32_t next_bit(const uint64_t *w, uint32_t from, uint32_t end, uint64_t flip)
{
	while (from < end) {
		uint64_t v = (w[from / 64] ^ flip) >> (from % 64);

		if (v) {
			from += (uint32_t)__builtin_ctzll(v);
			return from < end ? from : end;
		}
		from += 64 - from % 64;
	}
	return end;
}

uint32_t nvefs_bits_next_zero(const uint64_t *w, uint32_t from, uint32_t end)
{
	return next_bit(w, from, end, ~UINT64_C(0));
}

uint32_t nvefs_bits_next_set(const uint64_t *w, uint32_t from, uint32_t end)
{
	return next_bit(w, from, end, 0);
}

static uint64_t mask_of(uint32_t from, uint32_t count)
{
	return (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << from;
}

void nvefs_bits_set_run(uint64_t *w, uint32_t from, uint32_t count)
{
	while (count) {
		uint32_t n = 64 - from % 64 < count ? 64 - from % 64 : count;

		w[from / 64] |= mask_of(from % 64, n);
		from += n;
		count -= n;
	}
}

void nvefs_bits_clear_run(uint64_t *w, uint32_t from, uint32_t count)
{
	while (count) {
		uint32_t n = 64 - from % 64 < count ? 64 - from % 64 : count;

		w[from / 64] &= ~mask_of(from % 64, n);
		from += n;
		count -= n;
	}
}

uint32_t nvefs_bits_find_run(const uint64_t *w, uint32_t from, uint32_t end, uint32_t unit,
			     uint64_t base, uint32_t align)
{
	while (from < end) {
		uint32_t stop, rest;

		from = nvefs_bits_next_zero(w, from, end);
		rest = (uint32_t)((base + from) % align);
		if (rest)
			from += align - rest;
		if (from >= end || end - from < unit)
			return end;
		stop = nvefs_bits_next_set(w, from, from + unit);
		if (stop == from + unit)
			return from;
		from = stop + 1;
	}
	return end;
}

void nvefs_hint_set(uint64_t *map, uint32_t bit)
{
	uint64_t m = UINT64_C(1) << (bit % 64);

	/* Mostly set already: do not take the cache line from its other readers. */
	if (!(__atomic_load_n(&map[bit / 64], __ATOMIC_RELAXED) & m))
		__atomic_fetch_or(&map[bit / 64], m, __ATOMIC_RELAXED);
}

void nvefs_hint_clear(uint64_t *map, uint32_t bit)
{
	__atomic_fetch_and(&map[bit / 64], ~(UINT64_C(1) << (bit % 64)), __ATOMIC_RELAXED);
}

bool nvefs_hint_test(const uint64_t *map, uint32_t bit)
{
	return __atomic_load_n(&map[bit / 64], __ATOMIC_RELAXED) >> (bit % 64) & 1;
}

/*
 * The next set bit at or after `from`, going round once: *left, at first the
 * number of bits, counts down what is still to be looked at.
 */
uint32_t nvefs_hint_next(const uint64_t *map, uint32_t nbits, uint32_t from, uint32_t *left)
{
	if (from >= nbits)
		from = 0;
	while (*left) {
		uint64_t v = __atomic_load_n(&map[from / 64], __ATOMIC_RELAXED) >> (from % 64);
		uint32_t step = v ? (uint32_t)__builtin_ctzll(v) : 64 - from % 64;
		uint32_t room = nbits - from < *left ? nbits - from : *left;

		if (step > room)
			step = room;
		if (v && step < room) {
			*left -= step + 1;
			return from + step;
		}
		*left -= step;
		from = from + step == nbits ? 0 : from + step;
	}
	return UINT32_MAX;
}
