/* SPDX-License-Identifier: MIT */
/*
 * Blocks for data.
 *
 * A cursor remembers a stretch of free blocks and takes from its front. The
 * stretch is not reserved: other cursors keep off because they look for groups
 * without an owner first, and when space is short they may take from it, which
 * the cursor notices at its next step. So nothing has to be given back.
 *
 * Looking for the next stretch: a whole run in a group of one's own; a whole
 * run in anybody's; a hole. Two bitmaps over groups say where to look, so that
 * a full or fragmented device does not cost a walk over all groups.
 */
#include "store/alloc_parts.h"

enum step { STEP_OWN_RUN, STEP_ANY_RUN, STEP_HOLE, NSTEPS };

/* 0 and *ret_got 0: the stretch is used up, or somebody was there first. */
static int cursor_take(struct nvefs_alloc *a, struct nvefs_alloc_cursor *c, uint32_t want,
		       uint64_t *ret_pblk, uint32_t *ret_got)
{
	struct nvefs_mutex *lock = nvefs_group_lock(a, c->group);
	uint32_t got = 0, off, n;
	struct nvefs_group_mem *m;
	bool nomem = false;

	if (c->next_pblk == c->end_pblk)
		goto out;
	off = nvefs_group_off(c->next_pblk);
	nvefs_mutex_lock(lock);
	m = a->groups[c->group].mem;
	if (m) {
		n = c->end_pblk - c->next_pblk < want ? (uint32_t)(c->end_pblk - c->next_pblk)
						      : want;
		n = nvefs_bits_next_set(m->busy, off, off + n) - off;
		got = n ? nvefs_group_take(a, m, off, n) : 0;
		nomem = n && !got;
	}
	nvefs_mutex_unlock(lock);
	if (nomem)
		return -ENOMEM;
	*ret_pblk = c->next_pblk;
	c->next_pblk += got;
	if (!got)
		c->end_pblk = c->next_pblk;
out:
	*ret_got = got;
	return 0;
}

/* Metadata is at home there. */
static bool is_meta_group(const struct nvefs_alloc *a, uint32_t g)
{
	for (uint32_t i = 0; i < a->copies; i++)
		if (__atomic_load_n(&a->stash[i].group, __ATOMIC_RELAXED) == g)
			return true;
	return false;
}

/* Where to begin in a group: behind the last stretch; in a group shared with others, apart from
 * them. */
static uint32_t first_off(const struct nvefs_alloc *a, const struct nvefs_alloc_cursor *c,
			  const struct nvefs_group_mem *m)
{
	uint32_t start;

	if (c->group == m->group && c->next_pblk)
		return nvefs_group_off(c->next_pblk - 1) + 1;
	if (m->owner ? m->owner == c->seed + 1 : !is_meta_group(a, m->group))
		return 0;
	start = ((c->seed + 1) * 0x9e3779b1u) % NVEFS_GROUP_BLKS;
	return start - start % a->unit;
}

static uint32_t find(const struct nvefs_alloc *a, const struct nvefs_group_mem *m, enum step step,
		     uint32_t from, uint32_t end)
{
	if (step == STEP_HOLE)
		return nvefs_bits_next_zero(m->busy, from, end);
	return nvefs_bits_find_run(m->busy, from, end, a->unit, nvefs_layout_group_start(m->group),
				   a->align);
}

/* Group lock held. True when the cursor stands before a stretch in this group now. */
static bool enter_group(struct nvefs_alloc *a, struct nvefs_alloc_cursor *c,
			struct nvefs_group_mem *m, enum step step)
{
	uint32_t from = first_off(a, c, m), end = NVEFS_GROUP_BLKS, limit, off;

	off = find(a, m, step, from, end);
	if (off >= end)
		off = find(a, m, step, 0, end);
	if (off >= end) {
		nvefs_hint_clear(step == STEP_HOLE ? a->avail_map : a->run_map, m->group);
		return false;
	}
	limit = end - off < NVEFS_RUN_MAX_BLKS ? end : off + NVEFS_RUN_MAX_BLKS;
	c->group = m->group;
	c->next_pblk = nvefs_layout_group_start(m->group) + off;
	c->end_pblk = c->next_pblk + nvefs_bits_next_set(m->busy, off, limit) - off;
	if (!m->owner && !is_meta_group(a, m->group))
		m->owner = c->seed + 1;
	return true;
}

static void leave_group(struct nvefs_alloc *a, const struct nvefs_alloc_cursor *c, uint32_t g)
{
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);

	nvefs_mutex_lock(lock);
	if (a->groups[g].mem && a->groups[g].mem->owner == c->seed + 1)
		a->groups[g].mem->owner = 0;
	nvefs_mutex_unlock(lock);
}

