/* SPDX-License-Identifier: MIT */
/*
 * Power cuts under the store. Threads change items and data blocks at random
 * while every command is recorded; then, for each state that a cut could have
 * left, the store must open and hold exactly what it held as of some
 * transaction, not older than what had been acknowledged as durable by then.
 *
 * --lying drops every Flush: then the store may also say that it is damaged,
 * or be some steps back in time, but never answer wrongly.
 * --mutation leaves out one step of the order in src/store/journal.h, and the
 * test succeeds when it finds a violation.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/fault.h"
#include "device/record.h"
#include "device/replay.h"
#include "format/layout.h"
#include "store/mkfs.h"
#include "mutations.h"
#include "store/state.h"
#include "store_model.h"

#define THREADS 2u
#define MAX_ACKS 4096u
#define MAX_HEADERS 64u

struct ack {
	uint32_t position;
	uint64_t txn;
};

struct run {
	/* options */
	const char *target;
	unsigned int seed;
	uint32_t steps, samples, every, room;
	bool lying, single;

	struct nvefs_dev *dev;
	struct nvefs_record *log;
	struct nvefs_store *st;
	struct model models[THREADS];
	struct nvefs_mutex lock;
	struct ack acks[MAX_ACKS];
	uint32_t nacks;
	uint64_t newest; /* transaction */
	uint32_t headers[MAX_HEADERS], nheaders; /* events at which a journal header was written */

	uint64_t nstates, nchecked, ndetected, nback;
	unsigned int rand;
};

static int die(const char *what, int err, const struct nvefs_error *text)
{
	fprintf(stderr, "store_crash: %s: %s %s\n", what, strerror(-err), text ? text->text : "");
	exit(99);
}

static void device_make(struct run *r)
{
	const struct nvefs_mkfs_params params = {.creator = "store_crash",
						 .flags = r->single ? 0 : NVEFS_SB_META_DUP};
	const struct nvefs_fault drop = {
		.op = NVEFS_IO_FLUSH, .action = NVEFS_FAULT_DROP, .nth = 1, .every = 1};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;
	int rc = nvefs_dev_open(r->target, &(struct nvefs_dev_open_opts){0}, &dev, &err);

	if (!rc)
		rc = nvefs_store_mkfs(dev, &params, NULL, &err);
	if (rc)
		die(r->target, rc, &err);
	rc = nvefs_record_wrap(dev, 1ull << 30, &r->dev, &r->log);
	if (rc)
		die("record", rc, NULL);
	if (r->lying && (rc = nvefs_fault_wrap(r->dev, &drop, 1, &r->dev)))
		die("fault", rc, NULL);
}

struct worker {
	struct run *r;
	struct model *m;
	pthread_t thread;
	int err;
};

static void ack(struct run *r)
{
	uint64_t txn = nvefs_txn_durable(r->st);
	uint32_t position = nvefs_record_position(r->log);

	nvefs_mutex_lock(&r->lock);
	if (r->nacks < MAX_ACKS)
		r->acks[r->nacks++] = (struct ack){position, txn};
	nvefs_mutex_unlock(&r->lock);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct nvefs_queue *q;

	w->err = nvefs_queue_init(w->r->dev, 0, &q);
	if (w->err)
		return NULL;
	for (uint32_t i = 0; i < w->r->steps && !w->err; i++) {
		w->err = model_step(w->m, w->r->st, q);
		if (!w->err && rand_r(&w->m->rand) % 16 == 0) {
			w->err = nvefs_commit_run(w->r->st, false);
			ack(w->r);
		}
	}
	nvefs_queue_done(q);
	return NULL;
}

/*
 * Little room is left free, so that what is freed is soon used again. The rest
 * is reserved in memory only: on the medium it stays free.
 */
static void reserve_most(struct run *r)
{
	struct nvefs_alloc_cursor cursor = {.seed = 77};
	struct nvefs_space sp;
	struct nvefs_queue *q;
	uint64_t pblk;
	uint32_t got;
	int rc = nvefs_queue_init(r->dev, 0, &q);

	while (!rc) {
		nvefs_space_get(r->st, &sp);
		if (sp.avail <= r->room)
			break;
		rc = nvefs_alloc_data(r->st, q, &cursor,
				      sp.avail - r->room < 512 ? (uint32_t)(sp.avail - r->room) : 512,
				      &pblk, &got, NULL);
	}
	if (rc)
		die("filling up", rc, NULL);
	nvefs_queue_done(q);
}

