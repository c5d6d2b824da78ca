/* SPDX-License-Identifier: MIT */
/*
 * File data against shadow copies in memory: random writes, truncates, holes,
 * clones and remounts, dedup off and on, with fingerprints cut to a few bits so
 * that only the byte compare keeps files apart; many requests at once; several
 * workers at once; a full file system.
 */
#include <check.h>
#include <errno.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/suites.h"
#include "../support/harness.h"
#include "store/state.h"

#define FILES 3u
#define MAX_BYTES (1536u * 1024)

struct shadow {
	uint64_t ino, size;
	uint8_t *bytes;
};

struct world {
	struct harness h;
	struct rnd rnd;
	struct shadow f[FILES];
	uint64_t seed;
	uint32_t step;
};

static void world_start(struct world *wd, const struct nvefs_mount_opts *o, uint64_t salt)
{
	char name[16];
	uint32_t i;

	memset(wd, 0, sizeof(*wd));
	wd->seed = rnd_seed() ^ salt;
	wd->rnd.s = wd->seed;
	harness_make(&wd->h, 128u << 20, o);
	for (i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(h_create(wd->h.w, name, &wd->f[i].ino), 0);
		wd->f[i].bytes = calloc(1, MAX_BYTES);
		ck_assert_ptr_nonnull(wd->f[i].bytes);
	}
}

static void world_end(struct world *wd)
{
	uint32_t i;

	for (i = 0; i < FILES; i++)
		free(wd->f[i].bytes);
	harness_done(&wd->h);
}

