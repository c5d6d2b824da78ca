/* SPDX-License-Identifier: MIT */
/*
 * A set-associative table, in stripes. A stripe has one lock and a table of its
 * own, so that changing the size stops one stripe at a time. The order of the
 * entries in a set is their age, newest first; no clock is needed.
 */
#include "dedup/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

#define STRIPES 128u
#define WAYS 8u
#define PBLK_BITS 56
#define PBLK_MASK ((UINT64_C(1) << PBLK_BITS) - 1)
#define BACKGROUND (UINT64_C(1) << PBLK_BITS)

struct entry {
	uint64_t fp;
	uint64_t word; /* pblk, flags; 0: empty, and so are all behind */
};

struct set {
	struct entry e[WAYS];
};

struct stripe {
	struct nvefs_mutex lock;
	/* guarded by lock; sets is read by prefetch as an atomic as well */
	struct set *sets;
	uint32_t nsets;
	uint64_t entries, lookups, candidates, hits, false_hits, inserts, evictions, removals,
	    refused;
} __attribute__((aligned(64)));

struct nvefs_dedup_index {
	uint64_t fp_mask;
	uint64_t budget_bytes; /* atomic */
	struct stripe stripes[STRIPES];
};

static uint32_t stripe_nsets(uint64_t budget_bytes, uint32_t i)
{
	uint64_t total = budget_bytes / sizeof(struct set);

	if (total / STRIPES >= UINT32_MAX)
		return UINT32_MAX;
	return (uint32_t)(total / STRIPES + (i < total % STRIPES));
}

/* The fingerprint is a hash already, but a test may leave few of its bits. */
static uint64_t mix(uint64_t fp)
{
	fp ^= fp >> 32;
	fp *= 0x9e3779b97f4a7c15u;
	return fp ^ fp >> 29;
}

static uint32_t stripe_of(uint64_t fp)
{
	return (uint32_t)(mix(fp) % STRIPES);
}

static struct set *set_of(struct set *sets, uint32_t nsets, uint64_t fp)
{
	return &sets[((mix(fp) >> 32) * nsets) >> 32];
}

int nvefs_dedup_index_new(uint64_t budget_bytes, struct nvefs_dedup_index **ret_ix)
{
	struct nvefs_dedup_index *ix =
	    aligned_alloc(64, sizeof(*ix) + (64 - sizeof(*ix) % 64) % 64);
	int err;

	if (!ix)
		return -ENOMEM;
	memset(ix, 0, sizeof(*ix));
	ix->fp_mask = UINT64_MAX;
	for (uint32_t i = 0; i < STRIPES; i++)
		nvefs_mutex_init(&ix->stripes[i].lock);
	err = nvefs_dedup_index_resize(ix, budget_bytes);
	if (err) {
		nvefs_dedup_index_free(ix);
		return err;
	}
	*ret_ix = ix;
	return 0;
}

void nvefs_dedup_index_free(struct nvefs_dedup_index *ix)
{
	if (!ix)
		return;
	for (uint32_t i = 0; i < STRIPES; i++) {
		nvefs_mutex_done(&ix->stripes[i].lock);
		free(ix->stripes[i].sets);
	}
	free(ix);
}

void nvefs_dedup_index_limit_bits(struct nvefs_dedup_index *ix, uint32_t bits)
{
	ix->fp_mask = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
}

static uint32_t set_len(const struct set *s)
{
	uint32_t n = 0;

	while (n < WAYS && s->e[n].word)
		n++;
	return n;
}

static uint32_t set_find(const struct set *s, uint64_t fp, uint64_t pblk)
{
	for (uint32_t i = 0; i < WAYS && s->e[i].word; i++)
		if (s->e[i].fp == fp && (s->e[i].word & PBLK_MASK) == pblk)
			return i;
	return WAYS;
}

/* Make e the newest: it takes the place of entry i, the younger ones move up. */
static void set_front(struct set *s, uint32_t i, struct entry e)
{
	memmove(&s->e[1], &s->e[0], i * sizeof(e));
	s->e[0] = e;
}

static void set_remove(struct set *s, uint32_t i)
{
	memmove(&s->e[i], &s->e[i + 1], (WAYS - 1 - i) * sizeof(s->e[0]));
	s->e[WAYS - 1] = (struct entry){0};
}

/* Old sets into new ones: round by round, the oldest first, so that the newest end up in front. */
static void move_hints(struct stripe *s, struct set *sets, uint32_t nsets)
{
	s->entries = 0;
	for (uint32_t age = WAYS; age-- > 0;) {
		for (uint32_t i = 0; i < s->nsets; i++) {
			struct entry e = s->sets[i].e[age];
			struct set *to;
			uint32_t n;

			if (!e.word || !nsets)
				continue;
			to = set_of(sets, nsets, e.fp);
			n = set_len(to);
			if (n == WAYS)
				n--;
			else
				s->entries++;
			set_front(to, n, e);
		}
	}
}

int nvefs_dedup_index_resize(struct nvefs_dedup_index *ix, uint64_t budget_bytes)
{
	for (uint32_t i = 0; i < STRIPES; i++) {
		struct stripe *s = &ix->stripes[i];
		uint32_t nsets = stripe_nsets(budget_bytes, i);
		struct set *sets = NULL, *old;

		if (nsets) {
			sets = calloc(nsets, sizeof(*sets));
			if (!sets)
				return -ENOMEM;
		}
		nvefs_mutex_lock(&s->lock);
		move_hints(s, sets, nsets);
		old = s->sets;
		__atomic_store_n(&s->sets, sets, __ATOMIC_RELAXED);
		__atomic_store_n(&s->nsets, nsets, __ATOMIC_RELAXED);
		nvefs_mutex_unlock(&s->lock);
		free(old);
	}
	__atomic_store_n(&ix->budget_bytes, budget_bytes, __ATOMIC_RELAXED);
	return 0;
}