static void work(struct run *r)
{
	const struct nvefs_store_opts opts = {.commit_interval_ns = 1000000000000, .cache_bytes = 1};
	struct worker w[THREADS];
	struct nvefs_store_stats stats;
	struct nvefs_error err = {""};
	int rc = nvefs_store_open(r->dev, &opts, &r->st, &err);

	if (!rc)
		rc = nvefs_store_start(r->st);
	if (rc)
		die("open", rc, &err);
	reserve_most(r);
	for (uint32_t i = 0; i < THREADS; i++) {
		model_init(&r->models[i], i, r->seed);
		w[i] = (struct worker){.r = r, .m = &r->models[i]};
		if (nvefs_thread_start(&w[i].thread, "worker", worker_main, &w[i]))
			die("thread", -EAGAIN, NULL);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		nvefs_thread_join(w[i].thread);
		if (w[i].err)
			die("worker", w[i].err, NULL);
	}
	nvefs_store_stats(r->st, &stats);
	r->newest = nvefs_txn_running(r->st);
	printf("seed %u: %llu commits, %llu checkpoints, %u acknowledgements, %u events\n", r->seed,
	       (unsigned long long)stats.commits, (unsigned long long)stats.checkpoints, r->nacks,
	       nvefs_record_position(r->log));
	nvefs_store_fail(r->st, -EIO, "end of the work");
	nvefs_store_stop(r->st);
	nvefs_store_free(r->st);
	nvefs_dev_close(r->dev);
	if (nvefs_record_overflowed(r->log))
		die("record", -EOVERFLOW, NULL);
}

/* ---- Checking ---- */

static uint64_t acked_at(const struct run *r, uint32_t cut)
{
	uint64_t txn = 0;

	for (uint32_t i = 0; i < r->nacks; i++)
		if (r->acks[i].position <= cut && r->acks[i].txn > txn)
			txn = r->acks[i].txn;
	return txn;
}

struct verdict {
	int rc; /* 0, -errno: damage was noticed, 1: wrong */
	uint64_t txn;
	char why[512];
};

static int count_node(void *arg, const struct nvefs_tree_visit *v)
{
	if (!v->err)
		*(uint64_t *)arg += v->twin ? 2 : 1;
	return v->err;
}

/* The root's counts against what is there: nothing leaked, nothing used twice. */
static int check_counts(struct nvefs_store *st, struct nvefs_queue *q, uint64_t data_blks, char *why,
			uint32_t len)
{
	const struct nvefs_super *sb = nvefs_store_super(st);
	const struct nvefs_root *root = nvefs_store_root(st);
	uint64_t fixed = 0, nodes = 0;
	int err = nvefs_tree_walk(st, q, NULL, count_node, &nodes);

	if (err)
		return err;
	for (uint32_t g = 0; g < sb->ngroups; g++)
		fixed += nvefs_layout_group_fixed(sb, g);
	if (nodes == root->meta_blks && fixed + nodes + data_blks + root->free_blks == sb->nblks)
		return 0;
	snprintf(why, len, "%llu blocks of nodes of %llu counted, %llu data blocks, %llu free of %llu",
		 (unsigned long long)nodes, (unsigned long long)root->meta_blks,
		 (unsigned long long)data_blks, (unsigned long long)root->free_blks,
		 (unsigned long long)sb->nblks);
	return 1;
}

static void check_content(struct run *r, struct nvefs_store *st, struct nvefs_queue *q, struct verdict *v)
{
	static uint64_t seeds[MODEL_SLOTS];
	uint64_t blks = 0;

	for (uint32_t i = 0; i < THREADS && !v->rc; i++) {
		model_at(&r->models[i], v->txn, seeds);
		v->rc = model_check(&r->models[i], st, q, seeds, !r->lying, &blks, v->why,
				    sizeof(v->why));
	}
	if (!v->rc)
		v->rc = check_counts(st, q, blks, v->why, sizeof(v->why));
	if (v->rc < 0)
		snprintf(v->why, sizeof(v->why), "reading: %s", strerror(-v->rc));
}

static void check_dev(struct run *r, struct nvefs_dev *dev, struct verdict *v)
{
	struct nvefs_error err = {""};
	struct nvefs_store *st;
	struct nvefs_queue *q;

	memset(v, 0, sizeof(*v));
	v->rc = nvefs_store_open(dev, NULL, &st, &err);
	if (v->rc) {
		snprintf(v->why, sizeof(v->why), "%.500s", err.text);
		return;
	}
	v->txn = nvefs_txn_durable(st);
	if (nvefs_queue_init(dev, 0, &q))
		die("queue", -EBUSY, NULL);
	check_content(r, st, q, v);
	nvefs_queue_done(q);
	nvefs_store_free(st);
}

/*
 * The header of the journal moves seldom, and all hangs on what was before it:
 * the cuts around that are all looked at, of the others one in `every`.
 */
static bool worth_checking(struct run *r, uint32_t cut)
{
	for (uint32_t i = 0; i < r->nheaders; i++)
		if (cut >= r->headers[i] && cut <= r->headers[i] + 4)
			return true;
	return (uint32_t)rand_r(&r->rand) % r->every == 0;
}

