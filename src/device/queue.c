/* SPDX-License-Identifier: MIT */
/*
 * The front of every queue.
 *
 * An io is in one place at a time: with the back end; in the backlog, in order
 * of submission, because the back end was full or it is being sent in parts; or in the late list,
 * failed before it was sent. `inflight` counts all three. A split io leaves the
 * backlog when its last part is sent and finishes with its last part.
 *
 * The limit in time of writes is looked at where an io is sent, the first time and from
 * the backlog, so that nothing waits between that look and the back end. A queue that
 * has to wait says so in writes_held and then looks at the limit again; whoever moves the
 * limit sets it first and then takes writes_held: one of the two sees the other.
 *
 * Waking: `woken` is set by any thread and consumed by the owner only where it
 * stops to sleep (prepare_wait, wait), never by poll or by a nested synchronous
 * run, so that a wake for the outer loop is not lost in an inner one.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "device/split.h"
#include "device/watch.h"
#include "nvme/status.h"

static void assert_owner(const struct nvefs_queue *q)
{
	assert(pthread_equal(q->owner, pthread_self()));
	(void)q;
}

/* The owner is the only writer; other threads may read at any time. */
static void count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static void count_sent(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct nvefs_io_view view;

	if (io->op != NVEFS_IO_RAW) {
		view.op = io->op;
		view.len = (uint64_t)io->nblks << NVEFS_BLOCK_SHIFT;
		view.fua = io->flags & NVEFS_IO_FUA;
	} else {
		nvefs_io_view(q->dev, io, &view);
		if (view.op == NVEFS_IO_NOPS)
			return;
	}
	count(&q->counters.commands[view.op], 1);
	if (view.op != NVEFS_IO_FLUSH)
		count(&q->counters.bytes[view.op], view.len);
	if (view.fua)
		count(&q->counters.fua, 1);
}

static int fds_open(struct nvefs_queue *q)
{
	q->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->event_fd < 0)
		return -errno;
	q->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (q->epoll_fd < 0)
		return -errno;
	return nvefs_queue_watch_fd(q, q->event_fd);
}

static void fds_close(struct nvefs_queue *q)
{
	if (q->epoll_fd >= 0)
		close(q->epoll_fd);
	if (q->event_fd >= 0)
		close(q->event_fd);
}

