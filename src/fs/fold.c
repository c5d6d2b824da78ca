/* SPDX-License-Identifier: MIT */
/*
 * Folding: what changed in memory goes into the tree.
 *
 * One transaction takes some windows of one inode and the inode's item. For
 * each changed entry the new block gets its tree reference first, then the old
 * one loses its own, then the window's item is written and the memory
 * references go. Windows are taken in ascending order, and the size in the
 * tree never reaches beyond a window that is still to be folded: after a power
 * cut a file is not longer than the data that belongs to it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/fold.h"
#include "fs/window.h"
#include "store/mutation.h"

#define FOLD_WINDOWS 16u  /* in one transaction */
#define FOLD_ENTRIES 192u /* changed entries in one transaction, about */

#define DIRTY_SOFT(fs) ((fs)->opts.cache_bytes / 8)
#define DIRTY_HARD(fs) ((fs)->opts.cache_bytes / 4)

bool nvefs_fold_pressure(struct nvefs_fs *fs)
{
	uint64_t bytes = fs->dirty_map_bytes;

	if (bytes > DIRTY_SOFT(fs))
		nvefs_commit_kick(fs->st);
	return bytes > DIRTY_HARD(fs);
}

void nvefs_inode_mark_dirty_locked(struct nvefs_inode *in)
{
	in->rec_dirty = true;
	nvefs_mutex_lock(&in->fs->dirty_lock);
	if (nvefs_list_empty(&in->fold_link))
		nvefs_list_push(&in->fs->dirty_inodes, &in->fold_link);
	nvefs_mutex_unlock(&in->fs->dirty_lock);
}

static void mark_clean_locked(struct nvefs_inode *in)
{
	nvefs_mutex_lock(&in->fs->dirty_lock);
	nvefs_list_del(&in->fold_link);
	nvefs_mutex_unlock(&in->fs->dirty_lock);
}

static int by_widx(const void *a, const void *b)
{
	const struct nvefs_window_mem *const *x = a, *const *y = b;

	if (nvefs_mutated(NVEFS_MUTATE_FOLD_ORDER))
		return (*x)->widx > (*y)->widx ? -1 : (*x)->widx < (*y)->widx;
	return (*x)->widx < (*y)->widx ? -1 : (*x)->widx > (*y)->widx;
}

static int sort_dirty_locked(struct nvefs_inode *in)
{
	struct nvefs_window_mem **v;
	uint32_t i, n = in->ndirty;

	if (n < 2)
		return 0;
	v = malloc(n * sizeof(struct nvefs_window_mem *));
	if (!v)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		v[i] = nvefs_container_of(nvefs_list_pop(&in->dirty_windows), struct nvefs_window_mem,
					  dirty_link);
	qsort(v, n, sizeof(struct nvefs_window_mem *), by_widx);
	for (i = 0; i < n; i++)
		nvefs_list_push(&in->dirty_windows, &v[i]->dirty_link);
	free(v);
	return 0;
}

int nvefs_map_get(struct nvefs_inode *in, uint64_t widx, struct nvefs_miss *miss, struct nvefs_window *ret_win)
{
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_MAP, widx);
	const void *val;
	uint32_t len;
	int err = nvefs_tree_get(in->fs->st, &key, miss, &val, &len);

	if (err == -ENOENT) {
		memset(ret_win, 0, sizeof(*ret_win));
		return 0;
	}
	return err ? err : nvefs_map_decode(val, len, nvefs_store_super(in->fs->st), ret_win);
}

int nvefs_map_put(struct nvefs_txn *t, struct nvefs_inode *in, uint64_t widx, const struct nvefs_window *win)
{
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_MAP, widx);
	uint8_t val[NVEFS_VALUE_MAX] __attribute__((aligned(8)));
	uint32_t len = nvefs_map_encode(win, val);
	int err;

	if (len)
		return nvefs_tree_put(t, &key, val, len);
	err = nvefs_tree_del(t, &key);
	return err == -ENOENT ? 0 : err;
}

int nvefs_map_ref_down(struct nvefs_txn *t, struct nvefs_inode *in, uint64_t entry, uint64_t csum)
{
	bool last = false;
	int err = nvefs_ref_down(t, nvefs_went_pblk(entry), &last);

	if (!err && last && nvefs_went_type(entry) == NVEFS_EXT_DATA)
		nvefs_data_forget_hint(in->fs, nvefs_went_pblk(entry), csum);
	return err;
}

