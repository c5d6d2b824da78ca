/* SPDX-License-Identifier: MIT */
/* The fingerprint index. */
#include <check.h>
#include <stdlib.h>

#include "../support/suites.h"
#include "base/thread.h"
#include "dedup/index.h"
#include "test_dedup.h"

static struct nvefs_dedup_index *index_new(uint64_t bytes)
{
	struct nvefs_dedup_index *ix;

	ck_assert_int_eq(nvefs_dedup_index_new(bytes, &ix), 0);
	return ix;
}

static uint64_t fp_of(uint64_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15u;
}

static bool has(struct nvefs_dedup_index *ix, uint64_t fp, uint64_t pblk)
{
	uint64_t found[NVEFS_DEDUP_MAX_HINTS];
	uint32_t n = nvefs_dedup_index_lookup(ix, fp, NVEFS_DEDUP_MAX_HINTS, found);

	for (uint32_t i = 0; i < n; i++)
		if (found[i] == pblk)
			return true;
	return false;
}

/* How many of hints [0, n) are there. */
static uint64_t count(struct nvefs_dedup_index *ix, uint64_t n)
{
	uint64_t there = 0;

	for (uint64_t i = 0; i < n; i++)
		there += has(ix, fp_of(i), i + 1);
	return there;
}

START_TEST(insert_look_remove)
{
	struct nvefs_dedup_index *ix = index_new(1 << 20);
	struct nvefs_dedup_index_stats s;
	uint64_t found[8];

	ck_assert_uint_eq(nvefs_dedup_index_lookup(ix, 0, 8, found), 0);
	nvefs_dedup_index_insert(ix, 0, 77, false); /* 0 is a fingerprint like any other */
	ck_assert(has(ix, 0, 77));
	nvefs_dedup_index_insert(ix, 5, 0, false); /* no such block for data */
	nvefs_dedup_index_insert(ix, 5, UINT64_MAX, false);
	ck_assert_uint_eq(nvefs_dedup_index_lookup(ix, 5, 8, found), 0);
	for (uint64_t p = 1; p <= 6; p++)
		nvefs_dedup_index_insert(ix, 9, p, false);
	ck_assert_uint_eq(nvefs_dedup_index_lookup(ix, 9, 8, found), NVEFS_DEDUP_MAX_HINTS);
	for (uint32_t i = 0; i < NVEFS_DEDUP_MAX_HINTS; i++)
		ck_assert_uint_eq(found[i], 6 - i);
	nvefs_dedup_index_judge(ix, 9, 4, true); /* the newest now */
	ck_assert_uint_eq(nvefs_dedup_index_lookup(ix, 9, 1, found), 1);
	ck_assert_uint_eq(found[0], 4);
	nvefs_dedup_index_judge(ix, 9, 4, false);
	ck_assert(!has(ix, 9, 4));
	nvefs_dedup_index_remove(ix, 9, 5);
	nvefs_dedup_index_remove(ix, 9, 5);
	nvefs_dedup_index_remove(ix, 9, 1000);
	ck_assert_uint_eq(nvefs_dedup_index_lookup(ix, 9, 8, found), 2);
	nvefs_dedup_index_stats(ix, &s);
	ck_assert_uint_eq(s.entries, 3);
	ck_assert_uint_eq(s.capacity, (1 << 20) / 16);
	ck_assert_uint_eq(s.hits, 1);
	ck_assert_uint_eq(s.false_hits, 1);
	ck_assert_uint_eq(s.removals, 2);
	nvefs_dedup_index_free(ix);
}
END_TEST

START_TEST(oldest_leave_first)
{
	struct nvefs_dedup_index *ix = index_new(256 << 10);
	struct nvefs_dedup_index_stats s;
	uint64_t cap, new = 0, old = 0;

	nvefs_dedup_index_stats(ix, &s);
	cap = s.capacity;
	for (uint64_t i = 0; i < 4 * cap; i++)
		nvefs_dedup_index_insert(ix, fp_of(i), i + 1, false);
	nvefs_dedup_index_stats(ix, &s);
	ck_assert_uint_le(s.entries, cap);
	ck_assert_uint_ge(s.entries, cap * 9 / 10);
	ck_assert_uint_eq(s.evictions + s.entries, 4 * cap);
	for (uint64_t i = 0; i < cap / 2; i++) {
		old += has(ix, fp_of(i), i + 1);
		new += has(ix, fp_of(4 * cap - 1 - i), 4 * cap - i);
	}
	ck_assert_uint_ge(new, cap / 2 * 9 / 10);
	ck_assert_uint_le(old, cap / 2 / 10);
	nvefs_dedup_index_free(ix);
}
END_TEST

START_TEST(background_takes_only_what_is_empty)
{
	struct nvefs_dedup_index *ix = index_new(64 << 10);
	struct nvefs_dedup_index_stats s;
	uint64_t cap, before;

	nvefs_dedup_index_stats(ix, &s);
	cap = s.capacity;
	for (uint64_t i = 0; i < cap / 4; i++)
		nvefs_dedup_index_insert(ix, fp_of(i), i + 1, false);
	before = count(ix, cap / 4);
	for (uint64_t i = 0; i < 4 * cap; i++)
		nvefs_dedup_index_insert(ix, fp_of(1000000 + i), 1000000 + i, true);
	ck_assert_uint_eq(count(ix, cap / 4), before);
	nvefs_dedup_index_stats(ix, &s);
	ck_assert_uint_gt(s.refused, 0);
	/* And is the first to go when a write comes. */
	for (uint64_t i = 0; i < cap / 8; i++)
		nvefs_dedup_index_insert(ix, fp_of(2000000 + i), 2000000 + i, false);
	/* But for the sets that writes alone fill. */
	ck_assert_uint_ge(count(ix, cap / 4), before * 98 / 100);
	nvefs_dedup_index_free(ix);
}
END_TEST

