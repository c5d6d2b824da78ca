/* SPDX-License-Identifier: MIT */
/* What the passes of a check share. */
#ifndef NVEFS_FSCK_CONTEXT_H
#define NVEFS_FSCK_CONTEXT_H

#include "check.h"
#include "format/block.h"
#include "format/item.h"
#include "format/map.h"
#include "format/root.h"
#include "format/super.h"
#include "inodes.h"
#include "store/ahead.h"
#include "store/cache.h"
#include "store/copies.h"
#include "store/store.h"
#include "store/tree.h"
#include "usage.h"

struct nvefs_check_group {
	struct nvefs_group_rec rec;
	bool known;
};

struct nvefs_check_orphan {
	uint64_t ino;
	uint32_t reason;
};

/* Numbers to come back to. */
struct nvefs_numbers {
	uint64_t *tab;
	size_t n, max;
};
/* Repeats of the last one are left out. 0 or -ENOMEM. */
int nvefs_numbers_add(struct nvefs_numbers *s, uint64_t number);
/* In ascending order, each once. */
void nvefs_numbers_sort(struct nvefs_numbers *s);

/* A block of which one copy is bad. */
struct nvefs_check_copy {
	struct nvefs_block_ref at;
	uint16_t type;
	uint8_t bad; /* NVEFS_COPY_* */
};

/* What the check found to be mended. */
struct nvefs_todo {
	uint32_t menders;	     /* one bit for each enum nvefs_mender */
	struct nvefs_numbers sick;   /* inodes whose items are to be mended */
	struct nvefs_numbers lost;   /* inodes without a name */
	struct nvefs_numbers loops;  /* directories that are their own ancestors */
	struct nvefs_numbers orphans; /* orphan items to remove */
	struct nvefs_check_copy *copies;
	size_t ncopies, max_copies;
	struct nvefs_numbers items;  /* kind << 56 | offset of the file system's own items to remove */
	bool nomem;
};

struct nvefs_check_ctx {
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	struct nvefs_store *st; /* from pass "journal" on */
	struct nvefs_ahead ahead; /* the same */
	const struct nvefs_check_opts *opts;
	struct nvefs_check_result *res;
	struct nvefs_error *err;
	struct nvefs_super sb;	/* from pass "superblocks" on */
	struct nvefs_root root; /* from pass "journal" on */
	uint32_t pass_no;
	bool stop;	 /* no further pass can be made */
	bool incomplete; /* parts of the tree were not seen: what is missing proves nothing */
	bool tree_broken; /* of these, whole nodes */
	bool inner_sound; /* all that was not seen are leaves: the tree was walked, and its inner nodes are whole */

	struct nvefs_usage usage;
	struct nvefs_inode_table inodes;
	struct nvefs_check_group *groups;
	struct nvefs_check_orphan *orphans; /* ascending */
	uint64_t norphans, max_orphans;
	uint64_t tree_nodes, inode_items, max_ino, mapped_blks;
	uint64_t share_items, share_refs;
	struct nvefs_todo todo;
	bool tree_refused; /* it wants a new tree, and whoever was asked does not */
	int ask_err; /* whoever is asked wants the check to end */
	struct nvefs_check_history *past;
	uint64_t problems, to_mend, slots_to_mend; /* of this round */
	uint64_t *bad_inos; /* of problems, the first NVEFS_CHECK_MAX_NAMES of them */
	uint32_t nbad_inos;
};
#define NVEFS_CHECK_MAX_NAMES 1024u

/* What later rounds know of earlier ones. */
struct nvefs_check_history {
	uint32_t round;
	enum nvefs_repair repair; /* none: from now on nothing is mended */
	bool named;		  /* paths have been told */
	uint32_t left[64];	  /* codes that were reported as left */
	uint32_t nleft;
	struct nvefs_mmp *mmp; /* our claim; NULL: none is needed */
	enum nvefs_block_status mmp_status[2]; /* what claim and beat were before */
};

/*
 * protect.c. Before the first round: see that no other host has it, and claim it if anything may be
 * written. After the last one: let it go.
 */
int nvefs_check_protect(struct nvefs_dev *dev, struct nvefs_queue *q, const struct nvefs_check_opts *opts,
			struct nvefs_check_history *past, struct nvefs_error *err);
void nvefs_check_unprotect(struct nvefs_check_history *past, bool clean);
/* Report what the two blocks were. */
void nvefs_check_mmp(struct nvefs_check_ctx *c);

/* Passes: 0 or a negative errno when the check cannot go on; problems are reported, not returned. */
int nvefs_pass_super(struct nvefs_check_ctx *c);
int nvefs_pass_journal(struct nvefs_check_ctx *c);
int nvefs_pass_tree(struct nvefs_check_ctx *c);
int nvefs_pass_names(struct nvefs_check_ctx *c);
int nvefs_pass_blocks(struct nvefs_check_ctx *c);
int nvefs_pass_counters(struct nvefs_check_ctx *c);
int nvefs_pass_data(struct nvefs_check_ctx *c);
int nvefs_pass_paths(struct nvefs_check_ctx *c);

/* copies.c. Report a bad copy of a block whose other one is good; of those at fixed places. 0 or -ENOMEM. */
int nvefs_check_copies(struct nvefs_check_ctx *c, struct nvefs_block_ref at, uint16_t type);
int nvefs_check_fixed_copies(struct nvefs_check_ctx *c);

void nvefs_check_report(struct nvefs_check_ctx *c, const struct nvefs_problem *p);
/* 0 or -ECANCELED. */
int nvefs_check_progress(struct nvefs_check_ctx *c, uint64_t done, uint64_t total);

/* NVEFS_ORPHAN_* bits, 0: not one. */
uint32_t nvefs_check_orphan_reason(const struct nvefs_check_ctx *c, uint64_t ino);

/*
 * Walk the tree, left to right. `item` gets each item of each sound leaf in
 * key order, and returns 0 or a negative errno, which ends the walk. With `report` problems of nodes are reported (first walk only).
 */
struct nvefs_check_walk {
	int (*item)(struct nvefs_check_ctx *c, void *arg, const struct nvefs_key *key, const void *val, uint32_t len,
		    uint64_t pblk);
	void *arg;
	bool report;
};
int nvefs_check_walk(struct nvefs_check_ctx *c, const struct nvefs_check_walk *w);

#endif
