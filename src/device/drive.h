/* SPDX-License-Identifier: MIT */
/* Filling and telling struct nvefs_drive of <nvefs/drive.h>. */
#ifndef NVEFS_DEVICE_DRIVE_H
#define NVEFS_DEVICE_DRIVE_H

#include <nvefs/drive.h>

#include "base/fact.h"
#include "nvme/identify.h"

/* All but the cache, the queues, the pages that are there and what the kernel allows. */
void nvefs_drive_set_nvme(struct nvefs_drive *d, const struct nvefs_nvme_ctrl_info *ctrl,
			  const struct nvefs_nvme_ns_info *ns, uint32_t nsid);
/* The transfer that was decided on, and which of the limits in `d` it comes from. */
void nvefs_drive_set_transfer(struct nvefs_drive *d, uint32_t max_transfer_blks);

/* Everything, one fact after the other, in the order in which people read it. */
void nvefs_drive_nvme_facts(const struct nvefs_drive *d, nvefs_fact_fn *fn, void *arg);
void nvefs_drive_scsi_facts(const struct nvefs_drive *d, nvefs_fact_fn *fn, void *arg);
/*
 * False for a fact of the first two that is no more than a drive's silence: a limit of 0, an empty
 * text. People are not shown it.
 */
bool nvefs_drive_fact_reported(const struct nvefs_fact *f);
void nvefs_drive_health_facts(const struct nvefs_drive_health *h, nvefs_fact_fn *fn, void *arg);

#endif
