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

/* As group_room, for any group in the middle. */
static uint64_t middle_room(const struct nvefs_super *sb)
{
	return NVEFS_GROUP_BLKS - nvefs_layout_group_head(sb, 1);
}

/* Nodes that lie in front of this group. */
static uint64_t nodes_before(const struct nvefs_super *sb, uint32_t group)
{
	return group ? group_room(sb, 0) + (uint64_t)(group - 1) * middle_room(sb) : 0;
}

/* The k-th block for nodes from `group` >= 1 on. */
static uint64_t nth_pblk(const struct nvefs_super *sb, uint32_t group, uint64_t k)
{
	return (k / middle_room(sb) + group) * NVEFS_GROUP_BLKS + nvefs_layout_group_head(sb, 1) +
	       k % middle_room(sb);
}

static uint64_t node_pblk(const struct nvefs_mkfs_tree *t, uint64_t k)
{
	uint64_t room = group_room(t->sb, 0);

	if (k < room)
		return t->sb->journal_pblk + t->sb->journal_blks + k;
	return nth_pblk(t->sb, 1, k - room);
}

/* Second copies begin in this group; where there is one only, in its middle. */
static uint32_t twin_group(const struct nvefs_mkfs_tree *t)
{
	return t->sb->ngroups / 2;
}

static uint64_t twin_start(const struct nvefs_mkfs_tree *t)
{
	return twin_group(t) ? nth_pblk(t->sb, twin_group(t), 0) : t->sb->nblks / 2;
}

static uint64_t node_twin(const struct nvefs_mkfs_tree *t, uint64_t k)
{
	if (!nvefs_super_dup(t->sb))
		return 0;
	return twin_group(t) ? nth_pblk(t->sb, twin_group(t), k) : twin_start(t) + k;
}

/* Of nnodes blocks, those between `before` and `before` + room. */
static uint32_t part(const struct nvefs_mkfs_tree *t, uint64_t before, uint64_t room)
{
	if (t->nnodes <= before)
		return 0;
	return (uint32_t)(t->nnodes - before < room ? t->nnodes - before : room);
}

uint32_t nvefs_mkfs_tree_group_runs(const struct nvefs_mkfs_tree *t, uint32_t group, struct nvefs_mkfs_run ret[2])
{
	const struct nvefs_super *sb = t->sb;
	uint32_t first = twin_group(t), n = 0;

	ret[n].off = (uint32_t)nvefs_layout_group_head(sb, group);
	ret[n].len = part(t, nodes_before(sb, group), group_room(sb, group));
	n += ret[n].len > 0;
	if (!nvefs_super_dup(sb) || group < first)
		return n;
	ret[n].off = first ? (uint32_t)nvefs_layout_group_head(sb, group) : (uint32_t)twin_start(t);
	ret[n].len = part(t, (group - first) * middle_room(sb), middle_room(sb));
	return n + (ret[n].len > 0);
}

uint32_t nvefs_mkfs_tree_group_free(const struct nvefs_mkfs_tree *t, uint32_t group)
{
	struct nvefs_mkfs_run runs[2];
	uint32_t left = (uint32_t)group_room(t->sb, group);

	for (uint32_t n = nvefs_mkfs_tree_group_runs(t, group, runs); n-- > 0;)
		left -= runs[n].len;
	return left;
}

uint64_t nvefs_mkfs_tree_root(const struct nvefs_mkfs_tree *t)
{
	return node_pblk(t, t->nnodes - 1);
}

uint64_t nvefs_mkfs_tree_root_twin(const struct nvefs_mkfs_tree *t)
{
	return node_twin(t, t->nnodes - 1);
}

/* All nodes have a place, and second copies begin behind the last first one. */
static bool has_room(const struct nvefs_mkfs_tree *t)
{
	uint64_t last = nvefs_mkfs_tree_root(t);

	if (nvefs_layout_is_fixed(t->sb, last))
		return false;
	return !nvefs_super_dup(t->sb) ||
	       (last < twin_start(t) && !nvefs_layout_is_fixed(t->sb, nvefs_mkfs_tree_root_twin(t)));
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
	return has_room(t) ? 0 : -ENOSPC;
}

static void *node_new(const struct nvefs_mkfs_tree *t, struct nvefs_spool *s, uint64_t k, uint32_t level)
{
	uint64_t pblk = node_pblk(t, k);
	void *node = nvefs_spool_next(s, pblk);

	nvefs_block_fill(node, NVEFS_BT_NODE, pblk, t->txn, t->sb->uuid);
	nvefs_block_set_twin(node, node_twin(t, k));
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

static struct nvefs_block_ref node_ref(const struct nvefs_mkfs_tree *t, uint64_t k)
{
	return (struct nvefs_block_ref){
		.pblk = node_pblk(t, k), .twin = node_twin(t, k), .txn = t->txn};
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
					   node_ref(t, first - below + child + i));
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
