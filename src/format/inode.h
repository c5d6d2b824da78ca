/* SPDX-License-Identifier: MIT */
/* The inode item. Pure. */
#ifndef NVEFS_FORMAT_INODE_H
#define NVEFS_FORMAT_INODE_H

#include <nvefs/format.h>
#include <stdint.h>
#include <time.h>

#define NVEFS_MAX_SIZE_BYTES (NVEFS_MAX_LBLK << 12)

struct nvefs_inode_rec {
	uint32_t mode; /* S_IF* and permission bits */
	uint32_t uid, gid;
	uint32_t nlink;
	uint64_t size; /* see struct nvefs_disk_inode for what it counts by type */
	uint64_t blks;
	struct timespec atime, mtime, ctime, btime;
	uint32_t rdev_major, rdev_minor;
	uint64_t parent;
	uint32_t flags; /* NVEFS_INODE_* */
	uint32_t xvalue_next;
	uint64_t subdirs;
};

void nvefs_inode_encode(const struct nvefs_inode_rec *rec, struct nvefs_disk_inode *ret);
/* An untrusted value. 0 or -EUCLEAN. */
int nvefs_inode_decode(const void *val, uint32_t len, struct nvefs_inode_rec *ret_rec);

#endif
