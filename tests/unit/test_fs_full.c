/* SPDX-License-Identifier: MIT */
/*
 * A device with little or nothing left. How much fits must not depend on how many requests are in flight; what
 * was freed can be used at once; and what makes room always works.
 */
#include <check.h>
#include <errno.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suites.h"
#include "../support/harness.h"
#include "fs/fs.h"
#include "store/state.h"

#define FLIGHT 64u
#define POOL 512u /* different blocks that the duplicates are of */
#define DEVICE (64u << 20)

enum content { UNIQUE, DUPLICATES, MIXED, NCONTENTS };

static const struct nvefs_mount_opts *opts_for(enum content c)
{
	static const struct nvefs_mount_opts on = {.dedup = NVEFS_ON}, off = {.dedup = NVEFS_OFF};

	return c == UNIQUE ? &off : &on;
}

/* Duplicates are all over the pool, so that maps are fragmented and no two neighbours are neighbours there. */
static void content_fill(uint64_t *buf, enum content c, uint64_t salt, uint64_t blk)
{
	memset(buf, 1, 4096);
	if (c == UNIQUE || (c == MIXED && blk % 100 == 0)) {
		buf[0] = blk + 1;
		buf[1] = salt + 7;
	} else {
		buf[0] = (blk * 7919) % POOL + 1;
	}
}

/* ---- Many writes in flight ---- */

struct flight {
	struct nvefs_req req;
	uint64_t buf[512];
	bool busy, used;
};

static void flight_done(struct nvefs_req *req)
{
	struct flight *f = req->arg;

	f->busy = false;
}

static void flight_start(struct nvefs_worker *w, struct flight *f, uint64_t ino, uint64_t blk, enum content c)
{
	f->req = (struct nvefs_req){.op = NVEFS_REQ_WRITE, .ino = ino, .off = blk * 4096, .len = 4096, .buf = f->buf,
				    .done = flight_done, .arg = f};
	content_fill(f->buf, c, ino, blk);
	f->busy = f->used = true;
	nvefs_req_start(w, &f->req);
}

static void run_some(struct nvefs_worker *w)
{
	if (!nvefs_worker_run(w) && nvefs_worker_inflight(w) && nvefs_worker_prepare_wait(w))
		nvefs_queue_wait(nvefs_worker_queue(w), UINT64_MAX);
}

/*
 * Blocks [from, max) of a file, one at a time, n in flight, until one finds no space. How many were written; the
 * first other error in *err.
 */
static uint64_t fill_file(struct nvefs_worker *w, uint64_t ino, uint64_t from, uint64_t max, uint32_t n, enum content c,
			  int *err)
{
	struct flight *f = calloc(n, sizeof(*f));
	uint64_t blk = from, written = 0;
	bool full = false;
	uint32_t i, used;

	*err = 0;
	do {
		used = 0;
		for (i = 0; i < n; i++) {
			used += f[i].busy;
			if (f[i].busy)
				continue;
			if (f[i].used && f[i].req.err && f[i].req.err != -ENOSPC && !*err)
				*err = f[i].req.err;
			full |= f[i].used && f[i].req.err;
			written += f[i].used && !f[i].req.err;
			f[i].used = false;
			if (full || blk == max)
				continue;
			flight_start(w, &f[i], ino, blk++, c);
			used++;
		}
		run_some(w);
	} while (used);
	free(f);
	return written;
}

/* A device with so many blocks left; the pool of blocks, and empty files, the first of them "f". */
static void nearly_full(struct harness *h, enum content c, uint64_t left, uint32_t n, uint64_t *ret_inos)
{
	uint64_t *bufs = malloc(64 * 4096), other, pool, i;
	struct nvefs_statfs s;
	char name[8] = "f";

	harness_make(h, DEVICE, opts_for(c));
	ck_assert_int_eq(h_create(h->w, "taken", &other), 0);
	ck_assert_int_eq(h_create(h->w, "pool", &pool), 0);
	for (i = 0; i < n; snprintf(name, sizeof(name), "f%u", (unsigned)++i))
		ck_assert_int_eq(h_create(h->w, name, &ret_inos[i]), 0);
	for (i = 0; i < POOL; i++) {
		content_fill(bufs + i % 64 * 512, DUPLICATES, 0, i);
		if (i % 64 == 63)
			ck_assert_int_eq(h_write(h->w, pool, (i - 63) * 4096, bufs, 64 * 4096, 0), 0);
	}
	free(bufs);
	ck_assert_int_eq(h_sync(h->w), 0);
	ck_assert_int_eq(nvefs_statfs(h->w, &s), 0);
	ck_assert_int_eq(h_fallocate(h->w, other, 0, 0, (s.avail_blks - left) * 4096), 0);
	ck_assert_int_eq(h_sync(h->w), 0);
}

