/* SPDX-License-Identifier: MIT */
/*
 * SG_IO holds its caller until the command is done, on either kind of node, so
 * some threads for each queue make the calls. UNIT ATTENTION, BUSY and what a
 * transport says of passing trouble are tried again, and once a command that timed out: the kernel
 * has had it aborted, and what comes again writes the same data to the same place. See
 * nvefs_retry_result.
 */
#include "device/scsi_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <scsi/sg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "device/callers.h"
#include "device/retry.h"
#include "device/scsi_health.h"
#include "device/scsi_initiator.h"

#define SYSFS "/sys"
#define THREADS 4u
#define MAX_QUEUES 256u
#define DEPTH 64u
#define MAX_SEGMENTS 1024u
#define SECTOR_BYTES 512u
#define PROBE_TRIES 5
#define HEALTH_TRIES 2
#define HEALTH_TIMEOUT_MS 10000u

/* Host status, as the kernel's mid-layer gives it. */
enum {
	DID_OK = 0x00,
	DID_BUS_BUSY = 0x02,
	DID_RESET = 0x08,
	DID_SOFT_ERROR = 0x0b,
	DID_IMM_RETRY = 0x0c,
	DID_REQUEUE = 0x0d,
	DID_TRANSPORT_DISRUPTED = 0x0e,
};

struct scsi_linux {
	struct nvefs_dev dev;
	struct nvefs_node node;
	struct nvefs_scsi_unit unit;
	bool read_only;
	int lock_fd; /* block node, held exclusively; -1: there is none, and the sg node is */
	int fd;	     /* for commands: lock_fd, or the sg node */
};

static int set_sg_io(void *config, const char *value)
{
	struct nvefs_scsi_linux_options *o = config;

	if (!value)
		return -EINVAL;
	if (!strcmp(value, "auto"))
		o->sg_io = NVEFS_SG_IO_AUTO;
	else if (!strcmp(value, "sd"))
		o->sg_io = NVEFS_SG_IO_SD;
	else if (!strcmp(value, "sg"))
		o->sg_io = NVEFS_SG_IO_SG;
	else
		return -EINVAL;
	return 0;
}

const struct nvefs_uri_option nvefs_scsi_linux_option_table[] = {
    {"sg_io", "auto|sd|sg",
     "the node that commands go by (auto: sd, which costs less, if it is there)", set_sg_io},
    {NULL, NULL, NULL, NULL}};

struct slot {
	struct nvefs_job job;
	struct nvefs_io *io;
	struct nvefs_scsi_task task;
	struct nvefs_retry retry;
	struct slot *next_free;
	int fd, err;
};

struct sg_queue {
	struct nvefs_callers *callers;
	struct nvefs_retries retries;
	const struct nvefs_scsi_unit *unit;
	struct slot *free;
	struct slot slots[];
};

static struct scsi_linux *scsi_from(struct nvefs_dev *dev)
{
	return nvefs_container_of(dev, struct scsi_linux, dev);
}

static int sg_io(int fd, sg_io_hdr_t *hdr)
{
	return ioctl(fd, SG_IO, hdr) < 0 ? -errno : 0;
}

/* In a thread of the callers'. */
static void run(struct nvefs_job *job)
{
	struct slot *slot = nvefs_container_of(job, struct slot, job);

	slot->err = sg_io(slot->fd, &slot->task.hdr);
}

static enum nvefs_retry_kind retry_for(const sg_io_hdr_t *hdr, const uint8_t *sense)
{
	struct nvefs_sense s;
	bool has_sense = hdr->sb_len_wr > 0 && !nvefs_sense_parse(sense, hdr->sb_len_wr, &s);

	switch (hdr->host_status) {
	case DID_OK:
		break;
	case NVEFS_SCSI_HOST_TIME_OUT:
		return NVEFS_RETRY_ONCE;
	case DID_BUS_BUSY:
	case DID_RESET:
	case DID_SOFT_ERROR:
	case DID_IMM_RETRY:
	case DID_REQUEUE:
	case DID_TRANSPORT_DISRUPTED:
		return NVEFS_RETRY_PAUSE;
	default:
		return NVEFS_RETRY_NEVER;
	}
	return nvefs_sense_retryable(hdr->status, has_sense ? &s : NULL) ? NVEFS_RETRY_PAUSE
									 : NVEFS_RETRY_NEVER;
}

