/* SPDX-License-Identifier: MIT */
/* What the files of the allocator call of each other. State and rules: alloc_state.h. */
#ifndef NVEFS_STORE_ALLOC_PARTS_H
#define NVEFS_STORE_ALLOC_PARTS_H

#include "store/alloc_state.h"

/* ---- alloc_bits.c: words of bits, least significant first ---- */
uint32_t nvefs_bits_next_zero(const uint64_t *w, uint32_t from, uint32_t end);
uint32_t nvefs_bits_next_set(const uint64_t *w, uint32_t from, uint32_t end);
void nvefs_bits_set_run(uint64_t *w, uint32_t from, uint32_t count);
void nvefs_bits_clear_run(uint64_t *w, uint32_t from, uint32_t count);
/* First start >= from of `unit` zeros below end, (base + start) a multiple of align; `end` if none.
 */
uint32_t nvefs_bits_find_run(const uint64_t *w, uint32_t from, uint32_t end, uint32_t unit,
			     uint64_t base, uint32_t align);
/* Bitmaps of groups, changed and read by atomics. next: circular from `from`; UINT32_MAX: none. */
void nvefs_hint_set(uint64_t *map, uint32_t bit);
void nvefs_hint_clear(uint64_t *map, uint32_t bit);
bool nvefs_hint_test(const uint64_t *map, uint32_t bit);
uint32_t nvefs_hint_next(const uint64_t *map, uint32_t nbits, uint32_t from, uint32_t *left);

/* ---- alloc.c ---- */
/* Up to `want` blocks out of room; 0: none. And back. */
uint32_t nvefs_room_get(struct nvefs_alloc *a, uint32_t want);
void nvefs_room_put(struct nvefs_alloc *a, uint32_t n);

/* ---- alloc_group.c ---- */
/* Under meta (any mode): the group is in memory. 0, -EAGAIN, -EUCLEAN, -ENOMEM. */
int nvefs_group_get(struct nvefs_store *st, uint32_t g, struct nvefs_miss *miss);
/* The same, outside locks, with I/O. */
int nvefs_group_load(struct nvefs_store *st, struct nvefs_queue *q, uint32_t g);
/* Under meta: what a change of the group's bitmap needs is cached. */
int nvefs_group_cached(struct nvefs_store *st, uint32_t g, struct nvefs_miss *miss);
/* [txn] Set or clear a bit on disk; counts follow. The bit had the other value. */
int nvefs_group_change(struct nvefs_txn *t, uint32_t g, uint32_t off, bool set);
/* Take the group out of use: its bitmap cannot be had. */
void nvefs_group_ban(struct nvefs_alloc *a, uint32_t g);
/* Group lock held, in all below. */
/* The block's chunk, made if need be; NULL: out of memory. prepare: it stays until the handle ends.
 */
struct nvefs_chunk *nvefs_chunk_prepare(struct nvefs_alloc *a, struct nvefs_group_mem *m,
					uint32_t off);
struct nvefs_chunk *nvefs_chunk_get(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off);
void nvefs_chunk_drop_idle(struct nvefs_alloc *a, struct nvefs_group_mem *m, struct nvefs_chunk *c);
/* Free -> reserved, as many as there is memory for; 0: none. */
uint32_t nvefs_group_take(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off,
			  uint32_t n);
/* Reserved (or released) -> free. Does not touch room and held. */
void nvefs_group_give(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off, uint32_t n);

/* ---- alloc_meta.c ---- */
/* A block of the stash, reserved, becomes the caller's: as if it had been allocated for data. No lock held. */
bool nvefs_stash_lend(struct nvefs_store *st, uint64_t *ret_pblk);

/* ---- quarantine.c. Group lock held. ---- */
void nvefs_quarantine_add(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off,
			  uint32_t kind, uint64_t txn);
bool nvefs_quarantine_has(const struct nvefs_chunk *c, uint64_t bit);
/*
 * Outside locks: free what may come back by what is known to be durable. When
 * somebody else is collecting, wait for him and collect then, or (`wait`
 * false) leave it.
 */
void nvefs_quarantine_collect(struct nvefs_store *st, struct nvefs_queue *q, bool wait);

/* ---- trim.c: a few discards in flight on one queue; failures are ignored but for time-outs, they are hints ---- */
#define NVEFS_DISCARDS_IN_FLIGHT 32u
struct nvefs_discard {
	struct nvefs_store *st;
	struct nvefs_queue *q;
	uint32_t ncmds, inflight;
	struct nvefs_discard_cmd {
		struct nvefs_io io;
		struct nvefs_discard *d;
		bool *in_doubt;
	} cmds[NVEFS_DISCARDS_IN_FLIGHT];
};
bool nvefs_discard_possible(const struct nvefs_store *st);
void nvefs_discard_init(struct nvefs_discard *d, struct nvefs_store *st, struct nvefs_queue *q);
/*
 * What of the run lies inside the device's granularity; waits for earlier ones when too many are in flight.
 * *in_doubt is set when one timed out: it may still come, and take what is written there afterwards.
 */
void nvefs_discard_add(struct nvefs_discard *d, uint64_t pblk, uint64_t count, bool *in_doubt);
void nvefs_discard_wait(struct nvefs_discard *d);

/* ---- reader.c ---- */
/* Go to the next epoch if no reader of the one before is left. */
bool nvefs_reader_advance(struct nvefs_alloc *a);

#endif
