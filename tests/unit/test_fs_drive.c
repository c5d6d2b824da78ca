/* SPDX-License-Identifier: MIT */
/* The whole file system and what a drive may be or do: without a cache, slow, not answering in time. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvefs/nvefs.h>

#include "../support/suites.h"
#include "base/log.h"
#include "device/backend.h"
#include "device/fault.h"
#include "nvme/status.h"
#include "../support/calls.h"

static struct nvefs_fs *fs;
static struct nvefs_worker *w;
static struct nvefs_dev *faulty; /* below the file system: takes faults */

static void start(const char *uri, enum nvefs_route route, const struct nvefs_mount_opts *mo)
{
	const struct nvefs_dev_open_opts o = {.route = route};
	const struct nvefs_mkfs_opts mk = {.label = "drive"};
	struct nvefs_dev *dev = NULL;
	struct nvefs_error err = {""};

	ck_assert_msg(nvefs_dev_open(uri, &o, &dev, &err) == 0, "%s", err.text);
	faulty = NULL;
	if (route == NVEFS_ROUTE_NATIVE) {
		ck_assert_int_eq(nvefs_fault_wrap(dev, NULL, 0, &faulty), 0);
		dev = faulty;
	}
	ck_assert_msg(nvefs_mkfs(dev, &mk, &err) == 0, "%s", err.text);
	ck_assert_msg(nvefs_mount(dev, mo, &fs, &err) == 0, "%s", err.text);
	ck_assert_int_eq(nvefs_worker_open(fs, &w), 0);
}

/* From now on the device refuses what would change it. */
static void wear_out(void)
{
	static const uint8_t ops[] = {NVEFS_IO_WRITE, NVEFS_IO_DISCARD, NVEFS_IO_WRITE_ZEROES};

	for (size_t i = 0; i < sizeof(ops); i++) {
		const struct nvefs_fault f = {.op = ops[i],
					      .action = NVEFS_FAULT_FAIL,
					      .nth = 1,
					      .every = 1,
					      .status = NVEFS_NVME_SC_READ_ONLY_RANGE | NVEFS_NVME_DNR};

		ck_assert_int_eq(nvefs_fault_add(faulty, &f), 0);
	}
}

static void stop(void)
{
	nvefs_worker_close(w);
	ck_assert_int_eq(nvefs_unmount(fs), 0);
}

/* ---- Flush ---- */

static const struct {
	const char *uri;
	enum nvefs_route route;
	bool fua;
	bool flushes;
} flush_cases[] = {
    {"ram:128M,vwc=off", NVEFS_ROUTE_NATIVE, false, false}, {"ram:128M,vwc=off", NVEFS_ROUTE_SCSI, false, false},
    {"ram:128M,vwc=off", NVEFS_ROUTE_NATIVE, true, false},  {"ram:128M,vwc=off", NVEFS_ROUTE_SCSI, true, false},
    {"ram:128M,vwc=on", NVEFS_ROUTE_NATIVE, false, true},   {"ram:128M,vwc=on", NVEFS_ROUTE_SCSI, false, true},
};

/* Without a cache none is ever sent: by mkfs, mount, commits, checkpoints, unmount. */
START_TEST(flush_only_where_there_is_a_cache)
{
	const struct nvefs_mount_opts mo = {.fua_commit = flush_cases[_i].fua};
	uint8_t *buf = calloc(1, 65536);
	struct nvefs_stats st;
	uint64_t ino;
	char name[16];

	start(flush_cases[_i].uri, flush_cases[_i].route, &mo);
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		ck_assert_int_eq(h_create(w, name, &ino), 0);
		ck_assert_int_eq(h_write(w, ino, 0, buf, 65536, i % 3 ? 0 : NVEFS_WRITE_SYNC), 0);
		ck_assert_int_eq(h_fsync(w, ino), 0);
	}
	ck_assert_int_eq(h_sync(w), 0);
	nvefs_stats_get(fs, &st);
	ck_assert_uint_ge(st.commits, 200);
	ck_assert_uint_gt(st.checkpoints, 0);
	if (flush_cases[_i].flushes)
		ck_assert_uint_ge(st.dev.commands[NVEFS_IO_FLUSH], 2 * 200);
	else
		ck_assert_uint_eq(st.dev.commands[NVEFS_IO_FLUSH], 0);
	stop();
	free(buf);
}
END_TEST

