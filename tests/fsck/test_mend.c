/* SPDX-License-Identifier: MIT */
/* What is there when a damage has been mended: names, numbers, blocks; and what -p leaves alone. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../support/suites.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "format/block.h"
#include "format/dirent.h"
#include "format/journal.h"
#include "format/map.h"
#include "format/node.h"
#include "image.h"
#include "store/alloc.h"

/* ---- Looking ---- */

static void reopen(struct image *img)
{
	struct nvefs_store_opts opts = {0};
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_store_open(img->dev, &opts, &img->st, &err), "%s", err.text);
	ck_assert_int_eq(nvefs_store_start(img->st), 0);
}

/* -ENOENT or 0. */
static int get(struct image *img, struct nvefs_key key, void *val, uint32_t *ret_len)
{
	struct nvefs_miss miss;
	const void *v;
	int err;

	do {
		nvefs_store_rdlock(img->st);
		err = nvefs_tree_get(img->st, &key, &miss, &v, ret_len);
		if (!err)
			memcpy(val, v, *ret_len);
		nvefs_store_rdunlock(img->st);
	} while (err && nvefs_store_retry(img->st, img->q, &miss, &err));
	return err;
}

/* The inode that the name leads to; 0: there is no such name. */
static uint64_t lookup(struct image *img, uint64_t dir, const char *name)
{
	uint8_t val[NVEFS_VALUE_MAX];
	struct nvefs_dirent d;
	uint32_t len;

	if (get(img, image_name_key(img, dir, NVEFS_KIND_DIRENT, name), val, &len) ||
	    nvefs_dirent_find(val, len, name, (uint32_t)strlen(name), &d))
		return 0;
	return d.ino;
}

static struct nvefs_inode_rec inode(struct image *img, uint64_t ino)
{
	uint8_t val[NVEFS_VALUE_MAX];
	struct nvefs_inode_rec rec;
	uint32_t len = image_get(img, nvefs_key_make(ino, NVEFS_KIND_INODE, 0), val);

	ck_assert_int_eq(nvefs_inode_decode(val, len, &rec), 0);
	return rec;
}

static uint64_t block_of(struct image *img, uint64_t ino, uint64_t lblk, uint64_t *ret_csum)
{
	uint8_t val[NVEFS_VALUE_MAX];
	struct nvefs_window w;
	uint32_t len = image_get(img, nvefs_key_make(ino, NVEFS_KIND_MAP, lblk / 64), val);

	ck_assert_int_eq(nvefs_map_decode(val, len, &img->sb, &w), 0);
	*ret_csum = w.csum[lblk % 64];
	return nvefs_went_pblk(w.pblk[lblk % 64]);
}

static bool matches(struct image *img, uint64_t ino, uint64_t lblk)
{
	uint64_t csum, pblk = block_of(img, ino, lblk, &csum);
	uint8_t *block = image_block(img, pblk);
	bool same = nvefs_hash(block, NVEFS_BLOCK_SIZE, img->sb.hash_seed) == csum;

	nvefs_buf_free(block);
	return same;
}

/* Close, mend, look that it is clean, and open again. */
static void mend(struct image *img, struct found *f)
{
	struct found again;

	image_close(img);
	image_mend(img, NVEFS_REPAIR_ALL, f);
	ck_assert_int_eq(f->err, 0);
	ck_assert_msg(!f->res.left, "NV%04x", f->codes[f->n - 1]);
	image_check(img, false, &again);
	ck_assert_msg(!again.n, "NV%04x", again.codes[0]);
	reopen(img);
}

/* ---- Names ---- */

