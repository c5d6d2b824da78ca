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
	uint8_t age;		   /* sweeps since it was used */
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

/* Blocks taken out for metadata, next one first. Guarded by meta for writing. */
struct nvefs_stash {
	struct nvefs_stash_entry *e;
	uint32_t head, len, cap;
	uint32_t group; /* filled from; read by data allocation as an atomic */
	uint32_t off;	/* where to look next in it */
	uint64_t seq;	/* handle_seq of the handle in which `group` is known to be cached */
};

struct nvefs_alloc {
	uint32_t ngroups;
	uint32_t unit, align; /* of a whole run, blocks */
	uint32_t copies; /* of each metadata block: 1 or 2 */
	uint32_t reserve;
	uint32_t share_max; /* NVEFS_SHARE_MAX; tests lower it */
	struct nvefs_group *groups;
	/* Hints, one bit per group, atomics: may have a whole run; has a free block. */
	uint64_t *run_map, *avail_map;

	/* atomics */
	int64_t room;
	uint64_t held;	      /* referenced or reserved */
	uint64_t reserved;    /* data handed out and not mapped yet */
	uint64_t quarantined; /* until they are free again: also while they are discarded */
	uint64_t trimming;    /* free, but held by a trim */
	uint64_t pledged;
	uint64_t last_down;  /* newest transaction that dropped a tree reference of a block still
				held in memory */
	uint64_t tail;	     /* as the last release said */
	uint64_t handle_seq; /* counts ended transaction handles */
	uint32_t nmems;
	bool banned;	      /* a group with free blocks is out of use */
	uint32_t meta_unread; /* one more than the group that metadata could not be taken from; 0: none */

	struct nvefs_mutex collect_lock; /* a leaf; never held while collecting */
	struct nvefs_cond collect_cond;
	bool collecting; /* guarded by collect_lock */

	/* guarded by meta for writing */
	struct nvefs_list touched;
	struct nvefs_stash stash[2]; /* for first and for second copies */
	uint32_t misses;	     /* times in a row that miss_pblk was asked for */
	uint64_t miss_pblk;

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

#endif
