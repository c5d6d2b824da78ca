/* SPDX-License-Identifier: MIT */
/* How commands end and what is made of it: every status, time-outs, delays, transfers that are refused for their size. */
#include "test_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/thread.h"
#include "device/fault.h"
#include "device/layer.h"
#include "device/nvme_linux.h"
#include "device/retry.h"
#include "device/scsi_initiator.h"
#include "nvme/status.h"

/* ---- Every status code ---- */

#define ONCE NVEFS_RETRY_ONCE
#define PAUSE NVEFS_RETRY_PAUSE
#define NEVER NVEFS_RETRY_NEVER

/* By the specification: codes whose answer is not that of their type, with DNR clear. */
static const struct {
	uint16_t status;
	enum nvefs_retry_kind retry;
	int err; /* -EROFS: nothing can be written any more */
} special[] = {
    /* Generic (NVMe base 2.0, 3.3.3.2.1.1). */
    {0x01, ONCE, -EOPNOTSUPP}, {0x02, ONCE, -EINVAL},	{0x03, ONCE, -EINVAL},	 {0x05, PAUSE, -EIO},
    {0x07, PAUSE, -ECANCELED}, {0x08, PAUSE, -ECANCELED}, {0x09, ONCE, -ECANCELED}, {0x0a, ONCE, -EINVAL},
    {0x0b, ONCE, -ENODEV},     {0x0c, ONCE, -EINVAL},	{0x0d, ONCE, -EINVAL},	 {0x0e, ONCE, -EINVAL},
    {0x0f, ONCE, -EINVAL},     {0x10, ONCE, -EINVAL},	{0x11, ONCE, -EINVAL},	 {0x12, ONCE, -EINVAL},
    {0x13, ONCE, -EINVAL},     {0x14, ONCE, -EINVAL},	{0x15, ONCE, -EACCES},	 {0x16, ONCE, -EINVAL},
    {0x18, ONCE, -EINVAL},     {0x1a, ONCE, -EINVAL},	{0x1b, PAUSE, -ECANCELED}, {0x1d, ONCE, -EBUSY},
    {0x1e, ONCE, -EINVAL},     {0x1f, ONCE, -EINVAL},	{0x20, ONCE, -EROFS},	 {0x21, PAUSE, -EIO},
    {0x22, PAUSE, -EIO},       {0x23, ONCE, -EACCES},	{0x24, PAUSE, -EBUSY},	 {0x80, ONCE, -ERANGE},
    {0x81, ONCE, -ENOSPC},     {0x82, PAUSE, -EBUSY},	{0x83, ONCE, -EBADE},	 {0x84, ONCE, -EBUSY},
    /* Command specific (3.3.3.2.1.2; NVM command set 1.0, 3.1.1). */
    {0x100, ONCE, -EINVAL},    {0x101, ONCE, -EINVAL},	{0x102, ONCE, -EINVAL},	 {0x103, ONCE, -EBUSY},
    {0x105, ONCE, -EBUSY},     {0x108, ONCE, -EINVAL},	{0x109, ONCE, -EINVAL},	 {0x10a, ONCE, -EINVAL},
    {0x10c, ONCE, -EINVAL},    {0x10d, ONCE, -EINVAL},	{0x10e, ONCE, -EINVAL},	 {0x10f, ONCE, -EINVAL},
    {0x180, ONCE, -EINVAL},    {0x181, ONCE, -EINVAL},	{0x182, ONCE, -EROFS},	 {0x183, ONCE, -EINVAL},
    /* Media and data integrity (3.3.3.2.1.3): a compare that fails is an answer. */
    {0x285, NEVER, -EILSEQ},   {0x286, ONCE, -EACCES},
    /* Path related (3.3.3.2.1.4). */
    {0x371, PAUSE, -ECANCELED},
};

START_TEST(every_status)
{
	const uint32_t crdt_ms[3] = {0};

	for (uint32_t code = 0; code < 0x800; code++) {
		enum nvefs_retry_kind retry = code >> 8 == 3 ? PAUSE : ONCE;
		struct nvefs_retry_want want = nvefs_retry_for_result((int)code, crdt_ms);
		int err = -EIO;

		for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
			if (special[i].status != code)
				continue;
			retry = special[i].retry;
			err = special[i].err;
		}
		if (code == 0) {
			retry = NEVER;
			err = 0;
		}
		ck_assert_msg(want.kind == retry && !want.delay_ns, "status %#x: retry %d, not %d", code,
			      (int)want.kind, (int)retry);
		ck_assert_msg(nvefs_nvme_status_errno((uint16_t)code) == err, "status %#x: errno %d, not %d", code,
			      nvefs_nvme_status_errno((uint16_t)code), err);
		/* Do Not Retry ends it, whatever it is; CRD and More change neither. */
		for (uint32_t flags = 0; flags < 4; flags++) {
			int full = (int)(code | NVEFS_NVME_DNR | flags << NVEFS_NVME_CRD_SHIFT | NVEFS_NVME_MORE);

			ck_assert_msg(nvefs_retry_for_result(full, crdt_ms).kind == NEVER, "status %#x", full);
			ck_assert_int_eq(nvefs_nvme_status_errno((uint16_t)full), err);
		}
	}
}
END_TEST

