/* SPDX-License-Identifier: MIT */
/* Between write.c (what is to be written) and install.c (where it goes, and the remap). */
#ifndef NVEFS_FS_WRITE_H
#define NVEFS_FS_WRITE_H

#include "fs/request.h"

/*
 * How a block of the chunk gets its place; op->map holds its entry:
 *   NEW      reserved, to be written; a memory reference once it is mapped
 *   PLACE    an unwritten block of this file: holds no data, so it is written where it is; pinned
 *   SHARED   an existing block with the same content; pinned
 *   TWIN     the same content as an earlier block of this chunk, op->csum tells by equality;
 *            op->map holds that block's index until it is mapped
 *   NEW_DOUBT, PLACE_DOUBT  of a command that timed out: it may still be carried out
 */
enum nvefs_write_how {
	NVEFS_HOW_NONE,
	NVEFS_HOW_NEW,
	NVEFS_HOW_PLACE,
	NVEFS_HOW_SHARED,
	NVEFS_HOW_TWIN,
	NVEFS_HOW_NEW_DOUBT,
	NVEFS_HOW_PLACE_DOUBT
};

/* The bytes of block i of the chunk. */
static inline const uint8_t *nvefs_write_bytes(const struct nvefs_op *op, uint32_t i)
{
	if (i == 0 && op->head)
		return op->head;
	if (i == op->nblks - 1 && op->tail)
		return op->tail;
	if (op->data)
		return op->data + (size_t)i * NVEFS_BLOCK_SIZE;
	return (const uint8_t *)op->req->buf + ((op->lblk + i) * NVEFS_BLOCK_SIZE - op->start);
}

/* All blocks of the chunk are decided but for NONE ones: place them, write, remap, then nvefs_write_next. */
void nvefs_write_place(struct nvefs_op *op);
/*
 * No space, and no block is held for the chunk: true when the chunk, or a smaller one, begins anew.
 */
bool nvefs_write_wait(struct nvefs_op *op);
/* The chunk is mapped (err 0), or nothing of it is: go on or end. */
void nvefs_write_next(struct nvefs_op *op, int err);

#endif
