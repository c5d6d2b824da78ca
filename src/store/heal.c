/* SPDX-License-Identifier: MIT */
/*
 * Bad copies of metadata blocks, written anew from the good one.
 *
 * Only the commit thread writes home, so it heals, too. What it writes is the
 * content that the good copy has: a block that waits for a commit or a
 * checkpoint is left to these, which write both copies, and only the bad copy
 * is written, since no image in the journal protects the good one. The block
 * stays in the cache until then, and what it was read for goes on meanwhile.
 */
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "format/journal.h"
#include "format/layout.h"
#include "store/alloc_state.h"
#include "store/journal.h"
#include "store/state.h"
#include "store/super.h"

#define HEAL_BATCH 64u

struct heal {
	struct nvefs_mblk *b; /* stays: only this thread drops blocks with a bad copy */
	uint8_t bad;
	int err;
};

void nvefs_heal_note(struct nvefs_store *st, const struct nvefs_block_expect *want, const struct nvefs_copies *c)
{
	static struct nvefs_ratelimit rl = {.interval_s = 5, .burst = 10};
	int i = c->bad & NVEFS_COPY_FIRST ? 0 : 1;
	uint32_t missed;

	nvefs_stat_add(st, copies_bad, (uint64_t)__builtin_popcount(c->bad));
	if (c->good < 0 || !nvefs_ratelimit_ok(&rl, &missed))
		return;
	nvefs_log(NVEFS_LOG_WARN,
		  "metadata block %llu: the copy at block %llu is bad: %s; the one at block %llu is "
		  "good and is used (%u more such messages)",
		  (unsigned long long)want->pblk, (unsigned long long)nvefs_copies_pblk(want, i),
		  nvefs_copies_text(c, i), (unsigned long long)nvefs_copies_pblk(want, !i), missed);
}

int nvefs_heal_result(struct nvefs_store *st, int err)
{
	if (err == -ETIMEDOUT)
		nvefs_store_fail(st, -EIO, "writing a copy of a metadata block timed out, so that it may still come");
	return err;
}

static uint32_t heal_collect(struct nvefs_store *st, struct heal *h, uint8_t *bufs)
{
	struct nvefs_list *l;
	uint32_t n = 0;

	nvefs_store_rdlock(st);
	nvefs_list_for_each (l, &st->cache.heal) {
		struct nvefs_mblk *b = nvefs_container_of(l, struct nvefs_mblk, heal_link);

		if (n == HEAL_BATCH)
			break;
		if (b->dirty_txn || b->image)
			continue;
		memcpy(bufs + (size_t)n * NVEFS_BLOCK_SIZE, b->data, NVEFS_BLOCK_SIZE);
		h[n++] = (struct heal){.b = b, .bad = b->bad};
	}
	nvefs_store_rdunlock(st);
	return n;
}

static int heal_write(struct nvefs_store *st, struct nvefs_queue *q, const struct heal *h, void *buf)
{
	const struct nvefs_block_expect want = {.pblk = h->b->pblk, .twin = nvefs_block_twin(buf)};

	nvefs_block_seal(buf);
	return nvefs_heal_result(st, nvefs_copies_rewrite(q, &want, buf, h->bad, false));
}

/* Those that failed go as well: whoever reads the block next finds out again. */
static void heal_finish(struct nvefs_store *st, const struct heal *h, uint32_t n)
{
	nvefs_store_wrlock(st);
	for (uint32_t i = 0; i < n; i++)
		nvefs_cache_heal_drop(st, h[i].b);
	nvefs_store_wrunlock(st);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t copies = (uint64_t)__builtin_popcount(h[i].bad);

		if (h[i].err)
			nvefs_stat_add(st, copies_unhealed, copies);
		else
			nvefs_stat_add(st, copies_healed, copies);
	}
}

