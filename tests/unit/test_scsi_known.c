/* SPDX-License-Identifier: MIT */
/* Mistakes that earlier translations of SCSI to NVMe made: each has a test of its name, through the whole route. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <nvefs/endian.h>
#include "../support/suites.h"
#include "base/buf.h"
#include "device/scsi_route.h"
#include "scsi/pages.h"
#include "scsi/sense.h"

#define BLK NVEFS_BLOCK_SIZE

static struct nvefs_dev *native, *scsi;
static struct nvefs_queue *qn, *qs;
static uint8_t *buf;
static struct nvefs_sense sense;

static void open_both(const char *uri)
{
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_dev_open(uri, NULL, &native, &err), "%s: %s", uri, err.text);
	ck_assert_msg(!nvefs_scsi_route_open(native, NULL, &scsi, &err), "%s: %s", uri, err.text);
	ck_assert_int_eq(nvefs_queue_init(native, 0, &qn), 0);
	ck_assert_int_eq(nvefs_queue_init(scsi, 0, &qs), 0);
	buf = nvefs_buf_new_zeroed(256 * BLK);
}

static void close_both(void)
{
	nvefs_queue_done(qs);
	nvefs_queue_done(qn);
	nvefs_dev_close(scsi);
	nvefs_buf_free(buf);
}

/* A command as its bytes; status, and `sense` when it is not good. `buf` is the data. */
static uint8_t send_bytes(const uint8_t *cdb, uint8_t cdb_len, int direction, uint32_t len)
{
	uint8_t s[64];
	sg_io_hdr_t hdr = {.interface_id = 'S', .dxfer_direction = direction, .cmd_len = cdb_len, .mx_sb_len = sizeof(s),
			   .dxfer_len = len, .dxferp = buf, .cmdp = (uint8_t *)(uintptr_t)cdb, .sbp = s};

	memset(&sense, 0, sizeof(sense));
	ck_assert_int_eq(nvefs_scsi_route_sg_io(qs, &hdr), 0);
	if (hdr.sb_len_wr)
		ck_assert_int_eq(nvefs_sense_parse(s, hdr.sb_len_wr, &sense), 0);
	return hdr.status;
}
#define SEND(direction, len, ...) send_bytes((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), direction, len)

/* All commands, changes of the medium or not, that reached the device. */
static uint64_t sent(void)
{
	struct nvefs_dev_counters c;
	uint64_t n = 0;

	nvefs_dev_counters(scsi, &c);
	for (int op = 0; op < NVEFS_IO_NOPS; op++)
		n += c.commands[op];
	return n;
}

START_TEST(vpd_83_names_the_namespace_as_nvme_does)
{
	const struct nvefs_dev_identity *id;
	struct nvefs_scsi_identity names;

	open_both("ram:8M");
	id = nvefs_dev_identity(native);
	ck_assert_uint_eq(SEND(SG_DXFER_FROM_DEV, 255, 0x12, 1, 0x83, 0, 255, 0), 0);
	ck_assert_int_eq(nvefs_vpd_identification_parse(buf, 255, &names), 0);
	ck_assert_mem_eq(names.nguid, id->nguid, 16);
	ck_assert_mem_eq(names.eui64, id->eui64, 8);
	close_both();
}
END_TEST

/* READ CAPACITY(16), page B2h, and the command itself agree. */
START_TEST(lbpme_is_set_when_unmap_works)
{
	struct nvefs_scsi_provisioning p;
	struct nvefs_scsi_capacity c;

	open_both("ram:8M");
	ck_assert_uint_eq(SEND(SG_DXFER_FROM_DEV, 32, 0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0), 0);
	ck_assert_int_eq(nvefs_scsi_capacity16_parse(buf, 32, &c), 0);
	ck_assert_uint_eq(SEND(SG_DXFER_FROM_DEV, 64, 0x12, 1, 0xb2, 0, 64, 0), 0);
	ck_assert_int_eq(nvefs_vpd_provisioning_parse(buf, 64, &p), 0);
	memset(buf, 0, 24);
	buf[1] = 22;
	buf[3] = 16;
	buf[19] = 1;
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, 24, 0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0), 0);
	ck_assert(c.lbpme && p.unmap);
	close_both();
}
END_TEST

