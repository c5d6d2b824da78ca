/* SPDX-License-Identifier: MIT */
#include "image.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "format/block.h"
#include "format/dirent.h"
#include "format/layout.h"
#include "format/map.h"
#include "format/node.h"
#include "format/xattr.h"
#include "store/alloc.h"
#include "store/mkfs.h"

/* ---- Transactions of one change ---- */

struct change {
	const struct nvefs_key *key;
	const void *val; /* NULL with key: remove */
	uint32_t len;
	void (*root)(struct nvefs_root *root);
	uint64_t pblk; /* reference to change, 0: none */
	int by;
};

static int prepare(struct nvefs_txn *t, const struct change *c)
{
	int err = c->key ? nvefs_tree_prepare(t, c->key) : 0;

	return !err && c->pblk ? nvefs_ref_prepare(t, c->pblk) : err;
}

static void apply(struct nvefs_txn *t, const struct change *c)
{
	if (c->key && c->val)
		ck_assert_int_eq(nvefs_tree_put(t, c->key, c->val, c->len), 0);
	else if (c->key)
		ck_assert_int_eq(nvefs_tree_del(t, c->key), 0);
	if (c->root)
		c->root(nvefs_store_root(t->st));
	if (c->pblk && c->by > 0)
		ck_assert_int_eq(nvefs_ref_up(t, c->pblk), 0);
	if (c->pblk && c->by < 0)
		ck_assert_int_eq(nvefs_ref_down(t, c->pblk, NULL), 0);
}

static void change(struct image *img, const struct change *c)
{
	uint32_t credits = nvefs_tree_credits(img->st) + nvefs_ref_credits(img->st);
	struct nvefs_txn t;
	int err;

	do {
		ck_assert_int_eq(nvefs_txn_begin(img->st, img->q, credits, 0, &t), 0);
		err = prepare(&t, c);
		if (!err)
			apply(&t, c);
		nvefs_txn_end(&t);
	} while (err && nvefs_store_retry(img->st, img->q, &t.miss, &err));
	ck_assert_int_eq(err, 0);
}

void image_put(struct image *img, struct nvefs_key key, const void *val, uint32_t len)
{
	struct change c = {.key = &key, .val = val, .len = len};

	change(img, &c);
}

void image_del(struct image *img, struct nvefs_key key)
{
	struct change c = {.key = &key};

	change(img, &c);
}

void image_edit_root(struct image *img, void (*edit)(struct nvefs_root *root))
{
	struct change c = {.root = edit};

	change(img, &c);
}

void image_ref(struct image *img, uint64_t pblk, int by)
{
	struct change c = {.pblk = pblk, .by = by};

	change(img, &c);
}

uint32_t image_get(struct image *img, struct nvefs_key key, void *val)
{
	struct nvefs_miss miss;
	const void *v;
	uint32_t len = 0;
	int err;

	do {
		nvefs_store_rdlock(img->st);
		err = nvefs_tree_get(img->st, &key, &miss, &v, &len);
		if (!err)
			memcpy(val, v, len);
		nvefs_store_rdunlock(img->st);
	} while (err && nvefs_store_retry(img->st, img->q, &miss, &err));
	ck_assert_int_eq(err, 0);
	return len;
}

/* ---- Items ---- */

static void put_inode(struct image *img, uint64_t ino, const struct nvefs_inode_rec *rec)
{
	struct nvefs_disk_inode d;

	nvefs_inode_encode(rec, &d);
	image_put(img, nvefs_key_make(ino, NVEFS_KIND_INODE, 0), &d, sizeof(d));
}

void image_edit_inode(struct image *img, uint64_t ino, void (*edit)(struct nvefs_inode_rec *rec))
{
	uint8_t val[NVEFS_VALUE_MAX];
	struct nvefs_inode_rec rec;
	uint32_t len = image_get(img, nvefs_key_make(ino, NVEFS_KIND_INODE, 0), val);

	ck_assert_int_eq(nvefs_inode_decode(val, len, &rec), 0);
	edit(&rec);
	put_inode(img, ino, &rec);
}

struct nvefs_key image_name_key(const struct image *img, uint64_t ino, uint8_t kind, const char *name)
{
	return nvefs_key_make(ino, kind, nvefs_name_hash(img->sb.hash_seed, name, (uint32_t)strlen(name)));
}

void image_add_name(struct image *img, uint64_t dir, const char *name, uint64_t ino, uint8_t dtype)
{
	uint8_t val[NVEFS_VALUE_MAX], slot;
	uint32_t len = 0;

	ck_assert_int_eq(nvefs_dirent_add(val, &len, name, (uint32_t)strlen(name), ino, dtype, &slot), 0);
	image_put(img, image_name_key(img, dir, NVEFS_KIND_DIRENT, name), val, len);
}

