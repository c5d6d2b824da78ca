/* SPDX-License-Identifier: MIT */
/*
 * In place of the store's cache and allocator, for tests of the tree alone:
 * blocks in memory, some of which are "not cached" until they are loaded.
 * Define it into one program by linking fake_meta.c before the library.
 */
#ifndef NVEFS_FAKE_META_H
#define NVEFS_FAKE_META_H

#include "format/root.h"
#include "store/cache.h"

/* An empty tree of one leaf on a device that has room for max_blks nodes. */
struct nvefs_store *fake_meta_new(uint32_t max_blks);
void fake_meta_free(struct nvefs_store *st);

void fake_txn_begin(struct nvefs_store *st, struct nvefs_txn *ret_t);
/* Close the running transaction: all is clean afterwards. Checks every changed node. */
void fake_txn_commit(struct nvefs_store *st);
/* Each clean block leaves the cache with a chance of 1 in n. */
void fake_evict(struct nvefs_store *st, unsigned int *seed, int n);
/* Freeing needs I/O for a share of the blocks until that was "loaded". */
void fake_free_misses(struct nvefs_store *st, bool on);
uint32_t fake_nodes(const struct nvefs_store *st); /* allocated now */
/* The raw bytes of an allocated block, "on disk" and cached. */
void *fake_block(struct nvefs_store *st, uint64_t pblk);
/* Drop what is cached, so that all is checked anew. */
void fake_drop_all(struct nvefs_store *st);
int fake_error(const struct nvefs_store *st);

#endif
