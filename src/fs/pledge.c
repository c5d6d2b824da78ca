/* SPDX-License-Identifier: MIT */
#include "fs/pledge.h"

#include <errno.h>

#include "fs/names.h"
#include "fs/window.h"

#define SPACE_TRIES 4u	  /* commits of one turn */
#define SPOILT_TURNS 255u /* of one operation */

/*
 * The first one's turn, if nobody holds a pledge. Who asks for one is counted before he says that the turn is
 * spoilt, and here it is said first that it is not: either he is seen here, or he is heard later.
 */
static void turn_give_locked(struct nvefs_fs *fs)
{
	struct nvefs_list *first;
	struct nvefs_op *op;

	if (fs->space_turn || nvefs_list_empty(&fs->space_waiters))
		return;
	fs->turn_spoilt = false;
	if (fs->pledge_holders)
		return;
	first = nvefs_list_pop(&fs->space_waiters);
	op = nvefs_container_of(first, struct nvefs_op, link);
	fs->space_turn = op->turn = true;
	op->space_tries = 0;
	nvefs_op_post(op);
}

/*
 * The two counters are changed and read in one order by both sides (holders, then short; short, then
 * holders): either the one who lets go sees the one who waits, or that one sees that nobody is left.
 */
static void holder_gone(struct nvefs_fs *fs)
{
	fs->pledge_holders--;
	if (!fs->space_short)
		return;
	nvefs_mutex_lock(&fs->space_lock);
	turn_give_locked(fs);
	nvefs_mutex_unlock(&fs->space_lock);
}

int nvefs_op_pledge(struct nvefs_op *op, uint32_t windows)
{
	struct nvefs_fs *fs = op->w->fs;
	bool first = !op->pledging;
	int err;

	if (first)
		fs->pledge_holders++;
	if (!op->turn)
		fs->turn_spoilt = true;
	err = nvefs_alloc_pledge(fs->st, windows * NVEFS_WINDOW_PLEDGE);
	if (!err) {
		op->pledging = true;
		op->pledged += windows * NVEFS_WINDOW_PLEDGE;
		if (!op->turn)
			fs->space_dry = false;
	} else if (first) {
		holder_gone(fs);
	}
	return err;
}

void nvefs_op_unpledge(struct nvefs_op *op)
{
	if (!op->pledging)
		return;
	if (op->pledged)
		nvefs_alloc_unpledge(op->w->fs->st, op->pledged);
	op->pledged = 0;
	op->pledging = false;
	holder_gone(op->w->fs);
}

bool nvefs_op_space_queue(struct nvefs_op *op, nvefs_step_fn *step)
{
	return !op->turn && op->w->fs->space_short && nvefs_op_space_wait(op, step);
}

bool nvefs_op_space_wait(struct nvefs_op *op, nvefs_step_fn *step)
{
	struct nvefs_fs *fs = op->w->fs;

	if (op->turn && (!fs->turn_spoilt || op->spoilt_turns == SPOILT_TURNS))
		return false;
	op->step = step;
	nvefs_op_unpledge(op);
	nvefs_mutex_lock(&fs->space_lock);
	if (op->turn) {
		op->turn = fs->space_turn = false;
		op->spoilt_turns++;
		nvefs_list_push_front(&fs->space_waiters, &op->link);
	} else {
		fs->space_short++;
		nvefs_list_push(&fs->space_waiters, &op->link);
	}
	turn_give_locked(fs);
	nvefs_mutex_unlock(&fs->space_lock);
	return true;
}

bool nvefs_op_space_try(struct nvefs_op *op, bool more)
{
	struct nvefs_fs *fs = op->w->fs;

	if (!op->turn || op->space_tries == (fs->space_dry ? 1 : SPACE_TRIES))
		return false;
	if (!more && (op->space_tries || (fs->space_dry && !nvefs_bg_behind(fs))))
		return false;
	op->space_tries++;
	return true;
}

void nvefs_op_space_done(struct nvefs_op *op, int err)
{
	struct nvefs_fs *fs = op->w->fs;
	struct nvefs_list *p;

	if (!op->turn)
		return;
	fs->space_dry = err == -ENOSPC;
	nvefs_mutex_lock(&fs->space_lock);
	op->turn = fs->space_turn = false;
	op->spoilt_turns = 0;
	fs->space_short--;
	while (!err && (p = nvefs_list_pop(&fs->space_waiters))) {
		fs->space_short--;
		nvefs_op_post(nvefs_container_of(p, struct nvefs_op, link));
	}
	turn_give_locked(fs);
	nvefs_mutex_unlock(&fs->space_lock);
}
