/* SPDX-License-Identifier: MIT */
/* Opening what a device has damaged, lost or brought back: detected, or of no consequence. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "device/fault.h"
#include "format/block.h"
#include "format/journal.h"
#include "format/layout.h"
#include "store/alloc.h"
#include "store/tree.h"
#include "test_store.h"

static const struct nvefs_store_opts by_hand = {.commit_interval_ns = 1000000000000};
static const struct nvefs_store_opts in_memory = {.read_only = true, .replay_in_memory = true};
static const struct nvefs_store_opts no_recovery = {.read_only = true, .no_recovery = true};

static void expect_refused(struct fixture *f, const struct nvefs_store_opts *opts, int want,
			   const char *text)
{
	struct nvefs_error err = {""};
	int rc = fixture_try_open(f, opts, &err);

	ck_assert_msg(rc == want, "%d: %s", rc, err.text);
	ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

/* Three transactions in the journal, none of them home. Returns where the log starts. */
static uint64_t crash_with_three(struct fixture *f)
{
	fixture_init(f, "ram:256M,vwc=on", &by_hand);
	for (uint64_t i = 1; i <= 3; i++) {
		ck_assert_int_eq(cells_put(f, f->q, 0, 10, i), 0);
		ck_assert_int_eq(nvefs_commit_run(f->st, false), 0);
	}
	fixture_crash(f);
	return nvefs_journal_log_pblk(&f->sb, 0);
}

/* Of a group of crash_with_three: descriptor, 10 images, root, commit block. */
#define GROUP 13u

START_TEST(replay_in_memory_writes_nothing)
{
	struct nvefs_dev_counters before, after;
	struct fixture f;

	crash_with_three(&f);
	nvefs_dev_counters(f.dev, &before);
	fixture_open(&f, &in_memory);
	ck_assert_uint_eq(f.st->stats.recovered_txns, 3);
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 3);
	ck_assert_int_eq(nvefs_commit_run(f.st, true), 0);
	nvefs_store_free(f.st);
	fixture_open(&f, &no_recovery);
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 0);
	nvefs_store_free(f.st);
	nvefs_dev_counters(f.dev, &after);
	ck_assert_uint_eq(before.commands[NVEFS_IO_WRITE], after.commands[NVEFS_IO_WRITE]);
	fixture_open(&f, &(struct nvefs_store_opts){.read_only = true});
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 3);
	fixture_done(&f);
}
END_TEST

/* A torn last group is what a cut leaves behind: without its commit block it never was. */
START_TEST(an_unfinished_group_is_nothing)
{
	struct fixture f;
	uint64_t log = crash_with_three(&f);

	device_damage(&f, log + 3 * GROUP - 1, 100);
	if (_i)
		device_damage(&f, log + 2 * GROUP + (uint32_t)_i, 100);
	fixture_open(&f, NULL);
	ck_assert_uint_eq(f.st->stats.recovered_txns, 2);
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 2);
	fixture_done(&f);
}
END_TEST

/* With a commit block it was durable: what is missing was lost by the device. */
START_TEST(a_damaged_durable_group_is_detected)
{
	static const uint32_t at[] = {0, 1, 5, 11, 13, 20, 24, 25, 26, 30};
	struct fixture f;
	uint64_t log = crash_with_three(&f);

	device_damage(&f, log + at[_i], 3000);
	expect_refused(&f, NULL, -EUCLEAN, "damaged or missing");
	expect_refused(&f, &in_memory, -EUCLEAN, "damaged or missing");
	nvefs_queue_done(f.q);
	nvefs_dev_close(f.dev);
}
END_TEST

/* Were groups taken unverified, the same damage would go unnoticed. */
START_TEST(the_group_checksum_is_what_detects_it)
{
	struct fixture f;
	uint64_t log = crash_with_three(&f);

	device_damage(&f, log + 2 * GROUP + 5, 3000);
	nvefs_store_mutation = NVEFS_MUTATE_NO_GROUP_CHECK;
	fixture_open(&f, NULL);
	ck_assert_uint_eq(f.st->stats.recovered_txns, 3);
	nvefs_store_mutation = NVEFS_MUTATE_NONE;
	fixture_done(&f);
}
END_TEST

