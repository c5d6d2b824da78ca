/* SPDX-License-Identifier: MIT */
/*
 * Find, verify, share over a real store on memory: whatever the index says, a
 * block that is SHARED holds the same bytes and stays while it is pinned.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "dedup/batch.h"
#include "device/backend.h"
#include "store/alloc.h"
#include "store/mkfs.h"
#include "store/tree.h"
#include "test_dedup.h"

#define N 64u

struct lab {
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	struct nvefs_store *st;
	struct nvefs_dedup_index *ix;
	struct nvefs_dedup_batch b;
	struct nvefs_dedup_block blks[N];
	struct nvefs_alloc_cursor c;
	uint8_t *data;
	uint32_t done;
};

static void batch_done(struct nvefs_dedup_batch *b)
{
	struct lab *l = b->arg;

	l->done++;
}

static void lab_open_store(struct lab *l)
{
	struct nvefs_error err = {""};

	ck_assert_msg(nvefs_store_open(l->dev, NULL, &l->st, &err) == 0, "%s", err.text);
	ck_assert_int_eq(nvefs_store_start(l->st), 0);
	ck_assert_int_eq(nvefs_dedup_batch_init(&l->b, l->st, l->q, N), 0);
	l->b.ix = l->ix;
	l->b.blks = l->blks;
	l->b.done = batch_done;
	l->b.arg = l;
}

static void lab_close_store(struct lab *l)
{
	nvefs_dedup_batch_done(&l->b);
	ck_assert_int_eq(nvefs_store_stop(l->st), 0);
	nvefs_store_free(l->st);
}

static void lab_init(struct lab *l)
{
	const struct nvefs_mkfs_params params = {.label = "test", .creator = "test_dedup"};
	const struct nvefs_dev_open_opts open_opts = {0};
	struct nvefs_error err = {""};

	memset(l, 0, sizeof(*l));
	ck_assert_msg(nvefs_dev_open("ram:300M", &open_opts, &l->dev, &err) == 0, "%s", err.text);
	ck_assert_msg(nvefs_store_mkfs(l->dev, &params, NULL, &err) == 0, "%s", err.text);
	ck_assert_int_eq(nvefs_queue_init(l->dev, 0, &l->q), 0);
	ck_assert_int_eq(nvefs_dedup_index_new(1 << 20, &l->ix), 0);
	l->data = nvefs_buf_new(N * NVEFS_BLOCK_SIZE);
	lab_open_store(l);
}

static void lab_done(struct lab *l)
{
	lab_close_store(l);
	nvefs_dedup_index_free(l->ix);
	nvefs_queue_done(l->q);
	nvefs_dev_close(l->dev);
	nvefs_buf_free(l->data);
}

/* Block i of the batch gets the content with this number. */
static void set(struct lab *l, uint32_t i, uint64_t content)
{
	uint64_t *p = (uint64_t *)(l->data + i * NVEFS_BLOCK_SIZE);

	for (uint32_t k = 0; k < NVEFS_BLOCK_SIZE / 8; k++)
		p[k] = content + (k == 300); /* not all words alike */
	l->blks[i] =
	    (struct nvefs_dedup_block){.data = p, .fp = nvefs_hash(p, NVEFS_BLOCK_SIZE, 42)};
}

/* Run the batch as the data path does. Returns what start said. */
static int run(struct lab *l, uint32_t n)
{
	int pending;

	l->b.nblks = n;
	l->done = 0;
	pending = nvefs_dedup_batch_start(&l->b);
	if (!pending)
		return 0;
	while (!l->done)
		if (!nvefs_queue_poll(l->q, 0))
			nvefs_queue_wait(l->q, UINT64_MAX);
	ck_assert_uint_eq(l->done, 1);
	nvefs_dedup_batch_finish(&l->b);
	return pending;
}

