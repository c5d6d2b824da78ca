/* SPDX-License-Identifier: MIT */
/* The allocator as a whole: open and close, counts, pledges. */
#include "store/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "store/alloc_parts.h"

/* For one copy of each metadata block. */
#define RESERVE_MIN_BLKS 128u
#define RESERVE_MAX_BLKS 8192u
#define UNIT_MAX_BLKS 4096u

static uint32_t reserve_blks(uint64_t total)
{
	uint64_t r = total / 128;

	if (r < RESERVE_MIN_BLKS)
		return RESERVE_MIN_BLKS;
	return r > RESERVE_MAX_BLKS ? RESERVE_MAX_BLKS : (uint32_t)r;
}

/* What counts as a whole run: what the drive stores without read-merge-write. */
static void set_unit(struct nvefs_alloc *a, const struct nvefs_dev_limits *lim)
{
	a->unit = lim->iu_blks > 1 ? lim->iu_blks : NVEFS_RUN_MIN_BLKS;
	a->align = lim->iu_blks > 1 && lim->iu_align_blks > 1 ? lim->iu_align_blks : a->unit;
	if (a->unit > UNIT_MAX_BLKS)
		a->unit = UNIT_MAX_BLKS;
	if (a->align > UNIT_MAX_BLKS)
		a->align = UNIT_MAX_BLKS;
}

/* Copies go to different groups; where there is one only, to different halves of it. */
static void stash_place(struct nvefs_alloc *a, const struct nvefs_super *sb)
{
	if (sb->ngroups > 1)
		a->stash[1].group = sb->ngroups / 2;
	else
		a->stash[1].off = (uint32_t)(sb->nblks / 2);
}

static struct nvefs_alloc *alloc_new(const struct nvefs_super *sb,
				     const struct nvefs_dev_limits *lim)
{
	size_t words = (sb->ngroups + 63u) / 64u;
	struct nvefs_alloc *a = aligned_alloc(64, (sizeof(*a) + 63) & ~(size_t)63);

	if (!a)
		return NULL;
	memset(a, 0, sizeof(*a));
	a->ngroups = sb->ngroups;
	a->copies = nvefs_super_dup(sb) ? 2 : 1;
	a->reserve = a->copies * reserve_blks(sb->nblks);
	stash_place(a, sb);
	a->share_max = NVEFS_SHARE_MAX;
	set_unit(a, lim);
	nvefs_list_init(&a->touched);
	nvefs_mutex_init(&a->collect_lock);
	nvefs_cond_init(&a->collect_cond);
	a->handle_seq = 1;
	a->epoch = 1;
	for (uint32_t i = 0; i < NVEFS_ALLOC_LOCKS; i++) {
		nvefs_mutex_init(&a->locks[i].m);
		nvefs_list_init(&a->locks[i].chunks);
	}
	a->groups = calloc(sb->ngroups, sizeof(*a->groups));
	a->run_map = calloc(words, sizeof(*a->run_map));
	a->avail_map = calloc(words, sizeof(*a->avail_map));
	return a;
}

static int scan_one(struct nvefs_store *st, uint32_t g, struct nvefs_miss *miss,
		    uint64_t *free_blks)
{
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_key key = nvefs_group_key(g);
	struct nvefs_group_rec rec;
	const void *val;
	uint32_t len;
	int err = nvefs_tree_get(st, &key, miss, &val, &len);

	if (err)
		return err == -ENOENT ? -EUCLEAN : err;
	err = nvefs_group_decode(val, len, &rec);
	if (err)
		return err;
	if (rec.free_blks >
	    nvefs_layout_group_len(&st->super, g) - nvefs_layout_group_fixed(&st->super, g))
		return -EUCLEAN;
	a->groups[g] = (struct nvefs_group){
	    .free_blks = rec.free_blks, .avail = rec.free_blks, .bitmap_txn = rec.bitmap_txn};
	if (rec.free_blks)
		nvefs_hint_set(a->avail_map, g);
	if (rec.free_blks >= a->unit)
		nvefs_hint_set(a->run_map, g);
	*free_blks += rec.free_blks;
	return 0;
}

static int scan_groups(struct nvefs_store *st, struct nvefs_queue *q, uint64_t *ret_free)
{
	uint64_t free_blks = 0;
	uint32_t g = 0;
	int err;

	do {
		struct nvefs_miss miss;

		nvefs_store_rdlock(st);
		for (err = 0; !err && g < st->alloc->ngroups; g += !err)
			err = scan_one(st, g, &miss, &free_blks);
		nvefs_store_rdunlock(st);
		if (!err)
			break;
		if (!nvefs_store_retry(st, q, &miss, &err))
			return err;
	} while (true);
	*ret_free = free_blks;
	return 0;
}

int nvefs_alloc_init(struct nvefs_store *st, struct nvefs_queue *q)
{
	struct nvefs_alloc *a = alloc_new(&st->super, nvefs_dev_limits(st->dev));
	uint64_t free_blks = 0;
	int err;

	st->alloc = a;
	if (!a || !a->groups || !a->run_map || !a->avail_map) {
		err = -ENOMEM;
		goto done;
	}
	if (st->opts.repair) {
		a->held = st->super.nblks;
		a->room = -(int64_t)a->reserve;
		return 0;
	}
	err = scan_groups(st, q, &free_blks);
	if (!err && free_blks != st->root.free_blks)
		err = -EUCLEAN;
	/* Reading what is left of a damaged file system needs no counts. */
	if (err && (!st->opts.read_only || err == -ENOMEM))
		goto done;
	a->held = st->super.nblks - st->root.free_blks;
	a->room = (int64_t)st->root.free_blks - a->reserve;
	return 0;
done:
	nvefs_alloc_done(st);
	return err;
}

