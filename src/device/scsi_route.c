/* SPDX-License-Identifier: MIT */
/*
 * The way of one io:
 *
 *   initiator  nvefs_scsi_task_build: CDB, parameter list, sg_io_hdr
 *   port       nvefs_scsi_port_get: a slot of the logical-unit queue, or wait in line
 *   target     sntl_send: the header's CDB is translated; raw entries go to the lower queue
 *   target     part_done: NVMe status becomes SCSI status and sense in the header
 *   port       nvefs_scsi_port_put
 *   initiator  nvefs_scsi_task_result: sense becomes the io's result
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
#include "device/wrap.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/status.h"
#include "scsi/sntl.h"

const struct nvefs_scsi_route_opts nvefs_scsi_route_defaults = {
    .single_queue = true, .depth = NVEFS_SCSI_ROUTE_DEPTH, .translate = true};

struct route_queue;
struct slot;
struct slot_part {
	struct nvefs_raw_io raw;
	struct slot *slot;
	void *bounce;
};
/* A command under way. Whose queue holds the slot's number owns it. */
struct slot {
	struct route_queue *rq;
	struct nvefs_io *io;
	struct nvefs_scsi_task task;
	struct nvefs_sntl_cmd cmd;
	struct nvefs_nvme_dsm_range range;
	struct slot_part part[NVEFS_SNTL_MAX_PARTS];
	int host_err;	       /* a part that came back without an NVMe status */
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
	struct nvefs_nvme_ctrl_info ctrl;
	struct nvefs_nvme_ns_info ns;
	struct nvefs_sntl_lu lu;
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

/* The target's last act: the answer goes into the header, as the kernel's SG driver fills it. */
static void answer_header(sg_io_hdr_t *hdr, const struct nvefs_sntl_cmd *cmd, int host_err)
{
	uint32_t moved = hdr->dxfer_direction == SG_DXFER_FROM_DEV ? cmd->in_bytes : cmd->out_bytes;

	hdr->host_status = host_err ? NVEFS_SCSI_HOST_ERROR : 0;
	hdr->status = host_err ? 0 : cmd->status;
	hdr->masked_status = hdr->status >> 1 & 0x1f;
	hdr->resid = (int)(hdr->dxfer_len - (host_err ? 0 : moved));
	if (!host_err && cmd->sense_len) {
		hdr->sb_len_wr = cmd->sense_len < hdr->mx_sb_len ? cmd->sense_len : hdr->mx_sb_len;
		memcpy(hdr->sbp, cmd->sense, hdr->sb_len_wr);
		hdr->driver_status = NVEFS_SCSI_DRIVER_SENSE;
	}
	hdr->info = host_err || hdr->status ? SG_INFO_CHECK : SG_INFO_OK;
}

/* Sets the io's result from the header and gives the slot back. */
static int slot_finish(struct slot *slot)
{
	struct nvefs_io *io = slot->io;
	int err;

	answer_header(&slot->task.hdr, &slot->cmd, slot->host_err);
	err = nvefs_scsi_task_result(&slot->task, io);
	if (io->status.kind == NVEFS_STATUS_SENSE)
		io->status.nvme = slot->cmd.nvme_status;
	else if (slot->host_err)
		err = io->status.host_errno = slot->host_err;
	slot_put(slot);
	return err;
}

static void part_done(struct nvefs_io *raw_io)
{
	struct slot_part *part = raw_io->arg;
	struct slot *slot = part->slot;
	struct nvefs_queue *upper = slot->rq->upper;
	struct nvefs_io *io = slot->io;

	nvefs_buf_free(part->bounce);
	part->bounce = NULL;
	if (raw_io->err && raw_io->status.kind != NVEFS_STATUS_NVME)
		slot->host_err = raw_io->err;
	if (nvefs_sntl_complete(&slot->cmd, raw_io->status.nvme))
		nvefs_queue_finish(upper, io, slot_finish(slot));
}

static void gather(const sg_io_hdr_t *hdr, uint32_t offset, uint32_t bytes, uint8_t *to)
{
	const struct iovec one = {hdr->dxferp, hdr->dxfer_len};
	const struct iovec *iov = hdr->iovec_count ? hdr->dxferp : &one;

	for (; bytes > 0; iov++) {
		uint32_t len;

		if (offset >= iov->iov_len) {
			offset -= (uint32_t)iov->iov_len;
			continue;
		}
		len = (uint32_t)iov->iov_len - offset;
		if (len > bytes)
			len = bytes;
		memcpy(to, (const uint8_t *)iov->iov_base + offset, len);
		to += len;
		bytes -= len;
		offset = 0;
	}
}

/* A pattern to be written many times over, or a piece of scattered data, in one buffer of its own.
 */
static int map_bounce(struct slot_part *part, const sg_io_hdr_t *hdr,
		      const struct nvefs_sntl_part *p)
{
	uint8_t *buf = nvefs_buf_new((size_t)p->bytes * p->repeat);

	if (!buf)
		return -ENOMEM;
	gather(hdr, p->offset, p->bytes, buf);
	for (uint32_t i = 1; i < p->repeat; i++)
		memcpy(buf + (size_t)i * p->bytes, buf, p->bytes);
	part->bounce = buf;
	part->raw.io.one = (struct iovec){buf, (size_t)p->bytes * p->repeat};
	return 0;
}

static int map_part(struct slot_part *part, const sg_io_hdr_t *hdr, const struct nvefs_sntl_part *p,
		    struct nvefs_nvme_dsm_range *range)
{
	struct nvefs_io *io = &part->raw.io;
	bool whole = p->offset == 0 && p->bytes == hdr->dxfer_len && p->repeat == 1;

