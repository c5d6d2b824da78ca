/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <nvefs/endian.h>
#include "../support/suites.h"
#include "scsi/cdb.h"
#include "scsi/pages.h"
#include "scsi/sense.h"

struct cdb_case {
	struct nvefs_cdb c;
	uint8_t bytes[16];
};

/* Written out by hand from SBC-3 and SPC-4. */
static const struct cdb_case cdb_cases[] = {
    {{.opcode = 0x08, .lba = 0x1abcde, .count = 256}, {0x08, 0x1a, 0xbc, 0xde, 0}},
    {{.opcode = 0x0a, .lba = 0x1fffff, .count = 1}, {0x0a, 0x1f, 0xff, 0xff, 1}},
    {{.opcode = 0x28, .lba = 0x01020304, .count = 0x0506, .dpo = true},
     {0x28, 0x10, 1, 2, 3, 4, 0, 5, 6}},
    {{.opcode = 0x2a, .lba = 0xffffffff, .count = 0xffff, .fua = true},
     {0x2a, 0x08, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff}},
    {{.opcode = 0xa8, .lba = 1, .count = 0x01000000}, {0xa8, 0, 0, 0, 0, 1, 1}},
    {{.opcode = 0xaa, .lba = 1, .count = 2, .fua = true}, {0xaa, 0x08, 0, 0, 0, 1, 0, 0, 0, 2}},
    {{.opcode = 0x88, .lba = 0x0102030405060708, .count = 0x0a0b0c0d},
     {0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xa, 0xb, 0xc, 0xd}},
    {{.opcode = 0x8a, .lba = 9, .count = 1, .fua = true, .dpo = true},
     {0x8a, 0x18, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1}},
    {{.opcode = 0x2f, .lba = 5, .count = 6, .bytchk = 1}, {0x2f, 0x02, 0, 0, 0, 5, 0, 0, 6}},
    {{.opcode = 0xaf, .lba = 5, .count = 6, .bytchk = 3}, {0xaf, 6, 0, 0, 0, 5, 0, 0, 0, 6}},
    {{.opcode = 0x8f, .lba = 5, .count = 6}, {0x8f, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6}},
    {{.opcode = 0x35, .lba = 5, .count = 6, .immed = true}, {0x35, 0x02, 0, 0, 0, 5, 0, 0, 6}},
    {{.opcode = 0x91, .count = 0}, {0x91}},
    {{.opcode = 0x41, .lba = 5, .count = 6, .unmap = true}, {0x41, 0x08, 0, 0, 0, 5, 0, 0, 6}},
    {{.opcode = 0x93, .lba = 5, .count = 6, .unmap = true, .ndob = true},
     {0x93, 0x09, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6}},
    {{.opcode = 0x42, .count = 24}, {0x42, 0, 0, 0, 0, 0, 0, 0, 24}},
    {{.opcode = 0x12, .evpd = true, .page = 0x83, .count = 0x0102}, {0x12, 1, 0x83, 1, 2}},
    {{.opcode = 0x25}, {0x25}},
    {{.opcode = 0x9e, .service_action = 0x10, .count = 32},
     {0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32}},
    {{.opcode = 0x1a, .dbd = true, .pc = 2, .page = 8, .subpage = 0xff, .count = 9},
     {0x1a, 0x08, 0x88, 0xff, 9}},
    {{.opcode = 0x5a, .llbaa = true, .page = 0x3f, .count = 0x0102},
     {0x5a, 0x10, 0x3f, 0, 0, 0, 0, 1, 2}},
    {{.opcode = 0xa0, .select_report = 2, .count = 16}, {0xa0, 0, 2, 0, 0, 0, 0, 0, 0, 16}},
    {{.opcode = 0x03, .desc = true, .count = 18}, {0x03, 1, 0, 0, 18}},
    {{.opcode = 0x00}, {0x00}},
    {{.opcode = 0x1b, .start = true, .immed = true}, {0x1b, 1, 0, 0, 1}},
    {{.opcode = 0x1b, .power_condition = 2, .power_modifier = 1, .no_flush = true},
     {0x1b, 0, 0, 1, 0x24}},
    {{.opcode = 0x15, .pf = true, .count = 0x42}, {0x15, 0x10, 0, 0, 0x42}},
    {{.opcode = 0x55, .pf = true, .count = 0x0102}, {0x55, 0x10, 0, 0, 0, 0, 0, 1, 2}},
    {{.opcode = 0x89, .lba = 7, .count = 1}, {0x89, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1}},
    {{.opcode = 0xa3,
      .service_action = 0x0c,
      .rctd = true,
      .report_option = 3,
      .req_opcode = 0x9e,
      .req_sa = 0x10,
      .count = 99},
     {0xa3, 0x0c, 0x83, 0x9e, 0, 0x10, 0, 0, 0, 99}},
};

