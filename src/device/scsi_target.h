/* SPDX-License-Identifier: MIT */
/*
 * The target's side of the scsi route: a namespace as a logical unit. A
 * sg_io_hdr is translated, its NVMe commands are sent as raw entries, and what
 * they come to is written into the header, as the kernel's SG driver would.
 */
#ifndef NVEFS_DEVICE_SCSI_TARGET_H
#define NVEFS_DEVICE_SCSI_TARGET_H

#include <scsi/sg.h>

#include "device/backend.h"
#include "scsi/sntl.h"

struct nvefs_scsi_target {
	struct nvefs_nvme_ctrl_info ctrl;
	struct nvefs_nvme_ns_info ns;
	struct nvefs_sntl_lu lu;
	struct nvefs_dev *below;
};
/* Asks the controller of `below`, which must take raw entries. 0 or a negative errno, said in *err.
 */
int nvefs_scsi_target_init(struct nvefs_scsi_target *t, struct nvefs_dev *below, uint32_t mistakes,
			   struct nvefs_error *err);

struct nvefs_scsi_exec;
struct nvefs_scsi_exec_part {
	struct nvefs_raw_io raw;
	struct nvefs_scsi_exec *exec;
	void *bounce;
};
/* One command under way. The caller sets the first group; the rest is the target's. */
struct nvefs_scsi_exec {
	sg_io_hdr_t *hdr;
	struct nvefs_nvme_dsm_range *ranges; /* as in struct nvefs_sntl_request */
	uint32_t max_ranges;
	void (*done)(struct nvefs_scsi_exec *exec); /* from a poll of the queue; hdr is answered */

	const struct nvefs_scsi_target *target;
	struct nvefs_queue *queue;
	int host_err; /* 0, or why a command came back without NVMe status; hdr->host_status is set
		       */
	struct nvefs_sntl_cmd cmd;
	struct nvefs_scsi_exec_part part[NVEFS_SNTL_MAX_PARTS];
};

/* True: commands are under way on `q` and `done` will be called. False: hdr is answered already. */
bool nvefs_scsi_exec_start(struct nvefs_scsi_exec *exec, const struct nvefs_scsi_target *t,
			   struct nvefs_queue *q);
/* Without a queue: only commands that ask and send nothing; -EIO for others. */
int nvefs_scsi_exec_query(const struct nvefs_scsi_target *t, sg_io_hdr_t *hdr);

#endif
