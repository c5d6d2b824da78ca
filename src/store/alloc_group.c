/* SPDX-License-Identifier: MIT */
/*
 * Groups in memory: load, take, give, change on disk.
 *
 * Bits on disk change under the meta lock for writing only, so the copy in
 * `busy` is made under the meta lock and stays a superset from then on.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "format/content.h"
#include "store/alloc_parts.h"

/* What the bitmap on disk must say, whatever else is in it. */
static int bitmap_check(const struct nvefs_store *st, uint32_t g, const struct nvefs_disk_bitmap *d)
{
	if (NVEFS_GROUP_BLKS - nvefs_bitmap_count(d->bits, NVEFS_GROUP_BLKS) != st->alloc->groups[g].free_blks)
		return -EUCLEAN;
	return nvefs_content_possible(&st->super, d) ? 0 : -EUCLEAN;
}

static int bitmap_get(struct nvefs_store *st, uint32_t g, struct nvefs_miss *miss,
		      struct nvefs_mblk **ret_b)
{
	const struct nvefs_block_ref at = {.pblk = nvefs_layout_bitmap_pblk(g),
					   .twin = nvefs_layout_bitmap_twin(&st->super, g),
					   .txn = st->alloc->groups[g].bitmap_txn};

	return nvefs_cache_get(st, at, NVEFS_BT_BITMAP, miss, ret_b);
}

static struct nvefs_group_mem *mem_new(uint32_t g, const uint8_t *bits)
{
	struct nvefs_group_mem *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->group = g;
	nvefs_list_init(&m->touched);
	memcpy(m->busy, bits, sizeof(m->busy));
	for (uint32_t i = 0; i < NVEFS_GROUP_CHUNKS; i++)
		m->busy[i] = le64toh(m->busy[i]);
	return m;
}

int nvefs_group_get(struct nvefs_store *st, uint32_t g, struct nvefs_miss *miss)
{
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	struct nvefs_group_mem *m;
	struct nvefs_mblk *b;
	const uint8_t *bits;
	bool there;
	int err;

	nvefs_mutex_lock(lock);
	m = a->groups[g].mem;
	there = m != NULL;
	if (m)
		m->age = 0;
	nvefs_mutex_unlock(lock);
	if (there)
		return 0;
	err = bitmap_get(st, g, miss, &b);
	if (err)
		return err;
	bits = ((const struct nvefs_disk_bitmap *)b->data)->bits;
	err = bitmap_check(st, g, b->data);
	if (err)
		return err;
	m = mem_new(g, bits);
	if (!m)
		return -ENOMEM;
	nvefs_mutex_lock(lock);
	if (!a->groups[g].mem) {
		a->groups[g].mem = m;
		m = NULL;
	}
	nvefs_mutex_unlock(lock);
	if (!m)
		__atomic_fetch_add(&a->nmems, 1, __ATOMIC_RELAXED);
	free(m);
	return 0;
}

int nvefs_group_load(struct nvefs_store *st, struct nvefs_queue *q, uint32_t g)
{
	struct nvefs_miss miss;
	int err;

	do {
		nvefs_store_rdlock(st);
		err = nvefs_group_get(st, g, &miss);
		nvefs_store_rdunlock(st);
	} while (nvefs_store_retry(st, q, &miss, &err));
	return err;
}

int nvefs_group_cached(struct nvefs_store *st, uint32_t g, struct nvefs_miss *miss)
{
	struct nvefs_key key = nvefs_group_key(g);
	struct nvefs_group_rec rec;
	struct nvefs_mblk *b;
	const void *val;
	uint32_t len;
	int err;

	err = bitmap_get(st, g, miss, &b);
	if (err)
		return err;
	err = nvefs_tree_get(st, &key, miss, &val, &len);
	if (err)
		return err == -ENOENT ? -EUCLEAN : err;
	err = nvefs_group_decode(val, len, &rec);
	if (err)
		return err;
	return nvefs_group_get(st, g, miss);
}

int nvefs_group_change(struct nvefs_txn *t, uint32_t g, uint32_t off, bool set)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_root *root = nvefs_store_root(st);
	struct nvefs_group_mem *m = a->groups[g].mem;
	struct nvefs_mblk *b;
	uint8_t *bits;
	int err;

	if (!m)
		return -EIO;
	err = bitmap_get(st, g, &t->miss, &b);
	if (err)
		return err == -EAGAIN ? -EIO : err;
	bits = ((struct nvefs_disk_bitmap *)b->data)->bits;
	if (nvefs_bitmap_test(bits, off) == set || (set && !root->free_blks))
		return -EUCLEAN;
	nvefs_cache_dirty(t, b);
	bits = ((struct nvefs_disk_bitmap *)b->data)->bits;
	if (set) {
		nvefs_bitmap_set(bits, off);
		a->groups[g].free_blks--;
		root->free_blks--;
	} else {
		nvefs_bitmap_clear(bits, off);
		a->groups[g].free_blks++;
		root->free_blks++;
	}
	a->groups[g].bitmap_txn = t->id;
	if (nvefs_list_empty(&m->touched))
		nvefs_list_push(&a->touched, &m->touched);
	return 0;
}

