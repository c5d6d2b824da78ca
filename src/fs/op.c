/* SPDX-License-Identifier: MIT */
#include "fs/names.h"
#include "fs/pledge.h"

static void nop_drop(struct nvefs_nop *op)
{
	while (op->nheld)
		nvefs_inode_put(op->held[--op->nheld]);
}

static uint32_t nop_credits(const struct nvefs_fs *fs, uint32_t nkeys)
{
	uint32_t per_key = nvefs_tree_credits(fs->st), max = nvefs_txn_max_credits(fs->st);
	uint32_t credits;

	/* Many keys only ever are the pieces of one value: neighbours, which share nodes. */
	if (nkeys <= 12)
		credits = nkeys * per_key;
	else
		credits = 12 * per_key + 3 * (nkeys - 12);
	return credits < max ? credits : max;
}

static int nop_attempt(struct nvefs_nop *op, uint32_t txn_flags, nvefs_nop_fn *fn, void *arg)
{
	int err;

	err = nvefs_txn_begin(op->fs->st, op->q, nop_credits(op->fs, op->nkeys), txn_flags, &op->t);
	op->no_room = err == -ENOSPC;
	if (err)
		return err;
	op->now = nvefs_time_now();
	op->fold = NULL;
	op->want_keys = 0;
	err = fn(op, arg);
	nvefs_txn_end(&op->t);
	return err;
}

/* What an attempt asked for. True: make another one. */
static bool nop_satisfy(struct nvefs_nop *op, int *err)
{
	if (op->fold) {
		op->folded = true;
		*err = nvefs_inode_fold(op->fold, op->q);
		return !*err;
	}
	if (op->want_keys > op->nkeys) {
		op->nkeys = op->want_keys;
		return true;
	}
	return nvefs_store_retry(op->fs->st, op->q, &op->t.miss, err);
}

int nvefs_nop_run(struct nvefs_fs *fs, struct nvefs_queue *q, uint32_t nkeys, uint32_t txn_flags,
		  nvefs_nop_fn *fn, void *arg)
{
	struct nvefs_nop op = {.fs = fs, .q = q, .nkeys = nkeys};
	bool reclaimed = false, coming, again;
	int err;

	do {
		again = false;
		coming = nvefs_space_may_come(fs);
		err = nop_attempt(&op, txn_flags, fn, arg);
		if (err == -EAGAIN)
			again = nop_satisfy(&op, &err);
		nop_drop(&op);
		if (err == -ENOSPC && op.no_room && coming && !reclaimed) {
			/* What has been deleted may not have come back yet. */
			reclaimed = true;
			again = !nvefs_space_reclaim(fs, q);
		}
	} while (again);
	return op.no_room ? nvefs_alloc_errno(fs->st, err) : err;
}

int nvefs_nop_get(struct nvefs_nop *op, uint64_t ino, struct nvefs_inode **ret_in)
{
	int err;

	assert(op->nheld < NVEFS_NOP_HOLDS);
	err = nvefs_inode_get_locked(op->fs, ino, &op->t.miss, &op->held[op->nheld]);
	if (err)
		return err;
	*ret_in = op->held[op->nheld++];
	return 0;
}

int nvefs_nop_get_dir(struct nvefs_nop *op, uint64_t ino, struct nvefs_inode **ret_in)
{
	struct nvefs_inode *in;
	int err;

	err = nvefs_nop_get(op, ino, &in);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	if (!S_ISDIR(in->rec.mode))
		err = -ENOTDIR;
	else if (!in->rec.nlink)
		err = -ENOENT;
	nvefs_mutex_unlock(&in->lock);
	if (!err)
		*ret_in = in;
	return err;
}
