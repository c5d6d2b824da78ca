/* SPDX-License-Identifier: MIT */
/*
 * Writing, by chunks of up to 257 blocks under a range lock:
 *
 *	stage     partial edge blocks are read (RMW) and overlaid
 *	sum       fingerprint of each block, which is also its checksum
 *	share     dedup: find candidates, pin, read, compare
 *	place     allocate the others, one device command per run of neighbours
 *	install   when all commands have completed: remap in memory (install.c)
 *
 * The request is answered after the last install; with O_SYNC after a commit.
 * Bytes of a file's last block beyond its size are always zero, in memory and
 * on the device: extending a file needs no read.
 */
#include "fs/write.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "fs/window.h"

static void write_lock(struct nvefs_op *op);
static void write_start(struct nvefs_op *op);
static void write_chunk(struct nvefs_op *op);
static void write_staged(struct nvefs_op *op);

static int write_check(struct nvefs_op *op)
{
	struct nvefs_fs *fs = op->w->fs;
	struct nvefs_req *req = op->req;
	int err;

	if (fs->read_only || nvefs_store_error(fs->st))
		return -EROFS;
	if (req->off > NVEFS_MAX_SIZE_BYTES || req->len > NVEFS_MAX_SIZE_BYTES - req->off)
		return -EFBIG;
	err = nvefs_inode_get(fs, op->w->q, req->ino, &op->in);
	if (err)
		return err;
	nvefs_mutex_lock(&op->in->lock);
	err = S_ISREG(op->in->rec.mode) ? 0 : S_ISDIR(op->in->rec.mode) ? -EISDIR : -EINVAL;
	nvefs_mutex_unlock(&op->in->lock);
	return err;
}

void nvefs_write_begin(struct nvefs_op *op)
{
	int err = write_check(op);

	if (err || !op->req->len) {
		nvefs_op_finish(op, err, 0);
		return;
	}
	if (nvefs_fold_pressure(op->w->fs))
		nvefs_op_commit(op, 0, true, write_lock);
	else
		write_lock(op);
}

