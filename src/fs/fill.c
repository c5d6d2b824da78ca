/* SPDX-License-Identifier: MIT */
#include "dedup/index.h"
#include "format/map.h"
#include "fs/fill.h"

#define FILL_MAPS 64u /* in one step */

int nvefs_dedup_ensure(struct nvefs_fs *fs)
{
	struct nvefs_dedup_index *ix;
	int err = 0;

	nvefs_mutex_lock(&fs->bg_lock);
	if (!fs->index) {
		err = nvefs_dedup_index_new(fs->opts.dedup_bytes, &ix);
		if (!err) {
			if (fs->opts.fingerprint_bits < 64)
				nvefs_dedup_index_limit_bits(ix, fs->opts.fingerprint_bits);
			fs->index = ix;
			fs->bg_fill = true;
			nvefs_cond_broadcast(&fs->bg_cond);
		}
	}
	nvefs_mutex_unlock(&fs->bg_lock);
	return err;
}

int nvefs_dedup_switch(struct nvefs_fs *fs, bool on)
{
	int err;

	if (on && fs->read_only)
		return -EROFS;
	err = on ? nvefs_dedup_ensure(fs) : 0;
	if (err)
		return err;
	if (on && !fs->dedup_on) {
		/* What was written while it was off is not known yet. */
		nvefs_mutex_lock(&fs->bg_lock);
		fs->bg_fill = true;
		nvefs_cond_broadcast(&fs->bg_cond);
		nvefs_mutex_unlock(&fs->bg_lock);
	}
	fs->dedup_on = on;
	return 0;
}

static void fill_window(struct nvefs_fs *fs, const struct nvefs_window *win)
{
	uint32_t i;

	for (i = 0; i < NVEFS_WINDOW_BLKS; i++)
		if (nvefs_went_type(win->pblk[i]) == NVEFS_EXT_DATA)
			nvefs_dedup_index_insert(fs->index, win->csum[i], nvefs_went_pblk(win->pblk[i]),
						 true);
}

/* [meta] Take the next map item, or move over what is none. */
static int fill_one_locked(struct nvefs_fs *fs, struct nvefs_fill *f, struct nvefs_miss *miss)
{
	struct nvefs_window win;
	struct nvefs_key found;
	const void *val;
	uint32_t len;
	int err;

	err = nvefs_tree_next(fs->st, &f->at, miss, &found, &val, &len);
	if (err)
		return err;
	if (!found.ino || found.kind > NVEFS_KIND_MAP) {
		f->at = nvefs_key_make(found.ino + 1, 0, 0);
		return 0;
	}
	if (found.kind < NVEFS_KIND_MAP) {
		f->at = nvefs_key_make(found.ino, NVEFS_KIND_MAP, 0);
		return 0;
	}
	err = nvefs_map_decode(val, len, nvefs_store_super(fs->st), &win);
	if (!err)
		fill_window(fs, &win);
	f->at = nvefs_key_after(&found);
	return err;
}

void nvefs_fill_step(struct nvefs_fs *fs, struct nvefs_queue *q, struct nvefs_fill *f)
{
	struct nvefs_miss miss;
	uint32_t i;
	int err = 0;

	for (i = 0; !err && i < FILL_MAPS; i++) {
		do {
			nvefs_store_rdlock(fs->st);
			err = fill_one_locked(fs, f, &miss);
			nvefs_store_rdunlock(fs->st);
		} while (nvefs_store_retry(fs->st, q, &miss, &err));
	}
	f->done = err != 0;
}

void nvefs_fill_done(struct nvefs_fs *fs)
{
	nvefs_dedup_index_free(fs->index);
	fs->index = NULL;
}

void nvefs_fill_stats(struct nvefs_fs *fs, struct nvefs_stats *ret)
{
	struct nvefs_dedup_index *ix = fs->index;
	struct nvefs_dedup_index_stats s;

	if (!ix)
		return;
	nvefs_dedup_index_stats(ix, &s);
	ret->dedup_entries = s.entries;
	ret->dedup_capacity = s.capacity;
	ret->dedup_mem_bytes = s.budget_bytes;
	ret->dedup_lookups = s.lookups;
	ret->dedup_hits = s.hits;
	ret->dedup_false_hits = s.false_hits;
	ret->dedup_evictions = s.evictions;
}
