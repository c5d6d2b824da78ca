/* SPDX-License-Identifier: MIT */
/*
 * One namespace asked natively and through the SCSI translation: it is the same size, the same thing with
 * the same limits, holds the same data, and fails in the same way.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <nvefs/endian.h>
#include "../support/suites.h"
#include "base/buf.h"
#include "device/fault.h"
#include "device/scsi_route.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/status.h"
#include "scsi/cdb.h"
#include "scsi/pages.h"

#define BLK NVEFS_BLOCK_SIZE

static struct nvefs_dev *native, *scsi;
static struct nvefs_queue *qn, *qs;

static const char *const uris[] = {
	"ram:8M,lba=512", "ram:8M,lba=4096", "ram:8M,lba=512,vwc=on,mdts=8k", "ram:8M,vwc=on,iu=64k,mdts=128k", "ram:8M,ro", "ram:12M,mdts=8k,depth=1",
};
#define NURIS (sizeof(uris) / sizeof(uris[0]))

static void open_both(const char *uri, bool cache_off, bool faults)
{
	struct nvefs_error err = {""};
	struct nvefs_dev *ram;

	ck_assert_msg(!nvefs_dev_open(uri, NULL, &ram, &err), "%s: %s", uri, err.text);
	if (cache_off) {
		struct nvefs_nvme_sqe sqe;
		uint16_t status;
		uint32_t result;

		nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, false, 0);
		ck_assert_int_eq(nvefs_dev_admin(ram, &sqe, NULL, 0, &result, &status), 0);
	}
	native = ram;
	if (faults)
		ck_assert_int_eq(nvefs_fault_wrap(ram, NULL, 0, &native), 0);
	ck_assert_msg(!nvefs_scsi_route_open(native, NULL, &scsi, &err), "%s: %s", uri, err.text);
	ck_assert_int_eq(nvefs_queue_init(native, 0, &qn), 0);
	ck_assert_int_eq(nvefs_queue_init(scsi, 0, &qs), 0);
}

static void close_both(void)
{
	nvefs_queue_done(qs);
	nvefs_queue_done(qn);
	nvefs_dev_close(scsi);
}

/* ---- What it says of itself ---- */

#define FIELD(name) {#name, offsetof(struct nvefs_dev_limits, name), sizeof(((struct nvefs_dev_limits *)0)->name)}

static uint64_t field(const struct nvefs_dev_limits *l, size_t at, size_t bytes)
{
	uint64_t v = 0;

	memcpy(&v, (const char *)l + at, bytes);
	return v;
}

START_TEST(test_limits)
{
	static const struct {
		const char *name;
		size_t at, bytes;
	} same[] = {
		FIELD(nblks), FIELD(lba_bytes), FIELD(max_transfer_blks), FIELD(max_segments), FIELD(max_discard_blks), FIELD(iu_blks),
		FIELD(iu_align_blks), FIELD(optimal_blks), FIELD(discard_gran_blks), FIELD(discard_align_blks), FIELD(atomic_blks),
		FIELD(mem_align), FIELD(queue_depth), FIELD(volatile_cache), FIELD(fua), FIELD(compare), FIELD(read_only),
		FIELD(discard_zeroes),
	};
	const struct nvefs_dev_limits *n, *s;

	open_both(uris[_i], false, false);
	n = nvefs_dev_limits(native);
	s = nvefs_dev_limits(scsi);
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		ck_assert_msg(field(n, same[i].at, same[i].bytes) == field(s, same[i].at, same[i].bytes),
			      "%s: %s is %llu natively, %llu by scsi", uris[_i], same[i].name,
			      (unsigned long long)field(n, same[i].at, same[i].bytes),
			      (unsigned long long)field(s, same[i].at, same[i].bytes));
	/* Page B0h has one figure for all of WRITE SAME, and a pattern must fit into one Write. */
	ck_assert(s->max_zeroes_blks > 0 && s->max_zeroes_blks <= n->max_zeroes_blks);
	close_both();
}
END_TEST

/* The controller's own identifiers, in the limits of the route and byte for byte in page 83h. */
START_TEST(test_identity)
{
	const struct nvefs_dev_identity *n, *s;
	struct nvefs_scsi_identity names;

	open_both(uris[_i], false, false);
	n = nvefs_dev_identity(native);
	s = nvefs_dev_identity(scsi);
	ck_assert_mem_eq(n->nguid, s->nguid, 16);
	ck_assert_mem_eq(n->eui64, s->eui64, 8);
	ck_assert_int_eq(nvefs_vpd_identification_parse(s->vpd83, s->vpd83_len, &names), 0);
	ck_assert_mem_eq(names.nguid, n->nguid, 16);
	ck_assert_mem_eq(names.eui64, n->eui64, 8);
	ck_assert_ptr_nonnull(strstr(names.t10, n->model));
	ck_assert_ptr_nonnull(strstr(names.t10, n->serial));
	close_both();
}
END_TEST

