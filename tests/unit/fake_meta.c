/* SPDX-License-Identifier: MIT */
#include "fake_meta.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "format/block.h"
#include "format/layout.h"
#include "format/node.h"
#include "store/alloc.h"
#include "store/copies.h"

enum { FAKE_FIRST = 5000 };

struct nvefs_store {
	struct nvefs_super super;
	struct nvefs_root root;
	uint64_t txn;
	int error;
	bool free_misses;
	uint32_t max, nalloc, next;
	struct nvefs_mblk *blks; /* by pblk - FAKE_FIRST; data != NULL: allocated */
	bool *cached, *free_ready;
};

struct nvefs_store *fake_meta_new(uint32_t max_blks)
{
	struct nvefs_store *st = calloc(1, sizeof(*st));
	struct nvefs_txn t;
	struct nvefs_mblk *b;
	uint64_t pblk;

	st->max = max_blks;
	st->blks = calloc(max_blks, sizeof(*st->blks));
	st->cached = calloc(max_blks, sizeof(bool));
	st->free_ready = calloc(max_blks, sizeof(bool));
	/* One long group's worth of plain blocks is not there: bitmaps of later groups are skipped. */
	ck_assert_int_eq(nvefs_layout_make(1ull << 22, 2048, &st->super), 0);
	st->txn = 1;
	fake_txn_begin(st, &t);
	ck_assert_int_eq(nvefs_alloc_meta(&t, &pblk), 0);
	ck_assert_int_eq(nvefs_cache_new(&t, pblk, NVEFS_BT_NODE, &b), 0);
	nvefs_node_init(b->data, 0);
	st->root = (struct nvefs_root){
		.tree_pblk = pblk, .tree_txn = 1, .tree_height = 1, .meta_blks = 1};
	return st;
}

void fake_meta_free(struct nvefs_store *st)
{
	for (uint32_t i = 0; i < st->max; i++)
		nvefs_buf_free(st->blks[i].data);
	free(st->blks);
	free(st->cached);
	free(st->free_ready);
	free(st);
}

void fake_txn_begin(struct nvefs_store *st, struct nvefs_txn *ret_t)
{
	*ret_t = (struct nvefs_txn){.st = st, .id = st->txn};
}

void fake_txn_commit(struct nvefs_store *st)
{
	for (uint32_t i = 0; i < st->max; i++) {
		struct nvefs_mblk *b = &st->blks[i];

		if (!b->data || !b->dirty_txn)
			continue;
		if (nvefs_block_txn(b->data) != st->txn || nvefs_node_check(b->data))
			ck_abort_msg("node %u is damaged", i);
		b->dirty_txn = 0;
	}
	st->txn++;
}

void fake_evict(struct nvefs_store *st, unsigned int *seed, int n)
{
	for (uint32_t i = 0; i < st->max; i++) {
		if (!st->blks[i].data || st->blks[i].dirty_txn || rand_r(seed) % n)
			continue;
		st->cached[i] = false;
		st->free_ready[i] = false;
	}
}

void fake_drop_all(struct nvefs_store *st)
{
	for (uint32_t i = 0; i < st->max; i++)
		st->cached[i] = st->cached[i] && st->blks[i].dirty_txn;
}

void fake_free_misses(struct nvefs_store *st, bool on)
{
	st->free_misses = on;
}

uint32_t fake_nodes(const struct nvefs_store *st)
{
	return st->nalloc;
}

void *fake_block(struct nvefs_store *st, uint64_t pblk)
{
	return st->blks[pblk - FAKE_FIRST].data;
}

int fake_error(const struct nvefs_store *st)
{
	return st->error;
}

/* ---- store.h ---- */

const struct nvefs_super *nvefs_store_super(const struct nvefs_store *st)
{
	return &st->super;
}
struct nvefs_root *nvefs_store_root(struct nvefs_store *st)
{
	return &st->root;
}
void nvefs_store_rdlock(struct nvefs_store *st)
{
	(void)st;
}
void nvefs_store_rdunlock(struct nvefs_store *st)
{
	(void)st;
}
void nvefs_store_fail(struct nvefs_store *st, int err, const char *why)
{
	(void)why;
	st->error = err;
}

static bool exists(const struct nvefs_store *st, uint64_t pblk)
{
	return pblk >= FAKE_FIRST && pblk - FAKE_FIRST < st->max && st->blks[pblk - FAKE_FIRST].data;
}

