/* SPDX-License-Identifier: MIT */
/* Handlers that work on attributes: getattr, setattr, statfs, extended attributes. */
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

#include "fuse/daemon.h"

static struct nvefs_worker *worker(void)
{
	return nvefs_server_self()->worker;
}

void nvefs_stat_fill(const struct nvefs_attr *a, struct stat *ret)
{
	*ret = (struct stat){
		.st_ino = a->ino,
		.st_mode = a->mode,
		.st_nlink = a->nlink,
		.st_uid = a->uid,
		.st_gid = a->gid,
		.st_rdev = a->rdev,
		.st_size = (off_t)a->size,
		.st_blksize = NVEFS_BLOCK_SIZE,
		.st_blocks = (blkcnt_t)(a->blks * (NVEFS_BLOCK_SIZE / 512)),
		.st_atim = a->atime,
		.st_mtim = a->mtime,
		.st_ctim = a->ctime,
	};
}

/* Inode numbers are never used again, so that every generation is 0, the root's too. */
void nvefs_entry_fill(const struct nvefs_attr *a, struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){
		.ino = a->ino,
		.attr_timeout = NVEFS_TIMEOUT_S,
		.entry_timeout = NVEFS_TIMEOUT_S,
	};
	nvefs_stat_fill(a, &ret->attr);
}

static void reply_attr(fuse_req_t req, int err, const struct nvefs_attr *attr)
{
	struct stat st;

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	nvefs_stat_fill(attr, &st);
	fuse_reply_attr(req, &st, NVEFS_TIMEOUT_S);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct nvefs_attr attr;
	int err = nvefs_getattr(worker(), ino, &attr);

	(void)fi;
	reply_attr(req, err, &attr);
}

static const struct {
	uint32_t fuse, ours;
} set_bits[] = {
	{FUSE_SET_ATTR_MODE, NVEFS_SET_MODE},
	{FUSE_SET_ATTR_UID, NVEFS_SET_UID},
	{FUSE_SET_ATTR_GID, NVEFS_SET_GID},
	{FUSE_SET_ATTR_SIZE, NVEFS_SET_SIZE},
	{FUSE_SET_ATTR_ATIME, NVEFS_SET_ATIME},
	{FUSE_SET_ATTR_MTIME, NVEFS_SET_MTIME},
	{FUSE_SET_ATTR_CTIME, NVEFS_SET_CTIME},
	{FUSE_SET_ATTR_ATIME_NOW, NVEFS_SET_ATIME_NOW},
	{FUSE_SET_ATTR_MTIME_NOW, NVEFS_SET_MTIME_NOW},
	{FUSE_SET_ATTR_KILL_SUID, NVEFS_SET_KILL_SUID},
};

static uint32_t set_mask(int to_set)
{
	uint32_t mask = 0;

	for (size_t i = 0; i < sizeof(set_bits) / sizeof(set_bits[0]); i++)
		if ((uint32_t)to_set & set_bits[i].fuse)
			mask |= set_bits[i].ours;
	if (mask & NVEFS_SET_ATIME_NOW)
		mask &= ~NVEFS_SET_ATIME;
	if (mask & NVEFS_SET_MTIME_NOW)
		mask &= ~NVEFS_SET_MTIME;
	return mask;
}

static void setattr_done(struct nvefs_req *r)
{
	struct nvefs_call *c = r->arg;

	reply_attr(c->fuse, r->err, &r->attr);
	nvefs_call_free(c);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
	struct nvefs_attr set = {
		.size = (uint64_t)st->st_size,
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.atime = st->st_atim,
		.mtime = st->st_mtim,
		.ctime = st->st_ctim,
	};
	uint32_t mask = set_mask(to_set);
	struct nvefs_call *c;

	(void)fi;
	if (!(mask & NVEFS_SET_SIZE)) {
		struct nvefs_attr attr;
		int err = nvefs_setattr(worker(), ino, mask, &set, &attr);

		reply_attr(req, err, &attr);
		return;
	}
	c = nvefs_call_new(req, NVEFS_REQ_SETATTR, ino);
	if (!c)
		return;
	c->req.set_mask = mask;
	c->req.attr = set;
	nvefs_call_start(c, setattr_done);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct nvefs_statfs fs;
	struct statvfs out = {.f_bsize = NVEFS_BLOCK_SIZE, .f_frsize = NVEFS_BLOCK_SIZE, .f_namemax = 255};
	int err = nvefs_statfs(worker(), &fs);

	(void)ino;
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	out.f_blocks = fs.total_blks;
	out.f_bfree = fs.free_blks;
	out.f_bavail = fs.avail_blks;
	out.f_files = fs.inodes;
	out.f_ffree = out.f_favail = fs.free_inodes;
	fuse_reply_statfs(req, &out);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	fuse_reply_err(req, -nvefs_setxattr(worker(), ino, name, value, size, flags));
}

/* Both ways of asking: size 0 wants the length, else the bytes. */
static void reply_xattr(fuse_req_t req, int err, size_t size, const char *buf, size_t len)
{
	if (err)
		fuse_reply_err(req, -err);
	else if (size)
		fuse_reply_buf(req, buf, len);
	else
		fuse_reply_xattr(req, len);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char *buf = nvefs_server_self()->scratch;
	size_t len = 0;
	int err = nvefs_getxattr(worker(), ino, name, buf, size < NVEFS_SCRATCH_BYTES ? size : NVEFS_SCRATCH_BYTES,
				 &len);

	reply_xattr(req, err, size, buf, len);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	char *buf = nvefs_server_self()->scratch;
	size_t len = 0;
	int err = nvefs_listxattr(worker(), ino, buf, size < NVEFS_SCRATCH_BYTES ? size : NVEFS_SCRATCH_BYTES, &len);

	reply_xattr(req, err, size, buf, len);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	fuse_reply_err(req, -nvefs_removexattr(worker(), ino, name));
}

void nvefs_ops_attrs(struct fuse_lowlevel_ops *ops)
{
	ops->getattr = op_getattr;
	ops->setattr = op_setattr;
	ops->statfs = op_statfs;
	ops->setxattr = op_setxattr;
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
	ops->removexattr = op_removexattr;
}