/*
 * A group whose commit block could not be read at one recovery is abandoned.
 * It stays so when the block comes back, though number and place would fit: the
 * epoch is another. (_i: with the old epoch kept, it would be taken.)
 */
START_TEST(an_abandoned_group_stays_abandoned)
{
	struct fixture f;
	uint64_t log = crash_with_three(&f);
	uint8_t *commit = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	device_read(&f, log + 3 * GROUP - 1, commit);
	device_damage(&f, log + 3 * GROUP - 1, 100);
	if (_i)
		nvefs_store_mutation = NVEFS_MUTATE_NO_EPOCH;
	fixture_open(&f, &by_hand);
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 2);
	fixture_crash(&f);
	device_write(&f, log + 3 * GROUP - 1, commit);
	nvefs_buf_free(commit);
	fixture_open(&f, &by_hand);
	ck_assert_uint_eq(cell_get(&f, f.q, 4), _i ? 3 : 2);
	nvefs_store_mutation = NVEFS_MUTATE_NONE;
	fixture_done(&f);
}
END_TEST

/* A bad block of the log matters where a group is or would be next, and nowhere else. */
START_TEST(an_unreadable_log_block)
{
	static const struct {
		uint32_t at;
		int err;
	} cases[] = {{3 * GROUP + 1, 0}, {200, 0}, {3 * GROUP, -EIO}, {2 * GROUP, -EIO}, {2 * GROUP + 5, -EIO},
		     {3 * GROUP - 1, -EIO}, {0, -EIO}, {7, -EIO}};
	struct nvefs_fault unreadable = {
		.op = NVEFS_IO_READ, .action = NVEFS_FAULT_FAIL, .err = -EIO, .nth = 1, .every = 1};
	struct nvefs_dev *ram;
	struct fixture f;

	unreadable.first_pblk = crash_with_three(&f) + cases[_i].at;
	unreadable.end_pblk = unreadable.first_pblk + 1;
	nvefs_queue_done(f.q);
	ram = f.dev;
	ck_assert_int_eq(nvefs_fault_wrap(ram, &unreadable, 1, &f.dev), 0);
	f.q = test_queue(f.dev);
	if (cases[_i].err) {
		expect_refused(&f, NULL, cases[_i].err, "cannot be read");
		expect_refused(&f, &in_memory, cases[_i].err, "cannot be read");
		nvefs_fault_clear(f.dev);
	}
	/* Nothing was lost by that, nor is it by a block that holds nothing. */
	fixture_open(&f, NULL);
	ck_assert_uint_eq(f.st->stats.recovered_txns, 3);
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 3);
	fixture_done(&f);
}
END_TEST

/* An old log under a new header: groups of another epoch never match. */
START_TEST(stale_groups_do_not_match)
{
	struct fixture f;
	uint8_t *old[3 * GROUP];
	uint64_t log = crash_with_three(&f);

	for (uint32_t i = 0; i < 3 * GROUP; i++) {
		old[i] = nvefs_buf_new(NVEFS_BLOCK_SIZE);
		device_read(&f, log + i, old[i]);
	}
	fixture_open(&f, NULL);
	ck_assert_uint_eq(f.st->stats.recovered_txns, 3);
	fixture_crash(&f);
	for (uint32_t i = 0; i < 3 * GROUP; i++) {
		device_write(&f, log + i, old[i]);
		nvefs_buf_free(old[i]);
	}
	fixture_open(&f, NULL);
	ck_assert_uint_eq(f.st->stats.recovered_txns, 0);
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 3);
	fixture_done(&f);
}
END_TEST

