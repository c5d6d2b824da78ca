/* SPDX-License-Identifier: MIT */
/* The seam as its users see it, on every kind of target. */
#include "test_device.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/thread.h"

static void zeros(const uint8_t *buf, size_t len, const char *what)
{
	size_t i = 0;

	while (i < len && !buf[i])
		i++;
	ck_assert_msg(i == len, "%s: byte %zu is %02x, not zero", what, i, i < len ? buf[i] : 0);
}

START_TEST(test_sync)
{
	const char *uri = device_target(_i, "8M", NULL);
	struct nvefs_dev *dev = device_open(uri);
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new(4 * 4096);

	ck_assert_uint_eq(nvefs_dev_limits(dev)->nblks, 2048);
	device_fill(buf, 4 * 4096, 1);
	ck_assert_int_eq(nvefs_queue_write(q, 5, 4, buf, NVEFS_IO_FUA), 0);
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	memset(buf, 0, 4 * 4096);
	ck_assert_int_eq(nvefs_queue_read(q, 5, 4, buf), 0);
	device_expect(buf, 4 * 4096, 1, uri);
	ck_assert_int_eq(nvefs_queue_read(q, 9, 1, buf), 0);
	zeros(buf, 4096, uri);
	ck_assert_int_eq(nvefs_queue_read(q, 2047, 2, buf), -ERANGE);
	ck_assert_int_eq(nvefs_queue_write(q, 1ull << 60, 1, buf, 0), -ERANGE);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);

	if (_i == 1) { /* a file keeps what was written */
		dev = device_open(uri);
		q = device_queue(dev);
		ck_assert_int_eq(nvefs_queue_read(q, 5, 4, buf), 0);
		device_expect(buf, 4 * 4096, 1, "after reopening");
		nvefs_queue_done(q);
		nvefs_dev_close(dev);
	}
	nvefs_buf_free(buf);
}
END_TEST

static int run(struct nvefs_queue *q, uint8_t op, uint64_t pblk, uint32_t nblks, void *buf)
{
	struct nvefs_io io = {.op = op, .pblk = pblk, .nblks = nblks, .niov = buf ? 1 : 0};

	io.one = (struct iovec){buf, (size_t)nblks * 4096};
	io.iov = &io.one;
	return nvefs_queue_run(q, &io);
}

START_TEST(test_ops)
{
	const char *uri = device_target(_i % 2, "8M", _i / 2 ? "lba=512" : NULL);
	struct nvefs_dev *dev = device_open(uri);
	struct nvefs_queue *q = device_queue(dev);
	struct nvefs_dev_counters c;
	uint8_t *buf = nvefs_buf_new(8 * 4096);

	ck_assert_uint_eq(nvefs_dev_limits(dev)->lba_bytes, _i / 2 ? 512 : 4096);
	device_fill(buf, 8 * 4096, 3);
	ck_assert_int_eq(nvefs_queue_write(q, 16, 8, buf, 0), 0);
	ck_assert_int_eq(run(q, NVEFS_IO_COMPARE, 16, 8, buf), 0);
	buf[8 * 4096 - 1] ^= 1;
	ck_assert_int_eq(run(q, NVEFS_IO_COMPARE, 16, 8, buf), -EILSEQ);
	ck_assert_int_eq(run(q, NVEFS_IO_WRITE_ZEROES, 17, 2, NULL), 0);
	ck_assert_int_eq(run(q, NVEFS_IO_DISCARD, 20, 1, NULL), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 16, 8, buf), 0);
	zeros(buf + 4096, 2 * 4096, "write zeroes");
	ck_assert(nvefs_dev_limits(dev)->discard_zeroes);
	zeros(buf + 4 * 4096, 4096, "discard");
	ck_assert_int_eq(nvefs_queue_read(q, 19, 1, buf), 0);
	ck_assert_int_eq(run(q, NVEFS_IO_DISCARD, 0, 2048, NULL), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 23, 1, buf), 0);
	zeros(buf, 4096, "discard of everything");
	nvefs_queue_done(q);

	nvefs_dev_counters(dev, &c);
	ck_assert_uint_eq(c.commands[NVEFS_IO_WRITE], 1);
	ck_assert_uint_eq(c.bytes[NVEFS_IO_WRITE], 8 * 4096);
	ck_assert_uint_eq(c.commands[NVEFS_IO_COMPARE], 2);
	ck_assert_uint_eq(c.commands[NVEFS_IO_DISCARD], 2);
	ck_assert_uint_eq(c.errors, 1);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

