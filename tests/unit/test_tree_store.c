/* SPDX-License-Identifier: MIT */
/*
 * The tree over the real cache, journal and allocator: a small cache, so that
 * nodes come and go; orderly restarts and sudden ends, after which exactly the
 * durable transactions must be there; and the bitmaps must agree with the tree.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../support/suites.h"
#include "base/bitmap.h"
#include "base/log.h"
#include "format/block.h"
#include "format/item.h"
#include "format/layout.h"
#include "format/node.h"
#include "format/root.h"
#include "store/cache.h"
#include "store/mkfs.h"
#include "store/tree.h"

#define NSLOTS 20000u
#define ABSENT UINT32_MAX

static unsigned int start_seed, seed;

#define HOLDS(c)                                                                                   \
	do {                                                                                       \
		if (!(c))                                                                          \
			ck_abort_msg("%s does not hold (NVEFS_TEST_SEED=%u)", #c, start_seed);     \
	} while (0)

/* A value is its length and what fills it; both follow from one number. */
struct change {
	uint64_t txn;
	uint32_t slot, value;
};

struct world {
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	struct nvefs_store *st;
	uint32_t now[NSLOTS], durable[NSLOTS]; /* ABSENT, or the value */
	struct change *changes;		       /* since `durable` was taken */
	uint32_t nchanges;
};

static const struct nvefs_store_opts opts = {
	.cache_bytes = 1, .commit_interval_ns = 1000000000000ull};

static struct nvefs_key slot_key(uint32_t slot)
{
	return nvefs_key_make(1 + slot / 500, NVEFS_KIND_MAP, slot % 500 * 7);
}

static uint32_t value_make(uint32_t value, uint8_t *ret)
{
	uint32_t len = value % 3 ? value % 300 : value % (NVEFS_VALUE_MAX + 1);

	for (uint32_t i = 0; i < len; i++)
		ret[i] = (uint8_t)(value + i * 31);
	return len;
}

static void world_open(struct world *w)
{
	struct nvefs_error err = {""};

	if (nvefs_store_open(w->dev, &opts, &w->st, &err))
		ck_abort_msg("open: %s (NVEFS_TEST_SEED=%u)", err.text, start_seed);
	HOLDS(nvefs_store_start(w->st) == 0);
}

static void world_init(struct world *w, uint32_t flags)
{
	const struct nvefs_mkfs_params params = {.creator = "test_tree_store", .flags = flags};
	const struct nvefs_dev_open_opts open_opts = {0};
	struct nvefs_error err = {""};

	memset(w, 0, sizeof(*w));
	memset(w->now, 0xff, sizeof(w->now));
	memset(w->durable, 0xff, sizeof(w->durable));
	w->changes = calloc(100000, sizeof(*w->changes));
	ck_assert_msg(!nvefs_dev_open("ram:192M", &open_opts, &w->dev, &err), "%s", err.text);
	ck_assert_msg(!nvefs_store_mkfs(w->dev, &params, NULL, &err), "%s", err.text);
	HOLDS(nvefs_queue_init(w->dev, 0, &w->q) == 0);
	world_open(w);
}

static void world_done(struct world *w)
{
	HOLDS(nvefs_store_stop(w->st) == 0);
	nvefs_store_free(w->st);
	nvefs_queue_done(w->q);
	nvefs_dev_close(w->dev);
	free(w->changes);
	free(w);
}

/* `n` changes in one transaction: prepare all, then change all. */
static void change_some(struct world *w, uint32_t n, bool grow)
{
	struct change c[8];
	uint8_t val[NVEFS_VALUE_MAX];
	struct nvefs_txn t;
	int err;

	for (uint32_t i = 0; i < n; i++)
		c[i] = (struct change){
			.slot = (uint32_t)rand_r(&seed) % NSLOTS,
			.value = rand_r(&seed) % 10 < (grow ? 7 : 2) ? (uint32_t)rand_r(&seed) : ABSENT,
		};
	do {
		err = nvefs_txn_begin(w->st, w->q, n * nvefs_tree_credits(w->st), NVEFS_TXN_FREEING, &t);
		HOLDS(err == 0);
		for (uint32_t i = 0; i < n && !err; i++) {
			struct nvefs_key key = slot_key(c[i].slot);

			err = nvefs_tree_prepare(&t, &key);
		}
		if (err)
			nvefs_txn_end(&t);
	} while (nvefs_store_retry(w->st, w->q, &t.miss, &err));
	HOLDS(err == 0);
	for (uint32_t i = 0; i < n; i++) {
		struct nvefs_key key = slot_key(c[i].slot);
		bool there = w->now[c[i].slot] != ABSENT;

		c[i].txn = t.id;
		if (c[i].value == ABSENT)
			HOLDS(nvefs_tree_del(&t, &key) == (there ? 0 : -ENOENT));
		else
			HOLDS(nvefs_tree_put(&t, &key, val, value_make(c[i].value, val)) == 0);
		w->now[c[i].slot] = c[i].value;
		w->changes[w->nchanges++] = c[i];
	}
	nvefs_txn_end(&t);
}

