/* SPDX-License-Identifier: MIT */
#include "device/nvme_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libnvme.h>

#include "device/identify.h"
#include "device/retry.h"
#include "nvme/status.h"

#define SYSFS "/sys"
#define MAX_QUEUES 256u /* rings are ours: there may be more than hardware queues */
#define DEPTH 128u
#define MAX_SEGMENTS 1024u /* what the kernel takes of a scatter list (UIO_MAXIOV) */
#define ADMIN_TIMEOUT_MS 10000u

static int set_passthrough(void *config, const char *value)
{
	struct nvefs_nvme_linux_options *o = config;

	if (!value)
		return -EINVAL;
	if (!strcmp(value, "auto"))
		o->passthrough = NVEFS_PASSTHROUGH_AUTO;
	else if (!strcmp(value, "uring"))
		o->passthrough = NVEFS_PASSTHROUGH_URING;
	else if (!strcmp(value, "ioctl"))
		o->passthrough = NVEFS_PASSTHROUGH_IOCTL;
	else
		return -EINVAL;
	return 0;
}

static int set_timeout(void *config, const char *value)
{
	struct nvefs_nvme_linux_options *o = config;
	uint64_t ns;

	if (!nvefs_value_duration(value, &ns) || ns < 1000000 || ns / 1000000 > UINT32_MAX)
		return -EINVAL;
	o->timeout_ms = (uint32_t)(ns / 1000000);
	return 0;
}

const struct nvefs_uri_option nvefs_nvme_linux_option_table[] = {
    {"passthrough", "auto|uring|ioctl",
     "commands by io_uring (auto: if the kernel can) or by ioctl", set_passthrough},
    {"timeout", "TIME", "the kernel gives a command up after this (nvme_core.io_timeout)", set_timeout},
    {NULL, NULL, NULL, NULL}};

/* Of a command that reads or writes more than one block the kernel may take a part. */
static bool can_shrink(struct nvefs_io *io)
{
	struct nvefs_raw_io *raw;

	if (io->op != NVEFS_IO_RAW)
		return io->nblks > 1 && (io->op == NVEFS_IO_READ || io->op == NVEFS_IO_WRITE ||
					 io->op == NVEFS_IO_COMPARE);
	raw = nvefs_raw_from_io(io);
	return raw->data_bytes > NVEFS_BLOCK_SIZE &&
	       (raw->sqe.opcode == NVEFS_NVME_READ || raw->sqe.opcode == NVEFS_NVME_WRITE ||
		raw->sqe.opcode == NVEFS_NVME_COMPARE);
}

/* Without a usable path, and by ioctl (EAGAIN) or by io_uring (EINVAL), a multipath namespace answers so. */
static enum nvefs_node_paths look_at_paths(const struct nvefs_nvme_linux *nl, int res)
{
	if (!nl->multipath)
		return NVEFS_PATHS_ONE;
	return res == -EINVAL || res == -EAGAIN ? nvefs_node_paths(SYSFS, &nl->node) : NVEFS_PATHS_LIVE;
}

/*
 * EINVAL says that a transfer is above a limit that we do not know, or that a multipath namespace has
 * no usable path. Where there is a path now, it may have come a moment ago: one more try tells.
 */
struct nvefs_retry_want nvefs_nvme_linux_want(const struct nvefs_nvme_linux *nl, enum nvefs_node_paths paths,
					      const struct nvefs_retry *e, struct nvefs_io *io, int res)
{
	struct nvefs_retry_want want = nvefs_retry_for_result(res, nl->dev.drive.nvme.crdt_ms);

	if (paths == NVEFS_PATHS_GONE)
		want.kind = NVEFS_RETRY_NEVER;
	if (res != -EINVAL || !can_shrink(io))
		return want;
	if (paths == NVEFS_PATHS_ONE)
		want.kind = NVEFS_RETRY_NEVER;
	if (paths == NVEFS_PATHS_LIVE)
		want.kind = e->tries ? NVEFS_RETRY_NEVER : NVEFS_RETRY_ONCE;
	return want;
}

int nvefs_nvme_linux_result(enum nvefs_node_paths paths, struct nvefs_io *io, int res)
{
	if (res >= 0)
		return nvefs_io_set_nvme_status(io, (uint16_t)res);
	io->status.kind = NVEFS_STATUS_HOST;
	io->status.host_errno = res;
	if (res == -EINVAL && can_shrink(io) && (paths == NVEFS_PATHS_ONE || paths == NVEFS_PATHS_LIVE))
		return -EMSGSIZE;
	/*
	 * EINTR: the kernel gave the command up; a target at the other end of a network may still be at
	 * work on it. Whatever else the kernel says, the command could not be carried out.
	 */
	return res == -ENOMEM ? res : res == -EINTR ? -ETIMEDOUT : -EIO;
}

bool nvefs_nvme_linux_again(const struct nvefs_nvme_linux *nl, struct nvefs_retries *retries, struct nvefs_retry *e,
			    struct nvefs_io *io, int res, int *ret_err)
{
	enum nvefs_node_paths paths = look_at_paths(nl, res);

