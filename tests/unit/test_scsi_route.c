/* SPDX-License-Identifier: MIT */
/* The scsi route over the embedded controller, beside the native route to the same medium. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../support/suites.h"
#include "base/buf.h"
#include "base/thread.h"
#include "device/fault.h"
#include "device/scsi_route.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/status.h"
#include "scsi/sense.h"
#include "scsi/sntl.h"

#define BLK NVEFS_BLOCK_SIZE

/* The same device twice: `scsi` is the route, `native` what is below it. */
static struct nvefs_dev *native, *scsi;

static void open_both(const char *uri, const struct nvefs_scsi_route_opts *opts)
{
	struct nvefs_error err = {""};
	int code = nvefs_dev_open(uri, NULL, &native, &err);

	ck_assert_msg(!code, "%s: %d: %s", uri, code, err.text);
	code = nvefs_scsi_route_open(native, opts, &scsi, &err);
	ck_assert_msg(!code, "%s: %d: %s", uri, code, err.text);
}

static struct nvefs_queue *queue(struct nvefs_dev *dev)
{
	struct nvefs_queue *q = NULL;

	ck_assert_int_eq(nvefs_queue_init(dev, 0, &q), 0);
	return q;
}

static void fill(uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)((i + seed * 2654435761u) * 2246822519u >> 15);
}

static bool same(const uint8_t *p, size_t len, uint32_t seed)
{
	uint8_t *want = malloc(len);
	bool ok;

	fill(want, len, seed);
	ok = memcmp(p, want, len) == 0;
	free(want);
	return ok;
}

static int run(struct nvefs_queue *q, uint8_t op, uint64_t pblk, uint32_t nblks, void *buf,
	       struct nvefs_io *io)
{
	*io = (struct nvefs_io){.op = op, .pblk = pblk, .nblks = nblks, .niov = buf ? 1 : 0};
	io->one = (struct iovec){buf, (size_t)nblks * BLK};
	io->iov = &io->one;
	return nvefs_queue_run(q, io);
}

static const char *const uris[] = {
    "ram:8M",
    "ram:8M,lba=512",
    "ram:8M,vwc=on,iu=64k,mdts=128k",
    "ram:8M,lba=512,latency=20us,mdts=8k,depth=4",
};
#define NURIS (sizeof(uris) / sizeof(uris[0]))

/* Both routes read what either wrote, in one transfer and in parts, whole and scattered. */
START_TEST(test_cross)
{
	uint8_t *a = nvefs_buf_new(300 * BLK), *b = nvefs_buf_new(300 * BLK);
	struct iovec iov[3] = {{a, BLK}, {a + BLK, 298 * BLK}, {a + 299 * BLK, BLK}};
	struct nvefs_io io = {
	    .op = NVEFS_IO_WRITE, .pblk = 17, .nblks = 300, .niov = 3, .iov = iov};
	struct nvefs_queue *qs, *qn;

	open_both(uris[_i], NULL);
	qs = queue(scsi);
	qn = queue(native);
	ck_assert_int_eq(nvefs_dev_route(scsi), NVEFS_ROUTE_SCSI);
	fill(a, 300 * BLK, 1);
	ck_assert_int_eq(nvefs_queue_run(qs, &io), 0);
	ck_assert_int_eq(nvefs_queue_read(qn, 17, 300, b), 0);
	ck_assert_msg(same(b, 300 * BLK, 1), "%s: native reads other data", uris[_i]);
	fill(a, 300 * BLK, 2);
	ck_assert_int_eq(nvefs_queue_write(qn, 500, 300, a, 0), 0);
	ck_assert_int_eq(nvefs_queue_flush(qs), 0);
	memset(a, 0, 300 * BLK);
	io = (struct nvefs_io){
	    .op = NVEFS_IO_READ, .pblk = 500, .nblks = 300, .niov = 3, .iov = iov};
	ck_assert_int_eq(nvefs_queue_run(qs, &io), 0);
	ck_assert_msg(same(a, 300 * BLK, 2), "%s: scsi reads other data", uris[_i]);
	nvefs_queue_done(qs);
	nvefs_queue_done(qn);
	nvefs_dev_close(scsi);
	nvefs_buf_free(a);
	nvefs_buf_free(b);
}
END_TEST

