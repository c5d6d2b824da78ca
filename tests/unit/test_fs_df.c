/* SPDX-License-Identifier: MIT */
/* What df says: what can be written, what sharing saves, and what comes back. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suites.h"
#include "../support/harness.h"

#define BLK 4096u
#define PIECE 64u /* blocks of one write */

static struct nvefs_statfs df(struct harness *h)
{
	struct nvefs_statfs s;

	ck_assert_int_eq(h_sync(h->w), 0);
	ck_assert_int_eq(nvefs_statfs(h->w, &s), 0);
	return s;
}

static void make(struct harness *h, uint64_t bytes, int dedup)
{
	harness_make(h, bytes, &(struct nvefs_mount_opts){.dedup = dedup ? NVEFS_ON : NVEFS_OFF});
}

static void end(struct harness *h)
{
	harness_unmount(h);
	harness_check(h);
	harness_done(h);
}

/* n blocks from `blk` on, no two of them alike in any file, but for the same block of the same content. */
static int put(struct harness *h, uint64_t ino, uint64_t blk, uint32_t n, uint64_t content)
{
	static uint64_t buf[PIECE * BLK / 8];

	for (uint32_t i = 0; i < n; i++) {
		buf[i * BLK / 8] = blk + i;
		buf[i * BLK / 8 + 1] = content;
	}
	return h_write(h->w, ino, blk * BLK, buf, n * BLK, 0);
}

static uint64_t blks_of(struct harness *h, uint64_t ino)
{
	struct nvefs_attr a;

	ck_assert_int_eq(nvefs_getattr(h->w, ino, &a), 0);
	return a.blks;
}

/* One writer and one file: what is available is what he can write, within 3 %, and nothing is left then. */
START_TEST(available_is_what_fits)
{
	struct harness h = {0};
	uint64_t ino, avail, n, blk = 0;

	make(&h, 64u << 20, _i);
	avail = df(&h).avail_blks;
	ck_assert_int_eq(h_create(h.w, "f", &ino), 0);
	for (; !put(&h, ino, blk, PIECE, 1); blk += PIECE)
		;
	n = blks_of(&h, ino);
	ck_assert_msg(n <= avail && (avail - n) * 100 <= avail * 3, "%llu blocks written of %llu available",
		      (unsigned long long)n, (unsigned long long)avail);
	ck_assert_uint_lt(df(&h).avail_blks, 8);
	end(&h);
}
END_TEST

/*
 * Files of one block: each takes a quarter of a block more, for its inode, name and map, twice. df cannot know that
 * beforehand; while they are written it counts what they have taken, so that what is left stays true.
 */
START_TEST(small_files)
{
	struct harness h = {0};
	struct nvefs_statfs before, half;
	uint64_t ino, n = 0, at_half = 0, expected;
	char name[24];
	int err = 0;

	make(&h, 64u << 20, _i);
	before = half = df(&h);
	while (!err) {
		snprintf(name, sizeof(name), "file-%llu", (unsigned long long)n);
		err = h_create(h.w, name, &ino);
		if (!err)
			err = put(&h, ino, 0, 1, 1000 + n);
		n += !err;
		if (!at_half && n % 256 == 0 && (half = df(&h)).avail_blks < before.avail_blks / 2)
			at_half = n;
	}
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert_msg(n <= before.avail_blks && n * 100 >= before.avail_blks * 78, "%llu files in %llu blocks",
		      (unsigned long long)n, (unsigned long long)before.avail_blks);
	/* What the first half took says how many more fit into what df says is left. */
	expected = at_half * half.avail_blks / (before.avail_blks - half.avail_blks);
	ck_assert_msg(n - at_half <= expected * 105 / 100 && n - at_half >= expected * 95 / 100,
		      "%llu files in the second half, %llu expected", (unsigned long long)(n - at_half),
		      (unsigned long long)expected);
	end(&h);
}
END_TEST

/* Empty files: as many as df -i says, or more. */
START_TEST(free_inodes)
{
	struct harness h = {0};
	uint64_t ino, n = 0, said;
	char name[40];
	int err = 0;

	make(&h, 64u << 20, 0);
	said = df(&h).free_inodes;
	for (; !err; n += !err) {
		snprintf(name, sizeof(name), "a-name-of-some-length-%llu", (unsigned long long)n);
		err = h_create(h.w, name, &ino);
	}
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert_msg(n >= said && n <= said * 2, "%llu files, and df said %llu", (unsigned long long)n,
		      (unsigned long long)said);
	end(&h);
}
END_TEST

static void remove_both(struct harness *h, const uint64_t *inos)
{
	ck_assert_int_eq(h_unlink(h->w, "a"), 0);
	ck_assert_int_eq(h_unlink(h->w, "b"), 0);
	nvefs_forget(h->w, inos[0], 1);
	nvefs_forget(h->w, inos[1], 1);
}

enum order { ASCENDING, SCATTERED };

/* A second copy of the same data takes at most 3 % of the first, and when both have gone, everything is back. */
START_TEST(two_copies)
{
	const uint64_t n = 6144, piece = _i == ASCENDING ? PIECE : 8;
	struct harness h = {0};
	uint64_t inos[2], before, one, two, i;

	make(&h, 64u << 20, 1);
	ck_assert_int_eq(h_create(h.w, "a", &inos[0]), 0);
	ck_assert_int_eq(h_create(h.w, "b", &inos[1]), 0);
	before = df(&h).free_blks;
	for (i = 0; i < n; i += PIECE)
		ck_assert_int_eq(put(&h, inos[0], i, PIECE, 1), 0);
	one = before - df(&h).free_blks;
	for (i = 0; i < n / piece; i++) {
		uint64_t at = _i == ASCENDING ? i : i * 179 % (n / piece);

		ck_assert_int_eq(put(&h, inos[1], at * piece, (uint32_t)piece, 1), 0);
	}
	two = before - df(&h).free_blks;
	ck_assert_msg((two - one) * 100 <= one * 3, "%llu blocks for one copy, %llu for two", (unsigned long long)one,
		      (unsigned long long)two);
	remove_both(&h, inos);
	harness_unmount(&h);
	harness_check(&h);
	harness_mount(&h);
	ck_assert_uint_eq(df(&h).free_blks, before);
	end(&h);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs_df");
	TCase *c = tcase_create("all");

	tcase_set_timeout(c, 240);
	tcase_add_loop_test(c, available_is_what_fits, 0, 2);
	tcase_add_loop_test(c, small_files, 0, 2);
	tcase_add_test(c, free_inodes);
	tcase_add_loop_test(c, two_copies, ASCENDING, SCATTERED + 1);
	suite_add_tcase(s, c);
	return run_suites(s, NULL);
}
