/* SPDX-License-Identifier: MIT */
/* Fused Compare and Write on the embedded controller: what each half comes to, and that no write comes between. */
#include "test_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/thread.h"
#include "device/backend.h"
#include "nvme/status.h"

#define LBA 512u
#define NLBAS 16384u /* 8 MiB */

struct half {
	struct nvefs_raw_io raw;
	bool finished;
};
static struct half first, second, other;

static void half_done(struct nvefs_io *io)
{
	((struct half *)io->arg)->finished = true;
}

static void half_build(struct half *h, uint8_t opcode, uint8_t fuse, uint64_t slba, uint32_t nlbs, void *data)
{
	bool has_data = opcode == NVEFS_NVME_READ || opcode == NVEFS_NVME_WRITE || opcode == NVEFS_NVME_COMPARE;

	memset(h, 0, sizeof(*h));
	nvefs_nvme_sqe_rw(&h->raw.sqe, opcode, 1, slba, nlbs, 0);
	h->raw.sqe.flags = fuse;
	h->raw.data_bytes = has_data ? nlbs * LBA : 0;
	h->raw.io.op = NVEFS_IO_RAW;
	h->raw.io.one = (struct iovec){data, h->raw.data_bytes};
	h->raw.io.iov = &h->raw.io.one;
	h->raw.io.niov = has_data;
	h->raw.io.done = half_done;
	h->raw.io.arg = h;
}

/* On any thread. A command that nothing wakes us for is as bad as a wrong one. */
static void wait_for(struct nvefs_queue *q, const struct half *h)
{
	nvefs_queue_poll(q, 0);
	while (!h->finished) {
		uint64_t start = nvefs_now_ns();

		nvefs_queue_wait(q, 10000000000);
		if (nvefs_now_ns() - start > 9000000000) {
			fprintf(stderr, "opcode %#x: not woken for ten seconds\n", h->raw.sqe.opcode);
			abort();
		}
		nvefs_queue_poll(q, 0);
	}
}

static uint16_t status_of(const struct half *h)
{
	ck_assert_int_eq(h->raw.io.status.kind, NVEFS_STATUS_NVME);
	return h->raw.io.status.nvme & NVEFS_NVME_STATUS_MASK;
}

/* Submit `first` and `second` as they are built, and look at both. */
static void expect_pair(struct nvefs_queue *q, uint16_t by_first, uint16_t by_second, const char *what)
{
	nvefs_queue_submit(q, &first.raw.io);
	nvefs_queue_submit(q, &second.raw.io);
	wait_for(q, &first);
	wait_for(q, &second);
	ck_assert_msg(status_of(&first) == by_first && status_of(&second) == by_second,
		      "%s: %#x and %#x, not %#x and %#x", what, status_of(&first), status_of(&second), by_first, by_second);
}

static void build_pair(uint64_t slba, uint32_t nlbs, void *compare, void *write)
{
	half_build(&first, NVEFS_NVME_COMPARE, NVEFS_NVME_FUSE_FIRST, slba, nlbs, compare);
	half_build(&second, NVEFS_NVME_WRITE, NVEFS_NVME_FUSE_SECOND, slba, nlbs, write);
}

static void expect_medium(struct nvefs_queue *q, uint64_t slba, uint32_t nlbs, uint32_t seed, const char *what)
{
	uint8_t *buf = nvefs_buf_new(nlbs * LBA);

	half_build(&other, NVEFS_NVME_READ, 0, slba, nlbs, buf);
	nvefs_queue_submit(q, &other.raw.io);
	wait_for(q, &other);
	ck_assert_uint_eq(status_of(&other), 0);
	device_expect(buf, nlbs * LBA, seed, what);
	nvefs_buf_free(buf);
}

static struct nvefs_dev *dev;
static struct nvefs_queue *q;
static uint8_t *a, *b, *z;

