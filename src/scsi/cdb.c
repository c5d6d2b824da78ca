/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>
#include <nvefs/endian.h>
#include "scsi/cdb.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define FF2 0xff, 0xff
#define FF4 FF2, FF2
#define FF8 FF4, FF4
#define NO_SA NVEFS_SCSI_NO_SA
#define READ_CAP NVEFS_SCSI_SAI_READ_CAPACITY_16
#define REPORT_OPS NVEFS_SCSI_MI_REPORT_OPCODES

/*
 * Absent from the masks, and thus refused when set: protection information
 * (RDPROTECT and kin), RARC and FUA_NV, ANCHOR, PBDATA and LBDATA, group
 * numbers, PMI, LOEJ, saving (SP), and the whole control byte. DPO is a
 * hint that is accepted without effect. SYNC_NV (bit 2 of SYNCHRONIZE CACHE)
 * asks for less than is done, so it is accepted.
 *
 * Searched from the start: what the file system sends comes first.
 */
static const struct nvefs_cdb_format table[] = {
    {"READ(16)", NVEFS_SCSI_READ_16, NO_SA, 16, 2, 8, 10, 4, {0x88, 0x18, FF8, FF4}},
    {"WRITE(16)", NVEFS_SCSI_WRITE_16, NO_SA, 16, 2, 8, 10, 4, {0x8a, 0x18, FF8, FF4}},
    {"SYNCHRONIZE CACHE(16)",
     NVEFS_SCSI_SYNCHRONIZE_CACHE_16,
     NO_SA,
     16,
     2,
     8,
     10,
     4,
     {0x91, 0x06, FF8, FF4}},
    {"UNMAP", NVEFS_SCSI_UNMAP, NO_SA, 10, 0, 0, 7, 2, {0x42, 0, 0, 0, 0, 0, 0, FF2}},
    {"WRITE SAME(16)", NVEFS_SCSI_WRITE_SAME_16, NO_SA, 16, 2, 8, 10, 4, {0x93, 0x09, FF8, FF4}},
    {"TEST UNIT READY", NVEFS_SCSI_TEST_UNIT_READY, NO_SA, 6, 0, 0, 0, 0, {0x00}},
    {"REQUEST SENSE", NVEFS_SCSI_REQUEST_SENSE, NO_SA, 6, 0, 0, 4, 1, {0x03, 0x01, 0, 0, 0xff}},
    {"READ(6)", NVEFS_SCSI_READ_6, NO_SA, 6, 1, 3, 4, 1, {0x08, 0x1f, FF2, 0xff}},
    {"WRITE(6)", NVEFS_SCSI_WRITE_6, NO_SA, 6, 1, 3, 4, 1, {0x0a, 0x1f, FF2, 0xff}},
    {"INQUIRY", NVEFS_SCSI_INQUIRY, NO_SA, 6, 0, 0, 3, 2, {0x12, 0x01, 0xff, FF2}},
    {"MODE SENSE(6)", NVEFS_SCSI_MODE_SENSE_6, NO_SA, 6, 0, 0, 4, 1, {0x1a, 0x08, FF2, 0xff}},
    {"MODE SELECT(6)", NVEFS_SCSI_MODE_SELECT_6, NO_SA, 6, 0, 0, 4, 1, {0x15, 0x10, 0, 0, 0xff}},
    {"START STOP UNIT", NVEFS_SCSI_START_STOP_UNIT, NO_SA, 6, 0, 0, 0, 0, {0x1b, 0x01, 0, 0x0f, 0xf5}},
    {"READ CAPACITY(10)", NVEFS_SCSI_READ_CAPACITY_10, NO_SA, 10, 0, 0, 0, 0, {0x25}},
    {"READ(10)", NVEFS_SCSI_READ_10, NO_SA, 10, 2, 4, 7, 2, {0x28, 0x18, FF4, 0, FF2}},
    {"WRITE(10)", NVEFS_SCSI_WRITE_10, NO_SA, 10, 2, 4, 7, 2, {0x2a, 0x18, FF4, 0, FF2}},
    {"VERIFY(10)", NVEFS_SCSI_VERIFY_10, NO_SA, 10, 2, 4, 7, 2, {0x2f, 0x16, FF4, 0, FF2}},
    {"SYNCHRONIZE CACHE(10)",
     NVEFS_SCSI_SYNCHRONIZE_CACHE_10,
     NO_SA,
     10,
     2,
     4,
     7,
     2,
     {0x35, 0x06, FF4, 0, FF2}},
    {"WRITE SAME(10)", NVEFS_SCSI_WRITE_SAME_10, NO_SA, 10, 2, 4, 7, 2, {0x41, 0x08, FF4, 0, FF2}},
    {"LOG SENSE", NVEFS_SCSI_LOG_SENSE, NO_SA, 10, 0, 0, 7, 2, {0x4d, 0, FF2, 0, 0, 0, FF2}},
    {"MODE SELECT(10)",
     NVEFS_SCSI_MODE_SELECT_10,
     NO_SA,
     10,
     0,
     0,
     7,
     2,
     {0x55, 0x10, 0, 0, 0, 0, 0, FF2}},
    {"MODE SENSE(10)",
     NVEFS_SCSI_MODE_SENSE_10,
     NO_SA,
     10,
     0,
     0,
     7,
     2,
     {0x5a, 0x18, FF2, 0, 0, 0, FF2}},
    {"COMPARE AND WRITE",
     NVEFS_SCSI_COMPARE_AND_WRITE,
     NO_SA,
     16,
     2,
     8,
     13,
     1,
     {0x89, 0x18, FF8, 0, 0, 0, 0xff}},
    {"VERIFY(16)", NVEFS_SCSI_VERIFY_16, NO_SA, 16, 2, 8, 10, 4, {0x8f, 0x16, FF8, FF4}},
    {"READ CAPACITY(16)",
     NVEFS_SCSI_SERVICE_ACTION_IN_16,
     READ_CAP,
     16,
     0,
     0,
     10,
     4,
     {0x9e, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, FF4}},
    {"REPORT LUNS", NVEFS_SCSI_REPORT_LUNS, NO_SA, 12, 0, 0, 6, 4, {0xa0, 0, 0xff, 0, 0, 0, FF4}},
    {"REPORT SUPPORTED OPERATION CODES",
     NVEFS_SCSI_MAINTENANCE_IN,
     REPORT_OPS,
     12,
     0,
     0,
     6,
     4,
     {0xa3, 0x1f, 0x87, 0xff, FF2, FF4}},
    {"READ(12)", NVEFS_SCSI_READ_12, NO_SA, 12, 2, 4, 6, 4, {0xa8, 0x18, FF4, FF4}},
    {"WRITE(12)", NVEFS_SCSI_WRITE_12, NO_SA, 12, 2, 4, 6, 4, {0xaa, 0x18, FF4, FF4}},
    {"VERIFY(12)", NVEFS_SCSI_VERIFY_12, NO_SA, 12, 2, 4, 6, 4, {0xaf, 0x16, FF4, FF4}},
};

