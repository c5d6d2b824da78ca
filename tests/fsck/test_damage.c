/* SPDX-License-Identifier: MIT */
/*
 * Damage of every kind, one at a time: each is found, under its own code.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../support/suites.h"
#include "base/bitmap.h"
#include "base/buf.h"
#include "base/log.h"
#include "format/block.h"
#include "format/dirent.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/map.h"
#include "format/node.h"
#include "image.h"

/* ---- Wrong items, put by a transaction ---- */

static void more_blks(struct nvefs_inode_rec *r)
{
	r->blks++;
}
static void more_links(struct nvefs_inode_rec *r)
{
	r->nlink++;
}
static void more_entries(struct nvefs_inode_rec *r)
{
	r->size++;
}
static void more_subdirs(struct nvefs_inode_rec *r)
{
	r->subdirs++;
	r->nlink++;
}
static void shorter(struct nvefs_inode_rec *r)
{
	r->size--;
}
static void other_parent(struct nvefs_inode_rec *r)
{
	r->parent = 21;
}
static void own_parent(struct nvefs_inode_rec *r)
{
	r->parent = 17;
}
static void low_value_no(struct nvefs_inode_rec *r)
{
	r->xvalue_next = 1;
}

static void inode_blks(struct image *img)
{
	image_edit_inode(img, 16, more_blks);
}
static void inode_nlink(struct image *img)
{
	image_edit_inode(img, 16, more_links);
}
static void inode_misfit(struct image *img)
{
	image_put(img, nvefs_key_make(100, NVEFS_KIND_SYMLINK, 0), "target", 6);
}
static void inode_absent(struct image *img)
{
	image_del(img, nvefs_key_make(16, NVEFS_KIND_INODE, 0));
}
static void dirent_absent(struct image *img)
{
	image_del(img, nvefs_key_make(100, NVEFS_KIND_INODE, 0));
}
static void root_absent(struct image *img)
{
	image_del(img, nvefs_key_make(1, NVEFS_KIND_INODE, 0));
}
static void dir_size(struct image *img)
{
	image_edit_inode(img, 17, more_entries);
}
static void dir_subdirs(struct image *img)
{
	image_edit_inode(img, 17, more_subdirs);
}
static void dir_parent(struct image *img)
{
	image_edit_inode(img, 17, other_parent);
}
static void dir_twice(struct image *img)
{
	image_add_name(img, 21, "again", 17, DT_DIR);
}
static void dir_loop(struct image *img)
{
	image_del(img, image_name_key(img, 1, NVEFS_KIND_DIRENT, "dir"));
	image_add_name(img, 17, "self", 17, DT_DIR);
	image_edit_inode(img, 17, own_parent);
}
static void symlink_size(struct image *img)
{
	image_edit_inode(img, 18, shorter);
}
static void symlink_piece(struct image *img)
{
	image_del(img, nvefs_key_make(18, NVEFS_KIND_SYMLINK, 0));
}
static void xvalue_short(struct image *img)
{
	image_del(img, nvefs_key_make(16, NVEFS_KIND_XVALUE, 1 << 8 | 1));
}
static void xvalue_unused(struct image *img)
{
	image_put(img, nvefs_key_make(16, NVEFS_KIND_XVALUE, 7 << 8), "bytes", 5);
}
static void xvalue_next(struct image *img)
{
	image_edit_inode(img, 16, low_value_no);
}
static void xattr_hash(struct image *img)
{
	struct nvefs_key key = image_name_key(img, 16, NVEFS_KIND_XATTR, "user.small");
	uint8_t val[NVEFS_VALUE_MAX];
	uint32_t len = image_get(img, key, val);

	image_del(img, key);
	key.offset ^= 1;
	image_put(img, key, val, len);
}
static void dirent_hash(struct image *img)
{
	struct nvefs_key key = image_name_key(img, 1, NVEFS_KIND_DIRENT, "file");
	uint8_t val[NVEFS_VALUE_MAX];
	uint32_t len = image_get(img, key, val);

	image_del(img, key);
	key.offset ^= 1;
	image_put(img, key, val, len);
}
static void dirent_type(struct image *img)
{
	image_add_name(img, 1, "file", 16, DT_FIFO);
}
static void inode_lost(struct image *img)
{
	image_del(img, nvefs_orphan_key(20));
}
static void orphan_absent(struct image *img)
{
	struct nvefs_disk_orphan o = nvefs_orphan_encode(NVEFS_ORPHAN_UNLINKED);

	image_put(img, nvefs_orphan_key(999), &o, sizeof(o));
}
static void orphan_named(struct image *img)
{
	struct nvefs_disk_orphan o = nvefs_orphan_encode(NVEFS_ORPHAN_UNLINKED);

	image_put(img, nvefs_orphan_key(19), &o, sizeof(o));
}
static void put_window(struct image *img, uint64_t ino, uint64_t window, uint64_t pblk)
{
	struct nvefs_window w = {{nvefs_went_make(NVEFS_EXT_UNWRITTEN, pblk)}, {0}};
	uint8_t val[NVEFS_VALUE_MAX];
	uint32_t len = nvefs_map_encode(&w, val);

	image_put(img, nvefs_key_make(ino, NVEFS_KIND_MAP, window), val, len);
}
static void share_count(struct image *img)
{
	put_window(img, 16, 9, img->data[0]);
}
static void share_high(struct image *img)
{
	image_ref(img, img->data[2], 1);
}
static void share_unused(struct image *img)
{
	struct nvefs_disk_share s = nvefs_share_encode(2);

	image_put(img, nvefs_share_key(img->sb.nblks - 100), &s, sizeof(s));
}
static void block_leaked(struct image *img)
{
	image_del(img, nvefs_key_make(16, NVEFS_KIND_MAP, 0));
}
static void block_free(struct image *img)
{
	put_window(img, 16, 9, img->sb.nblks - 100);
}
static void map_meta(struct image *img)
{
	uint64_t pblk;

	nvefs_store_rdlock(img->st);
	pblk = nvefs_store_root(img->st)->tree_pblk;
	nvefs_store_rdunlock(img->st);
	put_window(img, 16, 9, pblk);
}
static void group_free(struct image *img)
{
	struct nvefs_group_rec rec;
	struct nvefs_disk_group d;
	uint8_t val[NVEFS_VALUE_MAX];
	uint32_t len = image_get(img, nvefs_group_key(0), val);

	ck_assert_int_eq(nvefs_group_decode(val, len, &rec), 0);
	rec.free_blks--;
	d = nvefs_group_encode(&rec);
	image_put(img, nvefs_group_key(0), &d, sizeof(d));
}
static void group_extra(struct image *img)
{
	struct nvefs_disk_group d = {.free_blks = le32_make(1)};

	image_put(img, nvefs_group_key(77), &d, sizeof(d));
}
static void item_kind(struct image *img)
{
	image_put(img, nvefs_key_make(16, 0x77, 0), "bytes", 5);
}
static void item_value(struct image *img)
{
	image_put(img, nvefs_key_make(100, NVEFS_KIND_INODE, 0), "bytes", 5);
}
static void raise_inodes(struct nvefs_root *root)
{
	root->inodes++;
}
static void raise_meta(struct nvefs_root *root)
{
	root->meta_blks++;
}
static void raise_shared(struct nvefs_root *root)
{
	root->shared_blks++;
}
static void raise_refs(struct nvefs_root *root)
{
	root->shared_refs++;
}
static void lower_next_ino(struct nvefs_root *root)
{
	root->next_ino = 100;
}
static void root_inodes(struct image *img)
{
	image_edit_root(img, raise_inodes);
}
static void root_meta(struct image *img)
{
	image_edit_root(img, raise_meta);
}
static void root_shared(struct image *img)
{
	image_edit_root(img, raise_shared);
}
static void root_refs(struct image *img)
{
	image_edit_root(img, raise_refs);
}
static void root_next(struct image *img)
{
	image_edit_root(img, lower_next_ino);
}

