/* SPDX-License-Identifier: MIT */
#include "fs/window.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>


/* Clean windows are dropped beyond this share of the cache budget; the rest is tree nodes. */
#define WINDOW_BUDGET(fs) ((fs)->opts.cache_bytes / 2)
#define WINDOW_TARGET(fs) (WINDOW_BUDGET(fs) / 8 * 7)

static uint32_t bucket_of(const struct nvefs_inode *in, uint64_t widx)
{
	return (uint32_t)(widx * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (in->nbuckets - 1);
}

static size_t window_bytes(uint32_t cap)
{
	return sizeof(struct nvefs_window_mem) + (size_t)cap * 2 * sizeof(uint64_t);
}

static struct nvefs_window_mem *window_new(uint64_t widx, uint32_t cap)
{
	struct nvefs_window_mem *w = calloc(1, window_bytes(cap));

	if (!w)
		return NULL;
	nvefs_list_init(&w->dirty_link);
	w->widx = widx;
	w->cap = cap;
	w->csum = w->map + cap;
	return w;
}

struct nvefs_window_mem *nvefs_window_find(struct nvefs_inode *in, uint64_t widx)
{
	struct nvefs_window_mem *w;

	if (!in->nbuckets)
		return NULL;
	for (w = in->windows[bucket_of(in, widx)]; w; w = w->next)
		if (w->widx == widx)
			return w;
	return NULL;
}

static int table_grow(struct nvefs_inode *in)
{
	uint32_t i, old = in->nbuckets, n = old ? old * 4 : 1;
	struct nvefs_window_mem **from = in->windows, **to = calloc(n, sizeof(*to));

	if (!to)
		return -ENOMEM;
	in->windows = to;
	in->nbuckets = n;
	for (i = 0; i < old; i++) {
		struct nvefs_window_mem *w, *next;

		for (w = from[i]; w; w = next) {
			uint32_t b = bucket_of(in, w->widx);

			next = w->next;
			w->next = to[b];
			to[b] = w;
		}
	}
	free(from);
	return 0;
}

static int table_insert(struct nvefs_inode *in, struct nvefs_window_mem *w)
{
	uint32_t b;

	if (in->nwindows >= in->nbuckets) {
		int err = table_grow(in);

		if (err)
			return err;
	}
	b = bucket_of(in, w->widx);
	w->next = in->windows[b];
	in->windows[b] = w;
	in->nwindows++;
	in->fs->map_bytes += window_bytes(w->cap);
	return 0;
}

static struct nvefs_window_mem **table_place(struct nvefs_inode *in, const struct nvefs_window_mem *w)
{
	struct nvefs_window_mem **p = &in->windows[bucket_of(in, w->widx)];

	while (*p != w)
		p = &(*p)->next;
	return p;
}

void nvefs_window_drop(struct nvefs_inode *in, struct nvefs_window_mem *w)
{
	*table_place(in, w) = w->next;
	in->nwindows--;
	in->fs->map_bytes -= window_bytes(w->cap);
	free(w);
}

static uint32_t cap_for(uint32_t entries)
{
	uint32_t cap = 1;

	while (cap < entries)
		cap *= 2;
	return cap;
}

static int window_insert(struct nvefs_inode *in, uint64_t widx, const struct nvefs_window *src)
{
	uint32_t i, used = 0;
	struct nvefs_window_mem *w;
	int err;

	for (i = 0; src && i < NVEFS_WINDOW_BLKS; i++)
		if (src->pblk[i])
			used = i + 1;
	w = window_new(widx, cap_for(used ? used : 1));
	if (!w)
		return -ENOMEM;
	for (i = 0; i < used; i++) {
		w->map[i] = src->pblk[i];
		w->csum[i] = src->csum[i];
	}
	err = table_insert(in, w);
	if (err)
		free(w);
	return err;
}

/*
 * The inode lock is taken inside the meta lock, so that no fold can come
 * between reading the tree and inserting: an outdated map never gets in.
 */
static int load_try(struct nvefs_inode *in, uint64_t widx, struct nvefs_miss *miss)
{
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_MAP, widx);
	struct nvefs_window win;
	const void *val;
	uint32_t len;
	bool have;
	int err = nvefs_tree_get(in->fs->st, &key, miss, &val, &len);

	if (err && err != -ENOENT)
		return err;
	have = !err;
	if (have) {
		err = nvefs_map_decode(val, len, nvefs_store_super(in->fs->st), &win);
		if (err)
			return err;
	}
	nvefs_mutex_lock(&in->lock);
	err = nvefs_window_find(in, widx) ? 0 : window_insert(in, widx, have ? &win : NULL);
	nvefs_mutex_unlock(&in->lock);
	return err;
}