START_TEST(test_lost_and_found)
{
	struct image img;
	struct found f;
	uint64_t lost;

	image_init(&img);
	image_del(&img, nvefs_orphan_key(20));
	image_del(&img, image_name_key(&img, 1, NVEFS_KIND_DIRENT, "dir"));
	image_del(&img, image_name_key(&img, 1, NVEFS_KIND_DIRENT, "clone"));
	mend(&img, &f);
	ck_assert(found_code(&f, NVEFS_P_INODE_LOST));
	lost = lookup(&img, 1, "lost+found");
	ck_assert_uint_ge(lost, 1000);
	ck_assert_uint_eq(inode(&img, lost).mode, S_IFDIR | 0700);
	ck_assert_uint_eq(lookup(&img, lost, "#20"), 20);
	ck_assert_uint_eq(lookup(&img, lost, "#17"), 17);
	ck_assert_uint_eq(lookup(&img, lost, "#19"), 19);
	ck_assert_uint_eq(inode(&img, 17).parent, lost);
	ck_assert_uint_eq(inode(&img, lost).nlink, 3);
	/* What is in the lost directory stays there. */
	ck_assert_uint_eq(lookup(&img, 17, "link"), 18);
	ck_assert(matches(&img, 19, 0));
	image_done(&img);
}
END_TEST

/* It is there already, with somebody else under the number's name. */
START_TEST(test_lost_and_found_again)
{
	struct image img;
	struct found f;
	uint64_t lost;

	image_init(&img);
	image_del(&img, nvefs_orphan_key(20));
	mend(&img, &f);
	lost = lookup(&img, 1, "lost+found");
	image_add_name(&img, lost, "#19", 16, DT_REG);
	image_del(&img, image_name_key(&img, 1, NVEFS_KIND_DIRENT, "clone"));
	mend(&img, &f);
	ck_assert_uint_eq(lookup(&img, 1, "lost+found"), lost);
	ck_assert_uint_eq(lookup(&img, lost, "#19"), 16);
	ck_assert_uint_eq(lookup(&img, lost, "#19.1"), 19);
	ck_assert_uint_eq(inode(&img, 16).nlink, 3);
	image_done(&img);
}
END_TEST

/* One copy of a node says what cannot be, under a right checksum: the other one is used, and mends it. */
START_TEST(test_impossible_copy)
{
	struct nvefs_disk_node *n;
	struct image img;
	struct found f;
	uint64_t pblk;

	image_init_dup(&img);
	image_close(&img);
	pblk = _i % 2 ? image_leaf(&img) : image_root_node(&img);
	n = (void *)image_block(&img, pblk);
	if (_i / 2)
		pblk = nvefs_block_twin(n);
	n->heap_used = le16_make(5);
	image_put_back(&img, pblk, (void *)n, true);
	image_check(&img, true, &f);
	ck_assert_int_eq(f.err, 0);
	ck_assert_uint_eq(f.n, 1);
	ck_assert(found_code(&f, NVEFS_P_COPY_BAD));
	image_mend(&img, NVEFS_REPAIR_SAFE, &f);
	ck_assert(found_code(&f, NVEFS_P_COPY_BAD));
	image_check(&img, true, &f);
	ck_assert_int_eq(f.err, 0);
	ck_assert_uint_eq(f.n, 0);
	image_done(&img);
}
END_TEST

/* A directory keeps the name in the directory that it calls its parent, whichever is found first. */
START_TEST(test_second_name)
{
	struct image img;
	struct found f;

	image_init(&img);
	image_add_name(&img, 21, "again", 17, DT_DIR);
	image_add_name(&img, 1, "deep", 21, DT_DIR);
	mend(&img, &f);
	ck_assert(found_code(&f, NVEFS_P_DIR_TWICE));
	ck_assert_uint_eq(lookup(&img, 1, "dir"), 17);
	ck_assert_uint_eq(lookup(&img, 21, "again"), 0);
	ck_assert_uint_eq((lookup(&img, 1, "deep") == 21) + (lookup(&img, 1, "many") == 21), 1);
	ck_assert_uint_eq(lookup(&img, 1, "lost+found"), 0);
	image_done(&img);
}
END_TEST

static void parent_21(struct nvefs_inode_rec *r)
{
	r->parent = 21;
}

START_TEST(test_second_name_first)
{
	struct image img;
	struct found f;

	image_init(&img);
	image_add_name(&img, 21, "home", 17, DT_DIR);
	image_edit_inode(&img, 17, parent_21);
	mend(&img, &f);
	ck_assert(found_code(&f, NVEFS_P_DIR_TWICE));
	ck_assert_uint_eq(lookup(&img, 1, "dir"), 0);
	ck_assert_uint_eq(lookup(&img, 21, "home"), 17);
	ck_assert_uint_eq(inode(&img, 17).parent, 21);
	image_done(&img);
}
END_TEST

