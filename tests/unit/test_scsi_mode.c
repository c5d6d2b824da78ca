/* SPDX-License-Identifier: MIT */
/* MODE SELECT, START STOP UNIT and COMPARE AND WRITE: as tables, and through the route to a controller. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <nvefs/endian.h>
#include "../support/suites.h"
#include "base/buf.h"
#include "device/scsi_route.h"
#include "nvme/admin.h"
#include "nvme/status.h"
#include "scsi/sntl.h"

#define LBA 512u
#define NLBAS 16387u /* no bit of it is all of it */

static struct nvefs_nvme_ctrl_info ctrl;
static struct nvefs_nvme_ns_info ns;
static struct nvefs_sntl_lu lu;
static struct nvefs_sntl_cmd cmd;
static uint8_t list[256];
static size_t list_len;

static void setup(void)
{
	ctrl = (struct nvefs_nvme_ctrl_info){.vwc = true, .compare = true};
	ns = (struct nvefs_nvme_ns_info){.nsze = NLBAS, .ncap = NLBAS, .lba_bytes = LBA};
	lu = (struct nvefs_sntl_lu){.ctrl = &ctrl,
				    .ns = &ns,
				    .nsid = 1,
				    .max_transfer_bytes = 65536,
				    .write_cache = true,
				    .cache_default = true,
				    .cache_changeable = true,
				    .descriptor_sense = true};
}

static void send_cdb(struct nvefs_cdb c, uint8_t *out, size_t out_len, uint8_t *in, size_t in_len)
{
	uint8_t bytes[NVEFS_CDB_MAX];
	struct nvefs_sntl_request req = {
	    .cdb = bytes, .out = out, .out_len = out_len, .in = in, .in_len = in_len};

	req.cdb_len = (size_t)nvefs_cdb_build(&c, bytes);
	memset(&cmd, 0xee, sizeof(cmd));
	nvefs_sntl_translate(&lu, &req, &cmd);
}

static struct nvefs_sense sense(void)
{
	struct nvefs_sense s = {0};

	ck_assert_uint_eq(cmd.nparts, 0);
	ck_assert_uint_eq(cmd.status, NVEFS_SCSI_CHECK_CONDITION);
	ck_assert_int_eq(nvefs_sense_parse(cmd.sense, cmd.sense_len, &s), 0);
	return s;
}

/* `bit` -1: the byte as a whole. */
static void expect_wrong(uint16_t asc, uint16_t byte, int bit, const char *what)
{
	struct nvefs_sense s = sense();

	ck_assert_msg(s.key == NVEFS_SENSE_ILLEGAL_REQUEST && s.asc == asc, "%s: %x/%04x, not %04x", what, s.key, s.asc, asc);
	ck_assert_msg(cmd.admin_when == NVEFS_SNTL_NO_ADMIN && !cmd.out_bytes, "%s: something is sent", what);
	if (asc == NVEFS_ASC_PARAMETER_LENGTH)
		return;
	ck_assert_msg(s.has_field && s.in_cdb == (asc == NVEFS_ASC_FIELD_IN_CDB) && s.byte == byte, "%s: byte %u, not %u", what,
		      s.byte, byte);
	ck_assert_msg(s.has_bit == (bit >= 0) && (bit < 0 || s.bit == bit), "%s: bit %d, not %d", what, s.has_bit ? s.bit : -1, bit);
}

/* The list that MODE SENSE gives for `page`, made fit to be sent back. */
static void fetch(bool ten, bool llbaa, bool dbd, uint8_t page)
{
	struct nvefs_cdb c = {.opcode = ten ? NVEFS_SCSI_MODE_SENSE_10 : NVEFS_SCSI_MODE_SENSE_6,
			      .llbaa = llbaa,
			      .dbd = dbd,
			      .page = page,
			      .count = 255};

	send_cdb(c, NULL, 0, list, sizeof(list));
	ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
	list_len = cmd.in_bytes;
	list[0] = 0;
	if (ten)
		list[1] = list[3] = 0;
	else
		list[2] = 0;
}

