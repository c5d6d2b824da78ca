/* SPDX-License-Identifier: MIT */
/*
 * What the journal can tell. Groups of any epoch, also those that are home long
 * since: an image whose home is damaged is worth having. An image counts when a
 * descriptor names it and a commit block of the same epoch proves that its
 * transaction was durable; whether the rest of its group is whole does not matter.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "format/block.h"
#include "format/layout.h"
#include "salvage.h"
#include "store/copies.h"

#define READ_BLKS 256u

struct commit {
	uint64_t epoch, txn;
};

struct log {
	struct nvefs_salvage *s;
	uint8_t *blocks;
	uint32_t nblks;
	struct commit *commits; /* by epoch, each with its newest */
	uint32_t ncommits;
};

static void *at(const struct log *l, uint32_t pos)
{
	return l->blocks + (size_t)(pos % l->nblks) * NVEFS_BLOCK_SIZE;
}

static bool is(const struct log *l, uint32_t pos, uint16_t type)
{
	const struct nvefs_block_expect want = {
		.pblk = nvefs_journal_log_pblk(&l->s->c->sb, pos), .uuid = l->s->c->sb.uuid, .type = type};

	return nvefs_block_type(at(l, pos)) == type && nvefs_block_check(at(l, pos), &want) == NVEFS_BLOCK_OK;
}

static void raise(uint64_t *top, uint64_t v)
{
	if (v > *top && v <= NVEFS_SALVAGE_TXN_MAX)
		*top = v;
}

static void read_headers(struct nvefs_salvage *s)
{
	for (unsigned int i = 0; i < NVEFS_JOURNAL_HEADERS; i++) {
		const struct nvefs_block_expect want = {.pblk = nvefs_journal_header_pblk(&s->c->sb, i),
							.twin = nvefs_journal_header_twin(&s->c->sb, i),
							.uuid = s->c->sb.uuid,
							.type = NVEFS_BT_JHEADER,
							.super = &s->c->sb};
		struct nvefs_copies copies;
		struct nvefs_jheader h;

		if (nvefs_copies_read(s->c->q, &want, true, s->block, &copies) ||
		    nvefs_jheader_decode(s->block, &s->c->sb, &h))
			continue;
		raise(&s->top_txn, h.tail_txn - 1);
		raise(&s->top_txn, h.root_txn);
		raise(&s->top_seq, h.seq);
		if (h.epoch > s->top_epoch)
			s->top_epoch = h.epoch;
	}
}

/* Blocks that cannot be read are zeros, which are nothing. */
static int read_log(struct log *l)
{
	l->blocks = nvefs_buf_new_zeroed((size_t)l->nblks * NVEFS_BLOCK_SIZE);
	if (!l->blocks)
		return -ENOMEM;
	for (uint32_t i = 0, n; i < l->nblks; i += n) {
		uint64_t pblk = nvefs_journal_log_pblk(&l->s->c->sb, i);

		n = l->nblks - i < READ_BLKS ? l->nblks - i : READ_BLKS;
		if (!nvefs_queue_read(l->s->c->q, pblk, n, at(l, i)))
			continue;
		for (uint32_t k = 0; k < n; k++)
			if (nvefs_queue_read(l->s->c->q, pblk + k, 1, at(l, i + k)))
				memset(at(l, i + k), 0, NVEFS_BLOCK_SIZE);
	}
	return 0;
}

static int by_epoch(const void *a, const void *b)
{
	const struct commit *x = a, *y = b;

	if (x->epoch != y->epoch)
		return x->epoch < y->epoch ? -1 : 1;
	return x->txn > y->txn ? -1 : x->txn < y->txn;
}

static int read_commits(struct log *l)
{
	uint32_t n = 0;

	l->commits = calloc(l->nblks, sizeof(*l->commits));
	if (!l->commits)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->nblks; i++) {
		struct nvefs_jcommit c;

		if (!is(l, i, NVEFS_BT_JCOMMIT) || nvefs_jcommit_decode(at(l, i), &l->s->c->sb, &c) ||
		    c.txn > NVEFS_SALVAGE_TXN_MAX)
			continue;
		raise(&l->s->top_txn, c.txn);
		if (c.epoch > l->s->top_epoch)
			l->s->top_epoch = c.epoch;
		l->commits[l->ncommits++] = (struct commit){c.epoch, c.txn};
	}
	if (l->ncommits)
		qsort(l->commits, l->ncommits, sizeof(*l->commits), by_epoch);
	for (uint32_t i = 0; i < l->ncommits; i++)
		if (!n || l->commits[n - 1].epoch != l->commits[i].epoch)
			l->commits[n++] = l->commits[i];
	l->ncommits = n;
	return 0;
}

static bool committed(const struct log *l, uint64_t epoch, uint64_t txn)
{
	for (uint32_t i = 0; i < l->ncommits; i++)
		if (l->commits[i].epoch == epoch)
			return txn <= l->commits[i].txn;
	return false;
}

static int take_image(struct log *l, uint64_t home, uint32_t pos, uint64_t txn)
{
	struct nvefs_salvage *s = l->s;
	void *image = at(l, pos);

	if (nvefs_block_txn(image) != txn)
		return 0;
	if (home == s->c->sb.root_pblk) {
		nvefs_salvage_take_root(s, image);
		return 0;
	}
	if (home == nvefs_layout_bitmap_pblk(nvefs_layout_group(home)))
		return nvefs_salvage_take_bitmap(s, nvefs_layout_group(home), image);
	return nvefs_salvage_take(s, image, home, nvefs_journal_log_pblk(&s->c->sb, pos % l->nblks));
}

static int take_groups(struct log *l)
{
	int err = 0;

	for (uint32_t i = 0; i < l->nblks && !err; i++) {
		struct nvefs_jdesc d;

		if (!is(l, i, NVEFS_BT_JDESC) || nvefs_jdesc_decode(at(l, i), &l->s->c->sb, &d) ||
		    d.nimages >= l->nblks || !committed(l, d.epoch, d.txn))
			continue;
		for (uint32_t k = 0; k < d.nimages && !err; k++)
			err = take_image(l, nvefs_jdesc_home(at(l, i), k), i + 1 + k, d.txn);
	}
	return err;
}

int nvefs_salvage_log(struct nvefs_salvage *s)
{
	struct log l = {.s = s, .nblks = nvefs_journal_log_blks(&s->c->sb)};
	int err;

	raise(&s->top_txn, s->root_txn);
	read_headers(s);
	err = read_log(&l);
	if (!err)
		err = read_commits(&l);
	if (!err)
		err = take_groups(&l);
	free(l.commits);
	nvefs_buf_free(l.blocks);
	return err;
}