static int queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	struct scsi_linux *sl = scsi_from(dev);
	struct sg_queue *sq = calloc(1, sizeof(*sq) + q->depth * sizeof(sq->slots[0]));
	int err;

	if (!sq)
		return -ENOMEM;
	sq->unit = &sl->unit;
	for (uint32_t i = q->depth; i-- > 0;) {
		nvefs_list_init(&sq->slots[i].job.link);
		sq->slots[i].fd = sl->fd;
		sq->slots[i].next_free = sq->free;
		sq->free = &sq->slots[i];
	}
	err = nvefs_callers_new(THREADS, run, &sq->callers);
	if (err)
		goto free_queue;
	err = nvefs_queue_watch_fd(q, nvefs_callers_fd(sq->callers));
	if (!err)
		err = nvefs_retries_init(&sq->retries, q);
	if (err)
		goto free_callers;
	q->priv = sq;
	return 0;

free_callers:
	nvefs_callers_free(sq->callers);
free_queue:
	free(sq);
	return err;
}

static void queue_done(struct nvefs_queue *q)
{
	struct sg_queue *sq = q->priv;

	nvefs_retries_done(&sq->retries);
	nvefs_callers_free(sq->callers);
	free(sq);
}

static int submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct sg_queue *sq = q->priv;
	struct slot *slot = sq->free;
	int err;

	if (!slot)
		return -EAGAIN;
	err = nvefs_scsi_task_build(&slot->task, sq->unit, io, (int)(slot - sq->slots));
	if (err) {
		io->status.kind = NVEFS_STATUS_HOST;
		io->status.host_errno = err;
		nvefs_queue_finish_later(q, io, err);
		return 0;
	}
	sq->free = slot->next_free;
	slot->io = io;
	nvefs_retry_begin(&slot->retry);
	nvefs_callers_start(sq->callers, &slot->job);
	return 0;
}

static void finish(struct nvefs_queue *q, struct slot *slot)
{
	struct sg_queue *sq = q->priv;
	struct nvefs_io *io = slot->io;
	enum nvefs_retry_kind again = slot->err ? nvefs_retry_for_errno(slot->err)
						: retry_for(&slot->task.hdr, slot->task.sense);
	int err;

	slot->retry.in_doubt |= slot->err == -EINTR || (!slot->err && slot->task.hdr.host_status ==
									  NVEFS_SCSI_HOST_TIME_OUT);
	if (nvefs_retries_add(&sq->retries, &slot->retry, (struct nvefs_retry_want){.kind = again}))
		return;
	if (slot->err) {
		io->status.kind = NVEFS_STATUS_HOST;
		io->status.host_errno = slot->err;
		err = slot->err == -ENOMEM ? slot->err : -EIO;
	} else {
		err = nvefs_scsi_task_result(&slot->task, io);
	}
	err = nvefs_retry_result(&slot->retry, err);
	slot->next_free = sq->free;
	sq->free = slot;
	nvefs_queue_finish(q, io, err);
}

/* What the kernel wrote into the header of the last try goes. */
static void start_again(struct sg_queue *sq, struct slot *slot)
{
	nvefs_scsi_task_build(&slot->task, sq->unit, slot->io, (int)(slot - sq->slots));
	nvefs_callers_start(sq->callers, &slot->job);
}

static void poll_done(struct nvefs_queue *q, uint32_t max)
{
	struct sg_queue *sq = q->priv;
	struct nvefs_retry *e;
	struct nvefs_job *job;

	for (uint32_t n = 0; (!max || n < max) && (job = nvefs_callers_reap(sq->callers)); n++)
		finish(q, nvefs_container_of(job, struct slot, job));
	while ((e = nvefs_retries_due(&sq->retries)))
		start_again(sq, nvefs_container_of(e, struct slot, retry));
}

static bool prepare_wait(struct nvefs_queue *q)
{
	struct sg_queue *sq = q->priv;

	return nvefs_callers_prepare_wait(sq->callers) && nvefs_retries_prepare_wait(&sq->retries);
}

static void describe(const struct nvefs_dev *dev, char *buf, size_t len)
{
	const struct scsi_linux *sl = nvefs_container_of(dev, struct scsi_linux, dev);

	snprintf(buf, len, "SG_IO on /dev/%s",
		 sl->fd == sl->lock_fd ? sl->node.block : sl->node.character);
}