START_TEST(errnos_of_the_kernel)
{
	const uint32_t crdt_ms[3] = {100, 200, 300};
	static const struct {
		int res;
		enum nvefs_retry_kind retry;
		int err;
	} want[] = {
	    {-EINTR, ONCE, -ETIMEDOUT}, /* given up by the kernel: late writes may still come */
	    {-EAGAIN, PAUSE, -EIO},	{-EBUSY, PAUSE, -EIO},	{-ENOMEM, PAUSE, -ENOMEM},
	    {-ENODEV, NEVER, -EIO},	{-EIO, NEVER, -EIO},	{-EACCES, NEVER, -EIO},
	    {-EINVAL, PAUSE, -EIO}, /* of one block: a path is away */
	};
	struct nvefs_nvme_linux nl = {.lock_fd = -1};
	struct nvefs_retry e = {.tries = 0};

	memcpy(nl.dev.drive.nvme.crdt_ms, crdt_ms, sizeof(crdt_ms));
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct nvefs_io io = {.op = NVEFS_IO_WRITE, .nblks = 1};

		ck_assert_msg(nvefs_nvme_linux_want(&nl, NVEFS_PATHS_ONE, &e, &io, want[i].res).kind == want[i].retry,
			      "errno %d", want[i].res);
		ck_assert_msg(nvefs_nvme_linux_result(NVEFS_PATHS_ONE, &io, want[i].res) == want[i].err, "errno %d",
			      want[i].res);
		ck_assert_int_eq(io.status.kind, NVEFS_STATUS_HOST);
		ck_assert_int_eq(io.status.host_errno, want[i].res);
	}
}
END_TEST

/*
 * EINVAL of a transfer is about its size where there is a path, asked once more when there are several. Where all are
 * away they get their time, and the answer is an error: a part of it would fare no better.
 */
static const struct {
	enum nvefs_node_paths paths;
	enum nvefs_retry_kind first, second; /* with NEVER the command ends */
	int err;
} by_paths[] = {
    {NVEFS_PATHS_ONE, NEVER, NEVER, -EMSGSIZE},
    {NVEFS_PATHS_LIVE, ONCE, NEVER, -EMSGSIZE},
    {NVEFS_PATHS_AWAY, PAUSE, PAUSE, -EIO},
    {NVEFS_PATHS_GONE, NEVER, NEVER, -EIO},
};

START_TEST(refused_for_size_or_path)
{
	static const uint8_t ops[] = {NVEFS_IO_READ, NVEFS_IO_WRITE, NVEFS_IO_COMPARE};
	const struct nvefs_retry tries[] = {{.tries = 0}, {.tries = 1}};
	struct nvefs_raw_io raw = {.io.op = NVEFS_IO_RAW, .data_bytes = 8192};
	const enum nvefs_node_paths paths = by_paths[_i].paths;
	struct nvefs_nvme_linux nl = {.lock_fd = -1};
	struct nvefs_io io = {.nblks = 8};

	for (size_t i = 0; i < sizeof(ops); i++) {
		io.op = ops[i];
		ck_assert_int_eq(nvefs_nvme_linux_want(&nl, paths, &tries[0], &io, -EINVAL).kind, by_paths[_i].first);
		ck_assert_int_eq(nvefs_nvme_linux_want(&nl, paths, &tries[1], &io, -EINVAL).kind, by_paths[_i].second);
		ck_assert_int_eq(nvefs_nvme_linux_result(paths, &io, -EINVAL), by_paths[_i].err);
	}
	io.op = NVEFS_IO_DISCARD;
	ck_assert_int_eq(nvefs_nvme_linux_want(&nl, paths, &tries[0], &io, -EINVAL).kind,
			 paths == NVEFS_PATHS_GONE ? NEVER : PAUSE);
	ck_assert_int_eq(nvefs_nvme_linux_result(paths, &io, -EINVAL), -EIO);
	raw.sqe.opcode = NVEFS_NVME_READ;
	ck_assert_int_eq(nvefs_nvme_linux_result(paths, &raw.io, -EINVAL), by_paths[_i].err);
	raw.sqe.opcode = NVEFS_NVME_DSM;
	ck_assert_int_eq(nvefs_nvme_linux_result(paths, &raw.io, -EINVAL), -EIO);
}
END_TEST