/* Switched off before it is opened: off by both, and there by both. */
START_TEST(test_cache_state)
{
	struct nvefs_nvme_sqe sqe;
	uint16_t status;
	uint32_t value;

	for (int off = 0; off < 2; off++) {
		open_both("ram:8M,vwc=on", off, false);
		nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, NVEFS_NVME_SEL_CURRENT);
		ck_assert_int_eq(nvefs_dev_admin(native, &sqe, NULL, 0, &value, &status), 0);
		ck_assert_uint_eq(value, !off);
		ck_assert_uint_eq(nvefs_dev_drive(scsi)->scsi.cache, off ? NVEFS_CACHE_OFF : NVEFS_CACHE_ON);
		ck_assert(nvefs_dev_drive(scsi)->scsi.cache_changeable);
		ck_assert(nvefs_dev_limits(scsi)->volatile_cache && nvefs_dev_limits(native)->volatile_cache);
		close_both();
	}
}
END_TEST

/* ---- How it fails ---- */

static const char *const op_names[NVEFS_IO_NOPS] = {"read", "write", "flush", "discard", "write zeroes", "compare"};

static int run(struct nvefs_queue *q, uint8_t op, uint64_t pblk, uint32_t nblks, void *buf)
{
	bool has_data = op == NVEFS_IO_READ || op == NVEFS_IO_WRITE || op == NVEFS_IO_COMPARE;
	struct nvefs_io io = {.op = op, .pblk = pblk, .nblks = op == NVEFS_IO_FLUSH ? 0 : nblks, .niov = has_data};

	io.one = (struct iovec){buf, (size_t)nblks * BLK};
	io.iov = &io.one;
	return nvefs_queue_run(q, &io);
}

/* Out of range and write protection, for each operation. */
START_TEST(test_bounds)
{
	uint8_t *buf = nvefs_buf_new_zeroed(4 * BLK);
	static const struct {
		int64_t past; /* of the end */
		uint32_t n;
	} ranges[] = {{-4, 4}, {-1, 2}, {0, 1}, {1, 1}, {1 << 20, 4}};

	open_both(uris[_i], false, false);
	for (uint8_t op = 0; op < NVEFS_IO_NOPS; op++) {
		for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
			uint64_t pblk = nvefs_dev_limits(native)->nblks + (uint64_t)ranges[i].past;
			int n = run(qn, op, pblk, ranges[i].n, buf), s = run(qs, op, pblk, ranges[i].n, buf);

			ck_assert_msg(n == s, "%s: %s of %u blocks, %lld past the end: %d natively, %d by scsi", uris[_i], op_names[op],
				      ranges[i].n, (long long)ranges[i].past, n, s);
		}
	}
	close_both();
	nvefs_buf_free(buf);
}
END_TEST

/* Each status of each operation, with and without Do Not Retry. */
START_TEST(test_every_status)
{
	uint8_t *buf = nvefs_buf_new_zeroed(BLK);
	uint32_t count = 0;

	open_both(uris[_i], false, true);
	for (uint8_t op = 0; op < NVEFS_IO_NOPS; op++) {
		uint16_t status;

		for (size_t i = 0; (status = nvefs_nvme_status_known(i / 2)) != 0; i++) {
			struct nvefs_fault fault = {.op = op, .every = 1, .status = status | (i & 1 ? NVEFS_NVME_DNR : 0)};
			int n, s;

			nvefs_fault_clear(native);
			ck_assert_int_eq(nvefs_fault_add(native, &fault), 0);
			n = run(qn, op, 3, 1, buf);
			s = run(qs, op, 3, 1, buf);
			ck_assert_msg(n < 0 && n == s, "%s: %s ends with %#x, %s: %d natively, %d by scsi", uris[_i], op_names[op],
				      fault.status, nvefs_nvme_status_text(status), n, s);
			count++;
		}
	}
	ck_assert_uint_gt(count, 600);
	/* What is no status at all: the command did not get to the controller. */
	for (uint8_t op = 0; op < NVEFS_IO_NOPS; op++) {
		struct nvefs_fault fault = {.op = op, .every = 1, .err = -EIO};

		nvefs_fault_clear(native);
		ck_assert_int_eq(nvefs_fault_add(native, &fault), 0);
		ck_assert_int_eq(run(qn, op, 3, 1, buf), -EIO);
		ck_assert_int_eq(run(qs, op, 3, 1, buf), -EIO);
	}
	close_both();
	nvefs_buf_free(buf);
}
END_TEST

