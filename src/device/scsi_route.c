/* SPDX-License-Identifier: MIT */
/*
 * The way of one io:
 *
 *   port       nvefs_scsi_port_get: a slot of the logical-unit queue, or wait in line
 *   initiator  nvefs_scsi_task_build: CDB, parameter list, sg_io_hdr
 *   target     nvefs_scsi_exec_start: the CDB is translated; raw entries go to the lower queue
 *   target     NVMe status becomes SCSI status and sense in the header; exec_done
 *   initiator  nvefs_scsi_task_result: sense becomes the io's result
 *   port       nvefs_scsi_port_put
 *
 * The initiator knows nothing of the target but what is in the header and what
 * the unit answered at open. Everything of one io runs on its queue's thread;
 * the port's lock is the one thing that threads share.
 */
#include "device/scsi_route.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "device/scsi_initiator.h"
#include "device/scsi_port.h"
#include "device/scsi_target.h"
#include "device/wrap.h"

const struct nvefs_scsi_route_opts nvefs_scsi_route_defaults = {
    .single_queue = true, .depth = NVEFS_SCSI_ROUTE_DEPTH, .translate = true};

struct route_queue;
/* A command under way. Whose queue holds the slot's number owns it. */
struct slot {
	struct route_queue *rq;
	struct nvefs_io *io;
	struct nvefs_scsi_task task;
	struct nvefs_scsi_exec exec;
	struct nvefs_nvme_dsm_range range;
	struct nvefs_io plain; /* without translation */
};

/* Slots and their port: one for all queues, or one for each. */
struct unit_queue {
	struct nvefs_scsi_port *port;
	struct slot *slots;
};

struct route {
	struct nvefs_dev dev;
	struct nvefs_scsi_route_opts opts;
	struct nvefs_scsi_target target;
	struct nvefs_scsi_unit unit;
	struct unit_queue shared; /* with opts.single_queue */
};

struct route_queue {
	struct nvefs_queue *upper, *lower;
	struct route *route;
	struct nvefs_scsi_turn turn;
	struct unit_queue *uq, own;
};

static struct route *route_from(struct nvefs_dev *dev)
{
	return nvefs_container_of(dev, struct route, dev);
}

static int unit_queue_init(struct unit_queue *uq, uint32_t depth)
{
	uq->port = nvefs_scsi_port_new(depth);
	uq->slots = calloc(depth, sizeof(*uq->slots));
	return uq->port && uq->slots ? 0 : -ENOMEM;
}

static void unit_queue_done(struct unit_queue *uq)
{
	nvefs_scsi_port_free(uq->port);
	free(uq->slots);
}

static void slot_put(struct slot *slot)
{
	struct route_queue *rq = slot->rq;

	nvefs_scsi_port_put(rq->uq->port, &rq->turn, (uint32_t)(slot - rq->uq->slots));
}

/* The io's result out of the header; the slot goes back. */
static int slot_finish(struct slot *slot)
{
	struct nvefs_io *io = slot->io;
	int err = nvefs_scsi_task_result(&slot->task, io);

	if (io->status.kind == NVEFS_STATUS_SENSE)
		io->status.nvme = slot->exec.cmd.nvme_status;
	else if (slot->exec.host_err)
		err = io->status.host_errno = slot->exec.host_err;
	slot_put(slot); /* from here on it may be another thread's */
	return err;
}

static void exec_done(struct nvefs_scsi_exec *exec)
{
	struct slot *slot = nvefs_container_of(exec, struct slot, exec);
	struct nvefs_queue *upper = slot->rq->upper;
	struct nvefs_io *io = slot->io;

	nvefs_queue_finish(upper, io, slot_finish(slot));
}

static void plain_done(struct nvefs_io *plain)
{
	struct slot *slot = plain->arg;
	struct nvefs_queue *upper = slot->rq->upper;
	struct nvefs_io *io = slot->io;
	int err = plain->err;

	io->status = plain->status;
	slot_put(slot);
	nvefs_queue_finish(upper, io, err);
}

static void plain_send(struct slot *slot)
{
	const struct nvefs_io *io = slot->io;

	slot->plain = (struct nvefs_io){.op = io->op,
					.flags = io->flags,
					.niov = io->niov,
					.nblks = io->nblks,
					.pblk = io->pblk,
					.iov = io->iov,
					.done = plain_done,
					.arg = slot};
	nvefs_queue_submit(slot->rq->lower, &slot->plain);
}

