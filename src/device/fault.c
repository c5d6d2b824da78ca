/* SPDX-License-Identifier: MIT */
#include "device/fault.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "device/cow.h"
#include "device/layer.h"
#include "nvme/status.h"

#define MAX_RULES 32u

struct rule {
	struct nvefs_fault fault;
	uint64_t seen;
};

struct fault_dev {
	struct nvefs_dev dev;
	struct nvefs_mutex lock; /* below */
	struct rule rules[MAX_RULES];
	uint32_t nrules;
	uint64_t hits;
	uint64_t ncmds; /* that came to the device */
	struct nvefs_list stragglers;
	struct nvefs_cow *past; /* what blocks held before they were last written; NULL: not kept */
};

/* A command that was said to have timed out and is still to be carried out. */
struct straggler {
	struct nvefs_list link; /* by the device's lock */
	uint64_t due;		/* in ncmds */
	struct nvefs_raw_io io;
	void *data;
	struct nvefs_layer_slot *before; /* what is sent when it has landed */
};

/* What a slot keeps while its command is on its way. */
struct hit {
	struct nvefs_fault fault;
	struct nvefs_io_view view;
};

static struct fault_dev *fault_from(struct nvefs_dev *dev)
{
	return nvefs_container_of(dev, struct fault_dev, dev);
}

static uint64_t draw(uint64_t seed, uint64_t n)
{
	return nvefs_hash(&n, sizeof(n), seed);
}

static bool touches(const struct nvefs_fault *f, const struct nvefs_io_view *view)
{
	if (f->op != NVEFS_FAULT_ANY && f->op != view->op)
		return false;
	if (!f->end_pblk)
		return true;
	return view->len && view->off < f->end_pblk << NVEFS_BLOCK_SHIFT &&
	       view->off + view->len > f->first_pblk << NVEFS_BLOCK_SHIFT;
}

/* Rules for data only hit commands that have it. */
static bool applies(const struct nvefs_fault *f, const struct nvefs_io_view *view)
{
	switch (f->action) {
	case NVEFS_FAULT_TEAR:
	case NVEFS_FAULT_MISDIRECT:
		return view->op == NVEFS_IO_WRITE;
	case NVEFS_FAULT_FLIP:
	case NVEFS_FAULT_STALE:
		return view->op == NVEFS_IO_READ;
	default:
		return true;
	}
}

/* True when a rule hits; every rule that the command belongs to counts it. */
static bool judge(struct fault_dev *fd, const struct nvefs_io_view *view, struct nvefs_fault *ret)
{
	bool hit = false;

	nvefs_mutex_lock(&fd->lock);
	for (uint32_t i = 0; i < fd->nrules; i++) {
		struct rule *r = &fd->rules[i];
		uint64_t nth = r->fault.nth ? r->fault.nth : 1, past;

		if (!touches(&r->fault, view) || !applies(&r->fault, view))
			continue;
		if (++r->seen < nth || hit)
			continue;
		past = r->seen - nth;
		if (past && (!r->fault.every || past % r->fault.every))
			continue;
		*ret = r->fault;
		/* A different choice each time, the same in each run. */
		if (ret->seed)
			ret->seed = draw(ret->seed, r->seen) | 1;
		hit = true;
		fd->hits++;
	}
	nvefs_mutex_unlock(&fd->lock);
	return hit;
}

static int set_failure(struct nvefs_io *io, const struct nvefs_fault *f)
{
	if (f->status)
		return nvefs_io_set_nvme_status(io, f->status);
	io->status.kind = f->err ? NVEFS_STATUS_HOST : NVEFS_STATUS_NVME;
	io->status.host_errno = f->err;
	io->status.nvme = 0;
	return f->err;
}

static void then_fail(struct nvefs_layer_slot *slot)
{
	struct hit *hit = slot->extra;

	slot->lower.io.err = set_failure(&slot->lower.io, &hit->fault);
	nvefs_layer_finish(slot);
}

static void then_delay(struct nvefs_layer_slot *slot)
{
	const struct nvefs_fault *f = &((struct hit *)slot->extra)->fault;
	uint64_t ns = f->seed ? draw(f->seed, 0) % (f->delay_ns + 1) : f->delay_ns;

	slot->due_ns = nvefs_now_ns() + ns;
	nvefs_layer_finish(slot);
}

