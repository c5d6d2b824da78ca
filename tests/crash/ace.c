/* SPDX-License-Identifier: MIT */
/*
 * Crash states by enumeration. Every sequence of one and of two operations, a sample of
 * those of three, and long random mixes are run on a recorded device (ace.h); then the power
 * is cut at each command boundary, and every state that the cut could leave (a seeded
 * sample where there are many: device/replay.h) is judged (judge.h).
 *
 *	ace [--seconds N] [--rounds N] [--jobs N] [--config TEXT] [--seed N] [--run SEQUENCE]
 *	    [--samples N] [--metadata dup|single] [--go-round] [--mutation NAME] [--expect-violation]
 *
 * Without --seconds everything is run: all pairs, and --rounds rounds of triples and mixes. With
 * it, all single operations, and then as much of the rest, spread evenly, as fits into
 * that time for each configuration. A round is PAIRS pairs, TRIPLES triples and one mix.
 *
 * Configurations: dedup off and on, route native and scsi, volatile cache on and off,
 * as "dedup,scsi,vwc" (--config: those that have all of these words). --jobs run at a time.
 *
 * Of a sequence only the cuts since its last operation are looked at: what could be
 * left before has been seen with the shorter one. Of a mix every STRIDE-th cut.
 *
 * --samples N looks at so many of the states of a cut where there are many. --metadata dup has second copies of metadata also where space is tight. --go-round runs nothing but mixes in which data goes round all free blocks, --seconds long.
 *
 * A violation is told with its sequence, which --run takes back.
 */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ace.h"
#include "base/log.h"
#include "judge.h"
#include "mutations.h"

#define CONFIGS 8u
#define PAIRS 150u
#define TRIPLES 50u
#define MIX_STEPS 60u
#define STRIDE 3u

struct run {
	uint32_t config;
	struct ace plain, tight;
	struct judge j;
	uint64_t seed, seconds, rounds, start_ns;
	const char *only; /* sequence */
	bool go_round;	  /* only mixes of that kind */
	bool dup;	  /* metadata twice where space is tight, too */
	uint32_t samples; /* of the states of a cut, where there are many; 0: some */
	uint64_t sequences, skipped, cuts, run_ns;
	uint32_t nsteps;
	struct ace_step steps[ACE_STEPS];
	bool ok;
};

struct result {
	struct judge_counts n;
	uint64_t sequences, cuts;
	bool violated;
};

static void config_text(uint32_t config, char *buf, size_t len)
{
	snprintf(buf, len, "%s,%s,%s", config & 1 ? "dedup" : "nodedup",
		 config & 2 ? "scsi" : "native", config & 4 ? "novwc" : "vwc");
}

static void config_fill(uint32_t config, struct ace_config *c)
{
	memset(c, 0, sizeof(*c));
	c->dedup = config & 1;
	c->route = config & 2 ? NVEFS_ROUTE_SCSI : NVEFS_ROUTE_NATIVE;
	c->vwc = !(config & 4);
	c->lba_bytes = 512;
	/* Without a cache what is in flight is all that can be lost: let there be something. */
	c->delay_ns = c->vwc ? 0 : 20000;
}

static void tell_sequence(const struct run *r, bool tight)
{
	char name[64];
	uint32_t i;

	config_text(r->config, name, sizeof(name));
	fprintf(stderr, "%s: %s\n  config %s seed %llu sequence %s", r->j.why[0] ? "violation" : "failed",
		r->j.why, name, (unsigned long long)r->seed, tight ? "t" : "p");
	for (i = 0; i < r->nsteps; i++)
		fprintf(stderr, ":%u.%u", r->steps[i].op, r->steps[i].persist);
	for (i = 0; i < r->nsteps; i++)
		fprintf(stderr, "%s%s", i ? ", " : "\n  ", ace_op_name(r->steps[i].op));
	fprintf(stderr, "\n");
}

