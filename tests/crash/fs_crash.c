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
 *		 [--ops N] [--stride N] [--mmp] [--mutation NAME] [--expect-violation] [--verbose]
 *
 * --lives, --seconds	when to end, whichever comes first
 * --ops		operations in one life
 * --stride		only every so manieth cut; which ones depends on the seed
 * --mmp		with multiple mount protection: claim and beats are cut, too
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

#include "base/log.h"
#include "device/replay.h"
#include "device/wrap.h"
#include "fs_life.h"
#include "judge.h"
#include "mutations.h"

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

/* ---- One life: work recorded, then all its ends ---- */

static struct nvefs_dev *make(struct life *l)
{
	struct nvefs_mkfs_opts mk = {.hash_seed = 7, .journal_blks = 512, .metadata_single = l->single,
				     /* Some beats in a life, and not one at every cut. */
				     .mmp_interval_ms = l->opts.mmp_alone ? 50 : 0};
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
static void each_cut(struct life *l, struct judge *j, struct nvefs_replay *r)
{
	uint64_t k = l->seed;

	while (!l->violated && nvefs_replay_next(r) == 1) {
		if (nvefs_replay_cut(r) > l->end_cut || judge_now_ns() > j->deadline_ns)
			return;
		if (k++ % l->stride == 0 && !judge_cut(j, r)) {
			fprintf(stderr, "seed %#llx: %s\n", (unsigned long long)l->seed, j->why);
			l->violated = true;
		}
	}
}

static bool run_life(struct life *l, struct judge *j)
{
	struct nvefs_replay_opts ro = nvefs_replay_defaults;
	struct nvefs_replay *r;
	int err;

	oracle_init(&l->o, life_paths, ORACLE_MAX_BYTES);
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
	judge_begin(j, &l->o, &l->opts);
	if (!l->violated)
		each_cut(l, j, r);
	nvefs_replay_free(r);
	nvefs_record_free(l->log);
	oracle_done(&l->o);
	return !l->violated;
}

/* ---- Options ---- */

struct options {
	uint64_t seed, seconds;
	uint32_t lives, nops, stride;
	enum nvefs_route route;
	bool expect, dedup, verbose, mmp;
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
					     {"mmp", 0, 0, 'p'},
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
		else if (c == 'm' && !mutation_set(optarg))
			return -EINVAL;
		else if (c == 'x')
			o->expect = true;
		else if (c == 'p')
			o->mmp = true;
		else if (c == 'v')
			o->verbose = true;
		else if (c != 'm')
			return -EINVAL;
	}
	return 0;
}

static void life_init(struct life *l, const struct options *o, uint64_t seed)
{
	memset(l, 0, sizeof(*l));
	l->verbose = o->verbose;
	l->stride = o->stride;
	l->seed = seed;
	l->rnd.s = seed * UINT64_C(0x9e3779b97f4a7c15);
	l->nops = o->nops < ORACLE_OPS - 1 ? o->nops : ORACLE_OPS - 1;
	l->tight = seed % 2;
	l->single = seed / 2 % 2;
	l->max_bytes = l->tight ? 16 * 4096 : ORACLE_MAX_BYTES;
	l->route = o->route;
	l->opts.mmp_alone = o->mmp;
	l->opts.dedup = o->dedup ? NVEFS_ON : NVEFS_OFF;
	l->opts.commit_interval_s = 1;
	l->opts.dedup_bytes = 256 << 10;
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
	static struct judge j;
	uint64_t start = judge_now_ns(), end, slice;
	bool ok = true;
	uint32_t n;

	if (parse(argc, argv, &o) || judge_init(&j, NULL))
		return 2;
	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	end = start + o.seconds * 1000000000u;
	slice = o.seconds * 1000000000u / 4; /* all four kinds of lives get their share */
	for (n = 0; n < o.lives && ok && judge_now_ns() < end; n++) {
		j.deadline_ns = judge_now_ns() + slice < end ? judge_now_ns() + slice : end;
		life_init(&l, &o, o.seed + n);
		ok = run_life(&l, &j);
	}
	printf("fs_crash: route %s dedup %s%s seed %#llx: %u lives, %llu states, %llu distinct, %llu after "
	       "a second cut, %.1f s, %.0f judged/s: %s\n",
	       o.route ? "scsi" : "native", o.dedup ? "on" : "off", o.mmp ? " mmp" : "", (unsigned long long)o.seed, n,
	       (unsigned long long)j.n.states, (unsigned long long)j.n.distinct,
	       (unsigned long long)j.n.recuts, (double)(judge_now_ns() - start) / 1e9,
	       (double)(j.n.judged + j.n.recuts) / ((double)(judge_now_ns() - start) / 1e9),
	       ok ? "no violation" : "VIOLATED");
	judge_done(&j);
	return ok == o.expect;
}
