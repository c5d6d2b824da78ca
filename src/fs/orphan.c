/* SPDX-License-Identifier: MIT */
/*
 * Orphans: inodes without a name, and files that a truncate has not finished.
 * Their items make sure that the work goes on after a power cut.
 */
#include "base/log.h"
#include "format/item.h"
#include "fs/names.h"

int nvefs_orphan_prepare(struct nvefs_txn *t, uint64_t ino)
{
	struct nvefs_key key = nvefs_orphan_key(ino);

	return nvefs_tree_prepare(t, &key);
}

/* The reasons that stand there now; 0: no item. */
static int orphan_get(struct nvefs_txn *t, uint64_t ino, uint32_t *ret_reason)
{
	struct nvefs_key key = nvefs_orphan_key(ino);
	const void *val;
	uint32_t len;
	int err;

	err = nvefs_tree_get(t->st, &key, &t->miss, &val, &len);
	if (err == -ENOENT) {
		*ret_reason = 0;
		return 0;
	}
	return err ? err : nvefs_orphan_decode(val, len, ret_reason);
}

int nvefs_orphan_put(struct nvefs_txn *t, uint64_t ino, uint32_t reason)
{
	struct nvefs_key key = nvefs_orphan_key(ino);
	struct nvefs_disk_orphan d;
	uint32_t old;
	int err;

	err = orphan_get(t, ino, &old);
	if (err || (old & reason) == reason)
		return err;
	d = nvefs_orphan_encode(old | reason);
	return nvefs_tree_put(t, &key, &d, sizeof(d));
}

int nvefs_orphan_del(struct nvefs_txn *t, uint64_t ino, uint32_t reason)
{
	struct nvefs_key key = nvefs_orphan_key(ino);
	struct nvefs_disk_orphan d;
	uint32_t old;
	int err;

	err = orphan_get(t, ino, &old);
	if (err || !(old & reason))
		return err;
	if (!(old & ~reason))
		return nvefs_tree_del(t, &key);
	d = nvefs_orphan_encode(old & ~reason);
	return nvefs_tree_put(t, &key, &d, sizeof(d));
}

int nvefs_orphan_next(struct nvefs_fs *fs, struct nvefs_queue *q, uint64_t *ino, uint32_t *ret_reason)
{
	struct nvefs_key key = nvefs_orphan_key(*ino), found;
	struct nvefs_miss miss;
	const void *val;
	uint32_t len;
	int err;

	do {
		nvefs_store_rdlock(fs->st);
		err = nvefs_tree_next(fs->st, &key, &miss, &found, &val, &len);
		if (!err && (found.ino || found.kind != NVEFS_KIND_ORPHAN))
			err = -ENOENT;
		if (!err)
			err = nvefs_orphan_decode(val, len, ret_reason);
		nvefs_store_rdunlock(fs->st);
	} while (nvefs_store_retry(fs->st, q, &miss, &err));
	if (!err)
		*ino = found.offset;
	return err;
}

/* ---- Unfinished truncates ---- */

static int forget_truncate_txn(struct nvefs_nop *op, void *arg)
{
	uint64_t ino = *(uint64_t *)arg;
	int err = nvefs_orphan_prepare(&op->t, ino);

	return err ? err : nvefs_orphan_del(&op->t, ino, NVEFS_ORPHAN_TRUNCATE);
}

