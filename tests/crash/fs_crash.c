/* SPDX-License-Identifier: MIT */
/*
 * The whole file system against power cuts: a random mix of operations with
 * fsyncs on a recorded device; then every cut with every state that it could
 * leave (a seeded sample where there are many): the check is clean, the mount
 * needs no help, names and data are what the oracle allows, and the file system
 * can be written and unmounted cleanly. A share of the states is cut once more
 * during recovery.
 *
 *	fs_crash [--seed N] [--lives N] [--seconds N] [--route native|scsi] [--dedup on|off]
 *		 [--ops N] [--stride N] [--mutation NAME] [--expect-violation] [--verbose]
 */
#include <errno.h>
#include <getopt.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/record.h"
#include "device/replay.h"
#include "device/wrap.h"
#include "fsck/check.h"
#include "oracle.h"
#include "store/state.h"
#include "base/log.h"
#include "../support/calls.h"

#define DEVICE "ram:64M,vwc=on"

struct life {
	struct rnd rnd;
	struct oracle o;
	struct nvefs_record *log;
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
	struct nvefs_mount_opts opts;
	uint64_t seed, states, recut_states;
	uint32_t nops;
	enum nvefs_route route;
	uint64_t deadline_ns;
	bool violated, tight;
	uint64_t max_bytes; /* of a file */
	uint32_t end_cut;   /* later ones are not judged */
	char why[1200];
	bool verbose; /* list the operations */
	uint32_t stride;
};

static const char *const names[ORACLE_NAMES] = {"a", "b", "c", "d", "e", "f", "g", "h"};

static bool fail(struct life *l, const char *what, int err)
{
	if (!l->violated)
		snprintf(l->why, sizeof(l->why), "%s: %d", what, err);
	l->violated = true;
	return false;
}

static struct nvefs_dev *open_ram(void)
{
	struct nvefs_dev_open_opts oo = {0};
	struct nvefs_error e;
	struct nvefs_dev *dev;

	if (nvefs_dev_open(DEVICE, &oo, &dev, &e)) {
		fprintf(stderr, "%s\n", e.text);
		exit(2);
	}
	return dev;
}

/* ---- One operation on the file system and on the model ---- */

static uint32_t at(struct life *l)
{
	return nvefs_record_position(l->log);
}

static int pick(struct life *l, bool present)
{
	uint32_t i, k = (uint32_t)rnd_below(&l->rnd, ORACLE_NAMES);

	for (i = 0; i < ORACLE_NAMES; i++, k = (k + 1) % ORACLE_NAMES)
		if ((l->o.names[k] >= 0) == present)
			return (int)k;
	return -1;
}

static void fill(struct life *l, uint8_t *p, uint64_t n)
{
	uint8_t v = (uint8_t)(1 + rnd_below(&l->rnd, 5));
	uint64_t i;

	for (i = 0; i < n; i++)
		p[i] = (uint8_t)(v + (i & 4095) / 512);
	if (rnd_below(&l->rnd, 2))
		for (i = 0; i < n; i += 2048)
			p[i] = (uint8_t)rnd_next(&l->rnd);
}

static int op_create(struct life *l)
{
	int k = pick(l, false), err;
	uint64_t ino;

	if (k < 0 || l->o.nfiles == ORACLE_FILES)
		return 0;
	oracle_begin(&l->o, at(l), "create %s", names[k]);
	err = h_create(l->w, names[k], &ino);
	if (!err)
		l->o.names[k] = oracle_new_file(&l->o, ino);
	oracle_end(&l->o, at(l));
	return err;
}

static int op_write(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t off, n;
	uint8_t *buf;

	if (k < 0)
		return 0;
	off = rnd_below(&l->rnd, l->max_bytes - 1);
	n = 1 + rnd_below(&l->rnd, 6 * 4096);
	if (rnd_below(&l->rnd, 3)) {
		off &= ~UINT64_C(4095);
		n = (n + 4095) & ~UINT64_C(4095);
	}
	if (n > l->max_bytes - off)
		n = l->max_bytes - off;
	buf = malloc(n);
	fill(l, buf, n);
	oracle_begin(&l->o, at(l), "write %s %llu+%llu", names[k], (unsigned long long)off, (unsigned long long)n);
	err = h_write(l->w, l->o.files[l->o.names[k]].ino, off, buf, n, 0);
	if (!err) {
		struct oracle_version *v = oracle_touch(&l->o, l->o.names[k]);

		memcpy(v->bytes + off, buf, n);
		if (v->size < off + n)
			v->size = off + n;
	}
	oracle_end(&l->o, at(l));
	free(buf);
	return err;
}

