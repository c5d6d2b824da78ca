/* SPDX-License-Identifier: MIT */
/*
 * Discard: of what leaves quarantine (for quarantine.c), and of free space on
 * request. For the latter, free runs of one group at a time are taken out of
 * `busy`'s complement and out of room, marked in `trimming`, discarded, and
 * given back.
 */
#include <errno.h>
#include <stdlib.h>

#include "store/alloc_parts.h"

#define DISCARD_MAX_BLKS (1u << 20)

bool nvefs_discard_possible(const struct nvefs_store *st)
{
	return nvefs_dev_limits(st->dev)->max_discard_blks != 0;
}

void nvefs_discard_init(struct nvefs_discard *d, struct nvefs_store *st, struct nvefs_queue *q)
{
	d->st = st;
	d->q = q;
	d->ncmds = d->inflight = 0;
}

static void discard_done(struct nvefs_io *io)
{
	struct nvefs_discard_cmd *c = io->arg;

	c->d->inflight--;
	if (io->err == -ETIMEDOUT)
		*c->in_doubt = true;
}

/* The part of a run that the device can discard. */
static void align_inwards(const struct nvefs_dev_limits *lim, uint64_t *pblk, uint64_t *count)
{
	uint64_t align = lim->discard_align_blks ? lim->discard_align_blks : 1;
	uint64_t gran = lim->discard_gran_blks ? lim->discard_gran_blks : 1;
	uint64_t start = (*pblk + align - 1) / align * align, skip = start - *pblk;

	*count = *count > skip ? (*count - skip) / gran * gran : 0;
	*pblk = start;
}

void nvefs_discard_add(struct nvefs_discard *d, uint64_t pblk, uint64_t count, bool *in_doubt)
{
	align_inwards(nvefs_dev_limits(d->st->dev), &pblk, &count);
	while (count) {
		uint32_t n = count < DISCARD_MAX_BLKS ? (uint32_t)count : DISCARD_MAX_BLKS;
		struct nvefs_discard_cmd *c;

		if (d->ncmds == NVEFS_DISCARDS_IN_FLIGHT)
			nvefs_discard_wait(d);
		c = &d->cmds[d->ncmds++];
		c->d = d;
		c->in_doubt = in_doubt;
		c->io = (struct nvefs_io){
		    .op = NVEFS_IO_DISCARD, .nblks = n, .pblk = pblk, .done = discard_done, .arg = c};
		d->inflight++;
		nvefs_queue_submit(d->q, &c->io);
		pblk += n;
		count -= n;
	}
}

void nvefs_discard_wait(struct nvefs_discard *d)
{
	while (d->inflight)
		if (!nvefs_queue_poll(d->q, 0) && d->inflight)
			nvefs_queue_wait(d->q, UINT64_MAX);
	d->ncmds = 0;
}

/* Group lock held: take the free runs of [*at, end), as far as `budget` goes; how many blocks. */
static uint32_t hold_runs(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t *at,
			  uint32_t end, uint64_t min_blks, uint32_t budget)
{
	uint32_t from = *at, held = 0;

	while ((from = nvefs_bits_next_zero(m->busy, from, end)) < end && held < budget) {
		uint32_t stop = nvefs_bits_next_set(m->busy, from, end);
		uint32_t n = stop - from < budget - held ? stop - from : budget - held;

		if (stop - from >= min_blks) {
			nvefs_bits_set_run(m->trimming, from, n);
			held += n;
			from += n;
		} else {
			from = stop;
		}
	}
	*at = from;
	for (uint32_t i = 0; i < NVEFS_GROUP_CHUNKS; i++)
		m->busy[i] |= m->trimming[i];
	a->groups[m->group].avail -= held;
	return held;
}

/* True: one of the discards may still come. */
static bool discard_held(const struct nvefs_group_mem *m, struct nvefs_store *st,
			 struct nvefs_queue *q, uint64_t *blks)
{
	const struct nvefs_dev_limits *lim = nvefs_dev_limits(st->dev);
	struct nvefs_discard d;
	bool in_doubt = false;
	uint32_t from = 0;