START_TEST(test_wrong_hash)
{
	struct nvefs_key key;
	uint8_t val[NVEFS_VALUE_MAX];
	struct image img;
	struct found f;
	uint32_t len;

	image_init(&img);
	key = image_name_key(&img, 1, NVEFS_KIND_DIRENT, "file");
	len = image_get(&img, key, val);
	image_del(&img, key);
	key.offset ^= 1;
	image_put(&img, key, val, len);
	mend(&img, &f);
	ck_assert_uint_eq(lookup(&img, 1, "file"), 16);
	ck_assert_int_eq(get(&img, key, val, &len), -ENOENT);
	ck_assert_uint_eq(inode(&img, 1).size, 4);
	image_done(&img);
}
END_TEST

/* The inode is gone, its content is not: it is made anew, and the names still lead to it. */
START_TEST(test_inode_anew)
{
	struct image img;
	struct found f;

	image_init(&img);
	image_del(&img, nvefs_key_make(16, NVEFS_KIND_INODE, 0));
	image_del(&img, nvefs_key_make(21, NVEFS_KIND_INODE, 0));
	image_del(&img, nvefs_key_make(1, NVEFS_KIND_INODE, 0));
	mend(&img, &f);
	ck_assert_uint_eq(inode(&img, 16).mode, S_IFREG | 0600);
	ck_assert_uint_eq(inode(&img, 16).size, 3 * NVEFS_BLOCK_SIZE);
	ck_assert_uint_eq(inode(&img, 16).nlink, 2);
	ck_assert_uint_eq(inode(&img, 21).mode, S_IFDIR | 0700);
	ck_assert_uint_eq(inode(&img, 21).size, IMAGE_MANY);
	ck_assert_uint_eq(lookup(&img, 1, "file"), 16);
	ck_assert_uint_eq(lookup(&img, 1, "many"), 21);
	ck_assert_uint_eq(lookup(&img, 1, "lost+found"), 0);
	image_done(&img);
}
END_TEST

/* The type is what the items say. */
static void make_fifo(struct nvefs_inode_rec *r)
{
	r->mode = S_IFIFO | 0644;
	r->size = r->blks = 0;
}

START_TEST(test_type)
{
	struct image img;
	struct found f;

	image_init(&img);
	image_edit_inode(&img, 16, make_fifo);
	mend(&img, &f);
	ck_assert_uint_eq(inode(&img, 16).mode, S_IFREG | 0644);
	ck_assert_uint_eq(inode(&img, 16).blks, 3);
	ck_assert(matches(&img, 16, 0));
	image_done(&img);
}
END_TEST

/* ---- Blocks ---- */

/* Inode 100, so far empty, maps inode 16's first block as well, with this checksum. */
static void claim(struct image *img, uint8_t type, uint64_t csum)
{
	struct nvefs_window w = {{nvefs_went_make(type, img->data[0])}, {type == NVEFS_EXT_DATA ? csum : 0}};
	uint8_t val[NVEFS_VALUE_MAX];
	uint32_t len = nvefs_map_encode(&w, val);

	image_put(img, nvefs_key_make(100, NVEFS_KIND_MAP, 0), val, len);
}

START_TEST(test_claimed_twice)
{
	uint64_t csum, mine;
	struct image img;
	struct found f;
	uint32_t count;
	struct nvefs_miss miss;

	/* 0: the same content, 1: another checksum, 2: unwritten */
	image_init(&img);
	mine = block_of(&img, 16, 0, &csum);
	claim(&img, _i == 2 ? NVEFS_EXT_UNWRITTEN : NVEFS_EXT_DATA, _i == 1 ? csum + 1 : csum);
	mend(&img, &f);
	ck_assert(found_code(&f, NVEFS_P_SHARE_COUNT));
	ck_assert_uint_eq(block_of(&img, 16, 0, &csum), mine);
	ck_assert(matches(&img, 16, 0));
	if (_i == 0)
		ck_assert_uint_eq(block_of(&img, 100, 0, &csum), mine);
	else
		ck_assert_uint_ne(block_of(&img, 100, 0, &csum), mine);
	/* Lost data reads as an error, and is never zeros. */
	ck_assert(_i == 2 || matches(&img, 100, 0) == (_i == 0));
	do {
		nvefs_store_rdlock(img.st);
		f.err = nvefs_ref_count(img.st, mine, &miss, &count);
		nvefs_store_rdunlock(img.st);
	} while (nvefs_store_retry(img.st, img.q, &miss, &f.err));
	ck_assert_uint_eq(count, _i == 0 ? 2 : 1);
	image_done(&img);
}
END_TEST