struct counted {
	struct nvefs_io io;
	int *ncalls;
};

static void counted_done(struct nvefs_io *io)
{
	struct counted *c = io->arg;

	++*c->ncalls;
}

/* More than the queue holds, each larger than a command may be, of odd pieces. */
START_TEST(test_split_and_backlog)
{
	enum { NIOS = 24, BLKS = 37 };
	const char *uri = device_target(_i, "32M", "mdts=16k,depth=4");
	struct nvefs_dev *dev = device_open(uri);
	struct nvefs_queue *q = device_queue(dev);
	struct nvefs_dev_counters c;
	struct counted ios[NIOS];
	struct iovec iov[NIOS][3];
	uint8_t *buf = nvefs_buf_new((size_t)NIOS * BLKS * 4096);
	size_t align = nvefs_dev_limits(dev)->mem_align, len = BLKS * 4096,
	       cut = align < 512 ? 100 : align;
	int ncalls = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < NIOS; i++) {
			uint8_t *p = buf + i * len;

			iov[i][0] = (struct iovec){p, cut};
			iov[i][1] = (struct iovec){p + cut, 5 * 4096};
			iov[i][2] = (struct iovec){p + cut + 5 * 4096, len - cut - 5 * 4096};
			ios[i].ncalls = &ncalls;
			ios[i].io = (struct nvefs_io){.op = pass ? NVEFS_IO_READ : NVEFS_IO_WRITE,
						      .pblk = (uint64_t)i * BLKS,
						      .nblks = BLKS,
						      .niov = 3,
						      .iov = iov[i],
						      .done = counted_done,
						      .arg = &ios[i]};
			if (pass)
				memset(p, 0, len);
			else
				device_fill(p, len, (uint32_t)i);
			nvefs_queue_submit(q, &ios[i].io);
		}
		ck_assert_int_eq(ncalls, pass * NIOS); /* never from submit */
		while (nvefs_queue_inflight(q)) {
			nvefs_queue_wait(q, UINT64_MAX);
			nvefs_queue_poll(q, 3);
		}
		ck_assert_int_eq(ncalls, (pass + 1) * NIOS);
		for (int i = 0; i < NIOS; i++)
			ck_assert_msg(!ios[i].io.err, "io %d: %d", i, ios[i].io.err);
	}
	for (int i = 0; i < NIOS; i++)
		device_expect(buf + i * len, len, (uint32_t)i, uri);
	nvefs_dev_counters(dev, &c);
	ck_assert_uint_eq(c.splits, 2 * NIOS);
	ck_assert_uint_ge(c.commands[NVEFS_IO_WRITE], NIOS * 10);
	ck_assert_uint_eq(c.bytes[NVEFS_IO_WRITE], (uint64_t)NIOS * BLKS * 4096);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

/* Pieces of any size and number: what cannot be one command is several. */
START_TEST(test_many_pieces)
{
	enum { PIECE = 250, BLKS = 125, NPIECES = BLKS * 4096 / PIECE };
	struct nvefs_dev *dev = device_open("ram:4M");
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = malloc(BLKS * 4096), *back = malloc(BLKS * 4096);
	static struct iovec iov[BLKS * 4096];
	struct nvefs_io io = {.op = NVEFS_IO_WRITE, .pblk = 1, .nblks = BLKS, .iov = iov};

	device_fill(buf, BLKS * 4096, 9);
	for (int i = 0; i < NPIECES; i++)
		iov[i] = (struct iovec){buf + i * PIECE, PIECE};
	io.niov = NPIECES;
	ck_assert_int_eq(nvefs_queue_run(q, &io), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 1, BLKS, back), 0);
	device_expect(back, BLKS * 4096, 9, "250-byte pieces");

	/* 4096 pieces of one byte are one block and more than a command's scatter list. */
	for (int i = 0; i < 8192; i++)
		iov[i] = (struct iovec){buf + i, 1};
	io.nblks = 2;
	io.niov = 8192;
	ck_assert_int_eq(nvefs_queue_run(q, &io), -EINVAL);
	io.nblks = 3; /* lengths do not add up */
	ck_assert_int_eq(nvefs_queue_run(q, &io), -EINVAL);
	io.nblks = 0;
	ck_assert_int_eq(nvefs_queue_run(q, &io), -EINVAL);
	io.op = 77;
	ck_assert_int_eq(nvefs_queue_run(q, &io), -EINVAL);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	free(buf);
	free(back);
}
END_TEST