START_TEST(scsi_time_out)
{
	struct nvefs_scsi_task task = {.hdr.host_status = NVEFS_SCSI_HOST_TIME_OUT};
	struct nvefs_io io = {.op = NVEFS_IO_WRITE, .nblks = 1};

	ck_assert_int_eq(nvefs_scsi_task_result(&task, &io), -ETIMEDOUT);
	task.hdr.host_status = NVEFS_SCSI_HOST_ERROR;
	ck_assert_int_eq(nvefs_scsi_task_result(&task, &io), -EIO);
}
END_TEST

/* ---- Command Retry Delay ---- */

START_TEST(delays_that_the_controller_names)
{
	const uint32_t crdt_ms[3] = {200, 0, 25000};
	const int media = NVEFS_NVME_SC_READ_ERROR, crd1 = 1 << NVEFS_NVME_CRD_SHIFT, crd2 = 2 << NVEFS_NVME_CRD_SHIFT,
		  crd3 = 3 << NVEFS_NVME_CRD_SHIFT;
	struct nvefs_retry e = {.tries = 0};
	uint64_t pause_ns = 0, sum = 0;
	struct nvefs_retry_want want;
	int n = 0;

	ck_assert_uint_eq(nvefs_retry_for_result(media, crdt_ms).delay_ns, 0);
	want = nvefs_retry_for_result(media | crd1, crdt_ms);
	ck_assert_int_eq(want.kind, PAUSE);
	ck_assert_uint_eq(want.delay_ns, 200000000);
	/* A time that the controller does not have is none. */
	want = nvefs_retry_for_result(media | crd2, crdt_ms);
	ck_assert_int_eq(want.kind, ONCE);
	ck_assert_uint_eq(want.delay_ns, 0);
	/* An answer is not asked for again. */
	ck_assert_int_eq(nvefs_retry_for_result(NVEFS_NVME_SC_COMPARE_FAILED | crd1, crdt_ms).kind, NEVER);

	/* Bounded by number ... */
	want = nvefs_retry_for_result(media | crd1, crdt_ms);
	while (n < 100 && nvefs_retry_next(&e, want, &pause_ns)) {
		ck_assert_uint_eq(pause_ns, 200000000);
		n++;
	}
	ck_assert_int_ge(n, 3);
	ck_assert_int_le(n, 10);
	/* ... and by time: not before it is due, and not for ever. */
	e = (struct nvefs_retry){.tries = 0};
	want = nvefs_retry_for_result(media | crd3, crdt_ms);
	for (n = 0; n < 100 && nvefs_retry_next(&e, want, &pause_ns); n++)
		sum += pause_ns;
	ck_assert_int_eq(n, 2);
	ck_assert_uint_eq(sum, 50000000000);
	e = (struct nvefs_retry){.tries = 0};
	ck_assert(!nvefs_retry_next(&e, (struct nvefs_retry_want){PAUSE, UINT64_MAX}, &pause_ns));
}
END_TEST

/* ---- Refused for their size ---- */

/* A host that takes less than its limits say: more than `most` blocks, or from a block on nothing at all. */
struct picky {
	struct nvefs_dev dev;
	uint32_t most;
	uint64_t bad_pblk;
};

static int picky_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	return nvefs_layer_queue_init(dev, q, 0);
}

static int picky_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	const struct picky *p = nvefs_container_of(q->dev, struct picky, dev);
	struct nvefs_layer_slot *slot;

	if (io->op != NVEFS_IO_FLUSH && io->nblks > p->most) {
		nvefs_queue_finish_later(q, io, -EMSGSIZE);
		return 0;
	}
	slot = nvefs_layer_slot_get(q, io);
	if (!slot)
		return -EAGAIN;
	if (p->bad_pblk >= io->pblk && p->bad_pblk < io->pblk + io->nblks) {
		nvefs_layer_slot_put(slot);
		nvefs_queue_finish_later(q, io, -EIO);
		return 0;
	}
	nvefs_layer_send(slot);
	return 0;
}

static void picky_close(struct nvefs_dev *dev)
{
	free(nvefs_container_of(dev, struct picky, dev));
}

