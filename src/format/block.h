/* SPDX-License-Identifier: MIT */
/*
 * The header that every metadata block starts with. Filling it in, sealing the
 * block for the device, and telling what is wrong with one that was read. Pure.
 */
#ifndef NVEFS_FORMAT_BLOCK_H
#define NVEFS_FORMAT_BLOCK_H

#include <nvefs/format.h>
#include <stdint.h>

struct nvefs_super;

#define NVEFS_BLOCK_BYTES 4096u
#define NVEFS_UUID_BYTES 16u

/* What a block turned out to be, worst evidence first. Everything but OK maps to -EUCLEAN. */
enum nvefs_block_status {
	NVEFS_BLOCK_OK,
	NVEFS_BLOCK_ZERO,	 /* all zeros: never written, or discarded */
	NVEFS_BLOCK_MAGIC,	 /* not a metadata block */
	NVEFS_BLOCK_CHECKSUM,	 /* damaged or torn */
	NVEFS_BLOCK_VERSION,	 /* another disk version */
	NVEFS_BLOCK_FOREIGN,	 /* intact, of another file system */
	NVEFS_BLOCK_MISDIRECTED, /* intact, but belongs at another address */
	NVEFS_BLOCK_TYPE,	 /* intact, of another type */
	NVEFS_BLOCK_STALE,	 /* intact, older than expected: a write was lost */
	NVEFS_BLOCK_FUTURE,	 /* intact, newer than expected: whoever points here is stale */
	NVEFS_BLOCK_CONTENT,	 /* intact, but what it says is impossible */
};
const char *nvefs_block_status_text(enum nvefs_block_status status);
int nvefs_block_status_errno(enum nvefs_block_status status); /* 0 or -EUCLEAN */

/* Where a metadata block lies, and which content it must have, as whoever points at it says. */
struct nvefs_block_ref {
	uint64_t pblk;
	uint64_t twin; /* its second copy; 0: there is none */
	uint64_t txn;  /* 0: not known */
};

#define NVEFS_TWIN_ANY UINT64_MAX

struct nvefs_block_expect {
	uint64_t pblk;
	uint64_t twin;	     /* what the header says of it; NVEFS_TWIN_ANY: anything */
	uint64_t txn;	     /* 0: any */
	const uint8_t *uuid; /* NULL: any */
	uint16_t type;
	const struct nvefs_super *super; /* for readers of both copies, see store/copies.h; may be NULL */
};

/* Set the header (checksum zero, no second copy); the rest of the block is left alone. */
void nvefs_block_fill(void *block, uint16_t type, uint64_t pblk, uint64_t txn, const uint8_t *uuid);
/* Set the checksum. Last thing before the block is written. */
void nvefs_block_seal(void *block);
/* The checksum that the block ought to carry. */
uint64_t nvefs_block_checksum(const void *block);
/*
 * Judge the header and the checksum of 4096 untrusted bytes, read from either
 * copy's place; the body is for the type's own decoder.
 */
enum nvefs_block_status nvefs_block_check(const void *block, const struct nvefs_block_expect *want);

static inline uint64_t nvefs_block_txn(const void *block)
{
	return le64_get(((const struct nvefs_disk_header *)block)->txn);
}
static inline void nvefs_block_set_txn(void *block, uint64_t txn)
{
	((struct nvefs_disk_header *)block)->txn = le64_make(txn);
}
static inline uint64_t nvefs_block_pblk(const void *block)
{
	return le64_get(((const struct nvefs_disk_header *)block)->pblk);
}
static inline uint64_t nvefs_block_twin(const void *block)
{
	return le64_get(((const struct nvefs_disk_header *)block)->twin);
}
static inline void nvefs_block_set_twin(void *block, uint64_t twin)
{
	((struct nvefs_disk_header *)block)->twin = le64_make(twin);
}
static inline uint16_t nvefs_block_type(const void *block)
{
	return le16_get(((const struct nvefs_disk_header *)block)->type);
}

#endif
