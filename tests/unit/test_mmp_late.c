/* SPDX-License-Identifier: MIT */
/* Multiple mount protection: beats that come late or fail, and several takers at the same time. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "format/mmp.h"
#include "fsck/check.h"
#include "store/mmp_parts.h"
#include "store/super.h"
#include "test_mmp.h"

static uint64_t late_beats(struct host *h)
{
	struct nvefs_stats st;

	nvefs_stats_get(h->fs, &st);
	return st.late_beats;
}

static bool within(bool (*cond)(struct host *h), struct host *h, uint64_t ms)
{
	uint64_t end = nvefs_now_ns() + ms * MS;

	while (!cond(h) && nvefs_now_ns() < end)
		usleep(2000);
	return cond(h);
}

static bool is_stopped(struct host *h)
{
	return host_stopped_by(h) != 0;
}

static bool was_late(struct host *h)
{
	return late_beats(h) != 0;
}

/* ---- Late beats ---- */

/* The next command on this block, of this host, is not begun before so many milliseconds. */
static void hold_up(struct host *h, uint8_t op, uint64_t pblk, uint64_t ms)
{
	const struct nvefs_fault f = {.op = op, .action = NVEFS_FAULT_LATE, .nth = 1, .first_pblk = pblk,
				      .end_pblk = pblk + 1, .delay_ns = ms * MS};

	ck_assert_int_eq(nvefs_fault_add(h->dev, &f), 0);
}

/*
 * The device is slow: the lease runs out, nobody comes. Writes wait, and what was written and
 * synced meanwhile is answered only when it is known that nobody came; then all goes on.
 */
START_TEST(late_beat_holds_writes)
{
	enum { I = 60, LATE = 1000 };
	static const struct {
		uint8_t op;
		uint64_t pblk;
	} at[] = {{NVEFS_IO_WRITE, NVEFS_BEAT_PBLK}, {NVEFS_IO_READ, NVEFS_CLAIM_PBLK}};
	uint64_t start, end, over;
	struct host a;

	medium_make(I);
	host_init(&a, 0);
	host_mount(&a);
	ck_assert_int_eq(host_write(&a, "f", 1), 0);
	start = nvefs_boot_ns();
	hold_up(&a, at[_i].op, at[_i].pblk, LATE);
	/* One interval until the beat is due, and then its lease at most; the hold-up began after `start`. */
	over = nvefs_boot_ns() + I * (NVEFS_MMP_LEASE + 2) * MS;
	while (nvefs_boot_ns() < over)
		usleep(1000);
	ck_assert_int_eq(host_write(&a, "g", 2), 0);
	end = nvefs_boot_ns();
	ck_assert_uint_ge(end - start, (LATE - 50) * MS);
	ck_assert_uint_eq(shared_count(&medium, 0, over, start + (LATE - 50) * MS), 0);
	ck_assert(within(was_late, &a, ROOM_MS));
	ck_assert_msg(strstr(last_log, "ms late"), "%s", last_log);
	ck_assert_int_eq(host_stopped_by(&a), 0);
	ck_assert_int_eq(host_write(&a, "h", 3), 0);
	ck_assert_int_eq(host_unmount(&a), 0);
	host_mount(&a);
	host_expect(&a, "g", 2);
	host_expect(&a, "h", 3);
	ck_assert_int_eq(host_unmount(&a), 0);
	medium_expect_sound();
}
END_TEST

/*
 * The last command of a commit was sent within the lease and comes back after its end: it may have
 * been too late. The fsync is answered when that is known, and not before.
 */
START_TEST(commit_ends_after_the_lease)
{
	enum { I = 60, LATE = 1000 };
	struct nvefs_fault slow = {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_DELAY, .nth = 1, .every = 1,
				   .first_pblk = NVEFS_JOURNAL_PBLK, .end_pblk = NVEFS_JOURNAL_PBLK + 512,
				   .delay_ns = 3 * I * MS};
	uint64_t start;
	struct host a;

	medium_make(I);
	host_init(&a, 0);
	host_mount(&a);
	ck_assert_int_eq(nvefs_fault_add(a.dev, &slow), 0);
	start = nvefs_boot_ns();
	hold_up(&a, NVEFS_IO_WRITE, NVEFS_BEAT_PBLK, LATE);
	ck_assert_int_eq(host_write(&a, "f", 1), 0);
	ck_assert_uint_ge(nvefs_boot_ns() - start, (LATE - 50) * MS);
	ck_assert(within(was_late, &a, ROOM_MS));
	nvefs_fault_clear(a.dev);
	ck_assert_int_eq(host_unmount(&a), 0);
	medium_expect_sound();
}
END_TEST

