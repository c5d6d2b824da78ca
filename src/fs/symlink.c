/* SPDX-License-Identifier: MIT */
/* The target of a symbolic link, in pieces in the tree. */
#include "fs/names.h"

static struct nvefs_key symlink_key(uint64_t ino, size_t off)
{
	return nvefs_key_make(ino, NVEFS_KIND_SYMLINK, off / NVEFS_PIECE_BYTES);
}

int nvefs_symlink_prepare(struct nvefs_nop *op, uint64_t ino, size_t len)
{
	struct nvefs_key key;
	size_t off;
	int err = 0;

	for (off = 0; !err && off < len; off += NVEFS_PIECE_BYTES) {
		key = symlink_key(ino, off);
		err = nvefs_tree_prepare(&op->t, &key);
	}
	return err;
}

int nvefs_symlink_put(struct nvefs_nop *op, uint64_t ino, const char *target, size_t len)
{
	struct nvefs_key key;
	size_t off, n;
	int err = 0;

	for (off = 0; !err && off < len; off += n) {
		n = len - off < NVEFS_PIECE_BYTES ? len - off : NVEFS_PIECE_BYTES;
		key = symlink_key(ino, off);
		err = nvefs_tree_put(&op->t, &key, target + off, (uint32_t)n);
	}
	return err;
}

static int symlink_read_locked(struct nvefs_fs *fs, uint64_t ino, uint64_t len, struct nvefs_miss *miss,
			       char *buf)
{
	struct nvefs_key key;
	const void *val;
	size_t off;
	uint32_t n;
	int err;

	for (off = 0; off < len; off += n) {
		key = symlink_key(ino, off);
		err = nvefs_tree_get(fs->st, &key, miss, &val, &n);
		if (err)
			return err == -ENOENT ? -EUCLEAN : err;
		if (n != (len - off < NVEFS_PIECE_BYTES ? len - off : NVEFS_PIECE_BYTES))
			return -EUCLEAN;
		memcpy(buf + off, val, n);
	}
	return 0;
}

int nvefs_readlink(struct nvefs_worker *w, uint64_t ino, char *buf, size_t size, size_t *ret_len)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	char target[NVEFS_SYMLINK_MAX + 1];
	struct nvefs_inode *in;
	struct nvefs_miss miss;
	uint64_t len;
	uint32_t mode;
	int err;

	err = nvefs_inode_get(fs, nvefs_worker_queue(w), ino, &in);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	len = in->rec.size;
	mode = in->rec.mode;
	nvefs_mutex_unlock(&in->lock);
	if (!S_ISLNK(mode))
		err = -EINVAL;
	else if (len > NVEFS_SYMLINK_MAX)
		err = -EUCLEAN;
	if (err)
		goto put;
	do {
		nvefs_store_rdlock(fs->st);
		err = symlink_read_locked(fs, ino, len, &miss, target);
		nvefs_store_rdunlock(fs->st);
	} while (nvefs_store_retry(fs->st, nvefs_worker_queue(w), &miss, &err));
	if (err)
		goto put;
	*ret_len = len < size ? len : size;
	memcpy(buf, target, *ret_len);
	nvefs_mutex_lock(&in->lock);
	nvefs_inode_accessed_locked(in);
	nvefs_mutex_unlock(&in->lock);
put:
	nvefs_inode_put(in);
	return err;
}
