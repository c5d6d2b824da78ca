/* SPDX-License-Identifier: MIT */
/*
 * Commands by NVME_IOCTL_IO64_CMD, each of which holds its caller until the
 * command is done: some threads for each queue make the calls. For kernels without
 * passthrough in io_uring, and for namespaces whose ng node is missing.
 */
#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "device/callers.h"
#include "device/io_command.h"
#include "device/nvme_linux.h"
#include "device/retry.h"

#define THREADS 4u

struct slot {
	struct nvefs_job job;
	struct nvefs_io *io;
	struct nvefs_io_command cmd;
	struct nvefs_retry retry;
	struct slot *next_free;
	int fd, res;
	uint32_t timeout_ms;
	uint64_t result;
};

struct ioctl_queue {
	struct nvefs_callers *callers;
	struct nvefs_retries retries;
	uint32_t nsid, lba_shift;
	struct slot *free;
	struct slot slots[];
};

/* In a thread of the callers'. */
static void run(struct nvefs_job *job)
{
	struct slot *slot = nvefs_container_of(job, struct slot, job);
	const struct nvefs_io_command *c = &slot->cmd;
	const struct nvefs_nvme_sqe *n = &c->sqe;
	struct nvme_passthru_cmd64 cmd = {
	    .opcode = n->opcode,
	    .flags = n->flags,
	    .nsid = le32_get(n->nsid),
	    .cdw2 = le32_get(n->cdw2),
	    .cdw3 = le32_get(n->cdw3),
	    .cdw10 = le32_get(n->cdw10),
	    .cdw11 = le32_get(n->cdw11),
	    .cdw12 = le32_get(n->cdw12),
	    .cdw13 = le32_get(n->cdw13),
	    .cdw14 = le32_get(n->cdw14),
	    .cdw15 = le32_get(n->cdw15),
	    .timeout_ms = slot->timeout_ms,
	};

	if (c->niov == 1) {
		cmd.addr = (uintptr_t)c->iov->iov_base;
		cmd.data_len = (uint32_t)c->iov->iov_len;
	} else if (c->niov > 1) {
		cmd.addr = (uintptr_t)c->iov;
		cmd.vec_cnt = c->niov;
	}
	slot->res = ioctl(slot->fd, c->niov > 1 ? NVME_IOCTL_IO64_CMD_VEC : NVME_IOCTL_IO64_CMD, &cmd);
	if (slot->res < 0)
		slot->res = -errno;
	slot->result = cmd.result;
}

static int ioctl_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	struct nvefs_nvme_linux *nl = nvefs_nvme_linux_from(dev);
	struct ioctl_queue *iq = calloc(1, sizeof(*iq) + q->depth * sizeof(iq->slots[0]));
	int err;

	if (!iq)
		return -ENOMEM;
	iq->nsid = dev->identity.nsid;
	iq->lba_shift = nl->lba_shift;
	for (uint32_t i = q->depth; i-- > 0;) {
		nvefs_list_init(&iq->slots[i].job.link);
		iq->slots[i].fd = nl->fd;
		iq->slots[i].timeout_ms = nl->timeout_ms;
		iq->slots[i].next_free = iq->free;
		iq->free = &iq->slots[i];
	}
	err = nvefs_callers_new(THREADS, run, &iq->callers);
	if (err)
		goto free_queue;
	err = nvefs_queue_watch_fd(q, nvefs_callers_fd(iq->callers));
	if (!err)
		err = nvefs_retries_init(&iq->retries, q);
	if (err)
		goto free_callers;
	q->priv = iq;
	return 0;

free_callers:
	nvefs_callers_free(iq->callers);
free_queue:
	free(iq);
	return err;
}

static void ioctl_queue_done(struct nvefs_queue *q)
{
	struct ioctl_queue *iq = q->priv;

	nvefs_retries_done(&iq->retries);
	nvefs_callers_free(iq->callers);
	free(iq);
}

static int ioctl_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct ioctl_queue *iq = q->priv;
	struct slot *slot = iq->free;

	if (!slot)
		return -EAGAIN;
	iq->free = slot->next_free;
	slot->io = io;
	nvefs_retry_begin(&slot->retry);
	nvefs_io_command_build(&slot->cmd, io, iq->nsid, iq->lba_shift);
	nvefs_callers_start(iq->callers, &slot->job);
	return 0;
}

static void finish(struct nvefs_queue *q, struct slot *slot)
{
	struct ioctl_queue *iq = q->priv;
	const struct nvefs_nvme_linux *nl = nvefs_nvme_linux_from(q->dev);
	struct nvefs_io *io = slot->io;
	int err = 0;

	if (nvefs_nvme_linux_again(nl, &iq->retries, &slot->retry, io, slot->res, &err))
		return;
	slot->next_free = iq->free;
	iq->free = slot;
	if (io->op == NVEFS_IO_RAW)
		nvefs_raw_from_io(io)->result = (uint32_t)slot->result;
	nvefs_queue_finish(q, io, err);
}

static void ioctl_poll(struct nvefs_queue *q, uint32_t max)
{
	struct ioctl_queue *iq = q->priv;
	struct nvefs_retry *e;
	struct nvefs_job *job;

	for (uint32_t n = 0; (!max || n < max) && (job = nvefs_callers_reap(iq->callers)); n++)
		finish(q, nvefs_container_of(job, struct slot, job));
	while ((e = nvefs_retries_due(&iq->retries)))
		nvefs_callers_start(iq->callers,
				    &nvefs_container_of(e, struct slot, retry)->job);
}

static bool ioctl_prepare_wait(struct nvefs_queue *q)
{
	struct ioctl_queue *iq = q->priv;

	return nvefs_callers_prepare_wait(iq->callers) &&
	       nvefs_retries_prepare_wait(&iq->retries);
}

const struct nvefs_backend_ops nvefs_nvme_ioctl_ops = {
    .name = "NVMe passthrough",
    .raw = true,
    .close = nvefs_nvme_linux_close,
    .describe = nvefs_nvme_linux_describe,
    .admin = nvefs_nvme_linux_admin,
    .queue_init = ioctl_queue_init,
    .queue_done = ioctl_queue_done,
    .submit = ioctl_submit,
    .poll = ioctl_poll,
    .prepare_wait = ioctl_prepare_wait,
};
