/* SPDX-License-Identifier: MIT */
/*
 * The order that keeps data right: pin the candidate (which fails unless it is
 * live), then read, then compare, then hand the pin on to the map. From the pin
 * on the block is neither freed nor written, so what was compared is what will
 * be shared. A candidate that cannot be read, or differs, is a wrong hint and
 * no more.
 */
#include "dedup/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "store/alloc.h"

enum nvefs_dedup_mutation nvefs_dedup_mutation;

#define NOBODY UINT16_MAX

struct nvefs_dedup_read {
	uint64_t pblk;
	uint32_t blk;  /* in batch.blks */
	uint32_t slot; /* of 4096 bytes in batch.buf; one block may be read for several */
	struct nvefs_io *io;
};

int nvefs_dedup_batch_init(struct nvefs_dedup_batch *b, struct nvefs_store *st,
			   struct nvefs_queue *q, uint32_t max_blks)
{
	uint32_t slots = 4;

	if (!max_blks || max_blks > NVEFS_DEDUP_BATCH_MAX)
		return -EINVAL;
	while (slots < 2 * max_blks)
		slots *= 2;
	memset(b, 0, sizeof(*b));
	b->st = st;
	b->q = q;
	b->max_blks = max_blks;
	b->table_mask = slots - 1;
	b->buf = nvefs_buf_new((size_t)max_blks << NVEFS_BLOCK_SHIFT);
	b->reads = calloc(max_blks, sizeof(*b->reads));
	b->ios = calloc(max_blks, sizeof(*b->ios));
	b->table = calloc(slots, sizeof(*b->table));
	if (b->buf && b->reads && b->ios && b->table)
		return 0;
	nvefs_dedup_batch_done(b);
	return -ENOMEM;
}

void nvefs_dedup_batch_done(struct nvefs_dedup_batch *b)
{
	nvefs_buf_free(b->buf);
	free(b->reads);
	free(b->ios);
	free(b->table);
	memset(b, 0, sizeof(*b));
}

static bool is_same(const void *x, const void *y)
{
	return nvefs_dedup_mutation == NVEFS_DEDUP_MUTATE_NO_COMPARE ||
	       memcmp(x, y, NVEFS_BLOCK_SIZE) == 0;
}

/* Blocks that equal an earlier one of this batch. */
static void find_twins(struct nvefs_dedup_batch *b)
{
	memset(b->table, 0xff, (b->table_mask + 1) * sizeof(*b->table));
	for (uint32_t i = 0; i < b->nblks; i++) {
		struct nvefs_dedup_block *x = &b->blks[i];
		uint32_t slot = (uint32_t)(x->fp ^ x->fp >> 32) & b->table_mask;

		x->verdict = NVEFS_DEDUP_UNIQUE;
		for (; b->table[slot] != NOBODY; slot = (slot + 1) & b->table_mask) {
			const struct nvefs_dedup_block *y = &b->blks[b->table[slot]];

			if (y->fp == x->fp && is_same(x->data, y->data)) {
				x->verdict = NVEFS_DEDUP_TWIN;
				x->of = b->table[slot];
				break;
			}
		}
		if (x->verdict == NVEFS_DEDUP_UNIQUE)
			b->table[slot] = (uint16_t)i;
	}
}

/* A pin when the block is live; loads what must be known for that. */
static int pin(struct nvefs_dedup_batch *b, uint64_t pblk)
{
	int err;

	if (nvefs_dedup_mutation == NVEFS_DEDUP_MUTATE_NO_PIN)
		return 0;
	err = nvefs_block_pin(b->st, pblk);
	if (err == -ESTALE) {
		err = nvefs_block_pin_load(b->st, b->q, pblk);
		if (!err)
			err = nvefs_block_pin(b->st, pblk);
	}
	return err;
}

static void unpin(struct nvefs_dedup_batch *b, uint64_t fp, uint64_t pblk)
{
	if (nvefs_dedup_mutation == NVEFS_DEDUP_MUTATE_NO_PIN)
		return;
	if (nvefs_block_unpin(b->st, pblk))
		nvefs_dedup_index_remove(b->ix, fp, pblk);
}

/* The first candidate of block i that can be pinned is the one to be read. */
static void find_candidate(struct nvefs_dedup_batch *b, uint32_t i)
{
	uint64_t pblks[NVEFS_DEDUP_MAX_HINTS], fp = b->blks[i].fp;
	uint32_t n = nvefs_dedup_index_lookup(b->ix, fp, NVEFS_DEDUP_MAX_HINTS, pblks);

	for (uint32_t k = 0; k < n; k++) {
		int err = pin(b, pblks[k]);

		if (!err) {
			b->reads[b->nreads++] =
			    (struct nvefs_dedup_read){.pblk = pblks[k], .blk = i};
			return;
		}
		if (err == -ESTALE)
			nvefs_dedup_index_remove(b->ix, fp, pblks[k]);
	}
}

