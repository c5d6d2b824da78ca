/* SPDX-License-Identifier: MIT */
/*
 * The servers: threads that read requests, start them and answer them.
 *
 * Start: open worker -> report ready -> wait for go (the mount is made between)
 * -> serve. End: the kernel closes the connection (ENODEV), or `stopping` is
 * set; then no request is read any more and those under way are finished. When
 * all have ended, whoever joins them closes the workers. A server never blocks while it has requests under way,
 * except inside the library.
 */
#include "fuse/daemon.h"
#include "fuse/raw.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rights.h"

#define BATCH 16u	/* requests read before completions are looked at */
#define RX_KEPT_MAX 64u /* writes under way in one server */
#define RX_COUNT (RX_KEPT_MAX + 1)
#define RX_IDLE 4u	 /* buffers whose memory an idle server keeps */
#define RX_IDLE_MS 1000
/* The data of a write starts on a page: the message starts this far before one. */
#define RX_LEAD (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define RX_OFFSET (4096 - RX_LEAD)
#define RX_BYTES (4096u + NVEFS_MAX_WRITE)

static _Thread_local struct nvefs_server *self;

struct nvefs_server *nvefs_server_self(void)
{
	return self;
}

/* ---- Receive buffers: a stack, so that no more are touched than are in use at once ---- */

static int rx_init(struct nvefs_server *s)
{
	s->rx_base = mmap(NULL, (size_t)RX_COUNT * RX_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->rx_base == MAP_FAILED) {
		s->rx_base = NULL;
		return -ENOMEM;
	}
	s->rx_free = malloc(RX_COUNT * sizeof(*s->rx_free));
	if (!s->rx_free)
		return -ENOMEM;
	for (uint32_t i = 0; i < RX_COUNT; i++)
		s->rx_free[i] = s->rx_base + (size_t)(RX_COUNT - 1 - i) * RX_BYTES;
	s->rx_nfree = RX_COUNT;
	return 0;
}

static void rx_done(struct nvefs_server *s)
{
	if (s->rx_base)
		munmap(s->rx_base, (size_t)RX_COUNT * RX_BYTES);
	free(s->rx_free);
}

/* NULL when all are kept by writes under way. */
static char *rx_get(struct nvefs_server *s)
{
	char *rx;

	if (!s->rx_nfree)
		return NULL;
	rx = s->rx_free[--s->rx_nfree];
	if (RX_COUNT - s->rx_nfree > s->rx_touched)
		s->rx_touched = RX_COUNT - s->rx_nfree;
	return rx;
}

static void rx_put(struct nvefs_server *s, char *rx)
{
	s->rx_free[s->rx_nfree++] = rx;
}

/* Nothing has come for a while: give memory back, of all free buffers but the next to be used. */
static void rx_trim(struct nvefs_server *s)
{
	for (uint32_t i = 0; i + RX_IDLE < s->rx_nfree; i++)
		madvise(s->rx_free[i], RX_BYTES, MADV_DONTNEED);
	s->rx_touched = RX_COUNT - s->rx_nfree;
}

/* ---- Calls ---- */

struct nvefs_call *nvefs_call_new(fuse_req_t req, enum nvefs_req_op op, uint64_t ino)
{
	struct nvefs_call *c = self->calls;

	if (c) {
		self->calls = c->next;
	} else {
		c = malloc(sizeof(*c));
		if (!c) {
			fuse_reply_err(req, ENOMEM);
			return NULL;
		}
	}
	memset(c, 0, sizeof(*c));
	c->fuse = req;
	c->server = self;
	c->req.op = (uint8_t)op;
	c->req.ino = ino;
	return c;
}

void nvefs_call_start(struct nvefs_call *c, void (*done)(struct nvefs_req *req))
{
	c->req.done = done;
	c->req.arg = c;
	nvefs_req_start(self->worker, &c->req);
}

void nvefs_call_free(struct nvefs_call *c)
{
	struct nvefs_server *s = c->server;

	if (c->rx)
		rx_put(s, c->rx);
	c->next = s->calls;
	s->calls = c;
}

void nvefs_call_done_plain(struct nvefs_req *req)
{
	struct nvefs_call *c = req->arg;

	fuse_reply_err(c->fuse, -req->err);
	nvefs_call_free(c);
}

/* ---- The loop ---- */