/* Type 0 stands for "what freeing this block needs". */
int nvefs_store_load(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_miss *miss)
{
	(void)q;
	if (!exists(st, miss->pblk))
		return -EUCLEAN;
	if (!miss->type) {
		st->free_ready[miss->pblk - FAKE_FIRST] = true;
		return 0;
	}
	if (miss->txn && nvefs_block_txn(fake_block(st, miss->pblk)) != miss->txn)
		return -EUCLEAN;
	st->cached[miss->pblk - FAKE_FIRST] = true;
	st->blks[miss->pblk - FAKE_FIRST].checked = false;
	return 0;
}
bool nvefs_store_retry(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_miss *miss,
		       int *err)
{
	if (*err != -EAGAIN)
		return false;
	*err = nvefs_store_load(st, q, miss);
	return !*err;
}

/* ---- cache.h ---- */

int nvefs_cache_get(struct nvefs_store *st, struct nvefs_block_ref at, uint16_t type,
		    struct nvefs_miss *miss, struct nvefs_mblk **ret_b)
{
	uint64_t pblk = at.pblk, txn = at.txn;
	struct nvefs_mblk *b;

	if (!exists(st, pblk) || !st->cached[pblk - FAKE_FIRST]) {
		*miss = (struct nvefs_miss){.pblk = pblk, .txn = txn, .type = type};
		return -EAGAIN;
	}
	b = &st->blks[pblk - FAKE_FIRST];
	if (nvefs_block_twin(b->data) != at.twin || (txn && nvefs_block_txn(b->data) != txn))
		return -EUCLEAN;
	*ret_b = b;
	return 0;
}

bool nvefs_cache_has(struct nvefs_store *st, uint64_t pblk)
{
	return exists(st, pblk) && st->cached[pblk - FAKE_FIRST];
}

bool nvefs_cache_dirty(struct nvefs_txn *t, struct nvefs_mblk *b)
{
	if (b->dirty_txn)
		return false;
	b->dirty_txn = t->id;
	nvefs_block_set_txn(b->data, t->id);
	return true;
}

int nvefs_cache_new(struct nvefs_txn *t, uint64_t pblk, uint16_t type, struct nvefs_mblk **ret_b)
{
	struct nvefs_mblk *b = &t->st->blks[pblk - FAKE_FIRST];

	memset(b->data, 0, NVEFS_BLOCK_BYTES);
	nvefs_block_fill(b->data, type, pblk, t->id, t->st->super.uuid);
	b->dirty_txn = t->id;
	b->checked = false;
	t->st->cached[pblk - FAKE_FIRST] = true;
	*ret_b = b;
	return 0;
}

void nvefs_cache_forget(struct nvefs_txn *t, struct nvefs_mblk *b)
{
	(void)t;
	b->freed = true;
}

/* There is one copy, and no device. */
void nvefs_copies_look(struct nvefs_store *st, struct nvefs_block_ref at, uint16_t type,
		       struct nvefs_copies_look *ret)
{
	(void)st;
	*ret = (struct nvefs_copies_look){.at = at, .type = type};
}

int nvefs_copies_check(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_copies_look *look,
		       struct nvefs_copies *ret)
{
	(void)st;
	(void)q;
	(void)look;
	*ret = (struct nvefs_copies){0};
	return 0;
}

/* ---- alloc.h ---- */

int nvefs_alloc_meta(struct nvefs_txn *t, uint64_t *ret_pblk)
{
	struct nvefs_store *st = t->st;

	for (uint32_t k = 0; k < st->max; k++) {
		uint32_t i = (st->next + k) % st->max;

		if (st->blks[i].data || nvefs_layout_is_fixed(&st->super, FAKE_FIRST + i))
			continue;
		st->blks[i] = (struct nvefs_mblk){.pblk = FAKE_FIRST + i,
						  .data = nvefs_buf_new_zeroed(NVEFS_BLOCK_BYTES)};
		st->next = i + 1;
		st->nalloc++;
		st->root.meta_blks++;
		*ret_pblk = FAKE_FIRST + i;
		return 0;
	}
	return -ENOSPC;
}

int nvefs_alloc_meta_twin(struct nvefs_txn *t, uint64_t *ret_twin)
{
	(void)t;
	*ret_twin = 0;
	return 0;
}

int nvefs_free_meta(struct nvefs_txn *t, uint64_t pblk)
{
	struct nvefs_mblk *b = &t->st->blks[pblk - FAKE_FIRST];

	if (!b->freed)
		ck_abort_msg("freed before the cache was told");
	nvefs_buf_free(b->data);
	memset(b, 0, sizeof(*b));
	t->st->cached[pblk - FAKE_FIRST] = false;
	t->st->nalloc--;
	t->st->root.meta_blks--;
	return 0;
}

int nvefs_free_meta_prepare(struct nvefs_txn *t, uint64_t pblk)
{
	if (!t->st->free_misses || t->st->free_ready[pblk - FAKE_FIRST])
		return 0;
	t->miss = (struct nvefs_miss){.pblk = pblk};
	return -EAGAIN;
}
