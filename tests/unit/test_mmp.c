/* SPDX-License-Identifier: MIT */
/*
 * Multiple mount protection, with two hosts on one medium. Intervals are short; what has to be
 * waited for is bounded below and above, above with room for a busy machine.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/suites.h"
#include "base/thread.h"
#include "format/mmp.h"
#include "fsck/check.h"
#include "store/mmp_parts.h"
#include "store/super.h"
#include "test_mmp.h"

/* ---- Peace ---- */

START_TEST(clean_is_quick)
{
	struct nvefs_info info;
	bool quick = false;
	struct host a, b;

	medium_make(400);
	host_init(&a, 0);
	host_init(&b, 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(medium_claim(NULL), NVEFS_MMP_FREE);
		host_mount(&a);
		ck_assert_uint_eq(medium_claim(NULL), NVEFS_MMP_MOUNTED);
		ck_assert_msg(!a.ntold, "waited for %s", a.told.host);
		ck_assert_uint_ge(a.mount_ms, 200); /* half an interval, so that two do not take it at once */
		ck_assert_uint_lt(a.mount_ms, ROOM_MS);
		quick |= !a.nslow && a.mount_ms < 400 * NVEFS_MMP_WATCH;
		nvefs_info_get(a.fs, &info);
		ck_assert_uint_eq(info.mmp_interval_ms, 400);
		if (!i)
			ck_assert_int_eq(host_write(&a, "f", 7), 0);
		ck_assert_int_eq(host_unmount(&a), 0);
	}
	/* On a machine that stands still for a quarter of an interval a claim is slow, and watched; not each time. */
	for (int i = 0; !quick && i < 20; i++) {
		host_mount(&a);
		quick = !a.nslow && a.mount_ms < 400 * NVEFS_MMP_WATCH;
		ck_assert_int_eq(host_unmount(&a), 0);
	}
	ck_assert(quick);
	host_mount(&b);
	ck_assert_uint_eq(b.ntold, 0);
	host_expect(&b, "f", 7);
	ck_assert_int_eq(host_unmount(&b), 0);
	medium_expect_sound();
}
END_TEST

/* The feature off: no claim, no beat, as many commands as ever. */
START_TEST(without)
{
	struct nvefs_info info;
	uint8_t block[4096];
	struct host a;

	medium_make(0);
	host_init(&a, 0);
	host_mount(&a);
	nvefs_info_get(a.fs, &info);
	ck_assert_uint_eq(info.mmp_interval_ms, 0);
	ck_assert_int_eq(host_write(&a, "f", 7), 0);
	ck_assert_int_eq(host_unmount(&a), 0);
	shared_read(&medium, NVEFS_CLAIM_PBLK, block);
	for (int i = 0; i < 4096; i++)
		ck_assert(!block[i]);
	shared_read(&medium, NVEFS_BEAT_PBLK, block);
	for (int i = 0; i < 4096; i++)
		ck_assert(!block[i]);
	medium_expect_sound();
}
END_TEST

/* ---- A second host while the first is alive ---- */

START_TEST(second_is_refused)
{
	struct host a, b;

	host_pair(&a, &b, 1000);
	ck_assert_int_eq(host_write(&a, "f", 1), 0);
	for (int ro = 0; ro < 2; ro++) {
		uint32_t before = medium.nnotes;

		b.opts.read_only = b.opts.replay_in_memory = ro;
		ck_assert_int_eq(host_try_mount(&b), -EBUSY);
		ck_assert_msg(strstr(b.err.text, "host 'alpha'") && strstr(b.err.text, "disk-of-0") &&
				      strstr(b.err.text, "--take-it") && strstr(b.err.text, "disk-of-1"),
			      "%s", b.err.text);
		ck_assert_uint_ge(b.ntold, 1);
		ck_assert_str_eq(b.told.host, "alpha");
		ck_assert_uint_eq(b.told.total_ms, 1000 * NVEFS_MMP_WATCH);
		for (uint32_t i = before; i < medium.nnotes; i++)
			ck_assert_msg(medium.notes[i].host != 1, "the refused one wrote block %llu",
				      (unsigned long long)medium.notes[i].pblk);
	}
	/* Read only and by force: it does not ask, and writes nothing. */
	b.opts.mmp_force = true;
	host_mount(&b);
	ck_assert_uint_eq(b.ntold, 0);
	ck_assert_int_eq(host_unmount(&b), 0);
	ck_assert_int_eq(host_stopped_by(&a), 0);
	ck_assert_int_eq(host_write(&a, "g", 2), 0);
	ck_assert_int_eq(host_unmount(&a), 0);
	medium_expect_sound();
}
END_TEST

