/* SPDX-License-Identifier: MIT */
/* The embedded controller by its entries: what it answers to good and to bad commands. */
#include "test_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "device/backend.h"
#include "device/embedded.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/status.h"

/* Send one entry through the ring; returns SCT and SC. */
static uint16_t raw(struct nvefs_queue *q, const struct nvefs_nvme_sqe *sqe, void *data,
		    uint32_t len)
{
	struct nvefs_raw_io r = {
	    .io = {.op = NVEFS_IO_RAW, .niov = len ? 1 : 0}, .sqe = *sqe, .data_bytes = len};

	r.io.one = (struct iovec){data, len};
	r.io.iov = &r.io.one;
	nvefs_queue_run(q, &r.io);
	ck_assert_int_eq(r.io.status.kind, NVEFS_STATUS_NVME);
	ck_assert_int_eq(r.io.err, nvefs_nvme_status_errno(r.io.status.nvme));
	return r.io.status.nvme & NVEFS_NVME_STATUS_MASK;
}

static void rw(struct nvefs_nvme_sqe *sqe, uint8_t opcode, uint64_t slba, uint32_t nlbs)
{
	nvefs_nvme_sqe_rw(sqe, opcode, 1, slba, nlbs, 0);
}

/* 8 MiB of 512-byte LBAs: 16384 of them. */
START_TEST(test_status)
{
	static const uint8_t with_lba[] = {NVEFS_NVME_READ, NVEFS_NVME_WRITE, NVEFS_NVME_COMPARE,
					   NVEFS_NVME_VERIFY, NVEFS_NVME_WRITE_ZEROES};
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "lba=512,mdts=8k"));
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new_zeroed(32768);
	struct nvefs_nvme_dsm_range *ranges = (void *)buf;
	struct nvefs_nvme_sqe sqe;

	for (size_t i = 0; i < sizeof(with_lba); i++) {
		uint8_t op = with_lba[i];
		bool data =
		    op == NVEFS_NVME_READ || op == NVEFS_NVME_WRITE || op == NVEFS_NVME_COMPARE;

		rw(&sqe, op, 16383, 1);
		ck_assert_uint_eq(raw(q, &sqe, buf, data ? 512 : 0), 0);
		rw(&sqe, op, 16383, 2);
		ck_assert_uint_eq(raw(q, &sqe, buf, data ? 1024 : 0), NVEFS_NVME_SC_LBA_RANGE);
		rw(&sqe, op, 16384, 1);
		ck_assert_uint_eq(raw(q, &sqe, buf, data ? 512 : 0), NVEFS_NVME_SC_LBA_RANGE);
		rw(&sqe, op, UINT64_MAX, 1);
		ck_assert_uint_eq(raw(q, &sqe, buf, data ? 512 : 0), NVEFS_NVME_SC_LBA_RANGE);
		nvefs_nvme_sqe_rw(&sqe, op, 1, 0, 1, 1u << 29); /* PRACT without protection */
		ck_assert_uint_eq(raw(q, &sqe, buf, data ? 512 : 0), NVEFS_NVME_SC_INVALID_FIELD);
		rw(&sqe, op, 0, 17); /* above MDTS, VSL; Write Zeroes has no such limit */
		ck_assert_uint_eq(raw(q, &sqe, buf, data ? 17 * 512 : 0),
				  op == NVEFS_NVME_WRITE_ZEROES ? 0 : NVEFS_NVME_SC_INVALID_FIELD);
		if (!data)
			continue;
		rw(&sqe, op, 0, 2);
		ck_assert_uint_eq(raw(q, &sqe, buf, 512), NVEFS_NVME_SC_SGL_DATA_LEN);
		ck_assert_uint_eq(raw(q, &sqe, NULL, 0),
				  NVEFS_NVME_SC_INVALID_FIELD); /* PSDT: PRP */
		sqe.flags = NVEFS_PSDT_SGL;
		sqe.dptr[0] = le64_make((uintptr_t)buf);
		sqe.dptr[1] = le64_make(0x20ull << 56 | 1024);
		ck_assert_uint_eq(raw(q, &sqe, NULL, 0), NVEFS_NVME_SC_SGL_TYPE);
		sqe.dptr[1] = le64_make((uint64_t)NVEFS_SGL_IOVEC << 56 | 9);
		ck_assert_uint_eq(raw(q, &sqe, NULL, 0), NVEFS_NVME_SC_SGL_SEGMENT);
	}
	rw(&sqe, 0x7f, 0, 1);
	ck_assert_uint_eq(raw(q, &sqe, buf, 512), NVEFS_NVME_SC_INVALID_OPCODE);
	rw(&sqe, NVEFS_NVME_WRITE_UNCORRECTABLE, 0, 1);
	ck_assert_uint_eq(raw(q, &sqe, NULL, 0), NVEFS_NVME_SC_INVALID_OPCODE);
	rw(&sqe, NVEFS_NVME_READ, 0, 1);
	sqe.nsid = le32_make(2);
	ck_assert_uint_eq(raw(q, &sqe, buf, 512), NVEFS_NVME_SC_INVALID_NS);
	sqe.nsid = le32_make(NVEFS_NVME_NSID_ALL);
	ck_assert_uint_eq(raw(q, &sqe, buf, 512), NVEFS_NVME_SC_INVALID_NS);
	nvefs_nvme_sqe_flush(&sqe, NVEFS_NVME_NSID_ALL);
	ck_assert_uint_eq(raw(q, &sqe, NULL, 0), 0);
	nvefs_nvme_sqe_flush(&sqe, 0);
	ck_assert_uint_eq(raw(q, &sqe, NULL, 0), NVEFS_NVME_SC_INVALID_NS);
	rw(&sqe, NVEFS_NVME_COMPARE, 0, 1);
	sqe.flags = NVEFS_NVME_FUSE_FIRST;
	ck_assert_uint_eq(raw(q, &sqe, buf, 512), NVEFS_NVME_SC_FUSED_MISSING);
	memset(buf, 1, 512);
	rw(&sqe, NVEFS_NVME_COMPARE, 0, 1);
	ck_assert_uint_eq(raw(q, &sqe, buf, 512), NVEFS_NVME_SC_COMPARE_FAILED);

	memset(buf, 0, 4096);
	ranges[0] = (struct nvefs_nvme_dsm_range){.nlbs = le32_make(8), .slba = le64_make(16376)};
	ranges[1] = (struct nvefs_nvme_dsm_range){.nlbs = le32_make(2), .slba = le64_make(16383)};
	nvefs_nvme_sqe_dsm(&sqe, 1, 1, NVEFS_NVME_DSM_CDW11_AD);
	ck_assert_uint_eq(raw(q, &sqe, buf, 16), 0);
	nvefs_nvme_sqe_dsm(&sqe, 1, 2, NVEFS_NVME_DSM_CDW11_AD);
	ck_assert_uint_eq(raw(q, &sqe, buf, 32), NVEFS_NVME_SC_LBA_RANGE);
	ck_assert_uint_eq(raw(q, &sqe, buf, 16), NVEFS_NVME_SC_SGL_DATA_LEN);
	nvefs_nvme_sqe_dsm(&sqe, 1, 2, NVEFS_NVME_DSM_CDW11_IDR); /* a hint only */
	ck_assert_uint_eq(raw(q, &sqe, buf, 32), 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

START_TEST(test_write_protected)
{
	static const uint8_t ops[] = {NVEFS_NVME_WRITE, NVEFS_NVME_WRITE_ZEROES};
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "ro"));
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new_zeroed(4096);
	struct nvefs_nvme_sqe sqe;

	for (size_t i = 0; i < sizeof(ops); i++) {
		rw(&sqe, ops[i], 0, 1);
		ck_assert_uint_eq(raw(q, &sqe, buf, ops[i] == NVEFS_NVME_WRITE ? 4096 : 0),
				  NVEFS_NVME_SC_NS_WRITE_PROTECTED);
	}
	nvefs_nvme_sqe_dsm(&sqe, 1, 1, NVEFS_NVME_DSM_CDW11_AD);
	ck_assert_uint_eq(raw(q, &sqe, buf, 16), NVEFS_NVME_SC_NS_WRITE_PROTECTED);
	rw(&sqe, NVEFS_NVME_VERIFY, 0, 1);
	ck_assert_uint_eq(raw(q, &sqe, NULL, 0), 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

/* 512-byte writes inside a block of a file that is open for direct I/O. */
START_TEST(test_fine_lbas)
{
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "lba=512"));
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new_zeroed(8192);
	struct nvefs_nvme_sqe sqe;

	device_fill(buf, 4096, 5);
	ck_assert_int_eq(nvefs_queue_write(q, 0, 1, buf, 0), 0);
	memset(buf, 0xee, 1024);
	rw(&sqe, NVEFS_NVME_WRITE, 3, 2);
	ck_assert_uint_eq(raw(q, &sqe, buf, 1024), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 0, 1, buf), 0);
	device_fill(buf + 4096, 4096, 5);
	memset(buf + 4096 + 3 * 512, 0xee, 1024);
	ck_assert_int_eq(memcmp(buf, buf + 4096, 4096), 0);
	rw(&sqe, NVEFS_NVME_READ, 5, 1);
	ck_assert_uint_eq(raw(q, &sqe, buf, 512), 0);
	ck_assert_int_eq(memcmp(buf, buf + 4096 + 5 * 512, 512), 0);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