	nvefs_discard_init(&d, st, q);
	while ((from = nvefs_bits_next_set(m->trimming, from, NVEFS_GROUP_BLKS)) <
	       NVEFS_GROUP_BLKS) {
		uint32_t stop = nvefs_bits_next_zero(m->trimming, from, NVEFS_GROUP_BLKS);
		uint64_t pblk = nvefs_layout_group_start(m->group) + from, count = stop - from;

		nvefs_discard_add(&d, pblk, count, &in_doubt);
		align_inwards(lim, &pblk, &count);
		*blks += count;
		from = stop;
	}
	nvefs_discard_wait(&d);
	return in_doubt;
}

/*
 * The discards are through, and the blocks free again; or, when one of them may still come, all of them stay
 * where they are, and out of use, until the next mount, and no other trim of this group begins.
 */
static void give_held(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t held, bool in_doubt)
{
	struct nvefs_mutex *lock = nvefs_group_lock(a, m->group);

	if (in_doubt) {
		__atomic_fetch_add(&a->held, held, __ATOMIC_RELAXED);
		__atomic_fetch_sub(&a->trimming, held, __ATOMIC_RELEASE);
		return;
	}
	nvefs_mutex_lock(lock);
	for (uint32_t i = 0; i < NVEFS_GROUP_CHUNKS; i++)
		m->busy[i] &= ~m->trimming[i];
	free(m->trimming);
	m->trimming = NULL;
	a->groups[m->group].avail += held;
	nvefs_mutex_unlock(lock);
	nvefs_room_put(a, held);
	__atomic_fetch_sub(&a->trimming, held, __ATOMIC_RELEASE);
	if (held) {
		nvefs_hint_set(a->avail_map, m->group);
		nvefs_hint_set(a->run_map, m->group);
	}
}

/* From *at on, as much as may be held at once; *at is where to go on, or the end. */
static int trim_group(struct nvefs_store *st, struct nvefs_queue *q, uint32_t g, uint32_t *at,
		      uint32_t end, uint64_t min_blks, uint64_t *blks)
{
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	uint64_t *map = calloc(NVEFS_GROUP_CHUNKS, sizeof(*map));
	struct nvefs_group_mem *m;
	uint32_t budget, held = 0, next = end;
	bool mine = false;
	int err = 0;

	if (!map)
		return -ENOMEM;
	/* Writers keep at least half of what is left to them. */
	budget = nvefs_room_get(a, NVEFS_GROUP_BLKS);
	nvefs_room_put(a, budget - budget / 2);
	budget /= 2;
	do {
		err = nvefs_group_load(st, q, g);
		if (err)
			break;
		nvefs_mutex_lock(lock);
		m = a->groups[g].mem;
		mine = m && !m->trimming; /* somebody else's trim is as good */
		if (mine) {
			m->trimming = map;
			next = *at;
			held = hold_runs(a, m, &next, end, min_blks, budget);
		}
		nvefs_mutex_unlock(lock);
	} while (!m);
	__atomic_fetch_add(&a->trimming, held, __ATOMIC_RELAXED);
	nvefs_room_put(a, budget - held);
	if (mine) /* the map is m's */
		give_held(a, m, held, discard_held(m, st, q, blks));
	else
		free(map);
	*at = held ? next : end;
	return err;
}

int nvefs_alloc_trim(struct nvefs_store *st, struct nvefs_queue *q, uint64_t start, uint64_t count,
		     uint64_t min_blks, uint64_t *ret_blks)
{
	uint64_t blks = 0, end;
	int err = 0;

	if (!nvefs_discard_possible(st))
		return -EOPNOTSUPP;
	if (start >= st->super.nblks)
		return -EINVAL;
	end = count < st->super.nblks - start ? start + count : st->super.nblks;
	while (start < end && !err) {
		uint32_t g = nvefs_layout_group(start), from = nvefs_group_off(start);
		uint64_t next = nvefs_layout_group_start(g) + NVEFS_GROUP_BLKS;
		uint32_t stop = next < end ? NVEFS_GROUP_BLKS : from + (uint32_t)(end - start);

		while (from < stop && !err && nvefs_hint_test(st->alloc->avail_map, g))
			err = trim_group(st, q, g, &from, stop, min_blks ? min_blks : 1, &blks);
		start = next;
	}
	if (!err)
		*ret_blks = blks;
	return err;
}