struct syncer {
	struct host *h;
	int err;
	bool done; /* atomic */
};

static void *sync_main(void *arg)
{
	struct syncer *s = arg;

	/* A worker belongs to its thread. */
	s->err = nvefs_worker_open(s->h->fs, &s->h->w);
	if (!s->err)
		s->err = host_write(s->h, "late", 9);
	nvefs_worker_close(s->h->w);
	__atomic_store_n(&s->done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/*
 * The host stands still for longer than others wait, and one of them takes the file system. When it
 * goes on, its beat comes too late: no write reaches the medium, nothing is told as durable, and
 * the new owner is not disturbed by the old beat.
 */
START_TEST(late_beat_after_takeover)
{
	enum { I = 60, LATE = 8000 };
	struct syncer s = {0};
	struct host a, b;
	pthread_t thread;
	uint64_t start, taken;

	host_pair(&a, &b, I);
	ck_assert_int_eq(host_write(&a, "f", 1), 0);
	nvefs_worker_close(a.w);
	a.w = NULL;
	start = nvefs_boot_ns();
	/* Only the beat itself: the read before it was in time. */
	hold_up(&a, NVEFS_IO_WRITE, NVEFS_BEAT_PBLK, LATE);
	usleep(I * (NVEFS_MMP_LEASE + 2) * 1000);
	s.h = &a;
	ck_assert_int_eq(nvefs_thread_start(&thread, "syncer", sync_main, &s), 0);
	host_mount(&b);
	taken = nvefs_boot_ns();
	ck_assert_msg(taken - start < LATE * MS, "too slow a machine for this test: %llu ms",
		      (unsigned long long)((taken - start) / MS));
	host_expect(&b, "f", 1);
	ck_assert_int_eq(host_write(&b, "new", 4), 0);
	ck_assert_msg(!s.done, "an fsync was answered without a lease: %d", s.err);
	ck_assert(within(is_stopped, &a, LATE + ROOM_MS));
	ck_assert_int_eq(host_stopped_by(&a), -EBUSY);
	nvefs_thread_join(thread);
	ck_assert_int_ne(s.err, 0);
	ck_assert_uint_eq(shared_count(&medium, 0, start + I * (NVEFS_MMP_LEASE + 1) * MS, UINT64_MAX), 0);
	/* The old beat is in the beat's block now: the owner goes by his claim. */
	usleep(200 * 1000);
	ck_assert_int_eq(host_stopped_by(&b), 0);
	ck_assert_int_eq(host_write(&b, "newer", 6), 0);
	a.w = NULL;
	ck_assert_int_ne(host_unmount(&a), 0);
	ck_assert_int_eq(host_unmount(&b), 0);
	medium_expect_sound();
	host_mount(&b);
	ck_assert_uint_eq(b.ntold, 0);
	host_expect(&b, "newer", 6);
	ck_assert_int_eq(host_unmount(&b), 0);
}
END_TEST

static bool beat_failed(struct host *h)
{
	return nvefs_fault_hits(h->dev) != 0;
}

/* The device answers with errors for as long as a lease lasts: that ends writing, with one message. */
START_TEST(beats_that_fail)
{
	struct nvefs_fault f = {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_FAIL, .err = -EIO, .nth = 1,
				.first_pblk = NVEFS_BEAT_PBLK, .end_pblk = NVEFS_BEAT_PBLK + 1};
	struct host a;

	medium_make(50);
	host_init(&a, 0);
	host_mount(&a);
	/* Once does not matter. */
	ck_assert_int_eq(nvefs_fault_add(a.dev, &f), 0);
	ck_assert(within(beat_failed, &a, ROOM_MS));
	usleep(200 * 1000);
	ck_assert_int_eq(host_stopped_by(&a), 0);
	f.every = 1;
	ck_assert_int_eq(nvefs_fault_add(a.dev, &f), 0);
	ck_assert(within(is_stopped, &a, 50 * NVEFS_MMP_LEASE + ROOM_MS));
	ck_assert_msg(strstr(last_log, "cannot be written"), "%s", last_log);
	ck_assert_int_eq(host_write(&a, "g", 2), -EROFS);
	ck_assert_int_ne(host_unmount(&a), 0);
	host_mount(&a);
	ck_assert_uint_ge(a.ntold, 1);
	ck_assert_int_eq(host_unmount(&a), 0);
	medium_expect_sound();
}
END_TEST

/* The claim is wiped, as mkfs of another host does. */
START_TEST(claim_is_gone)
{
	static const uint8_t zeros[4096];
	struct host a;

	medium_make(50);
	host_init(&a, 0);
	host_mount(&a);
	shared_write(&medium, NVEFS_CLAIM_PBLK, zeros);
	ck_assert(within(is_stopped, &a, ROOM_MS));
	ck_assert_msg(strstr(last_log, "claim is gone"), "%s", last_log);
	ck_assert_int_ne(host_unmount(&a), 0);
	ck_assert_uint_eq(medium_claim(NULL), 0);
}
END_TEST

static uint8_t claim_of_beta[4096] __attribute__((aligned(8)));

static void beta_claims(struct shared_medium *m, uint32_t host, uint64_t pblk)
{
	if (host == 0 && pblk == NVEFS_BEAT_PBLK)
		shared_write_locked(m, NVEFS_CLAIM_PBLK, claim_of_beta);
}

/* Somebody claims between a beat's first look at the claim and its end: that beat gives no lease. */
START_TEST(beat_looks_again)
{
	const struct nvefs_mmp_opts mo = {.state = NVEFS_MMP_MOUNTED, .host = "alpha"}, other = {.state = NVEFS_MMP_MOUNTED, .host = "beta"};
	struct nvefs_mmp *a, *b;
	struct nvefs_super sb;
	struct nvefs_dev *dev;
	struct nvefs_queue *q;

	medium_make(1000);
	dev = shared_open(&medium, 0);
	ck_assert_int_eq(nvefs_queue_init(dev, 0, &q), 0);
	ck_assert_int_eq(nvefs_super_read(dev, q, &sb, NULL), 0);
	a = nvefs_mmp_new(dev, &sb, &mo);
	b = nvefs_mmp_new(dev, &sb, &other);
	ck_assert_int_eq(nvefs_mmp_write(q, &sb, &a->rec, NVEFS_BT_CLAIM, a->buf), 0);
	ck_assert_int_eq(nvefs_mmp_beat(a, q), 0);
	ck_assert_uint_ge(a->lease_ns, nvefs_boot_ns());
	a->lease_ns = 1;
	nvefs_mmp_encode(&b->rec, &sb, NVEFS_BT_CLAIM, claim_of_beta);
	nvefs_block_seal(claim_of_beta);
	medium.written = beta_claims;
	ck_assert_int_eq(nvefs_mmp_beat(a, q), -EBUSY);
	ck_assert_uint_eq(a->lease_ns, 1);
	ck_assert_msg(strstr(a->why, "host 'beta'"), "%s", a->why);
	nvefs_mmp_free(a);
	nvefs_mmp_free(b);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
}
END_TEST

/* ---- Takers at the same time ---- */

static void late_beat_of_alpha(struct shared_medium *m, uint32_t host, uint64_t pblk)
{
	uint8_t block[4096];

	if (host != 1 || pblk != NVEFS_CLAIM_PBLK)
		return;
	m->written = NULL;
	memcpy(block, nvefs_cow_block(m->cow, NVEFS_BEAT_PBLK), sizeof(block));
	block[72] ^= 1;
	shared_write_locked(m, NVEFS_BEAT_PBLK, block);
}

/* A host that was silent for a whole watch beats once more, just when the claim has been written: it gets time to notice. */
START_TEST(beat_moves_after_the_claim)
{
	struct host a, b;

	host_pair(&a, &b, 30);
	host_crash(&a);
	medium.written = late_beat_of_alpha;
	host_mount(&b);
	ck_assert_ptr_null(medium.written);
	ck_assert_uint_ge(b.mount_ms, 2 * 30 * NVEFS_MMP_WATCH);
	ck_assert_int_eq(host_unmount(&b), 0);
	medium_expect_sound();
}
END_TEST

/* The claim comes so late that it may have hit another one, which is verified already. */
START_TEST(slow_claim)
{
	struct host a;

	medium_make(60);
	host_init(&a, 0);
	a.dev = shared_open(&medium, 0);
	hold_up(&a, NVEFS_IO_WRITE, NVEFS_CLAIM_PBLK, 40);
	host_mount(&a);
	ck_assert_uint_ge(a.mount_ms, 60 * NVEFS_MMP_WATCH);
	ck_assert_int_eq(host_unmount(&a), 0);
}
END_TEST

struct taker {
	struct host h;
	int err;
};

static void *take_main(void *arg)
{
	struct taker *t = arg;

	t->err = host_try_mount(&t->h);
	if (!t->err) {
		t->err = host_write(&t->h, "mine", (uint8_t)t->h.number);
		nvefs_worker_close(t->h.w);
	}
	return NULL;
}

/* Of a file system that is free (0), or whose host crashed (1): never two, and mostly one. */
START_TEST(at_the_same_time)
{
	uint32_t nwon = 0;

	for (int round = 0; round < 6; round++) {
		struct taker t[3];
		pthread_t threads[3];
		uint32_t n = 0;

		medium_make(20);
		if (_i) {
			host_init(&t[0].h, 0);
			host_mount(&t[0].h);
			host_crash(&t[0].h);
		}
		for (uint32_t i = 0; i < 3; i++) {
			host_init(&t[i].h, i);
			ck_assert_int_eq(nvefs_thread_start(&threads[i], "taker", take_main, &t[i]), 0);
		}
		for (int i = 0; i < 3; i++)
			nvefs_thread_join(threads[i]);
		for (int i = 0; i < 3; i++) {
			if (!t[i].h.fs) {
				ck_assert_msg(t[i].err == -EBUSY || t[i].err == -EIO, "%s", t[i].h.err.text);
				continue;
			}
			n += !t[i].err;
			/* Who lost it again does not let it go. */
			nvefs_unmount(t[i].h.fs);
		}
		ck_assert_msg(n <= 1, "round %d: %u hosts wrote", round, n);
		nwon += n;
		medium_expect_sound();
	}
	ck_assert_uint_ge(nwon, 2);
}
END_TEST

/* Nothing that writes gets by without a claim. */
START_TEST(store_wants_a_claim)
{
	struct nvefs_store_opts so = {0};
	struct nvefs_error err = {""};
	struct nvefs_store *st;
	struct nvefs_dev *dev;

	medium_make(50);
	dev = shared_open(&medium, 0);
	ck_assert_int_eq(nvefs_store_open(dev, &so, &st, &err), -EBUSY);
	ck_assert_msg(strstr(err.text, "not claimed"), "%s", err.text);
	so.read_only = true; /* recovery would write */
	ck_assert_int_eq(nvefs_store_open(dev, &so, &st, &err), -EBUSY);
	so.replay_in_memory = true;
	ck_assert_int_eq(nvefs_store_open(dev, &so, &st, &err), 0);
	nvefs_store_free(st);
	nvefs_dev_close(dev);
}
END_TEST

Suite *mmp_late_suite(void)
{
	Suite *s = suite_create("mmp-late");
	TCase *tc = tcase_create("late");

	tcase_add_checked_fixture(tc, medium_setup, medium_teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, late_beat_holds_writes, 0, 2);
	tcase_add_test(tc, commit_ends_after_the_lease);
	tcase_add_test(tc, late_beat_after_takeover);
	tcase_add_test(tc, beats_that_fail);
	tcase_add_test(tc, beat_looks_again);
	tcase_add_test(tc, claim_is_gone);
	tcase_add_test(tc, beat_moves_after_the_claim);
	tcase_add_test(tc, slow_claim);
	tcase_add_loop_test(tc, at_the_same_time, 0, 2);
	tcase_add_test(tc, store_wants_a_claim);
	suite_add_tcase(s, tc);
	return s;
}
