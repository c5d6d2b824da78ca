/* SPDX-License-Identifier: MIT */
/*
 * Where things lie on a device of a given size. Pure.
 *
 * Fixed blocks are never allocated and never freed; their bits are set from
 * mkfs on: 0 to 15 (superblock slots, root block, bitmap of group 0, claim and beat, reserve),
 * the journal, the first block of each later group (its bitmap), and the last
 * block (superblock slot). Bits of the last group beyond the end are set, too.
 *
 * With second copies (NVEFS_SB_META_DUP) also the second block of each later
 * group g (bitmap of group g + 1; that of group 1 lies at block 4), and four
 * more at the end: bitmap of group 0, journal header slots 0 and 1, root block.
 */
#ifndef NVEFS_FORMAT_LAYOUT_H
#define NVEFS_FORMAT_LAYOUT_H

#include <nvefs/format.h>
#include <stdbool.h>
#include <stdint.h>

#include "format/super.h"

#define NVEFS_MAX_BLKS (1ull << 40)	/* 4 PiB */
#define NVEFS_DUP_TAIL_BLKS 5u		/* fixed blocks at the end, with second copies */
#define NVEFS_LAST_GROUP_MIN_BLKS 64u	/* a shorter rest of the device is left unused */

/* Blocks used of a device that has dev_blks: all, or all but a rest too short for a group. */
uint64_t nvefs_layout_blks(uint64_t dev_blks);
uint32_t nvefs_layout_ngroups(uint64_t nblks);
/* Journal blocks that mkfs takes by default, header slots included. */
uint32_t nvefs_layout_journal_blks(uint64_t nblks);
/*
 * Set nblks, ngroups, group_blks, journal and root addresses for a device of
 * dev_blks; journal_blks 0: the default. -ENOSPC: too small, -EFBIG: too large,
 * -EINVAL: no such journal size.
 */
int nvefs_layout_make(uint64_t dev_blks, uint32_t journal_blks, struct nvefs_super *sb);

static inline uint32_t nvefs_layout_group(uint64_t pblk)
{
	return (uint32_t)(pblk / NVEFS_GROUP_BLKS);
}
static inline uint64_t nvefs_layout_group_start(uint32_t group)
{
	return (uint64_t)group * NVEFS_GROUP_BLKS;
}
/* Blocks of this group: NVEFS_GROUP_BLKS but for the last one. */
uint32_t nvefs_layout_group_len(const struct nvefs_super *sb, uint32_t group);
static inline uint64_t nvefs_layout_bitmap_pblk(uint32_t group)
{
	return group ? nvefs_layout_group_start(group) : NVEFS_BITMAP0_PBLK;
}
/* Second copies, in another place; 0 when there are none. */
uint64_t nvefs_layout_bitmap_twin(const struct nvefs_super *sb, uint32_t group);
uint64_t nvefs_layout_root_twin(const struct nvefs_super *sb);
/* Fixed blocks at the start of a group, and at the end of the device. */
uint64_t nvefs_layout_group_head(const struct nvefs_super *sb, uint32_t group);
uint32_t nvefs_layout_tail(const struct nvefs_super *sb);
/* Fixed blocks in this group; all others are free after mkfs but for the tree. */
uint32_t nvefs_layout_group_fixed(const struct nvefs_super *sb, uint32_t group);
/* True for a fixed block and for an address out of range. */
bool nvefs_layout_is_fixed(const struct nvefs_super *sb, uint64_t pblk);
/* A tree node can lie at pblk with its second copy at twin (0: without, where there are none). */
bool nvefs_layout_node_ok(const struct nvefs_super *sb, uint64_t pblk, uint64_t twin);
/* All of [pblk, pblk + len) is in range and none of it fixed. len >= 1. */
bool nvefs_layout_run_ok(const struct nvefs_super *sb, uint64_t pblk, uint64_t len);
/* Content of a bitmap block as mkfs starts with it: the fixed bits, and those beyond the end. Not sealed. */
void nvefs_layout_bitmap_init(const struct nvefs_super *sb, uint32_t group, uint64_t txn,
			      void *ret_block);

#endif