START_TEST(one_header_slot_is_enough)
{
	struct fixture f;
	struct nvefs_super *sb = &f.sb;

	/* mkfs writes both alike; opening then writes slot 0. */
	fixture_init(&f, "ram:256M", &by_hand);
	fixture_crash(&f);
	device_damage(&f, nvefs_journal_header_pblk(sb, 0), 80);
	fixture_open(&f, NULL);
	fixture_crash(&f);
	device_damage(&f, nvefs_journal_header_pblk(sb, 0), 80);
	device_damage(&f, nvefs_journal_header_pblk(sb, 1), 80);
	expect_refused(&f, NULL, -EUCLEAN, "both headers");
	nvefs_queue_done(f.q);
	nvefs_dev_close(f.dev);
}
END_TEST

START_TEST(a_stale_root_block_is_detected)
{
	struct fixture f;
	uint8_t *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	fixture_init(&f, "ram:256M", &by_hand);
	device_read(&f, f.sb.root_pblk, old);
	ck_assert_int_eq(cells_put(&f, f.q, 0, 10, 1), 0);
	fixture_close(&f);
	device_write(&f, f.sb.root_pblk, old);
	expect_refused(&f, NULL, -EUCLEAN, "a write was lost");
	expect_refused(&f, &no_recovery, -EUCLEAN, "a write was lost");
	device_damage(&f, f.sb.root_pblk, 70);
	expect_refused(&f, NULL, -EUCLEAN, "checksum");
	nvefs_buf_free(old);
	nvefs_queue_done(f.q);
	nvefs_dev_close(f.dev);
}
END_TEST

/* The newest header comes back older: the home root block knows better. */
START_TEST(a_lost_header_is_detected)
{
	struct fixture f;
	uint8_t *old[2];

	fixture_init(&f, "ram:256M", &by_hand);
	for (unsigned int i = 0; i < 2; i++) {
		old[i] = nvefs_buf_new(NVEFS_BLOCK_SIZE);
		device_read(&f, nvefs_journal_header_pblk(&f.sb, i), old[i]);
	}
	ck_assert_int_eq(cells_put(&f, f.q, 0, 10, 1), 0);
	fixture_close(&f);
	fixture_open(&f, &by_hand); /* a new epoch: the log holds nothing of the old header's */
	ck_assert_int_eq(cells_put(&f, f.q, 0, 10, 2), 0);
	fixture_close(&f);
	for (unsigned int i = 0; i < 2; i++) {
		device_write(&f, nvefs_journal_header_pblk(&f.sb, i), old[i]);
		nvefs_buf_free(old[i]);
	}
	expect_refused(&f, NULL, -EUCLEAN, "lost durable writes");
	nvefs_queue_done(f.q);
	nvefs_dev_close(f.dev);
}
END_TEST

START_TEST(a_damaged_block_is_an_error_for_its_reader_only)
{
	struct fixture f;
	struct nvefs_miss miss;
	struct nvefs_mblk *b;

	fixture_init(&f, "ram:256M", &by_hand);
	ck_assert_int_eq(cells_put(&f, f.q, 0, 10, 1), 0);
	fixture_close(&f);
	device_damage(&f, cell_pblk(&f, 5), 2000);
	fixture_open(&f, NULL);
	for (uint64_t txn = 0; txn <= 1000; txn += 1000) {
		const struct nvefs_block_ref at = {.pblk = cell_pblk(&f, txn ? 4 : 5), .txn = txn};

		nvefs_store_rdlock(f.st);
		ck_assert_int_eq(nvefs_cache_get(f.st, at, NVEFS_BT_NODE, &miss, &b), -EAGAIN);
		nvefs_store_rdunlock(f.st);
		ck_assert_int_eq(nvefs_store_load(f.st, f.q, &miss), -EUCLEAN);
	}
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 1);
	ck_assert_int_eq(nvefs_store_error(f.st), 0);
	fixture_done(&f);
}
END_TEST

