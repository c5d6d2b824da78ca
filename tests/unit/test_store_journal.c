/* SPDX-License-Identifier: MIT */
/* The journal: wrapping, cuts between any two commands, failures of the device. */
#include <stdlib.h>
#include <string.h>

#include "device/embedded.h"
#include "test_plug.h"
#include "test_store.h"

static const struct nvefs_store_opts by_hand = {.commit_interval_ns = 1000000000000};

START_TEST(the_log_wraps)
{
	struct nvefs_store_stats stats;
	struct fixture f;
	uint64_t round = 0;

	fixture_init(&f, "ram:128M,vwc=on", &by_hand);
	/* Descriptor, images, root and commit block: so sizes that hit the end in many ways. */
	do {
		round++;
		ck_assert_int_eq(cells_put(&f, f.q, (uint32_t)round % 7, 150 + round % 13, round), 0);
		ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
		nvefs_store_stats(f.st, &stats);
		/* Half, and one group more while the checkpoint runs. */
		ck_assert_uint_le(stats.journal_live_blks, stats.journal_blks / 2 + 170);
	} while (stats.commit_blks < 5 * stats.journal_blks);
	ck_assert_uint_ge(stats.checkpoints, 9);
	fixture_crash(&f);
	fixture_open(&f, NULL);
	ck_assert_uint_eq(cell_get(&f, f.q, 6), round);
	ck_assert_uint_eq(cell_get(&f, f.q, 140), round);
	fixture_done(&f);
}
END_TEST

START_TEST(a_full_transaction_fits)
{
	struct fixture f;
	uint32_t max;

	fixture_init(&f, "ram:256M,vwc=on", &by_hand);
	max = nvefs_txn_max_credits(f.st);
	ck_assert_uint_gt(max, 400);
	for (uint32_t i = 1; i <= 20; i++)
		ck_assert_int_eq(cells_put(&f, f.q, 0, max, i), 0);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	fixture_crash(&f);
	fixture_open(&f, NULL);
	for (uint32_t i = 0; i < max; i++)
		ck_assert_uint_eq(cell_get(&f, f.q, i), 20);
	fixture_done(&f);
}
END_TEST

/* ---- Cuts ---- */

/* Cells 0 to 39 and more always change together, so that half a transaction shows. */
#define GROUP_CELLS 40u

struct cut_fixture {
	struct fixture f;
	struct plug *plug;
	struct nvefs_dev *ram;
};

static void cut_fixture_init(struct cut_fixture *c)
{
	const struct nvefs_mkfs_params params = {.creator = "test_store"};
	struct nvefs_error err = {""};

	memset(c, 0, sizeof(*c));
	ck_assert_msg(nvefs_dev_open("ram:64M,vwc=on", &(struct nvefs_dev_open_opts){0}, &c->ram, &err) == 0,
		      "%s", err.text);
	c->plug = plug_open(c->ram);
	c->f.dev = &c->plug->dev;
	ck_assert_msg(nvefs_store_mkfs(c->f.dev, &params, &c->f.sb, &err) == 0, "%s", err.text);
	c->f.q = test_queue(c->f.dev);
	fixture_open(&c->f, &by_hand);
}

/* Work until the power is gone; *ret_durable is the last value that was promised. */
static uint64_t work_until_cut(struct cut_fixture *c, uint64_t value, uint64_t *ret_durable)
{
	for (;;) {
		value++;
		if (cells_put(&c->f, c->f.q, 0, GROUP_CELLS, value) != 0)
			return value;
		/* Others besides, so that checkpoints happen soon. */
		if (cells_put(&c->f, c->f.q, GROUP_CELLS, 300, value) != 0)
			return value;
		if (value % 3 == 0)
			continue;
		if (nvefs_commit_run(c->f.st, false) != 0)
			return value;
		*ret_durable = value;
	}
}

static void check_cells(struct cut_fixture *c, uint64_t durable, uint64_t newest, int64_t cut, uint64_t seed)
{
	uint64_t first = cell_get(&c->f, c->f.q, 0), other = cell_get(&c->f, c->f.q, GROUP_CELLS);

	ck_assert_msg(first >= durable && first <= newest, "cut %lld seed %llu: %llu, promised %llu to %llu",
		      (long long)cut, (unsigned long long)seed, (unsigned long long)first,
		      (unsigned long long)durable, (unsigned long long)newest);
	for (uint32_t i = 1; i < GROUP_CELLS; i++)
		ck_assert_msg(cell_get(&c->f, c->f.q, i) == first, "cut %lld seed %llu: half a transaction",
			      (long long)cut, (unsigned long long)seed);
	/* The second transaction of a pair is there wholly or not, and not before the first. */
	ck_assert(other == first || other + 1 == first);
	for (uint32_t i = 1; i < 300; i++)
		ck_assert_uint_eq(cell_get(&c->f, c->f.q, GROUP_CELLS + i), other);
}

