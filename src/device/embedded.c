/* SPDX-License-Identifier: MIT */
/*
 * The host's side of the embedded controller: what a driver does. Every io is
 * built as a submission entry, goes through the ring, and its completion entry
 * is all that is known of how it went. The command identifier is the slot.
 */
#include "device/embedded.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/backend.h"
#include "device/identify.h"
#include "device/io_command.h"

struct embedded {
	struct nvefs_dev dev;
	struct nvefs_ctrl *ctrl;
};

struct slot {
	struct nvefs_io *io;
	struct nvefs_io_command cmd;
	uint32_t next_free;
};

struct host_queue {
	struct nvefs_ctrl_queue *cq;
	uint32_t first_free, depth; /* depth: none */
	uint32_t lba_shift;	    /* from blocks */
	bool unrung;		    /* the first of a fused pair is in the ring, untold */
	struct slot slots[];
};

static struct embedded *embedded_from(struct nvefs_dev *dev)
{
	return nvefs_container_of(dev, struct embedded, dev);
}

static int host_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	struct embedded *e = embedded_from(dev);
	struct host_queue *hq = calloc(1, sizeof(*hq) + q->depth * sizeof(hq->slots[0]));
	int err;

	if (!hq)
		return -ENOMEM;
	hq->depth = q->depth;
	hq->lba_shift = NVEFS_BLOCK_SHIFT - (uint32_t)__builtin_ctz(dev->limits.lba_bytes);
	for (uint32_t i = 0; i < q->depth; i++)
		hq->slots[i].next_free = i + 1;
	err = nvefs_ctrl_queue_new(e->ctrl, q, q->depth, &hq->cq);
	if (err) {
		free(hq);
		return err;
	}
	q->priv = hq;
	return 0;
}

static void host_queue_done(struct nvefs_queue *q)
{
	struct host_queue *hq = q->priv;

	nvefs_ctrl_queue_free(hq->cq);
	free(hq);
}

static void set_data(struct nvefs_nvme_sqe *sqe, const void *addr, uint32_t len, uint8_t type)
{
	sqe->flags = (uint8_t)((sqe->flags & ~NVEFS_NVME_PSDT_MASK) | NVEFS_PSDT_SGL);
	sqe->dptr[0] = le64_make((uintptr_t)addr);
	sqe->dptr[1] = le64_make((uint64_t)type << 56 | len);
}

static void set_iov(struct nvefs_nvme_sqe *sqe, const struct nvefs_io_command *cmd)
{
	if (cmd->niov == 1)
		set_data(sqe, cmd->iov[0].iov_base, (uint32_t)cmd->iov[0].iov_len,
			 NVEFS_SGL_DATA_BLOCK);
	else if (cmd->niov)
		set_data(sqe, cmd->iov, cmd->niov * (uint32_t)sizeof(*cmd->iov), NVEFS_SGL_IOVEC);
}

static void ring(struct host_queue *hq)
{
	hq->unrung = false;
	nvefs_rings_ring(&hq->cq->rings);
	nvefs_ctrl_doorbell(hq->cq);
}

/* A fused pair is told at once (base 2.0, 3.4.2); a queue of one has no room for it. */
static bool is_first_of_pair(const struct host_queue *hq, const struct nvefs_nvme_sqe *sqe)
{
	return (sqe->flags & NVEFS_NVME_FUSE_MASK) == NVEFS_NVME_FUSE_FIRST && hq->depth > 1;
}

static int host_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct host_queue *hq = q->priv;
	uint32_t index = hq->first_free;
	bool first = io->op == NVEFS_IO_RAW && is_first_of_pair(hq, &nvefs_raw_from_io(io)->sqe);
	struct slot *slot;

	if (index == hq->depth || (first && hq->slots[index].next_free == hq->depth))
		return -EAGAIN;
	slot = &hq->slots[index];
	slot->io = io;
	nvefs_io_command_build(&slot->cmd, io, NVEFS_CTRL_NSID, hq->lba_shift);
	set_iov(&slot->cmd.sqe, &slot->cmd);
	slot->cmd.sqe.cid = le16_make((uint16_t)index);
	if (!nvefs_rings_push(&hq->cq->rings, &slot->cmd.sqe))
		return -EAGAIN;
	hq->first_free = slot->next_free;
	hq->unrung = first;
	if (!first)
		ring(hq);
	return 0;
}

static void host_poll(struct nvefs_queue *q, uint32_t max)
{
	struct host_queue *hq = q->priv;
	struct nvefs_nvme_cqe cqe;
	uint32_t n;

	if (hq->unrung) /* its other half did not follow */
		ring(hq);
	nvefs_ctrl_run(hq->cq);
	/* A callback that submits again to memory gets its completion at once; one round of the
	 * ring ends that. */
	for (n = 0; n < (max ? max : hq->depth) && nvefs_rings_reap(&hq->cq->rings, &cqe); n++) {
		uint32_t index = le16_get(cqe.cid);
		struct slot *slot = &hq->slots[index];
		struct nvefs_io *io = slot->io;

		slot->io = NULL;
		slot->next_free = hq->first_free;
		hq->first_free = index;
		if (io->op == NVEFS_IO_RAW)
			nvefs_raw_from_io(io)->result = le32_get(cqe.dw0);
		nvefs_queue_finish(q, io,
				   nvefs_io_set_nvme_status(io, nvefs_nvme_cqe_status(&cqe)));
	}
}