START_TEST(test_limits)
{
	const struct nvefs_dev_limits *n, *s;
	const struct nvefs_dev_identity *in, *is;
	char text[512];

	open_both(uris[_i], NULL);
	n = nvefs_dev_limits(native);
	s = nvefs_dev_limits(scsi);
	in = nvefs_dev_identity(native);
	is = nvefs_dev_identity(scsi);
	ck_assert_uint_eq(s->nblks, n->nblks);
	ck_assert_uint_eq(s->lba_bytes, n->lba_bytes);
	ck_assert_uint_eq(s->max_transfer_blks, n->max_transfer_blks);
	ck_assert_uint_eq(s->iu_blks, n->iu_blks);
	ck_assert_uint_eq(s->max_segments, n->max_segments);
	ck_assert_uint_eq(s->max_discard_blks, n->max_discard_blks);
	ck_assert_uint_gt(s->max_zeroes_blks, 0);
	ck_assert_uint_eq(s->discard_gran_blks, n->discard_gran_blks);
	ck_assert(s->volatile_cache == n->volatile_cache && s->fua && s->compare);
	ck_assert(!s->read_only && s->discard_zeroes == n->discard_zeroes);
	ck_assert_uint_eq(s->mem_align, n->mem_align);
	ck_assert_mem_eq(is->nguid, in->nguid, 16);
	ck_assert_mem_eq(is->eui64, in->eui64, 8);
	ck_assert_uint_gt(is->vpd83_len, 8);
	ck_assert_str_eq(is->target, in->target);
	nvefs_dev_describe(scsi, text, sizeof(text));
	ck_assert_msg(strstr(text, "one logical-unit queue of 254"), "%s", text);
	nvefs_dev_close(scsi);
}
END_TEST

START_TEST(test_ops)
{
	uint8_t *a = nvefs_buf_new(600 * BLK), *z = nvefs_buf_new_zeroed(600 * BLK);
	struct nvefs_dev_counters before, after;
	struct nvefs_queue *q;
	struct nvefs_io io;

	open_both(uris[_i], NULL);
	q = queue(scsi);
	fill(a, 600 * BLK, 3);
	ck_assert_int_eq(run(q, NVEFS_IO_WRITE, 0, 600, a, &io), 0);
	ck_assert_int_eq(run(q, NVEFS_IO_COMPARE, 0, 600, a, &io), 0);
	a[599 * BLK] ^= 1;
	ck_assert_int_eq(run(q, NVEFS_IO_COMPARE, 0, 600, a, &io), -EILSEQ);
	ck_assert_int_eq(io.status.kind, NVEFS_STATUS_SENSE);
	ck_assert_uint_eq(io.status.nvme & NVEFS_NVME_STATUS_MASK, NVEFS_NVME_SC_COMPARE_FAILED);
	a[599 * BLK] ^= 1;
	ck_assert_int_eq(run(q, NVEFS_IO_WRITE_ZEROES, 10, 580, NULL, &io), 0);
	memset(a + 10 * BLK, 0, 580 * BLK);
	ck_assert_int_eq(run(q, NVEFS_IO_COMPARE, 0, 600, a, &io), 0);
	ck_assert_int_eq(run(q, NVEFS_IO_DISCARD, 0, 600, NULL, &io), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 0, 600, a), 0);
	ck_assert_mem_eq(a, z, 600 * BLK); /* memory gives zeros; in general anything */

	nvefs_dev_counters(scsi, &before);
	ck_assert_int_eq(nvefs_queue_write(q, 0, 1, a, NVEFS_IO_FUA), 0);
	ck_assert_int_eq(nvefs_queue_write(q, 1, 1, a, 0), 0);
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	nvefs_dev_counters(scsi, &after);
	ck_assert_uint_eq(after.fua - before.fua, 1);
	ck_assert_uint_eq(after.commands[NVEFS_IO_FLUSH] - before.commands[NVEFS_IO_FLUSH], 1);
	ck_assert_uint_eq(after.commands[NVEFS_IO_WRITE] - before.commands[NVEFS_IO_WRITE], 2);
	nvefs_queue_done(q);
	nvefs_dev_close(scsi);
	nvefs_buf_free(a);
	nvefs_buf_free(z);
}
END_TEST

