/* SPDX-License-Identifier: MIT */
#include "format/content.h"

#include "base/bitmap.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/node.h"
#include "format/root.h"

static bool node_possible(const struct nvefs_super *sb, const void *block)
{
	if (nvefs_node_check(block))
		return false;
	if (!nvefs_node_level(block))
		return true;
	for (uint32_t i = 0; i < nvefs_node_nitems(block); i++)
		if (!nvefs_layout_node_ok(sb, nvefs_inner_pblk(block, i), nvefs_inner_child(block, i).twin))
			return false;
	return true;
}

/* Fixed blocks and what lies beyond the end are never free. */
static bool bitmap_possible(const struct nvefs_super *sb, const struct nvefs_disk_bitmap *d)
{
	uint32_t g = nvefs_layout_group(nvefs_block_pblk(d)), len;
	uint64_t start = nvefs_layout_group_start(g);

	if (g >= sb->ngroups)
		return false;
	len = nvefs_layout_group_len(sb, g);
	if (nvefs_bitmap_next_zero(d->bits, len, NVEFS_GROUP_BLKS) != NVEFS_GROUP_BLKS)
		return false;
	for (uint32_t i = 0; i < len && nvefs_layout_is_fixed(sb, start + i); i++)
		if (!nvefs_bitmap_test(d->bits, i))
			return false;
	for (uint32_t i = len; i-- && nvefs_layout_is_fixed(sb, start + i);)
		if (!nvefs_bitmap_test(d->bits, i))
			return false;
	return true;
}

bool nvefs_content_possible(const struct nvefs_super *sb, const void *block)
{
	struct nvefs_jheader header;
	struct nvefs_root root;

	switch (nvefs_block_type(block)) {
	case NVEFS_BT_NODE:
		return node_possible(sb, block);
	case NVEFS_BT_ROOT:
		return !nvefs_root_decode(block, sb, &root);
	case NVEFS_BT_BITMAP:
		return bitmap_possible(sb, block);
	case NVEFS_BT_JHEADER:
		return !nvefs_jheader_decode(block, sb, &header);
	default:
		return true;
	}
}
