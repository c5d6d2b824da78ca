/* SPDX-License-Identifier: MIT */
/* Step 1: what is left on the device. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/buf.h"
#include "base/hash.h"
#include "format/block.h"
#include "format/layout.h"
#include "format/node.h"
#include "mend_value.h"
#include "salvage.h"

#define CHUNK_BLKS 256u

/* ---- One block at a time ---- */

static bool is_block(const struct nvefs_salvage *s, const void *block, uint64_t home, uint16_t type)
{
	const struct nvefs_block_expect want = {
		.pblk = home, .twin = NVEFS_TWIN_ANY, .uuid = s->c->sb.uuid, .type = type};

	return nvefs_block_type(block) == type && nvefs_block_check(block, &want) == NVEFS_BLOCK_OK &&
	       nvefs_image_home_ok(block, &s->c->sb);
}

static bool is_leaf(const struct nvefs_salvage *s, void *block, uint64_t home, bool *ret_cleaned)
{
	*ret_cleaned = false;
	if (!is_block(s, block, home, NVEFS_BT_NODE))
		return false;
	if (!nvefs_node_check(block))
		return !nvefs_node_level(block) && nvefs_node_nitems(block);
	*ret_cleaned = true;
	return nvefs_salvage_clean(block, &s->c->sb);
}

