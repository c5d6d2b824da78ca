/* SPDX-License-Identifier: MIT */
/* Wrappers that nvefs_dev_open itself puts over a target. */
#ifndef NVEFS_DEVICE_WRAP_H
#define NVEFS_DEVICE_WRAP_H

#include "device/backend.h"

/* Put the translating scsi route on top. `below` is taken over on success only. 0 or -errno. */
int nvefs_scsi_wrap(struct nvefs_dev *below, struct nvefs_dev **ret_dev, struct nvefs_error *err);

#endif