/* ---- Wrong blocks, below the closed store ---- */

static void scratch(struct image *img, uint64_t pblk)
{
	uint8_t *block = image_block(img, pblk);

	block[300] ^= 0x10;
	image_put_back(img, pblk, block, false);
}

static void super_damaged(struct image *img)
{
	scratch(img, 1);
}
static void edit_super(struct image *img, unsigned int slot, uint64_t seq, uint64_t hash_seed)
{
	uint64_t pblk = nvefs_super_slot_pblk(img->sb.nblks, slot);
	uint8_t *block = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_super sb = img->sb;

	sb.seq += seq;
	sb.hash_seed += hash_seed;
	nvefs_super_encode(&sb, pblk, block);
	image_put_back(img, pblk, block, true);
}
static void super_old(struct image *img)
{
	edit_super(img, 0, 1, 0);
}
static void super_differs(struct image *img)
{
	edit_super(img, 1, 0, 1);
}
static void super_all(struct image *img)
{
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++)
		scratch(img, nvefs_super_slot_pblk(img->sb.nblks, i));
}
static void device_short(struct image *img)
{
	img->sb.nblks += NVEFS_GROUP_BLKS;
	img->sb.ngroups++;
	for (unsigned int i = 0; i < 2; i++)
		edit_super(img, i, 1, 0);
}
static void jheaders(struct image *img)
{
	scratch(img, nvefs_journal_header_pblk(&img->sb, 0));
	scratch(img, nvefs_journal_header_pblk(&img->sb, 1));
}
static void root_damaged(struct image *img)
{
	scratch(img, NVEFS_ROOT_PBLK);
}
static void node_damaged(struct image *img)
{
	scratch(img, image_root_node(img));
}
static void leaf_damaged(struct image *img)
{
	scratch(img, image_leaf(img));
}
static void node_level(struct image *img)
{
	uint64_t pblk = image_leaf(img);
	uint8_t *block = image_block(img, pblk);

	((struct nvefs_disk_node *)block)->level = le16_make(3);
	image_put_back(img, pblk, block, true);
}
static void node_layout(struct image *img)
{
	uint64_t pblk = image_leaf(img);
	uint8_t *block = image_block(img, pblk);

	((struct nvefs_disk_node *)block)->heap_used = le16_make(8);
	image_put_back(img, pblk, block, true);
}
/* The second leaf in place of the first one, with all that its header must say. */
static void key_bounds(struct image *img)
{
	uint64_t root = image_root_node(img), first, second;
	uint8_t *block = image_block(img, root);

	first = nvefs_inner_pblk(block, 0);
	second = nvefs_inner_pblk(block, 1);
	nvefs_inner_set(block, 0, (struct nvefs_block_ref){.pblk = first, .txn = nvefs_inner_txn(block, 1)});
	image_put_back(img, root, block, true);
	block = image_block(img, second);
	((struct nvefs_disk_header *)block)->pblk = le64_make(first);
	image_put_back(img, first, block, true);
}
static void node_twice(struct image *img)
{
	uint64_t root = image_root_node(img);
	uint8_t *block = image_block(img, root);

	nvefs_inner_set(block, 0, nvefs_inner_child(block, 1));
	image_put_back(img, root, block, true);
}
static void node_fixed(struct image *img)
{
	uint64_t root = image_root_node(img);
	uint8_t *block = image_block(img, root);

	nvefs_inner_set(block, 1,
			(struct nvefs_block_ref){.pblk = NVEFS_JOURNAL_PBLK, .txn = nvefs_inner_txn(block, 1)});
	image_put_back(img, root, block, true);
}
static void bitmap_damaged(struct image *img)
{
	scratch(img, nvefs_layout_bitmap_pblk(0));
}
static void bitmap_txn(struct image *img)
{
	uint8_t *block = image_block(img, NVEFS_BITMAP0_PBLK);

	nvefs_block_set_txn(block, nvefs_block_txn(block) - 1);
	image_put_back(img, NVEFS_BITMAP0_PBLK, block, true);
}
static void bitmap_bit(struct image *img, uint64_t pblk, bool set)
{
	uint8_t *block = image_block(img, NVEFS_BITMAP0_PBLK);
	uint8_t *bits = ((struct nvefs_disk_bitmap *)block)->bits;

	if (set)
		nvefs_bitmap_set(bits, (uint32_t)pblk);
	else
		nvefs_bitmap_clear(bits, (uint32_t)pblk);
	image_put_back(img, NVEFS_BITMAP0_PBLK, block, true);
}
static void bit_set(struct image *img)
{
	bitmap_bit(img, img->sb.nblks - 100, true);
}
static void bit_clear(struct image *img)
{
	bitmap_bit(img, img->data[1], false);
}
static void root_free(struct image *img)
{
	uint8_t *block = image_block(img, NVEFS_ROOT_PBLK);
	struct nvefs_disk_root *d = (void *)block;

	d->free_blks = le64_make(le64_get(d->free_blks) + 1);
	image_put_back(img, NVEFS_ROOT_PBLK, block, true);
}
static void data_checksum(struct image *img)
{
	scratch(img, img->data[1]);
}

