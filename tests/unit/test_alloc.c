/* SPDX-License-Identifier: MIT */
/* The life of a block: every state and every way from one to the next. */
#include "../support/suites.h"
#include "test_alloc.h"

#include <stdlib.h>

uint64_t take_one(struct fake *f, struct nvefs_alloc_cursor *c)
{
	uint64_t pblk = 0;
	uint32_t got = 0;

	ck_assert_int_eq(nvefs_alloc_data(&f->st, Q(f), c, 1, &pblk, &got, NULL), 0);
	ck_assert_uint_eq(got, 1);
	return pblk;
}

uint64_t make_live(struct fake *f, struct nvefs_alloc_cursor *c)
{
	uint64_t pblk = take_one(f, c);
	struct nvefs_txn t;

	nvefs_block_map(&f->st, pblk, 1);
	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	ck_assert_int_eq(fake_ref_up(f, &t, pblk), 0);
	fake_end(f, &t);
	ck_assert(!nvefs_block_unpin(&f->st, pblk));
	return pblk;
}

static bool drop(struct fake *f, uint64_t pblk)
{
	struct nvefs_txn t;
	bool last;

	ck_assert_int_eq(fake_begin(f, 50, NVEFS_TXN_FREEING, &t), 0);
	ck_assert_int_eq(fake_ref_down(f, &t, pblk, &last), 0);
	fake_end(f, &t);
	return last;
}

static bool is_free(struct fake *f, uint64_t pblk)
{
	const struct nvefs_group_mem *m = f->st.alloc->groups[nvefs_layout_group(pblk)].mem;
	uint32_t off = nvefs_group_off(pblk);

	return !(m->busy[off / 64] >> (off % 64) & 1);
}

START_TEST(reserve_and_give_back)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	struct nvefs_space s0, s;
	uint64_t pblk;

	nvefs_space_get(&f->st, &s0);
	pblk = take_one(f, &c);
	ck_assert(!is_free(f, pblk));
	ck_assert(!fake_on_disk(f, pblk));
	nvefs_space_get(&f->st, &s);
	ck_assert_uint_eq(s.free, s0.free - 1);
	ck_assert_uint_eq(s.reserved, 1);
	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), -ESTALE);
	nvefs_block_unreserve(&f->st, pblk, 1);
	ck_assert(is_free(f, pblk));
	nvefs_space_get(&f->st, &s);
	ck_assert_uint_eq(s.free, s0.free);
	ck_assert_uint_eq(s.reserved, 0);
	fake_check(f);

	pblk = take_one(f, &c);
	nvefs_block_retire(&f->st, pblk, 1);
	fake_commit(f, true);
	fake_commit(f, true);
	ck_assert(!is_free(f, pblk));
	nvefs_space_get(&f->st, &s);
	ck_assert_uint_eq(s.free, s0.free - 1);
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(live_block_goes_through_quarantine)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk = make_live(f, &c);
	struct nvefs_space s0, s;

	ck_assert(fake_on_disk(f, pblk));
	fake_check(f);
	fake_commit(f, true);
	ck_assert(!is_free(f, pblk));

	nvefs_space_get(&f->st, &s0);
	ck_assert(drop(f, pblk));
	ck_assert(!fake_on_disk(f, pblk));
	ck_assert(!is_free(f, pblk));
	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), -ESTALE);
	nvefs_space_get(&f->st, &s);
	ck_assert_uint_eq(s.free, s0.free + 1); /* df shows it at once */
	ck_assert_uint_eq(s.quarantined, 1);
	fake_check(f);
	/* A release without a commit brings nothing back. */
	nvefs_alloc_release(&f->st, Q(f), f->st.txn_durable, f->st.txn_durable + 1);
	ck_assert(!is_free(f, pblk));
	fake_commit(f, false);
	ck_assert(is_free(f, pblk));
	nvefs_space_get(&f->st, &s);
	ck_assert_uint_eq(s.free, s0.free + 1);
	ck_assert_uint_eq(s.quarantined, 0);
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(block_never_in_the_tree_needs_no_commit)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk = take_one(f, &c);

	nvefs_block_map(&f->st, pblk, 1);
	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), 0);
	ck_assert(!nvefs_block_unpin(&f->st, pblk));
	ck_assert(nvefs_block_unpin(&f->st, pblk));
	ck_assert(!is_free(f, pblk));
	nvefs_alloc_release(&f->st, Q(f), f->st.txn_durable, f->st.txn_durable + 1);
	ck_assert(is_free(f, pblk));
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(pin_outlives_the_tree)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk = make_live(f, &c);
	struct nvefs_txn t;

	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), 0);
	ck_assert(!drop(f, pblk));
	ck_assert(!fake_on_disk(f, pblk));
	fake_commit(f, true);
	ck_assert(!is_free(f, pblk));
	/* Back into the tree by the pin, as a dedup hit does. */
	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	ck_assert_int_eq(fake_ref_up(f, &t, pblk), 0);
	fake_end(f, &t);
	ck_assert(!nvefs_block_unpin(&f->st, pblk));
	ck_assert(fake_on_disk(f, pblk));
	fake_check(f);

	/* The pin is dropped last, in a later transaction: it must wait for the dropping one only.
	 */
	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), 0);
	ck_assert(!drop(f, pblk));
	ck_assert(nvefs_block_unpin(&f->st, pblk));
	nvefs_alloc_release(&f->st, Q(f), f->st.txn_durable, f->st.txn_durable + 1);
	ck_assert(!is_free(f, pblk));
	fake_commit(f, false);
	ck_assert(is_free(f, pblk));
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(readers_hold_blocks_back)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk = make_live(f, &c);
	uint32_t r1 = nvefs_reader_enter(&f->st), r2, r3;

	ck_assert(drop(f, pblk));
	r2 = nvefs_reader_enter(&f->st);
	for (int i = 0; i < 4; i++) {
		fake_commit(f, true);
		ck_assert(!is_free(f, pblk));
	}
	r3 = nvefs_reader_enter(&f->st); /* came after the drop: need not be waited for */
	nvefs_reader_exit(&f->st, r1);
	fake_commit(f, true);
	ck_assert(!is_free(f, pblk));
	nvefs_reader_exit(&f->st, r2);
	for (int i = 0; i < 2; i++)
		fake_commit(f, true);
	ck_assert(is_free(f, pblk));
	nvefs_reader_exit(&f->st, r3);
	fake_free(f);
}
END_TEST

