/* SPDX-License-Identifier: MIT */
/*
 * Single items of an inode, damaged or not: each is replaced by what can be read of it, or
 * removed when that is nothing. Sound ones are left as they are, byte by byte.
 */
#ifndef NVEFS_FSCK_MEND_VALUE_H
#define NVEFS_FSCK_MEND_VALUE_H

#include "format/dirent.h"
#include "mend.h"

/* Entries that lead nowhere go, types follow the inodes, what is filed wrongly moves. */
int nvefs_mend_dirents(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it);
int nvefs_mend_xattrs(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it);
/* The extents that can be right, with their checksums: what is wrong among these shows when it is read. */
int nvefs_mend_map_value(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it);
/* The blocks that nvefs_mend_map_value would keep. False: none. */
bool nvefs_map_salvage(const void *val, uint32_t len, const struct nvefs_super *sb, struct nvefs_window *ret_w);
/* The fields that are possible; others are zero. Counts and type are for the caller to settle. */
void nvefs_mend_inode_value(const void *val, uint32_t len, struct nvefs_inode_rec *ret_rec);
/* Enter a name. One that is there already stays what it is; 0 also when there is no room. */
int nvefs_mend_add_name(struct nvefs_check_ctx *c, uint64_t dir, const struct nvefs_dirent *d);

#endif
