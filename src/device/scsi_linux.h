/* SPDX-License-Identifier: MIT */
/*
 * A logical unit of the kernel's SCSI layer, by SG_IO on its sg or its block node:
 * the header that the scsi route builds goes to the kernel in place of the translation.
 */
#ifndef NVEFS_DEVICE_SCSI_LINUX_H
#define NVEFS_DEVICE_SCSI_LINUX_H

#include "device/backend.h"
#include "device/node.h"
#include "device/uri.h"

/* By which node commands go; AUTO: by sd's where there is one. */
enum nvefs_sg_io { NVEFS_SG_IO_AUTO, NVEFS_SG_IO_SD, NVEFS_SG_IO_SG };

/* What the target options set; see nvefs_scsi_linux_option_table. */
struct nvefs_scsi_linux_options {
	enum nvefs_sg_io sg_io;
};
extern const struct nvefs_uri_option nvefs_scsi_linux_option_table[];

/* `node` is a logical unit's. 0 or a negative errno said in *err. */
int nvefs_scsi_linux_open(const struct nvefs_uri *uri, const struct nvefs_node *node,
			  const struct nvefs_scsi_linux_options *o,
			  const struct nvefs_dev_open_opts *open_opts, struct nvefs_dev **ret_dev,
			  struct nvefs_error *err);

#endif