/* 64 KiB are 16 blocks of 4096 and 128 of 512; the announced maximum works, one block more does nothing at all. */
START_TEST(max_transfer_is_in_blocks_of_the_real_size)
{
	uint32_t lba = _i ? 4096 : 512, max = 65536 / lba;
	struct nvefs_scsi_block_limits l;
	uint64_t before;

	open_both(_i ? "ram:8M,lba=4096,mdts=64k" : "ram:8M,lba=512,mdts=64k");
	ck_assert_uint_eq(SEND(SG_DXFER_FROM_DEV, 64, 0x12, 1, 0xb0, 0, 64, 0), 0);
	ck_assert_int_eq(nvefs_vpd_limits_parse(buf, 64, &l), 0);
	ck_assert_uint_eq(l.max_transfer, max);
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, max * lba, 0x2a, 0, 0, 0, 0, 0, 0, 0, (uint8_t)max, 0), 0);
	before = sent();
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, (max + 1) * lba, 0x2a, 0, 0, 0, 0, 0, 0, 0, (uint8_t)(max + 1), 0), 2);
	ck_assert(sense.asc == NVEFS_ASC_FIELD_IN_CDB && sense.byte == 7);
	ck_assert_uint_eq(sent(), before);
	close_both();
}
END_TEST

/* The three bits above it are reserved: they neither count nor are they let through. */
START_TEST(a_six_byte_lba_has_21_bits)
{
	open_both("ram:2G,lba=512");
	memset(buf, 0x5a, 512);
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, 512, 0x0a, 0x1f, 0xff, 0xff, 1, 0), 0);
	ck_assert_int_eq(nvefs_queue_read(qn, 0x1fffff / 8, 1, buf), 0);
	ck_assert(buf[7 * 512] == 0x5a && buf[6 * 512] == 0);
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, 512, 0x0a, 0x3f, 0xff, 0xff, 1, 0), 2);
	ck_assert(sense.asc == NVEFS_ASC_FIELD_IN_CDB && sense.byte == 1 && sense.has_bit && sense.bit == 5);
	close_both();
}
END_TEST

/* Nor does a good one, nor anything else that would take the data with it. */
START_TEST(a_format_unit_sends_nothing)
{
	uint64_t before;

	open_both("ram:8M");
	memset(buf, 0x5a, BLK);
	ck_assert_int_eq(nvefs_queue_write(qn, 0, 1, buf, 0), 0);
	memset(buf, 0, 4 * BLK);
	before = sent();
	ck_assert_uint_eq(SEND(SG_DXFER_NONE, 0, 0x04, 0, 0, 0, 0, 0), 2);
	ck_assert_uint_eq(sense.asc, NVEFS_ASC_INVALID_OPCODE);
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, 4, 0x04, 0x1f, 0xff, 0, 0, 0xff), 2); /* FMTDATA and a list that cannot be */
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, 12, 0x04, 0x10, 0, 0, 0, 0), 2);
	ck_assert_uint_eq(SEND(SG_DXFER_NONE, 0, 0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0), 2);			   /* SANITIZE */
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, BLK, 0x3b, 0x05, 0, 0, 0, 0, 0, 0x10, 0, 0), 2);		   /* WRITE BUFFER */
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, BLK, 0xb5, 0x02, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0), 2); /* SECURITY PROTOCOL OUT */
	ck_assert_uint_eq(sense.asc, NVEFS_ASC_INVALID_OPCODE);
	ck_assert_uint_eq(sent(), before);
	ck_assert_int_eq(nvefs_queue_read(qn, 0, 1, buf), 0);
	ck_assert(buf[0] == 0x5a && buf[BLK - 1] == 0x5a);
	close_both();
}
END_TEST