static void end(struct harness *h)
{
	harness_unmount(h);
	harness_check(h);
	harness_done(h);
}

static uint64_t fill_device(uint32_t n, enum content c)
{
	struct harness h = {0};
	struct nvefs_attr a;
	uint64_t ino, blks;
	int err;

	nearly_full(&h, c, 40, 1, &ino);
	blks = fill_file(h.w, ino, 0, UINT64_MAX, n, c, &err);
	ck_assert_int_eq(err, 0);
	ck_assert_int_eq(h_sync(h.w), 0);
	ck_assert_int_eq(nvefs_getattr(h.w, ino, &a), 0);
	ck_assert_uint_eq(a.blks, blks);
	end(&h);
	return blks;
}

/*
 * What many requests hold while they are under way comes back: none fails for it that would not fail alone.
 * Duplicates take metadata only, so the file is a many times the space that is left.
 */
START_TEST(as_much_with_many_in_flight)
{
	uint64_t alone = fill_device(1, (enum content)_i), many = fill_device(FLIGHT, (enum content)_i);

	if (_i == DUPLICATES)
		ck_assert_uint_gt(alone, 1500);
	ck_assert_msg(many + 8 >= alone && many <= alone + 8, "%llu blocks with %u in flight, %llu one at a time",
		      (unsigned long long)many, FLIGHT, (unsigned long long)alone);
}
END_TEST

/* ---- Several workers, each with many in flight ---- */

#define WORKERS 4u

struct filler {
	struct nvefs_fs *fs;
	pthread_t thread;
	uint64_t ino, blks;
	enum content content;
	int err;
};

static void *filler_main(void *arg)
{
	struct filler *f = arg;
	struct nvefs_worker *w;
	int err = nvefs_worker_open(f->fs, &w);

	if (!err)
		f->blks = fill_file(w, f->ino, 0, UINT64_MAX, FLIGHT / WORKERS, f->content, &f->err);
	else
		f->err = err;
	if (!err)
		nvefs_worker_close(w);
	return NULL;
}

START_TEST(as_much_with_several_workers)
{
	uint64_t alone = fill_device(1, (enum content)_i), many = 0, i, inos[WORKERS];
	struct filler f[WORKERS];
	struct harness h = {0};

	nearly_full(&h, (enum content)_i, 40, WORKERS, inos);
	for (i = 0; i < WORKERS; i++) {
		f[i] = (struct filler){.fs = h.fs, .content = (enum content)_i, .ino = inos[i]};
		ck_assert_int_eq(pthread_create(&f[i].thread, NULL, filler_main, &f[i]), 0);
	}
	for (i = 0; i < WORKERS; i++) {
		pthread_join(f[i].thread, NULL);
		ck_assert_int_eq(f[i].err, 0);
		many += f[i].blks;
	}
	ck_assert_int_eq(h_sync(h.w), 0);
	end(&h);
	/* Each of the other files may have a leaf that is not full, in two copies, and its share of one write too few. */
	ck_assert_msg(_i == UNIQUE ? many + 8 * WORKERS >= alone : many + alone / 4 >= alone,
		      "%llu blocks by %u workers, %llu one at a time", (unsigned long long)many, WORKERS,
		      (unsigned long long)alone);
}
END_TEST

/*
 * Sharing a block for the first time puts an item between those of its neighbours. Where these came in one go their
 * leaves are full, and each such item splits one: folding finds what it needs outside of the reserve.
 */
