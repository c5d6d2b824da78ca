/* SPDX-License-Identifier: MIT */
/*
 * A leaf whose checksum is right and whose content is not. Slots are judged one by
 * one: what points at a value that is sound by itself, and stands in order, is kept.
 */
#include <string.h>

#include "format/item.h"
#include "format/node.h"
#include "salvage.h"

#define MAX_SLOTS (NVEFS_NODE_BODY / sizeof(struct nvefs_disk_slot))

struct slots {
	const struct nvefs_disk_node *old;
	uint8_t good[MAX_SLOTS]; /* indices */
	uint32_t n;
};

static const struct nvefs_disk_slot *slot_at(const struct slots *s, uint32_t i)
{
	return (const struct nvefs_disk_slot *)(const void *)s->old->body + i;
}

static struct nvefs_key key_at(const struct slots *s, uint32_t i)
{
	return nvefs_key_decode(&slot_at(s, s->good[i])->key);
}

static bool slot_ok(const struct slots *s, uint32_t i, const struct nvefs_super *sb)
{
	const struct nvefs_disk_slot *slot = slot_at(s, i);
	uint32_t off = le16_get(slot->value_off), len = le16_get(slot->value_len);
	struct nvefs_key key = nvefs_key_decode(&slot->key);

	if (off % 8 || off < offsetof(struct nvefs_disk_node, body) || !len || len > NVEFS_VALUE_MAX ||
	    off + len > sizeof(*s->old))
		return false;
	return !nvefs_item_check(&key, (const uint8_t *)s->old + off, len, sb);
}

/* How many there are is not to be trusted: slots end where the values begin. */
static void find_slots(struct slots *s, const struct nvefs_super *sb)
{
	uint32_t low = sizeof(*s->old);

	for (uint32_t i = 0; i < MAX_SLOTS; i++) {
		if (offsetof(struct nvefs_disk_node, body) + (i + 1) * sizeof(struct nvefs_disk_slot) > low)
			break;
		if (!slot_ok(s, i, sb))
			continue;
		s->good[s->n++] = (uint8_t)i;
		if (le16_get(slot_at(s, i)->value_off) < low)
			low = le16_get(slot_at(s, i)->value_off);
	}
}

bool nvefs_salvage_clean(void *block, const struct nvefs_super *sb)
{
	struct nvefs_disk_node old;
	struct slots s = {.old = &old};
	struct nvefs_key last = {0};
	uint32_t n = 0;

	memcpy(&old, block, sizeof(old));
	find_slots(&s, sb);
	nvefs_node_init(block, 0);
	for (uint32_t i = 0; i < s.n; i++) {
		const struct nvefs_disk_slot *slot = slot_at(&s, s.good[i]);
		struct nvefs_key key = key_at(&s, i);

		if (nvefs_key_cmp(&key, &last) <= 0)
			continue;
		/* Too high a key would shut out all that follow: the next one decides. */
		if (i + 1 < s.n) {
			struct nvefs_key next = key_at(&s, i + 1);

			if (nvefs_key_cmp(&next, &key) <= 0 && nvefs_key_cmp(&next, &last) > 0)
				continue;
		}
		if (nvefs_leaf_insert(block, n, &key, (const uint8_t *)&old + le16_get(slot->value_off),
				      le16_get(slot->value_len)))
			continue;
		last = key;
		n++;
	}
	return n > 0;
}
