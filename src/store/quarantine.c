/* SPDX-License-Identifier: MIT */
/*
 * Quarantine: blocks that lost their last reference and may not be used yet.
 *
 * Each chunk has two sets per kind. Newcomers go into the young set, whose
 * label (transaction, epoch) is that of its youngest block; when the old set
 * has been released the young one takes its place. So a chunk in which blocks
 * are dropped all the time still gives blocks back, and no memory is needed
 * at the moment of dropping.
 *
 * One collector at a time. Its order: epochs; then per lock take out what may
 * go; without any lock, discard it; then make it free. While it is discarded a
 * block looks reserved to everybody else.
 */
#include <stdlib.h>

#include "store/alloc_parts.h"

#define SWEEP_GROUPS 4096u
#define SWEEP_AGE 16u

bool nvefs_quarantine_has(const struct nvefs_chunk *c, uint64_t bit)
{
	uint64_t bits = 0;

	for (uint32_t k = 0; k < NVEFS_QUAR_KINDS; k++)
		bits |= c->young[k].bits | c->old[k].bits;
	return bits & bit;
}

void nvefs_quarantine_add(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off,
			  uint32_t kind, uint64_t txn)
{
	struct nvefs_chunk *c = m->chunks[off / NVEFS_CHUNK_BLKS];
	struct nvefs_quar *y = &c->young[kind];

	__atomic_fetch_sub(&a->held, 1, __ATOMIC_RELAXED);
	if (nvefs_mutated(NVEFS_MUTATE_NO_QUARANTINE)) {
		nvefs_group_give(a, m, off, 1);
		nvefs_room_put(a, 1);
		return;
	}
	y->bits |= UINT64_C(1) << (off % NVEFS_CHUNK_BLKS);
	if (txn > y->txn)
		y->txn = txn;
	y->epoch = __atomic_load_n(&a->epoch, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&a->quarantined, 1, __ATOMIC_RELAXED);
}

struct collect {
	struct nvefs_alloc *a;
	uint64_t durable, tail, epoch;
	bool discard;
	/* what is to be discarded before it is free */
	struct run {
		uint64_t pblk, count;
		bool in_doubt; /* its discard may still come */
	} * runs;
	size_t nruns, cap;
};

static bool is_ready(const struct collect *col, const struct nvefs_quar *s, uint32_t kind)
{
	return (s->txn <= col->durable || nvefs_mutated(NVEFS_MUTATE_REUSE_EARLY)) &&
	       (s->epoch + 2 <= col->epoch || nvefs_mutated(NVEFS_MUTATE_NO_READERS) ||
		nvefs_mutated(NVEFS_MUTATE_NO_READERS_REREAD)) &&
	       (kind != NVEFS_QUAR_META || s->txn < col->tail ||
		nvefs_mutated(NVEFS_MUTATE_NO_META_TAIL));
}

static uint64_t take_ready(const struct collect *col, struct nvefs_chunk *c)
{
	uint64_t bits = 0;

	for (uint32_t k = 0; k < NVEFS_QUAR_KINDS; k++) {
		for (int pass = 0; pass < 2; pass++) {
			if (c->old[k].bits && is_ready(col, &c->old[k], k)) {
				bits |= c->old[k].bits;
				c->old[k].bits = 0;
			}
			if (c->old[k].bits || !c->young[k].bits)
				break;
			c->old[k] = c->young[k];
			c->young[k] = (struct nvefs_quar){0};
		}
	}
	return bits;
}

static bool runs_add(struct collect *col, uint64_t pblk, uint32_t count)
{
	if (col->nruns == col->cap) {
		size_t cap = col->cap ? col->cap * 2 : 256;
		struct run *r = realloc(col->runs, cap * sizeof(*r));

		if (!r)
			return false;
		col->runs = r;
		col->cap = cap;
	}
	col->runs[col->nruns++] = (struct run){.pblk = pblk, .count = count};
	return true;
}

/* In this order: whoever adds the two up must not miss blocks on their way. */
static void count_back(struct nvefs_alloc *a, uint32_t n)
{
	nvefs_room_put(a, n);
	__atomic_fetch_sub(&a->quarantined, n, __ATOMIC_RELEASE);
}