static bool host_prepare_wait(struct nvefs_queue *q)
{
	struct host_queue *hq = q->priv;

	return !hq->unrung && nvefs_ctrl_prepare_wait(hq->cq);
}

static int host_admin(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data,
		      uint32_t len, uint32_t *ret_result, uint16_t *ret_status)
{
	*ret_status = nvefs_ctrl_admin(embedded_from(dev)->ctrl, sqe, data, len, ret_result);
	return 0;
}

static uint64_t host_media_write_bytes(struct nvefs_dev *dev)
{
	struct nvefs_ctrl_stats stats;

	nvefs_ctrl_stats(embedded_from(dev)->ctrl, &stats);
	return stats.media_bytes;
}

static void host_describe(const struct nvefs_dev *dev, char *buf, size_t len)
{
	const struct nvefs_ctrl *c = nvefs_container_of(dev, struct embedded, dev)->ctrl;

	if (c->cfg.latency_ns)
		snprintf(buf, len, "%s, latency %llu ns", c->media->text,
			 (unsigned long long)c->cfg.latency_ns);
	else
		snprintf(buf, len, "%s", c->media->text);
}

static void host_close(struct nvefs_dev *dev)
{
	struct embedded *e = embedded_from(dev);

	nvefs_ctrl_free(e->ctrl);
	free(e);
}

static const struct nvefs_backend_ops embedded_ops = {
    .name = "embedded NVMe controller",
    .raw = true,
    .fused = true,
    .close = host_close,
    .describe = host_describe,
    .media_write_bytes = host_media_write_bytes,
    .admin = host_admin,
    .queue_init = host_queue_init,
    .queue_done = host_queue_done,
    .submit = host_submit,
    .poll = host_poll,
    .prepare_wait = host_prepare_wait,
};

int nvefs_embedded_open_media(const char *target, const struct nvefs_ctrl_config *cfg,
			      struct nvefs_media *media, struct nvefs_dev **ret_dev,
			      struct nvefs_error *err)
{
	struct embedded *e = calloc(1, sizeof(*e));
	int code;

	if (!e) {
		media->ops->close(media);
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", target);
	}
	nvefs_dev_init(&e->dev, &embedded_ops, NULL);
	e->dev.limits.mem_align = media->mem_align;
	e->dev.limits.max_segments = 1024; /* IOV_MAX, what one readv of a file takes */
	e->dev.limits.max_queues = cfg->max_queues;
	e->dev.limits.queue_depth = cfg->depth;
	code = nvefs_ctrl_new(cfg, media, &e->ctrl);
	if (code)
		nvefs_error_set(err, code, "%s: out of memory", target);
	else
		code = nvefs_dev_identify(&e->dev, target, NVEFS_CTRL_NSID, UINT32_MAX, err);
	if (code) {
		nvefs_dev_done(&e->dev);
		host_close(&e->dev);
		return code;
	}
	e->dev.limits.read_only |= e->ctrl->cfg.read_only;
	*ret_dev = &e->dev;
	return 0;
}

int nvefs_embedded_open_ram(const char *target, uint64_t size_bytes,
			    const struct nvefs_embedded_options *o, struct nvefs_dev **ret_dev,
			    struct nvefs_error *err)
{
	struct nvefs_ctrl_config cfg = o->ctrl;
	struct nvefs_media *media;
	int code;

	size_bytes &= ~(uint64_t)(NVEFS_BLOCK_SIZE - 1);
	if (!size_bytes)
		return nvefs_error_set(err, -EINVAL, "%s: holds no block of %u bytes: ask for more",
				       target, NVEFS_BLOCK_SIZE);
	cfg.vwc = o->vwc_asked && cfg.vwc;
	code = nvefs_media_ram_open(size_bytes, cfg.lba_bytes, cfg.vwc, &media);
	if (code)
		return nvefs_error_set(err, code, "%s: cannot map %llu bytes of memory: %s", target,
				       (unsigned long long)size_bytes, strerror(-code));
	return nvefs_embedded_open_media(target, &cfg, media, ret_dev, err);
}

int nvefs_embedded_open_file(const char *target, const char *path,
			     const struct nvefs_embedded_options *o,
			     const struct nvefs_dev_open_opts *open_opts,
			     struct nvefs_dev **ret_dev, struct nvefs_error *err)
{
	struct nvefs_media_file_opts file_opts = {open_opts->flags, open_opts->create_bytes};
	struct nvefs_ctrl_config cfg = o->ctrl;
	struct nvefs_media *media;
	int code;

	cfg.vwc = !o->vwc_asked || cfg.vwc;
	if (cfg.read_only)
		file_opts.flags |= NVEFS_OPEN_RDONLY;
	code = nvefs_media_file_open(path, &file_opts, &media, err);
	return code ? code : nvefs_embedded_open_media(target, &cfg, media, ret_dev, err);
}

int nvefs_embedded_power_cut(struct nvefs_dev *dev, uint64_t seed, uint64_t *ret_lost_lbas)
{
	struct nvefs_ctrl *c;
	uint64_t lost;
	int err;

	while (dev->below)
		dev = dev->below;
	if (dev->ops != &embedded_ops)
		return -ENOTSUP;
	c = embedded_from(dev)->ctrl;
	if (!c->media->ops->power_cut)
		return -ENOTSUP;
	err = c->media->ops->power_cut(c->media, seed, &lost);
	if (err)
		return err;
	__atomic_add_fetch(&c->unsafe_shutdowns, 1, __ATOMIC_RELAXED);
	if (ret_lost_lbas)
		*ret_lost_lbas = lost;
	return 0;
}