static void open_target(int index, const char *options)
{
	dev = device_open(device_target(index, "8M", options));
	q = device_queue(dev);
	a = nvefs_buf_new(32 * LBA);
	b = nvefs_buf_new(32 * LBA);
	z = nvefs_buf_new_zeroed(32 * LBA);
	device_fill(a, 32 * LBA, 1);
	device_fill(b, 32 * LBA, 2);
}

static void close_target(void)
{
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(a);
	nvefs_buf_free(b);
	nvefs_buf_free(z);
}

START_TEST(test_pair)
{
	open_target(_i, "lba=512,mdts=8k");
	ck_assert(nvefs_dev_takes_fused(dev));
	build_pair(3, 5, z, a);
	expect_pair(q, 0, 0, "zeros become a");
	build_pair(3, 5, a, b);
	expect_pair(q, 0, 0, "a becomes b");
	expect_medium(q, 3, 5, 2, "written");
	build_pair(3, 5, a, a);
	expect_pair(q, NVEFS_NVME_SC_COMPARE_FAILED, NVEFS_NVME_SC_FUSED_FAILED, "no longer a");
	expect_medium(q, 3, 5, 2, "not written");
	build_pair(NLBAS - 1, 1, z, a);
	expect_pair(q, 0, 0, "the last LBA");
	build_pair(NLBAS - 1, 2, z, a);
	expect_pair(q, NVEFS_NVME_SC_LBA_RANGE, NVEFS_NVME_SC_LBA_RANGE, "past the end");
	build_pair(0, 17, z, a);
	expect_pair(q, NVEFS_NVME_SC_INVALID_FIELD, NVEFS_NVME_SC_INVALID_FIELD, "above MDTS");
	close_target();
}
END_TEST

/* The half that is wrong says why, the other one that it went with it; nothing is written. */
START_TEST(test_wrong_halves)
{
	open_target(_i, "lba=512,mdts=8k");
	build_pair(0, 2, z, a);
	second.raw.data_bytes = LBA;
	second.raw.io.one.iov_len = LBA;
	expect_pair(q, NVEFS_NVME_SC_FUSED_FAILED, NVEFS_NVME_SC_SGL_DATA_LEN, "write without its data");
	build_pair(0, 2, z, a);
	first.raw.sqe.nsid = le32_make(2);
	expect_pair(q, NVEFS_NVME_SC_INVALID_NS, NVEFS_NVME_SC_FUSED_FAILED, "compare elsewhere");
	build_pair(0, 2, z, a);
	second.raw.sqe.cdw12 = le32_make(le32_get(second.raw.sqe.cdw12) | 1u << 29);
	expect_pair(q, NVEFS_NVME_SC_FUSED_FAILED, NVEFS_NVME_SC_INVALID_FIELD, "PRACT without protection");
	build_pair(0, 2, z, a);
	second.raw.sqe.cdw10 = le32_make(1);
	expect_pair(q, NVEFS_NVME_SC_INVALID_FIELD, NVEFS_NVME_SC_INVALID_FIELD, "not the same LBAs");
	build_pair(0, 2, z, a);
	first.raw.sqe.opcode = NVEFS_NVME_READ;
	expect_pair(q, NVEFS_NVME_SC_INVALID_FIELD, NVEFS_NVME_SC_INVALID_FIELD, "read and write are no pair");
	build_pair(0, 2, z, z);
	expect_pair(q, 0, 0, "still zeros");
	close_target();
}
END_TEST