static uint16_t admin(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data,
		      uint32_t len, uint32_t *result)
{
	uint16_t status = 0xffff;

	ck_assert_int_eq(nvefs_dev_admin(dev, sqe, data, len, result, &status), 0);
	return status & NVEFS_NVME_STATUS_MASK;
}

START_TEST(test_identify)
{
	struct nvefs_dev *dev = device_open("ram:8M,vwc=on,iu=16k,mdts=256k");
	uint8_t page[4096] __attribute__((aligned(8)));
	struct nvefs_nvme_ctrl_info ctrl = {0};
	struct nvefs_nvme_ns_info ns = {0};
	struct nvefs_nvme_sqe sqe;
	uint32_t result;

	nvefs_nvme_sqe_identify(&sqe, 0, NVEFS_NVME_CNS_CTRL, 0);
	ck_assert_uint_eq(admin(dev, &sqe, page, 4096, &result), 0);
	nvefs_nvme_ctrl_parse((void *)page, &ctrl);
	ck_assert_uint_eq(ctrl.mdts, 6);
	ck_assert(ctrl.vwc && ctrl.compare && ctrl.dsm && ctrl.write_zeroes && ctrl.verify &&
		  ctrl.sgl);
	ck_assert(!ctrl.write_uncorrectable && ctrl.fused_compare_write);
	ck_assert_uint_eq(ctrl.acwu, 64); /* as much as a transfer */
	ck_assert_uint_eq(ctrl.npss, 0);
	ck_assert_uint_eq(ctrl.nn, 1);
	nvefs_nvme_sqe_identify(&sqe, 1, NVEFS_NVME_CNS_NS, 0);
	ck_assert_uint_eq(admin(dev, &sqe, page, 4096, &result), 0);
	ck_assert_int_eq(nvefs_nvme_ns_parse((void *)page, &ns), 0);
	ck_assert_uint_eq(ns.nsze, 2048);
	ck_assert_uint_eq(ns.npwg, 4);
	nvefs_nvme_sqe_identify(&sqe, 1, NVEFS_NVME_CNS_NS_DESCS, 0);
	ck_assert_uint_eq(admin(dev, &sqe, page, 4096, &result), 0);
	memset(ns.nguid, 0, 16);
	ck_assert_int_eq(nvefs_nvme_ns_parse_descs(page, 4096, &ns), 0);
	ck_assert_int_eq(memcmp(ns.nguid, nvefs_dev_identity(dev)->nguid, 16), 0);
	nvefs_nvme_sqe_identify(&sqe, 0, NVEFS_NVME_CNS_ACTIVE_NS_LIST, 0);
	ck_assert_uint_eq(admin(dev, &sqe, page, 4096, &result), 0);
	ck_assert_uint_eq(page[0], 1);
	ck_assert_uint_eq(page[4], 0);
	nvefs_nvme_sqe_identify(&sqe, 1, NVEFS_NVME_CNS_ACTIVE_NS_LIST, 0);
	ck_assert_uint_eq(admin(dev, &sqe, page, 4096, &result), 0);
	ck_assert_uint_eq(page[0], 0);

	nvefs_nvme_sqe_identify(&sqe, 2, NVEFS_NVME_CNS_NS, 0);
	ck_assert_uint_eq(admin(dev, &sqe, page, 4096, &result), NVEFS_NVME_SC_INVALID_NS);
	nvefs_nvme_sqe_identify(&sqe, 1, 0x55, 0);
	ck_assert_uint_eq(admin(dev, &sqe, page, 4096, &result), NVEFS_NVME_SC_INVALID_FIELD);
	nvefs_nvme_sqe_identify(&sqe, 1, NVEFS_NVME_CNS_CSI_CTRL, 2); /* zoned */
	ck_assert_uint_eq(admin(dev, &sqe, page, 4096, &result), NVEFS_NVME_SC_INVALID_FIELD);
	nvefs_nvme_sqe_identify(&sqe, 0, NVEFS_NVME_CNS_CTRL, 0);
	ck_assert_uint_eq(admin(dev, &sqe, page, 512, &result), NVEFS_NVME_SC_SGL_DATA_LEN);
	sqe.opcode = 0x80; /* Format NVM */
	ck_assert_uint_eq(admin(dev, &sqe, page, 0, &result), NVEFS_NVME_SC_INVALID_OPCODE);
	nvefs_dev_close(dev);
}
END_TEST

