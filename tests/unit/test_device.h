/* SPDX-License-Identifier: MIT */
/* What the files of the device test share. */
#ifndef TEST_DEVICE_H
#define TEST_DEVICE_H

#include <check.h>
#include <stdint.h>
#include <nvefs/device.h>

Suite *device_seam_suite(void);
Suite *device_uri_suite(void);
Suite *device_controller_suite(void);
Suite *device_fused_suite(void);
Suite *device_wrap_suite(void);
Suite *device_linux_suite(void);
Suite *device_status_suite(void);
Suite *device_drive_suite(void);

/* A directory of this test's own, removed by device_dir_done. */
void device_dir_init(void);
void device_dir_done(void);
/* "<dir>/<name>" in a static buffer (the last eight stay valid). */
const char *device_path(const char *name);
/* Targets that every seam test runs on, with `options` (NULL: none) appended; a file is made. */
#define DEVICE_NTARGETS 2
const char *device_target(int index, const char *size, const char *options);

struct nvefs_dev *device_open(const char *uri);
struct nvefs_queue *device_queue(struct nvefs_dev *dev);
/* Bytes that depend on seed and position. */
void device_fill(void *buf, size_t len, uint32_t seed);
/* Fails the test, naming `what` and the first difference. */
void device_expect(const void *buf, size_t len, uint32_t seed, const char *what);

#endif