static const struct damage {
	const char *name;
	uint32_t code;
	void (*open)(struct image *img);   /* through the store */
	void (*closed)(struct image *img); /* below it */
} damages[] = {
	{"superblock slot damaged", NVEFS_P_SUPER_DAMAGED, NULL, super_damaged},
	{"superblock slot old", NVEFS_P_SUPER_OLD, NULL, super_old},
	{"superblock slot differs", NVEFS_P_SUPER_DIFFERS, NULL, super_differs},
	{"no superblock slot", NVEFS_P_SUPER_DAMAGED, NULL, super_all},
	{"device shorter", NVEFS_P_DEVICE_SHORT, NULL, device_short},
	{"both journal headers damaged", NVEFS_P_JHEADERS, NULL, jheaders},
	{"root block damaged", NVEFS_P_OPEN, NULL, root_damaged},
	{"root node damaged", NVEFS_P_NODE_DAMAGED, NULL, node_damaged},
	{"leaf damaged", NVEFS_P_NODE_DAMAGED, NULL, leaf_damaged},
	{"node of another level", NVEFS_P_NODE_LEVEL, NULL, node_level},
	{"node layout", NVEFS_P_NODE_LAYOUT, NULL, node_layout},
	{"keys out of bounds", NVEFS_P_KEY_BOUNDS, NULL, key_bounds},
	{"node twice", NVEFS_P_NODE_TWICE, NULL, node_twice},
	{"node at a fixed address", NVEFS_P_NODE_FIXED, NULL, node_fixed},
	{"unknown kind", NVEFS_P_ITEM_KIND, item_kind, NULL},
	{"damaged value", NVEFS_P_ITEM_VALUE, item_value, NULL},
	{"inode item missing", NVEFS_P_INODE_ABSENT, inode_absent, NULL},
	{"mapped blocks", NVEFS_P_INODE_BLKS, inode_blks, NULL},
	{"items of another type", NVEFS_P_INODE_MISFIT, inode_misfit, NULL},
	{"symlink size", NVEFS_P_SYMLINK, symlink_size, NULL},
	{"symlink piece missing", NVEFS_P_SYMLINK, symlink_piece, NULL},
	{"directory size", NVEFS_P_DIR_SIZE, dir_size, NULL},
	{"subdirectories", NVEFS_P_DIR_SUBDIRS, dir_subdirs, NULL},
	{"attribute value short", NVEFS_P_XVALUE_SHORT, xvalue_short, NULL},
	{"attribute value unused", NVEFS_P_XVALUE_UNUSED, xvalue_unused, NULL},
	{"attribute value number", NVEFS_P_XVALUE_NEXT, xvalue_next, NULL},
	{"attribute hash", NVEFS_P_XATTR_HASH, xattr_hash, NULL},
	{"entry hash", NVEFS_P_DIRENT_HASH, dirent_hash, NULL},
	{"inode number", NVEFS_P_INODE_NUMBER, root_next, NULL},
	{"root directory missing", NVEFS_P_ROOT_INODE, root_absent, NULL},
	{"entry names nothing", NVEFS_P_DIRENT_ABSENT, dirent_absent, NULL},
	{"entry type", NVEFS_P_DIRENT_TYPE, dirent_type, NULL},
	{"directory twice", NVEFS_P_DIR_TWICE, dir_twice, NULL},
	{"directory parent", NVEFS_P_DIR_PARENT, dir_parent, NULL},
	{"link count", NVEFS_P_NLINK, inode_nlink, NULL},
	{"inode without a name", NVEFS_P_INODE_LOST, inode_lost, NULL},
	{"orphan of nothing", NVEFS_P_ORPHAN_ABSENT, orphan_absent, NULL},
	{"orphan with a name", NVEFS_P_ORPHAN_NAMED, orphan_named, NULL},
	{"directory loop", NVEFS_P_DIR_LOOP, dir_loop, NULL},
	{"block shared without a count", NVEFS_P_SHARE_COUNT, share_count, NULL},
	{"share count too high", NVEFS_P_SHARE_COUNT, share_high, NULL},
	{"share count of nothing", NVEFS_P_SHARE_UNUSED, share_unused, NULL},
	{"map dropped", NVEFS_P_BLOCK_LEAKED, block_leaked, NULL},
	{"bit set", NVEFS_P_BLOCK_LEAKED, NULL, bit_set},
	{"free block mapped", NVEFS_P_BLOCK_FREE, block_free, NULL},
	{"bit clear", NVEFS_P_BLOCK_FREE, NULL, bit_clear},
	{"data mapped to metadata", NVEFS_P_MAP_META, map_meta, NULL},
	{"bitmap damaged", NVEFS_P_BITMAP_DAMAGED, NULL, bitmap_damaged},
	{"group's free count", NVEFS_P_GROUP_FREE, group_free, NULL},
	{"bitmap of another time", NVEFS_P_BITMAP_TXN, NULL, bitmap_txn},
	{"group beyond the end", NVEFS_P_GROUP_EXTRA, group_extra, NULL},
	{"root: free blocks", NVEFS_P_ROOT_FREE, NULL, root_free},
	{"root: tree nodes", NVEFS_P_ROOT_META, root_meta, NULL},
	{"root: inodes", NVEFS_P_ROOT_INODES, root_inodes, NULL},
	{"root: shared blocks", NVEFS_P_ROOT_SHARED, root_shared, NULL},
	{"root: shared references", NVEFS_P_ROOT_REFS, root_refs, NULL},
	{"root: next inode", NVEFS_P_ROOT_NEXT_INO, root_next, NULL},
	{"data block damaged", NVEFS_P_DATA_CHECKSUM, NULL, data_checksum},
};
#define NDAMAGES (sizeof(damages) / sizeof(damages[0]))

