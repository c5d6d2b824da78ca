/* SPDX-License-Identifier: MIT */
/*
 * The whole file system against power cuts: a random mix of operations with
 * fsyncs on a recorded device; then every cut with every state that it could
 * leave (a seeded sample where there are many): the check is clean, the mount
 * needs no help, names and data are what the oracle allows, and the file system
 * can be written and unmounted cleanly. A share of the states is cut once more
 * during recovery.
 *
 * Lives differ: in every second one there is next to no free space, files are
 * rewritten and folded again and again with few commits between, so that
 * blocks go round; in the others files span windows and commits are frequent.
 *
 *	fs_crash [--seed N] [--lives N] [--seconds N] [--route native|scsi] [--dedup on|off]
 *		 [--ops N] [--stride N] [--mutation NAME] [--expect-violation] [--verbose]
 *
 * --lives, --seconds	when to end, whichever comes first
 * --ops		operations in one life
 * --stride		only every so manieth cut; which ones depends on the seed
 * --mutation		leave out one step of the order that keeps data safe
 * --expect-violation	succeed only when a violation is found
 *
 * A violation is told with the seed, the cut, the state and the operation that
 * was under way; --seed with that seed, --lives 1 and --verbose show it again.
 * Of the mutations the loop must notice no-commit-flush, no-checkpoint-flush,
 * no-quarantine and no-pin. What no-epoch and no-group-check leave out guards
 * against devices that break their promise, which no state here does: unit-store
 * shows those two. The pin before the compare is for dedup_race.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/replay.h"
#include "device/wrap.h"
#include "fsck/check.h"
#include "fs_life.h"
#include "store/state.h"
#include "base/log.h"

#define DEVICE "ram:64M,vwc=on"
/* With a small indirection unit nearly every free block is in a whole run: the allocator goes
 * round. */
#define TIGHT_DEVICE "ram:64M,vwc=on,iu=8k"

static bool fail(struct life *l, const char *what, int err)
{
	if (!l->violated)
		snprintf(l->why, sizeof(l->why), "%s: %d", what, err);
	l->violated = true;
	return false;
}

static struct nvefs_dev *open_ram(const char *uri)
{
	struct nvefs_dev_open_opts oo = {0};
	struct nvefs_error e;
	struct nvefs_dev *dev;

	if (nvefs_dev_open(uri, &oo, &dev, &e)) {
		fprintf(stderr, "%s\n", e.text);
		exit(2);
	}
	return dev;
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
	struct nvefs_check_opts co = {
	    .replay_in_memory = true, .data = true, .report = first_problem, .arg = text};
	struct nvefs_check_result r;
	struct nvefs_error e = {{0}};
	int err = nvefs_check(dev, &co, &r, &e);

	snprintf(all, sizeof(all), "%s: check: %s%s", when, text, e.text);
	return !err && !r.problems ? true : fail(l, all, err);
}

static bool compare_file(struct life *l, struct nvefs_worker *w, uint32_t cut, int file,
			 const char *name)
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
		snprintf(all, sizeof(all), "file %s (inode %llu): %s", name,
			 (unsigned long long)a.ino, why);
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
		n += (uint32_t)snprintf(text + n, sizeof(text) - n, " %s=%d(%d)", life_names[i],
					seen[i], l->o.ops[durable].names[i]);
	return fail(l, text, (int)durable);
}

