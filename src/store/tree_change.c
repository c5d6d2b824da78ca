/* SPDX-License-Identifier: MIT */
/*
 * Changing the tree, in place and under the journal.
 *
 * Order: everything that can fail (descent, allocation, new cache blocks)
 * happens before the first byte is changed; from there on nothing fails. A
 * changed node carries the running transaction in its header, and so do the
 * entries that point at it, all the way up: once a node is dirty, its parents
 * are, too.
 */
#include <errno.h>

#include "store/alloc.h"
#include "store/tree_path.h"

/* Blocks got before a change, for it to use. */
struct fresh {
	struct nvefs_mblk *b[NVEFS_TREE_MAX_HEIGHT + 1];
	uint32_t n;
};

/* How a parent speaks of a node that this transaction has changed. */
static struct nvefs_block_ref ref_of(const struct nvefs_txn *t, const struct nvefs_mblk *b)
{
	return (struct nvefs_block_ref){
		.pblk = b->pblk, .twin = nvefs_block_twin(b->data), .txn = t->id};
}

/* The whole path becomes part of the transaction. */
static void path_dirty(struct nvefs_txn *t, struct nvefs_tree_path *path)
{
	bool changed = nvefs_cache_dirty(t, path->at[0].b);

	for (uint32_t level = 1; changed; level++) {
		if (level == path->height) {
			nvefs_store_root(t->st)->tree_txn = t->id;
			return;
		}
		changed = nvefs_cache_dirty(t, path->at[level].b);
		nvefs_inner_set(path->at[level].b->data, path->at[level].idx,
				ref_of(t, path->at[level - 1].b));
	}
}

/* ---- Insert ---- */

static bool leaf_has_room(const struct nvefs_tree_path *path, uint32_t len)
{
	const void *leaf = path->at[0].b->data;
	uint32_t used = nvefs_leaf_used(leaf), old_len;

	if (path->exact) {
		(void)nvefs_leaf_value(leaf, path->at[0].idx, &old_len);
		used -= nvefs_item_bytes(old_len);
	}
	return used + nvefs_item_bytes(len) <= NVEFS_NODE_BODY;
}

/* New nodes that the split of this leaf takes: one per full node above it, one more for a new root. */
static uint32_t split_count(const struct nvefs_tree_path *path)
{
	uint32_t level = 1;

	while (level < path->height &&
	       nvefs_node_nitems(path->at[level].b->data) == NVEFS_NODE_MAX_CHILDREN)
		level++;
	return level == path->height ? level + 1 : level;
}

static int fresh_get(struct nvefs_txn *t, uint32_t n, struct fresh *ret)
{
	uint64_t pblk, twin;
	int err;

	for (ret->n = 0; ret->n < n; ret->n++) {
		err = nvefs_alloc_meta(t, &pblk);
		if (err)
			return err;
		err = nvefs_alloc_meta_twin(t, &twin);
		if (err)
			return err;
		err = nvefs_cache_new(t, pblk, NVEFS_BT_NODE, &ret->b[ret->n]);
		if (err)
			return err;
		nvefs_block_set_twin(ret->b[ret->n]->data, twin);
	}
	return 0;
}

static struct nvefs_mblk *fresh_take(struct fresh *f, uint16_t level)
{
	struct nvefs_mblk *b;

	assert(f->n);
	b = f->b[--f->n];
	nvefs_node_init(b->data, level);
	b->checked = true;
	return b;
}

/* nvefs_tree_credits reads it without the lock. */
static void height_set(struct nvefs_root *root, uint32_t height)
{
	__atomic_store_n(&root->tree_height, height, __ATOMIC_RELAXED);
}

static void root_set(struct nvefs_root *root, struct nvefs_block_ref ref)
{
	root->tree_pblk = ref.pblk;
	root->tree_twin = ref.twin;
	root->tree_txn = ref.txn;
}

