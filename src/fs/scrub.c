/* SPDX-License-Identifier: MIT */
/*
 * Reading everything that is in use, and checking it: the tree's nodes, then
 * the data of each map against its checksums. Damage is gathered, so that the
 * search for the names of files, which walks all directories, is made once for
 * many.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "format/map.h"
#include "fs/names.h"
#include "fs/paths.h"

#define SCRUB_DAMAGE_MAX 1024u

struct scrub_damage {
	uint64_t ino, lblk, pblk;
	int err;
};

struct scrub {
	struct nvefs_fs *fs;
	struct nvefs_queue *q;
	nvefs_scrub_fn *fn;
	void *arg;
	uint64_t done_blks, total_blks;
	uint64_t bad_copies; /* counted before */
	uint8_t *buf; /* one window */
	uint32_t n;
	struct scrub_damage damage[SCRUB_DAMAGE_MAX];
	struct nvefs_path_want want[SCRUB_DAMAGE_MAX];
	char path[NVEFS_PATH_BYTES];
};

static int scrub_tell(struct scrub *s, const char *path, const struct scrub_damage *d)
{
	struct nvefs_store_stats stats;
	struct nvefs_scrub_event ev;

	nvefs_store_stats(s->fs->st, &stats);
	ev = (struct nvefs_scrub_event){
		.path = path,
		.ino = d->ino,
		.lblk = d->lblk,
		.pblk = d->pblk,
		.err = d->err,
		.bad_copies = stats.copies_bad - s->bad_copies,
		.done_blks = s->done_blks,
		.total_blks = s->total_blks,
	};

	return s->fn(s->arg, &ev) ? -ECANCELED : 0;
}

static int scrub_progress(struct scrub *s)
{
	const struct scrub_damage none = {0};

	if (s->done_blks > s->total_blks)
		s->total_blks = s->done_blks; /* files have grown meanwhile */
	return scrub_tell(s, NULL, &none);
}

/* Name what was found, and forget it. Maps are read by inode number, so that it ascends. */
static int scrub_report(struct scrub *s)
{
	uint32_t i, w = 0;
	int err;

	for (i = 0; i < s->n; i++)
		if (!i || s->damage[i].ino != s->damage[i - 1].ino)
			s->want[w++].ino = s->damage[i].ino;
	err = s->n ? nvefs_paths_find(s->fs, s->q, s->want, w) : 0;
	for (i = w = 0; !err && i < s->n; i++) {
		if (i && s->damage[i].ino != s->damage[i - 1].ino)
			w++;
		if (!s->want[w].parent)
			strcpy(s->path, "(file without a name)");
		else
			err = nvefs_paths_build(s->fs, s->q, &s->want[w], s->path);
		if (!err)
			err = scrub_tell(s, s->path, &s->damage[i]);
	}
	s->n = 0;
	return err;
}

/* ---- Data ---- */

/* The window as the tree has it now. */
static int scrub_resolve(struct scrub *s, uint64_t ino, uint64_t widx, struct nvefs_window *win)
{
	struct nvefs_key key = nvefs_key_make(ino, NVEFS_KIND_MAP, widx);
	struct nvefs_store *st = s->fs->st;
	struct nvefs_miss miss;
	const void *val;
	uint32_t len;
	int err;

	do {
		nvefs_store_rdlock(st);
		err = nvefs_tree_get(st, &key, &miss, &val, &len);
		if (!err)
			err = nvefs_map_decode(val, len, nvefs_store_super(st), win);
		nvefs_store_rdunlock(st);
	} while (nvefs_store_retry(st, s->q, &miss, &err));
	return err;
}

/* A block that did not check out. It counts when it is still mapped there. */
static int scrub_suspect(struct scrub *s, const struct nvefs_key *key, const struct nvefs_window *win,
			 uint32_t i, int bad)
{
	struct nvefs_window now;
	int err;

	err = scrub_resolve(s, key->ino, key->offset, &now);
	if (err)
		return err == -ENOENT ? 0 : err;
	if (now.pblk[i] != win->pblk[i] || now.csum[i] != win->csum[i])
		return 0;
	if (bad == -EUCLEAN)
		s->fs->checksum_errors++;
	else
		s->fs->io_errors++;
	if (s->n == SCRUB_DAMAGE_MAX) {
		err = scrub_report(s);
		if (err)
			return err;
	}
	s->damage[s->n++] = (struct scrub_damage){
		.ino = key->ino,
		.lblk = key->offset * NVEFS_WINDOW_BLKS + i,
		.pblk = nvefs_went_pblk(win->pblk[i]),
		.err = bad,
	};
	return 0;
}

static bool is_data(const struct nvefs_window *win, uint32_t i)
{
	return nvefs_went_type(win->pblk[i]) == NVEFS_EXT_DATA;
}

/* Blocks [i, i + n) of the window lie in a row. */
static int scrub_run(struct scrub *s, const struct nvefs_key *key, const struct nvefs_window *win,
		     uint32_t i, uint32_t n)
{
	uint64_t pblk = nvefs_went_pblk(win->pblk[i]);
	uint8_t *b;
	uint32_t k;
	int err = 0, io;

	io = nvefs_queue_read(s->q, pblk, n, s->buf);
	for (k = 0; !err && k < n; k++) {
		b = s->buf + (size_t)k * NVEFS_BLOCK_SIZE;
		/* Which one of them cannot be read? */
		int one = io && n > 1 ? nvefs_queue_read(s->q, pblk + k, 1, b) : io;

		if (!one && nvefs_hash(b, NVEFS_BLOCK_SIZE, s->fs->hash_seed) != win->csum[i + k])
			one = -EUCLEAN;
		if (one)
			err = scrub_suspect(s, key, win, i + k, one);
	}
	return err;
}

