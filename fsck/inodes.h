/* SPDX-License-Identifier: MIT */
/* What the check remembers of each inode: 40 bytes, in order of number. */
#ifndef NVEFS_FSCK_INODES_H
#define NVEFS_FSCK_INODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nvefs_inode_entry {
	uint64_t ino;
	uint64_t parent; /* of a directory, as it says; after the names' pass where it was found */
	uint64_t dir;	 /* where the first name of a directory was found; 0: nowhere */
	uint32_t nlink;	 /* as it says */
	uint32_t names;	 /* directory entries found */
	uint8_t dtype;	 /* DT_* */
	uint8_t mark;	 /* while looking for loops */
	bool at_home;	 /* a directory that has a name in the one that it calls its parent */
	bool kept;	 /* while further names are removed: one has been seen */
};

struct nvefs_inode_table {
	struct nvefs_inode_entry *tab;
	size_t n, max;
};

void nvefs_check_inodes_done(struct nvefs_inode_table *t);
/* Numbers must ascend. 0 or -ENOMEM. */
int nvefs_check_inodes_add(struct nvefs_inode_table *t, const struct nvefs_inode_entry *e);
struct nvefs_inode_entry *nvefs_check_inodes_find(const struct nvefs_inode_table *t, uint64_t ino);

#endif
