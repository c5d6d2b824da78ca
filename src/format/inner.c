/* SPDX-License-Identifier: MIT */
/* Inner nodes: a sorted array of children. */
#include "format/node.h"

static struct nvefs_disk_child *children_of(void *block)
{
	return (void *)((struct nvefs_disk_node *)block)->body;
}
static const struct nvefs_disk_child *child_at(const void *block, uint32_t i)
{
	const struct nvefs_disk_node *n = block;

	return (const struct nvefs_disk_child *)(const void *)n->body + i;
}
static void nitems_set(void *block, uint32_t nitems)
{
	((struct nvefs_disk_node *)block)->nitems = le16_make((uint16_t)nitems);
}

uint32_t nvefs_inner_find(const void *block, const struct nvefs_key *key)
{
	bool exact;
	uint32_t i = nvefs_node_find(block, key, &exact);

	return exact || !i ? i : i - 1;
}

uint64_t nvefs_inner_pblk(const void *block, uint32_t i)
{
	return le64_get(child_at(block, i)->pblk);
}

uint64_t nvefs_inner_txn(const void *block, uint32_t i)
{
	return le64_get(child_at(block, i)->txn);
}

struct nvefs_block_ref nvefs_inner_child(const void *block, uint32_t i)
{
	const struct nvefs_disk_child *c = child_at(block, i);

	return (struct nvefs_block_ref){
		.pblk = le64_get(c->pblk), .twin = le64_get(c->twin), .txn = le64_get(c->txn)};
}

void nvefs_inner_set(void *block, uint32_t i, struct nvefs_block_ref child)
{
	struct nvefs_disk_child *c = &children_of(block)[i];

	c->pblk = le64_make(child.pblk);
	c->txn = le64_make(child.txn);
	c->twin = le64_make(child.twin);
}

void nvefs_inner_set_key(void *block, uint32_t i, const struct nvefs_key *key)
{
	children_of(block)[i].key = nvefs_key_encode(key);
}

void nvefs_inner_insert(void *block, uint32_t i, const struct nvefs_key *key,
			struct nvefs_block_ref child)
{
	struct nvefs_disk_child *children = children_of(block);
	uint32_t nitems = nvefs_node_nitems(block);

	assert(nitems < NVEFS_NODE_MAX_CHILDREN && i <= nitems);
	memmove(&children[i + 1], &children[i], (nitems - i) * sizeof(*children));
	children[i].key = nvefs_key_encode(key);
	nvefs_inner_set(block, i, child);
	nitems_set(block, nitems + 1);
}

void nvefs_inner_remove(void *block, uint32_t i)
{
	struct nvefs_disk_child *children = children_of(block);
	uint32_t nitems = nvefs_node_nitems(block);
	struct nvefs_disk_key low = children[0].key;

	assert(i < nitems);
	memmove(&children[i], &children[i + 1], (nitems - i - 1) * sizeof(*children));
	memset(&children[nitems - 1], 0, sizeof(*children));
	nitems_set(block, nitems - 1);
	if (!i && nitems > 1)
		children[0].key = low;
}

/* A child that is to come last goes right alone: ascending keys fill the nodes. */
struct nvefs_split nvefs_inner_split_point(const void *block, uint32_t pos)
{
	uint32_t nitems = nvefs_node_nitems(block);
	uint32_t half = (nitems + 1) / 2;

	if (pos == nitems)
		return (struct nvefs_split){.at = nitems, .right = true};
	if (pos >= half)
		return (struct nvefs_split){.at = half, .right = true};
	return (struct nvefs_split){.at = half - 1, .right = false};
}

void nvefs_inner_split(void *block, uint32_t at, void *right)
{
	struct nvefs_disk_child *children = children_of(block);
	uint32_t nitems = nvefs_node_nitems(block);

	memcpy(children_of(right), &children[at], (nitems - at) * sizeof(*children));
	nitems_set(right, nitems - at);
	memset(&children[at], 0, (nitems - at) * sizeof(*children));
	nitems_set(block, at);
}

void nvefs_inner_merge(void *dst, const void *src, bool front)
{
	struct nvefs_disk_child *to = children_of(dst);
	uint32_t ndst = nvefs_node_nitems(dst), nsrc = nvefs_node_nitems(src);

	assert(ndst + nsrc <= NVEFS_NODE_MAX_CHILDREN);
	if (front)
		memmove(&to[nsrc], to, ndst * sizeof(*to));
	memcpy(front ? to : &to[ndst], child_at(src, 0), nsrc * sizeof(*to));
	nitems_set(dst, ndst + nsrc);
}
