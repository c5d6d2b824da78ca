/* SPDX-License-Identifier: MIT */
/* The translation as a table: command bytes in, NVMe commands or an answer out. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <nvefs/endian.h>
#include "../support/suites.h"
#include "nvme/status.h"
#include "scsi/sntl.h"

#define LBA_BYTES 4096u
#define NLBAS 0x200000000ull
#define MAX_TRANSFER (128u * 1024)

static struct nvefs_nvme_ctrl_info ctrl;
static struct nvefs_nvme_ns_info ns;
static struct nvefs_sntl_lu lu;
static struct nvefs_sntl_cmd cmd;
static struct nvefs_nvme_dsm_range ranges[NVEFS_NVME_DSM_MAX_RANGES];
static uint8_t out[MAX_TRANSFER + LBA_BYTES], in[MAX_TRANSFER + LBA_BYTES];

static void setup(void)
{
	ctrl = (struct nvefs_nvme_ctrl_info){.model = "nvefs embedded controller",
					     .serial = "SERIAL1",
					     .firmware = "1.2.345",
					     .compare = true,
					     .dsm = true,
					     .write_zeroes = true,
					     .verify = true,
					     .vwc = true};
	ns = (struct nvefs_nvme_ns_info){.nsze = NLBAS,
					 .ncap = NLBAS,
					 .lba_bytes = LBA_BYTES,
					 .npwg = 16,
					 .npwa = 1,
					 .npdg = 8,
					 .npda = 8,
					 .dlfeat =
					     NVEFS_NVME_DLFEAT_READ_ZEROS | NVEFS_NVME_DLFEAT_DEAC};
	for (uint8_t i = 0; i < 16; i++)
		ns.nguid[i] = i + 1;
	for (uint8_t i = 0; i < 8; i++)
		ns.eui64[i] = 0xa0 + i;
	lu = (struct nvefs_sntl_lu){.ctrl = &ctrl,
				    .ns = &ns,
				    .nsid = 1,
				    .max_transfer_bytes = MAX_TRANSFER,
				    .write_cache = true};
	memset(out, 0, sizeof(out));
	memset(in, 0xee, sizeof(in));
}

static void send_bytes(const uint8_t *cdb, size_t len, size_t out_len, size_t in_len)
{
	struct nvefs_sntl_request req = {.cdb = cdb,
					 .cdb_len = len,
					 .out = out,
					 .out_len = out_len,
					 .in = in,
					 .in_len = in_len,
					 .ranges = ranges,
					 .max_ranges = NVEFS_NVME_DSM_MAX_RANGES};

	memset(&cmd, 0xee, sizeof(cmd));
	nvefs_sntl_translate(&lu, &req, &cmd);
}

static void send_cdb(struct nvefs_cdb c, size_t out_len, size_t in_len)
{
	uint8_t bytes[NVEFS_CDB_MAX];
	int len = nvefs_cdb_build(&c, bytes);

	ck_assert_int_gt(len, 0);
	send_bytes(bytes, (size_t)len, out_len, in_len);
}

static void expect_sense(uint8_t key, uint16_t asc)
{
	struct nvefs_sense s;

	ck_assert_uint_eq(cmd.nparts, 0);
	ck_assert_uint_eq(cmd.status, NVEFS_SCSI_CHECK_CONDITION);
	ck_assert_int_eq(nvefs_sense_parse(cmd.sense, cmd.sense_len, &s), 0);
	ck_assert_uint_eq(s.key, key);
	ck_assert_msg(s.asc == asc, "asc %04x, not %04x", s.asc, asc);
	ck_assert_uint_eq(cmd.in_bytes, 0);
}

static void expect_field(uint16_t byte, bool in_cdb)
{
	struct nvefs_sense s;

	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST,
		     in_cdb ? NVEFS_ASC_FIELD_IN_CDB : NVEFS_ASC_FIELD_IN_PARAMETERS);
	nvefs_sense_parse(cmd.sense, cmd.sense_len, &s);
	ck_assert(s.has_field && s.in_cdb == in_cdb);
	ck_assert_msg(s.byte == byte, "field pointer %u, not %u", s.byte, byte);
}

static void expect_good(uint32_t in_bytes)
{
	ck_assert_uint_eq(cmd.nparts, 0);
	ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
	ck_assert_uint_eq(cmd.in_bytes, in_bytes);
}

static void expect_rw(uint8_t opcode, uint64_t slba, uint32_t nlbs, uint32_t flags)
{
	const struct nvefs_nvme_sqe *sqe = &cmd.part[0].sqe;

	ck_assert_uint_eq(cmd.nparts, 1);
	ck_assert_msg(sqe->opcode == opcode, "NVMe opcode %02x, not %02x", sqe->opcode, opcode);
	ck_assert_uint_eq(le32_get(sqe->nsid), 1);
	ck_assert_uint_eq(nvefs_nvme_sqe_slba(sqe), slba);
	ck_assert_uint_eq(nvefs_nvme_sqe_nlbs(sqe), nlbs);
	ck_assert_uint_eq(le32_get(sqe->cdw12) & ~NVEFS_NVME_CDW12_NLB_MASK, flags);
}

START_TEST(test_read_write)
{
	static const uint8_t reads[] = {0x08, 0x28, 0xa8, 0x88},
			     writes[] = {0x0a, 0x2a, 0xaa, 0x8a};

	for (int i = 0; i < 4; i++) {
		bool fua = i > 0;
		uint32_t flag = fua ? NVEFS_NVME_CDW12_FUA : 0;
		struct nvefs_cdb c = {.opcode = reads[i], .lba = 0x12345, .count = 7, .fua = fua};

		send_cdb(c, 0, 7 * LBA_BYTES);
		expect_rw(NVEFS_NVME_READ, 0x12345, 7, flag);
		ck_assert_uint_eq(cmd.part[0].data, NVEFS_SNTL_TO_IN);
		ck_assert_uint_eq(cmd.part[0].bytes, 7 * LBA_BYTES);
		c.opcode = writes[i];
		send_cdb(c, 7 * LBA_BYTES, 0);
		expect_rw(NVEFS_NVME_WRITE, 0x12345, 7, flag);
		ck_assert_uint_eq(cmd.part[0].data, NVEFS_SNTL_FROM_OUT);
		ck_assert_uint_eq(cmd.out_bytes, 7 * LBA_BYTES);
		ck_assert(nvefs_sntl_complete(&cmd, 0));
		ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
		/* A buffer that is too short transfers nothing rather than a part. */
		send_cdb(c, 7 * LBA_BYTES - 1, 0);
		expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_FIELD_IN_CDB);
	}
	/* The 6-byte LBA has 21 bits; the three above it are reserved, not LBA. */
	send_bytes((const uint8_t[]){0x08, 0x1f, 0xff, 0xff, 1, 0}, 6, 0, LBA_BYTES);
	expect_rw(NVEFS_NVME_READ, 0x1fffff, 1, 0);
	send_bytes((const uint8_t[]){0x08, 0x3f, 0xff, 0xff, 1, 0}, 6, 0, LBA_BYTES);
	expect_field(1, true);
	/* A zero length is 256 blocks in the 6-byte commands and none in the others. */
	lu.max_transfer_bytes = 256 * LBA_BYTES;
	send_bytes((const uint8_t[]){0x08, 0, 0, 0, 0, 0}, 6, 0, 256 * LBA_BYTES);
	expect_rw(NVEFS_NVME_READ, 0, 256, 0);
	send_cdb((struct nvefs_cdb){.opcode = 0x28}, 0, 0);
	expect_good(0);
}
END_TEST