#define OK(wd, call)                                                                               \
	do {                                                                                       \
		int64_t ok_ = (call);                                                              \
		ck_assert_msg(ok_ >= 0, "seed %#llx step %u: %s: %lld", (unsigned long long)(wd)->seed, \
			      (wd)->step, #call, (long long)ok_);                                  \
	} while (0)

/* Few different blocks, so that duplicates are common; some bytes of noise now and then. */
static void fill(struct world *wd, uint8_t *buf, uint64_t off, uint64_t len)
{
	bool noise = rnd_below(&wd->rnd, 3) == 0;
	uint8_t salt = (uint8_t)rnd_below(&wd->rnd, 4);
	uint64_t i;

	for (i = 0; i < len; i++)
		buf[i] = (uint8_t)(salt + ((off + i) % 4096) * 7);
	if (noise && len)
		for (i = 0; i < 8; i++)
			buf[rnd_below(&wd->rnd, len)] = (uint8_t)rnd_next(&wd->rnd);
}

static void range(struct world *wd, uint64_t *off, uint64_t *len)
{
	*off = rnd_below(&wd->rnd, MAX_BYTES);
	*len = rnd_below(&wd->rnd, 4) ? rnd_below(&wd->rnd, 20000) + 1 : rnd_below(&wd->rnd, 400000) + 1;
	if (rnd_below(&wd->rnd, 2)) {
		*off &= ~UINT64_C(4095);
		*len = (*len + 4095) & ~UINT64_C(4095);
	}
	if (*len > MAX_BYTES - *off)
		*len = MAX_BYTES - *off;
}

static void compare(struct world *wd, uint32_t i)
{
	struct shadow *s = &wd->f[i];
	uint8_t *buf = malloc(MAX_BYTES);
	struct nvefs_attr a;
	uint64_t k;
	int64_t n;

	OK(wd, nvefs_getattr(wd->h.w, s->ino, &a));
	ck_assert_msg(a.size == s->size, "seed %#llx step %u: file %u: size %llu, not %llu",
		      (unsigned long long)wd->seed, wd->step, i, (unsigned long long)a.size,
		      (unsigned long long)s->size);
	n = h_read(wd->h.w, s->ino, 0, buf, MAX_BYTES);
	ck_assert_msg(n == (int64_t)s->size, "seed %#llx step %u: file %u: read %lld of %llu",
		      (unsigned long long)wd->seed, wd->step, i, (long long)n, (unsigned long long)s->size);
	for (k = 0; k < s->size && buf[k] == s->bytes[k]; k++)
		;
	ck_assert_msg(k == s->size, "seed %#llx step %u: file %u differs at %llu: %u, not %u",
		      (unsigned long long)wd->seed, wd->step, i, (unsigned long long)k, buf[k], s->bytes[k]);
	free(buf);
}

static void compare_part(struct world *wd, struct shadow *s)
{
	uint64_t off, len, want;
	uint8_t *buf;
	int64_t n;

	range(wd, &off, &len);
	want = off >= s->size ? 0 : len < s->size - off ? len : s->size - off;
	buf = malloc(len);
	n = h_read(wd->h.w, s->ino, off, buf, len);
	ck_assert_msg(n == (int64_t)want && !memcmp(buf, s->bytes + off, want),
		      "seed %#llx step %u: read at %llu of %llu gave %lld", (unsigned long long)wd->seed,
		      wd->step, (unsigned long long)off, (unsigned long long)len, (long long)n);
	free(buf);
}

static void do_write(struct world *wd, struct shadow *s)
{
	uint64_t off, len;
	uint8_t *buf;

	range(wd, &off, &len);
	buf = malloc(len + 8);
	fill(wd, buf + 5, off, len);
	OK(wd, h_write(wd->h.w, s->ino, off, buf + 5, len, 0));
	memcpy(s->bytes + off, buf + 5, len);
	if (s->size < off + len)
		s->size = off + len;
	free(buf);
}

static void do_truncate(struct world *wd, struct shadow *s)
{
	uint64_t size = rnd_below(&wd->rnd, MAX_BYTES);

	OK(wd, h_truncate(wd->h.w, s->ino, size));
	if (size < s->size)
		memset(s->bytes + size, 0, s->size - size);
	s->size = size;
}

static void do_fallocate(struct world *wd, struct shadow *s)
{
	static const uint32_t modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					 FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
	uint32_t mode = modes[rnd_below(&wd->rnd, 5)];
	uint64_t off, len, end;

	range(wd, &off, &len);
	OK(wd, h_fallocate(wd->h.w, s->ino, mode, off, len));
	end = off + len;
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && off < s->size)
		memset(s->bytes + off, 0, (end < s->size ? end : s->size) - off);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && s->size < end)
		s->size = end;
}

static void do_copy(struct world *wd, struct shadow *from, struct shadow *to)
{
	uint64_t off, len, to_off, want;
	int64_t n;

	range(wd, &off, &len);
	to_off = rnd_below(&wd->rnd, MAX_BYTES - len + 1);
	if (rnd_below(&wd->rnd, 3))
		to_off &= ~UINT64_C(4095);
	if (from == to && off < to_off + len && to_off < off + len)
		return;
	want = off >= from->size ? 0 : len < from->size - off ? len : from->size - off;
	n = h_copy(wd->h.w, from->ino, off, to->ino, to_off, len);
	ck_assert_msg(n == (int64_t)want, "seed %#llx step %u: copy gave %lld, not %llu",
		      (unsigned long long)wd->seed, wd->step, (long long)n, (unsigned long long)want);
	memcpy(to->bytes + to_off, from->bytes + off, want);
	if (want && to->size < to_off + want)
		to->size = to_off + want;
}

/* What SEEK_HOLE and SEEK_DATA say must fit: no data byte in what is called a hole. */
static void do_seek(struct world *wd, struct shadow *s)
{
	uint64_t off = s->size ? rnd_below(&wd->rnd, s->size) : 0, at, k;
	int err = nvefs_seek(wd->h.w, s->ino, off, SEEK_DATA, &at);

	if (!s->size) {
		ck_assert_int_eq(err, -ENXIO);
		return;
	}
	if (err == -ENXIO)
		at = s->size;
	else
		OK(wd, err);
	for (k = off; k < at && !s->bytes[k]; k++)
		;
	ck_assert_msg(k >= at, "seed %#llx step %u: data at %llu in a hole", (unsigned long long)wd->seed,
		      wd->step, (unsigned long long)k);
	OK(wd, nvefs_seek(wd->h.w, s->ino, off, SEEK_HOLE, &at));
	ck_assert_uint_le(at, s->size);
}

