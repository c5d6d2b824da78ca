/* SPDX-License-Identifier: MIT */
/*
 * A block goes while it is being compared. On a nearly full device whose reads
 * take long and whose writes do not, many writes are under way on one worker:
 * some hold duplicates and wait for the read of their candidate, others
 * overwrite the only copy of such a candidate and take up freed blocks at once.
 * Now and then everything settles and each block is read: it must hold what was
 * written last, and in the end the check is clean.
 *
 *	dedup_race [--seed N] [--seconds N] [--bits N] [--readers] [--metadata dup|single] [--mutation NAME]
 *	           [--expect-violation]
 *
 * --bits leaves so few bits of the fingerprints that only the compare keeps
 * different blocks apart. --mutation leaves out a step (dedup-no-pin, dedup-no-compare).
 * With --readers, and without dedup, some blocks are read all the time: a block that is being read
 * must not be taken for something else meanwhile, though its file has another one by now.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../support/calls.h"
#include "base/log.h"
#include "dedup/batch.h"
#include "device/fault.h"
#include "mutations.h"

#define DEVICE "ram:64M,iu=8k" /* a small unit: the allocator goes round all free blocks */
#define SLOTS 64u	       /* blocks of the file, each with one write under way */
#define READERS 8u
#define TAGS 32u	       /* different duplicates */
#define LEAVE_BLKS 500u /* soon used again; with less, writes wait for space one by one, and nothing is raced for */
#define READ_NS 8000000u
#define ROUND 1500u /* writes until everything settles */
#define SYNC_EVERY 400u
/* With readers a block comes round again while it is still being read. */
#define READERS_LEAVE_BLKS 96u
#define DUP_LEAVE_BLKS (2 * SLOTS) /* more: what the writes pledge for second copies */
#define READERS_READ_NS 50000000u
#define READERS_SYNC_EVERY 50u

struct race;
struct slot {
	struct nvefs_req req;
	struct race *r;
	uint64_t id, written; /* of the content: under way, and last acknowledged */
	uint8_t buf[4096];
};

struct reader {
	struct nvefs_req req;
	struct race *r;
	uint8_t buf[4096];
};

