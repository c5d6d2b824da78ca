/* SPDX-License-Identifier: MIT */
/* A further name for an inode, or the first one of a file without. */
#include "fs/names.h"

struct link_arg {
	uint64_t ino, dir;
	const char *name;
	size_t len;
	struct nvefs_attr *ret_attr;
};

static int link_check(struct nvefs_inode *in, bool *ret_orphan)
{
	int err = 0;

	nvefs_mutex_lock(&in->lock);
	*ret_orphan = in->orphan;
	if (S_ISDIR(in->rec.mode))
		err = -EPERM;
	else if (in->rec.nlink >= NVEFS_LINK_MAX)
		err = -EMLINK;
	nvefs_mutex_unlock(&in->lock);
	return err;
}

static int link_txn(struct nvefs_nop *op, void *arg)
{
	struct link_arg *a = arg;
	struct nvefs_inode *dir, *in;
	bool orphan = false;
	int err;

	err = nvefs_nop_get_dir(op, a->dir, &dir);
	if (!err)
		err = nvefs_nop_get(op, a->ino, &in);
	if (!err)
		err = link_check(in, &orphan);
	if (!err)
		err = nvefs_dir_prepare(op, a->dir, a->name, a->len, true);
	if (!err)
		err = nvefs_inode_prepare(&op->t, dir);
	if (!err)
		err = nvefs_inode_prepare(&op->t, in);
	if (!err && orphan)
		err = nvefs_orphan_prepare(&op->t, a->ino);
	if (err)
		return err;

	if (orphan)
		err = nvefs_orphan_del(&op->t, a->ino, NVEFS_ORPHAN_UNLINKED);
	nvefs_mutex_lock(&in->lock);
	in->orphan = false;
	in->rec.nlink++;
	in->rec.ctime = op->now;
	if (!err)
		err = nvefs_inode_write_locked(&op->t, in);
	nvefs_inode_attr_locked(in, a->ret_attr);
	nvefs_mutex_unlock(&in->lock);
	if (!err)
		err = nvefs_dir_add(op, a->dir, a->name, a->len, a->ino, a->ret_attr->mode);
	if (!err)
		err = nvefs_dir_update(op, dir, 1, 0);
	if (!err)
		nvefs_inode_lookup_ref(in);
	return err;
}

int nvefs_link(struct nvefs_worker *w, uint64_t ino, uint64_t dir, const char *name, size_t len,
	       struct nvefs_attr *ret_attr)
{
	struct nvefs_attr attr;
	struct link_arg a = {.ino = ino, .dir = dir, .name = name, .len = len, .ret_attr = &attr};
	int err = nvefs_name_check(name, (uint32_t)(len < UINT32_MAX ? len : UINT32_MAX));

	if (!err)
		err = nvefs_nop_run(nvefs_worker_fs(w), nvefs_worker_queue(w), 4, 0, link_txn, &a);
	if (!err)
		*ret_attr = attr;
	return err;
}
