/* SPDX-License-Identifier: MIT */
/*
 * Steps 3 and 4. The items go by twice in the same way: first they are counted,
 * since group items speak of how many blocks the tree takes, then they are written.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/buf.h"
#include "format/block.h"
#include "format/inode.h"
#include "format/item.h"
#include "format/layout.h"
#include "format/node.h"
#include "mend.h"
#include "mend_value.h"
#include "salvage.h"
#include "store/spool.h"

/* A node of the level below the one that is being made. */
struct child {
	struct nvefs_key key;
	struct nvefs_block_ref at;
};

struct build {
	struct nvefs_salvage *s;
	uint64_t txn;		  /* of all that is written */
	struct nvefs_spool spool; /* while it is written */
	bool write;
	uint64_t *fresh; /* addresses for new nodes, then as many for their second copies */
	uint64_t nfresh, used;
	uint32_t copies;
	struct child *children; /* leaves, then each level above in their place */
	uint64_t nchildren, max_children;
	void *leaf; /* the new one that is being filled; while counting: none */
	uint32_t leaf_bytes, leaf_items;
	uint64_t kept; /* leaves that stay */
	uint32_t *group_free;
	struct nvefs_usage_share *shares; /* by block */
	size_t nshares;
	uint64_t inodes, max_ino, shared_refs;
	uint32_t height;
};

/* ---- First: what the maps name ---- */

static int count_map(struct build *b, const void *val, uint32_t len)
{
	struct nvefs_window w;

	if (!nvefs_map_salvage(val, len, &b->s->c->sb, &w))
		return 0;
	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++) {
		int err = w.pblk[i] ? nvefs_usage_add_data(&b->s->claims, nvefs_went_pblk(w.pblk[i])) : 0;

		if (err && err != -EEXIST)
			return err;
	}
	return 0;
}

static int count_item(struct build *b, const struct nvefs_key *key, const void *val, uint32_t len)
{
	struct nvefs_inode_rec rec;

	if (!key->ino)
		return 0;
	if (key->kind == NVEFS_KIND_INODE && !key->offset && !nvefs_inode_decode(val, len, &rec)) {
		b->inodes++;
		if (key->ino > b->max_ino && key->ino < NVEFS_SALVAGE_TXN_MAX)
			b->max_ino = key->ino;
	}
	return key->kind == NVEFS_KIND_MAP ? count_map(b, val, len) : 0;
}

/* Items of one segment; those of the file system itself, orphans aside, are made anew. */
static int each_item(struct build *b, const struct nvefs_salvage_segment *seg, const void *block,
		     int (*fn)(struct build *b, const struct nvefs_key *key, const void *val, uint32_t len))
{
	int err = 0;

	for (uint32_t i = 0; i < nvefs_node_nitems(block) && !err; i++) {
		struct nvefs_key key = nvefs_node_key(block, i);
		const void *val;
		uint32_t len;

		if (nvefs_key_cmp(&key, &seg->low) < 0 || nvefs_key_cmp(&key, &seg->high) >= 0)
			continue;
		if (!key.ino && key.kind != NVEFS_KIND_ORPHAN)
			continue;
		val = nvefs_leaf_value(block, i, &len);
		err = fn(b, &key, val, len);
	}
	return err;
}

static int for_segment(struct build *b, const struct nvefs_salvage_segment *seg,
		       int (*fn)(struct build *b, const struct nvefs_key *key, const void *val, uint32_t len))
{
	int err = nvefs_salvage_read(b->s, &b->s->leaves[seg->leaf], b->s->block);

	return err ? err : each_item(b, seg, b->s->block, fn);
}

/* A leaf that can stay where it is: all of it counts, nothing in it is made anew. */
static bool stays(const struct build *b, const struct nvefs_salvage_segment *seg)
{
	const struct nvefs_salvage_leaf *l = &b->s->leaves[seg->leaf];

	return seg->whole && l->at == l->home && (l->both || b->copies == 1) && l->rank && l->first.ino &&
	       !l->cleaned;
}

static int count_claims(struct build *b)
{
	struct nvefs_salvage *s = b->s;
	int err = 0;

	for (size_t i = 0; i < s->nsegs && !err; i++)
		err = for_segment(b, &s->segs[i], count_item);
	return err;
}

static int share_cmp(const void *a, const void *b)
{
	const struct nvefs_usage_share *x = a, *y = b;

	return x->pblk < y->pblk ? -1 : x->pblk > y->pblk;
}

