/* SPDX-License-Identifier: MIT */
/*
 * Finding things in the tree. A node is checked as a whole when it is first
 * seen after it was read, and its level and bounds each time, which a cached
 * node can fail when two damaged parents point at it. Levels fall by one with
 * each step, so that no damage can make a descent endless.
 */
#include "store/tree.h"

#include <errno.h>

#include "base/log.h"
#include "format/content.h"
#include "store/alloc.h"
#include "store/tree_path.h"

struct nvefs_tree_range nvefs_tree_child_range(const void *block,
					       const struct nvefs_tree_range *range, uint32_t i)
{
	struct nvefs_tree_range r = *range;

	if (i)
		r.low = nvefs_node_key(block, i);
	if (i + 1 < nvefs_node_nitems(block)) {
		r.high = nvefs_node_key(block, i + 1);
		r.has_high = true;
	}
	return r;
}

static bool range_has(const struct nvefs_tree_range *range, const struct nvefs_key *key)
{
	return nvefs_key_cmp(key, &range->low) >= 0 &&
	       (!range->has_high || nvefs_key_cmp(key, &range->high) < 0);
}

static bool bounds_ok(const void *block, const struct nvefs_tree_range *range)
{
	uint32_t nitems = nvefs_node_nitems(block);
	struct nvefs_key first, last;

	if (!nitems)
		return true;
	first = nvefs_node_key(block, 0);
	last = nvefs_node_key(block, nitems - 1);
	return range_has(range, &first) && range_has(range, &last);
}

static int complain(uint64_t pblk, uint32_t level)
{
	static struct nvefs_ratelimit rl = {.interval_s = 5, .burst = 10};
	uint32_t missed;

	if (nvefs_ratelimit_ok(&rl, &missed))
		nvefs_log(NVEFS_LOG_ERR,
			  "metadata block %llu: not a tree node that can stand at level %u here "
			  "(%u more such messages)",
			  (unsigned long long)pblk, level, missed);
	return -EUCLEAN;
}

int nvefs_tree_node_get(struct nvefs_store *st, struct nvefs_block_ref at, uint32_t level,
			const struct nvefs_tree_range *range, struct nvefs_miss *miss,
			struct nvefs_mblk **ret_b)
{
	struct nvefs_mblk *b;
	int err = nvefs_cache_get(st, at, NVEFS_BT_NODE, miss, &b);

	if (err)
		return err;
	/* Readers under the shared lock may all find out at once; they store the same. */
	if (!__atomic_load_n(&b->checked, __ATOMIC_RELAXED)) {
		if (!nvefs_content_possible(nvefs_store_super(st), b->data))
			return complain(at.pblk, level);
		__atomic_store_n(&b->checked, true, __ATOMIC_RELAXED);
	}
	if (nvefs_node_level(b->data) != level || !bounds_ok(b->data, range))
		return complain(at.pblk, level);
	*ret_b = b;
	return 0;
}

int nvefs_tree_descend(struct nvefs_store *st, const struct nvefs_key *key, struct nvefs_miss *miss,
		       struct nvefs_tree_path *ret_path)
{
	const struct nvefs_root *root = nvefs_store_root(st);
	struct nvefs_tree_range range = {.has_high = false};
	struct nvefs_block_ref at = nvefs_tree_root_ref(root);

	if (!root->tree_height || root->tree_height > NVEFS_TREE_MAX_HEIGHT)
		return -EUCLEAN;
	ret_path->height = root->tree_height;
	for (uint32_t level = root->tree_height; level-- > 0;) {
		struct nvefs_tree_step *step = &ret_path->at[level];
		int err = nvefs_tree_node_get(st, at, level, &range, miss, &step->b);

		if (err)
			return err;
		step->range = range;
		if (!level) {
			step->idx = nvefs_node_find(step->b->data, key, &ret_path->exact);
			break;
		}
		step->idx = nvefs_inner_find(step->b->data, key);
		at = nvefs_inner_child(step->b->data, step->idx);
		range = nvefs_tree_child_range(step->b->data, &range, step->idx);
	}
	return 0;
}

