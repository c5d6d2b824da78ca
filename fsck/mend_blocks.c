/* SPDX-License-Identifier: MIT */
/* Bitmaps, share counts and the root's counts, from the recount. */
#include <errno.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/buf.h"
#include "base/hash.h"
#include "format/block.h"
#include "format/layout.h"
#include "mend.h"
#include "store/alloc.h"
#include "store/repair.h"

struct group {
	struct nvefs_disk_bitmap disk;
	uint8_t bits[NVEFS_GROUP_BLKS / 8];
};

static int write_group(struct nvefs_check_ctx *c, uint32_t g, const uint8_t *bits)
{
	struct nvefs_txn t;
	int err;

	do {
		err = nvefs_txn_begin(c->st, c->q, nvefs_tree_credits(c->st), NVEFS_TXN_NOALLOC, &t);
		if (err)
			return err;
		err = nvefs_repair_group_write(&t, g, bits);
		nvefs_txn_end(&t);
	} while (err && nvefs_store_retry(c->st, c->q, &t.miss, &err));
	return err;
}

static int mend_group(struct nvefs_check_ctx *c, uint32_t g, struct group *buf, uint64_t *free_blks)
{
	const struct nvefs_check_group *item = &c->groups[g];
	int err = nvefs_check_read_bitmap(c, g, &buf->disk);
	uint32_t n;

	if (err && err != -EUCLEAN && err != -EIO)
		return err;
	nvefs_check_group_bits(c, g, err ? NULL : buf->disk.bits, buf->bits);
	n = NVEFS_GROUP_BLKS - nvefs_bitmap_count(buf->bits, NVEFS_GROUP_BLKS);
	*free_blks += n;
	if (err || memcmp(buf->bits, buf->disk.bits, sizeof(buf->bits)) != 0 || item->rec.free_blks != n ||
	    item->rec.bitmap_txn != nvefs_block_txn(&buf->disk))
		return write_group(c, g, buf->bits);
	nvefs_repair_group_keep(c->st, g, n, item->rec.bitmap_txn);
	return 0;
}

int nvefs_mend_blocks(struct nvefs_check_ctx *c)
{
	struct group buf;
	uint64_t free_blks = 0;
	struct nvefs_txn t;
	int err = 0;

	for (uint32_t g = 0; g < c->sb.ngroups && !err; g++)
		err = mend_group(c, g, &buf, &free_blks);
	if (!err)
		err = nvefs_txn_begin(c->st, c->q, 1, NVEFS_TXN_NOALLOC, &t);
	if (err)
		return err;
	/* From here on the store counts by itself. */
	nvefs_store_root(c->st)->free_blks = free_blks;
	nvefs_store_root(c->st)->meta_blks = c->res->meta_blks;
	if (!c->incomplete)
		nvefs_store_root(c->st)->inodes = c->inode_items;
	nvefs_txn_end(&t);
	return 0;
}

int nvefs_mend_items(struct nvefs_check_ctx *c)
{
	int err = 0;

	nvefs_numbers_sort(&c->todo.items);
	for (size_t i = 0; i < c->todo.items.n && !err; i++) {
		uint64_t v = c->todo.items.tab[i];
		struct nvefs_key key = nvefs_key_make(0, (uint8_t)(v >> NVEFS_OFFSET_BITS), v & NVEFS_OFFSET_MAX);

		err = nvefs_mend_del(c, &key);
	}
	return err;
}

/* ---- Mappings of blocks that are somebody else's ---- */

struct maps {
	struct nvefs_check_ctx *c;
	struct nvefs_alloc_cursor cursor;
	void *block;
};

/* More maps name the block than its count allows. */
static bool contested(const struct nvefs_check_ctx *c, uint64_t pblk)
{
	const struct nvefs_usage_share *s = nvefs_usage_find(&c->usage, pblk);

	return s && s->extra && s->extra + 1 > s->stated;
}

/*
 * A node's block is never a file's. A block with more claims than it counts
 * belongs to those whose checksum it has; what was only reserved has no claim
 * to somebody's content, and must not be written over it.
 */
static bool must_move(struct maps *m, const struct nvefs_window *w, uint32_t i)
{
	uint64_t pblk = nvefs_went_pblk(w->pblk[i]);

	if (nvefs_usage_is_meta(&m->c->usage, pblk))
		return true;
	if (!contested(m->c, pblk) || nvefs_went_type(w->pblk[i]) == NVEFS_EXT_NOSUM)
		return false;
	if (nvefs_went_type(w->pblk[i]) == NVEFS_EXT_UNWRITTEN)
		return true;
	return nvefs_queue_read(m->c->q, pblk, 1, m->block) ||
	       nvefs_hash(m->block, NVEFS_BLOCK_SIZE, m->c->sb.hash_seed) != w->csum[i];
}

/* A block of zeros in its place: the checksum stays, so that reading tells of the loss. */
static int new_home(struct maps *m, struct nvefs_window *w, uint32_t i)
{
	struct nvefs_check_ctx *c = m->c;
	uint64_t old = nvefs_went_pblk(w->pblk[i]), pblk;
	uint32_t got;
	int err = nvefs_alloc_data(c->st, c->q, &m->cursor, 1, &pblk, &got, NULL);

	if (err)
		return err;
	memset(m->block, 0, NVEFS_BLOCK_SIZE);
	err = nvefs_queue_write(c->q, pblk, 1, m->block, 0);
	if (err) {
		nvefs_block_unreserve(c->st, pblk, 1);
		return err;
	}
	nvefs_block_map(c->st, pblk, 1);
	w->pblk[i] = nvefs_went_make(nvefs_went_type(w->pblk[i]), pblk);
	if (!nvefs_usage_is_meta(&c->usage, old))
		nvefs_usage_drop_data(&c->usage, old);
	return 0;
}

