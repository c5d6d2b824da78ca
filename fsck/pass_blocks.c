/* SPDX-License-Identifier: MIT */
/* The recount of blocks against bitmaps, group items, share items and the root's counters. */
#include <errno.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/buf.h"
#include "context.h"
#include "format/block.h"
#include "format/layout.h"
#include "format/node.h"
#include "mend.h"
#include "store/cache.h"

struct group_state {
	uint32_t group;
	uint32_t len; /* blocks */
	uint8_t expected[NVEFS_GROUP_BLKS / 8];
	struct nvefs_disk_bitmap bitmap;
};

static struct nvefs_block_ref bitmap_ref(const struct nvefs_check_ctx *c, uint32_t group)
{
	return (struct nvefs_block_ref){.pblk = nvefs_layout_bitmap_pblk(group),
					.twin = nvefs_layout_bitmap_twin(&c->sb, group)};
}

static int bitmap_load(struct nvefs_check_ctx *c, struct nvefs_block_ref at, struct nvefs_disk_bitmap *ret)
{
	struct nvefs_miss miss;
	struct nvefs_mblk *b;
	int err;

	do {
		nvefs_store_rdlock(c->st);
		err = nvefs_cache_get(c->st, at, NVEFS_BT_BITMAP, &miss, &b);
		if (!err)
			memcpy(ret, b->data, sizeof(*ret));
		nvefs_store_rdunlock(c->st);
		miss.ahead = &c->ahead;
	} while (err && nvefs_store_retry(c->st, c->q, &miss, &err));
	return err;
}

/* Of two copies the one that the group's item speaks of; else whatever there is. */
int nvefs_check_read_bitmap(struct nvefs_check_ctx *c, uint32_t group, struct nvefs_disk_bitmap *ret)
{
	struct nvefs_block_ref at = bitmap_ref(c, group);
	int err = -EUCLEAN;

	if (at.twin && c->groups[group].known)
		at.txn = c->groups[group].rec.bitmap_txn;
	if (at.txn)
		err = bitmap_load(c, at, ret);
	at.txn = 0;
	return err == -EUCLEAN ? bitmap_load(c, at, ret) : err;
}

/* Report each run of blocks in which `a` has a bit that `b` has not. */
static void report_runs(struct nvefs_check_ctx *c, uint32_t code, const struct group_state *s, const uint8_t *a,
			const uint8_t *b)
{
	uint64_t start = nvefs_layout_group_start(s->group);
	uint32_t bit = 0;

	while ((bit = nvefs_bitmap_next_set(a, bit, s->len)) < s->len) {
		struct nvefs_problem p = {.code = code, .pblk = start + bit};
		uint32_t first = bit;

		while (bit < s->len && nvefs_bitmap_test(a, bit) && !nvefs_bitmap_test(b, bit))
			bit++;
		p.found = start + bit - 1;
		if (bit > first)
			nvefs_check_report(c, &p);
		else
			bit++;
	}
}

void nvefs_check_group_bits(struct nvefs_check_ctx *c, uint32_t group, const uint8_t *disk, uint8_t *ret_bits)
{
	struct nvefs_disk_bitmap fixed;
	const uint8_t *used = c->usage.used[group];

	nvefs_layout_bitmap_init(&c->sb, group, 0, &fixed);
	memcpy(ret_bits, fixed.bits, sizeof(fixed.bits));
	for (size_t i = 0; used && i < sizeof(fixed.bits); i++)
		ret_bits[i] |= used[i];
	for (size_t i = 0; disk && c->incomplete && i < sizeof(fixed.bits); i++)
		ret_bits[i] |= disk[i];
}

/*
 * The root counts more nodes than were seen, and a block that nothing uses is one:
 * a parent has lost it, and with it all that is below.
 */
static int find_lost_nodes(struct nvefs_check_ctx *c, const struct group_state *s)
{
	uint64_t start = nvefs_layout_group_start(s->group);
	uint8_t *block;

	if (c->root.meta_blks <= c->res->meta_blks || c->incomplete)
		return 0;
	block = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	if (!block)
		return -ENOMEM;
	for (uint32_t bit = 0; bit < s->len; bit++) {
		struct nvefs_block_expect want = {
			.pblk = start + bit, .twin = NVEFS_TWIN_ANY, .uuid = c->sb.uuid, .type = NVEFS_BT_NODE};
		struct nvefs_problem p = {.code = NVEFS_P_NODE_LOST, .pblk = want.pblk};

		if (!nvefs_bitmap_test(s->bitmap.bits, bit) || nvefs_bitmap_test(s->expected, bit) ||
		    nvefs_queue_read(c->q, want.pblk, 1, block) ||
		    nvefs_block_check(block, &want) != NVEFS_BLOCK_OK || nvefs_node_check(block))
			continue;
		p.found = nvefs_node_level(block);
		c->inner_sound = false;
		nvefs_check_report(c, &p);
	}
	nvefs_buf_free(block);
	return 0;
}

static void check_item(struct nvefs_check_ctx *c, const struct group_state *s, uint32_t free_blks)
{
	const struct nvefs_check_group *g = &c->groups[s->group];
	struct nvefs_problem p = {.lblk = s->group};

	if (!g->known) {
		p = (struct nvefs_problem){.code = NVEFS_P_GROUP_ABSENT, .found = s->group};
		if (!c->incomplete)
			nvefs_check_report(c, &p);
		return;
	}
	if (g->rec.free_blks != free_blks) {
		p.code = NVEFS_P_GROUP_FREE;
		p.found = g->rec.free_blks;
		p.expected = free_blks;
		nvefs_check_report(c, &p);
	}
	if (g->rec.bitmap_txn != nvefs_block_txn(&s->bitmap)) {
		p.code = NVEFS_P_BITMAP_TXN;
		p.found = nvefs_block_txn(&s->bitmap);
		p.expected = g->rec.bitmap_txn;
		nvefs_check_report(c, &p);
	}
}