START_TEST(test_errors)
{
	uint8_t *a = nvefs_buf_new_zeroed(4 * BLK);
	struct nvefs_queue *q;
	struct nvefs_sense s;
	struct nvefs_io io;

	open_both("ram:8M,ro", NULL);
	q = queue(scsi);
	ck_assert(nvefs_dev_limits(scsi)->read_only);
	ck_assert_int_eq(run(q, NVEFS_IO_READ, 2047, 2, a, &io), -ERANGE);
	ck_assert_int_eq(io.status.kind, NVEFS_STATUS_SENSE);
	ck_assert_int_eq(nvefs_sense_parse(io.status.sense, io.status.sense_len, &s), 0);
	ck_assert_uint_eq(s.asc, NVEFS_ASC_LBA_RANGE);
	ck_assert(s.has_info && s.info == 2048);
	ck_assert_int_eq(run(q, NVEFS_IO_WRITE, 0, 1, a, &io), -EROFS);
	ck_assert_int_eq(io.status.kind, NVEFS_STATUS_SENSE);
	ck_assert_uint_eq(io.status.nvme & NVEFS_NVME_STATUS_MASK,
			  NVEFS_NVME_SC_NS_WRITE_PROTECTED);
	ck_assert_int_eq(nvefs_sense_parse(io.status.sense, io.status.sense_len, &s), 0);
	ck_assert_uint_eq(s.key, NVEFS_SENSE_DATA_PROTECT);
	ck_assert_int_eq(run(q, NVEFS_IO_DISCARD, 0, 1, NULL, &io), -EROFS);
	ck_assert_int_eq(run(q, NVEFS_IO_WRITE_ZEROES, 0, 1, NULL, &io), -EROFS);
	nvefs_queue_done(q);
	nvefs_dev_close(scsi);
	nvefs_buf_free(a);
}
END_TEST

START_TEST(test_refused)
{
	struct nvefs_scsi_route_opts opts = nvefs_scsi_route_defaults;
	struct nvefs_error err = {""};
	struct nvefs_dev *again = NULL;

	open_both("ram:8M", NULL);
	/* The route takes no raw entries, so there is nothing to translate to. */
	ck_assert_int_eq(nvefs_scsi_route_open(scsi, NULL, &again, &err), -ENOTSUP);
	ck_assert_msg(strstr(err.text, "ram:8M"), "%s", err.text);
	opts.depth = 0;
	ck_assert_int_eq(nvefs_scsi_route_open(native, &opts, &again, &err), -EINVAL);
	ck_assert_ptr_null(again);
	nvefs_dev_close(scsi);
}
END_TEST

START_TEST(test_mistakes)
{
	struct nvefs_scsi_route_opts opts = nvefs_scsi_route_defaults;
	uint8_t *a = nvefs_buf_new_zeroed(BLK);
	struct nvefs_dev_counters c;
	struct nvefs_queue *q;
	struct nvefs_io io;

	opts.mistakes = NVEFS_SNTL_DROP_FUA | NVEFS_SNTL_FLUSH_NOT_SENT |
			NVEFS_SNTL_ZEROES_DISCARD | NVEFS_SNTL_OTHER_IDENTITY |
			NVEFS_SNTL_CACHE_HIDDEN;
	open_both("ram:8M,vwc=on", &opts);
	q = queue(scsi);
	ck_assert_int_eq(nvefs_queue_write(q, 0, 1, a, NVEFS_IO_FUA), 0);
	ck_assert_int_eq(nvefs_queue_flush(q), 0);
	ck_assert_int_eq(run(q, NVEFS_IO_WRITE_ZEROES, 0, 1, NULL, &io), 0);
	nvefs_dev_counters(scsi, &c);
	ck_assert_uint_eq(c.fua, 0);
	ck_assert_uint_eq(c.commands[NVEFS_IO_FLUSH], 0);
	ck_assert_uint_eq(c.commands[NVEFS_IO_WRITE_ZEROES], 0);
	ck_assert_uint_eq(c.commands[NVEFS_IO_DISCARD], 1);
	ck_assert(!nvefs_dev_limits(scsi)->volatile_cache);
	ck_assert(nvefs_dev_limits(native)->volatile_cache);
	ck_assert_mem_ne(nvefs_dev_identity(scsi)->nguid, nvefs_dev_identity(native)->nguid, 16);
	nvefs_queue_done(q);
	nvefs_dev_close(scsi);
	nvefs_buf_free(a);
}
END_TEST

