/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include "../support/suites.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/status.h"

/* Builders are compared with bytes written out by hand from the specification. */
static void check_bytes(const struct nvefs_nvme_sqe *sqe, const uint8_t want[64], const char *name)
{
	const uint8_t *got = (const uint8_t *)sqe;

	for (int i = 0; i < 64; i++)
		ck_assert_msg(got[i] == want[i], "%s: byte %d is %02x, not %02x", name, i, got[i],
			      want[i]);
}

START_TEST(test_rw)
{
	struct nvefs_nvme_sqe sqe;
	uint8_t want[64] = {[0] = 0x01,	 [4] = 7,     [40] = 0xef, [41] = 0xbe, [42] = 0xad,
			    [43] = 0xde, [44] = 0x78, [45] = 0x56, [46] = 0x34, [47] = 0x12,
			    [48] = 0xff, [49] = 0x01, [51] = 0x40};

	memset(&sqe, 0xa5, sizeof(sqe));
	nvefs_nvme_sqe_rw(&sqe, NVEFS_NVME_WRITE, 7, 0x12345678deadbeef, 512, NVEFS_NVME_CDW12_FUA);
	check_bytes(&sqe, want, "write");
	ck_assert_uint_eq(nvefs_nvme_sqe_slba(&sqe), 0x12345678deadbeef);
	ck_assert_uint_eq(nvefs_nvme_sqe_nlbs(&sqe), 512);

	nvefs_nvme_sqe_rw(&sqe, NVEFS_NVME_READ, 1, 0, 65536, 0);
	ck_assert_uint_eq(nvefs_nvme_sqe_nlbs(&sqe), 65536);
	ck_assert_uint_eq(le32_get(sqe.cdw12), 0xffff);
	nvefs_nvme_sqe_rw(&sqe, NVEFS_NVME_WRITE_ZEROES, 1, 0, 1, NVEFS_NVME_CDW12_DEAC);
	ck_assert_uint_eq(sqe.opcode, 0x08);
	ck_assert_uint_eq(le32_get(sqe.cdw12), 0x02000000);
	nvefs_nvme_sqe_rw(&sqe, NVEFS_NVME_COMPARE, 1, 0, 1, 0);
	ck_assert_uint_eq(sqe.opcode, 0x05);
	nvefs_nvme_sqe_rw(&sqe, NVEFS_NVME_VERIFY, 1, 0, 1, 0);
	ck_assert_uint_eq(sqe.opcode, 0x0c);
}
END_TEST

START_TEST(test_flush_dsm)
{
	struct nvefs_nvme_sqe sqe;
	struct nvefs_nvme_dsm_range range = {.nlbs = le32_make(0x01020304),
					     .slba = le64_make(0x1112131415161718)};
	static const uint8_t range_bytes[16] = {0,    0,    0,	  0,	4,    3,    2,	  1,
						0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11};
	uint8_t flush[64] = {[4] = 0xff, [5] = 0xff, [6] = 0xff, [7] = 0xff};
	uint8_t dsm[64] = {[0] = 9, [4] = 1, [40] = 255, [44] = 4};

	nvefs_nvme_sqe_flush(&sqe, NVEFS_NVME_NSID_ALL);
	check_bytes(&sqe, flush, "flush");
	nvefs_nvme_sqe_dsm(&sqe, 1, 256, NVEFS_NVME_DSM_CDW11_AD);
	check_bytes(&sqe, dsm, "dsm");
	ck_assert_uint_eq(nvefs_nvme_sqe_dsm_nranges(&sqe), 256);
	ck_assert_mem_eq(&range, range_bytes, 16);
}
END_TEST

