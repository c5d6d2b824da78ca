/* SPDX-License-Identifier: MIT */
/*
 * Tree nodes: operations on one raw 4096-byte block. Pure.
 *
 * Everything but nvefs_node_check expects a block that passed it (or that was
 * made by nvefs_node_init); the check alone is for untrusted content. Headers
 * (struct nvefs_disk_header) are neither read nor written here, but by the
 * check, which compares generations.
 */
#ifndef NVEFS_FORMAT_NODE_H
#define NVEFS_FORMAT_NODE_H

#include <nvefs/format.h>
#include <stdbool.h>
#include <stdint.h>

#include "format/block.h"
#include "format/key.h"

/* Bytes that an item takes of NVEFS_NODE_BODY. */
static inline uint32_t nvefs_item_bytes(uint32_t value_len)
{
	return (uint32_t)sizeof(struct nvefs_disk_slot) + ((value_len + 7) & ~7u);
}

/* An empty node below an existing header. */
void nvefs_node_init(void *block, uint16_t level);

/*
 * Whole structure: counts, key order, values within the heap and apart from
 * each other, heap accounting; children non-zero and not newer than the node.
 * Reads only these 4096 bytes. 0 or -EUCLEAN. Addresses of children against
 * the device and keys against the parent's bounds are the tree's business.
 */
int nvefs_node_check(const void *block);

static inline uint32_t nvefs_node_level(const void *block)
{
	return le16_get(((const struct nvefs_disk_node *)block)->level);
}
static inline uint32_t nvefs_node_nitems(const void *block)
{
	return le16_get(((const struct nvefs_disk_node *)block)->nitems);
}
/* Key of item or child i < nitems. */
struct nvefs_key nvefs_node_key(const void *block, uint32_t i);
/* Index of the first item or child with a key >= *key; nitems when there is none. */
uint32_t nvefs_node_find(const void *block, const struct nvefs_key *key, bool *ret_exact);

/*
 * Where to cut a full node when one more entry is to go in at index `pos`:
 * entries from `at` on move to the new right node; the new entry goes left, at
 * pos, or right, at pos - at.
 */
struct nvefs_split {
	uint32_t at;
	bool right;
};

/* ---- Leaves ---- */

/* Bytes of NVEFS_NODE_BODY in use, holes in the heap not counted. */
uint32_t nvefs_leaf_used(const void *block);
/* The value of item i, 8-byte aligned, inside the block. */
const void *nvefs_leaf_value(const void *block, uint32_t i, uint32_t *ret_len);
/* Insert before item i. -ENOSPC: does not fit (unchanged). len <= NVEFS_VALUE_MAX. */
int nvefs_leaf_insert(void *block, uint32_t i, const struct nvefs_key *key, const void *val,
		      uint32_t len);
/* New value for item i. -ENOSPC: does not fit (unchanged). `val` lies outside the block. */
int nvefs_leaf_replace(void *block, uint32_t i, const void *val, uint32_t len);
void nvefs_leaf_remove(void *block, uint32_t i);
/* Close the holes in the heap. */
void nvefs_leaf_compact(void *block);
/*
 * Both sides fit, the new item (not in the block yet) counted. Balanced by
 * bytes; but an item that continues a run of its inode's items is the last one
 * of the left side, or goes right with little or nothing else, so that items put in
 * ascending order fill their leaves.
 */
struct nvefs_split nvefs_leaf_split_point(const void *block, uint32_t pos,
					  const struct nvefs_key *key, uint32_t len);
/* Move items from `at` on to the empty leaf `right`. */
void nvefs_leaf_split(void *block, uint32_t at, void *right);
/* Add all items of `src` before (front) or behind those of dst; they fit. src is left as it is. */
void nvefs_leaf_merge(void *dst, const void *src, bool front);

/* ---- Inner nodes ---- */

/* The child that covers *key: the last one whose key is <= *key, or the first, whose own key is no bound. */
uint32_t nvefs_inner_find(const void *block, const struct nvefs_key *key);
uint64_t nvefs_inner_pblk(const void *block, uint32_t i);
uint64_t nvefs_inner_txn(const void *block, uint32_t i);
struct nvefs_block_ref nvefs_inner_child(const void *block, uint32_t i);
void nvefs_inner_set(void *block, uint32_t i, struct nvefs_block_ref child);
void nvefs_inner_set_key(void *block, uint32_t i, const struct nvefs_key *key);
/* Insert before child i. The node is not full. */
void nvefs_inner_insert(void *block, uint32_t i, const struct nvefs_key *key,
			struct nvefs_block_ref child);
/* The range of the child goes to its left neighbour; that of the first to its right one. */
void nvefs_inner_remove(void *block, uint32_t i);
struct nvefs_split nvefs_inner_split_point(const void *block, uint32_t pos);
void nvefs_inner_split(void *block, uint32_t at, void *right);
void nvefs_inner_merge(void *dst, const void *src, bool front);

#endif
