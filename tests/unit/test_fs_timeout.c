/* SPDX-License-Identifier: MIT */
/*
 * Commands that time out and are carried out later all the same: what was written and acknowledged after
 * them stays. Each test by the native and the scsi route.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/suites.h"
#include "../support/harness.h"
#include "device/fault.h"
#include "device/scsi_route.h"

#define BLK 4096u
#define AT_CLOSE 0u

struct world {
	char path[64];
	bool scsi;
	struct nvefs_mount_opts opts;
	struct nvefs_dev *fault;
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
};

static struct nvefs_dev *open_dev(struct world *x, uint64_t create_bytes)
{
	struct nvefs_dev_open_opts o = {.create_bytes = create_bytes,
					.flags = create_bytes ? NVEFS_OPEN_CREATE : 0};
	struct nvefs_error e = {{0}};
	struct nvefs_dev *dev = NULL;

	ck_assert_msg(!nvefs_dev_open(x->path, &o, &dev, &e), "%s", e.text);
	ck_assert_int_eq(nvefs_fault_wrap(dev, NULL, 0, &x->fault), 0);
	dev = x->fault;
	if (x->scsi)
		ck_assert_msg(!nvefs_scsi_route_open(x->fault, NULL, &dev, &e), "%s", e.text);
	return dev;
}

static void world_mount(struct world *x)
{
	struct nvefs_error e = {{0}};

	ck_assert_msg(!nvefs_mount(open_dev(x, 0), &x->opts, &x->fs, &e), "%s", e.text);
	ck_assert_int_eq(nvefs_worker_open(x->fs, &x->w), 0);
}

static void world_make(struct world *x, uint64_t bytes, bool scsi, const struct nvefs_mount_opts *opts)
{
	const char *dir = getenv("TMPDIR");
	struct nvefs_mkfs_opts mk = {0};
	struct nvefs_error e = {{0}};
	struct nvefs_dev *dev;
	int fd;

	memset(x, 0, sizeof(*x));
	if (opts)
		x->opts = *opts;
	x->opts.commit_interval_s = 3600; /* the next write command is the test's */
	x->scsi = scsi;
	if (!dir) /* memory rather than a disk: syncs are many here */
		dir = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	snprintf(x->path, sizeof(x->path), "%s/nvefs-timeout-XXXXXX", dir);
	fd = mkstemp(x->path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	dev = open_dev(x, bytes);
	ck_assert_msg(!nvefs_mkfs(dev, &mk, &e), "%s", e.text);
	nvefs_dev_close(dev);
	world_mount(x);
}

/* What is late lands here at the latest. */
static void world_unmount(struct world *x)
{
	struct nvefs_dev *dev;

	nvefs_worker_close(x->w);
	ck_assert_int_eq(nvefs_unmount(x->fs), 0);
	dev = open_dev(x, 0);
	harness_check_dev(dev, "after unmounting");
	nvefs_dev_close(dev);
}

static void world_done(struct world *x)
{
	world_unmount(x);
	unlink(x->path);
}

static void time_out(struct world *x, uint8_t op, uint64_t late_cmds)
{
	const struct nvefs_fault f = {.op = op, .action = NVEFS_FAULT_TIMEOUT, .late_cmds = late_cmds};

	nvefs_fault_clear(x->fault);
	ck_assert_int_eq(nvefs_fault_add(x->fault, &f), 0);
}

static uint64_t free_blks(struct world *x)
{
	struct nvefs_statfs s;

	ck_assert_int_eq(h_sync(x->w), 0);
	ck_assert_int_eq(nvefs_statfs(x->w, &s), 0);
	return s.free_blks;
}

static uint64_t blks_of(struct world *x, uint64_t ino)
{
	struct nvefs_attr a;

	ck_assert_int_eq(nvefs_getattr(x->w, ino, &a), 0);
	return a.blks;
}

/* Each block of a file has a byte of its own. */
static uint8_t byte_at(uint64_t pos, uint8_t first)
{
	return first ? (uint8_t)(first + pos / BLK) : 0;
}

static void expect(struct world *x, uint64_t ino, uint64_t off, uint64_t len, uint8_t first)
{
	uint8_t *buf = malloc(len);
	int64_t n = h_read(x->w, ino, off, buf, len);

	ck_assert_msg(n == (int64_t)len, "%lld of %llu bytes could be read", (long long)n,
		      (unsigned long long)len);
	for (uint64_t i = 0; i < len; i++)
		if (buf[i] != byte_at(off + i, first))
			ck_abort_msg("byte %llu is %u, not %u", (unsigned long long)(off + i), buf[i],
				     byte_at(off + i, first));
	free(buf);
}