static void reopen(struct world *wd)
{
	harness_unmount(&wd->h);
	harness_check(&wd->h);
	harness_mount(&wd->h);
}

static void world_step(struct world *wd)
{
	uint32_t i = (uint32_t)rnd_below(&wd->rnd, FILES);
	struct shadow *s = &wd->f[i];

	switch (rnd_below(&wd->rnd, 16)) {
	case 0:
		do_truncate(wd, s);
		break;
	case 1:
	case 2:
		do_fallocate(wd, s);
		break;
	case 3:
	case 4:
		do_copy(wd, s, &wd->f[rnd_below(&wd->rnd, FILES)]);
		break;
	case 5:
		do_seek(wd, s);
		break;
	case 6:
		OK(wd, h_fsync(wd->h.w, s->ino));
		break;
	case 7:
		compare(wd, i);
		break;
	case 8:
	case 9:
	case 10:
		compare_part(wd, s);
		break;
	default:
		do_write(wd, s);
	}
}

static void run_world(const struct nvefs_mount_opts *o, uint64_t salt, uint32_t steps)
{
	struct world wd;
	uint32_t i;

	world_start(&wd, o, salt);
	for (wd.step = 0; wd.step < steps; wd.step++) {
		world_step(&wd);
		if (wd.step % 150 == 149)
			reopen(&wd);
	}
	for (i = 0; i < FILES; i++)
		compare(&wd, i);
	reopen(&wd);
	for (i = 0; i < FILES; i++)
		compare(&wd, i);
	world_end(&wd);
}

START_TEST(random_plain)
{
	run_world(&(struct nvefs_mount_opts){.dedup = NVEFS_OFF}, 1, 900);
}
END_TEST

START_TEST(random_dedup)
{
	run_world(&(struct nvefs_mount_opts){.dedup = NVEFS_ON}, 2, 900);
}
END_TEST

START_TEST(random_dedup_collisions)
{
	run_world(&(struct nvefs_mount_opts){.dedup = NVEFS_ON, .fingerprint_bits = 3}, 3, 600);
}
END_TEST

START_TEST(random_tiny_cache)
{
	run_world(&(struct nvefs_mount_opts){.dedup = NVEFS_ON, .cache_bytes = 64 << 10, .dedup_bytes = 4096}, 4, 600);
}
END_TEST

/* ---- Many requests at once on one worker ---- */

#define FLIGHT 64u

struct flight {
	struct nvefs_req req;
	uint8_t *buf;
	bool busy, bad;
	uint8_t tag;
};

static void flight_done(struct nvefs_req *req)
{
	struct flight *f = req->arg;
	uint64_t i;

	f->busy = false;
	if (req->err || req->result != 4096)
		f->bad = true;
	for (i = 0; req->op == NVEFS_REQ_READ && !f->bad && i < 4096; i++)
		f->bad = ((const uint8_t *)req->data)[i] != f->tag;
}

static void start(struct harness *h, struct flight *f, uint64_t ino, uint8_t op, uint64_t blk, uint8_t tag)
{
	memset(&f->req, 0, sizeof(f->req));
	f->req.op = op;
	f->req.ino = ino;
	f->req.off = blk * 4096;
	f->req.len = 4096;
	f->req.done = flight_done;
	f->req.arg = f;
	f->tag = tag;
	f->busy = true;
	if (op == NVEFS_REQ_WRITE) {
		memset(f->buf, tag, 4096);
		f->req.buf = f->buf;
	}
	nvefs_req_start(h->w, &f->req);
}

