/* SPDX-License-Identifier: MIT */
#include "store/spool.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "format/block.h"

int nvefs_spool_init(struct nvefs_spool *s, struct nvefs_queue *q)
{
	int err;

	memset(s, 0, sizeof(*s));
	err = nvefs_iobatch_init(&s->batch, q, 128);
	if (err)
		return err;
	s->buf = nvefs_buf_new((size_t)NVEFS_SPOOL_BLKS * NVEFS_BLOCK_SIZE);
	return s->buf ? 0 : -ENOMEM;
}

void nvefs_spool_done(struct nvefs_spool *s)
{
	nvefs_iobatch_done(&s->batch);
	nvefs_buf_free(s->buf);
	s->buf = NULL;
}

void *nvefs_spool_next(struct nvefs_spool *s, uint64_t pblk)
{
	uint8_t *b;

	if (s->n == NVEFS_SPOOL_BLKS)
		nvefs_spool_write(s);
	b = s->buf + (size_t)s->n * NVEFS_BLOCK_SIZE;
	memset(b, 0, NVEFS_BLOCK_SIZE);
	s->iov[s->n].iov_base = b;
	s->iov[s->n].iov_len = NVEFS_BLOCK_SIZE;
	s->pblk[s->n++] = pblk;
	return b;
}

static uint64_t twin_at(const struct nvefs_spool *s, uint32_t i)
{
	return nvefs_block_twin(s->iov[i].iov_base);
}

int nvefs_spool_write(struct nvefs_spool *s)
{
	int err;

	for (uint32_t i = 0, len; i < s->n && !s->err; i += len) {
		for (len = 0; i + len < s->n && s->pblk[i + len] == s->pblk[i] + len; len++)
			nvefs_block_seal(s->iov[i + len].iov_base);
		nvefs_iobatch_submit(&s->batch, NVEFS_IO_WRITE, s->pblk[i], s->iov + i, len);
	}
	for (uint32_t i = 0, len; i < s->n && !s->err; i += len) {
		for (len = 1; i + len < s->n && twin_at(s, i) && twin_at(s, i + len) == twin_at(s, i) + len; len++)
			;
		if (twin_at(s, i))
			nvefs_iobatch_submit(&s->batch, NVEFS_IO_WRITE, twin_at(s, i), s->iov + i, len);
	}
	err = nvefs_iobatch_wait(&s->batch);
	if (!s->err)
		s->err = err;
	s->n = 0;
	return s->err;
}
