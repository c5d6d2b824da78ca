/* SPDX-License-Identifier: MIT */
/*
 * Blocks for metadata.
 *
 * A transaction may not wait, and data allocation goes on beside it. So blocks
 * for metadata are taken out of the free ones beforehand, into the stash, when
 * a transaction begins; its groups' bitmaps and items are checked to be cached
 * at each beginning. The stash is filled from one group as long as that has
 * blocks, so that few bitmaps are written, and it is memory only: on disk its
 * blocks are free.
 *
 * There is a stash for first and one for second copies, filled from different
 * groups as long as there is room in different ones.
 *
 * Blocks in the stash still count as free and in `room`: they are a part of
 * the reserve that data allocation leaves alone anyway.
 */
#include <stdlib.h>

#include "store/alloc_parts.h"

#define STASH_BATCH_BLKS 64u
#define STASH_SPARE_BLKS 192u /* while there is plenty */
#define META_TRIES 4u	      /* for one block that cannot be read */

/*
 * Of the dirty blocks of a transaction only some are new: a split dirties the
 * path, the bitmap and the group item, too. And a transaction that frees must
 * be able to run in the last blocks. For one of the copies.
 */
static uint32_t need_blks(const struct nvefs_alloc *a, uint32_t credits)
{
	/* With second copies a new node dirties two bitmaps: it is a smaller part of the credits. */
	uint32_t n = credits / (a->copies == 1 ? 4 : 6) + 16;

	if (n > credits)
		n = credits;
	return n > a->reserve / 2 / a->copies ? a->reserve / 2 / a->copies : n;
}

static bool may_use(const struct nvefs_alloc *a, uint32_t need, uint32_t txn_flags)
{
	int64_t room = __atomic_load_n(&a->room, __ATOMIC_RELAXED);
	int64_t pledged = (int64_t)__atomic_load_n(&a->pledged, __ATOMIC_RELAXED);

	if (txn_flags & NVEFS_TXN_FREEING)
		room += a->reserve + pledged;
	else
		room += pledged < a->reserve / 2 ? pledged : a->reserve / 2;
	return room >= (int64_t)need * a->copies;
}

static bool stash_push(struct nvefs_stash *s, uint32_t g, uint32_t off)
{
	if (s->head + s->len == s->cap) {
		uint32_t cap = s->cap ? s->cap * 2 : 256;
		struct nvefs_stash_entry *e;

		if (s->head) {
			for (uint32_t i = 0; i < s->len; i++)
				s->e[i] = s->e[s->head + i];
			s->head = 0;
		} else {
			e = realloc(s->e, cap * sizeof(*e));
			if (!e)
				return false;
			s->e = e;
			s->cap = cap;
		}
	}
	s->e[s->head + s->len++] = (struct nvefs_stash_entry){.group = g, .off = off};
	return true;
}

/* Take up to `want` blocks of the current group into the stash. */
static uint32_t stash_fill(struct nvefs_alloc *a, struct nvefs_stash *s, uint32_t want)
{
	uint32_t g = s->group, got = 0;
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	struct nvefs_group_mem *m;

	nvefs_mutex_lock(lock);
	m = a->groups[g].mem;
	while (m && got < want) {
		uint32_t off = nvefs_bits_next_zero(m->busy, s->off, NVEFS_GROUP_BLKS);

		if (off == NVEFS_GROUP_BLKS) {
			if (!s->off)
				break;
			s->off = 0;
			continue;
		}
		if (!nvefs_group_take(a, m, off, 1))
			break;
		if (!stash_push(s, g, off)) {
			nvefs_group_give(a, m, off, 1);
			break;
		}
		s->off = off + 1;
		got++;
	}
	nvefs_mutex_unlock(lock);
	return got;
}

/* How good a group is to fill from: 0: not at all, up to 3. */
static uint32_t group_worth(struct nvefs_alloc *a, const struct nvefs_stash *s, uint32_t g)
{
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	const struct nvefs_group_mem *m;
	uint32_t avail, owner;

	nvefs_mutex_lock(lock);
	m = a->groups[g].mem;
	avail = a->groups[g].avail;
	owner = m ? m->owner : 0;
	nvefs_mutex_unlock(lock);
	if (!avail)
		return 0;
	/* The other copies are there. */
	if (a->copies > 1 && a->stash[s == a->stash].group == g)
		return 1;
	return avail >= STASH_BATCH_BLKS && !owner ? 3 : 2;
}

/* The next group to fill from: one with much room, else any with some. */
static int next_group(struct nvefs_alloc *a, struct nvefs_stash *s)
{
	uint32_t left = a->ngroups, g = s->group + 1, best = UINT32_MAX, worth = 0;

	while (worth < 3 &&
	       (g = nvefs_hint_next(a->avail_map, a->ngroups, g, &left)) != UINT32_MAX) {
		uint32_t w = group_worth(a, s, g);

		if (w > worth) {
			best = g;
			worth = w;
		}
		g++;
	}
	if (best == UINT32_MAX)
		return -ENOSPC;
	__atomic_store_n(&s->group, best, __ATOMIC_RELAXED);
	s->off = 0;
	return 0;
}

