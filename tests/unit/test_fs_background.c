/* SPDX-License-Identifier: MIT */
/* What the background thread and scrub do to files with data. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/suites.h"
#include "fs/names.h"
#include "fs_fixture.h"

#define BLK 4096u
#define NAME(s) (s), strlen(s)

static struct fixture x;

static void setup(void)
{
	fixture_make(&x, 64, NULL);
}

static void teardown(void)
{
	fixture_remove(&x);
}

/* Block b of a file written with this salt. */
static void pattern(uint8_t *p, uint32_t salt, uint32_t b)
{
	uint32_t i;

	for (i = 0; i < BLK; i += 8) {
		uint64_t v = ((uint64_t)salt << 32 | b) * 0x9e3779b97f4a7c15ull + i;

		memcpy(p + i, &v, 8);
	}
}

static void write_blks(uint64_t ino, uint32_t salt, uint32_t n)
{
	struct nvefs_req r = {.op = NVEFS_REQ_WRITE, .ino = ino, .len = (uint64_t)n * BLK};
	uint8_t *buf = malloc((size_t)n * BLK);
	uint32_t b;

	for (b = 0; b < n; b++)
		pattern(buf + (size_t)b * BLK, salt, b);
	r.buf = buf;
	ck_assert_int_eq(nvefs_req_run(x.w, &r), 0);
	ck_assert_uint_eq(r.result, r.len);
	free(buf);
}

static struct nvefs_stats stats(void)
{
	struct nvefs_stats s;

	nvefs_stats_get(x.fs, &s);
	return s;
}

START_TEST(test_unlink_frees)
{
	uint64_t f = fx_create(&x, ROOT, "f"), free0;
	struct nvefs_attr a;

	fixture_sync(&x);
	free0 = stats().free_bytes + stats().metadata_bytes;
	write_blks(f, 1, 2000);
	fixture_sync(&x);
	ck_assert_uint_eq(stats().physical_bytes, 2000 * BLK);
	ck_assert_uint_eq(stats().logical_bytes, 2000 * BLK);
	ck_assert_uint_eq(fx_attr(&x, f).blks, 2000);
	ck_assert_int_eq(nvefs_open(x.w, f), 0);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("f")), 0);
	fixture_drain(&x);
	ck_assert_uint_eq(fx_attr(&x, f).blks, 2000);
	ck_assert_int_eq(nvefs_release(x.w, f), 0);
	fixture_drain(&x);
	fixture_sync(&x);
	ck_assert_int_eq(nvefs_getattr(x.w, f, &a), -ESTALE);
	ck_assert_uint_eq(stats().physical_bytes, 0);
	ck_assert_uint_eq(stats().free_bytes + stats().metadata_bytes, free0);
	/* One that never was folded. */
	f = fx_create(&x, ROOT, "g");
	write_blks(f, 2, 300);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("g")), 0);
	fixture_drain(&x);
	fixture_sync(&x);
	ck_assert_uint_eq(stats().physical_bytes, 0);
	ck_assert_uint_eq(fx_check(&x), 1);
}
END_TEST

START_TEST(test_orphan_data_crash)
{
	uint64_t f = fx_create(&x, ROOT, "f");

	write_blks(f, 1, 1000);
	ck_assert_int_eq(nvefs_open(x.w, f), 0);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("f")), 0);
	fixture_sync(&x);
	fixture_crash(&x);
	fixture_drain(&x);
	fixture_sync(&x);
	ck_assert_uint_eq(stats().physical_bytes, 0);
	ck_assert_uint_eq(fx_check(&x), 1);
}
END_TEST

/* The state that a power cut in the middle of a truncate leaves. */
static int half_truncate(struct nvefs_nop *op, void *arg)
{
	struct nvefs_inode *in;
	int err;

	err = nvefs_nop_get(op, *(uint64_t *)arg, &in);
	if (!err)
		err = nvefs_inode_prepare(&op->t, in);
	if (!err)
		err = nvefs_orphan_prepare(&op->t, in->ino);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	in->rec.size = in->disk_size = 5000;
	err = nvefs_inode_write_locked(&op->t, in);
	nvefs_mutex_unlock(&in->lock);
	return err ? err : nvefs_orphan_put(&op->t, in->ino, NVEFS_ORPHAN_TRUNCATE);
}