/* All items of ino > 0, in order, against `now`. */
static void contents_check(struct world *w)
{
	struct nvefs_key key = nvefs_key_make(1, 0, 0), got = {0};
	struct nvefs_miss miss;
	uint8_t want[NVEFS_VALUE_MAX];
	const void *val;
	uint32_t len;

	for (uint32_t slot = 0;; slot++) {
		struct nvefs_key k;
		int err;

		while (slot < NSLOTS && w->now[slot] == ABSENT)
			slot++;
		do {
			nvefs_store_rdlock(w->st);
			err = nvefs_tree_next(w->st, &key, &miss, &got, &val, &len);
			if (!err && slot < NSLOTS)
				HOLDS(len == value_make(w->now[slot], want) && !memcmp(val, want, len));
			nvefs_store_rdunlock(w->st);
		} while (nvefs_store_retry(w->st, w->q, &miss, &err));
		if (slot == NSLOTS) {
			HOLDS(err == -ENOENT);
			return;
		}
		k = slot_key(slot);
		HOLDS(err == 0 && !nvefs_key_cmp(&k, &got));
		key = nvefs_key_after(&got);
	}
}

struct nodes {
	uint8_t map[192u << 20 >> 12 >> 3];
	uint64_t count;
};

static int node_note(void *arg, const struct nvefs_tree_visit *v)
{
	struct nodes *n = arg;

	HOLDS(v->err == 0);
	HOLDS(!nvefs_bitmap_test(n->map, (uint32_t)v->pblk));
	nvefs_bitmap_set(n->map, (uint32_t)v->pblk);
	n->count++;
	if (v->twin) {
		HOLDS(!nvefs_bitmap_test(n->map, (uint32_t)v->twin));
		nvefs_bitmap_set(n->map, (uint32_t)v->twin);
		n->count++;
	}
	return 0;
}

static struct nvefs_block_ref bitmap_ref(struct world *w, uint32_t group, uint64_t txn)
{
	return (struct nvefs_block_ref){
		.pblk = nvefs_layout_bitmap_pblk(group),
		.twin = nvefs_layout_bitmap_twin(nvefs_store_super(w->st), group),
		.txn = txn,
	};
}

/* A copy of the group's bitmap, of the generation that its item states. */
static void bitmap_get(struct world *w, uint32_t group, struct nvefs_group_rec *rec,
		       struct nvefs_disk_bitmap *ret)
{
	const struct nvefs_key key = nvefs_group_key(group);
	struct nvefs_miss miss;
	struct nvefs_mblk *b;
	const void *val;
	uint32_t len;
	int err;

	do {
		nvefs_store_rdlock(w->st);
		err = nvefs_tree_get(w->st, &key, &miss, &val, &len);
		if (!err)
			err = nvefs_group_decode(val, len, rec);
		if (!err)
			err = nvefs_cache_get(w->st, bitmap_ref(w, group, rec->bitmap_txn), NVEFS_BT_BITMAP,
					      &miss, &b);
		if (!err)
			memcpy(ret, b->data, sizeof(*ret));
		nvefs_store_rdunlock(w->st);
	} while (nvefs_store_retry(w->st, w->q, &miss, &err));
	HOLDS(err == 0);
}

/* No data blocks are in use: each bit is a fixed block or a node. Not while others change things. */
static void bitmaps_check(struct world *w)
{
	const struct nvefs_super *sb = nvefs_store_super(w->st);
	struct nodes *nodes = calloc(1, sizeof(*nodes));
	struct nvefs_disk_bitmap bm;
	struct nvefs_group_rec rec;
	uint64_t free_blks = 0;

	HOLDS(nvefs_tree_walk(w->st, w->q, NULL, node_note, nodes) == 0);
	for (uint32_t g = 0; g < sb->ngroups; g++) {
		uint32_t zeros = 0;

		bitmap_get(w, g, &rec, &bm);
		for (uint32_t i = 0; i < NVEFS_GROUP_BLKS; i++) {
			uint64_t pblk = nvefs_layout_group_start(g) + i;
			bool want = nvefs_layout_is_fixed(sb, pblk) ||
				    nvefs_bitmap_test(nodes->map, (uint32_t)pblk);

			HOLDS(nvefs_bitmap_test(bm.bits, i) == want);
			zeros += !want;
		}
		HOLDS(zeros == rec.free_blks);
		free_blks += zeros;
	}
	HOLDS(nodes->count == nvefs_store_root(w->st)->meta_blks);
	HOLDS(free_blks == nvefs_store_root(w->st)->free_blks);
	free(nodes);
}

static void commit(struct world *w)
{
	HOLDS(nvefs_commit_run(w->st, false) == 0);
	memcpy(w->durable, w->now, sizeof(w->durable));
	w->nchanges = 0;
}

static void restart(struct world *w)
{
	HOLDS(nvefs_store_stop(w->st) == 0);
	memcpy(w->durable, w->now, sizeof(w->durable));
	w->nchanges = 0;
	nvefs_store_free(w->st);
	world_open(w);
}

