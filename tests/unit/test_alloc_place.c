/* SPDX-License-Identifier: MIT */
/* Where blocks are taken from, and what is left for whom. */
#include "test_alloc.h"

#include <stdlib.h>

/* Take all that data may have; how much. */
static uint64_t take_all(struct fake *f, struct nvefs_alloc_cursor *c, uint8_t *taken)
{
	uint64_t pblk, sum = 0;
	uint32_t got;
	bool more;
	int err;

	while (!(err = nvefs_alloc_data(&f->st, Q(f), c, 200, &pblk, &got, &more))) {
		for (uint32_t i = 0; i < got; i++) {
			ck_assert_uint_lt(pblk + i, f->st.super.nblks);
			ck_assert(!taken[pblk + i]);
			taken[pblk + i] = 1;
		}
		sum += got;
	}
	ck_assert_int_eq(err, -ENOSPC);
	return sum;
}

START_TEST(successive_blocks_are_sequential)
{
	struct fake *f = fake_new(3, 1);
	struct nvefs_alloc_cursor c = {.seed = 1};
	uint32_t loads = f->loads;
	uint64_t prev = take_one(f, &c);

	for (int i = 0; i < 5000; i++) {
		uint64_t pblk = take_one(f, &c);

		ck_assert_uint_eq(pblk, prev + 1);
		prev = pblk;
	}
	ck_assert_uint_eq(f->loads, loads + 1);
	fake_free(f);
}
END_TEST

START_TEST(workers_have_groups_of_their_own)
{
	struct fake *f = fake_new(5, 1);
	struct nvefs_alloc_cursor c[4] = {{.seed = 0}, {.seed = 1}, {.seed = 2}, {.seed = 3}};
	uint64_t last[4];

	for (int w = 0; w < 4; w++)
		last[w] = take_one(f, &c[w]);
	for (int i = 0; i < 600; i++)
		for (int w = 0; w < 4; w++) {
			uint64_t pblk = take_one(f, &c[w]);

			ck_assert_uint_eq(pblk, ++last[w]);
		}
	for (int w = 0; w < 4; w++)
		for (int v = 0; v < w; v++)
			ck_assert_uint_ne(c[w].group, c[v].group);
	fake_free(f);
}
END_TEST

START_TEST(many_workers_share_groups_apart)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c[6];
	uint64_t last[6];
	int breaks = 0;

	for (uint32_t w = 0; w < 6; w++) {
		c[w] = (struct nvefs_alloc_cursor){.seed = w};
		last[w] = take_one(f, &c[w]);
	}
	for (int i = 0; i < 500; i++)
		for (int w = 0; w < 6; w++) {
			uint64_t pblk = take_one(f, &c[w]);

			breaks += pblk != last[w] + 1;
			last[w] = pblk;
		}
	ck_assert_int_le(breaks, 60);
	fake_free(f);
}
END_TEST

START_TEST(runs_are_aligned_to_the_unit)
{
	struct fake *f = fake_new(2, 16);
	struct nvefs_alloc_cursor a = {0}, b = {.seed = 1};
	struct nvefs_alloc *al = f->st.alloc;
	uint64_t pblk;
	uint32_t got;

	ck_assert_uint_eq(take_one(f, &a) % 16, 0);
	/* Punch the group of b so that only every third unit is whole. */
	ck_assert_uint_eq(take_one(f, &b) % 16, 0);
	for (uint32_t u = 0; u < NVEFS_GROUP_BLKS / 16; u++) {
		struct nvefs_group_mem *m = al->groups[b.group].mem;

		if (u % 3 && !(m->busy[u * 16 / 64] >> (u * 16 % 64) & 1)) {
			nvefs_group_take(al, m, u * 16 + 5, 1);
			al->room--;
			al->held++;
			al->reserved++;
		}
	}
	b.end_pblk = b.next_pblk;
	for (int i = 0; i < 500; i++) {
		ck_assert_int_eq(nvefs_alloc_data(&f->st, Q(f), &b, 64, &pblk, &got, NULL), 0);
		if (b.group == a.group)
			break;
		ck_assert_uint_eq(pblk % 48, 0);
		ck_assert_uint_ge(got, 16);
		ck_assert_uint_lt(got, 32);
	}
	fake_free(f);
}
END_TEST

