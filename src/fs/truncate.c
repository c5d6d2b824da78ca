/* SPDX-License-Identifier: MIT */
/*
 * Sizes and holes.
 *
 * Cutting a file: (1) everything dirty is folded; (2) one transaction sets the
 * new size, replaces the last block by a copy with zeros beyond the size, and
 * notes an ORPHAN_TRUNCATE item; (3) mappings beyond are removed in bounded
 * transactions; (4) the note goes with the last of them. After a power cut the
 * mount does (3) and (4) before anybody can read.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "fs/fold.h"
#include "fs/window.h"

#define FREE_ENTRIES 192u /* mappings removed in one transaction, about */
#define FREE_WINDOWS 32u

static void resize_locked(struct nvefs_op *op);

static uint32_t free_credits(struct nvefs_store *st)
{
	uint32_t want = 3 * nvefs_tree_credits(st) + 2 * nvefs_ref_credits(st) + FREE_WINDOWS;
	uint32_t max = nvefs_txn_max_credits(st) / 2;

	return want < max ? want : max;
}

/* ---- Removing mappings ---- */

struct cut {
	uint64_t lo, hi; /* blocks */
	uint64_t next;	 /* window to go on from */
	bool done;
	uint64_t widx[FREE_WINDOWS];
	struct nvefs_window win[FREE_WINDOWS];
	uint32_t n;
};

/* Bits of the entries of this window that lie in [lo, hi). */
static uint64_t cut_mask(const struct cut *c, uint64_t widx)
{
	uint64_t base = widx * NVEFS_WINDOW_BLKS;
	uint64_t from = c->lo > base ? c->lo - base : 0;
	uint64_t to = c->hi - base < NVEFS_WINDOW_BLKS ? c->hi - base : NVEFS_WINDOW_BLKS;
	uint64_t upto = to == 64 ? ~UINT64_C(0) : (UINT64_C(1) << to) - 1;

	return from >= to ? 0 : upto & ~((UINT64_C(1) << from) - 1);
}

static int prepare_cut(struct nvefs_txn *t, const struct cut *c, uint32_t i)
{
	uint64_t left;
	int err = 0;

	for (left = cut_mask(c, c->widx[i]); left && !err; left &= left - 1) {
		uint64_t ent = c->win[i].pblk[__builtin_ctzll(left)];

		if (ent)
			err = nvefs_ref_prepare(t, nvefs_went_pblk(ent));
	}
	return err;
}

/* Collect items of the tree in the range, as many as one transaction takes. */
static int plan_cut(struct nvefs_txn *t, struct nvefs_inode *in, struct cut *c)
{
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_MAP, c->next), found;
	uint32_t entries = 0, k;
	int err = nvefs_inode_prepare(t, in);

	c->n = 0;
	c->done = false;
	while (!err && c->n < FREE_WINDOWS && entries < FREE_ENTRIES) {
		const void *val;
		uint32_t len;

		err = nvefs_tree_next(t->st, &key, &t->miss, &found, &val, &len);
		if (err == -ENOENT || (!err && (found.ino != in->ino || found.kind != NVEFS_KIND_MAP ||
						found.offset * NVEFS_WINDOW_BLKS >= c->hi))) {
			c->done = true;
			return 0;
		}
		if (!err)
			err = nvefs_map_decode(val, len, nvefs_store_super(t->st), &c->win[c->n]);
		if (!err)
			err = nvefs_tree_prepare(t, &found);
		if (err)
			break;
		c->widx[c->n] = found.offset;
		for (k = 0; k < NVEFS_WINDOW_BLKS; k++)
			entries += c->win[c->n].pblk[k] != 0;
		err = prepare_cut(t, c, c->n);
		c->n++;
		key.offset = found.offset + 1;
	}
	return err;
}

/* In memory the same entries go; those changed there and not folded lose their memory references. */
static void cut_memory(struct nvefs_inode *in, struct nvefs_window_mem *w, uint64_t mask)
{
	for (mask &= w->cap == 64 ? ~UINT64_C(0) : (UINT64_C(1) << w->cap) - 1; mask; mask &= mask - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(mask);

		if (w->map[i])
			in->rec.blks--;
		if ((w->changed >> i & 1) && w->map[i])
			nvefs_data_unpin(in->fs, nvefs_went_pblk(w->map[i]), w->csum[i]);
		w->map[i] = 0;
		w->changed &= ~(UINT64_C(1) << i);
	}
	if (!w->changed)
		nvefs_window_clean(in, w);
}

