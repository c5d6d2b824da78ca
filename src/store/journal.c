/* SPDX-License-Identifier: MIT */
/* The commit of one group: steps 2 to 5 of journal.h. */
#include "store/journal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/hash.h"
#include "format/block.h"
#include "format/journal.h"
#include "store/iobatch.h"
#include "store/mmp.h"
#include "store/state.h"

#define WRITE_BLKS 256u /* log blocks in one transfer */
#define WRITE_DEPTH 64u

struct group {
	uint64_t txn;
	uint32_t nimages, cap; /* buffers filled; buffers there are */
	void **images;
	uint64_t *homes;
	uint32_t ndescs;
	uint8_t *descs;
	struct iovec *iov; /* descriptors and images as they lie in the log */
	uint32_t nblks;
};

static void group_done(struct group *g)
{
	/* Images that were filled belong to their blocks by now. */
	for (uint32_t i = g->nimages; i < g->cap; i++)
		nvefs_buf_free(g->images[i]);
	free(g->images);
	free(g->homes);
	nvefs_buf_free(g->descs);
	free(g->iov);
}

/* Image buffers are had before the freeze, so that it only copies. */
static int group_grow(struct group *g, uint32_t cap)
{
	void **images = realloc(g->images, cap * sizeof(*images));
	uint64_t *homes;

	if (!images)
		return -ENOMEM;
	g->images = images;
	homes = realloc(g->homes, cap * sizeof(*homes));
	if (!homes)
		return -ENOMEM;
	g->homes = homes;
	while (g->cap < cap) {
		images[g->cap] = nvefs_buf_new(NVEFS_BLOCK_SIZE);
		if (!images[g->cap])
			return -ENOMEM;
		g->cap++;
	}
	return 0;
}

static bool something_changed(const struct nvefs_store *st)
{
	return st->cache.ndirty || memcmp(&st->root, &st->root_saved, sizeof(st->root)) != 0;
}

static void group_take(struct nvefs_store *st, struct group *g, struct nvefs_mblk *b)
{
	void *image = g->images[g->nimages];

	memcpy(image, b->data, NVEFS_BLOCK_SIZE);
	g->homes[g->nimages++] = b->pblk;
	b->dirty_txn = 0;
	nvefs_cache_image_set(st, b, image, g->txn);
}

/* Under the meta lock for writing. */
static void freeze_locked(struct nvefs_store *st, struct group *g)
{
	struct nvefs_list *l;

	g->txn = st->txn_running;
	while ((l = nvefs_list_pop(&st->cache.dirty)))
		group_take(st, g, nvefs_container_of(l, struct nvefs_mblk, dirty_link));
	st->cache.ndirty = 0;
	st->root.written_s = (uint64_t)time(NULL);
	nvefs_root_encode(&st->root, &st->super, g->txn, st->root_blk->data);
	group_take(st, g, st->root_blk);
	memcpy(&st->root_saved, &st->root, sizeof(st->root));
	__atomic_store_n(&st->txn_running, g->txn + 1, __ATOMIC_RELEASE);
}

/* 0; *ret_any: false when there is nothing to commit. */
static int freeze(struct nvefs_store *st, struct group *g, bool *ret_any)
{
	uint32_t want = 64;
	int err;

	for (;;) {
		nvefs_store_wrlock(st);
		assert(!st->in_txn);
		*ret_any = something_changed(st);
		if (!*ret_any || st->cache.ndirty + 1 <= g->cap)
			break;
		if (want < st->cache.ndirty + st->cache.ndirty / 8 + 1)
			want = st->cache.ndirty + st->cache.ndirty / 8 + 1;
		nvefs_store_wrunlock(st);
		err = group_grow(g, want);
		if (err)
			return err;
	}
	if (*ret_any)
		freeze_locked(st, g);
	nvefs_store_wrunlock(st);

	nvefs_mutex_lock(&st->commit.lock);
	nvefs_cond_broadcast(&st->commit.change);
	nvefs_mutex_unlock(&st->commit.lock);
	return 0;
}

static uint32_t log_pos(const struct nvefs_journal *j, uint32_t from, uint32_t n)
{
	return (uint32_t)(((uint64_t)from + n) % j->log_blks);
}

/* Descriptors, checksums, and the order in the log. */
static int group_lay_out(struct nvefs_store *st, struct group *g)
{
	const struct nvefs_journal *j = &st->journal;
	uint8_t *desc = NULL;

	g->ndescs = (g->nimages + NVEFS_JDESC_MAX - 1) / NVEFS_JDESC_MAX;
	g->descs = nvefs_buf_new((size_t)g->ndescs * NVEFS_BLOCK_SIZE);
	g->iov = calloc(g->ndescs + g->nimages, sizeof(*g->iov));
	if (!g->descs || !g->iov)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->nimages; i++) {
		if (i % NVEFS_JDESC_MAX == 0) {
			uint32_t index = i / NVEFS_JDESC_MAX;

			desc = g->descs + (size_t)index * NVEFS_BLOCK_SIZE;
			nvefs_jdesc_init(desc, &st->super, log_pos(j, j->head_pos, g->nblks), g->txn,
					 j->epoch, index);
			g->iov[g->nblks++] = (struct iovec){desc, NVEFS_BLOCK_SIZE};
		}
		nvefs_jdesc_add(desc, g->homes[i]);
		nvefs_block_seal(g->images[i]);
		g->iov[g->nblks++] = (struct iovec){g->images[i], NVEFS_BLOCK_SIZE};
	}
	for (uint32_t i = 0; i < g->ndescs; i++)
		nvefs_block_seal(g->descs + (size_t)i * NVEFS_BLOCK_SIZE);
	return 0;
}