static void close_dev(struct nvefs_dev *dev)
{
	struct scsi_linux *sl = scsi_from(dev);

	if (sl->fd >= 0 && sl->fd != sl->lock_fd)
		close(sl->fd);
	nvefs_node_unlock(sl->lock_fd, sl->read_only);
	free(sl);
}

/* Waits. What the unit has to say first (UNIT ATTENTION) is taken out of the way. */
static int send_patiently(const struct scsi_linux *sl, sg_io_hdr_t *hdr, int tries)
{
	const sg_io_hdr_t fresh = *hdr;
	int err = 0;

	for (int i = 0; i < tries; i++) {
		*hdr = fresh;
		err = sg_io(sl->fd, hdr);
		if (err || retry_for(hdr, hdr->sbp) == NVEFS_RETRY_NEVER)
			break;
		usleep(10000u << (2 * i));
	}
	return err;
}

static int send_at_open(void *arg, sg_io_hdr_t *hdr)
{
	return send_patiently(arg, hdr, PROBE_TRIES);
}

static int send_for_health(void *arg, sg_io_hdr_t *hdr)
{
	hdr->timeout = HEALTH_TIMEOUT_MS;
	return send_patiently(arg, hdr, HEALTH_TRIES);
}

/* Any thread: SG_IO on one descriptor from several is the kernel's to sort out. */
static int health(struct nvefs_dev *dev, struct nvefs_drive_health *ret, struct nvefs_error *err)
{
	struct scsi_linux *sl = scsi_from(dev);

	return nvefs_scsi_health(send_for_health, sl, dev->identity.target, dev->limits.lba_bytes,
				 ret, err);
}

static const struct nvefs_backend_ops ops = {
    .name = "SCSI",
    .close = close_dev,
    .describe = describe,
    .health = health,
    .queue_init = queue_init,
    .queue_done = queue_done,
    .submit = submit,
    .poll = poll_done,
    .prepare_wait = prepare_wait,
};

/*
 * BLKSECTGET tells bytes on a sg node and sectors on a block node. The pages of a transfer
 * are counted, too: as many as the adapter's scatter list has entries.
 */
static uint32_t transfer_bytes(const struct scsi_linux *sl)
{
	struct nvefs_node_limits limits;
	uint64_t max = UINT32_MAX;
	int value = 0;

	if (sl->fd == sl->lock_fd) {
		unsigned short sectors = 0;

		if (!ioctl(sl->fd, BLKSECTGET, &sectors) && sectors)
			max = (uint64_t)sectors * SECTOR_BYTES;
	} else if (!ioctl(sl->fd, BLKSECTGET, &value) && value > 0) {
		max = (uint64_t)value;
	}
	if (sl->fd != sl->lock_fd && !ioctl(sl->fd, SG_GET_SG_TABLESIZE, &value) && value > 0 &&
	    (uint64_t)value * NVEFS_BLOCK_SIZE < max)
		max = (uint64_t)value * NVEFS_BLOCK_SIZE;
	nvefs_node_limits(SYSFS, &sl->node, &limits);
	return limits.max_bytes && limits.max_bytes < max ? limits.max_bytes : (uint32_t)max;
}

/*
 * Commands go by the block node, which is held anyway, whichever of the two was named, unless sg is
 * asked for: sg copies all that it transfers, through memory that it clears for each command but
 * one at a time (src/README.md has figures). A unit that no disk driver has goes by its only node,
 * and is locked by it.
 */
static int open_nodes(struct scsi_linux *sl, enum nvefs_sg_io way, const char *target,
		      struct nvefs_error *err)
{
	int mode =
	    O_RDWR | O_EXCL; /* for reading, too: sg gives nobody the lock who cannot write */