static void judge_sequence(struct run *r, const struct ace *a, uint32_t from, uint32_t stride)
{
	struct nvefs_replay_opts ro = {.exhaustive = 6, .torn = 6, .samples = 24, .seed = r->seed * CONFIGS + r->config};
	uint32_t end = a->full ? a->o.ops[a->o.nops - 1].begun : UINT32_MAX, k = (uint32_t)r->sequences;
	struct nvefs_replay *rep;

	/* Most of what is more are ways in which a write of many blocks can be torn. */
	if (r->samples) {
		ro.torn = r->samples / 2;
		ro.samples = r->samples;
		r->j.depth = (struct judge_depth){.precheck = 8, .remount = 40, .recut = 120};
	}
	if (nvefs_replay_new(a->log, &ro, &rep)) {
		snprintf(r->j.why, sizeof(r->j.why), "the recording is too long");
		r->ok = false;
		return;
	}
	judge_begin(&r->j, &a->o, &a->opts);
	while (r->ok && nvefs_replay_next(rep) == 1 && nvefs_replay_cut(rep) < end) {
		if (nvefs_replay_cut(rep) < from || k++ % stride)
			continue;
		r->cuts++;
		r->ok = judge_cut(&r->j, rep);
		if (judge_now_ns() > r->j.deadline_ns)
			break;
	}
	nvefs_replay_free(rep);
}

/* r->steps on one of the beginnings. */
static void sequence(struct run *r, struct ace *a, uint32_t stride)
{
	uint64_t start = judge_now_ns();
	uint32_t done, from;
	int err;

	err = ace_sequence_run(a, r->steps, r->nsteps, &done);
	r->run_ns += judge_now_ns() - start;
	/* A sequence that had to end early has been seen as a shorter one. */
	from = a->lenient ? 0 : a->last_begun;
	if (err < 0) {
		snprintf(r->j.why, sizeof(r->j.why), "step %u: %s", done, strerror(-err));
		r->ok = false;
	} else if (!err && (!a->full || a->lenient)) {
		r->sequences++;
		judge_sequence(r, a, from, stride);
	} else {
		r->skipped++;
	}
	ace_sequence_done(a);
	if (!r->ok)
		tell_sequence(r, a->cfg.tight);
}

static bool go_on(const struct run *r)
{
	return r->ok && judge_now_ns() < r->j.deadline_ns;
}

/*
 * Number `index` of all sequences of `depth`. The last step always makes something
 * durable: the file or everything; a single one also the directory.
 */
static void sequence_at(struct run *r, uint32_t depth, uint64_t index)
{
	uint32_t i, last = depth == 1 ? 3 : 2;

	r->nsteps = depth;
	for (i = 0; i < depth; i++) {
		bool is_last = i + 1 == depth;

		r->steps[i].op = (uint8_t)(index % ace_nops);
		index /= ace_nops;
		r->steps[i].persist =
		    (uint8_t)(is_last ? ACE_FSYNC + index % last : ACE_NOTHING + index % 3);
		index /= 3;
	}
}

static uint64_t nsequences(uint32_t depth)
{
	uint64_t n = ace_nops * (depth == 1 ? 3 : 2);

	while (--depth)
		n *= ace_nops * 3;
	return n;
}

/* From `*next` on in an order that jumps over all of them evenly. */
static bool batch(struct run *r, struct ace *a, uint32_t depth, uint64_t *next, uint64_t count)
{
	uint64_t n = nsequences(depth);

	for (; count-- && *next < n && go_on(r); ++*next) {
		sequence_at(r, depth, (*next * UINT64_C(1000003) + r->seed) % n);
		sequence(r, a, 1);
	}
	return *next < n;
}

/* Metadata that goes again, and then data that goes round all free blocks, over and over. */
static void fill_rounds(struct run *r, struct rnd *rnd)
{
	static const char *const first[] = {"create g", "set huge attribute of g", "unlink g"};
	static const char *const data[] = {"overwrite f", "overwrite A/f", "append to A/f",
					   "write twins to f", "write f beyond its end"};
	static const uint8_t persist[] = {ACE_NOTHING, ACE_NOTHING, ACE_NOTHING, ACE_FSYNC, ACE_SYNC};
	uint32_t i, k = (uint32_t)rnd_below(rnd, 5);

	for (i = 0; i < r->nsteps; i++) {
		const char *name = i < 3 ? first[i] : data[(i + k) % 5];

		r->steps[i].op = ace_op_named(name);
		r->steps[i].persist = i < 3 ? ACE_SYNC : persist[(i + k) % 5];
	}
}

static void fill_mix(struct run *r, struct rnd *rnd)
{
	uint32_t i;

	for (i = 0; i < r->nsteps; i++) {
		r->steps[i].op = (uint8_t)rnd_below(rnd, ace_nops);
		r->steps[i].persist = (uint8_t)(rnd_below(rnd, 2) * rnd_below(rnd, ACE_PERSISTS));
	}
}