static void select_list(bool ten)
{
	struct nvefs_cdb c = {.opcode = ten ? NVEFS_SCSI_MODE_SELECT_10 : NVEFS_SCSI_MODE_SELECT_6,
			      .pf = true,
			      .count = (uint32_t)list_len};

	send_cdb(c, list, list_len, NULL, 0);
}

/* What was sensed may be sent back, by both forms and with each block descriptor, and changes nothing. */
START_TEST(test_select_same)
{
	static const uint8_t pages[] = {NVEFS_MODE_CACHING, NVEFS_MODE_CONTROL, NVEFS_MODE_POWER, NVEFS_MODE_ALL};

	for (int i = 0; i < 32; i++) {
		bool ten = i & 1, llbaa = i & 2;

		if (llbaa && !ten)
			continue;
		fetch(ten, llbaa, i & 4, pages[i / 8]);
		select_list(ten);
		ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
		ck_assert_uint_eq(cmd.nparts, 0);
		ck_assert_uint_eq(cmd.admin_when, NVEFS_SNTL_NO_ADMIN);
		ck_assert_uint_eq(cmd.out_bytes, list_len);
	}
}
END_TEST

static void expect_feature(uint8_t when, uint8_t fid, uint32_t value)
{
	ck_assert_uint_eq(cmd.admin_when, when);
	ck_assert_uint_eq(cmd.admin.opcode, NVEFS_NVME_ADMIN_SET_FEATURES);
	ck_assert_uint_eq(le32_get(cmd.admin.cdw10), fid); /* and not saved */
	ck_assert_uint_eq(le32_get(cmd.admin.cdw11), value);
}

static void expect_flush(uint32_t n)
{
	ck_assert_uint_eq(cmd.nparts, n);
	if (n)
		ck_assert_uint_eq(cmd.part[0].sqe.opcode, NVEFS_NVME_FLUSH);
}

START_TEST(test_select_cache)
{
	for (int ten = 0; ten < 2; ten++) {
		size_t wce = ten ? 10 : 6;

		lu.write_cache = true;
		fetch(ten, false, true, NVEFS_MODE_CACHING);
		ck_assert_uint_eq(list[wce], 0x04);
		list[wce] = 0;
		select_list(ten);
		expect_feature(NVEFS_SNTL_ADMIN_FIRST, NVEFS_NVME_FEATURE_WRITE_CACHE, 0);
		expect_flush(1); /* what was written with the cache on */
		nvefs_sntl_admin_done(&cmd, 0);
		ck_assert(nvefs_sntl_complete(&cmd, 0));
		ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
		ck_assert_uint_eq(cmd.out_bytes, list_len);
		lu.write_cache = false;
		list[wce] = 0x04;
		select_list(ten);
		expect_feature(NVEFS_SNTL_ADMIN_FIRST, NVEFS_NVME_FEATURE_WRITE_CACHE, 1);
		expect_flush(0);
		nvefs_sntl_admin_done(&cmd, 0);
		ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
	}
}
END_TEST

