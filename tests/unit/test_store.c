/* SPDX-License-Identifier: MIT */
/* The store: transactions and commits by many threads, the cache, mkfs. */
#include "../support/suites.h"
#include "test_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/buf.h"
#include "base/log.h"
#include "device/backend.h"
#include "device/embedded.h"
#include "format/block.h"
#include "format/layout.h"
#include "format/node.h"
#include "store/mkfs_tree.h"

/* ---- Helpers of all files ---- */

struct nvefs_queue *test_queue(struct nvefs_dev *dev)
{
	struct nvefs_queue *q;

	ck_assert_int_eq(nvefs_queue_init(dev, 0, &q), 0);
	return q;
}

int fixture_try_open(struct fixture *f, const struct nvefs_store_opts *opts, struct nvefs_error *err)
{
	return nvefs_store_open(f->dev, opts, &f->st, err);
}

void fixture_open(struct fixture *f, const struct nvefs_store_opts *opts)
{
	struct nvefs_error err = {""};

	ck_assert_msg(fixture_try_open(f, opts, &err) == 0, "open: %s", err.text);
	if (!opts || !opts->read_only)
		ck_assert_int_eq(nvefs_store_start(f->st), 0);
}

static void init(struct fixture *f, const char *uri, uint32_t flags, const struct nvefs_store_opts *opts)
{
	const struct nvefs_mkfs_params params = {
		.label = "test", .creator = "test_store", .flags = flags};
	const struct nvefs_dev_open_opts open_opts = {0};
	struct nvefs_error err = {""};

	memset(f, 0, sizeof(*f));
	ck_assert_msg(nvefs_dev_open(uri, &open_opts, &f->dev, &err) == 0, "%s", err.text);
	ck_assert_msg(nvefs_store_mkfs(f->dev, &params, &f->sb, &err) == 0, "%s", err.text);
	f->q = test_queue(f->dev);
	fixture_open(f, opts);
}

void fixture_init(struct fixture *f, const char *uri, const struct nvefs_store_opts *opts)
{
	init(f, uri, 0, opts);
}

void fixture_init_dup(struct fixture *f, const char *uri, const struct nvefs_store_opts *opts)
{
	init(f, uri, NVEFS_SB_META_DUP, opts);
}

void fixture_close(struct fixture *f)
{
	ck_assert_int_eq(nvefs_store_stop(f->st), 0);
	nvefs_store_free(f->st);
	f->st = NULL;
}

void fixture_crash(struct fixture *f)
{
	nvefs_store_fail(f->st, -EIO, "test: crash");
	nvefs_store_stop(f->st);
	nvefs_store_free(f->st);
	f->st = NULL;
}

void fixture_done(struct fixture *f)
{
	if (f->st)
		fixture_close(f);
	nvefs_queue_done(f->q);
	nvefs_dev_close(f->dev);
}

uint64_t cell_pblk(const struct fixture *f, uint32_t cell)
{
	/* From the end of the device down, away from the allocator's first choices. */
	return f->sb.nblks - 100 - cell;
}

static uint64_t *cell_value(struct nvefs_mblk *b)
{
	return (uint64_t *)((char *)b->data + 1000);
}

/* Also across a restart: a block that does not check was never written. */
static int cell_find(struct fixture *f, uint32_t cell, struct nvefs_miss *miss, struct nvefs_mblk **b)
{
	return nvefs_cache_get(f->st, (struct nvefs_block_ref){.pblk = cell_pblk(f, cell)}, NVEFS_BT_NODE,
			       miss, b);
}

static bool cell_exists(struct fixture *f, struct nvefs_queue *q, uint32_t cell)
{
	const struct nvefs_block_expect want = {
		.pblk = cell_pblk(f, cell), .uuid = f->sb.uuid, .type = NVEFS_BT_NODE};
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	bool there;

	ck_assert_int_eq(nvefs_queue_read(q, want.pblk, 1, buf), 0);
	there = nvefs_block_check(buf, &want) == NVEFS_BLOCK_OK;
	nvefs_buf_free(buf);
	return there;
}