/* Recovery itself is cut, again and again, a few commands later each time. */
static void reopen_through_cuts(struct cut_fixture *c, uint64_t seed)
{
	struct nvefs_error err = {""};

	for (int64_t n = (int64_t)(seed % 3);; n += 3) {
		int rc;

		plug_pull_after(c->plug, n);
		rc = fixture_try_open(&c->f, &by_hand, &err);
		if (!rc)
			break;
		ck_assert_msg(rc == -EIO, "%s", err.text);
		ck_assert_int_eq(nvefs_embedded_power_cut(c->ram, seed + (uint64_t)n, NULL), 0);
	}
	plug_pull_after(c->plug, PLUG_NEVER);
	ck_assert_int_eq(nvefs_store_start(c->f.st), 0);
}

START_TEST(any_cut_leaves_old_or_new)
{
	struct cut_fixture c;
	uint64_t durable = 0, value = 0;
	unsigned int seed = 1000u + (unsigned int)_i;

	cut_fixture_init(&c);
	for (int i = 0; i < 8; i++) {
		int64_t cut = rand_r(&seed) % 60;

		plug_pull_after(c.plug, cut);
		value = work_until_cut(&c, value, &durable);
		nvefs_store_stop(c.f.st);
		nvefs_store_free(c.f.st);
		c.f.st = NULL;
		ck_assert_int_eq(nvefs_embedded_power_cut(c.ram, seed, NULL), 0);
		reopen_through_cuts(&c, seed);
		check_cells(&c, durable, value, cut, seed);
		durable = cell_get(&c.f, c.f.q, 0);
	}
	fixture_done(&c.f);
}
END_TEST

/* ---- Failures ---- */

START_TEST(a_failed_command_ends_writing)
{
	struct cut_fixture c;
	struct nvefs_txn t;

	/* The n-th command of a commit fails once: group, Flush, commit block, Flush. */
	cut_fixture_init(&c);
	ck_assert_int_eq(cells_put(&c.f, c.f.q, 0, 10, 1), 0);
	ck_assert_int_eq(nvefs_commit_run(c.f.st, false), 0);
	ck_assert_int_eq(cells_put(&c.f, c.f.q, 0, 10, 2), 0);
	c.plug->fail_one = true;
	plug_pull_after(c.plug, _i);
	ck_assert_int_eq(nvefs_commit_run(c.f.st, false), -EIO);
	ck_assert_int_eq(nvefs_store_error(c.f.st), -EIO);
	ck_assert_int_eq(nvefs_commit_run(c.f.st, false), -EIO);
	ck_assert_int_eq(nvefs_commit_run(c.f.st, true), -EIO);
	ck_assert_int_eq(nvefs_commit_reclaim(c.f.st), -EIO);
	ck_assert_int_eq(nvefs_txn_begin(c.f.st, c.f.q, 1, 0, &t), -EROFS);
	ck_assert_uint_eq(cell_get(&c.f, c.f.q, 3), 2); /* reading goes on */
	ck_assert_int_eq(nvefs_store_stop(c.f.st), -EIO);
	nvefs_store_free(c.f.st);
	c.f.st = NULL;
	fixture_open(&c.f, NULL);
	ck_assert_uint_ge(cell_get(&c.f, c.f.q, 3), 1);
	fixture_done(&c.f);
}
END_TEST

START_TEST(a_failed_checkpoint_ends_writing)
{
	struct cut_fixture c;
	int64_t before;

	cut_fixture_init(&c);
	ck_assert_int_eq(cells_put(&c.f, c.f.q, 0, 10, 1), 0);
	ck_assert_int_eq(nvefs_commit_run(c.f.st, false), 0);
	before = (int64_t)c.plug->count;
	c.plug->fail_one = true;
	plug_pull_after(c.plug, _i);
	ck_assert_int_eq(nvefs_commit_reclaim(c.f.st), -EIO);
	ck_assert_int_ge((int64_t)c.plug->count - before, _i + 1);
	ck_assert_int_eq(nvefs_store_stop(c.f.st), -EIO);
	nvefs_store_free(c.f.st);
	c.f.st = NULL;
	fixture_open(&c.f, NULL);
	ck_assert_uint_eq(cell_get(&c.f, c.f.q, 3), 1);
	fixture_done(&c.f);
}
END_TEST

Suite *store_journal_suite(void)
{
	Suite *s = suite_create("store-journal");
	TCase *tc = tcase_create("journal");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_log_wraps);
	tcase_add_test(tc, a_full_transaction_fits);
	tcase_add_loop_test(tc, any_cut_leaves_old_or_new, 0, 3);
	tcase_add_loop_test(tc, a_failed_command_ends_writing, 0, 4);
	tcase_add_loop_test(tc, a_failed_checkpoint_ends_writing, 0, 4);
	suite_add_tcase(s, tc);
	return s;
}
