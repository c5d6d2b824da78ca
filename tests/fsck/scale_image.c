/* SPDX-License-Identifier: MIT */
/*
 * Large file systems, made item by item: "files N" has N empty files in
 * directories of a thousand, "data GIB" that many GiB of mapped data. Nobody has allocated the
 * data blocks, and the data was never written: fsck -y sets the bits. "written GIB" is the same
 * with the data, in pieces of 32 KiB that do not follow one another. Prints the number of items.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "format/dirent.h"
#include "format/inode.h"
#include "format/item.h"
#include "format/map.h"
#include "store/mkfs.h"

#define HASH_SEED 4711u
#define DIR_FILES 1000u
#define FIRST_DATA_GROUP 16u
#define GROUP_WINDOWS 500u
#define PIECE_BLKS 8u
#define GIB_WINDOWS ((1ull << 30) / (NVEFS_WINDOW_BLKS * NVEFS_BLOCK_SIZE))

struct image {
	struct nvefs_mkfs_item *items;
	uint32_t n, max;
	uint64_t inodes;
	bool written;
};

static void die(const char *what)
{
	fprintf(stderr, "scale_image: %s\n", what);
	exit(1);
}

static void fill(uint64_t *block, uint64_t pblk)
{
	for (uint32_t i = 0; i < NVEFS_BLOCK_SIZE / sizeof(*block); i++)
		block[i] = pblk << 16 | i;
}

static void add(struct image *img, struct nvefs_key key, const void *val, uint32_t len)
{
	void *copy = malloc(len);

	if (img->n == img->max) {
		img->max = img->max ? img->max * 2 : 1024;
		img->items = reallocarray(img->items, img->max, sizeof(*img->items));
	}
	if (!copy || !img->items)
		die("out of memory");
	memcpy(copy, val, len);
	img->items[img->n++] = (struct nvefs_mkfs_item){.key = key, .val = copy, .len = len};
}

static void add_inode(struct image *img, uint64_t ino, const struct nvefs_inode_rec *rec)
{
	struct nvefs_disk_inode d;

	nvefs_inode_encode(rec, &d);
	add(img, nvefs_key_make(ino, NVEFS_KIND_INODE, 0), &d, sizeof(d));
	img->inodes++;
}

static int by_key(const void *a, const void *b)
{
	const struct nvefs_mkfs_item *x = a, *y = b;

	return nvefs_key_cmp(&x->key, &y->key);
}

/* A directory with entries for the inodes from `first` on. */
static void add_dir(struct image *img, uint64_t ino, uint64_t first, uint32_t n, uint8_t dtype)
{
	struct nvefs_inode_rec rec = {
		.mode = S_IFDIR | 0755, .nlink = 2, .size = n, .parent = NVEFS_ROOT_INO, .xvalue_next = 1};
	uint32_t at;

	if (dtype == DT_DIR) {
		rec.subdirs = n;
		rec.nlink += n;
	}
	add_inode(img, ino, &rec);
	at = img->n;
	for (uint32_t i = 0; i < n; i++) {
		uint8_t val[NVEFS_VALUE_MAX], slot;
		uint32_t len = 0;
		char name[32];
		int bytes = snprintf(name, sizeof(name), "entry-%llu", (unsigned long long)(first + i));

		if (nvefs_dirent_add(val, &len, name, (uint32_t)bytes, first + i, dtype, &slot))
			die("an entry");
		add(img, nvefs_key_make(ino, NVEFS_KIND_DIRENT, nvefs_name_hash(HASH_SEED, name, (uint32_t)bytes)), val,
		    len);
	}
	qsort(img->items + at, n, sizeof(*img->items), by_key);
}

static void make_files(struct image *img, uint64_t files)
{
	const struct nvefs_inode_rec file = {.mode = S_IFREG | 0644, .nlink = 1, .xvalue_next = 1};
	uint32_t dirs = (uint32_t)(files / DIR_FILES);
	uint64_t first_file = NVEFS_FIRST_INO + dirs;

	add_dir(img, NVEFS_ROOT_INO, NVEFS_FIRST_INO, dirs, DT_DIR);
	for (uint32_t i = 0; i < dirs; i++)
		add_dir(img, NVEFS_FIRST_INO + i, first_file + (uint64_t)i * DIR_FILES, DIR_FILES, DT_REG);
	for (uint64_t i = 0; i < (uint64_t)dirs * DIR_FILES; i++)
		add_inode(img, first_file + i, &file);
}