/* Cached now, or -ENOENT. */
static int cell_fetch(struct fixture *f, struct nvefs_queue *q, const struct nvefs_miss *miss,
		      uint32_t cell)
{
	return cell_exists(f, q, cell) ? nvefs_store_load(f->st, q, miss) : -ENOENT;
}

static int cell_set_locked(struct nvefs_txn *t, struct fixture *f, uint32_t cell, bool missing,
			   uint64_t value)
{
	struct nvefs_miss miss;
	struct nvefs_mblk *b;
	int err = cell_find(f, cell, &miss, &b);

	if (err == -EAGAIN && missing)
		err = nvefs_cache_new(t, cell_pblk(f, cell), NVEFS_BT_NODE, &b);
	if (err)
		return err;
	nvefs_cache_dirty(t, b);
	*cell_value(b) = value;
	return 0;
}

int cells_put(struct fixture *f, struct nvefs_queue *q, uint32_t first, uint32_t n, uint64_t value)
{
	bool *missing = calloc(n, sizeof(*missing));
	struct nvefs_txn t;
	struct nvefs_miss miss;
	struct nvefs_mblk *b;
	int err;

	for (;;) {
		uint32_t i;

		err = nvefs_txn_begin(f->st, q, n, 0, &t);
		if (err)
			break;
		for (i = 0; i < n; i++)
			if (!missing[i] && cell_find(f, first + i, &miss, &b) == -EAGAIN)
				break;
		if (i < n) {
			nvefs_txn_end(&t);
			err = cell_fetch(f, q, &miss, first + i);
			missing[i] = err == -ENOENT;
			continue;
		}
		for (i = 0; i < n; i++)
			ck_assert_int_eq(cell_set_locked(&t, f, first + i, missing[i], value), 0);
		nvefs_txn_end(&t);
		break;
	}
	free(missing);
	return err;
}

uint64_t cell_get(struct fixture *f, struct nvefs_queue *q, uint32_t cell)
{
	for (;;) {
		struct nvefs_miss miss;
		struct nvefs_mblk *b;
		uint64_t value = 0;
		int err;

		nvefs_store_rdlock(f->st);
		err = cell_find(f, cell, &miss, &b);
		if (!err)
			value = *cell_value(b);
		nvefs_store_rdunlock(f->st);
		if (!err)
			return value;
		ck_assert_int_eq(err, -EAGAIN);
		err = cell_fetch(f, q, &miss, cell);
		if (err == -ENOENT)
			return 0;
		ck_assert_int_eq(err, 0);
	}
}

void device_read(struct fixture *f, uint64_t pblk, void *buf)
{
	ck_assert_int_eq(nvefs_queue_read(f->q, pblk, 1, buf), 0);
}

void device_write(struct fixture *f, uint64_t pblk, const void *buf)
{
	ck_assert_int_eq(nvefs_queue_write(f->q, pblk, 1, buf, 0), 0);
	ck_assert_int_eq(nvefs_queue_flush(f->q), 0);
}

void device_damage(struct fixture *f, uint64_t pblk, uint32_t byte)
{
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	device_read(f, pblk, buf);
	buf[byte] ^= 0xff;
	device_write(f, pblk, buf);
	nvefs_buf_free(buf);
}

/* ---- mkfs ---- */

static uint64_t plan_free(const struct nvefs_mkfs_tree *t, uint64_t *ret_nodes)
{
	uint64_t free_blks = 0;

	*ret_nodes = 0;
	for (uint32_t g = 0; g < t->sb->ngroups; g++) {
		free_blks += nvefs_mkfs_tree_group_free(t, g);
		struct nvefs_mkfs_run runs[2];

		for (uint32_t n = nvefs_mkfs_tree_group_runs(t, g, runs); n-- > 0;)
			*ret_nodes += runs[n].len;
	}
	return free_blks;
}