START_TEST(let_go_while_watched)
{
	struct host a, b;

	host_pair(&a, &b, 400);
	b.give_up_after = 1;
	ck_assert_int_eq(host_try_mount(&b), -ECANCELED);
	ck_assert_msg(strstr(b.err.text, "given up"), "%s", b.err.text);
	b.give_up_after = 0;
	ck_assert_int_eq(host_unmount(&a), 0);
	host_mount(&b);
	ck_assert_int_eq(host_unmount(&b), 0);
}
END_TEST

static int wipe_claim(void *arg, const char *pass, uint32_t pass_no, uint32_t npasses, uint64_t done, uint64_t total)
{
	static const uint8_t zeros[4096];
	bool *wiped = arg;

	(void)pass;
	(void)npasses;
	(void)done;
	(void)total;
	if (pass_no != 2 || *wiped)
		return 0;
	*wiped = true;
	shared_write(&medium, NVEFS_CLAIM_PBLK, zeros);
	usleep(1000 * 1000);
	return 0;
}

/* Somebody takes it by force, in the middle of a check. */
START_TEST(fsck_loses_the_claim)
{
	bool wiped = false;
	struct nvefs_check_opts o = {.repair = NVEFS_REPAIR_ALL, .progress = wipe_claim, .arg = &wiped};
	struct nvefs_check_result r;
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;

	medium_make(20);
	dev = shared_open(&medium, 1);
	ck_assert_int_eq(nvefs_check(dev, &o, &r, &err), -EBUSY);
	ck_assert_msg(wiped && strstr(err.text, "claim is gone"), "%s", err.text);
	ck_assert_uint_eq(medium_claim(NULL), 0);
	nvefs_dev_close(dev);
}
END_TEST

START_TEST(fsck_is_a_host)
{
	struct nvefs_check_opts o = {.host = "checker"};
	struct nvefs_check_result r;
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;
	struct host a;

	medium_make(1000);
	host_init(&a, 0);
	host_mount(&a);
	for (int n = 0; n < 2; n++) {
		o.replay_in_memory = n;
		o.repair = n ? NVEFS_REPAIR_NONE : NVEFS_REPAIR_ALL;
		dev = shared_open(&medium, 1);
		ck_assert_int_eq(nvefs_check(dev, &o, &r, &err), -EBUSY);
		ck_assert_msg(strstr(err.text, "host 'alpha'"), "%s", err.text);
		nvefs_dev_close(dev);
	}
	ck_assert_uint_eq(shared_count(&medium, 1, 0, UINT64_MAX), 0);
	ck_assert_int_eq(host_unmount(&a), 0);
	o.replay_in_memory = false;
	o.repair = NVEFS_REPAIR_ALL;
	dev = shared_open(&medium, 1);
	ck_assert_msg(!nvefs_check(dev, &o, &r, &err), "%s", err.text);
	ck_assert_uint_eq(r.problems, 0);
	ck_assert_uint_eq(medium_claim(NULL), NVEFS_MMP_FREE);
	nvefs_dev_close(dev);
}
END_TEST

/* Taken away by force: the owner ends, and before the new one begins. */
START_TEST(force_ends_the_owner)
{
	uint64_t taken, nonce, nonce2;
	struct host a, b;

	host_pair(&a, &b, 60);
	ck_assert_int_eq(host_write(&a, "f", 1), 0);
	b.opts.mmp_force = true;
	host_mount(&b);
	ck_assert_uint_ge(b.mount_ms, 60 * NVEFS_MMP_WATCH);
	ck_assert(b.told.taken);
	ck_assert_str_eq(b.told.host, "alpha");
	/* His lease is over; the thread that says so may be late. */
	for (uint64_t end = nvefs_now_ns() + ROOM_MS * MS; !host_stopped_by(&a) && nvefs_now_ns() < end;)
		usleep(2000);
	ck_assert_int_eq(host_stopped_by(&a), -EBUSY);
	ck_assert_msg(strstr(last_log, "host 'beta' has taken") && strstr(last_log, "read-only from now on"), "%s",
		      last_log);
	taken = nvefs_boot_ns();
	ck_assert_int_eq(host_write(&a, "g", 2), -EROFS);
	host_expect(&b, "f", 1);
	ck_assert_int_eq(host_write(&b, "h", 3), 0);
	medium_claim(&nonce);
	ck_assert_int_ne(host_unmount(&a), 0);
	ck_assert_uint_eq(shared_count(&medium, 0, taken, UINT64_MAX), 0);
	/* What is not his any more he does not let go. */
	ck_assert_uint_eq(medium_claim(&nonce2), NVEFS_MMP_MOUNTED);
	ck_assert_uint_eq(nonce, nonce2);
	usleep(300 * 1000);
	ck_assert_int_eq(host_stopped_by(&b), 0);
	ck_assert_int_eq(host_unmount(&b), 0);
	medium_expect_sound();
}
END_TEST