static int apply_cut(struct nvefs_txn *t, struct nvefs_inode *in, struct cut *c, uint32_t i)
{
	uint64_t mask = cut_mask(c, c->widx[i]), left;
	struct nvefs_window_mem *w = nvefs_window_find(in, c->widx[i]);
	struct nvefs_window old = c->win[i], *win = &c->win[i];
	int err;

	if (w)
		cut_memory(in, w, mask);
	for (left = mask; left; left &= left - 1) {
		uint32_t k = (uint32_t)__builtin_ctzll(left);

		in->disk_blks -= win->pblk[k] != 0;
		/* A window in memory was counted down there; otherwise the count is this item's. */
		if (!w && win->pblk[k])
			in->rec.blks--;
		win->pblk[k] = 0;
		win->csum[k] = 0;
	}
	err = nvefs_map_put(t, in, c->widx[i], win);
	for (left = mask; left && !err; left &= left - 1) {
		uint32_t k = (uint32_t)__builtin_ctzll(left);

		if (old.pblk[k])
			err = nvefs_map_ref_down(t, in, old.pblk[k], old.csum[k]);
	}
	return err;
}

/* Windows that are only in memory: the tree has no item to find them by. */
static void cut_unfolded(struct nvefs_inode *in, const struct cut *c)
{
	struct nvefs_list *p, *tmp;

	nvefs_mutex_lock(&in->lock);
	nvefs_list_for_each_safe(p, tmp, &in->dirty_windows) {
		struct nvefs_window_mem *w = nvefs_container_of(p, struct nvefs_window_mem, dirty_link);
		uint64_t mask, base = w->widx * NVEFS_WINDOW_BLKS;
		uint32_t i;

		if (base >= c->hi || base + NVEFS_WINDOW_BLKS <= c->lo)
			continue;
		/* Entries stay marked as changed: a fold finds a hole and takes the old block away. */
		for (mask = cut_mask(c, w->widx) & w->changed; mask; mask &= mask - 1) {
			i = (uint32_t)__builtin_ctzll(mask);
			if (i >= w->cap || !w->map[i])
				continue;
			in->rec.blks--;
			nvefs_data_unpin(in->fs, nvefs_went_pblk(w->map[i]), w->csum[i]);
			w->map[i] = 0;
		}
	}
	nvefs_mutex_unlock(&in->lock);
}

static int cut_step(struct nvefs_inode *in, struct nvefs_queue *q, struct cut *c)
{
	struct nvefs_store *st = in->fs->st;
	struct nvefs_txn t;
	uint32_t i;
	int err;

	do {
		err = nvefs_txn_begin(st, q, free_credits(st), NVEFS_TXN_FREEING, &t);
		if (err)
			return err;
		nvefs_mutex_lock(&in->lock);
		err = plan_cut(&t, in, c);
		for (i = 0; i < c->n && !err; i++)
			err = apply_cut(&t, in, c, i);
		if (!err && c->n)
			err = nvefs_inode_write_locked(&t, in);
		nvefs_mutex_unlock(&in->lock);
		if (err && err != -EAGAIN)
			nvefs_store_fail(st, err, "removing a file's blocks failed");
		nvefs_txn_end(&t);
	} while (nvefs_store_retry(st, q, &t.miss, &err));
	if (c->n)
		c->next = c->widx[c->n - 1] + 1;
	return err;
}

