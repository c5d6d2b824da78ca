/* SPDX-License-Identifier: MIT */
#include "format/node.h"

#include <errno.h>

#include "base/bitmap.h"
#include "format/block.h"

#define BODY_OFF ((uint32_t)offsetof(struct nvefs_disk_node, body))

void nvefs_node_init(void *block, uint16_t level)
{
	struct nvefs_disk_node *n = block;

	memset((char *)block + sizeof(n->hdr), 0, sizeof(*n) - sizeof(n->hdr));
	n->level = le16_make(level);
	n->heap_low = le16_make(level ? 0 : NVEFS_BLOCK_BYTES);
}

/* Keys are the first field of slots and children alike. */
static const struct nvefs_disk_key *disk_key(const struct nvefs_disk_node *n, uint32_t i)
{
	uint32_t stride = le16_get(n->level) ? sizeof(struct nvefs_disk_child)
					     : sizeof(struct nvefs_disk_slot);

	return (const void *)(n->body + (size_t)i * stride);
}

struct nvefs_key nvefs_node_key(const void *block, uint32_t i)
{
	return nvefs_key_decode(disk_key(block, i));
}

uint32_t nvefs_node_find(const void *block, const struct nvefs_key *key, bool *ret_exact)
{
	uint32_t low = 0, high = nvefs_node_nitems(block);

	*ret_exact = false;
	while (low < high) {
		uint32_t mid = (low + high) / 2;
		struct nvefs_key k = nvefs_node_key(block, mid);
		int cmp = nvefs_key_cmp(&k, key);

		if (cmp < 0) {
			low = mid + 1;
		} else {
			high = mid;
			*ret_exact = *ret_exact || cmp == 0;
		}
	}
	return low;
}

static bool keys_ascend(const struct nvefs_disk_node *n, uint32_t nitems)
{
	for (uint32_t i = 1; i < nitems; i++) {
		struct nvefs_key a = nvefs_node_key(n, i - 1), b = nvefs_node_key(n, i);

		if (nvefs_key_cmp(&a, &b) >= 0)
			return false;
	}
	return true;
}

static bool leaf_ok(const struct nvefs_disk_node *n, uint32_t nitems)
{
	const struct nvefs_disk_slot *slots = (const void *)n->body;
	uint8_t taken[NVEFS_BLOCK_BYTES / 8 / 8] = {0};
	uint32_t low = le16_get(n->heap_low), used = 0;

	if (nitems > NVEFS_NODE_BODY / sizeof(*slots))
		return false;
	if (low % 8 || low > NVEFS_BLOCK_BYTES || low < BODY_OFF + nitems * sizeof(*slots))
		return false;
	for (uint32_t i = 0; i < nitems; i++) {
		uint32_t off = le16_get(slots[i].value_off), len = le16_get(slots[i].value_len);
		uint32_t units = (len + 7) / 8;

		if (!len && off == NVEFS_BLOCK_BYTES)
			continue;
		if (!len || len > NVEFS_VALUE_MAX || off % 8 || off < low ||
		    off + units * 8 > NVEFS_BLOCK_BYTES)
			return false;
		if (nvefs_bitmap_next_set(taken, off / 8, off / 8 + units) < off / 8 + units)
			return false;
		nvefs_bitmap_set_run(taken, off / 8, units);
		used += units * 8;
	}
	return used == le16_get(n->heap_used);
}

static bool inner_ok(const struct nvefs_disk_node *n, uint32_t nitems)
{
	const struct nvefs_disk_child *children = (const void *)n->body;

	if (!nitems || nitems > NVEFS_NODE_MAX_CHILDREN || le16_get(n->heap_low) ||
	    le16_get(n->heap_used))
		return false;
	for (uint32_t i = 0; i < nitems; i++) {
		uint64_t txn = le64_get(children[i].txn);

		if (!le64_get(children[i].pblk) || !txn || txn > le64_get(n->hdr.txn))
			return false;
	}
	return true;
}

int nvefs_node_check(const void *block)
{
	const struct nvefs_disk_node *n = block;
	uint32_t nitems = le16_get(n->nitems), level = le16_get(n->level);

	if (level >= NVEFS_TREE_MAX_HEIGHT)
		return -EUCLEAN;
	if (level ? !inner_ok(n, nitems) : !leaf_ok(n, nitems))
		return -EUCLEAN;
	return keys_ascend(n, nitems) ? 0 : -EUCLEAN;
}