/* MODE SENSE says beforehand what MODE SELECT will take. */
START_TEST(test_select_unchangeable)
{
	static const struct {
		bool vwc, on, changeable;
		uint32_t mistakes;
	} units[] = {{false, false, false, 0}, {true, true, false, 0}, {true, false, false, 0}, {true, true, true, NVEFS_SNTL_CACHE_HIDDEN}};
	struct nvefs_cdb ask = {.opcode = NVEFS_SCSI_MODE_SENSE_6, .dbd = true, .pc = NVEFS_MODE_CHANGEABLE, .page = NVEFS_MODE_CACHING,
				.count = 255};
	uint8_t mask[64];

	for (size_t i = 0; i < 4; i++) {
		ctrl.vwc = units[i].vwc;
		lu.write_cache = units[i].on;
		lu.cache_changeable = units[i].changeable;
		lu.mistakes = units[i].mistakes;
		send_cdb(ask, NULL, 0, mask, sizeof(mask));
		ck_assert_uint_eq(mask[6], 0);
		fetch(false, false, true, NVEFS_MODE_CACHING);
		list[6] ^= 0x04;
		select_list(false);
		expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 6, 2, "WCE");
	}
	lu.mistakes = 0;
	lu.cache_changeable = true;
	send_cdb(ask, NULL, 0, mask, sizeof(mask));
	ck_assert_uint_eq(mask[6], 0x04);
	lu.cache_default = false;
	ask.pc = NVEFS_MODE_DEFAULT;
	send_cdb(ask, NULL, 0, mask, sizeof(mask));
	ck_assert_uint_eq(mask[6], 0);
	/* What the unit cannot know: the controller refuses. The same sense, and no Flush. */
	lu.write_cache = true;
	fetch(false, false, true, NVEFS_MODE_CACHING);
	list[6] = 0;
	select_list(false);
	nvefs_sntl_admin_done(&cmd, NVEFS_NVME_SC_FEATURE_NOT_CHANGEABLE | NVEFS_NVME_DNR);
	cmd.admin_when = NVEFS_SNTL_NO_ADMIN;
	expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 6, 2, "not changeable after all");
	select_list(false);
	nvefs_sntl_admin_done(&cmd, NVEFS_NVME_SC_INTERNAL);
	ck_assert_uint_eq(sense().key, NVEFS_SENSE_HARDWARE_ERROR);
}
END_TEST

/* One byte of a sound list is wrong: the pointer finds it, in every byte and bit of every page. */
START_TEST(test_select_every_bit)
{
	for (int ten = 0; ten < 2; ten++) {
		size_t header = ten ? 8 : 4, specific = ten ? 3 : 2;

		fetch(ten, false, false, NVEFS_MODE_ALL);
		for (size_t bit = 0; bit < list_len * 8; bit++) {
			size_t byte = bit / 8, in_page = byte - header - 8;
			uint8_t flip = (uint8_t)(1u << bit % 8);
			struct nvefs_sense s;

			list[byte] ^= flip;
			select_list(ten);
			list[byte] ^= flip;
			if (byte == specific && bit % 8 == 7) { /* WP is ignored */
				ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
				continue;
			}
			if (byte >= header + 8 && in_page == 2 && bit % 8 == 2) { /* WCE */
				ck_assert_uint_eq(cmd.admin_when, NVEFS_SNTL_ADMIN_FIRST);
				continue;
			}
			if (ten && byte == 4 && bit % 8 == 0) { /* LONGLBA: then 8 bytes are no descriptor */
				expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 6, -1, "LONGLBA");
				continue;
			}
			s = sense();
			/* Another descriptor length, or none, whose bytes are a page then; or another page of ours. */
			if (byte == header - 1 || s.byte == byte + 1)
				continue;
			ck_assert_msg(s.asc == NVEFS_ASC_FIELD_IN_PARAMETERS && s.has_field && !s.in_cdb,
				      "byte %zu bit %zu: asc %04x", byte, bit % 8, s.asc);
			/* A field of several bytes or bits is pointed to where it begins. */
			ck_assert_msg(s.byte <= byte && byte - s.byte < 4, "byte %zu bit %zu: pointer %u", byte, bit % 8, s.byte);
			ck_assert_msg(!s.has_bit || (s.byte == byte && s.bit >= bit % 8), "byte %zu bit %zu: bit %u of %u", byte,
				      bit % 8, s.bit, s.byte);
		}
	}
}
END_TEST

