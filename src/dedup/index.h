/* SPDX-License-Identifier: MIT */
/*
 * The fingerprint index: where a block with this fingerprint may lie.
 *
 * Memory only, within a fixed budget, 16 bytes per hint. A hint may be wrong or
 * stale at any time and decides nothing: whoever uses one pins the block and
 * compares bytes (dedup/batch.h). Losing hints loses savings only.
 *
 * Hints of one set are kept in the order of their age, the oldest leaves first.
 * Hints from background filling count as older than all that writes left, and
 * only take what is empty. All functions: any thread, no lock held that is
 * outside of the index's own (leaf) locks.
 */
#ifndef NVEFS_DEDUP_INDEX_H
#define NVEFS_DEDUP_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#define NVEFS_DEDUP_MAX_HINTS 4u /* per fingerprint */

struct nvefs_dedup_index;

/* Budget 0: no hint is ever kept. 0 or -ENOMEM. */
int nvefs_dedup_index_new(uint64_t budget_bytes, struct nvefs_dedup_index **ret_ix);
void nvefs_dedup_index_free(struct nvefs_dedup_index *ix); /* NULL is fine */
/*
 * Change the budget while in use; as many of the newest hints as fit are kept.
 * 0 drops all and frees the memory. -ENOMEM: some parts may have the new size
 * already, all hints are sound still; call again.
 */
int nvefs_dedup_index_resize(struct nvefs_dedup_index *ix, uint64_t budget_bytes);
/* Tests only: tell fingerprints apart by this many low bits. Before first use. */
void nvefs_dedup_index_limit_bits(struct nvefs_dedup_index *ix, uint32_t bits);

/* Up to max candidates, newest first; how many. */
uint32_t nvefs_dedup_index_lookup(struct nvefs_dedup_index *ix, uint64_t fp, uint32_t max,
				  uint64_t *ret_pblks);
/* Get the memory of this fingerprint under way: a batch does so for all before it looks up the
 * first. */
void nvefs_dedup_index_prefetch(const struct nvefs_dedup_index *ix, uint64_t fp);
void nvefs_dedup_index_insert(struct nvefs_dedup_index *ix, uint64_t fp, uint64_t pblk,
			      bool background);
/* The block's last reference went, or it turned out different. Harmless when there is no such hint.
 */
void nvefs_dedup_index_remove(struct nvefs_dedup_index *ix, uint64_t fp, uint64_t pblk);
/* The candidate was compared: equal makes the hint young, different forgets it. Counts either. */
void nvefs_dedup_index_judge(struct nvefs_dedup_index *ix, uint64_t fp, uint64_t pblk, bool equal);

struct nvefs_dedup_index_stats {
	uint64_t budget_bytes, entries, capacity;
	uint64_t lookups, candidates; /* and how many of them found something */
	uint64_t hits, false_hits;    /* judged equal, different */
	uint64_t inserts, evictions, removals;
	uint64_t refused; /* background hints without an empty place */
};
void nvefs_dedup_index_stats(struct nvefs_dedup_index *ix, struct nvefs_dedup_index_stats *ret);

#endif