static void scsi_send(struct nvefs_queue *q, struct slot *slot, int pack_id)
{
	const struct route *r = slot->rq->route;
	struct nvefs_io *io = slot->io;
	int err = nvefs_scsi_task_build(&slot->task, &r->unit, io, pack_id);

	if (err) {
		slot_put(slot);
		io->status.kind = NVEFS_STATUS_HOST;
		io->status.host_errno = err;
		nvefs_queue_finish_later(q, io, err);
		return;
	}
	slot->exec.hdr = &slot->task.hdr;
	slot->exec.ranges = &slot->range;
	slot->exec.max_ranges = 1;
	slot->exec.done = exec_done;
	if (!nvefs_scsi_exec_start(&slot->exec, &r->target, slot->rq->lower))
		nvefs_queue_finish_later(q, io, slot_finish(slot));
}

static int route_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct route_queue *rq = q->priv;
	struct slot *slot;
	uint32_t index;

	if (!nvefs_scsi_port_get(rq->uq->port, &rq->turn, &index))
		return -EAGAIN;
	slot = &rq->uq->slots[index];
	slot->rq = rq;
	slot->io = io;
	if (!rq->route->opts.translate) {
		plain_send(slot);
		return 0;
	}
	scsi_send(q, slot, (int)index);
	return 0;
}

static void route_poll(struct nvefs_queue *q, uint32_t max)
{
	nvefs_queue_poll(((struct route_queue *)q->priv)->lower, max);
}

static bool route_prepare_wait(struct nvefs_queue *q)
{
	return nvefs_queue_prepare_wait(((struct route_queue *)q->priv)->lower);
}

static int route_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	struct route *r = route_from(dev);
	struct route_queue *rq = calloc(1, sizeof(*rq));
	int err;

	if (!rq)
		return -ENOMEM;
	rq->upper = q;
	rq->route = r;
	rq->uq = r->opts.single_queue ? &r->shared : &rq->own;
	err = nvefs_queue_init(dev->below, q->depth, &rq->lower);
	if (err)
		goto free_queue;
	err = nvefs_queue_watch_fd(q, nvefs_queue_fd(rq->lower));
	if (!err && !r->opts.single_queue)
		err = unit_queue_init(&rq->own, q->depth);
	if (err)
		goto done_lower;
	nvefs_scsi_turn_init(&rq->turn, q);
	q->priv = rq;
	return 0;

done_lower:
	unit_queue_done(&rq->own);
	nvefs_queue_done(rq->lower);
free_queue:
	free(rq);
	return err;
}

static void route_queue_done(struct nvefs_queue *q)
{
	struct route_queue *rq = q->priv;

	nvefs_scsi_turn_done(&rq->turn, rq->uq->port);
	unit_queue_done(&rq->own);
	nvefs_queue_done(rq->lower);
	free(rq);
}

static void route_describe(const struct nvefs_dev *dev, char *buf, size_t len)
{
	const struct nvefs_scsi_route_opts *o = &nvefs_container_of(dev, struct route, dev)->opts;
	char mistakes[64] = "";

	nvefs_scsi_mistakes_text(o->mistakes, mistakes, sizeof(mistakes));
	snprintf(buf, len, "%s logical-unit queue%s of %u%s%s%s", o->single_queue ? "one" : "many",
		 o->single_queue ? "" : "s", o->depth, o->translate ? "" : ", not translated",
		 mistakes[0] ? ", mistakes made:" : "", mistakes);
}

static void route_close(struct nvefs_dev *dev)
{
	struct route *r = route_from(dev);

	unit_queue_done(&r->shared);
	free(r);
}

static const struct nvefs_backend_ops route_ops = {
    .name = "scsi route",
    .close = route_close,
    .describe = route_describe,
    .queue_init = route_queue_init,
    .queue_done = route_queue_done,
    .submit = route_submit,
    .poll = route_poll,
    .prepare_wait = route_prepare_wait,
};

/* The probe's commands are all answered by the translation itself, so no queue is needed. */
static int send_at_open(void *arg, sg_io_hdr_t *hdr)
{
	return nvefs_scsi_exec_query(arg, hdr);
}

static int learn(struct route *r, struct nvefs_error *err)
{
	int code;

	if (!r->opts.translate)
		return 0;
	code = nvefs_scsi_target_init(&r->target, r->dev.below, r->opts.mistakes, err);
	return code ? code : nvefs_scsi_probe(&r->dev, &r->unit, send_at_open, &r->target, err);
}

int nvefs_scsi_route_open(struct nvefs_dev *below, const struct nvefs_scsi_route_opts *opts,
			  struct nvefs_dev **ret_dev, struct nvefs_error *err)
{
	struct route *r = calloc(1, sizeof(*r));
	int code;

