/* SPDX-License-Identifier: MIT */
/*
 * The initiator's side of SCSI: an io becomes a command descriptor block and
 * a sg_io_hdr, and what comes back is decoded into the io's status; the unit
 * is asked for its limits and identity. The same for the translating route and
 * for the kernel's SG_IO.
 */
#ifndef NVEFS_DEVICE_SCSI_INITIATOR_H
#define NVEFS_DEVICE_SCSI_INITIATOR_H

#include <scsi/sg.h>

#include "device/backend.h"
#include "scsi/sense.h"

/* Host status of a command that did not get as far as a SCSI status (Linux, DID_ERROR). */
#define NVEFS_SCSI_HOST_ERROR 0x07
#define NVEFS_SCSI_HOST_TIME_OUT 0x03 /* DID_TIME_OUT */
#define NVEFS_SCSI_DRIVER_SENSE 0x08 /* driver status: sense data is there */
#define NVEFS_SCSI_TIMEOUT_MS 30000u

/* What the initiator has to know of the unit to build commands; filled by nvefs_scsi_probe. */
struct nvefs_scsi_unit {
	uint32_t lba_bytes, lba_shift; /* shift: from blocks */
	bool unmap;		       /* UNMAP works */
	bool write_same_unmap;	       /* WRITE SAME(16) may be told to unmap */
	bool sync_10;		       /* of SYNCHRONIZE CACHE it knows the short form only */
	uint8_t zeros[NVEFS_BLOCK_SIZE];
};

/* One command with all that its header points to, except the io's own buffers. */
struct nvefs_scsi_task {
	sg_io_hdr_t hdr;
	uint8_t cdb[16];
	uint8_t sense[NVEFS_SENSE_MAX];
	uint8_t unmap[24];
};

/* The io fits the limits that the probe gave. 0, or -ENOTSUP for an operation the unit has no
 * command for. */
int nvefs_scsi_task_build(struct nvefs_scsi_task *task, const struct nvefs_scsi_unit *unit,
			  const struct nvefs_io *io, int pack_id);
/* The header came back: set io->status and return the io's result. */
int nvefs_scsi_task_result(const struct nvefs_scsi_task *task, struct nvefs_io *io);

/* Execute one command and wait; 0 when hdr has status and sense, else a negative errno. */
typedef int nvefs_scsi_send_fn(void *arg, sg_io_hdr_t *hdr);

/*
 * Send a command that reads up to c->count bytes into `buf`, and wait. 0 with *ret_len what came, a
 * refusal by the unit as its errno (nvefs_sense_errno), -ETIMEDOUT, -EIO.
 */
struct nvefs_cdb;
int nvefs_scsi_ask(nvefs_scsi_send_fn *send, void *arg, struct nvefs_cdb *c, void *buf, uint32_t *ret_len);

/*
 * Ask the unit by `send` for INQUIRY and its pages, READ CAPACITY and MODE
 * SENSE, and fill *ret_unit, dev->limits and dev->identity. Of the limits, what
 * only the transport knows (max_segments, mem_align, max_queues, queue_depth)
 * stays, and max_transfer_blks is lowered only. -ENOTSUP for a unit that cannot
 * be driven, -EUCLEAN for answers that make no sense; *err says it.
 */
int nvefs_scsi_probe(struct nvefs_dev *dev, struct nvefs_scsi_unit *ret_unit,
		     nvefs_scsi_send_fn *send, void *arg, struct nvefs_error *err);

#endif
