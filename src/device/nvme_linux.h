/* SPDX-License-Identifier: MIT */
/*
 * A namespace of the kernel's NVMe driver, driven by passthrough. Two ways for
 * the commands, each a table of queue operations: io_uring on the ng node, or
 * ioctls by a few threads for each queue. Identify, features and logs go by ioctl
 * through libnvme. The kernel splits nothing: what is above its limits fails.
 */
#ifndef NVEFS_DEVICE_NVME_LINUX_H
#define NVEFS_DEVICE_NVME_LINUX_H

#include "device/backend.h"
#include "device/node.h"
#include "device/retry.h"
#include "device/uri.h"

enum nvefs_passthrough { NVEFS_PASSTHROUGH_AUTO, NVEFS_PASSTHROUGH_URING, NVEFS_PASSTHROUGH_IOCTL };

/* What the target options set; see nvefs_nvme_linux_option_table. */
struct nvefs_nvme_linux_options {
	enum nvefs_passthrough passthrough;
	uint32_t timeout_ms; /* of an I/O command, kept by the kernel; 0: the driver's own */
};
extern const struct nvefs_uri_option nvefs_nvme_linux_option_table[];

struct nvefs_nvme_linux {
	struct nvefs_dev dev;
	struct nvefs_node node;
	bool read_only;
	int lock_fd;	  /* block node, held exclusively */
	int fd;		  /* for commands: the ng node's, or lock_fd */
	uint32_t lba_shift; /* from blocks */
	uint32_t timeout_ms;
	bool multipath;
	char way[128];	  /* for describe */
};
static inline struct nvefs_nvme_linux *nvefs_nvme_linux_from(struct nvefs_dev *dev)
{
	return nvefs_container_of(dev, struct nvefs_nvme_linux, dev);
}

/* `node` is a namespace's. 0 or a negative errno said in *err. */
int nvefs_nvme_linux_open(const struct nvefs_uri *uri, const struct nvefs_node *node,
			  const struct nvefs_nvme_linux_options *o,
			  const struct nvefs_dev_open_opts *open_opts, struct nvefs_dev **ret_dev,
			  struct nvefs_error *err);

/* Common to both tables. */
void nvefs_nvme_linux_close(struct nvefs_dev *dev);
void nvefs_nvme_linux_describe(const struct nvefs_dev *dev, char *buf, size_t len);
int nvefs_nvme_linux_admin(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data,
			   uint32_t len, uint32_t *ret_result, uint16_t *ret_status);
/*
 * How a command ended: `res` 0, a positive status field, or a negative errno. Whether it is to be
 * tried again; if not, nvefs_nvme_linux_result sets io->status and returns the io's result:
 * -ETIMEDOUT when the kernel gave the command up, -EMSGSIZE when it refused it for its size.
 */
struct nvefs_retry_want nvefs_nvme_linux_want(const struct nvefs_nvme_linux *nl, const struct nvefs_io *io, int res);
int nvefs_nvme_linux_result(struct nvefs_io *io, int res);

extern const struct nvefs_backend_ops nvefs_nvme_uring_ops, nvefs_nvme_ioctl_ops;
/*
 * Whether the kernel takes commands for the namespace by io_uring on `fd`: one block is
 * read. 0, or a negative errno: -ENOTSUP when the kernel cannot, -EACCES when we may not.
 */
int nvefs_nvme_uring_probe(int fd, uint32_t nsid, uint32_t lba_bytes);

#endif