static int collect_shares(struct build *b)
{
	const struct nvefs_usage *u = &b->s->claims;

	b->shares = calloc(u->nshares + 1, sizeof(*b->shares));
	if (!b->shares)
		return -ENOMEM;
	for (size_t i = 0; i < u->max_shares; i++) {
		if (!u->shares[i].pblk || !u->shares[i].extra)
			continue;
		b->shares[b->nshares++] = u->shares[i];
		b->shared_refs += u->shares[i].extra;
	}
	qsort(b->shares, b->nshares, sizeof(*b->shares), share_cmp);
	return 0;
}

/* ---- Leaves ---- */

static int add_child(struct build *b, const struct nvefs_key *key, struct nvefs_block_ref at)
{
	if (b->nchildren == b->max_children) {
		uint64_t max = b->max_children ? b->max_children * 2 : 256;
		struct child *tab = reallocarray(b->children, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		b->children = tab;
		b->max_children = max;
	}
	b->children[b->nchildren++] = (struct child){.key = *key, .at = at};
	return 0;
}

/* The next new node. While counting only its number is taken. */
static void *new_node(struct build *b, uint32_t level, struct nvefs_block_ref *ret_at)
{
	void *node;

	*ret_at = (struct nvefs_block_ref){.txn = b->txn};
	if (b->write) {
		ret_at->pblk = b->fresh[b->used];
		ret_at->twin = b->copies > 1 ? b->fresh[b->nfresh / 2 + b->used] : 0;
	}
	b->used++;
	if (!b->write)
		return NULL;
	node = nvefs_spool_next(&b->spool, ret_at->pblk);
	nvefs_block_fill(node, NVEFS_BT_NODE, ret_at->pblk, b->txn, b->s->c->sb.uuid);
	nvefs_block_set_twin(node, ret_at->twin);
	nvefs_node_init(node, (uint16_t)level);
	return node;
}

static void close_leaf(struct build *b)
{
	b->leaf = NULL;
	b->leaf_items = 0;
	b->leaf_bytes = 0;
}

static int put_item(struct build *b, const struct nvefs_key *key, const void *val, uint32_t len)
{
	struct nvefs_block_ref at;
	int err;

	if (b->leaf_bytes + nvefs_item_bytes(len) > NVEFS_NODE_BODY)
		close_leaf(b);
	if (!b->leaf_items) {
		b->leaf = new_node(b, 0, &at);
		err = add_child(b, key, at);
		if (err)
			return err;
	}
	b->leaf_bytes += nvefs_item_bytes(len);
	err = b->leaf ? nvefs_leaf_insert(b->leaf, b->leaf_items, key, val, len) : 0;
	b->leaf_items++;
	return err;
}

static int keep_leaf(struct build *b, const struct nvefs_salvage_leaf *l)
{
	close_leaf(b);
	b->kept++;
	return add_child(b, &l->first,
			 (struct nvefs_block_ref){.pblk = l->home, .twin = l->twin, .txn = l->txn});
}

static int put_groups(struct build *b)
{
	int err = 0;

	for (uint32_t g = 0; g < b->s->c->sb.ngroups && !err; g++) {
		const struct nvefs_group_rec rec = {.free_blks = b->group_free[g], .bitmap_txn = b->txn};
		struct nvefs_disk_group d = nvefs_group_encode(&rec);
		struct nvefs_key key = nvefs_group_key(g);

		err = put_item(b, &key, &d, sizeof(d));
	}
	return err;
}

static int put_shares(struct build *b)
{
	int err = 0;

	for (size_t i = 0; i < b->nshares && !err; i++) {
		struct nvefs_disk_share d = nvefs_share_encode(b->shares[i].extra + 1);
		struct nvefs_key key = nvefs_share_key(b->shares[i].pblk);

		err = put_item(b, &key, &d, sizeof(d));
	}
	return err;
}

static int put_orphan(struct build *b, const struct nvefs_key *key, const void *val, uint32_t len)
{
	return key->ino ? 0 : put_item(b, key, val, len);
}

static int put_inode_item(struct build *b, const struct nvefs_key *key, const void *val, uint32_t len)
{
	return key->ino ? put_item(b, key, val, len) : 0;
}

/* In order of keys: groups, orphans, share counts, inodes. */
static int put_leaves(struct build *b)
{
	struct nvefs_salvage *s = b->s;
	int err = put_groups(b);

	for (size_t i = 0; i < s->nsegs && !err && !s->segs[i].low.ino; i++)
		err = for_segment(b, &s->segs[i], put_orphan);
	if (!err)
		err = put_shares(b);
	for (size_t i = 0; i < s->nsegs && !err; i++) {
		if (stays(b, &s->segs[i]))
			err = keep_leaf(b, &s->leaves[s->segs[i].leaf]);
		else
			err = for_segment(b, &s->segs[i], put_inode_item);
	}
	close_leaf(b);
	return err;
}

/* ---- Levels above ---- */

static void put_level(struct build *b, uint32_t level)
{
	uint64_t n = (b->nchildren + NVEFS_NODE_MAX_CHILDREN - 1) / NVEFS_NODE_MAX_CHILDREN, child = 0;

	for (uint64_t k = 0; k < n; k++) {
		uint64_t share = b->nchildren / n + (k < b->nchildren % n);
		struct nvefs_block_ref at;
		void *node = new_node(b, level, &at);
		struct nvefs_key first = b->children[child].key;

		for (uint64_t i = 0; i < share; i++) {
			const struct child *c = &b->children[child + i];

			if (node)
				nvefs_inner_insert(node, (uint32_t)i, &c->key, c->at);
		}
		child += share;
		b->children[k] = (struct child){.key = first, .at = at};
	}
	b->nchildren = n;
}

static int put_tree(struct build *b)
{
	const struct nvefs_key zero = {0};
	int err;

	b->nchildren = b->used = b->kept = 0;
	err = put_leaves(b);
	if (err)
		return err;
	b->children[0].key = zero; /* the leftmost path starts there */
	for (b->height = 1; b->nchildren > 1; b->height++)
		put_level(b, b->height);
	return b->height > NVEFS_TREE_MAX_HEIGHT ? -EUCLEAN : 0;
}

/* ---- Room ---- */

static bool is_free(const struct build *b, uint64_t pblk, bool trust_bits)
{
	const struct nvefs_salvage *s = b->s;
	uint32_t g = nvefs_layout_group(pblk);

	if (nvefs_layout_is_fixed(&s->c->sb, pblk) || nvefs_usage_test(&s->claims, pblk))
		return false;
	return !trust_bits || !s->bits[g] ||
	       !nvefs_bitmap_test(s->bits[g], (uint32_t)(pblk - nvefs_layout_group_start(g)));
}

/*
 * What the old bitmaps call free; else also what they call used, but no map
 * names and no candidate lies in. Candidates are marked as nodes here.
 */
static int find_room(struct build *b, uint64_t n)
{
	uint64_t nblks = b->s->c->sb.nblks, low, high;

	b->fresh = calloc(n ? b->copies * n : 1, sizeof(*b->fresh));
	if (!b->fresh)
		return -ENOMEM;
	for (int trust = 1; trust >= 0; trust--) {
		b->nfresh = 0;
		for (low = 0; low < nblks && b->nfresh < n; low++)
			if (is_free(b, low, trust))
				b->fresh[b->nfresh++] = low;
		/* Second copies from the other end. */
		for (high = nblks; high > low && b->nfresh < b->copies * n; high--)
			if (is_free(b, high - 1, trust))
				b->fresh[b->nfresh++] = high - 1;
		if (b->nfresh == b->copies * n)
			return 0;
	}
	return -ENOSPC;
}

/* From "no candidate lies there" to "the new tree has it". */
static int mark_tree(struct build *b)
{
	struct nvefs_salvage *s = b->s;
	int err = 0;

	for (size_t i = 0; i < s->nleaves; i++) {
		nvefs_usage_drop_meta(&s->claims, s->leaves[i].home);
		if (s->leaves[i].twin)
			nvefs_usage_drop_meta(&s->claims, s->leaves[i].twin);
	}
	for (size_t i = 0; i < s->nsegs && !err; i++) {
		const struct nvefs_salvage_leaf *l = &s->leaves[s->segs[i].leaf];

		if (stays(b, &s->segs[i]))
			err = nvefs_usage_add_meta(&s->claims, l->home);
		if (!err && l->twin && stays(b, &s->segs[i]))
			err = nvefs_usage_add_meta(&s->claims, l->twin);
	}
	for (uint64_t i = 0; i < b->nfresh && (!err || err == -EEXIST); i++)
		err = nvefs_usage_add_meta(&s->claims, b->fresh[i]);
	return err == -EEXIST ? 0 : err;
}

static void group_bits(const struct build *b, uint32_t g, struct nvefs_disk_bitmap *ret)
{
	const uint8_t *used = b->s->claims.used[g];

	nvefs_layout_bitmap_init(&b->s->c->sb, g, b->txn, ret);
	for (size_t i = 0; used && i < sizeof(ret->bits); i++)
		ret->bits[i] |= used[i];
}

static int count_free(struct build *b)
{
	struct nvefs_disk_bitmap d;

	for (uint32_t g = 0; g < b->s->c->sb.ngroups; g++) {
		group_bits(b, g, &d);
		b->group_free[g] = NVEFS_GROUP_BLKS - nvefs_bitmap_count(d.bits, NVEFS_GROUP_BLKS);
	}
	return 0;
}

/* ---- Step 4 ---- */

static int flush(const struct build *b)
{
	struct nvefs_check_ctx *c = b->s->c;

	return nvefs_dev_limits(c->dev)->volatile_cache ? nvefs_queue_flush(c->q) : 0;
}

static int write_spool(struct build *b)
{
	int err = nvefs_spool_write(&b->spool);

	return err ? err : flush(b);
}

static int write_bitmaps(struct build *b)
{
	for (uint32_t g = 0; g < b->s->c->sb.ngroups; g++)
		group_bits(b, g, nvefs_spool_next(&b->spool, nvefs_layout_bitmap_pblk(g)));
	return write_spool(b);
}

static int write_root(struct build *b)
{
	const struct nvefs_salvage *s = b->s;
	struct nvefs_root root = s->root;

	root.tree_pblk = b->children[0].at.pblk;
	root.tree_twin = b->children[0].at.twin;
	root.tree_txn = b->children[0].at.txn;
	root.tree_height = b->height;
	root.flags = 0;
	if (root.next_ino <= b->max_ino || root.next_ino >= NVEFS_SALVAGE_TXN_MAX)
		root.next_ino = b->max_ino + 1;
	if (root.next_ino < NVEFS_FIRST_INO)
		root.next_ino = NVEFS_FIRST_INO;
	root.free_blks = 0;
	for (uint32_t g = 0; g < s->c->sb.ngroups; g++)
		root.free_blks += b->group_free[g];
	root.meta_blks = b->copies * b->kept + b->nfresh;
	root.inodes = b->inodes;
	root.shared_blks = b->nshares;
	root.shared_refs = b->shared_refs;
	nvefs_root_encode(&root, &s->c->sb, b->txn, nvefs_spool_next(&b->spool, s->c->sb.root_pblk));
	return write_spool(b);
}

/* One after the other: until the second is there, the first says enough. */
static int write_headers(struct build *b)
{
	const struct nvefs_super *sb = &b->s->c->sb;
	struct nvefs_jheader h = {.seq = (b->s->top_seq + 2) & ~1ull,
				  .epoch = b->s->top_epoch + 1,
				  .tail_txn = b->txn + 1,
				  .log_blks = nvefs_journal_log_blks(sb),
				  .root_txn = b->txn};
	int err = 0;

	for (unsigned int slot = 0; slot < NVEFS_JOURNAL_HEADERS && !err; slot++, h.seq++) {
		nvefs_jheader_encode(&h, sb, slot, nvefs_spool_next(&b->spool, nvefs_journal_header_pblk(sb, slot)));
		err = write_spool(b);
	}
	return err;
}

static int write_all(struct build *b)
{
	int err = nvefs_spool_init(&b->spool, b->s->c->q);

	b->write = true;
	if (!err)
		err = put_tree(b);
	if (!err)
		err = write_spool(b);
	if (!err)
		err = write_bitmaps(b);
	if (!err)
		err = write_root(b);
	if (!err)
		err = write_headers(b);
	nvefs_spool_done(&b->spool);
	return err;
}

int nvefs_salvage_build(struct nvefs_salvage *s)
{
	struct build b = {.s = s, .txn = s->top_txn + 1, .max_ino = NVEFS_ROOT_INO,
			  .copies = nvefs_super_dup(&s->c->sb) ? 2 : 1};
	int err = 0;

	b.group_free = calloc(s->c->sb.ngroups, sizeof(*b.group_free));
	if (!b.group_free)
		return -ENOMEM;
	err = count_claims(&b);
	if (!err)
		err = collect_shares(&b);
	if (!err)
		err = put_tree(&b);
	if (!err)
		err = find_room(&b, b.used);
	if (!err)
		err = mark_tree(&b);
	if (!err)
		err = count_free(&b);
	if (!err)
		err = write_all(&b);
	free(b.group_free);
	free(b.fresh);
	free(b.children);
	free(b.shares);
	return err;
}
