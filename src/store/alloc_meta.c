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
 * be able to run in the last blocks.
 */
static uint32_t need_blks(const struct nvefs_alloc *a, uint32_t credits)
{
	uint32_t n = credits / 4 + 16;

	if (n > credits)
		n = credits;
	return n > a->reserve / 2 ? a->reserve / 2 : n;
}

static bool may_use(const struct nvefs_alloc *a, uint32_t need, uint32_t txn_flags)
{
	int64_t room = __atomic_load_n(&a->room, __ATOMIC_RELAXED);

	if (txn_flags & NVEFS_TXN_FREEING)
		room += a->reserve + (int64_t)__atomic_load_n(&a->pledged, __ATOMIC_RELAXED);
	return room >= (int64_t)need;
}

static bool stash_push(struct nvefs_alloc *a, uint32_t g, uint32_t off)
{
	if (a->stash_head + a->stash_len == a->stash_cap) {
		uint32_t cap = a->stash_cap ? a->stash_cap * 2 : 256;
		struct nvefs_stash_entry *s;

		if (a->stash_head) {
			for (uint32_t i = 0; i < a->stash_len; i++)
				a->stash[i] = a->stash[a->stash_head + i];
			a->stash_head = 0;
		} else {
			s = realloc(a->stash, cap * sizeof(*s));
			if (!s)
				return false;
			a->stash = s;
			a->stash_cap = cap;
		}
	}
	a->stash[a->stash_head + a->stash_len++] =
	    (struct nvefs_stash_entry){.group = g, .off = off};
	return true;
}

/* Take up to `want` blocks of the current group into the stash. */
static uint32_t stash_fill(struct nvefs_alloc *a, uint32_t want)
{
	uint32_t g = a->meta_group, got = 0;
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	struct nvefs_group_mem *m;

	nvefs_mutex_lock(lock);
	m = a->groups[g].mem;
	while (m && got < want) {
		uint32_t off = nvefs_bits_next_zero(m->busy, a->meta_off, NVEFS_GROUP_BLKS);

		if (off == NVEFS_GROUP_BLKS) {
			if (!a->meta_off)
				break;
			a->meta_off = 0;
			continue;
		}
		if (!nvefs_group_take(a, m, off, 1))
			break;
		if (!stash_push(a, g, off)) {
			nvefs_group_give(a, m, off, 1);
			break;
		}
		a->meta_off = off + 1;
		got++;
	}
	nvefs_mutex_unlock(lock);
	return got;
}

/* The next group to fill from: one with much room, else any with some. */
static int next_group(struct nvefs_alloc *a)
{
	uint32_t left = a->ngroups, g = a->meta_group + 1, any = UINT32_MAX;

	while ((g = nvefs_hint_next(a->avail_map, a->ngroups, g, &left)) != UINT32_MAX) {
		struct nvefs_mutex *lock = nvefs_group_lock(a, g);
		const struct nvefs_group_mem *m;
		uint32_t avail, owner;

		nvefs_mutex_lock(lock);
		m = a->groups[g].mem;
		avail = a->groups[g].avail;
		owner = m ? m->owner : 0;
		nvefs_mutex_unlock(lock);
		if (avail && any == UINT32_MAX)
			any = g;
		if (avail >= STASH_BATCH_BLKS && !owner) {
			any = g;
			break;
		}
		g++;
	}
	if (any == UINT32_MAX)
		return -ENOSPC;
	__atomic_store_n(&a->meta_group, any, __ATOMIC_RELAXED);
	a->meta_off = 0;
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

	if (err != -EAGAIN)
		return err;
	if (a->miss_pblk != miss->pblk)
		a->misses = 0;
	a->miss_pblk = miss->pblk;
	return ++a->misses > META_TRIES ? -EIO : -EAGAIN;
}

static int refill(struct nvefs_store *st, uint32_t want, struct nvefs_miss *miss)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t hops = 0;
	int err;

	while (a->stash_len < want) {
		err = group_cached(st, a->meta_group, miss);
		if (err == -EAGAIN || err == -ENOMEM)
			return err;
		if (!err && stash_fill(a, want - a->stash_len))
			continue;
		if (hops++ > a->ngroups)
			return -ENOSPC;
		err = next_group(a);
		if (err)
			return err;
	}
	return 0;
}

/* The group turned out damaged: its blocks in the stash are free as before. */
static void stash_drop(struct nvefs_alloc *a, uint32_t g)
{
	struct nvefs_stash_entry *s = a->stash + a->stash_head;
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	uint32_t kept = 0;

	nvefs_mutex_lock(lock);
	for (uint32_t i = 0; i < a->stash_len; i++) {
		if (s[i].group == g)
			nvefs_group_give(a, a->groups[g].mem, s[i].off, 1);
		else
			s[kept++] = s[i];
	}
	nvefs_mutex_unlock(lock);
	a->stash_len = kept;
}

/* Every group of the stash is cached; *ret_bad: this one cannot be. */
static int check_stash(struct nvefs_store *st, struct nvefs_miss *miss, uint32_t *ret_bad)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t last = UINT32_MAX;

	for (uint32_t i = 0; i < a->stash_len; i++) {
		uint32_t g = a->stash[a->stash_head + i].group;
		int err;

		if (g == last)
			continue;
		last = g;
		err = group_cached(st, g, miss);
		if (err) {
			*ret_bad = g;
			return err;
		}
		if (g == a->meta_group)
			a->meta_seq = __atomic_load_n(&a->handle_seq, __ATOMIC_RELAXED);
	}
	return 0;
}

int nvefs_alloc_meta_ready(struct nvefs_store *st, uint32_t blks, uint32_t txn_flags,
			   struct nvefs_miss *miss)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t need = need_blks(a, blks), want = need + STASH_SPARE_BLKS, bad;
	int err;

	/* Never more than the reserve, which is what data cannot get at anyway. */
	if (want > a->reserve)
		want = a->reserve;
	for (;;) {
		if (!may_use(a, need, txn_flags))
			return -ENOSPC;
		if (a->stash_len < need) {
			err = refill(st, may_use(a, 4 * want, 0) ? want : need, miss);
			if (err)
				return err;
		}
		err = check_stash(st, miss, &bad);
		if (!err || err == -EAGAIN || err == -ENOMEM)
			return err;
		stash_drop(a, bad);
		if (bad == a->meta_group) {
			err = next_group(a);
			if (err)
				return err;
		}
	}
}

int nvefs_alloc_meta(struct nvefs_txn *t, uint64_t *ret_pblk)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_stash_entry e;
	struct nvefs_mutex *lock;
	struct nvefs_chunk *c;
	int err;

	/* More than was foreseen: the group in use is cached as well, and may have more. */
	if (!a->stash_len && (a->meta_seq != __atomic_load_n(&a->handle_seq, __ATOMIC_RELAXED) ||
			      !stash_fill(a, STASH_BATCH_BLKS)))
		return -ENOSPC;
	e = a->stash[a->stash_head];
	err = nvefs_group_change(t, e.group, e.off, true);
	if (err)
		return err;
	a->stash_head++;
	a->stash_len--;
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

int nvefs_free_meta_prepare(struct nvefs_txn *t, uint64_t pblk)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_mutex *lock;
	struct nvefs_chunk *c;
	uint32_t g;
	int err;

	if (pblk >= st->super.nblks || nvefs_layout_is_fixed(&st->super, pblk))
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

	if (pblk >= st->super.nblks || nvefs_layout_is_fixed(&st->super, pblk))
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