	if (!r)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", below->identity.target);
	nvefs_dev_init(&r->dev, &route_ops, below);
	r->dev.route = NVEFS_ROUTE_SCSI;
	r->opts = opts ? *opts : nvefs_scsi_route_defaults;
	code =
	    r->opts.depth ? 0 : nvefs_error_set(err, -EINVAL, "scsi route: depth 0: use 1 or more");
	if (!code)
		code = learn(r, err);
	if (!code && r->opts.depth < r->dev.limits.queue_depth)
		r->dev.limits.queue_depth = r->opts.depth;
	if (!code && r->opts.single_queue && unit_queue_init(&r->shared, r->opts.depth))
		code = nvefs_error_set(err, -ENOMEM, "%s: out of memory", below->identity.target);
	if (code) {
		nvefs_dev_done(&r->dev);
		route_close(&r->dev);
		return code;
	}
	*ret_dev = &r->dev;
	return 0;
}

struct sg_call {
	struct nvefs_scsi_exec exec;
	bool finished;
};

static void sg_call_done(struct nvefs_scsi_exec *exec)
{
	nvefs_container_of(exec, struct sg_call, exec)->finished = true;
}

static void copy_pieces(const sg_io_hdr_t *scattered, uint8_t *flat, uint32_t bytes, bool to_flat)
{
	const sg_iovec_t *piece = scattered->dxferp;

	for (uint32_t i = 0; i < scattered->iovec_count && bytes; i++, piece++) {
		uint32_t len = piece->iov_len < bytes ? (uint32_t)piece->iov_len : bytes;

		memcpy(to_flat ? flat : piece->iov_base, to_flat ? piece->iov_base : flat, len);
		flat += len;
		bytes -= len;
	}
}

static int sg_io_flat(struct nvefs_queue *q, sg_io_hdr_t *hdr)
{
	struct route_queue *rq = q->priv;
	struct sg_call *call;
	uint32_t index;
	int err = -ENOMEM;

	call = calloc(1, sizeof(*call));
	if (!call)
		return -ENOMEM;
	call->exec.hdr = hdr;
	call->exec.done = sg_call_done;
	call->exec.max_ranges = NVEFS_NVME_DSM_MAX_RANGES;
	call->exec.ranges = calloc(NVEFS_NVME_DSM_MAX_RANGES, sizeof(*call->exec.ranges));
	if (!call->exec.ranges)
		goto free_call;
	while (!nvefs_scsi_port_get(rq->uq->port, &rq->turn, &index)) {
		nvefs_queue_wait(q, UINT64_MAX);
		nvefs_queue_poll(q, 0);
	}
	call->finished = !nvefs_scsi_exec_start(&call->exec, &rq->route->target, rq->lower);
	while (!call->finished) {
		nvefs_queue_wait(q, UINT64_MAX);
		nvefs_queue_poll(q, 0);
	}
	nvefs_scsi_port_put(rq->uq->port, NULL, index);
	err = call->exec.host_err;
	free(call->exec.ranges);
free_call:
	free(call);
	return err;
}

/* Data in pieces is brought together, as the kernel does it: the translation looks at parameter lists. */
int nvefs_scsi_route_sg_io(struct nvefs_queue *q, sg_io_hdr_t *hdr)
{
	const sg_io_hdr_t scattered = *hdr;
	uint8_t *flat;
	int err;

	if (q->dev->ops != &route_ops || !((struct route_queue *)q->priv)->route->opts.translate)
		return -ENOTSUP;
	if (!hdr->iovec_count)
		return sg_io_flat(q, hdr);
	flat = nvefs_buf_new_zeroed(hdr->dxfer_len);
	if (!flat)
		return -ENOMEM;
	if (hdr->dxfer_direction == SG_DXFER_TO_DEV)
		copy_pieces(&scattered, flat, hdr->dxfer_len, true);
	hdr->iovec_count = 0;
	hdr->dxferp = flat;
	err = sg_io_flat(q, hdr);
	hdr->iovec_count = scattered.iovec_count;
	hdr->dxferp = scattered.dxferp;
	if (!err && hdr->dxfer_direction == SG_DXFER_FROM_DEV)
		copy_pieces(&scattered, flat, hdr->dxfer_len - (uint32_t)hdr->resid, false);
	nvefs_buf_free(flat);
	return err;
}

int nvefs_scsi_wrap(struct nvefs_dev *below, struct nvefs_dev **ret_dev, struct nvefs_error *err)
{
	return nvefs_scsi_route_open(below, &nvefs_scsi_route_defaults, ret_dev, err);
}