static void when_late(struct nvefs_layer_slot *slot)
{
	slot->when_due = NULL;
	slot->due_ns = 0;
	slot->then = nvefs_layer_finish;
	nvefs_layer_send(slot);
}

static void start_late(struct nvefs_layer_slot *slot)
{
	const struct nvefs_fault *f = &((struct hit *)slot->extra)->fault;

	slot->due_ns = nvefs_now_ns() + f->delay_ns;
	slot->when_due = when_late;
	nvefs_layer_hold(slot);
}

/* The blocks of the read that were written, each as it was before. */
static void then_stale(struct nvefs_layer_slot *slot)
{
	const struct fault_dev *fd = fault_from(slot->q->dev);
	struct hit *hit = slot->extra;
	struct nvefs_io *io = &slot->lower.io;
	uint64_t off = hit->view.off;

	for (uint32_t i = 0; !io->err && i < io->niov; i++) {
		uint8_t *mem = io->iov[i].iov_base;
		size_t left = io->iov[i].iov_len;

		while (left) {
			size_t at = off % NVEFS_BLOCK_SIZE, n = NVEFS_BLOCK_SIZE - at;
			uint64_t pblk = off >> NVEFS_BLOCK_SHIFT;

			if (n > left)
				n = left;
			if (nvefs_cow_holds(fd->past, pblk))
				memcpy(mem, nvefs_cow_block(fd->past, pblk) + at, n);
			mem += n;
			left -= n;
			off += n;
		}
	}
	nvefs_layer_finish(slot);
}

/* slot->buf holds what the blocks have now: keep it, then write. Parts of blocks are not kept. */
static void then_keep(struct nvefs_layer_slot *slot)
{
	struct fault_dev *fd = fault_from(slot->q->dev);
	struct hit *hit = slot->extra;
	uint64_t off;

	for (off = 0; !slot->lower.io.err && off + NVEFS_BLOCK_SIZE <= hit->view.len;
	     off += NVEFS_BLOCK_SIZE)
		if ((hit->view.off + off) % NVEFS_BLOCK_SIZE == 0)
			nvefs_cow_write(fd->past, hit->view.off + off, NVEFS_BLOCK_SIZE,
					(uint8_t *)slot->buf + off, 0);
	nvefs_layer_slot_restore(slot);
	slot->then = nvefs_layer_finish;
	nvefs_layer_send(slot);
}

static void then_flip(struct nvefs_layer_slot *slot)
{
	struct hit *hit = slot->extra;
	const struct nvefs_io *io = &slot->lower.io;
	uint64_t bit;

	if (!io->err && hit->view.len) {
		bit = draw(hit->fault.seed, 1) % (hit->view.len * 8);
		for (uint32_t i = 0; i < io->niov; i++) {
			if (bit < io->iov[i].iov_len * 8) {
				((uint8_t *)io->iov[i].iov_base)[bit / 8] ^=
				    (uint8_t)(1u << bit % 8);
				break;
			}
			bit -= io->iov[i].iov_len * 8;
		}
	}
	nvefs_layer_finish(slot);
}

/* slot->buf holds the medium's old data: put the LBAs that are written over it, and write all. */
static void then_write_torn(struct nvefs_layer_slot *slot)
{
	struct hit *hit = slot->extra;
	const struct nvefs_io *upper = slot->upper;
	uint32_t lba_bytes = slot->q->dev->limits.lba_bytes, piece = 0;
	bool written = false;
	size_t at = 0;

	if (slot->lower.io.err) {
		nvefs_layer_finish(slot);
		return;
	}
	for (uint64_t off = 0; off < hit->view.len; off++) {
		const uint8_t *from;

		while (at == upper->iov[piece].iov_len) {
			piece++;
			at = 0;
		}
		from = (const uint8_t *)upper->iov[piece].iov_base + at++;
		if (off % lba_bytes == 0)
			written = draw(hit->fault.seed, off / lba_bytes) & 1;
		if (written)
			((uint8_t *)slot->buf)[off] = *from;
	}
	nvefs_layer_slot_aim(slot, NVEFS_IO_WRITE, hit->view.off, hit->view.len);
	slot->then = then_fail;
	nvefs_layer_send(slot);
}

