/* SPDX-License-Identifier: MIT */
/* What a SCSI unit says of its health: log pages, sound, cut and hostile; who is asked for what; and the same by both routes. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <nvefs/endian.h>

#include "../support/suites.h"
#include "device/drive.h"
#include "device/scsi_health.h"
#include "device/scsi_target.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "scsi/cdb.h"

/* ---- Pages, as hand-made by the tables of SPC-4 and SBC-3 ---- */

struct page {
	size_t len;
	uint8_t bytes[48];
};
#define PAGE(...) {sizeof((const uint8_t[]){__VA_ARGS__}), {__VA_ARGS__}}

static const struct page supported = PAGE(0x00, 0, 0, 11, 0x00, 0x02, 0x03, 0x05, 0x0d, 0x0e, 0x11, 0x15, 0x19, 0x2f, 0x37);
static const struct page temperature = PAGE(0x0d, 0, 0, 12, 0, 0, 3, 2, 0, 41, 0, 1, 3, 2, 0, 65);
/* The second of them has a parameter that is not looked at, of the vendor's, before the one that is. */
static const struct page exceptions = PAGE(0x2f, 0, 0, 8, 0, 0, 3, 4, 0x5d, 0x10, 43, 65);
static const struct page solid_state = PAGE(0x11, 0, 0, 13, 0x80, 0, 3, 1, 0xee, 0, 1, 3, 4, 0, 0, 0, 17);
static const struct page start_stop = PAGE(0x0e, 0, 0, 16, 0, 3, 3, 4, 0, 0, 0xc3, 0x50, 0, 4, 3, 4, 0, 0, 1, 2);
static const struct page scan = PAGE(0x15, 0, 0, 16, 0, 0, 3, 12, 0, 1, 0, 59, 0, 8, 0, 9, 0, 0, 0, 9);
static const struct page write_errors = PAGE(0x02, 0, 0, 14, 0, 5, 3, 2, 0xff, 0xff, 0, 6, 3, 4, 0, 0, 1, 0);
static const struct page read_errors = PAGE(0x03, 0, 0, 6, 0, 6, 3, 2, 0, 7);
static const struct page verify_errors = PAGE(0x05, 0, 0, 12, 0, 6, 3, 8, 0, 0, 0, 0, 0, 0, 0, 1);
static const struct page statistics = PAGE(0x19, 0, 0, 36, 0, 1, 3, 32, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0,
					   0, 0, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 14);

static const struct page *const pages[] = {&write_errors, &read_errors, &verify_errors, &temperature, &start_stop,
					   &solid_state,  &scan,	&statistics,	&exceptions};
#define NPAGES (sizeof(pages) / sizeof(pages[0]))

/* In memory of just that length, so that a tool sees every step beyond it. */
static int parse(uint8_t page, const uint8_t *bytes, size_t len, struct nvefs_scsi_health *h)
{
	uint8_t *exact = malloc(len ? len : 1);
	int err;

	memcpy(exact, bytes, len);
	err = nvefs_log_page_parse(page, exact, len, h);
	free(exact);
	return err;
}

static void take(const struct page *p, struct nvefs_scsi_health *h)
{
	ck_assert_int_eq(parse(p->bytes[0], p->bytes, p->len, h), 0);
}

START_TEST(pages_say)
{
	struct nvefs_scsi_health h = {0};

	take(&exceptions, &h);
	ck_assert(h.has_exception && h.has_temperature);
	ck_assert_uint_eq(h.temperature_celsius, 43);
	take(&temperature, &h);
	ck_assert_uint_eq(h.temperature_celsius, 41);
	take(&exceptions, &h);
	ck_assert_uint_eq(h.temperature_celsius, 41); /* the page of that name goes first */
	ck_assert_uint_eq(h.asc << 8 | h.ascq, 0x5d10);
	take(&solid_state, &h);
	ck_assert(h.has_used && h.used_percent == 17);
	take(&start_stop, &h);
	ck_assert(h.has_start_stop && h.start_stop_cycles == 258);
	take(&scan, &h);
	ck_assert(h.has_power_on && h.power_on_minutes == 65595);
	take(&write_errors, &h);
	ck_assert(h.has_errors && h.uncorrected_errors == 256);
	take(&read_errors, &h);
	take(&verify_errors, &h);
	ck_assert_uint_eq(h.uncorrected_errors, 256 + 7 + 1);
	take(&statistics, &h);
	ck_assert(h.has_statistics && h.read_commands == 11 && h.write_commands == 12);
	ck_assert(h.written_lbas == 13 && h.read_lbas == 14);
}
END_TEST

