/* SPDX-License-Identifier: MIT */
/* What a drive says about itself: read, told, and refused where it cannot be driven. */
#include "test_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvefs/drive.h>

#include "base/buf.h"
#include "base/thread.h"
#include "device/drive.h"
#include "device/embedded.h"
#include "device/identify.h"
#include "device/scsi_initiator.h"
#include "device/scsi_target.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/status.h"
#include "scsi/cdb.h"

/* ---- A controller made of pages ---- */

static struct fake {
	struct nvefs_dev dev;
	struct nvefs_nvme_id_ctrl ctrl;
	struct nvefs_nvme_id_ctrl_nvm nvm;
	struct nvefs_nvme_id_ns ns;
	struct nvefs_nvme_id_ns_independent independent;
	uint8_t descs[4096], zeros[4096];
	uint32_t cache_feature, queues_feature;
	bool old;	      /* knows CNS 00h and 01h only, and no feature */
	uint8_t hangs_opcode; /* that command times out; for Identify, the page is hangs_cns */
	uint8_t hangs_cns;
} fake;

static const void *fake_page(uint8_t cns)
{
	if (cns == NVEFS_NVME_CNS_CTRL)
		return &fake.ctrl;
	if (cns == NVEFS_NVME_CNS_NS)
		return &fake.ns;
	if (fake.old)
		return NULL;
	switch (cns) {
	case NVEFS_NVME_CNS_NS_DESCS:
		return fake.descs;
	case NVEFS_NVME_CNS_CSI_NS:
		return fake.zeros;
	case NVEFS_NVME_CNS_CSI_CTRL:
		return &fake.nvm;
	case NVEFS_NVME_CNS_NS_INDEPENDENT:
		return &fake.independent;
	}
	return NULL;
}

static int fake_admin(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data, uint32_t len,
		      uint32_t *ret_result, uint16_t *ret_status)
{
	uint8_t cns = nvefs_nvme_sqe_cns(sqe), fid = (uint8_t)le32_get(sqe->cdw10);
	const void *page;

	(void)dev;
	*ret_result = 0;
	*ret_status = 0;
	if (sqe->opcode == fake.hangs_opcode && (sqe->opcode != NVEFS_NVME_ADMIN_IDENTIFY || cns == fake.hangs_cns))
		return -ETIMEDOUT;
	if (sqe->opcode == NVEFS_NVME_ADMIN_GET_FEATURES && !fake.old) {
		*ret_result = fid == NVEFS_NVME_FEATURE_WRITE_CACHE ? fake.cache_feature : fake.queues_feature;
		return 0;
	}
	page = sqe->opcode == NVEFS_NVME_ADMIN_IDENTIFY ? fake_page(cns) : NULL;
	if (page)
		memcpy(data, page, len);
	else
		*ret_status = NVEFS_NVME_SC_INVALID_FIELD | NVEFS_NVME_DNR;
	return 0;
}

static const struct nvefs_backend_ops fake_ops = {.name = "fake", .admin = fake_admin};

static void put_text(char *field, size_t len, const char *text)
{
	memset(field, ' ', len);
	memcpy(field, text, strlen(text));
}