/* Not by memcmp: what lies between the members is anybody's. */
static bool cdb_same(const struct nvefs_cdb *a, const struct nvefs_cdb *b)
{
	return a->opcode == b->opcode && a->service_action == b->service_action &&
	       a->len == b->len && a->lba == b->lba && a->count == b->count &&
	       a->fua == b->fua && a->dpo == b->dpo && a->unmap == b->unmap &&
	       a->ndob == b->ndob && a->bytchk == b->bytchk && a->immed == b->immed &&
	       a->start == b->start && a->no_flush == b->no_flush &&
	       a->power_condition == b->power_condition &&
	       a->power_modifier == b->power_modifier && a->pf == b->pf && a->evpd == b->evpd && a->page == b->page &&
	       a->subpage == b->subpage && a->pc == b->pc && a->dbd == b->dbd &&
	       a->llbaa == b->llbaa && a->desc == b->desc &&
	       a->select_report == b->select_report && a->rctd == b->rctd &&
	       a->report_option == b->report_option && a->req_opcode == b->req_opcode &&
	       a->req_sa == b->req_sa;
}

START_TEST(test_cdb)
{
	const struct cdb_case *k = &cdb_cases[_i];
	struct nvefs_cdb c = k->c, parsed;
	struct nvefs_sense fault;
	uint8_t bytes[16];
	int len = nvefs_cdb_build(&c, bytes);

	ck_assert_msg(len > 0, "opcode %02x does not build", k->c.opcode);
	for (int i = 0; i < 16; i++)
		ck_assert_msg(bytes[i] == k->bytes[i], "opcode %02x byte %d: %02x, not %02x",
			      k->c.opcode, i, bytes[i], k->bytes[i]);
	ck_assert_int_eq(nvefs_cdb_parse(bytes, (size_t)len, &parsed, &fault), 0);
	if (parsed.service_action == NVEFS_SCSI_NO_SA)
		parsed.service_action = 0;
	ck_assert_msg(cdb_same(&parsed, &c), "opcode %02x parses to something else",
		      k->c.opcode);
	ck_assert_int_eq(nvefs_cdb_parse(bytes, (size_t)len - 1, &parsed, &fault), -EINVAL);
}
END_TEST

