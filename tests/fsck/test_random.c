/* SPDX-License-Identifier: MIT */
/*
 * Damage at random, one to four at a time: bits, blocks of zeros and of noise, torn
 * blocks, swapped blocks, older versions of blocks, a run of zeros; metadata under a
 * right or a wrong checksum. Each time fsck ends in time and a second run finds nothing.
 * Every file that the damage did not hit is there byte by byte, and one of which only
 * data was hit gives errors, but nothing that it never held. Where a block lies under a
 * right checksum (a bitmap that calls a live leaf free, and the leaf's parent is gone as well), that cannot be had
 * always: it must hold for all but one file in a thousand.
 *
 * NVEFS_TEST_COUNT: how many; NVEFS_TEST_SEED: of the first, the others follow it;
 * NVEFS_TEST_VERBOSE: print what fsck says.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/suites.h"
#include "../support/calls.h"
#include "base/buf.h"
#include "base/log.h"
#include "format/block.h"
#include "format/layout.h"
#include "fsck/check.h"
#include "victim.h"

#define DEFAULT_COUNT 250u
#define BOUND_S 60u /* for one, on a busy machine */
#define MAX_HIT 512u

static struct victim victims[2]; /* metadata once, and twice */

static struct {
	uint64_t runs, found, untouched, untouched_whole, lied_about, renamed, touched, fates[5], rounds_most;
} total;

/* ---- Damage ---- */

struct hit {
	const struct victim_image *img;
	struct nvefs_queue *q;
	struct rnd r;
	const struct victim *victim;
	uint64_t pblks[MAX_HIT];
	bool sealed[MAX_HIT]; /* its checksum is right: a second copy is not asked */
	uint32_t n;
	bool super; /* one slot is enough: without any nothing can be done */
	char what[256];
};

static uint64_t any_of(struct hit *h, const uint64_t *list, uint32_t n)
{
	return list[rnd_below(&h->r, n)];
}

static uint64_t any_used(struct hit *h)
{
	uint64_t p;

	do {
		p = rnd_below(&h->r, VICTIM_BLKS);
	} while (!h->img->used[p] || (p < 16 && p != 2 && p != 3) || p == VICTIM_BLKS - 1);
	return p;
}

/* Each kind of block as likely as the others, whatever their numbers. */
static uint64_t pick(struct hit *h)
{
	const struct victim_image *img = h->img;

	switch (rnd_below(&h->r, 9)) {
	case 0:
		if (!h->super) {
			h->super = true;
			return nvefs_super_slot_pblk(img->sb.nblks, (unsigned int)rnd_below(&h->r, 3));
		}
		return any_used(h);
	case 1:
		return NVEFS_ROOT_PBLK;
	case 2:
		return NVEFS_BITMAP0_PBLK;
	case 3:
		return img->sb.journal_pblk + rnd_below(&h->r, 2);
	case 4:
		return img->sb.journal_pblk + 2 + rnd_below(&h->r, 200);
	case 5:
		return any_of(h, img->inner, img->ninner);
	case 6:
	case 7:
		return any_of(h, img->nodes, img->nnodes);
	}
	return any_used(h);
}

static void put_sealed(struct hit *h, uint64_t pblk, const void *block, bool sealed)
{
	ck_assert_int_eq(nvefs_queue_write(h->q, pblk, 1, block, 0), 0);
	if (h->n == MAX_HIT)
		return;
	h->sealed[h->n] = sealed;
	h->pblks[h->n++] = pblk;
}

static void put(struct hit *h, uint64_t pblk, const void *block)
{
	put_sealed(h, pblk, block, false);
}

static void note(struct hit *h, const char *what, uint64_t pblk)
{
	size_t at = strlen(h->what);

	snprintf(h->what + at, sizeof(h->what) - at, " %s %llu", what, (unsigned long long)pblk);
}