/* Halves by themselves, also when the other one comes too late. */
START_TEST(test_missing)
{
	open_target(_i, "lba=512,mdts=8k");
	half_build(&first, NVEFS_NVME_COMPARE, NVEFS_NVME_FUSE_FIRST, 0, 1, z);
	nvefs_queue_submit(q, &first.raw.io);
	wait_for(q, &first);
	ck_assert_uint_eq(status_of(&first), NVEFS_NVME_SC_FUSED_MISSING);
	half_build(&second, NVEFS_NVME_WRITE, NVEFS_NVME_FUSE_SECOND, 0, 1, a);
	nvefs_queue_submit(q, &second.raw.io);
	wait_for(q, &second);
	ck_assert_uint_eq(status_of(&second), NVEFS_NVME_SC_FUSED_MISSING);
	half_build(&first, NVEFS_NVME_WRITE, NVEFS_NVME_FUSE_MASK, 0, 1, a);
	nvefs_queue_submit(q, &first.raw.io);
	wait_for(q, &first);
	ck_assert_uint_eq(status_of(&first), NVEFS_NVME_SC_INVALID_FIELD);
	/* Something in between: each half alone, and that something as if they were not there. */
	build_pair(0, 1, z, a);
	half_build(&other, NVEFS_NVME_WRITE, 0, 5, 1, a);
	nvefs_queue_submit(q, &first.raw.io);
	nvefs_queue_submit(q, &other.raw.io);
	nvefs_queue_submit(q, &second.raw.io);
	wait_for(q, &first);
	wait_for(q, &other);
	wait_for(q, &second);
	ck_assert_uint_eq(status_of(&first), NVEFS_NVME_SC_FUSED_MISSING);
	ck_assert_uint_eq(status_of(&other), 0);
	ck_assert_uint_eq(status_of(&second), NVEFS_NVME_SC_FUSED_MISSING);
	build_pair(0, 1, z, a);
	expect_pair(q, 0, 0, "a pair after all that");
	close_target();
}
END_TEST

/* A ring that is nearly full: the pair waits until it fits whole. In a ring of one it never does. */
START_TEST(test_full_ring)
{
	struct half busy[7];

	open_target(_i, "lba=512,mdts=8k,depth=4,latency=1ms");
	for (int i = 0; i < 7; i++) {
		half_build(&busy[i], NVEFS_NVME_WRITE, 0, 100 + 2 * (uint64_t)i, 1, a);
		nvefs_queue_submit(q, &busy[i].raw.io);
	}
	build_pair(0, 4, z, b);
	expect_pair(q, 0, 0, "behind seven writes in a ring of four");
	for (int i = 0; i < 7; i++) {
		wait_for(q, &busy[i]);
		ck_assert_uint_eq(status_of(&busy[i]), 0);
	}
	expect_medium(q, 0, 4, 2, "written");
	nvefs_queue_done(q);
	ck_assert_int_eq(nvefs_queue_init(dev, 1, &q), 0);
	build_pair(0, 4, b, z);
	expect_pair(q, NVEFS_NVME_SC_FUSED_MISSING, NVEFS_NVME_SC_FUSED_MISSING, "a ring of one");
	expect_medium(q, 0, 4, 2, "not written");
	close_target();
}
END_TEST

START_TEST(test_read_only)
{
	open_target(_i, "lba=512,ro");
	build_pair(0, 1, z, a);
	expect_pair(q, NVEFS_NVME_SC_FUSED_FAILED, NVEFS_NVME_SC_NS_WRITE_PROTECTED, "write protected");
	close_target();
}
END_TEST

/*
 * Each of the threads below has a queue of its own. Two count up by Compare and Write, one sets the count
 * back and raises the epoch by plain writes, one writes elsewhere as fast as it can. A write that came between
 * a compare and its write would be lost: the epoch would go back.
 */
#define NEPOCHS 1500
struct count {
	uint64_t epoch, n;
};
struct racer {
	pthread_t thread;
	struct nvefs_queue *q;
	struct half first, second;
	uint64_t good, bad;
	void (*work)(struct racer *r);
};
static uint32_t racing; /* atomic */

static void racer_run(struct racer *r, struct half *h)
{
	nvefs_queue_submit(r->q, &h->raw.io);
	wait_for(r->q, h);
	r->bad += h->raw.io.err != 0;
}