struct race {
	struct rnd rnd;
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
	struct nvefs_req sync;
	bool syncing;
	uint64_t ino, nwrites, full, next_id;
	uint32_t left; /* to be started in this round */
	uint64_t nreads;
	uint32_t nreaders, sync_every;
	struct slot slots[SLOTS];
	struct reader readers[READERS];
	char why[200];
	bool dup; /* metadata twice */
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void die(const char *what, int err)
{
	fprintf(stderr, "dedup_race: %s: %d\n", what, err);
	exit(2);
}

static void content(uint64_t id, uint8_t *buf)
{
	struct rnd r = {id * UINT64_C(0x9e3779b97f4a7c15) + 1};
	uint32_t i;

	for (i = 0; i < 4096; i += 8)
		memcpy(buf + i, &(uint64_t){rnd_next(&r)}, 8);
}

static void sync_done(struct nvefs_req *req)
{
	struct race *r = req->arg;

	if (req->err)
		snprintf(r->why, sizeof(r->why), "sync: %d", req->err);
	r->syncing = false;
}

static void sync_start(struct race *r)
{
	if (r->syncing)
		return;
	r->syncing = true;
	r->sync = (struct nvefs_req){.op = NVEFS_REQ_SYNC, .done = sync_done, .arg = r};
	nvefs_req_start(r->w, &r->sync);
}

static void slot_start(struct slot *s);

static void slot_done(struct nvefs_req *req)
{
	struct slot *s = req->arg;
	struct race *r = s->r;

	if (!req->err)
		s->written = s->id;
	else if (req->err == -ENOSPC)
		r->full++;
	else
		snprintf(r->why, sizeof(r->why), "write: %d", req->err);
	if (++r->nwrites % r->sync_every == 0)
		sync_start(r);
	if (r->left && !r->why[0])
		slot_start(s);
}

/* A duplicate, and then something new in its place. A quarter writes only what is new. */
static void slot_start(struct slot *s)
{
	struct race *r = s->r;
	uint64_t k = (uint64_t)(s - r->slots);

	r->left--;
	if (k % 4 && s->written > TAGS)
		s->id = 1 + rnd_below(&r->rnd, TAGS);
	else
		s->id = r->next_id++;
	content(s->id, s->buf);
	s->req = (struct nvefs_req){.op = NVEFS_REQ_WRITE,
				    .ino = r->ino,
				    .off = k * 4096,
				    .len = 4096,
				    .buf = s->buf,
				    .done = slot_done,
				    .arg = s};
	nvefs_req_start(r->w, &s->req);
}

static void reader_start(struct reader *d);

static void reader_done(struct nvefs_req *req)
{
	struct reader *d = req->arg;
	struct race *r = d->r;

	r->nreads++;
	if (req->err || req->result != 4096)
		snprintf(r->why, sizeof(r->why), "reading beside writes: %d", req->err);
	if (r->left && !r->why[0])
		reader_start(d);
}

static void reader_start(struct reader *d)
{
	d->req = (struct nvefs_req){.op = NVEFS_REQ_READ,
				    .ino = d->r->ino,
				    .off = rnd_below(&d->r->rnd, SLOTS) * 4096,
				    .len = 4096,
				    .buf = d->buf,
				    .done = reader_done,
				    .arg = d};
	nvefs_req_start(d->r->w, &d->req);
}

static void settle(struct race *r)
{
	while (nvefs_worker_inflight(r->w)) {
		struct pollfd p = {.fd = nvefs_worker_fd(r->w), .events = POLLIN};

		if (!nvefs_worker_run(r->w) && nvefs_worker_prepare_wait(r->w))
			poll(&p, 1, 1);
	}
}

static bool round_run(struct race *r)
{
	uint8_t got[4096], want[4096];
	uint32_t k;

	r->left = ROUND;
	for (k = 0; k < SLOTS; k++)
		slot_start(&r->slots[k]);
	for (k = 0; k < r->nreaders; k++) {
		r->readers[k].r = r;
		reader_start(&r->readers[k]);
	}
	settle(r);
	for (k = 0; k < SLOTS && !r->why[0]; k++) {
		int64_t n = h_read(r->w, r->ino, k * 4096, got, 4096);

		content(r->slots[k].written, want);
		if (n != 4096 || memcmp(got, want, 4096))
			snprintf(r->why, sizeof(r->why), "block %u after %llu writes: read %lld%s",
				 k, (unsigned long long)r->nwrites, (long long)n,
				 n == 4096 ? ", other data" : "");
	}
	return !r->why[0];
}

static struct nvefs_dev *make(uint64_t read_ns, bool dup)
{
	const struct nvefs_fault slow = {.op = NVEFS_IO_READ,
					 .action = read_ns == READ_NS ? NVEFS_FAULT_DELAY : NVEFS_FAULT_LATE,
					 .every = 1,
					 .delay_ns = read_ns,
					 .seed = 1};
	struct nvefs_mkfs_opts mk = {.hash_seed = 7, .journal_blks = 512, .metadata_single = !dup};
	struct nvefs_error e = {{0}};
	struct nvefs_dev *ram, *slowed = NULL;
	int err = nvefs_dev_open(DEVICE, &(struct nvefs_dev_open_opts){0}, &ram, &e);

