/* SPDX-License-Identifier: MIT */
/*
 * A command's way: fetched from the ring into a free nvefs_ctrl_cmd; executed, which asks the
 * medium once or several times; before that on the list of those held, when it must wait for the gate
 * (ctrl_gate.c); then, when it is not due yet, on the timed
 * list; then posted, and free again. The rings hold no more than the queue's
 * depth, so that there is always a free one.
 */
#include "device/controller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "device/backend.h"

int nvefs_ctrl_new(const struct nvefs_ctrl_config *cfg, struct nvefs_media *media,
		   struct nvefs_ctrl **ret_ctrl)
{
	struct nvefs_ctrl *c = calloc(1, sizeof(*c));

	if (!c) {
		media->ops->close(media);
		return -ENOMEM;
	}
	c->cfg = *cfg;
	c->cfg.read_only |= media->read_only;
	c->media = media;
	c->nlbas = media->size_bytes / cfg->lba_bytes;
	c->write_cache = cfg->vwc;
	c->granted_queues = cfg->max_queues;
	nvefs_mutex_init(&c->lock);
	nvefs_list_init(&c->queues);
	*ret_ctrl = c;
	return 0;
}

void nvefs_ctrl_free(struct nvefs_ctrl *c)
{
	if (!c)
		return;
	assert(!c->nqueues);
	c->media->ops->close(c->media);
	nvefs_mutex_done(&c->lock);
	free(c);
}

static int take_qid(struct nvefs_ctrl *c, struct nvefs_ctrl_queue *cq, uint16_t *ret_qid)
{
	uint16_t qid = 1;

	nvefs_mutex_lock(&c->lock);
	if (c->nqueues == c->granted_queues) {
		nvefs_mutex_unlock(&c->lock);
		return -EBUSY;
	}
	while (c->qids[qid / 64] >> qid % 64 & 1)
		qid++;
	c->qids[qid / 64] |= 1ull << qid % 64;
	c->nqueues++;
	nvefs_list_push(&c->queues, &cq->link);
	nvefs_mutex_unlock(&c->lock);
	*ret_qid = qid;
	return 0;
}

static void stats_add(struct nvefs_ctrl_stats *to, const struct nvefs_ctrl_stats *from)
{
	to->read_cmds += __atomic_load_n(&from->read_cmds, __ATOMIC_RELAXED);
	to->write_cmds += __atomic_load_n(&from->write_cmds, __ATOMIC_RELAXED);
	to->read_bytes += __atomic_load_n(&from->read_bytes, __ATOMIC_RELAXED);
	to->write_bytes += __atomic_load_n(&from->write_bytes, __ATOMIC_RELAXED);
	to->media_bytes += __atomic_load_n(&from->media_bytes, __ATOMIC_RELAXED);
	to->media_errors += __atomic_load_n(&from->media_errors, __ATOMIC_RELAXED);
	to->error_entries += __atomic_load_n(&from->error_entries, __ATOMIC_RELAXED);
}

static void give_qid(struct nvefs_ctrl *c, struct nvefs_ctrl_queue *cq, uint16_t qid)
{
	nvefs_mutex_lock(&c->lock);
	c->qids[qid / 64] &= ~(1ull << qid % 64);
	c->nqueues--;
	nvefs_list_del(&cq->link);
	stats_add(&c->past, &cq->stats);
	nvefs_mutex_unlock(&c->lock);
}

void nvefs_ctrl_stats(struct nvefs_ctrl *c, struct nvefs_ctrl_stats *ret)
{
	struct nvefs_list *pos;

	nvefs_mutex_lock(&c->lock);
	*ret = c->past;
	nvefs_list_for_each(pos, &c->queues)
	    stats_add(ret, &nvefs_container_of(pos, struct nvefs_ctrl_queue, link)->stats);
	nvefs_mutex_unlock(&c->lock);
}

static void req_done(struct nvefs_media_req *req)
{
	struct nvefs_ctrl_cmd *cmd = nvefs_container_of(req, struct nvefs_ctrl_cmd, req);

	cmd->next(cmd);
}

static int cmds_init(struct nvefs_ctrl_queue *cq, uint32_t depth)
{
	cq->cmds = calloc(depth, sizeof(*cq->cmds));
	if (!cq->cmds)
		return -ENOMEM;
	for (uint32_t i = 0; i < depth; i++) {
		cq->cmds[i].cq = cq;
		cq->cmds[i].req.done = req_done;
		nvefs_list_push(&cq->free, &cq->cmds[i].link);
	}
	return 0;
}

static int timer_init(struct nvefs_ctrl_queue *cq, struct nvefs_queue *q)
{
	if (!cq->ctrl->cfg.latency_ns)
		return 0;
	cq->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return cq->timer_fd < 0 ? -errno : nvefs_queue_watch_fd(q, cq->timer_fd);
}

int nvefs_ctrl_queue_new(struct nvefs_ctrl *c, struct nvefs_queue *q, uint32_t depth,
			 struct nvefs_ctrl_queue **ret_cq)
{
	struct nvefs_ctrl_queue *cq = calloc(1, sizeof(*cq));
	uint16_t qid;
	int err;

	if (!cq)
		return -ENOMEM;
	cq->ctrl = c;
	cq->queue = q;
	cq->timer_fd = -1;
	nvefs_list_init(&cq->held);
	nvefs_list_init(&cq->free);
	nvefs_list_init(&cq->timed);
	err = take_qid(c, cq, &qid);
	if (err)
		goto free_queue;
	err = nvefs_rings_init(&cq->rings, qid, depth);
	if (!err)
		err = cmds_init(cq, depth);
	if (!err)
		err = timer_init(cq, q);
	if (!err)
		err = c->media->ops->queue_init(c->media, q, depth, &cq->mq);
	if (err) {
		cq->rings.sqid = qid;
		nvefs_ctrl_queue_free(cq);
		return err;
	}
	*ret_cq = cq;
	return 0;

free_queue:
	free(cq);
	return err;
}