struct again {
	struct nvefs_io io;
	struct nvefs_queue *q;
	int left;
	uint8_t *buf;
};

static void submit_again(struct nvefs_io *io)
{
	struct again *a = io->arg;

	ck_assert_int_eq(io->err, 0);
	if (!a->left--)
		return;
	if (a->left % 7 == 0) /* a nested synchronous call inside a callback */
		ck_assert_int_eq(nvefs_queue_read(a->q, 3, 1, a->buf), 0);
	nvefs_queue_submit(a->q, io);
}

START_TEST(test_callback_submits)
{
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "depth=2"));
	struct again a[5] = {{.left = 0}};
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new_zeroed(6 * 4096);

	for (int i = 0; i < 5; i++) {
		a[i] = (struct again){.q = q, .left = 50, .buf = buf + 5 * 4096};
		a[i].io = (struct nvefs_io){
		    .op = NVEFS_IO_READ, .nblks = 1, .niov = 1, .iov = &a[i].io.one};
		a[i].io.one = (struct iovec){buf + i * 4096, 4096};
		a[i].io.done = submit_again;
		a[i].io.arg = &a[i];
		nvefs_queue_submit(q, &a[i].io);
	}
	while (nvefs_queue_inflight(q)) {
		nvefs_queue_wait(q, UINT64_MAX);
		nvefs_queue_poll(q, 0);
	}
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(a[i].left, -1);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

struct turn {
	struct nvefs_io io;
	struct nvefs_queue *q;
	struct turn *then;
	int *next, place;
};

static void turn_done(struct nvefs_io *io)
{
	struct turn *t = io->arg;

	t->place = (*t->next)++;
	if (t->then)
		nvefs_queue_submit(t->q, &t->then->io);
}

/* What waits for room goes before what is submitted later, also from a callback. */
START_TEST(test_order)
{
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "depth=1"));
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new(4096);
	struct turn turns[4];
	int next = 0;

	for (int i = 0; i < 4; i++) {
		turns[i] = (struct turn){.q = q, .next = &next};
		turns[i].io = (struct nvefs_io){.op = NVEFS_IO_READ, .nblks = 1, .niov = 1};
		turns[i].io.one = (struct iovec){buf, 4096};
		turns[i].io.iov = &turns[i].io.one;
		turns[i].io.done = turn_done;
		turns[i].io.arg = &turns[i];
	}
	turns[0].then = &turns[3];
	for (int i = 0; i < 3; i++)
		nvefs_queue_submit(q, &turns[i].io);
	while (nvefs_queue_inflight(q)) {
		nvefs_queue_wait(q, UINT64_MAX);
		nvefs_queue_poll(q, 0);
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(turns[i].place, i);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

/* Somebody cuts the file: what is gone cannot be read, and that is said. */
START_TEST(test_file_cut)
{
	struct nvefs_dev *dev = device_open(device_target(1, "8M", NULL));
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new(2 * 4096);

	ck_assert_int_eq(truncate(device_path("disk.img"), 1000 * 4096), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 998, 2, buf), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 999, 2, buf), -EIO);
	ck_assert_int_eq(nvefs_queue_read(q, 2000, 1, buf), -EIO);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

static void *waker(void *arg)
{
	struct timespec ts = {0, 20000000};

	nanosleep(&ts, NULL);
	nvefs_queue_wake(arg);
	return NULL;
}

START_TEST(test_wake)
{
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "latency=5ms"));
	int ncalls = 0;
	struct counted bad = {.ncalls = &ncalls};
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new(4096);
	uint64_t start;
	pthread_t thread;

	/* Woken before: the next wait returns, and only that one. */
	nvefs_queue_wake(q);
	nvefs_queue_wake(q);
	nvefs_queue_wait(q, UINT64_MAX);
	ck_assert(nvefs_queue_prepare_wait(q));

	/* An io that failed before it was sent is something to poll for. */
	bad.io = (struct nvefs_io){.op = NVEFS_IO_READ, .done = counted_done, .arg = &bad};
	nvefs_queue_submit(q, &bad.io);
	ck_assert(!nvefs_queue_prepare_wait(q));
	ck_assert_uint_eq(nvefs_queue_poll(q, 0), 1);
	ck_assert_int_eq(bad.io.err, -EINVAL);

	/* A wake is not eaten by poll or by a synchronous call, which sleeps here. */
	nvefs_queue_wake(q);
	ck_assert_int_eq(nvefs_queue_read(q, 0, 1, buf), 0);
	nvefs_queue_poll(q, 0);
	ck_assert(!nvefs_queue_prepare_wait(q));
	ck_assert(nvefs_queue_prepare_wait(q));

	/* Woken while asleep. */
	ck_assert_int_eq(nvefs_thread_start(&thread, "waker", waker, q), 0);
	start = nvefs_now_ns();
	nvefs_queue_wait(q, UINT64_MAX);
	ck_assert_uint_gt(nvefs_now_ns() - start, 1000000);
	nvefs_thread_join(thread);

	/* Nobody wakes: the timeout holds. */
	start = nvefs_now_ns();
	nvefs_queue_wait(q, 30000000);
	ck_assert_uint_ge(nvefs_now_ns() - start, 29000000);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