static const struct nvefs_backend_ops picky_ops = {
    .name = "picky",
    .close = picky_close,
    .queue_init = picky_queue_init,
    .queue_done = nvefs_layer_queue_done,
    .submit = picky_submit,
    .poll = nvefs_layer_poll,
    .prepare_wait = nvefs_layer_prepare_wait,
};

static struct picky *picky_open(const char *uri, uint32_t most)
{
	struct picky *p = calloc(1, sizeof(*p));

	nvefs_dev_init(&p->dev, &picky_ops, device_open(uri));
	p->most = most;
	p->bad_pblk = UINT64_MAX;
	return p;
}

static const uint32_t most[] = {1, 2, 7, 64, 255};

START_TEST(a_refused_transfer_goes_in_parts)
{
	struct picky *p = picky_open("ram:16M,depth=4", most[_i]);
	struct nvefs_queue *q = device_queue(&p->dev);
	const uint32_t n = 1000; /* in parts already, by the limit of 256 */
	uint8_t *a = nvefs_buf_new(n * 4096), *b = nvefs_buf_new(n * 4096);
	struct iovec iov[3] = {{b, 4096 * 3}, {b + 4096 * 3, 4096 * 500}, {b + 4096 * 503, 4096 * 497}};
	struct nvefs_io io = {.op = NVEFS_IO_READ, .pblk = 5, .nblks = n, .iov = iov, .niov = 3};
	struct nvefs_dev_counters c;

	device_fill(a, n * 4096, 3);
	ck_assert_int_eq(nvefs_queue_write(q, 5, n, a, 0), 0);
	ck_assert_int_eq(nvefs_queue_run(q, &io), 0);
	device_expect(b, n * 4096, 3, "read in parts");
	io.op = NVEFS_IO_COMPARE;
	ck_assert_int_eq(nvefs_queue_run(q, &io), 0);
	b[4096 * 999]++;
	ck_assert_int_eq(nvefs_queue_run(q, &io), -EILSEQ);
	nvefs_dev_counters(&p->dev, &c);
	ck_assert_uint_gt(c.refused, 0);
	ck_assert_uint_eq(nvefs_queue_inflight(q), 0);
	/* One block is the least: refused, it is an error. */
	p->most = 0;
	ck_assert_int_eq(nvefs_queue_write(q, 5, 1, a, 0), -EMSGSIZE);
	ck_assert_int_eq(nvefs_queue_write(q, 5, 300, a, 0), -EIO);
	/* Another error stays what it is. */
	p->most = most[_i];
	p->bad_pblk = 77;
	ck_assert_int_eq(nvefs_queue_write(q, 5, n, a, 0), -EIO);
	nvefs_queue_done(q);
	nvefs_dev_close(&p->dev);
	nvefs_buf_free(a);
	nvefs_buf_free(b);
}
END_TEST

static void count_done(struct nvefs_io *io)
{
	ck_assert_int_eq(io->err, 0);
	++*(int *)io->arg;
}

/* Many at once, more than the queue holds and than there are parts: each ends, once. */
START_TEST(many_refused_transfers)
{
	enum { N = 50, BLKS = 40 };
	struct picky *p = picky_open("ram:16M,depth=3", 4);
	struct nvefs_queue *q = device_queue(&p->dev);
	uint8_t *a = nvefs_buf_new(N * BLKS * 4096), *b = nvefs_buf_new(N * BLKS * 4096);
	struct nvefs_io ios[N];
	int done = 0;

	device_fill(a, N * BLKS * 4096, 9);
	for (int i = 0; i < N; i++) {
		ios[i] = (struct nvefs_io){.op = NVEFS_IO_WRITE, .pblk = (uint64_t)i * BLKS, .nblks = BLKS, .niov = 1};
		ios[i].one = (struct iovec){a + (size_t)i * BLKS * 4096, BLKS * 4096};
		ios[i].iov = &ios[i].one;
		ios[i].done = count_done;
		ios[i].arg = &done;
		nvefs_queue_submit(q, &ios[i]);
	}
	while (done < N) {
		nvefs_queue_poll(q, 0);
		if (done < N)
			nvefs_queue_wait(q, 100000000);
	}
	ck_assert_int_eq(nvefs_queue_read(q, 0, N * BLKS, b), 0);
	ck_assert_int_eq(memcmp(a, b, N * BLKS * 4096), 0);
	nvefs_queue_done(q);
	nvefs_dev_close(&p->dev);
	nvefs_buf_free(a);
	nvefs_buf_free(b);
}
END_TEST