START_TEST(test_features)
{
	struct nvefs_dev *dev = device_open("ram:8M,vwc=on,queues=8");
	struct nvefs_queue *a, *b = NULL;
	struct nvefs_nvme_sqe sqe;
	uint32_t result;

	nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE,
				    NVEFS_NVME_SEL_CURRENT);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
	ck_assert_uint_eq(result, 1);
	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, true, 0);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), NVEFS_NVME_SC_FEATURE_NOT_SAVEABLE);
	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, false, 0);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
	nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE,
				    NVEFS_NVME_SEL_CURRENT);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
	ck_assert_uint_eq(result, 0);
	nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE,
				    NVEFS_NVME_SEL_DEFAULT);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
	ck_assert_uint_eq(result, 1);
	/* Power management is mandatory; there is one state. */
	nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_POWER, NVEFS_NVME_SEL_CURRENT);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
	ck_assert_uint_eq(result, 0);
	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_POWER, false, 0);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_POWER, false, 1);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), NVEFS_NVME_SC_INVALID_FIELD);
	nvefs_nvme_sqe_get_features(&sqe, 0, 0x7e, NVEFS_NVME_SEL_CURRENT);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), NVEFS_NVME_SC_INVALID_FIELD);

	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_QUEUES, false,
				    nvefs_nvme_queues_encode(64, 64));
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
	ck_assert_uint_eq(nvefs_nvme_queues_sqs(result), 8);
	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_QUEUES, false,
				    nvefs_nvme_queues_encode(1, 4));
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
	ck_assert_uint_eq(nvefs_nvme_queues_sqs(result), 1);
	a = device_queue(dev);
	ck_assert_int_eq(nvefs_queue_init(dev, 0, &b), -EBUSY);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), NVEFS_NVME_SC_SEQUENCE);
	nvefs_queue_done(a);
	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_QUEUES, false, 0xffff);
	ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), NVEFS_NVME_SC_INVALID_FIELD);
	nvefs_dev_close(dev);
}
END_TEST