/* Cut anywhere but behind header, descriptor or a page it is a length error. */
START_TEST(test_select_lengths)
{
	for (int ten = 0; ten < 2; ten++) {
		size_t header = ten ? 8 : 4, whole;

		fetch(ten, false, false, NVEFS_MODE_ALL);
		whole = list_len;
		ck_assert_uint_eq(whole, header + 8 + 20 + 12 + 40);
		for (list_len = 1; list_len < whole; list_len++) {
			size_t past = list_len - header - 8;

			select_list(ten);
			if (list_len >= header + 8 && (past == 0 || past == 20 || past == 32))
				ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
			else
				expect_wrong(NVEFS_ASC_PARAMETER_LENGTH, 0, 0, "cut");
		}
		list_len = 0;
		select_list(ten);
		ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD); /* no list, nothing wrong */
	}
	fetch(false, false, false, NVEFS_MODE_CACHING);
	list[3] = 16;
	select_list(false);
	expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 3, -1, "two descriptors");
	fetch(false, false, true, NVEFS_MODE_CACHING);
	list[5] = 0x0a;
	select_list(false);
	expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 5, -1, "page length");
}
END_TEST

START_TEST(test_select_descriptor)
{
	fetch(false, false, false, NVEFS_MODE_CACHING);
	be32_store(list + 4, 0);
	select_list(false);
	ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
	be32_store(list + 4, UINT32_MAX);
	select_list(false);
	ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
	be32_store(list + 4, NLBAS - 1);
	select_list(false);
	expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 4, -1, "another capacity");
	be32_store(list + 4, NLBAS);
	be24_store(list + 9, 4096);
	select_list(false);
	expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 9, -1, "another block length");
	fetch(true, true, false, NVEFS_MODE_CACHING);
	be64_store(list + 8, UINT64_MAX);
	select_list(true);
	ck_assert_uint_eq(cmd.status, NVEFS_SCSI_GOOD);
	be64_store(list + 8, NLBAS + 1);
	select_list(true);
	expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 8, -1, "another capacity");
	be64_store(list + 8, NLBAS);
	be32_store(list + 20, 520);
	select_list(true);
	expect_wrong(NVEFS_ASC_FIELD_IN_PARAMETERS, 20, -1, "another block length");
}
END_TEST

START_TEST(test_select_cdb)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_MODE_SELECT_6, .count = 24};
	uint8_t sp[6] = {NVEFS_SCSI_MODE_SELECT_6, 0x11, 0, 0, 24, 0};
	struct nvefs_sntl_request req = {.cdb = sp, .cdb_len = 6, .out = list, .out_len = 24};
	struct nvefs_cdb saved = {.opcode = NVEFS_SCSI_MODE_SENSE_6, .pc = NVEFS_MODE_SAVED, .page = NVEFS_MODE_ALL, .count = 255};

	fetch(false, false, true, NVEFS_MODE_CACHING);
	send_cdb(c, list, 24, NULL, 0);
	expect_wrong(NVEFS_ASC_FIELD_IN_CDB, 1, 4, "PF");
	nvefs_sntl_translate(&lu, &req, &cmd);
	expect_wrong(NVEFS_ASC_FIELD_IN_CDB, 1, 0, "SP");
	c.pf = true;
	send_cdb(c, list, 23, NULL, 0);
	expect_wrong(NVEFS_ASC_FIELD_IN_CDB, 4, -1, "fewer bytes than said");
	send_cdb(c, NULL, 24, NULL, 0);
	expect_wrong(NVEFS_ASC_FIELD_IN_CDB, 4, -1, "scattered");
	send_cdb(saved, NULL, 0, list, sizeof(list));
	ck_assert_uint_eq(sense().asc, NVEFS_ASC_SAVING_NOT_SUPPORTED);
}
END_TEST