static int finish_truncate(struct nvefs_fs *fs, struct nvefs_queue *q, uint64_t ino)
{
	struct nvefs_inode *in;
	uint64_t size;
	int err;

	err = nvefs_inode_get(fs, q, ino, &in);
	if (err)
		return err == -ESTALE ? -EUCLEAN : err;
	nvefs_mutex_lock(&in->lock);
	size = in->rec.size;
	nvefs_mutex_unlock(&in->lock);
	err = nvefs_inode_free_blocks(in, q, (size + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE);
	if (!err)
		err = nvefs_nop_run(fs, q, 1, NVEFS_TXN_FREEING, forget_truncate_txn, &ino);
	nvefs_inode_put(in);
	return err;
}

int nvefs_orphan_truncates(struct nvefs_fs *fs, struct nvefs_queue *q)
{
	uint32_t reason = 0;
	uint64_t ino = 0;
	int err;

	while (!(err = nvefs_orphan_next(fs, q, &ino, &reason))) {
		/* One without a name goes as a whole, later. */
		if ((reason & NVEFS_ORPHAN_TRUNCATE) && !(reason & NVEFS_ORPHAN_UNLINKED))
			err = finish_truncate(fs, q, ino);
		if (err)
			return err;
		ino++;
	}
	return err == -ENOENT ? 0 : err;
}

/* ---- Removing an inode ---- */

#define REAP_ITEMS 10u /* removed in one transaction, beside inode and orphan item */

struct reap {
	struct nvefs_inode *in;
	bool done;
};

/* Items that hang on the inode, but for the inode item itself. */
static int reap_collect(struct nvefs_nop *op, uint64_t ino, struct nvefs_key *keys, uint32_t *n)
{
	struct nvefs_key key = nvefs_key_make(ino, NVEFS_KIND_INODE, 1);
	const void *val;
	uint32_t len;
	int err;

	for (*n = 0; *n < REAP_ITEMS; (*n)++) {
		err = nvefs_tree_next(op->fs->st, &key, &op->t.miss, &keys[*n], &val, &len);
		if (err == -ENOENT || (!err && keys[*n].ino != ino))
			return 0;
		if (err)
			return err;
		/* Blocks went before, and a directory was empty. */
		if (keys[*n].kind == NVEFS_KIND_MAP || keys[*n].kind == NVEFS_KIND_DIRENT)
			return -EUCLEAN;
		key = nvefs_key_after(&keys[*n]);
	}
	return 0;
}

static int reap_inode(struct nvefs_nop *op, struct nvefs_inode *in)
{
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_INODE, 0);
	int err;

	err = nvefs_tree_del(&op->t, &key);
	if (!err)
		err = nvefs_orphan_del(&op->t, in->ino, NVEFS_ORPHAN_UNLINKED | NVEFS_ORPHAN_TRUNCATE);
	if (err)
		return err;
	nvefs_store_root(op->fs->st)->inodes--;
	nvefs_mutex_lock(&in->lock);
	in->gone = true;
	nvefs_mutex_unlock(&in->lock);
	return 0;
}

static int reap_txn(struct nvefs_nop *op, void *arg)
{
	struct nvefs_key keys[REAP_ITEMS];
	struct reap *r = arg;
	uint32_t n, i;
	int err;

	err = reap_collect(op, r->in->ino, keys, &n);
	for (i = 0; !err && i < n; i++)
		err = nvefs_tree_prepare(&op->t, &keys[i]);
	if (!err)
		err = nvefs_inode_prepare(&op->t, r->in);
	if (!err)
		err = nvefs_orphan_prepare(&op->t, r->in->ino);
	for (i = 0; !err && i < n; i++)
		err = nvefs_tree_del(&op->t, &keys[i]);
	if (!err && n < REAP_ITEMS) {
		err = reap_inode(op, r->in);
		r->done = !err;
	}
	return err;
}

void nvefs_orphan_reap(struct nvefs_fs *fs, struct nvefs_queue *q, struct nvefs_inode *in)
{
	struct reap r = {.in = in};
	bool blocks;
	int err = 0;

	if (!nvefs_inode_claim(in)) {
		nvefs_inode_put(in);
		return;
	}
	nvefs_mutex_lock(&in->lock);
	blocks = S_ISREG(in->rec.mode) && (in->rec.blks || in->disk_blks);
	nvefs_mutex_unlock(&in->lock);
	if (blocks)
		err = nvefs_inode_free_blocks(in, q, 0);
	while (!err && !r.done)
		err = nvefs_nop_run(fs, q, REAP_ITEMS + 2, NVEFS_TXN_FREEING, reap_txn, &r);
	if (!err) {
		nvefs_inode_data_discard(in);
		nvefs_inode_put(in);
		return;
	}
	/* The item stays, so the next mount tries again; this reference keeps the inode out of sight. */
	if (err != -EINTR && !nvefs_store_error(fs->st))
		nvefs_log(NVEFS_LOG_ERR, "%s: inode %llu, which has no name, cannot be removed: %s",
			  nvefs_dev_identity(fs->dev)->target, (unsigned long long)in->ino,
			  strerror(-err));
}
