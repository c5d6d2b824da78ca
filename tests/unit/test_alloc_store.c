/* SPDX-License-Identifier: MIT */
/*
 * The allocator over the real store: "files" of slots, each slot a block of
 * data on the device with a tag in it. A tree item per file says which blocks
 * and which tags. Whatever happens, after a mount each referenced block holds
 * its tag, and every block has as many references as there are slots that name it.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suites.h"
#include "base/bitmap.h"
#include "base/buf.h"
#include "base/log.h"
#include "store/alloc_parts.h"
#include "store/mkfs.h"
#include "test_plug.h"

#define FILES 40u
#define SLOTS 16u /* per file */
#define FILE_INO 100u
#define CHANGES 2u /* slots per operation */

struct slot {
	uint64_t pblk; /* 0: hole */
	uint64_t tag;
};

struct file {
	struct slot slots[SLOTS];
};

struct world {
	struct nvefs_dev *dev;
	struct plug *plug;
	struct nvefs_queue *q;
	struct nvefs_super sb;
	struct nvefs_store *st;
	struct nvefs_mutex lock; /* of files, between threads */
	struct file files[FILES];
	uint64_t tags; /* atomic */
};

struct writer {
	struct world *w;
	struct nvefs_queue *q;
	struct nvefs_alloc_cursor c;
	unsigned int seed;
	uint32_t first, nfiles; /* files that it changes */
	uint64_t *buf;
	pthread_t thread;
};

static void store_open(struct world *w, bool discard)
{
	const struct nvefs_store_opts opts = {.discard = discard};
	struct nvefs_error err = {""};

	ck_assert_msg(nvefs_store_open(w->dev, &opts, &w->st, &err) == 0, "%s", err.text);
	ck_assert_int_eq(nvefs_store_start(w->st), 0);
}

/* dup: with second copies of metadata. */
static void world_init(struct world *w, const char *uri, bool discard, bool dup)
{
	const struct nvefs_mkfs_params params = {
		.label = "test", .creator = "test_alloc", .flags = dup ? NVEFS_SB_META_DUP : 0};
	const struct nvefs_dev_open_opts open_opts = {0};
	struct nvefs_error err = {""};
	struct nvefs_dev *ram;

	memset(w, 0, sizeof(*w));
	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	ck_assert_msg(nvefs_dev_open(uri, &open_opts, &ram, &err) == 0, "%s", err.text);
	w->plug = plug_open(ram);
	w->dev = &w->plug->dev;
	ck_assert_msg(nvefs_store_mkfs(w->dev, &params, &w->sb, &err) == 0, "%s", err.text);
	ck_assert_int_eq(nvefs_queue_init(w->dev, 0, &w->q), 0);
	nvefs_mutex_init(&w->lock);
	store_open(w, discard);
}

static void world_done(struct world *w)
{
	if (w->st) {
		ck_assert_int_eq(nvefs_store_stop(w->st), 0);
		nvefs_store_free(w->st);
	}
	nvefs_queue_done(w->q);
	nvefs_mutex_done(&w->lock);
	nvefs_dev_close(w->dev);
}

static void writer_init(struct writer *x, struct world *w, uint32_t id, uint32_t of)
{
	*x = (struct writer){.w = w, .seed = id + 7, .c = {.seed = id}, .nfiles = FILES / of};
	x->first = id * x->nfiles;
	x->buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
}

static void writer_start(struct writer *x)
{
	ck_assert_int_eq(nvefs_queue_init(x->w->dev, 0, &x->q), 0);
}

static void writer_done(struct writer *x)
{
	nvefs_queue_done(x->q);
	nvefs_buf_free(x->buf);
}

/* ---- One change ---- */

struct change {
	uint32_t file, slot;
	struct slot old, new;
};

/* A new block with a new tag; -ENOSPC is tried again as long as a commit may help. */
static int make_block(struct writer *x, struct slot *ret)
{
	struct nvefs_store *st = x->w->st;
	uint64_t pblk, tag = __atomic_add_fetch(&x->w->tags, 1, __ATOMIC_RELAXED);
	uint32_t got;
	bool more;
	int err;

	while ((err = nvefs_alloc_data(st, x->q, &x->c, 1, &pblk, &got, &more)) == -ENOSPC &&
	       more) {
		err = nvefs_commit_run(st, false);
		if (err)
			return err;
	}
	if (err)
		return err;
	for (uint32_t i = 0; i < NVEFS_BLOCK_SIZE / sizeof(tag); i++)
		x->buf[i] = tag;
	err = nvefs_queue_write(x->q, pblk, 1, x->buf, 0);
	if (err) {
		nvefs_block_unreserve(st, pblk, 1);
		return err;
	}
	nvefs_block_map(st, pblk, 1);
	*ret = (struct slot){.pblk = pblk, .tag = tag};
	return 0;
}