static void fake_make(void)
{
	static const uint8_t csi;
	uint8_t uuid[16], eui64[8];
	size_t pos = 0;

	memset(&fake, 0, sizeof(fake));
	nvefs_dev_init(&fake.dev, &fake_ops, NULL);
	put_text(fake.ctrl.mn, 40, "Some Drive 9");
	put_text(fake.ctrl.sn, 20, "S123");
	put_text(fake.ctrl.fr, 8, "1.2");
	fake.ctrl.vid = le16_make(0x1234);
	fake.ctrl.cntlid = le16_make(7);
	fake.ctrl.ver = le32_make(0x00010400);
	fake.ctrl.mdts = 5;
	fake.ctrl.oncs = le16_make(0x15f);
	fake.ctrl.vwc = 7;
	fake.ctrl.crdt[0] = le16_make(3);
	fake.ctrl.awupf = le16_make(7);
	fake.nvm.dmrsl = le32_make(1024);
	fake.ns.nsze = fake.ns.ncap = le64_make(1 << 20);
	fake.ns.nuse = le64_make(1000);
	fake.ns.nlbaf = 1;
	fake.ns.flbas = 1;
	fake.ns.lbaf[0].lbads = 9;
	fake.ns.lbaf[1].lbads = 12;
	fake.ns.nsfeat = NVEFS_NVME_NSFEAT_OPTPERF | NVEFS_NVME_NSFEAT_ATOMIC;
	fake.ns.npwg = le16_make(15);
	fake.ns.npwa = le16_make(3);
	fake.ns.npdg = le16_make(7);
	fake.ns.nows = le16_make(31);
	fake.ns.nawun = le16_make(1);
	fake.ns.nabspf = le16_make(63);
	fake.ns.nmic = 1;
	fake.ns.dlfeat = 9;
	fake.independent.nstat = NVEFS_NVME_NSTAT_READY;
	memset(fake.ns.nguid, 0xab, 16);
	for (int i = 0; i < 16; i++)
		uuid[i] = (uint8_t)(0x10 + i);
	for (int i = 0; i < 8; i++)
		eui64[i] = (uint8_t)(i + 1);
	nvefs_nvme_ns_desc_put(fake.descs, 4096, &pos, NVEFS_NVME_NIDT_EUI64, eui64, 8);
	nvefs_nvme_ns_desc_put(fake.descs, 4096, &pos, NVEFS_NVME_NIDT_UUID, uuid, 16);
	nvefs_nvme_ns_desc_put(fake.descs, 4096, &pos, NVEFS_NVME_NIDT_CSI, &csi, 1);
	memcpy(fake.ns.eui64, eui64, 8);
	fake.cache_feature = 1;
	fake.queues_feature = nvefs_nvme_queues_encode(4, 6);
}

static struct nvefs_error said;

static int fake_identify(uint32_t kernel_bytes)
{
	said.text[0] = '\0';
	return nvefs_dev_identify(&fake.dev, "/dev/fake", 3, kernel_bytes, &said);
}

/* ---- Facts ---- */

static char told[8192];

static void collect(void *arg, const struct nvefs_fact *f)
{
	size_t at = strlen(told);
	char text[1100];

	(void)arg;
	nvefs_fact_text(f, text, sizeof(text));
	snprintf(told + at, sizeof(told) - at, "%s=%s\n", f->key, text);
}

/* Whole lines "key=text". */
static void expect(const char *line)
{
	char with_ends[1200];

	snprintf(with_ends, sizeof(with_ends), "\n%s\n", line);
	ck_assert_msg(strstr(told, with_ends), "'%s' is not in:%s", line, told);
}

static void tell_nvme(struct nvefs_dev *dev)
{
	strcpy(told, "\n");
	nvefs_drive_nvme_facts(nvefs_dev_drive(dev), collect, NULL);
}

