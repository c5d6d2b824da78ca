/* SPDX-License-Identifier: MIT */
/* What a SCSI unit says of its health, told in the terms of NVMe's SMART log where they mean the same. */
#ifndef NVEFS_DEVICE_SCSI_HEALTH_H
#define NVEFS_DEVICE_SCSI_HEALTH_H

#include <nvefs/drive.h>

#include "device/scsi_initiator.h"
#include "scsi/log.h"

/*
 * Ask by LOG SENSE for those pages of scsi/log.h that page 00h lists. As nvefs_dev_health: -ENOTSUP when
 * the unit has none of them; *ret is untouched on failure.
 */
int nvefs_scsi_health(nvefs_scsi_send_fn *send, void *arg, const char *target, uint32_t lba_bytes,
		      struct nvefs_drive_health *ret, struct nvefs_error *err);
/* The same without the asking: what the pages have said. */
void nvefs_scsi_health_tell(const struct nvefs_scsi_health *h, uint32_t lba_bytes, struct nvefs_drive_health *ret);

#endif