/* *free_blks grows by the group's free blocks. */
static int check_group(struct nvefs_check_ctx *c, uint32_t group, uint64_t *free_blks, bool *all_known)
{
	struct group_state s = {.group = group, .len = nvefs_layout_group_len(&c->sb, group)};
	struct nvefs_problem p = {.code = NVEFS_P_BITMAP_DAMAGED,
				  .pblk = nvefs_layout_bitmap_pblk(group),
				  .found = group};
	int err = nvefs_check_read_bitmap(c, group, &s.bitmap);
	uint32_t n;

	if (err == -ENOMEM)
		return err;
	if (err) {
		p.why = err == -EUCLEAN ? "damaged" : "cannot be read";
		nvefs_check_report(c, &p);
		*all_known = false;
		return 0;
	}
	err = nvefs_check_copies(c, bitmap_ref(c, group), NVEFS_BT_BITMAP);
	if (err)
		return err;
	nvefs_check_group_bits(c, group, NULL, s.expected);
	/* Beyond the end bits are set; the count over the whole block is the count of the group. */
	n = NVEFS_GROUP_BLKS - nvefs_bitmap_count(s.bitmap.bits, NVEFS_GROUP_BLKS);
	*free_blks += n;
	if (memcmp(s.expected, s.bitmap.bits, sizeof(s.expected))) {
		err = find_lost_nodes(c, &s);
		report_runs(c, NVEFS_P_BLOCK_FREE, &s, s.expected, s.bitmap.bits);
		if (!c->incomplete)
			report_runs(c, NVEFS_P_BLOCK_LEAKED, &s, s.bitmap.bits, s.expected);
	}
	check_item(c, &s, n);
	return err;
}

static void check_shares(struct nvefs_check_ctx *c)
{
	for (size_t i = 0; i < c->usage.max_shares; i++) {
		const struct nvefs_usage_share *s = &c->usage.shares[i];
		struct nvefs_problem p = {.pblk = s->pblk, .expected = s->stated ? s->stated : 1};

		if (!s->pblk)
			continue;
		p.found = s->extra + (nvefs_usage_test(&c->usage, s->pblk) ? 1u : 0u);
		p.code = p.found ? NVEFS_P_SHARE_COUNT : NVEFS_P_SHARE_UNUSED;
		/* More references than counted are sure; fewer only when all were seen. */
		if (p.found > p.expected || (p.found < p.expected && !c->incomplete))
			nvefs_check_report(c, &p);
	}
}

/* Bitmaps are as many as leaves of the tree that can be read ahead. *sent: groups below this one have been sent for. */
static void send_bitmaps(struct nvefs_check_ctx *c, uint32_t group, uint32_t *sent)
{
	uint32_t left = c->sb.ngroups - group;
	uint32_t end = group + (left < NVEFS_AHEAD_LEAVES ? left : NVEFS_AHEAD_LEAVES);

	if (*sent > group + NVEFS_AHEAD_LEAVES / 2)
		return;
	if (*sent < group)
		*sent = group;
	while (*sent < end && nvefs_ahead_send(&c->ahead, bitmap_ref(c, *sent)))
		++*sent;
}

static int check_groups(struct nvefs_check_ctx *c, uint64_t *free_blks, bool *all_known)
{
	uint32_t sent = 0;
	int err = 0;

	c->ahead.twins = true;
	for (uint32_t g = 0; g < c->sb.ngroups && !err; g++) {
		send_bitmaps(c, g, &sent);
		err = nvefs_check_progress(c, g, c->sb.ngroups);
		if (!err)
			err = check_group(c, g, free_blks, all_known);
		nvefs_ahead_drop(&c->ahead, bitmap_ref(c, g));
	}
	nvefs_ahead_clear(&c->ahead);
	return err;
}

int nvefs_pass_blocks(struct nvefs_check_ctx *c)
{
	uint64_t free_blks = 0;
	bool all_known = true;
	int err = check_groups(c, &free_blks, &all_known);

	if (err)
		return err;
	check_shares(c);
	c->res->free_blks = free_blks;
	if (all_known && free_blks != c->root.free_blks) {
		struct nvefs_problem p = {
			.code = NVEFS_P_ROOT_FREE, .found = c->root.free_blks, .expected = free_blks};

		nvefs_check_report(c, &p);
	}
	return 0;
}

static void compare(struct nvefs_check_ctx *c, uint32_t code, uint64_t found, uint64_t expected)
{
	struct nvefs_problem p = {.code = code, .found = found, .expected = expected};

	if (found != expected)
		nvefs_check_report(c, &p);
}

int nvefs_pass_counters(struct nvefs_check_ctx *c)
{
	struct nvefs_problem p = {
		.code = NVEFS_P_ROOT_NEXT_INO, .found = c->root.next_ino, .expected = c->max_ino};

	c->res->shared_blks = c->share_items;
	c->res->data_blks = c->mapped_blks - c->share_refs;
	if (c->incomplete)
		return 0;
	if (c->root.next_ino <= c->max_ino)
		nvefs_check_report(c, &p);
	compare(c, NVEFS_P_ROOT_META, c->root.meta_blks, c->res->meta_blks);
	compare(c, NVEFS_P_ROOT_INODES, c->root.inodes, c->inode_items);
	compare(c, NVEFS_P_ROOT_SHARED, c->root.shared_blks, c->share_items);
	compare(c, NVEFS_P_ROOT_REFS, c->root.shared_refs, c->share_refs);
	return 0;
}