START_TEST(shares_are_pledged_for)
{
	const uint64_t n = 6400, step = 64;
	struct harness h = {0};
	struct nvefs_space s;
	struct nvefs_stats stats;
	struct nvefs_statfs df;
	uint64_t buf[512], *many = malloc(step * 4096), ino[4], i;
	int err = 0;

	harness_make(&h, DEVICE, opts_for(DUPLICATES));
	ck_assert_int_eq(h_create(h.w, "first", &ino[0]), 0);
	ck_assert_int_eq(h_create(h.w, "most", &ino[1]), 0);
	ck_assert_int_eq(h_create(h.w, "others", &ino[2]), 0);
	ck_assert_int_eq(h_create(h.w, "taken", &ino[3]), 0);
	for (i = 0; i < n; i += step) {
		for (uint64_t k = 0; k < step; k++)
			content_fill(many + k * 512, UNIQUE, 0, i + k);
		ck_assert_int_eq(h_write(h.w, ino[0], i * 4096, many, step * 4096, 0), 0);
		ck_assert_int_eq(h_write(h.w, ino[1], i * 4096, many + 512, (step - 1) * 4096, 0), 0);
	}
	ck_assert_int_eq(h_sync(h.w), 0);
	ck_assert_int_eq(nvefs_statfs(h.w, &df), 0);
	ck_assert_int_eq(h_fallocate(h.w, ino[3], 0, 0, (df.avail_blks - 40) * 4096), 0);
	ck_assert_int_eq(h_sync(h.w), 0);
	for (i = 0; i < n && !err; i += step) {
		content_fill(buf, UNIQUE, 0, i);
		err = h_write(h.w, ino[2], i / step * 4096, buf, 4096, 0);
	}
	ck_assert_int_eq(h_sync(h.w), 0);
	ck_assert_int_eq(err, -ENOSPC);
	nvefs_stats_get(h.fs, &stats);
	ck_assert_uint_gt(stats.shared_bytes, (n - n / step) * 4096);
	nvefs_space_get(h.fs->st, &s);
	ck_assert_msg(s.free >= s.meta_reserve, "%llu blocks of the reserve of %llu are left",
		      (unsigned long long)s.free, (unsigned long long)s.meta_reserve);
	free(many);
	end(&h);
}
END_TEST

/* ---- What was freed can be used at once ---- */

enum way { UNLINK, CUT, PUNCH, NWAYS };
enum use { WRITE, ALLOCATE, COPY, NUSES };

static void free_file(struct harness *h, enum way way, uint64_t ino)
{
	if (way == UNLINK) {
		ck_assert_int_eq(h_unlink(h->w, "f"), 0);
		nvefs_forget(h->w, ino, 1);
	} else if (way == CUT) {
		ck_assert_int_eq(h_truncate(h->w, ino, 0), 0);
	} else {
		ck_assert_int_eq(h_fallocate(h->w, ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 30), 0);
	}
}

static uint64_t use_space(struct harness *h, enum use use, uint64_t ino, uint64_t blks, enum content c)
{
	struct nvefs_attr source;
	uint64_t done = 0;
	int err = 0;

	if (use == WRITE) {
		done = fill_file(h->w, ino, 0, blks, FLIGHT, c, &err);
	} else if (use == ALLOCATE) {
		err = h_fallocate(h->w, ino, 0, 0, blks * 4096);
		done = err ? 0 : blks;
	} else { /* not at block boundaries, so that nothing can be shared */
		int64_t n = 1;

		ck_assert_int_eq(nvefs_lookup(h->w, 1, "taken", 5, &source), 0);
		while (done < blks * 4096 && n > 0) {
			n = h_copy(h->w, source.ino, 1, ino, done, blks * 4096 - done);
			done += n > 0 ? (uint64_t)n : 0;
		}
		done /= 4096;
	}
	ck_assert_int_eq(err, 0);
	return done;
}

/* As users do on a full disk: something large goes, and as much is written at once; no sync, no pause, every time. */
START_TEST(freed_space_is_there_at_once)
{
	const enum content c = _i / (NWAYS * NUSES) ? MIXED : UNIQUE;
	const enum way way = (enum way)(_i / NUSES % NWAYS);
	const enum use use = (enum use)(_i % NUSES);
	struct harness h = {0};
	const uint64_t blks = 500;
	uint64_t ino, again, round;
	int err;

	nearly_full(&h, c, blks + 60, 1, &ino);
	ck_assert_uint_eq(fill_file(h.w, ino, 0, blks, FLIGHT, UNIQUE, &err), blks);
	ck_assert_int_eq(err, 0);
	for (round = 0; round < 2; round++) {
		free_file(&h, way, ino);
		if (way == UNLINK)
			ck_assert_int_eq(h_create(h.w, "f", &ino), 0);
		again = use_space(&h, use, ino, blks, UNIQUE);
		ck_assert_msg(again == blks, "way %d, use %d, round %llu: %llu blocks of %llu that had been freed", way, use,
			      (unsigned long long)round, (unsigned long long)again, (unsigned long long)blks);
	}
	end(&h);
}
END_TEST