	io->iov = &io->one;
	io->niov = 1;
	part->raw.data_bytes = p->bytes * p->repeat;
	switch (p->data) {
	case NVEFS_SNTL_NO_DATA:
		io->niov = 0;
		return 0;
	case NVEFS_SNTL_RANGES:
		io->one = (struct iovec){range, p->bytes};
		return 0;
	case NVEFS_SNTL_FROM_OUT:
	case NVEFS_SNTL_TO_IN:
		break;
	}
	if (hdr->iovec_count && whole) {
		io->iov = hdr->dxferp;
		io->niov = hdr->iovec_count;
		return 0;
	}
	if (!hdr->iovec_count && p->repeat == 1) {
		io->one = (struct iovec){(uint8_t *)hdr->dxferp + p->offset, p->bytes};
		return 0;
	}
	return p->data == NVEFS_SNTL_FROM_OUT ? map_bounce(part, hdr, p) : -EINVAL;
}

static void translate(const struct route *r, const sg_io_hdr_t *hdr,
		      struct nvefs_nvme_dsm_range *range, struct nvefs_sntl_cmd *cmd)
{
	struct nvefs_sntl_request req = {.cdb = hdr->cmdp,
					 .cdb_len = hdr->cmd_len,
					 .ranges = range,
					 .max_ranges = range ? 1 : 0};
	void *data = hdr->iovec_count ? NULL : hdr->dxferp;