START_TEST(full_to_the_reserve_and_back)
{
	static const uint32_t units[] = {1, 4, 16, 48};
	struct fake *f = fake_new(3, units[_i]);
	struct nvefs_alloc_cursor c = {0};
	uint8_t *taken = calloc(f->st.super.nblks, 1);
	struct nvefs_space s0, s;
	struct nvefs_txn t;
	uint64_t n, pblk;
	bool more = true;
	uint32_t got;

	nvefs_space_get(&f->st, &s0);
	ck_assert_uint_eq(s0.avail, s0.free - s0.meta_reserve);
	n = take_all(f, &c, taken);
	ck_assert_uint_eq(n, s0.avail);
	nvefs_space_get(&f->st, &s);
	ck_assert_uint_eq(s.avail, 0);
	ck_assert_uint_eq(s.free, s.meta_reserve);
	ck_assert_int_eq(nvefs_alloc_data(&f->st, Q(f), &c, 1, &pblk, &got, &more), -ENOSPC);
	ck_assert(!more);
	ck_assert_int_eq(nvefs_alloc_pledge(&f->st, 1, false), -ENOSPC);
	/* Ordinary metadata stops as well, freeing goes on. */
	ck_assert_int_eq(fake_begin(f, 20, 0, &t), -ENOSPC);
	ck_assert_int_eq(fake_begin(f, 400, NVEFS_TXN_FREEING, &t), 0);
	for (int i = 0; i < 60; i++) {
		ck_assert_int_eq(nvefs_alloc_meta(&t, &pblk), 0);
		ck_assert(!taken[pblk]);
		taken[pblk] = 1;
	}
	fake_end(f, &t);
	fake_check(f);
	/* Every other block back: holes of one. */
	for (pblk = n = 0; pblk < f->st.super.nblks; pblk += 2)
		if (taken[pblk] == 1 && pblk != f->st.super.nblks - 1 && !fake_on_disk(f, pblk)) {
			nvefs_block_unreserve(&f->st, pblk, 1);
			taken[pblk] = 0;
			n++;
		}
	fake_check(f);
	ck_assert_uint_eq(take_all(f, &c, taken), n - 60);
	fake_check(f);
	free(taken);
	fake_free(f);
}
END_TEST

START_TEST(pledges_keep_data_out)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint8_t *taken = calloc(f->st.super.nblks, 1);
	struct nvefs_space s;
	struct nvefs_txn t;
	uint64_t free0, pblk;

	nvefs_space_get(&f->st, &s);
	free0 = s.free;
	ck_assert_int_eq(nvefs_alloc_pledge(&f->st, 1000, false), 0);
	nvefs_space_get(&f->st, &s);
	ck_assert_uint_eq(s.pledged, 1000);
	ck_assert_uint_eq(s.avail, free0 - s.meta_reserve - 1000);
	ck_assert_uint_eq(take_all(f, &c, taken), s.avail);
	ck_assert_int_eq(nvefs_alloc_pledge(&f->st, 1, false), -ENOSPC);
	/* Most of what is pledged comes back: ordinary metadata may use half of the reserve for it, no more. */
	ck_assert_int_eq(fake_begin(f, 100, 0, &t), 0);
	for (uint64_t i = 0; i < s.meta_reserve / 2; i++)
		ck_assert_int_eq(nvefs_alloc_meta(&t, &pblk), 0);
	fake_end(f, &t);
	ck_assert_int_eq(fake_begin(f, 100, 0, &t), -ENOSPC);
	ck_assert_int_eq(fake_begin(f, 100, NVEFS_TXN_FREEING, &t), 0);
	fake_end(f, &t);
	nvefs_alloc_unpledge(&f->st, 1000);
	ck_assert_uint_eq(take_all(f, &c, taken), 1000 - s.meta_reserve / 2);
	fake_check(f);
	free(taken);
	fake_free(f);
}
END_TEST

/* A quarter of the reserve for pledges, half of it for data, wherever the last blocks are. */
START_TEST(last_resort)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint8_t *taken = calloc(f->st.super.nblks, 1);
	struct nvefs_space s;
	struct nvefs_txn t;
	uint32_t i;
	uint64_t pblk;

	nvefs_space_get(&f->st, &s);
	take_all(f, &c, taken);
	ck_assert_int_eq(nvefs_alloc_pledge(&f->st, (uint32_t)s.meta_reserve / 4 + 1, true), -ENOSPC);
	ck_assert_int_eq(nvefs_alloc_pledge(&f->st, (uint32_t)s.meta_reserve / 4, true), 0);
	nvefs_alloc_unpledge(&f->st, (uint32_t)s.meta_reserve / 4);
	if (_i) { /* all that is left goes into the stash */
		ck_assert_int_eq(fake_begin(f, 4000, NVEFS_TXN_FREEING, &t), 0);
		fake_end(f, &t);
	}
	for (i = 0; i < s.meta_reserve / 2; i++) {
		ck_assert_int_eq(nvefs_alloc_data_last(&f->st, Q(f), &c, &pblk), 0);
		ck_assert(!taken[pblk]);
		taken[pblk] = 1;
	}
	ck_assert_int_eq(nvefs_alloc_data_last(&f->st, Q(f), &c, &pblk), -ENOSPC);
	fake_check(f);
	ck_assert_int_eq(fake_begin(f, 4000, NVEFS_TXN_FREEING, &t), 0);
	fake_end(f, &t);
	for (pblk = 0; pblk < f->st.super.nblks; pblk++)
		if (taken[pblk])
			nvefs_block_unreserve(&f->st, pblk, 1);
	fake_check(f);
	free(taken);
	fake_free(f);
}
END_TEST