/* Switched off natively before the route was opened: it may be switched on again, so Flush matters. */
START_TEST(test_cache_off)
{
	struct nvefs_error err = {""};
	struct nvefs_nvme_sqe sqe;
	uint32_t result;
	uint16_t status;

	ck_assert_int_eq(nvefs_dev_open(_i ? "ram:8M,vwc=on" : "ram:8M,vwc=off", NULL, &native, &err), 0);
	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, false, 0);
	ck_assert_int_eq(nvefs_dev_admin(native, &sqe, NULL, 0, &result, &status), 0);
	ck_assert_int_eq(nvefs_scsi_route_open(native, NULL, &scsi, &err), 0);
	ck_assert_int_eq(nvefs_dev_limits(scsi)->volatile_cache, _i);
	nvefs_dev_close(scsi);
}
END_TEST

static uint8_t sg(struct nvefs_queue *q, const uint8_t *cdb, uint8_t cdb_len, int direction,
		  void *data, uint32_t len, uint32_t pieces, struct nvefs_sense *ret)
{
	uint8_t sense[64];
	sg_iovec_t iov[2] = {{data, len / 2}, {(uint8_t *)data + len / 2, len - len / 2}};
	sg_io_hdr_t hdr = {.interface_id = 'S',
			   .dxfer_direction = direction,
			   .cmd_len = cdb_len,
			   .mx_sb_len = sizeof(sense),
			   .iovec_count = pieces == 2 ? 2 : 0,
			   .dxfer_len = len,
			   .dxferp = pieces == 2 ? (void *)iov : data,
			   .cmdp = (uint8_t *)(uintptr_t)cdb,
			   .sbp = sense};

	memset(ret, 0, sizeof(*ret));
	ck_assert_int_eq(nvefs_scsi_route_sg_io(q, &hdr), 0);
	ck_assert_uint_eq(hdr.host_status, 0);
	if (hdr.sb_len_wr)
		ck_assert_int_eq(nvefs_sense_parse(sense, hdr.sb_len_wr, ret), 0);
	return hdr.status;
}