START_TEST(mkfs_plan_adds_up_for_all_sizes)
{
	static const uint64_t sizes[] = {16384,		   16385,      32256 * 2,   32256 * 2 + 64,
					 32256 * 101 + 77, 7864320000, 1ull << 36};
	const struct nvefs_mkfs_params params = {0};
	struct nvefs_super sb = {0};
	struct nvefs_mkfs_tree t;
	uint64_t free_blks, nodes, fixed = 0;

	ck_assert_int_eq(nvefs_layout_make(sizes[_i], 0, &sb), 0);
	ck_assert_int_eq(nvefs_mkfs_tree_plan(&t, &sb, &params, 1), 0);
	free_blks = plan_free(&t, &nodes);
	for (uint32_t g = 0; g < sb.ngroups; g++)
		fixed += nvefs_layout_group_fixed(&sb, g);
	ck_assert_uint_eq(nodes, t.nnodes);
	ck_assert_uint_eq(fixed + nodes + free_blks, sb.nblks);
	ck_assert_uint_eq(t.count[t.height - 1], 1);
}
END_TEST

struct walk {
	struct fixture *f;
	uint64_t nodes, items, groups_free;
	struct nvefs_key last;
};

/* Every node checks, keys ascend over all leaves, and each node's bit is set. */
static void walk_node(struct walk *w, uint64_t pblk, uint32_t level)
{
	const struct nvefs_block_expect want = {
		.pblk = pblk, .txn = 1, .uuid = w->f->sb.uuid, .type = NVEFS_BT_NODE};
	struct nvefs_disk_bitmap *map = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint32_t n;

	device_read(w->f, pblk, buf);
	ck_assert_int_eq(nvefs_block_check(buf, &want), NVEFS_BLOCK_OK);
	ck_assert_int_eq(nvefs_node_check(buf), 0);
	ck_assert_uint_eq(nvefs_node_level(buf), level);
	device_read(w->f, nvefs_layout_bitmap_pblk(nvefs_layout_group(pblk)), map);
	ck_assert(nvefs_bitmap_test(map->bits, pblk % NVEFS_GROUP_BLKS));
	nvefs_buf_free(map);
	w->nodes++;
	n = nvefs_node_nitems(buf);
	for (uint32_t i = 0; i < n; i++) {
		struct nvefs_key key = nvefs_node_key(buf, i);

		if (level) {
			walk_node(w, nvefs_inner_pblk(buf, i), level - 1);
			continue;
		}
		ck_assert(!w->items || nvefs_key_cmp(&w->last, &key) < 0);
		w->last = key;
		w->items++;
		if (key.kind == NVEFS_KIND_GROUP) {
			uint32_t len;
			const struct nvefs_disk_group *g = nvefs_leaf_value(buf, i, &len);

			w->groups_free += le32_get(g->free_blks);
		}
	}
	nvefs_buf_free(buf);
}

/* Zero bits over all bitmaps. */
static uint64_t zero_bits(struct fixture *f)
{
	struct nvefs_disk_bitmap *map = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint64_t zeros = 0;

	for (uint32_t g = 0; g < f->sb.ngroups; g++) {
		device_read(f, nvefs_layout_bitmap_pblk(g), map);
		zeros += NVEFS_GROUP_BLKS - nvefs_bitmap_count(map->bits, NVEFS_GROUP_BLKS);
	}
	nvefs_buf_free(map);
	return zeros;
}

START_TEST(mkfs_content_is_consistent)
{
	const char *sizes[] = {"ram:64M", "ram:300M", "ram:8G"};
	struct fixture f;
	struct walk w = {.f = &f};
	struct nvefs_root *root;

	fixture_init(&f, sizes[_i], NULL);
	root = nvefs_store_root(f.st);
	walk_node(&w, root->tree_pblk, root->tree_height - 1);
	ck_assert_uint_eq(w.nodes, root->meta_blks);
	ck_assert_uint_eq(w.items, f.sb.ngroups);
	ck_assert_uint_eq(w.groups_free, root->free_blks);
	ck_assert_uint_eq(zero_bits(&f), root->free_blks);
	fixture_done(&f);
}
END_TEST

