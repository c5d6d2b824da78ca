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
#include "base/log.h"
#include "base/thread.h"
#include "format/mmp.h"
#include "fsck/check.h"
#include "store/mmp_parts.h"
#include "store/super.h"
#include "two_hosts.h"

#define MS 1000000ull
#define ROOM_MS 8000u /* for a machine that does other things */

static struct shared_medium medium;
static char last_log[512];

static void keep_log(enum nvefs_log_level level, const char *line)
{
	(void)level;
	snprintf(last_log, sizeof(last_log), "%s", line);
}

struct host {
	uint32_t number;
	struct nvefs_dev *dev; /* while mounted, the file system's */
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
	struct nvefs_mount_opts opts;
	struct nvefs_error err;
	/* what it was told while it waited */
	uint32_t ntold, give_up_after;
	struct nvefs_host_wait told;
	uint64_t mount_ms;
};

static int told(void *arg, const struct nvefs_host_wait *w)
{
	struct host *h = arg;

	h->ntold++;
	h->told = *w;
	return h->give_up_after && h->ntold >= h->give_up_after;
}

static void host_init(struct host *h, uint32_t number)
{
	static const char *const names[] = {"alpha", "beta", "gamma"};

	memset(h, 0, sizeof(*h));
	h->number = number;
	h->opts.host = names[number];
	h->opts.host_wait = told;
	h->opts.host_wait_arg = h;
	h->opts.mmp_force_how = "--take-it";
	h->opts.max_workers = 1;
	h->opts.commit_interval_s = 3600;
}

static void make(uint32_t interval_ms)
{
	struct nvefs_mkfs_opts mo = {.mmp_interval_ms = interval_ms, .journal_blks = 512};
	struct nvefs_dev *dev = shared_open(&medium, 9);
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_mkfs(dev, &mo, &err), "%s", err.text);
	nvefs_dev_close(dev);
}

/* What nvefs_mount says; on failure the device is closed. */
static int try_mount(struct host *h)
{
	uint64_t start = nvefs_now_ns();
	int err;

	h->ntold = 0;
	h->err.text[0] = '\0';
	if (!h->dev)
		h->dev = shared_open(&medium, h->number);
	err = nvefs_mount(h->dev, &h->opts, &h->fs, &h->err);
	h->mount_ms = (nvefs_now_ns() - start) / MS;
	if (!err)
		err = nvefs_worker_open(h->fs, &h->w);
	else
		nvefs_dev_close(h->dev);
	if (err)
		h->dev = NULL;
	return err;
}

static void mount(struct host *h)
{
	ck_assert_msg(!try_mount(h), "%s", h->err.text);
}

static int unmount(struct host *h)
{
	int err;

	nvefs_worker_close(h->w);
	err = nvefs_unmount(h->fs);
	h->fs = NULL;
	h->dev = NULL;
	return err;
}

static void crash(struct host *h)
{
	nvefs_worker_close(h->w);
	nvefs_abandon(h->fs);
	h->fs = NULL;
	h->dev = NULL;
}

static int write_file(struct host *h, const char *name, uint8_t value)
{
	uint8_t buf[8192];
	uint64_t ino;
	int err = h_create(h->w, name, &ino);

	memset(buf, value, sizeof(buf));
	if (!err)
		err = h_write(h->w, ino, 0, buf, sizeof(buf), 0);
	return err ? err : h_fsync(h->w, ino);
}

static void expect_file(struct host *h, const char *name, uint8_t value)
{
	struct nvefs_attr a;
	uint8_t buf[8192];

	ck_assert_msg(!nvefs_lookup(h->w, 1, name, strlen(name), &a), "%s is not there", name);
	ck_assert_int_eq(h_read(h->w, a.ino, 0, buf, sizeof(buf)), sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i++)
		ck_assert_msg(buf[i] == value, "%s: byte %zu is %u", name, i, buf[i]);
}

static void expect_sound(void)
{
	struct nvefs_check_opts o = {.replay_in_memory = true, .data = true, .mmp_force = true};
	struct nvefs_dev *dev = shared_open(&medium, 9);
	struct nvefs_check_result r;
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_check(dev, &o, &r, &err), "%s", err.text);
	ck_assert_msg(!r.problems, "NV%04x", r.first_code);
	nvefs_dev_close(dev);
}