START_TEST(test_truncate_crash)
{
	uint64_t f = fx_create(&x, ROOT, "f");

	write_blks(f, 1, 1000);
	fixture_sync(&x);
	ck_assert_int_eq(nvefs_nop_run(x.fs, nvefs_worker_queue(x.w), 3, 0, half_truncate, &f), 0);
	fixture_sync(&x);
	ck_assert_uint_eq(fx_attr(&x, f).blks, 1000);
	fixture_crash(&x);
	ck_assert_uint_eq(fx_attr(&x, f).size, 5000);
	ck_assert_uint_eq(fx_attr(&x, f).blks, 2);
	fixture_sync(&x);
	ck_assert_uint_eq(stats().physical_bytes, 2 * BLK);
}
END_TEST

/* Between being queued and being removed, an inode may be got at by number. */
START_TEST(test_claim)
{
	uint64_t f = fx_create(&x, ROOT, "f");
	struct nvefs_inode *in;
	struct nvefs_attr a;

	ck_assert_int_eq(nvefs_inode_get(x.fs, nvefs_worker_queue(x.w), f, &in), 0);
	ck_assert(!nvefs_inode_claim(in)); /* has a name */
	ck_assert_int_eq(nvefs_open(x.w, f), 0);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("f")), 0);
	ck_assert(!nvefs_inode_claim(in)); /* is open */
	ck_assert_int_eq(nvefs_lookup_ino(x.w, f, &a), 0);
	ck_assert_int_eq(nvefs_release(x.w, f), 0);
	ck_assert(!nvefs_inode_claim(in)); /* is looked up */
	nvefs_forget(x.w, f, 1);
	nvefs_inode_ref(in);
	ck_assert(!nvefs_inode_claim(in)); /* is in use */
	nvefs_inode_put(in);
	nvefs_inode_put(in);
	fixture_drain(&x);
	ck_assert_uint_eq(fx_check(&x), 1);
}
END_TEST

static const char *full_name(int i)
{
	static char name[256];

	snprintf(name, sizeof(name), "%0255d", i);
	return name;
}

/* Full to the last block: names still go, and what they held comes back. */
START_TEST(test_full)
{
	struct nvefs_req r = {.op = NVEFS_REQ_WRITE, .len = 64 * BLK};
	uint8_t *buf = calloc(64, BLK);
	struct nvefs_cred cred = {0};
	uint64_t big = fx_create(&x, ROOT, "big"), d = fx_mkdir(&x, ROOT, "d");
	struct nvefs_attr a;
	int err, i;

	for (i = 0; i < 300; i++)
		fx_create(&x, d, full_name(i));
	r.buf = buf;
	for (r.ino = big; !(err = nvefs_req_run(x.w, &r)); r.off += r.len)
		pattern(buf, 9, (uint32_t)r.off);
	ck_assert_int_eq(err, -ENOSPC);
	for (err = 0; !err; i++) {
		err = nvefs_mknod(x.w, d, full_name(i), 255, S_IFREG | 0600, 0, &cred, &a);
		if (!err)
			nvefs_forget(x.w, a.ino, 1);
	}
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert_int_eq(fx_rename(&x, ROOT, "big", d, "moved", 0), 0);
	a.mode = 0600;
	ck_assert_int_eq(nvefs_setattr(x.w, big, NVEFS_SET_MODE, &a, &a), 0);
	for (i -= 2; i >= 0; i--)
		ck_assert_int_eq(nvefs_unlink(x.w, d, full_name(i), 255), 0);
	ck_assert_int_eq(nvefs_unlink(x.w, d, NAME("moved")), 0);
	/* Without waiting for it: space that is on its way back is not a reason to fail. */
	fx_create(&x, d, "new");
	fixture_drain(&x);
	fixture_sync(&x);
	ck_assert_uint_eq(stats().physical_bytes, 0);
	ck_assert_uint_eq(fx_check(&x), 3);
	free(buf);
}
END_TEST

/* ---- Dedup index ---- */