START_TEST(mkfs_takes_items)
{
	struct nvefs_mkfs_item items[300];
	char val[NVEFS_VALUE_MAX] = "value";
	struct nvefs_mkfs_params params = {.items = items, .nitems = 300, .inodes = 300};
	struct fixture f = {0};
	struct walk w = {.f = &f};
	struct nvefs_root *root;
	struct nvefs_error err;

	for (uint32_t i = 0; i < 300; i++)
		items[i] = (struct nvefs_mkfs_item){nvefs_key_make(1 + i, NVEFS_KIND_INODE, 0), val,
						    i * 37 % (NVEFS_VALUE_MAX + 1)};
	ck_assert_int_eq(nvefs_dev_open("ram:64M", &(struct nvefs_dev_open_opts){0}, &f.dev, &err), 0);
	ck_assert_int_eq(nvefs_store_mkfs(f.dev, &params, &f.sb, &err), 0);
	f.q = test_queue(f.dev);
	fixture_open(&f, NULL);
	root = nvefs_store_root(f.st);
	walk_node(&w, root->tree_pblk, root->tree_height - 1);
	ck_assert_uint_eq(w.items, 300 + f.sb.ngroups);
	ck_assert_uint_eq(zero_bits(&f), root->free_blks);
	fixture_close(&f);

	items[1].key = items[0].key;
	ck_assert_int_eq(nvefs_store_mkfs(f.dev, &params, NULL, &err), -EINVAL);
	fixture_done(&f);
}
END_TEST

/* ---- Transactions ---- */

START_TEST(changes_survive_an_orderly_stop)
{
	struct fixture f;

	fixture_init(&f, "ram:256M,vwc=on", NULL);
	for (uint32_t i = 0; i < 300; i++)
		ck_assert_int_eq(cells_put(&f, f.q, i, 1, i + 1), 0);
	fixture_close(&f);
	fixture_open(&f, NULL);
	ck_assert_uint_eq(f.st->stats.recovered_txns, 0);
	for (uint32_t i = 0; i < 300; i++)
		ck_assert_uint_eq(cell_get(&f, f.q, i), i + 1);
	ck_assert_uint_eq(cell_get(&f, f.q, 300), 0);
	fixture_done(&f);
}
END_TEST

START_TEST(committed_changes_survive_a_crash)
{
	struct nvefs_store_opts opts = {.commit_interval_ns = 1000000000000, .fua_commit = _i};
	struct fixture f;

	fixture_init(&f, "ram:256M,vwc=on", &opts);
	ck_assert_int_eq(cells_put(&f, f.q, 0, 100, 7), 0);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	ck_assert_int_eq(cells_put(&f, f.q, 50, 100, 8), 0);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	ck_assert_int_eq(cells_put(&f, f.q, 0, 200, 9), 0);
	fixture_crash(&f);
	fixture_open(&f, NULL);
	ck_assert_uint_eq(f.st->stats.recovered_txns, 2);
	for (uint32_t i = 0; i < 200; i++)
		ck_assert_uint_eq(cell_get(&f, f.q, i), i < 50 ? 7 : i < 150 ? 8 : 0);
	fixture_done(&f);
}
END_TEST

START_TEST(nothing_dirty_completes_at_once)
{
	struct fixture f;
	struct nvefs_dev_counters before, after;

	fixture_init(&f, "ram:256M,vwc=on", NULL);
	ck_assert_int_eq(cells_put(&f, f.q, 0, 1, 7), 0);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	nvefs_dev_counters(f.dev, &before);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(nvefs_commit_run(f.st, i & 1), 0);
	nvefs_dev_counters(f.dev, &after);
	ck_assert_uint_eq(before.commands[NVEFS_IO_WRITE], after.commands[NVEFS_IO_WRITE]);
	ck_assert_uint_eq(before.commands[NVEFS_IO_FLUSH], after.commands[NVEFS_IO_FLUSH]);
	fixture_done(&f);
}
END_TEST