static void connection_ended(struct nvefs_server *s)
{
	struct nvefs_daemon *d = s->daemon;
	uint64_t one = 1;

	nvefs_servers_stop(d);
	if (write(d->end_fd, &one, sizeof(one)) < 0)
		nvefs_log(NVEFS_LOG_ERR, "cannot tell the main thread of the end: %s", strerror(errno));
}

/* Read and start one request. False when there is none, or no buffer for it. */
static bool serve_one(struct nvefs_server *s)
{
	struct fuse_buf buf = {0};
	ssize_t n;

	if (!s->rx)
		s->rx = rx_get(s);
	if (!s->rx)
		return false;
	buf.mem = s->rx + RX_OFFSET;
	do
		n = read(s->fuse_fd, buf.mem, RX_LEAD + NVEFS_MAX_WRITE);
	while (n < 0 && (errno == EINTR || errno == ENOENT)); /* ENOENT: the request was taken back */
	if (n < 0) {
		if (errno == EAGAIN)
			return false;
		if (errno != ENODEV)
			nvefs_log(NVEFS_LOG_ERR, "reading requests: %s: the mount ends", strerror(errno));
		connection_ended(s);
		return false;
	}
	buf.size = (size_t)n;
	if (nvefs_raw_serve(s, buf.mem, buf.size))
		return true;
	fuse_session_process_buf(s->daemon->se, &buf);
	if (fuse_session_exited(s->daemon->se))
		connection_ended(s);
	return true;
}

static void sleep_until_work(struct nvefs_server *s)
{
	struct epoll_event ev[2];

	if (!nvefs_worker_prepare_wait(s->worker))
		return;
	if (!s->rx || atomic_load(&s->daemon->stopping)) {
		struct pollfd pfd = {.fd = nvefs_worker_fd(s->worker), .events = POLLIN};

		poll(&pfd, 1, -1);
		return;
	}
	if (epoll_wait(s->epoll_fd, ev, 2, s->rx_touched > RX_IDLE ? RX_IDLE_MS : -1) == 0)
		rx_trim(s);
}

static void serve(struct nvefs_server *s)
{
	while (!atomic_load(&s->daemon->stopping)) {
		uint32_t n = 0;

		while (n < BATCH && serve_one(s))
			n++;
		while (nvefs_worker_run(s->worker))
			n++;
		if (!n)
			sleep_until_work(s);
	}
	while (nvefs_worker_inflight(s->worker))
		if (!nvefs_worker_run(s->worker))
			sleep_until_work(s);
}

static int watch(struct nvefs_server *s)
{
	/* One sleeping server is enough for one request. */
	struct epoll_event fuse_ev = {.events = EPOLLIN | EPOLLEXCLUSIVE};
	struct epoll_event dev_ev = {.events = EPOLLIN};

	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->fuse_fd, &fuse_ev) ||
	    epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, nvefs_worker_fd(s->worker), &dev_ev))
		return -errno;
	return 0;
}

/* ---- Start and end ---- */

static void pin(const struct nvefs_server *s)
{
	cpu_set_t set;

	if (s->cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(s->cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set))
		nvefs_log(NVEFS_LOG_WARN, "queue %u: cannot run on CPU %d only", s->index, s->cpu);
}

static int prepare(struct nvefs_server *s, struct nvefs_error *err)
{
	int e = nvefs_worker_open(s->daemon->fs, &s->worker);

	if (e)
		return nvefs_error_set(err, e, "%s: queue %u: %s%s", s->daemon->opts->target, s->index, strerror(-e),
				       e == -EBUSY ? ": give a smaller queues=" : "");
	e = rx_init(s);
	if (e)
		return nvefs_error_set(err, e, "queue %u: out of memory", s->index);
	s->scratch = malloc(NVEFS_SCRATCH_BYTES);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!s->scratch || s->epoll_fd < 0)
		return nvefs_error_set(err, -ENOMEM, "queue %u: out of memory or descriptors", s->index);
	return 0;
}

static void unprepare(struct nvefs_server *s)
{
	struct nvefs_call *c;

	nvefs_worker_close(s->worker);
	s->worker = NULL;
	rx_done(s);
	while ((c = s->calls)) {
		s->calls = c->next;
		free(c);
	}
	free(s->scratch);
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	/* Answers are out; with the last of these descriptors the connection ends. */
	if (s->fuse_fd >= 0)
		close(s->fuse_fd);
}