START_TEST(what_a_namespace_says)
{
	static const char *const lines[] = {
	    "model=Some Drive 9", "serial=S123", "firmware=1.2", "vendor_id=4660", "nvme_version=1.4.0",
	    "controller_id=7", "nsid=3", "command_set=NVM", "nguid=abababababababababababababababab",
	    "eui64=0102030405060708", "uuid=10111213-1415-1617-1819-1a1b1c1d1e1f",
	    "size_bytes=4294967296 B (4 GiB)", "used_bytes=4096000 B (3.906 MiB)", "lba_bytes=4096 B (4 KiB)",
	    "lba_format=1", "lba_formats=2", "volatile_write_cache=on", "mdts_bytes=131072 B (128 KiB)",
	    "npwg_bytes=65536 B (64 KiB)", "npwa_bytes=16384 B (16 KiB)", "npdg_bytes=32768 B (32 KiB)",
	    "npda_bytes=4096 B (4 KiB)", "nows_bytes=131072 B (128 KiB)", "nawun_bytes=8192 B (8 KiB)",
	    "nawupf_bytes=4096 B (4 KiB)", "nabsn_bytes=0 B", "nabspf_bytes=262144 B (256 KiB)",
	    "awupf_bytes=32768 B (32 KiB)", "dmrsl_bytes=4194304 B (4 MiB)",
	    "optional_commands=compare, write-uncorrectable, dataset-management, write-zeroes, save-select, timestamp, copy",
	    "deallocated_reads=zeros", "write_zeroes_deallocates=yes", "shared=yes", "write_protected=no", "ready=yes",
	    "io_queues=4", "identify_pages=cns-05h, cns-06h, cns-08h", "transfer_bytes=131072 B (128 KiB)",
	    "transfer_limited_by=MDTS",
	};

	fake_make();
	ck_assert_msg(fake_identify(UINT32_MAX) == 0, "%s", said.text);
	tell_nvme(&fake.dev);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		expect(lines[i]);
	ck_assert_uint_eq(fake.dev.drive.nvme.crdt_ms[0], 300);
	ck_assert_uint_eq(fake.dev.drive.nvme.crdt_ms[1], 0);
	ck_assert_uint_eq(fake.dev.limits.max_discard_blks, 1024);

	/* One of version 1.2 that knows none of the newer pages. */
	fake.old = true;
	memset(&fake.dev.drive, 0, sizeof(fake.dev.drive));
	ck_assert_msg(fake_identify(UINT32_MAX) == 0, "%s", said.text);
	tell_nvme(&fake.dev);
	expect("uuid=");
	expect("identify_pages=none");
	expect("io_queues=0");
	expect("volatile_write_cache=on");
}
END_TEST

START_TEST(what_limits_a_transfer)
{
	static const struct {
		uint8_t mdts;
		uint32_t kernel, segments;
		const char *want;
		uint32_t bytes;
	} cases[] = {
	    {5, 0, 0, "MDTS", 128 << 10},
	    {7, 128 << 10, 1 << 20, "max_hw_sectors_kb", 128 << 10},
	    {7, 1 << 20, 127 * 4096, "max_segments", 127 * 4096},
	    {0, 0, 0, "command", 256 << 20},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t kernel = cases[i].kernel && cases[i].segments < cases[i].kernel ? cases[i].segments : cases[i].kernel;

		fake_make();
		fake.ctrl.mdts = cases[i].mdts;
		fake.dev.drive.nvme.kernel_transfer_bytes = cases[i].kernel;
		fake.dev.drive.nvme.kernel_segments_bytes = cases[i].segments;
		ck_assert_int_eq(fake_identify(kernel ? kernel : UINT32_MAX), 0);
		ck_assert_msg(!strcmp(fake.dev.drive.transfer_limit, cases[i].want), "case %zu: %s, not %s", i,
			      fake.dev.drive.transfer_limit, cases[i].want);
		ck_assert_uint_eq(fake.dev.drive.transfer_bytes, cases[i].bytes);
	}
}
END_TEST

/* ---- The cache ---- */

/* Flush matters wherever there is a cache: it may be switched on behind our back. */
START_TEST(a_cache_that_is_off_counts)
{
	fake_make();
	fake.cache_feature = 0;
	ck_assert_int_eq(fake_identify(UINT32_MAX), 0);
	ck_assert(fake.dev.limits.volatile_cache);
	ck_assert_int_eq(fake.dev.drive.nvme.cache, NVEFS_CACHE_OFF);
	fake.ctrl.vwc = 6;
	ck_assert_int_eq(fake_identify(UINT32_MAX), 0);
	ck_assert(!fake.dev.limits.volatile_cache);
	ck_assert_int_eq(fake.dev.drive.nvme.cache, NVEFS_CACHE_NONE);
}
END_TEST

