/* SPDX-License-Identifier: MIT */
/*
 * Reading. resolve (in memory) -> commands in flight -> verify -> next chunk.
 *
 * A reader token is held from the resolve until the last command is back, so
 * that no block resolved is used for anything else meanwhile. What fails its checksum, or
 * fails at the device, is resolved and read once more, alone; only then it is
 * an error: bytes before it are delivered, then comes EIO.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "fs/request.h"
#include "fs/window.h"
#include "store/mutation.h"

static void read_chunk(struct nvefs_op *op);
static void read_verify(struct nvefs_op *op);

static bool relatime_due(const struct nvefs_inode_rec *r, struct timespec now)
{
	const struct timespec *a = &r->atime, *m = &r->mtime, *c = &r->ctime;

	return now.tv_sec - a->tv_sec >= 24 * 3600 ||
	       m->tv_sec > a->tv_sec || (m->tv_sec == a->tv_sec && m->tv_nsec >= a->tv_nsec) ||
	       c->tv_sec > a->tv_sec || (c->tv_sec == a->tv_sec && c->tv_nsec >= a->tv_nsec);
}

static void touch_atime_locked(struct nvefs_inode *in)
{
	struct timespec now;

	if (in->fs->opts.noatime || in->fs->read_only)
		return;
	now = nvefs_time_now();
	if (!relatime_due(&in->rec, now))
		return;
	in->rec.atime = now;
	nvefs_inode_mark_dirty_locked(in);
}

void nvefs_read_begin(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;
	uint64_t size;
	int err = nvefs_inode_get(op->w->fs, op->w->q, req->ino, &op->in);

	if (err) {
		nvefs_op_finish(op, err, 0);
		return;
	}
	nvefs_mutex_lock(&op->in->lock);
	size = op->in->rec.size;
	err = S_ISREG(op->in->rec.mode) ? 0 : S_ISDIR(op->in->rec.mode) ? -EISDIR : -EINVAL;
	if (!err)
		touch_atime_locked(op->in);
	nvefs_mutex_unlock(&op->in->lock);
	if (err || req->off >= size || !req->len) {
		nvefs_op_finish(op, err, 0);
		return;
	}
	op->pos = req->off;
	op->end = req->len < size - req->off ? req->off + req->len : size;
	read_chunk(op);
}

static bool has_data(uint64_t entry)
{
	return entry && nvefs_went_type(entry) != NVEFS_EXT_UNWRITTEN;
}

/* Where the chunk's blocks go. */
static uint8_t *chunk_memory(struct nvefs_op *op)
{
	return op->data ? op->data : (uint8_t *)op->req->buf + (op->pos - op->req->off);
}

/*
 * Whole blocks go straight to the caller's memory where that is aligned as the
 * device wants it; the rest, and everything that we lend, into a buffer.
 */