/* A new root above the old one and its new right neighbour. */
static void root_grow(struct nvefs_txn *t, struct nvefs_mblk *right, struct fresh *f)
{
	struct nvefs_root *root = nvefs_store_root(t->st);
	struct nvefs_mblk *top = fresh_take(f, (uint16_t)root->tree_height);
	const struct nvefs_key zero = nvefs_key_make(0, 0, 0);
	struct nvefs_key key = nvefs_node_key(right->data, 0);

	nvefs_inner_insert(top->data, 0, &zero, nvefs_tree_root_ref(root));
	nvefs_inner_insert(top->data, 1, &key, ref_of(t, right));
	root_set(root, ref_of(t, top));
	height_set(root, root->tree_height + 1);
}

/* Enter `right`, the new right neighbour of the path's node at level - 1, into the parents. */
static void parents_insert(struct nvefs_txn *t, const struct nvefs_tree_path *path,
			   struct nvefs_mblk *right, struct fresh *f)
{
	for (uint32_t level = 1; level < path->height; level++) {
		struct nvefs_mblk *parent = path->at[level].b, *next;
		struct nvefs_key key = nvefs_node_key(right->data, 0);
		uint32_t pos = path->at[level].idx + 1;
		struct nvefs_split split;

		/* The first key was no bound and may lie above the new one. */
		nvefs_inner_set_key(parent->data, 0, &path->at[level].range.low);
		if (nvefs_node_nitems(parent->data) < NVEFS_NODE_MAX_CHILDREN) {
			nvefs_inner_insert(parent->data, pos, &key, ref_of(t, right));
			return;
		}
		next = fresh_take(f, (uint16_t)level);
		split = nvefs_inner_split_point(parent->data, pos);
		nvefs_inner_split(parent->data, split.at, next->data);
		if (split.right)
			nvefs_inner_insert(next->data, pos - split.at, &key, ref_of(t, right));
		else
			nvefs_inner_insert(parent->data, pos, &key, ref_of(t, right));
		right = next;
	}
	root_grow(t, right, f);
}

static int leaf_split_insert(struct nvefs_txn *t, struct nvefs_tree_path *path,
			     const struct nvefs_key *key, const void *val, uint32_t len)
{
	void *leaf = path->at[0].b->data;
	uint32_t pos = path->at[0].idx, n = split_count(path);
	struct nvefs_split split;
	struct nvefs_mblk *right;
	struct fresh fresh;
	int err;

	if (n > path->height && path->height == NVEFS_TREE_MAX_HEIGHT)
		return -EFBIG;
	err = fresh_get(t, n, &fresh);
	if (err)
		return err;
	path_dirty(t, path);
	if (path->exact)
		nvefs_leaf_remove(leaf, pos);
	right = fresh_take(&fresh, 0);
	split = nvefs_leaf_split_point(leaf, pos, key, len);
	nvefs_leaf_split(leaf, split.at, right->data);
	if (split.right)
		err = nvefs_leaf_insert(right->data, pos - split.at, key, val, len);
	else
		err = nvefs_leaf_insert(leaf, pos, key, val, len);
	assert(!err);
	parents_insert(t, path, right, &fresh);
	assert(!fresh.n);
	return 0;
}

static int put(struct nvefs_txn *t, const struct nvefs_key *key, const void *val, uint32_t len)
{
	struct nvefs_tree_path path;
	void *leaf;
	int err = nvefs_tree_descend(t->st, key, &t->miss, &path);

	if (err)
		return err;
	if (!leaf_has_room(&path, len))
		return leaf_split_insert(t, &path, key, val, len);
	path_dirty(t, &path);
	leaf = path.at[0].b->data;
	if (path.exact)
		return nvefs_leaf_replace(leaf, path.at[0].idx, val, len);
	return nvefs_leaf_insert(leaf, path.at[0].idx, key, val, len);
}

