/* SPDX-License-Identifier: MIT */
/*
 * SEEK_DATA and SEEK_HOLE. The file is folded first, so that the tree alone
 * has the answer and large holes cost nothing.
 */
#include <errno.h>
#include <unistd.h>

#include "fs/fold.h"

static bool is_data(uint64_t entry)
{
	return entry && nvefs_went_type(entry) != NVEFS_EXT_UNWRITTEN;
}

/*
 * First block >= *lblk that is data (or is not); windows without an item are
 * holes. -ENOENT: no data up to the end. Meta lock.
 */
static int seek_try(struct nvefs_inode *in, bool data, uint64_t *lblk, struct nvefs_miss *miss)
{
	uint64_t at = *lblk;

	for (;;) {
		struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_MAP, at / NVEFS_WINDOW_BLKS), found;
		struct nvefs_window win;
		const void *val;
		uint32_t len, i;
		int err = nvefs_tree_next(in->fs->st, &key, miss, &found, &val, &len);
		bool none = err == -ENOENT || (!err && (found.ino != in->ino || found.kind != NVEFS_KIND_MAP));

		if (err && !none)
			return err;
		if (!data && (none || found.offset > key.offset)) {
			*lblk = at;
			return 0;
		}
		if (none)
			return -ENOENT;
		err = nvefs_map_decode(val, len, nvefs_store_super(in->fs->st), &win);
		if (err)
			return err;
		if (found.offset > key.offset)
			at = found.offset * NVEFS_WINDOW_BLKS;
		for (i = at % NVEFS_WINDOW_BLKS; i < NVEFS_WINDOW_BLKS; i++) {
			if (is_data(win.pblk[i]) == data) {
				*lblk = found.offset * NVEFS_WINDOW_BLKS + i;
				return 0;
			}
		}
		at = (found.offset + 1) * NVEFS_WINDOW_BLKS;
	}
}

static int seek_tree(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t size, uint64_t off, bool data,
		     uint64_t *ret_off)
{
	struct nvefs_store *st = in->fs->st;
	uint64_t lblk = off / NVEFS_BLOCK_SIZE, at;
	struct nvefs_miss miss;
	int err;

	do {
		nvefs_store_rdlock(st);
		err = seek_try(in, data, &lblk, &miss);
		nvefs_store_rdunlock(st);
	} while (nvefs_store_retry(st, q, &miss, &err));
	if (err)
		return err == -ENOENT ? -ENXIO : err;
	at = lblk * NVEFS_BLOCK_SIZE;
	if (at < off)
		at = off;
	if (at >= size && data)
		return -ENXIO;
	*ret_off = at < size ? at : size;
	return 0;
}

int nvefs_seek(struct nvefs_worker *w, uint64_t ino, uint64_t off, int whence, uint64_t *ret_off)
{
	struct nvefs_queue *q = nvefs_worker_queue(w);
	struct nvefs_inode *in;
	uint64_t size;
	int err;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	err = nvefs_inode_get(nvefs_worker_fs(w), q, ino, &in);
	if (err)
		return err;
	if (!nvefs_worker_fs(w)->read_only)
		err = nvefs_inode_fold(in, q);
	nvefs_mutex_lock(&in->lock);
	size = in->rec.size;
	nvefs_mutex_unlock(&in->lock);
	if (!err && off >= size)
		err = -ENXIO;
	if (!err)
		err = seek_tree(in, q, size, off, whence == SEEK_DATA, ret_off);
	nvefs_inode_put(in);
	return err;
}
