/* SPDX-License-Identifier: MIT */
/* Directory entries, and looking them up. */
#include <dirent.h>

#include "fs/names.h"

uint64_t nvefs_dir_hash(const struct nvefs_fs *fs, const char *name, size_t len)
{
	return nvefs_name_hash(fs->hash_seed, name, (uint32_t)len);
}

static struct nvefs_key dir_key(const struct nvefs_fs *fs, uint64_t dir, const char *name, size_t len)
{
	return nvefs_key_make(dir, NVEFS_KIND_DIRENT, nvefs_dir_hash(fs, name, len));
}

int nvefs_dir_find(struct nvefs_fs *fs, uint64_t dir, const char *name, size_t len,
		   struct nvefs_miss *miss, struct nvefs_dirent *ret)
{
	struct nvefs_key key = dir_key(fs, dir, name, len);
	const void *val;
	uint32_t vlen;
	int err;

	err = nvefs_tree_get(fs->st, &key, miss, &val, &vlen);
	if (err)
		return err;
	return nvefs_dirent_find(val, vlen, name, (uint32_t)len, ret);
}

/* The item's value, copied; nothing there: length 0. */
static int dir_copy(struct nvefs_nop *op, const struct nvefs_key *key, void *buf, uint32_t *ret_len)
{
	const void *val;
	uint32_t len;
	int err;

	err = nvefs_tree_get(op->fs->st, key, &op->t.miss, &val, &len);
	if (err == -ENOENT) {
		*ret_len = 0;
		return 0;
	}
	if (err)
		return err;
	if (len > NVEFS_VALUE_MAX)
		return -EUCLEAN;
	memcpy(buf, val, len);
	*ret_len = len;
	return 0;
}

int nvefs_dir_prepare(struct nvefs_nop *op, uint64_t dir, const char *name, size_t len, bool adding)
{
	struct nvefs_key key = dir_key(op->fs, dir, name, len);
	uint8_t buf[NVEFS_VALUE_MAX], slot;
	uint32_t vlen;
	int err;

	err = nvefs_tree_prepare(&op->t, &key);
	if (err || !adding)
		return err;
	err = dir_copy(op, &key, buf, &vlen);
	if (err)
		return err;
	return nvefs_dirent_add(buf, &vlen, name, (uint32_t)len, 1, DT_UNKNOWN, &slot);
}

int nvefs_dir_add(struct nvefs_nop *op, uint64_t dir, const char *name, size_t len, uint64_t ino,
		  uint32_t mode)
{
	struct nvefs_key key = dir_key(op->fs, dir, name, len);
	uint8_t buf[NVEFS_VALUE_MAX], slot;
	uint32_t vlen;
	int err;

	err = dir_copy(op, &key, buf, &vlen);
	if (!err)
		err = nvefs_dirent_add(buf, &vlen, name, (uint32_t)len, ino, IFTODT(mode), &slot);
	return err ? err : nvefs_tree_put(&op->t, &key, buf, vlen);
}

int nvefs_dir_set(struct nvefs_nop *op, uint64_t dir, const char *name, size_t len, uint64_t ino,
		  uint32_t mode)
{
	struct nvefs_key key = dir_key(op->fs, dir, name, len);
	uint8_t buf[NVEFS_VALUE_MAX];
	uint32_t vlen;
	int err;

	err = dir_copy(op, &key, buf, &vlen);
	if (!err)
		err = nvefs_dirent_set(buf, vlen, name, (uint32_t)len, ino, IFTODT(mode));
	return err ? err : nvefs_tree_put(&op->t, &key, buf, vlen);
}

int nvefs_dir_remove(struct nvefs_nop *op, uint64_t dir, const char *name, size_t len)
{
	struct nvefs_key key = dir_key(op->fs, dir, name, len);
	uint8_t buf[NVEFS_VALUE_MAX];
	uint32_t vlen;
	int err;

	err = dir_copy(op, &key, buf, &vlen);
	if (!err)
		err = nvefs_dirent_remove(buf, &vlen, name, (uint32_t)len);
	if (err)
		return err;
	return vlen ? nvefs_tree_put(&op->t, &key, buf, vlen) : nvefs_tree_del(&op->t, &key);
}