int nvefs_tree_put(struct nvefs_txn *t, const struct nvefs_key *key, const void *val, uint32_t len)
{
	int err;

	assert(len <= NVEFS_VALUE_MAX && key->offset <= NVEFS_OFFSET_MAX);
	err = put(t, key, val, len);
	if (err)
		nvefs_store_fail(t->st, err, "cannot change the tree");
	return err;
}

/* ---- Remove ---- */

static int node_free(struct nvefs_txn *t, struct nvefs_mblk *b)
{
	uint64_t pblk = b->pblk, twin = nvefs_block_twin(b->data);
	int err;

	nvefs_cache_forget(t, b);
	err = nvefs_free_meta(t, pblk);
	if (!err && twin)
		err = nvefs_free_meta(t, twin);
	return err;
}

/* Child i of the path's node at `level`, and below it the last nodes, or the first ones, down to the leaf. */
static bool edge_is_cached(struct nvefs_txn *t, const struct nvefs_tree_path *path, uint32_t level, uint32_t i,
			   bool last)
{
	const void *block = path->at[level].b->data;
	struct nvefs_tree_range range = path->at[level].range;
	struct nvefs_mblk *b;

	while (level-- > 0) {
		range = nvefs_tree_child_range(block, &range, i);
		if (nvefs_tree_node_get(t->st, nvefs_inner_child(block, i), level, &range, &t->miss, &b))
			return false;
		block = b->data;
		i = last && nvefs_node_nitems(block) ? nvefs_node_nitems(block) - 1 : 0;
	}
	return true;
}

/*
 * The child on the path leaves the path's node at `level`, and its range goes to a neighbour, which must be
 * cached down to the leaf: the same transaction may have prepared more keys of this range, and finds them without I/O. False:
 * there is no such neighbour.
 */
static bool child_remove(struct nvefs_txn *t, const struct nvefs_tree_path *path, uint32_t level)
{
	void *block = path->at[level].b->data;
	uint32_t idx = path->at[level].idx;
	bool before = idx && edge_is_cached(t, path, level, idx - 1, true);
	struct nvefs_key low;

	if (!before && (idx + 1 == nvefs_node_nitems(block) || !edge_is_cached(t, path, level, idx + 1, false)))
		return false;
	if (!before) {
		low = nvefs_node_key(block, idx);
		nvefs_inner_set_key(block, idx + 1, &low);
	}
	nvefs_inner_remove(block, idx);
	return true;
}

/*
 * The leaf is empty: take it out, and with it the parents that it was the only
 * child of. *ret_level: the lowest one that is left, 0 when nothing was done
 * (not all of this can be done without I/O, or the whole tree is empty).
 */
static int chain_remove(struct nvefs_txn *t, struct nvefs_tree_path *path, uint32_t *ret_level)
{
	uint32_t level = 1;
	int err = 0;

	*ret_level = 0;
	while (level < path->height && nvefs_node_nitems(path->at[level].b->data) == 1)
		level++;
	if (level == path->height)
		return 0;
	for (uint32_t l = 0; l < level; l++)
		if (nvefs_tree_free_prepare(t, path->at[l].b))
			return 0;
	if (!child_remove(t, path, level))
		return 0;
	for (uint32_t l = 0; l < level && !err; l++)
		err = node_free(t, path->at[l].b);
	*ret_level = level;
	return err;
}

static bool merge_fits(const void *a, const void *b)
{
	if (nvefs_node_level(a))
		return nvefs_node_nitems(a) + nvefs_node_nitems(b) <= NVEFS_NODE_MAX_CHILDREN * 3 / 4;
	return nvefs_leaf_used(a) + nvefs_leaf_used(b) <= NVEFS_NODE_BODY * 3 / 4;
}

/* The child of `parent` with index i, when it is cached and can take what is in `node`. */
static struct nvefs_mblk *merge_partner(struct nvefs_txn *t, const struct nvefs_tree_step *parent,
					uint32_t i, const void *node)
{
	const void *block = parent->b->data;
	struct nvefs_tree_range range = nvefs_tree_child_range(block, &parent->range, i);
	struct nvefs_mblk *b;

	if (nvefs_tree_node_get(t->st, nvefs_inner_child(block, i), nvefs_node_level(node), &range,
				&t->miss, &b))
		return NULL;
	return merge_fits(b->data, node) ? b : NULL;
}