static int stopped_by(struct host *h)
{
	struct nvefs_stats st;

	nvefs_stats_get(h->fs, &st);
	return st.error;
}

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
	return stopped_by(h) != 0;
}

static bool was_late(struct host *h)
{
	return late_beats(h) != 0;
}

static uint32_t claim_state(uint64_t *ret_nonce)
{
	struct nvefs_mmp_rec rec;
	struct nvefs_super sb;
	uint8_t block[4096] __attribute__((aligned(8)));
	const char *why;

	shared_read(&medium, 0, block);
	ck_assert_int_eq(nvefs_super_decode(block, 0, &sb, &why), 0);
	shared_read(&medium, NVEFS_CLAIM_PBLK, block);
	if (nvefs_mmp_decode(block, &sb, NVEFS_BT_CLAIM, &rec) != NVEFS_BLOCK_OK)
		return 0;
	if (ret_nonce)
		*ret_nonce = rec.nonce;
	return rec.state;
}

/* ---- Peace ---- */

START_TEST(clean_is_quick)
{
	struct nvefs_info info;
	struct host a, b;

	make(400);
	host_init(&a, 0);
	host_init(&b, 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(claim_state(NULL), NVEFS_MMP_FREE);
		mount(&a);
		ck_assert_uint_eq(claim_state(NULL), NVEFS_MMP_MOUNTED);
		ck_assert_msg(!a.ntold, "waited for %s", a.told.host);
		ck_assert_uint_ge(a.mount_ms, 200); /* half an interval, so that two do not take it at once */
		ck_assert_uint_lt(a.mount_ms, 4000);
		nvefs_info_get(a.fs, &info);
		ck_assert_uint_eq(info.mmp_interval_ms, 400);
		if (!i)
			ck_assert_int_eq(write_file(&a, "f", 7), 0);
		ck_assert_int_eq(unmount(&a), 0);
	}
	mount(&b);
	ck_assert_uint_eq(b.ntold, 0);
	expect_file(&b, "f", 7);
	ck_assert_int_eq(unmount(&b), 0);
	expect_sound();
}
END_TEST

/* The feature off: no claim, no beat, as many commands as ever. */
START_TEST(without)
{
	struct nvefs_info info;
	uint8_t block[4096];
	struct host a;

	make(0);
	host_init(&a, 0);
	mount(&a);
	nvefs_info_get(a.fs, &info);
	ck_assert_uint_eq(info.mmp_interval_ms, 0);
	ck_assert_int_eq(write_file(&a, "f", 7), 0);
	ck_assert_int_eq(unmount(&a), 0);
	shared_read(&medium, NVEFS_CLAIM_PBLK, block);
	for (int i = 0; i < 4096; i++)
		ck_assert(!block[i]);
	shared_read(&medium, NVEFS_BEAT_PBLK, block);
	for (int i = 0; i < 4096; i++)
		ck_assert(!block[i]);
	expect_sound();
}
END_TEST

/* ---- A second host while the first is alive ---- */

START_TEST(second_is_refused)
{
	struct host a, b;

	make(200);
	host_init(&a, 0);
	host_init(&b, 1);
	mount(&a);
	ck_assert_int_eq(write_file(&a, "f", 1), 0);
	for (int ro = 0; ro < 2; ro++) {
		uint32_t before = medium.nnotes;

		b.opts.read_only = b.opts.replay_in_memory = ro;
		ck_assert_int_eq(try_mount(&b), -EBUSY);
		ck_assert_msg(strstr(b.err.text, "host 'alpha'") && strstr(b.err.text, "disk-of-0") &&
				      strstr(b.err.text, "--take-it") && strstr(b.err.text, "disk-of-1"),
			      "%s", b.err.text);
		ck_assert_uint_ge(b.ntold, 1);
		ck_assert_str_eq(b.told.host, "alpha");
		ck_assert_uint_eq(b.told.total_ms, 200 * NVEFS_MMP_WATCH);
		for (uint32_t i = before; i < medium.nnotes; i++)
			ck_assert_msg(medium.notes[i].host != 1, "the refused one wrote block %llu",
				      (unsigned long long)medium.notes[i].pblk);
	}
	/* Read only and by force: it does not ask, and writes nothing. */
	b.opts.mmp_force = true;
	mount(&b);
	ck_assert_uint_eq(b.ntold, 0);
	ck_assert_int_eq(unmount(&b), 0);
	ck_assert_int_eq(stopped_by(&a), 0);
	ck_assert_int_eq(write_file(&a, "g", 2), 0);
	ck_assert_int_eq(unmount(&a), 0);
	expect_sound();
}
END_TEST

