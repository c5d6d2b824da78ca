/* SPDX-License-Identifier: MIT */
/*
 * Requests and space.
 *
 * Before a request makes windows dirty it pledges the metadata that folding them will take at most. A part of
 * that goes into the windows and comes back when they are folded; the rest comes back when the request ends.
 *
 * When a request finds no space, for metadata or for data, it puts down all that it holds and asks for the
 * *turn*. The turn is given to one request at a time, in the order of asking, and only when no request holds
 * a pledge; until all who asked have had it nobody else gets one. So who has the turn is alone: what he sees
 * is what there is. He tries; then everything dirty is folded and committed; then the journal is emptied, so
 * that quarantined blocks come back; only if there is no space then is he told ENOSPC. It makes no difference
 * to the result how many requests are in flight.
 *
 * No deadlock: who holds a pledge waits for device commands, or, with the turn, for a commit; never for a
 * range, a pledge or the turn. A pledge is taken after all ranges. Who waits for the turn holds ranges only.
 *
 * With plenty of space this costs one counter, up and down, and one look at another for each request.
 */
#ifndef NVEFS_FS_PLEDGE_H
#define NVEFS_FS_PLEDGE_H

#include "fs/fs.h"

struct nvefs_op;

void nvefs_space_init(struct nvefs_fs *fs);
void nvefs_space_done(struct nvefs_fs *fs);

/*
 * Pledge so many metadata blocks more. -ENOSPC: there are none, or others are waiting for the turn; the
 * request holds what it held before. Unpledge gives back what no window took, and the turn.
 */
int nvefs_op_pledge(struct nvefs_op *op, uint32_t blks);
void nvefs_op_unpledge(struct nvefs_op *op);
/*
 * There is no space, and the request holds no blocks; its pledge is given back. True: `step` runs when it is
 * worth another try, with op->commit.err (which ends it when it is not 0). False: this request has had all
 * that there is to be had, and still has the turn.
 */
bool nvefs_op_space_wait(struct nvefs_op *op, void (*step)(struct nvefs_op *op));
/*
 * The same on a thread that may wait in place (name operations): files without a name, dirty maps and
 * quarantined blocks give back what they can. Whether there is something is to be looked at before the attempt
 * that fails, since it may come back meanwhile. 0 or -errno.
 */
bool nvefs_space_may_come(struct nvefs_fs *fs);
int nvefs_space_reclaim(struct nvefs_fs *fs, struct nvefs_queue *q);

/*
 * Sharing a block for the first time puts an item into the tree, which may split a leaf, whose place depends
 * on the block's address. So each needs a pledge of a block, but the fifth and later ones of a run of
 * neighbours: these go to the same few leaves.
 */
struct nvefs_share_run {
	uint64_t pblk;
	uint32_t n;
};
/* Metadata blocks to be pledged for one more reference to pblk. Start with a zeroed run for each window. */
uint32_t nvefs_share_need(struct nvefs_share_run *run, uint64_t pblk);

#endif
