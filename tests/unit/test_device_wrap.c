/* SPDX-License-Identifier: MIT */
/* Faults, delay, recording and replay, each on every target and, where it differs, on raw entries.
 */
#include "test_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/thread.h"
#include "device/fault.h"
#include "device/replay.h"
#include "nvme/status.h"

static struct nvefs_dev *fault_dev(const char *uri, const struct nvefs_fault *fault)
{
	struct nvefs_dev *dev = NULL;

	ck_assert_int_eq(nvefs_fault_wrap(device_open(uri), fault, 1, &dev), 0);
	return dev;
}

/* Write one block, as an io or as a raw entry. */
static int write_blk(struct nvefs_queue *q, uint64_t pblk, void *buf, bool raw)
{
	struct nvefs_raw_io r = {.io = {.op = NVEFS_IO_RAW, .niov = 1}, .data_bytes = 4096};

	if (!raw)
		return nvefs_queue_write(q, pblk, 1, buf, 0);
	nvefs_nvme_sqe_rw(&r.sqe, NVEFS_NVME_WRITE, 1, pblk, 1, 0);
	r.io.one = (struct iovec){buf, 4096};
	r.io.iov = &r.io.one;
	return nvefs_queue_run(q, &r.io);
}

static bool holds(struct nvefs_queue *q, uint64_t pblk, uint32_t seed)
{
	uint8_t *buf = nvefs_buf_new(4096), *want = nvefs_buf_new_zeroed(4096);
	bool same;

	ck_assert_int_eq(nvefs_queue_read(q, pblk, 1, buf), 0);
	if (seed)
		device_fill(want, 4096, seed);
	same = !memcmp(buf, want, 4096);
	nvefs_buf_free(buf);
	nvefs_buf_free(want);
	return same;
}

START_TEST(test_fail)
{
	struct nvefs_fault f = {.op = NVEFS_IO_WRITE,
				.action = NVEFS_FAULT_FAIL,
				.status = NVEFS_NVME_SC_WRITE_FAULT,
				.nth = 3,
				.every = 2};
	struct nvefs_dev *dev = fault_dev(device_target(_i % 2, "8M", NULL), &f);
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new(4096);
	struct nvefs_dev_counters c;

	device_fill(buf, 4096, 1);
	for (int i = 1; i <= 8; i++) {
		bool hit = i >= 3 && i % 2;

		ck_assert_int_eq(write_blk(q, (uint64_t)i, buf, _i / 2), hit ? -EIO : 0);
		ck_assert(holds(q, (uint64_t)i, hit ? 0 : 1));
		ck_assert_int_eq(nvefs_queue_flush(q), 0);
	}
	ck_assert_uint_eq(nvefs_fault_hits(dev), 3);
	nvefs_fault_clear(dev);
	f = (struct nvefs_fault){.op = NVEFS_FAULT_ANY, .action = NVEFS_FAULT_FAIL, .err = -ENODEV};
	ck_assert_int_eq(nvefs_fault_add(dev, &f), 0);
	ck_assert_int_eq(nvefs_queue_flush(q), -ENODEV);
	ck_assert_int_eq(nvefs_queue_flush(q), 0);

	/* Only where it is told to. */
	f = (struct nvefs_fault){.op = NVEFS_IO_READ,
				 .action = NVEFS_FAULT_FAIL,
				 .status = NVEFS_NVME_SC_READ_ERROR,
				 .every = 1,
				 .first_pblk = 10,
				 .end_pblk = 12};
	ck_assert_int_eq(nvefs_fault_add(dev, &f), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 9, 1, buf), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 11, 1, buf), -EIO);
	ck_assert_int_eq(nvefs_queue_read(q, 12, 1, buf), 0);
	nvefs_dev_counters(dev, &c);
	ck_assert_uint_eq(c.errors, 3 + 1 + 1);
	ck_assert_uint_eq(c.commands[NVEFS_IO_WRITE], 5); /* those that reached the device */
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