static void drop_clean(struct nvefs_inode *in, const struct nvefs_window_mem *keep)
{
	uint32_t i;

	nvefs_mutex_lock(&in->lock);
	for (i = 0; i < in->nbuckets; i++) {
		struct nvefs_window_mem *w, *next;

		for (w = in->windows[i]; w; w = next) {
			next = w->next;
			if (!w->dirty && w != keep)
				nvefs_window_drop(in, w);
		}
	}
	nvefs_mutex_unlock(&in->lock);
}

static void shrink_shard(struct nvefs_fs *fs, struct nvefs_inode_shard *s, const struct nvefs_window_mem *keep)
{
	uint32_t b;

	nvefs_mutex_lock(&s->lock);
	for (b = 0; b < s->nbuckets && fs->map_bytes > WINDOW_TARGET(fs); b++) {
		struct nvefs_inode *in;

		for (in = s->buckets[b]; in; in = in->hash_next)
			drop_clean(in, keep);
	}
	nvefs_mutex_unlock(&s->lock);
}

/*
 * Over budget: clean windows go, inode by inode, a shard after the other. The
 * window just loaded stays, or its loader would never get on; `keep` is only
 * compared.
 */
static void shrink(struct nvefs_fs *fs, const struct nvefs_window_mem *keep)
{
	uint32_t n;

	for (n = 0; n < NVEFS_INODE_SHARDS && fs->map_bytes > WINDOW_TARGET(fs); n++)
		shrink_shard(fs, &fs->shards[fs->shrink_hand++ % NVEFS_INODE_SHARDS], keep);
}

static struct nvefs_window_mem *find_unlocked(struct nvefs_inode *in, uint64_t widx)
{
	struct nvefs_window_mem *w;

	nvefs_mutex_lock(&in->lock);
	w = nvefs_window_find(in, widx);
	nvefs_mutex_unlock(&in->lock);
	return w;
}

int nvefs_window_load(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t widx)
{
	struct nvefs_store *st = in->fs->st;
	struct nvefs_miss miss;
	int err;

	if (find_unlocked(in, widx))
		return 0;
	do {
		nvefs_store_rdlock(st);
		err = load_try(in, widx, &miss);
		nvefs_store_rdunlock(st);
	} while (nvefs_store_retry(st, q, &miss, &err));
	if (!err && in->fs->map_bytes > WINDOW_BUDGET(in->fs))
		shrink(in->fs, find_unlocked(in, widx));
	return err;
}

struct nvefs_window_mem *nvefs_window_reserve(struct nvefs_inode *in, struct nvefs_window_mem *w, uint32_t off)
{
	struct nvefs_window_mem *n;
	uint32_t cap;

	if (off < w->cap)
		return w;
	cap = cap_for(off + 1);
	n = window_new(w->widx, cap);
	if (!n)
		return NULL;
	memcpy(n->map, w->map, w->cap * sizeof(uint64_t));
	memcpy(n->csum, w->csum, w->cap * sizeof(uint64_t));
	n->changed = w->changed;
	n->dirty = w->dirty;
	n->pledge = w->pledge;
	n->next = w->next;
	*table_place(in, w) = n;
	if (w->dirty) {
		nvefs_list_push(&w->dirty_link, &n->dirty_link);
		nvefs_list_del(&w->dirty_link);
		in->fs->dirty_map_bytes += window_bytes(cap) - window_bytes(w->cap);
	}
	in->fs->map_bytes += window_bytes(cap) - window_bytes(w->cap);
	free(w);
	return n;
}