/* One block into a 64 KiB unit costs the unit; 16 aligned blocks cost what they are. */
START_TEST(test_logs)
{
	struct nvefs_dev *dev = device_open(device_target(_i, "8M", "iu=64k"));
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new_zeroed(17 * 4096);
	uint8_t page[512] __attribute__((aligned(8)));
	struct nvefs_nvme_health health = {0};
	struct nvefs_dev_counters c;
	struct nvefs_nvme_sqe sqe;
	uint32_t result;

	ck_assert_int_eq(nvefs_queue_write(q, 3, 1, buf, 0), 0);
	ck_assert_int_eq(nvefs_queue_write(q, 16, 16, buf, 0), 0);
	ck_assert_int_eq(nvefs_queue_write(q, 47, 2, buf, 0), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 0, 17, buf), 0);
	nvefs_dev_counters(dev, &c);
	ck_assert_uint_eq(c.media_write_bytes, (1 + 1 + 2) * 65536);
	ck_assert_uint_eq(c.bytes[NVEFS_IO_WRITE], 19 * 4096);

	nvefs_nvme_sqe_get_log(&sqe, NVEFS_NVME_NSID_ALL, NVEFS_NVME_LOG_SMART, 0, 0, 512);
	ck_assert_uint_eq(admin(dev, &sqe, page, 512, &result), 0);
	nvefs_nvme_smart_parse((void *)page, &health);
	ck_assert_uint_eq(health.host_writes, 3);
	ck_assert_uint_eq(health.host_reads, 1);
	ck_assert_uint_eq(health.written_bytes, NVEFS_NVME_SMART_UNIT_BYTES); /* rounded up */
	nvefs_nvme_sqe_get_log(&sqe, 0, NVEFS_NVME_LOG_ENDURANCE_GROUP, 1, 0, 512);
	ck_assert_uint_eq(admin(dev, &sqe, page, 512, &result), 0);
	nvefs_nvme_endurance_parse((void *)page, &health);
	ck_assert_uint_eq(health.media_written_bytes, NVEFS_NVME_ENDURANCE_UNIT_BYTES);
	nvefs_nvme_sqe_get_log(&sqe, 0, NVEFS_NVME_LOG_ENDURANCE_GROUP, 2, 0, 512);
	ck_assert_uint_eq(admin(dev, &sqe, page, 512, &result), NVEFS_NVME_SC_INVALID_FIELD);
	nvefs_nvme_sqe_get_log(&sqe, 0, 0xc7, 0, 0, 512);
	ck_assert_uint_eq(admin(dev, &sqe, page, 512, &result), NVEFS_NVME_SC_LOG_PAGE_INVALID);
	nvefs_nvme_sqe_get_log(&sqe, 0, NVEFS_NVME_LOG_SMART, 0, 8192, 512);
	ck_assert_uint_eq(admin(dev, &sqe, page, 512, &result), NVEFS_NVME_SC_INVALID_FIELD);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

