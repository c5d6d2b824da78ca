/* SPDX-License-Identifier: MIT */
/*
 * The inside of the allocator; alloc*.c, ref.c, quarantine.c, reader.c, trim.c only.
 *
 * What a block is follows from its group's `busy` bitmap and its chunk:
 *
 *	busy  notree  refs  quarantined
 *	0     -       -     -		free
 *	1     0       any   no		live, in the tree (and `refs` mappings or pins in memory)
 *	1     1       0     no		reserved, retired, in the metadata stash, or being discarded
 *	1     1       > 0   no		live, in memory only
 *	1     1       0     yes		quarantined
 *
 * A missing chunk is one of zeros. A chunk is made by whoever first needs one
 * and may fail for want of memory: reserving, pinning, preparing. The calls
 * that must not fail (mapping, dropping, freeing) find it there. It goes when
 * it says nothing, but not between a *_prepare and the end of that transaction
 * handle (`prep_seq`).
 *
 * `room` is the one admission counter: free blocks without the reserve and
 * without pledges. It goes below zero when metadata eats into these.
 */
#ifndef NVEFS_STORE_ALLOC_STATE_H
#define NVEFS_STORE_ALLOC_STATE_H

#include "format/item.h"
#include "format/layout.h"
#include "store/state.h"
#include "store/tree.h"

#define NVEFS_CHUNK_BLKS 64u
#define NVEFS_GROUP_CHUNKS (NVEFS_GROUP_BLKS / NVEFS_CHUNK_BLKS)
#define NVEFS_ALLOC_LOCKS 64u
#define NVEFS_READER_SHARDS 128u
#define NVEFS_RUN_MAX_BLKS 512u	   /* a cursor looks this far ahead */
#define NVEFS_RUN_MIN_BLKS 64u	   /* a run worth having when the device names no IU */
#define NVEFS_GROUP_MEMS_MAX 4096u /* groups kept in memory while nothing needs them */

enum { NVEFS_QUAR_DATA, NVEFS_QUAR_META, NVEFS_QUAR_KINDS };

/* Blocks of one chunk that wait together, as long as the youngest of them must. */
struct nvefs_quar {
	uint64_t bits;
	uint64_t txn;	/* must be durable; for metadata, out of the journal */
	uint64_t epoch; /* readers of this and of earlier epochs must be through */
};

struct nvefs_chunk {
	struct nvefs_list link; /* all chunks of groups under one lock */
	uint32_t group;
	uint16_t index;
	uint32_t nrefs; /* sum of refs */
	uint64_t prep_seq;
	uint64_t notree;  /* busy without a tree reference */
	uint64_t wastree; /* of notree: lost it in a transaction up to last_down */
	uint64_t meta;	  /* metadata that was allocated or freed since the mount */
	uint64_t full;	  /* share count near its limit: no more pins */
	struct nvefs_quar young[NVEFS_QUAR_KINDS], old[NVEFS_QUAR_KINDS];
	uint16_t refs[NVEFS_CHUNK_BLKS]; /* memory references */
};

struct nvefs_group_mem {
	uint32_t group;
	uint32_t owner; /* seed + 1 of the cursor that is at home here, or 0 */
	uint32_t nchunks;
	bool used;		   /* since the sweep came by */
	uint64_t *trimming;	   /* bitmap of what a discard of free space holds, or NULL */
	struct nvefs_list touched; /* guarded by meta for writing: in alloc.touched */
	uint64_t busy[NVEFS_GROUP_CHUNKS];
	struct nvefs_chunk *chunks[NVEFS_GROUP_CHUNKS];
};

struct nvefs_group {
	uint32_t free_blks;	     /* zero bits on disk, as of the running transaction; meta */
	uint32_t avail;		     /* not busy; group lock */
	uint64_t bitmap_txn;	     /* generation of the bitmap block; meta */
	struct nvefs_group_mem *mem; /* group lock; goes only with meta held as well */
};

struct nvefs_alloc_lock {
	struct nvefs_mutex m;
	struct nvefs_list chunks;
} __attribute__((aligned(64)));

struct nvefs_reader_shard {
	uint32_t count[2]; /* by parity of the epoch */
} __attribute__((aligned(64)));

struct nvefs_stash_entry {
	uint32_t group, off;
};

struct nvefs_alloc {
	uint32_t ngroups;
	uint32_t unit, align; /* of a whole run, blocks */
	uint32_t reserve;
	uint32_t share_max; /* NVEFS_SHARE_MAX; tests lower it */
	struct nvefs_group *groups;
	/* Hints, one bit per group, atomics: may have a whole run; has a free block. */
	uint64_t *run_map, *avail_map;

	/* atomics */
	int64_t room;
	uint64_t held;	   /* referenced or reserved */
	uint64_t reserved; /* data handed out and not mapped yet */
	uint64_t quarantined;
	uint64_t pledged;
	uint64_t last_down;  /* newest transaction that dropped a tree reference of a block still
				held in memory */
	uint64_t tail;	     /* as the last release said */
	uint64_t handle_seq; /* counts ended transaction handles */
	uint32_t nmems;

	struct nvefs_mutex collect_lock; /* a leaf; never held while collecting */
	struct nvefs_cond collect_cond;
	bool collecting; /* guarded by collect_lock */

	/* guarded by meta for writing */
	struct nvefs_list touched;
	struct nvefs_stash_entry *stash; /* blocks taken out for metadata, next one first */
	uint32_t stash_head, stash_len, stash_cap;
	uint32_t meta_group; /* read by data allocation as an atomic */
	uint32_t meta_off, meta_tries;

	uint32_t sweep_group; /* the collector's */
	uint64_t epoch __attribute__((aligned(64)));
	struct nvefs_reader_shard readers[NVEFS_READER_SHARDS];
	struct nvefs_alloc_lock locks[NVEFS_ALLOC_LOCKS];
};

static inline struct nvefs_mutex *nvefs_group_lock(struct nvefs_alloc *a, uint32_t g)
{
	return &a->locks[g % NVEFS_ALLOC_LOCKS].m;
}
static inline uint32_t nvefs_group_off(uint64_t pblk)
{
	return (uint32_t)(pblk % NVEFS_GROUP_BLKS);
}

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

/* ---- trim.c: a few discards in flight on one queue; failures are ignored, they are hints ---- */
#define NVEFS_DISCARDS_IN_FLIGHT 32u
struct nvefs_discard {
	struct nvefs_store *st;
	struct nvefs_queue *q;
	uint32_t nios, inflight;
	struct nvefs_io ios[NVEFS_DISCARDS_IN_FLIGHT];
};
bool nvefs_discard_possible(const struct nvefs_store *st);
void nvefs_discard_init(struct nvefs_discard *d, struct nvefs_store *st, struct nvefs_queue *q);
/* What of the run lies inside the device's granularity; waits for earlier ones when too many are in
 * flight. */
void nvefs_discard_add(struct nvefs_discard *d, uint64_t pblk, uint64_t count);
void nvefs_discard_wait(struct nvefs_discard *d);

/* ---- reader.c ---- */
/* Go to the next epoch if no reader of the one before is left. */
bool nvefs_reader_advance(struct nvefs_alloc *a);

#endif