/* Says how the start went; true when it is to serve. */
static bool report_and_wait(struct nvefs_server *s, int e, const struct nvefs_error *err)
{
	struct nvefs_daemon *d = s->daemon;
	bool serve_it;

	nvefs_mutex_lock(&d->lock);
	d->nready++;
	if (e) {
		d->nfailed++;
		d->start_err = *err;
	}
	nvefs_cond_broadcast(&d->cond);
	while (!d->go && !d->give_up)
		nvefs_cond_wait(&d->cond, &d->lock);
	serve_it = d->go && !e;
	nvefs_mutex_unlock(&d->lock);
	return serve_it;
}

static void *server_main(void *arg)
{
	struct nvefs_server *s = arg;
	struct nvefs_error err;
	int e;

	self = s;
	pin(s);
	e = prepare(s, &err);
	if (!e && !s->daemon->privileged) {
		e = nvefs_rights_reduce(false);
		if (e)
			nvefs_error_set(&err, e, "cannot give up capabilities: %s", strerror(-e));
	}
	if (report_and_wait(s, e, &err)) {
		nvefs_reply_fd_set(s->fuse_fd);
		e = watch(s);
		if (e) {
			nvefs_log(NVEFS_LOG_ERR, "queue %u: epoll: %s: the mount ends", s->index, strerror(-e));
			connection_ended(s);
		}
		serve(s);
	}
	return NULL;
}

/* CPUs to pin to, one per server, when there are as many; else -1 for all. */
static void choose_cpus(struct nvefs_daemon *d)
{
	cpu_set_t set;
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->nservers; i++)
		d->servers[i].cpu = -1;
	if (sched_getaffinity(0, sizeof(set), &set) || (uint32_t)CPU_COUNT(&set) < d->nservers)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE && n < d->nservers; cpu++)
		if (CPU_ISSET(cpu, &set))
			d->servers[n++].cpu = cpu;
}

int nvefs_servers_start(struct nvefs_daemon *d, struct nvefs_error *err)
{
	int e = 0;

	d->servers = calloc(d->nservers, sizeof(*d->servers));
	if (!d->servers)
		return nvefs_error_set(err, -ENOMEM, "out of memory");
	choose_cpus(d);
	for (uint32_t i = 0; i < d->nservers && !e; i++) {
		struct nvefs_server *s = &d->servers[i];
		char name[16];

		s->daemon = d;
		s->index = i;
		s->fuse_fd = s->epoll_fd = -1;
		snprintf(name, sizeof(name), "nvefs-q%u", i % 100000);
		e = nvefs_thread_start(&s->thread, name, server_main, s);
		if (!e)
			d->nstarted++;
	}
	nvefs_mutex_lock(&d->lock);
	while (d->nready < d->nstarted)
		nvefs_cond_wait(&d->cond, &d->lock);
	if (e)
		nvefs_error_set(err, e, "cannot start threads: %s", strerror(-e));
	else if (d->nfailed) {
		e = -EIO;
		*err = d->start_err;
	}
	nvefs_mutex_unlock(&d->lock);
	if (e)
		nvefs_servers_go(d, false, NULL);
	return e;
}

int nvefs_servers_go(struct nvefs_daemon *d, bool go, struct nvefs_error *err)
{
	int e = 0;

	for (uint32_t i = 0; go && i < d->nservers; i++) {
		d->servers[i].fuse_fd = nvefs_session_clone(d);
		if (d->servers[i].fuse_fd < 0) {
			e = d->servers[i].fuse_fd;
			nvefs_error_set(err, e, "cannot clone the descriptor of /dev/fuse: %s", strerror(-e));
			go = false;
		}
	}
	nvefs_mutex_lock(&d->lock);
	*(go ? &d->go : &d->give_up) = true;
	nvefs_cond_broadcast(&d->cond);
	nvefs_mutex_unlock(&d->lock);
	if (!go) {
		nvefs_servers_join(d);
		nvefs_servers_close(d);
	}
	return e;
}

void nvefs_servers_stop(struct nvefs_daemon *d)
{
	if (atomic_exchange(&d->stopping, true))
		return;
	for (uint32_t i = 0; i < d->nservers; i++)
		nvefs_worker_wake(d->servers[i].worker);
}

void nvefs_servers_join(struct nvefs_daemon *d)
{
	for (uint32_t i = 0; i < d->nstarted; i++)
		nvefs_thread_join(d->servers[i].thread);
}

void nvefs_servers_close(struct nvefs_daemon *d)
{
	for (uint32_t i = 0; i < d->nstarted; i++)
		unprepare(&d->servers[i]);
	d->nstarted = 0;
	free(d->servers);
	d->servers = NULL;
	d->nservers = 0;
}
