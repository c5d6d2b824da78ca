/* SPDX-License-Identifier: MIT */
#include "store/iobatch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct nvefs_iobatch_slot {
	struct nvefs_io io;
	struct nvefs_iobatch *batch;
	struct nvefs_iobatch_slot *next;
};

int nvefs_iobatch_init(struct nvefs_iobatch *b, struct nvefs_queue *q, uint32_t depth)
{
	memset(b, 0, sizeof(*b));
	b->q = q;
	b->slots = calloc(depth, sizeof(*b->slots));
	if (!b->slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < depth; i++) {
		b->slots[i].batch = b;
		b->slots[i].next = b->idle;
		b->idle = &b->slots[i];
	}
	return 0;
}

void nvefs_iobatch_done(struct nvefs_iobatch *b)
{
	if (b->slots)
		nvefs_iobatch_wait(b);
	free(b->slots);
	b->slots = NULL;
}

static void slot_finish(struct nvefs_io *io)
{
	struct nvefs_iobatch_slot *s = io->arg;
	struct nvefs_iobatch *b = s->batch;

	if (io->err && !b->err)
		b->err = io->err;
	s->next = b->idle;
	b->idle = s;
	b->inflight--;
}

static void poll_some(struct nvefs_iobatch *b)
{
	if (!nvefs_queue_poll(b->q, 0))
		nvefs_queue_wait(b->q, UINT64_MAX);
}

void nvefs_iobatch_submit(struct nvefs_iobatch *b, enum nvefs_io_op op, uint64_t pblk, struct iovec *iov,
			  uint32_t niov)
{
	struct nvefs_iobatch_slot *s;

	assert(niov > 0 && niov <= UINT16_MAX);
	while (!b->idle)
		poll_some(b);
	if (b->err)
		return;
	s = b->idle;
	b->idle = s->next;
	b->inflight++;
	memset(&s->io, 0, sizeof(s->io));
	s->io.op = (uint8_t)op;
	s->io.pblk = pblk;
	s->io.nblks = niov;
	s->io.iov = iov;
	s->io.niov = (uint16_t)niov;
	s->io.done = slot_finish;
	s->io.arg = s;
	nvefs_queue_submit(b->q, &s->io);
}

int nvefs_iobatch_wait(struct nvefs_iobatch *b)
{
	int err;

	while (b->inflight)
		poll_some(b);
	err = b->err;
	b->err = 0;
	return err;
}