/* Commands that the file system does not send, through all of the route. */
START_TEST(test_sg_io)
{
	static const uint8_t ws[16] = {0x93, 0x08, [9] = 10, [13] = 20};
	static const uint8_t verify[10] = {0x2f, 0x06, [5] = 10, [8] = 20};
	static const uint8_t read6[6] = {0x08, 0, 0, 10, 4};
	static const uint8_t write12[12] = {0xaa, 0x08, [5] = 40, [9] = 2};
	static const uint8_t unmap[10] = {0x42, [8] = 8 + 3 * 16};
	static const uint8_t format[6] = {0x04, 0x10};
	uint8_t *a = nvefs_buf_new_zeroed(32 * BLK), *b = nvefs_buf_new_zeroed(32 * BLK);
	struct nvefs_dev_counters before, after;
	struct nvefs_queue *q;
	struct nvefs_sense s;

	open_both("ram:8M,latency=10us", NULL);
	q = queue(scsi);
	fill(a, BLK, 9);
	for (int i = 1; i < 32; i++)
		memcpy(a + i * BLK, a, BLK);
	ck_assert_uint_eq(sg(q, ws, 16, SG_DXFER_TO_DEV, a, BLK, 1, &s), NVEFS_SCSI_GOOD);
	ck_assert_int_eq(nvefs_queue_read(q, 10, 20, b), 0);
	ck_assert_mem_eq(a, b, 20 * BLK);
	ck_assert_uint_eq(sg(q, verify, 10, SG_DXFER_TO_DEV, a, BLK, 2, &s), NVEFS_SCSI_GOOD);
	a[0] ^= 1;
	ck_assert_uint_eq(sg(q, verify, 10, SG_DXFER_TO_DEV, a, BLK, 2, &s),
			  NVEFS_SCSI_CHECK_CONDITION);
	ck_assert_uint_eq(s.key, NVEFS_SENSE_MISCOMPARE);
	a[0] ^= 1;
	memset(b, 0, 4 * BLK);
	ck_assert_uint_eq(sg(q, read6, 6, SG_DXFER_FROM_DEV, b, 4 * BLK, 2, &s), NVEFS_SCSI_GOOD);
	ck_assert_mem_eq(a, b, 4 * BLK);
	/* More data than the command takes: scattered, and cut to what is asked for. */
	ck_assert_uint_eq(sg(q, write12, 12, SG_DXFER_TO_DEV, a, 4 * BLK, 2, &s), NVEFS_SCSI_GOOD);
	ck_assert_int_eq(nvefs_queue_read(q, 40, 3, b), 0);
	ck_assert_mem_eq(a, b, 2 * BLK);
	ck_assert_uint_eq(b[2 * BLK + 1], 0);

	memset(b, 0, BLK);
	b[1] = 3 * 16 + 6;
	b[3] = 3 * 16;
	for (int i = 0; i < 3; i++) { /* blocks 10, 20 and 29 */
		b[8 + i * 16 + 7] = (uint8_t)(i == 2 ? 29 : 10 + i * 10);
		b[8 + i * 16 + 11] = 1;
	}
	ck_assert_uint_eq(sg(q, unmap, 10, SG_DXFER_TO_DEV, b, 8 + 3 * 16, 1, &s), NVEFS_SCSI_GOOD);
	ck_assert_int_eq(nvefs_queue_read(q, 9, 22, b), 0);
	for (int i = 0; i < 22; i++) {
		bool gone = i == 0 || i == 1 || i == 11 || i >= 20;

		ck_assert_msg(b[i * BLK] == (gone ? 0 : a[0]), "block %d", i + 9);
	}

	nvefs_dev_counters(scsi, &before);
	ck_assert_uint_eq(sg(q, format, 6, SG_DXFER_NONE, NULL, 0, 0, &s),
			  NVEFS_SCSI_CHECK_CONDITION);
	ck_assert_uint_eq(s.asc, NVEFS_ASC_INVALID_OPCODE);
	nvefs_dev_counters(scsi, &after);
	ck_assert_mem_eq(&before, &after, sizeof(before));
	nvefs_queue_done(q);
	nvefs_dev_close(scsi);
	nvefs_buf_free(a);
	nvefs_buf_free(b);
}
END_TEST

/* Every status that a controller may give means the same by both routes, and leaves sense data. */
START_TEST(test_every_status)
{
	uint8_t *a = nvefs_buf_new_zeroed(BLK);
	struct nvefs_fault fault = {.op = NVEFS_IO_READ, .every = 1};
	struct nvefs_dev *ram = NULL;
	struct nvefs_queue *qn, *qs;
	struct nvefs_io io;
	uint16_t status;

	ck_assert_int_eq(nvefs_dev_open("ram:8M", NULL, &ram, NULL), 0);
	ck_assert_int_eq(nvefs_fault_wrap(ram, NULL, 0, &native), 0);
	ck_assert_int_eq(nvefs_scsi_route_open(native, NULL, &scsi, NULL), 0);
	qn = queue(native);
	qs = queue(scsi);
	for (size_t i = 0; (status = nvefs_nvme_status_known(i)) != 0; i++) {
		int by_native, by_scsi;

		nvefs_fault_clear(native);
		fault.status = status | NVEFS_NVME_DNR;
		ck_assert_int_eq(nvefs_fault_add(native, &fault), 0);
		by_native = run(qn, NVEFS_IO_READ, 0, 1, a, &io);
		by_scsi = run(qs, NVEFS_IO_READ, 0, 1, a, &io);
		ck_assert_msg(by_native < 0 && by_native == by_scsi, "%#x: %d natively, %d by scsi",
			      status, by_native, by_scsi);
		ck_assert_int_eq(io.status.kind, NVEFS_STATUS_SENSE);
		ck_assert_uint_eq(io.status.nvme & NVEFS_NVME_STATUS_MASK, status);
	}
	nvefs_queue_done(qn);
	nvefs_queue_done(qs);
	nvefs_dev_close(scsi);
	nvefs_buf_free(a);
}
END_TEST