/* Window `w` against its item `old`: everything that changing it needs is cached. */
static int prepare_window(struct nvefs_txn *t, struct nvefs_inode *in, const struct nvefs_window_mem *w,
			  struct nvefs_window *old)
{
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_MAP, w->widx);
	uint64_t left;
	int err = nvefs_tree_prepare(t, &key);

	if (!err)
		err = nvefs_map_get(in, w->widx, &t->miss, old);
	for (left = w->changed; left && !err; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);
		uint64_t from = nvefs_went_pblk(old->pblk[i]), to = nvefs_went_pblk(nvefs_window_entry(w, i));

		if (from == to)
			continue;
		if (to)
			err = nvefs_ref_prepare(t, to);
		if (from && !err)
			err = nvefs_ref_prepare(t, from);
	}
	return err;
}

static int apply_window(struct nvefs_txn *t, struct nvefs_inode *in, struct nvefs_window_mem *w,
			struct nvefs_window *win)
{
	struct nvefs_window old = *win;
	uint64_t left;
	int err = 0;

	for (left = w->changed; left && !err; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		win->pblk[i] = nvefs_window_entry(w, i);
		win->csum[i] = nvefs_went_type(win->pblk[i]) == NVEFS_EXT_DATA ? w->csum[i] : 0;
		in->disk_blks += (win->pblk[i] ? 1 : 0) - (old.pblk[i] ? 1 : 0);
		if (win->pblk[i] && nvefs_went_pblk(win->pblk[i]) != nvefs_went_pblk(old.pblk[i]))
			err = nvefs_ref_up(t, nvefs_went_pblk(win->pblk[i]));
	}
	if (!err)
		err = nvefs_map_put(t, in, w->widx, win);
	for (left = w->changed; left && !err; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		if (old.pblk[i] && nvefs_went_pblk(win->pblk[i]) != nvefs_went_pblk(old.pblk[i]))
			err = nvefs_map_ref_down(t, in, old.pblk[i], old.csum[i]);
		if (win->pblk[i] && !err)
			nvefs_data_unpin(in->fs, nvefs_went_pblk(win->pblk[i]), win->csum[i]);
	}
	return err;
}

/*
 * The size that the tree must have with this window in it: nothing may be
 * mapped beyond it that a later extension would uncover.
 */
static void raise_disk_size_locked(struct nvefs_inode *in, uint64_t widx)
{
	uint64_t end = (widx + 1) * NVEFS_WINDOW_BLKS * NVEFS_BLOCK_SIZE;

	if (end > in->rec.size)
		end = in->rec.size;
	if (end > in->disk_size)
		in->disk_size = end;
}

struct fold_plan {
	struct nvefs_window old[FOLD_WINDOWS];
	struct nvefs_window_mem *w[FOLD_WINDOWS];
	uint32_t n;
};

static int plan_locked(struct nvefs_txn *t, struct nvefs_inode *in, struct fold_plan *p)
{
	struct nvefs_list *pos;
	uint32_t entries = 0;
	int err = nvefs_inode_prepare(t, in);

	p->n = 0;
	if (err)
		return err;
	nvefs_list_for_each(pos, &in->dirty_windows) {
		struct nvefs_window_mem *w = nvefs_container_of(pos, struct nvefs_window_mem, dirty_link);

		entries += (uint32_t)__builtin_popcountll(w->changed);
		if (p->n == (nvefs_mutation_commits() ? 1 : FOLD_WINDOWS) || (p->n && entries > FOLD_ENTRIES))
			break;
		err = prepare_window(t, in, w, &p->old[p->n]);
		if (err)
			return err;
		p->w[p->n++] = w;
	}
	return 0;
}

static int fold_try_locked(struct nvefs_txn *t, struct nvefs_inode *in, struct fold_plan *p)
{
	uint32_t i;
	int err;

	if (in->gone) {
		mark_clean_locked(in);
		return 0;
	}
	err = plan_locked(t, in, p);
	for (i = 0; i < p->n && !err; i++) {
		err = apply_window(t, in, p->w[i], &p->old[i]);
		if (err)
			break;
		raise_disk_size_locked(in, p->w[i]->widx);
		nvefs_window_clean(in, p->w[i]);
	}
	if (!err) {
		if (nvefs_list_empty(&in->dirty_windows))
			in->disk_size = in->rec.size;
		err = nvefs_inode_write_locked(t, in);
	}
	if (!err && nvefs_list_empty(&in->dirty_windows))
		mark_clean_locked(in);
	return err;
}