static void settle(struct harness *h)
{
	while (nvefs_worker_inflight(h->w))
		nvefs_worker_run(h->w);
}

START_TEST(many_in_flight)
{
	struct flight f[FLIGHT];
	struct harness h = {0};
	uint8_t tags[1024] = {0};
	struct rnd r = {rnd_seed()};
	uint64_t ino;
	uint32_t round, i;

	harness_make(&h, 64u << 20, &(struct nvefs_mount_opts){.dedup = _i ? NVEFS_ON : NVEFS_OFF});
	ck_assert_int_eq(h_create(h.w, "f", &ino), 0);
	ck_assert_int_eq(h_truncate(h.w, ino, sizeof(tags) * 4096), 0);
	memset(f, 0, sizeof(f));
	for (i = 0; i < FLIGHT; i++)
		f[i].buf = malloc(4096);
	for (round = 0; round < 200; round++) {
		uint64_t base = rnd_below(&r, sizeof(tags) - FLIGHT);

		for (i = 0; i < FLIGHT; i++) {
			tags[base + i] = (uint8_t)(1 + rnd_below(&r, 40));
			start(&h, &f[i], ino, NVEFS_REQ_WRITE, base + i, tags[base + i]);
		}
		settle(&h);
		base = rnd_below(&r, sizeof(tags) - FLIGHT);
		for (i = 0; i < FLIGHT; i++)
			start(&h, &f[i], ino, NVEFS_REQ_READ, base + i, tags[base + i]);
		settle(&h);
		for (i = 0; i < FLIGHT; i++)
			ck_assert_msg(!f[i].bad && !f[i].busy, "round %u request %u: err %d", round, i, f[i].req.err);
	}
	for (i = 0; i < FLIGHT; i++)
		free(f[i].buf);
	harness_unmount(&h);
	harness_check(&h);
	harness_done(&h);
}
END_TEST

/* Overlapping writes: whichever is last, a block is one of them whole. */
START_TEST(overlapping_writes)
{
	struct flight f[FLIGHT];
	struct harness h = {0};
	uint8_t got[4096];
	uint64_t ino;
	uint32_t round, i, k;

	harness_make(&h, 64u << 20, NULL);
	ck_assert_int_eq(h_create(h.w, "f", &ino), 0);
	memset(f, 0, sizeof(f));
	for (i = 0; i < FLIGHT; i++)
		f[i].buf = malloc(4096);
	for (round = 0; round < 50; round++) {
		for (i = 0; i < FLIGHT; i++)
			start(&h, &f[i], ino, NVEFS_REQ_WRITE, i % 2, (uint8_t)(i + 1));
		settle(&h);
		for (k = 0; k < 2; k++) {
			ck_assert_int_eq(h_read(h.w, ino, k * 4096, got, 4096), 4096);
			ck_assert_uint_eq(got[0], FLIGHT - 1 + k);
			ck_assert_int_eq(memcmp(got, got + 1, 4095), 0);
		}
	}
	for (i = 0; i < FLIGHT; i++)
		free(f[i].buf);
	harness_done(&h);
}
END_TEST

/* ---- Several workers ---- */

struct thread_arg {
	struct nvefs_fs *fs;
	uint64_t ino, shared_ino;
	uint64_t seed;
	int err;
	const char *what;
};

