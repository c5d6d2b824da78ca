/* SPDX-License-Identifier: MIT */
/* Settings changed on a file system that is not mounted: each of them, what is refused, power cuts, failing commands. */
#include <check.h>
#include <errno.h>
#include <nvefs/format.h>
#include <nvefs/tune.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/calls.h"
#include "../support/suites.h"
#include "base/log.h"
#include "device/embedded.h"
#include "device/fault.h"
#include "device/replay.h"
#include "format/mmp.h"
#include "fsck/check.h"
#include "store/super.h"

#define BLKS 16384u
#define INTERVAL_MS 10u

static const uint8_t first_uuid[16] = {1, 2, 3}, second_uuid[16] = {9, 8, 7};
static struct nvefs_cow *medium;

/* ---- A medium, and what is asked of it ---- */

static struct nvefs_dev *open_layer(struct nvefs_cow *cow)
{
	struct nvefs_embedded_options o;
	struct nvefs_media *media;
	struct nvefs_dev *dev;

	nvefs_embedded_options_init(&o);
	o.ctrl.vwc = true;
	ck_assert_int_eq(nvefs_media_cow_open(cow, false, &media), 0);
	ck_assert_int_eq(nvefs_embedded_open_media("medium", &o.ctrl, media, &dev, NULL), 0);
	return dev;
}

static void make(uint32_t mmp_interval_ms)
{
	const struct nvefs_mkfs_opts mo = {
		.label = "first", .uuid = first_uuid, .journal_blks = 512, .mmp_interval_ms = mmp_interval_ms};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;

	nvefs_cow_reset(medium);
	dev = open_layer(medium);
	ck_assert_msg(!nvefs_mkfs(dev, &mo, &err), "%s", err.text);
	nvefs_dev_close(dev);
}

static struct nvefs_settings settings(struct nvefs_cow *cow)
{
	struct nvefs_dev *dev = open_layer(cow);
	struct nvefs_settings s;
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_settings_get(dev, &s, &err), "%s", err.text);
	nvefs_dev_close(dev);
	return s;
}

static bool same(const struct nvefs_settings *a, const struct nvefs_settings *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* What mending is allowed must leave nothing; returns how much there was. */
static uint64_t check(struct nvefs_cow *cow, enum nvefs_repair repair, const char *what)
{
	/* Who only looks need not wait for another host. */
	const struct nvefs_check_opts o = {.repair = repair,
					   .replay_in_memory = repair == NVEFS_REPAIR_NONE,
					   .mmp_force = repair == NVEFS_REPAIR_NONE};
	struct nvefs_dev *dev = open_layer(cow);
	struct nvefs_check_result r;
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_check(dev, &o, &r, &err), "%s: fsck: %s", what, err.text);
	ck_assert_msg(!repair || !r.left, "%s: NV%04x is left", what, r.first_code);
	nvefs_dev_close(dev);
	return r.problems;
}

static void expect_clean(struct nvefs_cow *cow, const char *what)
{
	ck_assert_msg(!check(cow, NVEFS_REPAIR_NONE, what), "%s: fsck finds something", what);
}

/* Mounts, looks at what is told, writes, unmounts. */
static void use(struct nvefs_cow *cow, const struct nvefs_settings *want, const char *what)
{
	const struct nvefs_mount_opts mo = {.mmp_alone = true, .max_workers = 1};
	struct nvefs_dev *dev = open_layer(cow);
	struct nvefs_error err = {""};
	struct nvefs_worker *w;
	struct nvefs_info info;
	struct nvefs_fs *fs;
	uint64_t ino;

	ck_assert_msg(!nvefs_mount(dev, &mo, &fs, &err), "%s: %s", what, err.text);
	nvefs_info_get(fs, &info);
	ck_assert_msg(!memcmp(info.uuid, want->uuid, 16) && !strcmp(info.label, want->label) &&
			      info.mmp_interval_ms == want->mmp_interval_ms,
		      "%s: the mount has other settings", what);
	ck_assert_int_eq(nvefs_worker_open(fs, &w), 0);
	ck_assert_msg(!h_create(w, "used", &ino), "%s: cannot be written to", what);
	ck_assert_msg(!h_unlink(w, "used"), "%s: cannot be written to", what);
	nvefs_worker_close(w);
	ck_assert_msg(!nvefs_unmount(fs), "%s: does not unmount", what);
}

