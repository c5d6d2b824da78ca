/* SPDX-License-Identifier: MIT */
/* Tree nodes: each is judged by itself and against its parent and its left neighbour. */
#include <errno.h>

#include "context.h"
#include "format/layout.h"
#include "format/node.h"

struct walk {
	struct nvefs_check_ctx *c;
	const struct nvefs_check_walk *w;
	struct nvefs_key last; /* of the leaves so far */
	bool any;
	uint64_t nodes;
};

static void report(struct walk *k, uint32_t code, const struct nvefs_tree_visit *v, uint64_t found,
		   uint64_t expected, const char *why)
{
	struct nvefs_problem p = {
		.code = code, .pblk = v->pblk, .found = found, .expected = expected, .why = why};

	k->c->incomplete = true;
	if (k->w->report)
		nvefs_check_report(k->c, &p);
}

/* Children: ascending, none below the parent's bound, nor at or below a leaf to their left. */
static void check_child_keys(struct walk *k, const struct nvefs_tree_visit *v)
{
	struct nvefs_key prev = v->low;

	for (uint32_t i = 0; i < le16_get(v->node->nitems); i++) {
		struct nvefs_key key = nvefs_node_key(v->node, i);

		if (!i && nvefs_key_cmp(&key, &v->low) < 0)
			report(k, NVEFS_P_KEY_BOUNDS, v, i, 0, NULL);
		if (i && nvefs_key_cmp(&key, &prev) <= 0)
			report(k, NVEFS_P_KEY_ORDER, v, i, 0, NULL);
		prev = key;
	}
}

static int do_items(struct walk *k, const struct nvefs_tree_visit *v)
{
	int err = 0;

	for (uint32_t i = 0; i < le16_get(v->node->nitems) && !err; i++) {
		struct nvefs_key key = nvefs_node_key(v->node, i);
		const void *val;
		uint32_t len;

		if (nvefs_key_cmp(&key, &v->low) < 0) {
			report(k, NVEFS_P_KEY_BOUNDS, v, i, 0, NULL);
			continue;
		}
		if (k->any && nvefs_key_cmp(&key, &k->last) <= 0) {
			report(k, NVEFS_P_KEY_ORDER, v, i, 0, NULL);
			continue;
		}
		k->last = key;
		k->any = true;
		val = nvefs_leaf_value(v->node, i, &len);
		err = k->w->item(k->c, k->w->arg, &key, val, len, v->pblk);
	}
	return err;
}

/* Claim the address. 0: go on with the node, 1: leave it, or a negative errno. */
static int claim(struct walk *k, const struct nvefs_tree_visit *v)
{
	int err;

	if (!k->w->report)
		return nvefs_layout_is_fixed(&k->c->sb, v->pblk);
	if (nvefs_layout_is_fixed(&k->c->sb, v->pblk)) {
		report(k, NVEFS_P_NODE_FIXED, v, 0, 0, NULL);
		return 1;
	}
	err = nvefs_usage_add_meta(&k->c->usage, v->pblk);
	if (err == -EEXIST || err == -ELOOP)
		report(k, NVEFS_P_NODE_TWICE, v, 0, 0, NULL);
	/* A subtree that is reached twice can be reached without end. */
	return err == -EEXIST ? 0 : err;
}

static int visit_node(struct walk *k, const struct nvefs_tree_visit *v)
{
	if (le16_get(v->node->level) != v->level) {
		report(k, NVEFS_P_NODE_LEVEL, v, le16_get(v->node->level), v->level, NULL);
		return 0;
	}
	if (nvefs_node_check(v->node)) {
		report(k, NVEFS_P_NODE_LAYOUT, v, 0, 0, "its counts, keys or values contradict each other");
		return 0;
	}
	if (k->any && nvefs_key_cmp(&v->low, &k->last) <= 0)
		report(k, NVEFS_P_KEY_ORDER, v, 0, 0, NULL);
	if (k->w->node)
		k->w->node(k->c, v);
	if (!v->level)
		return do_items(k, v);
	check_child_keys(k, v);
	return 0;
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
		return -ELOOP;
	err = claim(k, v);
	if (err)
		return err < 0 ? err : 0;
	if (v->err || !v->node) {
		report(k, NVEFS_P_NODE_DAMAGED, v, v->level, 0, v->err == -EUCLEAN ? "damaged" : "cannot be read");
		return 0;
	}
	return visit_node(k, v);
}

int nvefs_check_walk(struct nvefs_check_ctx *c, const struct nvefs_check_walk *w)
{
	struct walk k = {.c = c, .w = w};
	int err = nvefs_tree_walk(c->st, c->q, visit, &k);

	if (w->report)
		c->tree_nodes = k.nodes;
	if (err == -ELOOP || err == -EUCLEAN) {
		c->incomplete = true;
		err = 0;
	}
	return err;
}