	if (!err)
		err = nvefs_mkfs(ram, &mk, &e);
	if (!err)
		err = nvefs_fault_wrap(ram, &slow, 1, &slowed);
	if (err)
		die(e.text, err);
	return slowed;
}

static void begin(struct race *r, uint32_t bits)
{
	uint32_t leave = (r->nreaders ? READERS_LEAVE_BLKS : LEAVE_BLKS) + (r->dup ? DUP_LEAVE_BLKS : 0);
	struct nvefs_mount_opts mo = {.dedup = r->nreaders ? NVEFS_OFF : NVEFS_ON,
				      .dedup_bytes = 1 << 20,
				      .commit_interval_s = 3600,
				      .fingerprint_bits = bits};
	struct nvefs_error e = {{0}};
	struct nvefs_statfs s;
	uint64_t filler, k;
	int err = nvefs_mount(make(r->nreaders ? READERS_READ_NS : READ_NS, r->dup), &mo, &r->fs, &e);

	if (!err)
		err = nvefs_worker_open(r->fs, &r->w);
	if (!err)
		err = h_create(r->w, "filler", &filler);
	if (!err)
		err = h_create(r->w, "f", &r->ino);
	if (!err)
		err = nvefs_statfs(r->w, &s);
	if (!err)
		err = h_fallocate(r->w, filler, 0, 0, (s.avail_blks - leave) * 4096);
	for (k = 0; k < SLOTS && !err; k++) {
		r->slots[k].r = r;
		r->slots[k].written = 1 + k % TAGS;
		content(r->slots[k].written, r->slots[k].buf);
		err = h_write(r->w, r->ino, k * 4096, r->slots[k].buf, 4096, 0);
	}
	if (!err)
		err = h_sync(r->w);
	if (err)
		die(e.text[0] ? e.text : "making the file system", err);
	r->next_id = TAGS + 1;
}

static int report(struct race *r, uint64_t seed, uint64_t start, bool expect)
{
	struct nvefs_stats st;

	nvefs_stats_get(r->fs, &st);
	printf("dedup_race: seed %#llx: %llu writes, %llu reads, %llu found no space, %llu commits, %llu hits, "
	       "%llu false hits, "
	       "%.1f s: %s%s\n",
	       (unsigned long long)seed, (unsigned long long)r->nwrites, (unsigned long long)r->nreads,
	       (unsigned long long)r->full, (unsigned long long)st.commits,
	       (unsigned long long)st.dedup_hits, (unsigned long long)st.dedup_false_hits,
	       (double)(now_ns() - start) / 1e9, r->why[0] ? "VIOLATED: " : "no violation", r->why);
	if (!r->why[0] && !r->nreaders && !st.dedup_hits)
		die("nothing was shared: this run shows nothing", 0);
	return (r->why[0] != 0) != expect;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
	    {"seed", 1, 0, 's'},     {"seconds", 1, 0, 't'},	      {"bits", 1, 0, 'b'},
	    {"mutation", 1, 0, 'm'}, {"expect-violation", 0, 0, 'x'}, {"readers", 0, 0, 'r'},
	    {"metadata", 1, 0, 'd'}, {0}};
	static struct race r = {.sync_every = SYNC_EVERY};
	uint64_t seed = rnd_seed(), start = now_ns(), seconds = 5;
	bool expect = false;
	uint32_t bits = 0;
	int c, rc;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (c) {
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 't':
			seconds = strtoull(optarg, NULL, 0);
			break;
		case 'b':
			bits = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'm':
			if (!mutation_set(optarg))
				return 2;
			break;
		case 'x':
			expect = true;
			break;
		case 'd':
			r.dup = !strcmp(optarg, "dup");
			if (!r.dup && strcmp(optarg, "single"))
				return 2;
			break;
		case 'r':
			r.nreaders = READERS;
			r.sync_every = READERS_SYNC_EVERY;
			break;
		default:
			return 2;
		}
	}
	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	r.rnd.s = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	begin(&r, bits);
	while (now_ns() - start < seconds * 1000000000u && round_run(&r))
		;
	rc = report(&r, seed, start, expect);
	nvefs_worker_close(r.w);
	nvefs_abandon(r.fs);
	return rc;
}
