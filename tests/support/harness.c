/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsck/check.h"

static struct nvefs_dev *open_dev(struct harness *h, uint32_t flags, uint64_t bytes)
{
	struct nvefs_dev_open_opts o = {.flags = flags, .create_bytes = bytes, .route = h->route};
	struct nvefs_error e = {{0}};
	struct nvefs_dev *dev = NULL;
	int err = nvefs_dev_open(h->target, &o, &dev, &e);

	ck_assert_msg(!err, "open %s: %d: %s", h->target, err, e.text);
	return dev;
}

void harness_make(struct harness *h, uint64_t size_bytes, const struct nvefs_mount_opts *opts)
{
	const char *given = getenv("NVEFS_TEST_TARGET"), *dir = getenv("TMPDIR");
	struct nvefs_mkfs_opts mk = {.label = "test"};
	struct nvefs_error e = {{0}};
	struct nvefs_dev *dev;
	int fd, err;

	h->fs = NULL;
	h->w = NULL;
	h->opts = opts ? *opts : (struct nvefs_mount_opts){0};
	h->temporary = !given;
	if (given) {
		snprintf(h->target, sizeof(h->target), "%s", given);
	} else {
		snprintf(h->target, sizeof(h->target), "%s/nvefs-test-XXXXXX", dir ? dir : "/tmp");
		fd = mkstemp(h->target);
		ck_assert_int_ge(fd, 0);
		close(fd);
	}
	dev = open_dev(h, given ? 0 : NVEFS_OPEN_CREATE, size_bytes);
	err = nvefs_mkfs(dev, &mk, &e);
	ck_assert_msg(!err, "mkfs %s: %d: %s", h->target, err, e.text);
	nvefs_dev_close(dev);
	harness_mount(h);
}

void harness_mount(struct harness *h)
{
	struct nvefs_dev *dev = open_dev(h, 0, 0);
	struct nvefs_error e = {{0}};
	int err = nvefs_mount(dev, &h->opts, &h->fs, &e);

	ck_assert_msg(!err, "mount %s: %d: %s", h->target, err, e.text);
	ck_assert_int_eq(nvefs_worker_open(h->fs, &h->w), 0);
}

void harness_unmount(struct harness *h)
{
	nvefs_worker_close(h->w);
	h->w = NULL;
	ck_assert_int_eq(nvefs_unmount(h->fs), 0);
	h->fs = NULL;
}

void harness_crash(struct harness *h)
{
	nvefs_worker_close(h->w);
	h->w = NULL;
	nvefs_abandon(h->fs);
	h->fs = NULL;
}

void harness_done(struct harness *h)
{
	if (h->fs)
		harness_unmount(h);
	if (h->temporary)
		unlink(h->target);
}

static void note_problem(void *arg, const struct nvefs_problem *p)
{
	char *first = arg;

	if (!first[0])
		nvefs_problem_text(p, first, 256);
}

void harness_check_dev(struct nvefs_dev *dev, const char *what)
{
	char first[256] = "";
	struct nvefs_check_opts o = {.replay_in_memory = true, .data = true, .report = note_problem, .arg = first};
	struct nvefs_check_result r;
	struct nvefs_error e = {{0}};
	int err = nvefs_check(dev, &o, &r, &e);

	ck_assert_msg(!err, "%s: check: %d: %s", what, err, e.text);
	ck_assert_msg(!r.problems, "%s: %llu problems: %s", what, (unsigned long long)r.problems, first);
}

void harness_check(struct harness *h)
{
	struct nvefs_dev *dev = open_dev(h, NVEFS_OPEN_RDONLY, 0);

	harness_check_dev(dev, h->target);
	nvefs_dev_close(dev);
}