int nvefs_salvage_take(struct nvefs_salvage *s, void *block, uint64_t home, uint64_t at)
{
	struct nvefs_salvage_leaf *l;
	bool cleaned;

	if (!is_leaf(s, block, home, &cleaned))
		return 0;
	if (s->nleaves == s->max_leaves) {
		size_t max = s->max_leaves ? s->max_leaves * 2 : 256;
		struct nvefs_salvage_leaf *tab = reallocarray(s->leaves, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		s->leaves = tab;
		s->max_leaves = max;
	}
	l = &s->leaves[s->nleaves++];
	*l = (struct nvefs_salvage_leaf){.home = home,
					 .twin = nvefs_block_twin(block),
					 .at = at,
					 .txn = nvefs_block_txn(block),
					 .cleaned = cleaned,
					 .first = nvefs_node_key(block, 0),
					 .last = nvefs_node_key(block, nvefs_node_nitems(block) - 1)};
	return 0;
}

int nvefs_salvage_take_bitmap(struct nvefs_salvage *s, uint32_t group, const void *block)
{
	uint64_t txn = nvefs_block_txn(block);

	if (!is_block(s, block, nvefs_layout_bitmap_pblk(group), NVEFS_BT_BITMAP) || txn > NVEFS_SALVAGE_TXN_MAX)
		return 0;
	/* At home or in a committed group: its transaction was durable. */
	if (txn > s->top_txn)
		s->top_txn = txn;
	if (s->bits[group] && s->bits_txn[group] >= txn)
		return 0;
	if (!s->bits[group])
		s->bits[group] = malloc(NVEFS_GROUP_BLKS / 8);
	if (!s->bits[group])
		return -ENOMEM;
	memcpy(s->bits[group], ((const struct nvefs_disk_bitmap *)block)->bits, NVEFS_GROUP_BLKS / 8);
	s->bits_txn[group] = txn;
	return 0;
}

void nvefs_salvage_take_root(struct nvefs_salvage *s, const void *block)
{
	struct nvefs_root root;
	uint64_t txn = nvefs_block_txn(block);

	if (!is_block(s, block, s->c->sb.root_pblk, NVEFS_BT_ROOT) || txn <= s->root_txn ||
	    txn > NVEFS_SALVAGE_TXN_MAX || nvefs_root_decode(block, &s->c->sb, &root))
		return;
	s->root = root;
	s->root_txn = txn;
}

int nvefs_salvage_read(struct nvefs_salvage *s, const struct nvefs_salvage_leaf *leaf, void *block)
{
	int err = nvefs_queue_read(s->c->q, leaf->at, 1, block);
	bool cleaned;

	if (err)
		return err;
	return is_leaf(s, block, leaf->home, &cleaned) && nvefs_block_txn(block) == leaf->txn ? 0 : -EUCLEAN;
}

/* ---- The device ---- */

static int read_bitmaps(struct nvefs_salvage *s)
{
	int err = 0;

	for (uint32_t g = 0; g < s->c->sb.ngroups && !err; g++) {
		uint64_t twin = nvefs_layout_bitmap_twin(&s->c->sb, g);

		if (!nvefs_queue_read(s->c->q, nvefs_layout_bitmap_pblk(g), 1, s->block))
			err = nvefs_salvage_take_bitmap(s, g, s->block);
		if (!err && twin && !nvefs_queue_read(s->c->q, twin, 1, s->block))
			err = nvefs_salvage_take_bitmap(s, g, s->block);
	}
	return err;
}

/* The block was read at `pblk`, which may be the place of a second copy. */
static uint64_t home_of(const void *block, uint64_t pblk)
{
	return nvefs_block_twin(block) == pblk ? nvefs_block_pblk(block) : pblk;
}

/* `buf`: CHUNK_BLKS blocks, which were read at `pblk`; or could not be, then one by one. */
static int take_chunk(struct nvefs_salvage *s, uint8_t *buf, uint64_t pblk, uint32_t n, bool one_by_one)
{
	int err = 0;

	for (uint32_t i = 0; i < n && !err; i++) {
		uint8_t *block = buf + (size_t)i * NVEFS_BLOCK_SIZE;

		if (one_by_one && nvefs_queue_read(s->c->q, pblk + i, 1, block))
			continue;
		err = nvefs_salvage_take(s, block, home_of(block, pblk + i), pblk + i);
	}
	return err;
}

/* The walk has come to it. */
static bool reached(const struct nvefs_salvage *s, uint64_t pblk)
{
	return s->c->usage.used && nvefs_usage_is_meta(&s->c->usage, pblk);
}

static bool marked_free(const struct nvefs_salvage *s, uint64_t pblk)
{
	uint32_t g = nvefs_layout_group(pblk);

	return s->bits[g] && !nvefs_bitmap_test(s->bits[g], (uint32_t)(pblk - nvefs_layout_group_start(g)));
}

/*
 * What the part of the tree that could be walked maps is data. When inner nodes are
 * gone, all other blocks may be leaves; when not, only those that are in use, yet nothing uses.
 */
static bool worth_reading(const struct nvefs_salvage *s, uint64_t pblk)
{
	if (!s->c->usage.used || reached(s, pblk))
		return true;
	if (nvefs_usage_test(&s->c->usage, pblk))
		return false;
	return !s->c->inner_sound || !marked_free(s, pblk);
}

static int read_nodes(struct nvefs_salvage *s)
{
	uint64_t nblks = s->c->sb.nblks, pblk = s->c->sb.journal_pblk + s->c->sb.journal_blks;
	uint8_t *buf = nvefs_buf_new((size_t)CHUNK_BLKS * NVEFS_BLOCK_SIZE);
	int err = buf ? 0 : -ENOMEM;

	for (uint32_t n; pblk < nblks && !err; pblk += n) {
		for (n = 0; n < CHUNK_BLKS && pblk + n < nblks && worth_reading(s, pblk + n); n++)
			;
		if (!n) {
			n = 1;
			continue;
		}
		err = take_chunk(s, buf, pblk, n, nvefs_queue_read(s->c->q, pblk, n, buf) != 0);
		if (!err)
			err = nvefs_check_progress(s->c, pblk, nblks);
	}
	nvefs_buf_free(buf);
	return err;
}

/* ---- Which of them count ---- */

static bool in_log(const struct nvefs_salvage_leaf *l)
{
	return l->at != l->home && l->at != l->twin;
}

/* By address, the newest first; of those that are equal the one at home, then its second copy. */
static int by_home(const void *a, const void *b)
{
	const struct nvefs_salvage_leaf *x = a, *y = b;

	if (x->home != y->home)
		return x->home < y->home ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	if (in_log(x) != in_log(y))
		return in_log(x) - in_log(y);
	return (x->at != x->home) - (y->at != y->home);
}

static int by_key(const void *a, const void *b)
{
	const struct nvefs_salvage_leaf *x = a, *y = b;

	return nvefs_key_cmp(&x->first, &y->first);
}

/* Nothing that could be walked leads to it, the bitmap calls the block free, and was written after it. */
static bool given_up(const struct nvefs_salvage *s, const struct nvefs_salvage_leaf *l)
{
	return !reached(s, l->home) && marked_free(s, l->home) &&
	       l->rank <= s->bits_txn[nvefs_layout_group(l->home)];
}

/* The same leaf, found at its home and at the place of its second copy. */
static bool is_second(const struct nvefs_salvage_leaf *l, const struct nvefs_salvage_leaf *second)
{
	return l->at == l->home && second->at == l->twin && second->txn == l->txn && second->twin == l->twin;
}

static void keep_newest(struct nvefs_salvage *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->nleaves; i++) {
		struct nvefs_salvage_leaf *l = &s->leaves[i];

		l->rank = l->txn <= NVEFS_SALVAGE_TXN_MAX ? l->txn : 0;
	}
	if (s->nleaves)
		qsort(s->leaves, s->nleaves, sizeof(*s->leaves), by_home);
	for (size_t i = 0; i < s->nleaves; i++) {
		const struct nvefs_salvage_leaf *l = &s->leaves[i];

		if (n && s->leaves[n - 1].home == l->home)
			s->leaves[n - 1].both |= is_second(&s->leaves[n - 1], l);
		else if (!given_up(s, l))
			s->leaves[n++] = *l;
	}
	s->nleaves = n;
}