int nvefs_dir_update(struct nvefs_nop *op, struct nvefs_inode *dir, int entries, int subdirs)
{
	int err;

	nvefs_mutex_lock(&dir->lock);
	dir->rec.size += (uint64_t)(int64_t)entries;
	dir->rec.subdirs += (uint64_t)(int64_t)subdirs;
	dir->rec.nlink += (uint32_t)subdirs;
	dir->rec.mtime = dir->rec.ctime = op->now;
	err = nvefs_inode_write_locked(&op->t, dir);
	nvefs_mutex_unlock(&dir->lock);
	return err;
}

uint32_t nvefs_inode_mode(struct nvefs_inode *in)
{
	uint32_t mode;

	nvefs_mutex_lock(&in->lock);
	mode = in->rec.mode;
	nvefs_mutex_unlock(&in->lock);
	return mode;
}

/* [meta] The inode that a name stands for. An entry without an inode is damage. */
static int dir_lookup_locked(struct nvefs_fs *fs, uint64_t dir, const char *name, size_t len,
			     struct nvefs_miss *miss, struct nvefs_inode **ret_in)
{
	struct nvefs_dirent ent;
	struct nvefs_inode *in;
	bool is_dir;
	int err;

	err = nvefs_inode_get_locked(fs, dir, miss, &in);
	if (err)
		return err;
	is_dir = S_ISDIR(nvefs_inode_mode(in));
	nvefs_inode_put(in);
	if (!is_dir)
		return -ENOTDIR;
	err = nvefs_dir_find(fs, dir, name, len, miss, &ent);
	if (err)
		return err;
	err = nvefs_inode_get_locked(fs, ent.ino, miss, ret_in);
	return err == -ESTALE ? -EUCLEAN : err;
}

/* The answer to a lookup: takes over the reference. */
static void lookup_answer(struct nvefs_inode *in, struct nvefs_attr *ret_attr)
{
	nvefs_mutex_lock(&in->lock);
	nvefs_inode_attr_locked(in, ret_attr);
	nvefs_mutex_unlock(&in->lock);
	nvefs_inode_lookup_ref(in);
	nvefs_inode_put(in);
}

int nvefs_lookup(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len,
		 struct nvefs_attr *ret_attr)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	struct nvefs_miss miss;
	struct nvefs_inode *in;
	int err;

	if (len == 1 && name[0] == '.')
		return nvefs_lookup_ino(w, dir, ret_attr);
	if (len == 2 && name[0] == '.' && name[1] == '.')
		return nvefs_lookup_parent(w, dir, ret_attr);
	err = nvefs_name_check(name, (uint32_t)(len < UINT32_MAX ? len : UINT32_MAX));
	if (err)
		return err;
	do {
		nvefs_store_rdlock(fs->st);
		err = dir_lookup_locked(fs, dir, name, len, &miss, &in);
		nvefs_store_rdunlock(fs->st);
	} while (nvefs_store_retry(fs->st, nvefs_worker_queue(w), &miss, &err));
	if (!err)
		lookup_answer(in, ret_attr);
	return err;
}

int nvefs_lookup_ino(struct nvefs_worker *w, uint64_t ino, struct nvefs_attr *ret_attr)
{
	struct nvefs_inode *in;
	bool held;
	int err;

	err = nvefs_inode_get(nvefs_worker_fs(w), nvefs_worker_queue(w), ino, &in);
	if (err)
		return err;
	held = nvefs_inode_held(in);
	nvefs_mutex_lock(&in->lock);
	if (in->orphan && !held)
		err = -ESTALE;
	nvefs_mutex_unlock(&in->lock);
	if (err)
		nvefs_inode_put(in);
	else
		lookup_answer(in, ret_attr);
	return err;
}

int nvefs_lookup_parent(struct nvefs_worker *w, uint64_t dir, struct nvefs_attr *ret_attr)
{
	struct nvefs_inode *in;
	uint64_t parent = 0;
	int err;

	err = nvefs_inode_get(nvefs_worker_fs(w), nvefs_worker_queue(w), dir, &in);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	if (!S_ISDIR(in->rec.mode))
		err = -ENOTDIR;
	else
		parent = in->rec.parent;
	nvefs_mutex_unlock(&in->lock);
	nvefs_inode_put(in);
	return err ? err : nvefs_lookup_ino(w, parent, ret_attr);
}
