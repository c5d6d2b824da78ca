/* SPDX-License-Identifier: MIT */
/* Attributes of an inode: getattr, setattr but for the size, access times. */
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "fs/fill.h"
#include "fs/acl.h"
#include "fs/names.h"

struct timespec nvefs_time_now(void)
{
	struct timespec ts;

	/* The clock that the kernel stamps its own inodes with: never ahead of what time(2) says. */
	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return ts;
}

void nvefs_inode_attr_locked(const struct nvefs_inode *in, struct nvefs_attr *ret)
{
	const struct nvefs_inode_rec *r = &in->rec;

	*ret = (struct nvefs_attr){
		.ino = in->ino,
		.size = r->size,
		.blks = r->blks,
		.mode = r->mode,
		.nlink = r->nlink,
		.uid = r->uid,
		.gid = r->gid,
		.rdev = makedev(r->rdev_major, r->rdev_minor),
		.atime = r->atime,
		.mtime = r->mtime,
		.ctime = r->ctime,
		.btime = r->btime,
		.flags = r->flags,
	};
}

static bool time_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

void nvefs_inode_accessed_locked(struct nvefs_inode *in)
{
	struct nvefs_inode_rec *r = &in->rec;
	struct timespec now;

	if (in->fs->read_only || in->fs->opts.noatime)
		return;
	/* relatime as mount(8) has it: when not newer than a change, or a day old */
	now = nvefs_time_now();
	if (time_before(&r->mtime, &r->atime) && time_before(&r->ctime, &r->atime) &&
	    now.tv_sec - r->atime.tv_sec < 24 * 60 * 60)
		return;
	r->atime = now;
	nvefs_inode_mark_dirty_locked(in);
}

int nvefs_getattr(struct nvefs_worker *w, uint64_t ino, struct nvefs_attr *ret_attr)
{
	struct nvefs_inode *in;
	int err;

	err = nvefs_inode_get(nvefs_worker_fs(w), nvefs_worker_queue(w), ino, &in);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	nvefs_inode_attr_locked(in, ret_attr);
	nvefs_mutex_unlock(&in->lock);
	nvefs_inode_put(in);
	return 0;
}

struct setattr_arg {
	uint64_t ino;
	uint32_t mask;
	const struct nvefs_attr *attr;
	struct nvefs_attr *ret_attr;
};

static uint32_t setattr_mode(const struct setattr_arg *a, const struct nvefs_inode_rec *r)
{
	uint32_t mode = r->mode, mask = a->mask;

	if (mask & NVEFS_SET_MODE)
		mode = (mode & S_IFMT) | (a->attr->mode & 07777);
	else if ((mask & (NVEFS_SET_UID | NVEFS_SET_GID)) && !S_ISDIR(mode))
		mask |= NVEFS_SET_KILL_SUID;
	if (mask & NVEFS_SET_KILL_SUID)
		mode &= ~(uint32_t)(S_ISUID | (mode & S_IXGRP ? S_ISGID : 0));
	return mode;
}

static void setattr_apply_locked(const struct setattr_arg *a, uint32_t mode, struct timespec now,
				 struct nvefs_inode_rec *r)
{
	r->mode = mode;
	if (a->mask & NVEFS_SET_UID)
		r->uid = a->attr->uid;
	if (a->mask & NVEFS_SET_GID)
		r->gid = a->attr->gid;
	if (a->mask & NVEFS_SET_ATIME)
		r->atime = a->attr->atime;
	if (a->mask & NVEFS_SET_ATIME_NOW)
		r->atime = now;
	if (a->mask & NVEFS_SET_MTIME)
		r->mtime = a->attr->mtime;
	if (a->mask & NVEFS_SET_MTIME_NOW)
		r->mtime = now;
	if (a->mask & NVEFS_SET_FLAGS)
		r->flags = a->attr->flags;
	r->ctime = a->mask & NVEFS_SET_CTIME ? a->attr->ctime : now;
}

/* chmod of an inode with an access ACL changes the ACL as well. */
static int setattr_acl(struct nvefs_nop *op, struct nvefs_inode *in, uint32_t mode, void *acl,
		       struct nvefs_xattr_change *c)
{
	int err;

	c->name = NVEFS_XATTR_ACCESS;
	c->flags = XATTR_REPLACE;
	err = nvefs_xattr_read(op->fs, in->ino, c->name, &op->t.miss, acl, NVEFS_ACL_MAX_BYTES, &c->len);
	if (err == -ENODATA)
		return 0;
	if (!err && nvefs_acl_check(acl, c->len))
		err = -EUCLEAN;
	if (err)
		return err;
	nvefs_acl_chmod(acl, c->len, mode);
	c->val = acl;
	return nvefs_xattr_prepare(op, in, c);
}

static int setattr_txn(struct nvefs_nop *op, void *arg)
{
	struct setattr_arg *a = arg;
	struct nvefs_xattr_change c = {0};
	uint8_t acl[NVEFS_ACL_MAX_BYTES];
	struct nvefs_inode *in;
	uint32_t mode;
	int err;

	err = nvefs_nop_get(op, a->ino, &in);
	if (!err)
		err = nvefs_inode_prepare(&op->t, in);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	mode = setattr_mode(a, &in->rec);
	nvefs_mutex_unlock(&in->lock);
	if ((a->mask & NVEFS_SET_MODE) && !S_ISLNK(mode))
		err = setattr_acl(op, in, mode, acl, &c);
	if (!err && c.val)
		err = nvefs_xattr_apply(op, in, &c);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	setattr_apply_locked(a, mode, op->now, &in->rec);
	err = nvefs_inode_write_locked(&op->t, in);
	if (!err && a->ret_attr)
		nvefs_inode_attr_locked(in, a->ret_attr);
	nvefs_mutex_unlock(&in->lock);
	return err;
}

int nvefs_setattr(struct nvefs_worker *w, uint64_t ino, uint32_t mask, const struct nvefs_attr *attr,
		  struct nvefs_attr *ret_attr)
{
	const uint32_t both = NVEFS_INODE_DEDUP_ON | NVEFS_INODE_DEDUP_OFF;
	struct setattr_arg a = {.ino = ino, .mask = mask, .attr = attr, .ret_attr = ret_attr};
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	int err;

	if (mask & NVEFS_SET_SIZE)
		return -EINVAL;
	if (mask & NVEFS_SET_FLAGS) {
		if ((attr->flags & ~both) || attr->flags == both)
			return -EINVAL;
		err = attr->flags & NVEFS_INODE_DEDUP_ON ? nvefs_dedup_ensure(fs) : 0;
		if (err)
			return err;
	}
	return nvefs_nop_run(fs, nvefs_worker_queue(w), 3, NVEFS_TXN_FREEING, setattr_txn, &a);
}
