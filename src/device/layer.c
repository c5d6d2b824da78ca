/* SPDX-License-Identifier: MIT */
#include "device/layer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/buf.h"

struct layer_queue {
	struct nvefs_queue *lower;
	struct nvefs_list free, timed;
	int timer_fd;
	char *extras;
	struct nvefs_layer_slot slots[];
};

static void slots_init(struct layer_queue *lq, struct nvefs_queue *q, size_t extra_bytes)
{
	nvefs_list_init(&lq->free);
	nvefs_list_init(&lq->timed);
	for (uint32_t i = 0; i < q->depth; i++) {
		struct nvefs_layer_slot *slot = &lq->slots[i];

		slot->q = q;
		slot->extra = lq->extras + i * extra_bytes;
		nvefs_list_push(&lq->free, &slot->link);
	}
}

int nvefs_layer_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q, size_t extra_bytes)
{
	struct layer_queue *lq = calloc(1, sizeof(*lq) + q->depth * sizeof(lq->slots[0]));
	int err = -ENOMEM;

	if (!lq)
		return err;
	lq->extras = calloc(q->depth, extra_bytes ? extra_bytes : 1);
	if (!lq->extras)
		goto free_lq;
	slots_init(lq, q, extra_bytes);
	lq->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (lq->timer_fd < 0) {
		err = -errno;
		goto free_extras;
	}
	err = nvefs_queue_init(dev->below, q->depth, &lq->lower);
	if (err)
		goto close_timer;
	err = nvefs_queue_watch_fd(q, lq->timer_fd);
	if (!err)
		err = nvefs_queue_watch_fd(q, nvefs_queue_fd(lq->lower));
	if (err)
		goto done_lower;
	q->priv = lq;
	return 0;

done_lower:
	nvefs_queue_done(lq->lower);
close_timer:
	close(lq->timer_fd);
free_extras:
	free(lq->extras);
free_lq:
	free(lq);
	return err;
}

void nvefs_layer_queue_done(struct nvefs_queue *q)
{
	struct layer_queue *lq = q->priv;

	nvefs_queue_done(lq->lower);
	close(lq->timer_fd);
	free(lq->extras);
	free(lq);
}

static void lower_done(struct nvefs_io *io)
{
	struct nvefs_layer_slot *slot = io->arg;

	slot->then(slot);
}

struct nvefs_layer_slot *nvefs_layer_slot_get(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct layer_queue *lq = q->priv;
	struct nvefs_list *first = nvefs_list_pop(&lq->free);
	struct nvefs_layer_slot *slot;

	if (!first)
		return NULL;
	slot = nvefs_container_of(first, struct nvefs_layer_slot, link);
	slot->upper = io;
	slot->then = nvefs_layer_finish;
	slot->buf = NULL;
	slot->due_ns = 0;
	slot->when_due = NULL;
	nvefs_layer_slot_restore(slot);
	return slot;
}

void nvefs_layer_slot_restore(struct nvefs_layer_slot *slot)
{
	struct nvefs_io *io = slot->upper;

	if (io->op == NVEFS_IO_RAW)
		slot->lower = *nvefs_raw_from_io(io);
	else
		slot->lower.io = *io;
	slot->lower.io.done = lower_done;
	slot->lower.io.arg = slot;
}

void nvefs_layer_slot_put(struct nvefs_layer_slot *slot)
{
	struct layer_queue *lq = slot->q->priv;

	nvefs_buf_free(slot->buf);
	slot->buf = NULL;
	nvefs_list_push(&lq->free, &slot->link);
}

void nvefs_layer_slot_aim(struct nvefs_layer_slot *slot, uint8_t op, uint64_t off, uint64_t len)
{
	struct nvefs_dev *below = slot->q->dev->below;
	uint32_t lba_bytes = below->limits.lba_bytes;
	struct nvefs_io *io = &slot->lower.io;

	io->op = op;
	io->flags = 0;
	io->niov = 1;
	io->iov = &io->one;
	io->one = (struct iovec){slot->buf, len};
	io->pblk = off >> NVEFS_BLOCK_SHIFT;
	io->nblks = (uint32_t)(len >> NVEFS_BLOCK_SHIFT);
	if (!nvefs_dev_takes_raw(below))
		return;
	io->op = NVEFS_IO_RAW;
	slot->lower.data_bytes = (uint32_t)len;
	nvefs_nvme_sqe_rw(&slot->lower.sqe,
			  op == NVEFS_IO_READ ? NVEFS_NVME_READ : NVEFS_NVME_WRITE,
			  below->identity.nsid, off / lba_bytes, (uint32_t)(len / lba_bytes), 0);
}

void nvefs_layer_send(struct nvefs_layer_slot *slot)
{
	struct layer_queue *lq = slot->q->priv;

	nvefs_queue_submit(lq->lower, &slot->lower.io);
}

struct nvefs_queue *nvefs_layer_lower(struct nvefs_queue *q)
{
	return ((struct layer_queue *)q->priv)->lower;
}

static void finish_now(struct nvefs_layer_slot *slot)
{
	struct nvefs_io *upper = slot->upper;
	struct nvefs_queue *q = slot->q;
	int err = slot->lower.io.err;

	upper->status = slot->lower.io.status;
	if (upper->op == NVEFS_IO_RAW)
		nvefs_raw_from_io(upper)->result = slot->lower.result;
	nvefs_layer_slot_put(slot);
	nvefs_queue_finish(q, upper, err);
}

void nvefs_layer_finish(struct nvefs_layer_slot *slot)
{
	if (slot->due_ns)
		nvefs_layer_hold(slot);
	else
		finish_now(slot);
}

void nvefs_layer_hold(struct nvefs_layer_slot *slot)
{
	struct layer_queue *lq = slot->q->priv;
	struct nvefs_list *at = lq->timed.prev;

	while (at != &lq->timed &&
	       nvefs_container_of(at, struct nvefs_layer_slot, link)->due_ns > slot->due_ns)
		at = at->prev;
	nvefs_list_push_front(at, &slot->link);
}

static struct nvefs_layer_slot *first_timed(struct layer_queue *lq)
{
	if (nvefs_list_empty(&lq->timed))
		return NULL;
	return nvefs_container_of(lq->timed.next, struct nvefs_layer_slot, link);
}

void nvefs_layer_poll(struct nvefs_queue *q, uint32_t max)
{
	struct layer_queue *lq = q->priv;
	struct nvefs_layer_slot *slot;
	uint64_t now;

	nvefs_queue_poll(lq->lower, max);
	if (!first_timed(lq))
		return;
	now = nvefs_now_ns();
	while ((slot = first_timed(lq)) && slot->due_ns <= now) {
		nvefs_list_del(&slot->link);
		if (slot->when_due)
			slot->when_due(slot);
		else
			finish_now(slot);
	}
}

/* Setting the timer also takes back that it had fired. */
static bool timer_arm(struct layer_queue *lq)
{
	struct nvefs_layer_slot *slot = first_timed(lq);
	struct itimerspec when = {0};

	if (slot) {
		if (slot->due_ns <= nvefs_now_ns())
			return false;
		when.it_value.tv_sec = (time_t)(slot->due_ns / 1000000000u);
		when.it_value.tv_nsec = (long)(slot->due_ns % 1000000000u);
	}
	return !timerfd_settime(lq->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

bool nvefs_layer_prepare_wait(struct nvefs_queue *q)
{
	struct layer_queue *lq = q->priv;

	return nvefs_queue_prepare_wait(lq->lower) && timer_arm(lq);
}