static int cut_range(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t lo, uint64_t hi)
{
	struct cut *c;
	int err = 0;

	if (lo >= hi)
		return 0;
	c = nvefs_buf_new(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->lo = lo;
	c->hi = hi;
	c->next = lo / NVEFS_WINDOW_BLKS;
	c->done = false;
	cut_unfolded(in, c);
	while (!err && !c->done) {
		err = cut_step(in, q, c);
		/* The rest of an inode without a name can wait for the next mount, unmounting cannot. */
		if (!err && !c->done && in->dying && __atomic_load_n(&in->fs->bg_stop, __ATOMIC_RELAXED))
			err = -EINTR;
	}
	nvefs_buf_free(c);
	return err;
}

int nvefs_inode_free_blocks(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t from_lblk)
{
	return cut_range(in, q, from_lblk, NVEFS_MAX_LBLK + NVEFS_WINDOW_BLKS);
}

int nvefs_inode_punch(struct nvefs_op *op, uint64_t lo, uint64_t hi)
{
	return cut_range(op->in, op->w->q, lo, hi);
}

/* ---- The size ---- */

/* A copy of the block that the new end lies in, with zeros behind; entry 0: nothing to do. */
static int make_tail(struct nvefs_op *op, uint64_t size, uint64_t *ret_entry, uint64_t *ret_csum)
{
	uint64_t lblk = size / NVEFS_BLOCK_SIZE, pblk;
	uint32_t keep = size % NVEFS_BLOCK_SIZE;
	struct nvefs_block_view v;
	uint8_t *buf;
	int err;

	*ret_entry = 0;
	if (!keep)
		return 0;
	err = nvefs_block_look(op->in, op->w->q, lblk, &v);
	if (err || !v.entry || nvefs_went_type(v.entry) == NVEFS_EXT_UNWRITTEN)
		return err;
	buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	if (!buf)
		return -ENOMEM;
	err = nvefs_block_read(op->in, op->w->q, lblk, buf);
	if (!err) {
		memset(buf + keep, 0, NVEFS_BLOCK_SIZE - keep);
		err = nvefs_block_write(op, buf, &pblk, ret_csum);
	}
	if (!err)
		*ret_entry = nvefs_went_make(NVEFS_EXT_DATA, pblk);
	nvefs_buf_free(buf);
	return err;
}

struct shrink {
	uint64_t size, entry, csum; /* new end; its block's new place, 0: as it was */
	bool left;		    /* mappings lie beyond */
};

static int shrink_prepare(struct nvefs_txn *t, struct nvefs_inode *in, struct shrink *s, struct nvefs_window *win)
{
	uint64_t lblk = s->size / NVEFS_BLOCK_SIZE, widx = lblk / NVEFS_WINDOW_BLKS;
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_MAP, widx);
	uint64_t old;
	int err = nvefs_inode_prepare(t, in);

	if (!err)
		err = nvefs_orphan_prepare(t, in->ino);
	if (err || !s->entry)
		return err;
	err = nvefs_tree_prepare(t, &key);
	if (!err)
		err = nvefs_map_get(in, widx, &t->miss, win);
	if (err)
		return err;
	old = nvefs_went_pblk(win->pblk[lblk % NVEFS_WINDOW_BLKS]);
	if (old)
		err = nvefs_ref_prepare(t, old);
	return err ? err : nvefs_ref_prepare(t, nvefs_went_pblk(s->entry));
}

/* The last block changes place in the tree and in memory at once. */
static int shrink_tail(struct nvefs_txn *t, struct nvefs_inode *in, const struct shrink *s, struct nvefs_window *win)
{
	uint64_t lblk = s->size / NVEFS_BLOCK_SIZE, widx = lblk / NVEFS_WINDOW_BLKS;
	uint32_t off = lblk % NVEFS_WINDOW_BLKS;
	uint64_t old = win->pblk[off], old_csum = win->csum[off];
	struct nvefs_window_mem *w = nvefs_window_find(in, widx);
	int err;

	win->pblk[off] = s->entry;
	win->csum[off] = s->csum;
	err = nvefs_ref_up(t, nvefs_went_pblk(s->entry));
	if (!err)
		err = nvefs_map_put(t, in, widx, win);
	if (!err && old)
		err = nvefs_map_ref_down(t, in, old, old_csum);
	if (!old) {
		in->disk_blks++;
		in->rec.blks++;
	}
	nvefs_data_unpin(in->fs, nvefs_went_pblk(s->entry), s->csum);
	if (w && off < w->cap) {
		assert(!(w->changed >> off & 1));
		w->map[off] = s->entry;
		w->csum[off] = s->csum;
	} else if (w && !w->dirty) {
		nvefs_window_drop(in, w);
	}
	return err;
}

static int shrink_try(struct nvefs_txn *t, struct nvefs_inode *in, struct shrink *s)
{
	struct nvefs_window win;
	int err = shrink_prepare(t, in, s, &win);

	if (err)
		return err;
	if (s->entry)
		err = shrink_tail(t, in, s, &win);
	in->rec.size = in->disk_size = s->size;
	in->rec.mtime = in->rec.ctime = nvefs_time_now();
	if (!err)
		err = nvefs_orphan_put(t, in->ino, NVEFS_ORPHAN_TRUNCATE);
	if (!err)
		err = nvefs_inode_write_locked(t, in);
	return err;
}