void nvefs_alloc_txn_end(struct nvefs_txn *t)
{
	struct nvefs_alloc *a = t->st->alloc;
	struct nvefs_list *l;

	while ((l = nvefs_list_pop(&a->touched))) {
		struct nvefs_group_mem *m = nvefs_container_of(l, struct nvefs_group_mem, touched);
		const struct nvefs_group *g = &a->groups[m->group];
		struct nvefs_group_rec rec = {.free_blks = g->free_blks,
					      .bitmap_txn = g->bitmap_txn};
		struct nvefs_disk_group d = nvefs_group_encode(&rec);
		struct nvefs_key key = nvefs_group_key(m->group);
		int err = nvefs_tree_put(t, &key, &d, sizeof(d));

		if (err)
			nvefs_store_fail(t->st, err, "a group item could not be written");
	}
	__atomic_fetch_add(&a->handle_seq, 1, __ATOMIC_RELEASE);
}

void nvefs_group_ban(struct nvefs_alloc *a, uint32_t g)
{
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);

	nvefs_mutex_lock(lock);
	if (!a->groups[g].mem) {
		if (a->groups[g].avail)
			__atomic_store_n(&a->banned, true, __ATOMIC_RELAXED);
		__atomic_fetch_sub(&a->room, (int64_t)a->groups[g].avail, __ATOMIC_RELAXED);
		a->groups[g].avail = 0;
		nvefs_hint_clear(a->run_map, g);
		nvefs_hint_clear(a->avail_map, g);
	}
	nvefs_mutex_unlock(lock);
}

struct nvefs_chunk *nvefs_chunk_get(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off)
{
	uint32_t i = off / NVEFS_CHUNK_BLKS;
	struct nvefs_chunk *c = m->chunks[i];

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->group = m->group;
	c->index = (uint16_t)i;
	nvefs_list_push(&a->locks[m->group % NVEFS_ALLOC_LOCKS].chunks, &c->link);
	m->chunks[i] = c;
	m->nchunks++;
	return c;
}

struct nvefs_chunk *nvefs_chunk_prepare(struct nvefs_alloc *a, struct nvefs_group_mem *m,
					uint32_t off)
{
	struct nvefs_chunk *c = nvefs_chunk_get(a, m, off);

	if (c)
		c->prep_seq = __atomic_load_n(&a->handle_seq, __ATOMIC_RELAXED);
	return c;
}

void nvefs_chunk_drop_idle(struct nvefs_alloc *a, struct nvefs_group_mem *m, struct nvefs_chunk *c)
{
	/* A quarantined block is notree as well. */
	if (c->nrefs || c->notree || c->meta || c->full ||
	    c->prep_seq == __atomic_load_n(&a->handle_seq, __ATOMIC_ACQUIRE))
		return;
	m->chunks[c->index] = NULL;
	m->nchunks--;
	nvefs_list_del(&c->link);
	free(c);
}

uint32_t nvefs_group_take(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off,
			  uint32_t n)
{
	struct nvefs_group *g = &a->groups[m->group];
	uint32_t done = 0;

	while (done < n) {
		uint32_t from = off + done, k = NVEFS_CHUNK_BLKS - from % NVEFS_CHUNK_BLKS;
		struct nvefs_chunk *c = nvefs_chunk_get(a, m, from);

		if (!c)
			break;
		if (k > n - done)
			k = n - done;
		nvefs_bits_set_run(&c->notree, from % NVEFS_CHUNK_BLKS, k);
		done += k;
	}
	nvefs_bits_set_run(m->busy, off, done);
	/* After a ban the count starts from zero. */
	g->avail -= g->avail < done ? g->avail : done;
	if (!g->avail) {
		nvefs_hint_clear(a->avail_map, m->group);
		nvefs_hint_clear(a->run_map, m->group);
	}
	m->age = 0;
	return done;
}

/* A whole run around [off, off + n)? */
static bool has_run_near(const struct nvefs_alloc *a, const struct nvefs_group_mem *m, uint32_t off,
			 uint32_t n)
{
	uint32_t reach = a->unit + a->align;
	uint32_t from = off > reach ? off - reach : 0;
	uint32_t end = NVEFS_GROUP_BLKS - off - n > reach ? off + n + reach : NVEFS_GROUP_BLKS;

	return nvefs_bits_find_run(m->busy, from, end, a->unit, nvefs_layout_group_start(m->group),
				   a->align) < end;
}

void nvefs_group_give(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off, uint32_t n)
{
	struct nvefs_group *g = &a->groups[m->group];

	for (uint32_t done = 0; done < n;) {
		uint32_t from = off + done, k = NVEFS_CHUNK_BLKS - from % NVEFS_CHUNK_BLKS;
		struct nvefs_chunk *c = m->chunks[from / NVEFS_CHUNK_BLKS];

		if (k > n - done)
			k = n - done;
		nvefs_bits_clear_run(&c->notree, from % NVEFS_CHUNK_BLKS, k);
		nvefs_bits_clear_run(&c->wastree, from % NVEFS_CHUNK_BLKS, k);
		nvefs_bits_clear_run(&c->meta, from % NVEFS_CHUNK_BLKS, k);
		nvefs_chunk_drop_idle(a, m, c);
		done += k;
	}
	nvefs_bits_clear_run(m->busy, off, n);
	g->avail += n;
	nvefs_hint_set(a->avail_map, m->group);
	if (!nvefs_hint_test(a->run_map, m->group) && has_run_near(a, m, off, n))
		nvefs_hint_set(a->run_map, m->group);
}