/* Store block i: written, mapped (one memory reference), known to the index. */
static uint64_t store(struct lab *l, uint32_t i)
{
	uint64_t pblk;
	uint32_t got;

	ck_assert_int_eq(nvefs_alloc_data(l->st, l->q, &l->c, 1, &pblk, &got, NULL), 0);
	ck_assert_int_eq(nvefs_queue_write(l->q, pblk, 1, l->blks[i].data, 0), 0);
	nvefs_block_map(l->st, pblk, 1);
	nvefs_dedup_index_insert(l->ix, l->blks[i].fp, pblk, false);
	return pblk;
}

/* The memory reference becomes a tree reference. */
static void fold(struct lab *l, uint64_t pblk)
{
	struct nvefs_txn t;
	int err;

	do {
		struct nvefs_miss miss;

		ck_assert_int_eq(nvefs_txn_begin(l->st, l->q, nvefs_ref_credits(l->st), 0, &t), 0);
		err = nvefs_ref_prepare(&t, pblk);
		if (!err)
			ck_assert_int_eq(nvefs_ref_up(&t, pblk), 0);
		miss = t.miss;
		nvefs_txn_end(&t);
		if (!nvefs_store_retry(l->st, l->q, &miss, &err))
			break;
	} while (true);
	ck_assert_int_eq(err, 0);
	ck_assert(!nvefs_block_unpin(l->st, pblk));
}

START_TEST(nothing_known)
{
	struct lab l;

	lab_init(&l);
	for (uint32_t i = 0; i < N; i++)
		set(&l, i, i);
	ck_assert_int_eq(run(&l, N), 0);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(l.blks[i].verdict, NVEFS_DEDUP_UNIQUE);
	ck_assert_int_eq(run(&l, 0), 0);
	lab_done(&l);
}
END_TEST

START_TEST(twins_within_a_batch)
{
	struct lab l;

	lab_init(&l);
	for (uint32_t i = 0; i < N; i++)
		set(&l, i, i % 3);
	l.blks[7].fp = l.blks[9].fp; /* a collision: content 1 with the fingerprint of content 0 */
	ck_assert_int_eq(run(&l, N), 0);
	for (uint32_t i = 0; i < N; i++) {
		if (i < 3 || i == 7) {
			ck_assert_int_eq(l.blks[i].verdict, NVEFS_DEDUP_UNIQUE);
		} else {
			ck_assert_int_eq(l.blks[i].verdict, NVEFS_DEDUP_TWIN);
			ck_assert_uint_eq(l.blks[i].of, i % 3);
		}
	}
	lab_done(&l);
}
END_TEST

START_TEST(shared_after_compare)
{
	struct nvefs_dedup_index_stats s;
	struct nvefs_dev_counters c0, c1;
	uint64_t pblk[N];
	struct lab l;

	lab_init(&l);
	for (uint32_t i = 0; i < N; i++) {
		set(&l, i, 1000 + i);
		pblk[i] = store(&l, i);
	}
	/* The first half again, twice each; the rest new. */
	for (uint32_t i = 0; i < N; i++)
		set(&l, i, i < N / 2 ? 1000 + i / 2 : 5000 + i);
	nvefs_dev_counters(l.dev, &c0);
	ck_assert_int_eq(run(&l, N), 1);
	nvefs_dev_counters(l.dev, &c1);
	ck_assert_uint_eq(c1.commands[NVEFS_IO_READ] - c0.commands[NVEFS_IO_READ],
			  1); /* neighbours */
	for (uint32_t i = 0; i < N; i++) {
		ck_assert_int_eq(l.blks[i].verdict,
				 i < N / 2 ? NVEFS_DEDUP_SHARED : NVEFS_DEDUP_UNIQUE);
		if (i < N / 2)
			ck_assert_uint_eq(l.blks[i].pblk, pblk[i / 2]);
	}
	nvefs_dedup_index_stats(l.ix, &s);
	ck_assert_uint_eq(s.hits, N / 4);
	ck_assert_uint_eq(s.false_hits, 0);
	/* The pins hold: the first owner goes, the block stays. */
	ck_assert(!nvefs_block_unpin(l.st, pblk[0]));
	ck_assert(!nvefs_block_unpin(l.st, l.blks[0].pblk));
	ck_assert(nvefs_block_unpin(l.st, l.blks[1].pblk));
	l.blks[0].verdict = l.blks[1].verdict = NVEFS_DEDUP_UNIQUE;
	nvefs_dedup_batch_drop(&l.b);
	ck_assert(nvefs_block_unpin(l.st, pblk[1]));
	lab_done(&l);
}
END_TEST

