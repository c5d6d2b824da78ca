/* SPDX-License-Identifier: MIT */
/*
 * The scsi route: a wrapper that makes each io a SCSI command and a sg_io_hdr,
 * passes it through a logical-unit queue, translates it to NVMe submission
 * entries for the device below, and decodes its sense data again. Nothing is
 * slowed on purpose; each way in which it differs from the native route can be
 * switched off, so that a cost can be put down to its cause.
 */
#ifndef NVEFS_DEVICE_SCSI_ROUTE_H
#define NVEFS_DEVICE_SCSI_ROUTE_H

#include <scsi/sg.h>

#include "device/backend.h"
#include "device/uri.h"

struct nvefs_scsi_route_opts {
	/* One logical-unit queue, under one lock, for all queues of the device; false: one for
	 * each. */
	bool single_queue;
	/* Commands outstanding in one logical-unit queue. */
	uint32_t depth;
	/* False: ios pass the logical-unit queue and go on as they are, without SCSI in between. */
	bool translate;
	/* NVEFS_SNTL_* of scsi/sntl.h: mistakes for tests to make. */
	uint32_t mistakes;
};
/* One queue, 254 outstanding as the old port driver has it, translated, no mistakes. */
#define NVEFS_SCSI_ROUTE_DEPTH 254u
extern const struct nvefs_scsi_route_opts nvefs_scsi_route_defaults;
/* The target options scsi_*=, which set a struct nvefs_scsi_route_opts; without effect natively. */
extern const struct nvefs_uri_option nvefs_scsi_route_option_table[];
/* " fua flush": the mistakes by the names of scsi_mistake=. */
void nvefs_scsi_mistakes_text(uint32_t mistakes, char *buf, size_t len);

/*
 * Put the route over `below`, which is taken over on success only. Translating
 * needs a device that takes raw submission entries: else -ENOTSUP. Limits and
 * identity are those that the SCSI side reports. `err` may be NULL.
 */
int nvefs_scsi_route_open(struct nvefs_dev *below, const struct nvefs_scsi_route_opts *opts,
			  struct nvefs_dev **ret_dev, struct nvefs_error *err);

/*
 * Execute any SCSI command, as SG_IO does: 0 when hdr has status and sense, a
 * negative errno when it could not be executed; -ENOTSUP when `q` is no queue of a
 * translating route. Waits, running callbacks of other ios of the queue meanwhile;
 * wakes of the queue that come then are swallowed.
 */
int nvefs_scsi_route_sg_io(struct nvefs_queue *q, sg_io_hdr_t *hdr);

#endif
