/* SPDX-License-Identifier: MIT */
#include "store/repair.h"

#include <errno.h>
#include <string.h>

#include "base/bitmap.h"
#include "format/block.h"
#include "store/alloc_parts.h"

/* Under the meta lock for writing. From now on the group can be allocated from. */
static void group_known(struct nvefs_store *st, uint32_t g, uint32_t free_blks, uint64_t bitmap_txn)
{
	struct nvefs_alloc *a = st->alloc;

	a->groups[g].free_blks = a->groups[g].avail = free_blks;
	a->groups[g].bitmap_txn = bitmap_txn;
	if (free_blks)
		nvefs_hint_set(a->avail_map, g);
	if (free_blks >= a->unit)
		nvefs_hint_set(a->run_map, g);
	nvefs_room_put(a, free_blks);
	__atomic_fetch_sub(&a->held, free_blks, __ATOMIC_RELAXED);
}

void nvefs_repair_group_keep(struct nvefs_store *st, uint32_t group, uint32_t free_blks, uint64_t bitmap_txn)
{
	assert(st->opts.repair && !st->alloc->groups[group].mem);
	nvefs_store_wrlock(st);
	group_known(st, group, free_blks, bitmap_txn);
	nvefs_store_wrunlock(st);
}

/* The bitmap's block in the cache, dirty, with a fresh header; its bits are the caller's. */
static int bitmap_renew(struct nvefs_txn *t, uint32_t group, struct nvefs_mblk **ret_b)
{
	struct nvefs_store *st = t->st;
	uint64_t pblk = nvefs_layout_bitmap_pblk(group);
	struct nvefs_mblk *b = nvefs_cache_peek(st, pblk);
	int err = 0;

	if (!b)
		err = nvefs_cache_new(t, pblk, NVEFS_BT_BITMAP, &b);
	else if (b->freed)
		err = -EUCLEAN;
	if (err)
		return err;
	nvefs_cache_dirty(t, b);
	nvefs_block_fill(b->data, NVEFS_BT_BITMAP, pblk, t->id, st->super.uuid);
	nvefs_block_set_twin(b->data, nvefs_layout_bitmap_twin(&st->super, group));
	*ret_b = b;
	return 0;
}

int nvefs_repair_group_write(struct nvefs_txn *t, uint32_t group, const uint8_t *bits)
{
	struct nvefs_root *root = nvefs_store_root(t->st);
	struct nvefs_key key = nvefs_group_key(group);
	struct nvefs_group_rec old, rec = {.bitmap_txn = t->id};
	struct nvefs_disk_group d;
	struct nvefs_mblk *b;
	const void *val;
	uint32_t len;
	int err;

	assert(t->st->opts.repair && !t->st->alloc->groups[group].mem);
	err = nvefs_tree_get(t->st, &key, &t->miss, &val, &len);
	if (err)
		return err == -ENOENT ? -EUCLEAN : err;
	err = nvefs_group_decode(val, len, &old);
	if (!err)
		err = bitmap_renew(t, group, &b);
	if (err)
		return err;
	memcpy(((struct nvefs_disk_bitmap *)b->data)->bits, bits, NVEFS_GROUP_BLKS / 8);
	rec.free_blks = NVEFS_GROUP_BLKS - nvefs_bitmap_count(bits, NVEFS_GROUP_BLKS);
	d = nvefs_group_encode(&rec);
	err = nvefs_tree_put(t, &key, &d, sizeof(d));
	if (err)
		return err;
	/* The sum of the items stays what the root says, if it was: mounting in between must work as before. */
	root->free_blks += (uint64_t)rec.free_blks - old.free_blks;
	group_known(t->st, group, rec.free_blks, t->id);
	return 0;
}