/* Blocks that stay in quarantine are discarded nevertheless: how runs_add is to be read then. */
#define EARLY (UINT64_C(1) << 63)

static void discard_early(struct collect *col, const struct nvefs_chunk *c)
{
	uint64_t bits = c->young[NVEFS_QUAR_DATA].bits | c->old[NVEFS_QUAR_DATA].bits;

	for (; bits; bits &= bits - 1)
		runs_add(col,
			 EARLY | (nvefs_layout_group_start(c->group) +
				  c->index * NVEFS_CHUNK_BLKS + (uint32_t)__builtin_ctzll(bits)),
			 1);
}

/* Group lock held. May free the chunk. */
static void release_chunk(struct collect *col, struct nvefs_chunk *c)
{
	struct nvefs_alloc *a = col->a;
	struct nvefs_group_mem *m = a->groups[c->group].mem;
	uint32_t base = c->index * NVEFS_CHUNK_BLKS, from = 0;
	uint64_t bits = take_ready(col, c);

	if (col->discard && nvefs_mutated(NVEFS_MUTATE_DISCARD_EARLY))
		discard_early(col, c);
	if (!bits) {
		nvefs_chunk_drop_idle(a, m, c);
		return;
	}
	while ((from = nvefs_bits_next_set(&bits, from, NVEFS_CHUNK_BLKS)) < NVEFS_CHUNK_BLKS) {
		uint32_t n = nvefs_bits_next_zero(&bits, from, NVEFS_CHUNK_BLKS) - from;
		uint64_t pblk = nvefs_layout_group_start(m->group) + base + from;

		/* Without memory for the list the discard is left out: it is a hint. */
		if (!col->discard || !runs_add(col, pblk, n)) {
			nvefs_group_give(a, m, base + from, n);
			count_back(a, n);
		}
		from += n;
	}
}

static void collect_lock(struct collect *col, struct nvefs_alloc_lock *l)
{
	struct nvefs_list *pos, *tmp;

	nvefs_mutex_lock(&l->m);
	nvefs_list_for_each_safe(pos, tmp, &l->chunks)
	    release_chunk(col, nvefs_container_of(pos, struct nvefs_chunk, link));
	nvefs_mutex_unlock(&l->m);
}

static int run_cmp(const void *x, const void *y)
{
	const struct run *a = x, *b = y;

	return (a->pblk > b->pblk) - (a->pblk < b->pblk);
}

static void give_run(struct nvefs_alloc *a, uint64_t pblk, uint64_t count)
{
	while (count) {
		uint32_t g = nvefs_layout_group(pblk), off = nvefs_group_off(pblk);
		uint32_t n =
		    NVEFS_GROUP_BLKS - off < count ? NVEFS_GROUP_BLKS - off : (uint32_t)count;
		struct nvefs_mutex *lock = nvefs_group_lock(a, g);

		nvefs_mutex_lock(lock);
		nvefs_group_give(a, a->groups[g].mem, off, n);
		nvefs_mutex_unlock(lock);
		count_back(a, n);
		pblk += n;
		count -= n;
	}
}

/* Stay as they are, reserved with nobody to map them, until the next mount. */
static void retire_run(struct nvefs_alloc *a, uint64_t count)
{
	__atomic_fetch_add(&a->held, count, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&a->quarantined, count, __ATOMIC_RELEASE);
}

static void finish_run(struct nvefs_alloc *a, const struct run *r)
{
	if (r->in_doubt)
		retire_run(a, r->count);
	else if (!(r->pblk & EARLY))
		give_run(a, r->pblk, r->count);
}