START_TEST(shares_are_counted)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk = make_live(f, &c);
	struct nvefs_miss miss;
	struct nvefs_txn t;
	uint32_t n;
	bool last;

	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	ck_assert_int_eq(fake_ref_up(f, &t, pblk), 0);
	ck_assert_int_eq(fake_ref_up(f, &t, pblk), 0);
	ck_assert_int_eq(nvefs_ref_count(&f->st, pblk, &miss, &n), 0);
	ck_assert_uint_eq(n, 3);
	fake_end(f, &t);
	fake_check(f);
	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	for (uint32_t left = 3; left-- > 0;) {
		last = true;
		ck_assert_int_eq(fake_ref_down(f, &t, pblk, &last), 0);
		ck_assert_int_eq(last, left == 0);
		ck_assert_int_eq(fake_on_disk(f, pblk), left != 0);
		ck_assert_int_eq(nvefs_ref_count(&f->st, pblk, &miss, &n), 0);
		ck_assert_uint_eq(n, left);
	}
	ck_assert_int_eq(fake_ref_down(f, &t, pblk, &last), -EUCLEAN);
	fake_end(f, &t);
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(share_count_has_a_limit)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk = make_live(f, &c);
	struct nvefs_txn t;

	f->st.alloc->share_max = UINT16_MAX + 10u;
	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	for (uint32_t i = 1; i < 10; i++)
		ck_assert_int_eq(fake_ref_up(f, &t, pblk), 0);
	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), -EMLINK);
	f->shares[pblk] = UINT16_MAX + 10u;
	ck_assert_int_eq(fake_ref_up(f, &t, pblk), -EMLINK);
	f->shares[pblk] = 10;
	ck_assert_int_eq(fake_ref_down(f, &t, pblk, NULL), 0);
	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), 0);
	f->shares[pblk] = 10;
	fake_end(f, &t);
	ck_assert(!nvefs_block_unpin(&f->st, pblk));
	fake_free(f);
}
END_TEST

START_TEST(pins_have_a_limit)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk = make_live(f, &c);

	for (uint32_t i = 0; i < UINT16_MAX; i++)
		ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), 0);
	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), -EMLINK);
	for (uint32_t i = 0; i < UINT16_MAX; i++)
		ck_assert(!nvefs_block_unpin(&f->st, pblk));
	fake_free(f);
}
END_TEST

