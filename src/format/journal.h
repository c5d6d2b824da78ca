/* SPDX-License-Identifier: MIT */
/*
 * Blocks of the journal. Decoders take a block whose header has been checked
 * (nvefs_block_check) and answer 0 or -EUCLEAN. Encoders fill the whole block,
 * not sealed. Pure.
 */
#ifndef NVEFS_FORMAT_JOURNAL_H
#define NVEFS_FORMAT_JOURNAL_H

#include <nvefs/format.h>
#include <stdbool.h>
#include <stdint.h>

#include "format/super.h"

struct nvefs_jheader {
	uint64_t seq, epoch;
	uint64_t tail_txn;
	uint32_t tail_pos;
	uint32_t log_blks;
	uint64_t root_txn;
};

static inline uint32_t nvefs_journal_log_blks(const struct nvefs_super *sb)
{
	return sb->journal_blks - NVEFS_JOURNAL_HEADERS;
}
/* Device address of a position of the log, and of a header slot (0 or 1). */
static inline uint64_t nvefs_journal_log_pblk(const struct nvefs_super *sb, uint32_t pos)
{
	return sb->journal_pblk + NVEFS_JOURNAL_HEADERS + pos;
}
static inline uint64_t nvefs_journal_header_pblk(const struct nvefs_super *sb, unsigned int slot)
{
	return sb->journal_pblk + slot;
}

/* Second copy of a header slot, 0 when there is none. */
uint64_t nvefs_journal_header_twin(const struct nvefs_super *sb, unsigned int slot);

void nvefs_jheader_encode(const struct nvefs_jheader *h, const struct nvefs_super *sb,
			  unsigned int slot, void *ret_block);
int nvefs_jheader_decode(const void *block, const struct nvefs_super *sb, struct nvefs_jheader *ret_h);

/* Descriptor: start with init, add an address per image that follows it, in order. */
void nvefs_jdesc_init(void *block, const struct nvefs_super *sb, uint32_t pos, uint64_t txn,
		      uint64_t epoch, uint32_t index);
/* Room for one more is the caller's business: at most NVEFS_JDESC_MAX. */
void nvefs_jdesc_add(void *block, uint64_t home_pblk);

struct nvefs_jdesc {
	uint64_t txn, epoch;
	uint32_t nimages, index;
};
/* Also checks that each home address is one that a journal image may have; where its second copy goes the image says. */
int nvefs_jdesc_decode(const void *block, const struct nvefs_super *sb, struct nvefs_jdesc *ret_d);
static inline uint64_t nvefs_jdesc_home(const void *block, uint32_t i)
{
	return le64_get(((const struct nvefs_disk_jdesc *)block)->home[i]);
}

struct nvefs_jcommit {
	uint64_t txn, epoch;
	uint32_t nblks, nimages;
	uint64_t group_checksum;
};
void nvefs_jcommit_encode(const struct nvefs_jcommit *c, const struct nvefs_super *sb, uint32_t pos,
			  void *ret_block);
int nvefs_jcommit_decode(const void *block, const struct nvefs_super *sb, struct nvefs_jcommit *ret_c);

/* The header of an image names a home of its type, and a second copy that can be. For 4096 untrusted bytes. */
bool nvefs_image_home_ok(const void *image, const struct nvefs_super *sb);

#endif
