/* SPDX-License-Identifier: MIT */
#include "device/split.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define POOL_MAX 64u

/* Where the next part starts, kept in the io itself: block, piece, bytes into the piece. And its bound. */
enum { CUR_BLK, CUR_PIECE, CUR_BYTE, CUR_MAX };

int nvefs_split_pool_init(struct nvefs_queue *q)
{
	uint32_t n = q->depth < POOL_MAX ? q->depth : POOL_MAX;
	struct nvefs_split *parts = calloc(n, sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	q->splits = parts;
	q->splits_free = NULL;
	for (uint32_t i = 0; i < n; i++)
		nvefs_split_free(q, &parts[i]);
	return 0;
}

void nvefs_split_pool_done(struct nvefs_queue *q)
{
	free(q->splits);
	q->splits = NULL;
	q->splits_free = NULL;
}

void nvefs_split_free(struct nvefs_queue *q, struct nvefs_split *part)
{
	part->next = q->splits_free;
	q->splits_free = part;
}

static bool has_data(const struct nvefs_io *io)
{
	return io->op == NVEFS_IO_READ || io->op == NVEFS_IO_WRITE || io->op == NVEFS_IO_COMPARE;
}

static uint32_t max_blks(const struct nvefs_queue *q, const struct nvefs_io *io)
{
	const struct nvefs_dev_limits *l = &q->dev->limits;

	switch (io->op) {
	case NVEFS_IO_DISCARD:
		return l->max_discard_blks;
	case NVEFS_IO_WRITE_ZEROES:
		return l->max_zeroes_blks;
	default:
		return io->q.u[CUR_MAX] && io->q.u[CUR_MAX] < l->max_transfer_blks ? (uint32_t)io->q.u[CUR_MAX]
										   : l->max_transfer_blks;
	}
}

int nvefs_split_check(const struct nvefs_queue *q, const struct nvefs_io *io)
{
	uint64_t bytes = 0;

	if (io->op == NVEFS_IO_RAW)
		return nvefs_dev_takes_raw(q->dev) ? 0 : -ENOTSUP;
	if (io->op > NVEFS_IO_NOPS)
		return -EINVAL;
	if (io->op == NVEFS_IO_FLUSH)
		return 0;
	if (io->op == NVEFS_IO_COMPARE && !q->dev->limits.compare)
		return -ENOTSUP;
	if (!max_blks(q, io))
		return -ENOTSUP;
	if (!io->nblks || io->pblk + io->nblks < io->pblk)
		return -EINVAL;
	if (!has_data(io))
		return 0;
	for (uint32_t i = 0; i < io->niov; i++)
		bytes += io->iov[i].iov_len;
	return bytes == (uint64_t)io->nblks << NVEFS_BLOCK_SHIFT ? 0 : -EINVAL;
}

bool nvefs_split_needed(const struct nvefs_queue *q, const struct nvefs_io *io)
{
	if (io->op == NVEFS_IO_FLUSH || io->op == NVEFS_IO_RAW)
		return false;
	if (io->nblks > max_blks(q, io))
		return true;
	return has_data(io) && io->niov > q->dev->limits.max_segments;
}

void nvefs_split_start(struct nvefs_io *io, uint32_t max_blks)
{
	io->q.u[CUR_BLK] = io->q.u[CUR_PIECE] = io->q.u[CUR_BYTE] = 0;
	io->q.u[CUR_MAX] = max_blks;
	io->q.left = 0;
}

bool nvefs_split_at_end(const struct nvefs_io *io)
{
	return io->q.u[CUR_BLK] == io->nblks;
}

void nvefs_split_stop(struct nvefs_io *io)
{
	io->q.u[CUR_BLK] = io->nblks;
}

/* How far a run of pieces goes: whole blocks within both limits. */
struct run {
	uint32_t npieces; /* touched, the last one maybe in part */
	uint64_t bytes;
	bool cut; /* starts or ends inside a piece of the caller's */
};

static struct run run_measure(const struct nvefs_io *io, uint64_t max_bytes, uint32_t max_pieces)
{
	uint32_t piece = (uint32_t)io->q.u[CUR_PIECE];
	size_t skip = io->q.u[CUR_BYTE];
	struct run best = {0};
	uint64_t bytes = 0;

	for (uint32_t n = 1; n <= max_pieces && piece < io->niov && bytes < max_bytes; n++) {
		uint64_t end = bytes + io->iov[piece].iov_len - skip, whole;

		if (end > max_bytes)
			end = max_bytes;
		whole = end & ~(uint64_t)(NVEFS_BLOCK_SIZE - 1);
		if (whole > bytes) {
			best.npieces = n;
			best.bytes = whole;
			best.cut =
			    io->q.u[CUR_BYTE] || whole != bytes + io->iov[piece].iov_len - skip;
		}
		bytes += io->iov[piece].iov_len - skip;
		piece++;
		skip = 0;
	}
	return best;
}

static void part_set_pieces(struct nvefs_split *part, struct nvefs_io *io, const struct run *run)
{
	struct iovec *first = &io->iov[io->q.u[CUR_PIECE]];
	uint64_t left = run->bytes;
	size_t skip = io->q.u[CUR_BYTE];

	part->io.niov = (uint16_t)run->npieces;
	part->io.iov = run->cut ? part->iov : first;
	for (uint32_t i = 0; i < run->npieces; i++) {
		size_t len = first[i].iov_len - skip;

		if (len > left)
			len = left;
		if (run->cut)
			part->iov[i] = (struct iovec){(char *)first[i].iov_base + skip, len};
		left -= len;
		if (skip + len == first[i].iov_len) {
			io->q.u[CUR_PIECE]++;
			skip = 0;
		} else {
			skip += len;
		}
	}
	io->q.u[CUR_BYTE] = skip;
}

struct nvefs_split *nvefs_split_next(struct nvefs_queue *q, struct nvefs_io *io, int *ret_err)
{
	struct nvefs_split *part = q->splits_free;
	uint64_t blks = io->nblks - io->q.u[CUR_BLK];
	uint32_t segments = q->dev->limits.max_segments;
	struct run run;

	if (!part)
		return NULL;
	if (blks > max_blks(q, io))
		blks = max_blks(q, io);
	part->io = (struct nvefs_io){.op = io->op, .flags = io->flags};
	part->io.q.parent = io;
	part->io.pblk = io->pblk + io->q.u[CUR_BLK];
	/* For undo. */
	part->io.q.u[CUR_PIECE] = io->q.u[CUR_PIECE];
	part->io.q.u[CUR_BYTE] = io->q.u[CUR_BYTE];
	if (has_data(io)) {
		run = run_measure(io, blks << NVEFS_BLOCK_SHIFT, segments);
		if (run.cut && run.npieces > NVEFS_SPLIT_IOV)
			run = run_measure(io, blks << NVEFS_BLOCK_SHIFT,
					  segments < NVEFS_SPLIT_IOV ? segments : NVEFS_SPLIT_IOV);
		if (!run.npieces) {
			*ret_err = -EINVAL;
			return NULL;
		}
		part_set_pieces(part, io, &run);
		blks = run.bytes >> NVEFS_BLOCK_SHIFT;
	}
	part->io.nblks = (uint32_t)blks;
	io->q.u[CUR_BLK] += blks;
	io->q.left++;
	q->splits_free = part->next;
	return part;
}

void nvefs_split_undo(struct nvefs_queue *q, struct nvefs_split *part)
{
	struct nvefs_io *io = part->io.q.parent;

	io->q.u[CUR_BLK] -= part->io.nblks;
	io->q.u[CUR_PIECE] = part->io.q.u[CUR_PIECE];
	io->q.u[CUR_BYTE] = part->io.q.u[CUR_BYTE];
	assert(io->q.left);
	io->q.left--;
	nvefs_split_free(q, part);
}