/* The newest header, in both copies. Nobody else writes them. */
static void header_check(struct nvefs_store *st, struct nvefs_queue *q)
{
	unsigned int slot = st->journal.header_seq % NVEFS_JOURNAL_HEADERS;
	const struct nvefs_block_expect want = {.pblk = nvefs_journal_header_pblk(&st->super, slot),
						.twin = nvefs_journal_header_twin(&st->super, slot),
						.txn = st->journal.tail_txn,
						.uuid = st->super.uuid,
						.type = NVEFS_BT_JHEADER,
						.super = &st->super};
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_copies c = {0};
	int err = buf ? nvefs_copies_read(q, &want, true, buf, &c) : -ENOMEM;

	if (c.bad)
		nvefs_heal_note(st, &want, &c);
	if (c.bad && !err) {
		err = nvefs_heal_result(st, nvefs_copies_rewrite(q, &want, buf, c.bad, st->flush_needed));
		if (err)
			nvefs_stat_add(st, copies_unhealed, 1);
		else
			nvefs_stat_add(st, copies_healed, 1);
	}
	nvefs_buf_free(buf);
}

void nvefs_heal_run(struct nvefs_store *st, struct nvefs_queue *q)
{
	struct heal h[HEAL_BATCH];
	uint8_t *bufs;
	uint32_t n;
	int err = 0;

	if (__atomic_exchange_n(&st->cache.check_header, false, __ATOMIC_RELAXED) && !nvefs_store_error(st))
		header_check(st, q);
	if (!__atomic_load_n(&st->cache.nheal, __ATOMIC_RELAXED) || nvefs_store_error(st))
		return;
	bufs = nvefs_buf_new((size_t)HEAL_BATCH * NVEFS_BLOCK_SIZE);
	if (!bufs)
		return;
	do {
		n = heal_collect(st, h, bufs);
		for (uint32_t i = 0; i < n; i++) {
			h[i].err = heal_write(st, q, &h[i], bufs + (size_t)i * NVEFS_BLOCK_SIZE);
			if (h[i].err)
				err = h[i].err;
		}
		if (n && nvefs_journal_flush(st, q))
			for (uint32_t i = 0; i < n; i++)
				h[i].err = err = -EIO;
		heal_finish(st, h, n);
	} while (n == HEAL_BATCH);
	nvefs_buf_free(bufs);
	if (err)
		nvefs_log(NVEFS_LOG_ERR,
			  "bad copies of metadata blocks could not be written anew: %s: the drive should "
			  "be replaced",
			  strerror(-err));
}

/* ---- What lies at fixed places ---- */

static struct nvefs_block_ref bitmap_ref_locked(struct nvefs_store *st, uint32_t g)
{
	return (struct nvefs_block_ref){.pblk = nvefs_layout_bitmap_pblk(g),
					.twin = nvefs_layout_bitmap_twin(&st->super, g),
					.txn = st->alloc->groups[g].bitmap_txn};
}

/* Group UINT32_MAX: the root block. */
static int fixed_check(struct nvefs_store *st, struct nvefs_queue *q, uint32_t group, struct nvefs_copies *ret)
{
	const struct nvefs_block_ref root = {.pblk = st->super.root_pblk,
					     .twin = nvefs_layout_root_twin(&st->super)};
	struct nvefs_copies_look look;
	int err = -ESTALE;

	for (int tries = 0; tries < 4 && err == -ESTALE; tries++) {
		nvefs_store_rdlock(st);
		if (group == UINT32_MAX)
			nvefs_copies_look(st, root, NVEFS_BT_ROOT, &look);
		else
			nvefs_copies_look(st, bitmap_ref_locked(st, group), NVEFS_BT_BITMAP, &look);
		nvefs_store_rdunlock(st);
		err = nvefs_copies_check(st, q, &look, ret);
	}
	return err == -ESTALE ? 0 : err; /* somebody changes it all the time, and so writes it */
}

int nvefs_store_fixed_check(struct nvefs_store *st, struct nvefs_queue *q,
			    int (*bad)(void *arg, uint64_t pblk, int err), void *arg)
{
	struct nvefs_copies c;
	int err = nvefs_super_heal(st, q);

	if (!err)
		err = fixed_check(st, q, UINT32_MAX, &c);
	if (err && err != -ENOMEM)
		err = bad(arg, st->super.root_pblk, err);
	for (uint32_t g = 0; st->alloc && g < st->super.ngroups && !err; g++) {
		err = fixed_check(st, q, g, &c);
		if (err && err != -ENOMEM)
			err = bad(arg, nvefs_layout_bitmap_pblk(g), err);
	}
	return err;
}

int nvefs_store_heal(struct nvefs_store *st)
{
	if (st->opts.read_only)
		return 0;
	__atomic_store_n(&st->cache.check_header, true, __ATOMIC_RELAXED);
	return nvefs_commit_reclaim(st);
}
