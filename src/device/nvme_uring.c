/* SPDX-License-Identifier: MIT */
/*
 * Commands by IORING_OP_URING_CMD: one ring for each queue, 128-byte entries that
 * hold the NVMe command, 32-byte completions that hold its result. The kernel puts a
 * command on the hardware queue of the CPU that enters the ring, so a queue's thread
 * that stays on one CPU has a hardware queue of its own.
 *
 * Submissions are gathered and sent by poll or prepare_wait. A completion's `res` is 0, the
 * status field, or a negative errno; some are tried again before the io ends.
 */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <linux/nvme_ioctl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "device/io_command.h"
#include "device/nvme_linux.h"
#include "device/retry.h"

struct slot {
	struct nvefs_io *io;
	struct nvefs_io_command cmd;
	struct nvefs_retry retry;
	struct slot *next_free;
};

struct uring_queue {
	struct io_uring ring;
	struct nvefs_retries retries;
	uint32_t unsent;
	int fd;
	uint32_t nsid, lba_shift, timeout_ms;
	struct slot *free;
	struct slot slots[];
};

/* Without a thread of the kernel's; completions are worked on when we ask for them. */
static int ring_init(struct io_uring *ring, uint32_t depth)
{
	const unsigned int wide = IORING_SETUP_SQE128 | IORING_SETUP_CQE32 | IORING_SETUP_CLAMP;
	int err = -EINVAL;

#if defined(IORING_SETUP_DEFER_TASKRUN) && defined(IORING_SETUP_SINGLE_ISSUER)
	err = io_uring_queue_init(depth, ring,
				  wide | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
				      IORING_SETUP_TASKRUN_FLAG);
#endif
	if (err == -EINVAL) /* a kernel before 6.1 */
		err = io_uring_queue_init(depth, ring, wide);
	return err;
}

static void prepare(struct io_uring_sqe *sqe, int fd, const struct nvefs_io_command *c,
		    uint32_t timeout_ms, void *user_data)
{
	const struct nvefs_nvme_sqe *n = &c->sqe;
	struct nvme_uring_cmd cmd = {
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
	    .timeout_ms = timeout_ms,
	};

	memset(sqe, 0, 2 * sizeof(*sqe)); /* of 128 bytes */
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = c->niov > 1 ? NVME_URING_CMD_IO_VEC : NVME_URING_CMD_IO;
	if (c->niov == 1) {
		cmd.addr = (uintptr_t)c->iov->iov_base;
		cmd.data_len = (uint32_t)c->iov->iov_len;
	} else if (c->niov > 1) {
		cmd.addr = (uintptr_t)c->iov;
		cmd.data_len = c->niov;
	}
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	io_uring_sqe_set_data(sqe, user_data);
}

static int uring_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	struct nvefs_nvme_linux *nl = nvefs_nvme_linux_from(dev);
	struct uring_queue *uq = calloc(1, sizeof(*uq) + q->depth * sizeof(uq->slots[0]));
	int err;

	if (!uq)
		return -ENOMEM;
	uq->fd = nl->fd;
	uq->timeout_ms = nl->timeout_ms;
	uq->nsid = dev->identity.nsid;
	uq->lba_shift = nl->lba_shift;
	for (uint32_t i = q->depth; i-- > 0;) {
		uq->slots[i].next_free = uq->free;
		uq->free = &uq->slots[i];
	}
	err = ring_init(&uq->ring, q->depth);
	if (err)
		goto free_queue;
	err = nvefs_queue_watch_fd(q, uq->ring.ring_fd);
	if (!err)
		err = nvefs_retries_init(&uq->retries, q);
	if (err)
		goto exit_ring;
	q->priv = uq;
	return 0;

exit_ring:
	io_uring_queue_exit(&uq->ring);
free_queue:
	free(uq);
	return err;
}

static void uring_queue_done(struct nvefs_queue *q)
{
	struct uring_queue *uq = q->priv;

	nvefs_retries_done(&uq->retries);
	io_uring_queue_exit(&uq->ring);
	free(uq);
}

static void start(struct uring_queue *uq, struct slot *slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uq->ring);

	assert(sqe); /* the ring has an entry for every slot */
	prepare(sqe, uq->fd, &slot->cmd, uq->timeout_ms, slot);
	uq->unsent++;
}

static int uring_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct uring_queue *uq = q->priv;
	struct slot *slot = uq->free;

	if (!slot)
		return -EAGAIN;
	uq->free = slot->next_free;
	slot->io = io;
	nvefs_retry_begin(&slot->retry);
	nvefs_io_command_build(&slot->cmd, io, uq->nsid, uq->lba_shift);
	start(uq, slot);
	return 0;
}