/*
 * As nvefs_group_cached, but gives up (-EIO) on a group for which the same
 * block is asked for again and again: whoever should load it cannot.
 */
static int group_cached(struct nvefs_store *st, uint32_t g, struct nvefs_miss *miss)
{
	struct nvefs_alloc *a = st->alloc;
	int err = nvefs_group_cached(st, g, miss);

	if (err == -EAGAIN) {
		if (a->miss_pblk != miss->pblk)
			a->misses = 0;
		a->miss_pblk = miss->pblk;
		err = ++a->misses > META_TRIES ? -EIO : -EAGAIN;
	}
	if (!err && a->meta_unread == g + 1)
		__atomic_store_n(&a->meta_unread, 0, __ATOMIC_RELAXED);
	else if (err == -EIO || err == -EUCLEAN)
		__atomic_store_n(&a->meta_unread, g + 1, __ATOMIC_RELAXED);
	return err;
}

static int refill(struct nvefs_store *st, struct nvefs_stash *s, uint32_t want,
		  struct nvefs_miss *miss)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t hops = 0;
	int err;

	while (s->len < want) {
		err = group_cached(st, s->group, miss);
		if (err == -EAGAIN || err == -ENOMEM)
			return err;
		if (!err && stash_fill(a, s, want - s->len))
			continue;
		if (hops++ > a->ngroups)
			return -ENOSPC;
		err = next_group(a, s);
		if (err)
			return err;
	}
	return 0;
}

/* The group turned out damaged: its blocks in the stash are free as before. */
static void stash_drop(struct nvefs_alloc *a, struct nvefs_stash *s, uint32_t g)
{
	struct nvefs_stash_entry *e = s->e + s->head;
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	uint32_t kept = 0;

	nvefs_mutex_lock(lock);
	for (uint32_t i = 0; i < s->len; i++) {
		if (e[i].group == g)
			nvefs_group_give(a, a->groups[g].mem, e[i].off, 1);
		else
			e[kept++] = e[i];
	}
	nvefs_mutex_unlock(lock);
	s->len = kept;
}

/* Every group of the stash is cached; *ret_bad: this one cannot be. */
static int check_stash(struct nvefs_store *st, struct nvefs_stash *s, struct nvefs_miss *miss,
		       uint32_t *ret_bad)
{
	uint32_t last = UINT32_MAX;

	for (uint32_t i = 0; i < s->len; i++) {
		uint32_t g = s->e[s->head + i].group;
		int err;

		if (g == last)
			continue;
		last = g;
		err = group_cached(st, g, miss);
		if (err) {
			*ret_bad = g;
			return err;
		}
		if (g == s->group)
			s->seq = __atomic_load_n(&st->alloc->handle_seq, __ATOMIC_RELAXED);
	}
	return 0;
}

/* The last free blocks may all be in the other stash: then copies lie close to each other. */
static bool stash_share(struct nvefs_alloc *a, struct nvefs_stash *s, uint32_t need)
{
	struct nvefs_stash *other = &a->stash[s == a->stash];

	while (a->copies > 1 && s->len < need && other->len > need) {
		struct nvefs_stash_entry e = other->e[other->head + other->len - 1];

		if (!stash_push(s, e.group, e.off))
			return false;
		other->len--;
	}
	return s->len >= need;
}

static int stash_ready(struct nvefs_store *st, struct nvefs_stash *s, uint32_t need, uint32_t want,
		       struct nvefs_miss *miss)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t bad;
	int err;

	for (;;) {
		if (s->len < need) {
			err = refill(st, s, want, miss);
			if (err == -ENOSPC && stash_share(a, s, need))
				err = 0;
			if (err)
				return err;
		}
		err = check_stash(st, s, miss, &bad);
		if (!err || err == -EAGAIN || err == -ENOMEM)
			return err;
		stash_drop(a, s, bad);
		if (bad == s->group) {
			err = next_group(a, s);
			if (err)
				return err;
		}
	}
}

int nvefs_alloc_meta_ready(struct nvefs_store *st, uint32_t blks, uint32_t txn_flags,
			   struct nvefs_miss *miss)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t need = need_blks(a, blks), want = need + STASH_SPARE_BLKS;
	int err = 0;

	/* Never more than the reserve, which is what data cannot get at anyway. */
	if (want > a->reserve / a->copies)
		want = a->reserve / a->copies;
	if (!may_use(a, need, txn_flags))
		return -ENOSPC;
	if (!may_use(a, 4 * want, 0))
		want = need;
	for (uint32_t i = 0; i < a->copies && !err; i++)
		err = stash_ready(st, &a->stash[i], need, want, miss);
	return err;
}

