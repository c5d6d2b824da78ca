/* SPDX-License-Identifier: MIT */
#include "../support/suites.h"
#include "test_device.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64];

void device_dir_init(void)
{
	strcpy(dir, "/tmp/nvefs-device-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

void device_dir_done(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (unlinkat(dirfd(d), e->d_name, 0))
			unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
	if (d)
		closedir(d);
	rmdir(dir);
}

static char *next_buffer(void)
{
	static char bufs[8][256];
	static unsigned int at;

	return bufs[at++ % 8];
}

const char *device_path(const char *name)
{
	char *buf = next_buffer();

	snprintf(buf, 256, "%s/%s", dir, name);
	return buf;
}

const char *device_target(int index, const char *size, const char *options)
{
	char *buf = next_buffer();
	const char *comma = options ? "," : "";
	struct nvefs_dev_open_opts opts = {.flags = NVEFS_OPEN_CREATE};
	struct nvefs_dev *dev;

	if (!options)
		options = "";
	if (index == 0) {
		snprintf(buf, 256, "ram:%s%s%s", size, comma, options);
		return buf;
	}
	opts.create_bytes = strtoull(size, NULL, 10) << 20;
	ck_assert_int_eq(nvefs_dev_open(device_path("disk.img"), &opts, &dev, NULL), 0);
	nvefs_dev_close(dev);
	snprintf(buf, 256, "file:%s/disk.img%s%s", dir, comma, options);
	return buf;
}

struct nvefs_dev *device_open(const char *uri)
{
	struct nvefs_dev *dev = NULL;
	struct nvefs_error err = {""};
	int code = nvefs_dev_open(uri, NULL, &dev, &err);

	ck_assert_msg(!code, "%s: %d: %s", uri, code, err.text);
	return dev;
}

struct nvefs_queue *device_queue(struct nvefs_dev *dev)
{
	struct nvefs_queue *q = NULL;
	int code = nvefs_queue_init(dev, 0, &q);

	ck_assert_msg(!code, "queue_init: %d", code);
	return q;
}

void device_fill(void *buf, size_t len, uint32_t seed)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)((i + seed * 2654435761u) * 2246822519u >> 15);
}

void device_expect(const void *buf, size_t len, uint32_t seed, const char *what)
{
	uint8_t *want = calloc(1, len + 1);
	const uint8_t *got = buf;
	size_t i = 0;

	device_fill(want, len, seed);
	/* One assertion for all: each is a message to the test's parent. */
	while (i < len && got[i] == want[i])
		i++;
	ck_assert_msg(i == len, "%s: byte %zu of %zu is %02x, not %02x (seed %u)", what, i, len,
		      i < len ? got[i] : 0, want[i], seed);
	free(want);
}

int main(void)
{
	return run_suites(device_uri_suite(), device_seam_suite(), device_controller_suite(), device_fused_suite(),
			  device_wrap_suite(), device_linux_suite(), device_status_suite(), device_drive_suite(), NULL);
}