static void find_headers(struct run *r)
{
	r->nheaders = 0;
	for (uint32_t i = 0; i < nvefs_record_ncmds(r->log) && r->nheaders < MAX_HEADERS; i++) {
		const struct nvefs_record_cmd *c = nvefs_record_cmd_at(r->log, i);

		if (c->op == NVEFS_IO_WRITE && c->off / NVEFS_BLOCK_SIZE >= NVEFS_JOURNAL_PBLK &&
		    c->off / NVEFS_BLOCK_SIZE < NVEFS_JOURNAL_PBLK + NVEFS_JOURNAL_HEADERS)
			r->headers[r->nheaders++] = c->submitted;
	}
}

/* 1: a violation. */
static int check_state(struct run *r, struct nvefs_replay *rep, uint32_t state)
{
	struct nvefs_dev *dev;
	uint64_t acked = acked_at(r, nvefs_replay_cut(rep));
	struct verdict v;
	char lost[400];
	bool bad;
	int rc = nvefs_replay_open(rep, state, &dev);

	if (rc)
		die("replay", rc, NULL);
	r->nchecked++;
	check_dev(r, dev, &v);
	nvefs_dev_close(dev);
	if (r->lying) {
		r->ndetected += v.rc < 0;
		r->nback += !v.rc && v.txn < acked;
		bad = v.rc > 0 || (v.rc < 0 && v.rc != -EUCLEAN && v.rc != -EMEDIUMTYPE);
	} else {
		bad = v.rc || v.txn < acked || v.txn > r->newest;
	}
	if (!bad)
		return 0;
	nvefs_replay_describe(rep, state, lost, sizeof(lost));
	printf("violation: seed %u cut %u state %u: transaction %llu, acknowledged %llu: %s\n  lost: %s\n",
	       r->seed, nvefs_replay_cut(rep), state, (unsigned long long)v.txn,
	       (unsigned long long)acked, v.why, lost);
	return 1;
}

static int check_all(struct run *r, struct nvefs_replay *rep)
{
	int rc;

	while ((rc = nvefs_replay_next(rep)) > 0)
		for (uint32_t state = 0; state < nvefs_replay_nstates(rep); state++) {
			r->nstates++;
			if (worth_checking(r, nvefs_replay_cut(rep)) && check_state(r, rep, state))
				return 1;
		}
	return rc;
}

/* 1: a violation was found. */
static int run_once(struct run *r)
{
	struct nvefs_replay_opts opts = nvefs_replay_defaults;
	struct nvefs_replay *rep;
	int rc;

	r->rand = r->seed;
	r->nacks = 0;
	nvefs_mutex_init(&r->lock);
	device_make(r);
	work(r);
	find_headers(r);
	opts.exhaustive = 3;
	opts.torn = 1;
	opts.samples = r->samples;
	opts.seed = r->seed;
	rc = nvefs_replay_new(r->log, &opts, &rep);
	if (rc)
		die("replay", rc, NULL);
	rc = check_all(r, rep);
	if (rc < 0)
		die("replay", rc, NULL);
	nvefs_replay_free(rep);
	nvefs_record_free(r->log);
	for (uint32_t i = 0; i < THREADS; i++)
		model_done(&r->models[i]);
	nvefs_mutex_done(&r->lock);
	return rc;
}

static void usage(void)
{
	puts("store_crash [--target URI] [--seed N] [--runs N] [--steps N] [--samples N] [--every N] [--room N]\n"
	     "            [--metadata dup|single] [--lying] [--mutation NAME]");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"target", required_argument, NULL, 't'}, {"seed", required_argument, NULL, 's'},
		{"runs", required_argument, NULL, 'r'},	  {"steps", required_argument, NULL, 'n'},
		{"samples", required_argument, NULL, 'p'}, {"every", required_argument, NULL, 'e'},
		{"room", required_argument, NULL, 'o'},
		{"metadata", required_argument, NULL, 'd'},
		{"lying", no_argument, NULL, 'l'},	  {"mutation", required_argument, NULL, 'm'},
		{0}};
	static struct run r = {
		.target = "ram:64M,vwc=on", .seed = 1, .steps = 700, .samples = 4, .every = 30, .room = 1500};
	uint32_t runs = 1;
	int c, found = 0;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 't': r.target = optarg; break;
		case 's': r.seed = (unsigned int)strtoul(optarg, NULL, 0); break;
		case 'r': runs = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'n': r.steps = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'p': r.samples = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'e': r.every = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'o': r.room = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'd': r.single = !strcmp(optarg, "single"); break;
		case 'l': r.lying = true; break;
		case 'm':
			if (!mutation_set(optarg))
				usage();
			break;
		default: usage();
		}
	}
	if (!r.every)
		usage();
	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	for (; runs-- && !found; r.seed++)
		found = run_once(&r);
	printf("%llu states, %llu checked, %llu detected as damaged, %llu back in time\n",
	       (unsigned long long)r.nstates, (unsigned long long)r.nchecked,
	       (unsigned long long)r.ndetected, (unsigned long long)r.nback);
	if (nvefs_store_mutation == NVEFS_MUTATE_NONE)
		return found;
	puts(found ? "found, as it must be" : "the mutation was not noticed");
	return !found;
}