/* What a slot is to become; the new block, if any, has a memory reference. */
static int plan(struct writer *x, struct change *c)
{
	uint32_t what = (uint32_t)rand_r(&x->seed) % 8;
	struct world *w = x->w;
	struct slot other;

	c->new = (struct slot){0};
	if (what == 0)
		return 0;
	if (what < 5)
		return make_block(x, &c->new);
	nvefs_mutex_lock(&w->lock);
	other =
	    w->files[(uint32_t)rand_r(&x->seed) % FILES].slots[(uint32_t)rand_r(&x->seed) % SLOTS];
	nvefs_mutex_unlock(&w->lock);
	if (!other.pblk)
		return 0;
	if (nvefs_block_pin_load(w->st, x->q, other.pblk) || nvefs_block_pin(w->st, other.pblk))
		return make_block(x, &c->new);
	/* Live, but it may have died and come back with other content since we looked: look again.
	 */
	if (nvefs_queue_read(x->q, other.pblk, 1, x->buf) || x->buf[0] != other.tag) {
		nvefs_block_unpin(w->st, other.pblk);
		return make_block(x, &c->new);
	}
	c->new = other;
	return 0;
}

static int prepare(struct nvefs_txn *t, const struct change *c, uint32_t n,
		   const struct nvefs_key *key)
{
	int err = nvefs_tree_prepare(t, key);

	for (uint32_t i = 0; i < n && !err; i++) {
		if (c[i].old.pblk)
			err = nvefs_ref_prepare(t, c[i].old.pblk);
		if (!err && c[i].new.pblk)
			err = nvefs_ref_prepare(t, c[i].new.pblk);
	}
	return err;
}

/* The txn that maps the new and drops the old. */
static int apply(struct writer *x, struct change *c, uint32_t n, uint32_t flags)
{
	struct world *w = x->w;
	struct nvefs_store *st = w->st;
	struct nvefs_key key = nvefs_key_make(FILE_INO + c->file, NVEFS_KIND_MAP, 0);
	struct file f;
	struct nvefs_txn t;
	int err;

	do {
		uint32_t credits = 2 * n * nvefs_ref_credits(st) + nvefs_tree_credits(st);

		err = nvefs_txn_begin(st, x->q, credits, flags, &t);
		if (err)
			return err;
		err = prepare(&t, c, n, &key);
		if (err) {
			struct nvefs_miss miss = t.miss;

			nvefs_txn_end(&t);
			if (!nvefs_store_retry(st, x->q, &miss, &err))
				return err;
			err = -EAGAIN;
		}
	} while (err);
	nvefs_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < n; i++)
		w->files[c->file].slots[c[i].slot] = c[i].new;
	f = w->files[c->file];
	nvefs_mutex_unlock(&w->lock);
	ck_assert_int_eq(nvefs_tree_put(&t, &key, &f, sizeof(f)), 0);
	for (uint32_t i = 0; i < n; i++)
		if (c[i].new.pblk)
			ck_assert_int_eq(nvefs_ref_up(&t, c[i].new.pblk), 0);
	for (uint32_t i = 0; i < n; i++)
		if (c[i].old.pblk)
			ck_assert_int_eq(nvefs_ref_down(&t, c[i].old.pblk, NULL), 0);
	nvefs_txn_end(&t);
	return 0;
}

static int step(struct writer *x)
{
	uint32_t file = x->first + (uint32_t)rand_r(&x->seed) % x->nfiles;
	uint32_t from = (uint32_t)rand_r(&x->seed) % (SLOTS / CHANGES) * CHANGES;
	struct change c[CHANGES] = {0};
	uint32_t n = 0;
	int err = 0;

	for (; n < CHANGES && !err; n++) {
		c[n].file = file;
		c[n].slot = from + n;
		c[n].old = x->w->files[file].slots[from + n]; /* ours alone to change */
		err = plan(x, &c[n]);
	}
	if (!err)
		err = apply(x, c, n, NVEFS_TXN_FREEING);
	for (uint32_t i = 0; i < n; i++)
		if (c[i].new.pblk)
			nvefs_block_unpin(x->w->st, c[i].new.pblk);
	if (!err && rand_r(&x->seed) % 20 == 0)
		err = nvefs_commit_run(x->w->st, true);
	return err;
}

