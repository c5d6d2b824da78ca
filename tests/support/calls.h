/* SPDX-License-Identifier: MIT */
/* Plain calls on a worker, and random numbers, for all tests. */
#ifndef NVEFS_TESTS_CALLS_H
#define NVEFS_TESTS_CALLS_H

#include <nvefs/nvefs.h>

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
