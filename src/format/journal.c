/* SPDX-License-Identifier: MIT */
#include "format/journal.h"

#include <errno.h>

#include "format/block.h"
#include "format/layout.h"

uint64_t nvefs_journal_header_twin(const struct nvefs_super *sb, unsigned int slot)
{
	return nvefs_super_dup(sb) ? sb->nblks - 4 + slot : 0;
}

void nvefs_jheader_encode(const struct nvefs_jheader *h, const struct nvefs_super *sb,
			  unsigned int slot, void *ret_block)
{
	struct nvefs_disk_jheader *d = ret_block;

	memset(d, 0, sizeof(*d));
	nvefs_block_fill(d, NVEFS_BT_JHEADER, nvefs_journal_header_pblk(sb, slot), h->tail_txn,
			 sb->uuid);
	nvefs_block_set_twin(d, nvefs_journal_header_twin(sb, slot));
	d->seq = le64_make(h->seq);
	d->epoch = le64_make(h->epoch);
	d->tail_txn = le64_make(h->tail_txn);
	d->tail_pos = le32_make(h->tail_pos);
	d->log_blks = le32_make(h->log_blks);
	d->root_txn = le64_make(h->root_txn);
}

int nvefs_jheader_decode(const void *block, const struct nvefs_super *sb, struct nvefs_jheader *ret_h)
{
	const struct nvefs_disk_jheader *d = block;
	struct nvefs_jheader h = {
		.seq = le64_get(d->seq),
		.epoch = le64_get(d->epoch),
		.tail_txn = le64_get(d->tail_txn),
		.tail_pos = le32_get(d->tail_pos),
		.log_blks = le32_get(d->log_blks),
		.root_txn = le64_get(d->root_txn),
	};

	if (h.log_blks != nvefs_journal_log_blks(sb) || h.tail_pos >= h.log_blks)
		return -EUCLEAN;
	if (!h.tail_txn || h.tail_txn != nvefs_block_txn(block))
		return -EUCLEAN;
	*ret_h = h;
	return 0;
}

void nvefs_jdesc_init(void *block, const struct nvefs_super *sb, uint32_t pos, uint64_t txn,
		      uint64_t epoch, uint32_t index)
{
	struct nvefs_disk_jdesc *d = block;

	memset(d, 0, sizeof(*d));
	nvefs_block_fill(d, NVEFS_BT_JDESC, nvefs_journal_log_pblk(sb, pos), txn, sb->uuid);
	d->epoch = le64_make(epoch);
	d->index = le32_make(index);
}

void nvefs_jdesc_add(void *block, uint64_t home_pblk)
{
	struct nvefs_disk_jdesc *d = block;
	uint32_t n = le32_get(d->nimages);

	assert(n < NVEFS_JDESC_MAX);
	d->home[n] = le64_make(home_pblk);
	d->nimages = le32_make(n + 1);
}

/* The root block, a bitmap, or a tree node: the blocks that transactions change. */
static int home_ok(const struct nvefs_super *sb, uint64_t pblk)
{
	if (pblk == sb->root_pblk || pblk == NVEFS_BITMAP0_PBLK)
		return 1;
	if (pblk && pblk < sb->nblks - 1 && pblk % NVEFS_GROUP_BLKS == 0)
		return 1;
	return !nvefs_layout_is_fixed(sb, pblk);
}

int nvefs_jdesc_decode(const void *block, const struct nvefs_super *sb, struct nvefs_jdesc *ret_d)
{
	const struct nvefs_disk_jdesc *d = block;
	struct nvefs_jdesc r = {
		.txn = nvefs_block_txn(block),
		.epoch = le64_get(d->epoch),
		.nimages = le32_get(d->nimages),
		.index = le32_get(d->index),
	};

	if (!r.nimages || r.nimages > NVEFS_JDESC_MAX)
		return -EUCLEAN;
	for (uint32_t i = 0; i < r.nimages; i++)
		if (!home_ok(sb, le64_get(d->home[i])))
			return -EUCLEAN;
	*ret_d = r;
	return 0;
}

void nvefs_jcommit_encode(const struct nvefs_jcommit *c, const struct nvefs_super *sb, uint32_t pos,
			  void *ret_block)
{
	struct nvefs_disk_jcommit *d = ret_block;

	memset(d, 0, sizeof(*d));
	nvefs_block_fill(d, NVEFS_BT_JCOMMIT, nvefs_journal_log_pblk(sb, pos), c->txn, sb->uuid);
	d->epoch = le64_make(c->epoch);
	d->nblks = le32_make(c->nblks);
	d->nimages = le32_make(c->nimages);
	d->group_checksum = le64_make(c->group_checksum);
}

int nvefs_jcommit_decode(const void *block, const struct nvefs_super *sb, struct nvefs_jcommit *ret_c)
{
	const struct nvefs_disk_jcommit *d = block;
	struct nvefs_jcommit r = {
		.txn = nvefs_block_txn(block),
		.epoch = le64_get(d->epoch),
		.nblks = le32_get(d->nblks),
		.nimages = le32_get(d->nimages),
		.group_checksum = le64_get(d->group_checksum),
	};

	if (r.nblks >= nvefs_journal_log_blks(sb) || r.nimages >= r.nblks || !r.nimages)
		return -EUCLEAN;
	*ret_c = r;
	return 0;
}

bool nvefs_image_home_ok(const void *image, const struct nvefs_super *sb)
{
	uint64_t pblk = nvefs_block_pblk(image), twin = nvefs_block_twin(image);

	switch (nvefs_block_type(image)) {
	case NVEFS_BT_ROOT:
		return pblk == sb->root_pblk && twin == nvefs_layout_root_twin(sb);
	case NVEFS_BT_BITMAP:
		return pblk < sb->nblks && pblk == nvefs_layout_bitmap_pblk(nvefs_layout_group(pblk)) &&
		       twin == nvefs_layout_bitmap_twin(sb, nvefs_layout_group(pblk));
	case NVEFS_BT_NODE:
		return nvefs_layout_node_ok(sb, pblk, twin);
	}
	return false;
}
