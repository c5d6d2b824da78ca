/* SPDX-License-Identifier: MIT */
/*
 * A file system to test on: made, mounted, one worker, plain calls. The target
 * is a temporary image, or what NVEFS_TEST_TARGET says. Helpers fail the test
 * (Check) with the seed and step in the message; they never return an error
 * that the test did not ask for.
 */
#ifndef NVEFS_TESTS_HARNESS_H
#define NVEFS_TESTS_HARNESS_H

#include "calls.h"

struct harness {
	char target[256];
	bool temporary;
	enum nvefs_route route;
	struct nvefs_mount_opts opts;
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
};

/* size: "64M" ... of the temporary image. opts may be NULL. */
void harness_make(struct harness *h, uint64_t size_bytes, const struct nvefs_mount_opts *opts);
void harness_mount(struct harness *h);
void harness_unmount(struct harness *h); /* must succeed */
void harness_crash(struct harness *h);	 /* nothing more is written */
void harness_done(struct harness *h);	 /* unmounts if mounted, removes the image */
/* Checks the unmounted image with the library behind fsck.nvefs: must be clean. */
void harness_check(struct harness *h);
void harness_check_dev(struct nvefs_dev *dev, const char *what);

#endif