START_TEST(quarantine_promises_more)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint8_t *taken = calloc(f->st.super.nblks, 1);
	uint64_t live = make_live(f, &c), pblk;
	struct nvefs_txn t;
	uint32_t got;
	bool more;

	take_all(f, &c, taken);
	ck_assert_int_eq(fake_begin(f, 20, NVEFS_TXN_FREEING, &t), 0);
	ck_assert_int_eq(fake_ref_down(f, &t, live, NULL), 0);
	fake_end(f, &t);
	ck_assert_int_eq(nvefs_alloc_data(&f->st, Q(f), &c, 1, &pblk, &got, &more), -ENOSPC);
	ck_assert(more);
	ck_assert_int_eq(nvefs_alloc_pledge(&f->st, 2, false), -ENOSPC);
	ck_assert_int_eq(nvefs_alloc_pledge(&f->st, 1, false), 0);
	nvefs_alloc_unpledge(&f->st, 1);
	/* Durable is enough: the next caller collects by itself. */
	f->st.txn_durable = f->st.txn_running++;
	ck_assert_int_eq(nvefs_alloc_data(&f->st, Q(f), &c, 1, &pblk, &got, &more), 0);
	fake_check(f);
	free(taken);
	fake_free(f);
}
END_TEST

START_TEST(metadata_beyond_the_credits)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_txn t;
	uint64_t pblk;

	ck_assert_int_eq(fake_begin(f, 10, 0, &t), 0);
	for (int i = 0; i < 2000; i++)
		ck_assert_int_eq(nvefs_alloc_meta(&t, &pblk), 0);
	fake_end(f, &t);
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(damaged_group_is_left_alone)
{
	struct fake *f = fake_new(3, 1);
	struct nvefs_alloc_cursor c = {0};
	uint8_t *taken = calloc(f->st.super.nblks, 1);
	uint64_t n, bad = 0;

	f->bitmaps[1].bits[100] ^= 4; /* the count does not fit */
	f->bitmap_err[2] = -EIO;
	n = take_all(f, &c, taken);
	for (uint64_t p = NVEFS_GROUP_BLKS; p < f->st.super.nblks; p++)
		bad += taken[p];
	ck_assert_uint_eq(bad, 0);
	ck_assert_uint_gt(n, NVEFS_GROUP_BLKS / 2);
	ck_assert_int_eq(nvefs_block_pin_load(&f->st, Q(f), NVEFS_GROUP_BLKS + 50), -EUCLEAN);
	ck_assert_int_eq(nvefs_block_pin_load(&f->st, Q(f), 2 * NVEFS_GROUP_BLKS + 50), -EIO);
	free(taken);
	fake_free(f);
}
END_TEST

START_TEST(damaged_metadata_group_is_left)
{
	struct fake *f = fake_new(3, 1);
	struct nvefs_txn t;
	uint64_t pblk = 0;
	int failed = 0, err;

	ck_assert_int_eq(fake_begin(f, 20, 0, &t), 0);
	ck_assert_int_eq(nvefs_alloc_meta(&t, &pblk), 0);
	fake_end(f, &t);
	/* Its bitmap leaves the cache and cannot be read again. */
	f->bitmap_cached[nvefs_layout_group(pblk)] = false;
	f->bitmap_err[nvefs_layout_group(pblk)] = -EIO;
	while ((err = fake_begin(f, 20, 0, &t)) == -EIO)
		ck_assert_int_lt(failed++, 10);
	ck_assert_int_eq(err, 0);
	ck_assert_int_gt(failed, 0);
	for (int i = 0; i < 20; i++) {
		uint64_t other;

		ck_assert_int_eq(nvefs_alloc_meta(&t, &other), 0);
		ck_assert_uint_ne(nvefs_layout_group(other), nvefs_layout_group(pblk));
	}
	fake_end(f, &t);
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(damaged_counts_fail_the_mount)
{
	struct fake *f = fake_new(3, 1);
	struct nvefs_group_rec rec = {.free_blks = NVEFS_GROUP_BLKS, .bitmap_txn = 1};

	f->st.root.free_blks++;
	ck_assert_int_eq(fake_reopen(f), -EUCLEAN);
	f->st.opts.read_only = true;
	ck_assert_int_eq(fake_reopen(f), 0);
	f->st.opts.read_only = false;
	f->st.root.free_blks--;
	ck_assert_int_eq(fake_reopen(f), 0);
	f->items[2] = nvefs_group_encode(&rec);
	ck_assert_int_eq(fake_reopen(f), -EUCLEAN);
	fake_free(f);
}
END_TEST

/* What a discard is in flight for must not be handed out. */
static void poke(struct fake *f, uint64_t pblk, uint32_t nblks)
{
	struct nvefs_alloc_cursor c = {
	    .group = nvefs_layout_group(pblk), .next_pblk = pblk, .end_pblk = pblk};
	uint64_t p;
	uint32_t got;

	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), -ESTALE);
	if (nvefs_alloc_data(&f->st, Q(f), &c, 64, &p, &got, NULL))
		return;
	ck_assert(p + got <= pblk || p >= pblk + nblks);
	nvefs_block_unreserve(&f->st, p, got);
}

