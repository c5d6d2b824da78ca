/* SPDX-License-Identifier: MIT */
/* Single blocks written in place of the caller's thread: edges of truncate, punch, copy. */
#include <errno.h>

#include "base/hash.h"
#include "fs/pledge.h"
#include "fs/window.h"

#define SPACE_TRIES 4u

/*
 * Freed space comes back with a commit, and space of deleted files when the
 * background thread is through with them. Blocking is fine here: neither
 * waits for anything that this worker has in flight.
 */
int nvefs_block_alloc_wait(struct nvefs_worker *w, uint32_t want, uint64_t *ret_pblk, uint32_t *ret_got)
{
	struct nvefs_store *st = w->fs->st;
	uint32_t tries;
	int err = -ENOSPC;

	for (tries = 0; tries <= SPACE_TRIES; tries++) {
		bool more = false;

		err = nvefs_alloc_data(st, w->q, &w->cursor, want, ret_pblk, ret_got, &more);
		if (err != -ENOSPC || (!more && tries))
			break;
		nvefs_orphan_drain(w->fs, w->q);
		/* Blocks do not come back under reads in flight, this worker's own included. */
		while (nvefs_queue_inflight(w->q))
			if (!nvefs_queue_poll(w->q, 0) && nvefs_queue_prepare_wait(w->q))
				nvefs_queue_wait(w->q, UINT64_MAX);
		err = nvefs_commit_run(st, true);
		if (err)
			break;
		err = -ENOSPC;
	}
	return err;
}

int nvefs_block_write(struct nvefs_worker *w, const void *buf, uint64_t *ret_pblk, uint64_t *ret_csum)
{
	uint64_t pblk;
	uint32_t got;
	int err = nvefs_block_alloc_wait(w, 1, &pblk, &got);

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

static int install_try(struct nvefs_op *op, struct nvefs_inode *in, uint64_t lblk, uint64_t entry, uint64_t csum)
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
	else
		nvefs_window_set(in, w, lblk % NVEFS_WINDOW_BLKS, entry, csum, &op->pledged);
	nvefs_mutex_unlock(&in->lock);
	return err;
}

int nvefs_block_install(struct nvefs_op *op, struct nvefs_inode *in, uint64_t lblk, uint64_t entry, uint64_t csum)
{
	int err = op->pledged ? 0 : nvefs_op_pledge(op, 1);

	if (err == -ENOSPC) {
		/* Pledges of maps that are dirty now come back when those are folded. */
		err = nvefs_commit_run(in->fs->st, true);
		if (!err)
			err = nvefs_op_pledge(op, 1);
	}

	while (!err) {
		err = install_try(op, in, lblk, entry, csum);
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