static int put(struct world *x, uint64_t ino, uint64_t off, uint64_t len, uint8_t first)
{
	uint8_t *buf = malloc(len);
	int err;

	for (uint64_t i = 0; i < len; i++)
		buf[i] = byte_at(off + i, first);
	err = h_write(x->w, ino, off, buf, len, 0);
	free(buf);
	return err;
}

/* All but `leave` blocks of what is free is taken, so that blocks that are freed are soon used again. */
static void take_space(struct world *x, uint64_t leave)
{
	struct nvefs_statfs s;
	uint64_t ino;

	ck_assert_int_eq(nvefs_statfs(x->w, &s), 0);
	ck_assert_int_eq(h_create(x->w, "taken", &ino), 0);
	ck_assert_int_eq(h_fallocate(x->w, ino, 0, 0, (s.avail_blks - leave) * BLK), 0);
	ck_assert_int_eq(h_sync(x->w), 0);
}

/* Data that nobody has yet, over and over: every free block is written more than once. */
static void churn(struct world *x)
{
	const uint64_t len = 64 * BLK, n = 20;
	uint64_t ino, *buf = malloc(len);
	struct rnd r = {rnd_seed()};

	ck_assert_int_eq(h_create(x->w, "churn", &ino), 0);
	for (uint64_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < len / 8; k++)
			buf[k] = rnd_next(&r);
		ck_assert_int_eq(h_write(x->w, ino, (i % 4) * len, buf, len, 0), 0);
		ck_assert_int_eq(h_fsync(x->w, ino), 0);
	}
	ck_assert_int_eq(h_unlink(x->w, "churn"), 0);
	nvefs_forget(x->w, ino, 1);
	free(buf);
}

/* Write to the file until nothing more fits; how many blocks. */
static uint64_t fill(struct world *x, uint64_t ino)
{
	uint64_t n = 0;

	while (!put(x, ino, n * BLK, 256 * BLK, 'n'))
		n += 256;
	n = blks_of(x, ino); /* the last one wrote as much as there was room for */
	while (!put(x, ino, n * BLK, BLK, 'n'))
		n++;
	ck_assert_int_eq(h_sync(x->w), 0);
	return n;
}

/* Churning is the dear one, and neither of the two before makes a difference to it. */
enum { SCSI = 1, PREALLOCATED = 2, DEDUP = 4, FOLDED = 8, PARTIAL = 16, CHURN = 32, CASES = CHURN + 8 };

/*
 * A write times out, something else is written there and acknowledged, and the first one lands: after some
 * more commands, or when all is closed. With dedup its first block is one that another file has.
 */
START_TEST(late_write)
{
	const struct nvefs_mount_opts opts = {.dedup = _i & DEDUP ? NVEFS_ON : NVEFS_OFF};
	uint64_t off = _i & PARTIAL ? 3 * BLK + 100 : 3 * BLK, len = _i & PARTIAL ? 9000 : 3 * BLK;
	uint64_t ino, other = 0, before, blks;
	bool shared = _i & DEDUP && !(_i & PARTIAL);
	struct world x;

	world_make(&x, 64u << 20, _i & SCSI, &opts);
	take_space(&x, 768);
	ck_assert_int_eq(h_create(x.w, "f", &ino), 0);
	ck_assert_int_eq(h_create(x.w, "g", &other), 0);
	ck_assert_int_eq(put(&x, other, 3 * BLK, BLK, 'a'), 0);
	if (_i & PREALLOCATED)
		ck_assert_int_eq(h_fallocate(x.w, ino, 0, 0, 16 * BLK), 0);
	before = free_blks(&x);
	if (!(_i & FOLDED)) { /* the windows are dirty when it happens */
		ck_assert_int_eq(h_truncate(x.w, ino, 0), 0);
		ck_assert_int_eq(h_sync(x.w), 0);
		if (_i & PREALLOCATED)
			ck_assert_int_eq(h_fallocate(x.w, ino, 0, 0, 16 * BLK), 0);
	}
	blks = blks_of(&x, ino);
	time_out(&x, NVEFS_IO_WRITE, _i & CHURN ? 40 : AT_CLOSE);
	ck_assert_int_eq(put(&x, ino, off, len, 'a'), -EIO);
	ck_assert_uint_eq(nvefs_fault_hits(x.fault), 1);
	nvefs_fault_clear(x.fault);
	ck_assert_uint_eq(blks_of(&x, ino), blks); /* what was allocated still is */
	if (_i & PREALLOCATED)
		expect(&x, ino, off, len, 0);
	/* Out of use until the next mount. */
	ck_assert_uint_eq(before - free_blks(&x), (shared ? 2 : 3));

	ck_assert_int_eq(put(&x, ino, off, len, 'b'), 0);
	ck_assert_int_eq(h_fsync(x.w, ino), 0);
	if (_i & CHURN)
		churn(&x);
	expect(&x, ino, off, len, 'b');
	world_unmount(&x);
	world_mount(&x);
	expect(&x, ino, off, len, 'b');
	expect(&x, other, 3 * BLK, BLK, 'a');
	ck_assert_int_eq(h_unlink(x.w, "f"), 0);
	ck_assert_int_eq(h_unlink(x.w, "g"), 0);
	world_done(&x);
}
END_TEST