static void expect_slots_alike(struct nvefs_cow *cow, const char *what)
{
	const uint64_t slots[NVEFS_SUPER_SLOTS] = {0, 1, BLKS - 1};
	struct nvefs_super sb[NVEFS_SUPER_SLOTS];
	const char *why;

	for (int i = 0; i < NVEFS_SUPER_SLOTS; i++) {
		ck_assert_msg(!nvefs_super_decode(nvefs_cow_block(cow, slots[i]), slots[i], &sb[i], &why),
			      "%s: slot %d: %s", what, i, why);
		ck_assert_msg(sb[i].seq == sb[0].seq && nvefs_super_same_facts(&sb[i], &sb[0]) &&
				      nvefs_super_same_settings(&sb[i], &sb[0]),
			      "%s: slot %d differs", what, i);
	}
}

static int try_tune(struct nvefs_dev *dev, const struct nvefs_tune_opts *o, struct nvefs_settings *ret_now,
		    struct nvefs_error *err)
{
	struct nvefs_settings before;

	return nvefs_tune(dev, o, &before, ret_now, err);
}

static struct nvefs_settings tune(const struct nvefs_tune_opts *o)
{
	struct nvefs_dev *dev = open_layer(medium);
	struct nvefs_settings old = settings(medium), before, now, seen;
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_tune(dev, o, &before, &now, &err), "%s", err.text);
	nvefs_dev_close(dev);
	seen = settings(medium);
	ck_assert(same(&before, &old));
	ck_assert(same(&now, o->dry_run ? &now : &seen));
	return now;
}

static void setup(void)
{
	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	medium = nvefs_cow_new(NULL, BLKS);
	ck_assert_ptr_nonnull(medium);
}

static void teardown(void)
{
	nvefs_cow_free(medium);
}

/* ---- Changes ---- */

static const struct nvefs_tune_opts changes[] = {
	{.label = "second"},
	{.uuid = second_uuid},
	{.mmp = NVEFS_ON, .mmp_interval_ms = INTERVAL_MS},
	{.label = "", .uuid = second_uuid, .mmp = NVEFS_ON, .mmp_interval_ms = INTERVAL_MS},
};
/* The way back. */
static const struct nvefs_tune_opts back = {.label = "first", .uuid = first_uuid, .mmp = NVEFS_OFF};
#define NCHANGES ((int)(sizeof(changes) / sizeof(changes[0])))

START_TEST(each_change_and_back)
{
	const struct nvefs_tune_opts *o = &changes[_i];
	struct nvefs_settings first, now;

	make(0);
	first = settings(medium);
	now = tune(o);
	ck_assert_str_eq(now.label, o->label ? o->label : "first");
	ck_assert_mem_eq(now.uuid, o->uuid ? o->uuid : first_uuid, 16);
	ck_assert_mem_eq(now.mkfs_uuid, first_uuid, 16);
	ck_assert_uint_eq(now.mmp_interval_ms, o->mmp_interval_ms);
	expect_slots_alike(medium, "changed");
	expect_clean(medium, "changed");
	use(medium, &now, "changed");
	expect_clean(medium, "used");
	now = tune(&back);
	ck_assert(same(&now, &first));
	expect_clean(medium, "as before");
	use(medium, &first, "as before");
}
END_TEST

START_TEST(an_interval_is_kept_or_changed)
{
	const struct nvefs_tune_opts on = {.mmp = NVEFS_ON};
	const struct nvefs_tune_opts slower = {.mmp_interval_ms = 20};

	make(0);
	ck_assert_uint_eq(tune(&on).mmp_interval_ms, NVEFS_MMP_DEFAULT_MS);
	make(INTERVAL_MS);
	ck_assert_uint_eq(tune(&on).mmp_interval_ms, INTERVAL_MS);
	ck_assert_uint_eq(tune(&slower).mmp_interval_ms, 20);
	ck_assert_uint_eq(tune(&on).mmp_interval_ms, 20);
	expect_clean(medium, "changed");
}
END_TEST