static void expect_open(const char *uri, int want, const char *text)
{
	struct nvefs_dev_open_opts opts = {.route = NVEFS_ROUTE_SCSI};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev = NULL;
	int code = nvefs_dev_open(uri, &opts, &dev, &err);

	ck_assert_msg(code == want, "%s: %d: %s", uri, code, err.text);
	if (!code)
		nvefs_dev_describe(dev, err.text, sizeof(err.text));
	ck_assert_msg(strstr(err.text, text), "%s: no \"%s\" in: %s", uri, text, err.text);
	nvefs_dev_close(dev);
}

START_TEST(test_options)
{
	struct nvefs_dev *dev = NULL;

	expect_open("ram:8M", 0, "scsi route, one logical-unit queue of 254 over");
	expect_open("ram:8M,scsi_queue=many,scsi_depth=7", 0, "many logical-unit queues of 7");
	expect_open("ram:8M,scsi_translate=off", 0, "not translated");
	expect_open("ram:8M,scsi_mistake=flush,scsi_mistake=fua", 0,
		    "mistakes made: fua flush over");
	expect_open("ram:8M,scsi_queue=two", -EINVAL, "one|many");
	expect_open("ram:8M,scsi_depth=0", -EINVAL, "scsi_depth");
	expect_open("ram:8M,scsi_mistake=all", -EINVAL, "scsi_mistake");
	ck_assert_ptr_nonnull(strstr(nvefs_dev_help(), "scsi_queue=one|many"));
	ck_assert_int_eq(nvefs_dev_open("ram:8M,scsi_depth=7", NULL, &dev, NULL), 0);
	nvefs_dev_close(dev);
}
END_TEST

#define NTHREADS 4
#define INFLIGHT 8
#define ROUNDS 200

struct worker {
	pthread_t thread;
	uint32_t index, rounds, left, bad;
	struct nvefs_queue *q;
	struct nvefs_io io[INFLIGHT];
	uint8_t *buf;
};

static void worker_done(struct nvefs_io *io)
{
	struct worker *w = io->arg;
	uint32_t i = (uint32_t)(io - w->io);
	uint8_t *buf = w->buf + i * BLK;

	if (io->err)
		w->bad++;
	else if (io->op == NVEFS_IO_READ && !same(buf, BLK, w->index * 1000 + i))
		w->bad++;
	if (w->left == 0)
		return;
	w->left--;
	io->op = io->op == NVEFS_IO_READ ? NVEFS_IO_WRITE : NVEFS_IO_READ;
	if (io->op == NVEFS_IO_WRITE)
		fill(buf, BLK, w->index * 1000 + i);
	else
		memset(buf, 0, BLK);
	nvefs_queue_submit(w->q, io);
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	if (nvefs_queue_init(scsi, 0, &w->q)) {
		w->bad++;
		return NULL;
	}
	w->buf = nvefs_buf_new(INFLIGHT * BLK);
	w->left = w->rounds;
	for (uint32_t i = 0; i < INFLIGHT; i++) {
		w->io[i] = (struct nvefs_io){.op = NVEFS_IO_WRITE,
					     .nblks = 1,
					     .niov = 1,
					     .pblk = w->index * INFLIGHT + i,
					     .done = worker_done,
					     .arg = w};
		w->io[i].one = (struct iovec){w->buf + i * BLK, BLK};
		w->io[i].iov = &w->io[i].one;
		fill(w->buf + i * BLK, BLK, w->index * 1000 + i);
		nvefs_queue_submit(w->q, &w->io[i]);
	}
	while (nvefs_queue_inflight(w->q) > 0) {
		nvefs_queue_poll(w->q, 0);
		if (nvefs_queue_inflight(w->q) > 0)
			nvefs_queue_wait(w->q, 2000000000);
	}
	nvefs_queue_done(w->q);
	nvefs_buf_free(w->buf);
	return NULL;
}