/* The medium's old data first. */
static int start_read(struct nvefs_layer_slot *slot, void (*then)(struct nvefs_layer_slot *slot))
{
	struct hit *hit = slot->extra;

	slot->buf = nvefs_buf_new(hit->view.len);
	if (!slot->buf)
		return -ENOMEM;
	nvefs_layer_slot_aim(slot, NVEFS_IO_READ, hit->view.off, hit->view.len);
	slot->then = then;
	return 0;
}

static void misdirect(struct nvefs_layer_slot *slot)
{
	struct hit *hit = slot->extra;
	const struct nvefs_dev_limits *l = &slot->q->dev->limits;
	uint64_t size = l->nblks << NVEFS_BLOCK_SHIFT;
	uint64_t off = (hit->view.off + (hit->fault.distance_blks << NVEFS_BLOCK_SHIFT)) % size;
	struct nvefs_io *io = &slot->lower.io;

	if (off + hit->view.len > size)
		off = size - hit->view.len;
	io->pblk = off >> NVEFS_BLOCK_SHIFT;
	if (io->op == NVEFS_IO_RAW) {
		slot->lower.sqe.cdw10 = le32_make((uint32_t)(off / l->lba_bytes));
		slot->lower.sqe.cdw11 = le32_make((uint32_t)(off / l->lba_bytes >> 32));
	}
}

/* True when the command is not to be sent: lower.io.err and status say how it ends. */
static bool prepare(struct nvefs_layer_slot *slot)
{
	struct hit *hit = slot->extra;
	struct nvefs_io *io = &slot->lower.io;

	switch (hit->fault.action) {
	case NVEFS_FAULT_FAIL:
		io->err = set_failure(io, &hit->fault);
		return true;
	case NVEFS_FAULT_DROP:
		io->err = set_failure(io, &(struct nvefs_fault){0});
		return true;
	case NVEFS_FAULT_FAIL_AFTER:
		slot->then = then_fail;
		return false;
	case NVEFS_FAULT_DELAY:
		slot->then = then_delay;
		return false;
	case NVEFS_FAULT_FLIP:
		slot->then = then_flip;
		return false;
	case NVEFS_FAULT_TEAR:
		io->err = start_read(slot, then_write_torn);
		return io->err;
	case NVEFS_FAULT_STALE:
		slot->then = then_stale;
		return false;
	default:
		misdirect(slot);
		return false;
	}
}

/* ---- Commands that come late ---- */

static void go(struct nvefs_layer_slot *slot);

static bool is_change(const struct nvefs_layer_slot *slot)
{
	uint8_t op = ((struct hit *)slot->extra)->view.op;

	return op == NVEFS_IO_WRITE || op == NVEFS_IO_DISCARD || op == NVEFS_IO_WRITE_ZEROES;
}

/* In one piece of memory, since the caller's is his again from now on. */
static int copy_data(struct nvefs_io *io, void **ret_data)
{
	size_t len = 0, at = 0;
	uint8_t *data;

	for (uint32_t i = 0; i < io->niov; i++)
		len += io->iov[i].iov_len;
	if (!len)
		return 0;
	data = nvefs_buf_new(len);
	if (!data)
		return -ENOMEM;
	for (uint32_t i = 0; i < io->niov; at += io->iov[i++].iov_len)
		memcpy(data + at, io->iov[i].iov_base, io->iov[i].iov_len);
	io->one = (struct iovec){data, len};
	io->iov = &io->one;
	io->niov = 1;
	*ret_data = data;
	return 0;
}

static int straggler_add(struct nvefs_layer_slot *slot)
{
	struct fault_dev *fd = fault_from(slot->q->dev);
	const struct nvefs_fault *f = &((struct hit *)slot->extra)->fault;
	struct straggler *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->io = slot->lower;
	if (copy_data(&s->io.io, &s->data)) {
		free(s);
		return -ENOMEM;
	}
	nvefs_mutex_lock(&fd->lock);
	s->due = f->late_cmds ? fd->ncmds + f->late_cmds : UINT64_MAX;
	nvefs_list_push(&fd->stragglers, &s->link);
	nvefs_mutex_unlock(&fd->lock);
	return 0;
}