/* Nothing to write is nothing written, and a trial writes nothing either. */
START_TEST(what_is_so_already_is_left)
{
	const struct nvefs_tune_opts same_again = {.label = "first", .uuid = first_uuid, .mmp = NVEFS_OFF};
	struct nvefs_tune_opts trial = changes[NCHANGES - 1];
	uint64_t hash;

	make(0);
	hash = nvefs_cow_hash(medium);
	tune(&same_again);
	ck_assert(nvefs_cow_hash(medium) == hash);
	trial.dry_run = true;
	ck_assert_mem_eq(tune(&trial).uuid, second_uuid, 16);
	ck_assert(nvefs_cow_hash(medium) == hash);
}
END_TEST

/* ---- Refused ---- */

static void refuse(const struct nvefs_tune_opts *o, int want, const char *word)
{
	struct nvefs_dev *dev = open_layer(medium);
	uint64_t hash = nvefs_cow_hash(medium);
	struct nvefs_settings now;
	struct nvefs_error err = {""};
	int got = try_tune(dev, o, &now, &err);

	nvefs_dev_close(dev);
	ck_assert_msg(got == want, "%s: %d and not %d: %s", word, got, want, err.text);
	ck_assert_msg(strstr(err.text, word), "'%s' is not in: %s", word, err.text);
	ck_assert_msg(nvefs_cow_hash(medium) == hash, "%s: something was written", word);
}

START_TEST(what_cannot_be_is_refused)
{
	static const uint8_t none[16];
	char label[65];

	memset(label, 'x', 64);
	label[64] = '\0';
	make(0);
	refuse(&(struct nvefs_tune_opts){.label = label}, -EINVAL, "label");
	refuse(&(struct nvefs_tune_opts){.uuid = none}, -EINVAL, "zeros");
	refuse(&(struct nvefs_tune_opts){.mmp_interval_ms = 20}, -EINVAL, "has no multiple mount protection");
	refuse(&(struct nvefs_tune_opts){.mmp = NVEFS_ON, .mmp_interval_ms = NVEFS_MMP_MIN_MS - 1}, -EINVAL,
	       "interval");
	refuse(&(struct nvefs_tune_opts){.mmp = NVEFS_ON, .mmp_interval_ms = NVEFS_MMP_MAX_MS + 1}, -EINVAL,
	       "interval");
	nvefs_cow_reset(medium);
	refuse(&changes[0], -EMEDIUMTYPE, "no nvefs");
}
END_TEST

/* Changes some of the slots, each with a checksum that fits. */
static void edit(void (*change)(struct nvefs_super *sb), unsigned int nslots)
{
	const char *why;

	for (unsigned int i = 0; i < nslots; i++) {
		uint64_t pblk = nvefs_super_slot_pblk(BLKS, i);
		uint8_t block[4096] __attribute__((aligned(8)));
		struct nvefs_super sb;

		ck_assert_int_eq(nvefs_super_decode(nvefs_cow_block(medium, pblk), pblk, &sb, &why), 0);
		change(&sb);
		nvefs_super_encode(&sb, pblk, block);
		nvefs_block_seal(block);
		ck_assert_int_eq(nvefs_cow_write(medium, pblk * 4096, 4096, block, 0), 0);
	}
}

static void unknown_compat(struct nvefs_super *sb)
{
	sb->feature_compat |= 1ull << 40;
}

static void unknown_ro_compat(struct nvefs_super *sb)
{
	sb->feature_ro_compat |= 1ull << 40;
}

static void unknown_incompat(struct nvefs_super *sb)
{
	sb->feature_incompat |= 1ull << 40;
}

static void other_seed(struct nvefs_super *sb)
{
	sb->hash_seed ^= 1;
}

START_TEST(unknown_features_and_contradictions_are_refused)
{
	make(0);
	edit(unknown_compat, NVEFS_SUPER_SLOTS);
	refuse(&changes[0], -ENOTSUP, "feature");
	make(0);
	edit(unknown_ro_compat, NVEFS_SUPER_SLOTS);
	refuse(&changes[0], -ENOTSUP, "feature");
	make(0);
	edit(unknown_incompat, NVEFS_SUPER_SLOTS);
	refuse(&changes[0], -ENOTSUP, "feature");
	make(0);
	edit(other_seed, 1);
	refuse(&changes[0], -EUCLEAN, "fsck");
}
END_TEST