START_TEST(discard_comes_before_reuse)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t first = 0, pblk;
	struct nvefs_txn t;

	f->st.opts.discard = true;
	f->lim.discard_gran_blks = f->lim.discard_align_blks = 8;
	f->on_discard = poke;
	for (int i = 0; i < 100; i++) {
		pblk = make_live(f, &c);
		first = first ? first : pblk;
	}
	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	for (uint64_t i = 0; i < 100; i++)
		ck_assert_int_eq(fake_ref_down(f, &t, first + i, NULL), 0);
	fake_end(f, &t);
	fake_commit(f, true);
	ck_assert_uint_eq(f->discarded, (first + 100) / 8 * 8 - (first + 7) / 8 * 8);
	ck_assert_uint_ge(f->discard_min_pblk, first);
	ck_assert_uint_le(f->discard_max_pblk, first + 100);
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(trim_free_space)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t live = make_live(f, &c), n, freed;
	struct nvefs_space s;
	struct nvefs_txn t;

	nvefs_space_get(&f->st, &s);
	f->on_discard = poke;
	ck_assert_int_eq(nvefs_alloc_trim(&f->st, Q(f), 0, UINT64_MAX, 1, &n), 0);
	ck_assert_uint_eq(n, f->discarded);
	/* Half of the room at a time, so not all, but most of it; never the reserve's share. */
	ck_assert_uint_ge(n, s.free / 3);
	fake_check(f);
	/* Quarantined blocks stay out, and runs below the minimum. */
	freed = live;
	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	ck_assert_int_eq(fake_ref_down(f, &t, freed, NULL), 0);
	fake_end(f, &t);
	f->discarded = 0;
	ck_assert_int_eq(nvefs_alloc_trim(&f->st, Q(f), freed, 1, 1, &n), 0);
	ck_assert_uint_eq(n, 0);
	fake_commit(f, true);
	ck_assert_int_eq(nvefs_alloc_trim(&f->st, Q(f), freed, 10, 11, &n), 0);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(nvefs_alloc_trim(&f->st, Q(f), freed, 1, 1, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(nvefs_alloc_trim(&f->st, Q(f), f->st.super.nblks, 1, 1, &n), -EINVAL);
	f->lim.max_discard_blks = 0;
	ck_assert_int_eq(nvefs_alloc_trim(&f->st, Q(f), freed, 1, 1, &n), -EOPNOTSUPP);
	fake_check(f);
	fake_free(f);
}
END_TEST

TCase *test_alloc_place(void)
{
	TCase *tc = tcase_create("place");

	tcase_set_timeout(tc, 50);
	tcase_add_test(tc, successive_blocks_are_sequential);
	tcase_add_test(tc, workers_have_groups_of_their_own);
	tcase_add_test(tc, many_workers_share_groups_apart);
	tcase_add_test(tc, runs_are_aligned_to_the_unit);
	tcase_add_loop_test(tc, full_to_the_reserve_and_back, 0, 4);
	tcase_add_test(tc, pledges_keep_data_out);
	tcase_add_loop_test(tc, last_resort, 0, 2);
	tcase_add_test(tc, quarantine_promises_more);
	tcase_add_test(tc, metadata_beyond_the_credits);
	tcase_add_test(tc, damaged_group_is_left_alone);
	tcase_add_test(tc, damaged_metadata_group_is_left);
	tcase_add_test(tc, damaged_counts_fail_the_mount);
	tcase_add_test(tc, discard_comes_before_reuse);
	tcase_add_test(tc, trim_free_space);
	return tc;
}