static void add_xattr(struct image *img, uint64_t ino, const char *name, uint32_t value_len, uint32_t value_no)
{
	struct nvefs_xattr x = {.name = name,
				.namelen = (uint8_t)strlen(name),
				.value = value_no ? NULL : "small",
				.value_len = value_len,
				.value_no = value_no};
	uint8_t val[NVEFS_VALUE_MAX];
	uint32_t len = 0;

	ck_assert_int_eq(nvefs_xattr_set(val, &len, &x), 0);
	image_put(img, image_name_key(img, ino, NVEFS_KIND_XATTR, name), val, len);
}

/* `len` bytes in pieces; `number` is what the offset holds above the piece's number. */
static void add_pieces(struct image *img, uint64_t ino, uint8_t kind, uint64_t number, uint32_t len)
{
	char bytes[NVEFS_PIECE_BYTES];

	memset(bytes, 'x', sizeof(bytes));
	for (uint32_t i = 0; i * NVEFS_PIECE_BYTES < len; i++) {
		uint32_t rest = len - i * NVEFS_PIECE_BYTES;

		image_put(img, nvefs_key_make(ino, kind, number + i), bytes,
			  rest < NVEFS_PIECE_BYTES ? rest : NVEFS_PIECE_BYTES);
	}
}

/* A data block with its content, reserved, written and mapped in memory. */
static uint64_t new_block(struct image *img, uint8_t fill, uint64_t *ret_csum)
{
	struct nvefs_alloc_cursor cursor = {0};
	void *block = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint32_t got;
	uint64_t pblk;

	memset(block, fill, NVEFS_BLOCK_SIZE);
	ck_assert_int_eq(nvefs_alloc_data(img->st, img->q, &cursor, 1, &pblk, &got, NULL), 0);
	ck_assert_int_eq(nvefs_queue_write(img->q, pblk, 1, block, 0), 0);
	nvefs_block_map(img->st, pblk, 1);
	*ret_csum = nvefs_hash(block, NVEFS_BLOCK_SIZE, img->sb.hash_seed);
	nvefs_buf_free(block);
	return pblk;
}

static void put_map(struct image *img, uint64_t ino, const struct nvefs_window *w)
{
	uint8_t val[NVEFS_VALUE_MAX];
	uint32_t len = nvefs_map_encode(w, val);

	image_put(img, nvefs_key_make(ino, NVEFS_KIND_MAP, 0), val, len);
}

static void add_data(struct image *img)
{
	struct nvefs_window w = {{0}, {0}}, clone = {{0}, {0}};

	for (uint32_t i = 0; i < 3; i++) {
		img->data[i] = new_block(img, (uint8_t)(i + 1), &w.csum[i]);
		w.pblk[i] = nvefs_went_make(NVEFS_EXT_DATA, img->data[i]);
		image_ref(img, img->data[i], 1);
		nvefs_block_unpin(img->st, img->data[i]);
	}
	image_ref(img, img->data[2], 1);
	clone.pblk[0] = w.pblk[2];
	clone.csum[0] = w.csum[2];
	put_map(img, 16, &w);
	put_map(img, 19, &clone);
}

static void count_inodes(struct nvefs_root *root)
{
	root->inodes = 6 + IMAGE_MANY + 1;
	root->next_ino = 1000;
}

static void fill(struct image *img)
{
	struct nvefs_inode_rec dir = {.mode = S_IFDIR | 0755, .nlink = 2, .parent = 1, .xvalue_next = 1};
	struct nvefs_inode_rec file = {.mode = S_IFREG | 0644, .nlink = 1, .xvalue_next = 1};
	struct nvefs_inode_rec link = {.mode = S_IFLNK | 0777, .nlink = 1, .size = IMAGE_LINK_LEN, .xvalue_next = 1};
	struct nvefs_disk_orphan orphan = nvefs_orphan_encode(NVEFS_ORPHAN_UNLINKED);
	struct nvefs_inode_rec rec;

	rec = dir, rec.size = 4, rec.subdirs = 2, rec.nlink = 4;
	put_inode(img, 1, &rec);
	rec = file, rec.nlink = 2, rec.size = 3 * NVEFS_BLOCK_SIZE, rec.blks = 3, rec.xvalue_next = 2;
	put_inode(img, 16, &rec);
	rec = dir, rec.size = 2;
	put_inode(img, 17, &rec);
	put_inode(img, 18, &link);
	rec = file, rec.size = NVEFS_BLOCK_SIZE, rec.blks = 1;
	put_inode(img, 19, &rec);
	rec = file, rec.nlink = 0;
	put_inode(img, 20, &rec);
	image_put(img, nvefs_orphan_key(20), &orphan, sizeof(orphan));
	rec = dir, rec.size = IMAGE_MANY;
	put_inode(img, 21, &rec);
	for (uint32_t i = 0; i < IMAGE_MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		put_inode(img, 100 + i, &file);
		image_add_name(img, 21, name, 100 + i, DT_REG);
	}
	image_add_name(img, 1, "file", 16, DT_REG);
	image_add_name(img, 1, "dir", 17, DT_DIR);
	image_add_name(img, 1, "clone", 19, DT_REG);
	image_add_name(img, 1, "many", 21, DT_DIR);
	image_add_name(img, 17, "link", 18, DT_LNK);
	image_add_name(img, 17, "hard", 16, DT_REG);
	add_pieces(img, 18, NVEFS_KIND_SYMLINK, 0, IMAGE_LINK_LEN);
	add_xattr(img, 16, "user.small", 5, 0);
	add_xattr(img, 16, "user.large", IMAGE_LARGE_LEN, 1);
	add_pieces(img, 16, NVEFS_KIND_XVALUE, 1 << 8, IMAGE_LARGE_LEN);
	add_data(img);
	image_edit_root(img, count_inodes);
}