void nvefs_ctrl_queue_free(struct nvefs_ctrl_queue *cq)
{
	if (!cq)
		return;
	if (cq->mq)
		cq->ctrl->media->ops->queue_done(cq->mq);
	if (cq->timer_fd >= 0)
		close(cq->timer_fd);
	give_qid(cq->ctrl, cq, cq->rings.sqid);
	nvefs_rings_done(&cq->rings);
	free(cq->cmds);
	free(cq);
}

/* The next entry as a command at work, or NULL. */
static struct nvefs_ctrl_cmd *fetch(struct nvefs_ctrl_queue *cq)
{
	uint64_t latency = cq->ctrl->cfg.latency_ns;
	struct nvefs_ctrl_cmd *cmd;

	if (nvefs_list_empty(&cq->free))
		return NULL;
	cmd = nvefs_container_of(cq->free.next, struct nvefs_ctrl_cmd, link);
	if (!nvefs_rings_fetch(&cq->rings, &cmd->sqe))
		return NULL;
	nvefs_list_del(&cmd->link);
	cmd->due_ns = latency ? nvefs_now_ns() + latency : 0;
	cmd->status = 0;
	cmd->result = 0;
	cmd->gate = NVEFS_GATE_NONE;
	cmd->pair = NULL;
	return cmd;
}

static uint8_t fuse(const struct nvefs_nvme_sqe *sqe)
{
	return sqe->flags & NVEFS_NVME_FUSE_MASK;
}

/* The next entry, when it is the second of a fused pair. The doorbell tells of both at once. */
static struct nvefs_ctrl_cmd *fetch_second(struct nvefs_ctrl_queue *cq)
{
	struct nvefs_nvme_sqe next;

	if (!nvefs_rings_peek(&cq->rings, &next) || fuse(&next) != NVEFS_NVME_FUSE_SECOND)
		return NULL;
	return fetch(cq);
}

void nvefs_ctrl_doorbell(struct nvefs_ctrl_queue *cq)
{
	struct nvefs_ctrl_cmd *cmd, *second;

	while ((cmd = fetch(cq))) {
		second = fuse(&cmd->sqe) == NVEFS_NVME_FUSE_FIRST ? fetch_second(cq) : NULL;
		if (second)
			nvefs_ctrl_execute_pair(cmd, second);
		else
			nvefs_ctrl_execute(cmd);
	}
}

static void post(struct nvefs_ctrl_cmd *cmd)
{
	struct nvefs_ctrl_queue *cq = cmd->cq;

	if (cmd->status)
		__atomic_store_n(&cq->stats.error_entries, cq->stats.error_entries + 1, __ATOMIC_RELAXED);
	nvefs_rings_post(&cq->rings, le16_get(cmd->sqe.cid), cmd->result, cmd->status);
	nvefs_list_push(&cq->free, &cmd->link);
}

void nvefs_ctrl_complete(struct nvefs_ctrl_cmd *cmd)
{
	struct nvefs_list *at = cmd->cq->timed.prev;

	nvefs_buf_free(cmd->bounce);
	cmd->bounce = NULL;
	nvefs_ctrl_gate_leave(cmd);
	if (!cmd->due_ns || cmd->due_ns <= nvefs_now_ns()) {
		post(cmd);
		return;
	}
	/* Mostly at the end: the medium is quicker than the latency asked for. */
	while (at != &cmd->cq->timed &&
	       nvefs_container_of(at, struct nvefs_ctrl_cmd, link)->due_ns > cmd->due_ns)
		at = at->prev;
	nvefs_list_push_front(at, &cmd->link);
}

static struct nvefs_ctrl_cmd *first_timed(struct nvefs_ctrl_queue *cq)
{
	if (nvefs_list_empty(&cq->timed))
		return NULL;
	return nvefs_container_of(cq->timed.next, struct nvefs_ctrl_cmd, link);
}

void nvefs_ctrl_run(struct nvefs_ctrl_queue *cq)
{
	struct nvefs_ctrl_cmd *cmd;
	uint64_t now;

	cq->ctrl->media->ops->poll(cq->mq);
	nvefs_ctrl_gate_resume(cq);
	cmd = first_timed(cq);
	if (!cmd)
		return;
	for (now = nvefs_now_ns(); cmd && cmd->due_ns <= now; cmd = first_timed(cq)) {
		nvefs_list_del(&cmd->link);
		post(cmd);
	}
}

/* Setting a timer also takes back that it had fired. */
static bool timer_arm(struct nvefs_ctrl_queue *cq)
{
	struct nvefs_ctrl_cmd *cmd = first_timed(cq);
	struct itimerspec when = {0};

	if (cq->timer_fd < 0)
		return true;
	if (cmd) {
		if (cmd->due_ns <= nvefs_now_ns())
			return false;
		when.it_value.tv_sec = (time_t)(cmd->due_ns / 1000000000u);
		when.it_value.tv_nsec = (long)(cmd->due_ns % 1000000000u);
	}
	return !timerfd_settime(cq->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

bool nvefs_ctrl_prepare_wait(struct nvefs_ctrl_queue *cq)
{
	if (nvefs_rings_has_completion(&cq->rings) || nvefs_ctrl_gate_ready(cq))
		return false;
	return cq->ctrl->media->ops->prepare_wait(cq->mq) && timer_arm(cq);
}
