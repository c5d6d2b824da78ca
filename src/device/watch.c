/* SPDX-License-Identifier: MIT */
#include "device/watch.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* Some milliseconds off at most, which is nothing here, and a fraction of the other clock's price. */
static uint64_t now_roughly_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void nvefs_dev_watch(struct nvefs_dev *dev, uint64_t after_ns, nvefs_slow_fn *fn, void *arg)
{
	dev->watch_ns = after_ns;
	dev->watch_fn = fn;
	dev->watch_arg = arg;
}

int nvefs_watch_init(struct nvefs_queue *q)
{
	q->watch = (struct nvefs_watch){.timer_fd = -1};
	if (!q->dev->watch_fn)
		return 0;
	q->watch.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return q->watch.timer_fd < 0 ? -errno : nvefs_queue_watch_fd(q, q->watch.timer_fd);
}

void nvefs_watch_done(struct nvefs_queue *q)
{
	if (q->watch.timer_fd >= 0)
		close(q->watch.timer_fd);
	q->watch.timer_fd = -1;
}

void nvefs_watch_add(struct nvefs_queue *q, struct nvefs_io *io)
{
	if (q->watch.timer_fd < 0)
		return;
	io->q.ns = now_roughly_ns();
	io->q.newer = NULL;
	io->q.older = q->watch.newest;
	if (io->q.older)
		io->q.older->q.newer = io;
	else
		q->watch.oldest = io;
	q->watch.newest = io;
}

void nvefs_watch_del(struct nvefs_queue *q, struct nvefs_io *io)
{
	if (q->watch.timer_fd < 0)
		return;
	if (io->q.older)
		io->q.older->q.newer = io->q.newer;
	else
		q->watch.oldest = io->q.newer;
	if (io->q.newer)
		io->q.newer->q.older = io->q.older;
	else
		q->watch.newest = io->q.older;
}

/* Those that were told of already are the oldest, since all are told of at the same age. */
static void look(struct nvefs_queue *q, uint64_t now)
{
	uint64_t until = now > q->dev->watch_ns ? now - q->dev->watch_ns : 0;
	struct nvefs_slow slow = {.age_ns = 0};
	const struct nvefs_io *io;

	for (io = q->watch.oldest; io && io->q.ns <= until; io = io->q.newer) {
		if (io->q.ns <= q->watch.told_ns)
			continue;
		if (slow.age_ns) {
			slow.others++;
			continue;
		}
		slow.op = io->op;
		slow.pblk = io->pblk;
		slow.nblks = io->op == NVEFS_IO_FLUSH ? 0 : io->nblks;
		slow.age_ns = now - io->q.ns;
	}
	q->watch.told_ns = until;
	if (slow.age_ns)
		q->dev->watch_fn(q->dev->watch_arg, &slow);
}

static void set_timer(struct nvefs_queue *q, uint64_t due_ns)
{
	struct itimerspec when = {
	    .it_value = {.tv_sec = (time_t)(due_ns / 1000000000u), .tv_nsec = (long)(due_ns % 1000000000u)}};

	q->watch.due_ns = due_ns;
	/* Setting it also takes back that it had fired. */
	timerfd_settime(q->watch.timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* The timer is left alone while it runs, so that a busy queue pays two system calls in a period. */
void nvefs_watch_prepare_wait(struct nvefs_queue *q)
{
	uint64_t now;

	if (q->watch.timer_fd < 0 || (!q->watch.due_ns && !q->watch.oldest))
		return;
	now = nvefs_now_ns();
	if (q->watch.due_ns && now < q->watch.due_ns)
		return;
	if (q->watch.due_ns)
		look(q, now);
	set_timer(q, q->watch.oldest ? now + q->dev->watch_ns / 2 : 0);
}