START_TEST(wrong_hints_do_no_harm)
{
	struct nvefs_dedup_index_stats s;
	struct lab l;
	uint64_t other, gone;

	lab_init(&l);
	set(&l, 0, 1);
	other = store(&l, 0);
	set(&l, 0, 2);
	gone = store(&l, 0);
	ck_assert(nvefs_block_unpin(l.st, gone));
	for (uint32_t i = 0; i < 8; i++)
		set(&l, i, 100 + i);
	nvefs_dedup_index_insert(l.ix, l.blks[0].fp, other, false);	   /* differs */
	nvefs_dedup_index_insert(l.ix, l.blks[1].fp, gone, false);	   /* quarantined */
	nvefs_dedup_index_insert(l.ix, l.blks[2].fp, 1, false);		   /* metadata */
	nvefs_dedup_index_insert(l.ix, l.blks[3].fp, 1ull << 50, false);   /* nowhere */
	nvefs_dedup_index_insert(l.ix, l.blks[4].fp, other + 5000, false); /* free */
	nvefs_dedup_index_insert(l.ix, l.blks[5].fp, other, false); /* the same wrong block */
	nvefs_dedup_index_insert(l.ix, l.blks[6].fp, 70000,
				 false); /* free, group not in memory yet */
	ck_assert_int_eq(run(&l, 8), 1);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(l.blks[i].verdict, NVEFS_DEDUP_UNIQUE);
	nvefs_dedup_index_stats(l.ix, &s);
	ck_assert_uint_eq(s.false_hits, 2);
	/* All forgotten: nothing is looked at again. */
	ck_assert_int_eq(run(&l, 8), 0);
	ck_assert(nvefs_block_unpin(l.st, other));
	lab_done(&l);
}
END_TEST

START_TEST(candidate_found_after_a_mount)
{
	struct lab l;
	uint64_t pblk;

	lab_init(&l);
	l.c.seed = 3;
	set(&l, 0, 1);
	pblk = store(&l, 0);
	fold(&l, pblk);
	lab_close_store(&l);
	lab_open_store(&l);
	set(&l, 0, 1);
	ck_assert_int_eq(run(&l, 1), 1);
	ck_assert_int_eq(l.blks[0].verdict, NVEFS_DEDUP_SHARED);
	ck_assert_uint_eq(l.blks[0].pblk, pblk);
	nvefs_dedup_batch_drop(&l.b);
	lab_done(&l);
}
END_TEST

/* Random blocks out of few contents, with fingerprints of 8 bits: everything still reads back
 * right. */
START_TEST(random_sharing)
{
	uint64_t owned[400], content[400];
	uint32_t nowned = 0, nshared = 0;
	unsigned int seed = 11;
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct lab l;

	lab_init(&l);
	if (_i)
		nvefs_dedup_index_limit_bits(l.ix, 8);
	for (int round = 0; round < 150; round++) {
		uint32_t n = 1 + (uint32_t)rand_r(&seed) % N;
		uint64_t at[N], what[N];

		for (uint32_t i = 0; i < n; i++) {
			what[i] = (uint32_t)rand_r(&seed) % 3000;
			set(&l, i, what[i]);
		}
		run(&l, n);
		for (uint32_t i = 0; i < n; i++) {
			if (l.blks[i].verdict == NVEFS_DEDUP_UNIQUE)
				at[i] = store(&l, i);
			else if (l.blks[i].verdict == NVEFS_DEDUP_SHARED)
				at[i] = l.blks[i].pblk;
			else
				ck_assert_int_eq(nvefs_block_pin(l.st, at[i] = at[l.blks[i].of]),
						 0);
			nshared += l.blks[i].verdict == NVEFS_DEDUP_SHARED;
		}
		for (uint32_t i = 0; i < n; i++) {
			uint32_t k = nowned < 400 ? nowned++ : (uint32_t)rand_r(&seed) % 400;

			if (k < nowned - 1 || round > 100) {
				uint64_t fp;

				ck_assert_int_eq(nvefs_queue_read(l.q, owned[k], 1, buf), 0);
				ck_assert_uint_eq(*(uint64_t *)(void *)buf, content[k]);
				fp = nvefs_hash(buf, NVEFS_BLOCK_SIZE, 42);
				/* Sometimes the hint is left behind, stale. */
				if (nvefs_block_unpin(l.st, owned[k]) && rand_r(&seed) % 2)
					nvefs_dedup_index_remove(l.ix, fp, owned[k]);
			}
			owned[k] = at[i];
			content[k] = what[i];
		}
		if (round % 10 == 0)
			ck_assert_int_eq(nvefs_commit_run(l.st, false), 0);
	}
	ck_assert_uint_gt(nshared, 100);
	nvefs_buf_free(buf);
	lab_done(&l);
}
END_TEST