/* 32 commands of 100 ms each, together in flight: far less than 3.2 s, and none before its time. */
START_TEST(test_latency)
{
	enum { NIOS = 32 };
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "latency=100ms"));
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new((size_t)NIOS * 4096);
	struct counted ios[NIOS];
	int ncalls = 0;
	uint64_t start = nvefs_now_ns(), ns;

	for (int i = 0; i < NIOS; i++) {
		ios[i].ncalls = &ncalls;
		ios[i].io = (struct nvefs_io){
		    .op = NVEFS_IO_READ, .pblk = (uint64_t)i, .nblks = 1, .niov = 1};
		ios[i].io.one = (struct iovec){buf + i * 4096, 4096};
		ios[i].io.iov = &ios[i].io.one;
		ios[i].io.done = counted_done;
		ios[i].io.arg = &ios[i];
		nvefs_queue_submit(q, &ios[i].io);
	}
	ck_assert_uint_lt(nvefs_now_ns() - start, 100000000); /* submit did not sleep */
	ck_assert_uint_eq(nvefs_queue_poll(q, 0), 0);
	while (ncalls < NIOS) {
		nvefs_queue_wait(q, UINT64_MAX);
		nvefs_queue_poll(q, 0);
	}
	ns = nvefs_now_ns() - start;
	ck_assert_uint_ge(ns, 100000000);
	ck_assert_uint_lt(ns, 1600000000);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

START_TEST(test_queue_number)
{
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "queues=2"));
	struct nvefs_queue *a = device_queue(dev), *b = device_queue(dev), *c = NULL;

	ck_assert_int_eq(nvefs_queue_init(dev, 0, &c), -EBUSY);
	ck_assert_ptr_null(c);
	nvefs_queue_done(a);
	c = device_queue(dev);
	nvefs_queue_done(b);
	nvefs_queue_done(c);
	nvefs_queue_done(NULL);
	nvefs_dev_close(dev);
	nvefs_dev_close(NULL);
}
END_TEST

struct worker {
	struct nvefs_dev *dev;
	uint64_t pblk;
};

static void *worker(void *arg)
{
	struct worker *w = arg;
	struct nvefs_queue *q = device_queue(w->dev);
	uint8_t *buf = nvefs_buf_new(4096);

	for (uint32_t i = 0; i < 300; i++) {
		uint64_t pblk = w->pblk + i % 20;

		device_fill(buf, 4096, i + (uint32_t)w->pblk);
		ck_assert_int_eq(nvefs_queue_write(q, pblk, 1, buf, 0), 0);
		memset(buf, 0, 4096);
		ck_assert_int_eq(nvefs_queue_read(q, pblk, 1, buf), 0);
		device_expect(buf, 4096, i + (uint32_t)w->pblk, "worker");
	}
	nvefs_queue_done(q);
	nvefs_buf_free(buf);
	return NULL;
}

