/* SPDX-License-Identifier: MIT */
/*
 * What makes a fused Compare and Write one step (NVMe base 2.0, 3.4.2): while a pair
 * is at work, no other command on any queue changes the medium.
 *
 *   changing  finds the gate open, counts itself in its queue's `changing`, and looks again;
 *             closed: takes its count back and is held
 *   pair      closes the gate, which one pair at a time can; then it is held until no queue counts
 *             a change at work
 *   leaving   takes the count back, or opens the gate, and wakes the queues that may wait for it
 *
 * Each side writes and then reads what the other one writes, all sequentially consistent:
 * at least one of the two sees the other. The same holds for the wake: who finds that it must wait has
 * said before what it waits for. A held command is tried again whenever its queue runs. So with
 * two queues of one thread, both are to be polled, as always.
 */
#include "device/backend.h"
#include "device/controller.h"

/* All but our own, which is running and looks before it sleeps. */
static void wake_others(struct nvefs_ctrl_queue *own)
{
	struct nvefs_ctrl *c = own->ctrl;
	struct nvefs_list *pos;

	nvefs_mutex_lock(&c->lock);
	nvefs_list_for_each(pos, &c->queues)
	{
		struct nvefs_ctrl_queue *cq =
		    nvefs_container_of(pos, struct nvefs_ctrl_queue, link);

		if (cq != own)
			nvefs_queue_wake(cq->queue);
	}
	nvefs_mutex_unlock(&c->lock);
}

static bool is_closed(const struct nvefs_ctrl *c)
{
	return __atomic_load_n(&c->gate, __ATOMIC_SEQ_CST);
}

static bool changes_at_work(struct nvefs_ctrl *c)
{
	struct nvefs_list *pos;
	uint32_t n = 0;

	nvefs_mutex_lock(&c->lock);
	nvefs_list_for_each(pos, &c->queues)
	    n += __atomic_load_n(
		&nvefs_container_of(pos, struct nvefs_ctrl_queue, link)->changing,
		__ATOMIC_SEQ_CST);
	nvefs_mutex_unlock(&c->lock);
	return n;
}

static void count_changes(struct nvefs_ctrl_queue *cq, uint32_t n)
{
	__atomic_store_n(&cq->changing, n, __ATOMIC_SEQ_CST);
}

static void change_done(struct nvefs_ctrl_queue *cq)
{
	count_changes(cq, cq->changing - 1);
	if (!cq->changing && is_closed(cq->ctrl))
		wake_others(cq);
}

static bool hold(struct nvefs_ctrl_cmd *cmd)
{
	nvefs_list_push(&cmd->cq->held, &cmd->link);
	return false;
}

static bool enter_pair(struct nvefs_ctrl_cmd *cmd)
{
	struct nvefs_ctrl *c = cmd->cq->ctrl;
	uint32_t open = 0;

	if (cmd->gate != NVEFS_GATE_OWNER) {
		cmd->gate = NVEFS_GATE_PAIR;
		if (!__atomic_compare_exchange_n(&c->gate, &open, 1, false, __ATOMIC_SEQ_CST,
						 __ATOMIC_SEQ_CST))
			return hold(cmd);
		cmd->gate = NVEFS_GATE_OWNER;
	}
	return !changes_at_work(c) || hold(cmd);
}

bool nvefs_ctrl_gate_enter(struct nvefs_ctrl_cmd *cmd, bool pair)
{
	struct nvefs_ctrl_queue *cq = cmd->cq;

	if (pair)
		return enter_pair(cmd);
	if (is_closed(cq->ctrl))
		return hold(cmd);
	count_changes(cq, cq->changing + 1);
	if (!is_closed(cq->ctrl)) {
		cmd->gate = NVEFS_GATE_CHANGING;
		return true;
	}
	change_done(cq);
	return hold(cmd);
}

void nvefs_ctrl_gate_leave(struct nvefs_ctrl_cmd *cmd)
{
	if (cmd->gate == NVEFS_GATE_CHANGING) {
		change_done(cmd->cq);
	} else if (cmd->gate == NVEFS_GATE_OWNER) {
		__atomic_store_n(&cmd->cq->ctrl->gate, 0, __ATOMIC_SEQ_CST);
		wake_others(cmd->cq);
	}
	cmd->gate = NVEFS_GATE_NONE;
}

void nvefs_ctrl_gate_resume(struct nvefs_ctrl_queue *cq)
{
	struct nvefs_list *last = cq->held.prev, *first;

	if (nvefs_list_empty(&cq->held))
		return;
	do {
		struct nvefs_ctrl_cmd *cmd;

		first = nvefs_list_pop(&cq->held);
		cmd = nvefs_container_of(first, struct nvefs_ctrl_cmd, link);
		if (nvefs_ctrl_gate_enter(cmd, cmd->pair))
			cmd->next(cmd);
	} while (first != last);
}

bool nvefs_ctrl_gate_ready(const struct nvefs_ctrl_queue *cq)
{
	const struct nvefs_list *pos;

	nvefs_list_for_each(pos, &cq->held)
	{
		const struct nvefs_ctrl_cmd *cmd =
		    nvefs_container_of((struct nvefs_list *)(uintptr_t)pos, struct nvefs_ctrl_cmd, link);

		if (cmd->gate == NVEFS_GATE_OWNER ? !changes_at_work(cq->ctrl)
						  : !is_closed(cq->ctrl))
			return true;
	}
	return false;
}