START_TEST(test_damage)
{
	const struct damage *d = &damages[_i];
	struct image img;
	struct found f;

	image_init(&img);
	if (d->open)
		d->open(&img);
	image_close(&img);
	if (d->closed)
		d->closed(&img);
	image_check(&img, true, &f);
	ck_assert_msg(found_code(&f, d->code), "%s: NV%04x was not found, but %u problems, the first NV%04x", d->name,
		      d->code, f.n, f.n ? f.codes[0] : 0);
	ck_assert_int_eq(f.err, 0);
	if (nvefs_problem_info(d->code)->severity == NVEFS_SEV_NOTE)
		ck_assert_uint_eq(f.res.problems, 0);
	else
		ck_assert_uint_gt(f.res.problems, 0);
	image_done(&img);
}
END_TEST

/* What is there beyond mending, and what -p must leave to somebody who says yes. */
static bool must_stay(uint32_t code)
{
	return nvefs_problem_info(code)->mender == NVEFS_MEND_NONE;
}

START_TEST(test_mend)
{
	const struct damage *d = &damages[_i];
	bool stay = must_stay(d->code) || d->closed == super_all;
	struct image img;
	struct found f;

	image_init(&img);
	if (d->open)
		d->open(&img);
	image_close(&img);
	if (d->closed)
		d->closed(&img);
	image_mend(&img, NVEFS_REPAIR_ALL, &f);
	ck_assert_int_eq(f.err, 0);
	ck_assert_msg(found_code(&f, d->code) || d->code == NVEFS_P_DATA_CHECKSUM, "%s: NV%04x was not found", d->name,
		      d->code);
	ck_assert_msg(stay || !f.res.left, "%s: %llu of %llu problems are left, the last NV%04x, after %u rounds", d->name,
		      (unsigned long long)f.res.left, (unsigned long long)f.res.problems, f.n ? f.codes[f.n - 1] : 0,
		      f.res.rounds);
	if (!stay) {
		image_check(&img, false, &f);
		ck_assert_msg(!f.n, "%s: mended, but NV%04x", d->name, f.codes[0]);
	}
	image_done(&img);
}
END_TEST