static int shrink_commit(struct nvefs_op *op, struct shrink *s)
{
	struct nvefs_store *st = op->w->fs->st;
	struct nvefs_txn t;
	int err;

	do {
		err = nvefs_txn_begin(st, op->w->q, free_credits(st), NVEFS_TXN_FREEING, &t);
		if (err)
			return err;
		nvefs_mutex_lock(&op->in->lock);
		err = shrink_try(&t, op->in, s);
		nvefs_mutex_unlock(&op->in->lock);
		if (err && err != -EAGAIN)
			nvefs_store_fail(st, err, "truncating a file failed");
		nvefs_txn_end(&t);
	} while (nvefs_store_retry(st, op->w->q, &t.miss, &err));
	return err;
}

static int shrink_forget_note(struct nvefs_op *op)
{
	struct nvefs_store *st = op->w->fs->st;
	struct nvefs_txn t;
	int err;

	do {
		err = nvefs_txn_begin(st, op->w->q, free_credits(st), NVEFS_TXN_FREEING, &t);
		if (err)
			return err;
		err = nvefs_orphan_prepare(&t, op->in->ino);
		if (!err)
			err = nvefs_orphan_del(&t, op->in->ino, NVEFS_ORPHAN_TRUNCATE);
		nvefs_txn_end(&t);
	} while (nvefs_store_retry(st, op->w->q, &t.miss, &err));
	return err;
}

static int shrink(struct nvefs_op *op, uint64_t size)
{
	struct shrink s = {.size = size};
	int err = nvefs_inode_fold(op->in, op->w->q);

	if (!err)
		err = make_tail(op, size, &s.entry, &s.csum);
	if (err)
		return err;
	err = shrink_commit(op, &s);
	if (err) {
		if (s.entry && !nvefs_store_error(op->w->fs->st))
			nvefs_data_unpin(op->w->fs, nvefs_went_pblk(s.entry), s.csum);
		return err;
	}
	err = nvefs_inode_free_blocks(op->in, op->w->q, (size + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE);
	return err ? err : shrink_forget_note(op);
}

void nvefs_resize_begin(struct nvefs_op *op)
{
	struct nvefs_fs *fs = op->w->fs;
	struct nvefs_req *req = op->req;
	int err = 0;

	if (fs->read_only || nvefs_store_error(fs->st))
		err = -EROFS;
	else if (req->set_mask & NVEFS_SET_SIZE && req->attr.size > NVEFS_MAX_SIZE_BYTES)
		err = -EFBIG;
	else
		err = nvefs_inode_get(fs, op->w->q, req->ino, &op->in);
	if (err) {
		nvefs_op_finish(op, err, 0);
		return;
	}
	if (!(req->set_mask & NVEFS_SET_SIZE)) {
		resize_locked(op);
		return;
	}
	nvefs_mutex_lock(&op->in->lock);
	err = S_ISREG(op->in->rec.mode) ? 0 : S_ISDIR(op->in->rec.mode) ? -EISDIR : -EINVAL;
	nvefs_mutex_unlock(&op->in->lock);
	if (err)
		nvefs_op_finish(op, err, 0);
	else /* the whole file: the present size is only stable with nobody writing */
		nvefs_op_range(op, 0, NVEFS_MAX_LBLK, true, resize_locked);
}

static int resize(struct nvefs_op *op)
{
	struct nvefs_inode *in = op->in;
	uint64_t size = op->req->attr.size, old;

	nvefs_mutex_lock(&in->lock);
	old = in->rec.size;
	if (size >= old) {
		in->rec.size = size;
		in->rec.mtime = in->rec.ctime = nvefs_time_now();
		nvefs_inode_mark_dirty_locked(in);
	}
	nvefs_mutex_unlock(&in->lock);
	return size < old ? shrink(op, size) : 0;
}

/* The copy of the last block needs a place, which comes out of the reserve if all else fails: it is given back soon. */
static bool resize_wait(struct nvefs_op *op)
{
	if (nvefs_op_space_wait(op, resize_locked))
		return true;
	if (op->last_resort)
		return false;
	op->last_resort = true;
	nvefs_op_ready(op, resize_locked);
	return true;
}

static void resize_locked(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;
	struct nvefs_attr attr;
	int err = op->commit.err;

	if (!err && req->set_mask & NVEFS_SET_SIZE)
		err = resize(op);
	if (err == -ENOSPC && !op->commit.err && resize_wait(op))
		return;
	if (!err)
		err = nvefs_setattr(op->w, req->ino, req->set_mask & ~NVEFS_SET_SIZE, &req->attr, &attr);
	if (!err)
		req->attr = attr;
	nvefs_op_finish(op, err, 0);
}