START_TEST(a_commit_flushes_twice)
{
	struct fixture f;
	struct nvefs_dev_counters before, after;

	fixture_init(&f, _i ? "ram:256M,vwc=off" : "ram:256M,vwc=on", NULL);
	nvefs_dev_counters(f.dev, &before);
	ck_assert_int_eq(cells_put(&f, f.q, 0, 1, 7), 0);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	nvefs_dev_counters(f.dev, &after);
	ck_assert_uint_eq(after.commands[NVEFS_IO_FLUSH] - before.commands[NVEFS_IO_FLUSH], _i ? 0 : 2);
	fixture_done(&f);
}
END_TEST

/* ---- Many threads ---- */

#define THREADS 8
#define ROUNDS 200

struct worker {
	struct fixture *f;
	pthread_t thread;
	uint32_t id;
	uint64_t last;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct nvefs_queue *q = test_queue(w->f->dev);
	unsigned int seed = w->id;

	for (uint32_t i = 1; i <= ROUNDS; i++) {
		uint32_t n = 1 + (uint32_t)rand_r(&seed) % 20;

		ck_assert_int_eq(cells_put(w->f, q, w->id * 100, n, i), 0);
		ck_assert_uint_eq(cell_get(w->f, q, w->id * 100 + n - 1), i);
		if (rand_r(&seed) % 4 == 0)
			ck_assert_int_eq(nvefs_commit_run(w->f->st, false), 0);
		w->last = i;
	}
	nvefs_queue_done(q);
	return NULL;
}