/* ---- What -p does ---- */

START_TEST(test_preen)
{
	struct image img;
	struct found f;
	uint8_t *block;

	image_init(&img);
	image_del(&img, nvefs_key_make(100, NVEFS_KIND_INODE, 0)); /* a name leads nowhere: not safe */
	image_del(&img, nvefs_key_make(16, NVEFS_KIND_MAP, 0));	   /* blocks that nothing uses: safe */
	image_close(&img);
	image_mend(&img, NVEFS_REPAIR_SAFE, &f);
	ck_assert_int_eq(f.err, 0);
	ck_assert_uint_eq(f.res.left, 1);
	ck_assert_uint_gt(f.res.problems, 1);
	ck_assert(!f.res.held);
	image_check(&img, false, &f);
	ck_assert_uint_eq(f.n, 1);
	ck_assert_uint_eq(f.codes[0], NVEFS_P_DIRENT_ABSENT);

	/* In a tree that is not whole nothing is safe, but for the superblock's slots. */
	block = image_block(&img, image_leaf(&img));
	image_put_back(&img, image_leaf(&img), memset(block, 1, NVEFS_BLOCK_SIZE), false);
	block = image_block(&img, 1);
	image_put_back(&img, 1, memset(block, 1, NVEFS_BLOCK_SIZE), false);
	image_mend(&img, NVEFS_REPAIR_SAFE, &f);
	ck_assert_int_eq(f.err, 0);
	ck_assert(found_code(&f, NVEFS_P_SUPER_DAMAGED));
	ck_assert_uint_gt(f.res.left, 0);
	image_check(&img, false, &f);
	ck_assert(!found_code(&f, NVEFS_P_SUPER_DAMAGED));
	ck_assert(found_code(&f, NVEFS_P_NODE_DAMAGED));
	image_done(&img);
}
END_TEST

/* A journal without a beginning: what its groups hold is found all the same. */
START_TEST(test_journal)
{
	struct image img;
	struct found f;

	image_init(&img);
	ck_assert_int_eq(nvefs_commit_run(img.st, false), 0);
	image_add_name(&img, 1, "newest", 16, DT_REG);
	image_crash(&img);
	for (unsigned int i = 0; i < NVEFS_JOURNAL_HEADERS; i++) {
		uint8_t *block = image_block(&img, nvefs_journal_header_pblk(&img.sb, i));

		image_put_back(&img, nvefs_journal_header_pblk(&img.sb, i), memset(block, 0, NVEFS_BLOCK_SIZE), false);
	}
	mend(&img, &f);
	ck_assert(found_code(&f, NVEFS_P_JHEADERS));
	ck_assert_uint_eq(lookup(&img, 1, "newest"), 16);
	ck_assert(matches(&img, 16, 0));
	image_done(&img);
}
END_TEST