static void mix(struct run *r, uint64_t number)
{
	struct ace *a = number % 2 || r->go_round ? &r->tight : &r->plain;
	struct rnd rnd = {(r->seed + number) * UINT64_C(0x9e3779b97f4a7c15) + r->config};
	struct ace_config saved = a->cfg;

	r->nsteps = MIX_STEPS;
	if (number % 4 == 1 || r->go_round)
		fill_rounds(r, &rnd);
	else
		fill_mix(r, &rnd);
	a->lenient = true;
	a->cfg.delay_ns = number % 4 == 0 ? 20000 : 0;
	a->opts.fua_commit = number % 3 == 0;
	a->opts.discard = number % 5 > 2;
	sequence(r, a, STRIDE);
	a->lenient = a->opts.fua_commit = a->opts.discard = false;
	a->cfg = saved;
}

static int parse_sequence(struct run *r, bool *ret_tight)
{
	const char *p = r->only;
	unsigned int op, persist;
	int n;

	*ret_tight = *p++ == 't';
	for (r->nsteps = 0; *p; r->nsteps++, p += n) {
		if (r->nsteps == ACE_STEPS || sscanf(p, ":%u.%u%n", &op, &persist, &n) != 2 ||
		    op >= ace_nops || persist >= ACE_PERSISTS)
			return -EINVAL;
		r->steps[r->nsteps] = (struct ace_step){(uint8_t)op, (uint8_t)persist};
	}
	return 0;
}

static void run_only(struct run *r)
{
	bool tight;
	struct ace *a;

	if (parse_sequence(r, &tight)) {
		fprintf(stderr, "ace: not a sequence: %s\n", r->only);
		exit(2);
	}
	a = tight ? &r->tight : &r->plain;
	a->lenient = r->nsteps > 3;
	sequence(r, a, 1);
}

static void run_all(struct run *r)
{
	uint64_t single = 0, single_tight = 0, pair = 0, triple = r->seed % 1000, number = 0, round;
	bool more = true;

	if (r->go_round) {
		r->j.deadline_ns = r->start_ns + r->seconds * 1000000000u;
		while (go_on(r))
			mix(r, number++);
		return;
	}
	batch(r, &r->plain, 1, &single, UINT64_MAX);
	batch(r, &r->tight, 1, &single_tight, UINT64_MAX);
	if (r->seconds)
		r->j.deadline_ns = r->start_ns + r->seconds * 1000000000u;
	for (round = 0; go_on(r) && (more || round < r->rounds); round++) {
		mix(r, number++);
		more = batch(r, &r->plain, 2, &pair, PAIRS);
		batch(r, round % 2 ? &r->tight : &r->plain, 3, &triple, TRIPLES);
	}
}

static void report(const struct run *r)
{
	double s = (double)(judge_now_ns() - r->start_ns) / 1e9;
	const struct judge_counts *n = &r->j.n;
	char name[64];

	config_text(r->config, name, sizeof(name));
	printf("ace: %s: %llu sequences (%.0f ms each), %llu cuts, %llu states, %llu judged, %llu "
	       "distinct, %llu checks, %llu mounted for writing, %llu after a second cut, %.1f s, %.0f "
	       "judged/s: %s\n",
	       name, (unsigned long long)r->sequences,
	       (double)r->run_ns / 1e6 / (double)(r->sequences + r->skipped + 1),
	       (unsigned long long)r->cuts, (unsigned long long)n->states,
	       (unsigned long long)n->judged, (unsigned long long)n->distinct,
	       (unsigned long long)n->checks, (unsigned long long)n->remounts,
	       (unsigned long long)n->recuts, s,
	       (double)(n->judged + n->recuts) / s, r->ok ? "no violation" : "VIOLATED");
	fflush(stdout);
}

static void run_config(struct run *r, struct result *ret)
{
	int err;

	config_fill(r->config, &r->plain.cfg);
	r->tight.cfg = r->plain.cfg;
	r->tight.cfg.tight = true;
	r->tight.cfg.single = !r->dup;
	err = ace_base_make(&r->plain);
	if (!err)
		err = ace_base_make(&r->tight);
	if (err) {
		fprintf(stderr, "ace: the beginning: %s\n", strerror(-err));
		exit(2);
	}
	if (r->only)
		run_only(r);
	else
		run_all(r);
	report(r);
	ret->n = r->j.n;
	ret->sequences = r->sequences;
	ret->cuts = r->cuts;
	ret->violated = !r->ok;
	ace_base_free(&r->plain);
	ace_base_free(&r->tight);
	judge_done(&r->j);
}

struct options {
	uint64_t seconds, rounds, seed;
	uint32_t jobs;
	const char *config, *only;
	uint32_t samples;
	bool expect, go_round, dup;
};