START_TEST(test_clean)
{
	struct image img;
	struct found f;

	image_init(&img);
	image_close(&img);
	image_check(&img, true, &f);
	ck_assert_msg(!f.n, "a sound image: NV%04x", f.codes[0]);
	ck_assert_int_eq(f.err, 0);
	ck_assert_uint_eq(f.res.data_checked_blks, 4);
	ck_assert_uint_eq(f.res.data_blks, 3);
	ck_assert_uint_eq(f.res.shared_blks, 1);
	ck_assert_uint_eq(f.res.dirs, 3);
	ck_assert_uint_eq(f.res.files, 3 + IMAGE_MANY);
	ck_assert_uint_eq(f.res.orphans, 1);
	image_done(&img);
}
END_TEST

START_TEST(test_crashed_is_clean)
{
	struct image img;
	struct found f;

	image_init(&img);
	image_crash(&img);
	image_check(&img, true, &f);
	ck_assert_msg(!f.n, "after a power cut: NV%04x", f.codes[0]);
	ck_assert_int_eq(f.err, 0);
	ck_assert_uint_gt(f.res.replayed_txns, 0);
	ck_assert_uint_eq(f.res.data_checked_blks, 4);
	image_done(&img);
}
END_TEST

static char paths[512];

static void note_path(void *arg, uint64_t ino, const char *path)
{
	size_t at = strlen(paths);

	(void)arg;
	snprintf(paths + at, sizeof(paths) - at, "%llu=%s ", (unsigned long long)ino, path);
}

