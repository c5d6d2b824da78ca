/* SPDX-License-Identifier: MIT */
/*
 * A new tree from what is left of the old one, when its nodes or the journal
 * cannot be followed any more. Inner nodes are not needed for that: each leaf says
 * itself what it is (magic, UUID, address, generation, checksum).
 *
 * 1. Collect leaves (salvage_scan.c): those that can still be walked to, all blocks of
 *    the device that may be others, and the images in the journal's groups that
 *    were committed. Of one address the newest counts.
 *    A block that its bitmap calls free, and that nothing leads to, is a leaf that was given up, unless it is
 *    younger than the bitmap; one whose content a map claims, and whose
 *    checksum the map knows, is a file's data that looks like a leaf.
 * 2. Settle which leaf speaks for which keys (salvage_segments.c): the newest one
 *    whose span, from its first key to its last, has the key. An item that it
 *    has not was removed.
 * 3. Build (salvage_build.c): leaves that speak for their whole span, and have all
 *    their copies, stay where they are; items of others are copied to new leaves; bitmaps, group items and
 *    share items are made from the maps; the levels above are new.
 * 4. Switch, each step flushed: new nodes, in blocks that nothing uses and no
 *    candidate lies in; bitmaps; root block; both journal headers, with a new epoch.
 *
 * A cut before the root block is written leaves all that step 1 finds, and maybe the new
 * leaves, which say the same. A cut between bitmaps and headers leaves a file
 * system whose parts name different transactions: it is not mounted, or not allocated from, and for it this can
 * be done again.
 *
 * Memory: 96 bytes for each leaf, 64 for each segment, five bits a block, 16 bytes a shared block, and
 * the journal's log once.
 */
#ifndef NVEFS_FSCK_SALVAGE_H
#define NVEFS_FSCK_SALVAGE_H

#include "context.h"
#include "format/journal.h"

/* 0: the next round will find a tree. -ENOSPC: no room for the new nodes; -EUCLEAN: no leaf is left; -EIO, -ENOMEM, -ECANCELED. */
int nvefs_salvage(struct nvefs_check_ctx *c);

/* ---- Between the files salvage*.c ---- */

struct nvefs_salvage_leaf {
	struct nvefs_key first, last;
	uint64_t home; /* the address that it is for */
	uint64_t twin; /* of its second copy; 0: there is none */
	uint64_t at;   /* where it lies: home, twin, or a place in the log */
	bool both;     /* home and twin both hold it */
	uint64_t txn;
	uint64_t rank; /* txn, or 0 when that cannot be */
	bool cleaned;  /* parts of it make no sense, and are left out */
};

/* Keys from `low` on, below `high`, are leaf's. */
struct nvefs_salvage_segment {
	uint32_t leaf;
	bool whole; /* all that the leaf has */
	struct nvefs_key low, high;
};

struct nvefs_salvage {
	struct nvefs_check_ctx *c;
	struct nvefs_salvage_leaf *leaves; /* by first key, once they are settled */
	size_t nleaves, max_leaves;
	struct nvefs_salvage_segment *segs;
	size_t nsegs, max_segs;
	uint64_t top_txn; /* the newest that is there */
	uint64_t top_epoch, top_seq;
	struct nvefs_root root; /* the newest that is left */
	uint64_t root_txn;	/* 0: none is */
	uint8_t **bits;		/* by group: the newest bitmap, or NULL */
	uint64_t *bits_txn;
	struct nvefs_usage claims; /* data: what maps name; meta: candidates, then what the new tree has */
	void *block;		   /* one, for whoever needs it */
};

/* A leaf again, from where it was found. 0, -EUCLEAN (it is another one now), -EIO. */
int nvefs_salvage_read(struct nvefs_salvage *s, const struct nvefs_salvage_leaf *leaf, void *block);
/* Leave the items of a node, whose checksum is right, that make sense. False: there are none. */
bool nvefs_salvage_clean(void *block, const struct nvefs_super *sb);
int nvefs_salvage_scan(struct nvefs_salvage *s);
int nvefs_salvage_log(struct nvefs_salvage *s);
int nvefs_salvage_segments(struct nvefs_salvage *s);
int nvefs_salvage_build(struct nvefs_salvage *s);

/* A block that was read at `at`, and may be changed: when it is a leaf for `home`, note it. 0 or -ENOMEM. */
int nvefs_salvage_take(struct nvefs_salvage *s, void *block, uint64_t home, uint64_t at);
/* The newest bitmap of a group, and the newest root. */
int nvefs_salvage_take_bitmap(struct nvefs_salvage *s, uint32_t group, const void *block);
void nvefs_salvage_take_root(struct nvefs_salvage *s, const void *block);

/* Transactions above this are no numbers, but damage. */
#define NVEFS_SALVAGE_TXN_MAX (1ull << 62)

#endif