START_TEST(test_admin)
{
	struct nvefs_nvme_sqe sqe;
	uint8_t identify[64] = {[0] = 6, [4] = 2, [40] = 5, [47] = 3};
	uint8_t get[64] = {[0] = 10, [4] = 1, [40] = 6, [41] = 3};
	uint8_t set[64] = {[0] = 9, [40] = 7, [43] = 0x80, [44] = 3, [46] = 7};
	uint8_t log[64] = {
	    [0] = 2,	 [4] = 0xff,  [5] = 0xff, [6] = 0xff, [7] = 0xff, [40] = 9,
	    [42] = 0xff, [43] = 0xff, [44] = 1,	  [46] = 5,   [52] = 1,	  [49] = 0x10};

	nvefs_nvme_sqe_identify(&sqe, 2, NVEFS_NVME_CNS_CSI_NS, 3);
	check_bytes(&sqe, identify, "identify");
	ck_assert_uint_eq(nvefs_nvme_sqe_cns(&sqe), 5);
	ck_assert_uint_eq(nvefs_nvme_sqe_csi(&sqe), 3);
	nvefs_nvme_sqe_get_features(&sqe, 1, NVEFS_NVME_FEATURE_WRITE_CACHE,
				    NVEFS_NVME_SEL_CAPABILITIES);
	check_bytes(&sqe, get, "get features");
	nvefs_nvme_sqe_set_features(&sqe, 0, NVEFS_NVME_FEATURE_QUEUES, true,
				    nvefs_nvme_queues_encode(4, 8));
	check_bytes(&sqe, set, "set features");
	ck_assert_uint_eq(nvefs_nvme_queues_sqs(le32_get(sqe.cdw11)), 4);
	ck_assert_uint_eq(nvefs_nvme_queues_cqs(le32_get(sqe.cdw11)), 8);
	nvefs_nvme_sqe_get_log(&sqe, NVEFS_NVME_NSID_ALL, NVEFS_NVME_LOG_ENDURANCE_GROUP, 5,
			       0x100001000, 0x80000);
	check_bytes(&sqe, log, "get log page");
	ck_assert_uint_eq(nvefs_nvme_sqe_log_len(&sqe), 0x80000);
	ck_assert_uint_eq(nvefs_nvme_sqe_log_offset(&sqe), 0x100001000);
	ck_assert_uint_eq(nvefs_nvme_sqe_log_lsi(&sqe), 5);
}
END_TEST

START_TEST(test_cqe)
{
	struct nvefs_nvme_cqe cqe = {0};
	uint16_t status = NVEFS_NVME_SC_LBA_RANGE | NVEFS_NVME_DNR;

	cqe.status = nvefs_nvme_cqe_make_status(status, true);
	ck_assert_uint_eq(le16_get(cqe.status), 0x8101);
	ck_assert(nvefs_nvme_cqe_phase(&cqe));
	ck_assert_uint_eq(nvefs_nvme_cqe_status(&cqe), status);
	cqe.status = nvefs_nvme_cqe_make_status(0, false);
	ck_assert(!nvefs_nvme_cqe_phase(&cqe));
	ck_assert_uint_eq(nvefs_nvme_cqe_status(&cqe), 0);
}
END_TEST

START_TEST(test_status)
{
	uint16_t s;
	size_t n = 0;

	for (; (s = nvefs_nvme_status_known(n)) != 0; n++) {
		ck_assert_msg(nvefs_nvme_status_errno(s) < 0, "status %#x has no errno", s);
		ck_assert_ptr_nonnull(nvefs_nvme_status_text(s));
		ck_assert_msg(strncmp(nvefs_nvme_status_text(s), "unknown", 7) != 0,
			      "status %#x has no text", s);
		ck_assert_msg(n == 0 || s > nvefs_nvme_status_known(n - 1),
			      "status %#x is out of order or twice in the table", s);
	}
	ck_assert_uint_ge(n, 60);
	ck_assert_int_eq(nvefs_nvme_status_errno(0), 0);
	ck_assert_int_eq(nvefs_nvme_status_errno(NVEFS_NVME_DNR | NVEFS_NVME_SC_COMPARE_FAILED),
			 -EILSEQ);
	ck_assert_int_eq(
	    nvefs_nvme_status_errno(NVEFS_NVME_MORE | NVEFS_NVME_SC_NS_WRITE_PROTECTED), -EROFS);
	ck_assert_int_eq(nvefs_nvme_status_errno(NVEFS_NVME_CRD_MASK | NVEFS_NVME_SC_CAPACITY),
			 -ENOSPC);
	ck_assert_str_eq(nvefs_nvme_status_text(0x4281), "unrecovered read error");
	for (uint32_t v = 0; v < 0x8000; v++) {
		ck_assert_ptr_nonnull(nvefs_nvme_status_text((uint16_t)v));
		ck_assert_msg((nvefs_nvme_status_errno((uint16_t)v) == 0) == ((v & 0x7ff) == 0),
			      "status %#x", v);
	}
	ck_assert(!nvefs_nvme_status_retryable(0));
	ck_assert(nvefs_nvme_status_retryable(NVEFS_NVME_SC_INTERRUPTED));
	ck_assert(!nvefs_nvme_status_retryable(NVEFS_NVME_SC_INTERRUPTED | NVEFS_NVME_DNR));
}
END_TEST