/* ---- One that is gone ---- */

START_TEST(takeover_after_crash)
{
	struct host a, b;

	host_pair(&a, &b, 60);
	ck_assert_int_eq(host_write(&a, "f", 5), 0);
	host_crash(&a);
	host_mount(&b);
	ck_assert_str_eq(b.told.host, "alpha");
	ck_assert(!b.told.fsck && b.told.seen_s);
	ck_assert_uint_ge(b.mount_ms, 60 * NVEFS_MMP_WATCH);
	ck_assert_uint_lt(b.mount_ms, 60 * NVEFS_MMP_WATCH + ROOM_MS);
	host_expect(&b, "f", 5);
	ck_assert_int_eq(host_unmount(&b), 0);
	medium_expect_sound();
}
END_TEST

/* Blocks that say nothing: watched, then written anew. By force the watch comes after the claim. */
START_TEST(damaged_blocks)
{
	static const uint64_t pblks[] = {NVEFS_CLAIM_PBLK, NVEFS_BEAT_PBLK};
	uint8_t block[4096];
	struct host a;

	medium_make(20);
	host_init(&a, 0);
	for (int i = 0; i < 4; i++) {
		shared_read(&medium, pblks[i % 2], block);
		block[70] ^= 1;
		shared_write(&medium, pblks[i % 2], block);
		a.opts.mmp_force = i / 2;
		host_mount(&a);
		ck_assert_uint_ge(a.mount_ms, 20 * NVEFS_MMP_WATCH);
		ck_assert_int_eq(host_unmount(&a), 0);
		a.opts.mmp_force = false;
		host_mount(&a);
		ck_assert_uint_eq(a.ntold, 0);
		ck_assert_int_eq(host_unmount(&a), 0);
	}
}
END_TEST

/* A claim that somebody let go who did not have it any more does not count. */
START_TEST(free_of_another_nonce)
{
	uint8_t old_claim[4096];
	struct host a, b;

	host_pair(&a, &b, 20);
	ck_assert_int_eq(host_unmount(&a), 0);
	shared_read(&medium, NVEFS_CLAIM_PBLK, old_claim);
	host_mount(&b);
	host_crash(&b);
	shared_write(&medium, NVEFS_CLAIM_PBLK, old_claim);
	ck_assert_uint_eq(medium_claim(NULL), NVEFS_MMP_FREE);
	host_mount(&a);
	ck_assert_uint_ge(a.mount_ms, 20 * NVEFS_MMP_WATCH);
	ck_assert_uint_ge(a.ntold, 1);
	ck_assert_int_eq(host_unmount(&a), 0);
}
END_TEST

/* Who cannot see a beat cannot say that there is none. */
START_TEST(unreadable_beat)
{
	const struct nvefs_fault f = {.op = NVEFS_IO_READ, .action = NVEFS_FAULT_FAIL, .err = -EIO, .nth = 1,
				      .every = 1, .first_pblk = NVEFS_BEAT_PBLK, .end_pblk = NVEFS_BEAT_PBLK + 1};
	struct host a, b;

	host_pair(&a, &b, 20);
	host_crash(&a);
	b.dev = shared_open(&medium, 1);
	ck_assert_int_eq(nvefs_fault_add(b.dev, &f), 0);
	ck_assert_int_eq(host_try_mount(&b), -EIO);
	ck_assert_msg(strstr(b.err.text, "block 12") && strstr(b.err.text, "--take-it"), "%s", b.err.text);
	ck_assert_uint_eq(shared_count(&medium, 1, 0, UINT64_MAX), 0);
	b.dev = shared_open(&medium, 1);
	ck_assert_int_eq(nvefs_fault_add(b.dev, &f), 0);
	b.opts.mmp_force = true;
	host_mount(&b);
	ck_assert_int_eq(host_unmount(&b), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mmp");
	TCase *tc = tcase_create("hosts");

	tcase_add_checked_fixture(tc, medium_setup, medium_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, clean_is_quick);
	tcase_add_test(tc, without);
	tcase_add_test(tc, second_is_refused);
	tcase_add_test(tc, let_go_while_watched);
	tcase_add_test(tc, fsck_is_a_host);
	tcase_add_test(tc, fsck_loses_the_claim);
	tcase_add_test(tc, force_ends_the_owner);
	tcase_add_test(tc, takeover_after_crash);
	tcase_add_test(tc, damaged_blocks);
	tcase_add_test(tc, free_of_another_nonce);
	tcase_add_test(tc, unreadable_beat);
	suite_add_tcase(s, tc);
	return run_suites(s, mmp_late_suite(), NULL);
}