/* Every bit that the mask leaves out is refused with its place, for every command. */
START_TEST(test_cdb_reserved)
{
	const struct nvefs_cdb_format *f;

	for (size_t i = 0; (f = nvefs_cdb_format_at(i)) != NULL; i++) {
		for (int bit = 8; bit < f->len * 8; bit++) {
			uint8_t bytes[16] = {f->opcode};
			struct nvefs_cdb c;
			struct nvefs_sense fault;
			bool allowed = f->mask[bit / 8] >> (bit % 8) & 1;
			bool sa = nvefs_cdb_has_service_action(f->opcode);
			int err;

			if (sa && bit / 8 == 1 && bit % 8 < 5)
				continue;
			bytes[1] = sa ? f->service_action : 0;
			bytes[bit / 8] |= (uint8_t)(1u << bit % 8);
			err = nvefs_cdb_parse(bytes, f->len, &c, &fault);
			ck_assert_msg(err == (allowed ? 0 : -EINVAL), "%s byte %d bit %d: %d",
				      f->name, bit / 8, bit % 8, err);
			if (allowed)
				continue;
			ck_assert_uint_eq(fault.key, NVEFS_SENSE_ILLEGAL_REQUEST);
			ck_assert_uint_eq(fault.asc, NVEFS_ASC_FIELD_IN_CDB);
			ck_assert(fault.has_field && fault.in_cdb && fault.has_bit);
			ck_assert_uint_eq(fault.byte, bit / 8);
			ck_assert_uint_eq(fault.bit, bit % 8);
		}
		/* Protection information and NACA are never let through. */
		ck_assert_uint_eq(f->mask[f->len - 1] & 0x04 & -(f->len > 6), 0);
	}
}
END_TEST

START_TEST(test_cdb_unknown)
{
	static const uint8_t refused[] = {
	    0x04 /* FORMAT UNIT */,	   0x07 /* REASSIGN BLOCKS */, 0x16,
	    0x17 /* RESERVE, RELEASE */,   0x3b /* WRITE BUFFER */,    0x5e,
	    0x5f /* PERSISTENT RESERVE */, 0x48 /* SANITIZE */,	       0xa2,
	    0xb5 /* SECURITY PROTOCOL */,  0x1d /* SEND DIAGNOSTIC */, 0xff};
	struct nvefs_cdb c;
	struct nvefs_sense fault;

	for (size_t i = 0; i < sizeof(refused); i++) {
		uint8_t bytes[16] = {refused[i]};

		ck_assert_int_eq(nvefs_cdb_parse(bytes, 16, &c, &fault), -EINVAL);
		ck_assert_uint_eq(fault.asc, NVEFS_ASC_INVALID_OPCODE);
		ck_assert_uint_eq(fault.byte, 0);
	}
	ck_assert_int_eq(nvefs_cdb_parse((const uint8_t[16]){0x9e, 0x12}, 16, &c, &fault), -EINVAL);
	ck_assert_uint_eq(fault.asc, NVEFS_ASC_FIELD_IN_CDB);
	ck_assert_uint_eq(fault.byte, 1);
	ck_assert_int_eq(nvefs_cdb_parse(NULL, 0, &c, &fault), -EINVAL);
}
END_TEST

START_TEST(test_cdb_limits)
{
	struct nvefs_cdb c = {.opcode = 0x08, .lba = 0x200000, .count = 1};
	uint8_t bytes[16];

	ck_assert_int_eq(nvefs_cdb_build(&c, bytes), -ERANGE);
	c.lba = 0;
	c.count = 257;
	ck_assert_int_eq(nvefs_cdb_build(&c, bytes), -ERANGE);
	c.count = 0;
	ck_assert_int_eq(nvefs_cdb_build(&c, bytes), -ERANGE);
	c = (struct nvefs_cdb){.opcode = 0x28, .lba = 0x100000000, .count = 1};
	ck_assert_int_eq(nvefs_cdb_build(&c, bytes), -ERANGE);
	c = (struct nvefs_cdb){.opcode = 0x28, .count = 0x10000};
	ck_assert_int_eq(nvefs_cdb_build(&c, bytes), -ERANGE);
	c = (struct nvefs_cdb){.opcode = 0x04};
	ck_assert_int_eq(nvefs_cdb_build(&c, bytes), -EOPNOTSUPP);
}
END_TEST