/* 1: found; 0: not in this group; -errno. */
static int try_group(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_alloc_cursor *c,
		     uint32_t g, enum step step)
{
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	uint32_t old = c->group;
	bool found = false, loaded = false;
	struct nvefs_group_mem *m;
	int err = 0;

	if (step == STEP_OWN_RUN && is_meta_group(a, g))
		return 0;
	do {
		if (loaded)
			err = nvefs_group_load(st, q, g);
		if (err == -EUCLEAN || err == -EIO) {
			nvefs_group_ban(a, g);
			return 0;
		}
		if (err)
			return err;
		nvefs_mutex_lock(lock);
		m = a->groups[g].mem;
		if (m && (step != STEP_OWN_RUN || !m->owner || m->owner == c->seed + 1))
			found = enter_group(a, c, m, step);
		nvefs_mutex_unlock(lock);
		loaded = true;
	} while (!m);
	if (found && old != g)
		leave_group(a, c, old);
	return found;
}

static int cursor_move(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_alloc_cursor *c)
{
	struct nvefs_alloc *a = st->alloc;

	if (!c->next_pblk) /* never used */
		c->group = (uint32_t)(((uint64_t)(c->seed * 0x9e3779b1u) * a->ngroups) >> 32);
	for (enum step step = STEP_OWN_RUN; step < NSTEPS; step++) {
		const uint64_t *map = step == STEP_HOLE ? a->avail_map : a->run_map;
		uint32_t left = a->ngroups, g = c->group;

		while ((g = nvefs_hint_next(map, a->ngroups, g, &left)) != UINT32_MAX) {
			int found = try_group(st, q, c, g, step);

			if (found)
				return found < 0 ? found : 0;
			g++;
		}
	}
	return -ENOSPC;
}

/* Up to n blocks, which have been taken out of room. */
static int take(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_alloc_cursor *c, uint32_t n,
		uint64_t *ret_pblk, uint32_t *ret_got)
{
	struct nvefs_alloc *a = st->alloc;
	int err;

	*ret_got = 0;
	do {
		err = cursor_take(a, c, n, ret_pblk, ret_got);
		if (err || *ret_got)
			break;
		err = cursor_move(st, q, c);
	} while (!err);
	return err;
}

static void count_reserved(struct nvefs_alloc *a, uint32_t n)
{
	__atomic_fetch_add(&a->held, n, __ATOMIC_RELAXED);
	__atomic_fetch_add(&a->reserved, n, __ATOMIC_RELAXED);
}

int nvefs_alloc_data_last(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_alloc_cursor *c,
			  uint64_t *ret_pblk)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t got;
	int err = 0;

	if (__atomic_fetch_sub(&a->room, 1, __ATOMIC_RELAXED) <= -(int64_t)(a->reserve / 2))
		err = -ENOSPC;
	/* What is left may all be in the stash. */
	if (!err && !nvefs_stash_lend(st, ret_pblk))
		err = take(st, q, c, 1, ret_pblk, &got);
	if (err)
		nvefs_room_put(a, 1);
	else
		count_reserved(a, 1);
	return err;
}

int nvefs_alloc_data(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_alloc_cursor *c,
		     uint32_t want, uint64_t *ret_pblk, uint32_t *ret_got, bool *ret_more)
{
	struct nvefs_alloc *a = st->alloc;
	/* Looked at before the room: what is on its way from one to the other is then seen in one of them. */
	bool more = nvefs_alloc_more(st);
	uint32_t n = nvefs_room_get(a, want), got = 0;
	int err = -ENOSPC;

	if (!n && more) {
		nvefs_quarantine_collect(st, q, true);
		more = nvefs_alloc_more(st);
		n = nvefs_room_get(a, want);
	}
	if (n)
		err = take(st, q, c, n, ret_pblk, &got);
	nvefs_room_put(a, n - got);
	if (err) {
		if (ret_more)
			*ret_more = more;
		return err;
	}
	count_reserved(a, got);
	*ret_got = got;
	return 0;
}

void nvefs_block_unreserve(struct nvefs_store *st, uint64_t pblk, uint32_t count)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t g = nvefs_layout_group(pblk);
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);

	nvefs_mutex_lock(lock);
	nvefs_group_give(a, a->groups[g].mem, nvefs_group_off(pblk), count);
	nvefs_mutex_unlock(lock);
	__atomic_fetch_sub(&a->reserved, count, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&a->held, count, __ATOMIC_RELAXED);
	nvefs_room_put(a, count);
}

/* Stays as it is: reserved, with nobody to map it. */
void nvefs_block_retire(struct nvefs_store *st, uint64_t pblk, uint32_t count)
{
	(void)pblk;
	__atomic_fetch_sub(&st->alloc->reserved, count, __ATOMIC_RELAXED);
}

void nvefs_block_map(struct nvefs_store *st, uint64_t pblk, uint32_t count)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t g = nvefs_layout_group(pblk), off = nvefs_group_off(pblk);
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	struct nvefs_group_mem *m;

	nvefs_mutex_lock(lock);
	m = a->groups[g].mem;
	for (uint32_t i = 0; i < count; i++) {
		struct nvefs_chunk *c = m->chunks[(off + i) / NVEFS_CHUNK_BLKS];

		c->refs[(off + i) % NVEFS_CHUNK_BLKS]++;
		c->nrefs++;
	}
	nvefs_mutex_unlock(lock);
	__atomic_fetch_sub(&a->reserved, count, __ATOMIC_RELAXED);
}
