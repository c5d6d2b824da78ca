/* SPDX-License-Identifier: MIT */
/* Tree nodes: random edits of one block against a plain array; damage is refused. */
#include "test_format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "format/block.h"
#include "format/node.h"

struct item {
	struct nvefs_key key;
	uint32_t len;
	uint8_t val[NVEFS_VALUE_MAX];
};
#define MAX_ITEMS 200

static unsigned int seed_get(void)
{
	const char *s = getenv("NVEFS_TEST_SEED");
	unsigned int seed = s ? (unsigned int)strtoul(s, NULL, 0) : (unsigned int)time(NULL);

	printf("seed: NVEFS_TEST_SEED=%u\n", seed);
	return seed;
}

static void block_start(void *block, uint16_t level)
{
	static const uint8_t uuid[16] = "u";

	nvefs_block_fill(block, NVEFS_BT_NODE, 5000, 9, uuid);
	nvefs_node_init(block, level);
}

static uint32_t random_len(unsigned int *seed)
{
	switch (rand_r(seed) % 6) {
	case 0:
		return (uint32_t)rand_r(seed) % (NVEFS_VALUE_MAX + 1);
	case 1:
		return 0;
	default:
		return (uint32_t)rand_r(seed) % 100;
	}
}

static void compare(const void *block, const struct item *items, uint32_t n)
{
	HOLDS(nvefs_node_check(block) == 0);
	HOLDS(nvefs_node_nitems(block) == n);
	for (uint32_t i = 0; i < n; i++) {
		struct nvefs_key k = nvefs_node_key(block, i);
		uint32_t len;
		const void *val = nvefs_leaf_value(block, i, &len);

		HOLDS(nvefs_key_cmp(&k, &items[i].key) == 0);
		HOLDS(len == items[i].len);
		HOLDS(!len || !memcmp(val, items[i].val, len));
	}
}

static void item_fill(struct item *it, unsigned int *seed)
{
	it->len = random_len(seed);
	for (uint32_t i = 0; i < it->len; i++)
		it->val[i] = (uint8_t)rand_r(seed);
}

/* One random edit of block and model; returns the new count. */
static uint32_t edit(uint8_t *block, struct item *items, uint32_t n, unsigned int *seed)
{
	static struct item it;
	bool exact;
	uint32_t i, used = nvefs_leaf_used(block);

	item_fill(&it, seed);
	it.key = nvefs_key_make((uint64_t)rand_r(seed) % 3, (uint8_t)(rand_r(seed) % 3),
				(uint64_t)rand_r(seed) % 40);
	i = nvefs_node_find(block, &it.key, &exact);
	if (exact && rand_r(seed) % 2) {
		nvefs_leaf_remove(block, i);
		memmove(&items[i], &items[i + 1], (n - i - 1) * sizeof(*items));
		return n - 1;
	}
	if (exact) {
		bool fits = used - nvefs_item_bytes(items[i].len) + nvefs_item_bytes(it.len) <=
			    NVEFS_NODE_BODY;

		HOLDS(nvefs_leaf_replace(block, i, it.val, it.len) == (fits ? 0 : -ENOSPC));
		if (fits)
			items[i] = it;
		return n;
	}
	if (used + nvefs_item_bytes(it.len) > NVEFS_NODE_BODY) {
		HOLDS(nvefs_leaf_insert(block, i, &it.key, it.val, it.len) == -ENOSPC);
		return n;
	}
	HOLDS(nvefs_leaf_insert(block, i, &it.key, it.val, it.len) == 0);
	memmove(&items[i + 1], &items[i], (n - i) * sizeof(*items));
	items[i] = it;
	return n + 1;
}

START_TEST(leaf_random_edits)
{
	static struct item items[MAX_ITEMS];
	uint8_t *block = aligned_alloc(8, NVEFS_BLOCK_BYTES);
	unsigned int seed = seed_get();
	uint32_t n = 0;

	block_start(block, 0);
	for (int round = 0; round < 20000; round++) {
		n = edit(block, items, n, &seed);
		compare(block, items, n);
		if (round % 500 == 0) {
			nvefs_leaf_compact(block);
			compare(block, items, n);
		}
	}
	free(block);
}
END_TEST

