/* SPDX-License-Identifier: MIT */
/* An io as an NVMe command: submission entry and data, for every transport that carries such. */
#ifndef NVEFS_DEVICE_IO_COMMAND_H
#define NVEFS_DEVICE_IO_COMMAND_H

#include "device/backend.h"

struct nvefs_io_command {
	struct nvefs_nvme_sqe sqe; /* CID and data pointer are the transport's to set */
	const struct iovec *iov;   /* niov 0: no data */
	uint32_t niov;
	struct iovec range_iov;
	struct nvefs_nvme_dsm_range range; /* data of a discard */
};

/* `lba_shift`: from blocks to LBAs. A raw io's entry is taken as it is. `c` stays where it is. */
void nvefs_io_command_build(struct nvefs_io_command *c, const struct nvefs_io *io, uint32_t nsid,
			    uint32_t lba_shift);

#endif