/* Nanoseconds that all workers took together. */
static uint64_t run_workers(const char *uri, const struct nvefs_scsi_route_opts *opts,
			    uint32_t rounds)
{
	struct worker w[NTHREADS];
	struct nvefs_dev_counters c;
	uint64_t start, ns;

	open_both(uri, opts);
	start = nvefs_now_ns();
	memset(w, 0, sizeof(w));
	for (uint32_t i = 0; i < NTHREADS; i++) {
		w[i].index = i;
		w[i].rounds = rounds;
		ck_assert_int_eq(nvefs_thread_start(&w[i].thread, "worker", worker_run, &w[i]), 0);
	}
	for (uint32_t i = 0; i < NTHREADS; i++) {
		nvefs_thread_join(w[i].thread);
		ck_assert_msg(w[i].bad == 0, "%s: worker %u: %u bad", uri, i, w[i].bad);
	}
	ns = nvefs_now_ns() - start;
	nvefs_dev_counters(scsi, &c);
	ck_assert_uint_eq(c.commands[NVEFS_IO_READ] + c.commands[NVEFS_IO_WRITE],
			  NTHREADS * (rounds + INFLIGHT));
	ck_assert_uint_eq(c.errors, 0);
	nvefs_dev_close(scsi);
	return ns;
}

/* Slots are fewer than commands: queues stand in line and all get their turn. */
START_TEST(test_threads)
{
	static const struct nvefs_scsi_route_opts opts[] = {
	    {.single_queue = true, .depth = 254, .translate = true},
	    {.single_queue = true, .depth = 3, .translate = true},
	    {.single_queue = true, .depth = 1, .translate = true},
	    {.single_queue = false, .depth = 254, .translate = true},
	    {.single_queue = false, .depth = 2, .translate = true},
	    {.single_queue = true, .depth = 3, .translate = false},
	    {.single_queue = false, .depth = 254, .translate = false},
	};

	run_workers("ram:8M", &opts[_i], ROUNDS);
	run_workers("ram:8M,latency=30us,depth=4", &opts[_i], ROUNDS);
}
END_TEST

/* Two outstanding over a device of 2 ms: the commands of all threads together take turns by two. */
START_TEST(test_depth_holds)
{
	struct nvefs_scsi_route_opts opts = nvefs_scsi_route_defaults;
	uint32_t total = NTHREADS * (8 + INFLIGHT);
	uint64_t ns;

	opts.depth = 2;
	ns = run_workers("ram:8M,latency=2ms", &opts, 8);
	ck_assert_msg(ns >= total / 2 * 2000000ull, "%u commands in %llu ns", total,
		      (unsigned long long)ns);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scsi-route");
	TCase *t = tcase_create("route");

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, test_cross, 0, NURIS);
	tcase_add_loop_test(t, test_limits, 0, NURIS);
	tcase_add_loop_test(t, test_ops, 0, NURIS);
	tcase_add_test(t, test_errors);
	tcase_add_test(t, test_refused);
	tcase_add_test(t, test_mistakes);
	tcase_add_loop_test(t, test_cache_off, 0, 2);
	tcase_add_test(t, test_sg_io);
	tcase_add_test(t, test_every_status);
	tcase_add_test(t, test_options);
	tcase_add_loop_test(t, test_threads, 0, 7);
	tcase_add_test(t, test_depth_holds);
	return run_suites(s, NULL);
}