static int block_seed(struct nvefs_queue *q, uint64_t pblk, uint8_t *buf, uint8_t *want)
{
	ck_assert_int_eq(nvefs_queue_read(q, pblk, 1, buf), 0);
	for (uint32_t seed = 1; seed <= 3; seed++) {
		device_fill(want, 4096, seed);
		if (!memcmp(want, buf, 4096))
			return (int)seed;
	}
	return 0;
}

/* Flushed and FUA writes stay; of three unflushed versions any may be what is found. */
START_TEST(test_power_cut)
{
	int seen[4] = {0}, torn = 0;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct nvefs_dev *dev = device_open(_i ? "ram:1M,vwc=on,lba=512" : "ram:1M,vwc=on");
		struct nvefs_queue *q = device_queue(dev);
		uint8_t *buf = nvefs_buf_new(4096), *want = nvefs_buf_new(4096);
		uint64_t lost = 0;

		device_fill(buf, 4096, 1);
		ck_assert_int_eq(nvefs_queue_write(q, 0, 1, buf, 0), 0);
		ck_assert_int_eq(nvefs_queue_write(q, 2, 1, buf, NVEFS_IO_FUA), 0);
		ck_assert_int_eq(nvefs_queue_write(q, 3, 1, buf, 0), 0);
		ck_assert_int_eq(nvefs_queue_flush(q), 0);
		for (uint32_t version = 1; version <= 3; version++) {
			device_fill(buf, 4096, version);
			ck_assert_int_eq(nvefs_queue_write(q, 1, 1, buf, 0), 0);
		}
		device_fill(buf, 4096, 2);
		ck_assert_int_eq(nvefs_queue_write(q, 3, 1, buf, 0), 0);
		ck_assert_int_eq(nvefs_queue_write(q, 3, 1, buf, NVEFS_IO_FUA), 0);
		ck_assert_int_eq(nvefs_embedded_power_cut(dev, seed, &lost), 0);
		ck_assert_int_eq(block_seed(q, 0, buf, want), 1);
		ck_assert_int_eq(block_seed(q, 2, buf, want), 1);
		ck_assert_int_eq(block_seed(q, 3, buf, want), 2);
		seen[block_seed(q, 1, buf, want)]++;
		device_fill(want, 4096, 3);
		torn += memcmp(buf, want, 512) != 0 && !memcmp(buf + 512, want + 512, 512);
		/* The cut emptied the cache: another one changes nothing. */
		ck_assert_int_eq(nvefs_embedded_power_cut(dev, seed + 1, &lost), 0);
		ck_assert_uint_eq(lost, 0);
		nvefs_queue_done(q);
		nvefs_dev_close(dev);
		nvefs_buf_free(buf);
		nvefs_buf_free(want);
	}
	if (_i) {
		ck_assert_int_gt(torn, 0);
		return;
	}
	for (int version = 0; version < 4; version++)
		ck_assert_msg(seen[version], "version %d never survived", version);
}
END_TEST