/* ---- Slow ---- */

static char log_text[4096];

static void keep_log(enum nvefs_log_level level, const char *line)
{
	size_t at = strlen(log_text);

	(void)level;
	snprintf(log_text + at, sizeof(log_text) - at, "%s\n", line);
}

/* A write that the device sits on is told of by name, place and age, and then succeeds. */
START_TEST(a_slow_write_is_logged_and_waited_for)
{
	const struct nvefs_mount_opts mo = {.slow_io_ns = 100000000, .commit_interval_s = 1000};
	uint8_t *buf = calloc(1, 65536), *back = malloc(65536);
	const char *first;
	uint64_t ino;

	memset(buf, 0x5a, 65536);
	nvefs_log_setup(keep_log, NVEFS_LOG_INFO);
	start("ram:128M,fault=write:40/1000000:late:500ms", _i ? NVEFS_ROUTE_SCSI : NVEFS_ROUTE_NATIVE, &mo);
	ck_assert_int_eq(h_create(w, "f", &ino), 0);
	for (uint64_t i = 0; i < 40; i++)
		ck_assert_int_eq(h_write(w, ino, i * 65536, buf, 65536, 0), 0);
	ck_assert_int_eq(h_read(w, ino, 39 * 65536, back, 65536), 65536);
	ck_assert_mem_eq(buf, back, 65536);
	stop();
	nvefs_log_setup(NULL, NVEFS_LOG_INFO);
	first = strstr(log_text, "has not answered a write of 16 blocks at block");
	ck_assert_msg(first, "the log says: %s", log_text);
	ck_assert_msg(!strstr(first + strlen("has not answered"), "not answered"), "told more than once: %s", log_text);
	free(buf);
	free(back);
}
END_TEST

/* A drive that takes no more writes: the mount ends writing with one message, reads go on. */
START_TEST(a_drive_that_wears_out)
{
	const struct nvefs_mount_opts mo = {.commit_interval_s = 1000};
	uint8_t *buf = calloc(1, 65536);
	struct nvefs_stats st;
	uint64_t ino, other;

	log_text[0] = '\0';
	nvefs_log_setup(keep_log, NVEFS_LOG_INFO);
	start("ram:128M", NVEFS_ROUTE_NATIVE, &mo);
	ck_assert_int_eq(h_create(w, "f", &ino), 0);
	ck_assert_int_eq(h_write(w, ino, 0, buf, 65536, NVEFS_WRITE_SYNC), 0);
	ck_assert_int_eq(h_create(w, "g", &other), 0);
	wear_out();
	ck_assert_int_eq(h_write(w, ino, 0, buf, 65536, 0), -EROFS);
	ck_assert_int_lt(h_fsync(w, other), 0);
	nvefs_stats_get(fs, &st);
	ck_assert(st.read_only);
	ck_assert_int_eq(h_read(w, ino, 0, buf, 65536), 65536);
	ck_assert_msg(strstr(log_text, "read-only from now on"), "the log says: %s", log_text);
	nvefs_worker_close(w);
	ck_assert_int_lt(nvefs_unmount(fs), 0);
	nvefs_log_setup(NULL, NVEFS_LOG_INFO);
	free(buf);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs drive");
	TCase *t = tcase_create("drive");

	suite_add_tcase(s, t);
	tcase_add_loop_test(t, flush_only_where_there_is_a_cache, 0, sizeof(flush_cases) / sizeof(flush_cases[0]));
	tcase_add_loop_test(t, a_slow_write_is_logged_and_waited_for, 0, 2);
	tcase_add_test(t, a_drive_that_wears_out);
	return run_suites(s, NULL);
}