static void *thread_main(void *p)
{
	struct thread_arg *a = p;
	struct rnd r = {a->seed};
	uint8_t *mirror = calloc(1, 256 * 4096), *buf = malloc(256 * 4096);
	struct nvefs_worker *w;
	uint32_t i, k;

	a->err = nvefs_worker_open(a->fs, &w);
	for (i = 0; i < 400 && !a->err; i++) {
		uint64_t blk = rnd_below(&r, 200), n = 1 + rnd_below(&r, 48);

		a->what = "write";
		for (k = 0; k < n; k++)
			memset(mirror + (blk + k) * 4096, (int)rnd_below(&r, 200), 4096);
		a->err = h_write(w, a->ino, blk * 4096, mirror + blk * 4096, n * 4096, 0);
		if (!a->err && i % 8 == 0) {
			a->what = "shared write";
			a->err = h_write(w, a->shared_ino, rnd_below(&r, 100) * 1000, mirror, 5000, 0);
		}
		if (!a->err && i % 16 == 3) {
			a->what = "fsync";
			a->err = h_fsync(w, a->ino);
		}
		if (!a->err && i % 32 == 9) {
			int64_t c = h_copy(w, a->ino, 0, a->shared_ino, 0, 64 * 4096);

			a->what = "copy";
			a->err = c < 0 ? (int)c : 0;
		}
		blk = rnd_below(&r, 200);
		if (!a->err) {
			int64_t got = h_read(w, a->ino, blk * 4096, buf, 40 * 4096);

			a->what = "read";
			a->err = got < 0 ? (int)got : memcmp(buf, mirror + blk * 4096, (size_t)got) ? -EBADMSG : 0;
		}
	}
	nvefs_worker_close(w);
	free(mirror);
	free(buf);
	return NULL;
}

START_TEST(several_workers)
{
	struct thread_arg a[4];
	struct harness h = {0};
	pthread_t t[4];
	char name[8];
	uint64_t shared;
	uint32_t i;

	harness_make(&h, 128u << 20, &(struct nvefs_mount_opts){.dedup = _i ? NVEFS_ON : NVEFS_OFF, .commit_interval_s = 1});
	ck_assert_int_eq(h_create(h.w, "shared", &shared), 0);
	for (i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		a[i] = (struct thread_arg){.fs = h.fs, .shared_ino = shared, .seed = rnd_seed() + i};
		ck_assert_int_eq(h_create(h.w, name, &a[i].ino), 0);
	}
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, thread_main, &a[i]), 0);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < 4; i++)
		ck_assert_msg(!a[i].err, "thread %u: %s: %d", i, a[i].what, a[i].err);
	harness_unmount(&h);
	harness_check(&h);
	harness_done(&h);
}
END_TEST

/* ---- Space ---- */

static uint64_t free_blks(struct harness *h)
{
	struct nvefs_statfs s;

	ck_assert_int_eq(nvefs_statfs(h->w, &s), 0);
	return s.free_blks;
}

START_TEST(full_and_empty_again)
{
	struct harness h = {0};
	uint8_t *buf = malloc(1 << 20);
	uint64_t ino, before, n = 0, i;
	struct rnd r = {rnd_seed()};
	int err = 0;

	harness_make(&h, 64u << 20, &(struct nvefs_mount_opts){.dedup = NVEFS_ON});
	ck_assert_int_eq(h_sync(h.w), 0);
	before = free_blks(&h);
	ck_assert_int_eq(h_create(h.w, "big", &ino), 0);
	while (!err) {
		for (i = 0; i < (1 << 20) / 8; i++)
			((uint64_t *)(void *)buf)[i] = rnd_next(&r);
		err = h_write(h.w, ino, n << 20, buf, 1 << 20, 0);
		n += !err;
		ck_assert_uint_lt(n, 64);
	}
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert_uint_gt(n, 40);
	ck_assert_int_eq(h_fsync(h.w, ino), 0);
	ck_assert_int_eq(h_truncate(h.w, ino, 4096), 0);
	ck_assert_int_eq(h_write(h.w, ino, 4096, buf, 1 << 20, 0), 0);
	ck_assert_int_eq(h_unlink(h.w, "big"), 0);
	nvefs_forget(h.w, ino, 1);
	harness_unmount(&h);
	harness_check(&h);
	harness_mount(&h);
	ck_assert_uint_eq(free_blks(&h), before);
	harness_done(&h);
	free(buf);
}
END_TEST

