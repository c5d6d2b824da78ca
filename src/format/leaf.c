/* SPDX-License-Identifier: MIT */
/* Leaves: slots grow up from the start of the body, values down from the block's end. */
#include <errno.h>

#include "format/block.h"
#include "format/node.h"

#define SLOTS_OFF ((uint32_t)offsetof(struct nvefs_disk_node, body))

static struct nvefs_disk_slot *slots_of(void *block)
{
	return (void *)((struct nvefs_disk_node *)block)->body;
}
static const struct nvefs_disk_slot *slots_of_const(const void *block)
{
	return (const void *)((const struct nvefs_disk_node *)block)->body;
}
static uint32_t round8(uint32_t len)
{
	return (len + 7) & ~7u;
}

uint32_t nvefs_leaf_used(const void *block)
{
	const struct nvefs_disk_node *n = block;

	return le16_get(n->nitems) * (uint32_t)sizeof(struct nvefs_disk_slot) +
	       le16_get(n->heap_used);
}

const void *nvefs_leaf_value(const void *block, uint32_t i, uint32_t *ret_len)
{
	const struct nvefs_disk_slot *s = &slots_of_const(block)[i];

	*ret_len = le16_get(s->value_len);
	return (const char *)block + le16_get(s->value_off);
}

static uint32_t item_bytes_at(const void *block, uint32_t i)
{
	return nvefs_item_bytes(le16_get(slots_of_const(block)[i].value_len));
}

void nvefs_leaf_compact(void *block)
{
	struct nvefs_disk_node *n = block;
	struct nvefs_disk_slot *slots = slots_of(block);
	uint8_t heap[NVEFS_BLOCK_BYTES] = {0};
	uint32_t nitems = le16_get(n->nitems), low = NVEFS_BLOCK_BYTES;
	uint32_t slots_end = SLOTS_OFF + nitems * (uint32_t)sizeof(*slots);

	for (uint32_t i = 0; i < nitems; i++) {
		uint32_t len = le16_get(slots[i].value_len);

		if (!len)
			continue;
		low -= round8(len);
		memcpy(heap + low, (char *)block + le16_get(slots[i].value_off), len);
		slots[i].value_off = le16_make((uint16_t)low);
	}
	memcpy((char *)block + slots_end, heap + slots_end, NVEFS_BLOCK_BYTES - slots_end);
	n->heap_low = le16_make((uint16_t)low);
}

/* Make a gap of `bytes` between slots and heap, which exists in total, and `slots` slots. */
static void gap_make(void *block, uint32_t nslots, uint32_t bytes)
{
	const struct nvefs_disk_node *n = block;

	if (SLOTS_OFF + nslots * sizeof(struct nvefs_disk_slot) + bytes > le16_get(n->heap_low))
		nvefs_leaf_compact(block);
}

/* Put the value of slot i, which has none so far, into the gap. An empty value lies at the block's end. */
static void value_place(void *block, uint32_t i, const void *val, uint32_t len)
{
	struct nvefs_disk_node *n = block;
	struct nvefs_disk_slot *s = &slots_of(block)[i];
	uint32_t bytes = round8(len), low = le16_get(n->heap_low) - bytes;

	s->value_off = le16_make(NVEFS_BLOCK_BYTES);
	if (!len)
		return;
	memset((char *)block + low + bytes - 8, 0, 8);
	memcpy((char *)block + low, val, len);
	s->value_off = le16_make((uint16_t)low);
	s->value_len = le16_make((uint16_t)len);
	n->heap_low = le16_make((uint16_t)low);
	n->heap_used = le16_make((uint16_t)(le16_get(n->heap_used) + bytes));
}

int nvefs_leaf_insert(void *block, uint32_t i, const struct nvefs_key *key, const void *val,
		      uint32_t len)
{
	struct nvefs_disk_node *n = block;
	struct nvefs_disk_slot *slots = slots_of(block);
	uint32_t nitems = le16_get(n->nitems);

	assert(i <= nitems && len <= NVEFS_VALUE_MAX);
	if (nvefs_leaf_used(block) + nvefs_item_bytes(len) > NVEFS_NODE_BODY)
		return -ENOSPC;
	gap_make(block, nitems + 1, round8(len));
	memmove(&slots[i + 1], &slots[i], (nitems - i) * sizeof(*slots));
	slots[i] = (struct nvefs_disk_slot){.key = nvefs_key_encode(key)};
	n->nitems = le16_make((uint16_t)(nitems + 1));
	value_place(block, i, val, len);
	return 0;
}

/* Slot i gives its value up. */
static void value_drop(void *block, uint32_t i)
{
	struct nvefs_disk_node *n = block;
	struct nvefs_disk_slot *s = &slots_of(block)[i];
	uint32_t bytes = round8(le16_get(s->value_len));

	n->heap_used = le16_make((uint16_t)(le16_get(n->heap_used) - bytes));
	if (bytes && le16_get(s->value_off) == le16_get(n->heap_low))
		n->heap_low = le16_make((uint16_t)(le16_get(n->heap_low) + bytes));
	s->value_len = le16_make(0);
	s->value_off = le16_make(NVEFS_BLOCK_BYTES);
}