START_TEST(test_range)
{
	struct nvefs_sense s;

	send_cdb((struct nvefs_cdb){.opcode = 0x88, .lba = NLBAS - 1, .count = 1}, 0, LBA_BYTES);
	expect_rw(NVEFS_NVME_READ, NLBAS - 1, 1, 0);
	lu.descriptor_sense = true;
	send_cdb((struct nvefs_cdb){.opcode = 0x88, .lba = NLBAS - 1, .count = 2}, 0,
		 2 * LBA_BYTES);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_LBA_RANGE);
	nvefs_sense_parse(cmd.sense, cmd.sense_len, &s);
	ck_assert(s.has_info && s.info == NLBAS);
	send_cdb((struct nvefs_cdb){.opcode = 0x88, .lba = UINT64_MAX, .count = 2}, 0,
		 2 * LBA_BYTES);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_LBA_RANGE);
	send_cdb((struct nvefs_cdb){.opcode = 0x88, .lba = NLBAS, .count = 0}, 0, 0);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_LBA_RANGE);
	send_cdb((struct nvefs_cdb){.opcode = 0x91, .lba = NLBAS, .count = 0}, 0, 0);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_LBA_RANGE);
}
END_TEST

/* The announced maximum works, one block more is refused whole. Blocks, not sectors of 512. */
START_TEST(test_max_transfer)
{
	uint32_t max = MAX_TRANSFER / LBA_BYTES;
	struct nvefs_scsi_block_limits l;
	uint8_t vpd[] = {0x12, 1, 0xb0, 0, 64, 0};

	send_bytes(vpd, sizeof(vpd), 0, sizeof(in));
	expect_good(64);
	ck_assert_int_eq(nvefs_vpd_limits_parse(in, 64, &l), 0);
	ck_assert_uint_eq(l.max_transfer, max);
	ck_assert_uint_eq(l.max_write_same, max);
	ck_assert_uint_eq(l.granularity, 16);
	ck_assert_uint_eq(l.max_unmap, UINT32_MAX);
	ck_assert_uint_eq(l.max_unmap_descs, 256);
	ck_assert_uint_eq(l.unmap_granularity, 8);
	send_cdb((struct nvefs_cdb){.opcode = 0x88, .count = max}, 0, sizeof(in));
	expect_rw(NVEFS_NVME_READ, 0, max, 0);
	send_cdb((struct nvefs_cdb){.opcode = 0x88, .count = max + 1}, 0, sizeof(in));
	expect_field(10, true);
	send_cdb((struct nvefs_cdb){.opcode = 0x2a, .count = max + 1}, sizeof(out), 0);
	expect_field(7, true);
	send_cdb((struct nvefs_cdb){.opcode = 0x93, .count = max + 1}, LBA_BYTES, 0);
	expect_field(10, true);
}
END_TEST