/* Promise of fallocate: the first write to each block of the range finds its place. */
START_TEST(preallocated_fits_a_full_disk)
{
	struct harness h = {0};
	uint8_t *buf = malloc(1 << 20);
	uint64_t ino, other, n, i;
	struct rnd r = {rnd_seed()};
	int err = 0;

	harness_make(&h, 64u << 20, NULL);
	ck_assert_int_eq(h_create(h.w, "pre", &ino), 0);
	ck_assert_int_eq(h_create(h.w, "other", &other), 0);
	ck_assert_int_eq(h_fallocate(h.w, ino, 0, 0, 8 << 20), 0);
	for (n = 0; !err && n < 64; n++) {
		for (i = 0; i < (1 << 20) / 8; i++)
			((uint64_t *)(void *)buf)[i] = rnd_next(&r);
		err = h_write(h.w, other, n << 20, buf, 1 << 20, 0);
	}
	ck_assert_int_eq(err, -ENOSPC);
	for (i = 0; i < 8; i++)
		ck_assert_int_eq(h_write(h.w, ino, i << 20, buf, 1 << 20, 0), 0);
	ck_assert_int_eq(h_fsync(h.w, ino), 0);
	harness_unmount(&h);
	harness_check(&h);
	harness_done(&h);
	free(buf);
}
END_TEST

/*
 * Blocks freed by a transaction that is not durable yet must not be written
 * again: after a crash the old file needs them. With the quarantine switched
 * off (loop 1) that is what happens, so this test can fail.
 */
START_TEST(freed_blocks_wait_for_the_commit)
{
	const uint64_t n = 96 * 4096; /* more than a whole run: runs are used again first, holes later */
	uint8_t *old = malloc(n), *buf = malloc(n);
	struct nvefs_statfs s;
	struct harness h = {0};
	uint64_t a, b, filler, at, i;
	int64_t got;

	nvefs_store_mutation = _i ? NVEFS_MUTATE_NO_QUARANTINE : NVEFS_MUTATE_NONE;
	harness_make(&h, 64u << 20, &(struct nvefs_mount_opts){.commit_interval_s = 3600});
	ck_assert_int_eq(h_create(h.w, "a", &a), 0);
	ck_assert_int_eq(h_create(h.w, "b", &b), 0);
	ck_assert_int_eq(h_create(h.w, "filler", &filler), 0);
	ck_assert_int_eq(nvefs_statfs(h.w, &s), 0);
	ck_assert_int_eq(h_fallocate(h.w, filler, 0, 0, (s.avail_blks - 400) * 4096), 0);
	memset(old, 'o', n);
	for (i = 0; i < n; i += 4096)
		old[i] = (uint8_t)i;
	ck_assert_int_eq(h_write(h.w, a, 0, old, n, 0), 0);
	ck_assert_int_eq(h_sync(h.w), 0);
	/* Overwrite and fold, again and again: freed space would go round. */
	for (i = 0; i < 40; i++) {
		memset(buf, (int)i, n);
		for (at = 0; at < n; at += 4096) { /* no two blocks are alike, so each takes space */
			buf[at] = (uint8_t)(at / 4096);
			buf[at + 1] = (uint8_t)~i;
		}
		if (h_write(h.w, i % 2 ? b : a, 0, buf, n, 0))
			break;
		nvefs_seek(h.w, i % 2 ? b : a, 0, SEEK_HOLE, &at);
	}
	harness_crash(&h);
	nvefs_store_mutation = NVEFS_MUTATE_NONE;
	harness_mount(&h);
	got = h_read(h.w, a, 0, buf, n);
	if (_i)
		ck_assert_msg(got != (int64_t)n || (memcmp(buf, old, n) && buf[0] != buf[n - 1]),
			      "without the quarantine nothing was lost: this test shows nothing");
	else
		ck_assert_msg(got == (int64_t)n, "read gave %lld", (long long)got);
	harness_done(&h);
	free(old);
	free(buf);
}
END_TEST

