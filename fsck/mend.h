/* SPDX-License-Identifier: MIT */
/*
 * Mending what a round of the check has found.
 *
 * Two ways, and why:
 *
 *  - In a tree that is whole, by the store's own transactions. Each step looks
 *    at the items and makes them agree; none follows a list of single findings,
 *    so that a step begun anew after a power cut does the rest and no more. What can be derived
 *    (bitmaps, group items, share counts, the root's counts, sizes and links) is
 *    written from the recount, the bitmaps first: until all of them are right
 *    nothing is allocated (store/repair.h). A transaction that leaves blocks
 *    unused or counts behind is fine, since the next round counts again.
 *
 *  - Where nodes are missing or the journal cannot be read, a new tree is built
 *    from the leaves that are left, in blocks that nothing uses, and then put in
 *    the old one's place by the root block and a journal header of a new epoch: see salvage.h. Until then the
 *    device holds what it held before. The next round mends the items in the new tree.
 *
 * Nothing here makes readable data unreadable: names are removed only when they
 * lead nowhere (or a second time to a directory), inodes only when nothing of
 * their content is left, blocks come back only when no map names them. A mapping that cannot be right keeps its
 * checksum, so that it reads as an I/O error and never as zeros.
 */
#ifndef NVEFS_FSCK_MEND_H
#define NVEFS_FSCK_MEND_H

#include "context.h"
#include "format/inode.h"

/* What can be mended whether the tree is whole or not. */
#define NVEFS_MENDERS_ALONE (1u << NVEFS_MEND_SUPER | 1u << NVEFS_MEND_COPY)

/* Note what is to be done about the problem. True when it is going to be mended. */
bool nvefs_todo_add(struct nvefs_check_ctx *c, const struct nvefs_problem *p);
void nvefs_todo_done(struct nvefs_todo *t);

/* Do all that c->todo says. 0, -ENOSPC, -EUCLEAN (the tree is not whole after all), -EIO, -ENOMEM, -ECANCELED. */
int nvefs_mend(struct nvefs_check_ctx *c);

/* ---- Steps, over a store that is open for writing (c->st): 0 or a negative errno ---- */
int nvefs_mend_super(struct nvefs_check_ctx *c);  /* no store yet */
int nvefs_mend_copies(struct nvefs_check_ctx *c); /* likewise */
int nvefs_mend_blocks(struct nvefs_check_ctx *c);
int nvefs_mend_items(struct nvefs_check_ctx *c);
int nvefs_mend_maps(struct nvefs_check_ctx *c);
int nvefs_mend_shares(struct nvefs_check_ctx *c);
int nvefs_mend_root(struct nvefs_check_ctx *c);
int nvefs_mend_orphans(struct nvefs_check_ctx *c);
int nvefs_mend_twice(struct nvefs_check_ctx *c);
int nvefs_mend_loops(struct nvefs_check_ctx *c);
int nvefs_mend_inodes(struct nvefs_check_ctx *c);
int nvefs_mend_lost(struct nvefs_check_ctx *c);

/* ---- For the steps ---- */

struct nvefs_mend_item {
	struct nvefs_key key;
	uint32_t len;
	uint8_t val[NVEFS_VALUE_MAX] __attribute__((aligned(8)));
};
/* A copy of the first item from `from` on. -ENOENT at the end. */
int nvefs_mend_next(struct nvefs_check_ctx *c, const struct nvefs_key *from, struct nvefs_mend_item *ret);
/* The item with this key. -ENOENT. */
int nvefs_mend_get(struct nvefs_check_ctx *c, const struct nvefs_key *key, struct nvefs_mend_item *ret);

struct nvefs_mend_op {
	struct nvefs_key key;
	const void *val; /* NULL: remove, if it is there */
	uint32_t len;
};
/* Up to 3 changes in one transaction; `inodes` is added to the root's count of them. */
int nvefs_mend_change(struct nvefs_check_ctx *c, const struct nvefs_mend_op *ops, uint32_t n, int inodes);
int nvefs_mend_put(struct nvefs_check_ctx *c, const struct nvefs_key *key, const void *val, uint32_t len);
int nvefs_mend_del(struct nvefs_check_ctx *c, const struct nvefs_key *key);
/* Remove one name from a directory's items, whatever it is filed under `key`. */
int nvefs_mend_remove_name(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it, uint64_t ino);

/* The bits that the group ought to have. Where parts of the tree were not seen, with those of `disk` (may be NULL). */
void nvefs_check_group_bits(struct nvefs_check_ctx *c, uint32_t group, const uint8_t *disk, uint8_t *ret_bits);
/* The group's bitmap block, through the store. */
int nvefs_check_read_bitmap(struct nvefs_check_ctx *c, uint32_t group, struct nvefs_disk_bitmap *ret);

#endif