uint64_t nvefs_data_fingerprint(const struct nvefs_fs *fs, uint64_t csum)
{
	uint32_t bits = fs->opts.fingerprint_bits;

	return bits && bits < 64 ? csum & ((UINT64_C(1) << bits) - 1) : csum;
}

void nvefs_data_forget_hint(struct nvefs_fs *fs, uint64_t pblk, uint64_t csum)
{
	if (fs->index)
		nvefs_dedup_index_remove(fs->index, nvefs_data_fingerprint(fs, csum), pblk);
}

void nvefs_data_unpin(struct nvefs_fs *fs, uint64_t pblk, uint64_t csum)
{
	if (nvefs_block_unpin(fs->st, pblk))
		nvefs_data_forget_hint(fs, pblk, csum);
}

static void drop_memory_ref(struct nvefs_inode *in, struct nvefs_window_mem *w, uint32_t off)
{
	if ((w->changed >> off & 1) && w->map[off])
		nvefs_data_unpin(in->fs, nvefs_went_pblk(w->map[off]), w->csum[off]);
}

static void window_mark_dirty(struct nvefs_inode *in, struct nvefs_window_mem *w, uint32_t *pledged)
{
	if (w->dirty)
		return;
	assert(*pledged >= NVEFS_WINDOW_PLEDGE);
	*pledged -= NVEFS_WINDOW_PLEDGE;
	w->pledge = NVEFS_WINDOW_PLEDGE;
	w->dirty = true;
	nvefs_list_push(&in->dirty_windows, &w->dirty_link);
	in->ndirty++;
	in->fs->dirty_map_bytes += window_bytes(w->cap);
	nvefs_inode_mark_dirty_locked(in);
}

void nvefs_window_set(struct nvefs_inode *in, struct nvefs_window_mem *w, uint32_t off, uint64_t entry,
		      uint64_t csum, uint32_t *pledged)
{
	assert(off < w->cap);
	window_mark_dirty(in, w, pledged);
	if (!w->map[off] && entry)
		in->rec.blks++;
	else if (w->map[off] && !entry)
		in->rec.blks--;
	drop_memory_ref(in, w, off);
	w->map[off] = entry;
	w->csum[off] = csum;
	w->changed |= UINT64_C(1) << off;
}

void nvefs_window_pledge(struct nvefs_window_mem *w, uint32_t blks, uint32_t *pledged)
{
	uint32_t room = NVEFS_WINDOW_PLEDGE_MAX - w->pledge, n = blks < room ? blks : room;

	assert(w->dirty && *pledged >= n);
	w->pledge = (uint8_t)(w->pledge + n);
	*pledged -= n;
}

void nvefs_window_clean(struct nvefs_inode *in, struct nvefs_window_mem *w)
{
	w->changed = 0;
	if (!w->dirty)
		return;
	w->dirty = false;
	nvefs_list_del(&w->dirty_link);
	in->ndirty--;
	in->fs->dirty_map_bytes -= window_bytes(w->cap);
	nvefs_alloc_unpledge(in->fs->st, w->pledge);
	w->pledge = 0;
}

void nvefs_window_cut(struct nvefs_inode *in, struct nvefs_window_mem *w, uint32_t off)
{
	uint32_t i;

	for (i = off; i < w->cap; i++) {
		if (w->map[i])
			in->rec.blks--;
		drop_memory_ref(in, w, i);
		w->map[i] = 0;
		w->changed &= ~(UINT64_C(1) << i);
	}
	if (!w->changed)
		nvefs_window_clean(in, w);
}