struct claim_arg {
	struct nvefs_salvage *s;
	void *block;	     /* a claimed block's content */
	uint8_t *false_bits; /* by index: the leaf is data */
};

static struct nvefs_salvage_leaf *leaf_at(struct nvefs_salvage *s, uint64_t home)
{
	size_t low = 0, high = s->nleaves;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (s->leaves[mid].home < home)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->nleaves && s->leaves[low].home == home ? &s->leaves[low] : NULL;
}

/* A map names the address of a candidate. Leaves are in order of these here. */
static void judge_claim(struct claim_arg *a, uint64_t ent, uint64_t csum)
{
	struct nvefs_salvage_leaf *l = leaf_at(a->s, nvefs_went_pblk(ent));
	bool data;

	if (!l)
		return;
	data = in_log(l);
	if (!data && nvefs_went_type(ent) == NVEFS_EXT_DATA)
		data = !nvefs_queue_read(a->s->c->q, l->home, 1, a->block) &&
		       nvefs_hash(a->block, NVEFS_BLOCK_SIZE, a->s->c->sb.hash_seed) == csum;
	if (data && !reached(a->s, l->home))
		nvefs_bitmap_set(a->false_bits + (size_t)(l - a->s->leaves) / 8, (uint32_t)((l - a->s->leaves) % 8));
}

static void judge_claims_of(struct claim_arg *a, const void *leaf)
{
	for (uint32_t i = 0; i < nvefs_node_nitems(leaf); i++) {
		struct nvefs_key key = nvefs_node_key(leaf, i);
		struct nvefs_window w;
		const void *val;
		uint32_t len;

		val = nvefs_leaf_value(leaf, i, &len);
		if (!key.ino || key.kind != NVEFS_KIND_MAP || !nvefs_map_salvage(val, len, &a->s->c->sb, &w))
			continue;
		for (uint32_t k = 0; k < NVEFS_WINDOW_BLKS; k++)
			if (w.pblk[k])
				judge_claim(a, w.pblk[k], w.csum[k]);
	}
}

static int drop_data(struct nvefs_salvage *s)
{
	struct claim_arg a = {.s = s, .block = nvefs_buf_new(NVEFS_BLOCK_SIZE)};
	size_t n = 0;

	a.false_bits = calloc(1, s->nleaves / 8 + 1);
	if (!a.block || !a.false_bits) {
		nvefs_buf_free(a.block);
		free(a.false_bits);
		return -ENOMEM;
	}
	for (size_t i = 0; i < s->nleaves; i++)
		if (!nvefs_salvage_read(s, &s->leaves[i], s->block))
			judge_claims_of(&a, s->block);
	for (size_t i = 0; i < s->nleaves; i++)
		if (!(a.false_bits[i / 8] >> (i % 8) & 1))
			s->leaves[n++] = s->leaves[i];
	s->nleaves = n;
	nvefs_buf_free(a.block);
	free(a.false_bits);
	return 0;
}

/* The new tree is younger than all that is there. */
static void raise_top(struct nvefs_salvage *s)
{
	for (size_t i = 0; i < s->nleaves; i++)
		if (s->leaves[i].rank > s->top_txn)
			s->top_txn = s->leaves[i].rank;
}

int nvefs_salvage_scan(struct nvefs_salvage *s)
{
	int err;

	if (!nvefs_queue_read(s->c->q, s->c->sb.root_pblk, 1, s->block))
		nvefs_salvage_take_root(s, s->block);
	if (nvefs_super_dup(&s->c->sb) &&
	    !nvefs_queue_read(s->c->q, nvefs_layout_root_twin(&s->c->sb), 1, s->block))
		nvefs_salvage_take_root(s, s->block);
	err = nvefs_salvage_log(s);
	if (!err)
		err = read_bitmaps(s);
	if (!err)
		err = read_nodes(s);
	if (err)
		return err;
	keep_newest(s);
	raise_top(s);
	err = drop_data(s);
	if (!err && s->nleaves)
		qsort(s->leaves, s->nleaves, sizeof(*s->leaves), by_key);
	return err;
}
