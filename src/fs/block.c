/* SPDX-License-Identifier: MIT */
/* Single blocks written in place of the caller's thread: edges of truncate, punch, copy. */
#include <errno.h>

#include "base/hash.h"
#include "fs/request.h"
#include "fs/window.h"

int nvefs_block_write(struct nvefs_op *op, const void *buf, uint64_t *ret_pblk, uint64_t *ret_csum)
{
	struct nvefs_worker *w = op->w;
	uint64_t pblk;
	uint32_t got;
	int err = nvefs_alloc_data(w->fs->st, w->q, &w->cursor, 1, &pblk, &got, NULL);

	if (err == -ENOSPC && op->last_resort)
		err = nvefs_alloc_data_last(w->fs->st, w->q, &w->cursor, &pblk);
	if (err)
		return err;
	err = nvefs_queue_write(w->q, pblk, 1, buf, 0);
	if (err == -ETIMEDOUT)
		nvefs_block_retire(w->fs->st, pblk, 1);
	else if (err)
		nvefs_block_unreserve(w->fs->st, pblk, 1);
	if (err)
		return nvefs_caller_errno(err);
	nvefs_block_map(w->fs->st, pblk, 1);
	*ret_pblk = pblk;
	*ret_csum = nvefs_hash(buf, NVEFS_BLOCK_SIZE, w->fs->hash_seed);
	return 0;
}

static int install_try(struct nvefs_op *op, struct nvefs_inode *in, uint64_t lblk, uint64_t entry, uint64_t csum,
		       uint32_t share)
{
	struct nvefs_window_mem *w;
	int err = 0;

	nvefs_mutex_lock(&in->lock);
	w = nvefs_window_find(in, lblk / NVEFS_WINDOW_BLKS);
	if (in->gone)
		err = -ESTALE;
	else if (!w)
		err = -EAGAIN;
	else if (!(w = nvefs_window_reserve(in, w, lblk % NVEFS_WINDOW_BLKS)))
		err = -ENOMEM;
	if (!err) {
		nvefs_window_set(in, w, lblk % NVEFS_WINDOW_BLKS, entry, csum, &op->pledged);
		nvefs_window_pledge(w, share, &op->pledged);
	}
	nvefs_mutex_unlock(&in->lock);
	return err;
}

int nvefs_block_install(struct nvefs_op *op, struct nvefs_inode *in, uint64_t lblk, uint64_t entry, uint64_t csum,
			uint32_t share)
{
	uint32_t need = NVEFS_WINDOW_PLEDGE + share;
	int err = op->pledged >= need ? 0 : nvefs_op_pledge(op, need - op->pledged);

	while (!err) {
		err = install_try(op, in, lblk, entry, csum, share);
		if (err != -EAGAIN)
			break;
		err = nvefs_window_load(in, op->w->q, lblk / NVEFS_WINDOW_BLKS);
	}
	if (err && entry)
		nvefs_data_unpin(in->fs, nvefs_went_pblk(entry), csum);
	return err;
}

void nvefs_inode_written(struct nvefs_inode *in, uint64_t size)
{
	nvefs_mutex_lock(&in->lock);
	if (in->rec.size < size)
		in->rec.size = size;
	in->rec.mtime = in->rec.ctime = nvefs_time_now();
	nvefs_inode_mark_dirty_locked(in);
	nvefs_mutex_unlock(&in->lock);
}