/* ---- Refused, with the reason ---- */

static void set_csi(uint8_t csi)
{
	size_t pos = 0;

	memset(fake.descs, 0, sizeof(fake.descs));
	nvefs_nvme_ns_desc_put(fake.descs, 4096, &pos, NVEFS_NVME_NIDT_CSI, &csi, 1);
}
static void with_metadata(void)
{
	fake.ns.lbaf[1].ms = le16_make(8);
}
static void with_extended_metadata(void)
{
	fake.ns.lbaf[1].ms = le16_make(64);
	fake.ns.flbas |= 0x10;
}
static void with_protection(void)
{
	with_metadata();
	fake.ns.dps = 1;
}
static void zoned(void)
{
	set_csi(NVEFS_NVME_CSI_ZNS);
}
static void key_value(void)
{
	set_csi(NVEFS_NVME_CSI_KV);
}
static void other_set(void)
{
	set_csi(7);
}
static void inactive(void)
{
	memset(&fake.ns, 0, sizeof(fake.ns));
}
static void large_lba(void)
{
	fake.ns.lbaf[1].lbads = 13;
}
static void tiny_lba(void)
{
	fake.ns.lbaf[1].lbads = 8;
}
static void no_format(void)
{
	fake.ns.flbas = 5;
}
static void hangs(uint8_t cns)
{
	fake.hangs_opcode = NVEFS_NVME_ADMIN_IDENTIFY;
	fake.hangs_cns = cns;
}
static void hangs_ctrl(void)
{
	hangs(NVEFS_NVME_CNS_CTRL);
}
static void hangs_ns(void)
{
	hangs(NVEFS_NVME_CNS_NS);
}
static void hangs_descs(void)
{
	hangs(NVEFS_NVME_CNS_NS_DESCS);
}
static void hangs_nvm(void)
{
	hangs(NVEFS_NVME_CNS_CSI_CTRL);
}
static void hangs_independent(void)
{
	hangs(NVEFS_NVME_CNS_NS_INDEPENDENT);
}

static const struct {
	void (*make)(void);
	int err;
	const char *says, *says_too;
} refused[] = {
    {with_metadata, -ENOTSUP, "8 bytes of metadata", "nvme format"},
    {with_extended_metadata, -ENOTSUP, "64 bytes of metadata", "nvme format"},
    {with_protection, -ENOTSUP, "protection information", "type 1"},
    {zoned, -ENOTSUP, "zoned", "plain blocks"},
    {key_value, -ENOTSUP, "keys and values", "plain blocks"},
    {other_set, -ENOTSUP, "command set 7", "plain blocks"},
    {inactive, -ENODEV, "namespace 3 is not active", "attach-ns"},
    {large_lba, -ENOTSUP, "8192", "512 and 4096"},
    {tiny_lba, -EUCLEAN, "cannot be", "Identify Namespace"},
    {no_format, -EUCLEAN, "cannot be", "Identify Namespace"},
    {hangs_ctrl, -ETIMEDOUT, "Identify Controller", "timed out"},
    {hangs_ns, -ETIMEDOUT, "Identify Namespace", "timed out"},
    {hangs_descs, -ETIMEDOUT, "descriptors", "timed out"},
    {hangs_nvm, -ETIMEDOUT, "command set", "timed out"},
    {hangs_independent, -ETIMEDOUT, "independent", "timed out"},
};

START_TEST(refused_with_the_reason)
{
	int err;

	fake_make();
	refused[_i].make();
	err = fake_identify(UINT32_MAX);
	ck_assert_msg(err == refused[_i].err, "case %d: %d, not %d: %s", _i, err, refused[_i].err, said.text);
	ck_assert_msg(strstr(said.text, "/dev/fake") && strstr(said.text, refused[_i].says) &&
			  strstr(said.text, refused[_i].says_too),
		      "case %d says: %s", _i, said.text);
}
END_TEST

