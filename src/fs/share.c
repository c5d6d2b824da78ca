/* SPDX-License-Identifier: MIT */
/*
 * The dedup step of a write. Batches with their buffers are kept per worker in
 * two sizes, so that a small write does not touch a large one's memory.
 */
#include <errno.h>
#include <stdlib.h>

#include "fs/window.h"
#include "fs/write.h"

struct nvefs_share {
	struct nvefs_dedup_batch batch;
	struct nvefs_share *next;
	uint32_t class;
	struct nvefs_dedup_block blks[];
};

static const uint32_t share_blks[NVEFS_SHARE_CLASSES] = {8, NVEFS_CHUNK_BLKS};

static void share_free(struct nvefs_share *s)
{
	nvefs_dedup_batch_done(&s->batch);
	free(s);
}

static struct nvefs_share *share_get(struct nvefs_worker *w, uint32_t nblks)
{
	uint32_t class = nblks > share_blks[0];
	struct nvefs_share *s = w->free_shares[class];

	if (s) {
		w->free_shares[class] = s->next;
		return s;
	}
	s = malloc(sizeof(*s) + share_blks[class] * sizeof(s->blks[0]));
	if (!s)
		return NULL;
	if (nvefs_dedup_batch_init(&s->batch, w->fs->st, w->q, share_blks[class])) {
		free(s);
		return NULL;
	}
	s->class = class;
	return s;
}

void nvefs_share_free_all(struct nvefs_worker *w)
{
	uint32_t c;

	for (c = 0; c < NVEFS_SHARE_CLASSES; c++) {
		while (w->free_shares[c]) {
			struct nvefs_share *s = w->free_shares[c];

			w->free_shares[c] = s->next;
			share_free(s);
		}
	}
}

static void batch_decided(struct nvefs_dedup_batch *b)
{
	struct nvefs_op *op = b->arg;

	nvefs_op_ready(op, op->step);
}

/* Without memory for a batch the blocks are stored as they are: savings lost, nothing else. */
bool nvefs_share_start(struct nvefs_op *op)
{
	struct nvefs_fs *fs = op->w->fs;
	struct nvefs_share *s = share_get(op->w, op->nblks);
	uint32_t i;

	op->share = s;
	if (!s)
		return false;
	for (i = 0; i < op->nblks; i++) {
		s->blks[i].data = nvefs_write_bytes(op, i);
		s->blks[i].fp = nvefs_data_fingerprint(fs, op->csum[i]);
	}
	s->batch.ix = fs->index;
	s->batch.blks = s->blks;
	s->batch.nblks = op->nblks;
	s->batch.done = batch_decided;
	s->batch.arg = op;
	return nvefs_dedup_batch_start(&s->batch);
}

void nvefs_share_finish(struct nvefs_op *op)
{
	struct nvefs_share *s = op->share;
	uint32_t i;

	if (!s)
		return;
	nvefs_dedup_batch_finish(&s->batch);
	for (i = 0; i < op->nblks; i++) {
		if (s->blks[i].verdict == NVEFS_DEDUP_SHARED) {
			op->how[i] = NVEFS_HOW_SHARED;
			op->map[i] = nvefs_went_make(NVEFS_EXT_DATA, s->blks[i].pblk);
		} else if (s->blks[i].verdict == NVEFS_DEDUP_TWIN) {
			op->how[i] = NVEFS_HOW_TWIN;
			op->map[i] = s->blks[i].of;
		}
	}
	op->share = NULL;
	s->next = op->w->free_shares[s->class];
	op->w->free_shares[s->class] = s;
}

void nvefs_data_hint(struct nvefs_fs *fs, uint64_t pblk, uint64_t csum)
{
	if (fs->index)
		nvefs_dedup_index_insert(fs->index, nvefs_data_fingerprint(fs, csum), pblk, false);
}