int nvefs_queue_watch_fd(struct nvefs_queue *q, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static int dev_add_queue(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	int err = 0;

	nvefs_mutex_lock(&dev->lock);
	if (dev->nqueues == dev->limits.max_queues) {
		err = -EBUSY;
	} else {
		dev->nqueues++;
		nvefs_list_push(&dev->queues, &q->link);
	}
	nvefs_mutex_unlock(&dev->lock);
	return err;
}

static void dev_del_queue(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	struct nvefs_dev_counters *c = &q->counters;

	nvefs_mutex_lock(&dev->lock);
	for (int op = 0; op < NVEFS_IO_NOPS; op++) {
		dev->past.commands[op] += c->commands[op];
		dev->past.bytes[op] += c->bytes[op];
	}
	dev->past.fua += c->fua;
	dev->past.errors += c->errors;
	dev->past.splits += c->splits;
	dev->past.refused += c->refused;
	nvefs_list_del(&q->link);
	dev->nqueues--;
	nvefs_mutex_unlock(&dev->lock);
}

int nvefs_queue_init(struct nvefs_dev *dev, uint32_t depth, struct nvefs_queue **ret_queue)
{
	struct nvefs_queue *q = calloc(1, sizeof(*q));
	int err;

	if (!q)
		return -ENOMEM;
	q->dev = dev;
	q->owner = pthread_self();
	q->event_fd = q->epoll_fd = q->watch.timer_fd = -1;
	q->depth = dev->limits.queue_depth;
	if (depth && depth < q->depth)
		q->depth = depth;
	nvefs_list_init(&q->link);
	err = fds_open(q);
	if (err)
		goto close_fds;
	err = dev_add_queue(dev, q);
	if (err)
		goto close_fds;
	err = dev->ops->queue_init(dev, q);
	if (err)
		goto del_queue;
	err = nvefs_split_pool_init(q);
	if (!err)
		err = nvefs_watch_init(q);
	if (err)
		goto done_backend;
	*ret_queue = q;
	return 0;

done_backend:
	nvefs_watch_done(q);
	nvefs_split_pool_done(q);
	dev->ops->queue_done(q);
del_queue:
	dev_del_queue(dev, q);
close_fds:
	fds_close(q);
	free(q);
	return err;
}

void nvefs_queue_done(struct nvefs_queue *q)
{
	if (!q)
		return;
	assert(!q->inflight && !q->polling);
	q->dev->ops->queue_done(q);
	dev_del_queue(q->dev, q);
	nvefs_split_pool_done(q);
	nvefs_watch_done(q);
	fds_close(q);
	free(q);
}

void nvefs_queue_finish_later(struct nvefs_queue *q, struct nvefs_io *io, int err)
{
	io->err = err;
	nvefs_io_fifo_push(&q->late, io);
}

static bool refused_for_size(const struct nvefs_io *io, int err)
{
	return err == -EMSGSIZE && io->op != NVEFS_IO_RAW && io->nblks > 1;
}

/* To be sent all over again, in parts of half of what was refused. No part is under way. */
static void shrink(struct nvefs_queue *q, struct nvefs_io *io, uint32_t refused_blks)
{
	count(&q->counters.refused, 1);
	io->err = 0;
	memset(&io->status, 0, sizeof(io->status));
	nvefs_split_start(io, refused_blks / 2);
}

/* 0 when nothing of the io is left to send, -EAGAIN when it has to wait its turn. */
static int send_parts(struct nvefs_queue *q, struct nvefs_io *io)
{
	while (!nvefs_split_at_end(io)) {
		int err = 0;
		struct nvefs_split *part;

		if (refused_for_size(io, io->err) && !io->q.left)
			shrink(q, io, io->q.tag);
		if (io->err) {
			nvefs_split_stop(io);
			break;
		}
		part = nvefs_split_next(q, io, &err);
		if (err) {
			io->err = err;
			continue;
		}
		if (!part)
			return -EAGAIN;
		if (q->dev->ops->submit(q, &part->io)) {
			nvefs_split_undo(q, part);
			return -EAGAIN;
		}
		count_sent(q, &part->io);
	}
	if (!io->q.left)
		nvefs_queue_finish_later(q, io, io->err);
	return 0;
}

/* 0: it may be sent; -EAGAIN: not now, and the queue will be woken; -EROFS: never again. */
static int check_limit(struct nvefs_queue *q, const struct nvefs_io *io)
{
	uint64_t until = __atomic_load_n(&q->dev->writes_until, __ATOMIC_RELAXED), seen;

	if (until == NVEFS_WRITES_ALWAYS || q->unlimited ||
	    (io->op != NVEFS_IO_WRITE && io->op != NVEFS_IO_DISCARD &&
	     io->op != NVEFS_IO_WRITE_ZEROES))
		return 0;
	do {
		if (until == NVEFS_WRITES_NEVER)
			return -EROFS;
		if (nvefs_boot_ns() < until)
			return 0;
		seen = until;
		__atomic_store_n(&q->dev->writes_held, true, __ATOMIC_SEQ_CST);
		until = __atomic_load_n(&q->dev->writes_until, __ATOMIC_SEQ_CST);
	} while (until != seen);
	return -EAGAIN;
}

void nvefs_dev_allow_writes(struct nvefs_dev *dev, uint64_t until_ns)
{
	struct nvefs_list *pos;

	__atomic_store_n(&dev->writes_until, until_ns, __ATOMIC_SEQ_CST);
	if (!__atomic_exchange_n(&dev->writes_held, false, __ATOMIC_SEQ_CST))
		return;
	nvefs_mutex_lock(&dev->lock);
	nvefs_list_for_each (pos, &dev->queues)
		nvefs_queue_wake(nvefs_container_of(pos, struct nvefs_queue, link));
	nvefs_mutex_unlock(&dev->lock);
}

void nvefs_queue_set_unlimited(struct nvefs_queue *q)
{
	assert_owner(q);
	q->unlimited = true;
}

static int send(struct nvefs_queue *q, struct nvefs_io *io)
{
	int err = check_limit(q, io);

	if (err == -EAGAIN)
		return err;
	if (err) {
		io->status.kind = NVEFS_STATUS_HOST;
		io->status.host_errno = err;
		io->err = err;
		if (!nvefs_split_needed(q, io)) {
			nvefs_queue_finish_later(q, io, err);
			return 0;
		}
	}
	if (nvefs_split_needed(q, io))
		return send_parts(q, io);
	if (q->dev->ops->submit(q, io))
		return -EAGAIN;
	count_sent(q, io);
	return 0;
}

static void send_backlog(struct nvefs_queue *q)
{
	while (q->backlog.head) {
		struct nvefs_io *io = q->backlog.head;
		struct nvefs_io_fifo rest = {io->q.next, io->q.next ? q->backlog.tail : NULL};

		/* submit may link the io elsewhere, so it leaves the backlog first. */
		q->backlog = rest;
		if (!send(q, io))
			continue;
		io->q.next = rest.head;
		q->backlog.head = io;
		if (!rest.head)
			q->backlog.tail = io;
		return;
	}
}

void nvefs_queue_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	int err;

	assert_owner(q);
	q->inflight++;
	nvefs_watch_add(q, io);
	io->err = 0;
	io->q.parent = NULL;
	io->q.next = NULL;
	memset(&io->status, 0, sizeof(io->status));
	nvefs_split_start(io, 0);
	err = nvefs_split_check(q, io);
	if (err) {
		io->status.kind = NVEFS_STATUS_HOST;
		io->status.host_errno = err;
		nvefs_queue_finish_later(q, io, err);
		return;
	}
	if (nvefs_split_needed(q, io)) {
		count(&q->counters.splits, 1);
	}
	if (q->backlog.head || send(q, io))
		nvefs_io_fifo_push(&q->backlog, io);
}

