/* SPDX-License-Identifier: MIT */
#include "store/mkfs_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/block.h"
#include "format/item.h"
#include "format/layout.h"
#include "format/node.h"

/* An item while it is being laid out; its value may be the group record made here. */
struct item {
	struct nvefs_key key;
	struct nvefs_disk_group group;
	const void *val;
	uint32_t len;
};

static uint64_t nitems(const struct nvefs_mkfs_tree *t)
{
	return (uint64_t)t->sb->ngroups + t->params->nitems;
}

static void item_get(const struct nvefs_mkfs_tree *t, uint64_t i, struct item *ret)
{
	if (i < t->sb->ngroups) {
		const struct nvefs_group_rec rec = {
			.free_blks = nvefs_mkfs_tree_group_free(t, (uint32_t)i), .bitmap_txn = t->txn};

		ret->key = nvefs_group_key((uint32_t)i);
		ret->group = nvefs_group_encode(&rec);
		ret->val = &ret->group;
		ret->len = sizeof(ret->group);
	} else {
		const struct nvefs_mkfs_item *p = &t->params->items[i - t->sb->ngroups];

		ret->key = p->key;
		ret->val = p->val;
		ret->len = p->len;
	}
}

static uint32_t item_room(const struct nvefs_mkfs_tree *t, uint64_t i)
{
	uint32_t len = i < t->sb->ngroups ? sizeof(struct nvefs_disk_group)
					  : t->params->items[i - t->sb->ngroups].len;

	return nvefs_item_bytes(len);
}

/* How many items from `first` on fill a leaf. */
static uint32_t leaf_items(const struct nvefs_mkfs_tree *t, uint64_t first)
{
	uint32_t n = 0, used = 0;

	while (first + n < nitems(t)) {
		used += item_room(t, first + n);
		if (used > NVEFS_NODE_BODY)
			break;
		n++;
	}
	return n;
}

/* Blocks of a group that nodes can take. */
static uint64_t group_room(const struct nvefs_super *sb, uint32_t group)
{
	return nvefs_layout_group_len(sb, group) - nvefs_layout_group_fixed(sb, group);
}

/* Nodes that lie in front of this group. */
static uint64_t nodes_before(const struct nvefs_super *sb, uint32_t group)
{
	return group ? group_room(sb, 0) + (uint64_t)(group - 1) * (NVEFS_GROUP_BLKS - 1) : 0;
}

static uint64_t node_pblk(const struct nvefs_mkfs_tree *t, uint64_t k)
{
	uint64_t room = group_room(t->sb, 0);

	if (k < room)
		return t->sb->journal_pblk + t->sb->journal_blks + k;
	k -= room;
	return (k / (NVEFS_GROUP_BLKS - 1) + 1) * NVEFS_GROUP_BLKS + 1 + k % (NVEFS_GROUP_BLKS - 1);
}

uint32_t nvefs_mkfs_tree_group_nodes(const struct nvefs_mkfs_tree *t, uint32_t group)
{
	uint64_t before = nodes_before(t->sb, group), room = group_room(t->sb, group);

	if (t->nnodes <= before)
		return 0;
	return (uint32_t)(t->nnodes - before < room ? t->nnodes - before : room);
}

uint32_t nvefs_mkfs_tree_group_free(const struct nvefs_mkfs_tree *t, uint32_t group)
{
	return (uint32_t)group_room(t->sb, group) - nvefs_mkfs_tree_group_nodes(t, group);
}

uint64_t nvefs_mkfs_tree_root(const struct nvefs_mkfs_tree *t)
{
	return node_pblk(t, t->nnodes - 1);
}

static int check_items(const struct nvefs_mkfs_params *p)
{
	for (uint32_t i = 0; i < p->nitems; i++) {
		if (!p->items[i].key.ino || p->items[i].len > NVEFS_VALUE_MAX)
			return -EINVAL;
		if (i && nvefs_key_cmp(&p->items[i - 1].key, &p->items[i].key) >= 0)
			return -EINVAL;
	}
	return 0;
}

int nvefs_mkfs_tree_plan(struct nvefs_mkfs_tree *t, const struct nvefs_super *sb,
			 const struct nvefs_mkfs_params *params, uint64_t txn)
{
	int err = check_items(params);

	if (err)
		return err;
	memset(t, 0, sizeof(*t));
	t->sb = sb;
	t->params = params;
	t->txn = txn;
	for (uint64_t i = 0; i < nitems(t); i += leaf_items(t, i))
		t->count[0]++;
	t->nnodes = t->count[0];
	for (t->height = 1; t->count[t->height - 1] > 1; t->height++) {
		t->count[t->height] = (t->count[t->height - 1] + NVEFS_NODE_MAX_CHILDREN - 1) /
				      NVEFS_NODE_MAX_CHILDREN;
		t->nnodes += t->count[t->height];
	}
	return nvefs_layout_is_fixed(sb, nvefs_mkfs_tree_root(t)) ? -ENOSPC : 0;
}

static void *node_new(const struct nvefs_mkfs_tree *t, struct nvefs_spool *s, uint64_t k, uint32_t level)
{
	uint64_t pblk = node_pblk(t, k);
	void *node = nvefs_spool_next(s, pblk);

	nvefs_block_fill(node, NVEFS_BT_NODE, pblk, t->txn, t->sb->uuid);
	nvefs_node_init(node, (uint16_t)level);
	return node;
}

static int leaf_write(const struct nvefs_mkfs_tree *t, void *leaf, uint64_t first, uint32_t n)
{
	int err = 0;

	for (uint32_t i = 0; i < n && !err; i++) {
		struct item it;

		item_get(t, first + i, &it);
		err = nvefs_leaf_insert(leaf, i, &it.key, it.val, it.len);
	}
	return err;
}

/*
 * The nodes of `level`, numbered from `first` on, over the children numbered
 * from first - count[level - 1] on. keys[] holds the lowest key of each child
 * and is overwritten by those of the new nodes.
 */
static void level_write(const struct nvefs_mkfs_tree *t, struct nvefs_spool *s, uint32_t level,
			uint64_t first, struct nvefs_key *keys)
{
	uint64_t count = t->count[level], below = t->count[level - 1], child = 0;

	for (uint64_t k = 0; k < count; k++) {
		void *node = node_new(t, s, first + k, level);
		uint32_t n = (uint32_t)(below / count + (k < below % count));

		for (uint32_t i = 0; i < n; i++)
			nvefs_inner_insert(node, i, &keys[child + i],
					   node_pblk(t, first - below + child + i), t->txn);
		keys[k] = keys[child];
		child += n;
	}
}

int nvefs_mkfs_tree_write(const struct nvefs_mkfs_tree *t, struct nvefs_spool *s)
{
	struct nvefs_key *keys = calloc(t->count[0], sizeof(*keys));
	uint64_t i = 0, first = t->count[0];
	int err = keys ? 0 : -ENOMEM;

	for (uint64_t k = 0; k < t->count[0] && !err; k++) {
		uint32_t n = leaf_items(t, i);
		struct item it;

		err = leaf_write(t, node_new(t, s, k, 0), i, n);
		item_get(t, i, &it);
		if (k) /* the leftmost path starts at zero */
			keys[k] = it.key;
		i += n;
	}
	for (uint32_t level = 1; level < t->height && !err; level++) {
		level_write(t, s, level, first, keys);
		first += t->count[level];
	}
	free(keys);
	return err;
}