START_TEST(test_sense_bytes)
{
	struct nvefs_sense s = {.key = 5,
				.asc = 0x2400,
				.has_field = true,
				.in_cdb = true,
				.has_bit = true,
				.bit = 3,
				.byte = 1};
	static const uint8_t fixed[18] = {0x70, 0, 5, 0,    0, 0, 0,	10, 0,
					  0,	0, 0, 0x24, 0, 0, 0xcb, 0,  1};
	static const uint8_t desc[16] = {0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xcb, 0, 1, 0};
	uint8_t buf[NVEFS_SENSE_MAX];

	ck_assert_uint_eq(nvefs_sense_build(&s, false, buf), 18);
	ck_assert_mem_eq(buf, fixed, 18);
	ck_assert_uint_eq(nvefs_sense_build(&s, true, buf), 16);
	ck_assert_mem_eq(buf, desc, 16);
}
END_TEST

START_TEST(test_sense_round_trip)
{
	struct nvefs_sense s = {.key = 5,
				.asc = 0x2100,
				.has_info = true,
				.info = 0x1122334455667788,
				.has_field = true,
				.byte = 0x1234};
	struct nvefs_sense got;
	uint8_t buf[NVEFS_SENSE_MAX];
	uint8_t len = nvefs_sense_build(&s, true, buf);

	ck_assert_uint_le(len, NVEFS_SENSE_MAX);
	ck_assert_int_eq(nvefs_sense_parse(buf, len, &got), 0);
	ck_assert(got.has_info && got.info == s.info);
	ck_assert(got.has_field && !got.in_cdb && !got.has_bit && got.byte == 0x1234);
	ck_assert_uint_eq(got.asc, 0x2100);

	s.info = 77;
	len = nvefs_sense_build(&s, false, buf);
	ck_assert_int_eq(nvefs_sense_parse(buf, len, &got), 0);
	ck_assert(got.has_info && got.info == 77 && got.key == 5);
	s.info = 0x100000000; /* does not fit the fixed format: left out, not cut */
	len = nvefs_sense_build(&s, false, buf);
	ck_assert_int_eq(nvefs_sense_parse(buf, len, &got), 0);
	ck_assert(!got.has_info);

	/* What lies past the additional length is not sense data. */
	len = nvefs_sense_build(&s, true, buf);
	buf[7] = 11;
	ck_assert_int_eq(nvefs_sense_parse(buf, len, &got), 0);
	ck_assert(!got.has_info && !got.has_field && got.asc == 0x2100);
	buf[7] = 12;
	ck_assert_int_eq(nvefs_sense_parse(buf, len, &got), 0);
	ck_assert(got.has_info && !got.has_field);
	len = nvefs_sense_build(&s, false, buf);

	ck_assert_int_eq(nvefs_sense_parse(buf, 0, &got), -EUCLEAN);
	ck_assert_int_eq(nvefs_sense_parse((const uint8_t[]){0x7f, 0}, 2, &got), -EUCLEAN);
	ck_assert_int_eq(nvefs_sense_parse((const uint8_t[]){0x71, 0, 4}, 3, &got), 0);
	ck_assert(got.deferred && got.key == 4 && got.asc == 0);
	ck_assert_int_eq(nvefs_sense_parse((const uint8_t[]){0x72, 3, 0x11}, 3, &got), 0);
	ck_assert_uint_eq(got.key, 3);
}
END_TEST