/*
 * The candidate's owner overwrites it, and all that is free is written with
 * something else, while the batch compares. Returns whether the block that was
 * shared has the right content in the end.
 */
static bool survives_overwriting(void)
{
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct lab l;
	uint64_t pblk;
	bool right = true;

	lab_init(&l);
	set(&l, 0, 1);
	pblk = store(&l, 0);
	l.b.nblks = 1;
	l.done = 0;
	ck_assert_int_eq(nvefs_dedup_batch_start(&l.b), 1);
	while (!l.done)
		nvefs_queue_poll(l.q, 0);
	nvefs_block_unpin(l.st, pblk);
	nvefs_alloc_release(l.st, l.q, nvefs_txn_durable(l.st), 1);
	l.c.next_pblk = pblk;
	l.c.end_pblk = pblk + 1;
	set(&l, 1, 2);
	store(&l, 1);
	nvefs_dedup_batch_finish(&l.b);
	if (l.blks[0].verdict == NVEFS_DEDUP_SHARED) {
		ck_assert_int_eq(nvefs_queue_read(l.q, l.blks[0].pblk, 1, buf), 0);
		right = memcmp(buf, l.blks[0].data, NVEFS_BLOCK_SIZE) == 0;
	}
	nvefs_buf_free(buf);
	lab_done(&l);
	return right;
}

START_TEST(candidate_stays_while_it_is_compared)
{
	ck_assert(survives_overwriting());
	nvefs_dedup_mutation = NVEFS_DEDUP_MUTATE_NO_PIN;
	ck_assert(!survives_overwriting());
	nvefs_dedup_mutation = NVEFS_DEDUP_MUTATE_NONE;
}
END_TEST

START_TEST(mutants_share_what_differs)
{
	struct lab l;
	uint64_t pblk;

	lab_init(&l);
	set(&l, 0, 1);
	pblk = store(&l, 0);
	set(&l, 0, 2);
	nvefs_dedup_index_insert(l.ix, l.blks[0].fp, pblk, false);
	nvefs_dedup_mutation = NVEFS_DEDUP_MUTATE_NO_COMPARE;
	ck_assert_int_eq(run(&l, 1), 1);
	ck_assert_int_eq(l.blks[0].verdict, NVEFS_DEDUP_SHARED);
	nvefs_dedup_mutation = NVEFS_DEDUP_MUTATE_NONE;
	lab_done(&l);
}
END_TEST

TCase *test_dedup_batch(void)
{
	TCase *tc = tcase_create("batch");

	tcase_set_timeout(tc, 50);
	tcase_add_test(tc, nothing_known);
	tcase_add_test(tc, twins_within_a_batch);
	tcase_add_test(tc, shared_after_compare);
	tcase_add_test(tc, wrong_hints_do_no_harm);
	tcase_add_test(tc, candidate_found_after_a_mount);
	tcase_add_loop_test(tc, random_sharing, 0, 2);
	tcase_add_test(tc, candidate_stays_while_it_is_compared);
	tcase_add_test(tc, mutants_share_what_differs);
	return tc;
}