START_TEST(let_go_while_watched)
{
	struct host a, b;

	make(400);
	host_init(&a, 0);
	host_init(&b, 1);
	mount(&a);
	b.give_up_after = 1;
	ck_assert_int_eq(try_mount(&b), -ECANCELED);
	ck_assert_msg(strstr(b.err.text, "given up"), "%s", b.err.text);
	b.give_up_after = 0;
	ck_assert_int_eq(unmount(&a), 0);
	mount(&b);
	ck_assert_int_eq(unmount(&b), 0);
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
	usleep(300 * 1000);
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

	make(20);
	dev = shared_open(&medium, 1);
	ck_assert_int_eq(nvefs_check(dev, &o, &r, &err), -EBUSY);
	ck_assert_msg(wiped && strstr(err.text, "claim is gone"), "%s", err.text);
	ck_assert_uint_eq(claim_state(NULL), 0);
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

	make(100);
	host_init(&a, 0);
	mount(&a);
	for (int n = 0; n < 2; n++) {
		o.replay_in_memory = n;
		o.repair = n ? NVEFS_REPAIR_NONE : NVEFS_REPAIR_ALL;
		dev = shared_open(&medium, 1);
		ck_assert_int_eq(nvefs_check(dev, &o, &r, &err), -EBUSY);
		ck_assert_msg(strstr(err.text, "host 'alpha'"), "%s", err.text);
		nvefs_dev_close(dev);
	}
	ck_assert_uint_eq(shared_count(&medium, 1, 0, UINT64_MAX), 0);
	ck_assert_int_eq(unmount(&a), 0);
	o.replay_in_memory = false;
	o.repair = NVEFS_REPAIR_ALL;
	dev = shared_open(&medium, 1);
	ck_assert_msg(!nvefs_check(dev, &o, &r, &err), "%s", err.text);
	ck_assert_uint_eq(r.problems, 0);
	ck_assert_uint_eq(claim_state(NULL), NVEFS_MMP_FREE);
	nvefs_dev_close(dev);
}
END_TEST

/* Taken away by force: the owner ends, and before the new one begins. */
START_TEST(force_ends_the_owner)
{
	uint64_t taken, nonce, nonce2;
	struct host a, b;

	make(60);
	host_init(&a, 0);
	host_init(&b, 1);
	mount(&a);
	ck_assert_int_eq(write_file(&a, "f", 1), 0);
	b.opts.mmp_force = true;
	mount(&b);
	ck_assert_uint_ge(b.mount_ms, 60 * NVEFS_MMP_WATCH);
	ck_assert(b.told.taken);
	ck_assert_str_eq(b.told.host, "alpha");
	ck_assert_int_eq(stopped_by(&a), -EBUSY);
	ck_assert_msg(strstr(last_log, "host 'beta' has taken") && strstr(last_log, "read-only from now on"), "%s",
		      last_log);
	taken = nvefs_boot_ns();
	ck_assert_int_eq(write_file(&a, "g", 2), -EROFS);
	expect_file(&b, "f", 1);
	ck_assert_int_eq(write_file(&b, "h", 3), 0);
	claim_state(&nonce);
	ck_assert_int_ne(unmount(&a), 0);
	ck_assert_uint_eq(shared_count(&medium, 0, taken, UINT64_MAX), 0);
	/* What is not his any more he does not let go. */
	ck_assert_uint_eq(claim_state(&nonce2), NVEFS_MMP_MOUNTED);
	ck_assert_uint_eq(nonce, nonce2);
	usleep(300 * 1000);
	ck_assert_int_eq(stopped_by(&b), 0);
	ck_assert_int_eq(unmount(&b), 0);
	expect_sound();
}
END_TEST