/* Merge neighbours, discard, free. */
static void discard_runs(struct nvefs_store *st, struct nvefs_queue *q, struct collect *col)
{
	size_t n = 0;

	if (!col->nruns)
		return;
	qsort(col->runs, col->nruns, sizeof(*col->runs), run_cmp);
	for (size_t i = 1; i < col->nruns; i++) {
		struct run *last = &col->runs[n];

		if (last->pblk + last->count == col->runs[i].pblk)
			last->count += col->runs[i].count;
		else
			col->runs[++n] = col->runs[i];
	}
	n++;
	for (size_t done = 0; done < n; done += NVEFS_DISCARDS_IN_FLIGHT) {
		size_t end =
		    n - done < NVEFS_DISCARDS_IN_FLIGHT ? n : done + NVEFS_DISCARDS_IN_FLIGHT;
		struct nvefs_discard batch;

		nvefs_discard_init(&batch, st, q);
		for (size_t i = done; i < end; i++)
			nvefs_discard_add(&batch, col->runs[i].pblk & ~EARLY, col->runs[i].count, &col->runs[i].in_doubt);
		nvefs_discard_wait(&batch);
		for (size_t i = done; i < end; i++)
			finish_run(col->a, &col->runs[i]);
	}
}

/*
 * Keep the number of groups in memory bounded: those with nothing but the
 * bitmap can be read again. The meta lock keeps transactions out, which rely on
 * what they prepared.
 */
static void sweep_groups(struct nvefs_store *st)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t limit = a->ngroups < SWEEP_GROUPS ? a->ngroups : SWEEP_GROUPS;

	if (__atomic_load_n(&a->nmems, __ATOMIC_RELAXED) <= NVEFS_GROUP_MEMS_MAX)
		return;
	nvefs_store_rdlock(st);
	for (uint32_t i = 0; i < limit; i++) {
		uint32_t g = a->sweep_group;
		struct nvefs_mutex *lock = nvefs_group_lock(a, g);
		struct nvefs_group_mem *m, *drop = NULL;

		a->sweep_group = g + 1 < a->ngroups ? g + 1 : 0;
		nvefs_mutex_lock(lock);
		m = a->groups[g].mem;
		if (m && m->age >= SWEEP_AGE && !m->nchunks && !m->trimming && !m->owner) {
			drop = m;
			a->groups[g].mem = NULL;
			__atomic_fetch_sub(&a->nmems, 1, __ATOMIC_RELAXED);
		} else if (m && m->age < SWEEP_AGE)
			m->age++;
		nvefs_mutex_unlock(lock);
		free(drop);
	}
	nvefs_store_rdunlock(st);
}

static bool collect_begin(struct nvefs_alloc *a, bool wait)
{
	bool mine;

	nvefs_mutex_lock(&a->collect_lock);
	while (wait && a->collecting)
		nvefs_cond_wait(&a->collect_cond, &a->collect_lock);
	mine = !a->collecting;
	a->collecting = true;
	nvefs_mutex_unlock(&a->collect_lock);
	return mine;
}

static void collect_end(struct nvefs_alloc *a)
{
	nvefs_mutex_lock(&a->collect_lock);
	a->collecting = false;
	nvefs_cond_broadcast(&a->collect_cond);
	nvefs_mutex_unlock(&a->collect_lock);
}

void nvefs_quarantine_collect(struct nvefs_store *st, struct nvefs_queue *q, bool wait)
{
	struct nvefs_alloc *a = st->alloc;
	struct collect col = {.a = a, .discard = st->opts.discard && nvefs_discard_possible(st)};

	if (!collect_begin(a, wait))
		return;
	/* The store may know better than its last release by now. */
	col.durable = nvefs_txn_durable(st);
	col.tail = __atomic_load_n(&a->tail, __ATOMIC_ACQUIRE);
	if (nvefs_reader_advance(a))
		nvefs_reader_advance(a);
	col.epoch = __atomic_load_n(&a->epoch, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < NVEFS_ALLOC_LOCKS; i++)
		collect_lock(&col, &a->locks[i]);
	discard_runs(st, q, &col);
	free(col.runs);
	sweep_groups(st);
	collect_end(a);
}

void nvefs_alloc_release(struct nvefs_store *st, struct nvefs_queue *q, uint64_t durable,
			 uint64_t tail)
{
	(void)durable; /* as nvefs_txn_durable */
	__atomic_store_n(&st->alloc->tail, tail, __ATOMIC_RELEASE);
	nvefs_quarantine_collect(st, q, false);
}