START_TEST(modes_and_limits)
{
	struct harness h = {0};
	uint64_t ino, at;
	uint8_t b[16] = "x";

	harness_make(&h, 64u << 20, NULL);
	ck_assert_int_eq(h_create(h.w, "f", &ino), 0);
	ck_assert_int_eq(h_fallocate(h.w, ino, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);
	ck_assert_int_eq(h_fallocate(h.w, ino, FALLOC_FL_PUNCH_HOLE, 0, 4096), -EOPNOTSUPP);
	ck_assert_int_eq(h_fallocate(h.w, ino, 0, 0, 0), -EINVAL);
	ck_assert_int_eq(h_truncate(h.w, ino, UINT64_MAX), -EFBIG);
	ck_assert_int_eq(h_truncate(h.w, ino, 999999999999999), 0);
	ck_assert_int_eq(h_truncate(h.w, ino, 0), 0);
	ck_assert_int_eq(h_write(h.w, ino, UINT64_C(16) << 40, b, 1, 0), 0);
	ck_assert_int_eq(h_read(h.w, ino, (UINT64_C(16) << 40) - 1, b, 16), 2);
	ck_assert_int_eq(nvefs_seek(h.w, ino, 0, SEEK_DATA, &at), 0);
	ck_assert_uint_eq(at, UINT64_C(16) << 40);
	ck_assert_int_eq(h_read(h.w, 999, 0, b, 1), -ESTALE);
	ck_assert_int_eq(h_read(h.w, 1, 0, b, 1), -EISDIR);
	ck_assert_int_eq(h_write(h.w, 1, 0, b, 1, 0), -EISDIR);
	harness_done(&h);
}
END_TEST

/* A file that asks for dedup on a mount that has it off: its own blocks are found again. */
START_TEST(dedup_by_file)
{
	const struct nvefs_attr want = {.flags = NVEFS_INODE_DEDUP_ON};
	struct harness h = {0};
	struct nvefs_stats s;
	struct nvefs_attr a;
	uint8_t b[4096];
	uint64_t ino, i;

	harness_make(&h, 64u << 20, &(struct nvefs_mount_opts){.dedup = NVEFS_OFF});
	memset(b, 'd', sizeof(b));
	ck_assert_int_eq(h_create(h.w, "f", &ino), 0);
	if (_i)
		ck_assert_int_eq(nvefs_setattr(h.w, ino, NVEFS_SET_FLAGS, &want, &a), 0);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(h_write(h.w, ino, i * sizeof(b), b, sizeof(b), 0), 0);
	ck_assert_int_eq(h_sync(h.w), 0);
	nvefs_stats_get(h.fs, &s);
	ck_assert_uint_eq(s.shared_bytes, _i ? 2 * sizeof(b) : 0);
	harness_unmount(&h);
	harness_check(&h);
	harness_done(&h);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs_data");
	TCase *c = tcase_create("all");

	tcase_set_timeout(c, 120);
	tcase_add_test(c, random_plain);
	tcase_add_test(c, random_dedup);
	tcase_add_test(c, random_dedup_collisions);
	tcase_add_test(c, random_tiny_cache);
	tcase_add_loop_test(c, many_in_flight, 0, 2);
	tcase_add_test(c, overlapping_writes);
	tcase_add_loop_test(c, several_workers, 0, 2);
	tcase_add_test(c, full_and_empty_again);
	tcase_add_test(c, preallocated_fits_a_full_disk);
	tcase_add_loop_test(c, freed_blocks_wait_for_the_commit, 0, 2);
	tcase_add_test(c, modes_and_limits);
	tcase_add_loop_test(c, dedup_by_file, 0, 2);
	suite_add_tcase(s, c);
	return run_suites(s, NULL);
}