/* Leaves that were given up lie about in free blocks: what they held stays removed. */
START_TEST(test_stays_removed)
{
	const struct nvefs_inode_rec rec = {.mode = S_IFREG | 0644, .nlink = 1, .xvalue_next = 1};
	struct nvefs_disk_inode d;
	uint8_t bytes[1900] = {1}, *block;
	uint64_t root;
	struct image img;
	struct found f;
	uint32_t len;

	image_init(&img);
	nvefs_inode_encode(&rec, &d);
	image_put(&img, nvefs_key_make(500, NVEFS_KIND_INODE, 0), &d, sizeof(d));
	for (uint32_t i = 0; i < 40; i++)
		image_put(&img, nvefs_key_make(500, NVEFS_KIND_XVALUE, 1 << 8 | i), bytes, sizeof(bytes));
	image_close(&img);
	reopen(&img);
	for (uint32_t i = 0; i < 40; i++)
		image_del(&img, nvefs_key_make(500, NVEFS_KIND_XVALUE, 1 << 8 | i));
	image_del(&img, nvefs_key_make(500, NVEFS_KIND_INODE, 0));
	image_close(&img);
	root = image_root_node(&img);
	block = image_block(&img, root);
	image_put_back(&img, root, memset(block, 0, NVEFS_BLOCK_SIZE), false);
	/* Nor do images of them in the journal's log count. */
	if (_i)
		for (uint32_t i = 0; i < nvefs_journal_log_blks(&img.sb); i++) {
			block = nvefs_buf_new_zeroed(NVEFS_BLOCK_SIZE);
			image_put_back(&img, nvefs_journal_log_pblk(&img.sb, i), block, false);
		}
	mend(&img, &f);
	ck_assert(found_code(&f, NVEFS_P_NODE_DAMAGED));
	ck_assert_msg(f.n == 1, "NV%04x: something came back", f.codes[1]);
	ck_assert_int_eq(get(&img, nvefs_key_make(500, NVEFS_KIND_INODE, 0), bytes, &len), -ENOENT);
	ck_assert_uint_eq(lookup(&img, 1, "lost+found"), 0);
	ck_assert_uint_eq(lookup(&img, 1, "file"), 16);
	image_done(&img);
}
END_TEST

/* No room for a new tree: it is said, and nothing is changed. */
static uint64_t device_sum(struct image *img)
{
	uint64_t sum = 0;

	for (uint64_t p = 0; p < img->sb.nblks; p++) {
		uint8_t *block = image_block(img, p);

		sum = nvefs_hash(block, NVEFS_BLOCK_SIZE, sum);
		nvefs_buf_free(block);
	}
	return sum;
}

START_TEST(test_no_room)
{
	uint64_t first = 0, sum, root;
	struct image img;
	struct found f;
	uint8_t *block;

	image_init(&img);
	/* All that is free belongs to a file: the bitmap may say what it likes. */
	for (uint64_t window = 10; (first = img.sb.journal_pblk + img.sb.journal_blks + (window - 10) * 64) < img.sb.nblks;
	     window++) {
		struct nvefs_window w = {{0}, {0}};
		uint8_t val[NVEFS_VALUE_MAX];

		for (uint64_t i = 0; i < 64 && first + i < img.sb.nblks - 1; i++)
			w.pblk[i] = nvefs_went_make(NVEFS_EXT_UNWRITTEN, first + i);
		image_put(&img, nvefs_key_make(16, NVEFS_KIND_MAP, window), val, nvefs_map_encode(&w, val));
	}
	image_close(&img);
	root = image_root_node(&img);
	block = image_block(&img, root);
	image_put_back(&img, root, memset(block, 0, NVEFS_BLOCK_SIZE), false);
	sum = device_sum(&img);
	image_mend(&img, NVEFS_REPAIR_ALL, &f);
	ck_assert_int_eq(f.err, 0);
	ck_assert_int_eq(f.res.stopped, -ENOSPC);
	ck_assert_uint_gt(f.res.left, 0);
	ck_assert_uint_eq(f.res.left, f.res.problems);
	ck_assert_uint_eq(device_sum(&img), sum);
	image_done(&img);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fsck");
	TCase *tc = tcase_create("mend");

	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	tcase_add_test(tc, test_lost_and_found);
	tcase_add_test(tc, test_lost_and_found_again);
	tcase_add_loop_test(tc, test_impossible_copy, 0, 4);
	tcase_add_test(tc, test_second_name);
	tcase_add_test(tc, test_second_name_first);
	tcase_add_test(tc, test_wrong_hash);
	tcase_add_loop_test(tc, test_stays_removed, 0, 2);
	tcase_add_test(tc, test_inode_anew);
	tcase_add_test(tc, test_type);
	tcase_add_loop_test(tc, test_claimed_twice, 0, 3);
	tcase_add_test(tc, test_preen);
	tcase_add_test(tc, test_no_room);
	tcase_add_test(tc, test_journal);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
