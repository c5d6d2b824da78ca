/* SPDX-License-Identifier: MIT */
/* A new, empty store on a device. */
#ifndef NVEFS_STORE_MKFS_H
#define NVEFS_STORE_MKFS_H

#include "format/key.h"
#include "store/store.h"

struct nvefs_mkfs_item {
	struct nvefs_key key;
	const void *val;
	uint32_t len;
};

struct nvefs_mkfs_params {
	uint8_t uuid[16];	/* all zeros: a random one */
	uint64_t hash_seed;	/* 0: a random one */
	uint64_t size_blks;	/* 0: the whole device */
	uint32_t journal_blks;	/* header slots included; 0: the default */
	uint32_t flags;		/* NVEFS_SB_* */
	uint32_t mmp_interval_ms; /* multiple mount protection; 0: without */
	struct timespec created;
	char label[NVEFS_LABEL_MAX + 1];
	char creator[32];
	/* First content besides the allocation groups: ascending, keys of ino > 0 only. */
	const struct nvefs_mkfs_item *items;
	uint32_t nitems;
	uint64_t inodes;   /* INODE items among them */
	uint64_t next_ino; /* 0: NVEFS_FIRST_INO */
};

/*
 * Make a complete store: superblocks, root block, bitmaps, an empty journal of
 * a new random epoch, a tree with all allocation groups and the given items.
 * Old superblocks are wiped first and the new ones written last, each with a
 * Flush, so that an interrupted call leaves no file system. Nothing is
 * discarded. *ret_sb (may be NULL) is what was written. -ENOSPC: the device is
 * too small, -EINVAL, -EFBIG, -EROFS, -EIO ...; *err says it in words.
 */
int nvefs_store_mkfs(struct nvefs_dev *dev, const struct nvefs_mkfs_params *params,
		     struct nvefs_super *ret_sb, struct nvefs_error *err);

#endif