/* ---- Judgement ---- */

/* The files as the tree has them. */
static void read_files(struct world *w, struct file *files)
{
	memset(files, 0, FILES * sizeof(*files));
	for (uint32_t i = 0; i < FILES; i++) {
		struct nvefs_key key = nvefs_key_make(FILE_INO + i, NVEFS_KIND_MAP, 0);
		struct nvefs_miss miss;
		const void *val;
		uint32_t len;
		int err;

		do {
			nvefs_store_rdlock(w->st);
			err = nvefs_tree_get(w->st, &key, &miss, &val, &len);
			if (!err)
				memcpy(&files[i], val, sizeof(files[i]));
			nvefs_store_rdunlock(w->st);
		} while (nvefs_store_retry(w->st, w->q, &miss, &err));
		ck_assert(!err || err == -ENOENT);
	}
}

static uint32_t count_refs(struct world *w, uint64_t pblk)
{
	struct nvefs_miss miss;
	uint32_t n = 0;
	int err;

	do {
		nvefs_store_rdlock(w->st);
		err = nvefs_ref_count(w->st, pblk, &miss, &n);
		nvefs_store_rdunlock(w->st);
	} while (nvefs_store_retry(w->st, w->q, &miss, &err));
	ck_assert_int_eq(err, 0);
	return n;
}

/* How many rules are broken by what is on the device. */
static uint32_t faults(struct world *w)
{
	uint32_t *refs = calloc(w->sb.nblks, sizeof(*refs)), bad = 0;
	uint64_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE), used = 0, shared = 0, saved = 0;
	struct file files[FILES];
	struct nvefs_space s;

	read_files(w, files);
	for (uint32_t i = 0; i < FILES * SLOTS; i++) {
		const struct slot *x = &files[i / SLOTS].slots[i % SLOTS];

		if (!x->pblk)
			continue;
		refs[x->pblk]++;
		ck_assert_int_eq(nvefs_queue_read(w->q, x->pblk, 1, buf), 0);
		bad += buf[0] != x->tag || buf[NVEFS_BLOCK_SIZE / 8 - 1] != x->tag;
	}
	for (uint64_t p = 0; p < w->sb.nblks; p++) {
		used += refs[p] != 0;
		shared += refs[p] > 1;
		saved += refs[p] > 1 ? refs[p] - 1 : 0;
		if (refs[p])
			bad += count_refs(w, p) != refs[p];
	}
	nvefs_space_get(w->st, &s);
	for (uint32_t g = 0; g < w->sb.ngroups; g++)
		used += nvefs_layout_group_fixed(&w->sb, g);
	bad += s.shared_blks != shared || s.shared_refs != saved;
	bad += s.total - s.free != used + s.meta_blks;
	free(refs);
	nvefs_buf_free(buf);
	return bad;
}

static void crash(struct world *w, bool discard)
{
	nvefs_store_fail(w->st, -EIO, "test: crash");
	nvefs_store_stop(w->st);
	nvefs_store_free(w->st);
	plug_pull_after(w->plug, PLUG_NEVER);
	store_open(w, discard);
	read_files(w, w->files);
}

/* Reserve all but a few blocks, so that what is dropped is wanted at once. */
static void squeeze(struct world *w, struct writer *x, uint64_t leave)
{
	struct nvefs_space s;
	uint64_t pblk;
	uint32_t got;

	for (;;) {
		nvefs_space_get(w->st, &s);
		if (s.avail <= leave)
			break;
		ck_assert_int_eq(
		    nvefs_alloc_data(w->st, x->q, &x->c,
				     s.avail - leave > 4000 ? 4000 : (uint32_t)(s.avail - leave),
				     &pblk, &got, NULL),
		    0);
	}
}

/* Cut the power at many points. Returns how many rules were broken. */
static uint32_t crash_loop(bool discard, bool dup, uint32_t rounds)
{
	struct world w;
	struct writer x;
	uint32_t bad = 0;

	world_init(&w, "ram:80M", discard, dup);
	writer_init(&x, &w, 0, 1);
	writer_start(&x);
	for (uint32_t r = 0; r < rounds && !bad; r++) {
		uint32_t n = 0;

		squeeze(&w, &x, 40);
		plug_pull_after(w.plug, 20 + rand_r(&x.seed) % 400);
		while (!step(&x))
			ck_assert_uint_lt(n++, 100000);
		crash(&w, discard);
		bad += faults(&w);
	}
	writer_done(&x);
	world_done(&w);
	return bad;
}

