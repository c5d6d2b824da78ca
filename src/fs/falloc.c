/* SPDX-License-Identifier: MIT */
/*
 * fallocate: allocate (unwritten blocks), punch a hole, zero a range.
 *
 * An unwritten block is written in place the first time, which is safe since it
 * holds nothing; so the first write to every block of the range cannot fail
 * for want of data space. Overwriting it later goes out of place like all else.
 */
#include <errno.h>
#include <linux/falloc.h>
#include <string.h>

#include "fs/request.h"
#include "fs/window.h"

static void falloc_locked(struct nvefs_op *op);

static int falloc_check(const struct nvefs_req *req)
{
	const uint32_t keep = FALLOC_FL_KEEP_SIZE;

	switch (req->flags & ~keep) {
	case 0:
	case FALLOC_FL_ZERO_RANGE:
		break;
	case FALLOC_FL_PUNCH_HOLE:
		if (!(req->flags & keep))
			return -EOPNOTSUPP;
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (!req->len)
		return -EINVAL;
	if (req->off > NVEFS_MAX_SIZE_BYTES || req->len > NVEFS_MAX_SIZE_BYTES - req->off)
		return -EFBIG;
	return 0;
}

void nvefs_falloc_begin(struct nvefs_op *op)
{
	struct nvefs_fs *fs = op->w->fs;
	int err = falloc_check(op->req);

	if (!err && (fs->read_only || nvefs_store_error(fs->st)))
		err = -EROFS;
	if (!err)
		err = nvefs_inode_get(fs, op->w->q, op->req->ino, &op->in);
	if (err) {
		nvefs_op_finish(op, err, 0);
		return;
	}
	nvefs_mutex_lock(&op->in->lock);
	err = S_ISREG(op->in->rec.mode) ? 0 : S_ISDIR(op->in->rec.mode) ? -EISDIR : -ENODEV;
	nvefs_mutex_unlock(&op->in->lock);
	if (err)
		nvefs_op_finish(op, err, 0);
	else
		nvefs_op_range(op, 0, NVEFS_MAX_LBLK, true, falloc_locked);
}

/* Bytes [from, to) of one block become zeros, when the block holds data. */
static int zero_in_block(struct nvefs_op *op, uint64_t from, uint64_t to)
{
	uint64_t lblk = from / NVEFS_BLOCK_SIZE, pblk, csum;
	struct nvefs_block_view v;
	uint8_t *buf;
	int err = nvefs_block_look(op->in, op->w->q, lblk, &v);

	if (err || from >= to || !v.entry || nvefs_went_type(v.entry) == NVEFS_EXT_UNWRITTEN)
		return err;
	buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	if (!buf)
		return -ENOMEM;
	err = nvefs_block_read(op->in, op->w->q, lblk, buf);
	if (!err) {
		memset(buf + from % NVEFS_BLOCK_SIZE, 0, to - from);
		err = nvefs_block_write(op, buf, &pblk, &csum);
	}
	if (!err)
		err = nvefs_block_install(op, op->in, lblk, nvefs_went_make(NVEFS_EXT_DATA, pblk), csum, 0);
	nvefs_buf_free(buf);
	return err;
}

/* Exactly the bytes asked for: whole blocks become holes, edges are rewritten. */
static int punch(struct nvefs_op *op, uint64_t from, uint64_t to)
{
	uint64_t lo = (from + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE, hi = to / NVEFS_BLOCK_SIZE;
	int err;

	if (lo > hi) /* within one block */
		return zero_in_block(op, from, to);
	err = zero_in_block(op, from, lo * NVEFS_BLOCK_SIZE);
	if (!err)
		err = zero_in_block(op, hi * NVEFS_BLOCK_SIZE, to);
	if (!err)
		err = nvefs_inode_fold(op->in, op->w->q);
	return err ? err : nvefs_inode_punch(op, lo, hi);
}

/* Length of the run of holes from lblk on within its window and below `hi`. */
static int hole_run(struct nvefs_op *op, uint64_t lblk, uint64_t hi, uint32_t *ret_run)
{
	uint32_t n = 0;

	while (lblk + n < hi && (n == 0 || (lblk + n) % NVEFS_WINDOW_BLKS)) {
		struct nvefs_block_view v;
		int err = nvefs_block_look(op->in, op->w->q, lblk + n, &v);

		if (err)
			return err;
		if (v.entry)
			break;
		n++;
	}
	*ret_run = n;
	return 0;
}

static int fill_run(struct nvefs_op *op, uint64_t lblk, uint32_t run)
{
	struct nvefs_store *st = op->w->fs->st;

	while (run) {
		uint64_t pblk;
		uint32_t got, i;
		int err = nvefs_alloc_data(st, op->w->q, &op->w->cursor, run, &pblk, &got, NULL);

		if (err)
			return err;
		nvefs_block_map(st, pblk, got);
		for (i = 0; i < got && !err; i++)
			err = nvefs_block_install(op, op->in, lblk + i,
						  nvefs_went_make(NVEFS_EXT_UNWRITTEN, pblk + i), 0, 0);
		for (; err && i < got; i++)
			nvefs_data_unpin(op->w->fs, pblk + i, 0);
		if (err)
			return err;
		lblk += got;
		run -= got;
	}
	return 0;
}

/* Goes on where it was, op->lblk. */
static int allocate(struct nvefs_op *op, uint64_t hi)
{
	while (op->lblk < hi) {
		uint32_t run;
		int err = hole_run(op, op->lblk, hi, &run);

		if (!err && run)
			err = fill_run(op, op->lblk, run);
		if (!err && nvefs_fold_pressure(op->w->fs))
			err = nvefs_inode_fold(op->in, op->w->q);
		if (err)
			return err;
		op->lblk += run ? run : 1;
	}
	return 0;
}

/* Everything that has been done is done again without harm, but for a hole, which is filled once it is there. */
static int falloc_try(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;
	uint32_t kind = req->flags & ~(uint32_t)FALLOC_FL_KEEP_SIZE;
	uint64_t end = req->off + req->len;
	int err = 0;

	if (kind && !op->punched) {
		err = punch(op, req->off, end);
		op->punched = !err;
	}
	if (err || kind == FALLOC_FL_PUNCH_HOLE)
		return err;
	return allocate(op, (end + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE);
}

/* Edges of a hole may have blocks of the reserve: a hole is made to have space. */
static bool falloc_wait(struct nvefs_op *op)
{
	if (nvefs_op_space_wait(op, falloc_locked))
		return true;
	if (op->last_resort || op->punched || !(op->req->flags & ~(uint32_t)FALLOC_FL_KEEP_SIZE))
		return false;
	op->last_resort = true;
	nvefs_op_ready(op, falloc_locked);
	return true;
}

static void falloc_locked(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;
	int err = op->commit.err;

	if (!op->lblk)
		op->lblk = req->off / NVEFS_BLOCK_SIZE;
	if (!err)
		err = falloc_try(op);
	if (err == -ENOSPC && !op->commit.err && falloc_wait(op))
		return;
	if (!err)
		nvefs_inode_written(op->in, req->flags & FALLOC_FL_KEEP_SIZE ? 0 : req->off + req->len);
	nvefs_op_finish(op, err, 0);
}
