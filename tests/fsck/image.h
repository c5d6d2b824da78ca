/* SPDX-License-Identifier: MIT */
/*
 * A small file system in memory, made item by item through the store, so that
 * a test can make any item wrong. Content (inode: what):
 *  1: root directory: file, dir, clone, many
 *  16: /file and /dir/hard: 3 data blocks, the last one shared with 19; two extended attributes, one in pieces
 *  17: /dir: link, hard
 *  18: /dir/link: symbolic link of IMAGE_LINK_LEN bytes, in two pieces
 *  19: /clone: one data block, the shared one
 *  20: without a name: orphan
 *  21: /many: directory of IMAGE_MANY empty files, 100 and on
 */
#ifndef NVEFS_TESTS_FSCK_IMAGE_H
#define NVEFS_TESTS_FSCK_IMAGE_H

#include <check.h>

#include "format/inode.h"
#include "format/item.h"
#include "format/key.h"
#include "format/root.h"
#include "fsck/check.h"
#include "store/store.h"
#include "store/tree.h"

#define IMAGE_LINK_LEN 3000u
#define IMAGE_LARGE_LEN 3000u /* of the attribute in pieces */
#define IMAGE_MANY 60u

struct image {
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	struct nvefs_store *st; /* NULL: closed */
	struct nvefs_super sb;
	uint64_t data[3]; /* pblk of inode 16's blocks; [2] is the shared one */
};

/* Make it, with the store open. */
void image_init(struct image *img);
/* The same with second copies of metadata. */
void image_init_dup(struct image *img);
void image_done(struct image *img);
/* Commit, checkpoint, close the store: the device holds all in its place. */
void image_close(struct image *img);
/* Commit and leave the groups in the journal, as a power cut does. */
void image_crash(struct image *img);

void image_put(struct image *img, struct nvefs_key key, const void *val, uint32_t len);
void image_del(struct image *img, struct nvefs_key key);
/* Copy of an item's value into val (NVEFS_VALUE_MAX bytes). */
uint32_t image_get(struct image *img, struct nvefs_key key, void *val);
void image_edit_inode(struct image *img, uint64_t ino, void (*edit)(struct nvefs_inode_rec *rec));
void image_edit_root(struct image *img, void (*edit)(struct nvefs_root *root));
struct nvefs_key image_name_key(const struct image *img, uint64_t ino, uint8_t kind, const char *name);
void image_add_name(struct image *img, uint64_t dir, const char *name, uint64_t ino, uint8_t dtype);
/* One reference to a data block more or less, in the bitmap and the share count, with no map changed. */
void image_ref(struct image *img, uint64_t pblk, int by);

/* Below the store, which is closed. */
void image_read(struct image *img, uint64_t pblk, void *block);
void image_write(struct image *img, uint64_t pblk, const void *block);

/* A copy of the block, and its return: sealed or as it is, and freed. */
uint8_t *image_block(struct image *img, uint64_t pblk);
void image_put_back(struct image *img, uint64_t pblk, uint8_t *block, bool seal);
/* Addresses of the tree's root, which is of level 1, and of one of its leaves. */
uint64_t image_root_node(struct image *img);
uint64_t image_leaf(struct image *img);

/* What a check found. */
struct found {
	uint32_t codes[256];
	uint32_t n;
	struct nvefs_check_result res;
	int err;
};
void image_check(struct image *img, bool data, struct found *ret);
/* The same, and mend. ret->codes are those of all rounds. */
void image_mend(struct image *img, enum nvefs_repair repair, struct found *ret);
bool found_code(const struct found *f, uint32_t code);

#endif
