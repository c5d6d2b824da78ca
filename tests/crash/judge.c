/* SPDX-License-Identifier: MIT */
#include "judge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../support/calls.h"
#include "fs/names.h"
#include "fsck/check.h"

#define SEEN_SLOTS (1u << 24)
#define HERE_SLOTS (1u << 16)
#define CACHE_BYTES (8u << 20)
#define RECUT_BYTES (64u << 20)

struct judge_view {
	int names[ORACLE_NAMES];
	uint16_t xattrs[ORACLE_NAMES];
	uint64_t inos[ORACLE_NAMES];
	uint8_t bytes[ORACLE_MAX_BYTES + NVEFS_BLOCK_SIZE];
};

struct judge_seen {
	uint64_t hashes[SEEN_SLOTS];
};

uint64_t judge_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- States that were seen ---- */

struct judge_seen *judge_seen_new(void)
{
	void *p = mmap(NULL, sizeof(struct judge_seen), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* A full table says "seen": the count is then too low, never too high. */
bool judge_seen_add(struct judge_seen *s, uint64_t hash)
{
	uint32_t i, at = (uint32_t)(hash >> 32);

	hash |= !hash;
	for (i = 0; i < SEEN_SLOTS / 2; i++) {
		uint64_t *slot = &s->hashes[(at + i) % SEEN_SLOTS], old = 0;

		if (__atomic_compare_exchange_n(slot, &old, hash, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return true;
		if (old == hash)
			return false;
	}
	return false;
}

/* Of this life: true when it must be judged, now that so much is acknowledged. */
static bool is_new_here(struct judge *j, uint64_t hash, uint32_t acks)
{
	uint32_t i, at = (uint32_t)(hash >> 32);

	for (i = 0; i < HERE_SLOTS; i++) {
		uint32_t k = (at + i) % HERE_SLOTS;

		if (j->here[k].life == j->life && j->here[k].hash != hash)
			continue;
		if (j->here[k].life == j->life && j->here[k].acks >= acks)
			return false;
		j->here[k].life = j->life;
		j->here[k].hash = hash;
		j->here[k].acks = acks;
		return true;
	}
	return true;
}

int judge_init(struct judge *j, struct judge_seen *seen)
{
	memset(j, 0, sizeof(*j));
	j->seen = seen;
	j->depth = (struct judge_depth){.precheck = 4, .remount = 16, .recut = 64};
	j->deadline_ns = UINT64_MAX;
	j->view = calloc(1, sizeof(*j->view));
	j->here = calloc(HERE_SLOTS, sizeof(*j->here));
	j->checked = judge_seen_new();
	return j->view && j->here && j->checked ? 0 : -ENOMEM;
}

void judge_done(struct judge *j)
{
	munmap(j->checked, sizeof(*j->checked));
	free(j->view);
	free(j->here);
}

void judge_begin(struct judge *j, const struct oracle *o, const struct nvefs_mount_opts *opts)
{
	j->o = o;
	j->opts = opts;
	j->life++;
}

/* ---- What is wrong with it ---- */

static bool fail(struct judge *j, const char *what, int err)
{
	if (!j->why[0]) {
		snprintf(j->why, sizeof(j->why), "%s: %d", what, err);
		j->err = err;
	}
	return false;
}

static void first_problem(void *arg, const struct nvefs_problem *p)
{
	char *text = arg;

	if (!text[0] && nvefs_problem_info(p->code)->severity != NVEFS_SEV_NOTE)
		nvefs_problem_text(p, text, 200);
}

bool judge_check(struct judge *j, struct nvefs_dev *dev, const char *when)
{
	char text[200] = "", all[800];
	struct nvefs_check_opts co = {
	    .replay_in_memory = true, .data = true, .report = first_problem, .arg = text,
	    .mmp_force = j->opts->mmp_alone};
	struct nvefs_check_result r;
	struct nvefs_error e = {{0}};
	int err = nvefs_check(dev, &co, &r, &e);

	nvefs_dev_close(dev);
	if (!err && !r.problems)
		return true;
	snprintf(all, sizeof(all), "%s: check: %s%s", when, text, e.text);
	return fail(j, all, err);
}

static bool fail_names(struct judge *j, uint32_t cut)
{
	uint32_t i, n = 0, durable = oracle_durable(j->o, cut, -1);
	const struct judge_view *v = j->view;
	char text[800];

	n += (uint32_t)snprintf(text, sizeof(text), "the names are of no moment since op %u:",
				durable);
	for (i = 0; i < ORACLE_NAMES; i++)
		n += (uint32_t)snprintf(text + n, sizeof(text) - n, " %d/%s=%d,%u(%d,%u)",
					j->o->paths[i].dir, j->o->paths[i].name, v->names[i],
					v->xattrs[i], j->o->ops[durable].names[i],
					j->o->ops[durable].xattrs[i]);
	return fail(j, text, (int)durable);
}

/* The value is its number, again and again; its length depends on it. */
static int read_xattr(struct nvefs_worker *w, uint64_t ino, uint16_t *ret)
{
	static uint16_t buf[8192];
	size_t len, i;
	int err = nvefs_getxattr(w, ino, "user.x", buf, sizeof(buf), &len);

	*ret = 0;
	if (err)
		return err == -ENODATA ? 0 : err;
	for (i = 1; i < len / 2; i++)
		if (buf[i] != buf[0])
			return -EUCLEAN;
	*ret = buf[0];
	return 0;
}

static bool look_path(struct judge *j, struct nvefs_worker *w, uint32_t i)
{
	const struct oracle_path *p = &j->o->paths[i];
	struct judge_view *v = j->view;
	uint64_t dir = p->dir < 0 ? NVEFS_ROOT_INO : v->inos[p->dir];
	struct nvefs_attr a;
	int err;

	v->names[i] = -1;
	v->xattrs[i] = 0;
	v->inos[i] = 0;
	if (!dir)
		return true;
	err = nvefs_lookup(w, dir, p->name, strlen(p->name), &a);
	if (err)
		return err == -ENOENT ? true : fail(j, "lookup", err);
	v->names[i] = oracle_find(j->o, a.ino);
	if (v->names[i] < 0)
		return fail(j, "a file that never was", (int)a.ino);
	if (S_ISDIR(a.mode) != j->o->files[v->names[i]].dir)
		return fail(j, "a file is a directory, or the other way round", (int)a.ino);
	err = read_xattr(w, a.ino, &v->xattrs[i]);
	if (err)
		return fail(j, "extended attribute", err);
	if (S_ISDIR(a.mode))
		v->inos[i] = a.ino;
	return true;
}

static bool look_file(struct judge *j, struct nvefs_worker *w, uint32_t cut, uint32_t i)
{
	const struct oracle_file *f = &j->o->files[j->view->names[i]];
	uint64_t max = j->o->max_bytes + NVEFS_BLOCK_SIZE;
	uint8_t *buf = j->view->bytes;
	char why[200], all[300];
	struct nvefs_attr a;
	int err = nvefs_getattr(w, f->ino, &a);
	int64_t n = err ? err : h_read(w, f->ino, 0, buf, max);

	/* A short read ends before a block that cannot be read. */
	if (n >= 0 && (uint64_t)n < a.size)
		n = h_read(w, f->ino, (uint64_t)n, buf, 1);
	if (n < 0 || (uint64_t)n != a.size || a.size > j->o->max_bytes)
		return fail(j, "a file cannot be read", (int)n);
	if (oracle_file_ok(j->o, cut, j->view->names[i], a.size, buf, why, sizeof(why)))
		return true;
	snprintf(all, sizeof(all), "file %d/%s (inode %llu): %s", j->o->paths[i].dir,
		 j->o->paths[i].name, (unsigned long long)a.ino, why);
	return fail(j, all, 0);
}

bool judge_compare(struct judge *j, struct nvefs_worker *w, uint32_t cut)
{
	struct judge_view *v = j->view;
	uint32_t i, k;

	for (i = 0; i < ORACLE_NAMES; i++)
		if (!look_path(j, w, i))
			return false;
	if (!oracle_names_ok(j->o, cut, v->names, v->xattrs))
		return fail_names(j, cut);
	for (i = 0; i < ORACLE_NAMES; i++) {
		for (k = 0; k < i && v->names[k] != v->names[i]; k++)
			;
		if (k == i && v->names[i] >= 0 && !v->inos[i] && !look_file(j, w, cut, i))
			return false;
	}
	return true;
}

/* Write, sync, unmount: nothing of the past may be left. A device may be full. */
static bool use(struct judge *j, struct nvefs_fs *fs, struct nvefs_worker *w)
{
	uint64_t ino;
	int err = h_create(w, "new", &ino);

	if (!err)
		err = h_write(w, ino, 0, j->view, NVEFS_BLOCK_SIZE, NVEFS_WRITE_SYNC);
	nvefs_bg_drain(fs, judge_now_ns() + 60000000000u);
	if (err == -ENOSPC)
		err = h_sync(w);
	return err ? fail(j, "writing after the cut", err) : true;
}

/* Mount and compare; takes the device over. For writing, it is used and unmounted cleanly. */
bool judge_mount(struct judge *j, struct nvefs_dev *dev, uint32_t cut, bool write)
{
	struct nvefs_mount_opts mo = *j->opts;
	struct nvefs_error e = {{0}};
	struct nvefs_worker *w = NULL;
	struct nvefs_fs *fs;
	bool ok;
	int err;

	mo.read_only = !write;
	mo.cache_bytes = CACHE_BYTES;
	err = nvefs_mount(dev, &mo, &fs, &e);
	if (err) {
		nvefs_dev_close(dev);
		return fail(j, e.text, err);
	}
	err = nvefs_worker_open(fs, &w);
	ok = !err && judge_compare(j, w, cut) && (!write || use(j, fs, w));
	nvefs_worker_close(w);
	err = nvefs_unmount(fs);
	if (err && ok)
		return fail(j, "unmount", err);
	return ok;
}

/* ---- One state ---- */

static bool open_layer(struct judge *j, const struct nvefs_replay *r, struct nvefs_cow *layer,
		       struct nvefs_dev **ret_dev)
{
	int err = nvefs_replay_device(r, layer, ret_dev);

	return err ? fail(j, "a state cannot be made", err) : true;
}

/* In use by the bitmap, which is one of them; the log is dead once the journal has a new epoch. */
static bool is_looked_at(const void *layer, uint64_t pblk)
{
	const uint8_t *super = nvefs_cow_block(layer, 0);
	const uint8_t *bits = nvefs_cow_block(layer, NVEFS_BITMAP0_PBLK) + sizeof(struct nvefs_disk_header);
	const struct nvefs_disk_super *sb = (const void *)super;
	uint64_t log = NVEFS_JOURNAL_PBLK + NVEFS_JOURNAL_HEADERS;

	if (pblk >= log && pblk < NVEFS_JOURNAL_PBLK + le32_get(sb->journal_blks))
		return false;
	return pblk >= NVEFS_GROUP_BLKS || bits[pblk / 8] >> pblk % 8 & 1;
}

static bool judge_layer(struct judge *j, const struct nvefs_replay *r, struct nvefs_cow *layer,
			uint32_t cut, bool known)
{
	struct nvefs_dev *dev;

	if (!open_layer(j, r, layer, &dev) || !judge_mount(j, dev, cut, false))
		return false;
	if (known || !judge_seen_add(j->checked, nvefs_cow_hash_some(layer, is_looked_at, layer)))
		return true;
	j->n.checks++;
	return open_layer(j, r, layer, &dev) && judge_check(j, dev, "after recovery");
}

static bool judge_for_writing(struct judge *j, const struct nvefs_replay *r,
			      const struct nvefs_cow *state, uint32_t cut)
{
	struct nvefs_cow *layer = nvefs_cow_new(state, nvefs_cow_nblks(state));
	struct nvefs_dev *dev;
	bool ok;

	if (!layer)
		return fail(j, "out of memory", -ENOMEM);
	j->n.remounts++;
	ok = open_layer(j, r, layer, &dev) && judge_mount(j, dev, cut, true) &&
	     open_layer(j, r, layer, &dev) && judge_check(j, dev, "after use and unmount");
	nvefs_cow_free(layer);
	return ok;
}

/* Mount for writing with a recorder in between, and end as a power cut does. */
static int record_recovery(struct judge *j, struct nvefs_dev *dev, const struct nvefs_cow *state,
			   struct nvefs_record **ret_log)
{
	struct nvefs_mount_opts mo = *j->opts;
	struct nvefs_error e = {{0}};
	struct nvefs_dev *rec;
	struct nvefs_fs *fs;
	int err = nvefs_record_wrap_on(dev, state, RECUT_BYTES, &rec, ret_log);

	if (err) {
		nvefs_dev_close(dev);
		return err;
	}
	mo.cache_bytes = CACHE_BYTES;
	err = nvefs_mount(rec, &mo, &fs, &e);
	if (err) {
		nvefs_dev_close(rec);
		nvefs_record_free(*ret_log);
		return err;
	}
	nvefs_bg_drain(fs, judge_now_ns() + 60000000000u);
	nvefs_abandon(fs);
	return 0;
}

static bool judge_again(struct judge *j, const struct nvefs_record *log, uint32_t cut)
{
	struct nvefs_replay_opts ro = {.exhaustive = 3, .torn = 2, .samples = 4, .seed = cut};
	struct nvefs_cow *layer;
	struct nvefs_replay *r;
	bool ok = true;
	uint32_t i;

	if (nvefs_replay_new(log, &ro, &r))
		return fail(j, "replay of the recovery", 0);
	layer = nvefs_cow_new(nvefs_replay_image(r), nvefs_cow_nblks(nvefs_replay_image(r)));
	while (ok && layer && nvefs_replay_next(r) == 1) {
		for (i = 0; ok && i < nvefs_replay_nstates(r); i++) {
			nvefs_cow_reset(layer);
			ok = !nvefs_replay_build(r, i, layer) && judge_layer(j, r, layer, cut, false);
			j->n.recuts++;
			if (!ok)
				nvefs_replay_describe(r, i, j->why + strlen(j->why),
						      sizeof(j->why) - strlen(j->why));
		}
		nvefs_cow_reset(layer);
	}
	nvefs_cow_free(layer);
	nvefs_replay_free(r);
	return layer ? ok : fail(j, "out of memory", -ENOMEM);
}

static bool judge_recut(struct judge *j, const struct nvefs_replay *r,
			const struct nvefs_cow *state, uint32_t cut)
{
	struct nvefs_cow *layer = nvefs_cow_new(state, nvefs_cow_nblks(state));
	struct nvefs_record *log;
	struct nvefs_dev *dev;
	bool ok;
	int err;

	if (!layer)
		return fail(j, "out of memory", -ENOMEM);
	ok = open_layer(j, r, layer, &dev);
	if (ok) {
		err = record_recovery(j, dev, state, &log);
		ok = err ? fail(j, "a mount to be cut again", err) : judge_again(j, log, cut);
		if (!err)
			nvefs_record_free(log);
	}
	nvefs_cow_free(layer);
	return ok;
}

static bool turn(uint64_t n, uint32_t every)
{
	return every && n % every == 0;
}

/* Of a medium that is known from another sequence only the contents are judged, by this one's
 * oracle. */
static bool judge_state(struct judge *j, const struct nvefs_replay *r, uint32_t cut, bool known)
{
	struct nvefs_dev *dev;
	uint64_t k = j->n.distinct;

	if (known)
		return judge_layer(j, r, j->scratch, cut, true);
	if (turn(k, j->depth.precheck) &&
	    !(open_layer(j, r, j->scratch, &dev) && judge_check(j, dev, "after the cut")))
		return false;
	if (turn(k, j->depth.remount) && !judge_for_writing(j, r, j->scratch, cut))
		return false;
	if (turn(k, j->depth.recut) && !judge_recut(j, r, j->scratch, cut))
		return false;
	return judge_layer(j, r, j->scratch, cut, false);
}

static void tell(struct judge *j, const struct nvefs_replay *r, uint32_t state, uint32_t cut)
{
	uint32_t last = oracle_last_begun(j->o, cut);
	char lost[200], all[sizeof(j->why)];

	nvefs_replay_describe(r, state, lost, sizeof(lost));
	snprintf(all, sizeof(all), "%.700s\n  state: %s\n  during \"%s\" (op %u, durable: %u)",
		 j->why, lost, j->o->ops[last].what, last, oracle_durable(j->o, cut, -1));
	memcpy(j->why, all, sizeof(all));
}

static int state_at(struct judge *j, struct nvefs_replay *r, uint32_t i, uint32_t cut, uint32_t acks)
{
	bool known;
	uint64_t hash;

	nvefs_cow_reset(j->scratch);
	j->n.states++;
	if (nvefs_replay_build(r, i, j->scratch))
		return fail(j, "out of memory", -ENOMEM);
	hash = nvefs_cow_hash(j->scratch);
	if (!is_new_here(j, hash, acks))
		return true;
	j->n.judged++;
	known = j->seen && !judge_seen_add(j->seen, hash);
	j->n.distinct += !known;
	if (judge_state(j, r, cut, known))
		return true;
	tell(j, r, i, cut);
	return false;
}

bool judge_cut(struct judge *j, struct nvefs_replay *r)
{
	const struct nvefs_cow *image = nvefs_replay_image(r);
	uint32_t cut = nvefs_replay_cut(r), acks = oracle_acks(j->o, cut), i;
	bool ok = true;

	j->scratch = nvefs_cow_new(image, nvefs_cow_nblks(image));
	if (!j->scratch)
		return fail(j, "out of memory", -ENOMEM);
	for (i = 0; ok && i < nvefs_replay_nstates(r); i++) {
		ok = state_at(j, r, i, cut, acks);
		if (judge_now_ns() > j->deadline_ns)
			break;
	}
	nvefs_cow_free(j->scratch);
	j->scratch = NULL;
	return ok;
}
