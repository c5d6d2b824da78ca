/* SPDX-License-Identifier: MIT */
/* rename(2), with NOREPLACE and EXCHANGE. */
#include <stdio.h>

#include "fs/names.h"

struct rename_end {
	uint64_t dir;
	const char *name;
	size_t len;
	/* of this attempt */
	struct nvefs_inode *dir_in;
	struct nvefs_inode *in; /* NULL: no such name */
	bool is_dir;
};

struct rename_arg {
	struct rename_end from, to;
	uint32_t flags;
};

static int rename_find(struct nvefs_nop *op, struct rename_end *e)
{
	struct nvefs_dirent ent;
	int err;

	e->in = NULL;
	e->is_dir = false;
	err = nvefs_nop_get_dir(op, e->dir, &e->dir_in);
	if (err)
		return err;
	err = nvefs_dir_find(op->fs, e->dir, e->name, e->len, &op->t.miss, &ent);
	if (err)
		return err == -ENOENT ? 0 : err;
	err = nvefs_nop_get(op, ent.ino, &e->in);
	if (err)
		return err == -ESTALE ? -EUCLEAN : err;
	e->is_dir = S_ISDIR(nvefs_inode_mode(e->in));
	return 0;
}

/* -EINVAL when `dir` lies below `ancestor`, or is it. */
static int rename_check_loop(struct nvefs_nop *op, uint64_t dir, uint64_t ancestor)
{
	uint32_t depth = 0;
	struct nvefs_inode_rec rec;
	struct nvefs_key key;
	const void *val;
	uint32_t len;
	int err;

	while (dir != NVEFS_ROOT_INO) {
		if (dir == ancestor)
			return -EINVAL;
		if (++depth > 1u << 20)
			return -EUCLEAN;
		key = nvefs_key_make(dir, NVEFS_KIND_INODE, 0);
		err = nvefs_tree_get(op->fs->st, &key, &op->t.miss, &val, &len);
		if (!err)
			err = nvefs_inode_decode(val, len, &rec);
		if (err)
			return err == -ENOENT ? -EUCLEAN : err;
		dir = rec.parent;
	}
	return dir == ancestor ? -EINVAL : 0;
}

static int rename_link_room(struct nvefs_inode *dir)
{
	int err;

	nvefs_mutex_lock(&dir->lock);
	err = dir->rec.nlink >= NVEFS_LINK_MAX ? -EMLINK : 0;
	nvefs_mutex_unlock(&dir->lock);
	return err;
}

/* What rename(2) refuses, once both ends are known. */
static int rename_check(struct nvefs_nop *op, const struct rename_arg *a)
{
	const struct rename_end *from = &a->from, *to = &a->to;
	bool exchange = a->flags & RENAME_EXCHANGE;
	int err = 0;

	if (from->is_dir && from->dir != to->dir)
		err = rename_check_loop(op, to->dir, from->in->ino);
	if (!err && exchange && to->is_dir && from->dir != to->dir)
		err = rename_check_loop(op, from->dir, to->in->ino);
	if (!err && to->in && !exchange) {
		if (from->is_dir && !to->is_dir)
			err = -ENOTDIR;
		else
			err = nvefs_unlink_check(to->in, from->is_dir);
	}
	if (!err && from->dir != to->dir && from->is_dir && !to->is_dir)
		err = rename_link_room(to->dir_in);
	if (!err && from->dir != to->dir && exchange && to->is_dir && !from->is_dir)
		err = rename_link_room(from->dir_in);
	return err;
}

static int rename_prepare(struct nvefs_nop *op, const struct rename_arg *a)
{
	const struct rename_end *from = &a->from, *to = &a->to;
	int err;

	err = nvefs_dir_prepare(op, from->dir, from->name, from->len, false);
	if (!err)
		err = nvefs_dir_prepare(op, to->dir, to->name, to->len, !to->in);
	if (!err)
		err = nvefs_inode_prepare(&op->t, from->dir_in);
	if (!err)
		err = nvefs_inode_prepare(&op->t, to->dir_in);
	if (!err)
		err = nvefs_inode_prepare(&op->t, from->in);
	if (!err && to->in)
		err = nvefs_unlink_prepare(op, to->in);
	return err;
}