static void ring_send(struct uring_queue *uq)
{
	/* What the kernel does not take now (-EBUSY, -EAGAIN) is sent by a later poll. */
	int n = io_uring_submit(&uq->ring);

	if (n > 0)
		uq->unsent -= (uint32_t)n < uq->unsent ? (uint32_t)n : uq->unsent;
}

static void finish(struct nvefs_queue *q, struct slot *slot, int res, uint64_t result)
{
	struct uring_queue *uq = q->priv;
	const struct nvefs_nvme_linux *nl = nvefs_nvme_linux_from(q->dev);
	struct nvefs_io *io = slot->io;
	int err = 0;

	if (nvefs_nvme_linux_again(nl, &uq->retries, &slot->retry, io, res, &err))
		return;
	slot->next_free = uq->free;
	uq->free = slot;
	if (io->op == NVEFS_IO_RAW)
		nvefs_raw_from_io(io)->result = (uint32_t)result;
	nvefs_queue_finish(q, io, err);
}

static void send_again(struct uring_queue *uq)
{
	struct nvefs_retry *e;

	while ((e = nvefs_retries_due(&uq->retries)))
		start(uq, nvefs_container_of(e, struct slot, retry));
}

static void uring_poll(struct nvefs_queue *q, uint32_t max)
{
	struct uring_queue *uq = q->priv;
	struct io_uring_cqe *cqe;

	send_again(uq);
	if (uq->unsent)
		ring_send(uq);
	for (uint32_t n = 0; (!max || n < max) && !io_uring_peek_cqe(&uq->ring, &cqe); n++) {
		struct slot *slot = io_uring_cqe_get_data(cqe);
		uint64_t result = cqe->big_cqe[0];
		int res = cqe->res;

		io_uring_cqe_seen(&uq->ring, cqe);
		finish(q, slot, res, result);
	}
	send_again(uq);
	if (uq->unsent)
		ring_send(uq);
}

static bool uring_prepare_wait(struct nvefs_queue *q)
{
	struct uring_queue *uq = q->priv;

	if (uq->unsent)
		ring_send(uq);
	return !uq->unsent && !io_uring_cq_ready(&uq->ring) &&
	       nvefs_retries_prepare_wait(&uq->retries);
}

const struct nvefs_backend_ops nvefs_nvme_uring_ops = {
    .name = "NVMe passthrough",
    .raw = true,
    .close = nvefs_nvme_linux_close,
    .describe = nvefs_nvme_linux_describe,
    .admin = nvefs_nvme_linux_admin,
    .queue_init = uring_queue_init,
    .queue_done = uring_queue_done,
    .submit = uring_submit,
    .poll = uring_poll,
    .prepare_wait = uring_prepare_wait,
};

static int probe_read(struct io_uring *ring, int fd, uint32_t nsid, void *buf, uint32_t lba_bytes)
{
	struct iovec iov = {buf, lba_bytes};
	struct nvefs_io_command c = {.iov = &iov, .niov = 1};
	struct io_uring_cqe *cqe;
	int err;

	nvefs_nvme_sqe_rw(&c.sqe, NVEFS_NVME_READ, nsid, 0, 1, 0);
	prepare(io_uring_get_sqe(ring), fd, &c, 0, NULL);
	err = io_uring_submit_and_wait(ring, 1);
	if (err < 0)
		return err;
	err = io_uring_wait_cqe(ring, &cqe);
	if (err)
		return err;
	/* A block that cannot be read shows as well as another that commands get through. */
	err = cqe->res < 0 ? cqe->res : 0;
	io_uring_cqe_seen(ring, cqe);
	return err == -EINVAL || err == -EOPNOTSUPP || err == -ENOTTY ? -ENOTSUP : err;
}

int nvefs_nvme_uring_probe(int fd, uint32_t nsid, uint32_t lba_bytes)
{
	void *buf = nvefs_buf_new(lba_bytes);
	struct io_uring ring;
	int err;

	if (!buf)
		return -ENOMEM;
	err = ring_init(&ring, 2);
	if (err == -EINVAL || err == -ENOSYS || err == -EPERM)
		err = -ENOTSUP; /* no such rings in this kernel, or io_uring is switched off */
	if (!err) {
		err = probe_read(&ring, fd, nsid, buf, lba_bytes);
		io_uring_queue_exit(&ring);
	}
	nvefs_buf_free(buf);
	return err;
}
