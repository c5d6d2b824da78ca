/* SPDX-License-Identifier: MIT */
/*
 * The way from the root of the tree to one leaf. For tree*.c only; under the
 * meta lock, which a path does not outlive.
 *
 * What makes a node right, apart from its header: it passes nvefs_node_check,
 * has the level that its place asks for, all its keys lie within the bounds
 * that its parents set, and its children lie where nodes may lie. A node's
 * first key is no bound: its first child begins where the node itself does.
 */
#ifndef NVEFS_STORE_TREE_PATH_H
#define NVEFS_STORE_TREE_PATH_H

#include "format/node.h"
#include "format/root.h"
#include "store/cache.h"
#include "store/tree.h"

/* Keys from low on and below high (if has_high). */
struct nvefs_tree_range {
	struct nvefs_key low, high;
	bool has_high;
};

struct nvefs_tree_step {
	struct nvefs_mblk *b;
	uint32_t idx; /* inner: the child taken; leaf: the first item >= the key */
	struct nvefs_tree_range range;
};

struct nvefs_tree_path {
	uint32_t height;
	bool exact;					 /* the leaf has the key */
	struct nvefs_tree_step at[NVEFS_TREE_MAX_HEIGHT]; /* by level; 0: the leaf */
};

/* Of child i of a node that has the given range. */
struct nvefs_tree_range nvefs_tree_child_range(const void *block,
					       const struct nvefs_tree_range *range, uint32_t i);
static inline struct nvefs_block_ref nvefs_tree_root_ref(const struct nvefs_root *root)
{
	return (struct nvefs_block_ref){
		.pblk = root->tree_pblk, .twin = root->tree_twin, .txn = root->tree_txn};
}
/* The node at this address, checked. 0, -EAGAIN, -EUCLEAN. */
int nvefs_tree_node_get(struct nvefs_store *st, struct nvefs_block_ref at, uint32_t level,
			const struct nvefs_tree_range *range, struct nvefs_miss *miss,
			struct nvefs_mblk **ret_b);
/* 0, -EAGAIN, -EUCLEAN. */
int nvefs_tree_descend(struct nvefs_store *st, const struct nvefs_key *key, struct nvefs_miss *miss,
		       struct nvefs_tree_path *ret_path);

/* [txn] All copies of the node can be freed without I/O: nvefs_free_meta_prepare. */
int nvefs_tree_free_prepare(struct nvefs_txn *t, const struct nvefs_mblk *b);

/* So little is left in a node that it is worth a merge. */
bool nvefs_tree_is_sparse(const void *block);

#endif
