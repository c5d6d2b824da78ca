/* SPDX-License-Identifier: MIT */
#include "format/block.h"

#include <errno.h>
#include <stdbool.h>

#include "base/hash.h"

const char *nvefs_block_status_text(enum nvefs_block_status status)
{
	switch (status) {
	case NVEFS_BLOCK_OK:
		return "intact";
	case NVEFS_BLOCK_ZERO:
		return "all zeros (never written or discarded)";
	case NVEFS_BLOCK_MAGIC:
		return "not a metadata block (wrong magic)";
	case NVEFS_BLOCK_CHECKSUM:
		return "corrupt (checksum mismatch)";
	case NVEFS_BLOCK_VERSION:
		return "of another disk version";
	case NVEFS_BLOCK_FOREIGN:
		return "of another file system (UUID differs)";
	case NVEFS_BLOCK_MISDIRECTED:
		return "misdirected (carries another address)";
	case NVEFS_BLOCK_TYPE:
		return "of the wrong type";
	case NVEFS_BLOCK_STALE:
		return "stale (older than expected: a write was lost)";
	case NVEFS_BLOCK_FUTURE:
		return "newer than expected (the block pointing here is stale)";
	case NVEFS_BLOCK_CONTENT:
		return "impossible content";
	}
	return "unknown status";
}

int nvefs_block_status_errno(enum nvefs_block_status status)
{
	return status == NVEFS_BLOCK_OK ? 0 : -EUCLEAN;
}

void nvefs_block_fill(void *block, uint16_t type, uint64_t pblk, uint64_t txn, const uint8_t *uuid)
{
	struct nvefs_disk_header *hdr = block;

	memset(hdr, 0, sizeof(*hdr));
	hdr->magic = le32_make(NVEFS_MAGIC);
	hdr->type = le16_make(type);
	hdr->version = le16_make(NVEFS_DISK_VERSION);
	hdr->pblk = le64_make(pblk);
	hdr->txn = le64_make(txn);
	memcpy(hdr->uuid, uuid, NVEFS_UUID_BYTES);
}

uint64_t nvefs_block_checksum(const void *block)
{
	uint8_t copy[NVEFS_BLOCK_BYTES];

	memcpy(copy, block, sizeof(copy));
	memset(copy + offsetof(struct nvefs_disk_header, checksum), 0, sizeof(le64));
	return nvefs_hash(copy, sizeof(copy), 0);
}

void nvefs_block_seal(void *block)
{
	struct nvefs_disk_header *hdr = block;

	hdr->checksum = le64_make(0);
	hdr->checksum = le64_make(nvefs_hash(block, NVEFS_BLOCK_BYTES, 0));
}

static bool block_is_zero(const uint8_t *block)
{
	return !block[0] && !memcmp(block, block + 1, NVEFS_BLOCK_BYTES - 1);
}

/* From "these bytes mean nothing" to "this is right but old": the first that applies says most. */
enum nvefs_block_status nvefs_block_check(const void *block, const struct nvefs_block_expect *want)
{
	const struct nvefs_disk_header *hdr = block;
	uint64_t txn = le64_get(hdr->txn);

	if (le32_get(hdr->magic) != NVEFS_MAGIC)
		return block_is_zero(block) ? NVEFS_BLOCK_ZERO : NVEFS_BLOCK_MAGIC;
	if (le64_get(hdr->checksum) != nvefs_block_checksum(block))
		return NVEFS_BLOCK_CHECKSUM;
	if (le16_get(hdr->version) != NVEFS_DISK_VERSION)
		return NVEFS_BLOCK_VERSION;
	if (want->uuid && memcmp(hdr->uuid, want->uuid, NVEFS_UUID_BYTES) != 0)
		return NVEFS_BLOCK_FOREIGN;
	if (le64_get(hdr->pblk) != want->pblk ||
	    (want->twin != NVEFS_TWIN_ANY && le64_get(hdr->twin) != want->twin))
		return NVEFS_BLOCK_MISDIRECTED;
	if (le16_get(hdr->type) != want->type)
		return NVEFS_BLOCK_TYPE;
	if (want->txn && txn != want->txn)
		return txn < want->txn ? NVEFS_BLOCK_STALE : NVEFS_BLOCK_FUTURE;
	return NVEFS_BLOCK_OK;
}