static uint32_t fold_credits(struct nvefs_store *st)
{
	uint32_t want = 2 * nvefs_tree_credits(st) + 2 * nvefs_ref_credits(st) + FOLD_WINDOWS;
	uint32_t max = nvefs_txn_max_credits(st) / 2;

	return want < max ? want : max;
}

/* One transaction's worth. *ret_left: there was more. */
static int fold_step(struct nvefs_inode *in, struct nvefs_queue *q, struct fold_plan *p, bool *ret_left)
{
	struct nvefs_store *st = in->fs->st;
	struct nvefs_txn t;
	int err;

	do {
		err = nvefs_txn_begin(st, q, fold_credits(st), NVEFS_TXN_FREEING, &t);
		if (err)
			return err;
		nvefs_mutex_lock(&in->lock);
		err = fold_try_locked(&t, in, p);
		*ret_left = in->ndirty && !in->gone;
		nvefs_mutex_unlock(&in->lock);
		if (err && err != -EAGAIN)
			nvefs_store_fail(st, err, "folding a file's map into the tree failed");
		nvefs_txn_end(&t);
	} while (nvefs_store_retry(st, q, &t.miss, &err));
	return err;
}

int nvefs_inode_fold(struct nvefs_inode *in, struct nvefs_queue *q)
{
	struct fold_plan *p;
	bool left;
	int err;

	nvefs_mutex_lock(&in->lock);
	left = (in->rec_dirty || in->ndirty) && !in->gone;
	err = left ? sort_dirty_locked(in) : 0;
	nvefs_mutex_unlock(&in->lock);
	if (!left || err)
		return err;
	p = malloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	while (left && !err) {
		err = fold_step(in, q, p, &left);
		if (left && !err)
			err = nvefs_mutation_commit(in->fs->st);
	}
	free(p);
	return err;
}

/*
 * All inodes that are dirty now. One that becomes dirty again meanwhile is at
 * the end of the list and left to the next fold: the count bounds the work.
 */
int nvefs_fs_fold(void *arg, struct nvefs_queue *q)
{
	struct nvefs_fs *fs = arg;
	struct nvefs_list *p;
	uint32_t n = 0, i;
	int err = 0;

	nvefs_mutex_lock(&fs->dirty_lock);
	nvefs_list_for_each(p, &fs->dirty_inodes)
		n++;
	nvefs_mutex_unlock(&fs->dirty_lock);
	for (i = 0; i < n && !err; i++) {
		struct nvefs_inode *in;
		uint64_t ino = 0;

		nvefs_mutex_lock(&fs->dirty_lock);
		p = fs->dirty_inodes.next;
		if (p != &fs->dirty_inodes) {
			ino = nvefs_container_of(p, struct nvefs_inode, fold_link)->ino;
			nvefs_list_del(p);
			nvefs_list_push(&fs->dirty_inodes, p);
		}
		nvefs_mutex_unlock(&fs->dirty_lock);
		if (!ino)
			break;
		in = nvefs_inode_peek(fs, ino);
		if (!in)
			continue;
		err = nvefs_inode_fold(in, q);
		nvefs_inode_put(in);
	}
	return err;
}

void nvefs_inode_data_init(struct nvefs_inode *in)
{
	nvefs_list_init(&in->dirty_windows);
	nvefs_list_init(&in->fold_link);
	nvefs_list_init(&in->ranges);
	nvefs_list_init(&in->range_waiters);
}

void nvefs_inode_data_done(struct nvefs_inode *in)
{
	uint32_t i;

	assert(!in->ndirty);
	for (i = 0; i < in->nbuckets; i++)
		while (in->windows[i])
			nvefs_window_drop(in, in->windows[i]);
	free(in->windows);
	in->windows = NULL;
	in->nbuckets = 0;
}

int nvefs_inode_data_discard(struct nvefs_inode *in)
{
	uint32_t i;

	nvefs_mutex_lock(&in->lock);
	for (i = 0; i < in->nbuckets; i++) {
		while (in->windows[i]) {
			nvefs_window_cut(in, in->windows[i], 0);
			nvefs_window_drop(in, in->windows[i]);
		}
	}
	in->rec_dirty = false;
	mark_clean_locked(in);
	nvefs_mutex_unlock(&in->lock);
	return 0;
}