START_TEST(test_flush)
{
	send_cdb((struct nvefs_cdb){.opcode = 0x35}, 0, 0);
	ck_assert_uint_eq(cmd.nparts, 1);
	ck_assert_uint_eq(cmd.part[0].sqe.opcode, NVEFS_NVME_FLUSH);
	ck_assert_uint_eq(le32_get(cmd.part[0].sqe.nsid), 1);
	/* Also with the cache off: its state may change behind our back. */
	lu.write_cache = false;
	send_cdb((struct nvefs_cdb){.opcode = 0x91, .lba = 5, .count = 100000, .immed = true}, 0,
		 0);
	ck_assert_uint_eq(cmd.nparts, 1);
	ck_assert_uint_eq(cmd.part[0].sqe.opcode, NVEFS_NVME_FLUSH);
}
END_TEST

START_TEST(test_verify)
{
	send_cdb((struct nvefs_cdb){.opcode = 0x8f, .lba = 3, .count = 4}, 0, 0);
	expect_rw(NVEFS_NVME_VERIFY, 3, 4, 0);
	ck_assert_uint_eq(cmd.part[0].data, NVEFS_SNTL_NO_DATA);
	send_cdb((struct nvefs_cdb){.opcode = 0x8f, .lba = 3, .count = 4, .bytchk = 1},
		 4 * LBA_BYTES, 0);
	expect_rw(NVEFS_NVME_COMPARE, 3, 4, 0);
	ck_assert_uint_eq(cmd.part[0].bytes, 4 * LBA_BYTES);
	send_cdb((struct nvefs_cdb){.opcode = 0x2f, .lba = 3, .count = 4, .bytchk = 3}, LBA_BYTES,
		 0);
	expect_rw(NVEFS_NVME_COMPARE, 3, 4, 0);
	ck_assert_uint_eq(cmd.part[0].bytes, LBA_BYTES);
	ck_assert_uint_eq(cmd.part[0].repeat, 4);
	send_cdb((struct nvefs_cdb){.opcode = 0xaf, .count = 4, .bytchk = 2}, 4 * LBA_BYTES, 0);
	expect_field(1, true);
	ctrl.compare = false;
	send_cdb((struct nvefs_cdb){.opcode = 0x8f, .count = 4, .bytchk = 1}, 4 * LBA_BYTES, 0);
	expect_field(1, true);
	ctrl.verify = false;
	send_cdb((struct nvefs_cdb){.opcode = 0x8f, .count = 4}, 0, 0);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_INVALID_OPCODE);
}
END_TEST

START_TEST(test_write_same)
{
	struct nvefs_cdb c = {.opcode = 0x93, .lba = 3, .count = 9};

	send_cdb(c, LBA_BYTES, 0);
	expect_rw(NVEFS_NVME_WRITE_ZEROES, 3, 9, 0);
	c.unmap = true;
	send_cdb(c, LBA_BYTES, 0);
	expect_rw(NVEFS_NVME_WRITE_ZEROES, 3, 9, NVEFS_NVME_CDW12_DEAC);
	c.ndob = true;
	send_cdb(c, 0, 0);
	expect_rw(NVEFS_NVME_WRITE_ZEROES, 3, 9, NVEFS_NVME_CDW12_DEAC);
	ns.dlfeat = 0;
	send_cdb(c, 0, 0);
	expect_rw(NVEFS_NVME_WRITE_ZEROES, 3, 9, 0);
	/* Any byte that is not zero means the pattern, whether UNMAP is set or not. */
	c.ndob = false;
	out[LBA_BYTES - 1] = 1;
	send_cdb(c, LBA_BYTES, 0);
	expect_rw(NVEFS_NVME_WRITE, 3, 9, 0);
	ck_assert_uint_eq(cmd.part[0].bytes, LBA_BYTES);
	ck_assert_uint_eq(cmd.part[0].repeat, 9);
	ck_assert_uint_eq(cmd.out_bytes, LBA_BYTES);
	send_cdb(c, LBA_BYTES - 1, 0);
	expect_field(10, true);
	c.count = 0;
	send_cdb(c, LBA_BYTES, 0);
	expect_field(10, true);
	send_bytes((const uint8_t[16]){0x93, 0x10 /* ANCHOR */}, 16, LBA_BYTES, 0);
	expect_field(1, true);
}
END_TEST

static void unmap_header(uint32_t ndescs)
{
	memset(out, 0, sizeof(out));
	be16_store(out, (uint16_t)(ndescs * 16 + 6));
	be16_store(out + 2, (uint16_t)(ndescs * 16));
}

