/* SPDX-License-Identifier: MIT */
/*
 * For fsck: a store whose bitmaps, group items and counts may be wrong.
 *
 * Opened with nvefs_store_opts.repair it knows no group, and nothing can be
 * allocated. The caller, who has counted the blocks in use himself, says of
 * each group what is true (keep or write); after the last one ordinary
 * transactions work, and none of them has trusted a damaged bitmap.
 */
#ifndef NVEFS_STORE_REPAIR_H
#define NVEFS_STORE_REPAIR_H

#include "store/store.h"

/* The bitmap block on the device is right, and so is the group's item. Not under the meta lock. */
void nvefs_repair_group_keep(struct nvefs_store *st, uint32_t group, uint32_t free_blks, uint64_t bitmap_txn);
/*
 * [txn, NVEFS_TXN_NOALLOC] A new bitmap block, whatever stood there, and the group's item, which
 * exists. `bits`: NVEFS_GROUP_BLKS of them, fixed blocks and those beyond the end included.
 * 0, -EAGAIN (t->miss), -EUCLEAN: the item is missing or damaged; -ENOMEM.
 */
int nvefs_repair_group_write(struct nvefs_txn *t, uint32_t group, const uint8_t *bits);

#endif