START_TEST(test_start_stop)
{
	static const struct {
		uint8_t condition, modifier;
		bool start;
		uint8_t npss;
		int state; /* negative: refused, at byte -state */
	} cases[] = {
	    {0, 0, true, 4, 0},	 {0, 0, false, 4, 4},  {0, 0, false, 0, 0},  {0, 1, false, 4, -3}, {1, 0, false, 4, 0},
	    {1, 1, false, 4, -3}, {2, 0, false, 4, 1},	{2, 1, false, 4, 2},  {2, 2, false, 4, 3},  {2, 3, false, 4, -3},
	    {2, 0, false, 0, -4}, {2, 2, false, 2, -3}, {3, 0, false, 4, 2},  {3, 1, false, 4, 3},  {3, 2, false, 4, -3},
	    {3, 0, false, 0, 0}, {3, 1, false, 1, 0},	{4, 0, false, 4, -4}, {7, 0, false, 4, -4}, {10, 0, false, 4, -4},
	    {11, 0, false, 4, -4},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nvefs_cdb c = {.opcode = NVEFS_SCSI_START_STOP_UNIT,
				      .start = cases[i].start,
				      .power_condition = cases[i].condition,
				      .power_modifier = cases[i].modifier};

		ctrl.npss = cases[i].npss;
		send_cdb(c, NULL, 0, NULL, 0);
		if (cases[i].state < 0) {
			expect_wrong(NVEFS_ASC_FIELD_IN_CDB, (uint16_t)-cases[i].state, cases[i].state == -3 ? 3 : 7, "condition");
			continue;
		}
		expect_feature(NVEFS_SNTL_ADMIN_LAST, NVEFS_NVME_FEATURE_POWER, (uint32_t)cases[i].state);
		expect_flush(1);
		c.no_flush = true;
		send_cdb(c, NULL, 0, NULL, 0);
		expect_feature(NVEFS_SNTL_ADMIN_FIRST, NVEFS_NVME_FEATURE_POWER, (uint32_t)cases[i].state);
		expect_flush(0);
		nvefs_sntl_admin_done(&cmd, NVEFS_NVME_SC_INVALID_FIELD);
		ck_assert_uint_eq(sense().asc, NVEFS_ASC_FIELD_IN_CDB);
	}
}
END_TEST

/* Through the route, to the embedded controller. */
static struct nvefs_dev *native, *scsi;
static struct nvefs_queue *q;

static void open_route(const char *uri)
{
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_dev_open(uri, NULL, &native, &err), "%s", err.text);
	ck_assert_msg(!nvefs_scsi_route_open(native, NULL, &scsi, &err), "%s", err.text);
	ck_assert_int_eq(nvefs_queue_init(scsi, 0, &q), 0);
}

static void close_route(void)
{
	nvefs_queue_done(q);
	nvefs_dev_close(scsi);
}

/* Status; *ret_sense is what came with it. */
static uint8_t sg(struct nvefs_cdb c, int direction, void *data, uint32_t len, struct nvefs_sense *ret_sense)
{
	uint8_t bytes[NVEFS_CDB_MAX], buf[64];
	sg_io_hdr_t hdr = {.interface_id = 'S', .dxfer_direction = direction, .dxfer_len = len, .dxferp = data,
			   .cmdp = bytes, .mx_sb_len = sizeof(buf), .sbp = buf};

	hdr.cmd_len = (unsigned char)nvefs_cdb_build(&c, bytes);
	*ret_sense = (struct nvefs_sense){0};
	ck_assert_int_eq(nvefs_scsi_route_sg_io(q, &hdr), 0);
	if (hdr.sb_len_wr)
		ck_assert_int_eq(nvefs_sense_parse(buf, hdr.sb_len_wr, ret_sense), 0);
	return hdr.status;
}

static bool feature_on(void)
{
	struct nvefs_nvme_sqe sqe;
	uint16_t status;
	uint32_t value;

	nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, NVEFS_NVME_SEL_CURRENT);
	ck_assert_int_eq(nvefs_dev_admin(native, &sqe, NULL, 0, &value, &status), 0);
	ck_assert_uint_eq(status, 0);
	return value & NVEFS_NVME_WRITE_CACHE_ENABLE;
}

static uint64_t flushes(void)
{
	struct nvefs_dev_counters c;

	nvefs_dev_counters(scsi, &c);
	return c.commands[NVEFS_IO_FLUSH];
}

static uint8_t select_cache(bool on, struct nvefs_sense *ret_sense)
{
	uint8_t l[24] = {[4] = 0x08, [5] = 0x12, [6] = on ? 0x04 : 0};
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_MODE_SELECT_6, .pf = true, .count = sizeof(l)};

	return sg(c, SG_DXFER_TO_DEV, l, sizeof(l), ret_sense);
}

