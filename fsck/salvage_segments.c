/* SPDX-License-Identifier: MIT */
/*
 * Step 2: a line along the keys, and over it the spans of the leaves, the newest
 * on top: what is seen from above. Leaves come in order of their first keys; those
 * whose span has the place where the line is drawn are in a heap.
 */
#include <errno.h>
#include <stdlib.h>

#include "salvage.h"

struct sweep {
	struct nvefs_salvage *s;
	uint32_t *heap; /* indices of leaves, the highest rank first */
	size_t n;
	size_t next; /* leaf to come */
};

/* Of two equally new ones, which ought not to be, the lower address. */
static bool above(const struct sweep *w, uint32_t a, uint32_t b)
{
	const struct nvefs_salvage_leaf *x = &w->s->leaves[a], *y = &w->s->leaves[b];

	return x->rank != y->rank ? x->rank > y->rank : x->home < y->home;
}

static void push(struct sweep *w, uint32_t leaf)
{
	size_t i = w->n++;

	while (i && above(w, leaf, w->heap[(i - 1) / 2])) {
		w->heap[i] = w->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	w->heap[i] = leaf;
}

static void pop(struct sweep *w)
{
	uint32_t leaf = w->heap[--w->n];
	size_t i = 0;

	for (size_t k; (k = 2 * i + 1) < w->n; i = k) {
		if (k + 1 < w->n && above(w, w->heap[k + 1], w->heap[k]))
			k++;
		if (!above(w, w->heap[k], leaf))
			break;
		w->heap[i] = w->heap[k];
	}
	w->heap[i] = leaf;
}

static int emit(struct sweep *w, uint32_t leaf, const struct nvefs_key *low, const struct nvefs_key *high)
{
	struct nvefs_salvage *s = w->s;
	const struct nvefs_salvage_leaf *l = &s->leaves[leaf];
	struct nvefs_key end = nvefs_key_after(&l->last);

	if (s->nsegs == s->max_segs) {
		size_t max = s->max_segs ? s->max_segs * 2 : 256;
		struct nvefs_salvage_segment *tab = reallocarray(s->segs, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		s->segs = tab;
		s->max_segs = max;
	}
	s->segs[s->nsegs++] = (struct nvefs_salvage_segment){
		.leaf = leaf,
		.whole = !nvefs_key_cmp(low, &l->first) && !nvefs_key_cmp(high, &end),
		.low = *low,
		.high = *high};
	return 0;
}

/* From *cur on as far as the topmost leaf is seen; *cur moves there. */
static int step(struct sweep *w, struct nvefs_key *cur)
{
	struct nvefs_salvage *s = w->s;
	uint32_t top = w->heap[0];
	struct nvefs_key end = nvefs_key_after(&s->leaves[top].last), low = *cur;

	while (w->next < s->nleaves && nvefs_key_cmp(&s->leaves[w->next].first, &end) < 0) {
		const struct nvefs_key *first = &s->leaves[w->next].first;
		uint32_t leaf = (uint32_t)w->next++;

		push(w, leaf);
		if (above(w, leaf, top)) {
			end = *first;
			break;
		}
	}
	*cur = end;
	return nvefs_key_cmp(&low, &end) < 0 ? emit(w, top, &low, &end) : 0;
}

int nvefs_salvage_segments(struct nvefs_salvage *s)
{
	struct sweep w = {.s = s, .heap = calloc(s->nleaves + 1, sizeof(*w.heap))};
	struct nvefs_key cur = {0};
	int err = w.heap ? 0 : -ENOMEM;

	while (!err && (w.n || w.next < s->nleaves)) {
		if (!w.n) {
			cur = s->leaves[w.next].first;
			push(&w, (uint32_t)w.next++);
		} else if (nvefs_key_cmp(&s->leaves[w.heap[0]].last, &cur) < 0) {
			pop(&w);
		} else {
			err = step(&w, &cur);
		}
	}
	free(w.heap);
	return err;
}
