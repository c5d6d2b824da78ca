/* SPDX-License-Identifier: MIT */
#include "fuse/raw.h"

#include <assert.h>
#include <errno.h>
#include <linux/fuse.h>
#include <linux/stat.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

/* Since version 7.39 of the protocol; the header at hand may be older. */
#define OP_STATX 52u

struct wire_time {
	int64_t tv_sec;
	uint32_t tv_nsec;
	int32_t reserved;
};
struct wire_statx {
	uint64_t attr_valid;
	uint32_t attr_valid_nsec;
	uint32_t flags;
	uint64_t spare[2];
	/* as struct statx */
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, spare0;
	uint64_t ino, size, blocks, attributes_mask;
	struct wire_time atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t spare2[14];
};
static_assert(sizeof(struct wire_statx) == 32 + 256, "fuse_statx_out");

struct wire_created {
	struct fuse_entry_out entry;
	struct fuse_open_out open;
};

/* 0, or a negative errno when nobody is there to take the answer. */
static int reply(const struct nvefs_server *s, const struct fuse_in_header *in, int err, const void *body, size_t len)
{
	struct fuse_out_header out = {.unique = in->unique, .error = err, .len = (uint32_t)(sizeof(out) + (err ? 0 : len))};
	struct iovec iov[2] = {
		{.iov_base = &out, .iov_len = sizeof(out)},
		{.iov_base = (void *)(uintptr_t)body, .iov_len = len},
	};

	return writev(s->fuse_fd, iov, err ? 1 : 2) < 0 ? -errno : 0;
}

static struct wire_time wire_time(struct timespec t)
{
	return (struct wire_time){.tv_sec = t.tv_sec, .tv_nsec = (uint32_t)t.tv_nsec};
}

static void serve_statx(struct nvefs_server *s, const struct fuse_in_header *in)
{
	struct nvefs_attr a;
	struct wire_statx out;
	int err = nvefs_getattr(s->worker, in->nodeid, &a);

	if (err) {
		reply(s, in, err, NULL, 0);
		return;
	}
	out = (struct wire_statx){
		.attr_valid = (uint64_t)NVEFS_TIMEOUT_S,
		.mask = STATX_BASIC_STATS | STATX_BTIME,
		.blksize = NVEFS_BLOCK_SIZE,
		.nlink = a.nlink,
		.uid = a.uid,
		.gid = a.gid,
		.mode = (uint16_t)a.mode,
		.ino = a.ino,
		.size = a.size,
		.blocks = a.blks * (NVEFS_BLOCK_SIZE / 512),
		.atime = wire_time(a.atime),
		.btime = wire_time(a.btime),
		.ctime = wire_time(a.ctime),
		.mtime = wire_time(a.mtime),
		.rdev_major = major(a.rdev),
		.rdev_minor = minor(a.rdev),
	};
	reply(s, in, 0, &out, sizeof(out));
}

static void entry_fill(const struct nvefs_attr *a, struct fuse_entry_out *e)
{
	*e = (struct fuse_entry_out){
		.nodeid = a->ino,
		.entry_valid = (uint64_t)NVEFS_TIMEOUT_S,
		.attr_valid = (uint64_t)NVEFS_TIMEOUT_S,
		.attr = {
			.ino = a->ino,
			.size = a->size,
			.blocks = a->blks * (NVEFS_BLOCK_SIZE / 512),
			.atime = (uint64_t)a->atime.tv_sec,
			.mtime = (uint64_t)a->mtime.tv_sec,
			.ctime = (uint64_t)a->ctime.tv_sec,
			.atimensec = (uint32_t)a->atime.tv_nsec,
			.mtimensec = (uint32_t)a->mtime.tv_nsec,
			.ctimensec = (uint32_t)a->ctime.tv_nsec,
			.mode = a->mode,
			.nlink = a->nlink,
			.uid = a->uid,
			.gid = a->gid,
			.blksize = NVEFS_BLOCK_SIZE,
		},
	};
}

static void serve_tmpfile(struct nvefs_server *s, const struct fuse_in_header *in, size_t len)
{
	const struct fuse_create_in *create = (const void *)(in + 1);
	struct nvefs_cred cred = {.uid = in->uid, .gid = in->gid};
	struct wire_created out = {.open.open_flags = FOPEN_KEEP_CACHE | FOPEN_NOFLUSH};
	struct nvefs_attr a;
	int err;

	if (len < sizeof(*in) + sizeof(*create)) {
		reply(s, in, -EINVAL, NULL, 0);
		return;
	}
	cred.umask = create->umask;
	err = nvefs_tmpfile(s->worker, in->nodeid, (create->mode & ~(uint32_t)S_IFMT) | S_IFREG, &cred, &a);
	if (err) {
		reply(s, in, err, NULL, 0);
		return;
	}
	err = nvefs_open(s->worker, a.ino);
	if (!err) {
		entry_fill(&a, &out.entry);
		if (reply(s, in, 0, &out, sizeof(out)) == 0)
			return;
		nvefs_release(s->worker, a.ino);
	} else {
		reply(s, in, err, NULL, 0);
	}
	nvefs_forget(s->worker, a.ino, 1);
}

/* In the form that says whether an ACL takes the setgid bit away; libfuse reads it, if at all, without that. */
static void serve_setxattr(struct nvefs_server *s, const struct fuse_in_header *in, size_t len)
{
	const struct fuse_setxattr_in *x = (const void *)(in + 1);
	const char *name = (const char *)(x + 1);
	size_t left = len - sizeof(*in) - sizeof(*x), n;
	int err = -EINVAL, flags;

	if (len >= sizeof(*in) + sizeof(*x)) {
		n = strnlen(name, left);
		flags = (int)(x->flags & ~(uint32_t)NVEFS_XATTR_KILL_SGID);
		if (x->setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID)
			flags |= NVEFS_XATTR_KILL_SGID;
		if (n < left && x->size <= left - n - 1)
			err = nvefs_setxattr(s->worker, in->nodeid, name, name + n + 1, x->size, flags);
	}
	reply(s, in, err, NULL, 0);
}

bool nvefs_raw_serve(struct nvefs_server *s, const void *msg, size_t len)
{
	const struct fuse_in_header *in = msg;

	if (len < sizeof(*in))
		return false;
	if (in->opcode == FUSE_TMPFILE)
		serve_tmpfile(s, in, len);
	else if (in->opcode == OP_STATX)
		serve_statx(s, in);
	else if (in->opcode == FUSE_SETXATTR && s->daemon->setxattr_ext)
		serve_setxattr(s, in, len);
	else
		return false;
	return true;
}