	if (sl->node.block[0]) {
		sl->fd = sl->lock_fd =
		    nvefs_node_lock(SYSFS, &sl->node, sl->read_only, target, err);
		if (sl->fd < 0 || way != NVEFS_SG_IO_SG)
			return sl->fd < 0 ? sl->fd : 0;
		mode = sl->read_only ? O_RDONLY : O_RDWR;
	} else if (way == NVEFS_SG_IO_SD) {
		return nvefs_error_set(
		    err, -ENODEV,
		    "%s: sg_io=sd: the kernel's disk driver does not have it: leave the option out",
		    target);
	}
	if (!sl->node.character[0])
		return nvefs_error_set(
		    err, -ENODEV,
		    "%s: sg_io=sg: it has no sg node: load the module sg (modprobe sg)", target);
	sl->fd = nvefs_node_open(SYSFS, &sl->node, false, mode);
	if (sl->fd >= 0)
		return 0;
	if (sl->fd == -EBUSY)
		return nvefs_error_set(err, sl->fd, "%s: in use: wait for the program that has it",
				       target);
	return nvefs_error_set(err, sl->fd, "%s: /dev/%s cannot be opened: %s", target,
			       sl->node.character, strerror(-sl->fd));
}

/* Which SYNCHRONIZE CACHE the unit knows, by having it done: no page of any unit tells. */
static int probe_sync(struct scsi_linux *sl, const char *target, struct nvefs_error *err)
{
	struct nvefs_io io = {.op = NVEFS_IO_FLUSH};
	struct nvefs_scsi_task task;
	int code = 0;

	for (int i = 0; i < 2; i++) {
		sl->unit.sync_10 = i;
		nvefs_scsi_task_build(&task, &sl->unit, &io, 0);
		code = send_at_open(sl, &task.hdr);
		if (!code)
			code = nvefs_scsi_task_result(&task, &io);
		if (code != -EOPNOTSUPP)
			break;
	}
	/* Without a cache there may be no such command either. */
	if (code == -EOPNOTSUPP && !sl->dev.limits.volatile_cache)
		code = 0;
	return code ? nvefs_error_set(err, code, "%s: SYNCHRONIZE CACHE fails: %s", target,
				      strerror(-code))
		    : 0;
}

static int learn(struct scsi_linux *sl, const char *target, struct nvefs_error *err)
{
	struct nvefs_dev_limits *l = &sl->dev.limits;
	uint32_t max_bytes = transfer_bytes(sl);
	int code;

	if (max_bytes < NVEFS_BLOCK_SIZE)
		return nvefs_error_set(
		    err, -ENOTSUP, "%s: the kernel allows %u bytes in a command: 4096 are needed",
		    target, max_bytes);
	l->max_transfer_blks = max_bytes / NVEFS_BLOCK_SIZE;
	sl->dev.drive.scsi.kernel_transfer_bytes = max_bytes == UINT32_MAX ? 0 : max_bytes;
	l->max_segments = l->max_transfer_blks < MAX_SEGMENTS ? l->max_transfer_blks : MAX_SEGMENTS;
	l->mem_align = NVEFS_BLOCK_SIZE;
	l->max_queues = MAX_QUEUES;
	l->queue_depth = DEPTH;
	l->read_only = sl->read_only;
	snprintf(sl->dev.identity.target, sizeof(sl->dev.identity.target), "%.255s", target);
	code = nvefs_scsi_probe(&sl->dev, &sl->unit, send_at_open, sl, err);
	if (!code)
		code = probe_sync(sl, target, err);
	if (!code && sl->node.block[0])
		snprintf(sl->dev.identity.block_node, sizeof(sl->dev.identity.block_node),
			 "/dev/%s", sl->node.block);
	return code;
}

int nvefs_scsi_linux_open(const struct nvefs_uri *uri, const struct nvefs_node *node,
			  const struct nvefs_scsi_linux_options *o,
			  const struct nvefs_dev_open_opts *open_opts, struct nvefs_dev **ret_dev,
			  struct nvefs_error *err)
{
	struct scsi_linux *sl = calloc(1, sizeof(*sl));
	int code;

	if (!sl)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", uri->name);
	nvefs_dev_init(&sl->dev, &ops, NULL);
	sl->dev.route = NVEFS_ROUTE_SCSI;
	sl->node = *node;
	sl->read_only = open_opts->flags & NVEFS_OPEN_RDONLY;
	sl->fd = sl->lock_fd = -1;
	code = open_nodes(sl, o->sg_io, uri->name, err);
	if (!code)
		code = learn(sl, uri->name, err);
	if (code) {
		nvefs_dev_done(&sl->dev);
		close_dev(&sl->dev);
		return code;
	}
	*ret_dev = &sl->dev;
	return 0;
}
