/* SPDX-License-Identifier: MIT */
/* What the device says about itself, turned into limits and identity. For every back end that takes
 * admin commands. */
#ifndef NVEFS_DEVICE_IDENTIFY_H
#define NVEFS_DEVICE_IDENTIFY_H

#include "device/backend.h"

/*
 * Ask the controller and namespace `nsid` through dev->ops->admin and fill dev->limits and
 * dev->identity, except what only the transport knows: max_segments, mem_align,
 * max_queues, queue_depth stay as they are, and `transport_max_bytes` bounds
 * one transfer; of dev->drive the same with what the kernel allows. 0; -ENOTSUP for a namespace that cannot be driven (metadata, LBA
 * size); -EIO and others, with *err naming `target`.
 */
int nvefs_dev_identify(struct nvefs_dev *dev, const char *target, uint32_t nsid,
		       uint32_t transport_max_bytes, struct nvefs_error *err);

/* Why an admin command could not be carried out, for a negative errno of ops->admin. */
const char *nvefs_admin_error_text(int code);

#endif