/* ---- One that is gone ---- */

START_TEST(takeover_after_crash)
{
	struct host a, b;

	make(60);
	host_init(&a, 0);
	host_init(&b, 1);
	mount(&a);
	ck_assert_int_eq(write_file(&a, "f", 5), 0);
	crash(&a);
	mount(&b);
	ck_assert_str_eq(b.told.host, "alpha");
	ck_assert(!b.told.fsck && b.told.seen_s);
	ck_assert_uint_ge(b.mount_ms, 60 * NVEFS_MMP_WATCH);
	ck_assert_uint_lt(b.mount_ms, 60 * NVEFS_MMP_WATCH + ROOM_MS);
	expect_file(&b, "f", 5);
	ck_assert_int_eq(unmount(&b), 0);
	expect_sound();
}
END_TEST

/* Blocks that say nothing: watched, then written anew. By force the watch comes after the claim. */
START_TEST(damaged_blocks)
{
	static const uint64_t pblks[] = {NVEFS_CLAIM_PBLK, NVEFS_BEAT_PBLK};
	uint8_t block[4096];
	struct host a;

	make(20);
	host_init(&a, 0);
	for (int i = 0; i < 4; i++) {
		shared_read(&medium, pblks[i % 2], block);
		block[70] ^= 1;
		shared_write(&medium, pblks[i % 2], block);
		a.opts.mmp_force = i / 2;
		mount(&a);
		ck_assert_uint_ge(a.mount_ms, 20 * NVEFS_MMP_WATCH);
		ck_assert_int_eq(unmount(&a), 0);
		a.opts.mmp_force = false;
		mount(&a);
		ck_assert_uint_eq(a.ntold, 0);
		ck_assert_int_eq(unmount(&a), 0);
	}
}
END_TEST

/* A claim that somebody let go who did not have it any more does not count. */
START_TEST(free_of_another_nonce)
{
	uint8_t old_claim[4096];
	struct host a, b;

	make(20);
	host_init(&a, 0);
	host_init(&b, 1);
	mount(&a);
	ck_assert_int_eq(unmount(&a), 0);
	shared_read(&medium, NVEFS_CLAIM_PBLK, old_claim);
	mount(&b);
	crash(&b);
	shared_write(&medium, NVEFS_CLAIM_PBLK, old_claim);
	ck_assert_uint_eq(claim_state(NULL), NVEFS_MMP_FREE);
	mount(&a);
	ck_assert_uint_ge(a.mount_ms, 20 * NVEFS_MMP_WATCH);
	ck_assert_uint_ge(a.ntold, 1);
	ck_assert_int_eq(unmount(&a), 0);
}
END_TEST

