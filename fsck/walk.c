/* SPDX-License-Identifier: MIT */
/*
 * Tree nodes. The store's walk judges each one by itself, by what its parent
 * says of it and by its bounds; here it is told what was wrong, and whose the block is.
 */
#include <errno.h>

#include "base/buf.h"
#include "context.h"
#include "format/block.h"
#include "format/layout.h"
#include "format/node.h"

struct walk {
	struct nvefs_check_ctx *c;
	const struct nvefs_check_walk *w;
	struct nvefs_key last; /* of the leaves so far */
	bool any;
	uint64_t nodes;
};

static void report(struct walk *k, const struct nvefs_tree_visit *v, uint32_t code, uint64_t found, const char *why)
{
	struct nvefs_problem p = {.code = code, .pblk = v->pblk, .found = found, .expected = v->level, .why = why};

	k->c->incomplete = k->c->tree_broken = true;
	k->c->inner_sound &= !v->level && code != NVEFS_P_KEY_ORDER && code != NVEFS_P_NODE_TWICE;
	if (k->w->report)
		nvefs_check_report(k->c, &p);
}

/* A child whose address no node can have. */
static bool fixed_child(const struct walk *k, const void *block, uint64_t *ret_pblk)
{
	for (uint32_t i = 0; i < nvefs_node_nitems(block); i++) {
		*ret_pblk = nvefs_inner_pblk(block, i);
		if (!nvefs_layout_node_ok(&k->c->sb, *ret_pblk, nvefs_inner_child(block, i).twin))
			return true;
	}
	return false;
}

/* The block is intact, as far as its header goes: then its content, or its place in the tree, is wrong. */
static void judge_content(struct walk *k, const struct nvefs_tree_visit *v, const void *block)
{
	uint64_t child;

	if (nvefs_node_level(block) != v->level)
		report(k, v, NVEFS_P_NODE_LEVEL, nvefs_node_level(block), NULL);
	else if (nvefs_node_check(block))
		report(k, v, NVEFS_P_NODE_LAYOUT, 0, "its counts, keys or values contradict each other");
	else if (v->level && fixed_child(k, block, &child))
		report(k, v, NVEFS_P_NODE_FIXED, child, NULL);
	else
		report(k, v, NVEFS_P_KEY_BOUNDS, 0, NULL);
}

static int diagnose(struct walk *k, const struct nvefs_tree_visit *v)
{
	struct nvefs_block_expect want = {
		.pblk = v->pblk, .twin = v->twin, .txn = v->txn, .uuid = k->c->sb.uuid, .type = NVEFS_BT_NODE};
	enum nvefs_block_status status;
	void *block;

	if (!k->w->report)
		return 0;
	block = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	if (!block)
		return -ENOMEM;
	if (nvefs_queue_read(k->c->q, v->pblk, 1, block)) {
		report(k, v, NVEFS_P_NODE_DAMAGED, v->level, "cannot be read");
	} else {
		status = nvefs_block_check(block, &want);
		if (status == NVEFS_BLOCK_OK)
			judge_content(k, v, block);
		else
			report(k, v, NVEFS_P_NODE_DAMAGED, v->level, nvefs_block_status_text(status));
	}
	nvefs_buf_free(block);
	return 0;
}

static int do_items(struct walk *k, const struct nvefs_tree_visit *v)
{
	int err = 0;

	for (uint32_t i = 0; i < nvefs_node_nitems(v->node) && !err; i++) {
		struct nvefs_key key = nvefs_node_key(v->node, i);
		const void *val;
		uint32_t len;

		if (k->any && nvefs_key_cmp(&key, &k->last) <= 0) {
			report(k, v, NVEFS_P_KEY_ORDER, i, NULL);
			continue;
		}
		k->last = key;
		k->any = true;
		val = nvefs_leaf_value(v->node, i, &len);
		err = k->w->item(k->c, k->w->arg, &key, val, len, v->pblk);
	}
	return err;
}

/* Note what the block is used for. 0: go on with the node, 1: leave it, or a negative errno. */
static int claim(struct walk *k, const struct nvefs_tree_visit *v)
{
	int err;

	if (!k->w->report)
		return !nvefs_layout_node_ok(&k->c->sb, v->pblk, v->twin);
	if (!nvefs_layout_node_ok(&k->c->sb, v->pblk, v->twin)) {
		report(k, v, NVEFS_P_NODE_FIXED, v->pblk, NULL);
		return 1;
	}
	err = nvefs_usage_add_meta(&k->c->usage, v->pblk);
	if (!err && v->twin)
		err = nvefs_usage_add_meta(&k->c->usage, v->twin);
	if (err != -EEXIST && err != -ELOOP)
		return err;
	report(k, v, NVEFS_P_NODE_TWICE, 0, NULL);
	return err == -ELOOP;
}

static int visit(void *arg, const struct nvefs_tree_visit *v)
{
	struct walk *k = arg;
	int err;

	k->nodes++;
	err = nvefs_check_progress(k->c, k->nodes, k->c->root.meta_blks);
	if (err)
		return err;
	if (v->err == -ENOMEM)
		return v->err;
	/* Later walks see what the first one saw, and no more. */
	if (!k->w->report && k->nodes > k->c->tree_nodes)
		return -EUCLEAN;
	err = claim(k, v);
	if (err)
		return err < 0 ? err : 0;
	if (v->err || !v->node)
		return diagnose(k, v);
	if (k->w->report) {
		err = nvefs_check_copies(
			k->c, (struct nvefs_block_ref){.pblk = v->pblk, .twin = v->twin, .txn = v->txn},
			NVEFS_BT_NODE);
		if (err)
			return err;
	}
	return v->level ? 0 : do_items(k, v);
}

int nvefs_check_walk(struct nvefs_check_ctx *c, const struct nvefs_check_walk *w)
{
	struct walk k = {.c = c, .w = w};
	int err;

	if (w->report)
		c->inner_sound = true;
	c->ahead.twins = w->report; /* later walks do not look at them */
	err = nvefs_tree_walk(c->st, c->q, &c->ahead, visit, &k);

	if (w->report)
		c->tree_nodes = k.nodes;
	if (err == -EUCLEAN) {
		c->incomplete = true;
		err = 0;
	}
	return err;
}