static uint64_t window_pblk(uint64_t nr)
{
	return (FIRST_DATA_GROUP + nr / GROUP_WINDOWS) * NVEFS_GROUP_BLKS + 64 + nr % GROUP_WINDOWS * 64;
}

/* Block i of the window, in its place and with its content. */
static void place_written(struct nvefs_window *w, uint32_t i, uint64_t pblk)
{
	uint64_t block[NVEFS_BLOCK_SIZE / sizeof(uint64_t)];

	pblk += NVEFS_WINDOW_BLKS - PIECE_BLKS - i / PIECE_BLKS * PIECE_BLKS + i % PIECE_BLKS;
	fill(block, pblk);
	w->pblk[i] = nvefs_went_make(NVEFS_EXT_DATA, pblk);
	w->csum[i] = nvefs_hash(block, sizeof(block), HASH_SEED);
}

static void add_window(struct image *img, uint64_t ino, uint64_t window, uint64_t nr)
{
	uint64_t pblk = window_pblk(nr);
	uint8_t val[NVEFS_VALUE_MAX] __attribute__((aligned(8)));
	struct nvefs_window w;

	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++) {
		if (img->written) {
			place_written(&w, i, pblk);
			continue;
		}
		w.pblk[i] = nvefs_went_make(NVEFS_EXT_DATA, pblk + i);
		w.csum[i] = (pblk + i) * 0x9e3779b97f4a7c15ull;
	}
	add(img, nvefs_key_make(ino, NVEFS_KIND_MAP, window), val, nvefs_map_encode(&w, val));
}

static void make_data(struct image *img, uint64_t gib)
{
	const uint64_t windows = GIB_WINDOWS;
	struct nvefs_inode_rec file = {.mode = S_IFREG | 0644, .nlink = 1, .xvalue_next = 1};

	file.size = 1ull << 30;
	file.blks = file.size / 4096;
	add_dir(img, NVEFS_ROOT_INO, NVEFS_FIRST_INO, (uint32_t)gib, DT_REG);
	for (uint64_t i = 0; i < gib; i++) {
		add_inode(img, NVEFS_FIRST_INO + i, &file);
		for (uint64_t w = 0; w < windows; w++)
			add_window(img, NVEFS_FIRST_INO + i, w, i * windows + w);
	}
}

static void write_data(struct nvefs_dev *dev, uint64_t gib)
{
	const size_t words = NVEFS_BLOCK_SIZE / sizeof(uint64_t);
	uint64_t *buf = nvefs_buf_new(NVEFS_WINDOW_BLKS * NVEFS_BLOCK_SIZE);
	struct nvefs_queue *q;

	if (!buf || nvefs_queue_init(dev, 0, &q))
		die("no queue");
	for (uint64_t nr = 0; nr < gib * GIB_WINDOWS; nr++) {
		for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++)
			fill(buf + i * words, window_pblk(nr) + i);
		if (nvefs_queue_write(q, window_pblk(nr), NVEFS_WINDOW_BLKS, buf, 0))
			die("writing");
	}
	nvefs_queue_done(q);
	nvefs_buf_free(buf);
}

int main(int argc, char **argv)
{
	struct image img = {0};
	struct nvefs_mkfs_params params = {.creator = "scale_image", .hash_seed = HASH_SEED};
	struct nvefs_dev_open_opts opts = {.flags = NVEFS_OPEN_CREATE};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;
	uint64_t amount;

	if (argc != 4 || !(amount = strtoull(argv[3], NULL, 0)))
		die("usage: scale_image PATH files N | scale_image PATH data|written GIB");
	img.written = !strcmp(argv[2], "written");
	if (!strcmp(argv[2], "files"))
		make_files(&img, amount);
	else
		make_data(&img, amount);
	opts.create_bytes = !strcmp(argv[2], "files") ? 8ull << 30 : (amount + 8) << 30;
	params.items = img.items;
	params.nitems = img.n;
	params.inodes = img.inodes;
	params.next_ino = img.items[img.n - 1].key.ino + 1;
	if (nvefs_dev_open(argv[1], &opts, &dev, &err) || nvefs_store_mkfs(dev, &params, NULL, &err))
		die(err.text);
	if (img.written)
		write_data(dev, amount);
	nvefs_dev_close(dev);
	printf("%u\n", img.n);
	return 0;
}