/* Who cannot see a beat cannot say that there is none. */
START_TEST(unreadable_beat)
{
	const struct nvefs_fault f = {.op = NVEFS_IO_READ, .action = NVEFS_FAULT_FAIL, .err = -EIO, .nth = 1,
				      .every = 1, .first_pblk = NVEFS_BEAT_PBLK, .end_pblk = NVEFS_BEAT_PBLK + 1};
	struct host a, b;

	make(20);
	host_init(&a, 0);
	host_init(&b, 1);
	mount(&a);
	crash(&a);
	b.dev = shared_open(&medium, 1);
	ck_assert_int_eq(nvefs_fault_add(b.dev, &f), 0);
	ck_assert_int_eq(try_mount(&b), -EIO);
	ck_assert_msg(strstr(b.err.text, "block 12") && strstr(b.err.text, "--take-it"), "%s", b.err.text);
	ck_assert_uint_eq(shared_count(&medium, 1, 0, UINT64_MAX), 0);
	b.dev = shared_open(&medium, 1);
	ck_assert_int_eq(nvefs_fault_add(b.dev, &f), 0);
	b.opts.mmp_force = true;
	mount(&b);
	ck_assert_int_eq(unmount(&b), 0);
}
END_TEST

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

	make(I);
	host_init(&a, 0);
	mount(&a);
	ck_assert_int_eq(write_file(&a, "f", 1), 0);
	start = nvefs_boot_ns();
	hold_up(&a, at[_i].op, at[_i].pblk, LATE);
	/* One interval until the beat is due, and then its lease at most. */
	over = start + I * (NVEFS_MMP_LEASE + 2) * MS;
	while (nvefs_boot_ns() < over)
		usleep(1000);
	ck_assert_int_eq(write_file(&a, "g", 2), 0);
	end = nvefs_boot_ns();
	ck_assert_uint_ge(end - start, (LATE - 50) * MS);
	ck_assert_uint_eq(shared_count(&medium, 0, over, start + (LATE - 50) * MS), 0);
	ck_assert(within(was_late, &a, ROOM_MS));
	ck_assert_msg(strstr(last_log, "ms late"), "%s", last_log);
	ck_assert_int_eq(stopped_by(&a), 0);
	ck_assert_int_eq(write_file(&a, "h", 3), 0);
	ck_assert_int_eq(unmount(&a), 0);
	mount(&a);
	expect_file(&a, "g", 2);
	expect_file(&a, "h", 3);
	ck_assert_int_eq(unmount(&a), 0);
	expect_sound();
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

	make(I);
	host_init(&a, 0);
	mount(&a);
	ck_assert_int_eq(nvefs_fault_add(a.dev, &slow), 0);
	start = nvefs_boot_ns();
	hold_up(&a, NVEFS_IO_WRITE, NVEFS_BEAT_PBLK, LATE);
	ck_assert_int_eq(write_file(&a, "f", 1), 0);
	ck_assert_uint_ge(nvefs_boot_ns() - start, (LATE - 50) * MS);
	ck_assert(within(was_late, &a, ROOM_MS));
	nvefs_fault_clear(a.dev);
	ck_assert_int_eq(unmount(&a), 0);
	expect_sound();
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
		s->err = write_file(s->h, "late", 9);
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
	enum { I = 60, LATE = 3000 };
	struct syncer s = {0};
	struct host a, b;
	pthread_t thread;
	uint64_t start, taken;

	make(I);
	host_init(&a, 0);
	host_init(&b, 1);
	mount(&a);
	ck_assert_int_eq(write_file(&a, "f", 1), 0);
	nvefs_worker_close(a.w);
	a.w = NULL;
	start = nvefs_boot_ns();
	/* Only the beat itself: the read before it was in time. */
	hold_up(&a, NVEFS_IO_WRITE, NVEFS_BEAT_PBLK, LATE);
	usleep(I * (NVEFS_MMP_LEASE + 2) * 1000);
	s.h = &a;
	ck_assert_int_eq(nvefs_thread_start(&thread, "syncer", sync_main, &s), 0);
	mount(&b);
	taken = nvefs_boot_ns();
	ck_assert_msg(taken - start < LATE * MS, "too slow a machine for this test: %llu ms",
		      (unsigned long long)((taken - start) / MS));
	expect_file(&b, "f", 1);
	ck_assert_int_eq(write_file(&b, "new", 4), 0);
	ck_assert_msg(!s.done, "an fsync was answered without a lease: %d", s.err);
	ck_assert(within(is_stopped, &a, LATE + ROOM_MS));
	ck_assert_int_eq(stopped_by(&a), -EBUSY);
	nvefs_thread_join(thread);
	ck_assert_int_ne(s.err, 0);
	ck_assert_uint_eq(shared_count(&medium, 0, start + I * (NVEFS_MMP_LEASE + 1) * MS, UINT64_MAX), 0);
	/* The old beat is in the beat's block now: the owner goes by his claim. */
	usleep(200 * 1000);
	ck_assert_int_eq(stopped_by(&b), 0);
	ck_assert_int_eq(write_file(&b, "newer", 6), 0);
	a.w = NULL;
	ck_assert_int_ne(unmount(&a), 0);
	ck_assert_int_eq(unmount(&b), 0);
	expect_sound();
	mount(&b);
	ck_assert_uint_eq(b.ntold, 0);
	expect_file(&b, "newer", 6);
	ck_assert_int_eq(unmount(&b), 0);
}
END_TEST