/* A full leaf, a new item of any size at any place: both sides hold it all. */
START_TEST(leaf_split_always_fits)
{
	static struct item items[MAX_ITEMS], it;
	uint64_t left[512], right[512];
	unsigned int seed = seed_get();

	for (int round = 0; round < 3000; round++) {
		struct nvefs_split split;
		uint32_t n = 0, pos, total;
		bool exact;

		block_start(left, 0);
		block_start(right, 0);
		for (int k = 0; k < 60; k++)
			n = edit((uint8_t *)left, items, n, &seed);
		item_fill(&it, &seed);
		if (rand_r(&seed) % 4 == 0)
			it.len = NVEFS_VALUE_MAX;
		do {
			it.key = nvefs_key_make((uint64_t)rand_r(&seed) % 3, 1,
						(uint64_t)rand_r(&seed) % 1000);
			pos = nvefs_node_find(left, &it.key, &exact);
		} while (exact);
		if (nvefs_leaf_used(left) + nvefs_item_bytes(it.len) <= NVEFS_NODE_BODY)
			continue;
		split = nvefs_leaf_split_point(left, pos, &it.key, it.len);
		nvefs_leaf_split(left, split.at, right);
		ck_assert_int_eq(nvefs_leaf_insert(split.right ? right : left,
						   split.right ? pos - split.at : pos, &it.key,
						   it.val, it.len),
				 0);
		HOLDS(nvefs_node_check(left) == 0);
		HOLDS(nvefs_node_check(right) == 0);
		total = nvefs_node_nitems(left) + nvefs_node_nitems(right);
		HOLDS(total == n + 1);
		HOLDS(nvefs_node_nitems(left) && nvefs_node_nitems(right));
		struct nvefs_key a = nvefs_node_key(left, nvefs_node_nitems(left) - 1);
		struct nvefs_key b = nvefs_node_key(right, 0);
		HOLDS(nvefs_key_cmp(&a, &b) < 0);
	}
}
END_TEST

START_TEST(leaf_split_keeps_runs_full)
{
	uint64_t block[512];
	uint8_t val[100] = {0};
	struct nvefs_key k = nvefs_key_make(7, NVEFS_KIND_MAP, 0), next;
	struct nvefs_split split;
	uint32_t n = 0;

	block_start(block, 0);
	next = nvefs_key_make(9, NVEFS_KIND_INODE, 0);
	ck_assert_int_eq(nvefs_leaf_insert(block, 0, &next, val, sizeof(val)), 0);
	while (!nvefs_leaf_insert(block, n, &k, val, sizeof(val)))
		k.offset = ++n;
	split = nvefs_leaf_split_point(block, n, &k, sizeof(val));
	ck_assert(split.at == n && split.right);
	k = nvefs_key_make(10, NVEFS_KIND_INODE, 0);
	split = nvefs_leaf_split_point(block, n + 1, &k, sizeof(val));
	ck_assert(split.at == n + 1 && split.right);
	/* In the middle of a run: balanced. */
	k = nvefs_key_make(7, NVEFS_KIND_MAP, 2);
	split = nvefs_leaf_split_point(block, 2, &k, sizeof(val));
	ck_assert(split.at > n / 2 - 2 && split.at < n / 2 + 2);
	/* Before much else: last on its side, and that alone. */
	block_start(block, 0);
	next = nvefs_key_make(9, NVEFS_KIND_INODE, 0);
	for (n = 0; n < 12; n++, next.offset++)
		ck_assert_int_eq(nvefs_leaf_insert(block, n, &next, val, sizeof(val)), 0);
	for (n = 0, k = nvefs_key_make(7, NVEFS_KIND_MAP, 0); !nvefs_leaf_insert(block, n, &k, val, sizeof(val));)
		k.offset = ++n;
	split = nvefs_leaf_split_point(block, n, &k, sizeof(val));
	ck_assert(split.at == n && !split.right);
}
END_TEST

