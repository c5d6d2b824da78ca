/* SPDX-License-Identifier: MIT */
/*
 * Making durable. A file's dirty maps and inode are folded on the worker's own
 * thread, then the transaction that holds its newest change is waited for;
 * concurrent fsyncs share one commit. What is durable already costs nothing.
 */
#include <errno.h>

#include "fs/request.h"

static void fsync_done(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;

	nvefs_op_finish(op, op->commit.err, op->commit.err ? 0 : req->result);
}

void nvefs_fsync_begin(struct nvefs_op *op)
{
	struct nvefs_fs *fs = op->w->fs;
	uint64_t txn;
	int err = nvefs_store_error(fs->st) ? -EIO : 0;

	if (!err && !op->in)
		err = nvefs_inode_get(fs, op->w->q, op->req->ino, &op->in);
	if (err || fs->read_only) {
		nvefs_op_finish(op, err, 0);
		return;
	}
	err = nvefs_inode_fold(op->in, op->w->q);
	if (err) {
		nvefs_op_finish(op, err == -EROFS ? -EIO : err, 0);
		return;
	}
	/*
	 * An inode that was not in memory may have changes in the running
	 * transaction that nobody remembers.
	 */
	nvefs_mutex_lock(&op->in->lock);
	txn = op->in->last_txn;
	nvefs_mutex_unlock(&op->in->lock);
	nvefs_op_commit(op, txn ? txn : nvefs_txn_running(fs->st), false, fsync_done);
}

void nvefs_sync_begin(struct nvefs_op *op)
{
	if (nvefs_store_error(op->w->fs->st))
		nvefs_op_finish(op, -EIO, 0);
	else if (op->w->fs->read_only)
		nvefs_op_finish(op, 0, 0);
	else
		nvefs_op_commit(op, 0, true, fsync_done);
}

bool nvefs_data_dedup(struct nvefs_inode *in)
{
	uint32_t flags;

	if (!in->fs->index)
		return false;
	nvefs_mutex_lock(&in->lock);
	flags = in->rec.flags;
	nvefs_mutex_unlock(&in->lock);
	if (flags & NVEFS_INODE_DEDUP_OFF)
		return false;
	return flags & NVEFS_INODE_DEDUP_ON || in->fs->dedup_on;
}
