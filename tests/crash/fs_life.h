/* SPDX-License-Identifier: MIT */
/* One life of the crash loop: a file system that is worked on while its device is recorded. */
#ifndef NVEFS_TESTS_FS_LIFE_H
#define NVEFS_TESTS_FS_LIFE_H

#include <nvefs/nvefs.h>

#include "../support/calls.h"
#include "device/record.h"
#include "oracle.h"

struct life {
	struct rnd rnd;
	struct oracle o;
	struct nvefs_record *log;
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
	struct nvefs_mount_opts opts;
	uint64_t seed;
	uint32_t nops;
	enum nvefs_route route;
	bool violated, tight, single;
	uint64_t max_bytes; /* of a file */
	uint32_t end_cut;   /* later ones are not judged */
	char why[1200];
	bool verbose; /* list the operations */
	uint32_t stride;
};

extern const char *const life_names[ORACLE_NAMES];
extern const struct oracle_path life_paths[ORACLE_NAMES];

/*
 * In every second life nearly all space is taken, so that freed blocks are used
 * again at once: what brings them back too early is seen. Files are small then;
 * in the others they span windows.
 */
int life_take_space(struct life *l);
/* One random operation on the file system and on the model. 0 or what the operation returned. */
int life_step(struct life *l);

#endif