static int ignore_node(void *arg, const struct nvefs_tree_visit *v)
{
	(void)arg;
	(void)v;
	return 0;
}

/* ---- Superblock ---- */

START_TEST(any_superblock_slot_is_enough)
{
	struct fixture f;

	fixture_init(&f, "ram:256M", NULL);
	fixture_close(&f);
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++)
		if ((int)i != _i)
			device_damage(&f, nvefs_super_slot_pblk(f.sb.nblks, i), 300);
	fixture_open(&f, NULL);
	ck_assert_uint_eq(f.st->stats.copies_healed, 2);
	fixture_close(&f);
	device_damage(&f, nvefs_super_slot_pblk(f.sb.nblks, (unsigned int)_i), 300);
	fixture_open(&f, &in_memory); /* the others have been written anew */
	nvefs_store_free(f.st);
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++)
		if ((int)i != _i)
			device_damage(&f, nvefs_super_slot_pblk(f.sb.nblks, i), 300);
	expect_refused(&f, NULL, -EUCLEAN, "superblock");
	nvefs_queue_done(f.q);
	nvefs_dev_close(f.dev);
}
END_TEST

START_TEST(the_newest_superblock_counts)
{
	struct fixture f;
	struct nvefs_super sb;
	uint8_t *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	fixture_init(&f, "ram:256M", NULL);
	device_read(&f, 1, old);
	sb = *nvefs_store_super(f.st);
	strcpy(sb.label, "another");
	ck_assert_int_eq(nvefs_store_super_write(f.st, f.q, &sb), 0);
	fixture_close(&f);
	device_write(&f, 1, old);
	nvefs_buf_free(old);
	fixture_open(&f, NULL);
	ck_assert_str_eq(nvefs_store_super(f.st)->label, "another");
	fixture_done(&f);
}
END_TEST

/*
 * Any bytes, also with checksums that fit: opening ends with an answer, and
 * what opened can be walked and closed. The group checksum is left out, so that
 * what is below it has to stand by itself.
 */
START_TEST(random_damage_never_crashes)
{
	struct fixture f;
	unsigned int seed = 77;
	uint64_t log = crash_with_three(&f);
	uint64_t fixed[] = {0, 1, 2, 16, 17, f.sb.nblks - 1};
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE), *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	for (int i = 0; i < 150; i++) {
		uint64_t pblk = rand_r(&seed) % 2 ? log + (uint32_t)rand_r(&seed) % (3 * GROUP)
						  : fixed[(uint32_t)rand_r(&seed) % 6];
		/* The replay may write home whatever it is told; the copy puts the journal back. */
		const struct nvefs_store_opts *opts = i % 2 ? &in_memory : &no_recovery;
		struct nvefs_error err;

		device_read(&f, pblk, old);
		memcpy(buf, old, NVEFS_BLOCK_SIZE);
		for (int n = 1 + rand_r(&seed) % 3; n > 0; n--)
			buf[8 + rand_r(&seed) % 300] ^= (uint8_t)(1 << rand_r(&seed) % 8);
		nvefs_block_seal(buf);
		device_write(&f, pblk, buf);
		nvefs_store_mutation = i % 3 ? NVEFS_MUTATE_NO_GROUP_CHECK : NVEFS_MUTATE_NONE;
		if (!fixture_try_open(&f, opts, &err)) {
			(void)nvefs_tree_walk(f.st, f.q, NULL, ignore_node, NULL);
			nvefs_store_free(f.st);
		}
		device_write(&f, pblk, old);
	}
	nvefs_store_mutation = NVEFS_MUTATE_NONE;
	nvefs_buf_free(buf);
	nvefs_buf_free(old);
	f.st = NULL;
	fixture_open(&f, NULL);
	ck_assert_uint_eq(cell_get(&f, f.q, 4), 3);
	fixture_done(&f);
}
END_TEST