static void flip(struct hit *h, uint64_t pblk, uint8_t *block)
{
	uint32_t n = 1 + (uint32_t)rnd_below(&h->r, 3);
	bool seal = rnd_below(&h->r, 2) && le32_get(((struct nvefs_disk_header *)block)->magic) == NVEFS_MAGIC;

	/* Most bits of a node lie in values; its head and its slots are worth as much. */
	while (n--)
		block[rnd_below(&h->r, rnd_below(&h->r, 2) ? 4096 : 200)] ^= (uint8_t)(1u << rnd_below(&h->r, 8));
	if (seal)
		nvefs_block_seal(block);
	note(h, seal ? "flip+seal" : "flip", pblk);
	put_sealed(h, pblk, block, seal);
}

static void zero_run(struct hit *h, uint64_t pblk, uint8_t *block)
{
	uint64_t n = 1 + rnd_below(&h->r, 100);

	memset(block, 0, 4096);
	note(h, "zeros from", pblk);
	for (uint64_t p = pblk; p < pblk + n && p < VICTIM_BLKS - 1; p++)
		if (p > 1)
			put(h, p, block);
}

static void swap(struct hit *h, uint64_t pblk, uint8_t *block)
{
	uint64_t other = any_used(h);

	memcpy(block, victim_block(h->img, other), 4096);
	put(h, pblk, block);
	memcpy(block, victim_block(h->img, pblk), 4096);
	put(h, other, block);
	note(h, "swap", pblk);
	note(h, "with", other);
}

/* The block as it was; where it was not yet, the part of it that a torn write leaves. */
static void older(struct hit *h, uint64_t pblk, uint8_t *block)
{
	const struct victim_image *v = h->victim->v, *old = &v[h->img == &v[VICTIM_CUT] ? VICTIM_CLEAN : VICTIM_EARLY];

	if (old->used[pblk] && memcmp(victim_block(old, pblk), block, 4096) != 0) {
		memcpy(block, victim_block(old, pblk), 4096);
		note(h, "old", pblk);
	} else {
		memset(block + 512 * rnd_below(&h->r, 8), 0, 512);
		note(h, "torn", pblk);
	}
	put(h, pblk, block);
}

static void one_damage(struct hit *h, uint8_t *block)
{
	uint64_t pblk = pick(h);

	memcpy(block, victim_block(h->img, pblk), 4096);
	switch (rnd_below(&h->r, 8)) {
	case 0:
	case 1:
	case 2:
		flip(h, pblk, block);
		return;
	case 3:
		memset(block, 0, 4096);
		note(h, "zero", pblk);
		put(h, pblk, block);
		return;
	case 4:
		for (uint32_t i = 0; i < 4096; i++)
			block[i] = (uint8_t)rnd_next(&h->r);
		note(h, "noise", pblk);
		put(h, pblk, block);
		return;
	case 5:
		swap(h, pblk, block);
		return;
	case 6:
		older(h, pblk, block);
		return;
	}
	zero_run(h, pblk, block);
}

static void damage(struct hit *h, struct nvefs_dev *dev)
{
	uint8_t *block = nvefs_buf_new(4096);
	uint32_t n = 1 + (uint32_t)rnd_below(&h->r, 4);

	ck_assert_int_eq(nvefs_queue_init(dev, 0, &h->q), 0);
	while (n--)
		one_damage(h, block);
	nvefs_queue_done(h->q);
	nvefs_buf_free(block);
}

/* ---- What it hit ---- */

static bool any_hit(const struct hit *h, const uint64_t *list, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < h->n; k++)
			if (h->pblks[k] == list[i])
				return true;
	return false;
}

static bool is_hit(const struct hit *h, uint64_t pblk, bool *sealed)
{
	bool hit = false;

	for (uint32_t k = 0; k < h->n; k++) {
		if (h->pblks[k] != pblk)
			continue;
		hit = true;
		*sealed |= h->sealed[k];
	}
	return hit;
}

