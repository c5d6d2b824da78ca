/* SPDX-License-Identifier: MIT */
#include "calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t rnd_seed(void)
{
	const char *s = getenv("NVEFS_TEST_SEED");

	return s ? strtoull(s, NULL, 0) : UINT64_C(0x9e3779b97f4a7c15);
}

uint64_t rnd_next(struct rnd *r)
{
	if (!r->s)
		r->s = 1;
	r->s ^= r->s << 13;
	r->s ^= r->s >> 7;
	r->s ^= r->s << 17;
	return r->s * UINT64_C(0x2545f4914f6cdd1d);
}

uint64_t rnd_below(struct rnd *r, uint64_t n)
{
	return (rnd_next(r) >> 11) % n;
}

int h_create(struct nvefs_worker *w, const char *name, uint64_t *ret_ino)
{
	struct nvefs_cred cred = {0};
	struct nvefs_attr a;
	int err = nvefs_mknod(w, 1, name, strlen(name), S_IFREG | 0644, 0, &cred, &a);

	if (!err)
		*ret_ino = a.ino;
	return err;
}

int h_unlink(struct nvefs_worker *w, const char *name)
{
	return nvefs_unlink(w, 1, name, strlen(name));
}

int h_write(struct nvefs_worker *w, uint64_t ino, uint64_t off, const void *buf, uint64_t len, uint32_t flags)
{
	struct nvefs_req r = {.op = NVEFS_REQ_WRITE, .flags = flags, .ino = ino, .off = off, .len = len};
	int err;

	r.buf = (void *)(uintptr_t)buf;
	err = nvefs_req_run(w, &r);
	return err ? err : r.result == len ? 0 : -ENOSPC;
}

int64_t h_read(struct nvefs_worker *w, uint64_t ino, uint64_t off, void *buf, uint64_t len)
{
	uint64_t got = 0;

	while (got < len) {
		struct nvefs_req r = {.op = NVEFS_REQ_READ, .ino = ino, .off = off + got, .len = len - got};
		int err;

		r.buf = (char *)buf + got;
		err = nvefs_req_run(w, &r);
		if (err)
			return err;
		if (!r.result)
			break;
		got += r.result;
	}
	return (int64_t)got;
}

int h_truncate(struct nvefs_worker *w, uint64_t ino, uint64_t size)
{
	struct nvefs_req r = {.op = NVEFS_REQ_SETATTR, .ino = ino, .set_mask = NVEFS_SET_SIZE};

	r.attr.size = size;
	return nvefs_req_run(w, &r);
}

int h_fallocate(struct nvefs_worker *w, uint64_t ino, uint32_t mode, uint64_t off, uint64_t len)
{
	struct nvefs_req r = {.op = NVEFS_REQ_FALLOCATE, .flags = mode, .ino = ino, .off = off, .len = len};

	return nvefs_req_run(w, &r);
}

int64_t h_copy(struct nvefs_worker *w, uint64_t from, uint64_t off, uint64_t to, uint64_t off_to, uint64_t len)
{
	struct nvefs_req r = {.op = NVEFS_REQ_COPY, .ino = from, .off = off, .len = len, .ino_out = to,
			      .off_out = off_to};
	int err = nvefs_req_run(w, &r);

	return err ? err : (int64_t)r.result;
}

int h_fsync(struct nvefs_worker *w, uint64_t ino)
{
	struct nvefs_req r = {.op = NVEFS_REQ_FSYNC, .ino = ino};

	return nvefs_req_run(w, &r);
}

int h_sync(struct nvefs_worker *w)
{
	struct nvefs_req r = {.op = NVEFS_REQ_SYNC};

	return nvefs_req_run(w, &r);
}
