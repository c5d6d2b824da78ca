/* SPDX-License-Identifier: MIT */
/* Names of files by inode number, found by searching all directories: for messages about damage. */
#ifndef NVEFS_FS_PATHS_H
#define NVEFS_FS_PATHS_H

#include "fs/fs.h"

#define NVEFS_PATH_BYTES 4096u

struct nvefs_path_want {
	uint64_t ino;
	/* set: */
	uint64_t parent; /* 0: no name was found */
	uint8_t namelen;
	char name[NVEFS_NAME_MAX];
};

/* One entry for each of `n` inodes, ascending by ino. One walk over all directory entries. */
int nvefs_paths_find(struct nvefs_fs *fs, struct nvefs_queue *q, struct nvefs_path_want *want, uint32_t n);
/* The whole path; what does not fit is cut off at the front. */
int nvefs_paths_build(struct nvefs_fs *fs, struct nvefs_queue *q, const struct nvefs_path_want *want,
		      char ret_path[NVEFS_PATH_BYTES]);

#endif