/* Take all data blocks that can be had; what is said at the end. */
static int take_all(struct fixture *f, uint64_t *ret_blks)
{
	struct nvefs_alloc_cursor c = {0};
	uint64_t pblk;
	uint32_t got;
	bool more = false;
	int err;

	*ret_blks = 0;
	while (!(err = nvefs_alloc_data(f->st, f->q, &c, 64, &pblk, &got, &more)))
		*ret_blks += got;
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert(!more);
	return nvefs_alloc_errno(f->st, err);
}

/* Free blocks out of reach are an error of the device, not a full file system. _i 1: nothing is out of reach. */
START_TEST(free_space_whose_bitmap_cannot_be_read)
{
	const uint64_t bitmap = nvefs_layout_bitmap_pblk(1);
	const struct nvefs_fault unreadable = {.op = NVEFS_IO_READ,
					       .action = NVEFS_FAULT_FAIL,
					       .err = -EIO,
					       .every = 1,
					       .first_pblk = bitmap,
					       .end_pblk = bitmap + 1};
	struct nvefs_dev *ram;
	struct fixture f;
	uint64_t blks;

	fixture_init(&f, "ram:200M", &by_hand);
	fixture_close(&f);
	nvefs_queue_done(f.q);
	ram = f.dev;
	ck_assert_int_eq(nvefs_fault_wrap(ram, &unreadable, !_i, &f.dev), 0);
	f.q = test_queue(f.dev);
	fixture_open(&f, &by_hand);
	ck_assert_int_eq(nvefs_alloc_errno(f.st, -ENOSPC), -ENOSPC);
	ck_assert_int_eq(take_all(&f, &blks), _i ? -ENOSPC : -EIO);
	ck_assert(blks > 16384 && (blks > NVEFS_GROUP_BLKS) == (_i == 1));
	ck_assert_int_eq(nvefs_alloc_errno(f.st, -EROFS), -EROFS);
	ck_assert_int_eq(nvefs_alloc_errno(f.st, 0), 0);
	fixture_crash(&f);
	fixture_done(&f);
}
END_TEST

START_TEST(an_empty_device_is_no_file_system)
{
	struct fixture f = {0};
	struct nvefs_error err;

	ck_assert_int_eq(nvefs_dev_open("ram:64M", &(struct nvefs_dev_open_opts){0}, &f.dev, &err), 0);
	expect_refused(&f, NULL, -EMEDIUMTYPE, "mkfs.nvefs");
	nvefs_dev_close(f.dev);
}
END_TEST

Suite *store_damage_suite(void)
{
	Suite *s = suite_create("store-damage");
	TCase *tc = tcase_create("damage");

	tcase_add_test(tc, replay_in_memory_writes_nothing);
	tcase_add_loop_test(tc, an_unfinished_group_is_nothing, 0, 3);
	tcase_add_loop_test(tc, a_damaged_durable_group_is_detected, 0, 10);
	tcase_add_test(tc, the_group_checksum_is_what_detects_it);
	tcase_add_loop_test(tc, an_abandoned_group_stays_abandoned, 0, 2);
	tcase_add_loop_test(tc, an_unreadable_log_block, 0, 8);
	tcase_add_test(tc, stale_groups_do_not_match);
	tcase_add_test(tc, one_header_slot_is_enough);
	tcase_add_test(tc, a_stale_root_block_is_detected);
	tcase_add_test(tc, a_lost_header_is_detected);
	tcase_add_test(tc, a_damaged_block_is_an_error_for_its_reader_only);
	tcase_add_loop_test(tc, any_superblock_slot_is_enough, 0, 3);
	tcase_add_test(tc, the_newest_superblock_counts);
	tcase_add_test(tc, random_damage_never_crashes);
	tcase_add_loop_test(tc, free_space_whose_bitmap_cannot_be_read, 0, 2);
	tcase_add_test(tc, an_empty_device_is_no_file_system);
	suite_add_tcase(s, tc);
	return s;
}