static void call_back(struct nvefs_queue *q, struct nvefs_io *io)
{
	assert(q->inflight);
	q->inflight--;
	nvefs_watch_del(q, io);
	q->ncallbacks++;
	if (io->err)
		count(&q->counters.errors, 1);
	io->done(io);
}

static void finish_part(struct nvefs_queue *q, struct nvefs_io *part_io, int err)
{
	struct nvefs_split *part = nvefs_container_of(part_io, struct nvefs_split, io);
	struct nvefs_io *io = part_io->q.parent;

	/* The first error, but that one part may still be carried out goes before all others. */
	if (err && (!io->err || (err == -ETIMEDOUT && io->err != -ETIMEDOUT))) {
		io->err = err == -EMSGSIZE && !refused_for_size(part_io, err) ? -EIO : err;
		io->status = part_io->status;
		io->q.tag = part_io->nblks;
	}
	nvefs_split_free(q, part);
	assert(io->q.left);
	if (--io->q.left || !nvefs_split_at_end(io))
		return; /* what is not at its end is in the backlog */
	if (refused_for_size(io, io->err)) {
		shrink(q, io, io->q.tag);
		nvefs_io_fifo_push(&q->backlog, io);
	} else {
		call_back(q, io);
	}
}

void nvefs_queue_finish(struct nvefs_queue *q, struct nvefs_io *io, int err)
{
	assert(q->polling);
	if (io->q.parent) {
		finish_part(q, io, err);
		return;
	}
	if (refused_for_size(io, err)) {
		shrink(q, io, io->nblks);
		nvefs_io_fifo_push(&q->backlog, io);
		return;
	}
	io->err = err;
	call_back(q, io);
}

/* Those that were late before, so that a callback which submits a bad io again cannot hold us. */
static void poll_late(struct nvefs_queue *q)
{
	struct nvefs_io *last = q->late.tail, *io;

	if (!last)
		return;
	do {
		io = nvefs_io_fifo_pop(&q->late);
		if (!io)
			return;
		nvefs_queue_finish(q, io, io->err);
	} while (io != last);
}