/* Each becomes exactly one command (COMPARE AND WRITE the pair), however long it is. */
START_TEST(a_command_is_never_cut_into_pieces)
{
	uint64_t before;

	open_both("ram:8M,mdts=256k");
	before = sent();
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, 64 * BLK, 0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0), 0);
	ck_assert_uint_eq(sent(), before + 1);
	ck_assert_uint_eq(SEND(SG_DXFER_FROM_DEV, 64 * BLK, 0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0), 0);
	ck_assert_uint_eq(sent(), before + 2);
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, BLK, 0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0), 0);
	ck_assert_uint_eq(sent(), before + 3);
	ck_assert_uint_eq(SEND(SG_DXFER_TO_DEV, 128 * BLK, 0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0), 0);
	ck_assert_uint_eq(sent(), before + 5);
	close_both();
}
END_TEST

static void unmap_list(uint32_t ndescs)
{
	memset(buf, 0, 8 + ndescs * 16);
	be16_store(buf, (uint16_t)(ndescs * 16 + 6));
	be16_store(buf + 2, (uint16_t)(ndescs * 16));
	for (uint32_t i = 0; i < ndescs; i++) {
		be64_store(buf + 8 + i * 16, 0x0102 + 24 * i);
		be32_store(buf + 16 + i * 16, 8);
	}
}

static uint8_t send_unmap(uint32_t ndescs)
{
	uint32_t len = 8 + ndescs * 16;

	unmap_list(ndescs);
	return SEND(SG_DXFER_TO_DEV, len, 0x42, 0, 0, 0, 0, 0, 0, (uint8_t)(len >> 8), (uint8_t)len, 0);
}

/*
 * Big-endian in, little-endian out: 0x0102 is not 0x0201. As many at once as are announced, none lost; a Dataset
 * Management command has room for 256.
 */
START_TEST(unmap_descriptors_keep_their_order_of_bytes)
{
	struct nvefs_scsi_block_limits l;

	open_both("ram:8M,lba=512");
	ck_assert_uint_eq(SEND(SG_DXFER_FROM_DEV, 64, 0x12, 1, 0xb0, 0, 64, 0), 0);
	ck_assert_int_eq(nvefs_vpd_limits_parse(buf, 64, &l), 0);
	ck_assert(l.max_unmap_descs > 100 && l.max_unmap_descs <= 256);
	memset(buf, 0x5a, 256 * BLK);
	for (uint64_t at = 0; at < 2048; at += 256)
		ck_assert_int_eq(nvefs_queue_write(qn, at, 256, buf, 0), 0);
	ck_assert_uint_eq(send_unmap(l.max_unmap_descs), 0);
	for (uint64_t at = 0; at < 2048; at += 256) {
		ck_assert_int_eq(nvefs_queue_read(qn, at, 256, buf), 0);
		for (uint32_t i = 0; i < 2048; i++) {
			int64_t from = (int64_t)(at * 8 + i) - 0x0102;
			bool gone = from >= 0 && from < 24 * (int64_t)l.max_unmap_descs && from % 24 < 8;

			if (buf[i * 512] != (gone ? 0 : 0x5a))
				ck_abort_msg("LBA %llu", (unsigned long long)(at * 8 + i));
		}
	}
	/* One more than the controller takes at once is refused whole. */
	ck_assert_uint_eq(send_unmap(l.max_unmap_descs + 1), 2);
	ck_assert(sense.asc == NVEFS_ASC_FIELD_IN_PARAMETERS && sense.byte == 2);
	close_both();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scsi-known");
	TCase *t = tcase_create("known");

	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, vpd_83_names_the_namespace_as_nvme_does);
	tcase_add_test(t, lbpme_is_set_when_unmap_works);
	tcase_add_loop_test(t, max_transfer_is_in_blocks_of_the_real_size, 0, 2);
	tcase_add_test(t, a_six_byte_lba_has_21_bits);
	tcase_add_test(t, a_format_unit_sends_nothing);
	tcase_add_test(t, a_command_is_never_cut_into_pieces);
	tcase_add_test(t, unmap_descriptors_keep_their_order_of_bytes);
	return run_suites(s, NULL);
}