	e->in_doubt |= res == -EINTR;
	if (nvefs_retries_add(retries, e, nvefs_nvme_linux_want(nl, paths, e, io, res)))
		return true;
	*ret_err = nvefs_retry_result(e, nvefs_nvme_linux_result(paths, io, res));
	return false;
}

static int admin_once(int fd, const struct nvefs_nvme_sqe *sqe, void *data, uint32_t len,
		      uint32_t *ret_result)
{
	struct nvme_passthru_cmd cmd = {
	    .opcode = sqe->opcode,
	    .nsid = le32_get(sqe->nsid),
	    .cdw2 = le32_get(sqe->cdw2),
	    .cdw3 = le32_get(sqe->cdw3),
	    .addr = len ? (uintptr_t)data : 0,
	    .data_len = len,
	    .cdw10 = le32_get(sqe->cdw10),
	    .cdw11 = le32_get(sqe->cdw11),
	    .cdw12 = le32_get(sqe->cdw12),
	    .cdw13 = le32_get(sqe->cdw13),
	    .cdw14 = le32_get(sqe->cdw14),
	    .cdw15 = le32_get(sqe->cdw15),
	    .timeout_ms = ADMIN_TIMEOUT_MS,
	};
	int status = nvme_submit_admin_passthru(fd, &cmd, ret_result);

	return status < 0 ? -errno : status;
}

int nvefs_nvme_linux_admin(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data,
			   uint32_t len, uint32_t *ret_result, uint16_t *ret_status)
{
	struct nvefs_nvme_linux *nl = nvefs_nvme_linux_from(dev);
	struct nvefs_retry tries = {.tries = 0};
	uint64_t pause_ns;
	uint32_t result = 0;
	int status;

	do {
		status = admin_once(nl->fd, sqe, data, len, &result);
		if (look_at_paths(nl, status) == NVEFS_PATHS_GONE)
			break;
		if (!nvefs_retry_next(&tries, nvefs_retry_for_result(status, dev->drive.nvme.crdt_ms), &pause_ns))
			break;
		usleep((useconds_t)(pause_ns / 1000));
	} while (true);
	if (status == -EINTR)
		return -ETIMEDOUT;
	if (status < 0)
		return status;
	*ret_status = (uint16_t)status;
	*ret_result = result;
	return 0;
}

void nvefs_nvme_linux_describe(const struct nvefs_dev *dev, char *buf, size_t len)
{
	const struct nvefs_nvme_linux *nl = nvefs_container_of(dev, struct nvefs_nvme_linux, dev);

	snprintf(buf, len, "%s, hardware queues %u", nl->way, dev->drive.nvme.hw_queues);
}

void nvefs_nvme_linux_close(struct nvefs_dev *dev)
{
	struct nvefs_nvme_linux *nl = nvefs_nvme_linux_from(dev);

	if (nl->fd >= 0 && nl->fd != nl->lock_fd)
		close(nl->fd);
	nvefs_node_unlock(nl->lock_fd, nl->read_only);
	free(nl);
}

/* The number of the namespace, which both nodes tell alike. */
static int learn_nsid(struct nvefs_nvme_linux *nl, const char *target, uint32_t *ret_nsid,
		      struct nvefs_error *err)
{
	uint32_t nsid, locked;

	if (nvme_get_nsid(nl->fd, &nsid) || nvme_get_nsid(nl->lock_fd, &locked))
		return nvefs_error_set(err, -errno, "%s: cannot be asked for its namespace: %s",
				       target, strerror(errno));
	if (nsid != locked)
		return nvefs_error_set(err, -ENODEV, "%s: /dev/%s and /dev/%s are not one namespace",
				       target, nl->node.character, nl->node.block);
	*ret_nsid = nsid;
	return 0;
}

static void use_ioctl(struct nvefs_nvme_linux *nl, const char *why)
{
	nl->dev.ops = &nvefs_nvme_ioctl_ops;
	snprintf(nl->way, sizeof(nl->way), "ioctl on /dev/%s%s",
		 nl->fd == nl->lock_fd ? nl->node.block : nl->node.character, why);
}

static void use_uring(struct nvefs_nvme_linux *nl)
{
	nl->dev.ops = &nvefs_nvme_uring_ops;
	snprintf(nl->way, sizeof(nl->way), "io_uring on /dev/%s", nl->node.character);
}

/* The ng node when it is there and we are to use it; else commands go by the block node. */
static int open_commands(struct nvefs_nvme_linux *nl, const struct nvefs_nvme_linux_options *o,
			 const char *target, struct nvefs_error *err)
{
	bool needed = !nl->node.by_block || o->passthrough == NVEFS_PASSTHROUGH_URING;

	nl->fd = nl->lock_fd;
	use_ioctl(nl, o->passthrough == NVEFS_PASSTHROUGH_IOCTL ? "" : " (it has no ng node)");
	if (nl->node.by_block && o->passthrough == NVEFS_PASSTHROUGH_IOCTL)
		return 0;
	nl->fd = nvefs_node_open(SYSFS, &nl->node, false, nl->read_only ? O_RDONLY : O_RDWR);
	if (nl->fd < 0 && needed)
		return nvefs_error_set(err, nl->fd, "%s: its character node %s cannot be opened: %s",
				       target, nl->node.character, strerror(-nl->fd));
	if (nl->fd < 0)
		nl->fd = nl->lock_fd;
	return 0;
}

