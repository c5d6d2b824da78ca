/* SPDX-License-Identifier: MIT */
#include "format/inode.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

static struct nvefs_disk_time time_encode(const struct timespec *ts)
{
	return (struct nvefs_disk_time){
		.s = le64_make((uint64_t)ts->tv_sec),
		.ns = le32_make((uint32_t)ts->tv_nsec),
	};
}

static bool time_decode(const struct nvefs_disk_time *d, struct timespec *ret)
{
	ret->tv_sec = (time_t)le64_get(d->s);
	ret->tv_nsec = le32_get(d->ns);
	return ret->tv_nsec < 1000000000;
}

void nvefs_inode_encode(const struct nvefs_inode_rec *rec, struct nvefs_disk_inode *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->mode = le32_make(rec->mode);
	ret->uid = le32_make(rec->uid);
	ret->gid = le32_make(rec->gid);
	ret->nlink = le32_make(rec->nlink);
	ret->size = le64_make(rec->size);
	ret->blks = le64_make(rec->blks);
	ret->atime = time_encode(&rec->atime);
	ret->mtime = time_encode(&rec->mtime);
	ret->ctime = time_encode(&rec->ctime);
	ret->btime = time_encode(&rec->btime);
	ret->rdev = le64_make((uint64_t)rec->rdev_major << 32 | rec->rdev_minor);
	ret->parent = le64_make(rec->parent);
	ret->flags = le32_make(rec->flags);
	ret->xvalue_next = le32_make(rec->xvalue_next);
	ret->subdirs = le64_make(rec->subdirs);
}

static bool mode_ok(uint32_t mode)
{
	if (mode & ~(uint32_t)(S_IFMT | 07777))
		return false;
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFCHR:
	case S_IFBLK:
	case S_IFIFO:
	case S_IFSOCK:
		return true;
	default:
		return false;
	}
}

static bool rec_ok(const struct nvefs_inode_rec *r)
{
	if (!mode_ok(r->mode) || r->nlink > NVEFS_LINK_MAX)
		return false;
	if (r->size > NVEFS_MAX_SIZE_BYTES || r->blks > NVEFS_MAX_LBLK)
		return false;
	switch (r->mode & S_IFMT) {
	case S_IFDIR:
		return r->parent != 0 && !r->blks && r->subdirs <= r->size;
	case S_IFLNK:
		return r->size >= 1 && r->size <= NVEFS_SYMLINK_MAX && !r->blks;
	case S_IFREG:
		return true;
	default:
		return !r->size && !r->blks;
	}
}

int nvefs_inode_decode(const void *val, uint32_t len, struct nvefs_inode_rec *ret_rec)
{
	struct nvefs_disk_inode d;
	struct nvefs_inode_rec r;
	uint64_t rdev;

	if (len != sizeof(d))
		return -EUCLEAN;
	memcpy(&d, val, sizeof(d));
	rdev = le64_get(d.rdev);
	r = (struct nvefs_inode_rec){
		.mode = le32_get(d.mode),
		.uid = le32_get(d.uid),
		.gid = le32_get(d.gid),
		.nlink = le32_get(d.nlink),
		.size = le64_get(d.size),
		.blks = le64_get(d.blks),
		.rdev_major = (uint32_t)(rdev >> 32),
		.rdev_minor = (uint32_t)rdev,
		.parent = le64_get(d.parent),
		.flags = le32_get(d.flags),
		.xvalue_next = le32_get(d.xvalue_next),
		.subdirs = le64_get(d.subdirs),
	};
	if (!time_decode(&d.atime, &r.atime) || !time_decode(&d.mtime, &r.mtime) ||
	    !time_decode(&d.ctime, &r.ctime) || !time_decode(&d.btime, &r.btime))
		return -EUCLEAN;
	if (!rec_ok(&r))
		return -EUCLEAN;
	*ret_rec = r;
	return 0;
}
