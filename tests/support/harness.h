/* SPDX-License-Identifier: MIT */
/*
 * A file system to test on: made, mounted, one worker, plain calls. The target
 * is a temporary image, or what NVEFS_TEST_TARGET says. Helpers fail the test
 * (Check) with the seed and step in the message; they never return an error
 * that the test did not ask for.
 */
#ifndef NVEFS_TESTS_HARNESS_H
#define NVEFS_TESTS_HARNESS_H

#include <nvefs/nvefs.h>

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

/* Each returns the call's result. */
int h_create(struct nvefs_worker *w, const char *name, uint64_t *ret_ino);
int h_unlink(struct nvefs_worker *w, const char *name);
int h_write(struct nvefs_worker *w, uint64_t ino, uint64_t off, const void *buf, uint64_t len, uint32_t flags);
/* Reads until len bytes or the end; bytes read or -errno. */
int64_t h_read(struct nvefs_worker *w, uint64_t ino, uint64_t off, void *buf, uint64_t len);
int h_truncate(struct nvefs_worker *w, uint64_t ino, uint64_t size);
int h_fallocate(struct nvefs_worker *w, uint64_t ino, uint32_t mode, uint64_t off, uint64_t len);
int64_t h_copy(struct nvefs_worker *w, uint64_t from, uint64_t off, uint64_t to, uint64_t off_to, uint64_t len);
int h_fsync(struct nvefs_worker *w, uint64_t ino);
int h_sync(struct nvefs_worker *w);

/* xorshift; the seed is printed by the tests and taken from NVEFS_TEST_SEED. */
struct rnd {
	uint64_t s;
};
uint64_t rnd_seed(void);
uint64_t rnd_next(struct rnd *r);
uint64_t rnd_below(struct rnd *r, uint64_t n);

#endif