/* ---- What it holds ---- */

#define STEPS 1500
#define MAX_LBAS 8u

struct model {
	uint32_t lba_bytes;
	uint64_t nlbas;
	uint8_t *medium, *data, *seen;
	unsigned int seed;
};

static uint32_t draw(struct model *m, uint32_t n)
{
	return (uint32_t)rand_r(&m->seed) % n;
}

static uint8_t send_cdb(struct nvefs_cdb *c, int direction, void *data, uint32_t len)
{
	uint8_t bytes[NVEFS_CDB_MAX];
	sg_io_hdr_t hdr = {.interface_id = 'S', .dxfer_direction = direction, .dxfer_len = len, .dxferp = data, .cmdp = bytes};

	hdr.cmd_len = (unsigned char)nvefs_cdb_build(c, bytes);
	ck_assert_int_eq(nvefs_scsi_route_sg_io(qs, &hdr), 0);
	ck_assert(hdr.status != 0 || hdr.resid == 0);
	return hdr.status;
}

/* A write in one of its forms; returns the SCSI status. */
static uint8_t scsi_write(struct model *m, uint64_t lba, uint32_t n)
{
	static const uint8_t writes[] = {NVEFS_SCSI_WRITE_6, NVEFS_SCSI_WRITE_10, NVEFS_SCSI_WRITE_12, NVEFS_SCSI_WRITE_16};
	uint32_t bytes = n * m->lba_bytes;
	uint8_t *at = m->medium + lba * m->lba_bytes;
	struct nvefs_cdb c = {.lba = lba, .count = n};

	for (uint32_t i = 0; i < 2 * bytes; i++)
		m->data[i] = (uint8_t)draw(m, 256);
	switch (draw(m, 4)) {
	case 0: /* one block over and over */
		c.opcode = draw(m, 2) ? NVEFS_SCSI_WRITE_SAME_10 : NVEFS_SCSI_WRITE_SAME_16;
		c.unmap = draw(m, 2);
		if (draw(m, 2))
			memset(m->data, 0, m->lba_bytes);
		for (uint32_t i = 0; i < n; i++)
			memcpy(at + i * m->lba_bytes, m->data, m->lba_bytes);
		return send_cdb(&c, SG_DXFER_TO_DEV, m->data, m->lba_bytes);
	case 1: /* what is there, then what is to be */
		c.opcode = NVEFS_SCSI_COMPARE_AND_WRITE;
		memcpy(m->data, at, bytes);
		memcpy(at, m->data + bytes, bytes);
		return send_cdb(&c, SG_DXFER_TO_DEV, m->data, 2 * bytes);
	default:
		c.opcode = writes[draw(m, 4)];
		c.fua = c.opcode != NVEFS_SCSI_WRITE_6 && draw(m, 2);
		memcpy(at, m->data, bytes);
		return send_cdb(&c, SG_DXFER_TO_DEV, m->data, bytes);
	}
}

static uint8_t scsi_unmap(struct model *m, uint64_t lba, uint32_t n)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_UNMAP, .count = 40};

	memset(m->data, 0, 40);
	be16_store(m->data, 38);
	be16_store(m->data + 2, 32);
	be64_store(m->data + 8, lba + n - 1);
	be32_store(m->data + 16, 1);
	be64_store(m->data + 24, lba);
	be32_store(m->data + 32, n - 1);
	memset(m->medium + lba * m->lba_bytes, 0, n * m->lba_bytes);
	return send_cdb(&c, SG_DXFER_TO_DEV, m->data, 40);
}

static void native_change(struct model *m)
{
	uint32_t per = BLK / m->lba_bytes, n = 1 + draw(m, 2);
	uint64_t pblk = draw(m, (uint32_t)(m->nlbas / per) - n);
	uint8_t op = draw(m, 2) ? NVEFS_IO_WRITE : draw(m, 2) ? NVEFS_IO_WRITE_ZEROES : NVEFS_IO_DISCARD;

	for (uint32_t i = 0; i < n * BLK; i++)
		m->data[i] = op == NVEFS_IO_WRITE ? (uint8_t)draw(m, 256) : 0;
	ck_assert_int_eq(run(qn, op, pblk, n, m->data), 0);
	memcpy(m->medium + pblk * BLK, m->data, n * BLK);
}

