/* SPDX-License-Identifier: MIT */
/*
 * The power is cut while fsck mends. Its commands are recorded; for the states that
 * a cut could have left at each point, fsck is run again: it mends what is still to
 * be mended, the run after that finds nothing, and no file that the damage did not
 * hit is lost by the cut.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suites.h"
#include "base/buf.h"
#include "base/log.h"
#include "device/record.h"
#include "device/replay.h"
#include "format/block.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/node.h"
#include "fsck/check.h"
#include "victim.h"

static struct victim victim;

struct damage {
	const char *name;
	enum victim_version version;
	void (*hit)(const struct victim_image *img, struct nvefs_queue *q);
};

/* ---- Damages ---- */

static void zero(struct nvefs_queue *q, uint64_t pblk)
{
	void *block = nvefs_buf_new_zeroed(4096);

	ck_assert_int_eq(nvefs_queue_write(q, pblk, 1, block, 0), 0);
	nvefs_buf_free(block);
}

static void no_root_node(const struct victim_image *img, struct nvefs_queue *q)
{
	zero(q, img->root.tree_pblk);
}
static void no_inner(const struct victim_image *img, struct nvefs_queue *q)
{
	for (uint32_t i = 0; i < img->ninner; i++)
		zero(q, img->inner[i]);
}
static void no_leaf(const struct victim_image *img, struct nvefs_queue *q)
{
	zero(q, img->nodes[img->nnodes / 2]);
}
static void no_last_leaf(const struct victim_image *img, struct nvefs_queue *q)
{
	zero(q, img->nodes[img->nnodes - 1]);
}
static void no_root_block(const struct victim_image *img, struct nvefs_queue *q)
{
	(void)img;
	zero(q, NVEFS_ROOT_PBLK);
}
static void no_bitmap(const struct victim_image *img, struct nvefs_queue *q)
{
	(void)img;
	zero(q, NVEFS_BITMAP0_PBLK);
}
static void no_root_no_bitmap(const struct victim_image *img, struct nvefs_queue *q)
{
	no_root_node(img, q);
	no_bitmap(img, q);
}
static void no_headers(const struct victim_image *img, struct nvefs_queue *q)
{
	zero(q, img->sb.journal_pblk);
	zero(q, img->sb.journal_pblk + 1);
}
static void no_slot(const struct victim_image *img, struct nvefs_queue *q)
{
	(void)img;
	zero(q, 0);
}

/* An inode's number is another one: its names lead nowhere, and it has none. */
static void other_ino(const struct victim_image *img, struct nvefs_queue *q)
{
	for (uint32_t i = 0; i < img->nnodes; i++) {
		uint8_t *leaf = nvefs_buf_new(4096);

		memcpy(leaf, victim_block(img, img->nodes[i]), 4096);
		for (uint32_t k = 0; k < nvefs_node_nitems(leaf); k++) {
			struct nvefs_key key = nvefs_node_key(leaf, k);
			struct nvefs_disk_dirent *d;
			uint32_t len;

			if (key.kind != NVEFS_KIND_DIRENT)
				continue;
			d = (void *)(uintptr_t)nvefs_leaf_value(leaf, k, &len);
			d->ino = le64_make(999999);
			nvefs_block_seal(leaf);
			ck_assert_int_eq(nvefs_queue_write(q, img->nodes[i], 1, leaf, 0), 0);
			nvefs_buf_free(leaf);
			return;
		}
		nvefs_buf_free(leaf);
	}
	ck_abort_msg("there is no directory entry");
}

static const struct damage damages[] = {
	{"the root node", VICTIM_BARE, no_root_node},
	{"the root node and a bitmap", VICTIM_BARE, no_root_no_bitmap},
	{"all inner nodes", VICTIM_CLEAN, no_inner},
	{"a leaf", VICTIM_BARE, no_leaf},
	{"the last leaf", VICTIM_CLEAN, no_last_leaf},
	{"the root block", VICTIM_BARE, no_root_block},
	{"a bitmap", VICTIM_BARE, no_bitmap},
	{"both journal headers", VICTIM_CUT, no_headers},
	{"a superblock slot", VICTIM_CUT, no_slot},
	{"a name", VICTIM_BARE, other_ino},
};
#define NDAMAGES (sizeof(damages) / sizeof(damages[0]))

/* ---- ---- */

