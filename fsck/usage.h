/* SPDX-License-Identifier: MIT */
/* The recount: which block is used by what, and how often. Memory grows with what is used. */
#ifndef NVEFS_FSCK_USAGE_H
#define NVEFS_FSCK_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/super.h"

/* A block with a share item or with more than one reference. */
struct nvefs_usage_share {
	uint64_t pblk;	 /* 0: empty entry of the table */
	uint32_t stated; /* by the share item; 0: there is none */
	uint32_t extra;	 /* references beyond the first */
};

struct nvefs_usage {
	uint32_t ngroups;
	uint8_t **used; /* by group: bitmap of blocks used by data or tree; NULL: none */
	uint8_t **meta; /* of these, tree nodes */
	struct nvefs_usage_share *shares; /* open addressing; size a power of two */
	size_t nshares, max_shares;
};

int nvefs_usage_init(struct nvefs_usage *u, const struct nvefs_super *sb); /* 0 or -ENOMEM */
void nvefs_usage_done(struct nvefs_usage *u);

/* The block is a tree node. 0, -EEXIST: data uses it, -ELOOP: was a node already, -ENOMEM. */
int nvefs_usage_add_meta(struct nvefs_usage *u, uint64_t pblk);
/* One reference by data. 0, -EEXIST: it is a tree node, -ENOMEM. */
int nvefs_usage_add_data(struct nvefs_usage *u, uint64_t pblk);
/* A share item. 0 or -ENOMEM. */
int nvefs_usage_add_share(struct nvefs_usage *u, uint64_t pblk, uint32_t count);

/* One reference by data less: its mapping has been given another block. */
void nvefs_usage_drop_data(struct nvefs_usage *u, uint64_t pblk);

/* The block is no tree node, nor anything else. */
void nvefs_usage_drop_meta(struct nvefs_usage *u, uint64_t pblk);

bool nvefs_usage_test(const struct nvefs_usage *u, uint64_t pblk);
bool nvefs_usage_is_meta(const struct nvefs_usage *u, uint64_t pblk);
/* The block's entry; NULL when it has no share item and at most one reference. */
const struct nvefs_usage_share *nvefs_usage_find(const struct nvefs_usage *u, uint64_t pblk);

#endif