static void unmap_desc(uint32_t i, uint64_t lba, uint32_t count)
{
	be64_store(out + 8 + i * 16, lba);
	be32_store(out + 16 + i * 16, count);
}

START_TEST(test_unmap)
{
	static const uint8_t first[16] = {0,	0,    0,    0,	  0x04, 0x03, 0x02, 0x01,
					  0x08, 0x07, 0x06, 0x05, 1,	0,    0,    0};
	struct nvefs_cdb c = {.opcode = 0x42, .count = 8 + 3 * 16};

	unmap_header(3);
	unmap_desc(0, 0x105060708, 0x01020304 - 0);
	unmap_desc(1, 77, 0); /* empty: no range */
	unmap_desc(2, NLBAS - 1, 1);
	send_cdb(c, c.count, 0);
	ck_assert_uint_eq(cmd.nparts, 1);
	ck_assert_uint_eq(cmd.part[0].sqe.opcode, NVEFS_NVME_DSM);
	ck_assert_uint_eq(nvefs_nvme_sqe_dsm_nranges(&cmd.part[0].sqe), 2);
	ck_assert_uint_eq(le32_get(cmd.part[0].sqe.cdw11), NVEFS_NVME_DSM_CDW11_AD);
	ck_assert_uint_eq(cmd.part[0].data, NVEFS_SNTL_RANGES);
	ck_assert_uint_eq(cmd.part[0].bytes, 32);
	ck_assert_mem_eq(ranges, first, 16); /* little-endian, byte for byte */
	ck_assert_uint_eq(le64_get(ranges[1].slba), NLBAS - 1);

	unmap_desc(2, NLBAS - 1, 2);
	send_cdb(c, c.count, 0);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_LBA_RANGE);
	unmap_desc(2, 0, 2);
	out[8 + 2 * 16 + 15] = 1; /* reserved bytes of the descriptor */
	send_cdb(c, c.count, 0);
	expect_field(8 + 2 * 16 + 12, false);
}
END_TEST

START_TEST(test_unmap_lengths)
{
	struct nvefs_cdb c = {.opcode = 0x42, .count = 8 + 256 * 16};

	unmap_header(256);
	for (uint32_t i = 0; i < 256; i++)
		unmap_desc(i, i * 100, 1);
	send_cdb(c, c.count, 0);
	ck_assert_uint_eq(cmd.nparts, 1);
	ck_assert_uint_eq(nvefs_nvme_sqe_dsm_nranges(&cmd.part[0].sqe), 256);
	ctrl.dmrl = 255;
	send_cdb(c, c.count, 0);
	expect_field(2, false);
	ctrl.dmrl = 0;
	unmap_header(257);
	c.count += 16;
	send_cdb(c, c.count, 0);
	expect_field(2, false);
	c.count -= 32; /* the list claims more than was sent */
	send_cdb(c, c.count, 0);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_PARAMETER_LENGTH);
	unmap_header(1);
	be16_store(out, 3); /* shorter than the descriptors in it */
	send_cdb(c, c.count, 0);
	expect_field(0, false);
	c.count = 7;
	send_cdb(c, c.count, 0);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_PARAMETER_LENGTH);
	c.count = 0;
	send_cdb(c, 0, 0);
	expect_good(0);
	unmap_header(0);
	c.count = 8;
	send_cdb(c, 8, 0);
	expect_good(0);
	unmap_header(2);
	unmap_desc(0, 0, 0xffffffff);
	unmap_desc(1, 0, 1); /* together above the announced maximum */
	c.count = 40;
	send_cdb(c, 40, 0);
	expect_field(8 + 16 + 8, false);
	ctrl.dsm = false;
	send_cdb(c, 40, 0);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_INVALID_OPCODE);
}
END_TEST

START_TEST(test_identity)
{
	struct nvefs_scsi_identity id;
	char serial[64];

	send_cdb((struct nvefs_cdb){.opcode = 0x12, .evpd = true, .page = 0x83, .count = 255}, 0,
		 255);
	ck_assert_int_eq(nvefs_vpd_identification_parse(in, cmd.in_bytes, &id), 0);
	ck_assert_mem_eq(id.nguid, ns.nguid, 16);
	ck_assert_mem_eq(id.eui64, ns.eui64, 8);
	ck_assert_mem_eq(id.t10, "NVMe    nvefs embedded controller", 33);
	send_cdb((struct nvefs_cdb){.opcode = 0x12, .evpd = true, .page = 0x80, .count = 255}, 0,
		 255);
	nvefs_vpd_serial_parse(in, cmd.in_bytes, serial, sizeof(serial));
	ck_assert_str_eq(serial, "0102_0304_0506_0708_090A_0B0C_0D0E_0F10.");
	memset(ns.nguid, 0, 16);
	memset(ns.eui64, 0, 8);
	send_cdb((struct nvefs_cdb){.opcode = 0x12, .evpd = true, .page = 0x80, .count = 255}, 0,
		 255);
	nvefs_vpd_serial_parse(in, cmd.in_bytes, serial, sizeof(serial));
	ck_assert_str_eq(serial, "SERIAL1_00000001.");
	send_cdb((struct nvefs_cdb){.opcode = 0x12, .count = 36}, 0, 96);
	expect_good(36);
	ck_assert_mem_eq(in + 8, "NVMe    nvefs embedded c.345", 28);
	send_bytes((const uint8_t[]){0x12, 0, 0x80, 0, 96, 0}, 6, 0, 96);
	expect_field(2, true);
	send_bytes((const uint8_t[]){0x12, 1, 0x84, 0, 96, 0}, 6, 0, 96);
	expect_field(2, true);
}
END_TEST