const struct nvefs_cdb_format *nvefs_cdb_format_at(size_t index)
{
	return index < ARRAY_LEN(table) ? &table[index] : NULL;
}

const struct nvefs_cdb_format *nvefs_cdb_format_find(uint8_t opcode, uint8_t service_action)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].opcode == opcode && (table[i].service_action == NVEFS_SCSI_NO_SA ||
						  table[i].service_action == service_action))
			return &table[i];
	return NULL;
}

bool nvefs_cdb_has_service_action(uint8_t opcode)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].opcode == opcode)
			return table[i].service_action != NVEFS_SCSI_NO_SA;
	return false;
}

static uint64_t field_get(const uint8_t *p, uint8_t width)
{
	uint64_t v = 0;

	for (uint8_t i = 0; i < width; i++)
		v = v << 8 | p[i];
	return v;
}

static void field_put(uint8_t *p, uint8_t width, uint64_t v)
{
	while (width-- > 0) {
		p[width] |= (uint8_t)v;
		v >>= 8;
	}
}

/* Largest value of the field, by its mask: the 6-byte commands have an LBA of 21 bits. */
static uint64_t field_max(const struct nvefs_cdb_format *f, uint8_t at, uint8_t width)
{
	return field_get(&f->mask[at], width);
}

static int fault_set(struct nvefs_sense *fault, uint16_t asc, uint16_t byte, uint8_t bits)
{
	nvefs_sense_set_field(fault, asc, byte, bits);
	return -EINVAL;
}

/* The common case of a command that is right, in two comparisons. */
static bool mask_holds_16(const uint8_t *mask, const uint8_t *bytes)
{
	uint64_t m[2], b[2];

	memcpy(m, mask, sizeof(m));
	memcpy(b, bytes, sizeof(b));
	return ((b[0] & ~m[0]) | (b[1] & ~m[1])) == 0;
}

static int check_mask(const struct nvefs_cdb_format *f, const uint8_t *bytes,
		      struct nvefs_sense *fault)
{
	if (f->len == 16 && mask_holds_16(f->mask, bytes))
		return 0;
	for (uint8_t i = 1; i < f->len; i++) {
		uint8_t wrong = bytes[i] & (uint8_t)~f->mask[i];

		if (wrong)
			return fault_set(fault, NVEFS_ASC_FIELD_IN_CDB, i, wrong);
	}
	return 0;
}