START_TEST(test_sense_errno)
{
	static const struct {
		uint8_t status, key;
		uint16_t asc;
		int err;
		bool retry;
	} t[] = {
	    {0x00, 0, 0, 0, false},
	    {0x02, 1, 0x1700, 0, false},
	    {0x02, 2, 0x0400, -EBUSY, false},
	    {0x02, 2, 0x0401, -EBUSY, true},
	    {0x02, 2, 0x3a01, -ENOMEDIUM, false},
	    {0x02, 3, 0x1100, -EIO, false},
	    {0x02, 4, 0x4400, -EIO, false},
	    {0x02, 5, 0x2000, -EOPNOTSUPP, false},
	    {0x02, 5, 0x2100, -ERANGE, false},
	    {0x02, 5, 0x2400, -EINVAL, false},
	    {0x02, 6, 0x2900, -EIO, true},
	    {0x02, 7, 0x2700, -EROFS, false},
	    {0x02, 7, 0x2707, -ENOSPC, false},
	    {0x02, 0xb, 0, -ECANCELED, true},
	    {0x02, 0xe, 0x1d00, -EILSEQ, false},
	    {0x08, 0, 0, -EBUSY, true},
	    {0x18, 0, 0, -EBADE, false},
	    {0x28, 0, 0, -EBUSY, true},
	    {0x40, 0xb, 0, -ECANCELED, true},
	    {0x40, 0xb, 0x0b08, -EIO, true},
	    {0x77, 0, 0, -EIO, false},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct nvefs_sense s = {.key = t[i].key, .asc = t[i].asc};

		ck_assert_msg(nvefs_sense_errno(t[i].status, &s) == t[i].err, "case %zu: %d", i,
			      nvefs_sense_errno(t[i].status, &s));
		ck_assert_msg(nvefs_sense_retryable(t[i].status, &s) == t[i].retry, "case %zu", i);
	}
	ck_assert_int_eq(nvefs_sense_errno(0x02, NULL), -EIO);
	for (uint32_t a = 0; a < 0x10000; a++)
		ck_assert_ptr_nonnull(nvefs_asc_text((uint16_t)a));
	ck_assert_str_eq(nvefs_asc_text(0x2100), "logical block address out of range");
}
END_TEST

START_TEST(test_vpd_identity)
{
	struct nvefs_scsi_identity id = {.t10 = "NVMe    model serial"}, got;
	uint8_t buf[NVEFS_VPD_BYTES];
	uint32_t len;

	memset(id.nguid, 0x11, 16);
	memset(id.uuid, 0x33, 16);
	len = nvefs_vpd_identification_build(&id, buf);
	ck_assert_uint_eq(buf[1], 0x83);
	ck_assert_uint_eq(be16_load(buf + 2), len - 4);
	ck_assert_uint_eq(buf[4], 1);  /* binary */
	ck_assert_uint_eq(buf[5], 2);  /* EUI-64 based, of the logical unit */
	ck_assert_uint_eq(buf[7], 16); /* the 16-byte form: NGUID */
	ck_assert_int_eq(nvefs_vpd_identification_parse(buf, len, &got), 0);
	ck_assert_mem_eq(&got, &id, sizeof(id));
	for (uint32_t cut = 0; cut < len; cut++)
		nvefs_vpd_identification_parse(buf, cut, &got);
	ck_assert_int_eq(nvefs_vpd_identification_parse(buf, len - 1, &got), -EUCLEAN);
	ck_assert_int_eq(nvefs_vpd_identification_parse(buf, 3, &got), -EUCLEAN);
}
END_TEST

START_TEST(test_vpd_limits)
{
	/* Static: bytes between members are zero, as in what is read. */
	static struct nvefs_scsi_block_limits got, l = {.no_zero_write_same = true,
					    .max_compare_and_write = 9,
					    .granularity = 16,
					    .max_transfer = 256,
					    .optimal_transfer = 128,
					    .max_unmap = 0xffffffff,
					    .max_unmap_descs = 256,
					    .unmap_granularity = 8,
					    .unmap_alignment = 3,
					    .unmap_alignment_valid = true,
					    .max_write_same = 0x100000001};
	struct nvefs_scsi_provisioning p = {.unmap = true,
					    .write_same_16 = true,
					    .reads_zeros = true,
					    .type = 2},
				       pg;
	uint8_t buf[NVEFS_VPD_BYTES];
	uint32_t len = nvefs_vpd_limits_build(&l, buf);

	ck_assert_uint_eq(len, 64);
	ck_assert_uint_eq(be32_load(buf + 8), 256);
	ck_assert_uint_eq(be32_load(buf + 20), 0xffffffff);
	ck_assert_uint_eq(be32_load(buf + 32), 0x80000003);
	ck_assert_int_eq(nvefs_vpd_limits_parse(buf, len, &got), 0);
	ck_assert_mem_eq(&got, &l, sizeof(l));
	be16_store(buf + 2, 0x0c); /* an SBC-2 page ends before UNMAP's fields */
	ck_assert_int_eq(nvefs_vpd_limits_parse(buf, len, &got), 0);
	ck_assert_uint_eq(got.max_unmap, 0);
	ck_assert_uint_eq(got.max_transfer, 256);

	memset(&pg, 0, sizeof(pg));
	len = nvefs_vpd_provisioning_build(&p, buf);
	ck_assert_uint_eq(buf[5], 0xc4);
	ck_assert_int_eq(nvefs_vpd_provisioning_parse(buf, len, &pg), 0);
	ck_assert(pg.unmap && pg.write_same_16 && !pg.write_same_10 && pg.reads_zeros);
	ck_assert_uint_eq(pg.type, 2);
	len = nvefs_vpd_supported_build(buf);
	ck_assert(nvefs_vpd_supported_has(buf, len, 0xb2));
	ck_assert(!nvefs_vpd_supported_has(buf, len, 0x84));
}
END_TEST