/* ---- Completely full ---- */

static int make(struct harness *h, uint64_t dir, const char *name, uint32_t type, uint64_t *ret_ino)
{
	struct nvefs_cred cred = {0};
	struct nvefs_attr a;
	int err = type == S_IFDIR ? nvefs_mkdir(h->w, dir, name, strlen(name), 0755, &cred, &a) :
				    nvefs_mknod(h->w, dir, name, strlen(name), S_IFREG | 0644, 0, &cred, &a);

	if (!err)
		*ret_ino = a.ino;
	return err;
}

#define DIRS 12u
#define FILES 24u

struct tree {
	uint64_t dir[DIRS], file[DIRS][FILES], before, spare;
};

static uint64_t free_blks(struct harness *h)
{
	struct nvefs_statfs s;

	ck_assert_int_eq(h_sync(h->w), 0);
	ck_assert_int_eq(nvefs_statfs(h->w, &s), 0);
	return s.free_blks;
}

/* Directories of files that share blocks (dedup) or not, a preallocated one, and then not a block and not a name more. */
static void tree_fill(struct harness *h, struct tree *t, enum content c)
{
	uint64_t buf[4 * 512], last, i, k;
	struct nvefs_statfs s;
	char name[24];
	int err;

	harness_make(h, DEVICE, opts_for(c));
	t->before = free_blks(h);
	for (i = 0; i < DIRS; i++) {
		snprintf(name, sizeof(name), "d%u", (unsigned)i);
		ck_assert_int_eq(make(h, 1, name, S_IFDIR, &t->dir[i]), 0);
		for (k = 0; k < FILES; k++) {
			for (uint32_t b = 0; b < 4; b++)
				content_fill(buf + b * 512, c, i * FILES + k, k * 4 + b);
			snprintf(name, sizeof(name), "f%u", (unsigned)k);
			ck_assert_int_eq(make(h, t->dir[i], name, S_IFREG, &t->file[i][k]), 0);
			ck_assert_int_eq(h_write(h->w, t->file[i][k], 0, buf, 4 * 4096 - 100, 0), 0);
		}
	}
	ck_assert_int_eq(make(h, t->dir[0], "spare", S_IFREG, &t->spare), 0);
	ck_assert_int_eq(h_fallocate(h->w, t->spare, 0, 0, 1 << 20), 0);
	ck_assert_int_eq(make(h, t->dir[0], "last", S_IFREG, &last), 0);
	ck_assert_int_eq(h_sync(h->w), 0);
	ck_assert_int_eq(nvefs_statfs(h->w, &s), 0);
	ck_assert_int_eq(h_fallocate(h->w, last, 0, 0, (s.avail_blks - 200) * 4096), 0);
	fill_file(h->w, last, s.avail_blks, UINT64_MAX, FLIGHT, UNIQUE, &err);
	ck_assert_int_eq(err, 0);
	for (i = 0, err = 0; !err; i++) {
		snprintf(name, sizeof(name), "n%u", (unsigned)i);
		err = make(h, t->dir[0], name, S_IFREG, &k);
	}
	ck_assert_int_eq(err, -ENOSPC);
	for (k = 0; k + 1 < i; k++) {
		snprintf(name, sizeof(name), "n%u", (unsigned)k);
		ck_assert_int_eq(nvefs_unlink(h->w, t->dir[0], name, strlen(name)), 0);
	}
	fill_file(h->w, last, s.avail_blks + 1000, UINT64_MAX, 1, UNIQUE, &err);
	ck_assert_int_eq(nvefs_statfs(h->w, &s), 0);
	ck_assert_uint_lt(s.avail_blks, 8);
}

/* rm -r */
static void tree_remove(struct harness *h, struct tree *t)
{
	uint64_t i, k;
	char name[24];

	for (i = 0; i < DIRS; i++) {
		for (k = 0; k < FILES; k++) {
			snprintf(name, sizeof(name), "f%u", (unsigned)k);
			ck_assert_int_eq(nvefs_unlink(h->w, t->dir[i], name, strlen(name)), 0);
			nvefs_forget(h->w, t->file[i][k], 1);
		}
		if (!i) {
			ck_assert_int_eq(nvefs_unlink(h->w, t->dir[0], "spare", 5), 0);
			ck_assert_int_eq(nvefs_unlink(h->w, t->dir[0], "last", 4), 0);
		}
		snprintf(name, sizeof(name), "d%u", (unsigned)i);
		ck_assert_int_eq(nvefs_rmdir(h->w, 1, name, strlen(name)), 0);
	}
}