static void parse_flags(const uint8_t *b, struct nvefs_cdb *c)
{
	switch (c->opcode) {
	case NVEFS_SCSI_READ_10:
	case NVEFS_SCSI_READ_12:
	case NVEFS_SCSI_READ_16:
	case NVEFS_SCSI_WRITE_10:
	case NVEFS_SCSI_WRITE_12:
	case NVEFS_SCSI_WRITE_16:
	case NVEFS_SCSI_COMPARE_AND_WRITE:
		c->fua = b[1] & 0x08;
		c->dpo = b[1] & 0x10;
		break;
	case NVEFS_SCSI_VERIFY_10:
	case NVEFS_SCSI_VERIFY_12:
	case NVEFS_SCSI_VERIFY_16:
		c->bytchk = b[1] >> 1 & 3;
		c->dpo = b[1] & 0x10;
		break;
	case NVEFS_SCSI_SYNCHRONIZE_CACHE_10:
	case NVEFS_SCSI_SYNCHRONIZE_CACHE_16:
		c->immed = b[1] & 0x02;
		break;
	case NVEFS_SCSI_WRITE_SAME_10:
	case NVEFS_SCSI_WRITE_SAME_16:
		c->unmap = b[1] & 0x08;
		c->ndob = b[1] & 0x01;
		break;
	case NVEFS_SCSI_START_STOP_UNIT:
		c->immed = b[1] & 0x01;
		c->power_modifier = b[3] & 0x0f;
		c->power_condition = b[4] >> 4;
		c->no_flush = b[4] & 0x04;
		c->start = b[4] & 0x01;
		break;
	default:
		break;
	}
}

static void parse_pages(const uint8_t *b, struct nvefs_cdb *c)
{
	switch (c->opcode) {
	case NVEFS_SCSI_INQUIRY:
		c->evpd = b[1] & 0x01;
		c->page = b[2];
		break;
	case NVEFS_SCSI_MODE_SENSE_6:
	case NVEFS_SCSI_MODE_SENSE_10:
		c->dbd = b[1] & 0x08;
		c->llbaa = b[1] & 0x10;
		c->pc = b[2] >> 6;
		c->page = b[2] & 0x3f;
		c->subpage = b[3];
		break;
	case NVEFS_SCSI_MODE_SELECT_6:
	case NVEFS_SCSI_MODE_SELECT_10:
		c->pf = b[1] & 0x10;
		break;
	case NVEFS_SCSI_LOG_SENSE:
		c->pc = b[2] >> 6;
		c->page = b[2] & 0x3f;
		c->subpage = b[3];
		break;
	case NVEFS_SCSI_REQUEST_SENSE:
		c->desc = b[1] & 0x01;
		break;
	case NVEFS_SCSI_REPORT_LUNS:
		c->select_report = b[2];
		break;
	case NVEFS_SCSI_MAINTENANCE_IN:
		c->rctd = b[2] & 0x80;
		c->report_option = b[2] & 0x07;
		c->req_opcode = b[3];
		c->req_sa = be16_load(b + 4);
		break;
	default:
		break;
	}
}

int nvefs_cdb_parse(const uint8_t *bytes, size_t len, struct nvefs_cdb *ret,
		    struct nvefs_sense *fault)
{
	struct nvefs_cdb c = {0};
	const struct nvefs_cdb_format *f;
	int err;

	if (len == 0)
		return fault_set(fault, NVEFS_ASC_INVALID_OPCODE, 0, 0);
	c.opcode = bytes[0];
	f = nvefs_cdb_format_find(c.opcode, len > 1 ? bytes[1] & 0x1f : 0);
	if (!f && nvefs_cdb_has_service_action(c.opcode))
		return fault_set(fault, NVEFS_ASC_FIELD_IN_CDB, 1, 0x1f);
	if (!f)
		return fault_set(fault, NVEFS_ASC_INVALID_OPCODE, 0, 0);
	if (len < f->len)
		return fault_set(fault, NVEFS_ASC_FIELD_IN_CDB, (uint16_t)len, 0);
	err = check_mask(f, bytes, fault);
	if (err)
		return err;
	c.service_action = f->service_action;
	c.len = f->len;
	c.lba = field_get(bytes + f->lba_at, f->lba_width);
	c.count = (uint32_t)field_get(bytes + f->count_at, f->count_width);
	if ((c.opcode == NVEFS_SCSI_READ_6 || c.opcode == NVEFS_SCSI_WRITE_6) && c.count == 0)
		c.count = 256;
	parse_flags(bytes, &c);
	parse_pages(bytes, &c);
	*ret = c;
	return 0;
}

