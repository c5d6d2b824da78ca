/* SPDX-License-Identifier: MIT */
/* A new file system: a store with a root directory in it. */
#include <stdio.h>
#include <unistd.h>

#include "fs/fs.h"
#include "store/mkfs.h"

int nvefs_mkfs(struct nvefs_dev *dev, const struct nvefs_mkfs_opts *opts, struct nvefs_error *err)
{
	struct nvefs_mkfs_params params = {.inodes = 1};
	struct nvefs_inode_rec root = {.mode = S_IFDIR | 0755, .nlink = 2, .parent = NVEFS_ROOT_INO,
				       .xvalue_next = 1};
	struct nvefs_mkfs_item item = {.key = nvefs_key_make(NVEFS_ROOT_INO, NVEFS_KIND_INODE, 0)};
	struct nvefs_disk_inode d;

	if (opts->label && strlen(opts->label) > NVEFS_LABEL_MAX)
		return nvefs_error_set(err, -EINVAL, "%s: label is longer than %d bytes",
				       nvefs_dev_identity(dev)->target, NVEFS_LABEL_MAX);
	/* Whoever makes it shall be able to use it. */
	root.uid = getuid();
	root.gid = getgid();
	clock_gettime(CLOCK_REALTIME, &params.created);
	root.atime = root.mtime = root.ctime = root.btime = params.created;
	nvefs_inode_encode(&root, &d);
	item.val = &d;
	item.len = sizeof(d);

	params.items = &item;
	params.nitems = 1;
	params.hash_seed = opts->hash_seed;
	params.journal_blks = opts->journal_blks;
	params.mmp_interval_ms = opts->mmp_interval_ms;
	params.flags = (opts->dedup ? NVEFS_SB_DEDUP : 0) |
		       (opts->metadata_single ? 0 : NVEFS_SB_META_DUP);
	if (opts->uuid)
		memcpy(params.uuid, opts->uuid, sizeof(params.uuid));
	if (opts->label)
		memcpy(params.label, opts->label, strlen(opts->label));
	snprintf(params.creator, sizeof(params.creator), "mkfs.nvefs %s", NVEFS_VERSION);
	return nvefs_store_mkfs(dev, &params, NULL, err);
}