static int choose_chunk(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;
	uint64_t left = op->end - op->pos;
	uint32_t align = nvefs_dev_limits(op->w->fs->dev)->mem_align;
	uintptr_t mem = (uintptr_t)req->buf + (op->pos - req->off);
	bool direct = req->buf && op->pos % NVEFS_BLOCK_SIZE == 0 && left >= NVEFS_BLOCK_SIZE &&
		      mem % (align ? align : 1) == 0;
	uint64_t last;

	op->lblk = op->pos / NVEFS_BLOCK_SIZE;
	last = direct ? op->end / NVEFS_BLOCK_SIZE
		      : (op->end + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE;
	op->nblks = last - op->lblk > NVEFS_CHUNK_BLKS ? NVEFS_CHUNK_BLKS : (uint32_t)(last - op->lblk);
	if (op->data) {
		nvefs_worker_buf_put(op->w, op->data, op->data_class);
		op->data = NULL;
	}
	if (direct)
		return 0;
	op->data = nvefs_worker_buf_get(op->w, op->nblks, &op->data_class);
	return op->data ? 0 : -ENOMEM;
}

static int submit_run(struct nvefs_op *op, uint32_t first, uint32_t count)
{
	struct nvefs_op_io *oi = nvefs_op_io_new(op, NVEFS_IO_READ, nvefs_went_pblk(op->map[first]), count);

	if (!oi)
		return -ENOMEM;
	oi->first = first;
	oi->count = count;
	oi->iov[0].iov_base = chunk_memory(op) + (size_t)first * NVEFS_BLOCK_SIZE;
	oi->iov[0].iov_len = (size_t)count * NVEFS_BLOCK_SIZE;
	oi->io.niov = 1;
	nvefs_op_io_submit(oi);
	return 0;
}

/* The read ends at op->pos. */
static void end_with(struct nvefs_op *op, int err)
{
	uint64_t got = op->pos - op->req->off;

	if (err && got && op->req->flags & NVEFS_READ_WHOLE)
		got = 0;
	nvefs_op_finish(op, got ? 0 : err, got);
}

static void read_failed(struct nvefs_op *op)
{
	int err = nvefs_caller_errno(nvefs_op_ios_err(op));

	end_with(op, err ? err : -ENOMEM);
}

static void read_chunk(struct nvefs_op *op)
{
	uint32_t i = 0, n;
	int err = choose_chunk(op);

	if (err) {
		read_failed(op);
		return;
	}
	op->reader = nvefs_reader_enter(op->w->fs->st);
	op->reading = true;
	err = nvefs_blocks_look(op->in, op->w->q, op->lblk, op->nblks, op->map, op->csum);
	if (err) {
		end_with(op, err);
		return;
	}
	op->step = read_verify;
	while (i < op->nblks) {
		n = 1;
		if (!has_data(op->map[i])) {
			memset(chunk_memory(op) + (size_t)i * NVEFS_BLOCK_SIZE, 0, NVEFS_BLOCK_SIZE);
			i++;
			continue;
		}
		while (i + n < op->nblks && op->map[i + n] == op->map[i] + n)
			n++;
		err = submit_run(op, i, n);
		if (err)
			break;
		i += n;
	}
	/* Out of memory midway: what is in flight must come back first. */
	if (err) {
		op->nblks = i;
		op->end = i ? (op->lblk + i) * NVEFS_BLOCK_SIZE : op->pos;
	}
	if (!op->pending) {
		if (i)
			read_verify(op);
		else
			read_failed(op);
	}
}

static bool block_good(struct nvefs_op *op, uint32_t i, const uint8_t *mem)
{
	if (nvefs_went_type(op->map[i]) != NVEFS_EXT_DATA)
		return true;
	return nvefs_hash(mem, NVEFS_BLOCK_SIZE, op->w->fs->hash_seed) == op->csum[i];
}

/* Blocks of one command: those that are wrong are read again alone. Index of the first bad one, or count. */
static uint32_t verify_run(struct nvefs_op *op, const struct nvefs_op_io *oi, int *ret_err)
{
	uint32_t i;

	for (i = 0; i < oi->count; i++) {
		uint8_t *mem = chunk_memory(op) + (size_t)(oi->first + i) * NVEFS_BLOCK_SIZE;

		if (!oi->io.err && block_good(op, oi->first + i, mem))
			continue;
		if (nvefs_mutated(NVEFS_MUTATE_NO_REREAD) ||
		    nvefs_mutated(NVEFS_MUTATE_NO_READERS_REREAD))
			*ret_err = -EIO;
		else
			*ret_err = nvefs_block_read(op->in, op->w->q, op->lblk + oi->first + i, mem);
		if (*ret_err)
			break;
	}
	return i;
}

static void read_verify(struct nvefs_op *op)
{
	struct nvefs_req *req = op->req;
	uint32_t good = op->nblks;
	const struct nvefs_op_io *oi;
	uint64_t got_end;
	int err = 0;

	for (oi = op->ios; oi; oi = oi->next) {
		int run_err = 0;
		uint32_t n = verify_run(op, oi, &run_err);

		if (n < oi->count && oi->first + n < good) {
			good = oi->first + n;
			err = run_err;
		}
	}
	nvefs_op_ios_free(op);
	if (op->reading) /* nothing had to be read */
		nvefs_reader_exit(op->w->fs->st, op->reader);
	op->reading = false;

	got_end = (op->lblk + good) * NVEFS_BLOCK_SIZE;
	if (got_end > op->end)
		got_end = op->end;
	if (got_end > op->pos) {
		if (req->buf && op->data)
			memcpy((uint8_t *)req->buf + (op->pos - req->off),
			       op->data + op->pos % NVEFS_BLOCK_SIZE, got_end - op->pos);
		else if (op->data)
			req->data = op->data + op->pos % NVEFS_BLOCK_SIZE;
		op->pos = got_end;
	}
	/* A lent buffer holds one chunk: the rest is a short read. */
	if (err || op->pos >= op->end || !req->buf) {
		if (req->buf)
			req->data = req->buf;
		end_with(op, err);
		return;
	}
	nvefs_op_ready(op, read_chunk);
}

/* ---- Single blocks, waiting in place ---- */

int nvefs_blocks_look(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t lblk, uint32_t n, uint64_t *ret_entry,
		      uint64_t *ret_csum)
{
	uint32_t i = 0;

	while (i < n) {
		uint64_t widx = (lblk + i) / NVEFS_WINDOW_BLKS;
		uint32_t off = (lblk + i) % NVEFS_WINDOW_BLKS;
		struct nvefs_window_mem *w;

		nvefs_mutex_lock(&in->lock);
		w = nvefs_window_find(in, widx);
		for (; w && i < n && off < NVEFS_WINDOW_BLKS; i++, off++) {
			ret_entry[i] = nvefs_window_entry(w, off);
			ret_csum[i] = ret_entry[i] ? w->csum[off] : 0;
		}
		nvefs_mutex_unlock(&in->lock);
		if (!w) {
			int err = nvefs_window_load(in, q, widx);

			if (err)
				return err;
		}
	}
	return 0;
}

int nvefs_block_look(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t lblk, struct nvefs_block_view *ret)
{
	return nvefs_blocks_look(in, q, lblk, 1, &ret->entry, &ret->csum);
}

static int read_checked(struct nvefs_inode *in, struct nvefs_queue *q, const struct nvefs_block_view *v, void *buf)
{
	int err;

	if (!has_data(v->entry)) {
		memset(buf, 0, NVEFS_BLOCK_SIZE);
		return 0;
	}
	err = nvefs_caller_errno(nvefs_queue_read(q, nvefs_went_pblk(v->entry), 1, buf));
	if (err)
		return err;
	if (nvefs_went_type(v->entry) == NVEFS_EXT_DATA &&
	    nvefs_hash(buf, NVEFS_BLOCK_SIZE, in->fs->hash_seed) != v->csum)
		return -EUCLEAN;
	return 0;
}

/*
 * Tried again while the mapping moves underneath; with the mapping unchanged a
 * second failure is final. The caller's alignment may not suit the device.
 */
int nvefs_block_read(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t lblk, void *buf)
{
	struct nvefs_block_view v, seen = {0};
	void *mem = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint32_t tries = 0;
	int err;

	if (!mem)
		return -ENOMEM;
	do {
		uint32_t token = nvefs_reader_enter(in->fs->st);

		err = nvefs_block_look(in, q, lblk, &v);
		if (!err) {
			tries = v.entry == seen.entry && v.csum == seen.csum ? tries + 1 : 1;
			seen = v;
			err = read_checked(in, q, &v, mem);
		}
		nvefs_reader_exit(in->fs->st, token);
	} while ((err == -EUCLEAN || err == -EIO) && tries < 2);
	if (!err)
		memcpy(buf, mem, NVEFS_BLOCK_SIZE);
	else if (err != -ENOMEM)
		nvefs_data_complain(in, lblk, nvefs_went_pblk(v.entry), err);
	nvefs_buf_free(mem);
	return err == -EUCLEAN ? -EIO : err;
}

void nvefs_data_complain(struct nvefs_inode *in, uint64_t lblk, uint64_t pblk, int err)
{
	struct nvefs_fs *fs = in->fs;
	uint32_t missed;

	if (err == -EUCLEAN)
		fs->checksum_errors++;
	else
		fs->io_errors++;
	if (!nvefs_ratelimit_ok(&fs->log_limit, &missed))
		return;
	nvefs_log(NVEFS_LOG_ERR, "inode %llu: offset %llu: block %llu: %s%s", (unsigned long long)in->ino,
		  (unsigned long long)lblk * NVEFS_BLOCK_SIZE, (unsigned long long)pblk,
		  err == -EUCLEAN ? "checksum mismatch: the data is damaged; restore the file from a copy"
				  : "read failed at the device",
		  missed ? " (similar messages were left out)" : "");
}
