/* SPDX-License-Identifier: MIT */
#include "fs/pledge.h"

#include <errno.h>

#include "fs/names.h"
#include "fs/request.h"

#define RECLAIMS 4u	   /* commits for one who has the turn */
#define PLENTY_BLKS 4096 /* with so much room nobody needs to be alone */
#define RUN_BLKS 4u

void nvefs_space_init(struct nvefs_fs *fs)
{
	nvefs_mutex_init(&fs->space_lock);
	nvefs_list_init(&fs->space_waiters);
}

void nvefs_space_done(struct nvefs_fs *fs)
{
	nvefs_mutex_done(&fs->space_lock);
}

/*
 * The two counters are changed and read in one order by both sides: who wants a pledge counts himself as a
 * holder, then looks for others who wait; who waits counts himself as waiting, then looks for holders. So
 * either the one sees the other, or the other way round, and the last holder to go gives the turn.
 */
static void turn_give(struct nvefs_fs *fs)
{
	struct nvefs_op *op;
	struct nvefs_list *p;

	nvefs_mutex_lock(&fs->space_lock);
	if (!fs->space_turn && !fs->pledge_holders && (p = nvefs_list_pop(&fs->space_waiters))) {
		op = nvefs_container_of(p, struct nvefs_op, link);
		op->turn = true;
		fs->space_turn = op;
		nvefs_op_post(op);
	}
	nvefs_mutex_unlock(&fs->space_lock);
}

static void turn_end(struct nvefs_op *op)
{
	struct nvefs_fs *fs = op->w->fs;
	bool plenty = nvefs_alloc_has_room(fs->st, PLENTY_BLKS);
	struct nvefs_list *p;

	nvefs_mutex_lock(&fs->space_lock);
	op->turn = op->commit.reclaim = false;
	op->space_tries = 0;
	fs->space_turn = NULL;
	fs->space_waiting--;
	while (plenty && (p = nvefs_list_pop(&fs->space_waiters))) {
		fs->space_waiting--;
		nvefs_op_post(nvefs_container_of(p, struct nvefs_op, link));
	}
	nvefs_mutex_unlock(&fs->space_lock);
}

static void put_pledge(struct nvefs_op *op)
{
	if (op->pledged)
		nvefs_alloc_unpledge(op->w->fs->st, op->pledged);
	op->pledged = 0;
	if (op->pledging)
		op->w->fs->pledge_holders--;
	op->pledging = false;
}

int nvefs_op_pledge(struct nvefs_op *op, uint32_t blks)
{
	struct nvefs_fs *fs = op->w->fs;
	bool first = !op->pledging;
	int err;

	if (first)
		fs->pledge_holders++;
	op->pledging = true;
	if (first && fs->space_waiting && !op->turn)
		err = -ENOSPC;
	else
		err = nvefs_alloc_pledge(fs->st, blks, op->last_resort);
	if (!err)
		op->pledged += blks;
	else if (first)
		put_pledge(op);
	if (err && fs->space_waiting)
		turn_give(fs);
	return err;
}

void nvefs_op_unpledge(struct nvefs_op *op)
{
	struct nvefs_fs *fs = op->w->fs;

	if (!op->pledging && !op->turn)
		return;
	put_pledge(op);
	if (op->turn)
		turn_end(op);
	if (fs->space_waiting)
		turn_give(fs);
}

bool nvefs_op_space_wait(struct nvefs_op *op, nvefs_step_fn *step)
{
	struct nvefs_fs *fs = op->w->fs;
	bool more = nvefs_alloc_more(fs->st), came = more || op->space_coming;

	put_pledge(op);
	op->commit.err = 0;
	op->space_coming = more;
	if (!op->turn) {
		op->step = step;
		nvefs_mutex_lock(&fs->space_lock);
		fs->space_waiting++;
		nvefs_list_push(&fs->space_waiters, &op->link);
		nvefs_mutex_unlock(&fs->space_lock);
		turn_give(fs);
		return true;
	}
	/* What was on its way at the last look may have come between the attempt and this one. */
	if (op->space_tries == RECLAIMS || (op->space_tries > 1 && !came))
		return false;
	if (!op->space_tries)
		nvefs_orphan_drain(fs, op->w->q);
	op->commit.reclaim = op->space_tries++ > 0;
	nvefs_op_commit(op, 0, true, step);
	return true;
}

bool nvefs_space_may_come(struct nvefs_fs *fs)
{
	return nvefs_bg_behind(fs) || nvefs_alloc_promised(fs->st) || nvefs_alloc_more(fs->st);
}

int nvefs_space_reclaim(struct nvefs_fs *fs, struct nvefs_queue *q)
{
	int err;

	nvefs_orphan_drain(fs, q);
	/* Blocks do not come back under reads in flight, this worker's own included. */
	while (nvefs_queue_inflight(q))
		if (!nvefs_queue_poll(q, 0) && nvefs_queue_prepare_wait(q))
			nvefs_queue_wait(q, UINT64_MAX);
	err = nvefs_commit_run(fs->st, true);
	return err ? err : nvefs_commit_reclaim(fs->st);
}

uint32_t nvefs_share_need(struct nvefs_share_run *run, uint64_t pblk)
{
	if (pblk == run->pblk)
		return 0;
	run->n = pblk == run->pblk + 1 ? run->n + 1 : 1;
	run->pblk = pblk;
	return run->n <= RUN_BLKS;
}
