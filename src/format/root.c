/* SPDX-License-Identifier: MIT */
#include "format/root.h"

#include <errno.h>

#include "format/block.h"
#include "format/layout.h"

void nvefs_root_encode(const struct nvefs_root *root, const struct nvefs_super *sb, uint64_t txn,
		       void *ret_block)
{
	struct nvefs_disk_root *d = ret_block;

	memset(d, 0, sizeof(*d));
	nvefs_block_fill(d, NVEFS_BT_ROOT, sb->root_pblk, txn, sb->uuid);
	nvefs_block_set_twin(d, nvefs_layout_root_twin(sb));
	d->tree_pblk = le64_make(root->tree_pblk);
	d->tree_txn = le64_make(root->tree_txn);
	d->tree_height = le32_make(root->tree_height);
	d->flags = le32_make(root->flags);
	d->next_ino = le64_make(root->next_ino);
	d->free_blks = le64_make(root->free_blks);
	d->meta_blks = le64_make(root->meta_blks);
	d->inodes = le64_make(root->inodes);
	d->shared_blks = le64_make(root->shared_blks);
	d->shared_refs = le64_make(root->shared_refs);
	d->mount_count = le64_make(root->mount_count);
	d->written_s = le64_make(root->written_s);
	d->tree_twin = le64_make(root->tree_twin);
}

int nvefs_root_decode(const void *block, const struct nvefs_super *sb, struct nvefs_root *ret_root)
{
	const struct nvefs_disk_root *d = block;
	struct nvefs_root r = {
		.tree_pblk = le64_get(d->tree_pblk),
		.tree_txn = le64_get(d->tree_txn),
		.tree_height = le32_get(d->tree_height),
		.flags = le32_get(d->flags),
		.next_ino = le64_get(d->next_ino),
		.free_blks = le64_get(d->free_blks),
		.meta_blks = le64_get(d->meta_blks),
		.inodes = le64_get(d->inodes),
		.shared_blks = le64_get(d->shared_blks),
		.shared_refs = le64_get(d->shared_refs),
		.mount_count = le64_get(d->mount_count),
		.written_s = le64_get(d->written_s),
		.tree_twin = le64_get(d->tree_twin),
	};

	if (!nvefs_layout_node_ok(sb, r.tree_pblk, r.tree_twin) || !r.tree_txn ||
	    r.tree_txn > nvefs_block_txn(block))
		return -EUCLEAN;
	if (!r.tree_height || r.tree_height > NVEFS_TREE_MAX_HEIGHT || r.next_ino < NVEFS_FIRST_INO)
		return -EUCLEAN;
	if (r.free_blks >= sb->nblks || r.meta_blks >= sb->nblks || r.shared_blks >= sb->nblks)
		return -EUCLEAN;
	*ret_root = r;
	return 0;
}