static int op_truncate(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t size = rnd_below(&l->rnd, l->max_bytes);

	if (k < 0)
		return 0;
	oracle_begin(&l->o, at(l), "truncate %s %llu", names[k], (unsigned long long)size);
	err = h_truncate(l->w, l->o.files[l->o.names[k]].ino, size);
	if (!err) {
		struct oracle_version *v = oracle_touch(&l->o, l->o.names[k]);

		if (size < v->size)
			memset(v->bytes + size, 0, v->size - size);
		v->size = size;
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_punch(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t off = rnd_below(&l->rnd, l->max_bytes - 1), n = 1 + rnd_below(&l->rnd, 5 * 4096), end;

	if (k < 0)
		return 0;
	oracle_begin(&l->o, at(l), "punch %s %llu+%llu", names[k], (unsigned long long)off, (unsigned long long)n);
	err = h_fallocate(l->w, l->o.files[l->o.names[k]].ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, n);
	if (!err) {
		struct oracle_version *v = oracle_touch(&l->o, l->o.names[k]);

		end = off + n < v->size ? off + n : v->size;
		if (off < end)
			memset(v->bytes + off, 0, end - off);
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_clone(struct life *l)
{
	int from = pick(l, true), to = pick(l, true);
	uint64_t off, n, to_off;
	struct oracle_version *v, *s;
	int64_t got;

	if (from < 0 || to < 0 || l->o.names[from] == l->o.names[to])
		return 0;
	off = rnd_below(&l->rnd, l->max_bytes / 8192) * 4096;
	to_off = rnd_below(&l->rnd, l->max_bytes / 8192) * 4096;
	n = (1 + rnd_below(&l->rnd, l->max_bytes / 8192)) * 4096;
	oracle_begin(&l->o, at(l), "clone %s %llu+%llu to %s %llu", names[from], (unsigned long long)off,
		     (unsigned long long)n, names[to], (unsigned long long)to_off);
	got = h_copy(l->w, l->o.files[l->o.names[from]].ino, off, l->o.files[l->o.names[to]].ino, to_off, n);
	if (got > 0) {
		v = oracle_touch(&l->o, l->o.names[to]);
		s = oracle_newest(&l->o, l->o.names[from]);
		memcpy(v->bytes + to_off, s->bytes + off, (size_t)got);
		if (v->size < to_off + (uint64_t)got)
			v->size = to_off + (uint64_t)got;
	}
	oracle_end(&l->o, at(l));
	return got < 0 ? (int)got : 0;
}

/* The last name went: the kernel would forget it now, and its blocks are free. */
static void forget_nameless(struct life *l, int file)
{
	uint32_t i;

	for (i = 0; i < ORACLE_NAMES; i++)
		if (l->o.names[i] == file)
			return;
	nvefs_forget(l->w, l->o.files[file].ino, 100);
}

static int op_unlink(struct life *l)
{
	int k = pick(l, true), err;

	if (k < 0)
		return 0;
	oracle_begin(&l->o, at(l), "unlink %s", names[k]);
	err = h_unlink(l->w, names[k]);
	if (!err) {
		int file = l->o.names[k];

		oracle_named(&l->o, file);
		l->o.names[k] = -1;
		forget_nameless(l, file);
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_rename(struct life *l)
{
	int from = pick(l, true), to = (int)rnd_below(&l->rnd, ORACLE_NAMES), err, tmp;
	bool swap;

	if (from < 0 || from == to)
		return 0;
	swap = l->o.names[to] >= 0 && rnd_below(&l->rnd, 3) == 0;
	oracle_begin(&l->o, at(l), "rename %s %s%s", names[from], names[to], swap ? " exchange" : "");
	err = nvefs_rename(l->w, 1, names[from], 1, 1, names[to], 1, swap ? 2 : 0);
	if (!err && l->o.names[from] != l->o.names[to]) {
		tmp = l->o.names[to];
		l->o.names[to] = l->o.names[from];
		l->o.names[from] = swap ? tmp : -1;
		oracle_named(&l->o, l->o.names[to]);
		if (!swap && tmp >= 0)
			forget_nameless(l, tmp);
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_link(struct life *l)
{
	int from = pick(l, true), to = pick(l, false), err;
	struct nvefs_attr a;

	if (from < 0 || to < 0)
		return 0;
	oracle_begin(&l->o, at(l), "link %s %s", names[from], names[to]);
	err = nvefs_link(l->w, l->o.files[l->o.names[from]].ino, 1, names[to], 1, &a);
	if (!err) {
		l->o.names[to] = l->o.names[from];
		oracle_named(&l->o, l->o.names[to]);
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_fsync(struct life *l)
{
	int k = pick(l, true), err;
	struct oracle_op *op;

	if (k < 0)
		return 0;
	op = oracle_begin(&l->o, at(l), "fsync %s", names[k]);
	op->durable_names = (int)l->o.files[l->o.names[k]].last_op;
	op->durable_file = l->o.names[k];
	err = h_fsync(l->w, l->o.files[l->o.names[k]].ino);
	oracle_end(&l->o, at(l));
	return err;
}

static int op_sync(struct life *l)
{
	struct oracle_op *op = oracle_begin(&l->o, at(l), "sync");
	int err;

	op->durable_names = (int)l->o.nops;
	op->durable_file = -2;
	err = h_sync(l->w);
	oracle_end(&l->o, at(l));
	return err;
}

/* Asking for holes folds the file's map into the tree, and commits nothing. */
static int op_fold(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t off;

	if (k < 0)
		return 0;
	oracle_begin(&l->o, at(l), "fold %s", names[k]);
	err = nvefs_seek(l->w, l->o.files[l->o.names[k]].ino, 0, SEEK_HOLE, &off);
	oracle_end(&l->o, at(l));
	return err == -ENXIO ? 0 : err;
}

static int step(struct life *l)
{
	uint64_t kind = rnd_below(&l->rnd, 20);

	/* Long stretches without a commit in which folds free blocks. */
	if (l->tight && kind >= 9 && kind <= 12 && rnd_below(&l->rnd, 5))
		return op_fold(l);
	switch (kind) {
	case 0:
	case 1:
		return op_create(l);
	case 2:
		return op_truncate(l);
	case 3:
		return op_punch(l);
	case 4:
	case 5:
		return op_clone(l);
	case 6:
		return op_unlink(l);
	case 7:
		return op_rename(l);
	case 8:
		return op_link(l);
	case 9:
	case 10:
	case 11:
		return op_fsync(l);
	case 12:
		return op_sync(l);
	default:
		return op_write(l);
	}
}

/* ---- A state after a cut ---- */

static void first_problem(void *arg, const struct nvefs_problem *p)
{
	char *text = arg;

	if (!text[0] && nvefs_problem_info(p->code)->severity != NVEFS_SEV_NOTE)
		nvefs_problem_text(p, text, 200);
}

static bool check_image(struct life *l, struct nvefs_dev *dev, const char *when)
{
	char text[200] = "", all[800];
	struct nvefs_check_opts co = {.replay_in_memory = true, .data = true, .report = first_problem, .arg = text};
	struct nvefs_check_result r;
	struct nvefs_error e = {{0}};
	int err = nvefs_check(dev, &co, &r, &e);

	snprintf(all, sizeof(all), "%s: check: %s%s", when, text, e.text);
	return !err && !r.problems ? true : fail(l, all, err);
}

static bool compare_file(struct life *l, struct nvefs_worker *w, uint32_t cut, int file, const char *name)
{
	uint8_t *buf = malloc(ORACLE_MAX_BYTES + 4096);
	struct nvefs_attr a;
	char why[200], all[300];
	bool ok = false;
	int64_t n;
	int err = nvefs_getattr(w, l->o.files[file].ino, &a);

	n = err ? err : h_read(w, l->o.files[file].ino, 0, buf, ORACLE_MAX_BYTES + 4096);
	if (n < 0 || (uint64_t)n != a.size || a.size > ORACLE_MAX_BYTES) {
		fail(l, "a file cannot be read", (int)n);
	} else {
		ok = oracle_file_ok(&l->o, cut, file, a.size, buf, why, sizeof(why));
		snprintf(all, sizeof(all), "file %s (inode %llu): %s", name, (unsigned long long)a.ino, why);
		if (!ok)
			fail(l, all, 0);
	}
	free(buf);
	return ok;
}

static bool fail_names(struct life *l, uint32_t cut, const int *seen)
{
	uint32_t i, n = 0, durable = oracle_durable(&l->o, cut, -1);
	char text[400];

	n += (uint32_t)snprintf(text, sizeof(text), "the names are of no moment:");
	for (i = 0; i < ORACLE_NAMES; i++)
		n += (uint32_t)snprintf(text + n, sizeof(text) - n, " %s=%d(%d)", names[i], seen[i],
					l->o.ops[durable].names[i]);
	return fail(l, text, (int)durable);
}

static bool compare_tree(struct life *l, struct nvefs_worker *w, uint32_t cut)
{
	int seen[ORACLE_NAMES];
	struct nvefs_attr a;
	uint32_t i;

	for (i = 0; i < ORACLE_NAMES; i++) {
		int err = nvefs_lookup(w, 1, names[i], 1, &a);

		seen[i] = err ? -1 : oracle_find(&l->o, a.ino);
		if (err && err != -ENOENT)
			return fail(l, "lookup", err);
		if (!err && seen[i] < 0)
			return fail(l, "a file that never was", 0);
	}
	if (!oracle_names_ok(&l->o, cut, seen))
		return fail_names(l, cut, seen);
	for (i = 0; i < ORACLE_NAMES; i++)
		if (seen[i] >= 0 && !compare_file(l, w, cut, seen[i], names[i]))
			return false;
	return true;
}

/* Mount as after a power cut, compare; then use it and unmount. Takes the device over. */
static bool try_state(struct life *l, struct nvefs_dev *dev, uint32_t cut)
{
	struct nvefs_error e = {{0}};
	struct nvefs_worker *w;
	struct nvefs_fs *fs;
	uint64_t ino;
	bool ok;
	int err;

	if (!check_image(l, dev, "after the cut")) {
		nvefs_dev_close(dev);
		return false;
	}
	err = nvefs_mount(dev, &l->opts, &fs, &e);
	if (err) {
		nvefs_dev_close(dev);
		return fail(l, e.text, err);
	}
	err = nvefs_worker_open(fs, &w);
	ok = !err && compare_tree(l, w, cut);
	if (ok) {
		err = h_create(w, "new", &ino);
		if (!err)
			err = h_write(w, ino, 0, names, 8, NVEFS_WRITE_SYNC);
		if (err)
			ok = fail(l, "writing after the cut", err);
	}
	nvefs_worker_close(w);
	nvefs_abandon(fs);
	return ok;
}

/* Recovery itself is recorded and cut. */
static bool try_recut(struct life *l, struct nvefs_dev *dev, uint32_t cut)
{
	struct nvefs_replay_opts ro = {.exhaustive = 2, .torn = 1, .samples = 3, .seed = l->seed};
	struct nvefs_record *log;
	struct nvefs_replay *r;
	struct nvefs_dev *rec, *again;
	struct nvefs_error e = {{0}};
	struct nvefs_fs *fs;
	bool ok = true;
	uint32_t i;
	int err = nvefs_record_wrap(dev, 64u << 20, &rec, &log);

	if (err) {
		nvefs_dev_close(dev);
		return fail(l, "record", err);
	}
	err = nvefs_mount(rec, &l->opts, &fs, &e);
	if (err)
		nvefs_dev_close(rec);
	else
		nvefs_abandon(fs);
	if (!err)
		err = nvefs_replay_new(log, &ro, &r);
	if (err) {
		nvefs_record_free(log);
		return fail(l, "mount of a state to be cut again", err);
	}
	while (ok && nvefs_replay_next(r) == 1) {
		for (i = 0; ok && i < nvefs_replay_nstates(r); i++) {
			ok = !nvefs_replay_open(r, i, &again) && try_state(l, again, cut);
			l->recut_states++;
		}
	}
	nvefs_replay_free(r);
	nvefs_record_free(log);
	return ok;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int each_state(struct nvefs_dev *dev, const struct nvefs_replay *r, uint32_t state, void *arg)
{
	struct life *l = arg;
	uint32_t cut = nvefs_replay_cut(r), last;
	struct nvefs_dev *again;
	char lost[160];

	l->states++;
	if (!try_state(l, dev, cut) ||
	    (l->states % 97 == 0 && !nvefs_replay_open((struct nvefs_replay *)(uintptr_t)r, state, &again) &&
	     !try_recut(l, again, cut))) {
		last = oracle_last_begun(&l->o, cut);
		nvefs_replay_describe(r, state, lost, sizeof(lost));
		fprintf(stderr, "seed %#llx cut %u state %u (%s), during \"%s\" (op %u, durable: %u): %s\n",
			(unsigned long long)l->seed, cut, state, lost, l->o.ops[last].what, last,
			oracle_durable(&l->o, cut, -1), l->why);
		return 1;
	}
	return now_ns() > l->deadline_ns ? 2 : 0;
}

/* ---- One life: work recorded, then all its ends ---- */

static struct nvefs_dev *make(struct life *l)
{
	struct nvefs_mkfs_opts mk = {.hash_seed = 7, .journal_blks = 512};
	struct nvefs_dev *ram = open_ram(), *rec, *top;
	struct nvefs_error e = {{0}};
	int err = nvefs_mkfs(ram, &mk, &e);

	if (!err)
		err = nvefs_record_wrap(ram, 256u << 20, &rec, &l->log);
	if (err) {
		fprintf(stderr, "mkfs: %d %s\n", err, e.text);
		exit(2);
	}
	if (l->route == NVEFS_ROUTE_NATIVE)
		return rec;
	err = nvefs_scsi_wrap(rec, &top, &e);
	if (err) {
		fprintf(stderr, "scsi route: %d\n", err);
		exit(2);
	}
	return top;
}

/*
 * In every second life nearly all space is taken, so that freed blocks are used
 * again at once: what brings them back too early is seen. Files are small then;
 * in the others they span windows.
 */
#define LEAVE_BLKS 170u
static int take_space(struct life *l)
{
	struct nvefs_statfs s;
	uint64_t ino;
	int err = h_create(l->w, "filler", &ino);

	if (!err)
		err = nvefs_statfs(l->w, &s);
	if (!err)
		err = h_fallocate(l->w, ino, 0, 0, (s.avail_blks - LEAVE_BLKS) * 4096);
	return err ? err : h_sync(l->w);
}

static void work(struct life *l)
{
	struct nvefs_error e = {{0}};
	uint32_t i;
	int err = nvefs_mount(make(l), &l->opts, &l->fs, &e);

	if (!err)
		err = nvefs_worker_open(l->fs, &l->w);
	if (!err && l->tight)
		err = take_space(l);
	for (i = 0; !err && i < l->nops; i++)
		err = step(l);
	/* A full disk ends the work; how far that operation came is not known, so cuts end before it. */
	l->end_cut = UINT32_MAX;
	if (err == -ENOSPC && l->tight && i)
		l->end_cut = l->o.ops[l->o.nops - 1].begun;
	else if (err)
		fail(l, l->o.ops[l->o.nops ? l->o.nops - 1 : 0].what, err);
	for (i = 0; l->verbose && i < l->o.nops; i++)
		fprintf(stderr, "%3u %5u-%5u %s\n", i, l->o.ops[i].begun, l->o.ops[i].ended, l->o.ops[i].what);
	nvefs_worker_close(l->w);
	nvefs_abandon(l->fs);
}

/* Every stride-th cut, another residue in each life: early and late ones get their share of the time. */
static void each_cut(struct life *l, struct nvefs_replay *r)
{
	struct nvefs_dev *dev;
	uint64_t k = l->seed;
	uint32_t i;

	while (nvefs_replay_next(r) == 1) {
		if (nvefs_replay_cut(r) > l->end_cut)
			return;
		if (k++ % l->stride)
			continue;
		for (i = 0; i < nvefs_replay_nstates(r); i++) {
			if (nvefs_replay_open(r, i, &dev)) {
				fail(l, "a state cannot be made", 0);
				return;
			}
			if (each_state(dev, r, i, l))
				return;
		}
	}
}

static bool run_life(struct life *l)
{
	struct nvefs_replay_opts ro = nvefs_replay_defaults;
	struct nvefs_replay *r;
	int err;

	oracle_init(&l->o);
	work(l);
	if (l->violated)
		fprintf(stderr, "seed %#llx: %s\n", (unsigned long long)l->seed, l->why);
	ro.seed = l->seed;
	ro.exhaustive = 4;
	ro.samples = 12;
	ro.torn = 2;
	err = nvefs_replay_new(l->log, &ro, &r);
	if (err) {
		fprintf(stderr, "replay: %d\n", err);
		exit(2);
	}
	if (!l->violated)
		each_cut(l, r);
	nvefs_replay_free(r);
	nvefs_record_free(l->log);
	oracle_done(&l->o);
	return !l->violated;
}

/* ---- Options ---- */

static const struct {
	const char *name;
	enum nvefs_mutation m;
} mutations[] = {
	{"no-commit-flush", NVEFS_MUTATE_NO_COMMIT_FLUSH},
	{"no-checkpoint-flush", NVEFS_MUTATE_NO_CHECKPOINT_FLUSH},
	{"no-epoch", NVEFS_MUTATE_NO_EPOCH},
	{"no-group-check", NVEFS_MUTATE_NO_GROUP_CHECK},
	{"no-quarantine", NVEFS_MUTATE_NO_QUARANTINE},
	{"no-pin", NVEFS_MUTATE_NO_PIN},
};

static void set_mutation(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(mutations) / sizeof(mutations[0]); i++) {
		if (!strcmp(name, mutations[i].name)) {
			nvefs_store_mutation = mutations[i].m;
			return;
		}
	}
	fprintf(stderr, "no such mutation: %s\n", name);
	exit(2);
}

static void quiet(enum nvefs_log_level level, const char *line)
{
	(void)level;
	(void)line;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {{"seed", 1, 0, 's'},   {"lives", 1, 0, 'l'},  {"seconds", 1, 0, 't'},
					     {"route", 1, 0, 'r'},  {"dedup", 1, 0, 'd'},  {"ops", 1, 0, 'o'}, {"verbose", 0, 0, 'v'}, {"stride", 1, 0, 'i'},
					     {"mutation", 1, 0, 'm'}, {"expect-violation", 0, 0, 'x'}, {0}};
	static struct life l;
	uint64_t seed = rnd_seed(), states = 0, recut = 0, start = now_ns(), seconds = 20;
	uint32_t lives = 1000, nops = 120, n = 0;
	enum nvefs_route route = NVEFS_ROUTE_NATIVE;
	bool expect = false, dedup = true, ok = true;
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 's': seed = strtoull(optarg, NULL, 0); break;
		case 'l': lives = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 't': seconds = strtoull(optarg, NULL, 0); break;
		case 'r': route = strcmp(optarg, "scsi") ? NVEFS_ROUTE_NATIVE : NVEFS_ROUTE_SCSI; break;
		case 'd': dedup = strcmp(optarg, "off"); break;
		case 'o': nops = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'm': set_mutation(optarg); break;
		case 'x': expect = true; break;
		case 'v': l.verbose = true; break;
		case 'i': l.stride = (uint32_t)strtoul(optarg, NULL, 0); break;
		default: return 2;
		}
	}
	if (!l.stride)
		l.stride = 3;
	nvefs_log_setup(quiet, NVEFS_LOG_ERR);
	for (; n < lives && ok && now_ns() - start < seconds * 1000000000u; n++) {
		memset(&l, 0, offsetof(struct life, verbose));
		l.seed = seed + n;
		l.rnd.s = l.seed * 0x9e3779b97f4a7c15u;
		l.nops = nops < ORACLE_OPS - 1 ? nops : ORACLE_OPS - 1;
		l.tight = n % 2 == 0;
		l.max_bytes = l.tight ? 16 * 4096 : ORACLE_MAX_BYTES;
		l.route = route;
		l.opts.dedup = dedup ? NVEFS_ON : NVEFS_OFF;
		l.opts.commit_interval_s = 1;
		l.opts.dedup_bytes = 256 << 10;
		l.deadline_ns = start + seconds * 1000000000u;
		ok = run_life(&l);
		states += l.states;
		recut += l.recut_states;
	}
	printf("fs_crash: route %s dedup %s: %u lives, %llu states, %llu after a second cut, %.1f s: %s\n",
	       route ? "scsi" : "native", dedup ? "on" : "off", n, (unsigned long long)states,
	       (unsigned long long)recut, (double)(now_ns() - start) / 1e9, ok ? "no violation" : "VIOLATED");
	return ok == expect;
}