/* ---- Life ---- */

static void init(struct image *img, uint32_t flags)
{
	struct nvefs_dev_open_opts open_opts = {0};
	struct nvefs_mkfs_params params = {.label = "damage", .creator = "test_fsck", .flags = flags};
	struct nvefs_store_opts opts = {0};
	struct nvefs_error err = {""};

	memset(img, 0, sizeof(*img));
	ck_assert_msg(!nvefs_dev_open("ram:64M", &open_opts, &img->dev, &err), "%s", err.text);
	ck_assert_msg(!nvefs_store_mkfs(img->dev, &params, &img->sb, &err), "%s", err.text);
	ck_assert_int_eq(nvefs_queue_init(img->dev, 0, &img->q), 0);
	ck_assert_msg(!nvefs_store_open(img->dev, &opts, &img->st, &err), "%s", err.text);
	ck_assert_int_eq(nvefs_store_start(img->st), 0);
	fill(img);
}

void image_init(struct image *img)
{
	init(img, 0);
}

void image_init_dup(struct image *img)
{
	init(img, NVEFS_SB_META_DUP);
}

void image_close(struct image *img)
{
	if (!img->st)
		return;
	ck_assert_int_eq(nvefs_store_stop(img->st), 0);
	nvefs_store_free(img->st);
	img->st = NULL;
}

void image_crash(struct image *img)
{
	ck_assert_int_eq(nvefs_commit_run(img->st, false), 0);
	nvefs_store_fail(img->st, -EIO, "the test cuts the power");
	nvefs_store_stop(img->st);
	nvefs_store_free(img->st);
	img->st = NULL;
}

void image_done(struct image *img)
{
	image_close(img);
	nvefs_queue_done(img->q);
	nvefs_dev_close(img->dev);
}

void image_read(struct image *img, uint64_t pblk, void *block)
{
	ck_assert_int_eq(nvefs_queue_read(img->q, pblk, 1, block), 0);
}

void image_write(struct image *img, uint64_t pblk, const void *block)
{
	ck_assert_int_eq(nvefs_queue_write(img->q, pblk, 1, block, 0), 0);
}

uint8_t *image_block(struct image *img, uint64_t pblk)
{
	uint8_t *block = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	image_read(img, pblk, block);
	return block;
}

void image_put_back(struct image *img, uint64_t pblk, uint8_t *block, bool seal)
{
	if (seal)
		nvefs_block_seal(block);
	image_write(img, pblk, block);
	nvefs_buf_free(block);
}

uint64_t image_root_node(struct image *img)
{
	uint8_t *block = image_block(img, NVEFS_ROOT_PBLK);
	struct nvefs_root root;

	ck_assert_int_eq(nvefs_root_decode(block, &img->sb, &root), 0);
	nvefs_buf_free(block);
	return root.tree_pblk;
}

uint64_t image_leaf(struct image *img)
{
	uint8_t *block = image_block(img, image_root_node(img));
	uint64_t pblk;

	ck_assert_uint_eq(nvefs_node_level(block), 1);
	pblk = nvefs_inner_pblk(block, 1);
	nvefs_buf_free(block);
	return pblk;
}

/* ---- Check ---- */

static void take(void *arg, const struct nvefs_problem *p)
{
	struct found *f = arg;
	char text[512];

	/* Rendering must stand whatever the image holds. */
	nvefs_problem_text(p, text, sizeof(text));
	ck_assert_uint_gt(strlen(text), 0);
	if (f->n < sizeof(f->codes) / sizeof(f->codes[0]))
		f->codes[f->n++] = p->code;
}

void image_check(struct image *img, bool data, struct found *ret)
{
	struct nvefs_check_opts opts = {.replay_in_memory = true, .data = data, .report = take, .arg = ret};
	struct nvefs_error err = {""};

	ret->n = 0;
	ret->err = nvefs_check(img->dev, &opts, &ret->res, &err);
	ck_assert_msg(!ret->err || err.text[0], "error %d without words", ret->err);
}

void image_mend(struct image *img, enum nvefs_repair repair, struct found *ret)
{
	struct nvefs_check_opts opts = {.repair = repair, .report = take, .arg = ret};
	struct nvefs_error err = {""};

	ret->n = 0;
	ret->err = nvefs_check(img->dev, &opts, &ret->res, &err);
	ck_assert_msg(!ret->err || err.text[0], "error %d without words", ret->err);
}

bool found_code(const struct found *f, uint32_t code)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (f->codes[i] == code)
			return true;
	return false;
}