/* Where there are two copies, a bad one is no loss. */
static bool leaves_hit(const struct hit *h, const struct victim_deps *d)
{
	for (uint32_t i = 0; i < d->nleaves; i++) {
		bool sealed = false, one = is_hit(h, d->leaves[i], &sealed);
		bool two = !d->twins[i] || is_hit(h, d->twins[i], &sealed);

		if (sealed || (one && two))
			return true;
	}
	return false;
}

static bool log_hit(const struct hit *h)
{
	const struct nvefs_super *sb = &h->img->sb;

	for (uint32_t k = 0; k < h->n; k++)
		if (h->pblks[k] >= sb->journal_pblk && h->pblks[k] < sb->journal_pblk + sb->journal_blks)
			return true;
	return false;
}

/* The file's items, or what leads to the newest of them. */
static bool items_hit(const struct hit *h, uint32_t i)
{
	const struct victim_image *old = &h->victim->v[VICTIM_CLEAN];
	const struct victim_file *f = &h->img->files[i], *g = &old->files[i];

	if (leaves_hit(h, &h->img->deps[i]))
		return true;
	if (h->img != &h->victim->v[VICTIM_CUT] || !log_hit(h))
		return false;
	/* With parts of the journal gone it may be as before, where it was something else before. */
	return i >= old->nfiles || f->size != g->size || (f->size && memcmp(f->bytes, g->bytes, f->size) != 0) ||
	       leaves_hit(h, &old->deps[i]);
}

/* ---- One run ---- */

static uint64_t now_seed;

static void too_long(int sig)
{
	static const char text[] = "a run took too long; NVEFS_TEST_SEED of it follows\n";
	char number[32];
	int len = snprintf(number, sizeof(number), "0x%llx\n", (unsigned long long)now_seed);

	(void)sig;
	if (write(2, text, sizeof(text) - 1) < 0 || write(2, number, (size_t)len) < 0)
		_exit(3);
	_exit(2);
}

/* With NVEFS_TEST_VERBOSE: what fsck says, for looking at one seed. */
static void tell(void *arg, const struct nvefs_problem *p)
{
	char text[512];

	(void)arg;
	nvefs_problem_text(p, text, sizeof(text));
	if (getenv("NVEFS_TEST_VERBOSE"))
		fprintf(stderr, "NV%04x: %s\n", p->code, text);
}

static void run_fsck(struct nvefs_dev *dev, struct nvefs_check_result *ret, const struct hit *h)
{
	struct nvefs_check_opts opts = {.repair = NVEFS_REPAIR_ALL, .report = tell};
	struct nvefs_error err = {""};
	int code = nvefs_check(dev, &opts, ret, &err);

	ck_assert_msg(!code, "seed 0x%llx:%s: fsck: %s", (unsigned long long)now_seed, h->what, err.text);
	ck_assert_msg(!ret->left, "seed 0x%llx:%s: %llu problems are left after %u rounds, the first NV%04x",
		      (unsigned long long)now_seed, h->what, (unsigned long long)ret->left, ret->rounds, ret->first_code);
}

static bool any_lie(const struct hit *h)
{
	for (uint32_t k = 0; k < h->n; k++)
		if (h->sealed[k])
			return true;
	return false;
}

static void judge(const struct hit *h, const enum victim_fate *fates)
{
	bool lie = any_lie(h);

	for (uint32_t i = 0; i < h->img->nfiles; i++) {
		bool items = items_hit(h, i), data = any_hit(h, h->img->deps[i].data, h->img->deps[i].ndata);
		const struct victim_file *f = &h->img->files[i];

		if (items || data) {
			total.touched++;
			total.fates[fates[i]]++;
		} else {
			total.untouched++;
			total.untouched_whole += fates[i] <= VICTIM_RENAMED;
			total.lied_about += lie && fates[i] > VICTIM_RENAMED;
			total.renamed += fates[i] == VICTIM_RENAMED;
		}
		ck_assert_msg(items || data || lie || fates[i] <= VICTIM_RENAMED,
			      "seed 0x%llx:%s: %s (inode %llu) was not hit, but its fate is %d",
			      (unsigned long long)now_seed, h->what, f->name, (unsigned long long)f->ino, fates[i]);
		ck_assert_msg(items || lie || fates[i] <= VICTIM_ERRORS,
			      "seed 0x%llx:%s: only data of %s (inode %llu) was hit, but its fate is %d",
			      (unsigned long long)now_seed, h->what, f->name, (unsigned long long)f->ino, fates[i]);
	}
}

