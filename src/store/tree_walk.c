/* SPDX-License-Identifier: MIT */
/*
 * Visiting all nodes. One private copy of a node per level; the meta lock is
 * held for looking up and copying only, and never while the visitor runs.
 *
 * Each node with a key in it fits into one place per level only (its bounds
 * would be wrong elsewhere), so that the walk ends on any damage.
 *
 * Reading ahead follows the same way: for each child once, a bounded number of
 * children of one node at each level, and only of nodes that were found sound.
 */
#include <errno.h>

#include "base/buf.h"
#include "format/block.h"
#include "store/ahead.h"
#include "store/copies.h"
#include "store/tree_path.h"

#define VERIFY_TRIES 4 /* a node that changes all the time is written all the time */

struct level {
	struct nvefs_disk_node *node; /* copy */
	struct nvefs_tree_range range;
	uint32_t next; /* child to visit next */
	uint32_t sent; /* children below this one have been sent for */
};

struct walk {
	struct nvefs_store *st;
	struct nvefs_queue *q;
	struct nvefs_ahead *ahead; /* NULL: none */
	nvefs_tree_visit_fn *fn;
	void *arg;
	struct level levels[NVEFS_TREE_MAX_HEIGHT];
};

static struct nvefs_block_ref ref_of(const struct nvefs_tree_visit *v)
{
	return (struct nvefs_block_ref){.pblk = v->pblk, .twin = v->twin, .txn = v->txn};
}

static struct nvefs_tree_visit visit_of(struct nvefs_block_ref at, uint32_t level)
{
	return (struct nvefs_tree_visit){
		.pblk = at.pblk, .twin = at.twin, .txn = at.txn, .level = level};
}

/* Copy the node that belongs at v's place. */
static int node_copy(struct walk *w, const struct nvefs_tree_visit *v,
		     const struct nvefs_tree_range *range, void *ret_copy)
{
	struct nvefs_miss miss;
	struct nvefs_mblk *b;
	int err;

	for (;;) {
		nvefs_store_rdlock(w->st);
		err = nvefs_tree_node_get(w->st, ref_of(v), v->level, range, &miss, &b);
		if (!err)
			memcpy(ret_copy, b->data, NVEFS_BLOCK_BYTES);
		nvefs_store_rdunlock(w->st);
		miss.ahead = w->ahead;
		if (!nvefs_store_retry(w->st, w->q, &miss, &err))
			return err;
	}
}

/* Fetch and visit one node. *ret_down: it has children that can be visited. */
static int visit(struct walk *w, struct nvefs_block_ref at, uint32_t level,
		 const struct nvefs_tree_range *range, bool *ret_down)
{
	struct level *l = &w->levels[level];
	struct nvefs_tree_visit v = visit_of(at, level);

	v.low = range->low;
	*ret_down = false;
	if (!l->node)
		l->node = nvefs_buf_new(NVEFS_BLOCK_BYTES);
	if (!l->node)
		return -ENOMEM;
	v.err = node_copy(w, &v, range, l->node);
	if (v.err == -ENOMEM)
		return v.err;
	v.node = v.err ? NULL : l->node;
	l->range = *range;
	l->next = l->sent = 0;
	*ret_down = !v.err && level;
	return w->fn(w->arg, &v);
}

/* The window goes on when half of it has been used: commands then leave together. */
static void send_children(struct walk *w, uint32_t level)
{
	uint32_t depth = level > 1 ? NVEFS_AHEAD_INNER : NVEFS_AHEAD_LEAVES;
	struct level *l = &w->levels[level];
	uint32_t end = nvefs_node_nitems(l->node);

	if (l->sent > l->next + depth / 2)
		return;
	if (l->sent < l->next)
		l->sent = l->next;
	if (end > l->next + depth)
		end = l->next + depth;
	for (; l->sent < end; l->sent++) {
		struct nvefs_block_ref at = nvefs_inner_child(l->node, l->sent);
		bool has;

		nvefs_store_rdlock(w->st);
		has = nvefs_cache_has(w->st, at.pblk);
		nvefs_store_rdunlock(w->st);
		if ((!has || w->ahead->twins) && !nvefs_ahead_send(w->ahead, at))
			return;
	}
}

static int walk_run(struct walk *w, struct nvefs_block_ref root, uint32_t height)
{
	struct nvefs_tree_range range = {.has_high = false};
	uint32_t level = height - 1;
	bool down;
	int err = visit(w, root, level, &range, &down);

	if (!down)
		return err;
	while (!err && level < height) {
		struct level *l = &w->levels[level];
		struct nvefs_block_ref at;
		uint32_t i = l->next;

		if (i == nvefs_node_nitems(l->node)) {
			level++;
			continue;
		}
		if (w->ahead)
			send_children(w, level);
		l->next++;
		at = nvefs_inner_child(l->node, i);
		range = nvefs_tree_child_range(l->node, &l->range, i);
		err = visit(w, at, level - 1, &range, &down);
		if (w->ahead)
			nvefs_ahead_drop(w->ahead, at);
		if (down)
			level--;
	}
	return err;
}