static int child(const struct options *o, uint32_t config, struct judge_seen *seen,
		 struct result *ret)
{
	static struct run r;

	/* What is freed is soon needed again. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	r.config = config;
	r.seed = o->seed;
	r.seconds = o->seconds;
	r.rounds = o->rounds;
	r.only = o->only;
	r.go_round = o->go_round;
	r.dup = o->dup;
	r.samples = o->samples;
	r.ok = true;
	r.start_ns = judge_now_ns();
	if (judge_init(&r.j, seen))
		return 2;
	run_config(&r, ret);
	return 0;
}

static bool has_words(const char *name, const char *words)
{
	char copy[128], *save, *w, padded[80];
	bool all = true;

	snprintf(copy, sizeof(copy), "%s", words ? words : "");
	snprintf(padded, sizeof(padded), ",%s,", name);
	for (w = strtok_r(copy, ",", &save); w && all; w = strtok_r(NULL, ",", &save)) {
		char want[64];

		snprintf(want, sizeof(want), ",%s,", w);
		all = strstr(padded, want);
	}
	return all;
}

/* One process for each configuration, so that memory is compact and cores are used. */
static bool run_jobs(const struct options *o, struct judge_seen *seen, struct result *results)
{
	uint32_t c, busy = 0;
	bool ok = true;
	char name[64];
	int status;

	for (c = 0; c < CONFIGS; c++) {
		config_text(c, name, sizeof(name));
		if (!has_words(name, o->config))
			continue;
		if (busy == o->jobs) {
			ok &= wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
			busy--;
		}
		if (!fork()) {
			int rc = child(o, c, seen, &results[c]);

			fflush(NULL);
			_exit(rc);
		}
		busy++;
	}
	while (busy--)
		ok &= wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
	return ok;
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option opts[] = {{"seconds", 1, 0, 't'},  {"rounds", 1, 0, 'n'},
					     {"jobs", 1, 0, 'j'},     {"config", 1, 0, 'c'},
					     {"seed", 1, 0, 's'},     {"run", 1, 0, 'r'},
					     {"mutation", 1, 0, 'm'}, {"expect-violation", 0, 0, 'x'},
					     {"go-round", 0, 0, 'g'}, {"samples", 1, 0, 'd'},
					     {"metadata", 1, 0, 'M'}, {0}};
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		uint64_t n = optarg ? strtoull(optarg, NULL, 0) : 0;

		if (c == 't')
			o->seconds = n;
		else if (c == 'n')
			o->rounds = n;
		else if (c == 'j')
			o->jobs = n ? (uint32_t)n : 1;
		else if (c == 'c')
			o->config = optarg;
		else if (c == 's')
			o->seed = n;
		else if (c == 'r')
			o->only = optarg;
		else if (c == 'x')
			o->expect = true;
		else if (c == 'g')
			o->go_round = true;
		else if (c == 'd')
			o->samples = (uint32_t)n;
		else if (c == 'M' && (!strcmp(optarg, "dup") || !strcmp(optarg, "single")))
			o->dup = !strcmp(optarg, "dup");
		else if (c != 'm' || !mutation_set(optarg))
			return -EINVAL;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = {.jobs = 2, .seed = 1, .rounds = 200};
	struct judge_seen *seen = judge_seen_new();
	struct result *results, sum = {0};
	uint64_t start = judge_now_ns();
	uint32_t c;
	bool ok;

	results = mmap(NULL, CONFIGS * sizeof(*results), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (parse(argc, argv, &o) || !seen || results == MAP_FAILED)
		return 2;
	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	ok = run_jobs(&o, seen, results);
	for (c = 0; c < CONFIGS; c++) {
		sum.sequences += results[c].sequences;
		sum.n.states += results[c].n.states;
		sum.n.judged += results[c].n.judged;
		sum.n.distinct += results[c].n.distinct;
		sum.n.recuts += results[c].n.recuts;
		sum.violated |= results[c].violated;
	}
	printf("ace: all: seed %llu, %llu sequences, %llu states, %llu distinct, %llu judged, %llu "
	       "after a second cut, %.1f s: %s\n",
	       (unsigned long long)o.seed, (unsigned long long)sum.sequences,
	       (unsigned long long)sum.n.states, (unsigned long long)sum.n.distinct,
	       (unsigned long long)sum.n.judged, (unsigned long long)sum.n.recuts,
	       (double)(judge_now_ns() - start) / 1e9, sum.violated ? "VIOLATED" : "no violation");
	return !ok || sum.violated != o.expect;
}