/*
 * Add the children or items of src, which is given up, to dst. `bound` is where
 * the right one of the two begins: its first key, no bound so far, becomes one.
 */
static void nodes_merge(void *dst, void *src, bool front, const struct nvefs_key *bound)
{
	if (!nvefs_node_level(dst)) {
		nvefs_leaf_merge(dst, src, front);
		return;
	}
	nvefs_inner_set_key(front ? dst : src, 0, bound);
	nvefs_inner_merge(dst, src, front);
}

/* Merge the path's node at `level` into a neighbour. *ret_done: false when there is none for it. */
static int node_merge(struct nvefs_txn *t, struct nvefs_tree_path *path, uint32_t level,
		      bool *ret_done)
{
	struct nvefs_mblk *node = path->at[level].b, *to = NULL;
	struct nvefs_tree_step *up = &path->at[level + 1];
	void *parent = up->b->data;
	uint32_t i = up->idx;
	struct nvefs_key bound;
	bool front = false;

	*ret_done = false;
	if (nvefs_tree_free_prepare(t, node))
		return 0;
	if (i)
		to = merge_partner(t, up, i - 1, node->data);
	if (!to && i + 1 < nvefs_node_nitems(parent)) {
		to = merge_partner(t, up, i + 1, node->data);
		front = true;
	}
	if (!to)
		return 0;
	bound = nvefs_node_key(parent, front ? i + 1 : i);
	nvefs_cache_dirty(t, to);
	nodes_merge(to->data, node->data, front, &bound);
	nvefs_inner_set(parent, front ? i : i - 1, ref_of(t, to));
	nvefs_inner_remove(parent, front ? i + 1 : i);
	*ret_done = true;
	return node_free(t, node);
}

/* A root with one child gives way to it. */
static int root_shrink(struct nvefs_txn *t)
{
	struct nvefs_root *root = nvefs_store_root(t->st);
	const struct nvefs_tree_range all = {.has_high = false};
	struct nvefs_mblk *b;
	int err = 0;

	while (!err && root->tree_height > 1) {
		if (nvefs_tree_node_get(t->st, nvefs_tree_root_ref(root), root->tree_height - 1,
					&all, &t->miss, &b) ||
		    nvefs_node_nitems(b->data) > 1 || nvefs_tree_free_prepare(t, b))
			return 0;
		root_set(root, nvefs_inner_child(b->data, 0));
		height_set(root, root->tree_height - 1);
		err = node_free(t, b);
	}
	return err;
}

/*
 * Clean up behind a removal, as far as that needs no I/O: what cannot be
 * freed or merged now stays sparse, which is legal.
 */
static int path_shrink(struct nvefs_txn *t, struct nvefs_tree_path *path)
{
	uint32_t level = 0;
	bool done = true;
	int err = 0;

	if (path->height > 1 && !nvefs_node_nitems(path->at[0].b->data)) {
		err = chain_remove(t, path, &level);
		done = level > 0;
	}
	while (!err && done && level + 1 < path->height &&
	       nvefs_tree_is_sparse(path->at[level].b->data))
		err = node_merge(t, path, level++, &done);
	return err ? err : root_shrink(t);
}

int nvefs_tree_del(struct nvefs_txn *t, const struct nvefs_key *key)
{
	struct nvefs_tree_path path;
	int err = nvefs_tree_descend(t->st, key, &t->miss, &path);

	if (!err && !path.exact)
		return -ENOENT;
	if (!err) {
		path_dirty(t, &path);
		nvefs_leaf_remove(path.at[0].b->data, path.at[0].idx);
		err = path_shrink(t, &path);
	}
	if (err)
		nvefs_store_fail(t->st, err, "cannot change the tree");
	return err;
}