START_TEST(test_inquiry)
{
	struct nvefs_scsi_inquiry in = {.multi_port = true,
					.vendor = "NVMe",
					.product = "0123456789abcdef",
					.revision = "1.2"},
				  got;
	uint8_t buf[NVEFS_INQUIRY_BYTES];
	char serial[16];
	uint8_t vpd[NVEFS_VPD_BYTES];
	uint32_t len = nvefs_scsi_inquiry_build(&in, buf);

	ck_assert_mem_eq(buf + 8, "NVMe    0123456789abcdef1.2 ", 28);
	ck_assert_uint_eq(buf[4], len - 5);
	memset(&got, 0xff, sizeof(got));
	ck_assert_int_eq(nvefs_scsi_inquiry_parse(buf, len, &got), 0);
	ck_assert_str_eq(got.vendor, "NVMe");
	ck_assert_uint_eq(buf[6], 0x10);
	ck_assert(got.multi_port);
	ck_assert_str_eq(got.product, "0123456789abcdef");
	ck_assert_str_eq(got.revision, "1.2");
	ck_assert_int_eq(nvefs_scsi_inquiry_parse(buf, 35, &got), -EUCLEAN);
	len = nvefs_vpd_serial_build("SN 01234567890123456789", vpd);
	ck_assert_int_eq(nvefs_vpd_serial_parse(vpd, len, serial, sizeof(serial)), 0);
	ck_assert_str_eq(serial, "SN 012345678901");
}
END_TEST

START_TEST(test_capacity)
{
	static struct nvefs_scsi_capacity got, c = {.nlbas = 0x100000001,
					.lba_bytes = 4096,
					.physical_exponent = 3,
					.lbpme = true,
					.lbprz = true};
	uint8_t buf[NVEFS_CAPACITY_16_BYTES];

	ck_assert_uint_eq(nvefs_scsi_capacity16_build(&c, buf), 32);
	ck_assert_uint_eq(be64_load(buf), 0x100000000);
	ck_assert_uint_eq(buf[13], 3);
	ck_assert_uint_eq(buf[14], 0xc0);
	ck_assert_int_eq(nvefs_scsi_capacity16_parse(buf, 32, &got), 0);
	ck_assert_mem_eq(&got, &c, sizeof(c));
	ck_assert_uint_eq(nvefs_scsi_capacity10_build(&c, buf), 8);
	ck_assert_uint_eq(be32_load(buf), 0xffffffff);
	ck_assert_int_eq(nvefs_scsi_capacity10_parse(buf, 8, &got), 0);
	ck_assert_uint_eq(got.nlbas, 0x100000000);
	memset(buf, 0xff, sizeof(buf));
	ck_assert_int_eq(nvefs_scsi_capacity16_parse(buf, 32, &got), -EUCLEAN);
}
END_TEST