START_TEST(list_of_pages)
{
	const uint8_t *b = supported.bytes;

	ck_assert(nvefs_log_supported_has(b, supported.len, 0x2f));
	ck_assert(!nvefs_log_supported_has(b, supported.len, 0x10));
	ck_assert(!nvefs_log_supported_has(b, supported.len - 2, 0x2f)); /* cut before it */
	ck_assert(!nvefs_log_supported_has(b, 3, 0x00));
	ck_assert(!nvefs_log_supported_has(temperature.bytes, temperature.len, 0x03));
	ck_assert(!nvefs_log_supported_has((const uint8_t[]){0x00, 0, 0, 1, 0x0d, 0x2f}, 6, 0x2f)); /* behind its end */
	ck_assert(!nvefs_log_supported_has((const uint8_t[]){0x40, 0xff, 0, 2, 0x0d, 0x00}, 6, 0x0d)); /* of subpages */
	ck_assert(nvefs_log_supported_has((const uint8_t[]){0x00, 0, 0xff, 0xff, 0x0d}, 5, 0x0d));
}
END_TEST

static bool says_anything(const struct nvefs_scsi_health *h)
{
	return h->has_temperature || h->has_exception || h->has_used || h->has_errors || h->has_power_on ||
	       h->has_statistics || h->has_start_stop;
}

/* At every length: nothing beyond it is looked at, and a value is there when all of its parameter is. */
START_TEST(cut_anywhere)
{
	/* Up to where the parameter that counts has arrived, for each of the pages above. */
	static const size_t needs[NPAGES] = {18, 10, 16, 10, 20, 17, 20, 40, 12};
	const struct page *p = pages[_i];

	for (size_t len = 0; len <= p->len; len++) {
		struct nvefs_scsi_health h = {0};
		int err = parse(p->bytes[0], p->bytes, len, &h);

		ck_assert_msg(err == (len < 4 ? -EUCLEAN : 0), "page %02xh, %zu bytes: %d", p->bytes[0], len, err);
		ck_assert_msg(says_anything(&h) == (len >= needs[_i]), "page %02xh, %zu bytes", p->bytes[0], len);
	}
}
END_TEST

