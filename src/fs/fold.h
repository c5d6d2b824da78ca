/* SPDX-License-Identifier: MIT */
/* Windows as items of the tree: used by folding, truncate and punch. */
#ifndef NVEFS_FS_FOLD_H
#define NVEFS_FS_FOLD_H

#include "format/map.h"
#include "fs/request.h"

/* [meta lock] The window's item, all holes when there is none. 0, -EAGAIN, -EUCLEAN. */
int nvefs_map_get(struct nvefs_inode *in, uint64_t widx, struct nvefs_miss *miss, struct nvefs_window *ret_win);
/* [txn] Write it, or remove it when it is empty. Prepared. */
int nvefs_map_put(struct nvefs_txn *t, struct nvefs_inode *in, uint64_t widx, const struct nvefs_window *win);
/* [txn] One tree reference less for an entry; forgets the dedup hint with the last. Prepared. */
int nvefs_map_ref_down(struct nvefs_txn *t, struct nvefs_inode *in, uint64_t entry, uint64_t csum);

#endif