START_TEST(test_id_ctrl)
{
	struct nvefs_nvme_id_ctrl id = {0};
	struct nvefs_nvme_id_ctrl_nvm nvm = {.wzsl = 4, .dmrl = 8, .dmrsl = le32_make(99)};
	struct nvefs_nvme_ctrl_info c = {0};

	memset(id.mn, ' ', sizeof(id.mn));
	memcpy(id.mn, "A \x01 model", 9);
	memset(id.sn, 'S', sizeof(id.sn));
	id.mdts = 5;
	id.vwc = 7;
	id.oncs = le16_make(NVEFS_NVME_ONCS_COMPARE | NVEFS_NVME_ONCS_VERIFY);
	id.awupf = le16_make(7);
	nvefs_nvme_ctrl_parse(&id, &c);
	nvefs_nvme_ctrl_parse_nvm(&nvm, &c);
	ck_assert_str_eq(c.model, "A ? model");
	ck_assert_uint_eq(strlen(c.serial), 20);
	ck_assert_str_eq(c.firmware, "");
	ck_assert(c.compare && c.verify && c.vwc && !c.dsm && !c.write_zeroes);
	ck_assert_uint_eq(c.awupf, 8);
	ck_assert_uint_eq(c.awun, 1);
	ck_assert_uint_eq(c.acwu, 0);
	ck_assert_uint_eq(c.dmrsl, 99);
	ck_assert_uint_eq(nvefs_nvme_limit_bytes(c.mdts, 12), 131072);
	ck_assert_uint_eq(nvefs_nvme_limit_bytes(0, 12), UINT32_MAX);
	ck_assert_uint_eq(nvefs_nvme_limit_bytes(255, 12), UINT32_MAX);
	ck_assert_uint_eq(nvefs_nvme_limit_bytes(19, 12), 1u << 31);
	ck_assert_uint_eq(nvefs_nvme_limit_bytes(20, 12), UINT32_MAX);
}
END_TEST

static void make_ns(struct nvefs_nvme_id_ns *id)
{
	memset(id, 0, sizeof(*id));
	id->nsze = id->ncap = le64_make(1000);
	id->nlbaf = 1;
	id->flbas = 1;
	id->lbaf[0].lbads = 9;
	id->lbaf[1].lbads = 12;
}

START_TEST(test_id_ns)
{
	struct nvefs_nvme_id_ns id;
	struct nvefs_nvme_ns_info ns = {0};

	make_ns(&id);
	id.npwg = le16_make(15);
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), 0);
	ck_assert_uint_eq(ns.lba_bytes, 4096);
	ck_assert_uint_eq(ns.nsze, 1000);
	ck_assert_msg(ns.npwg == 1, "NPWG counts only with NSFEAT.OPTPERF");
	id.nsfeat = NVEFS_NVME_NSFEAT_OPTPERF;
	id.nabspf = le16_make(31);
	id.dps = 1;
	id.lbaf[1].ms = le16_make(8);
	id.flbas |= 0x10;
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), 0);
	ck_assert_uint_eq(ns.npwg, 16);
	ck_assert_uint_eq(ns.npwa, 1);
	ck_assert_uint_eq(ns.nows, 1);
	ck_assert_uint_eq(ns.nabspf, 32);
	ck_assert_uint_eq(ns.metadata_bytes, 8);
	ck_assert(ns.metadata_extended);
	ck_assert_uint_eq(ns.pi_type, 1);

	make_ns(&id);
	id.nlbaf = 40;
	id.flbas = 0x41; /* bits 6:5 are the upper index bits: 2 << 4 | 1 */
	id.lbaf[33].lbads = 13;
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), 0);
	ck_assert_uint_eq(ns.lba_bytes, 8192);
}
END_TEST