/* Not refused when it is opened: it can be read. */
START_TEST(write_protected)
{
	fake_make();
	if (_i)
		fake.independent.nsattr = NVEFS_NVME_NSATTR_WRITE_PROTECTED;
	else
		fake.ns.nsattr = NVEFS_NVME_NSATTR_WRITE_PROTECTED;
	ck_assert_int_eq(fake_identify(UINT32_MAX), 0);
	ck_assert(fake.dev.limits.read_only);
	ck_assert(nvefs_dev_drive(&fake.dev)->nvme.write_protected);
}
END_TEST

/* ---- Health ---- */

static void health_of(struct nvefs_dev *dev, struct nvefs_drive_health *h)
{
	struct nvefs_error err = {""};

	ck_assert_msg(nvefs_dev_health(dev, h, &err) == 0, "%s", err.text);
}

START_TEST(health_counts)
{
	struct nvefs_dev *dev = device_open("ram:16M,vwc=on,iu=64k");
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new_zeroed(256 * 4096);
	struct nvefs_drive_health h;

	health_of(dev, &h);
	ck_assert_uint_eq(h.read_bytes + h.written_bytes + h.error_log_entries, 0);
	ck_assert_int_eq(h.temperature_celsius, 27);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(nvefs_queue_write(q, 0, 250, buf, 0), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 0, 125, buf), 0);
	ck_assert_int_eq(nvefs_queue_read(q, 1 << 20, 1, buf), -ERANGE);
	ck_assert_int_eq(nvefs_embedded_power_cut(dev, 1, NULL), 0);
	health_of(dev, &h);
	/* In units of a thousand times 512 bytes, and of a billion bytes. */
	ck_assert_uint_eq(h.written_bytes, 3 * 250 * 4096);
	ck_assert_uint_eq(h.read_bytes, 125 * 4096);
	ck_assert_uint_eq(h.write_commands, 3);
	ck_assert_uint_eq(h.read_commands, 1);
	ck_assert_uint_eq(h.error_log_entries, 1);
	ck_assert_uint_eq(h.unsafe_shutdowns, 1);
	ck_assert(h.has_media_written);
	ck_assert_uint_eq(h.media_written_bytes, 1000000000);
	strcpy(told, "\n");
	nvefs_drive_health_facts(&h, collect, NULL);
	expect("critical_warning=none");
	expect("temperature_celsius=27 C");
	expect("spare_percent=100 %");
	expect("error_log_entries=1");
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

START_TEST(health_warns)
{
	struct nvefs_dev *dev = device_open("ram:16M,spare=9,worn");
	struct nvefs_queue *q = device_queue(dev);
	uint8_t *buf = nvefs_buf_new_zeroed(4096);
	struct nvefs_drive_health h;
	uint16_t left;

	health_of(dev, &h);
	ck_assert_uint_eq(h.critical_warning, NVEFS_WARN_SPARE | NVEFS_WARN_READ_ONLY);
	ck_assert_uint_eq(h.spare_percent, 9);
	left = h.critical_warning;
	ck_assert(strstr(nvefs_drive_warning(&left), "spare"));
	ck_assert(strstr(nvefs_drive_warning(&left), "read-only"));
	ck_assert_ptr_null(nvefs_drive_warning(&left));
	left = 0x1ff;
	for (int i = 0; i < 8; i++)
		ck_assert_ptr_nonnull(nvefs_drive_warning(&left));
	ck_assert_ptr_null(nvefs_drive_warning(&left));
	strcpy(told, "\n");
	nvefs_drive_health_facts(&h, collect, NULL);
	expect("critical_warning=spare, read-only");
	ck_assert_int_eq(nvefs_queue_write(q, 0, 1, buf, 0), -EROFS);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
	/* At the threshold is not below it. */
	dev = device_open("ram:16M,spare=10");
	health_of(dev, &h);
	ck_assert_uint_eq(h.critical_warning, 0);
	nvefs_dev_close(dev);
	nvefs_buf_free(buf);
}
END_TEST