	if (hdr->dxfer_direction == SG_DXFER_TO_DEV) {
		req.out = data;
		req.out_len = hdr->dxfer_len;
	} else if (hdr->dxfer_direction == SG_DXFER_FROM_DEV) {
		req.in = data;
		req.in_len = hdr->dxfer_len;
	}
	nvefs_sntl_translate(&r->lu, &req, cmd);
}

/* True when commands are under way, false when the answer is there already. */
static bool sntl_send(struct slot *slot)
{
	const struct route *r = slot->rq->route;
	uint32_t nparts;

	slot->host_err = 0;
	translate(r, &slot->task.hdr, &slot->range, &slot->cmd);
	nparts = slot->cmd.nparts;
	for (uint32_t i = 0; i < nparts; i++) {
		struct slot_part *part = &slot->part[i];
		struct nvefs_io *io = &part->raw.io;

		part->slot = slot;
		part->bounce = NULL;
		part->raw.sqe = slot->cmd.part[i].sqe;
		io->op = NVEFS_IO_RAW;
		io->flags = 0;
		io->done = part_done;
		io->arg = part;
		slot->host_err = map_part(part, &slot->task.hdr, &slot->cmd.part[i], &slot->range);
		if (slot->host_err) {
			while (i-- > 0)
				nvefs_buf_free(slot->part[i].bounce);
			return false;
		}
	}
	for (uint32_t i = 0; i < nparts; i++)
		nvefs_queue_submit(slot->rq->lower, &slot->part[i].raw.io);
	return nparts > 0;
}

static void plain_done(struct nvefs_io *plain)
{
	struct slot *slot = plain->arg;
	struct nvefs_queue *upper = slot->rq->upper;
	struct nvefs_io *io = slot->io;
	int err = plain->err;

	io->status = plain->status;
	slot_put(slot); /* from here on it may be another thread's */
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

static int route_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct route_queue *rq = q->priv;
	struct slot *slot;
	uint32_t index;
	int err;

	if (!nvefs_scsi_port_get(rq->uq->port, &rq->turn, &index))
		return -EAGAIN;
	slot = &rq->uq->slots[index];
	slot->rq = rq;
	slot->io = io;
	if (!rq->route->opts.translate) {
		plain_send(slot);
		return 0;
	}
	err = nvefs_scsi_task_build(&slot->task, &rq->route->unit, io, (int)index);
	if (err) {
		slot_put(slot);
		io->status.kind = NVEFS_STATUS_HOST;
		io->status.host_errno = err;
		nvefs_queue_finish_later(q, io, err);
	} else if (!sntl_send(slot)) {
		nvefs_queue_finish_later(q, io, slot_finish(slot));
	}
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

	snprintf(buf, len, "%s logical-unit queue%s of %u%s", o->single_queue ? "one" : "many",
		 o->single_queue ? "" : "s", o->depth, o->translate ? "" : ", not translated");
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

/* One admin command to the controller below; a status that is not success is an error. */
static int ask_controller(struct nvefs_dev *below, const struct nvefs_nvme_sqe *sqe, void *data,
			  uint32_t len, uint32_t *ret_result)
{
	uint16_t status = 0;
	int err = nvefs_dev_admin(below, sqe, data, len, ret_result, &status);

	return err ? err : nvefs_nvme_status_errno(status);
}

static int identify(struct nvefs_dev *below, uint32_t nsid, uint8_t cns, void *buf)
{
	struct nvefs_nvme_sqe sqe;
	uint32_t result;

	memset(buf, 0, NVEFS_NVME_IDENTIFY_BYTES);
	nvefs_nvme_sqe_identify(&sqe, nsid, cns, NVEFS_NVME_CSI_NVM);
	return ask_controller(below, &sqe, buf, NVEFS_NVME_IDENTIFY_BYTES, &result);
}

/* The target's view of the namespace. CNS 06h and 03h are not there on older controllers. */
static int learn_namespace(struct route *r, void *buf)
{
	struct nvefs_dev *below = r->dev.below;
	uint32_t nsid = below->identity.nsid, cache = 0;
	struct nvefs_nvme_sqe sqe;
	int err = identify(below, 0, NVEFS_NVME_CNS_CTRL, buf);

	if (err)
		return err;
	nvefs_nvme_ctrl_parse(buf, &r->ctrl);
	if (!identify(below, 0, NVEFS_NVME_CNS_CSI_CTRL, buf))
		nvefs_nvme_ctrl_parse_nvm(buf, &r->ctrl);
	err = identify(below, nsid, NVEFS_NVME_CNS_NS, buf);
	if (!err)
		err = nvefs_nvme_ns_parse(buf, &r->ns);
	if (!err && !identify(below, nsid, NVEFS_NVME_CNS_NS_DESCS, buf))
		err = nvefs_nvme_ns_parse_descs(buf, NVEFS_NVME_IDENTIFY_BYTES, &r->ns);
	if (!err && r->ctrl.vwc) {
		nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE,
					    NVEFS_NVME_SEL_CURRENT);
		err = ask_controller(below, &sqe, NULL, 0, &cache);
	}
	r->lu = (struct nvefs_sntl_lu){
	    .ctrl = &r->ctrl,
	    .ns = &r->ns,
	    .nsid = nsid,
	    .max_transfer_bytes = below->limits.max_transfer_blks << NVEFS_BLOCK_SHIFT,
	    .write_cache = cache & NVEFS_NVME_WRITE_CACHE_ENABLE,
	    .descriptor_sense = true, /* LBAs of more than 32 bits fit no other format */
	    .mistakes = r->opts.mistakes};
	return err;
}

/* The probe's commands are all answered by the translation itself, so no queue is needed. */
static int send_at_open(void *arg, sg_io_hdr_t *hdr)
{
	struct nvefs_sntl_cmd cmd;

	translate(arg, hdr, NULL, &cmd);
	if (cmd.nparts > 0)
		return -EIO;
	answer_header(hdr, &cmd, 0);
	return 0;
}

static int learn(struct route *r, struct nvefs_error *err)
{
	const char *target = r->dev.identity.target;
	void *buf;
	int code;

	if (!r->opts.translate)
		return 0;
	if (!nvefs_dev_takes_raw(r->dev.below))
		return nvefs_error_set(
		    err, -ENOTSUP, "%s: takes no NVMe commands to translate to: use route=native",
		    target);
	buf = nvefs_buf_new(NVEFS_NVME_IDENTIFY_BYTES);
	if (!buf)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", target);
	code = learn_namespace(r, buf);
	nvefs_buf_free(buf);
	if (code)
		return nvefs_error_set(err, code, "%s: cannot identify the namespace: %s", target,
				       strerror(-code));
	return nvefs_scsi_probe(&r->dev, &r->unit, send_at_open, r, err);
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

int nvefs_scsi_wrap(struct nvefs_dev *below, struct nvefs_dev **ret_dev, struct nvefs_error *err)
{
	return nvefs_scsi_route_open(below, &nvefs_scsi_route_defaults, ret_dev, err);
}