/* LBPME and page B2h say UNMAP exactly when UNMAP works. */
START_TEST(test_capacity_provisioning)
{
	struct nvefs_scsi_capacity c;
	struct nvefs_scsi_provisioning p;
	struct nvefs_cdb rc = {.opcode = 0x9e, .service_action = 0x10, .count = 32};
	struct nvefs_cdb b2 = {.opcode = 0x12, .evpd = true, .page = 0xb2, .count = 64};

	send_cdb(rc, 0, 32);
	ck_assert_int_eq(nvefs_scsi_capacity16_parse(in, cmd.in_bytes, &c), 0);
	ck_assert_uint_eq(c.nlbas, NLBAS);
	ck_assert_uint_eq(c.lba_bytes, LBA_BYTES);
	ck_assert_uint_eq(c.physical_exponent, 4);
	ck_assert(c.lbpme && c.lbprz);
	send_cdb(b2, 0, 64);
	ck_assert_int_eq(nvefs_vpd_provisioning_parse(in, cmd.in_bytes, &p), 0);
	ck_assert(p.unmap && p.write_same_16 && p.reads_zeros && p.type == 1);
	ctrl.dsm = ctrl.write_zeroes = false;
	send_cdb(rc, 0, 32);
	nvefs_scsi_capacity16_parse(in, cmd.in_bytes, &c);
	ck_assert(!c.lbpme && !c.lbprz);
	send_cdb(b2, 0, 64);
	nvefs_vpd_provisioning_parse(in, cmd.in_bytes, &p);
	ck_assert(!p.unmap && !p.write_same_16 && p.type == 0);
	send_cdb((struct nvefs_cdb){.opcode = 0x25}, 0, 8);
	expect_good(8);
	ck_assert_uint_eq(be32_load(in), 0xffffffff);
}
END_TEST

START_TEST(test_mode_sense)
{
	struct nvefs_scsi_mode m;
	struct nvefs_cdb c = {.opcode = 0x5a, .page = 0x08, .count = 255, .dbd = true};

	send_cdb(c, 0, 255);
	ck_assert_int_eq(nvefs_scsi_mode_parse(in, cmd.in_bytes, true, &m), 0);
	ck_assert(m.has_caching && m.write_cache && m.dpofua && !m.write_protected);
	lu.write_cache = false;
	ns.write_protected = true;
	c.opcode = 0x1a;
	send_cdb(c, 0, 255);
	ck_assert_int_eq(nvefs_scsi_mode_parse(in, cmd.in_bytes, false, &m), 0);
	ck_assert(m.has_caching && !m.write_cache && m.write_protected);
	c.pc = 3;
	send_cdb(c, 0, 255);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_SAVING_NOT_SUPPORTED);
	c.pc = 0;
	c.page = 0x19;
	send_cdb(c, 0, 255);
	expect_field(2, true);
	c.page = 0x3f;
	c.subpage = 1;
	send_cdb(c, 0, 255);
	expect_field(3, true);
}
END_TEST

START_TEST(test_log_sense)
{
	struct nvefs_nvme_health health = {.temperature_kelvin = 273 + 41, .percent_used = 7, .critical_warning = 0x04};
	struct nvefs_cdb c = {.opcode = 0x4d, .pc = 1, .count = 255};
	static const uint8_t pages[] = {0x00, 0, 0, 4, 0x00, 0x0d, 0x11, 0x2f};

	send_cdb(c, 0, 255);
	expect_good(sizeof(pages));
	ck_assert_mem_eq(in, pages, sizeof(pages));
	c.page = 0x0d;
	send_cdb(c, 0, 255);
	expect_good(16);
	ck_assert_uint_eq(in[9], 0xff); /* no log, no figure */
	lu.health = &health;
	ctrl.warning_kelvin = 273 + 70;
	send_cdb(c, 0, 255);
	ck_assert_uint_eq(in[9], 41);
	ck_assert_uint_eq(in[15], 70);
	c.page = 0x11;
	send_cdb(c, 0, 255);
	ck_assert_uint_eq(in[11], 7);
	c.page = 0x2f;
	send_cdb(c, 0, 255);
	ck_assert_uint_eq(in[8], 0x5d);
	ck_assert_uint_eq(in[10], 41);
	health.critical_warning = 0x02;
	send_cdb(c, 0, 255);
	ck_assert_uint_eq(be16_load(in + 8), 0x0b01);
	c.page = 0x0e;
	send_cdb(c, 0, 255);
	expect_field(2, true);
	c.page = 0x0d;
	c.subpage = 0xff;
	send_cdb(c, 0, 255);
	expect_field(3, true);
	c.subpage = c.pc = 0;
	send_cdb(c, 0, 255);
	expect_field(2, true);
}
END_TEST