static int scrub_window(struct scrub *s, const struct nvefs_key *key, const struct nvefs_window *win)
{
	uint32_t i, n;
	int err = 0;

	for (i = 0; !err && i < NVEFS_WINDOW_BLKS; i += n) {
		n = 1;
		if (win->pblk[i])
			s->done_blks++;
		if (!is_data(win, i))
			continue;
		while (i + n < NVEFS_WINDOW_BLKS && is_data(win, i + n) &&
		       win->pblk[i + n] == win->pblk[i] + n)
			n++;
		s->done_blks += n - 1;
		err = scrub_run(s, key, win, i, n);
	}
	return err;
}

/* [meta] The next map item from *key on, or a better place to look from: *ret_hit. *key is either's place. */
static int scrub_step_locked(struct scrub *s, struct nvefs_key *key, struct nvefs_miss *miss,
			     struct nvefs_window *win, bool *ret_hit)
{
	struct nvefs_key found;
	const void *val;
	uint32_t len;
	int err;

	err = nvefs_tree_next(s->fs->st, key, miss, &found, &val, &len);
	if (err)
		return err;
	*ret_hit = found.ino && found.kind == NVEFS_KIND_MAP;
	if (*ret_hit)
		*key = found;
	else if (found.ino && found.kind < NVEFS_KIND_MAP)
		*key = nvefs_key_make(found.ino, NVEFS_KIND_MAP, 0);
	else
		*key = nvefs_key_make(found.ino + 1, 0, 0);
	return *ret_hit ? nvefs_map_decode(val, len, nvefs_store_super(s->fs->st), win) : 0;
}

static int scrub_next(struct scrub *s, struct nvefs_key *key, struct nvefs_window *win)
{
	struct nvefs_store *st = s->fs->st;
	struct nvefs_miss miss;
	bool hit = false;
	int err;

	do {
		do {
			nvefs_store_rdlock(st);
			err = scrub_step_locked(s, key, &miss, win, &hit);
			nvefs_store_rdunlock(st);
		} while (nvefs_store_retry(st, s->q, &miss, &err));
	} while (!err && !hit);
	return err;
}

static int scrub_data(struct scrub *s)
{
	struct nvefs_key key = nvefs_key_make(1, 0, 0);
	struct nvefs_window win;
	uint64_t told = 0;
	uint32_t token;
	int err;

	for (;;) {
		/* While a reader is in, blocks that were mapped are not used anew. */
		token = nvefs_reader_enter(s->fs->st);
		err = scrub_next(s, &key, &win);
		if (!err)
			err = scrub_window(s, &key, &win);
		nvefs_reader_exit(s->fs->st, token);
		if (err)
			return err == -ENOENT ? 0 : err;
		if (s->done_blks - told >= 4096) {
			told = s->done_blks;
			err = scrub_progress(s);
			if (err)
				return err;
		}
		key = nvefs_key_after(&key);
	}
}

/* ---- Metadata ---- */

static int scrub_node(void *arg, const struct nvefs_tree_visit *v)
{
	struct scrub_damage d = {.pblk = v->pblk, .err = v->err};

	if (!v->err)
		return 0;
	return scrub_tell(arg, "(metadata)", &d);
}

static int scrub_fixed(void *arg, uint64_t pblk, int err)
{
	struct scrub_damage d = {.pblk = pblk, .err = err};

	return scrub_tell(arg, "(metadata)", &d);
}

/* What waits for a checkpoint goes home first; what is bad is put right before this ends. */
static int scrub_metadata(struct scrub *s)
{
	struct nvefs_store *st = s->fs->st;
	int err;

	/* Where writing has ended there is still much to read. */
	(void)nvefs_store_heal(st);
	err = nvefs_store_fixed_check(st, s->q, scrub_fixed, s);
	if (!err)
		err = nvefs_tree_verify(st, s->q, scrub_node, s);
	(void)nvefs_store_heal(st);
	return err;
}

int nvefs_scrub(struct nvefs_worker *w, nvefs_scrub_fn *fn, void *arg)
{
	struct nvefs_stats stats;
	struct scrub *s;
	int err;

	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->fs = nvefs_worker_fs(w);
	s->q = nvefs_worker_queue(w);
	s->fn = fn;
	s->arg = arg;
	s->buf = nvefs_buf_new(NVEFS_WINDOW_BLKS * NVEFS_BLOCK_SIZE);
	err = s->buf ? 0 : -ENOMEM;
	if (!err) {
		nvefs_stats_get(s->fs, &stats);
		s->total_blks = stats.logical_bytes / NVEFS_BLOCK_SIZE;
		s->bad_copies = stats.copies_bad;
		err = scrub_progress(s);
	}
	if (!err)
		err = scrub_metadata(s);
	if (!err)
		err = scrub_data(s);
	if (!err)
		err = scrub_report(s);
	if (!err)
		err = scrub_progress(s);
	nvefs_buf_free(s->buf);
	free(s);
	return err;
}
