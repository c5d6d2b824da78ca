/* SPDX-License-Identifier: MIT */
/*
 * Every field of every kind of block is flipped: nothing may crash, and what
 * the checksum does not forgive must be found.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suites.h"
#include "base/buf.h"
#include "base/log.h"
#include "format/block.h"
#include "format/journal.h"
#include "format/node.h"
#include "image.h"

/* Distance of the bytes flipped: all of them with NVEFS_TEST_SLOW; behind the fields, a sample otherwise. */
static uint32_t next_byte(uint32_t i)
{
	return getenv("NVEFS_TEST_SLOW") || i < 160 ? i + 1 : i + 61;
}

/*
 * One bit of one byte after the other of the block at `pblk` is flipped. As it
 * is, the checksum must betray it (must_find). Sealed again, nothing may crash;
 * returns how many of these were noticed.
 */
static uint32_t flip_all(struct image *img, uint64_t pblk, uint32_t len, bool must_find)
{
	uint8_t *good = image_block(img, pblk), *bad = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint32_t noticed = 0;
	struct found f;

	for (uint32_t i = 0; i < len; i = next_byte(i)) {
		memcpy(bad, good, NVEFS_BLOCK_SIZE);
		bad[i] ^= (uint8_t)(1u << (i % 8));
		if (i % 4 == 0 || i >= 160) {
			image_write(img, pblk, bad);
			image_check(img, false, &f);
			ck_assert_msg(!must_find || f.err || f.n, "block %llu, byte %u: the flip was not found",
				      (unsigned long long)pblk, i);
		}
		nvefs_block_seal(bad);
		image_write(img, pblk, bad);
		image_check(img, true, &f);
		noticed += f.err || f.n;
	}
	image_write(img, pblk, good);
	image_check(img, true, &f);
	ck_assert_msg(!f.n, "the block is back, but NV%04x", f.codes[0]);
	nvefs_buf_free(good);
	nvefs_buf_free(bad);
	return noticed;
}

START_TEST(test_flip_super)
{
	struct image img;

	image_init(&img);
	image_close(&img);
	ck_assert_uint_gt(flip_all(&img, 0, NVEFS_BLOCK_SIZE, true), 80);
	image_done(&img);
}
END_TEST

START_TEST(test_flip_root)
{
	struct image img;

	image_init(&img);
	image_close(&img);
	ck_assert_uint_gt(flip_all(&img, NVEFS_ROOT_PBLK, NVEFS_BLOCK_SIZE, true), 80);
	image_done(&img);
}
END_TEST

START_TEST(test_flip_bitmap)
{
	struct image img;
	uint32_t noticed;

	image_init(&img);
	image_close(&img);
	noticed = flip_all(&img, NVEFS_BITMAP0_PBLK, NVEFS_BLOCK_SIZE, true);
	/* Every bit counts, all but the reserved fields of the header. */
	ck_assert_uint_gt(noticed, 120);
	image_done(&img);
}
END_TEST

START_TEST(test_flip_nodes)
{
	struct image img;
	uint8_t *root;

	image_init(&img);
	image_close(&img);
	root = image_block(&img, image_root_node(&img));
	flip_all(&img, image_root_node(&img), NVEFS_BLOCK_SIZE, true);
	for (uint32_t i = 0; i < nvefs_node_nitems(root) && i < 2; i++)
		flip_all(&img, nvefs_inner_pblk(root, i), NVEFS_BLOCK_SIZE, true);
	nvefs_buf_free(root);
	image_done(&img);
}
END_TEST

/* A damaged header slot is no damage as long as the other one is sound. */
START_TEST(test_flip_jheader)
{
	struct image img;

	image_init(&img);
	image_close(&img);
	for (unsigned int i = 0; i < NVEFS_JOURNAL_HEADERS; i++)
		flip_all(&img, nvefs_journal_header_pblk(&img.sb, i), 160, false);
	image_done(&img);
}
END_TEST

/* Live groups of a journal that was cut: what is damaged is not replayed, or refused. */
START_TEST(test_flip_journal)
{
	struct image img;

	image_init(&img);
	image_crash(&img);
	for (uint32_t pos = 0; pos < 6; pos++)
		flip_all(&img, nvefs_journal_log_pblk(&img.sb, pos), 512, false);
	image_done(&img);
}
END_TEST

/* Blocks of noise, of zeros, and of one another, everywhere. */
START_TEST(test_swaps)
{
	struct image img;
	uint64_t node;
	struct found f;
	uint8_t *block;

	image_init(&img);
	image_close(&img);
	node = image_root_node(&img);
	const uint64_t places[] = {0, 1, NVEFS_ROOT_PBLK, NVEFS_BITMAP0_PBLK, 16, 17, node, image_leaf(&img),
				   img.sb.nblks - 1};

	for (size_t to = 0; to < sizeof(places) / sizeof(places[0]); to++) {
		uint8_t *good = image_block(&img, places[to]);

		for (size_t from = 0; from <= sizeof(places) / sizeof(places[0]); from++) {
			bool zeros = from == sizeof(places) / sizeof(places[0]);

			if (from == to)
				continue;
			block = zeros ? nvefs_buf_new_zeroed(NVEFS_BLOCK_SIZE) : image_block(&img, places[from]);
			image_put_back(&img, places[to], block, false);
			image_check(&img, true, &f);
			ck_assert_msg(f.err || f.n || places[to] == 16 || places[to] == 17,
				      "block %llu in place of %llu: not found",
				      zeros ? 0ull : (unsigned long long)places[from], (unsigned long long)places[to]);
		}
		image_put_back(&img, places[to], good, false);
	}
	image_check(&img, true, &f);
	ck_assert_uint_eq(f.n, 0);
	image_done(&img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fsck");
	TCase *tc;

	/* Each check reads the whole log into memory: let it be the same memory. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	tc = tcase_create("flips");
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_flip_super);
	tcase_add_test(tc, test_flip_root);
	tcase_add_test(tc, test_flip_bitmap);
	tcase_add_test(tc, test_flip_nodes);
	tcase_add_test(tc, test_flip_jheader);
	tcase_add_test(tc, test_flip_journal);
	tcase_add_test(tc, test_swaps);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