START_TEST(what_was_not_unmounted_is_refused)
{
	const struct nvefs_mount_opts mo = {.max_workers = 1};
	struct nvefs_dev *dev;
	struct nvefs_settings now;
	struct nvefs_worker *w;
	struct nvefs_fs *fs;
	uint64_t ino;

	make(0);
	dev = open_layer(medium);
	ck_assert_int_eq(nvefs_mount(dev, &mo, &fs, NULL), 0);
	ck_assert_int_eq(nvefs_worker_open(fs, &w), 0);
	ck_assert_int_eq(h_create(w, "kept", &ino), 0);
	ck_assert_int_eq(h_fsync(w, ino), 0);
	nvefs_worker_close(w);
	nvefs_abandon(fs);
	refuse(&changes[0], -EUCLEAN, "mount and unmount it once");
	now = settings(medium);
	use(medium, &now, "mounted once");
	tune(&changes[0]);
	expect_clean(medium, "changed");
}
END_TEST

/* Nobody has it, nobody ever had, so that the next one need not wait. */
static void expect_unclaimed(struct nvefs_cow *cow, const char *what)
{
	static const uint16_t types[] = {NVEFS_BT_CLAIM, NVEFS_BT_BEAT};
	struct nvefs_mmp_rec rec;
	struct nvefs_super sb;
	const char *why;

	ck_assert_msg(!nvefs_super_decode(nvefs_cow_block(cow, 0), 0, &sb, &why), "%s: %s", what, why);
	for (int i = 0; i < 2; i++) {
		const uint8_t *block = nvefs_cow_block(cow, nvefs_mmp_pblk(types[i]));

		ck_assert_msg(nvefs_mmp_decode(block, &sb, types[i], &rec) == NVEFS_BLOCK_OK, "%s: no %s", what,
			      i ? "beat" : "claim");
		ck_assert_msg(rec.state == NVEFS_MMP_FREE && !rec.nonce, "%s: somebody has it", what);
	}
}

/* ---- Power cuts ---- */

struct cuts {
	struct nvefs_settings old, next;
	struct nvefs_cow *layer;
	uint32_t nold, nnext;
};

static void judge(struct cuts *c, struct nvefs_replay *r, uint32_t state, bool complete)
{
	struct nvefs_settings seen, after;
	char what[300];

	nvefs_replay_describe(r, state, what, sizeof(what));
	ck_assert_int_eq(nvefs_replay_build(r, state, c->layer), 0);
	seen = settings(c->layer);
	ck_assert_msg(same(&seen, &c->next) || (same(&seen, &c->old) && !complete), "%s: neither old nor new settings",
		      what);
	c->nold += same(&seen, &c->old);
	c->nnext += same(&seen, &c->next);
	if (seen.mmp_interval_ms && !c->old.mmp_interval_ms)
		expect_unclaimed(c->layer, what);
	/* By the mount alone, or by fsck first. */
	if (state % 2)
		check(c->layer, NVEFS_REPAIR_ALL, what);
	after = settings(c->layer);
	ck_assert_msg(same(&seen, &after), "%s: fsck takes other settings than a mount", what);
	use(c->layer, &seen, what);
	expect_slots_alike(c->layer, what);
	expect_clean(c->layer, what);
}

static struct nvefs_record *record(const struct nvefs_tune_opts *o, struct nvefs_settings *ret_now)
{
	struct nvefs_dev *dev = open_layer(medium), *recorded;
	struct nvefs_record *log;
	struct nvefs_error err = {""};

	ck_assert_int_eq(nvefs_record_wrap(dev, 1ull << 26, &recorded, &log), 0);
	ck_assert_msg(!try_tune(recorded, o, ret_now, &err), "%s", err.text);
	nvefs_dev_close(recorded);
	return log;
}

