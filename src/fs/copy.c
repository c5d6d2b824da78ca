/* SPDX-License-Identifier: MIT */
/*
 * copy_file_range. Whole blocks at the same place within their blocks are
 * shared: the source's block is pinned and mapped. The rest is copied. The
 * source range is locked shared, so that data in flight in it is waited for;
 * the destination exclusively; two inodes in the order of their numbers.
 */
#include <errno.h>
#include <string.h>

#include "fs/request.h"
#include "fs/window.h"

#define COPY_MAX (UINT64_C(64) << 20) /* at one go; callers ask again for more */

static void copy_second(struct nvefs_op *op);
static void copy_locked(struct nvefs_op *op);

static int is_regular(struct nvefs_inode *in)
{
	int err;

	nvefs_mutex_lock(&in->lock);
	err = S_ISREG(in->rec.mode) ? 0 : S_ISDIR(in->rec.mode) ? -EISDIR : -EINVAL;
	nvefs_mutex_unlock(&in->lock);
	return err;
}

static int copy_check(struct nvefs_op *op)
{
	struct nvefs_fs *fs = op->w->fs;
	struct nvefs_req *req = op->req;
	int err;

	if (fs->read_only || nvefs_store_error(fs->st))
		return -EROFS;
	if (req->flags)
		return -EINVAL;
	if (req->len > COPY_MAX)
		req->len = COPY_MAX;
	if (req->off > NVEFS_MAX_SIZE_BYTES || req->off_out > NVEFS_MAX_SIZE_BYTES ||
	    req->len > NVEFS_MAX_SIZE_BYTES - req->off || req->len > NVEFS_MAX_SIZE_BYTES - req->off_out)
		return -EFBIG;
	if (req->ino == req->ino_out && req->off < req->off_out + req->len && req->off_out < req->off + req->len)
		return -EINVAL;
	err = nvefs_inode_get(fs, op->w->q, req->ino, &op->in);
	if (!err)
		err = nvefs_inode_get(fs, op->w->q, req->ino_out, &op->in2);
	if (!err)
		err = is_regular(op->in);
	return err ? err : is_regular(op->in2);
}

