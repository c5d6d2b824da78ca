/* SPDX-License-Identifier: MIT */
/* The two blocks of multiple mount protection: claim and beat, of one form. Pure. */
#ifndef NVEFS_FORMAT_MMP_H
#define NVEFS_FORMAT_MMP_H

#include <nvefs/format.h>
#include <stdint.h>

#include "format/block.h"
#include "format/super.h"

struct nvefs_mmp_rec {
	uint64_t nonce, seq;
	uint32_t state; /* enum nvefs_mmp_state */
	uint32_t interval_ms;
	uint64_t time_s;
	char host[72], target[256];
};

static inline uint64_t nvefs_mmp_pblk(uint16_t type)
{
	return type == NVEFS_BT_CLAIM ? NVEFS_CLAIM_PBLK : NVEFS_BEAT_PBLK;
}
/* What both say before anybody had it. */
static inline struct nvefs_mmp_rec nvefs_mmp_unused(const struct nvefs_super *sb, uint64_t time_s)
{
	return (struct nvefs_mmp_rec){
		.state = NVEFS_MMP_FREE, .interval_ms = sb->mmp_interval_ms, .time_s = time_s};
}
/* The whole block of this type, NVEFS_BT_CLAIM or NVEFS_BT_BEAT; not sealed. */
void nvefs_mmp_encode(const struct nvefs_mmp_rec *rec, const struct nvefs_super *sb, uint16_t type,
		      void *ret_block);
/* Judge and decode 4096 untrusted bytes. *ret is set when the answer is NVEFS_BLOCK_OK. */
enum nvefs_block_status nvefs_mmp_decode(const void *block, const struct nvefs_super *sb, uint16_t type,
					 struct nvefs_mmp_rec *ret);

#endif