int nvefs_leaf_replace(void *block, uint32_t i, const void *val, uint32_t len)
{
	struct nvefs_disk_slot *s = &slots_of(block)[i];
	uint32_t nitems = nvefs_node_nitems(block), old_len = le16_get(s->value_len);

	assert(i < nitems && len <= NVEFS_VALUE_MAX);
	if (round8(len) == round8(old_len) && len) {
		uint8_t *at = (uint8_t *)block + le16_get(s->value_off);

		memset(at + round8(len) - 8, 0, 8);
		memcpy(at, val, len);
		s->value_len = le16_make((uint16_t)len);
		return 0;
	}
	if (nvefs_leaf_used(block) - round8(old_len) + round8(len) > NVEFS_NODE_BODY)
		return -ENOSPC;
	value_drop(block, i);
	gap_make(block, nitems, round8(len));
	value_place(block, i, val, len);
	return 0;
}

void nvefs_leaf_remove(void *block, uint32_t i)
{
	struct nvefs_disk_node *n = block;
	struct nvefs_disk_slot *slots = slots_of(block);
	uint32_t nitems = le16_get(n->nitems);

	assert(i < nitems);
	value_drop(block, i);
	memmove(&slots[i], &slots[i + 1], (nitems - i - 1) * sizeof(*slots));
	n->nitems = le16_make((uint16_t)(nitems - 1));
	if (nitems == 1)
		n->heap_low = le16_make(NVEFS_BLOCK_BYTES);
}

/* The new item comes after one of the same inode and kind and before none of them, or last. */
static bool continues_run(const void *block, uint32_t pos, const struct nvefs_key *key)
{
	struct nvefs_key k;

	if (pos == nvefs_node_nitems(block))
		return true;
	if (!pos)
		return false;
	k = nvefs_node_key(block, pos - 1);
	if (k.ino != key->ino || k.kind != key->kind)
		return false;
	k = nvefs_node_key(block, pos);
	return k.ino != key->ino || k.kind != key->kind;
}

#define RUN_TAIL (NVEFS_NODE_BODY / 16) /* what comes behind a run may go on with it when it is no more than this */

/*
 * Where a run is cut. Before the new item takes what comes behind along into the new leaf, and again with the
 * next cut, so that is left alone unless it is little; then the next item finds itself last in its leaf, where
 * the cut is before it. 0: not a run.
 */
static uint32_t run_cut(const void *block, uint32_t pos, const struct nvefs_key *key, uint32_t added)
{
	uint32_t before = added, i;

	if (!continues_run(block, pos, key))
		return 0;
	for (i = 0; i < pos; i++)
		before += item_bytes_at(block, i);
	return before <= NVEFS_NODE_BODY && nvefs_leaf_used(block) + added - before > RUN_TAIL ? pos + 1 : pos;
}

static uint32_t distance(uint32_t a, uint32_t b)
{
	return a > b ? a - b : b - a;
}

/*
 * The cut is looked for in the sequence that has the new item in its place; an
 * item takes at most half of a body, so that there is always a cut that fits.
 */
struct nvefs_split nvefs_leaf_split_point(const void *block, uint32_t pos,
					  const struct nvefs_key *key, uint32_t len)
{
	uint32_t nitems = nvefs_node_nitems(block), added = nvefs_item_bytes(len), left = 0;
	uint32_t total = nvefs_leaf_used(block) + added, best = UINT32_MAX;
	uint32_t wanted = run_cut(block, pos, key, added);
	struct nvefs_split split = {.at = nitems, .right = true};

	for (uint32_t cut = 1; cut <= nitems; cut++) {
		uint32_t at = cut <= pos ? cut : cut - 1;

		left += cut - 1 == pos ? added : item_bytes_at(block, cut <= pos ? cut - 1 : cut - 2);
		if (left > NVEFS_NODE_BODY || total - left > NVEFS_NODE_BODY)
			continue;
		if (cut == wanted)
			return (struct nvefs_split){.at = at, .right = cut <= pos};
		if (distance(left, total - left) < best) {
			best = distance(left, total - left);
			split = (struct nvefs_split){.at = at, .right = cut <= pos};
		}
	}
	return split;
}

void nvefs_leaf_split(void *block, uint32_t at, void *right)
{
	struct nvefs_disk_node *n = block;
	uint32_t nitems = le16_get(n->nitems);

	for (uint32_t i = at; i < nitems; i++) {
		struct nvefs_key key = nvefs_node_key(block, i);
		uint32_t len;
		const void *val = nvefs_leaf_value(block, i, &len);
		int err = nvefs_leaf_insert(right, i - at, &key, val, len);

		assert(!err);
		(void)err;
		n->heap_used = le16_make((uint16_t)(le16_get(n->heap_used) - round8(len)));
	}
	n->nitems = le16_make((uint16_t)at);
	nvefs_leaf_compact(block);
}

void nvefs_leaf_merge(void *dst, const void *src, bool front)
{
	uint32_t nitems = nvefs_node_nitems(src), base = front ? 0 : nvefs_node_nitems(dst);

	for (uint32_t i = 0; i < nitems; i++) {
		struct nvefs_key key = nvefs_node_key(src, i);
		uint32_t len;
		const void *val = nvefs_leaf_value(src, i, &len);
		int err = nvefs_leaf_insert(dst, base + i, &key, val, len);

		assert(!err);
		(void)err;
	}
}