START_TEST(any_budget_does)
{
	static const uint64_t budgets[] = {0, 1, 127, 128, 1000, 16384, 16385, 100000};

	for (size_t b = 0; b < sizeof(budgets) / sizeof(budgets[0]); b++) {
		struct nvefs_dedup_index *ix = index_new(budgets[b]);
		struct nvefs_dedup_index_stats s;

		for (uint64_t i = 0; i < 20000; i++)
			nvefs_dedup_index_insert(ix, fp_of(i), i + 1, i % 3 == 0);
		for (uint64_t i = 0; i < 20000; i++)
			nvefs_dedup_index_remove(ix, fp_of(i), i + 1);
		nvefs_dedup_index_stats(ix, &s);
		ck_assert_uint_eq(s.entries, 0);
		ck_assert_uint_le(s.capacity * 16, budgets[b]);
		ck_assert_uint_eq(s.budget_bytes, budgets[b]);
		nvefs_dedup_index_free(ix);
	}
}
END_TEST

START_TEST(size_changes_in_use)
{
	struct nvefs_dedup_index *ix = index_new(1 << 20);
	struct nvefs_dedup_index_stats s;
	uint64_t n;

	for (uint64_t i = 0; i < 30000; i++)
		nvefs_dedup_index_insert(ix, fp_of(i), i + 1, false);
	n = count(ix, 30000);
	ck_assert_int_eq(nvefs_dedup_index_resize(ix, 4 << 20), 0);
	ck_assert_uint_eq(count(ix, 30000), n);
	ck_assert_int_eq(nvefs_dedup_index_resize(ix, 64 << 10), 0);
	nvefs_dedup_index_stats(ix, &s);
	n = count(ix, 30000);
	ck_assert_uint_eq(n, s.entries);
	ck_assert_uint_ge(n, s.capacity * 9 / 10);
	ck_assert_int_eq(nvefs_dedup_index_resize(ix, 0), 0);
	nvefs_dedup_index_stats(ix, &s);
	ck_assert_uint_eq(s.entries + s.capacity, 0);
	nvefs_dedup_index_insert(ix, 1, 1, false);
	ck_assert(!has(ix, 1, 1));
	ck_assert_int_eq(nvefs_dedup_index_resize(ix, 1 << 16), 0);
	nvefs_dedup_index_insert(ix, 1, 1, false);
	ck_assert(has(ix, 1, 1));
	nvefs_dedup_index_free(ix);
}
END_TEST

START_TEST(few_bits_of_fingerprint)
{
	struct nvefs_dedup_index *ix = index_new(1 << 20);

	nvefs_dedup_index_limit_bits(ix, 8);
	nvefs_dedup_index_insert(ix, 0x1234, 5, false);
	ck_assert(has(ix, 0x9934, 5));
	ck_assert(!has(ix, 0x1235, 5));
	nvefs_dedup_index_remove(ix, 0x34, 5);
	ck_assert(!has(ix, 0x1234, 5));
	nvefs_dedup_index_free(ix);
}
END_TEST

static bool stop;

static void *user_main(void *arg)
{
	struct nvefs_dedup_index *ix = arg;
	static uint32_t ids;
	unsigned int seed = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);

	for (int i = 0; i < 60000; i++) {
		uint64_t k = (uint32_t)rand_r(&seed) % 5000, found[4];
		uint32_t n;

		switch (rand_r(&seed) % 5) {
		case 0:
			nvefs_dedup_index_insert(ix, fp_of(k), k + 1, rand_r(&seed) % 2);
			break;
		case 1:
			nvefs_dedup_index_remove(ix, fp_of(k), k + 1);
			break;
		case 2:
			nvefs_dedup_index_judge(ix, fp_of(k), k + 1, rand_r(&seed) % 2);
			break;
		default:
			nvefs_dedup_index_prefetch(ix, fp_of(k));
			n = nvefs_dedup_index_lookup(ix, fp_of(k), 4, found);
			ck_assert_uint_le(n, 1);
			if (n)
				ck_assert_uint_eq(found[0], k + 1);
		}
	}
	return NULL;
}

static void *resize_main(void *arg)
{
	unsigned int seed = 1;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		struct nvefs_dedup_index_stats s;

		ck_assert_int_eq(nvefs_dedup_index_resize(arg, (uint64_t)(rand_r(&seed) % 200000)),
				 0);
		nvefs_dedup_index_stats(arg, &s);
		ck_assert_uint_le(s.entries, s.capacity);
	}
	return NULL;
}

START_TEST(threads_and_resizing)
{
	struct nvefs_dedup_index *ix = index_new(64 << 10);
	pthread_t t[3], r;

	stop = false;
	ck_assert_int_eq(nvefs_thread_start(&r, "resize", resize_main, ix), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(nvefs_thread_start(&t[i], "user", user_main, ix), 0);
	for (int i = 0; i < 3; i++)
		nvefs_thread_join(t[i]);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	nvefs_thread_join(r);
	nvefs_dedup_index_free(ix);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("dedup");
	TCase *tc = tcase_create("index");

	tcase_set_timeout(tc, 50);
	tcase_add_test(tc, insert_look_remove);
	tcase_add_test(tc, oldest_leave_first);
	tcase_add_test(tc, background_takes_only_what_is_empty);
	tcase_add_test(tc, any_budget_does);
	tcase_add_test(tc, size_changes_in_use);
	tcase_add_test(tc, few_bits_of_fingerprint);
	tcase_add_test(tc, threads_and_resizing);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, test_dedup_batch());
	return run_suites(s, NULL);
}