START_TEST(test_lies)
{
	const char *uri = device_target(_i % 2, "8M", NULL);
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	uint8_t *buf = nvefs_buf_new(4096);
	struct nvefs_fault f = {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_DROP, .nth = 2};
	bool raw = _i / 2;

	dev = fault_dev(uri, &f);
	q = device_queue(dev);
	device_fill(buf, 4096, 1);
	ck_assert_int_eq(write_blk(q, 1, buf, raw), 0);
	ck_assert_int_eq(write_blk(q, 2, buf, raw), 0);
	ck_assert(holds(q, 1, 1));
	ck_assert(holds(q, 2, 0));

	nvefs_fault_clear(dev);
	f = (struct nvefs_fault){.op = NVEFS_IO_WRITE,
				 .action = NVEFS_FAULT_FAIL_AFTER,
				 .status = NVEFS_NVME_SC_INTERNAL};
	ck_assert_int_eq(nvefs_fault_add(dev, &f), 0);
	ck_assert_int_eq(write_blk(q, 3, buf, raw), -EIO);
	ck_assert(holds(q, 3, 1));

	nvefs_fault_clear(dev);
	f = (struct nvefs_fault){
	    .op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_MISDIRECT, .distance_blks = 7};
	ck_assert_int_eq(nvefs_fault_add(dev, &f), 0);
	ck_assert_int_eq(write_blk(q, 20, buf, raw), 0);
	ck_assert(holds(q, 20, 0));
	ck_assert(holds(q, 27, 1));

	nvefs_fault_clear(dev);
	f = (struct nvefs_fault){.op = NVEFS_IO_READ, .action = NVEFS_FAULT_FLIP, .seed = 5};
	ck_assert_int_eq(nvefs_fault_add(dev, &f), 0);
	ck_assert(!holds(q, 27, 1));
	ck_assert(holds(q, 27, 1));
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

START_TEST(test_tear)
{
	const struct nvefs_fault f = {
	    .op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_TEAR, .nth = 2, .every = 1, .seed = 3};
	struct nvefs_dev *dev = fault_dev(device_target(_i % 2, "8M", "lba=512"), &f);
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new(4096), *old = nvefs_buf_new(4096), *new = nvefs_buf_new(4096);
	int kept = 0, written = 0;

	device_fill(old, 4096, 1);
	device_fill(new, 4096, 2);
	ck_assert_int_eq(nvefs_queue_write(q, 1, 1, old, 0), 0);
	ck_assert_int_eq(nvefs_queue_write(q, 1, 1, new, 0), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 1, 1, buf), 0);
	for (int i = 0; i < 4096; i += 512) {
		written += !memcmp(buf + i, new + i, 512);
		kept += !memcmp(buf + i, old + i, 512);
	}
	ck_assert_int_eq(kept + written, 8);
	ck_assert_int_gt(kept, 0);
	ck_assert_int_gt(written, 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
	nvefs_buf_free(old);
	nvefs_buf_free(new);
}
END_TEST

START_TEST(test_delay)
{
	struct nvefs_dev *dev = NULL;
	struct nvefs_queue *q;
	uint8_t *buf = nvefs_buf_new(4096);
	uint64_t start = nvefs_now_ns();

	ck_assert_int_eq(
	    nvefs_delay_wrap(device_open(device_target(_i, "8M", NULL)), 15000000, 0, &dev), 0);
	q = device_queue(dev);
	start = nvefs_now_ns();
	ck_assert_int_eq(nvefs_queue_read(q, 0, 1, buf), 0);
	ck_assert_uint_ge(nvefs_now_ns() - start, 15000000);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

struct ordered {
	struct nvefs_io io;
	int *next;
	int place;
};

static void ordered_done(struct nvefs_io *io)
{
	struct ordered *o = io->arg;

	o->place = (*o->next)++;
}

/* With a seed, completions come in another order than submissions. */
START_TEST(test_delay_mixes)
{
	struct nvefs_dev *dev = NULL;
	struct nvefs_queue *q;
	struct ordered ios[16];
	uint8_t *buf = nvefs_buf_new(16 * 4096);
	int next = 0, moved = 0;

	ck_assert_int_eq(nvefs_delay_wrap(device_open("ram:1M"), 3000000, 7, &dev), 0);
	q = device_queue(dev);
	for (int i = 0; i < 16; i++) {
		ios[i].next = &next;
		ios[i].io = (struct nvefs_io){
		    .op = NVEFS_IO_READ, .nblks = 1, .niov = 1, .iov = &ios[i].io.one};
		ios[i].io.one = (struct iovec){buf + i * 4096, 4096};
		ios[i].io.done = ordered_done;
		ios[i].io.arg = &ios[i];
		nvefs_queue_submit(q, &ios[i].io);
	}
	while (nvefs_queue_inflight(q)) {
		nvefs_queue_wait(q, UINT64_MAX);
		nvefs_queue_poll(q, 0);
	}
	for (int i = 0; i < 16; i++)
		moved += ios[i].place != i;
	ck_assert_int_gt(moved, 4);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

START_TEST(test_fault_option)
{
	static const char *const bad[] = {"write",
					  "write:1",
					  "write:1:explode",
					  "wrote:1:fail",
					  "write:0:fail",
					  "write:1/0:fail",
					  "write:1:delay",
					  "write:1:fail:x",
					  "write:1:fail:1:1",
					  ""};
	struct nvefs_fault f;
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	uint8_t *buf = nvefs_buf_new_zeroed(4096);
	char text[256];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(nvefs_fault_parse(bad[i], &f) == -EINVAL, "'%s' is a fault", bad[i]);
	ck_assert_int_eq(nvefs_dev_open("ram:1M,fault=write:1:explode", NULL, &dev, NULL), -EINVAL);
	dev = device_open(device_target(_i, "8M", "fault=write:2/3:enospc,fault=flush:1/1:fail"));
	nvefs_dev_describe(dev, text, sizeof(text));
	ck_assert_msg(strstr(text, "faults over embedded"), "%s", text);
	q = device_queue(dev);
	for (int i = 1; i <= 6; i++)
		ck_assert_int_eq(nvefs_queue_write(q, 0, 1, buf, 0),
				 i == 2 || i == 5 ? -ENOSPC : 0);
	ck_assert_int_eq(nvefs_queue_flush(q), -EIO);
	ck_assert_int_eq(nvefs_queue_flush(q), -EIO);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

/*
 * A write that timed out lands before the third command after it, with the data that it had, over what was
 * written there meanwhile; or when the device is closed. A read that timed out never comes back.
 */
START_TEST(test_timeout_lands_late)
{
	const char *uri = device_target(_i % 2, "8M", NULL);
	struct nvefs_fault f = {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_TIMEOUT, .late_cmds = 3};
	struct nvefs_dev *dev = fault_dev(uri, &f);
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new(4096);
	bool raw = _i / 2;

	device_fill(buf, 4096, 1);
	ck_assert_int_eq(write_blk(q, 5, buf, raw), -ETIMEDOUT);
	device_fill(buf, 4096, 2);
	ck_assert(holds(q, 5, 0));
	ck_assert_int_eq(write_blk(q, 5, buf, raw), 0);
	ck_assert(holds(q, 5, 1));

	f = (struct nvefs_fault){.op = NVEFS_FAULT_ANY, .action = NVEFS_FAULT_TIMEOUT};
	ck_assert_int_eq(nvefs_fault_add(dev, &f), 0);
	ck_assert_int_eq(write_blk(q, 6, buf, raw), -ETIMEDOUT);
	nvefs_fault_clear(dev);
	f.op = NVEFS_IO_READ;
	ck_assert_int_eq(nvefs_fault_add(dev, &f), 0);
	memset(buf, 7, 4096);
	ck_assert_int_eq(nvefs_queue_read(q, 5, 1, buf), -ETIMEDOUT);
	for (int i = 0; i < 10; i++)
		ck_assert(holds(q, 6, 0));
	ck_assert_uint_eq(buf[9], 7);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	if (_i % 2) { /* memory is gone with its device */
		dev = device_open(uri);
		q = device_queue(dev);
		ck_assert(holds(q, 6, 2));
		nvefs_queue_done(q);
		nvefs_dev_close(dev);
	}
	nvefs_buf_free(buf);
}
END_TEST

/* A write in parts of which one failed and another one timed out: that it may still come is what counts. */
START_TEST(test_timeout_of_a_part)
{
	static const struct nvefs_fault f[2] = {
	    {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_FAIL, .status = NVEFS_NVME_SC_WRITE_FAULT},
	    {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_TIMEOUT, .nth = 2}};
	struct nvefs_dev *dev = NULL;
	struct nvefs_queue *q;
	uint8_t *buf = nvefs_buf_new_zeroed(16 * 4096);

	ck_assert_int_eq(nvefs_fault_wrap(device_open(device_target(_i, "8M", "mdts=32k")), f, 2, &dev), 0);
	q = device_queue(dev);
	ck_assert_uint_lt(nvefs_dev_limits(dev)->max_transfer_blks, 16);
	ck_assert_int_eq(nvefs_queue_write(q, 0, 16, buf, 0), -ETIMEDOUT);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

/* A device with a cache, with recording over it. */
static struct nvefs_dev *record_dev(const char *options, struct nvefs_record **log)
{
	struct nvefs_dev *below = device_open(options), *dev = NULL;
	struct nvefs_queue *q = device_queue(below);
	uint8_t *buf = nvefs_buf_new(4096);

	device_fill(buf, 4096, 100);
	ck_assert_int_eq(nvefs_queue_write(q, 5, 1, buf, 0), 0); /* part of the base */
	nvefs_queue_done(q);
	nvefs_buf_free(buf);
	ck_assert_int_eq(nvefs_record_wrap(below, 64 << 20, &dev, log), 0);
	return dev;
}

static void put(struct nvefs_queue *q, uint64_t pblk, uint32_t seed, uint32_t flags)
{
	uint8_t *buf = nvefs_buf_new(4096);

	device_fill(buf, 4096, seed);
	ck_assert_int_eq(nvefs_queue_write(q, pblk, 1, buf, flags), 0);
	nvefs_buf_free(buf);
}

/* Which of the seeds a block holds in a state: a bit for each; bit 0 for zeros. */
static uint32_t possible(struct nvefs_replay *r, uint64_t pblk, uint32_t nseeds)
{
	uint32_t found = 0;

	for (uint32_t state = 0; state < nvefs_replay_nstates(r); state++) {
		struct nvefs_dev *dev = NULL;
		struct nvefs_queue *q;
		uint32_t seed = 0;

		ck_assert_int_eq(nvefs_replay_open(r, state, &dev), 0);
		q = device_queue(dev);
		while (seed <= nseeds && !holds(q, pblk, seed))
			seed++;
		ck_assert_msg(seed <= nseeds, "block %u holds something else", (unsigned)pblk);
		found |= 1u << seed;
		nvefs_queue_done(q);
		nvefs_dev_close(dev);
	}
	return found;
}

START_TEST(test_replay_promises)
{
	struct nvefs_record *log = NULL;
	struct nvefs_dev *dev = record_dev("ram:1M,vwc=on", &log);
	struct nvefs_queue *q = device_queue(dev);
	struct nvefs_replay *r = NULL;
	uint32_t flushed, end;

	put(q, 1, 1, 0);
	put(q, 2, 2, NVEFS_IO_FUA);
	put(q, 3, 3, 0);
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	flushed = nvefs_record_position(log);
	put(q, 3, 4, 0);
	put(q, 3, 5, 0);
	end = nvefs_record_position(log);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);

	ck_assert_uint_eq(end, 12);
	ck_assert_int_eq(nvefs_replay_new(log, NULL, &r), 0);
	ck_assert_uint_eq(nvefs_replay_end(r), end);
	/* Nothing has happened: the base. */
	ck_assert_uint_eq(nvefs_replay_nstates(r), 1);
	ck_assert_uint_eq(possible(r, 1, 5), 1u << 0);
	/* Write 1 completed, write 2 completed with FUA, nothing flushed. */
	ck_assert_int_eq(nvefs_replay_seek(r, 4), 0);
	ck_assert_uint_eq(nvefs_replay_nuncertain(r), 1);
	ck_assert_uint_eq(possible(r, 1, 5), 1u << 0 | 1u << 1);
	ck_assert_uint_eq(possible(r, 2, 5), 1u << 2);
	/* The Flush is in flight: nothing is sure yet. */
	ck_assert_int_eq(nvefs_replay_seek(r, flushed - 1), 0);
	ck_assert_uint_eq(possible(r, 1, 5), 1u << 0 | 1u << 1);
	ck_assert_int_eq(nvefs_replay_seek(r, flushed), 0);
	ck_assert_uint_eq(nvefs_replay_nuncertain(r), 0);
	ck_assert_uint_eq(possible(r, 1, 5), 1u << 1);
	/* Two unflushed versions over a durable one: any of the three. */
	ck_assert_int_eq(nvefs_replay_seek(r, end), 0);
	ck_assert_uint_eq(nvefs_replay_nstates(r), 4 + 4);
	ck_assert_uint_eq(possible(r, 3, 5), 1u << 3 | 1u << 4 | 1u << 5);
	/* Back again: the same as before. */
	ck_assert_int_eq(nvefs_replay_seek(r, 1), 0);
	ck_assert_uint_eq(possible(r, 1, 5), 1u << 0 | 1u << 1);
	ck_assert_uint_eq(possible(r, 2, 5), 1u << 0);
	nvefs_replay_free(r);
	nvefs_record_free(log);
}
END_TEST

/* A durable write hides an older one of the same place that turns durable, or may, after it. */
START_TEST(test_replay_hides)
{
	struct nvefs_record *log = NULL;
	struct nvefs_dev *dev = record_dev("ram:1M,vwc=on", &log);
	struct nvefs_queue *q = device_queue(dev);
	struct nvefs_replay *r = NULL;
	uint32_t before;

	put(q, 1, 1, 0);
	put(q, 1, 2, NVEFS_IO_FUA);
	before = nvefs_record_position(log);
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	ck_assert_int_eq(nvefs_replay_new(log, NULL, &r), 0);
	ck_assert_int_eq(nvefs_replay_seek(r, before), 0);
	ck_assert_uint_eq(nvefs_replay_nuncertain(r), 1);
	ck_assert_uint_eq(possible(r, 1, 2), 1u << 2);
	ck_assert_int_eq(nvefs_replay_seek(r, nvefs_replay_end(r)), 0);
	ck_assert_uint_eq(possible(r, 1, 2), 1u << 2);
	nvefs_replay_free(r);
	nvefs_record_free(log);
}
END_TEST

/* A write that completed only after the Flush was submitted is not covered; without a cache all
 * that completed is durable. */
START_TEST(test_replay_order)
{
	struct nvefs_record *log = NULL;
	struct nvefs_dev *dev =
	    record_dev(_i ? "ram:1M,latency=2ms" : "ram:1M,latency=2ms,vwc=on", &log);
	struct nvefs_queue *q = device_queue(dev);
	struct nvefs_replay *r = NULL;
	struct ordered w = {.place = -1}, f = {.place = -1};
	uint8_t *buf = nvefs_buf_new(4096);
	int next = 0;

	device_fill(buf, 4096, 1);
	w.next = f.next = &next;
	w.io = (struct nvefs_io){
	    .op = NVEFS_IO_WRITE, .pblk = 1, .nblks = 1, .niov = 1, .iov = &w.io.one};
	w.io.one = (struct iovec){buf, 4096};
	f.io = (struct nvefs_io){.op = NVEFS_IO_FLUSH};
	w.io.done = f.io.done = ordered_done;
	w.io.arg = &w;
	f.io.arg = &f;
	nvefs_queue_submit(q, &w.io);
	nvefs_queue_submit(q, &f.io);
	while (nvefs_queue_inflight(q)) {
		nvefs_queue_wait(q, UINT64_MAX);
		nvefs_queue_poll(q, 0);
	}
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	ck_assert_int_eq(nvefs_replay_new(log, NULL, &r), 0);
	ck_assert_int_eq(nvefs_replay_seek(r, nvefs_replay_end(r)), 0);
	ck_assert_uint_eq(possible(r, 1, 1), _i ? 1u << 1 : 1u << 0 | 1u << 1);
	nvefs_replay_free(r);
	nvefs_record_free(log);
	nvefs_buf_free(buf);
}
END_TEST

static int count_state(struct nvefs_dev *dev, const struct nvefs_replay *r, uint32_t state,
		       void *arg)
{
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new(4096);
	int *torn = arg;
	char text[200];

	ck_assert(holds(q, 5, 100));
	/* Block 1 holds pieces of seeds 0, 1 and 2 in units of 512 bytes. */
	ck_assert_int_eq(nvefs_queue_read(q, 1, 1, buf), 0);
	*torn += memcmp(buf, buf + 512, 512) && (!buf[0] != !buf[1024]);
	/* Changes stay in the state that they were made in. */
	memset(buf, 0xaa, 4096);
	ck_assert_int_eq(nvefs_queue_write(q, 5, 1, buf, 0), 0);
	ck_assert_int_eq(nvefs_queue_write(q, 200, 1, buf, 0), 0);
	nvefs_replay_describe(r, state, text, sizeof(text));
	ck_assert_msg(strstr(text, "cut ") && strstr(text, "seed 1"), "%s", text);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
	return 0;
}

START_TEST(test_replay_each)
{
	struct nvefs_record *log = NULL;
	struct nvefs_dev *dev = record_dev("ram:1M,vwc=on,lba=512", &log);
	struct nvefs_queue *q = device_queue(dev);
	struct nvefs_replay *r = NULL;
	uint64_t nstates = 0;
	int torn = 0;

	for (uint32_t i = 0; i < 3; i++)
		put(q, 1 + i, 1 + i, 0);
	ck_assert(holds(q, 1, 1)); /* a read adds no cut */
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	ck_assert_int_eq(nvefs_replay_new(log, NULL, &r), 0);
	ck_assert_int_eq(nvefs_replay_each(r, count_state, &torn, &nstates), 0);
	/* Cuts with 0, 1, 2 and 3 uncertain writes. */
	ck_assert_uint_eq(nstates, 1 + (2 + 4) + (4 + 4) + (8 + 4));
	ck_assert_int_gt(torn, 0);
	nvefs_replay_free(r);
	nvefs_record_free(log);
}
END_TEST

/* Above the bound: a sample, with none and all in it, the same in each run. */
START_TEST(test_replay_sample)
{
	struct nvefs_replay_opts opts = nvefs_replay_defaults;
	struct nvefs_record *log = NULL;
	struct nvefs_dev *dev = record_dev("ram:1M,vwc=on", &log);
	struct nvefs_queue *q = device_queue(dev);
	struct nvefs_replay *r = NULL;
	char a[2000], b[2000];
	int differ = 0;

	for (uint32_t i = 0; i < 12; i++)
		put(q, 10 + i, 1 + i, 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	opts.samples = 40;
	ck_assert_int_eq(nvefs_replay_new(log, &opts, &r), 0);
	ck_assert_int_eq(nvefs_replay_seek(r, 24), 0);
	ck_assert_uint_eq(nvefs_replay_nuncertain(r), 12);
	ck_assert_uint_eq(nvefs_replay_nstates(r), 42);
	ck_assert_uint_eq(possible(r, 15, 12), 1u << 0 | 1u << 6);
	for (uint32_t state = 2; state < 41; state++) {
		nvefs_replay_describe(r, state, a, sizeof(a));
		nvefs_replay_describe(r, state, b, sizeof(b));
		ck_assert_str_eq(a, b);
		nvefs_replay_describe(r, state + 1, b, sizeof(b));
		differ += strcmp(strstr(a, "seed"), strstr(b, "seed")) != 0;
	}
	ck_assert_int_gt(differ, 30);
	nvefs_replay_free(r);
	nvefs_record_free(log);
}
END_TEST

/* What raw entries do is recorded, too: a raw write, and the ranges of a raw deallocate. */
START_TEST(test_record_raw)
{
	struct nvefs_record *log = NULL;
	struct nvefs_dev *dev = record_dev("ram:1M,vwc=on", &log);
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new_zeroed(4096);
	struct nvefs_nvme_dsm_range *ranges = (void *)buf;
	struct nvefs_raw_io dsm = {.io = {.op = NVEFS_IO_RAW, .niov = 1}, .data_bytes = 32};
	struct nvefs_replay *r = NULL;
	struct nvefs_queue *sq;

	device_fill(buf, 4096, 1);
	ck_assert_int_eq(write_blk(q, 1, buf, true), 0);
	memset(buf, 0, 4096);
	ranges[0] = (struct nvefs_nvme_dsm_range){.nlbs = le32_make(1), .slba = le64_make(5)};
	ranges[1] = (struct nvefs_nvme_dsm_range){.nlbs = le32_make(2), .slba = le64_make(7)};
	nvefs_nvme_sqe_dsm(&dsm.sqe, 1, 2, NVEFS_NVME_DSM_CDW11_AD);
	dsm.io.one = (struct iovec){buf, 32};
	dsm.io.iov = &dsm.io.one;
	ck_assert_int_eq(nvefs_queue_run(q, &dsm.io), 0);
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	ck_assert_uint_eq(nvefs_record_ncmds(log), 4);
	ck_assert_int_eq(nvefs_replay_new(log, NULL, &r), 0);
	ck_assert_int_eq(nvefs_replay_seek(r, nvefs_replay_end(r)), 0);
	ck_assert_uint_eq(nvefs_replay_nstates(r), 1);
	ck_assert_int_eq(nvefs_replay_open(r, 0, &dev), 0);
	sq = device_queue(dev);
	ck_assert(holds(sq, 1, 1));
	ck_assert_int_eq(nvefs_queue_read(sq, 8, 1, buf), 0);
	ck_assert_uint_eq(buf[17], NVEFS_REPLAY_DISCARDED);
	ck_assert_int_eq(nvefs_queue_read(sq, 5, 1, buf), 0);
	ck_assert_uint_eq(buf[4095], NVEFS_REPLAY_DISCARDED);
	nvefs_queue_done(sq);
	nvefs_dev_close(dev);
	nvefs_replay_free(r);
	nvefs_record_free(log);
	nvefs_buf_free(buf);
}
END_TEST

START_TEST(test_record_overflow)
{
	struct nvefs_record *log = NULL;
	struct nvefs_dev *dev = NULL;
	struct nvefs_queue *q;
	struct nvefs_replay *r = NULL;

	ck_assert_int_eq(nvefs_record_wrap(device_open("ram:1M"), 20000, &dev, &log), 0);
	q = device_queue(dev);
	for (uint32_t i = 0; i < 10; i++)
		put(q, i, i + 1, 0);
	for (uint32_t i = 0; i < 10; i++)
		ck_assert(holds(q, i, i + 1));
	ck_assert(nvefs_record_overflowed(log));
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	ck_assert_int_eq(nvefs_replay_new(log, NULL, &r), -EOVERFLOW);
	nvefs_record_free(log);
}
END_TEST

static void *recording_worker(void *arg)
{
	struct nvefs_dev *dev = arg;
	struct nvefs_queue *q = device_queue(dev);

	for (uint32_t i = 0; i < 200; i++)
		put(q, 20 + i % 10, i, 0);
	nvefs_queue_done(q);
	return NULL;
}

START_TEST(test_record_threads)
{
	struct nvefs_record *log = NULL;
	struct nvefs_dev *dev = record_dev("ram:1M,vwc=on", &log);
	pthread_t threads[3];
	uint32_t seen = 0;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(
		    nvefs_thread_start(&threads[i], "recording", recording_worker, dev), 0);
	for (int i = 0; i < 3; i++)
		nvefs_thread_join(threads[i]);
	nvefs_dev_close(dev);
	ck_assert_uint_eq(nvefs_record_ncmds(log), 600);
	ck_assert_uint_eq(nvefs_record_nevents(log), 1200);
	for (uint32_t i = 0; i < 1200; i++) {
		const struct nvefs_record_event *e = nvefs_record_event_at(log, i);
		const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(log, e->cmd);

		seen += (e->completion ? cmd->completed : cmd->submitted) == i;
		ck_assert_uint_lt(cmd->submitted, cmd->completed);
	}
	ck_assert_uint_eq(seen, 1200);
	nvefs_record_free(log);
}
END_TEST

static bool is_not(const void *arg, uint64_t pblk)
{
	return pblk != *(const uint64_t *)arg;
}

/* Layers: what lies below shows through, a reset brings it back, equal contents hash alike. */
START_TEST(test_cow_layers)
{
	struct nvefs_cow *base = nvefs_cow_new(NULL, 8), *a, *b;
	uint8_t one[4096], two[4096];
	uint64_t empty = nvefs_cow_hash(base), with_one;

	memset(one, 1, sizeof(one));
	memset(two, 2, sizeof(two));
	ck_assert_int_eq(nvefs_cow_write(base, 4096, 4096, one, 0), 0);
	with_one = nvefs_cow_hash(base);
	ck_assert(with_one != empty);
	a = nvefs_cow_new(base, 8);
	b = nvefs_cow_new(a, 8);
	ck_assert_mem_eq(nvefs_cow_block(b, 1), one, 4096);
	ck_assert(nvefs_cow_hash(b) == with_one);
	/* A part of a block: the rest is as it was. */
	ck_assert_int_eq(nvefs_cow_write(b, 4096 + 512, 512, two, 0), 0);
	ck_assert_mem_eq(nvefs_cow_block(b, 1), one, 512);
	ck_assert_mem_eq(nvefs_cow_block(b, 1) + 512, two, 512);
	ck_assert_mem_eq(nvefs_cow_block(a, 1), one, 4096);
	ck_assert(nvefs_cow_hash(b) != with_one);
	/* The same contents elsewhere are something else, and what is written twice counts once. */
	nvefs_cow_reset(b);
	ck_assert_int_eq(nvefs_cow_write(b, 4096, 4096, NULL, 0), 0);
	ck_assert(nvefs_cow_hash(b) == empty);
	ck_assert_int_eq(nvefs_cow_write(b, 8192, 4096, one, 0), 0);
	ck_assert(nvefs_cow_hash(b) != with_one);
	ck_assert_int_eq(nvefs_cow_write(b, 8192, 4096, NULL, 0), 0);
	ck_assert_int_eq(nvefs_cow_write(b, 4096, 4096, one, 0), 0);
	ck_assert(nvefs_cow_hash(b) == with_one);
	ck_assert(nvefs_cow_hash_some(b, is_not, &(uint64_t){1}) == nvefs_cow_hash_some(base, is_not, &(uint64_t){1}));
	ck_assert(nvefs_cow_hash_some(b, is_not, &(uint64_t){2}) == with_one);
	nvefs_cow_reset(b);
	ck_assert_mem_eq(nvefs_cow_block(b, 1), one, 4096);
	nvefs_cow_free(b);
	nvefs_cow_free(a);
	nvefs_cow_free(base);
}
END_TEST

Suite *device_wrap_suite(void)
{
	Suite *s = suite_create("device wrappers");
	TCase *t = tcase_create("wrappers");

	tcase_add_checked_fixture(t, device_dir_init, device_dir_done);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, test_fail, 0, 2 * DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_lies, 0, 2 * DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_tear, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_delay, 0, DEVICE_NTARGETS);
	tcase_add_test(t, test_delay_mixes);
	tcase_add_loop_test(t, test_timeout_lands_late, 0, 2 * DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_timeout_of_a_part, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_fault_option, 0, DEVICE_NTARGETS);
	tcase_add_test(t, test_cow_layers);
	tcase_add_test(t, test_replay_promises);
	tcase_add_test(t, test_replay_hides);
	tcase_add_loop_test(t, test_replay_order, 0, 2);
	tcase_add_test(t, test_replay_each);
	tcase_add_test(t, test_replay_sample);
	tcase_add_test(t, test_record_raw);
	tcase_add_test(t, test_record_overflow);
	tcase_add_test(t, test_record_threads);
	suite_add_tcase(s, t);
	return s;
}
