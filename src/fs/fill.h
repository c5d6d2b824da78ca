/* SPDX-License-Identifier: MIT */
/* The index of duplicates, and filling it from the segment maps behind the mount. */
#ifndef NVEFS_FS_FILL_H
#define NVEFS_FS_FILL_H

#include "fs/fs.h"

struct nvefs_fill {
	bool done;
	struct nvefs_key at; /* go on from here */
};

/* A bounded number of maps. The caller pauses between steps. Errors end the filling: it is only a hint. */
void nvefs_fill_step(struct nvefs_fs *fs, struct nvefs_queue *q, struct nvefs_fill *f);
void nvefs_fill_done(struct nvefs_fs *fs); /* frees the index */
void nvefs_fill_stats(struct nvefs_fs *fs, struct nvefs_stats *ret);
/* Make the index when there is none, and have it filled. Any thread. */
int nvefs_dedup_ensure(struct nvefs_fs *fs);

#endif
