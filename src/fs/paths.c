/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "fs/names.h"
#include "fs/paths.h"

#define PATH_DEPTH_MAX 4096u

static int want_cmp(const void *a, const void *b)
{
	const struct nvefs_path_want *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int match_item(uint64_t dir, const void *val, uint32_t len, struct nvefs_path_want *want, uint32_t n)
{
	struct nvefs_path_want *hit, key;
	struct nvefs_dirent ent;
	uint32_t pos = 0;
	int err;

	while (!(err = nvefs_dirent_next(val, len, &pos, &ent))) {
		key.ino = ent.ino;
		hit = bsearch(&key, want, n, sizeof(*want), want_cmp);
		if (!hit || hit->parent)
			continue;
		hit->parent = dir;
		hit->namelen = ent.namelen;
		memcpy(hit->name, ent.name, ent.namelen);
	}
	return err == -ENOENT ? 0 : err;
}

/* The first DIRENT item from *key on, matched; *key moved behind it. only: of this directory alone. */
static int match_step(struct nvefs_fs *fs, struct nvefs_key *key, struct nvefs_miss *miss, bool only,
		      struct nvefs_path_want *want, uint32_t n)
{
	struct nvefs_key found;
	const void *val;
	uint32_t len;
	int err;

	err = nvefs_tree_next(fs->st, key, miss, &found, &val, &len);
	if (err)
		return err;
	if (only && (found.ino != key->ino || found.kind != NVEFS_KIND_DIRENT))
		return -ENOENT;
	if (found.kind < NVEFS_KIND_DIRENT && found.ino) {
		*key = nvefs_key_make(found.ino, NVEFS_KIND_DIRENT, 0);
		return 0;
	}
	if (found.kind != NVEFS_KIND_DIRENT || !found.ino) {
		*key = nvefs_key_make(found.ino + 1, 0, 0);
		return 0;
	}
	err = match_item(found.ino, val, len, want, n);
	*key = nvefs_key_after(&found);
	return err;
}

static int match_all(struct nvefs_fs *fs, struct nvefs_queue *q, struct nvefs_key key, bool only,
		     struct nvefs_path_want *want, uint32_t n)
{
	struct nvefs_miss miss;
	int err;

	do {
		do {
			nvefs_store_rdlock(fs->st);
			err = match_step(fs, &key, &miss, only, want, n);
			nvefs_store_rdunlock(fs->st);
		} while (nvefs_store_retry(fs->st, q, &miss, &err));
	} while (!err && !(only && want->parent));
	return err == -ENOENT ? 0 : err;
}

int nvefs_paths_find(struct nvefs_fs *fs, struct nvefs_queue *q, struct nvefs_path_want *want, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		want[i].parent = 0;
	return match_all(fs, q, nvefs_key_make(1, 0, 0), false, want, n);
}

/* The entry of directory `dir` in its own parent. */
static int find_dir(struct nvefs_fs *fs, struct nvefs_queue *q, uint64_t dir, struct nvefs_path_want *ret)
{
	struct nvefs_inode *in;
	uint64_t parent;
	int err;

	err = nvefs_inode_get(fs, q, dir, &in);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	parent = in->rec.parent;
	nvefs_mutex_unlock(&in->lock);
	nvefs_inode_put(in);
	*ret = (struct nvefs_path_want){.ino = dir};
	return match_all(fs, q, nvefs_key_make(parent, NVEFS_KIND_DIRENT, 0), true, ret, 1);
}

int nvefs_paths_build(struct nvefs_fs *fs, struct nvefs_queue *q, const struct nvefs_path_want *want,
		      char ret_path[NVEFS_PATH_BYTES])
{
	struct nvefs_path_want w = *want;
	size_t at = NVEFS_PATH_BYTES - 1;
	uint32_t depth = 0;
	int err = 0;

	ret_path[at] = 0;
	while (w.parent && at > (size_t)w.namelen + 4 && depth++ < PATH_DEPTH_MAX) {
		at -= w.namelen;
		memcpy(ret_path + at, w.name, w.namelen);
		ret_path[--at] = '/';
		if (w.parent == NVEFS_ROOT_INO)
			break;
		err = find_dir(fs, q, w.parent, &w);
		if (err)
			return err;
	}
	if (w.parent != NVEFS_ROOT_INO && w.parent) {
		at -= 3;
		memcpy(ret_path + at, "...", 3);
	}
	memmove(ret_path, ret_path + at, NVEFS_PATH_BYTES - at);
	return 0;
}