/* Writing ends at once; what was durable then (forced commits included) is what there is later. */
static void crash(struct world *w)
{
	uint64_t promised = nvefs_txn_durable(w->st), durable;

	nvefs_store_fail(w->st, -EIO, "test");
	(void)nvefs_store_stop(w->st);
	nvefs_store_free(w->st);
	world_open(w);
	durable = nvefs_txn_durable(w->st);
	HOLDS(durable >= promised);
	memcpy(w->now, w->durable, sizeof(w->now));
	for (uint32_t i = 0; i < w->nchanges && w->changes[i].txn <= durable; i++)
		w->now[w->changes[i].slot] = w->changes[i].value;
	memcpy(w->durable, w->now, sizeof(w->now));
	w->nchanges = 0;
}

START_TEST(tree_over_store)
{
	const char *s = getenv("NVEFS_TEST_SEED");
	struct world *w = malloc(sizeof(*w));
	struct nvefs_store_stats stats;
	uint64_t loads = 0;

	start_seed = seed = s ? (unsigned int)strtoul(s, NULL, 0) : (unsigned int)time(NULL);
	printf("seed: NVEFS_TEST_SEED=%u\n", start_seed);
	world_init(w, _i ? NVEFS_SB_META_DUP : 0);
	for (int round = 0; round < 18; round++) {
		for (int i = 0; i < 1000; i++) {
			change_some(w, 1 + (uint32_t)rand_r(&seed) % 8, round % 6 < 4);
			if (rand_r(&seed) % 60 == 0)
				commit(w);
		}
		nvefs_store_stats(w->st, &stats);
		loads += stats.loads;
		if (round % 3 == 0)
			restart(w);
		else if (round % 3 == 1)
			crash(w);
		contents_check(w);
		bitmaps_check(w);
	}
	ck_assert_uint_gt(loads, 10000); /* the cache was too small, as meant */
	world_done(w);
}
END_TEST

static int prepare(struct nvefs_txn *t, const struct nvefs_key *keys, uint32_t n)
{
	int err = 0;

	for (uint32_t i = 0; i < n && !err; i++)
		err = nvefs_tree_prepare(t, &keys[i]);
	return err;
}

/* One transaction, as its users do it: del, when there is one, then put. */
static void exchange(struct world *w, const struct nvefs_key *keys, bool put)
{
	static const uint8_t val[NVEFS_VALUE_MAX];
	struct nvefs_txn t;
	int err;

	do {
		HOLDS(nvefs_txn_begin(w->st, w->q, 2 * nvefs_tree_credits(w->st), NVEFS_TXN_FREEING, &t) == 0);
		err = prepare(&t, keys, 2);
		if (err)
			nvefs_txn_end(&t);
	} while (nvefs_store_retry(w->st, w->q, &t.miss, &err));
	HOLDS(err == 0);
	err = nvefs_tree_del(&t, &keys[0]);
	HOLDS(err == 0 || (put && err == -ENOENT));
	if (put)
		HOLDS(nvefs_tree_put(&t, &keys[1], val, sizeof(val)) == 0);
	else
		HOLDS(nvefs_tree_del(&t, &keys[1]) == -ENOENT);
	nvefs_txn_end(&t);
}

/*
 * The only item of a leaf goes, and another one comes that belonged there (or is found absent), while no
 * neighbour of the leaf is in memory: each leaf of a tree has its turn, the first and the last one under their parents, too.
 */
START_TEST(a_leaf_empties_beside_unknown_ones)
{
	const uint32_t nleaves = 420; /* three levels */
	struct world *w = malloc(sizeof(*w));

	start_seed = seed = 1;
	world_init(w, _i & 1 ? NVEFS_SB_META_DUP : 0);
	for (uint32_t i = 0; i < 2 * nleaves; i++) {
		const struct nvefs_key keys[2] = {nvefs_key_make(1, 1, 1), nvefs_key_make(1, 0, 10 * i)};

		exchange(w, keys, true);
	}
	for (uint32_t i = 1; i < 2 * nleaves; i += 2) {
		const struct nvefs_key keys[2] = {nvefs_key_make(1, 0, 10 * i), nvefs_key_make(1, 1, 1)};

		exchange(w, keys, false);
	}
	HOLDS(nvefs_store_root(w->st)->tree_height >= 3);
	for (uint32_t i = 0; i < 2 * nleaves; i += 2) {
		const struct nvefs_key keys[2] = {nvefs_key_make(1, 0, 10 * i), nvefs_key_make(1, 0, 10 * i + 1)};

		if (i % 20 < 4) {
			restart(w);
			exchange(w, keys, _i & 2);
		}
	}
	bitmaps_check(w);
	world_done(w);
}
END_TEST

static void log_drop(enum nvefs_log_level level, const char *line)
{
	(void)level;
	if (!strstr(line, "test: "))
		fprintf(stderr, "%s\n", line);
}

int main(void)
{
	Suite *s = suite_create("tree over the store");
	TCase *tc = tcase_create("tree");

	nvefs_log_setup(log_drop, NVEFS_LOG_ERR);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, tree_over_store, 0, 2);
	tcase_add_loop_test(tc, a_leaf_empties_beside_unknown_ones, 0, 4);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