START_TEST(power_cuts)
{
	ck_assert_uint_eq(crash_loop(_i & 1, _i & 2, 40), 0);
}
END_TEST

START_TEST(mutants_are_caught)
{
	nvefs_store_mutation = NVEFS_MUTATE_NO_QUARANTINE;
	ck_assert_uint_ne(crash_loop(false, true, 200), 0);
	nvefs_store_mutation = NVEFS_MUTATE_NONE;
}
END_TEST

START_TEST(reopen_keeps_all)
{
	struct world w;
	struct writer x;

	world_init(&w, "ram:300M,iu=16k", true, _i);
	for (int r = 0; r < 4; r++) {
		writer_init(&x, &w, 0, 1);
		writer_start(&x);
		for (int i = 0; i < 400; i++)
			ck_assert_int_eq(step(&x), 0);
		writer_done(&x);
		ck_assert_uint_eq(faults(&w), 0);
		ck_assert_int_eq(nvefs_store_stop(w.st), 0);
		nvefs_store_free(w.st);
		store_open(&w, true);
		ck_assert_uint_eq(faults(&w), 0);
	}
	world_done(&w);
}
END_TEST

static void *writer_main(void *arg)
{
	struct writer *x = arg;

	writer_start(x);
	for (int i = 0; i < 800; i++)
		ck_assert_int_eq(step(x), 0);
	return NULL;
}

START_TEST(several_writers)
{
	struct world w;
	struct writer x[4];

	world_init(&w, "ram:300M", false, _i);
	for (uint32_t i = 0; i < 4; i++) {
		writer_init(&x[i], &w, i, 4);
		ck_assert_int_eq(nvefs_thread_start(&x[i].thread, "writer", writer_main, &x[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++) {
		nvefs_thread_join(x[i].thread);
		writer_done(&x[i]);
	}
	ck_assert_uint_eq(faults(&w), 0);
	crash(&w, false);
	ck_assert_uint_eq(faults(&w), 0);
	world_done(&w);
}
END_TEST

/* Fill with data that nothing maps but the files; overwriting and dropping work at the brim. */
START_TEST(full_device)
{
	struct nvefs_space s0, s;
	struct world w;
	struct writer x;
	uint64_t pblk, held = 0;
	uint32_t got;
	bool more;
	int err;

	world_init(&w, "ram:70M", false, _i);
	writer_init(&x, &w, 0, 1);
	writer_start(&x);
	for (int i = 0; i < 300; i++)
		ck_assert_int_eq(step(&x), 0);
	ck_assert_int_eq(nvefs_commit_run(w.st, true), 0);
	nvefs_space_get(w.st, &s0);
	do {
		err = nvefs_alloc_data(w.st, x.q, &x.c, 64, &pblk, &got, &more);
		held += err ? 0 : got;
		if (err == -ENOSPC && more)
			err = nvefs_commit_run(w.st, true);
	} while (!err);
	ck_assert_int_eq(err, -ENOSPC);
	nvefs_space_get(w.st, &s);
	ck_assert_uint_eq(s.avail, 0);
	ck_assert_uint_eq(held, s0.avail);
	/* Drop what the files have: freeing transactions go on. */
	for (uint32_t f = 0; f < FILES; f++)
		for (uint32_t i = 0; i < SLOTS; i++) {
			struct change c = {.file = f, .slot = i, .old = w.files[f].slots[i]};

			if (c.old.pblk)
				ck_assert_int_eq(apply(&x, &c, 1, NVEFS_TXN_FREEING), 0);
		}
	nvefs_space_get(w.st, &s);
	ck_assert_uint_eq(s.shared_blks, 0);
	ck_assert_uint_gt(s.avail, 0);
	/* And what was dropped can be written again, after the commit that it asks for. */
	do {
		err = nvefs_alloc_data(w.st, x.q, &x.c, 1, &pblk, &got, &more);
		if (err == -ENOSPC && more)
			err = nvefs_commit_run(w.st, true) ? -EIO : -EAGAIN;
	} while (err == -EAGAIN);
	ck_assert_int_eq(err, 0);
	writer_done(&x);
	world_done(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("alloc over the store");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 50);
	tcase_add_loop_test(tc, power_cuts, 0, 4);
	tcase_add_test(tc, mutants_are_caught);
	tcase_add_loop_test(tc, reopen_keeps_all, 0, 2);
	tcase_add_loop_test(tc, several_writers, 0, 2);
	tcase_add_loop_test(tc, full_device, 0, 2);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