static bool compare_tree(struct life *l, struct nvefs_worker *w, uint32_t cut)
{
	int seen[ORACLE_NAMES];
	struct nvefs_attr a;
	uint32_t i;

	for (i = 0; i < ORACLE_NAMES; i++) {
		int err = nvefs_lookup(w, 1, life_names[i], 1, &a);

		seen[i] = err ? -1 : oracle_find(&l->o, a.ino);
		if (err && err != -ENOENT)
			return fail(l, "lookup", err);
		if (!err && seen[i] < 0)
			return fail(l, "a file that never was", 0);
	}
	if (!oracle_names_ok(&l->o, cut, seen))
		return fail_names(l, cut, seen);
	for (i = 0; i < ORACLE_NAMES; i++)
		if (seen[i] >= 0 && !compare_file(l, w, cut, seen[i], life_names[i]))
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
			err = h_write(w, ino, 0, life_names, 8, NVEFS_WRITE_SYNC);
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

static int each_state(struct nvefs_dev *dev, const struct nvefs_replay *r, uint32_t state,
		      void *arg)
{
	struct life *l = arg;
	uint32_t cut = nvefs_replay_cut(r), last;
	struct nvefs_dev *again;
	char lost[160];

	l->states++;
	if (!try_state(l, dev, cut) ||
	    (l->states % 97 == 0 &&
	     !nvefs_replay_open((struct nvefs_replay *)(uintptr_t)r, state, &again) &&
	     !try_recut(l, again, cut))) {
		last = oracle_last_begun(&l->o, cut);
		nvefs_replay_describe(r, state, lost, sizeof(lost));
		fprintf(stderr,
			"seed %#llx cut %u state %u (%s), during \"%s\" (op %u, durable: %u): %s\n",
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
	struct nvefs_dev *ram = open_ram(l->tight ? TIGHT_DEVICE : DEVICE), *rec, *top;
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

static void work(struct life *l)
{
	struct nvefs_error e = {{0}};
	uint32_t i;
	int err = nvefs_mount(make(l), &l->opts, &l->fs, &e);

	if (!err)
		err = nvefs_worker_open(l->fs, &l->w);
	if (!err && l->tight)
		err = life_take_space(l);
	for (i = 0; !err && i < l->nops; i++)
		err = life_step(l);
	/* A full disk ends the work; how far that operation came is not known, so cuts end before
	 * it. */
	l->end_cut = UINT32_MAX;
	if (err == -ENOSPC && l->tight && i)
		l->end_cut = l->o.ops[l->o.nops - 1].begun;
	else if (err)
		fail(l, l->o.ops[l->o.nops ? l->o.nops - 1 : 0].what, err);
	for (i = 0; l->verbose && i < l->o.nops; i++)
		fprintf(stderr, "%3u %5u-%5u %s\n", i, l->o.ops[i].begun, l->o.ops[i].ended,
			l->o.ops[i].what);
	nvefs_worker_close(l->w);
	nvefs_abandon(l->fs);
}

/* Every stride-th cut, another residue in each life: early and late ones get their share of the
 * time. */
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

struct options {
	uint64_t seed, seconds;
	uint32_t lives, nops, stride;
	enum nvefs_route route;
	bool expect, dedup, verbose;
};

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option opts[] = {{"seed", 1, 0, 's'},
					     {"lives", 1, 0, 'l'},
					     {"seconds", 1, 0, 't'},
					     {"route", 1, 0, 'r'},
					     {"dedup", 1, 0, 'd'},
					     {"ops", 1, 0, 'o'},
					     {"verbose", 0, 0, 'v'},
					     {"stride", 1, 0, 'i'},
					     {"mutation", 1, 0, 'm'},
					     {"expect-violation", 0, 0, 'x'},
					     {0}};
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		uint64_t n = optarg ? strtoull(optarg, NULL, 0) : 0;

		if (c == 's')
			o->seed = n;
		else if (c == 'l')
			o->lives = (uint32_t)n;
		else if (c == 't')
			o->seconds = n;
		else if (c == 'r')
			o->route = strcmp(optarg, "scsi") ? NVEFS_ROUTE_NATIVE : NVEFS_ROUTE_SCSI;
		else if (c == 'd')
			o->dedup = strcmp(optarg, "off");
		else if (c == 'o')
			o->nops = (uint32_t)n;
		else if (c == 'i')
			o->stride = n ? (uint32_t)n : 1;
		else if (c == 'm')
			set_mutation(optarg);
		else if (c == 'x')
			o->expect = true;
		else if (c == 'v')
			o->verbose = true;
		else
			return -EINVAL;
	}
	return 0;
}

static void life_init(struct life *l, const struct options *o, uint64_t seed, uint64_t deadline_ns)
{
	memset(l, 0, sizeof(*l));
	l->verbose = o->verbose;
	l->stride = o->stride;
	l->seed = seed;
	l->rnd.s = seed * UINT64_C(0x9e3779b97f4a7c15);
	l->nops = o->nops < ORACLE_OPS - 1 ? o->nops : ORACLE_OPS - 1;
	l->tight = seed % 2;
	l->max_bytes = l->tight ? 16 * 4096 : ORACLE_MAX_BYTES;
	l->route = o->route;
	l->opts.dedup = o->dedup ? NVEFS_ON : NVEFS_OFF;
	l->opts.commit_interval_s = 1;
	l->opts.dedup_bytes = 256 << 10;
	l->deadline_ns = deadline_ns;
}

int main(int argc, char **argv)
{
	struct options o = {.seed = rnd_seed(),
			    .seconds = 20,
			    .lives = 1000,
			    .nops = 120,
			    .stride = 3,
			    .dedup = true};
	static struct life l;
	uint64_t states = 0, recut = 0, start = now_ns(), slice;
	bool ok = true;
	uint32_t n;

	if (parse(argc, argv, &o))
		return 2;
	nvefs_log_setup(quiet, NVEFS_LOG_ERR);
	slice = o.seconds * 1000000000u / 4; /* both kinds of lives get their share */
	for (n = 0; n < o.lives && ok && now_ns() - start < o.seconds * 1000000000u; n++) {
		life_init(&l, &o, o.seed + n, now_ns() + slice);
		ok = run_life(&l);
		states += l.states;
		recut += l.recut_states;
	}
	printf("fs_crash: route %s dedup %s seed %#llx: %u lives, %llu states, %llu after a second "
	       "cut, %.1f s: %s\n",
	       o.route ? "scsi" : "native", o.dedup ? "on" : "off", (unsigned long long)o.seed, n,
	       (unsigned long long)states, (unsigned long long)recut,
	       (double)(now_ns() - start) / 1e9, ok ? "no violation" : "VIOLATED");
	return ok == o.expect;
}