/* The map with its new blocks `fresh`, which get their references in the same transaction. */
static int put_map(struct nvefs_check_ctx *c, const struct nvefs_key *key, const struct nvefs_window *w,
		   uint64_t fresh)
{
	uint32_t credits = nvefs_tree_credits(c->st) + nvefs_ref_credits(c->st);
	uint8_t val[NVEFS_VALUE_MAX] __attribute__((aligned(8)));
	uint32_t len = nvefs_map_encode(w, val);
	struct nvefs_txn t;
	int err;

	do {
		err = nvefs_txn_begin(c->st, c->q, credits, 0, &t);
		if (err)
			return err;
		err = nvefs_tree_prepare(&t, key);
		if (!err)
			err = nvefs_ref_prepare(&t, fresh);
		if (!err) {
			err = nvefs_ref_up(&t, fresh);
			if (!err)
				err = nvefs_tree_put(&t, key, val, len);
			nvefs_txn_end(&t);
			return err;
		}
		nvefs_txn_end(&t);
	} while (nvefs_store_retry(c->st, c->q, &t.miss, &err));
	return err;
}

static int mend_map(struct maps *m, const struct nvefs_mend_item *it)
{
	struct nvefs_window w;
	int err = 0;

	if (nvefs_map_decode(it->val, it->len, &m->c->sb, &w))
		return 0; /* its inode's step */
	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS && !err; i++) {
		if (!w.pblk[i] || !must_move(m, &w, i))
			continue;
		err = new_home(m, &w, i);
		if (!err)
			err = put_map(m->c, &it->key, &w, nvefs_went_pblk(w.pblk[i]));
		if (!err)
			nvefs_block_unpin(m->c->st, nvefs_went_pblk(w.pblk[i]));
	}
	return err;
}

/* Something is contested at all? */
static bool any_to_move(const struct nvefs_check_ctx *c)
{
	if (c->todo.menders & 1u << NVEFS_MEND_MAPS)
		return true;
	for (size_t i = 0; i < c->usage.max_shares; i++)
		if (c->usage.shares[i].pblk && contested(c, c->usage.shares[i].pblk))
			return true;
	return false;
}

int nvefs_mend_maps(struct nvefs_check_ctx *c)
{
	struct maps m = {.c = c, .block = nvefs_buf_new(NVEFS_BLOCK_SIZE)};
	struct nvefs_key key = nvefs_key_make(1, 0, 0);
	struct nvefs_mend_item it;
	int err = m.block ? 0 : -ENOMEM;

	while (!err && any_to_move(c) && !(err = nvefs_mend_next(c, &key, &it))) {
		key = nvefs_key_after(&it.key);
		if (it.key.kind == NVEFS_KIND_MAP)
			err = mend_map(&m, &it);
	}
	nvefs_buf_free(m.block);
	/* No room to part them: they share the block, and the checksums tell whose it is. */
	if (err == -ENOSPC && !(c->todo.menders & 1u << NVEFS_MEND_MAPS))
		return 0;
	return err == -ENOENT ? 0 : err;
}

/* ---- Counts ---- */

static int mend_share(struct nvefs_check_ctx *c, const struct nvefs_usage_share *s)
{
	uint32_t refs = s->extra + (nvefs_usage_test(&c->usage, s->pblk) ? 1u : 0u);
	uint32_t stated = s->stated ? s->stated : 1;
	struct nvefs_key key = nvefs_share_key(s->pblk);
	struct nvefs_disk_share d = nvefs_share_encode(refs);

	if (refs == stated || (refs < stated && c->incomplete))
		return 0;
	return refs < 2 ? nvefs_mend_del(c, &key) : nvefs_mend_put(c, &key, &d, sizeof(d));
}

int nvefs_mend_shares(struct nvefs_check_ctx *c)
{
	int err = 0;

	for (size_t i = 0; i < c->usage.max_shares && !err; i++)
		if (c->usage.shares[i].pblk)
			err = mend_share(c, &c->usage.shares[i]);
	return err;
}

int nvefs_mend_root(struct nvefs_check_ctx *c)
{
	struct nvefs_root *root = nvefs_store_root(c->st);
	uint64_t blks = 0, refs = 0;
	struct nvefs_txn t;
	int err = nvefs_txn_begin(c->st, c->q, 1, NVEFS_TXN_NOALLOC, &t);

	if (err)
		return err;
	for (size_t i = 0; i < c->usage.max_shares; i++) {
		const struct nvefs_usage_share *s = &c->usage.shares[i];
		uint32_t n = s->pblk ? s->extra + (nvefs_usage_test(&c->usage, s->pblk) ? 1u : 0u) : 0;

		blks += n > 1;
		refs += n > 1 ? n - 1 : 0;
	}
	if (root->next_ino <= c->max_ino)
		root->next_ino = c->max_ino + 1;
	if (!c->incomplete) {
		root->shared_blks = blks;
		root->shared_refs = refs;
	}
	nvefs_txn_end(&t);
	return 0;
}