static void time_out(struct nvefs_layer_slot *slot)
{
	struct nvefs_queue *q = slot->q;
	struct nvefs_io *io = slot->upper;
	int err = is_change(slot) ? straggler_add(slot) : 0;

	if (!err)
		err = -ETIMEDOUT;
	io->status.kind = NVEFS_STATUS_HOST;
	io->status.host_errno = err;
	nvefs_layer_slot_put(slot);
	nvefs_queue_finish_later(q, io, err);
}

/* One that is due, or with `end` any. */
static struct straggler *straggler_take(struct fault_dev *fd, bool end)
{
	struct straggler *found = NULL;
	struct nvefs_list *pos;

	nvefs_mutex_lock(&fd->lock);
	nvefs_list_for_each(pos, &fd->stragglers) {
		struct straggler *s = nvefs_container_of(pos, struct straggler, link);

		if (end || s->due <= fd->ncmds) {
			found = s;
			nvefs_list_del(&s->link);
			break;
		}
	}
	nvefs_mutex_unlock(&fd->lock);
	return found;
}

static void straggler_free(struct straggler *s)
{
	nvefs_buf_free(s->data);
	free(s);
}

static void straggler_landed(struct nvefs_io *io)
{
	struct straggler *s = io->arg;
	struct nvefs_layer_slot *slot = s->before;

	straggler_free(s);
	go(slot);
}

/* Before the device is closed. */
static void stragglers_land(struct fault_dev *fd)
{
	struct nvefs_queue *q = NULL;
	struct straggler *s;

	while ((s = straggler_take(fd, true))) {
		if (q || !nvefs_queue_init(fd->dev.below, 0, &q))
			nvefs_queue_run(q, &s->io.io);
		straggler_free(s);
	}
	nvefs_queue_done(q);
}

static void start(struct nvefs_layer_slot *slot)
{
	struct nvefs_queue *q = slot->q;
	struct fault_dev *fd = fault_from(q->dev);
	struct nvefs_io *io = slot->upper;
	struct hit *hit = slot->extra;
	int err;

	nvefs_io_view(q->dev, io, &hit->view);
	if (!judge(fd, &hit->view, &hit->fault)) {
		if (fd->past && hit->view.op == NVEFS_IO_WRITE)
			start_read(slot, then_keep);
		nvefs_layer_send(slot);
		return;
	}
	if (hit->fault.action == NVEFS_FAULT_LATE) {
		start_late(slot);
		return;
	}
	if (hit->fault.action == NVEFS_FAULT_TIMEOUT) {
		time_out(slot);
		return;
	}
	if (!prepare(slot)) {
		nvefs_layer_send(slot);
		return;
	}
	err = slot->lower.io.err;
	io->status = slot->lower.io.status;
	nvefs_layer_slot_put(slot);
	nvefs_queue_finish_later(q, io, err);
}

/* Those that are due land first, one after the other: none is in flight without a command that waits for it. */
static void go(struct nvefs_layer_slot *slot)
{
	struct straggler *s = straggler_take(fault_from(slot->q->dev), false);

	if (!s) {
		start(slot);
		return;
	}
	s->before = slot;
	s->io.io.done = straggler_landed;
	s->io.io.arg = s;
	nvefs_queue_submit(nvefs_layer_lower(slot->q), &s->io.io);
}

static int fault_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct nvefs_layer_slot *slot = nvefs_layer_slot_get(q, io);
	struct fault_dev *fd = fault_from(q->dev);

	if (!slot)
		return -EAGAIN;
	nvefs_mutex_lock(&fd->lock);
	fd->ncmds++;
	nvefs_mutex_unlock(&fd->lock);
	go(slot);
	return 0;
}

static int fault_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	return nvefs_layer_queue_init(dev, q, sizeof(struct hit));
}