static uint64_t blks_end(uint64_t off, uint64_t len)
{
	return (off + len + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE;
}

static void lock_source(struct nvefs_op *op, nvefs_step_fn *step)
{
	struct nvefs_req *req = op->req;

	nvefs_op_range(op, req->off / NVEFS_BLOCK_SIZE, blks_end(req->off, req->len), false, step);
}

static void lock_target(struct nvefs_op *op, nvefs_step_fn *step)
{
	struct nvefs_req *req = op->req;

	nvefs_op_range2(op, req->off_out / NVEFS_BLOCK_SIZE, blks_end(req->off_out, req->len), true, step);
}

void nvefs_copy_begin(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;
	int err = copy_check(op);
	uint64_t lo, hi;

	if (err || !req->len) {
		nvefs_op_finish(op, err, 0);
		return;
	}
	if (req->ino < req->ino_out) {
		lock_source(op, copy_second);
	} else if (req->ino > req->ino_out) {
		lock_target(op, copy_second);
	} else {
		/* One range over both, so that it never waits for itself. */
		lo = req->off < req->off_out ? req->off : req->off_out;
		hi = req->off < req->off_out ? req->off_out : req->off;
		nvefs_op_range(op, lo / NVEFS_BLOCK_SIZE, blks_end(hi, req->len), true, copy_locked);
	}
}

static void copy_second(struct nvefs_op *op)
{
	if (op->req->ino < op->req->ino_out)
		lock_target(op, copy_locked);
	else
		lock_source(op, copy_locked);
}

static uint64_t inode_size(struct nvefs_inode *in)
{
	uint64_t size;

	nvefs_mutex_lock(&in->lock);
	size = in->rec.size;
	nvefs_mutex_unlock(&in->lock);
	return size;
}

/* Source bytes [off, off + n) into buf, across at most two blocks. */
static int read_bytes(struct nvefs_op *op, uint64_t off, uint32_t n, uint8_t *buf, uint8_t *blk)
{
	while (n) {
		uint32_t in_blk = off % NVEFS_BLOCK_SIZE, k = NVEFS_BLOCK_SIZE - in_blk;
		int err = nvefs_block_read(op->in, op->w->q, off / NVEFS_BLOCK_SIZE, blk);

		if (err)
			return err;
		if (k > n)
			k = n;
		memcpy(buf, blk + in_blk, k);
		buf += k;
		off += k;
		n -= k;
	}
	return 0;
}

/* n bytes that stay within one destination block. bufs: two blocks. */
static int copy_part(struct nvefs_op *op, uint64_t from, uint64_t to, uint32_t n, uint8_t *bufs)
{
	uint64_t lblk = to / NVEFS_BLOCK_SIZE, pblk, csum;
	uint32_t at = to % NVEFS_BLOCK_SIZE;
	int err = 0;

	memset(bufs, 0, NVEFS_BLOCK_SIZE);
	if (n < NVEFS_BLOCK_SIZE && lblk * NVEFS_BLOCK_SIZE < inode_size(op->in2))
		err = nvefs_block_read(op->in2, op->w->q, lblk, bufs);
	if (!err)
		err = read_bytes(op, from, n, bufs + at, bufs + NVEFS_BLOCK_SIZE);
	if (!err)
		err = nvefs_block_write(op, bufs, &pblk, &csum);
	if (!err)
		err = nvefs_block_install(op, op->in2, lblk, nvefs_went_make(NVEFS_EXT_DATA, pblk), csum, 0);
	return err;
}

/* One whole block by reference. -EMLINK: to be copied instead. */
static int share_block(struct nvefs_op *op, uint64_t from_lblk, uint64_t to_lblk)
{
	struct nvefs_fs *fs = op->w->fs;
	struct nvefs_block_view src, dst;
	uint64_t pblk;
	int err = nvefs_block_look(op->in, op->w->q, from_lblk, &src);

	if (err)
		return err;
	if (!src.entry || nvefs_went_type(src.entry) == NVEFS_EXT_UNWRITTEN) {
		err = nvefs_block_look(op->in2, op->w->q, to_lblk, &dst);
		if (!err && dst.entry)
			err = nvefs_block_install(op, op->in2, to_lblk, 0, 0, 0);
		return err;
	}
	if (nvefs_went_type(src.entry) != NVEFS_EXT_DATA)
		return -EMLINK;
	pblk = nvefs_went_pblk(src.entry);
	err = nvefs_block_pin_load(fs->st, op->w->q, pblk);
	if (!err)
		err = nvefs_block_pin(fs->st, pblk);
	if (err)
		return err;
	if (to_lblk % NVEFS_WINDOW_BLKS == 0)
		op->run = (struct nvefs_share_run){0};
	return nvefs_block_install(op, op->in2, to_lblk, src.entry, src.csum, nvefs_share_need(&op->run, pblk));
}

/*
 * The source's last, partial block may be shared whole where the destination
 * ends with it: behind the end of a file a block holds zeros.
 */
static bool may_share(struct nvefs_op *op, uint64_t from, uint64_t to, uint64_t left, uint64_t size_in,
		      uint64_t size_out)
{
	if (from % NVEFS_BLOCK_SIZE || to % NVEFS_BLOCK_SIZE)
		return false;
	if (left >= NVEFS_BLOCK_SIZE)
		return true;
	return op->in != op->in2 && from + left == size_in && to + left >= size_out;
}

static int copy_step(struct nvefs_op *op, uint64_t done, uint64_t len, uint8_t *bufs, uint32_t *ret_n)
{
	uint64_t from = op->req->off + done, to = op->req->off_out + done, left = len - done;
	uint32_t room = NVEFS_BLOCK_SIZE - to % NVEFS_BLOCK_SIZE;
	int err = -EMLINK;

	*ret_n = left < room ? (uint32_t)left : room;
	if (may_share(op, from, to, left, inode_size(op->in), inode_size(op->in2)))
		err = share_block(op, from / NVEFS_BLOCK_SIZE, to / NVEFS_BLOCK_SIZE);
	if (err == -EMLINK)
		err = copy_part(op, from, to, *ret_n, bufs);
	return err;
}

/* Goes on where it was, op->pos bytes from the beginning. */
static int copy_run(struct nvefs_op *op, uint64_t len)
{
	uint8_t *bufs = nvefs_buf_new(2 * NVEFS_BLOCK_SIZE);
	int err = bufs ? 0 : -ENOMEM;

	op->run = (struct nvefs_share_run){0};
	while (op->pos < len && !err) {
		uint32_t n;

		err = copy_step(op, op->pos, len, bufs, &n);
		if (!err)
			op->pos += n;
		if (!err && nvefs_fold_pressure(op->w->fs))
			err = nvefs_inode_fold(op->in2, op->w->q);
	}
	nvefs_buf_free(bufs);
	return err;
}

static void copy_locked(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;
	uint64_t size = inode_size(op->in), len = req->len;
	int err = op->commit.err;

	if (req->off >= size)
		len = 0;
	else if (len > size - req->off)
		len = size - req->off;
	if (!err)
		err = copy_run(op, len);
	if (op->pos)
		nvefs_inode_written(op->in2, req->off_out + op->pos);
	if (err == -ENOSPC && !op->commit.err && nvefs_op_space_wait(op, copy_locked))
		return;
	nvefs_op_finish(op, op->pos ? 0 : err, op->pos);
}