/* With the cache switched off by its feature, what completed is there. */
START_TEST(test_cache_off)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct nvefs_dev *dev = device_open("ram:1M,vwc=on");
		struct nvefs_queue *q = device_queue(dev);
		uint8_t *buf = nvefs_buf_new(4096), *want = nvefs_buf_new(4096);
		struct nvefs_nvme_sqe sqe;
		uint64_t lost = 7;
		uint32_t result;

		nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, false, 0);
		ck_assert_uint_eq(admin(dev, &sqe, NULL, 0, &result), 0);
		device_fill(buf, 4096, 1);
		ck_assert_int_eq(nvefs_queue_write(q, 0, 1, buf, 0), 0);
		ck_assert_int_eq(nvefs_embedded_power_cut(dev, seed, &lost), 0);
		ck_assert_uint_eq(lost, 0);
		ck_assert_int_eq(block_seed(q, 0, buf, want), 1);
		nvefs_queue_done(q);
		nvefs_dev_close(dev);
		nvefs_buf_free(buf);
		nvefs_buf_free(want);
	}
}
END_TEST

START_TEST(test_no_power_cut)
{
	struct nvefs_dev *dev = device_open(device_target(1, "1M", NULL));
	uint64_t lost = 7;

	ck_assert_int_eq(nvefs_embedded_power_cut(dev, 1, &lost), -ENOTSUP);
	nvefs_dev_close(dev);
	dev = device_open("ram:1M"); /* no cache: nothing can be lost */
	ck_assert_int_eq(nvefs_embedded_power_cut(dev, 1, &lost), 0);
	ck_assert_uint_eq(lost, 0);
	nvefs_dev_close(dev);
}
END_TEST

Suite *device_controller_suite(void)
{
	Suite *s = suite_create("device controller");
	TCase *t = tcase_create("controller");

	tcase_add_checked_fixture(t, device_dir_init, device_dir_done);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, test_status, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_write_protected, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_fine_lbas, 0, DEVICE_NTARGETS);
	tcase_add_test(t, test_identify);
	tcase_add_test(t, test_features);
	tcase_add_loop_test(t, test_logs, 0, DEVICE_NTARGETS);
	tcase_add_loop_test(t, test_power_cut, 0, 2);
	tcase_add_test(t, test_cache_off);
	tcase_add_test(t, test_no_power_cut);
	suite_add_tcase(s, t);
	return s;
}
