/* SPDX-License-Identifier: MIT */
/* The tree against a plain array, with blocks that come and go; damaged trees. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../support/suites.h"
#include "base/log.h"
#include "fake_meta.h"
#include "format/block.h"
#include "format/node.h"
#include "store/alloc.h"
#include "store/tree.h"

/* As ck_assert, for hot loops: Check notes each ck_assert, even one that holds, through a pipe. */
#define HOLDS(c)                                                                                   \
	do {                                                                                       \
		if (!(c))                                                                          \
			ck_abort_msg("%s does not hold (NVEFS_TEST_SEED=%u)", #c, start_seed);     \
	} while (0)

static unsigned int start_seed, seed;

static void seed_start(void)
{
	const char *s = getenv("NVEFS_TEST_SEED");

	start_seed = seed = s ? (unsigned int)strtoul(s, NULL, 0) : (unsigned int)time(NULL);
	printf("seed: NVEFS_TEST_SEED=%u\n", start_seed);
}

/* Slots of the model stand for keys in ascending order. */
struct model {
	struct nvefs_store *st;
	uint32_t nslots, nitems;
	uint16_t *len; /* NVEFS_VALUE_MAX + 1: absent */
	uint32_t *fill;
	uint32_t max_len;
};
#define ABSENT (NVEFS_VALUE_MAX + 1)

static struct nvefs_key slot_key(uint32_t slot)
{
	static const uint8_t kinds[] = {NVEFS_KIND_INODE, NVEFS_KIND_XATTR, NVEFS_KIND_DIRENT,
					NVEFS_KIND_MAP};

	return nvefs_key_make(slot / 400, kinds[slot / 100 % 4], (uint64_t)(slot % 100) << 30);
}

static uint32_t key_slot(const struct nvefs_key *k)
{
	uint32_t kind = k->kind == NVEFS_KIND_INODE ? 0 : k->kind - NVEFS_KIND_XATTR + 1u;

	if (k->kind >= NVEFS_KIND_DIRENT)
		kind--;
	return (uint32_t)k->ino * 400 + kind * 100 + (uint32_t)(k->offset >> 30);
}

static void value_make(uint32_t slot, uint32_t fill, uint32_t len, uint8_t *ret)
{
	uint32_t x = slot * 2654435761u ^ fill;

	for (uint32_t i = 0; i < len; i++)
		ret[i] = (uint8_t)((x >> (i % 4 * 8)) + i / 4);
}

static bool value_ok(const struct model *m, uint32_t slot, const void *val, uint32_t len)
{
	uint8_t want[NVEFS_VALUE_MAX];

	if (len != m->len[slot] || (uintptr_t)val % 8)
		return false;
	value_make(slot, m->fill[slot], len, want);
	return !memcmp(val, want, len);
}

static void model_init(struct model *m, uint32_t nslots, uint32_t max_len)
{
	m->st = fake_meta_new(nslots * 2);
	m->nslots = nslots;
	m->nitems = 0;
	m->max_len = max_len;
	m->len = malloc(nslots * sizeof(*m->len));
	m->fill = calloc(nslots, sizeof(*m->fill));
	for (uint32_t i = 0; i < nslots; i++)
		m->len[i] = ABSENT;
}

static void model_done(struct model *m)
{
	fake_meta_free(m->st);
	free(m->len);
	free(m->fill);
}

static void prepare(struct model *m, struct nvefs_txn *t, const struct nvefs_key *key)
{
	int err;

	do
		err = nvefs_tree_prepare(t, key);
	while (nvefs_store_retry(m->st, NULL, &t->miss, &err));
	HOLDS(err == 0);
}

static void model_put(struct model *m, uint32_t slot, uint32_t len)
{
	static uint8_t val[NVEFS_VALUE_MAX];
	struct nvefs_key key = slot_key(slot);
	struct nvefs_txn t;

	fake_txn_begin(m->st, &t);
	prepare(m, &t, &key);
	m->nitems += m->len[slot] == ABSENT;
	m->len[slot] = (uint16_t)len;
	m->fill[slot] = (uint32_t)rand_r(&seed);
	value_make(slot, m->fill[slot], len, val);
	HOLDS(nvefs_tree_put(&t, &key, val, len) == 0);
}

static void model_del(struct model *m, uint32_t slot)
{
	struct nvefs_key key = slot_key(slot);
	struct nvefs_txn t;

	fake_txn_begin(m->st, &t);
	prepare(m, &t, &key);
	HOLDS(nvefs_tree_del(&t, &key) == (m->len[slot] == ABSENT ? -ENOENT : 0));
	m->nitems -= m->len[slot] != ABSENT;
	m->len[slot] = ABSENT;
}

static void model_get(struct model *m, uint32_t slot)
{
	struct nvefs_key key = slot_key(slot);
	struct nvefs_miss miss;
	const void *val;
	uint32_t len;
	int err;

	do
		err = nvefs_tree_get(m->st, &key, &miss, &val, &len);
	while (nvefs_store_retry(m->st, NULL, &miss, &err));
	if (m->len[slot] == ABSENT)
		HOLDS(err == -ENOENT);
	else
		HOLDS(err == 0 && value_ok(m, slot, val, len));
}

/* From this slot on; returns the slot found, nslots at the end. */
static uint32_t model_next(struct model *m, uint32_t slot)
{
	struct nvefs_key key = slot_key(slot), got;
	struct nvefs_miss miss;
	const void *val;
	uint32_t len;
	int err;

	do
		err = nvefs_tree_next(m->st, &key, &miss, &got, &val, &len);
	while (nvefs_store_retry(m->st, NULL, &miss, &err));
	while (slot < m->nslots && m->len[slot] == ABSENT)
		slot++;
	if (slot == m->nslots) {
		HOLDS(err == -ENOENT);
		return slot;
	}
	HOLDS(err == 0 && key_slot(&got) == slot && value_ok(m, slot, val, len));
	return slot;
}

struct count {
	uint32_t nodes, leaves, items, errors, used;
};

static int count_visit(void *arg, const struct nvefs_tree_visit *v)
{
	struct count *c = arg;

	if (v->err) {
		c->errors++;
		return 0;
	}
	HOLDS(nvefs_node_check(v->node) == 0);
	HOLDS(nvefs_node_level(v->node) == v->level);
	HOLDS(nvefs_block_txn(v->node) == v->txn && nvefs_block_pblk(v->node) == v->pblk);
	c->nodes++;
	if (!v->level) {
		c->leaves++;
		c->items += nvefs_node_nitems(v->node);
		c->used += nvefs_leaf_used(v->node);
	}
	return 0;
}

static struct count model_check(struct model *m)
{
	struct count c = {0};

	HOLDS(nvefs_tree_walk(m->st, NULL, NULL, count_visit, &c) == 0);
	HOLDS(!c.errors && c.items == m->nitems);
	HOLDS(c.nodes == fake_nodes(m->st));
	HOLDS(c.nodes == nvefs_store_root(m->st)->meta_blks);
	for (uint32_t slot = 0; slot < m->nslots; slot++)
		slot = model_next(m, slot);
	return c;
}

static struct nvefs_disk_node *root_node(struct model *m)
{
	return fake_block(m->st, nvefs_store_root(m->st)->tree_pblk);
}

static uint32_t random_len(const struct model *m)
{
	return rand_r(&seed) % 4 ? (uint32_t)rand_r(&seed) % 200 % (m->max_len + 1)
				 : (uint32_t)rand_r(&seed) % (m->max_len + 1);
}

/* `grow` of 10 operations insert or replace, the others remove. */
static void model_run(struct model *m, uint32_t nops, int grow)
{
	for (uint32_t i = 0; i < nops; i++) {
		uint32_t slot = (uint32_t)rand_r(&seed) % m->nslots;

		model_get(m, slot);
		if (rand_r(&seed) % 8 == 0)
			(void)model_next(m, slot);
		if (rand_r(&seed) % 10 < grow)
			model_put(m, slot, random_len(m));
		else
			model_del(m, slot);
		if (rand_r(&seed) % 50 == 0) {
			fake_txn_commit(m->st);
			if (rand_r(&seed) % 5 == 0)
				fake_evict(m->st, &seed, 3);
		}
	}
	HOLDS(fake_error(m->st) == 0);
}

START_TEST(random_against_model)
{
	struct model m;
	struct count c;

	seed_start();
	model_init(&m, 6000, NVEFS_VALUE_MAX);
	for (int round = 0; round < 5; round++) {
		fake_free_misses(m.st, round % 2);
		model_run(&m, 12000, 8);
		model_check(&m);
		model_run(&m, 8000, 1);
		model_check(&m);
	}
	fake_free_misses(m.st, false);
	for (uint32_t slot = 0; slot < m.nslots; slot++)
		model_del(&m, slot);
	c = model_check(&m);
	HOLDS(c.items == 0);
	fake_txn_commit(m.st);
	model_done(&m);
}
END_TEST

/* Values of half a node in mixed order: the tallest tree for its number of items. */
START_TEST(tall_tree)
{
	struct model m;

	seed_start();
	model_init(&m, 24000, NVEFS_VALUE_MAX);
	for (uint32_t i = 0; i < m.nslots; i++)
		model_put(&m, (i * 7919u) % m.nslots, NVEFS_VALUE_MAX);
	ck_assert_uint_ge(nvefs_store_root(m.st)->tree_height, 4);
	model_check(&m);
	fake_txn_commit(m.st);
	for (uint32_t i = 0; i < m.nslots; i++)
		model_del(&m, (i * 6997u) % m.nslots);
	for (uint32_t i = 0; i < m.nslots; i++)
		if (m.len[i] != ABSENT)
			model_del(&m, i);
	ck_assert_uint_eq(model_check(&m).nodes, 1);
	ck_assert_uint_eq(nvefs_store_root(m.st)->tree_height, 1);
	model_done(&m);
}
END_TEST

START_TEST(ascending_inserts_fill_leaves)
{
	struct model m;
	struct count c;

	seed_start();
	model_init(&m, 8000, NVEFS_VALUE_MAX);
	/* Two inodes' runs in turn, then all that lies between and behind. */
	for (uint32_t i = 0; i < 100; i++) {
		model_put(&m, 300 + i, 530);
		model_put(&m, 700 + i, 530);
	}
	for (uint32_t i = 1000; i < m.nslots; i++)
		model_put(&m, i, 530);
	c = model_check(&m);
	ck_assert_msg(c.used > c.leaves * NVEFS_NODE_BODY / 100 * 90, "leaves are %u %% full",
		      c.used / (c.leaves * (NVEFS_NODE_BODY / 100)));
	model_done(&m);
}
END_TEST

/* Whole ranges go and come back in either order: nodes lose their first children and get lower ones. */
START_TEST(ranges_come_and_go)
{
	struct model m;

	seed_start();
	model_init(&m, 8000, NVEFS_VALUE_MAX);
	for (uint32_t i = 0; i < m.nslots; i++)
		model_put(&m, i, 1000 + (uint32_t)rand_r(&seed) % 900);
	ck_assert_uint_ge(nvefs_store_root(m.st)->tree_height, 3);
	for (int round = 0; round < 12; round++) {
		uint32_t from = rand_r(&seed) % 3 ? (uint32_t)rand_r(&seed) % m.nslots : 0;
		uint32_t n = 1 + (uint32_t)rand_r(&seed) % 1500, back = rand_r(&seed) % 2;

		if (n > m.nslots - from)
			n = m.nslots - from;
		for (uint32_t i = 0; i < n; i++) {
			uint32_t slot = back ? from + n - 1 - i : from + i;

			if (round % 2)
				model_put(&m, slot, 200 + (uint32_t)rand_r(&seed) % 1700);
			else
				model_del(&m, slot);
		}
		fake_txn_commit(m.st);
		model_check(&m);
	}
	model_done(&m);
}
END_TEST

/*
 * The first inner node goes, so that the next one begins lower than its first
 * key says; what is put there splits below that key. Then nodes with such a
 * key merge into their neighbours.
 */
START_TEST(first_key_is_no_bound)
{
	struct model m;
	uint32_t n;

	seed_start();
	model_init(&m, 4000, NVEFS_VALUE_MAX);
	for (uint32_t i = 0; i < m.nslots; i++)
		model_put(&m, i, NVEFS_VALUE_MAX);
	ck_assert_uint_eq(nvefs_store_root(m.st)->tree_height, 3);
	n = nvefs_node_nitems(root_node(&m));
	for (uint32_t i = 0; i < 2 * NVEFS_NODE_MAX_CHILDREN; i++)
		model_del(&m, i);
	ck_assert_uint_eq(nvefs_node_nitems(root_node(&m)), n - 1);
	model_check(&m);
	for (uint32_t i = 0; i < 2 * NVEFS_NODE_MAX_CHILDREN; i++) {
		model_put(&m, i, NVEFS_VALUE_MAX);
		model_check(&m);
	}
	for (uint32_t i = m.nslots; i-- > 0;)
		if (i % 16)
			model_del(&m, i);
	model_check(&m);
	for (uint32_t i = 0; i < m.nslots; i++)
		model_put(&m, i, 1000);
	model_check(&m);
	model_done(&m);
}
END_TEST

static struct nvefs_mblk *node_make(struct nvefs_txn *t, uint16_t level)
{
	struct nvefs_mblk *b;
	uint64_t pblk;

	ck_assert_int_eq(nvefs_alloc_meta(t, &pblk), 0);
	ck_assert_int_eq(nvefs_cache_new(t, pblk, NVEFS_BT_NODE, &b), 0);
	nvefs_node_init(b->data, level);
	return b;
}

static void leaf_add(struct nvefs_mblk *leaf, uint64_t ino)
{
	const struct nvefs_key key = nvefs_key_make(ino, NVEFS_KIND_INODE, 0);

	ck_assert_int_eq(nvefs_leaf_insert(leaf->data, nvefs_node_nitems(leaf->data), &key, "", 0), 0);
}

static void child_add(struct nvefs_mblk *inner, uint64_t ino, const struct nvefs_mblk *child, uint64_t txn)
{
	const struct nvefs_key key = nvefs_key_make(ino, 0, 0);

	nvefs_inner_insert(inner->data, nvefs_node_nitems(inner->data), &key,
			   (struct nvefs_block_ref){.pblk = child->pblk, .txn = txn});
}

/* A node whose first key lies above its first item merges into its left neighbour: the item stays in reach. */
START_TEST(merge_makes_first_key_a_bound)
{
	struct nvefs_store *st = fake_meta_new(100);
	struct nvefs_root *root = nvefs_store_root(st);
	struct nvefs_mblk *left, *right, *top, *leaves[3];
	const struct nvefs_key last = nvefs_key_make(200, NVEFS_KIND_INODE, 0);
	struct nvefs_txn t;

	fake_txn_begin(st, &t);
	for (int i = 0; i < 3; i++)
		leaves[i] = node_make(&t, 0);
	left = node_make(&t, 1);
	right = node_make(&t, 1);
	top = node_make(&t, 2);
	leaf_add(leaves[0], 10);
	leaf_add(leaves[1], 60);
	leaf_add(leaves[1], 110);
	leaf_add(leaves[2], 200);
	child_add(left, 0, leaves[0], t.id);
	child_add(right, 100, leaves[1], t.id);
	child_add(right, 200, leaves[2], t.id);
	child_add(top, 0, left, t.id);
	child_add(top, 50, right, t.id);
	root->tree_pblk = top->pblk;
	root->tree_txn = t.id;
	root->tree_height = 3;
	ck_assert_int_eq(nvefs_tree_del(&t, &last), 0);
	ck_assert_uint_eq(root->tree_height, 2);
	for (int i = 0; i < 3; i++) {
		static const uint64_t inos[] = {10, 60, 110};
		const struct nvefs_key key = nvefs_key_make(inos[i], NVEFS_KIND_INODE, 0);
		const void *val;
		uint32_t len;

		ck_assert_int_eq(nvefs_tree_get(st, &key, &t.miss, &val, &len), 0);
	}
	fake_meta_free(st);
}
END_TEST

/* Removals that were all prepared before the first, as truncate does it. */
START_TEST(removals_prepared_together)
{
	struct model m;
	struct nvefs_txn t;

	seed_start();
	model_init(&m, 4000, NVEFS_VALUE_MAX);
	for (uint32_t i = 0; i < m.nslots; i++)
		model_put(&m, i, 530);
	fake_txn_commit(m.st);
	fake_free_misses(m.st, true);
	for (uint32_t from = 0; from < m.nslots; from += 100) {
		fake_txn_begin(m.st, &t);
		for (uint32_t i = from; i < from + 100; i++) {
			struct nvefs_key key = slot_key(i);

			prepare(&m, &t, &key);
		}
		for (uint32_t i = from; i < from + 100; i++) {
			struct nvefs_key key = slot_key(i);

			HOLDS(nvefs_tree_del(&t, &key) == 0);
			m.len[i] = ABSENT;
			m.nitems--;
		}
		fake_txn_commit(m.st);
		fake_evict(m.st, &seed, 2);
	}
	/* Where a transaction ends with a leaf, that one stays, empty, when no neighbour is in memory. */
	ck_assert_uint_le(model_check(&m).nodes, 5 + m.nslots / 100);
	model_done(&m);
}
END_TEST

/* Whatever byte of whatever node is damaged: an answer, no crash, no endless loop. */
START_TEST(damage_is_survived)
{
	struct model m;
	uint32_t refused = 0;

	seed_start();
	model_init(&m, 4000, 300);
	model_run(&m, 6000, 9);
	fake_txn_commit(m.st);
	for (int round = 0; round < 240; round++) {
		uint64_t saved[512], pblk = nvefs_store_root(m.st)->tree_pblk;
		struct count c = {0}, bad = {0};
		uint8_t *block;

		while (nvefs_node_level(fake_block(m.st, pblk)) && rand_r(&seed) % 3)
			pblk = nvefs_inner_pblk(fake_block(m.st, pblk),
						(uint32_t)rand_r(&seed) %
							nvefs_node_nitems(fake_block(m.st, pblk)));
		block = fake_block(m.st, pblk);
		memcpy(saved, block, sizeof(saved));
		for (int k = rand_r(&seed) % 3; k >= 0; k--)
			block[64 + rand_r(&seed) % (rand_r(&seed) % 2 ? 200 : 4032)] ^=
				(uint8_t)(1u << rand_r(&seed) % 8);
		fake_drop_all(m.st);
		HOLDS(nvefs_tree_walk(m.st, NULL, NULL, count_visit, &c) == 0);
		HOLDS(nvefs_tree_verify(m.st, NULL, count_visit, &bad) == 0);
		HOLDS(bad.errors == c.errors);
		refused += c.errors > 0;
		for (int k = 0; k < 10; k++) {
			struct nvefs_key key = slot_key((uint32_t)rand_r(&seed) % m.nslots), got;
			struct nvefs_miss miss;
			const void *val;
			uint32_t len;
			int err;

			do
				err = nvefs_tree_next(m.st, &key, &miss, &got, &val, &len);
			while (nvefs_store_retry(m.st, NULL, &miss, &err));
			HOLDS(!err || err == -ENOENT || err == -EUCLEAN);
		}
		memcpy(block, saved, sizeof(saved));
	}
	ck_assert_uint_gt(refused, 60);
	fake_drop_all(m.st);
	model_check(&m);
	model_done(&m);
}
END_TEST

/* Children that point back up, to themselves, or to one another. */
START_TEST(cycles_end)
{
	struct model m;
	struct nvefs_disk_node *root;
	uint32_t n;

	seed_start();
	model_init(&m, 12000, NVEFS_VALUE_MAX);
	for (uint32_t i = 0; i < m.nslots; i++)
		model_put(&m, i, NVEFS_VALUE_MAX);
	fake_txn_commit(m.st);
	root = root_node(&m);
	ck_assert_uint_ge(nvefs_store_root(m.st)->tree_height, 3);
	n = nvefs_node_nitems(root);
	for (int kind = 0; kind < 3; kind++) {
		struct count c = {0};
		uint64_t saved[512];

		memcpy(saved, root, sizeof(saved));
		for (uint32_t i = 0; i < n; i++) {
			struct nvefs_block_ref at = {
				.pblk = kind == 0   ? nvefs_block_pblk(root)
					: kind == 1 ? nvefs_inner_pblk(root, (i + 1) % n)
						    : nvefs_inner_pblk(root, 0)};

			at.txn = nvefs_block_txn(fake_block(m.st, at.pblk));
			nvefs_inner_set(root, i, at);
		}
		fake_drop_all(m.st);
		HOLDS(nvefs_tree_walk(m.st, NULL, NULL, count_visit, &c) == 0);
		HOLDS(c.errors >= n - 1);
		memcpy(root, saved, sizeof(saved));
	}
	fake_drop_all(m.st);
	model_check(&m);
	model_done(&m);
}
END_TEST

/* An old version of a leaf, intact in itself, stands in the new one's place. */
START_TEST(lost_write_is_noticed)
{
	struct model m;
	struct nvefs_key key = slot_key(5);
	struct nvefs_miss miss;
	uint64_t old[512];
	const void *val;
	uint32_t len;
	uint64_t pblk;
	int err;

	seed_start();
	model_init(&m, 1000, 300);
	for (uint32_t i = 0; i < m.nslots; i++)
		model_put(&m, i, 100);
	fake_txn_commit(m.st);
	pblk = nvefs_inner_pblk(root_node(&m), 0);
	memcpy(old, fake_block(m.st, pblk), sizeof(old));
	model_put(&m, 5, 90);
	fake_txn_commit(m.st);
	memcpy(fake_block(m.st, pblk), old, sizeof(old));
	fake_drop_all(m.st);
	do
		err = nvefs_tree_get(m.st, &key, &miss, &val, &len);
	while (nvefs_store_retry(m.st, NULL, &miss, &err));
	ck_assert_int_eq(err, -EUCLEAN);
	model_done(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tree");
	TCase *tc = tcase_create("tree");

	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, random_against_model);
	tcase_add_test(tc, tall_tree);
	tcase_add_test(tc, ascending_inserts_fill_leaves);
	tcase_add_test(tc, ranges_come_and_go);
	tcase_add_test(tc, first_key_is_no_bound);
	tcase_add_test(tc, merge_makes_first_key_a_bound);
	tcase_add_test(tc, removals_prepared_together);
	tcase_add_test(tc, damage_is_survived);
	tcase_add_test(tc, cycles_end);
	tcase_add_test(tc, lost_write_is_noticed);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