START_TEST(test_small_queries)
{
	send_cdb((struct nvefs_cdb){.opcode = 0xa0, .count = 16}, 0, 16);
	expect_good(16);
	ck_assert_uint_eq(be32_load(in), 8);
	send_cdb((struct nvefs_cdb){.opcode = 0xa0, .select_report = 3, .count = 16}, 0, 16);
	expect_field(2, true);
	send_cdb((struct nvefs_cdb){.opcode = 0x03, .count = 252}, 0, 252);
	expect_good(18);
	ck_assert_uint_eq(in[0], 0x70);
	send_cdb((struct nvefs_cdb){.opcode = 0x03, .desc = true, .count = 252}, 0, 252);
	expect_good(8);
	ck_assert_uint_eq(in[0], 0x72);
	send_cdb((struct nvefs_cdb){.opcode = 0x00}, 0, 0);
	expect_good(0);
	/* Allocation length and buffer both bound an answer. */
	send_cdb((struct nvefs_cdb){.opcode = 0x12, .count = 96}, 0, 5);
	expect_good(5);
	send_cdb((struct nvefs_cdb){.opcode = 0x12, .count = 5}, 0, 96);
	expect_good(5);
}
END_TEST

START_TEST(test_report_opcodes)
{
	struct nvefs_cdb c = {.opcode = 0xa3, .service_action = 0x0c, .count = 4096};
	const struct nvefs_cdb_format *f;
	size_t n = 0;

	send_cdb(c, 0, sizeof(in));
	while (nvefs_cdb_format_at(n))
		n++;
	ck_assert_uint_eq(be32_load(in), (n - 1) * 8); /* all but COMPARE AND WRITE */
	c.report_option = 3;
	for (size_t i = 0; (f = nvefs_cdb_format_at(i)) != NULL; i++) {
		c.req_opcode = f->opcode;
		c.req_sa = f->service_action == NVEFS_SCSI_NO_SA ? 0 : f->service_action;
		send_cdb(c, 0, sizeof(in));
		if (f->opcode == NVEFS_SCSI_COMPARE_AND_WRITE) {
			ck_assert_uint_eq(in[1] & 7, 1);
			continue;
		}
		expect_good(4u + f->len);
		ck_assert_uint_eq(in[1] & 7, 3);
		ck_assert_mem_eq(in + 4, f->mask, f->len);
	}
	ctrl.compare = false; /* then BYTCHK is no bit that may be set */
	c.req_opcode = NVEFS_SCSI_VERIFY_16;
	c.req_sa = 0;
	send_cdb(c, 0, sizeof(in));
	ck_assert_uint_eq(in[5], 0x10);
	c.req_opcode = 0x04;
	send_cdb(c, 0, sizeof(in));
	expect_good(4);
	ck_assert_uint_eq(in[1], 1);
	for (c.report_option = 1; c.report_option <= 3; c.report_option++) {
		c.req_opcode = 0x5e; /* not here, whatever service actions it has elsewhere */
		c.req_sa = 1;
		send_cdb(c, 0, sizeof(in));
		expect_good(4);
		ck_assert_uint_eq(in[1], 1);
	}
	c.report_option = 1;
	c.req_opcode = 0x9e;
	send_cdb(c, 0, sizeof(in));
	expect_field(2, true);
}
END_TEST

START_TEST(test_compare_and_write)
{
	struct nvefs_cdb c = {.opcode = 0x89, .lba = 4, .count = 2, .fua = true};
	struct nvefs_sense s;

	send_cdb(c, 4 * LBA_BYTES, 0);
	expect_sense(NVEFS_SENSE_ILLEGAL_REQUEST, NVEFS_ASC_INVALID_OPCODE);
	ctrl.fused_compare_write = true;
	ctrl.acwu = 2;
	send_cdb(c, 4 * LBA_BYTES, 0);
	ck_assert_uint_eq(cmd.nparts, 2);
	ck_assert_uint_eq(cmd.part[0].sqe.flags, NVEFS_NVME_FUSE_FIRST);
	ck_assert_uint_eq(cmd.part[1].sqe.flags, NVEFS_NVME_FUSE_SECOND);
	ck_assert_uint_eq(cmd.part[1].offset, 2 * LBA_BYTES);
	ck_assert_uint_eq(cmd.out_bytes, 4 * LBA_BYTES);
	ck_assert(!nvefs_sntl_complete(&cmd, NVEFS_NVME_SC_FUSED_FAILED));
	ck_assert(nvefs_sntl_complete(&cmd, NVEFS_NVME_SC_COMPARE_FAILED));
	ck_assert_uint_eq(cmd.status, NVEFS_SCSI_CHECK_CONDITION);
	nvefs_sense_parse(cmd.sense, cmd.sense_len, &s);
	ck_assert_uint_eq(s.key, NVEFS_SENSE_MISCOMPARE);
	c.count = 3;
	send_cdb(c, 6 * LBA_BYTES, 0);
	expect_field(13, true);
}
END_TEST

