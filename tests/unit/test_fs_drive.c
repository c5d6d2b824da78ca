/* SPDX-License-Identifier: MIT */
/* The whole file system and what a drive may be or do: without a cache, slow, not answering in time. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvefs/nvefs.h>

#include "../support/calls.h"

static struct nvefs_fs *fs;
static struct nvefs_worker *w;

static void start(const char *uri, enum nvefs_route route, const struct nvefs_mount_opts *mo)
{
	const struct nvefs_dev_open_opts o = {.route = route};
	const struct nvefs_mkfs_opts mk = {.label = "drive"};
	struct nvefs_dev *dev = NULL;
	struct nvefs_error err = {""};

	ck_assert_msg(nvefs_dev_open(uri, &o, &dev, &err) == 0, "%s", err.text);
	ck_assert_msg(nvefs_mkfs(dev, &mk, &err) == 0, "%s", err.text);
	ck_assert_msg(nvefs_mount(dev, mo, &fs, &err) == 0, "%s", err.text);
	ck_assert_int_eq(nvefs_worker_open(fs, &w), 0);
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

int main(void)
{
	Suite *s = suite_create("fs drive");
	TCase *t = tcase_create("drive");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_loop_test(t, flush_only_where_there_is_a_cache, 0, sizeof(flush_cases) / sizeof(flush_cases[0]));
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