/* ---- Not answered ---- */

static struct nvefs_slow told[64];
static uint32_t ntold;

static void tell(void *arg, const struct nvefs_slow *slow)
{
	ck_assert_ptr_eq(arg, told);
	ck_assert_uint_lt(ntold, 64);
	told[ntold++] = *slow;
}

static void submit_read(struct nvefs_queue *q, struct nvefs_io *io, uint64_t pblk, void *buf, int *done)
{
	*io = (struct nvefs_io){.op = NVEFS_IO_READ, .pblk = pblk, .nblks = 1, .niov = 1, .done = count_done, .arg = done};
	io->one = (struct iovec){buf, 4096};
	io->iov = &io->one;
	nvefs_queue_submit(q, io);
}

/*
 * One of many commands is not answered for 400 ms, while others come and go: it is told of once, after 100 to
 * 150 ms, and goes on waiting. Of four that hang together one is told of, and their number.
 */
START_TEST(what_is_not_answered_is_told_once)
{
	const struct nvefs_fault late = {
	    .op = NVEFS_IO_READ, .action = NVEFS_FAULT_LATE, .nth = 1, .first_pblk = 7, .end_pblk = 8,
	    .every = 1, .delay_ns = 400000000};
	const struct nvefs_fault late_flush = {.op = NVEFS_IO_FLUSH, .action = NVEFS_FAULT_DELAY, .nth = 1,
					       .delay_ns = 300000000};
	struct nvefs_dev *dev = NULL;
	struct nvefs_queue *q;
	uint8_t *buf = nvefs_buf_new(8 * 4096);
	struct nvefs_io ios[5];
	int done = 0, quick = 0;
	uint64_t start;

	ck_assert_int_eq(nvefs_fault_wrap(device_open("ram:16M,vwc=on"), &late, 1, &dev), 0);
	ck_assert_int_eq(nvefs_fault_add(dev, &late_flush), 0);
	nvefs_dev_watch(dev, 100000000, tell, told);
	q = device_queue(dev);
	submit_read(q, &ios[0], 7, buf, &done);
	start = nvefs_now_ns();
	while (!done) {
		submit_read(q, &ios[1], 100, buf + 4096, &quick);
		nvefs_queue_poll(q, 0);
		nvefs_queue_wait(q, 1000000);
		while (nvefs_queue_inflight(q) > (done ? 0u : 1u))
			nvefs_queue_poll(q, 0);
	}
	ck_assert_uint_ge(nvefs_now_ns() - start, 390000000);
	ck_assert_int_gt(quick, 10);
	ck_assert_uint_eq(ntold, 1);
	ck_assert_int_eq(told[0].op, NVEFS_IO_READ);
	ck_assert_uint_eq(told[0].pblk, 7);
	ck_assert_uint_eq(told[0].nblks, 1);
	ck_assert_uint_eq(told[0].others, 0);
	ck_assert_uint_ge(told[0].age_ns, 100000000);
	for (int i = 0; i < 4; i++)
		submit_read(q, &ios[i], 7, buf + i * 4096, &done);
	while (done < 5) {
		nvefs_queue_poll(q, 0);
		nvefs_queue_wait(q, UINT64_MAX); /* its own timer wakes it */
	}
	ck_assert_uint_eq(ntold, 2);
	ck_assert_uint_eq(told[1].others, 3);
	/* In a synchronous call, too. */
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	ck_assert_uint_eq(ntold, 3);
	ck_assert_int_eq(told[2].op, NVEFS_IO_FLUSH);
	/* Nothing under way: the timer ends by itself, and nothing is told. */
	nvefs_queue_wait(q, 200000000);
	nvefs_queue_wait(q, 200000000);
	ck_assert_uint_eq(ntold, 3);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

Suite *device_status_suite(void)
{
	Suite *s = suite_create("device status");
	TCase *t = tcase_create("status");

	tcase_add_test(t, every_status);
	tcase_add_test(t, errnos_of_the_kernel);
	tcase_add_loop_test(t, refused_for_size_or_path, 0, (int)(sizeof(by_paths) / sizeof(by_paths[0])));
	tcase_add_test(t, scsi_time_out);
	tcase_add_test(t, delays_that_the_controller_names);
	tcase_add_loop_test(t, a_refused_transfer_goes_in_parts, 0, sizeof(most) / sizeof(most[0]));
	tcase_add_test(t, many_refused_transfers);
	tcase_add_test(t, what_is_not_answered_is_told_once);
	suite_add_tcase(s, t);
	return s;
}