uint32_t nvefs_queue_poll(struct nvefs_queue *q, uint32_t max)
{
	uint64_t before = q->ncallbacks;
	uint64_t n;

	assert_owner(q);
	q->polling++;
	poll_late(q);
	n = q->ncallbacks - before;
	if (!max || n < max)
		q->dev->ops->poll(q, max ? max - (uint32_t)n : 0);
	send_backlog(q);
	q->polling--;
	return (uint32_t)(q->ncallbacks - before);
}

uint32_t nvefs_queue_inflight(const struct nvefs_queue *q)
{
	return q->inflight;
}

int nvefs_queue_fd(struct nvefs_queue *q)
{
	return q->epoll_fd;
}

void nvefs_queue_wake(struct nvefs_queue *q)
{
	uint64_t one = 1;
	int saved = errno;

	if (!__atomic_exchange_n(&q->woken, 1, __ATOMIC_ACQ_REL)) {
		ssize_t n = write(q->event_fd, &one, sizeof(one));

		(void)n; /* a full counter is readable, too */
	}
	errno = saved;
}

/* Whether a wake came since the last call; makes the descriptor quiet again. */
static bool wake_take(struct nvefs_queue *q)
{
	uint64_t value;
	ssize_t n;

	if (!__atomic_exchange_n(&q->woken, 0, __ATOMIC_ACQ_REL))
		return false;
	n = read(q->event_fd, &value, sizeof(value));
	(void)n;
	return true;
}

static bool may_sleep(struct nvefs_queue *q)
{
	/* A full ring may have got room meanwhile; that a command waits is no reason to spin. */
	send_backlog(q);
	nvefs_watch_prepare_wait(q);
	return !q->late.head && q->dev->ops->prepare_wait(q);
}

bool nvefs_queue_prepare_wait(struct nvefs_queue *q)
{
	bool woken;

	assert_owner(q);
	woken = wake_take(q) || q->wake_held;
	q->wake_held = false;
	return !woken && may_sleep(q);
}

static void sleep_on_fd(struct nvefs_queue *q, uint64_t timeout_ns)
{
	struct pollfd pfd = {.fd = q->epoll_fd, .events = POLLIN};
	struct timespec ts = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};

	ppoll(&pfd, 1, timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
}

void nvefs_queue_wait(struct nvefs_queue *q, uint64_t timeout_ns)
{
	if (!nvefs_queue_prepare_wait(q))
		return;
	sleep_on_fd(q, timeout_ns);
	wake_take(q);
}

static void run_done(struct nvefs_io *io)
{
	*(bool *)io->arg = true;
}

int nvefs_queue_run(struct nvefs_queue *q, struct nvefs_io *io)
{
	bool finished = false;

	io->done = run_done;
	io->arg = &finished;
	nvefs_queue_submit(q, io);
	for (;;) {
		nvefs_queue_poll(q, 0);
		if (finished)
			return io->err;
		if (wake_take(q))
			q->wake_held = true;
		if (may_sleep(q))
			sleep_on_fd(q, UINT64_MAX);
	}
}

static int run_buffer(struct nvefs_queue *q, uint8_t op, uint8_t flags, uint64_t pblk,
		      uint32_t nblks, void *buf)
{
	struct nvefs_io io = {.op = op, .flags = flags, .pblk = pblk, .nblks = nblks, .niov = 1};

	io.one = (struct iovec){buf, (size_t)nblks << NVEFS_BLOCK_SHIFT};
	io.iov = &io.one;
	return nvefs_queue_run(q, &io);
}

int nvefs_queue_read(struct nvefs_queue *q, uint64_t pblk, uint32_t nblks, void *buf)
{
	return run_buffer(q, NVEFS_IO_READ, 0, pblk, nblks, buf);
}

int nvefs_queue_write(struct nvefs_queue *q, uint64_t pblk, uint32_t nblks, const void *buf,
		      uint32_t flags)
{
	return run_buffer(q, NVEFS_IO_WRITE, (uint8_t)flags, pblk, nblks, (void *)(uintptr_t)buf);
}

int nvefs_queue_flush(struct nvefs_queue *q)
{
	struct nvefs_io io = {.op = NVEFS_IO_FLUSH};

	return nvefs_queue_run(q, &io);
}
