/* SPDX-License-Identifier: MIT */
/*
 * Listing a directory. A position is 1 behind ".", 2 behind "..", and for an
 * entry 3 + (name hash << 8 | slot): fixed for as long as the name exists, so
 * changes beside it neither hide nor repeat it. The callback runs without the
 * meta lock, so entries are copied in batches.
 */
#include <dirent.h>
#include <stdlib.h>

#include "fs/names.h"

#define READDIR_BATCH 64u
#define READDIR_FIRST 3u

struct readdir_entry {
	uint64_t ino, pos;
	struct nvefs_inode *in; /* plus: a reference, or NULL when it was not cached */
	uint8_t dtype, namelen;
	char name[NVEFS_NAME_MAX];
};

struct readdir_batch {
	struct nvefs_fs *fs;
	struct nvefs_queue *q;
	uint64_t dir, pos; /* continue behind */
	bool plus, end;
	uint32_t n;
	struct readdir_entry e[READDIR_BATCH];
};

static void batch_drop(struct readdir_batch *b)
{
	while (b->n)
		nvefs_inode_put(b->e[--b->n].in);
}

static uint64_t entry_pos(uint64_t hash, uint8_t slot)
{
	return READDIR_FIRST + (hash << 8 | slot);
}

/* The entry of this item that comes next behind b->pos. -ENOENT. */
static int item_next(const struct readdir_batch *b, uint64_t hash, const void *val, uint32_t len,
		     struct nvefs_dirent *ret)
{
	struct nvefs_dirent ent;
	bool found = false;
	uint32_t pos = 0;
	int err;

	while (!(err = nvefs_dirent_next(val, len, &pos, &ent))) {
		if (entry_pos(hash, ent.slot) <= b->pos || (found && ent.slot > ret->slot))
			continue;
		*ret = ent;
		found = true;
	}
	return err != -ENOENT ? err : found ? 0 : -ENOENT;
}

static void batch_add(struct readdir_batch *b, uint64_t pos, const struct nvefs_dirent *ent,
		      struct nvefs_miss *miss)
{
	struct readdir_entry *e = &b->e[b->n++];

	e->ino = ent->ino;
	e->pos = b->pos = pos;
	e->dtype = ent->dtype;
	e->namelen = ent->namelen;
	memcpy(e->name, ent->name, ent->namelen);
	if (!b->plus || nvefs_inode_get_locked(b->fs, ent->ino, miss, &e->in))
		e->in = NULL;
}

/* [meta] Up to limit entries. What is there when a block is missing will do, if it is anything. */
static int batch_fill_locked(struct readdir_batch *b, uint32_t limit, struct nvefs_miss *miss)
{
	uint64_t start = b->pos < READDIR_FIRST ? 0 : (b->pos - READDIR_FIRST) >> 8;
	struct nvefs_key key = nvefs_key_make(b->dir, NVEFS_KIND_DIRENT, start), found;
	struct nvefs_dirent ent;
	struct nvefs_miss unused;
	const void *val;
	uint32_t len;
	int err;

	while (b->n < limit) {
		err = nvefs_tree_next(b->fs->st, &key, miss, &found, &val, &len);
		if (err == -ENOENT ||
		    (!err && (found.ino != b->dir || found.kind != NVEFS_KIND_DIRENT))) {
			b->end = true;
			return 0;
		}
		if (err)
			return err == -EAGAIN && b->n ? 0 : err;
		err = item_next(b, found.offset, val, len, &ent);
		if (!err)
			batch_add(b, entry_pos(found.offset, ent.slot), &ent, &unused);
		else if (err != -ENOENT)
			return err;
		key = err ? nvefs_key_after(&found) : found;
	}
	return 0;
}

static int batch_fill(struct readdir_batch *b)
{
	struct nvefs_miss miss;
	int err;

	do {
		nvefs_store_rdlock(b->fs->st);
		err = batch_fill_locked(b, b->plus ? READDIR_BATCH / 2 : READDIR_BATCH, &miss);
		nvefs_store_rdunlock(b->fs->st);
	} while (nvefs_store_retry(b->fs->st, b->q, &miss, &err));
	return err;
}

/* Non-zero when the callback has had enough; > 0 then, or -errno. */
static int emit(struct readdir_batch *b, struct readdir_entry *e, nvefs_dirent_fn *fn, void *arg)
{
	struct nvefs_attr attr = {.ino = e->ino, .mode = DTTOIF(e->dtype)};
	int err;

	if (!b->plus)
		return fn(arg, e->name, e->namelen, &attr, e->pos) ? 1 : 0;
	if (!e->in) {
		err = nvefs_inode_get(b->fs, b->q, e->ino, &e->in);
		if (err) /* unlinked meanwhile */
			return err == -ESTALE ? 0 : err;
	}
	nvefs_mutex_lock(&e->in->lock);
	nvefs_inode_attr_locked(e->in, &attr);
	nvefs_mutex_unlock(&e->in->lock);
	if (!attr.nlink)
		return 0;
	if (fn(arg, e->name, e->namelen, &attr, e->pos))
		return 1;
	/* Ours keeps it alive until here. */
	nvefs_inode_lookup_ref(e->in);
	return 0;
}

static int emit_dots(struct nvefs_inode *dir, uint64_t *pos, nvefs_dirent_fn *fn, void *arg)
{
	struct nvefs_attr attr;
	uint64_t parent;

	nvefs_mutex_lock(&dir->lock);
	nvefs_inode_attr_locked(dir, &attr);
	parent = dir->rec.parent;
	nvefs_mutex_unlock(&dir->lock);
	if (*pos < 1) {
		if (fn(arg, ".", 1, &attr, 1))
			return 1;
		*pos = 1;
	}
	if (*pos < 2) {
		attr = (struct nvefs_attr){.ino = parent, .mode = S_IFDIR};
		if (fn(arg, "..", 2, &attr, 2))
			return 1;
		*pos = 2;
	}
	return 0;
}

static int readdir_all(struct readdir_batch *b, nvefs_dirent_fn *fn, void *arg)
{
	uint32_t i;
	int err = 0;

	while (!err && !b->end) {
		err = batch_fill(b);
		for (i = 0; !err && i < b->n; i++)
			err = emit(b, &b->e[i], fn, arg);
		batch_drop(b);
	}
	return err < 0 ? err : 0;
}

int nvefs_readdir(struct nvefs_worker *w, uint64_t dir, uint64_t pos, bool plus, nvefs_dirent_fn *fn,
		  void *arg)
{
	struct readdir_batch *b;
	struct nvefs_inode *in;
	int err = 0;

	b = malloc(sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->fs = nvefs_worker_fs(w);
	b->q = nvefs_worker_queue(w);
	b->dir = dir;
	b->plus = plus;
	b->end = false;
	b->n = 0;
	err = nvefs_inode_get(b->fs, b->q, dir, &in);
	if (err)
		goto free_batch;
	if (!S_ISDIR(nvefs_inode_mode(in))) {
		err = -ENOTDIR;
		goto put;
	}
	if (!emit_dots(in, &pos, fn, arg)) {
		b->pos = pos;
		err = readdir_all(b, fn, arg);
	}
	nvefs_mutex_lock(&in->lock);
	nvefs_inode_accessed_locked(in);
	nvefs_mutex_unlock(&in->lock);
put:
	nvefs_inode_put(in);
free_batch:
	free(b);
	return err;
}