START_TEST(test_mode)
{
	struct nvefs_scsi_mode m = {.write_protected = true,
				    .dpofua = true,
				    .write_cache = true,
				    .nlbas = 0x123456789,
				    .lba_bytes = 4096},
			       got;

	for (int i = 0; i < 8; i++) {
		struct nvefs_scsi_mode_ask ask = {
		    .ten = i & 1, .dbd = i & 2, .llbaa = i & 4, .page = NVEFS_MODE_ALL};
		uint8_t buf[NVEFS_MODE_BYTES];
		uint32_t len = nvefs_scsi_mode_build(&m, &ask, buf);

		ck_assert_int_eq(nvefs_scsi_mode_parse(buf, len, ask.ten, &got), 0);
		ck_assert(got.write_protected && got.dpofua && got.write_cache);
		ck_assert(got.has_caching && got.has_control && !got.descriptor_sense);
		ck_assert(got.has_power);
		if (ask.dbd)
			ck_assert_uint_eq(got.nlbas, 0);
		else
			ck_assert_uint_eq(got.nlbas, ask.ten && ask.llbaa ? m.nlbas : 0xffffffff);
		if (!ask.dbd)
			ck_assert_uint_eq(got.lba_bytes, 4096);
		ask.pc = NVEFS_MODE_CHANGEABLE;
		ask.page = NVEFS_MODE_CACHING;
		len = nvefs_scsi_mode_build(&m, &ask, buf);
		ck_assert_int_eq(nvefs_scsi_mode_parse(buf, len, ask.ten, &got), 0);
		ck_assert(got.has_caching && !got.write_cache && !got.has_control);
	}
}
END_TEST

/* Parsers take whatever a device sends; a sanitizer build makes this bite. */
START_TEST(test_parsers_any_bytes)
{
	unsigned int seed = 4711;

	for (int round = 0; round < 20000; round++) {
		size_t len = (size_t)(rand_r(&seed) % 300);
		uint8_t *buf = malloc(len + 1);
		struct nvefs_sense s;
		struct nvefs_scsi_identity id;
		struct nvefs_scsi_block_limits l;
		struct nvefs_scsi_mode m;
		struct nvefs_scsi_capacity c;
		char serial[32];

		for (size_t i = 0; i < len; i++)
			buf[i] = (uint8_t)(rand_r(&seed) >> 8);
		if (len > 4 && round % 2) {
			buf[0] = (uint8_t)(0x70 + round % 4);
			buf[1] = round % 4 == 1 ? 0x83 : 0xb0;
			buf[2] = 0;
		}
		nvefs_sense_parse(buf, len, &s);
		nvefs_vpd_identification_parse(buf, len, &id);
		nvefs_vpd_limits_parse(buf, len, &l);
		nvefs_vpd_serial_parse(buf, len, serial, sizeof(serial));
		nvefs_scsi_mode_parse(buf, len, round % 3 == 0, &m);
		nvefs_scsi_capacity16_parse(buf, len, &c);
		free(buf);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scsi");
	TCase *t = tcase_create("scsi");

	suite_add_tcase(s, t);
	tcase_add_loop_test(t, test_cdb, 0, sizeof(cdb_cases) / sizeof(cdb_cases[0]));
	tcase_add_test(t, test_cdb_reserved);
	tcase_add_test(t, test_cdb_unknown);
	tcase_add_test(t, test_cdb_limits);
	tcase_add_test(t, test_sense_bytes);
	tcase_add_test(t, test_sense_round_trip);
	tcase_add_test(t, test_sense_errno);
	tcase_add_test(t, test_vpd_identity);
	tcase_add_test(t, test_vpd_limits);
	tcase_add_test(t, test_inquiry);
	tcase_add_test(t, test_capacity);
	tcase_add_test(t, test_mode);
	tcase_add_test(t, test_parsers_any_bytes);
	return run_suites(s, NULL);
}
