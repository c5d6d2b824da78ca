/* SPDX-License-Identifier: MIT */
#include "format/layout.h"

#include <errno.h>

#include "base/bitmap.h"
#include "format/block.h"

uint64_t nvefs_layout_blks(uint64_t dev_blks)
{
	uint64_t rest = dev_blks % NVEFS_GROUP_BLKS;

	return rest < NVEFS_LAST_GROUP_MIN_BLKS ? dev_blks - rest : dev_blks;
}

uint32_t nvefs_layout_ngroups(uint64_t nblks)
{
	return (uint32_t)((nblks + NVEFS_GROUP_BLKS - 1) / NVEFS_GROUP_BLKS);
}

uint32_t nvefs_layout_journal_blks(uint64_t nblks)
{
	uint64_t blks = nblks / 64;

	if (blks < NVEFS_JOURNAL_DEFAULT_MIN_BLKS)
		return NVEFS_JOURNAL_DEFAULT_MIN_BLKS;
	return blks > NVEFS_JOURNAL_MAX_BLKS ? NVEFS_JOURNAL_MAX_BLKS : (uint32_t)blks;
}

int nvefs_layout_make(uint64_t dev_blks, uint32_t journal_blks, struct nvefs_super *sb)
{
	uint64_t nblks = nvefs_layout_blks(dev_blks);

	if (nblks < NVEFS_MIN_BLKS)
		return -ENOSPC;
	if (nblks > NVEFS_MAX_BLKS)
		return -EFBIG;
	if (!journal_blks)
		journal_blks = nvefs_layout_journal_blks(nblks);
	if (journal_blks < NVEFS_JOURNAL_MIN_BLKS || journal_blks > NVEFS_JOURNAL_MAX_BLKS ||
	    NVEFS_JOURNAL_PBLK + journal_blks > nblks / 2)
		return -EINVAL;
	sb->nblks = nblks;
	sb->group_blks = NVEFS_GROUP_BLKS;
	sb->ngroups = nvefs_layout_ngroups(nblks);
	sb->journal_pblk = NVEFS_JOURNAL_PBLK;
	sb->journal_blks = journal_blks;
	sb->root_pblk = NVEFS_ROOT_PBLK;
	return 0;
}

uint32_t nvefs_layout_group_len(const struct nvefs_super *sb, uint32_t group)
{
	uint64_t rest = sb->nblks - nvefs_layout_group_start(group);

	return rest < NVEFS_GROUP_BLKS ? (uint32_t)rest : NVEFS_GROUP_BLKS;
}

/* In the group before, so that no stretch of bad blocks takes both; of the first one, at the far end. */
uint64_t nvefs_layout_bitmap_twin(const struct nvefs_super *sb, uint32_t group)
{
	if (!nvefs_super_dup(sb))
		return 0;
	if (!group)
		return sb->nblks - NVEFS_DUP_TAIL_BLKS;
	return group == 1 ? NVEFS_BITMAP1_TWIN_PBLK : nvefs_layout_group_start(group - 1) + 1;
}

uint64_t nvefs_layout_root_twin(const struct nvefs_super *sb)
{
	return nvefs_super_dup(sb) ? sb->nblks - 2 : 0;
}

uint64_t nvefs_layout_group_head(const struct nvefs_super *sb, uint32_t group)
{
	if (!group)
		return sb->journal_pblk + sb->journal_blks;
	return nvefs_super_dup(sb) ? 2 : 1;
}

uint32_t nvefs_layout_tail(const struct nvefs_super *sb)
{
	return nvefs_super_dup(sb) ? NVEFS_DUP_TAIL_BLKS : 1;
}

uint32_t nvefs_layout_group_fixed(const struct nvefs_super *sb, uint32_t group)
{
	return (uint32_t)nvefs_layout_group_head(sb, group) +
	       (group == sb->ngroups - 1 ? nvefs_layout_tail(sb) : 0);
}

bool nvefs_layout_is_fixed(const struct nvefs_super *sb, uint64_t pblk)
{
	return pblk >= sb->nblks - nvefs_layout_tail(sb) ||
	       pblk % NVEFS_GROUP_BLKS < nvefs_layout_group_head(sb, 1) ||
	       pblk < sb->journal_pblk + sb->journal_blks;
}

bool nvefs_layout_node_ok(const struct nvefs_super *sb, uint64_t pblk, uint64_t twin)
{
	if (nvefs_layout_is_fixed(sb, pblk))
		return false;
	return nvefs_super_dup(sb) ? twin != pblk && !nvefs_layout_is_fixed(sb, twin) : !twin;
}

bool nvefs_layout_run_ok(const struct nvefs_super *sb, uint64_t pblk, uint64_t len)
{
	if (pblk >= sb->nblks || len > sb->nblks - pblk)
		return false;
	return !nvefs_layout_is_fixed(sb, pblk) && !nvefs_layout_is_fixed(sb, pblk + len - 1) &&
	       nvefs_layout_group(pblk) == nvefs_layout_group(pblk + len - 1);
}

void nvefs_layout_bitmap_init(const struct nvefs_super *sb, uint32_t group, uint64_t txn,
			      void *ret_block)
{
	struct nvefs_disk_bitmap *d = ret_block;
	uint32_t len = nvefs_layout_group_len(sb, group);

	memset(d, 0, sizeof(*d));
	nvefs_block_fill(d, NVEFS_BT_BITMAP, nvefs_layout_bitmap_pblk(group), txn, sb->uuid);
	nvefs_block_set_twin(d, nvefs_layout_bitmap_twin(sb, group));
	nvefs_bitmap_set_run(d->bits, 0, (uint32_t)nvefs_layout_group_head(sb, group));
	if (group == sb->ngroups - 1)
		nvefs_bitmap_set_run(d->bits, len - nvefs_layout_tail(sb), nvefs_layout_tail(sb));
	if (len < NVEFS_GROUP_BLKS)
		nvefs_bitmap_set_run(d->bits, len, NVEFS_GROUP_BLKS - len);
}