int nvefs_tree_get(struct nvefs_store *st, const struct nvefs_key *key, struct nvefs_miss *miss,
		   const void **ret_val, uint32_t *ret_len)
{
	struct nvefs_tree_path path;
	int err = nvefs_tree_descend(st, key, miss, &path);

	if (err)
		return err;
	if (!path.exact)
		return -ENOENT;
	*ret_val = nvefs_leaf_value(path.at[0].b->data, path.at[0].idx, ret_len);
	return 0;
}

/* A leaf may have nothing from the key on, or nothing at all: go on where it ends. */
int nvefs_tree_next(struct nvefs_store *st, const struct nvefs_key *key, struct nvefs_miss *miss,
		    struct nvefs_key *ret_key, const void **ret_val, uint32_t *ret_len)
{
	struct nvefs_key from = *key;

	for (;;) {
		struct nvefs_tree_path path;
		const struct nvefs_tree_step *leaf = &path.at[0];
		int err = nvefs_tree_descend(st, &from, miss, &path);

		if (err)
			return err;
		if (leaf->idx < nvefs_node_nitems(leaf->b->data)) {
			*ret_key = nvefs_node_key(leaf->b->data, leaf->idx);
			*ret_val = nvefs_leaf_value(leaf->b->data, leaf->idx, ret_len);
			return 0;
		}
		if (!leaf->range.has_high)
			return -ENOENT;
		from = leaf->range.high;
	}
}

bool nvefs_tree_is_sparse(const void *block)
{
	if (nvefs_node_level(block))
		return nvefs_node_nitems(block) < NVEFS_NODE_MAX_CHILDREN / 3;
	return nvefs_leaf_used(block) < NVEFS_NODE_BODY / 3;
}

int nvefs_tree_free_prepare(struct nvefs_txn *t, const struct nvefs_mblk *b)
{
	uint64_t twin = nvefs_block_twin(b->data);
	int err = nvefs_free_meta_prepare(t, b->pblk);

	return err || !twin ? err : nvefs_free_meta_prepare(t, twin);
}

/*
 * Nodes that a removal of this key frees: the leaf (later removals of the same
 * transaction may empty it, so it counts whatever its fill), and each inner
 * node that would be sparse then. Should more become free in the end, they
 * stay where they are: an empty leaf is legal.
 */
int nvefs_tree_prepare(struct nvefs_txn *t, const struct nvefs_key *key)
{
	struct nvefs_tree_path path;
	int err = nvefs_tree_descend(t->st, key, &t->miss, &path);

	if (err || !path.exact || path.height == 1)
		return err;
	for (uint32_t level = 0; level < path.height; level++) {
		const struct nvefs_mblk *b = path.at[level].b;

		if (level == path.height - 1 && nvefs_node_nitems(b->data) > 2)
			return 0;
		if (level && level < path.height - 1 && !nvefs_tree_is_sparse(b->data))
			return 0;
		err = nvefs_tree_free_prepare(t, b);
		if (err)
			return err;
	}
	return 0;
}

/*
 * With h levels (one more, for the tree may grow meanwhile): the path, a new or
 * a neighbouring node for each of them and a new root; for each copy of a node
 * that is allocated or freed a bitmap and, in the path of its group item, a leaf
 * and its parent; and the upper part of those paths, which they share.
 */
uint32_t nvefs_tree_credits(const struct nvefs_store *st)
{
	const struct nvefs_root *root = nvefs_store_root((struct nvefs_store *)st);
	uint32_t h = __atomic_load_n(&root->tree_height, __ATOMIC_RELAXED) + 1;

	uint32_t copies = nvefs_super_dup(nvefs_store_super(st)) ? 2 : 1;

	return 2 * h + 1 + copies * 3 * (h + 1) + h;
}