static void fault_close(struct nvefs_dev *dev)
{
	struct fault_dev *fd = fault_from(dev);

	stragglers_land(fd);
	nvefs_mutex_done(&fd->lock);
	nvefs_cow_free(fd->past);
	free(fd);
}

static const struct nvefs_backend_ops ops_block = {
    .name = "faults",
    .close = fault_close,
    .queue_init = fault_queue_init,
    .queue_done = nvefs_layer_queue_done,
    .submit = fault_submit,
    .poll = nvefs_layer_poll,
    .prepare_wait = nvefs_layer_prepare_wait,
};
static const struct nvefs_backend_ops ops_raw = {
    .name = "faults",
    .raw = true,
    .close = fault_close,
    .queue_init = fault_queue_init,
    .queue_done = nvefs_layer_queue_done,
    .submit = fault_submit,
    .poll = nvefs_layer_poll,
    .prepare_wait = nvefs_layer_prepare_wait,
};

/* A rule that needs it begins to keep what is overwritten. */
static int keep_past(struct fault_dev *fd, const struct nvefs_fault *fault)
{
	struct nvefs_cow *past;

	if (fault->action != NVEFS_FAULT_STALE || fd->past)
		return 0;
	past = nvefs_cow_new(NULL, fd->dev.limits.nblks);
	if (!past)
		return -ENOMEM;
	__atomic_store_n(&fd->past, past, __ATOMIC_RELEASE);
	return 0;
}

int nvefs_fault_add(struct nvefs_dev *dev, const struct nvefs_fault *fault)
{
	struct fault_dev *fd = fault_from(dev);
	int err = 0;

	assert(dev->ops == &ops_raw || dev->ops == &ops_block);
	nvefs_mutex_lock(&fd->lock);
	if (fd->nrules == MAX_RULES)
		err = -ENOSPC;
	else
		err = keep_past(fd, fault);
	if (!err)
		fd->rules[fd->nrules++] = (struct rule){.fault = *fault};
	nvefs_mutex_unlock(&fd->lock);
	return err;
}

void nvefs_fault_clear(struct nvefs_dev *dev)
{
	struct fault_dev *fd = fault_from(dev);

	assert(dev->ops == &ops_raw || dev->ops == &ops_block);
	nvefs_mutex_lock(&fd->lock);
	fd->nrules = 0;
	nvefs_mutex_unlock(&fd->lock);
}

uint64_t nvefs_fault_hits(struct nvefs_dev *dev)
{
	struct fault_dev *fd = fault_from(dev);
	uint64_t hits;

	assert(dev->ops == &ops_raw || dev->ops == &ops_block);
	nvefs_mutex_lock(&fd->lock);
	hits = fd->hits;
	nvefs_mutex_unlock(&fd->lock);
	return hits;
}

int nvefs_fault_wrap(struct nvefs_dev *below, const struct nvefs_fault *faults, size_t nfaults,
		     struct nvefs_dev **ret_dev)
{
	struct fault_dev *fd;

	if (nfaults > MAX_RULES)
		return -ENOSPC;
	fd = calloc(1, sizeof(*fd));
	if (!fd)
		return -ENOMEM;
	nvefs_dev_init(&fd->dev, nvefs_dev_takes_raw(below) ? &ops_raw : &ops_block, below);
	nvefs_mutex_init(&fd->lock);
	nvefs_list_init(&fd->stragglers);
	for (size_t i = 0; i < nfaults; i++) {
		if (keep_past(fd, &faults[i])) {
			nvefs_dev_done(&fd->dev);
			fault_close(&fd->dev);
			return -ENOMEM;
		}
		fd->rules[fd->nrules++].fault = faults[i];
	}
	*ret_dev = &fd->dev;
	return 0;
}

int nvefs_delay_wrap(struct nvefs_dev *below, uint64_t delay_ns, uint64_t seed,
		     struct nvefs_dev **ret_dev)
{
	const struct nvefs_fault delay = {.op = NVEFS_FAULT_ANY,
					  .action = NVEFS_FAULT_DELAY,
					  .every = 1,
					  .delay_ns = delay_ns,
					  .seed = seed};

	return nvefs_fault_wrap(below, &delay, 1, ret_dev);
}
