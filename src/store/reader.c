/* SPDX-License-Identifier: MIT */
/*
 * Readers and epochs.
 *
 * A reader counts itself in under the parity of the epoch that it saw, and
 * looks again: if the epoch moved, it counts out and starts over. So whoever
 * moves the epoch from E to E + 1 and finds the count of parity (E + 1) & 1 at
 * zero knows that no reader of E - 1 is left, and none can come: a late one
 * finds the epoch changed. A block that was unmapped, then labelled with epoch
 * L, can be known to readers of L and earlier only: a reader that came in at
 * L + 1 looks at the map after the epoch moved, hence after the unmapping. At
 * epoch L + 2 those are gone.
 *
 * Each thread has a shard of its own as long as there are no more threads than
 * shards, so that readers do not share a cache line that anyone writes; the
 * epoch itself is written once or twice per commit.
 */
#include "store/alloc_parts.h"

static uint32_t my_shard(void)
{
	static uint32_t next;
	static _Thread_local uint32_t mine; /* 0: not assigned yet */

	if (!mine)
		mine = 1 + __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % NVEFS_READER_SHARDS;
	return mine - 1;
}

uint32_t nvefs_reader_enter(struct nvefs_store *st)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t shard = my_shard();

	for (;;) {
		uint64_t e = __atomic_load_n(&a->epoch, __ATOMIC_SEQ_CST);
		uint32_t *count = &a->readers[shard].count[e & 1];

		__atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&a->epoch, __ATOMIC_SEQ_CST) == e)
			return shard << 1 | (uint32_t)(e & 1);
		__atomic_fetch_sub(count, 1, __ATOMIC_SEQ_CST);
	}
}

void nvefs_reader_exit(struct nvefs_store *st, uint32_t token)
{
	struct nvefs_alloc *a = st->alloc;

	__atomic_fetch_sub(&a->readers[token >> 1].count[token & 1], 1, __ATOMIC_SEQ_CST);
}

/* The collector alone calls this, so that the epoch does not move under its eyes. */
bool nvefs_reader_advance(struct nvefs_alloc *a)
{
	uint64_t e = __atomic_load_n(&a->epoch, __ATOMIC_SEQ_CST);

	for (uint32_t i = 0; i < NVEFS_READER_SHARDS; i++)
		if (__atomic_load_n(&a->readers[i].count[(e + 1) & 1], __ATOMIC_SEQ_CST))
			return false;
	__atomic_store_n(&a->epoch, e + 1, __ATOMIC_SEQ_CST);
	return true;
}