static void read_done(struct nvefs_io *io)
{
	struct nvefs_dedup_batch *b = io->arg;

	if (!--b->inflight)
		b->done(b);
}

static int read_cmp(const void *x, const void *y)
{
	const struct nvefs_dedup_read *a = x, *b = y;

	return (a->pblk > b->pblk) - (a->pblk < b->pblk);
}

/* Lay out the buffer in the order of addresses; each stretch of neighbours is one io. Returns how
 * many. */
static uint32_t make_ios(struct nvefs_dedup_batch *b)
{
	struct nvefs_io *io = NULL;
	uint32_t nios = 0, slot = 0;

	qsort(b->reads, b->nreads, sizeof(*b->reads), read_cmp);
	for (uint32_t i = 0; i < b->nreads; i++) {
		struct nvefs_dedup_read *r = &b->reads[i];

		if (io && r->pblk == r[-1].pblk) {
			r->slot = r[-1].slot;
			r->io = io;
			continue;
		}
		r->slot = slot++;
		if (!io || r->pblk != io->pblk + io->nblks) {
			io = &b->ios[nios++];
			*io = (struct nvefs_io){
			    .op = NVEFS_IO_READ, .pblk = r->pblk, .done = read_done, .arg = b};
			io->one.iov_base = b->buf + ((size_t)r->slot << NVEFS_BLOCK_SHIFT);
			io->iov = &io->one;
			io->niov = 1;
		}
		io->nblks++;
		io->one.iov_len = (size_t)io->nblks << NVEFS_BLOCK_SHIFT;
		r->io = io;
	}
	return nios;
}

int nvefs_dedup_batch_start(struct nvefs_dedup_batch *b)
{
	uint32_t nios;

	b->nreads = 0;
	for (uint32_t i = 0; i < b->nblks; i++)
		nvefs_dedup_index_prefetch(b->ix, b->blks[i].fp);
	find_twins(b);
	for (uint32_t i = 0; i < b->nblks; i++)
		if (b->blks[i].verdict == NVEFS_DEDUP_UNIQUE)
			find_candidate(b, i);
	if (!b->nreads)
		return 0;
	nios = make_ios(b);
	b->inflight = nios;
	for (uint32_t i = 0; i < nios; i++)
		nvefs_queue_submit(b->q, &b->ios[i]);
	return 1;
}

static void decide(struct nvefs_dedup_batch *b, const struct nvefs_dedup_read *r)
{
	struct nvefs_dedup_block *x = &b->blks[r->blk];
	const uint8_t *there = b->buf + ((size_t)r->slot << NVEFS_BLOCK_SHIFT);
	bool equal = !r->io->err && is_same(x->data, there);

	if (r->io->err) {
		nvefs_dedup_index_remove(b->ix, x->fp, r->pblk);
	} else {
		nvefs_dedup_index_judge(b->ix, x->fp, r->pblk, equal);
		if (nvefs_dedup_mutation == NVEFS_DEDUP_MUTATE_NO_PIN && equal)
			equal = !nvefs_block_pin(b->st, r->pblk);
	}
	if (equal) {
		x->verdict = NVEFS_DEDUP_SHARED;
		x->pblk = r->pblk;
	} else {
		unpin(b, x->fp, r->pblk);
	}
}

void nvefs_dedup_batch_finish(struct nvefs_dedup_batch *b)
{
	for (uint32_t i = 0; i < b->nreads; i++)
		decide(b, &b->reads[i]);
	b->nreads = 0;
	for (uint32_t i = 0; i < b->nblks; i++) {
		struct nvefs_dedup_block *x = &b->blks[i];
		const struct nvefs_dedup_block *y = &b->blks[x->of];

		if (x->verdict != NVEFS_DEDUP_TWIN || y->verdict != NVEFS_DEDUP_SHARED)
			continue;
		/* Its own reference; at the limit of references it is stored anew. */
		x->verdict =
		    nvefs_block_pin(b->st, y->pblk) ? NVEFS_DEDUP_UNIQUE : NVEFS_DEDUP_SHARED;
		x->pblk = y->pblk;
	}
}

void nvefs_dedup_batch_drop(struct nvefs_dedup_batch *b)
{
	for (uint32_t i = 0; i < b->nblks; i++) {
		struct nvefs_dedup_block *x = &b->blks[i];

		if (x->verdict != NVEFS_DEDUP_SHARED)
			continue;
		if (nvefs_block_unpin(b->st, x->pblk))
			nvefs_dedup_index_remove(b->ix, x->fp, x->pblk);
		x->verdict = NVEFS_DEDUP_UNIQUE;
	}
}