int nvefs_tree_walk(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_ahead *ahead, nvefs_tree_visit_fn *fn,
		    void *arg)
{
	struct walk w = {.st = st, .q = q, .ahead = ahead, .fn = fn, .arg = arg};
	struct nvefs_block_ref root;
	uint32_t height;
	int err;

	nvefs_store_rdlock(st);
	root = nvefs_tree_root_ref(nvefs_store_root(st));
	height = nvefs_store_root(st)->tree_height;
	nvefs_store_rdunlock(st);
	if (!height || height > NVEFS_TREE_MAX_HEIGHT)
		return -EUCLEAN;
	err = walk_run(&w, root, height);
	for (uint32_t i = 0; i < NVEFS_TREE_MAX_HEIGHT; i++)
		nvefs_buf_free(w.levels[i].node);
	if (ahead)
		nvefs_ahead_clear(ahead);
	return err;
}

struct verify {
	struct nvefs_store *st;
	struct nvefs_queue *q;
	struct nvefs_copies_look looks[NVEFS_TREE_MAX_HEIGHT]; /* of the path, by level */
	uint64_t seen[NVEFS_TREE_MAX_HEIGHT];			/* address of the node that was read last */
	uint32_t low, high;					/* levels of the path that were come to */
};

/* [meta] From the root towards the key's leaf. *v and *range are of the node that it came to. */
static int verify_path(struct verify *y, const struct nvefs_key *key, struct nvefs_miss *miss,
		       struct nvefs_tree_visit *v, struct nvefs_tree_range *range)
{
	const struct nvefs_root *root = nvefs_store_root(y->st);
	struct nvefs_mblk *b;

	*range = (struct nvefs_tree_range){.has_high = false};
	*v = visit_of(nvefs_tree_root_ref(root), root->tree_height);
	y->low = y->high = v->level;
	if (!v->level || v->level > NVEFS_TREE_MAX_HEIGHT)
		return -EUCLEAN;
	for (;;) {
		uint32_t i;
		int err;

		v->level--;
		v->low = range->low;
		err = nvefs_tree_node_get(y->st, ref_of(v), v->level, range, miss, &b);
		if (err)
			return err;
		y->low = v->level;
		nvefs_copies_look(y->st, ref_of(v), NVEFS_BT_NODE, &y->looks[v->level]);
		if (!v->level)
			return 0;
		i = nvefs_inner_find(b->data, key);
		*range = nvefs_tree_child_range(b->data, range, i);
		v->pblk = nvefs_inner_child(b->data, i).pblk;
		v->twin = nvefs_inner_child(b->data, i).twin;
		v->txn = nvefs_inner_txn(b->data, i);
	}
}

/* What the device has of the path's nodes, those above that were read for an earlier leaf left out. */
static int verify_copies(struct verify *y)
{
	struct nvefs_copies c;
	int err = 0;

	for (uint32_t level = y->high; level-- > y->low && !err;) {
		if (y->seen[level] == y->looks[level].at.pblk)
			continue;
		err = nvefs_copies_check(y->st, y->q, &y->looks[level], &c);
		if (err != -ESTALE)
			y->seen[level] = y->looks[level].at.pblk;
		/* It is in the cache: what the device has is going to be put right. */
		if (err == -EUCLEAN || err == -EIO)
			err = 0;
	}
	return err;
}

/* What the parents say holds only as long as the lock is held: so each leaf is come to from the root. */
int nvefs_tree_verify(struct nvefs_store *st, struct nvefs_queue *q, nvefs_tree_visit_fn *fn, void *arg)
{
	struct nvefs_tree_range range = {.has_high = true};
	struct verify y = {.st = st, .q = q};
	struct nvefs_tree_visit v;
	struct nvefs_miss miss;

	while (range.has_high) {
		struct nvefs_key from = range.high;
		int err, copies = -ESTALE;

		for (int tries = 0; tries < VERIFY_TRIES && copies == -ESTALE; tries++) {
			do {
				nvefs_store_rdlock(st);
				err = verify_path(&y, &from, &miss, &v, &range);
				nvefs_store_rdunlock(st);
			} while (nvefs_store_retry(st, q, &miss, &err));
			copies = err == -ENOMEM ? 0 : verify_copies(&y);
		}
		if (err == -ENOMEM || copies == -ENOMEM)
			return -ENOMEM;
		v.err = err;
		err = err ? fn(arg, &v) : 0;
		if (err)
			return err;
	}
	return 0;
}