/* The inode has a new place. */
static int rename_moved(struct nvefs_nop *op, struct nvefs_inode *in, uint64_t dir)
{
	int err;

	nvefs_mutex_lock(&in->lock);
	in->rec.ctime = op->now;
	if (S_ISDIR(in->rec.mode))
		in->rec.parent = dir;
	err = nvefs_inode_write_locked(&op->t, in);
	nvefs_mutex_unlock(&in->lock);
	return err;
}

static int rename_exchange(struct nvefs_nop *op, const struct rename_arg *a)
{
	const struct rename_end *from = &a->from, *to = &a->to;
	int err;

	err = nvefs_dir_set(op, to->dir, to->name, to->len, from->in->ino, nvefs_inode_mode(from->in));
	if (!err)
		err = nvefs_dir_set(op, from->dir, from->name, from->len, to->in->ino,
				    nvefs_inode_mode(to->in));
	if (!err)
		err = rename_moved(op, from->in, to->dir);
	if (!err)
		err = rename_moved(op, to->in, from->dir);
	if (!err)
		err = nvefs_dir_update(op, from->dir_in, 0, to->is_dir - from->is_dir);
	if (!err)
		err = nvefs_dir_update(op, to->dir_in, 0, from->is_dir - to->is_dir);
	return err;
}

static int rename_move(struct nvefs_nop *op, const struct rename_arg *a)
{
	const struct rename_end *from = &a->from, *to = &a->to;
	uint32_t mode = nvefs_inode_mode(from->in);
	int err;

	err = nvefs_dir_remove(op, from->dir, from->name, from->len);
	if (!err)
		err = to->in ? nvefs_dir_set(op, to->dir, to->name, to->len, from->in->ino, mode) :
			       nvefs_dir_add(op, to->dir, to->name, to->len, from->in->ino, mode);
	if (!err)
		err = rename_moved(op, from->in, to->dir);
	if (!err && to->in)
		err = nvefs_unlink_inode(op, to->in);
	if (!err)
		err = nvefs_dir_update(op, from->dir_in, -1, from->is_dir ? -1 : 0);
	if (!err)
		err = nvefs_dir_update(op, to->dir_in, to->in ? 0 : 1, from->is_dir - to->is_dir);
	return err;
}

static bool rename_unfolded(struct nvefs_inode *in)
{
	bool unfolded;

	nvefs_mutex_lock(&in->lock);
	unfolded = S_ISREG(in->rec.mode) && (in->rec_dirty || in->ndirty);
	nvefs_mutex_unlock(&in->lock);
	return unfolded;
}

static int rename_txn(struct nvefs_nop *op, void *arg)
{
	struct rename_arg *a = arg;
	int err;

	err = rename_find(op, &a->from);
	if (!err && !a->from.in)
		err = -ENOENT;
	if (!err)
		err = rename_find(op, &a->to);
	if (err)
		return err;
	if (a->to.in && (a->flags & RENAME_NOREPLACE))
		return -EEXIST;
	if (!a->to.in && (a->flags & RENAME_EXCHANGE))
		return -ENOENT;
	if (a->from.in == a->to.in)
		return 0;
	err = rename_check(op, a);
	if (!err)
		err = rename_prepare(op, a);
	if (err)
		return err;
	if (a->to.in && !op->folded && rename_unfolded(a->from.in)) {
		/* The name must not come back after a crash with less than was written. */
		op->fold = a->from.in;
		return -EAGAIN;
	}
	return a->flags & RENAME_EXCHANGE ? rename_exchange(op, a) : rename_move(op, a);
}

int nvefs_rename(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, uint64_t newdir,
		 const char *newname, size_t newlen, uint32_t flags)
{
	struct rename_arg a = {
		.from = {.dir = dir, .name = name, .len = len},
		.to = {.dir = newdir, .name = newname, .len = newlen},
		.flags = flags,
	};
	int err;

	if ((flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE)) ||
	    flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	err = nvefs_name_check(name, (uint32_t)(len < UINT32_MAX ? len : UINT32_MAX));
	if (!err)
		err = nvefs_name_check(newname, (uint32_t)(newlen < UINT32_MAX ? newlen : UINT32_MAX));
	if (err)
		return err;
	return nvefs_nop_run(nvefs_worker_fs(w), nvefs_worker_queue(w), 7, NVEFS_TXN_FREEING, rename_txn, &a);
}