/* One that hangs and one that refuses: told, and told apart. */
START_TEST(health_that_does_not_come)
{
	struct nvefs_drive_health h;

	fake_make();
	ck_assert_int_eq(fake_identify(UINT32_MAX), 0);
	ck_assert_int_eq(nvefs_dev_health(&fake.dev, &h, &said), -ENOTSUP);
	fake.hangs_opcode = NVEFS_NVME_ADMIN_GET_LOG_PAGE;
	ck_assert_int_eq(nvefs_dev_health(&fake.dev, &h, &said), -ETIMEDOUT);
	ck_assert(strstr(said.text, "SMART") && strstr(said.text, "timed out"));
}
END_TEST

/* ---- SCSI ---- */

static bool wce_now, wce_changeable;

/* The translation's answers, but for the caching page. */
static int send_scsi(void *arg, sg_io_hdr_t *hdr)
{
	int err = nvefs_scsi_exec_query(arg, hdr);

	if (hdr->cmdp[0] == NVEFS_SCSI_MODE_SENSE_10) {
		uint8_t *wce = (uint8_t *)hdr->dxferp + 8 + 2;

		*wce = (uint8_t)(hdr->cmdp[2] >> 6 ? wce_changeable : wce_now) << 2;
	}
	return err;
}

START_TEST(a_scsi_cache_that_may_be_switched_on_counts)
{
	static const char *const words[] = {"none", "off", "on", "on"};
	struct nvefs_scsi_target *target = calloc(1, sizeof(*target));
	struct nvefs_dev *below = device_open("ram:16M,vwc=on"), *dev = calloc(1, sizeof(*dev));
	struct nvefs_scsi_unit *unit = calloc(1, sizeof(*unit));
	char want[64];

	wce_now = _i & 2;
	wce_changeable = _i & 1;
	ck_assert_int_eq(nvefs_scsi_target_init(target, below, 0, &said), 0);
	nvefs_dev_init(dev, &fake_ops, NULL);
	ck_assert_msg(nvefs_scsi_probe(dev, unit, send_scsi, target, &said) == 0, "%s", said.text);
	ck_assert_int_eq(dev->limits.volatile_cache, _i != 0);
	strcpy(told, "\n");
	nvefs_drive_scsi_facts(&dev->drive, collect, NULL);
	snprintf(want, sizeof(want), "volatile_write_cache=%s", words[_i]);
	expect(want);
	expect(_i & 1 ? "cache_changeable=yes" : "cache_changeable=no");
	expect("vendor=NVMe");
	expect("rotation=1");
	expect("lba_bytes=4096 B (4 KiB)");
	expect("size_bytes=16777216 B (16 MiB)");
	ck_assert(strstr(told, "designators=eui64 ") && strstr(told, ", t10 NVMe"));
	nvefs_dev_done(dev);
	nvefs_dev_close(below);
	free(unit);
	free(dev);
	free(target);
}
END_TEST

Suite *device_drive_suite(void)
{
	Suite *s = suite_create("device drive");
	TCase *t = tcase_create("drive");

	tcase_add_test(t, what_a_namespace_says);
	tcase_add_test(t, what_limits_a_transfer);
	tcase_add_test(t, a_cache_that_is_off_counts);
	tcase_add_loop_test(t, refused_with_the_reason, 0, sizeof(refused) / sizeof(refused[0]));
	tcase_add_loop_test(t, write_protected, 0, 2);
	tcase_add_test(t, health_counts);
	tcase_add_test(t, health_warns);
	tcase_add_test(t, health_that_does_not_come);
	tcase_add_loop_test(t, a_scsi_cache_that_may_be_switched_on_counts, 0, 4);
	suite_add_tcase(s, t);
	return s;
}