static bool sensed_on(void)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_MODE_SENSE_6, .dbd = true, .page = NVEFS_MODE_CACHING, .count = 24};
	struct nvefs_sense s;
	uint8_t l[24];

	ck_assert_uint_eq(sg(c, SG_DXFER_FROM_DEV, l, sizeof(l), &s), NVEFS_SCSI_GOOD);
	return l[6] & 0x04;
}

START_TEST(test_route_cache)
{
	struct nvefs_sense s;

	open_route("ram:8M,vwc=on");
	ck_assert(feature_on() && sensed_on());
	ck_assert_uint_eq(select_cache(true, &s), NVEFS_SCSI_GOOD);
	ck_assert_uint_eq(flushes(), 0);
	ck_assert_uint_eq(select_cache(false, &s), NVEFS_SCSI_GOOD);
	ck_assert(!feature_on() && !sensed_on());
	ck_assert_uint_eq(flushes(), 1);
	ck_assert_uint_eq(select_cache(true, &s), NVEFS_SCSI_GOOD);
	ck_assert(feature_on() && sensed_on());
	close_route();
	open_route("ram:8M");
	ck_assert(!sensed_on());
	ck_assert_uint_eq(select_cache(false, &s), NVEFS_SCSI_GOOD);
	ck_assert_uint_eq(select_cache(true, &s), NVEFS_SCSI_CHECK_CONDITION);
	ck_assert(s.asc == NVEFS_ASC_FIELD_IN_PARAMETERS && s.byte == 6 && s.has_bit && s.bit == 2);
	close_route();
}
END_TEST

START_TEST(test_route_stop)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_START_STOP_UNIT};
	struct nvefs_sense s;

	open_route("ram:8M,vwc=on,latency=20us");
	ck_assert_uint_eq(sg(c, SG_DXFER_NONE, NULL, 0, &s), NVEFS_SCSI_GOOD);
	ck_assert_uint_eq(flushes(), 1);
	c.no_flush = true;
	ck_assert_uint_eq(sg(c, SG_DXFER_NONE, NULL, 0, &s), NVEFS_SCSI_GOOD);
	ck_assert_uint_eq(flushes(), 1);
	c.power_condition = 2; /* there is no idle state here */
	ck_assert_uint_eq(sg(c, SG_DXFER_NONE, NULL, 0, &s), NVEFS_SCSI_CHECK_CONDITION);
	ck_assert(s.asc == NVEFS_ASC_FIELD_IN_CDB && s.byte == 4);
	close_route();
}
END_TEST