/* Changes that take no space, or give some back. */
static void tree_change(struct harness *h, struct tree *t)
{
	const struct nvefs_attr mode = {.mode = 0600};
	uint64_t buf[512] = {99}, i;
	struct nvefs_attr a;
	char name[24];

	for (i = 0; i < 256; i++) /* what fallocate has promised */
		ck_assert_int_eq(h_write(h->w, t->spare, i * 4096, buf, 4096, 0), 0);
	for (i = 0; i < FILES; i++) {
		uint64_t ino = t->file[1][i];

		snprintf(name, sizeof(name), "f%u", (unsigned)i);
		ck_assert_int_eq(nvefs_rename(h->w, t->dir[1], name, strlen(name), t->dir[1], "x", 1, 0), 0);
		ck_assert_int_eq(nvefs_rename(h->w, t->dir[1], "x", 1, t->dir[1], name, strlen(name), 0), 0);
		ck_assert_int_eq(nvefs_setattr(h->w, ino, NVEFS_SET_MODE, &mode, &a), 0);
		ck_assert_int_eq(h_truncate(h->w, ino, 1 << 20), 0);
		ck_assert_int_eq(h_truncate(h->w, ino, 2 * 4096 + 5), 0);
		ck_assert_int_eq(h_fsync(h->w, ino), 0);
	}
	for (i = 0; i < FILES; i++) /* within one block: it takes one, and gives one back */
		ck_assert_int_eq(h_fallocate(h->w, t->file[2][i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10, 100), 0);
}

START_TEST(full_and_yet_alive)
{
	const enum content c = _i % 2 ? DUPLICATES : UNIQUE;
	static struct tree t;
	struct harness h = {0};
	uint64_t after;

	tree_fill(&h, &t, c);
	tree_change(&h, &t);
	if (_i / 2) {
		harness_unmount(&h);
		harness_check(&h);
		harness_mount(&h);
	}
	tree_remove(&h, &t);
	harness_unmount(&h);
	harness_check(&h);
	harness_mount(&h);
	after = free_blks(&h);
	ck_assert_msg(after == t.before, "%llu blocks free, %llu before", (unsigned long long)after,
		      (unsigned long long)t.before);
	end(&h);
}
END_TEST

/* What requests in flight have pledged keeps no name from being made: most of it comes back. */
START_TEST(names_beside_pledges)
{
	struct harness h = {0};
	struct nvefs_space s;
	struct nvefs_attr a;
	uint64_t ino, other;
	uint32_t n;

	nearly_full(&h, UNIQUE, 400, 1, &ino);
	nvefs_space_get(h.fs->st, &s);
	n = (uint32_t)s.avail / 2;
	ck_assert_int_eq(nvefs_alloc_pledge(h.fs->st, n, false), 0);
	ck_assert_int_eq(make(&h, 1, "file", S_IFREG, &other), 0);
	ck_assert_int_eq(make(&h, 1, "dir", S_IFDIR, &other), 0);
	ck_assert_int_eq(nvefs_setxattr(h.w, ino, "user.a", "value", 5, 0), 0);
	ck_assert_int_eq(nvefs_link(h.w, ino, 1, "second", 6, &a), 0);
	nvefs_alloc_unpledge(h.fs->st, n);
	end(&h);
}
END_TEST

static TCase *add(Suite *s, const char *name)
{
	TCase *c = tcase_create(name);

	tcase_set_timeout(c, 120);
	suite_add_tcase(s, c);
	return c;
}

int main(void)
{
	Suite *s = suite_create("fs_full");
	TCase *flight = add(s, "flight"), *freed = add(s, "freed"), *full = add(s, "full");

	tcase_add_loop_test(flight, as_much_with_many_in_flight, 0, NCONTENTS);
	tcase_add_loop_test(flight, as_much_with_several_workers, 0, NCONTENTS);
	tcase_add_test(flight, shares_are_pledged_for);
	tcase_add_loop_test(freed, freed_space_is_there_at_once, 0, 2 * NWAYS * NUSES);
	tcase_add_loop_test(full, full_and_yet_alive, 0, 4);
	tcase_add_test(full, names_beside_pledges);
	return run_suites(s, NULL);
}