bool nvefs_stash_lend(struct nvefs_store *st, uint64_t *ret_pblk)
{
	struct nvefs_stash *s = &st->alloc->stash[0];
	bool lent;

	nvefs_store_wrlock(st);
	lent = s->len != 0;
	if (lent) {
		struct nvefs_stash_entry e = s->e[s->head + --s->len];

		*ret_pblk = nvefs_layout_group_start(e.group) + e.off;
	}
	nvefs_store_wrunlock(st);
	return lent;
}

static int stash_take(struct nvefs_txn *t, struct nvefs_stash *s, uint64_t *ret_pblk)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_stash_entry e;
	struct nvefs_mutex *lock;
	struct nvefs_chunk *c;
	int err;

	/* More than was foreseen: the group in use is cached as well, and may have more. */
	if (!s->len && (s->seq != __atomic_load_n(&a->handle_seq, __ATOMIC_RELAXED) ||
			!stash_fill(a, s, STASH_BATCH_BLKS)))
		return -ENOSPC;
	e = s->e[s->head];
	err = nvefs_group_change(t, e.group, e.off, true);
	if (err)
		return err;
	s->head++;
	s->len--;
	lock = nvefs_group_lock(a, e.group);
	nvefs_mutex_lock(lock);
	c = a->groups[e.group].mem->chunks[e.off / NVEFS_CHUNK_BLKS];
	nvefs_bits_clear_run(&c->notree, e.off % NVEFS_CHUNK_BLKS, 1);
	nvefs_bits_set_run(&c->meta, e.off % NVEFS_CHUNK_BLKS, 1);
	nvefs_mutex_unlock(lock);
	__atomic_fetch_add(&a->held, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&a->room, 1, __ATOMIC_RELAXED);
	nvefs_store_root(st)->meta_blks++;
	*ret_pblk = nvefs_layout_group_start(e.group) + e.off;
	return 0;
}

int nvefs_alloc_meta(struct nvefs_txn *t, uint64_t *ret_pblk)
{
	return stash_take(t, &t->st->alloc->stash[0], ret_pblk);
}

int nvefs_alloc_meta_twin(struct nvefs_txn *t, uint64_t *ret_twin)
{
	struct nvefs_alloc *a = t->st->alloc;

	if (a->copies > 1)
		return stash_take(t, &a->stash[1], ret_twin);
	*ret_twin = 0;
	return 0;
}

int nvefs_free_meta_prepare(struct nvefs_txn *t, uint64_t pblk)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_mutex *lock;
	struct nvefs_chunk *c;
	uint32_t g;
	int err;

	if (nvefs_layout_is_fixed(&st->super, pblk))
		return -EUCLEAN;
	g = nvefs_layout_group(pblk);
	err = nvefs_group_cached(st, g, &t->miss);
	if (err)
		return err;
	lock = nvefs_group_lock(a, g);
	nvefs_mutex_lock(lock);
	c = nvefs_chunk_prepare(a, a->groups[g].mem, nvefs_group_off(pblk));
	nvefs_mutex_unlock(lock);
	return c ? 0 : -ENOMEM;
}

int nvefs_free_meta(struct nvefs_txn *t, uint64_t pblk)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	uint32_t g, off;
	struct nvefs_mutex *lock;
	struct nvefs_chunk *c = NULL;
	uint64_t bit;
	bool bad = true;
	int err;

	if (nvefs_layout_is_fixed(&st->super, pblk))
		return -EUCLEAN;
	g = nvefs_layout_group(pblk);
	off = nvefs_group_off(pblk);
	bit = UINT64_C(1) << (off % NVEFS_CHUNK_BLKS);
	lock = nvefs_group_lock(a, g);
	nvefs_mutex_lock(lock);
	if (a->groups[g].mem && a->groups[g].mem->busy[off / 64] & bit) {
		c = nvefs_chunk_prepare(a, a->groups[g].mem, off);
		bad = c && (c->notree & bit || c->refs[off % NVEFS_CHUNK_BLKS]);
	}
	nvefs_mutex_unlock(lock);
	if (bad || !nvefs_store_root(st)->meta_blks)
		return -EUCLEAN;
	if (!c)
		return -ENOMEM;
	err = nvefs_group_change(t, g, off, false);
	if (err)
		return err;
	nvefs_store_root(st)->meta_blks--;
	nvefs_mutex_lock(lock);
	c->notree |= bit;
	c->meta |= bit;
	nvefs_quarantine_add(a, a->groups[g].mem, off, NVEFS_QUAR_META, t->id);
	nvefs_mutex_unlock(lock);
	return 0;
}