START_TEST(hostile)
{
	static const struct {
		uint8_t page;
		struct page bytes;
		int err;
	} cases[] = {
	    {0x0d, PAGE(0x2f, 0, 0, 8, 0, 0, 3, 4, 0x5d, 0, 1, 1), -EUCLEAN}, /* another page */
	    {0x0d, PAGE(0x4d, 1, 0, 6, 0, 0, 3, 2, 0, 41), -EUCLEAN},	       /* a subpage */
	    {0x0d, PAGE(0x0d, 7, 0, 6, 0, 0, 3, 2, 0, 41), -EUCLEAN},
	    {0x37, PAGE(0x37, 0, 0, 6, 0, 0, 3, 2, 0, 41), -EUCLEAN},	 /* a vendor's */
	    {0x0d, PAGE(0x0d, 0, 0, 0, 0, 0, 3, 2, 0, 41), 0},		 /* an empty page */
	    {0x0d, PAGE(0x0d, 0, 0, 6, 0, 0, 3, 0xff, 0, 41), 0},	 /* a parameter longer than the page */
	    {0x0d, PAGE(0x0d, 0, 0xff, 0xff, 0, 0, 3, 3, 0, 41), 0},
	    {0x0d, PAGE(0x0d, 0, 0, 5, 0, 0, 3, 2, 0, 41), 0},		 /* one that the page's end cuts */
	    {0x0d, PAGE(0x0d, 0, 0, 6, 0, 0, 3, 2, 0, 0xff), 0},	 /* "not known" */
	    {0x0d, PAGE(0x0d, 0, 0, 5, 0, 0, 3, 1, 41), 0},		 /* too short for what it is to hold */
	    {0x11, PAGE(0x11, 0, 0, 7, 0, 1, 3, 3, 0, 0, 5), 0},
	    {0x15, PAGE(0x15, 0, 0, 7, 0, 0, 3, 3, 0, 0, 5), 0},
	    {0x0e, PAGE(0x0e, 0, 0, 7, 0, 4, 3, 3, 0, 0, 5), 0},
	    {0x03, PAGE(0x03, 0, 0, 4, 0, 6, 3, 0), 0},
	    {0x2f, PAGE(0x2f, 0, 0, 5, 0, 0, 3, 1, 0x5d), 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nvefs_scsi_health h = {0};
		int err = parse(cases[i].page, cases[i].bytes.bytes, cases[i].bytes.len, &h);

		ck_assert_msg(err == cases[i].err && !says_anything(&h), "case %zu: %d", i, err);
	}
}
END_TEST

START_TEST(counters_saturate)
{
	const uint8_t wide[] = {0x03, 0, 0, 13, 0, 6, 3, 9, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint8_t wider[4 + 4 + 255] = {0x02, 0, 1, 3, 0, 6, 3, 255, 1};
	struct nvefs_scsi_health h = {0};

	ck_assert_int_eq(parse(0x03, wide, sizeof(wide), &h), 0);
	ck_assert(h.uncorrected_errors == UINT64_MAX);
	take(&read_errors, &h);
	ck_assert(h.uncorrected_errors == UINT64_MAX);
	memset(&h, 0, sizeof(h));
	ck_assert_int_eq(parse(0x02, wider, sizeof(wider), &h), 0);
	ck_assert(h.has_errors && h.uncorrected_errors == UINT64_MAX);
}
END_TEST

/* Random changes of sound pages: whatever they say, reading them ends, within their bytes. */
START_TEST(changed_at_random)
{
	unsigned int seed = getenv("NVEFS_TEST_SEED") ? (unsigned int)strtoul(getenv("NVEFS_TEST_SEED"), NULL, 10)
						      : (unsigned int)time(NULL);
	uint8_t bytes[64];

	printf("NVEFS_TEST_SEED=%u\n", seed);
	for (int i = 0; i < 20000; i++) {
		const struct page *p = pages[(size_t)rand_r(&seed) % NPAGES];
		struct nvefs_scsi_health h = {0};
		size_t len = (size_t)rand_r(&seed) % (p->len + 1);

		memcpy(bytes, p->bytes, p->len);
		for (int n = rand_r(&seed) % 4; n > 0 && len; n--)
			bytes[(size_t)rand_r(&seed) % len] = (uint8_t)rand_r(&seed);
		if (parse(p->bytes[0], bytes, len, &h) == -EUCLEAN)
			ck_assert(!says_anything(&h));
	}
}
END_TEST

/* ---- The asking ---- */

/* A unit made of the pages above: one page is answered in another way, and what is asked for is noted. */
static struct unit {
	const struct page *list, *odd_page;
	uint8_t odd, odd_sense_key; /* page; 0: it gives odd_page, or no answer at all */
	uint16_t odd_asc;
	uint32_t asked; /* in how many commands */
	char order[64];
} unit;

static void answer(sg_io_hdr_t *hdr, const struct page *p)
{
	uint32_t len = p->len < hdr->dxfer_len ? (uint32_t)p->len : hdr->dxfer_len;

	memcpy(hdr->dxferp, p->bytes, len);
	hdr->resid = (int)(hdr->dxfer_len - len);
}

static int send_to_unit(void *arg, sg_io_hdr_t *hdr)
{
	uint8_t page = hdr->cmdp[2] & 0x3f;
	struct nvefs_sense s = {.key = unit.odd_sense_key, .asc = unit.odd_asc};

	(void)arg;
	ck_assert_uint_eq(hdr->cmdp[0], NVEFS_SCSI_LOG_SENSE);
	ck_assert_uint_eq(hdr->cmdp[2] >> 6, 1);
	unit.asked++;
	snprintf(unit.order + strlen(unit.order), sizeof(unit.order) - strlen(unit.order), "%02x ", page);
	if (page == unit.odd && unit.odd_sense_key) {
		hdr->status = NVEFS_SCSI_CHECK_CONDITION;
		hdr->sb_len_wr = nvefs_sense_build(&s, false, hdr->sbp);
		return 0;
	}
	if (page == unit.odd && !unit.odd_page) {
		hdr->host_status = NVEFS_SCSI_HOST_TIME_OUT;
		return 0;
	}
	if (page == unit.odd)
		answer(hdr, unit.odd_page);
	else if (!page)
		answer(hdr, unit.list);
	for (size_t i = 0; i < NPAGES && page != unit.odd; i++)
		if (pages[i]->bytes[0] == page)
			answer(hdr, pages[i]);
	return 0;
}

static struct nvefs_drive_health health;
static struct nvefs_error said;

static int ask(const struct unit *u)
{
	unit = *u;
	memset(&health, 0xee, sizeof(health));
	said.text[0] = '\0';
	return nvefs_scsi_health(send_to_unit, NULL, "/dev/sg7", 512, &health, &said);
}

static char told[4096];

static void collect(void *arg, const struct nvefs_fact *f)
{
	size_t at = strlen(told);
	char text[1100];

	(void)arg;
	nvefs_fact_text(f, text, sizeof(text));
	snprintf(told + at, sizeof(told) - at, "%s=%s\n", f->key, text);
}

static const char *facts_of(const struct nvefs_drive_health *h)
{
	told[0] = '\0';
	nvefs_drive_health_facts(h, collect, NULL);
	return told;
}

START_TEST(all_that_is_listed)
{
	ck_assert_int_eq(ask(&(struct unit){.list = &supported, .odd = 0xff}), 0);
	ck_assert_str_eq(unit.order, "00 0d 2f 11 02 03 05 0e 15 19 ");
	ck_assert_str_eq(facts_of(&health), "critical_warning=failing\n"
					    "informational_exception=5Dh/10h\n"
					    "temperature_celsius=41 C\n"
					    "used_percent=17 %\n"
					    "read_bytes=7168 B (7 KiB)\n"
					    "written_bytes=6656 B (6.5 KiB)\n"
					    "read_commands=11\n"
					    "write_commands=12\n"
					    "power_on_hours=1093 h\n"
					    "media_errors=264\n"
					    "start_stop_cycles=258\n");
}
END_TEST

/* No page is asked for, and nothing is told, that page 00h does not list. */
START_TEST(only_what_is_listed)
{
	const struct page few = PAGE(0x00, 0, 0, 2, 0x00, 0x0d), none = PAGE(0x00, 0, 0, 2, 0x00, 0x37);

	ck_assert_int_eq(ask(&(struct unit){.list = &few, .odd = 0xff}), 0);
	ck_assert_str_eq(unit.order, "00 0d ");
	ck_assert_str_eq(facts_of(&health), "critical_warning=none\ntemperature_celsius=41 C\n");
	ck_assert_int_eq(ask(&(struct unit){.list = &none, .odd = 0xff}), -ENOTSUP);
	ck_assert_str_eq(unit.order, "00 ");
	ck_assert(strstr(said.text, "/dev/sg7: the unit has no log page of its health"));
}
END_TEST

START_TEST(refused_and_lost)
{
	const uint8_t illegal = NVEFS_SENSE_ILLEGAL_REQUEST;
	struct nvefs_drive_health before;

	/* The command is not known, or the page of the list is not. */
	ck_assert_int_eq(ask(&(struct unit){.odd_sense_key = illegal, .odd_asc = 0x2000}), -ENOTSUP);
	ck_assert_int_eq(ask(&(struct unit){.odd_sense_key = illegal, .odd_asc = 0x2400}), -ENOTSUP);
	memset(&before, 0xee, sizeof(before));
	ck_assert_mem_eq(&health, &before, sizeof(before));
	/* One of the listed ones is refused: the others are told. */
	ck_assert_int_eq(
	    ask(&(struct unit){.list = &supported, .odd = 0x2f, .odd_sense_key = illegal, .odd_asc = 0x2400}), 0);
	ck_assert(!strstr(facts_of(&health), "informational_exception") && strstr(told, "used_percent=17"));
	/* One that does not answer ends it, at once and by name; so does one that answers nonsense. */
	ck_assert_int_eq(ask(&(struct unit){.list = &supported, .odd = 0x11}), -ETIMEDOUT);
	ck_assert(strstr(said.text, "/dev/sg7") && strstr(said.text, "LOG SENSE of page 11h"));
	ck_assert_uint_eq(unit.asked, 4);
	ck_assert_int_eq(ask(&(struct unit){.list = &supported, .odd = 0x11, .odd_page = &scan}), -EUCLEAN);
	ck_assert(strstr(said.text, "page 11h") && strstr(said.text, "cannot be"));
	ck_assert_int_eq(ask(&(struct unit){.list = NULL, .odd = 0}), -ETIMEDOUT);
	ck_assert_mem_eq(&health, &before, sizeof(before));
	/* An error of the unit's own. */
	ck_assert_int_eq(ask(&(struct unit){.list = &supported, .odd = 0x0d, .odd_sense_key = 0x04, .odd_asc = 0x4400}),
			 -EIO);
}
END_TEST

START_TEST(exceptions_that_warn)
{
	static const struct {
		uint8_t asc, ascq;
		uint16_t warning;
		const char *says;
	} cases[] = {
	    {0, 0, 0, NULL},
	    {0x5d, 0x00, NVEFS_WARN_FAILING, "failure is predicted"},
	    {0x5d, 0xff, NVEFS_WARN_FAILING, "failure is predicted"},
	    {0x0b, 0x01, NVEFS_WARN_TEMPERATURE, "temperature"},
	    {0x0b, 0x0a, NVEFS_WARN_TEMPERATURE, "temperature"},
	    {0x0b, 0x05, NVEFS_WARN_RELIABILITY, "media"},
	    {0x0b, 0x06, NVEFS_WARN_BACKUP, "backup"},
	    {0x0b, 0x02, 0, NULL},
	    {0x11, 0x00, 0, NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct nvefs_scsi_health h = {.has_exception = true, .asc = cases[i].asc, .ascq = cases[i].ascq};
		struct nvefs_drive_health d;
		const char *warning;
		uint16_t left;

		nvefs_scsi_health_tell(&h, 512, &d);
		left = d.critical_warning;
		ck_assert_msg(left == cases[i].warning, "case %zu: %x", i, left);
		warning = nvefs_drive_warning(&left);
		ck_assert_msg(cases[i].says ? warning && strstr(warning, cases[i].says) != NULL : !warning, "case %zu: %s", i,
			      warning);
		ck_assert_uint_eq(left, 0);
	}
}
END_TEST

/* ---- One drive by both routes ---- */

/* The embedded controller, but for what its SMART log says. */
static struct altered {
	struct nvefs_dev dev;
	struct nvefs_nvme_smart_log log;
} altered;

static int altered_admin(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data, uint32_t len,
			 uint32_t *ret_result, uint16_t *ret_status)
{
	int err = nvefs_dev_admin(dev->below, sqe, data, len, ret_result, ret_status);

	if (!err && sqe->opcode == NVEFS_NVME_ADMIN_GET_LOG_PAGE &&
	    (uint8_t)le32_get(sqe->cdw10) == NVEFS_NVME_LOG_SMART && len == sizeof(altered.log))
		memcpy(data, &altered.log, sizeof(altered.log));
	return err;
}

static const struct nvefs_backend_ops altered_ops = {.name = "altered", .raw = true, .admin = altered_admin};

static int send_to_target(void *arg, sg_io_hdr_t *hdr)
{
	return nvefs_scsi_exec_query(arg, hdr);
}

/* Every line of what the route tells is in what is told natively, but for the words of a warning. */
static void expect_same(const struct nvefs_drive_health *native, const struct nvefs_drive_health *scsi)
{
	static char by_native[sizeof(told)], by_scsi[sizeof(told)];
	uint16_t failing = native->critical_warning & (uint16_t)~NVEFS_WARN_TEMPERATURE;
	char *line, *rest = NULL;
	int lines = 0;

	snprintf(by_native, sizeof(by_native), "\n%s", facts_of(native));
	snprintf(by_scsi, sizeof(by_scsi), "%s", facts_of(scsi));
	for (line = strtok_r(by_scsi, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), lines++) {
		char whole[1200];

		snprintf(whole, sizeof(whole), "\n%s\n", line);
		if (!strncmp(line, "critical_warning", 16) || !strncmp(line, "informational_exception", 23))
			continue;
		ck_assert_msg(strstr(by_native, whole) != NULL, "'%s' is not in:%s", line, by_native);
	}
	ck_assert_int_eq(lines, 2 + scsi->has_temperature + scsi->has_used);
	ck_assert_uint_eq(scsi->critical_warning, failing ? NVEFS_WARN_FAILING : native->critical_warning);
	ck_assert_int_eq(scsi->has_temperature, native->has_temperature);
	ck_assert(scsi->has_used);
}

START_TEST(same_by_both_routes)
{
	static const struct {
		uint16_t kelvin;
		uint8_t used, warning;
	} cases[] = {{300, 0, 0}, {314, 77, 0x04}, {273, 100, 0x02}, {0, 255, 0x09}, {527, 1, 0x0a}, {330, 254, 0x20}};
	struct nvefs_scsi_target *target = calloc(1, sizeof(*target));
	struct nvefs_drive_health native, scsi;
	struct nvefs_dev *embedded;
	const struct nvefs_dev_open_opts opts = {0};

	ck_assert_msg(!nvefs_dev_open("ram:16M", &opts, &embedded, &said), "%s", said.text);
	nvefs_dev_init(&altered.dev, &altered_ops, embedded);
	ck_assert_msg(!nvefs_scsi_target_init(target, &altered.dev, 0, &said), "%s", said.text);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		altered.log = (struct nvefs_nvme_smart_log){.critical_warning = cases[i].warning,
							    .temperature = {cases[i].kelvin & 0xff, cases[i].kelvin >> 8},
							    .avail_spare = 100,
							    .percent_used = cases[i].used};
		ck_assert_msg(!nvefs_dev_health(&altered.dev, &native, &said), "%s", said.text);
		ck_assert_msg(!nvefs_scsi_health(send_to_target, target, "ram", 4096, &scsi, &said), "%s", said.text);
		expect_same(&native, &scsi);
	}
	nvefs_dev_done(&altered.dev);
	nvefs_dev_close(embedded);
	free(target);
}
END_TEST

static Suite *health_suite(void)
{
	Suite *s = suite_create("SCSI health");
	TCase *t = tcase_create("pages"), *u = tcase_create("asking");

	tcase_add_test(t, pages_say);
	tcase_add_test(t, list_of_pages);
	tcase_add_loop_test(t, cut_anywhere, 0, (int)NPAGES);
	tcase_add_test(t, hostile);
	tcase_add_test(t, counters_saturate);
	tcase_add_test(t, changed_at_random);
	tcase_add_test(u, all_that_is_listed);
	tcase_add_test(u, only_what_is_listed);
	tcase_add_test(u, refused_and_lost);
	tcase_add_test(u, exceptions_that_warn);
	tcase_add_test(u, same_by_both_routes);
	suite_add_tcase(s, t);
	suite_add_tcase(s, u);
	return s;
}

int main(void)
{
	return run_suites(health_suite(), NULL);
}
