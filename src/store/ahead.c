/* SPDX-License-Identifier: MIT */
/*
 * A slot is idle, in flight, or holds a block. One that is dropped while it is
 * in flight has nobody who waits for it (`pblk` 0), and is idle when its read completes.
 *
 * Damage can make several parents point at one block: it is read once, and
 * stays until it has been dropped as often as it was sent for.
 */
#include "store/ahead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct nvefs_ahead_slot {
	struct nvefs_io io;
	struct nvefs_ahead *a;
	uint32_t users;
	bool inflight;
};

int nvefs_ahead_init(struct nvefs_ahead *a, struct nvefs_queue *q, uint64_t nblks)
{
	*a = (struct nvefs_ahead){.q = q, .nblks = nblks, .nidle = NVEFS_AHEAD_BLKS};
	a->slots = calloc(NVEFS_AHEAD_BLKS, sizeof(*a->slots));
	a->bufs = nvefs_buf_new((size_t)NVEFS_AHEAD_BLKS * NVEFS_BLOCK_SIZE);
	if (!a->slots || !a->bufs) {
		nvefs_ahead_done(a);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < NVEFS_AHEAD_BLKS; i++) {
		a->slots[i].a = a;
		a->idle[i] = (uint16_t)i;
	}
	return 0;
}

void nvefs_ahead_done(struct nvefs_ahead *a)
{
	if (a->slots && a->bufs)
		nvefs_ahead_clear(a);
	free(a->slots);
	nvefs_buf_free(a->bufs);
	a->slots = NULL;
	a->bufs = NULL;
}

static void poll_some(struct nvefs_ahead *a)
{
	if (!nvefs_queue_poll(a->q, 0))
		nvefs_queue_wait(a->q, UINT64_MAX);
}

static uint32_t find(const struct nvefs_ahead *a, uint64_t pblk)
{
	uint32_t i = 0;

	while (i < NVEFS_AHEAD_BLKS && a->pblk[i] != pblk)
		i++;
	return i;
}

static void slot_finish(struct nvefs_io *io)
{
	struct nvefs_ahead_slot *s = io->arg;
	struct nvefs_ahead *a = s->a;
	uint32_t i = (uint32_t)(s - a->slots);

	s->inflight = false;
	if (!a->pblk[i])
		a->idle[a->nidle++] = (uint16_t)i;
}

static void slot_start(struct nvefs_ahead *a, uint64_t pblk)
{
	uint32_t i = a->idle[--a->nidle];
	struct nvefs_ahead_slot *s = &a->slots[i];

	a->pblk[i] = pblk;
	s->users = 1;
	s->inflight = true;
	memset(&s->io, 0, sizeof(s->io));
	s->io.op = NVEFS_IO_READ;
	s->io.pblk = pblk;
	s->io.nblks = 1;
	s->io.one = (struct iovec){a->bufs + (size_t)i * NVEFS_BLOCK_SIZE, NVEFS_BLOCK_SIZE};
	s->io.iov = &s->io.one;
	s->io.niov = 1;
	s->io.done = slot_finish;
	s->io.arg = s;
	nvefs_queue_submit(a->q, &s->io);
}

static void send_one(struct nvefs_ahead *a, uint64_t pblk)
{
	uint32_t i;

	if (!pblk || pblk >= a->nblks)
		return;
	i = find(a, pblk);
	if (i < NVEFS_AHEAD_BLKS)
		a->slots[i].users++;
	else
		slot_start(a, pblk);
}

bool nvefs_ahead_send(struct nvefs_ahead *a, struct nvefs_block_ref at)
{
	if (a->nidle < 2)
		return false;
	send_one(a, at.pblk);
	if (a->twins)
		send_one(a, at.twin);
	return true;
}

static void slot_drop(struct nvefs_ahead *a, uint32_t i)
{
	a->pblk[i] = 0;
	if (!a->slots[i].inflight)
		a->idle[a->nidle++] = (uint16_t)i;
}

static void drop_one(struct nvefs_ahead *a, uint64_t pblk)
{
	uint32_t i = pblk ? find(a, pblk) : NVEFS_AHEAD_BLKS;

	if (i < NVEFS_AHEAD_BLKS && !--a->slots[i].users)
		slot_drop(a, i);
}

void nvefs_ahead_drop(struct nvefs_ahead *a, struct nvefs_block_ref at)
{
	drop_one(a, at.pblk);
	if (a->twins)
		drop_one(a, at.twin);
}

void nvefs_ahead_clear(struct nvefs_ahead *a)
{
	for (uint32_t i = 0; i < NVEFS_AHEAD_BLKS; i++)
		if (a->pblk[i])
			slot_drop(a, i);
	while (a->nidle < NVEFS_AHEAD_BLKS)
		poll_some(a);
}

bool nvefs_ahead_get(struct nvefs_ahead *a, uint64_t pblk, void *buf)
{
	uint32_t i = pblk ? find(a, pblk) : NVEFS_AHEAD_BLKS;

	if (i == NVEFS_AHEAD_BLKS)
		return false;
	while (a->slots[i].inflight)
		poll_some(a);
	if (a->slots[i].io.err)
		return false;
	memcpy(buf, a->bufs + (size_t)i * NVEFS_BLOCK_SIZE, NVEFS_BLOCK_SIZE);
	return true;
}
