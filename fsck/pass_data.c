/* SPDX-License-Identifier: MIT */
/*
 * Read all data in use and compare it with the checksums of the segment maps.
 *
 * Many reads are in flight; they are looked at in the order of the maps, whichever
 * comes first. Their buffers are one ring of blocks: a run takes what is behind the one
 * before it, and gives it back when it has been looked at.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "context.h"

#define RING_RUNS 128u
#define RING_BLKS 2048u

/* Blocks of one window that lie one after the other on the device. */
struct run {
	struct nvefs_io io;
	bool inflight;
	uint64_t ino, lblk, end; /* end: where its place in the ring ends */
	uint64_t csum[NVEFS_WINDOW_BLKS];
};

struct data_pass {
	struct nvefs_check_ctx *c;
	uint8_t *ring;
	struct run *runs;
	uint64_t first, next; /* runs by number; place: modulo RING_RUNS */
	uint64_t tail, head;  /* blocks of the ring in use by number; place: modulo RING_BLKS */
	uint64_t seen_blks;
};

static void report(struct nvefs_check_ctx *c, uint32_t code, uint64_t ino, uint64_t lblk, uint64_t pblk, int err)
{
	struct nvefs_problem p = {
		.code = code, .ino = ino, .lblk = lblk, .pblk = pblk, .why = err ? strerror(-err) : NULL};

	nvefs_check_report(c, &p);
}

/* Blocks of the window from `i` on that lie one after the other on the device. */
static uint32_t run_of(const struct nvefs_window *w, uint32_t i)
{
	uint32_t n = 1;

	while (i + n < NVEFS_WINDOW_BLKS && w->pblk[i + n] == w->pblk[i] + n)
		n++;
	return n;
}

static void run_wait(struct data_pass *d, const struct run *r)
{
	while (r->inflight)
		if (!nvefs_queue_poll(d->c->q, 0))
			nvefs_queue_wait(d->c->q, UINT64_MAX);
}

static void check_run(struct nvefs_check_ctx *c, const struct run *r)
{
	uint8_t *block = r->io.one.iov_base;
	uint64_t pblk = r->io.pblk;

	for (uint32_t j = 0; j < r->io.nblks; j++, block += NVEFS_BLOCK_SIZE) {
		/* One bad block must not condemn its neighbours. */
		int err = r->io.err && r->io.nblks > 1 ? nvefs_queue_read(c->q, pblk + j, 1, block) : r->io.err;

		c->res->data_checked_blks++;
		if (err)
			report(c, NVEFS_P_DATA_UNREADABLE, r->ino, r->lblk + j, pblk + j, err);
		else if (nvefs_hash(block, NVEFS_BLOCK_SIZE, c->sb.hash_seed) != r->csum[j])
			report(c, NVEFS_P_DATA_CHECKSUM, r->ino, r->lblk + j, pblk + j, 0);
	}
}

/* Look at the oldest run. */
static void finish_one(struct data_pass *d)
{
	struct run *r = &d->runs[d->first % RING_RUNS];

	run_wait(d, r);
	check_run(d->c, r);
	d->tail = r->end;
	d->first++;
}

static void run_finish(struct nvefs_io *io)
{
	struct run *r = io->arg;

	r->inflight = false;
}

/* Where n blocks in a row can be had, behind what is in use. */
static uint64_t ring_place(const struct data_pass *d, uint32_t n)
{
	uint64_t rest = RING_BLKS - d->head % RING_BLKS;

	return rest < n ? d->head + rest : d->head;
}

static void start_run(struct data_pass *d, uint64_t ino, uint64_t lblk, const struct nvefs_window *w, uint32_t i,
		      uint32_t n)
{
	uint64_t at = ring_place(d, n);
	struct run *r;

	while (d->next - d->first == RING_RUNS || (d->next != d->first && at + n - d->tail > RING_BLKS))
		finish_one(d);
	r = &d->runs[d->next++ % RING_RUNS];
	if (d->next - d->first == 1)
		d->tail = at;
	*r = (struct run){.inflight = true, .ino = ino, .lblk = lblk, .end = at + n};
	d->head = r->end;
	memcpy(r->csum, w->csum + i, n * sizeof(*r->csum));
	r->io.op = NVEFS_IO_READ;
	r->io.pblk = nvefs_went_pblk(w->pblk[i]);
	r->io.nblks = n;
	r->io.one = (struct iovec){d->ring + at % RING_BLKS * NVEFS_BLOCK_SIZE, (size_t)n * NVEFS_BLOCK_SIZE};
	r->io.iov = &r->io.one;
	r->io.niov = 1;
	r->io.done = run_finish;
	r->io.arg = r;
	nvefs_queue_submit(d->c->q, &r->io);
}

static int take_item(struct nvefs_check_ctx *c, void *arg, const struct nvefs_key *key, const void *val,
		     uint32_t len, uint64_t node_pblk)
{
	struct data_pass *d = arg;
	struct nvefs_window w;

	(void)node_pblk;
	if (!key->ino || key->kind != NVEFS_KIND_MAP || nvefs_map_decode(val, len, &c->sb, &w))
		return 0;
	for (uint32_t i = 0, n; i < NVEFS_WINDOW_BLKS; i += n) {
		n = 1;
		if (!w.pblk[i])
			continue;
		n = run_of(&w, i);
		d->seen_blks += n;
		if (nvefs_went_type(w.pblk[i]) == NVEFS_EXT_DATA)
			start_run(d, key->ino, key->offset * NVEFS_WINDOW_BLKS + i, &w, i, n);
	}
	return nvefs_check_progress(c, d->seen_blks, c->mapped_blks);
}

int nvefs_pass_data(struct nvefs_check_ctx *c)
{
	struct data_pass d = {.c = c};
	struct nvefs_check_walk w = {.item = take_item, .arg = &d};
	int err = -ENOMEM;

	/* Another round will follow, and read what is there then. */
	if (!c->opts->data || c->todo.menders)
		return 0;
	d.ring = nvefs_buf_new((size_t)RING_BLKS * NVEFS_BLOCK_SIZE);
	d.runs = calloc(RING_RUNS, sizeof(*d.runs));
	if (d.ring && d.runs)
		err = nvefs_check_walk(c, &w);
	for (; !err && d.first < d.next;)
		finish_one(&d);
	for (; d.first < d.next; d.first++)
		run_wait(&d, &d.runs[d.first % RING_RUNS]);
	free(d.runs);
	nvefs_buf_free(d.ring);
	return err;
}