START_TEST(leaf_merge_both_sides)
{
	uint64_t a[512], b[512], c[512];
	struct nvefs_key k = nvefs_key_make(1, 1, 0);

	block_start(a, 0);
	block_start(b, 0);
	for (uint32_t i = 0; i < 20; i++) {
		k.offset = i;
		ck_assert_int_eq(nvefs_leaf_insert(i < 8 ? a : b, i < 8 ? i : i - 8, &k, &k, 20), 0);
	}
	memcpy(c, b, sizeof(c));
	nvefs_leaf_merge(c, a, true);
	nvefs_leaf_merge(a, b, false);
	for (uint32_t i = 0; i < 20; i++) {
		ck_assert_uint_eq(nvefs_node_key(a, i).offset, i);
		ck_assert_uint_eq(nvefs_node_key(c, i).offset, i);
	}
	ck_assert_int_eq(nvefs_node_check(a), 0);
	ck_assert_int_eq(nvefs_node_check(c), 0);
}
END_TEST

START_TEST(inner_edits)
{
	uint64_t a[512], b[512];
	struct nvefs_key k = nvefs_key_make(0, 0, 0);
	struct nvefs_split split;

	block_start(a, 1);
	block_start(b, 1);
	ck_assert_int_eq(nvefs_node_check(a), -EUCLEAN); /* no child */
	for (uint32_t i = 0; i < NVEFS_NODE_MAX_CHILDREN; i++) {
		k.offset = 10 * i;
		nvefs_inner_insert(a, i, &k,
				   (struct nvefs_block_ref){.pblk = 6000 + i, .twin = 9000 + i, .txn = 1});
	}
	ck_assert_int_eq(nvefs_node_check(a), 0);
	k.offset = 25;
	ck_assert_uint_eq(nvefs_inner_find(a, &k), 2);
	k.offset = 30;
	ck_assert_uint_eq(nvefs_inner_find(a, &k), 3);
	k.ino = 5;
	ck_assert_uint_eq(nvefs_inner_find(a, &k), NVEFS_NODE_MAX_CHILDREN - 1);
	for (uint32_t pos = 1; pos <= NVEFS_NODE_MAX_CHILDREN; pos++) {
		split = nvefs_inner_split_point(a, pos);
		ck_assert_uint_le(split.at, NVEFS_NODE_MAX_CHILDREN);
		ck_assert(split.right ? pos >= split.at : pos <= split.at);
		ck_assert(split.at >= 1 && split.at + !split.right <= NVEFS_NODE_MAX_CHILDREN);
		ck_assert(split.right || split.at < NVEFS_NODE_MAX_CHILDREN);
	}
	nvefs_inner_split(a, 60, b);
	ck_assert_uint_eq(nvefs_node_nitems(a), 60);
	ck_assert_uint_eq(nvefs_node_nitems(b), 40);
	ck_assert_uint_eq(nvefs_inner_pblk(b, 0), 6060);
	ck_assert_uint_eq(nvefs_inner_child(b, 39).twin, 9099);
	nvefs_inner_remove(a, 0); /* its range goes right */
	ck_assert_uint_eq(nvefs_node_key(a, 0).offset, 0);
	ck_assert_uint_eq(nvefs_inner_pblk(a, 0), 6001);
	nvefs_inner_remove(a, 58);
	nvefs_inner_set(a, 0, (struct nvefs_block_ref){.pblk = 77, .twin = 78, .txn = 9});
	ck_assert(nvefs_inner_pblk(a, 0) == 77 && nvefs_inner_txn(a, 0) == 9 &&
		  nvefs_inner_child(a, 0).twin == 78);
	nvefs_inner_merge(a, b, false);
	ck_assert_uint_eq(nvefs_node_nitems(a), 98);
	ck_assert_int_eq(nvefs_node_check(a), 0);
	nvefs_inner_set(a, 0, (struct nvefs_block_ref){.pblk = 77, .twin = 78, .txn = 10}); /* newer than the node */
	ck_assert_int_eq(nvefs_node_check(a), -EUCLEAN);
}
END_TEST

