/* SPDX-License-Identifier: MIT */
/*
 * The first tree of a store, built bottom-up: full leaves, then each level
 * above. Its nodes lie one after the other behind the journal, their second
 * copies likewise from the middle of the device on. Sizes are known before
 * anything is written, since the group items speak of them.
 */
#ifndef NVEFS_STORE_MKFS_TREE_H
#define NVEFS_STORE_MKFS_TREE_H

#include "store/mkfs.h"
#include "store/spool.h"

struct nvefs_mkfs_tree {
	const struct nvefs_super *sb;
	const struct nvefs_mkfs_params *params;
	uint64_t txn;
	uint32_t height;
	uint64_t count[NVEFS_TREE_MAX_HEIGHT]; /* nodes of each level, leaves first */
	uint64_t nnodes;
};

/* Plan. -EINVAL: bad items; -ENOSPC: no room. */
int nvefs_mkfs_tree_plan(struct nvefs_mkfs_tree *t, const struct nvefs_super *sb,
			 const struct nvefs_mkfs_params *params, uint64_t txn);
uint64_t nvefs_mkfs_tree_root(const struct nvefs_mkfs_tree *t);
uint64_t nvefs_mkfs_tree_root_twin(const struct nvefs_mkfs_tree *t); /* 0: none */
/* What nodes take of this group, as runs of blocks from its start; returns how many there are, up to two. */
struct nvefs_mkfs_run {
	uint32_t off, len;
};
uint32_t nvefs_mkfs_tree_group_runs(const struct nvefs_mkfs_tree *t, uint32_t group, struct nvefs_mkfs_run ret[2]);
uint32_t nvefs_mkfs_tree_group_free(const struct nvefs_mkfs_tree *t, uint32_t group);
/* Write all nodes to the spool. 0 or -ENOMEM; write errors stay in the spool. */
int nvefs_mkfs_tree_write(const struct nvefs_mkfs_tree *t, struct nvefs_spool *s);

#endif