static void build_flags(const struct nvefs_cdb *c, const struct nvefs_cdb_format *f, uint8_t *b)
{
	uint8_t b1 = 0;

	switch (c->opcode) {
	case NVEFS_SCSI_SYNCHRONIZE_CACHE_10:
	case NVEFS_SCSI_SYNCHRONIZE_CACHE_16:
		b1 = c->immed ? 0x02 : 0;
		break;
	case NVEFS_SCSI_WRITE_SAME_10:
	case NVEFS_SCSI_WRITE_SAME_16:
		b1 = (uint8_t)((c->unmap ? 0x08 : 0) | (c->ndob ? 0x01 : 0));
		break;
	case NVEFS_SCSI_START_STOP_UNIT:
		b1 = c->immed ? 0x01 : 0;
		b[3] = c->power_modifier & 0x0f;
		b[4] = (uint8_t)(c->power_condition << 4 | (c->no_flush ? 0x04 : 0) | (c->start ? 0x01 : 0));
		break;
	case NVEFS_SCSI_MODE_SELECT_6:
	case NVEFS_SCSI_MODE_SELECT_10:
		b1 = c->pf ? 0x10 : 0;
		break;
	case NVEFS_SCSI_INQUIRY:
		b1 = c->evpd ? 0x01 : 0;
		b[2] = c->page;
		break;
	case NVEFS_SCSI_MODE_SENSE_6:
	case NVEFS_SCSI_MODE_SENSE_10:
		b1 = (uint8_t)((c->dbd ? 0x08 : 0) | (c->llbaa ? 0x10 : 0));
		b[2] = (uint8_t)(c->pc << 6 | (c->page & 0x3f));
		b[3] = c->subpage;
		break;
	case NVEFS_SCSI_LOG_SENSE:
		b[2] = (uint8_t)(c->pc << 6 | (c->page & 0x3f));
		b[3] = c->subpage;
		break;
	case NVEFS_SCSI_REQUEST_SENSE:
		b1 = c->desc ? 0x01 : 0;
		break;
	case NVEFS_SCSI_REPORT_LUNS:
		b[2] = c->select_report;
		break;
	case NVEFS_SCSI_SERVICE_ACTION_IN_16:
		b1 = f->service_action;
		break;
	case NVEFS_SCSI_MAINTENANCE_IN:
		b1 = f->service_action;
		b[2] = (uint8_t)((c->rctd ? 0x80 : 0) | (c->report_option & 7));
		b[3] = c->req_opcode;
		be16_store(b + 4, c->req_sa);
		break;
	default: /* reads, writes, verifies */
		b1 = (uint8_t)((c->fua ? 0x08 : 0) | (c->dpo ? 0x10 : 0) | (c->bytchk & 3) << 1);
		break;
	}
	/* OR: in the 6-byte commands this byte holds LBA bits, and the mask lets no flag in. */
	b[1] |= f->lba_at == 1 ? 0 : b1 & f->mask[1];
}

int nvefs_cdb_build(struct nvefs_cdb *c, uint8_t bytes[NVEFS_CDB_MAX])
{
	const struct nvefs_cdb_format *f = nvefs_cdb_format_find(c->opcode, c->service_action);
	bool six = c->opcode == NVEFS_SCSI_READ_6 || c->opcode == NVEFS_SCSI_WRITE_6;
	uint32_t count = six && c->count == 256 ? 0 : c->count;

	if (!f)
		return -EOPNOTSUPP;
	if (f->lba_width && c->lba > field_max(f, f->lba_at, f->lba_width))
		return -ERANGE;
	if ((f->count_width && count > field_max(f, f->count_at, f->count_width)) ||
	    (six && c->count == 0))
		return -ERANGE;
	memset(bytes, 0, NVEFS_CDB_MAX);
	bytes[0] = c->opcode;
	build_flags(c, f, bytes);
	field_put(bytes + f->lba_at, f->lba_width, c->lba);
	field_put(bytes + f->count_at, f->count_width, count);
	c->len = f->len;
	return f->len;
}

uint8_t nvefs_cdb_count_byte(const struct nvefs_cdb *c)
{
	const struct nvefs_cdb_format *f = nvefs_cdb_format_find(c->opcode, c->service_action);

	return f ? f->count_at : 0;
}

uint8_t nvefs_cdb_lba_byte(const struct nvefs_cdb *c)
{
	const struct nvefs_cdb_format *f = nvefs_cdb_format_find(c->opcode, c->service_action);

	return f ? f->lba_at : 0;
}
