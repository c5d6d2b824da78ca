/* SPDX-License-Identifier: MIT */
/* Steps 6 to 8 of journal.h: committed images go home, then the tail moves. */
#include "store/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "format/block.h"
#include "format/journal.h"
#include "store/iobatch.h"
#include "store/journal.h"
#include "store/state.h"

#define HOME_DEPTH 128u
#define HOME_BLKS 64u /* neighbours in one transfer */

static int home_cmp(const void *a, const void *b)
{
	const struct nvefs_home *x = a, *y = b;

	if (x->pblk != y->pblk)
		return x->pblk < y->pblk ? -1 : 1;
	return x->order > y->order ? -1 : x->order < y->order;
}

uint32_t nvefs_home_sort(struct nvefs_home *h, uint32_t n)
{
	uint32_t kept = 0;

	if (n)
		qsort(h, n, sizeof(*h), home_cmp);
	for (uint32_t i = 0; i < n; i++)
		if (!kept || h[kept - 1].pblk != h[i].pblk)
			h[kept++] = h[i];
	return kept;
}

/* An entry for each second copy as well. */
static uint32_t home_expand(const struct nvefs_store *st, struct nvefs_home *h, uint32_t n)
{
	uint32_t all = n;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t twin = nvefs_block_twin(h[i].image);

		if (twin && twin < st->super.nblks)
			h[all++] = (struct nvefs_home){twin, h[i].order, h[i].image};
	}
	return nvefs_home_sort(h, all);
}

int nvefs_home_write(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_home *h, uint32_t n)
{
	uint32_t all = home_expand(st, h, n);
	struct iovec *iov = calloc(all ? all : 1, sizeof(*iov));
	struct nvefs_iobatch batch = {0};
	int err;

	if (!iov)
		return -ENOMEM;
	err = nvefs_iobatch_init(&batch, q, HOME_DEPTH);
	if (err)
		goto free_iov;
	for (uint32_t i = 0, len; i < all; i += len) {
		for (len = 0; len < HOME_BLKS && i + len < all; len++) {
			if (h[i + len].pblk != h[i].pblk + len)
				break;
			iov[i + len] = (struct iovec){h[i + len].image, NVEFS_BLOCK_SIZE};
		}
		nvefs_iobatch_submit(&batch, NVEFS_IO_WRITE, h[i].pblk, iov + i, len);
	}
	err = nvefs_iobatch_wait(&batch);
	if (!err && !nvefs_mutated(NVEFS_MUTATE_NO_CHECKPOINT_FLUSH))
		err = nvefs_journal_flush(st, q);
	nvefs_iobatch_done(&batch);
free_iov:
	free(iov);
	return err;
}

/*
 * Everything with an image goes home, also what the running transaction has
 * freed: until that is durable the old content counts. What a durable
 * transaction freed has been purged before.
 */
static struct nvefs_home *homes_collect(struct nvefs_store *st, uint32_t *ret_n)
{
	struct nvefs_home *h;
	struct nvefs_list *l;
	uint32_t n = 0;

	nvefs_store_rdlock(st);
	h = calloc(st->cache.nhome ? 2u * (size_t)st->cache.nhome : 1, sizeof(*h));
	if (h) {
		nvefs_list_for_each (l, &st->cache.home) {
			struct nvefs_mblk *b = nvefs_container_of(l, struct nvefs_mblk, home_link);

			assert(b->image_txn <= st->txn_durable);
			h[n++] = (struct nvefs_home){b->pblk, b->image_txn, b->image};
		}
	}
	nvefs_store_rdunlock(st);
	*ret_n = n;
	return h;
}

static void images_drop(struct nvefs_store *st)
{
	struct nvefs_list *l, *tmp;

	nvefs_store_wrlock(st);
	nvefs_list_for_each_safe (l, tmp, &st->cache.home) {
		struct nvefs_mblk *b = nvefs_container_of(l, struct nvefs_mblk, home_link);

		/* Both copies have been written. */
		nvefs_stat_add(st, copies_healed, (uint64_t)__builtin_popcount(b->bad));
		nvefs_cache_heal_drop(st, b);
		nvefs_cache_image_drop(st, b);
	}
	nvefs_cache_shrink(st);
	nvefs_store_wrunlock(st);
}

int nvefs_journal_write_header(struct nvefs_store *st, struct nvefs_queue *q, uint64_t epoch)
{
	struct nvefs_journal *j = &st->journal;
	uint64_t durable = nvefs_txn_durable(st);
	const struct nvefs_jheader h = {.seq = j->header_seq + 1,
					.epoch = epoch,
					.tail_txn = durable + 1,
					.tail_pos = j->head_pos,
					.log_blks = j->log_blks,
					.root_txn = durable};
	unsigned int slot = h.seq % NVEFS_JOURNAL_HEADERS;
	const struct nvefs_block_expect at = {.pblk = nvefs_journal_header_pblk(&st->super, slot),
					      .twin = nvefs_journal_header_twin(&st->super, slot)};
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err;

	if (!buf)
		return -ENOMEM;
	nvefs_jheader_encode(&h, &st->super, slot, buf);
	nvefs_block_seal(buf);
	err = nvefs_copies_rewrite(q, &at, buf, at.twin ? NVEFS_COPY_FIRST | NVEFS_COPY_TWIN : NVEFS_COPY_FIRST,
				   false);
	nvefs_buf_free(buf);
	if (!err && !nvefs_mutated(NVEFS_MUTATE_NO_HEADER_FLUSH))
		err = nvefs_journal_flush(st, q);
	if (err)
		return err;
	j->header_seq = h.seq;
	j->epoch = epoch;
	j->tail_txn = h.tail_txn;
	j->tail_pos = h.tail_pos;
	__atomic_store_n(&j->live_blks, 0, __ATOMIC_RELAXED);
	return 0;
}

static int checkpoint(struct nvefs_store *st, struct nvefs_queue *q)
{
	struct nvefs_home *h;
	uint32_t n;
	int err;

	h = homes_collect(st, &n);
	if (!h)
		return -ENOMEM;
	n = nvefs_home_sort(h, n);
	if (nvefs_mutated(NVEFS_MUTATE_HEADER_FIRST))
		nvefs_journal_write_header(st, q, st->journal.epoch);
	err = nvefs_home_write(st, q, h, n);
	free(h);
	if (err)
		return err;
	images_drop(st);
	nvefs_stat_add(st, checkpoints, 1);
	nvefs_stat_add(st, checkpoint_blks, n);
	return nvefs_journal_write_header(st, q, st->journal.epoch);
}

int nvefs_journal_checkpoint(struct nvefs_store *st, struct nvefs_queue *q)
{
	int err = nvefs_store_error(st) ? -EIO : checkpoint(st, q);

	if (!err)
		return 0;
	nvefs_store_fail(st, err, "writing metadata home failed");
	return -EIO;
}