/* By what commands go, decided once, at open, and told. */
static int choose_way(struct nvefs_nvme_linux *nl, const struct nvefs_nvme_linux_options *o,
		      const char *target, struct nvefs_error *err)
{
	int code;

	if (o->passthrough == NVEFS_PASSTHROUGH_IOCTL) {
		use_ioctl(nl, "");
		return 0;
	}
	if (nl->fd == nl->lock_fd)
		return 0;
	code = nvefs_nvme_uring_probe(nl->fd, nl->dev.identity.nsid, nl->dev.limits.lba_bytes);
	if (!code) {
		use_uring(nl);
		return 0;
	}
	if (code == -ENOTSUP && o->passthrough == NVEFS_PASSTHROUGH_AUTO) {
		use_ioctl(nl, " (the kernel does not take NVMe commands by io_uring)");
		return 0;
	}
	if (code == -EACCES || code == -EPERM)
		return nvefs_error_set(err, code,
				       "%s: the kernel refuses NVMe commands: be root (CAP_SYS_ADMIN)",
				       target);
	return nvefs_error_set(err, code, "%s: NVMe commands by io_uring: %s", target,
			       strerror(-code));
}

static int learn(struct nvefs_nvme_linux *nl, const char *target, struct nvefs_error *err)
{
	struct nvefs_node_limits limits;
	uint32_t nsid = 0;
	int code = learn_nsid(nl, target, &nsid, err);

	if (code)
		return code;
	nvefs_node_limits(SYSFS, &nl->node, &limits);
	if (limits.max_bytes < NVEFS_BLOCK_SIZE)
		return nvefs_error_set(err, -ENOTSUP,
				       "%s: the kernel allows %u bytes in a command: 4096 are needed",
				       target, limits.max_bytes);
	nl->multipath = limits.multipath;
	nl->dev.drive.nvme.hw_queues = limits.hw_queues;
	nl->dev.drive.nvme.kernel_transfer_bytes = limits.transfer_bytes;
	nl->dev.drive.nvme.kernel_segments_bytes = limits.segments_bytes;
	nl->dev.limits.max_segments = limits.max_bytes / NVEFS_BLOCK_SIZE;
	if (nl->dev.limits.max_segments > MAX_SEGMENTS)
		nl->dev.limits.max_segments = MAX_SEGMENTS;
	nl->dev.limits.mem_align = NVEFS_BLOCK_SIZE;
	nl->dev.limits.max_queues = MAX_QUEUES;
	nl->dev.limits.queue_depth = DEPTH;
	nl->dev.identity.nsid = nsid;
	code = nvefs_dev_identify(&nl->dev, target, nsid, limits.max_bytes, err);
	if (code)
		return code;
	nl->lba_shift = NVEFS_BLOCK_SHIFT - (uint32_t)__builtin_ctz(nl->dev.limits.lba_bytes);
	nl->dev.limits.read_only |= nl->read_only;
	snprintf(nl->dev.identity.block_node, sizeof(nl->dev.identity.block_node), "/dev/%s",
		 nl->node.block);
	return 0;
}

int nvefs_nvme_linux_open(const struct nvefs_uri *uri, const struct nvefs_node *node,
			  const struct nvefs_nvme_linux_options *o,
			  const struct nvefs_dev_open_opts *open_opts, struct nvefs_dev **ret_dev,
			  struct nvefs_error *err)
{
	struct nvefs_nvme_linux *nl = calloc(1, sizeof(*nl));
	int code = 0;

	if (!nl)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", uri->name);
	nvefs_dev_init(&nl->dev, &nvefs_nvme_ioctl_ops, NULL);
	nl->node = *node;
	nl->read_only = open_opts->flags & NVEFS_OPEN_RDONLY;
	nl->timeout_ms = o->timeout_ms;
	nl->fd = -1;
	nl->lock_fd = nvefs_node_lock(SYSFS, node, nl->read_only, uri->name, err);
	if (nl->lock_fd < 0)
		code = nl->lock_fd;
	if (!code)
		code = open_commands(nl, o, uri->name, err);
	if (!code)
		code = learn(nl, uri->name, err);
	if (!code)
		code = choose_way(nl, o, uri->name, err);
	if (code) {
		nvefs_dev_done(&nl->dev);
		nvefs_nvme_linux_close(&nl->dev);
		return code;
	}
	/* As written, for messages and the record of what a file system was made on. */
	snprintf(nl->dev.identity.target, sizeof(nl->dev.identity.target), "%s", uri->text);
	*ret_dev = &nl->dev;
	return 0;
}