/* Both routes must mean the same: the errno of the sense is the errno of the NVMe status. */
START_TEST(test_status)
{
	uint16_t status;

	for (size_t i = 0; (status = nvefs_nvme_status_known(i)) != 0; i++) {
		struct nvefs_sense s;
		uint8_t scsi;

		send_cdb((struct nvefs_cdb){.opcode = 0x88, .count = 1}, 0, LBA_BYTES);
		ck_assert(nvefs_sntl_complete(&cmd, status | NVEFS_NVME_DNR | NVEFS_NVME_MORE));
		ck_assert_uint_ne(cmd.status, NVEFS_SCSI_GOOD);
		ck_assert_uint_eq(cmd.in_bytes, 0);
		memset(&s, 0, sizeof(s));
		if (cmd.sense_len)
			ck_assert_int_eq(nvefs_sense_parse(cmd.sense, cmd.sense_len, &s), 0);
		ck_assert_msg(nvefs_sense_errno(cmd.status, &s) == nvefs_nvme_status_errno(status),
			      "status %#x (%s): %d by sense %x/%04x, %d natively", status,
			      nvefs_nvme_status_text(status), nvefs_sense_errno(cmd.status, &s),
			      s.key, s.asc, nvefs_nvme_status_errno(status));
		scsi = nvefs_sntl_status(status, &s);
		ck_assert_uint_eq(scsi, cmd.status);
	}
	for (uint32_t v = 1; v < 0x800; v++) { /* reserved and vendor specific ones too */
		struct nvefs_sense s;
		uint8_t scsi = nvefs_sntl_status((uint16_t)v, &s);

		ck_assert_msg(nvefs_sense_errno(scsi, &s) == nvefs_nvme_status_errno((uint16_t)v),
			      "status %#x", v);
	}
}
END_TEST

START_TEST(test_mistakes)
{
	struct nvefs_scsi_identity id;
	struct nvefs_scsi_mode m;
	struct nvefs_cdb write = {.opcode = 0x8a, .count = 1, .fua = true};

	lu.mistakes = NVEFS_SNTL_DROP_FUA;
	send_cdb(write, LBA_BYTES, 0);
	expect_rw(NVEFS_NVME_WRITE, 0, 1, 0);
	lu.mistakes = NVEFS_SNTL_FLUSH_NOT_SENT;
	send_cdb((struct nvefs_cdb){.opcode = 0x91}, 0, 0);
	expect_good(0);
	send_cdb(write, LBA_BYTES, 0);
	expect_rw(NVEFS_NVME_WRITE, 0, 1, NVEFS_NVME_CDW12_FUA);
	lu.mistakes = NVEFS_SNTL_ZEROES_DISCARD;
	send_cdb((struct nvefs_cdb){.opcode = 0x93, .lba = 5, .count = 6, .ndob = true}, 0, 0);
	ck_assert_uint_eq(cmd.part[0].sqe.opcode, NVEFS_NVME_DSM);
	ck_assert_uint_eq(le64_get(ranges[0].slba), 5);
	ck_assert_uint_eq(le32_get(ranges[0].nlbs), 6);
	lu.mistakes = NVEFS_SNTL_OTHER_IDENTITY;
	send_cdb((struct nvefs_cdb){.opcode = 0x12, .evpd = true, .page = 0x83, .count = 255}, 0,
		 255);
	nvefs_vpd_identification_parse(in, cmd.in_bytes, &id);
	ck_assert_mem_ne(id.nguid, ns.nguid, 16);
	lu.mistakes = NVEFS_SNTL_CACHE_HIDDEN;
	send_cdb((struct nvefs_cdb){.opcode = 0x5a, .page = 0x08, .count = 255}, 0, 255);
	nvefs_scsi_mode_parse(in, cmd.in_bytes, true, &m);
	ck_assert(!m.write_cache);
}
END_TEST

/*
 * Any bytes: each command ends in an answer or in NVMe commands that stay
 * within the namespace, the limits and the buffers. Buffers are allocated to
 * size, so that a sanitizer sees every step outside.
 */