/* The device answers with errors for as long as a lease lasts: that ends writing, with one message. */
START_TEST(beats_that_fail)
{
	struct nvefs_fault f = {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_FAIL, .err = -EIO, .nth = 1,
				.first_pblk = NVEFS_BEAT_PBLK, .end_pblk = NVEFS_BEAT_PBLK + 1};
	struct host a;

	make(50);
	host_init(&a, 0);
	mount(&a);
	/* Once does not matter. */
	ck_assert_int_eq(nvefs_fault_add(a.dev, &f), 0);
	usleep(200 * 1000);
	ck_assert_int_eq(stopped_by(&a), 0);
	ck_assert_uint_ge(nvefs_fault_hits(a.dev), 1);
	f.every = 1;
	ck_assert_int_eq(nvefs_fault_add(a.dev, &f), 0);
	ck_assert(within(is_stopped, &a, 50 * NVEFS_MMP_LEASE + ROOM_MS));
	ck_assert_msg(strstr(last_log, "cannot be written"), "%s", last_log);
	ck_assert_int_eq(write_file(&a, "g", 2), -EROFS);
	ck_assert_int_ne(unmount(&a), 0);
	mount(&a);
	ck_assert_uint_ge(a.ntold, 1);
	ck_assert_int_eq(unmount(&a), 0);
	expect_sound();
}
END_TEST

/* The claim is wiped, as mkfs of another host does. */
START_TEST(claim_is_gone)
{
	static const uint8_t zeros[4096];
	struct host a;

	make(50);
	host_init(&a, 0);
	mount(&a);
	shared_write(&medium, NVEFS_CLAIM_PBLK, zeros);
	ck_assert(within(is_stopped, &a, ROOM_MS));
	ck_assert_msg(strstr(last_log, "claim is gone"), "%s", last_log);
	ck_assert_int_ne(unmount(&a), 0);
	ck_assert_uint_eq(claim_state(NULL), 0);
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

	make(1000);
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

	make(30);
	host_init(&a, 0);
	host_init(&b, 1);
	mount(&a);
	crash(&a);
	medium.written = late_beat_of_alpha;
	mount(&b);
	ck_assert_ptr_null(medium.written);
	ck_assert_uint_ge(b.mount_ms, 2 * 30 * NVEFS_MMP_WATCH);
	ck_assert_int_eq(unmount(&b), 0);
	expect_sound();
}
END_TEST

/* The claim comes so late that it may have hit another one, which is verified already. */
START_TEST(slow_claim)
{
	struct host a;

	make(60);
	host_init(&a, 0);
	a.dev = shared_open(&medium, 0);
	hold_up(&a, NVEFS_IO_WRITE, NVEFS_CLAIM_PBLK, 40);
	mount(&a);
	ck_assert_uint_ge(a.mount_ms, 60 * NVEFS_MMP_WATCH);
	ck_assert_int_eq(unmount(&a), 0);
}
END_TEST

struct taker {
	struct host h;
	int err;
};

static void *take_main(void *arg)
{
	struct taker *t = arg;

	t->err = try_mount(&t->h);
	if (!t->err) {
		t->err = write_file(&t->h, "mine", (uint8_t)t->h.number);
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

		make(20);
		if (_i) {
			host_init(&t[0].h, 0);
			mount(&t[0].h);
			crash(&t[0].h);
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
		expect_sound();
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

	make(50);
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

static void setup(void)
{
	nvefs_log_setup(keep_log, NVEFS_LOG_WARN);
	last_log[0] = '\0';
	shared_init(&medium);
}

static void teardown(void)
{
	shared_done(&medium);
}

int main(void)
{
	Suite *s = suite_create("mmp");
	TCase *tc = tcase_create("hosts");

	tcase_add_checked_fixture(tc, setup, teardown);
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
	return run_suites(s, NULL);
}