/* The offset of the first byte that differs is in the sense data, wherever it is; nothing is written then. */
START_TEST(test_route_compare_and_write)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_COMPARE_AND_WRITE, .lba = 2, .count = 3, .fua = true};
	uint32_t lba = _i ? 4096 : 512, n = 3 * lba;
	uint8_t *data = nvefs_buf_new_zeroed(2 * n), *is = nvefs_buf_new_zeroed(8 * 4096), *now = nvefs_buf_new(8 * 4096);
	struct nvefs_cdb limits = {.opcode = NVEFS_SCSI_INQUIRY, .evpd = true, .page = NVEFS_VPD_BLOCK_LIMITS, .count = 64};
	struct nvefs_scsi_block_limits l;
	struct nvefs_sense s;

	open_route(_i ? "ram:8M,lba=4096,latency=10us" : "ram:8M,lba=512");
	ck_assert_uint_eq(sg(limits, SG_DXFER_FROM_DEV, is, 64, &s), NVEFS_SCSI_GOOD);
	ck_assert_int_eq(nvefs_vpd_limits_parse(is, 64, &l), 0);
	ck_assert_uint_eq(l.max_compare_and_write, 255);
	memset(data + n, 0x5a, n);
	ck_assert_uint_eq(sg(c, SG_DXFER_TO_DEV, data, 2 * n, &s), NVEFS_SCSI_GOOD);
	ck_assert_int_eq(nvefs_queue_read(q, 0, 8, is), 0);
	for (uint32_t i = 0; i < 8 * lba; i++)
		ck_assert_uint_eq(is[i], i >= 2 * lba && i < 5 * lba ? 0x5a : 0);
	for (uint32_t at = 0; at < n; at += at < 3 ? 1 : n / 7) {
		memset(data, 0x5a, n);
		data[at] ^= 1;
		data[n - 1] ^= 2;
		memset(data + n, at & 0xff, n);
		ck_assert_uint_eq(sg(c, SG_DXFER_TO_DEV, data, 2 * n, &s), NVEFS_SCSI_CHECK_CONDITION);
		ck_assert(s.key == NVEFS_SENSE_MISCOMPARE && s.asc == NVEFS_ASC_MISCOMPARE);
		ck_assert_msg(s.has_info && s.info == at, "offset %llu, not %u", (unsigned long long)s.info, at);
	}
	ck_assert_int_eq(nvefs_queue_read(q, 0, 8, now), 0);
	ck_assert_mem_eq(now, is, 8 * 4096);
	/* VERIFY says that it differs; where is not asked of it. */
	c = (struct nvefs_cdb){.opcode = NVEFS_SCSI_VERIFY_16, .lba = 2, .count = 3, .bytchk = 1};
	ck_assert_uint_eq(sg(c, SG_DXFER_TO_DEV, data, n, &s), NVEFS_SCSI_CHECK_CONDITION);
	ck_assert(s.key == NVEFS_SENSE_MISCOMPARE && !s.has_info);
	close_route();
	nvefs_buf_free(data);
	nvefs_buf_free(is);
	nvefs_buf_free(now);
}
END_TEST

/* Over a device that takes no fused pairs there is no such command, in any answer. */
START_TEST(test_route_no_pairs)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_COMPARE_AND_WRITE, .count = 1};
	struct nvefs_cdb ask = {.opcode = NVEFS_SCSI_MAINTENANCE_IN, .service_action = NVEFS_SCSI_MI_REPORT_OPCODES, .report_option = 3,
				.req_opcode = NVEFS_SCSI_COMPARE_AND_WRITE, .count = 64};
	struct nvefs_cdb limits = {.opcode = NVEFS_SCSI_INQUIRY, .evpd = true, .page = NVEFS_VPD_BLOCK_LIMITS, .count = 64};
	uint8_t *data = nvefs_buf_new_zeroed(2 * 4096);
	struct nvefs_sense s;

	open_route(_i ? "ram:8M,depth=1" : "ram:8M,fault=write:1000000:fail");
	ck_assert_uint_eq(sg(c, SG_DXFER_TO_DEV, data, 2 * 4096, &s), NVEFS_SCSI_CHECK_CONDITION);
	ck_assert(s.key == NVEFS_SENSE_ILLEGAL_REQUEST && s.asc == NVEFS_ASC_INVALID_OPCODE);
	ck_assert_uint_eq(sg(ask, SG_DXFER_FROM_DEV, data, 64, &s), NVEFS_SCSI_GOOD);
	ck_assert_uint_eq(data[1] & 7, 1);
	ck_assert_uint_eq(sg(limits, SG_DXFER_FROM_DEV, data, 64, &s), NVEFS_SCSI_GOOD);
	ck_assert_uint_eq(data[5], 0);
	close_route();
	nvefs_buf_free(data);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scsi-mode");
	TCase *t = tcase_create("mode");

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, test_select_same);
	tcase_add_test(t, test_select_cache);
	tcase_add_test(t, test_select_unchangeable);
	tcase_add_test(t, test_select_every_bit);
	tcase_add_test(t, test_select_lengths);
	tcase_add_test(t, test_select_descriptor);
	tcase_add_test(t, test_select_cdb);
	tcase_add_test(t, test_start_stop);
	tcase_add_test(t, test_route_cache);
	tcase_add_test(t, test_route_stop);
	tcase_add_loop_test(t, test_route_compare_and_write, 0, 2);
	tcase_add_loop_test(t, test_route_no_pairs, 0, 2);
	return run_suites(s, NULL);
}