START_TEST(test_fill)
{
	uint64_t f = fx_create(&x, ROOT, "f"), g;
	int i;

	write_blks(f, 1, 900);
	fixture_unmount(&x);
	x.opts.dedup = NVEFS_ON;
	fixture_mount(&x);
	ck_assert(stats().dedup_on);
	for (i = 0; i < 1000 && stats().dedup_entries < 900; i++)
		usleep(5000);
	ck_assert_uint_eq(stats().dedup_entries, 900);
	g = fx_create(&x, ROOT, "g");
	write_blks(g, 1, 900);
	fixture_sync(&x);
	ck_assert_uint_eq(stats().physical_bytes, 900 * BLK);
	ck_assert_uint_eq(stats().shared_bytes, 900 * BLK);
	ck_assert_uint_eq(stats().logical_bytes, 1800 * BLK);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("f")), 0);
	fixture_drain(&x);
	fixture_sync(&x);
	ck_assert_uint_eq(stats().physical_bytes, 900 * BLK);
	ck_assert_uint_eq(stats().shared_bytes, 0);
	ck_assert_int_eq(nvefs_dedup_switch(x.fs, false), 0);
	ck_assert(!stats().dedup_on);
}
END_TEST

/* ---- Scrub ---- */

/* Damage the block with this content on the medium. */
static void damage(uint32_t salt, uint32_t b)
{
	uint8_t want[BLK], buf[BLK];
	int fd = open(x.path, O_RDWR);
	off_t off;

	ck_assert_int_ge(fd, 0);
	pattern(want, salt, b);
	for (off = 0; pread(fd, buf, BLK, off) == BLK; off += BLK)
		if (!memcmp(buf, want, BLK))
			break;
	ck_assert_int_eq(memcmp(buf, want, BLK), 0);
	buf[100] ^= 1;
	ck_assert_int_eq(pwrite(fd, buf, BLK, off), BLK);
	close(fd);
}

struct scrubbed {
	uint32_t n, progress;
	uint64_t done, lblk[8];
	char path[8][300];
};

static int on_scrub(void *arg, const struct nvefs_scrub_event *ev)
{
	struct scrubbed *s = arg;

	s->done = ev->done_blks;
	if (!ev->path) {
		s->progress++;
		ck_assert_uint_le(ev->done_blks, ev->total_blks);
		return 0;
	}
	ck_assert_uint_lt(s->n, 8);
	ck_assert_int_eq(ev->err, -EUCLEAN);
	s->lblk[s->n] = ev->lblk;
	strncpy(s->path[s->n++], ev->path, 299);
	return 0;
}

START_TEST(test_scrub)
{
	uint64_t d = fx_mkdir(&x, ROOT, "dir"), e = fx_mkdir(&x, d, "deeper");
	uint64_t f = fx_create(&x, e, "file"), g = fx_create(&x, ROOT, "other"), h = fx_create(&x, d, "gone");
	struct scrubbed s = {0};

	write_blks(f, 1, 300);
	write_blks(g, 2, 300);
	write_blks(h, 3, 10);
	ck_assert_int_eq(nvefs_open(x.w, h), 0);
	ck_assert_int_eq(nvefs_unlink(x.w, d, NAME("gone")), 0);
	fixture_sync(&x);
	ck_assert_int_eq(nvefs_scrub(x.w, on_scrub, &s), 0);
	ck_assert_uint_eq(s.n, 0);
	ck_assert_uint_eq(s.done, 610);
	x.damaged = true;
	damage(1, 0);
	damage(1, 299);
	damage(2, 77);
	damage(3, 5);
	ck_assert_int_eq(nvefs_scrub(x.w, on_scrub, &s), 0);
	ck_assert_uint_eq(s.n, 4);
	ck_assert_str_eq(s.path[0], "/dir/deeper/file");
	ck_assert_uint_eq(s.lblk[0], 0);
	ck_assert_str_eq(s.path[1], "/dir/deeper/file");
	ck_assert_uint_eq(s.lblk[1], 299);
	ck_assert_str_eq(s.path[2], "/other");
	ck_assert_uint_eq(s.lblk[2], 77);
	ck_assert_str_eq(s.path[3], "(file without a name)");
	ck_assert_uint_eq(stats().checksum_errors, 4);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs-background");
	TCase *t = tcase_create("background");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_unlink_frees);
	tcase_add_test(t, test_orphan_data_crash);
	tcase_add_test(t, test_truncate_crash);
	tcase_add_test(t, test_claim);
	tcase_add_test(t, test_full);
	tcase_add_test(t, test_fill);
	tcase_add_test(t, test_scrub);
	suite_add_tcase(s, t);
	return run_suites(s, NULL);
}