static void count_up(struct racer *r)
{
	struct count *old = nvefs_buf_new_zeroed(LBA), *new = nvefs_buf_new_zeroed(LBA);

	while (__atomic_load_n(&racing, __ATOMIC_ACQUIRE)) {
		half_build(&r->first, NVEFS_NVME_READ, 0, 0, 1, old);
		racer_run(r, &r->first);
		*new = (struct count){old->epoch, old->n + 1};
		half_build(&r->first, NVEFS_NVME_COMPARE, NVEFS_NVME_FUSE_FIRST, 0, 1, old);
		half_build(&r->second, NVEFS_NVME_WRITE, NVEFS_NVME_FUSE_SECOND, 0, 1, new);
		nvefs_queue_submit(r->q, &r->first.raw.io);
		nvefs_queue_submit(r->q, &r->second.raw.io);
		wait_for(r->q, &r->first);
		wait_for(r->q, &r->second);
		r->good += !r->first.raw.io.err;
		r->bad += r->first.raw.io.err && r->first.raw.io.err != -EILSEQ;
	}
	nvefs_buf_free(old);
	nvefs_buf_free(new);
}

static void write_elsewhere(struct racer *r)
{
	uint8_t *buf = nvefs_buf_new_zeroed(LBA);

	while (__atomic_load_n(&racing, __ATOMIC_ACQUIRE)) {
		half_build(&r->first, r->good % 3 ? NVEFS_NVME_WRITE : NVEFS_NVME_WRITE_ZEROES, 0, 8 + r->good % 8, 1, buf);
		racer_run(r, &r->first);
		r->good++;
	}
	nvefs_buf_free(buf);
}

static void *race(void *arg)
{
	struct racer *r = arg;

	if (nvefs_queue_init(dev, 0, &r->q)) {
		r->bad++;
		return NULL;
	}
	r->work(r);
	nvefs_queue_done(r->q);
	return NULL;
}

/* On the test's own thread: the epoch is what this one wrote last, whatever the others count. */
static void raise_epochs(struct racer *r)
{
	struct count *c = nvefs_buf_new_zeroed(LBA);

	for (uint64_t epoch = 1; epoch <= NEPOCHS; epoch++) {
		*c = (struct count){epoch, 0};
		half_build(&r->first, NVEFS_NVME_WRITE, 0, 0, 1, c);
		racer_run(r, &r->first);
		for (int i = 0; i < 2; i++) {
			half_build(&r->first, NVEFS_NVME_READ, 0, 0, 1, c);
			racer_run(r, &r->first);
			ck_assert_msg(c->epoch == epoch, "epoch %llu after epoch %llu was written",
				      (unsigned long long)c->epoch, (unsigned long long)epoch);
		}
	}
	nvefs_buf_free(c);
}

START_TEST(test_atomic)
{
	static void (*const work[])(struct racer *) = {count_up, count_up, write_elsewhere};
	struct racer r[4];

	memset(r, 0, sizeof(r));
	dev = device_open(device_target(_i, "8M", "lba=512"));
	ck_assert_int_eq(nvefs_queue_init(dev, 0, &r[3].q), 0);
	__atomic_store_n(&racing, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++) {
		r[i].work = work[i];
		ck_assert_int_eq(nvefs_thread_start(&r[i].thread, "racer", race, &r[i]), 0);
	}
	raise_epochs(&r[3]);
	__atomic_store_n(&racing, 0, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++) {
		nvefs_thread_join(r[i].thread);
		ck_assert_uint_eq(r[i].bad, 0);
		ck_assert_uint_gt(r[i].good, 0);
	}
	nvefs_queue_done(r[3].q);
	nvefs_dev_close(dev);
}
END_TEST

Suite *device_fused_suite(void)
{
	Suite *s = suite_create("device fused");
	TCase *t = tcase_create("fused");

	tcase_add_checked_fixture(t, device_dir_init, device_dir_done);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, test_pair, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_wrong_halves, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_missing, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_full_ring, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_read_only, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_atomic, 0, DEVICE_NTARGETS);
	suite_add_tcase(s, t);
	return s;
}