START_TEST(test_threads)
{
	struct nvefs_dev *dev = device_open(device_target(_i % 2, "8M", _i / 2 ? "vwc=on" : NULL));
	struct worker workers[4];
	pthread_t threads[4];
	struct nvefs_dev_counters c;

	for (int i = 0; i < 4; i++) {
		workers[i] = (struct worker){dev, (uint64_t)i * 32};
		ck_assert_int_eq(nvefs_thread_start(&threads[i], "worker", worker, &workers[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		nvefs_thread_join(threads[i]);
	nvefs_dev_counters(dev, &c);
	ck_assert_uint_eq(c.commands[NVEFS_IO_WRITE], 1200);
	ck_assert_uint_eq(c.commands[NVEFS_IO_READ], 1200);
	ck_assert_uint_eq(c.media_write_bytes, 1200 * 4096);
	nvefs_dev_close(dev);
}
END_TEST

static void *stranger(void *arg)
{
	nvefs_queue_poll(arg, 0);
	return NULL;
}

/* The owner is asserted: another thread's poll aborts. */
START_TEST(test_owner)
{
	struct nvefs_dev *dev = device_open("ram:1M");
	struct nvefs_queue *q = device_queue(dev);
	pthread_t thread;

	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
	ck_assert_int_eq(nvefs_thread_start(&thread, "stranger", stranger, q), 0);
	nvefs_thread_join(thread);
}
END_TEST

START_TEST(test_read_only)
{
	const char *uri = device_target(_i, "8M", NULL);
	struct nvefs_dev_open_opts opts = {.flags = NVEFS_OPEN_RDONLY};
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	uint8_t *buf = nvefs_buf_new_zeroed(4096);

	ck_assert_int_eq(nvefs_dev_open(uri, &opts, &dev, NULL), 0);
	ck_assert(nvefs_dev_limits(dev)->read_only);
	q = device_queue(dev);
	ck_assert_int_eq(nvefs_queue_read(q, 0, 1, buf), 0);
	ck_assert_int_eq(nvefs_queue_write(q, 0, 1, buf, 0), -EROFS);
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

/* A tmpfs of 1 MiB that is mounted nowhere, so that no other name space sees it. */
static int small_tmpfs(void)
{
	int fs, fd = -1;

	if (geteuid() && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -1;
	fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs >= 0 && !fsconfig(fs, FSCONFIG_SET_STRING, "size", "1m", 0) &&
	    !fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (fs >= 0)
		close(fs);
	return fd;
}

/* A file system of 1 MiB under a file of 8: what does not fit is ENOSPC, and what was there stays.
 */
START_TEST(test_host_full)
{
	struct nvefs_dev_open_opts opts = {.flags = NVEFS_OPEN_CREATE, .create_bytes = 8 << 20};
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	uint8_t *buf = nvefs_buf_new(64 * 4096);
	char path[300];
	int fs = small_tmpfs(), err = 0, nwritten = 0;

	if (fs < 0) {
		fprintf(stderr, "SKIP: full host file system: no tmpfs of its own: %s\n",
			strerror(errno));
		nvefs_buf_free(buf);
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d/disk.img", fs);
	ck_assert_int_eq(nvefs_dev_open(path, &opts, &dev, NULL), 0);
	q = device_queue(dev);
	device_fill(buf, 64 * 4096, 4);
	while (nwritten < 32 && !(err = nvefs_queue_write(q, (uint64_t)nwritten * 64, 64, buf, 0)))
		nwritten++;
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert_int_ge(nwritten, 2);
	for (int i = 0; i < nwritten; i++) {
		memset(buf, 0, 64 * 4096);
		ck_assert_int_eq(nvefs_queue_read(q, (uint64_t)i * 64, 64, buf), 0);
		device_expect(buf, 64 * 4096, 4, "before the file system was full");
	}
	/* Room again, and writing works. */
	ck_assert_int_eq(run(q, NVEFS_IO_DISCARD, 0, 128, NULL), 0);
	ck_assert_int_eq(nvefs_queue_write(q, (uint64_t)nwritten * 64, 64, buf, 0), 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	close(fs);
	nvefs_buf_free(buf);
}
END_TEST

#define LIMIT_BLKS 600u /* more than one command, and with queues of 4 more than fit */

struct limit_writer {
	struct nvefs_dev *dev;
	uint8_t *buf;
	int write_err, read_err;
	bool done; /* atomic */
};

/* A write in parts, and behind it a read of what it wrote. */
static void *limit_write(void *arg)
{
	struct limit_writer *w = arg;
	struct nvefs_queue *q = device_queue(w->dev);
	uint8_t *back = nvefs_buf_new(4096);

	w->write_err = nvefs_queue_write(q, 10, LIMIT_BLKS, w->buf, 0);
	w->read_err = nvefs_queue_read(q, 10, 1, back);
	if (!w->write_err && memcmp(back, w->buf, 4096) != 0)
		w->read_err = -EILSEQ;
	nvefs_buf_free(back);
	nvefs_queue_done(q);
	__atomic_store_n(&w->done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static bool done_within(struct limit_writer *w, uint64_t ns)
{
	uint64_t end = nvefs_now_ns() + ns;

	while (!__atomic_load_n(&w->done, __ATOMIC_SEQ_CST) && nvefs_now_ns() < end)
		usleep(1000);
	return __atomic_load_n(&w->done, __ATOMIC_SEQ_CST);
}

/* A limit that has passed: what changes the medium waits until it moves (0), or fails (1); the rest does not. */
START_TEST(test_write_limit)
{
	bool never = _i / DEVICE_NTARGETS;
	struct limit_writer w = {.dev = device_open(device_target(_i % DEVICE_NTARGETS, "8M", "depth=4"))};
	struct nvefs_queue *q = device_queue(w.dev), *free_q = device_queue(w.dev);
	struct nvefs_dev_counters before, after;
	uint8_t *buf = nvefs_buf_new(4096);
	pthread_t thread;

	w.buf = nvefs_buf_new(LIMIT_BLKS * 4096);
	device_fill(w.buf, LIMIT_BLKS * 4096, 9);
	nvefs_dev_allow_writes(w.dev, nvefs_boot_ns() + 3600000000000ull);
	ck_assert_int_eq(nvefs_queue_write(q, 1, 1, w.buf, 0), 0);
	nvefs_dev_allow_writes(w.dev, nvefs_boot_ns() - 1);
	nvefs_dev_counters(w.dev, &before);
	ck_assert_int_eq(nvefs_thread_start(&thread, "writer", limit_write, &w), 0);
	ck_assert_msg(!done_within(&w, 60000000), "a late write was sent");
	ck_assert_int_eq(nvefs_queue_read(q, 1, 1, buf), 0);
	device_expect(buf, 4096, 9, "read beyond the limit");
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	nvefs_queue_set_unlimited(free_q);
	ck_assert_int_eq(nvefs_queue_write(free_q, 2, 1, buf, 0), 0);
	/* Moved, but not far enough: it goes on waiting. */
	nvefs_dev_allow_writes(w.dev, nvefs_boot_ns());
	ck_assert_msg(!done_within(&w, 20000000), "a late write was sent");
	nvefs_dev_counters(w.dev, &after);
	ck_assert_uint_eq(after.commands[NVEFS_IO_WRITE], before.commands[NVEFS_IO_WRITE] + 1);

	nvefs_dev_allow_writes(w.dev, never ? NVEFS_WRITES_NEVER : NVEFS_WRITES_ALWAYS);
	ck_assert_msg(done_within(&w, 60000000000ull), "the writer was not woken");
	nvefs_thread_join(thread);
	ck_assert_int_eq(w.write_err, never ? -EROFS : 0);
	ck_assert_int_eq(w.read_err, 0);
	for (uint8_t op = NVEFS_IO_WRITE; op <= NVEFS_IO_WRITE_ZEROES; op++)
		ck_assert_int_eq(run(q, op, 3, op == NVEFS_IO_FLUSH ? 0 : 1, op == NVEFS_IO_WRITE ? buf : NULL),
				 never && op != NVEFS_IO_FLUSH ? -EROFS : 0);
	nvefs_queue_done(q);
	nvefs_queue_done(free_q);
	nvefs_dev_close(w.dev);
	nvefs_buf_free(w.buf);
	nvefs_buf_free(buf);
}
END_TEST

Suite *device_seam_suite(void)
{
	Suite *s = suite_create("device seam");
	TCase *t = tcase_create("targets"), *aborts = tcase_create("owner");

	tcase_add_checked_fixture(t, device_dir_init, device_dir_done);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, test_sync, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_ops, 0, 2 * DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_split_and_backlog, 0, DEVICE_NTARGETS);
	tcase_add_test(t, test_many_pieces);
	tcase_add_loop_test(t, test_callback_submits, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_wake, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_order, 0, DEVICE_NTARGETS);
	tcase_add_test(t, test_file_cut);
	tcase_add_loop_test(t, test_latency, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_queue_number, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_threads, 0, 2 * DEVICE_NTARGETS);
	tcase_add_test(t, test_host_full);
	tcase_add_loop_test(t, test_write_limit, 0, 2 * DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_read_only, 0, DEVICE_NTARGETS);
	if (!getenv("CK_FORK") || strcmp(getenv("CK_FORK"), "no")) /* it aborts its process */
		tcase_add_test_raise_signal(aborts, test_owner, SIGABRT);
	suite_add_tcase(s, t);
	suite_add_tcase(s, aborts);
	return s;
}