static int group_checksum(const struct nvefs_journal *j, const struct group *g, uint64_t *ret_sum)
{
	struct nvefs_hash_stream s;
	int err = nvefs_hash_stream_init(&s, j->epoch);

	if (err)
		return err;
	for (uint32_t i = 0; i < g->nblks; i++)
		nvefs_hash_stream_feed(&s, g->iov[i].iov_base, NVEFS_BLOCK_SIZE);
	*ret_sum = nvefs_hash_stream_value(&s);
	nvefs_hash_stream_done(&s);
	return 0;
}

/* Step 3. The checksum is made while the device writes. */
static int group_write(struct nvefs_store *st, struct nvefs_queue *q, struct group *g,
		       uint64_t *ret_sum)
{
	const struct nvefs_journal *j = &st->journal;
	struct nvefs_iobatch batch;
	int sum_err, err = nvefs_iobatch_init(&batch, q, WRITE_DEPTH);

	if (err)
		return err;
	for (uint32_t i = 0, n; i < g->nblks; i += n) {
		uint32_t pos = log_pos(j, j->head_pos, i);

		n = g->nblks - i < WRITE_BLKS ? g->nblks - i : WRITE_BLKS;
		if (n > j->log_blks - pos)
			n = j->log_blks - pos;
		nvefs_iobatch_submit(&batch, NVEFS_IO_WRITE, j->log_pblk + pos, g->iov + i, n);
	}
	sum_err = group_checksum(j, g, ret_sum);
	err = nvefs_iobatch_wait(&batch);
	nvefs_iobatch_done(&batch);
	return err ? err : sum_err;
}

int nvefs_journal_flush(struct nvefs_store *st, struct nvefs_queue *q)
{
	return st->flush_needed ? nvefs_queue_flush(q) : 0;
}

/* Step 5. */
static int commit_block_write(struct nvefs_store *st, struct nvefs_queue *q, const struct group *g,
			      uint64_t sum)
{
	const struct nvefs_journal *j = &st->journal;
	const struct nvefs_jcommit c = {.txn = g->txn,
					.epoch = j->epoch,
					.nblks = g->nblks,
					.nimages = g->nimages,
					.group_checksum = sum};
	uint32_t pos = log_pos(j, j->head_pos, g->nblks);
	bool fua = st->fua_commit && st->flush_needed;
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err;

	if (!buf)
		return -ENOMEM;
	nvefs_jcommit_encode(&c, &st->super, pos, buf);
	nvefs_block_seal(buf);
	if (nvefs_mutated(NVEFS_MUTATE_NO_COMMIT_DURABLE))
		fua = false;
	err = nvefs_queue_write(q, j->log_pblk + pos, 1, buf, fua ? NVEFS_IO_FUA : 0);
	nvefs_buf_free(buf);
	if (!err && !fua && !nvefs_mutated(NVEFS_MUTATE_NO_COMMIT_DURABLE))
		err = nvefs_journal_flush(st, q);
	return err;
}

static int group_commit(struct nvefs_store *st, struct nvefs_queue *q, struct group *g)
{
	struct nvefs_journal *j = &st->journal;
	uint64_t sum;
	int err = group_lay_out(st, g);

	if (err)
		return err;
	assert(j->live_blks + g->nblks + 1 <= j->log_blks);
	if (nvefs_mutated(NVEFS_MUTATE_COMMIT_FIRST) && !group_checksum(j, g, &sum))
		commit_block_write(st, q, g, sum);
	err = group_write(st, q, g, &sum);
	if (!err && !nvefs_mutated(NVEFS_MUTATE_NO_COMMIT_FLUSH))
		err = nvefs_journal_flush(st, q);
	if (!err)
		err = commit_block_write(st, q, g, sum);
	if (!err)
		err = nvefs_mmp_confirm(st->opts.mmp);
	if (err)
		return err;
	j->head_pos = log_pos(j, j->head_pos, g->nblks + 1);
	__atomic_fetch_add(&j->live_blks, g->nblks + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&st->txn_durable, g->txn, __ATOMIC_RELEASE);
	nvefs_stat_add(st, commits, 1);
	nvefs_stat_add(st, commit_blks, g->nblks + 1);
	return 0;
}

int nvefs_journal_commit(struct nvefs_store *st, struct nvefs_queue *q, bool *ret_wrote)
{
	struct group g = {0};
	int err;

	*ret_wrote = false;
	if (nvefs_store_error(st))
		return -EIO;
	err = freeze(st, &g, ret_wrote);
	if (!err && *ret_wrote)
		err = group_commit(st, q, &g);
	group_done(&g);
	if (!err)
		return 0;
	nvefs_store_fail(st, err, "commit failed");
	return -EIO;
}