static void one_run(uint64_t seed)
{
	static const enum victim_version versions[] = {VICTIM_CLEAN, VICTIM_CUT, VICTIM_BARE};
	struct hit h = {.r = {seed}};
	enum victim_fate fates[VICTIM_FILES];
	struct nvefs_check_result r;
	struct nvefs_dev *dev;

	now_seed = seed;
	alarm(BOUND_S);
	rnd_next(&h.r);
	h.victim = &victims[rnd_below(&h.r, 2)];
	h.img = &h.victim->v[versions[rnd_below(&h.r, 3)]];
	dev = victim_device(h.img);
	damage(&h, dev);
	run_fsck(dev, &r, &h);
	total.runs++;
	total.found += r.problems > 0;
	if (r.rounds > total.rounds_most)
		total.rounds_most = r.rounds;
	run_fsck(dev, &r, &h);
	ck_assert_msg(!r.problems, "seed 0x%llx:%s: second run: NV%04x", (unsigned long long)seed, h.what, r.first_code);
	ck_assert_msg(!victim_judge(h.img, dev, fates), "seed 0x%llx:%s: does not mount", (unsigned long long)seed, h.what);
	judge(&h, fates);
	alarm(0);
}

START_TEST(test_random)
{
	const char *count = getenv("NVEFS_TEST_COUNT");
	uint64_t n = count ? strtoull(count, NULL, 0) : DEFAULT_COUNT, seed = rnd_seed();

	signal(SIGALRM, too_long);
	for (uint64_t i = 0; i < n; i++) {
		one_run(seed + i);
		if ((i + 1) % 1000 == 0)
			fprintf(stderr, "%llu of %llu\n", (unsigned long long)i + 1, (unsigned long long)n);
	}
	printf("%llu damaged images, %llu of them with problems, at most %llu rounds of mending; second run clean: all\n",
	       (unsigned long long)total.runs, (unsigned long long)total.found, (unsigned long long)total.rounds_most);
	printf("files not hit: %llu of %llu survived (%.4f %%), %llu of them without the name they had\n",
	       (unsigned long long)total.untouched_whole, (unsigned long long)total.untouched,
	       100.0 * (double)total.untouched_whole / (double)total.untouched, (unsigned long long)total.renamed);
	printf("lost of these, all under right checksums: %llu\n", (unsigned long long)total.lied_about);
	printf("files hit: %llu: whole %llu, with I/O errors %llu, changed %llu, gone %llu\n",
	       (unsigned long long)total.touched,
	       (unsigned long long)(total.fates[VICTIM_WHOLE] + total.fates[VICTIM_RENAMED]),
	       (unsigned long long)total.fates[VICTIM_ERRORS], (unsigned long long)total.fates[VICTIM_DIFFERS],
	       (unsigned long long)total.fates[VICTIM_GONE]);
	ck_assert_uint_le(total.lied_about * 1000, total.untouched);
}
END_TEST

static void setup(void)
{
	victim_init(&victims[0], false);
	victim_init(&victims[1], true);
}

static void teardown(void)
{
	victim_done(&victims[0]);
	victim_done(&victims[1]);
}

int main(void)
{
	Suite *s = suite_create("fsck");
	TCase *tc = tcase_create("random");

	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	tcase_set_timeout(tc, 7200);
	tcase_add_unchecked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_random);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
