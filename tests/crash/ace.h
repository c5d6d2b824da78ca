/* SPDX-License-Identifier: MIT */
/*
 * Sequences of operations over a small set of files and directories, each
 * followed by nothing or by a step that makes something durable.
 *
 * The paths: f, g, directories A and B, and f and g in each of them. In the
 * beginning there are f (two and a half blocks), A, and A/f (two blocks, the
 * first one equal to f's). The nearly full kind has a filler beside them.
 */
#ifndef NVEFS_TESTS_ACE_H
#define NVEFS_TESTS_ACE_H

#include <nvefs/nvefs.h>

#include "../support/calls.h"
#include "device/cow.h"
#include "device/fault.h"
#include "device/record.h"
#include "oracle.h"

#define ACE_MAX_BYTES (12u * 4096u)
#define ACE_STEPS 128u

enum ace_path { ACE_F, ACE_G, ACE_A, ACE_B, ACE_AF, ACE_AG, ACE_BF, ACE_BG };
extern const struct oracle_path ace_paths[ORACLE_NAMES];

enum ace_persist { ACE_NOTHING, ACE_FSYNC, ACE_SYNC, ACE_FSYNC_DIR, ACE_PERSISTS };

struct ace_step {
	uint8_t op, persist;
};

struct ace_config {
	bool dedup, vwc, tight, fua, discard, single; /* single: no second copies of metadata */
	enum nvefs_route route;
	uint32_t lba_bytes;
	uint64_t delay_ns; /* of completions, at most; 0: none */
};

struct ace {
	struct ace_config cfg;
	struct nvefs_cow *base; /* the beginning */
	struct nvefs_mount_opts opts;
	uint64_t f_ino, a_ino, af_ino;
	const struct nvefs_fault *fault; /* of the device, from before the mount on; NULL: none */
	/* one sequence */
	struct oracle o;
	struct nvefs_dev *slow; /* what delays completions */
	struct nvefs_record *log;
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
	int target, dir; /* what the last operation worked on, and the directory of that */
	int root;	 /* the root directory's number in the oracle */
	uint32_t tag;	 /* of the next block of data */
	uint32_t last_begun; /* event at which the last operation began */
	/* By file: a failed operation may have changed it in part; the version before that, plus 1. */
	uint32_t doubt[ORACLE_FILES];
	bool lenient;	     /* what cannot be done now is passed over */
	bool full;	     /* no space was left: the sequence ended before its last operation */
};

extern const uint32_t ace_nops;
const char *ace_op_name(uint32_t op);
uint8_t ace_op_named(const char *name); /* there is one */
/* The operation and its persistence: 0; 1: it cannot be done now, nothing happened; -errno. */
int ace_step_run(struct ace *a, struct ace_step s);
/* The persistence alone, of what the last operation worked on. */
int ace_persist(struct ace *a, uint8_t persist);
/* Completions come at most so late from now on; 0: as the configuration says. */
int ace_slow(struct ace *a, uint64_t delay_ns);
/* Fill a block with data of a tag. */
void ace_block(uint8_t *p, uint32_t tag);

/* Make the beginning. 0 or -errno. */
int ace_base_make(struct ace *a);
void ace_base_free(struct ace *a);
/* A device on a layer over the beginning, and the file system mounted on it with all wrappers. */
int ace_device(const struct ace *a, struct nvefs_cow *layer, struct nvefs_dev **ret_dev);
int ace_start(struct ace *a, struct nvefs_cow *layer, struct nvefs_error *err);
/*
 * Run a sequence on a layer over the beginning and end it as a power cut does: a->o and a->log are
 * what the cuts are judged by. 0; 1: an operation could not be done (*ret_done: those before it);
 * -errno of an operation. ace_sequence_done in any case.
 */
int ace_sequence_run(struct ace *a, const struct ace_step *steps, uint32_t n, uint32_t *ret_done);
void ace_sequence_done(struct ace *a);

#endif