START_TEST(damage_is_refused)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t n = f->st.super.nblks, reserved = take_one(f, &c), meta;
	uint64_t bad[] = {
	    0, 2, 3, NVEFS_JOURNAL_PBLK, NVEFS_GROUP_BLKS, n - 1, n, UINT64_MAX, n - 2, reserved};
	struct nvefs_txn t;

	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	ck_assert_int_eq(nvefs_alloc_meta(&t, &meta), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(fake_ref_down(f, &t, bad[i], NULL), -EUCLEAN);
		ck_assert_int_eq(fake_ref_up(f, &t, bad[i]), -EUCLEAN);
		ck_assert_int_eq(fake_free_meta(f, &t, bad[i]), -EUCLEAN);
		ck_assert_int_eq(nvefs_block_pin(&f->st, bad[i]), -ESTALE);
	}
	ck_assert_int_eq(fake_ref_down(f, &t, meta, NULL), -EUCLEAN);
	ck_assert_int_eq(fake_ref_up(f, &t, meta), -EUCLEAN);
	ck_assert_int_eq(nvefs_block_pin(&f->st, meta), -ESTALE);
	fake_end(f, &t);
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(metadata_waits_for_the_journal)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_txn t;
	struct nvefs_space s0, s;
	uint64_t pblk;

	nvefs_space_get(&f->st, &s0);
	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	ck_assert_int_eq(nvefs_alloc_meta(&t, &pblk), 0);
	fake_end(f, &t);
	ck_assert(fake_on_disk(f, pblk));
	fake_check(f);
	fake_commit(f, false);
	ck_assert_int_eq(fake_begin(f, 50, 0, &t), 0);
	ck_assert_int_eq(fake_free_meta(f, &t, pblk), 0);
	ck_assert_int_eq(fake_free_meta(f, &t, pblk), -EUCLEAN);
	fake_end(f, &t);
	ck_assert(!fake_on_disk(f, pblk));
	fake_check(f);
	for (int i = 0; i < 3; i++) {
		fake_commit(f, false);
		ck_assert(!is_free(f, pblk));
	}
	fake_commit(f, true);
	ck_assert(is_free(f, pblk));
	nvefs_space_get(&f->st, &s);
	ck_assert_uint_eq(s.free, s0.free);
	fake_check(f);
	fake_free(f);
}
END_TEST

START_TEST(mutants_break_the_rules)
{
	struct fake *f = fake_new(2, 1);
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk = make_live(f, &c);

	nvefs_store_mutation = NVEFS_MUTATE_NO_QUARANTINE;
	drop(f, pblk);
	ck_assert(is_free(f, pblk));
	nvefs_store_mutation = NVEFS_MUTATE_NO_PIN;
	pblk = make_live(f, &c);
	ck_assert_int_eq(nvefs_block_pin(&f->st, pblk), 0);
	ck_assert(drop(f, pblk));
	fake_commit(f, true);
	ck_assert(is_free(f, pblk));
	nvefs_store_mutation = NVEFS_MUTATE_NONE;
	fake_free(f);
}
END_TEST

TCase *test_alloc_life(void)
{
	TCase *tc = tcase_create("life");

	tcase_set_timeout(tc, 50);
	tcase_add_test(tc, reserve_and_give_back);
	tcase_add_test(tc, live_block_goes_through_quarantine);
	tcase_add_test(tc, block_never_in_the_tree_needs_no_commit);
	tcase_add_test(tc, pin_outlives_the_tree);
	tcase_add_test(tc, readers_hold_blocks_back);
	tcase_add_test(tc, shares_are_counted);
	tcase_add_test(tc, share_count_has_a_limit);
	tcase_add_test(tc, pins_have_a_limit);
	tcase_add_test(tc, damage_is_refused);
	tcase_add_test(tc, metadata_waits_for_the_journal);
	tcase_add_test(tc, mutants_break_the_rules);
	return tc;
}

int main(void)
{
	Suite *s = suite_create("alloc");

	suite_add_tcase(s, test_alloc_life());
	suite_add_tcase(s, test_alloc_place());
	suite_add_tcase(s, test_alloc_random());
	return run_suites(s, NULL);
}