START_TEST(node_refuses)
{
	uint64_t good[512], block[512];
	struct nvefs_disk_node *n = (void *)block;
	struct nvefs_disk_slot *s = (void *)n->body;
	struct nvefs_key k = nvefs_key_make(1, 1, 0);

	block_start(good, 0);
	for (uint32_t i = 0; i < 5; i++) {
		k.offset = i;
		ck_assert_int_eq(nvefs_leaf_insert(good, i, &k, "0123456789", 10), 0);
	}
#define NODE_REFUSED(change)                                                                       \
	do {                                                                                       \
		memcpy(block, good, sizeof(block));                                                \
		ck_assert_int_eq(nvefs_node_check(block), 0);                                      \
		change;                                                                            \
		ck_assert_msg(nvefs_node_check(block) == -EUCLEAN, #change);                       \
	} while (0)
	NODE_REFUSED(n->level = le16_make(NVEFS_TREE_MAX_HEIGHT));
	NODE_REFUSED(n->level = le16_make(1));
	NODE_REFUSED(n->nitems = le16_make(6));
	NODE_REFUSED(n->nitems = le16_make(4));
	NODE_REFUSED(n->nitems = le16_make(65535));
	NODE_REFUSED(n->heap_low = le16_make(4097));
	NODE_REFUSED(n->heap_low = le16_make(80));
	NODE_REFUSED(n->heap_low = le16_make(65528));
	NODE_REFUSED(n->heap_used = le16_make(0));
	NODE_REFUSED(s[1].value_off = s[0].value_off);
	NODE_REFUSED(s[1].value_off = le16_make(64));
	NODE_REFUSED(s[1].value_off = le16_make(4088));
	NODE_REFUSED(s[1].value_off = le16_make(65528));
	NODE_REFUSED(s[1].value_len = le16_make(17));
	NODE_REFUSED(s[1].value_len = le16_make(65535));
	NODE_REFUSED(s[1].value_len = le16_make(0));
	NODE_REFUSED(s[1].key = s[0].key);
	NODE_REFUSED(s[2].key = s[0].key);
}
END_TEST

/* Random bytes in random places: the check may say either, and whatever it passes can be edited. */
START_TEST(node_garbage)
{
	static struct item items[MAX_ITEMS];
	uint64_t block[512];
	unsigned int seed = seed_get();
	uint32_t passed = 0;

	for (int round = 0; round < 5000; round++) {
		uint32_t n = 0;

		block_start(block, 0);
		for (int k = 0; k < 20; k++)
			n = edit((uint8_t *)block, items, n, &seed);
		for (int k = rand_r(&seed) % 4; k >= 0; k--)
			((uint8_t *)block)[64 + (rand_r(&seed) % 4) * (rand_r(&seed) % 1000)] =
				(uint8_t)rand_r(&seed);
		if (nvefs_node_check(block))
			continue;
		passed++;
		nvefs_leaf_compact(block);
		ck_assert_int_eq(nvefs_node_check(block), 0);
	}
	ck_assert_uint_gt(passed, 0);
}
END_TEST

TCase *test_node_tcase(void)
{
	TCase *tc = tcase_create("node");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, leaf_random_edits);
	tcase_add_test(tc, leaf_split_always_fits);
	tcase_add_test(tc, leaf_split_keeps_runs_full);
	tcase_add_test(tc, leaf_merge_both_sides);
	tcase_add_test(tc, inner_edits);
	tcase_add_test(tc, node_refuses);
	tcase_add_test(tc, node_garbage);
	return tc;
}
