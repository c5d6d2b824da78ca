/* SPDX-License-Identifier: MIT */
/* Removing names. The last one turns the inode into an orphan in the same transaction. */
#include "fs/names.h"

struct unlink_arg {
	uint64_t dir;
	const char *name;
	size_t len;
	bool rmdir;
};

int nvefs_unlink_check(struct nvefs_inode *in, bool want_dir)
{
	int err = 0;

	nvefs_mutex_lock(&in->lock);
	if (want_dir && !S_ISDIR(in->rec.mode))
		err = -ENOTDIR;
	else if (!want_dir && S_ISDIR(in->rec.mode))
		err = -EISDIR;
	else if (want_dir && in->rec.size)
		err = -ENOTEMPTY;
	else if (!in->rec.nlink)
		err = -EUCLEAN;
	nvefs_mutex_unlock(&in->lock);
	return err;
}

int nvefs_unlink_prepare(struct nvefs_nop *op, struct nvefs_inode *in)
{
	int err = nvefs_inode_prepare(&op->t, in);

	return err ? err : nvefs_orphan_prepare(&op->t, in->ino);
}

int nvefs_unlink_inode(struct nvefs_nop *op, struct nvefs_inode *in)
{
	bool orphan;
	int err;

	nvefs_mutex_lock(&in->lock);
	in->rec.nlink = S_ISDIR(in->rec.mode) ? 0 : in->rec.nlink - 1;
	in->rec.ctime = op->now;
	orphan = in->orphan = !in->rec.nlink;
	err = nvefs_inode_write_locked(&op->t, in);
	nvefs_mutex_unlock(&in->lock);
	if (!err && orphan)
		err = nvefs_orphan_put(&op->t, in->ino, NVEFS_ORPHAN_UNLINKED);
	return err;
}

static int unlink_txn(struct nvefs_nop *op, void *arg)
{
	struct unlink_arg *a = arg;
	struct nvefs_inode *dir, *in;
	struct nvefs_dirent ent;
	int err;

	err = nvefs_nop_get_dir(op, a->dir, &dir);
	if (!err)
		err = nvefs_dir_find(op->fs, a->dir, a->name, a->len, &op->t.miss, &ent);
	if (err)
		return err;
	err = nvefs_nop_get(op, ent.ino, &in);
	if (err)
		return err == -ESTALE ? -EUCLEAN : err;
	err = nvefs_unlink_check(in, a->rmdir);
	if (!err)
		err = nvefs_unlink_prepare(op, in);
	if (!err)
		err = nvefs_dir_prepare(op, a->dir, a->name, a->len, false);
	if (!err)
		err = nvefs_inode_prepare(&op->t, dir);
	if (err)
		return err;

	err = nvefs_dir_remove(op, a->dir, a->name, a->len);
	if (!err)
		err = nvefs_unlink_inode(op, in);
	if (!err)
		err = nvefs_dir_update(op, dir, -1, a->rmdir ? -1 : 0);
	return err;
}

static int unlink_run(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, bool rmdir)
{
	struct unlink_arg a = {.dir = dir, .name = name, .len = len, .rmdir = rmdir};
	int err = nvefs_name_check(name, (uint32_t)(len < UINT32_MAX ? len : UINT32_MAX));

	if (err)
		return err;
	nvefs_bg_throttle(nvefs_worker_fs(w));
	return nvefs_nop_run(nvefs_worker_fs(w), nvefs_worker_queue(w), 4, NVEFS_TXN_FREEING, unlink_txn, &a);
}

int nvefs_unlink(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len)
{
	return unlink_run(w, dir, name, len, false);
}

int nvefs_rmdir(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len)
{
	/* rmdir(2): "." as the last component is EINVAL, ".." is ENOTEMPTY */
	if (len == 2 && name[0] == '.' && name[1] == '.')
		return -ENOTEMPTY;
	return unlink_run(w, dir, name, len, true);
}