/* Damaged data is told by the names of the files, and exactly as many blocks as are damaged. */
START_TEST(test_paths)
{
	struct nvefs_check_opts opts = {.replay_in_memory = true, .data = true, .name = note_path};
	struct nvefs_check_result res;
	struct image img;

	image_init(&img);
	image_edit_inode(&img, 18, shorter);
	image_close(&img);
	scratch(&img, img.data[0]);
	scratch(&img, img.data[2]);
	paths[0] = '\0';
	ck_assert_int_eq(nvefs_check(img.dev, &opts, &res, NULL), 0);
	/* The shared block belongs to two files. */
	ck_assert_uint_eq(res.problems, 4);
	ck_assert_ptr_nonnull(strstr(paths, "18=/dir/link "));
	ck_assert_ptr_nonnull(strstr(paths, "19=/clone "));
	ck_assert_msg(strstr(paths, "16=/file ") || strstr(paths, "16=/dir/hard "), "%s", paths);
	image_done(&img);
}
END_TEST

START_TEST(test_no_nvefs)
{
	struct nvefs_dev_open_opts open_opts = {0};
	struct nvefs_check_opts opts = {.replay_in_memory = true};
	struct nvefs_check_result res;
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;

	ck_assert_int_eq(nvefs_dev_open("ram:64M", &open_opts, &dev, &err), 0);
	ck_assert_int_eq(nvefs_check(dev, &opts, &res, &err), -EMEDIUMTYPE);
	ck_assert_ptr_nonnull(strstr(err.text, "no nvefs"));
	nvefs_dev_close(dev);
}
END_TEST

START_TEST(test_table)
{
	for (size_t i = 0; i < NDAMAGES; i++) {
		const struct nvefs_problem_info *info = nvefs_problem_info(damages[i].code);

		ck_assert_msg(info && info->code == damages[i].code, "NV%04x is not in the table", damages[i].code);
		ck_assert_int_ne(info->text[0], '\0');
	}
	ck_assert_ptr_null(nvefs_problem_info(0x9999));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fsck");
	TCase *tc = tcase_create("damage");

	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	tcase_add_test(tc, test_clean);
	tcase_add_test(tc, test_crashed_is_clean);
	tcase_add_test(tc, test_paths);
	tcase_add_test(tc, test_no_nvefs);
	tcase_add_test(tc, test_table);
	tcase_add_loop_test(tc, test_damage, 0, (int)NDAMAGES);
	tcase_add_loop_test(tc, test_mend, 0, (int)NDAMAGES);
	suite_add_tcase(s, tc);
	return run_suites(s, NULL);
}