/* Only the address is computed from what may be out of date by now. */
void nvefs_dedup_index_prefetch(const struct nvefs_dedup_index *ix, uint64_t fp)
{
	const struct stripe *s;
	uintptr_t sets;
	uint32_t nsets;

	fp &= ix->fp_mask;
	s = &ix->stripes[stripe_of(fp)];
	sets = (uintptr_t)__atomic_load_n(&s->sets, __ATOMIC_RELAXED);
	nsets = __atomic_load_n(&s->nsets, __ATOMIC_RELAXED);
	sets += sizeof(struct set) * (((mix(fp) >> 32) * nsets) >> 32);
	__builtin_prefetch((const void *)sets);
	__builtin_prefetch((const void *)(sets + 64));
}

uint32_t nvefs_dedup_index_lookup(struct nvefs_dedup_index *ix, uint64_t fp, uint32_t max,
				  uint64_t *ret_pblks)
{
	struct stripe *s;
	uint32_t n = 0;

	fp &= ix->fp_mask;
	s = &ix->stripes[stripe_of(fp)];
	nvefs_mutex_lock(&s->lock);
	s->lookups++;
	if (s->nsets) {
		const struct set *set = set_of(s->sets, s->nsets, fp);

		for (uint32_t i = 0; i < WAYS && set->e[i].word && n < max; i++)
			if (set->e[i].fp == fp)
				ret_pblks[n++] = set->e[i].word & PBLK_MASK;
	}
	s->candidates += n != 0;
	nvefs_mutex_unlock(&s->lock);
	return n;
}

/* The place that a new hint of this fingerprint takes: the oldest beyond its share, an empty one,
 * the oldest. */
static uint32_t place_of(struct stripe *s, const struct set *set, uint64_t fp)
{
	uint32_t same = 0, last = 0, n = set_len(set);

	for (uint32_t i = 0; i < n; i++) {
		if (set->e[i].fp == fp) {
			same++;
			last = i;
		}
	}
	if (same < NVEFS_DEDUP_MAX_HINTS && n < WAYS) {
		s->entries++;
		return n;
	}
	s->evictions++;
	return same >= NVEFS_DEDUP_MAX_HINTS ? last : WAYS - 1;
}

void nvefs_dedup_index_insert(struct nvefs_dedup_index *ix, uint64_t fp, uint64_t pblk,
			      bool background)
{
	struct entry e = {.fp = fp & ix->fp_mask, .word = pblk};
	struct stripe *s;
	struct set *set;
	uint32_t i;

	if (!pblk || pblk > PBLK_MASK)
		return;
	s = &ix->stripes[stripe_of(e.fp)];
	nvefs_mutex_lock(&s->lock);
	if (!s->nsets)
		goto out;
	set = set_of(s->sets, s->nsets, e.fp);
	i = set_find(set, e.fp, pblk);
	if (background) {
		uint32_t n = set_len(set);

		if (i < WAYS)
			goto out;
		if (n == WAYS) {
			s->refused++;
			goto out;
		}
		e.word |= BACKGROUND;
		set->e[n] = e;
		s->entries++;
	} else {
		set_front(set, i < WAYS ? i : place_of(s, set, e.fp), e);
	}
	s->inserts++;
out:
	nvefs_mutex_unlock(&s->lock);
}

void nvefs_dedup_index_remove(struct nvefs_dedup_index *ix, uint64_t fp, uint64_t pblk)
{
	struct stripe *s;

	fp &= ix->fp_mask;
	s = &ix->stripes[stripe_of(fp)];
	nvefs_mutex_lock(&s->lock);
	if (s->nsets) {
		struct set *set = set_of(s->sets, s->nsets, fp);
		uint32_t i = set_find(set, fp, pblk);

		if (i < WAYS) {
			set_remove(set, i);
			s->entries--;
			s->removals++;
		}
	}
	nvefs_mutex_unlock(&s->lock);
}

void nvefs_dedup_index_judge(struct nvefs_dedup_index *ix, uint64_t fp, uint64_t pblk, bool equal)
{
	struct stripe *s;

	fp &= ix->fp_mask;
	s = &ix->stripes[stripe_of(fp)];
	nvefs_mutex_lock(&s->lock);
	*(equal ? &s->hits : &s->false_hits) += 1;
	if (s->nsets) {
		struct set *set = set_of(s->sets, s->nsets, fp);
		uint32_t i = set_find(set, fp, pblk);

		if (i < WAYS && equal) {
			set_front(set, i, (struct entry){.fp = fp, .word = pblk});
		} else if (i < WAYS) {
			set_remove(set, i);
			s->entries--;
			s->removals++;
		}
	}
	nvefs_mutex_unlock(&s->lock);
}

void nvefs_dedup_index_stats(struct nvefs_dedup_index *ix, struct nvefs_dedup_index_stats *ret)
{
	struct nvefs_dedup_index_stats t = {
	    .budget_bytes = __atomic_load_n(&ix->budget_bytes, __ATOMIC_RELAXED)};

	for (uint32_t i = 0; i < STRIPES; i++) {
		struct stripe *s = &ix->stripes[i];

		nvefs_mutex_lock(&s->lock);
		t.entries += s->entries;
		t.capacity += (uint64_t)s->nsets * WAYS;
		t.lookups += s->lookups;
		t.candidates += s->candidates;
		t.hits += s->hits;
		t.false_hits += s->false_hits;
		t.inserts += s->inserts;
		t.evictions += s->evictions;
		t.removals += s->removals;
		t.refused += s->refused;
		nvefs_mutex_unlock(&s->lock);
	}
	*ret = t;
}