/* By one form of READ, and of VERIFY; natively the blocks around. */
static void expect_same(struct model *m, uint64_t lba, uint32_t n, unsigned int seed, int step)
{
	static const uint8_t reads[] = {NVEFS_SCSI_READ_6, NVEFS_SCSI_READ_10, NVEFS_SCSI_READ_12, NVEFS_SCSI_READ_16};
	static const uint8_t verifies[] = {NVEFS_SCSI_VERIFY_10, NVEFS_SCSI_VERIFY_12, NVEFS_SCSI_VERIFY_16};
	struct nvefs_cdb r = {.opcode = reads[draw(m, 4)], .lba = lba, .count = n};
	struct nvefs_cdb v = {.opcode = verifies[draw(m, 3)], .lba = lba, .count = n, .bytchk = 1};
	const uint8_t *want = m->medium + lba * m->lba_bytes;
	uint64_t pblk = lba * m->lba_bytes / BLK, end = ((lba + n) * m->lba_bytes + BLK - 1) / BLK;

	ck_assert_uint_eq(send_cdb(&r, SG_DXFER_FROM_DEV, m->seen, n * m->lba_bytes), 0);
	ck_assert_msg(!memcmp(m->seen, want, n * m->lba_bytes), "seed %u step %d: scsi reads other data", seed, step);
	ck_assert_msg(send_cdb(&v, SG_DXFER_TO_DEV, m->seen, n * m->lba_bytes) == 0, "seed %u step %d: VERIFY", seed, step);
	m->seen[draw(m, n * m->lba_bytes)] ^= 1;
	ck_assert_msg(send_cdb(&v, SG_DXFER_TO_DEV, m->seen, n * m->lba_bytes) == 2, "seed %u step %d: VERIFY is blind", seed, step);
	ck_assert_int_eq(nvefs_queue_read(qn, pblk, (uint32_t)(end - pblk), m->seen), 0);
	ck_assert_msg(!memcmp(m->seen, m->medium + pblk * BLK, (end - pblk) * BLK), "seed %u step %d: native reads other data", seed, step);
}

/* Changed by either in every form, seen by both as in a plain array. */
START_TEST(test_data)
{
	const char *uri = _i ? "ram:1M,lba=4096,vwc=on" : "ram:1M,lba=512,latency=1us";
	const char *env = getenv("NVEFS_TEST_SEED");
	unsigned int seed = env ? (unsigned int)strtoul(env, NULL, 0) : (unsigned int)time(NULL);
	struct model m = {.lba_bytes = _i ? 4096 : 512, .seed = seed};

	fprintf(stderr, "%s: NVEFS_TEST_SEED=%u\n", uri, seed);
	open_both(uri, false, false);
	m.nlbas = (1u << 20) / m.lba_bytes;
	m.medium = nvefs_buf_new_zeroed(1u << 20);
	m.data = nvefs_buf_new(2 * MAX_LBAS * BLK);
	m.seen = nvefs_buf_new(2 * MAX_LBAS * BLK);
	for (int step = 0; step < STEPS; step++) {
		uint32_t n = 1 + draw(&m, MAX_LBAS), what = draw(&m, 4);
		uint64_t lba = draw(&m, (uint32_t)m.nlbas - n + 1);
		uint8_t status = 0;

		if (what == 0)
			native_change(&m);
		else
			status = what == 1 ? scsi_unmap(&m, lba, n) : scsi_write(&m, lba, n);
		ck_assert_msg(status == 0, "seed %u step %d: status %u", seed, step, status);
		expect_same(&m, lba, n, seed, step);
	}
	close_both();
	nvefs_buf_free(m.medium);
	nvefs_buf_free(m.data);
	nvefs_buf_free(m.seen);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scsi-same");
	TCase *t = tcase_create("same");

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, test_limits, 0, NURIS);
	tcase_add_loop_test(t, test_identity, 0, NURIS);
	tcase_add_test(t, test_cache_state);
	tcase_add_loop_test(t, test_bounds, 0, NURIS);
	tcase_add_loop_test(t, test_every_status, 0, 2);
	tcase_add_loop_test(t, test_data, 0, 2);
	return run_suites(s, NULL);
}