/* Forwards in the even rounds, back in the odd ones. */
START_TEST(every_cut_leaves_old_or_new)
{
	const struct nvefs_tune_opts *o = _i % 2 ? &back : &changes[_i / 2];
	bool slow = getenv("NVEFS_TEST_SLOW");
	const struct nvefs_replay_opts ro = {
		.exhaustive = slow ? 6 : 2, .torn = slow ? 8 : 2, .samples = slow ? 64 : 4, .seed = (uint64_t)_i + 1};
	struct cuts c = {.nold = 0};
	struct nvefs_record *log;
	struct nvefs_replay *r;

	make(0);
	if (_i % 2)
		tune(&changes[_i / 2]);
	c.old = settings(medium);
	log = record(o, &c.next);
	ck_assert_int_eq(nvefs_replay_new(log, &ro, &r), 0);
	c.layer = nvefs_cow_new(nvefs_replay_image(r), BLKS);
	while (nvefs_replay_next(r) == 1)
		for (uint32_t s = 0; s < nvefs_replay_nstates(r); s++) {
			nvefs_cow_reset(c.layer);
			judge(&c, r, s, nvefs_replay_cut(r) == nvefs_replay_end(r));
		}
	printf("change %d%s: %u states old, %u new\n", _i / 2, _i % 2 ? " back" : "", c.nold, c.nnext);
	ck_assert_uint_gt(c.nold, 0);
	ck_assert_uint_gt(c.nnext, 0);
	nvefs_cow_free(c.layer);
	nvefs_replay_free(r);
	nvefs_record_free(log);
}
END_TEST

/* ---- Failing commands ---- */

/* False: there is no nth command of the kind any more. */
static bool fail_nth(const struct nvefs_tune_opts *o, uint8_t op, uint64_t nth, enum nvefs_fault_action action)
{
	const struct nvefs_fault fault = {.op = op, .action = (uint8_t)action, .err = -EIO, .nth = nth};
	struct nvefs_settings old, next = {.label = ""}, seen;
	struct nvefs_dev *dev;
	struct nvefs_error err = {""};
	char what[80];
	bool hit;
	int code;

	snprintf(what, sizeof(what), "command %llu of kind %u fails, way %d", (unsigned long long)nth, op, action);
	make(0);
	if (o == &back)
		tune(&changes[NCHANGES - 1]);
	old = settings(medium);
	ck_assert_int_eq(nvefs_fault_wrap(open_layer(medium), &fault, 1, &dev), 0);
	code = try_tune(dev, o, &next, &err);
	hit = nvefs_fault_hits(dev);
	nvefs_dev_close(dev);
	seen = settings(medium);
	if (!code)
		ck_assert_msg(same(&seen, &next), "%s: success, and it is not so", what);
	else if (memcmp(seen.label, old.label, sizeof(old.label)) == 0)
		ck_assert_msg(same(&seen, &old), "%s: settings are half changed", what);
	if (nth % 2)
		check(medium, NVEFS_REPAIR_ALL, what);
	use(medium, &seen, what);
	expect_slots_alike(medium, what);
	expect_clean(medium, what);
	return hit;
}

START_TEST(every_command_may_fail)
{
	static const uint8_t ops[] = {NVEFS_IO_WRITE, NVEFS_IO_FLUSH, NVEFS_IO_READ};
	const struct nvefs_tune_opts *o = _i % 2 ? &back : &changes[NCHANGES - 1];
	enum nvefs_fault_action action = _i / 2 ? NVEFS_FAULT_FAIL_AFTER : NVEFS_FAULT_FAIL;
	uint64_t n, total = 0;

	/* A read that was done and failed is one that failed. */
	for (size_t k = 0; k < sizeof(ops) - (size_t)(_i / 2); k++) {
		for (n = 1; fail_nth(o, ops[k], n, action); n++)
			ck_assert_uint_lt(n, 1000);
		total += n - 1;
	}
	printf("%s, way %d: %llu commands failed\n", _i % 2 ? "back" : "forth", action, (unsigned long long)total);
	ck_assert_uint_gt(total, 6);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tune");
	TCase *tc = tcase_create("tune");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, each_change_and_back, 0, NCHANGES);
	tcase_add_test(tc, an_interval_is_kept_or_changed);
	tcase_add_test(tc, what_is_so_already_is_left);
	tcase_add_test(tc, what_cannot_be_is_refused);
	tcase_add_test(tc, unknown_features_and_contradictions_are_refused);
	tcase_add_test(tc, what_was_not_unmounted_is_refused);
	tcase_add_loop_test(tc, every_cut_leaves_old_or_new, 0, 2 * NCHANGES);
	tcase_add_loop_test(tc, every_command_may_fail, 0, 4);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