static void mem_free(struct nvefs_alloc *a, struct nvefs_group_mem *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < NVEFS_GROUP_CHUNKS; i++)
		free(m->chunks[i]);
	free(m->trimming);
	free(m);
	__atomic_fetch_sub(&a->nmems, 1, __ATOMIC_RELAXED);
}

void nvefs_alloc_done(struct nvefs_store *st)
{
	struct nvefs_alloc *a = st->alloc;

	if (!a)
		return;
	if (a->groups)
		for (uint32_t g = 0; g < a->ngroups; g++)
			mem_free(a, a->groups[g].mem);
	for (uint32_t i = 0; i < NVEFS_ALLOC_LOCKS; i++)
		nvefs_mutex_done(&a->locks[i].m);
	nvefs_cond_done(&a->collect_cond);
	nvefs_mutex_done(&a->collect_lock);
	free(a->stash[0].e);
	free(a->stash[1].e);
	free(a->avail_map);
	free(a->run_map);
	free(a->groups);
	free(a);
	st->alloc = NULL;
}

uint32_t nvefs_room_get(struct nvefs_alloc *a, uint32_t want)
{
	int64_t room = __atomic_load_n(&a->room, __ATOMIC_RELAXED);
	uint32_t n;

	do {
		if (room <= 0)
			return 0;
		n = room < (int64_t)want ? (uint32_t)room : want;
	} while (!__atomic_compare_exchange_n(&a->room, &room, room - n, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return n;
}

void nvefs_room_put(struct nvefs_alloc *a, uint32_t n)
{
	__atomic_fetch_add(&a->room, (int64_t)n, __ATOMIC_RELAXED);
}

int nvefs_alloc_errno(struct nvefs_store *st, int err)
{
	const struct nvefs_alloc *a = st->alloc;

	if (err != -ENOSPC)
		return err;
	return __atomic_load_n(&a->banned, __ATOMIC_RELAXED) || __atomic_load_n(&a->meta_unread, __ATOMIC_RELAXED) ?
		       -EIO :
		       -ENOSPC;
}

/* Free, but to be had only after a commit, or when a trim is through. */
static int64_t coming_blks(const struct nvefs_alloc *a)
{
	return (int64_t)(__atomic_load_n(&a->quarantined, __ATOMIC_ACQUIRE) +
			 __atomic_load_n(&a->trimming, __ATOMIC_ACQUIRE));
}

/* A promise about later: what a commit gives back counts, since folding commits when it must. */
int nvefs_alloc_pledge(struct nvefs_store *st, uint32_t blks, bool last_resort)
{
	struct nvefs_alloc *a = st->alloc;
	int64_t coming = coming_blks(a), room = __atomic_load_n(&a->room, __ATOMIC_RELAXED);

	if (!blks)
		return 0;
	if (last_resort)
		coming += a->reserve / 4;
	blks *= a->copies;
	do {
		if (room + coming < (int64_t)blks)
			return -ENOSPC;
	} while (!__atomic_compare_exchange_n(&a->room, &room, room - blks, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	__atomic_fetch_add(&a->pledged, blks, __ATOMIC_RELAXED);
	return 0;
}

void nvefs_alloc_unpledge(struct nvefs_store *st, uint32_t blks)
{
	blks *= st->alloc->copies;
	__atomic_fetch_sub(&st->alloc->pledged, blks, __ATOMIC_RELAXED);
	nvefs_room_put(st->alloc, blks);
}

bool nvefs_alloc_promised(const struct nvefs_store *st)
{
	return __atomic_load_n(&st->alloc->pledged, __ATOMIC_RELAXED) != 0;
}

bool nvefs_alloc_has_room(const struct nvefs_store *st, int64_t blks)
{
	return __atomic_load_n(&st->alloc->room, __ATOMIC_RELAXED) >= blks;
}

bool nvefs_alloc_more(struct nvefs_store *st)
{
	return coming_blks(st->alloc) != 0;
}

/*
 * What df shows is derived from `held` alone, which changes once per block
 * when it gets its first and loses its last reference, and not when it
 * travels through quarantine: so there is nothing to be inconsistent with.
 */
void nvefs_space_get(struct nvefs_store *st, struct nvefs_space *ret)
{
	const struct nvefs_alloc *a = st->alloc;
	struct nvefs_space s = {.total = st->super.nblks, .meta_reserve = a->reserve};
	uint64_t held = __atomic_load_n(&a->held, __ATOMIC_RELAXED), kept;

	s.pledged = __atomic_load_n(&a->pledged, __ATOMIC_RELAXED);
	s.reserved = __atomic_load_n(&a->reserved, __ATOMIC_RELAXED);
	s.quarantined = __atomic_load_n(&a->quarantined, __ATOMIC_RELAXED);
	s.free = held < s.total ? s.total - held : 0;
	kept = s.meta_reserve + s.pledged;
	s.avail = s.free > kept ? s.free - kept : 0;
	nvefs_store_rdlock(st);
	s.shared_blks = st->root.shared_blks;
	s.shared_refs = st->root.shared_refs;
	s.meta_blks = st->root.meta_blks;
	s.inodes = st->root.inodes;
	nvefs_store_rdunlock(st);
	*ret = s;
}
