/* SPDX-License-Identifier: MIT */
/*
 * Metadata pledges, and waiting for space.
 *
 * A write under way holds a pledge for the windows that it may make dirty. Most of it comes back when the write ends, the
 * rest when the windows are folded. So that there is nothing left while others are under way says little, and
 * how often it was tried says nothing when a commit takes long. The order is:
 *
 *	queue	who finds no space gives back what he holds and queues; while anybody waits, newcomers queue behind him
 *	turn	when nobody holds a pledge any more, the first one begins anew, alone, and has commits made as
 *		long as they may bring space; what he does not find then he would not have found without the others
 *	end	he got it: all others try again at once; he did not: the next one's turn
 *
 * Each round ends a request, so that nobody waits for ever, and who waits holds no pledge. Copies and
 * fallocate do not queue. A turn in which one of them asks for a pledge is spoilt, and repeated when that one is through; the
 * number of times is bounded.
 */
#ifndef NVEFS_FS_PLEDGE_H
#define NVEFS_FS_PLEDGE_H

#include "fs/request.h"

/*
 * Metadata pledge for windows about to become dirty. -ENOSPC: there is none to be had, and the operation holds
 * what it held before. Unpledge gives back what no window took.
 */
int nvefs_op_pledge(struct nvefs_op *op, uint32_t windows);
void nvefs_op_unpledge(struct nvefs_op *op);

/* Before a pledge: true when others wait for space; `step` runs at op's turn, or when there may be space. */
bool nvefs_op_space_queue(struct nvefs_op *op, nvefs_step_fn *step);
/* There was no space. True: op holds no pledge any more, and `step` runs as above. False: there is none. */
bool nvefs_op_space_wait(struct nvefs_op *op, nvefs_step_fn *step);
/*
 * There was no space: whether a folding commit may bring some, and this is op's turn to wait for one. `more`: something is
 * on its way that the attempt did not count.
 */
bool nvefs_op_space_try(struct nvefs_op *op, bool more);
/* The operation got what it wanted, or ends without: the end of its turn, if it has one. After nvefs_op_unpledge. */
void nvefs_op_space_done(struct nvefs_op *op, int err);

#endif
