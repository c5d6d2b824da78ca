/* SPDX-License-Identifier: MIT */
/* The root block: what each transaction rewrites. Pure. */
#ifndef NVEFS_FORMAT_ROOT_H
#define NVEFS_FORMAT_ROOT_H

#include <nvefs/format.h>
#include <stdint.h>

#include "format/super.h"

struct nvefs_root {
	uint64_t tree_pblk, tree_twin, tree_txn; /* tree_twin 0: no second copy */
	uint32_t tree_height; /* 1: the root node is a leaf */
	uint32_t flags;
	uint64_t next_ino;
	uint64_t free_blks;
	uint64_t meta_blks;
	uint64_t inodes;
	uint64_t shared_blks, shared_refs;
	uint64_t mount_count;
	uint64_t written_s;
};

/* The whole block, not sealed. */
void nvefs_root_encode(const struct nvefs_root *root, const struct nvefs_super *sb, uint64_t txn,
		       void *ret_block);
/* Body of a block whose header has been checked. 0 or -EUCLEAN. */
int nvefs_root_decode(const void *block, const struct nvefs_super *sb, struct nvefs_root *ret_root);

#endif