START_TEST(many_threads_share_transactions)
{
	struct nvefs_store_opts opts = {.cache_bytes = 1};
	struct worker w[THREADS];
	struct nvefs_store_stats stats;
	struct fixture f;

	fixture_init(&f, "ram:256M,vwc=on", &opts);
	for (uint32_t i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.f = &f, .id = i};
		ck_assert_int_eq(nvefs_thread_start(&w[i].thread, "worker", worker_main, &w[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		nvefs_thread_join(w[i].thread);
	nvefs_store_stats(f.st, &stats);
	ck_assert_uint_ge(stats.checkpoints, 2);
	fixture_close(&f);
	fixture_open(&f, NULL);
	for (uint32_t i = 0; i < THREADS; i++)
		ck_assert_uint_eq(cell_get(&f, f.q, i * 100), w[i].last);
	fixture_done(&f);
}
END_TEST

static void *sync_main(void *arg)
{
	struct worker *w = arg;
	struct nvefs_queue *q = test_queue(w->f->dev);

	for (uint32_t i = 1; i <= 50; i++) {
		ck_assert_int_eq(cells_put(w->f, q, w->id, 1, i), 0);
		ck_assert_int_eq(nvefs_commit_run(w->f->st, false), 0);
		ck_assert_uint_ge(nvefs_txn_durable(w->f->st), 1);
	}
	nvefs_queue_done(q);
	return NULL;
}

START_TEST(concurrent_syncs_share_commits)
{
	struct worker w[THREADS];
	struct nvefs_store_stats stats;
	struct fixture f;

	fixture_init(&f, "ram:256M,vwc=on,latency=200us", NULL);
	for (uint32_t i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.f = &f, .id = i};
		ck_assert_int_eq(nvefs_thread_start(&w[i].thread, "sync", sync_main, &w[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		nvefs_thread_join(w[i].thread);
	nvefs_store_stats(f.st, &stats);
	/* 400 requests: without sharing as many commits. */
	ck_assert_uint_ge(stats.commits, 50);
	ck_assert_uint_le(stats.commits, 250);
	fixture_crash(&f);
	fixture_open(&f, NULL);
	for (uint32_t i = 0; i < THREADS; i++)
		ck_assert_uint_eq(cell_get(&f, f.q, i), 50);
	fixture_done(&f);
}
END_TEST

/* ---- Folding ---- */

struct folder {
	struct fixture *f;
	uint32_t pending, folds; /* pending: guarded by lock */
	struct nvefs_mutex lock;
	int err;
};

/* More than one transaction can hold, so that folding must commit in between. */
static int fold(void *arg, struct nvefs_queue *q)
{
	struct folder *o = arg;
	uint32_t n;
	int err = 0;

	nvefs_mutex_lock(&o->lock);
	n = o->pending;
	o->pending = 0;
	nvefs_mutex_unlock(&o->lock);
	o->folds++;
	for (uint32_t i = 0; i < n && !err; i += 100)
		err = cells_put(o->f, q, i, 100, 5);
	return err ? err : o->err;
}

START_TEST(fold_runs_before_the_commit)
{
	struct fixture f;
	struct folder o = {.f = &f, .pending = 3000};
	struct nvefs_store_opts opts = {
		.fold = fold, .fold_arg = &o, .commit_interval_ns = 1000000000000};

	nvefs_mutex_init(&o.lock);
	fixture_init(&f, "ram:256M,vwc=on", &opts);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	ck_assert_uint_eq(cell_get(&f, f.q, 2999), 0);
	ck_assert_int_eq(nvefs_commit_run(f.st, true), 0);
	ck_assert_uint_eq(o.folds, 1);
	o.err = -ENOSPC;
	ck_assert_int_eq(nvefs_commit_run(f.st, true), -ENOSPC);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	fixture_crash(&f);
	o.err = 0;
	fixture_open(&f, NULL);
	ck_assert_uint_eq(cell_get(&f, f.q, 2999), 5);
	fixture_done(&f);
	nvefs_mutex_done(&o.lock);
}
END_TEST

START_TEST(the_timer_folds_and_commits)
{
	struct fixture f;
	struct folder o = {.f = &f, .pending = 100};
	struct nvefs_store_opts opts = {
		.fold = fold, .fold_arg = &o, .commit_interval_ns = 20000000};
	struct nvefs_store_stats stats;
	int waits = 0;

	nvefs_mutex_init(&o.lock);
	fixture_init(&f, "ram:256M,vwc=on", &opts);
	do {
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		nvefs_store_stats(f.st, &stats);
	} while ((!stats.commits || !stats.checkpoints) && ++waits < 500);
	ck_assert_uint_ge(stats.commits, 1);
	ck_assert_uint_ge(stats.checkpoints, 1); /* idle: the journal is emptied */
	fixture_done(&f);
	nvefs_mutex_done(&o.lock);
}
END_TEST

/* ---- Cache ---- */

START_TEST(the_cache_keeps_to_its_size)
{
	struct nvefs_store_opts opts = {.cache_bytes = 1};
	struct nvefs_store_stats stats;
	struct fixture f;

	fixture_init(&f, "ram:256M", &opts);
	for (uint32_t i = 0; i < 5000; i += 100)
		ck_assert_int_eq(cells_put(&f, f.q, i, 100, i + 1), 0);
	ck_assert_int_eq(nvefs_commit_reclaim(f.st), 0);
	for (uint32_t i = 0; i < 5000; i += 3)
		ck_assert_uint_eq(cell_get(&f, f.q, i), i / 100 * 100 + 1);
	nvefs_store_stats(f.st, &stats);
	ck_assert_uint_le(stats.cache_blks, (NVEFS_CACHE_BYTES_MIN >> NVEFS_BLOCK_SHIFT) + 20);
	ck_assert_uint_ge(stats.loads, 1000);
	fixture_done(&f);
}
END_TEST

/* Freed blocks are dropped when durable, and their images never go home afterwards. */
START_TEST(freed_blocks_leave_the_cache)
{
	struct nvefs_store_opts opts = {.commit_interval_ns = 1000000000000};
	struct nvefs_block_ref at = {0};
	struct nvefs_miss miss;
	struct nvefs_mblk *b;
	struct nvefs_txn t;
	struct fixture f;
	uint64_t pblk;

	fixture_init(&f, "ram:256M,vwc=on", &opts);
	pblk = at.pblk = cell_pblk(&f, 3);
	ck_assert_int_eq(cells_put(&f, f.q, 3, 1, 7), 0);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	ck_assert_int_eq(nvefs_txn_begin(f.st, f.q, 2, 0, &t), 0);
	ck_assert_int_eq(nvefs_cache_get(f.st, at, NVEFS_BT_NODE, &miss, &b), 0);
	nvefs_cache_forget(&t, b);
	ck_assert_int_eq(nvefs_cache_get(f.st, at, NVEFS_BT_NODE, &miss, &b), -EUCLEAN);
	nvefs_store_root(f.st)->next_ino++;
	nvefs_txn_end(&t);
	ck_assert_int_eq(nvefs_commit_reclaim(f.st), 0);
	nvefs_store_rdlock(f.st);
	ck_assert_ptr_null(nvefs_cache_peek(f.st, pblk));
	nvefs_store_rdunlock(f.st);
	ck_assert(!cell_exists(&f, f.q, 3));
	fixture_done(&f);
}
END_TEST

/* A miss that is older than the block's life does not bring back its old content. */
START_TEST(an_outdated_miss_loads_nothing)
{
	struct nvefs_block_ref at = {0};
	struct nvefs_miss miss, again;
	struct nvefs_mblk *b;
	struct nvefs_txn t;
	struct fixture f;

	fixture_init(&f, "ram:256M", NULL);
	ck_assert_int_eq(cells_put(&f, f.q, 3, 1, 7), 0);
	fixture_close(&f);
	fixture_open(&f, NULL);
	at.pblk = cell_pblk(&f, 3);
	nvefs_store_rdlock(f.st);
	ck_assert_int_eq(nvefs_cache_get(f.st, at, NVEFS_BT_NODE, &miss, &b), -EAGAIN);
	nvefs_store_rdunlock(f.st);
	ck_assert_uint_eq(cell_get(&f, f.q, 3), 7);
	ck_assert_int_eq(nvefs_txn_begin(f.st, f.q, 2, 0, &t), 0);
	ck_assert_int_eq(nvefs_cache_get(f.st, at, NVEFS_BT_NODE, &again, &b), 0);
	nvefs_cache_forget(&t, b);
	nvefs_store_root(f.st)->next_ino++;
	nvefs_txn_end(&t);
	ck_assert_int_eq(nvefs_commit_reclaim(f.st), 0);
	miss.txn = 999999; /* whatever it expects: it is out of date, not damaged */
	ck_assert_int_eq(nvefs_store_load(f.st, f.q, &miss), 0);
	nvefs_store_rdlock(f.st);
	ck_assert_ptr_null(nvefs_cache_peek(f.st, miss.pblk));
	nvefs_store_rdunlock(f.st);
	fixture_done(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store");
	TCase *tc = tcase_create("store");

	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, mkfs_plan_adds_up_for_all_sizes, 0, 7);
	tcase_add_loop_test(tc, mkfs_content_is_consistent, 0, 3);
	tcase_add_test(tc, mkfs_takes_items);
	tcase_add_test(tc, changes_survive_an_orderly_stop);
	tcase_add_loop_test(tc, committed_changes_survive_a_crash, 0, 2);
	tcase_add_test(tc, nothing_dirty_completes_at_once);
	tcase_add_loop_test(tc, a_commit_flushes_twice, 0, 2);
	tcase_add_test(tc, many_threads_share_transactions);
	tcase_add_test(tc, concurrent_syncs_share_commits);
	tcase_add_test(tc, fold_runs_before_the_commit);
	tcase_add_test(tc, the_timer_folds_and_commits);
	tcase_add_test(tc, the_cache_keeps_to_its_size);
	tcase_add_test(tc, freed_blocks_leave_the_cache);
	tcase_add_test(tc, an_outdated_miss_loads_nothing);
	suite_add_tcase(s, tc);
	return run_suites(s, store_ahead_suite(), store_journal_suite(), store_damage_suite(), store_copies_suite(), store_cache_suite(),
			  NULL);
}
