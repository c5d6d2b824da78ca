/* SPDX-License-Identifier: MIT */
/*
 * The B+tree. Keys (ino, kind, offset), values of 0 to NVEFS_VALUE_MAX bytes.
 * Lookups need the meta lock in any mode, changes a transaction. Lookups may
 * answer -EAGAIN with *miss; -EUCLEAN when a node is not what it must be.
 * Values returned point into the cache: valid until the lock is dropped or the
 * tree is changed; 8-byte aligned.
 */
#ifndef NVEFS_STORE_TREE_H
#define NVEFS_STORE_TREE_H

#include "format/key.h"
#include "store/store.h"

/* 0 or -ENOENT. */
int nvefs_tree_get(struct nvefs_store *st, const struct nvefs_key *key, struct nvefs_miss *miss,
		   const void **ret_val, uint32_t *ret_len);
/* The item with the smallest key >= *key; -ENOENT at the end. */
int nvefs_tree_next(struct nvefs_store *st, const struct nvefs_key *key, struct nvefs_miss *miss,
		    struct nvefs_key *ret_key, const void **ret_val, uint32_t *ret_len);

/*
 * Make sure that changing this key will not need I/O: the path is cached, and
 * the bitmaps and group items of nodes that a removal could free. 0, -EAGAIN, -EUCLEAN, -EIO.
 * For a put that keeps the length of an existing value, nvefs_tree_get does as
 * well, and such a put allocates and frees nothing: this is how the allocator
 * keeps its group items.
 */
int nvefs_tree_prepare(struct nvefs_txn *t, const struct nvefs_key *key);

/*
 * Insert or replace; remove (-ENOENT when absent). The key has been prepared in
 * this transaction. `val` must not point into the tree. An error other than
 * -ENOENT after a change in the same transaction has turned the store read-only.
 */
int nvefs_tree_put(struct nvefs_txn *t, const struct nvefs_key *key, const void *val, uint32_t len);
int nvefs_tree_del(struct nvefs_txn *t, const struct nvefs_key *key);

/* Dirty blocks that one put or del can cause at most, allocation included. */
uint32_t nvefs_tree_credits(const struct nvefs_store *st);

/*
 * Visit every node, parents first, left to right; for checking and dump. The
 * function gets the raw block (NULL with err when it cannot be read or is
 * damaged) and the address, level and generation that the parent states. Takes
 * and drops the meta lock itself; I/O on q. A non-zero return ends the walk.
 * Nobody may change the tree meanwhile: it would look damaged. With `ahead` (of the same
 * queue, else NULL; empty before and after) children of a sound node are read before their turn,
 * their second copies too if it says so, and stay there for the visitor (nvefs_copies_look).
 */
struct nvefs_tree_visit {
	uint64_t pblk, twin, txn; /* twin 0: no second copy */
	uint32_t level;
	int err;
	const struct nvefs_disk_node *node;
	struct nvefs_key low; /* lower bound by the parents */
};
typedef int nvefs_tree_visit_fn(void *arg, const struct nvefs_tree_visit *v);
int nvefs_tree_walk(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_ahead *ahead, nvefs_tree_visit_fn *fn,
		    void *arg);
/*
 * Go down to every leaf while others change the tree, and read all copies of each
 * node from the device (nvefs_copies_check); the function is told only of nodes that
 * cannot be read or are damaged (node is NULL), and what is below them is left out.
 * Otherwise as nvefs_tree_walk.
 */
int nvefs_tree_verify(struct nvefs_store *st, struct nvefs_queue *q, nvefs_tree_visit_fn *fn, void *arg);

#endif