static void run_fsck(struct nvefs_dev *dev, struct nvefs_check_result *ret, const char *what)
{
	struct nvefs_check_opts opts = {.repair = NVEFS_REPAIR_ALL};
	struct nvefs_error err = {""};
	int code = nvefs_check(dev, &opts, ret, &err);

	ck_assert_msg(!code, "%s: fsck: %s", what, err.text);
	ck_assert_msg(!ret->left, "%s: problems are left, the first NV%04x", what, ret->first_code);
}

static struct nvefs_record *record(const struct damage *d, enum victim_fate *fates)
{
	const struct victim_image *img = &victim.v[d->version];
	struct nvefs_dev *dev = victim_device(img), *recorded;
	struct nvefs_check_result r;
	struct nvefs_record *log;
	struct nvefs_queue *q;

	ck_assert_int_eq(nvefs_queue_init(dev, 0, &q), 0);
	d->hit(img, q);
	nvefs_queue_done(q);
	ck_assert_int_eq(nvefs_record_wrap(dev, 1ull << 28, &recorded, &log), 0);
	run_fsck(recorded, &r, d->name);
	ck_assert_msg(r.problems, "%s: nothing was found", d->name);
	ck_assert_msg(!victim_judge(img, recorded, fates), "%s: does not mount", d->name);
	return log;
}

/* What the uncut run saved is saved here as well. */
static void judge(const struct damage *d, struct nvefs_dev *dev, const enum victim_fate *uncut, const char *what)
{
	const struct victim_image *img = &victim.v[d->version];
	enum victim_fate fates[VICTIM_FILES];
	struct nvefs_check_result r;

	run_fsck(dev, &r, what);
	run_fsck(dev, &r, what);
	ck_assert_msg(!r.problems, "%s: NV%04x after two runs", what, r.first_code);
	ck_assert_msg(!victim_judge(img, dev, fates), "%s: does not mount", what);
	for (uint32_t i = 0; i < img->nfiles; i++)
		ck_assert_msg(fates[i] <= uncut[i], "%s: %s has fate %d, without the cut %d", what, img->files[i].name,
			      fates[i], uncut[i]);
}

static uint32_t every(uint32_t ncuts)
{
	uint32_t most = getenv("NVEFS_TEST_SLOW") ? 100000 : 14;

	return ncuts / most + 1;
}

START_TEST(test_cut)
{
	bool slow = getenv("NVEFS_TEST_SLOW");
	const struct nvefs_replay_opts opts = {
		.exhaustive = slow ? 6 : 2, .torn = slow ? 8 : 1, .samples = slow ? 64 : 3, .seed = 7};
	const struct damage *d = &damages[_i];
	enum victim_fate uncut[VICTIM_FILES];
	struct nvefs_record *log = record(d, uncut);
	uint32_t ncuts = 0, nstates = 0, step;
	struct nvefs_replay *r;

	ck_assert_int_eq(nvefs_replay_new(log, &opts, &r), 0);
	while (nvefs_replay_next(r) == 1)
		ncuts++;
	nvefs_replay_free(r);
	step = every(ncuts);
	ck_assert_int_eq(nvefs_replay_new(log, &opts, &r), 0);
	for (uint32_t cut = 0; nvefs_replay_next(r) == 1; cut++) {
		for (uint32_t s = 0; cut % step == 0 && s < nvefs_replay_nstates(r); s++) {
			struct nvefs_dev *dev;
			char what[160];

			snprintf(what, sizeof(what), "%s, cut at event %u, state %u", d->name, nvefs_replay_cut(r), s);
			ck_assert_int_eq(nvefs_replay_open(r, s, &dev), 0);
			judge(d, dev, uncut, what);
			nstates++;
		}
	}
	printf("%s: %u cuts, %u states looked at\n", d->name, ncuts, nstates);
	ck_assert_uint_gt(nstates, 3);
	nvefs_replay_free(r);
	nvefs_record_free(log);
}
END_TEST

static void setup(void)
{
	victim_init(&victim, false);
}

static void teardown(void)
{
	victim_done(&victim);
}

int main(void)
{
	Suite *s = suite_create("fsck");
	TCase *tc = tcase_create("cuts");

	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	tcase_set_timeout(tc, 360);
	tcase_add_unchecked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_cut, 0, (int)NDAMAGES);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