/* With nothing free an unwritten block gives way to a hole; until then what was promised holds. */
START_TEST(late_write_on_a_full_device)
{
	uint64_t ino, other;
	struct world x;

	world_make(&x, 64u << 20, _i, NULL);
	ck_assert_int_eq(h_create(x.w, "f", &ino), 0);
	ck_assert_int_eq(h_fallocate(x.w, ino, 0, 0, 16 * BLK), 0);
	ck_assert_int_eq(h_create(x.w, "other", &other), 0);
	take_space(&x, 300);
	fill(&x, other);
	ck_assert_uint_eq(blks_of(&x, ino), 16);
	time_out(&x, NVEFS_IO_WRITE, AT_CLOSE);
	ck_assert_int_eq(put(&x, ino, 0, 4 * BLK, 'a'), -EIO);
	nvefs_fault_clear(x.fault);
	ck_assert_uint_lt(blks_of(&x, ino), 16);
	expect(&x, ino, 0, 16 * BLK, 0);
	/* The others have their places. */
	ck_assert_int_eq(put(&x, ino, 4 * BLK, 12 * BLK, 'b'), 0);
	ck_assert_int_eq(put(&x, ino, 0, 4 * BLK, 'b'), -ENOSPC);
	ck_assert_int_eq(h_sync(x.w), 0);
	world_unmount(&x);
	world_mount(&x);
	expect(&x, ino, 4 * BLK, 12 * BLK, 'b');
	ck_assert_int_eq(put(&x, ino, 0, 4 * BLK, 'b'), 0); /* a new mount: they are free again */
	expect(&x, ino, 0, 16 * BLK, 'b');
	world_done(&x);
}
END_TEST

/* A discard that timed out may take what is written there afterwards: those blocks stay out of use. */
START_TEST(late_discard)
{
	const struct nvefs_mount_opts opts = {.discard = !(_i & 2)};
	uint64_t ino, n, trimmed;
	struct world x;

	world_make(&x, 64u << 20, _i & SCSI, &opts);
	ck_assert_int_eq(h_create(x.w, "old", &ino), 0);
	take_space(&x, 1200);
	for (n = 0; n < 4; n++)
		ck_assert_int_eq(put(&x, ino, n << 20, 1 << 20, 'a'), 0);
	ck_assert_int_eq(h_sync(x.w), 0);
	ck_assert_int_eq(h_unlink(x.w, "old"), 0);
	nvefs_forget(x.w, ino, 1);
	if (_i & 2)
		ck_assert_int_eq(h_sync(x.w), 0);
	/* The next discard: by the commits that free the file, or by fstrim. */
	time_out(&x, NVEFS_IO_DISCARD, AT_CLOSE);
	if (_i & 2)
		ck_assert_int_eq(nvefs_trim(x.w, 0, UINT64_MAX, 0, &trimmed), 0);
	for (n = 0; n < 1000 && !nvefs_fault_hits(x.fault); n++) {
		ck_assert_int_eq(h_sync(x.w), 0);
		usleep(1000);
	}
	ck_assert_uint_eq(nvefs_fault_hits(x.fault), 1);
	nvefs_fault_clear(x.fault);
	ck_assert_int_eq(h_create(x.w, "new", &ino), 0);
	n = fill(&x, ino);
	ck_assert_uint_gt(n, 64);
	world_unmount(&x); /* and checks all data */
	world_mount(&x);
	expect(&x, ino, 0, n * BLK, 'n');
	world_done(&x);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs time-outs");
	TCase *c = tcase_create("write"), *full = tcase_create("full"), *discard = tcase_create("discard");

	tcase_set_timeout(c, 60);
	tcase_set_timeout(full, 120);
	tcase_set_timeout(discard, 120);
	tcase_add_loop_test(c, late_write, 0, CASES);
	tcase_add_loop_test(full, late_write_on_a_full_device, 0, 2);
	tcase_add_loop_test(discard, late_discard, 0, 4);
	suite_add_tcase(s, c);
	suite_add_tcase(s, full);
	suite_add_tcase(s, discard);
	return run_suites(s, NULL);
}
