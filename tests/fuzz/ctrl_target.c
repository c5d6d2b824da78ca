/* SPDX-License-Identifier: MIT */
/*
 * The embedded controller's commands: entries as they come, on the I/O queue and
 * as admin commands, several in flight.
 *
 * Input: one byte of properties of the controller, then records of 24 bytes: kind
 * (I/O or admin), opcode, flags, NSID, length of the data buffer, CDW10 to CDW13.
 */
#include <string.h>

#include "base/buf.h"
#include "device/backend.h"
#include "device/embedded.h"
#include "nvme/admin.h"
#include "nvme/status.h"
#include "target.h"

const char fuzz_name[] = "ctrl";

#define RECORD 24u
#define RECORDS_MAX 64u
#define BUF_BYTES 16384u
#define NLBAS_512 2048u /* 1 MiB */

struct fuzz_ctrl {
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	uint8_t *buf;
	struct nvefs_raw_io raw[RECORDS_MAX];
	uint32_t done;
	int good;
};

static void raw_done(struct nvefs_io *io)
{
	struct fuzz_ctrl *f = io->arg;

	PROMISE(io->status.kind == NVEFS_STATUS_NVME);
	PROMISE(io->err == nvefs_nvme_status_errno(io->status.nvme));
	f->done++;
	f->good |= !io->err;
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void open_ctrl(struct fuzz_ctrl *f, uint8_t properties)
{
	struct nvefs_error err = {""};
	char target[96];

	snprintf(target, sizeof(target), "ram:1M,lba=%s,mdts=8k,queues=2,depth=%u,vwc=%s,iu=%s",
		 properties & 1 ? "512" : "4096", properties & 2 ? 2 : 32, properties & 4 ? "on" : "off",
		 properties & 8 ? "64k" : "4k");
	if (nvefs_dev_open(target, &(struct nvefs_dev_open_opts){0}, &f->dev, &err) ||
	    nvefs_queue_init(f->dev, 0, &f->q)) {
		fprintf(stderr, "%s: %s\n", target, err.text);
		abort();
	}
}

static void submit(struct fuzz_ctrl *f, const uint8_t *rec, uint32_t i)
{
	struct nvefs_raw_io *r = &f->raw[i];
	uint16_t status = 0;
	uint32_t result = 0;

	memset(r, 0, sizeof(*r));
	r->sqe.opcode = rec[1];
	r->sqe.flags = rec[2];
	r->sqe.nsid = le32_make(rec[3] == 255 ? NVEFS_NVME_NSID_ALL : rec[3]);
	r->data_bytes = (uint32_t)(rec[4] | rec[5] << 8) % (BUF_BYTES + 1);
	r->sqe.cdw10 = le32_make(get32(rec + 8));
	r->sqe.cdw11 = le32_make(get32(rec + 12));
	r->sqe.cdw12 = le32_make(get32(rec + 16));
	r->sqe.cdw13 = le32_make(get32(rec + 20));
	if (rec[0] & 1) {
		if (nvefs_dev_admin(f->dev, &r->sqe, r->data_bytes ? f->buf : NULL, r->data_bytes, &result, &status) == 0)
			f->good |= !status;
		f->done++;
		return;
	}
	/* Ranges of a Dataset Management command come out of the buffer; it has no use for CDW12 and 13. */
	for (uint32_t k = 0; rec[0] & 2 && k < 256; k++)
		((struct nvefs_nvme_dsm_range *)(void *)f->buf)[k] = (struct nvefs_nvme_dsm_range){
			.nlbs = le32_make(get32(rec + 20)), .slba = le64_make((uint64_t)get32(rec + 16) + k)};
	r->io.op = NVEFS_IO_RAW;
	r->io.one = (struct iovec){f->buf, r->data_bytes};
	r->io.iov = &r->io.one;
	r->io.niov = r->data_bytes ? 1 : 0;
	r->io.done = raw_done;
	r->io.arg = f;
	nvefs_queue_submit(f->q, &r->io);
}

int fuzz_one(const uint8_t *data, size_t size)
{
	static struct fuzz_ctrl f;
	uint32_t n = 0;

	if (size < 1 + RECORD || size > FUZZ_INPUT_MAX)
		return 0;
	if (!f.buf)
		f.buf = nvefs_buf_new_zeroed(BUF_BYTES);
	PROMISE(f.buf);
	memset(f.buf, 0, BUF_BYTES);
	f.done = 0;
	f.good = 0;
	open_ctrl(&f, data[0]);
	for (size_t at = 1; at + RECORD <= size && n < RECORDS_MAX; at += RECORD)
		submit(&f, data + at, n++);
	for (uint32_t turns = 0; f.done < n && turns < 100000; turns++)
		if (!nvefs_queue_poll(f.q, 0))
			nvefs_queue_wait(f.q, 1000000);
	PROMISE(f.done == n); /* each command is answered, once */
	nvefs_queue_done(f.q);
	nvefs_dev_close(f.dev);
	return f.good;
}

size_t fuzz_seed(unsigned int number, uint8_t *ret_input)
{
	static const uint8_t seeds[][RECORD] = {
		{0, NVEFS_NVME_FLUSH, 0, 1},
		{0, NVEFS_NVME_WRITE, 0, 1, 0, 0x10, [8] = 5},
		{0, NVEFS_NVME_READ, 0, 1, 0, 0x10, [8] = 5},
		{0, NVEFS_NVME_COMPARE, 0, 1, 0, 0x10},
		{0, NVEFS_NVME_WRITE_ZEROES, 0, 1, [16] = 1},
		{2, NVEFS_NVME_DSM, 0, 1, 16, 0, [12] = 4, [20] = 3},
		{0, NVEFS_NVME_VERIFY, 0, 1, [16] = 1},
		{1, NVEFS_NVME_ADMIN_SET_FEATURES, 0, 0, 0, 0, [8] = 2},
		{1, NVEFS_NVME_ADMIN_IDENTIFY, 0, 1, 0, 0x10, [8] = 0},
		{1, NVEFS_NVME_ADMIN_IDENTIFY, 0, 0, 0, 0x10, [8] = 1},
		{1, NVEFS_NVME_ADMIN_GET_FEATURES, 0, 0, 0, 0, [8] = 6},
		{1, NVEFS_NVME_ADMIN_SET_FEATURES, 0, 0, 0, 0, [8] = 6, [12] = 1},
		{1, NVEFS_NVME_ADMIN_GET_LOG_PAGE, 0, 255, 0, 2, [8] = 2, [10] = 127},
	};
	static const uint8_t pair[2][RECORD] = {
		{0, NVEFS_NVME_COMPARE, NVEFS_NVME_FUSE_FIRST, 1, 0, 0x10},
		{0, NVEFS_NVME_WRITE, NVEFS_NVME_FUSE_SECOND, 1, 0, 0x10},
	};
	const unsigned int n = sizeof(seeds) / sizeof(seeds[0]);

	ret_input[0] = number < n ? 4 : 0;
	if (number < n) {
		memcpy(ret_input + 1, seeds[number], RECORD);
		return 1 + RECORD;
	}
	if (number > n + 1)
		return 0;
	memcpy(ret_input + 1, pair, sizeof(pair));
	if (number == n)
		return 1 + sizeof(pair);
	memcpy(ret_input + 1 + sizeof(pair), seeds, sizeof(seeds)); /* one after the other */
	return 1 + sizeof(pair) + sizeof(seeds);
}