START_TEST(test_id_ns_damaged)
{
	struct nvefs_nvme_id_ns id;
	struct nvefs_nvme_ns_info ns;

	memset(&id, 0, sizeof(id));
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), -ENODEV);
	make_ns(&id);
	id.flbas = 2;
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), -EUCLEAN);
	make_ns(&id);
	id.lbaf[1].lbads = 8;
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), -EUCLEAN);
	make_ns(&id);
	id.lbaf[1].lbads = 200;
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), -EUCLEAN);
	make_ns(&id);
	id.nsze = le64_make(0);
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), -EUCLEAN);
	make_ns(&id);
	id.nsze = id.ncap = le64_make(UINT64_MAX);
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), -EUCLEAN);
	make_ns(&id);
	id.ncap = le64_make(1001);
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), -EUCLEAN);
	memset(&id, 0xff, sizeof(id));
	ck_assert_int_eq(nvefs_nvme_ns_parse(&id, &ns), -EUCLEAN);
}
END_TEST

START_TEST(test_ns_descs)
{
	uint8_t data[64] = {0}, nguid[16], eui[8], uuid[16];
	struct nvefs_nvme_ns_info ns = {0};
	size_t pos = 0;

	memset(nguid, 1, 16);
	memset(eui, 2, 8);
	memset(uuid, 3, 16);
	ck_assert(nvefs_nvme_ns_desc_put(data, 64, &pos, NVEFS_NVME_NIDT_EUI64, eui, 8));
	ck_assert(nvefs_nvme_ns_desc_put(data, 64, &pos, NVEFS_NVME_NIDT_NGUID, nguid, 16));
	ck_assert(nvefs_nvme_ns_desc_put(data, 64, &pos, NVEFS_NVME_NIDT_UUID, uuid, 16));
	ck_assert(nvefs_nvme_ns_desc_put(data, 64, &pos, NVEFS_NVME_NIDT_CSI, "", 1));
	ck_assert(!nvefs_nvme_ns_desc_put(data, 64, &pos, NVEFS_NVME_NIDT_EUI64, eui, 8));
	ck_assert_uint_eq(pos, 57);
	ck_assert_int_eq(nvefs_nvme_ns_parse_descs(data, 64, &ns), 0);
	ck_assert_mem_eq(ns.nguid, nguid, 16);
	ck_assert_mem_eq(ns.eui64, eui, 8);
	ck_assert_mem_eq(ns.uuid, uuid, 16);
	data[1] = 9;
	ck_assert_int_eq(nvefs_nvme_ns_parse_descs(data, 64, &ns), -EUCLEAN);
	data[1] = 8;
	ck_assert_int_eq(nvefs_nvme_ns_parse_descs(data, 10, &ns), -EUCLEAN);
	ck_assert_int_eq(nvefs_nvme_ns_parse_descs(data, 0, &ns), 0);
}
END_TEST

START_TEST(test_logs)
{
	struct nvefs_nvme_smart_log smart = {.percent_used = 3, .temperature = {0x2c, 0x01}};
	struct nvefs_nvme_endurance_log eg = {0};
	struct nvefs_nvme_health h = {0};

	nvefs_nvme_u128_set(smart.data_units_written, 0x123456789abc);
	nvefs_nvme_u128_set(smart.media_errors, 5);
	smart.data_units_read[15] = 1;
	nvefs_nvme_u128_set(eg.media_units_written, 2);
	nvefs_nvme_smart_parse(&smart, &h);
	nvefs_nvme_endurance_parse(&eg, &h);
	ck_assert_uint_eq(h.temperature_kelvin, 300);
	ck_assert_uint_eq(h.written_bytes, 0x123456789abc * 512000ull);
	ck_assert_uint_eq(h.read_bytes, UINT64_MAX);
	ck_assert_uint_eq(h.media_errors, 5);
	ck_assert_uint_eq(h.media_written_bytes, 2000000000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nvme");
	TCase *t = tcase_create("nvme");

	suite_add_tcase(s, t);
	tcase_add_test(t, test_rw);
	tcase_add_test(t, test_flush_dsm);
	tcase_add_test(t, test_admin);
	tcase_add_test(t, test_cqe);
	tcase_add_test(t, test_status);
	tcase_add_test(t, test_id_ctrl);
	tcase_add_test(t, test_id_ns);
	tcase_add_test(t, test_id_ns_damaged);
	tcase_add_test(t, test_ns_descs);
	tcase_add_test(t, test_logs);
	return run_suites(s, NULL);
}
