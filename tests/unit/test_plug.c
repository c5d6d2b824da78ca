/* SPDX-License-Identifier: MIT */
#include "test_plug.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

static struct plug *plug_of(struct nvefs_dev *dev)
{
	return nvefs_container_of(dev, struct plug, dev);
}

static void plug_close(struct nvefs_dev *dev)
{
	free(plug_of(dev));
}

static int plug_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	struct nvefs_queue *lower;
	int err = nvefs_queue_init(dev->below, q->depth, &lower);

	if (err)
		return err;
	q->priv = lower;
	return nvefs_queue_watch_fd(q, nvefs_queue_fd(lower));
}

static void plug_queue_done(struct nvefs_queue *q)
{
	nvefs_queue_done(q->priv);
}

struct lower {
	struct nvefs_io io, *upper;
	struct nvefs_queue *q;
};

static void lower_done(struct nvefs_io *io)
{
	struct lower *l = nvefs_container_of(io, struct lower, io);

	nvefs_queue_finish(l->q, l->upper, l->io.err);
	free(l);
}

/* True when the command still has power. */
static bool powered(struct plug *p, bool changes)
{
	int64_t left;

	if (!changes)
		return __atomic_load_n(&p->left, __ATOMIC_SEQ_CST) >= 0 || p->fail_one;
	__atomic_fetch_add(&p->count, 1, __ATOMIC_SEQ_CST);
	left = __atomic_sub_fetch(&p->left, 1, __ATOMIC_SEQ_CST);
	return p->fail_one ? left != -1 : left >= 0;
}

static int plug_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct lower *l;

	if (!powered(plug_of(q->dev), io->op != NVEFS_IO_READ)) {
		nvefs_queue_finish_later(q, io, -EIO);
		return 0;
	}
	l = calloc(1, sizeof(*l));
	ck_assert_ptr_nonnull(l);
	l->io = *io;
	l->io.done = lower_done;
	l->upper = io;
	l->q = q;
	nvefs_queue_submit(q->priv, &l->io);
	return 0;
}

static void plug_poll(struct nvefs_queue *q, uint32_t max)
{
	nvefs_queue_poll(q->priv, max);
}

static bool plug_prepare_wait(struct nvefs_queue *q)
{
	return nvefs_queue_prepare_wait(q->priv);
}

static const struct nvefs_backend_ops plug_ops = {
	.name = "plug",
	.close = plug_close,
	.queue_init = plug_queue_init,
	.queue_done = plug_queue_done,
	.submit = plug_submit,
	.poll = plug_poll,
	.prepare_wait = plug_prepare_wait,
};

struct plug *plug_open(struct nvefs_dev *below)
{
	struct plug *p = calloc(1, sizeof(*p));

	ck_assert_ptr_nonnull(p);
	p->left = PLUG_NEVER;
	nvefs_dev_init(&p->dev, &plug_ops, below);
	return p;
}

void plug_pull_after(struct plug *p, int64_t commands)
{
	__atomic_store_n(&p->left, commands, __ATOMIC_SEQ_CST);
}