static void write_lock(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;

	if (op->commit.err) {
		nvefs_op_finish(op, op->commit.err, 0);
		return;
	}
	if (req->flags & NVEFS_WRITE_APPEND)
		nvefs_op_range(op, 0, NVEFS_MAX_LBLK, true, write_start);
	else
		nvefs_op_range(op, req->off / NVEFS_BLOCK_SIZE,
			       (req->off + req->len + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE, true,
			       write_start);
}

static void write_start(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;

	op->start = req->off;
	if (req->flags & NVEFS_WRITE_APPEND) {
		nvefs_mutex_lock(&op->in->lock);
		op->start = op->in->rec.size;
		nvefs_mutex_unlock(&op->in->lock);
		if (req->len > NVEFS_MAX_SIZE_BYTES - op->start) {
			nvefs_op_finish(op, -EFBIG, 0);
			return;
		}
	}
	op->pos = op->start;
	op->end = op->start + req->len;
	write_chunk(op);
}

static uint64_t chunk_end(const struct nvefs_op *op)
{
	uint64_t end = (op->lblk + op->nblks) * NVEFS_BLOCK_SIZE;

	return end < op->end ? end : op->end;
}

/*
 * Stage one partial block: zeros, or the old content when some of it will stay.
 * A read is submitted for that; write_staged checks it.
 */
static int stage_block(struct nvefs_op *op, uint32_t i, uint64_t keep_to, uint8_t **ret_buf)
{
	struct nvefs_block_view v;
	struct nvefs_op_io *oi;
	uint8_t class, *buf = nvefs_worker_buf_get(op->w, 1, &class);
	int err;

	if (!buf)
		return -ENOMEM;
	*ret_buf = buf;
	memset(buf, 0, NVEFS_BLOCK_SIZE);
	if (!keep_to)
		return 0;
	err = nvefs_block_look(op->in, op->w->q, op->lblk + i, &v);
	if (err)
		return err;
	if (!v.entry || nvefs_went_type(v.entry) == NVEFS_EXT_UNWRITTEN)
		return 0;
	oi = nvefs_op_io_new(op, NVEFS_IO_READ, nvefs_went_pblk(v.entry), 1);
	if (!oi)
		return -ENOMEM;
	oi->first = i;
	oi->count = 1;
	oi->iov[0].iov_base = buf;
	oi->iov[0].iov_len = NVEFS_BLOCK_SIZE;
	oi->io.niov = 1;
	op->map[i] = v.entry;
	op->csum[i] = v.csum;
	nvefs_op_io_submit(oi);
	return 0;
}

/* Bytes of block i that existed and are not overwritten make an old read necessary. */
static int stage_edges(struct nvefs_op *op)
{
	uint64_t size, end = chunk_end(op), first = op->lblk * NVEFS_BLOCK_SIZE;
	uint64_t last = (op->lblk + op->nblks - 1) * NVEFS_BLOCK_SIZE;
	bool head = op->pos % NVEFS_BLOCK_SIZE, tail = end % NVEFS_BLOCK_SIZE;
	int err = 0;

	nvefs_mutex_lock(&op->in->lock);
	size = op->in->rec.size;
	nvefs_mutex_unlock(&op->in->lock);
	if (head || (tail && op->nblks == 1))
		err = stage_block(op, 0, first < size && (head || end < size), &op->head);
	if (!err && tail && op->nblks > 1)
		err = stage_block(op, op->nblks - 1, last < size && end < size, &op->tail);
	return err;
}

static void drop_staging(struct nvefs_op *op)
{
	if (op->head)
		nvefs_worker_buf_put(op->w, op->head, 0);
	if (op->tail)
		nvefs_worker_buf_put(op->w, op->tail, 0);
	if (op->data)
		nvefs_worker_buf_put(op->w, op->data, op->data_class);
	op->head = op->tail = op->data = NULL;
	nvefs_op_ios_free(op);
}

static void write_chunk(struct nvefs_op *op)
{
	uint64_t last = (op->end + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE;
	uint32_t windows, max_blks = op->max_blks ? op->max_blks : NVEFS_CHUNK_BLKS;
	int err;

	if (op->commit.err) { /* of a commit for space */
		nvefs_write_next(op, op->commit.err);
		return;
	}
	op->lblk = op->pos / NVEFS_BLOCK_SIZE;
	op->nblks = last - op->lblk > max_blks ? max_blks : (uint32_t)(last - op->lblk);
	memset(op->how, NVEFS_HOW_NONE, op->nblks);
	memset(op->map, 0, op->nblks * sizeof(op->map[0]));
	windows = (uint32_t)((op->lblk + op->nblks - 1) / NVEFS_WINDOW_BLKS - op->lblk / NVEFS_WINDOW_BLKS) + 1;
	err = nvefs_op_pledge(op, windows * NVEFS_WINDOW_PLEDGE);
	if (err == -ENOSPC && nvefs_write_wait(op))
		return;
	op->step = write_staged;
	if (!err)
		err = stage_edges(op);
	op->commit.err = err;
	if (!op->pending)
		write_staged(op);
}

static bool staged_good(struct nvefs_op *op, const struct nvefs_op_io *oi)
{
	if (oi->io.err)
		return false;
	return nvefs_went_type(op->map[oi->first]) != NVEFS_EXT_DATA ||
	       nvefs_hash(oi->iov[0].iov_base, NVEFS_BLOCK_SIZE, op->w->fs->hash_seed) == op->csum[oi->first];
}

static int check_staged(struct nvefs_op *op)
{
	struct nvefs_op_io *oi;
	int err = op->commit.err;

	for (oi = op->ios; oi && !err; oi = oi->next)
		if (!staged_good(op, oi))
			err = nvefs_block_read(op->in, op->w->q, op->lblk + oi->first, oi->iov[0].iov_base);
	nvefs_op_ios_free(op);
	memset(op->map, 0, op->nblks * sizeof(op->map[0]));
	return err;
}

static void overlay(struct nvefs_op *op, uint8_t *buf, uint32_t i)
{
	uint64_t at = (op->lblk + i) * NVEFS_BLOCK_SIZE, end = chunk_end(op);
	uint64_t from = op->pos > at ? op->pos : at;
	uint64_t to = end < at + NVEFS_BLOCK_SIZE ? end : at + NVEFS_BLOCK_SIZE;

	memcpy(buf + (from - at), (const uint8_t *)op->req->buf + (from - op->start), to - from);
}

/* The caller's memory may not be aligned as the device wants it: then all whole blocks are copied. */
static int align_middle(struct nvefs_op *op)
{
	uint32_t first = op->head ? 1 : 0, n = op->nblks - first - (op->tail ? 1 : 0);
	uint32_t align = nvefs_dev_limits(op->w->fs->dev)->mem_align;
	const uint8_t *src;

	if (!n)
		return 0;
	src = nvefs_write_bytes(op, first);
	if (align <= 1 || (uintptr_t)src % align == 0)
		return 0;
	op->data = nvefs_worker_buf_get(op->w, op->nblks, &op->data_class);
	if (!op->data)
		return -ENOMEM;
	memcpy(op->data + (size_t)first * NVEFS_BLOCK_SIZE, src, (size_t)n * NVEFS_BLOCK_SIZE);
	return 0;
}

static void shared_decided(struct nvefs_op *op)
{
	nvefs_share_finish(op);
	nvefs_write_place(op);
}

static void write_staged(struct nvefs_op *op)
{
	int err = check_staged(op);
	uint32_t i;

	if (!err && op->head)
		overlay(op, op->head, 0);
	if (!err && op->tail)
		overlay(op, op->tail, op->nblks - 1);
	if (!err)
		err = align_middle(op);
	if (err) {
		nvefs_write_next(op, err);
		return;
	}
	for (i = 0; i < op->nblks; i++)
		op->csum[i] = nvefs_hash(nvefs_write_bytes(op, i), NVEFS_BLOCK_SIZE, op->w->fs->hash_seed);
	if (!nvefs_data_dedup(op->in)) {
		nvefs_write_place(op);
		return;
	}
	op->step = shared_decided;
	if (!nvefs_share_start(op))
		shared_decided(op);
}

/* Blocks that fallocate promised, all of them: they need space for their checksums only. */
static bool is_preallocated(struct nvefs_op *op)
{
	uint64_t entry[NVEFS_CHUNK_BLKS], csum[NVEFS_CHUNK_BLKS];
	uint32_t i;

	if (nvefs_blocks_look(op->in, op->w->q, op->lblk, op->nblks, entry, csum))
		return false;
	for (i = 0; i < op->nblks; i++)
		if (nvefs_went_type(entry[i]) != NVEFS_EXT_UNWRITTEN)
			return false;
	return true;
}

bool nvefs_write_wait(struct nvefs_op *op)
{
	drop_staging(op);
	if (nvefs_op_space_wait(op, write_chunk))
		return true;
	if (!op->last_resort && is_preallocated(op))
		op->last_resort = true;
	else if (op->nblks > 1)
		op->max_blks = (op->nblks + 3) / 4; /* as much as there is room for */
	else
		return false;
	nvefs_op_ready(op, write_chunk);
	return true;
}

void nvefs_write_next(struct nvefs_op *op, int err)
{
	struct nvefs_req *req = op->req;
	uint64_t done;

	if (!err)
		op->pos = chunk_end(op);
	drop_staging(op);
	nvefs_op_unpledge(op);
	op->last_resort = false;
	done = op->pos - op->start;
	if (!err && op->pos < op->end) {
		nvefs_op_ready(op, write_chunk);
		return;
	}
	if (!done || !(req->flags & NVEFS_WRITE_SYNC)) {
		nvefs_op_finish(op, done ? 0 : err, done);
		return;
	}
	nvefs_range_put(op->in, &op->range);
	req->result = done;
	nvefs_fsync_begin(op);
}
