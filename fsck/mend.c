/* SPDX-License-Identifier: MIT */
#include "mend.h"

#include <errno.h>
#include <string.h>

#include "salvage.h"


/*
 * In this order: bitmaps first, for nothing may be allocated before they are
 * right; the root's counts before inodes are made by their numbers; names are
 * taken away before they are counted; lost inodes last, when it is known which they are.
 */
static const struct {
	uint32_t menders; /* of which any is asked for; 0: always */
	int (*run)(struct nvefs_check_ctx *c);
} steps[] = {
	{0, nvefs_mend_blocks},
	{1u << NVEFS_MEND_ITEM, nvefs_mend_items},
	{1u << NVEFS_MEND_MAPS | 1u << NVEFS_MEND_SHARES, nvefs_mend_maps},
	{1u << NVEFS_MEND_SHARES, nvefs_mend_shares},
	{0, nvefs_mend_root},
	{1u << NVEFS_MEND_ORPHAN, nvefs_mend_orphans},
	{1u << NVEFS_MEND_TWICE, nvefs_mend_twice},
	{1u << NVEFS_MEND_LOOP, nvefs_mend_loops},
	{1u << NVEFS_MEND_INODE, nvefs_mend_inodes},
	{1u << NVEFS_MEND_LOST, nvefs_mend_lost},
};
#define NSTEPS (sizeof(steps) / sizeof(steps[0]))

static int run_steps(struct nvefs_check_ctx *c)
{
	int err = 0;

	for (size_t i = 0; i < NSTEPS && !err; i++)
		if (!steps[i].menders || steps[i].menders & c->todo.menders)
			err = steps[i].run(c);
	return err;
}

static int with_store(struct nvefs_check_ctx *c)
{
	struct nvefs_store_opts opts = {.repair = true, .mmp = c->past->mmp};
	int err = nvefs_store_open(c->dev, &opts, &c->st, c->err), stop_err;

	if (err)
		return err;
	err = nvefs_store_start(c->st);
	if (!err) {
		err = run_steps(c);
		stop_err = nvefs_store_stop(c->st);
		if (!err)
			err = stop_err;
	}
	nvefs_store_free(c->st);
	c->st = NULL;
	return err;
}

int nvefs_mend(struct nvefs_check_ctx *c)
{
	uint32_t todo = c->todo.menders;
	int err = 0;

	if (nvefs_super_must_be_ro(&c->sb))
		return nvefs_error_set(c->err, -EROFS, "%s: has a feature that this version can only read",
				       nvefs_dev_identity(c->dev)->target);
	if (todo & 1u << NVEFS_MEND_SUPER)
		err = nvefs_mend_super(c);
	if (!err && todo & 1u << NVEFS_MEND_COPY)
		err = nvefs_mend_copies(c);
	if (err || !(todo & ~NVEFS_MENDERS_ALONE))
		return err;
	/* What was found beside a broken tree is judged anew when it is whole. */
	if (todo & 1u << NVEFS_MEND_TREE)
		return nvefs_salvage(c);
	return with_store(c);
}

/* ---- For the steps ---- */

/* exact: this key only. */
static int find(struct nvefs_check_ctx *c, const struct nvefs_key *key, bool exact, struct nvefs_mend_item *ret)
{
	struct nvefs_miss miss;
	const void *val;
	int err;

	do {
		nvefs_store_rdlock(c->st);
		if (exact)
			err = nvefs_tree_get(c->st, key, &miss, &val, &ret->len);
		else
			err = nvefs_tree_next(c->st, key, &miss, &ret->key, &val, &ret->len);
		if (!err)
			memcpy(ret->val, val, ret->len);
		nvefs_store_rdunlock(c->st);
	} while (err && nvefs_store_retry(c->st, c->q, &miss, &err));
	if (!err && exact)
		ret->key = *key;
	return err;
}

int nvefs_mend_next(struct nvefs_check_ctx *c, const struct nvefs_key *from, struct nvefs_mend_item *ret)
{
	return find(c, from, false, ret);
}

int nvefs_mend_get(struct nvefs_check_ctx *c, const struct nvefs_key *key, struct nvefs_mend_item *ret)
{
	return find(c, key, true, ret);
}

static int apply(struct nvefs_txn *t, const struct nvefs_mend_op *op)
{
	int err;

	if (op->val)
		return nvefs_tree_put(t, &op->key, op->val, op->len);
	err = nvefs_tree_del(t, &op->key);
	return err == -ENOENT ? 0 : err;
}

static int change(struct nvefs_check_ctx *c, const struct nvefs_mend_op *ops, uint32_t n, int inodes)
{
	uint32_t credits = n * nvefs_tree_credits(c->st);
	struct nvefs_txn t;
	int err;

	do {
		err = nvefs_txn_begin(c->st, c->q, credits, NVEFS_TXN_FREEING, &t);
		if (err)
			return err;
		for (uint32_t i = 0; i < n && !err; i++)
			err = nvefs_tree_prepare(&t, &ops[i].key);
		if (!err) {
			for (uint32_t i = 0; i < n && !err; i++)
				err = apply(&t, &ops[i]);
			nvefs_store_root(c->st)->inodes += (uint64_t)(int64_t)inodes;
			nvefs_txn_end(&t);
			return err;
		}
		nvefs_txn_end(&t);
	} while (nvefs_store_retry(c->st, c->q, &t.miss, &err));
	return err;
}

int nvefs_mend_change(struct nvefs_check_ctx *c, const struct nvefs_mend_op *ops, uint32_t n, int inodes)
{
	int err = 0;

	if (n * nvefs_tree_credits(c->st) <= nvefs_txn_max_credits(c->st))
		return change(c, ops, n, inodes);
	/* A tree that high under a journal that small: one by one. A cut between them is mended by another run. */
	for (uint32_t i = 0; i < n && !err; i++)
		err = change(c, &ops[i], 1, i ? 0 : inodes);
	return err;
}

int nvefs_mend_put(struct nvefs_check_ctx *c, const struct nvefs_key *key, const void *val, uint32_t len)
{
	struct nvefs_mend_op op = {.key = *key, .val = val, .len = len};

	return nvefs_mend_change(c, &op, 1, 0);
}

int nvefs_mend_del(struct nvefs_check_ctx *c, const struct nvefs_key *key)
{
	struct nvefs_mend_op op = {.key = *key};

	return nvefs_mend_change(c, &op, 1, 0);
}