static void check_invariants(unsigned int seed, size_t out_len, size_t in_len)
{
	uint32_t max = MAX_TRANSFER / LBA_BYTES;

	ck_assert_msg(cmd.nparts <= NVEFS_SNTL_MAX_PARTS, "seed %u", seed);
	ck_assert_msg(cmd.in_bytes <= in_len && cmd.out_bytes <= out_len, "seed %u", seed);
	ck_assert_msg(cmd.nparts == 0 || cmd.sense_len == 0, "seed %u", seed);
	ck_assert_msg(cmd.status != NVEFS_SCSI_CHECK_CONDITION || cmd.sense_len >= 8, "seed %u",
		      seed);
	for (uint32_t i = 0; i < cmd.nparts; i++) {
		const struct nvefs_sntl_part *p = &cmd.part[i];
		uint8_t op = p->sqe.opcode;

		if (p->data == NVEFS_SNTL_FROM_OUT)
			ck_assert_msg(p->offset + p->bytes <= out_len, "seed %u", seed);
		if (p->data == NVEFS_SNTL_TO_IN)
			ck_assert_msg(p->bytes <= in_len, "seed %u", seed);
		if (op == NVEFS_NVME_FLUSH || op == NVEFS_NVME_DSM)
			continue;
		ck_assert_msg(op == NVEFS_NVME_READ || op == NVEFS_NVME_WRITE ||
				  op == NVEFS_NVME_COMPARE || op == NVEFS_NVME_VERIFY ||
				  op == NVEFS_NVME_WRITE_ZEROES,
			      "seed %u: opcode %02x", seed, op);
		ck_assert_msg(nvefs_nvme_sqe_nlbs(&p->sqe) <= max, "seed %u", seed);
		ck_assert_msg(nvefs_nvme_sqe_slba(&p->sqe) + nvefs_nvme_sqe_nlbs(&p->sqe) <=
				  ns.nsze,
			      "seed %u", seed);
		ck_assert_msg(p->data == NVEFS_SNTL_NO_DATA ||
				  p->bytes * p->repeat == nvefs_nvme_sqe_nlbs(&p->sqe) * LBA_BYTES,
			      "seed %u", seed);
	}
}

static void fuzz_one(unsigned int seed)
{
	unsigned int r = seed;
	const struct nvefs_cdb_format *f;
	size_t nformats = 0, cdb_len = rand_r(&r) % 4 ? 16 : (size_t)rand_r(&r) % 20;
	size_t out_len = (size_t)rand_r(&r) % 3 * LBA_BYTES + (size_t)rand_r(&r) % 64;
	size_t in_len = (size_t)rand_r(&r) % 3 * LBA_BYTES + (size_t)rand_r(&r) % 64;
	uint8_t *cdb = malloc(cdb_len + 1), *o = calloc(1, out_len + 1), *n = malloc(in_len + 1);
	struct nvefs_sntl_request req = {.cdb = cdb,
					 .cdb_len = cdb_len,
					 .out_len = out_len,
					 .in_len = in_len,
					 .ranges = ranges,
					 .max_ranges = NVEFS_NVME_DSM_MAX_RANGES};

	while (nvefs_cdb_format_at(nformats))
		nformats++;
	f = nvefs_cdb_format_at((size_t)rand_r(&r) % nformats);
	for (size_t i = 0; i < cdb_len; i++)
		cdb[i] = (uint8_t)(rand_r(&r) >> 8) & (rand_r(&r) % 8 ? f->mask[i % 16] : 0xff) &
			 (rand_r(&r) % 6 ? 0 : 0x0f);
	if (cdb_len > 1 && rand_r(&r) % 16) {
		cdb[0] = f->opcode;
		if (f->service_action != NVEFS_SCSI_NO_SA)
			cdb[1] = f->service_action;
	}
	for (size_t i = 0; i < out_len && i < 200; i++)
		o[i] = rand_r(&r) % 3 ? 0 : (uint8_t)(rand_r(&r) % 40);
	if (rand_r(&r) % 8)
		req.out = o;
	if (rand_r(&r) % 8)
		req.in = n;
	memset(&cmd, 0xee, sizeof(cmd));
	nvefs_sntl_translate(&lu, &req, &cmd);
	check_invariants(seed, out_len, in_len);
	free(cdb);
	free(o);
	free(n);
}

START_TEST(test_fuzz)
{
	unsigned int counts[2] = {0, 0};

	ctrl.fused_compare_write = true;
	ctrl.acwu = 4;
	for (unsigned int seed = 1; seed < 200000; seed++) {
		fuzz_one(seed);
		counts[cmd.nparts > 0]++;
	}
	/* Both ends are reached, or the fuzzing tests nothing. */
	ck_assert_msg(counts[0] > 5000 && counts[1] > 5000, "answered %u, sent %u", counts[0],
		      counts[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scsi-sntl");
	TCase *t = tcase_create("sntl");

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_read_write);
	tcase_add_test(t, test_range);
	tcase_add_test(t, test_max_transfer);
	tcase_add_test(t, test_flush);
	tcase_add_test(t, test_verify);
	tcase_add_test(t, test_write_same);
	tcase_add_test(t, test_unmap);
	tcase_add_test(t, test_unmap_lengths);
	tcase_add_test(t, test_identity);
	tcase_add_test(t, test_capacity_provisioning);
	tcase_add_test(t, test_mode_sense);
	tcase_add_test(t, test_log_sense);
	tcase_add_test(t, test_small_queries);
	tcase_add_test(t, test_report_opcodes);
	tcase_add_test(t, test_compare_and_write);
	tcase_add_test(t, test_status);
	tcase_add_test(t, test_mistakes);
	tcase_add_test(t, test_fuzz);
	return run_suites(s, NULL);
}
