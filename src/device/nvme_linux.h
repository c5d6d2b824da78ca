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
 * A try of a command ended with `res`: 0, a positive status field, or a negative errno. True: it comes
 * out of `retries` again. False: io->status is set and *ret_err is the io's result, -ETIMEDOUT
 * when the kernel gave one of the tries up, -EMSGSIZE when it refused the command for its size.
 */
bool nvefs_nvme_linux_again(const struct nvefs_nvme_linux *nl, struct nvefs_retries *retries, struct nvefs_retry *e,
			    struct nvefs_io *io, int res, int *ret_err);
/* Its two halves, for `paths` as they are at that moment: whether there is to be another try, and what it ends with. */
struct nvefs_retry_want nvefs_nvme_linux_want(const struct nvefs_nvme_linux *nl, enum nvefs_node_paths paths,
					      const struct nvefs_retry *e, struct nvefs_io *io, int res);
int nvefs_nvme_linux_result(enum nvefs_node_paths paths, struct nvefs_io *io, int res);

extern const struct nvefs_backend_ops nvefs_nvme_uring_ops, nvefs_nvme_ioctl_ops;
/*
 * Whether the kernel takes commands for the namespace by io_uring on `fd`: one block is
 * read. 0, or a negative errno: -ENOTSUP when the kernel cannot, -EACCES when we may not.
 */
int nvefs_nvme_uring_probe(int fd, uint32_t nsid, uint32_t lba_bytes);

#endif
