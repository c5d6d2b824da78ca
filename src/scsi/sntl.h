/* SPDX-License-Identifier: MIT */
/*
 * The translation of SCSI commands to NVMe commands, after the NVM Express
 * SCSI Translation Reference 1.5 (SNTL): a pure function from a command
 * descriptor block and the Identify data of a namespace to either an answer or
 * NVMe commands to be sent, and from NVMe status back to SCSI status and
 * sense. Any bytes of any length may be given.
 *
 * Where it differs from the Reference, on purpose: exhausted capacity is
 * DATA PROTECT, SPACE ALLOCATION FAILED (SBC-3, 4.7.3.6) rather than a medium
 * error, so that it arrives as "no space" on the other side; denied access is
 * told apart from an invalid namespace; Verify is used instead of Read.
 *
 * One SCSI command becomes one NVMe command (COMPARE AND WRITE: one fused
 * pair), or is refused; it is never cut into pieces that could half fail.
 * MODE SELECT and START STOP UNIT become Set Features, with a Flush before or behind it. LOG SENSE answers from
 * the SMART log as the caller gives it. FORMAT UNIT, reservations, WRITE BUFFER, SECURITY PROTOCOL
 * and all else outside the table of scsi/cdb.h are INVALID COMMAND OPERATION CODE
 * and nothing is sent.
 */
#ifndef NVEFS_SCSI_SNTL_H
#define NVEFS_SCSI_SNTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nvme/command.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "scsi/cdb.h"
#include "scsi/pages.h"
#include "scsi/sense.h"

/* Mistakes that translations are known to make, to be switched on by tests; 0: none. */
#define NVEFS_SNTL_DROP_FUA (1u << 0)	    /* FUA is accepted and not passed on */
#define NVEFS_SNTL_FLUSH_NOT_SENT (1u << 1) /* SYNCHRONIZE CACHE is good without a Flush */
#define NVEFS_SNTL_ZEROES_DISCARD (1u << 2) /* WRITE SAME of zeros only deallocates */
#define NVEFS_SNTL_CACHE_HIDDEN (1u << 3)   /* the caching page says that there is no write cache */
#define NVEFS_SNTL_OTHER_IDENTITY (1u << 4) /* page 83h differs from the native identifiers */

/* The logical unit as the translation sees it. The pointed-to data outlives it. */
struct nvefs_sntl_lu {
	const struct nvefs_nvme_ctrl_info *ctrl;
	const struct nvefs_nvme_ns_info *ns;
	uint32_t nsid;
	uint32_t max_transfer_bytes; /* the smaller of MDTS and the transport's; at least one LBA */
	bool write_cache;	     /* the cache is there and enabled now (Get Features 06h) */
	bool cache_default;	     /* it is after a reset */
	bool cache_changeable;	     /* it can be switched */
	const struct nvefs_nvme_health *health; /* for LOG SENSE; NULL: not known */
	bool descriptor_sense;	     /* D_SENSE: sense data in descriptor format */
	uint32_t mistakes;	     /* NVEFS_SNTL_* */
};

/* One command as it came. Unused buffers are NULL with length 0. */
struct nvefs_sntl_request {
	const uint8_t *cdb;
	size_t cdb_len;
	/*
	 * Data from the initiator. `out` may be NULL with a length when the bytes
	 * are scattered; then commands that must look at them (UNMAP, WRITE SAME)
	 * are refused.
	 */
	const void *out;
	size_t out_len;
	/* Data to the initiator; only immediate answers are written by the translation. */
	void *in; /* NULL with a length: scattered, immediate answers are cut to nothing */
	size_t in_len;
	/* Room for Dataset Management ranges, filled by UNMAP, which is refused above it. */
	struct nvefs_nvme_dsm_range *ranges;
	uint32_t max_ranges; /* NVEFS_NVME_DSM_MAX_RANGES for an initiator that may send anything */
};

enum nvefs_sntl_data {
	NVEFS_SNTL_NO_DATA,
	NVEFS_SNTL_FROM_OUT, /* `bytes` at `offset` of the initiator's data, `repeat` times over */
	NVEFS_SNTL_TO_IN,    /* `bytes` to the start of the initiator's buffer */
	NVEFS_SNTL_RANGES,   /* `bytes` of request.ranges */
};
struct nvefs_sntl_part {
	struct nvefs_nvme_sqe sqe; /* without CID and data pointer */
	enum nvefs_sntl_data data;
	uint32_t offset, bytes, repeat;
};

#define NVEFS_SNTL_MAX_PARTS 2u

/* An admin command without data, before the parts (none of which is sent when it fails) or behind them. */
enum nvefs_sntl_admin { NVEFS_SNTL_NO_ADMIN, NVEFS_SNTL_ADMIN_FIRST, NVEFS_SNTL_ADMIN_LAST };

struct nvefs_sntl_cmd {
	uint8_t admin_when; /* enum nvefs_sntl_admin */
	struct nvefs_nvme_sqe admin;
	/* Commands to be sent, together and in order; 0, and no admin command: the answer below is complete. */
	uint32_t nparts;
	struct nvefs_sntl_part part[NVEFS_SNTL_MAX_PARTS];
	/* The answer: valid when nothing is to be sent, or the last of it has come back. */
	uint8_t status; /* enum nvefs_scsi_status */
	uint8_t sense_len;
	uint8_t sense[NVEFS_SENSE_MAX];
	uint32_t in_bytes,
	    out_bytes;	      /* transferred of the initiator's buffers, for residual counts */
	uint16_t nvme_status; /* that decided; 0 when no NVMe command failed */
	uint32_t left;	      /* parts not yet complete */
	bool descriptor_sense;
	bool tells_offset; /* a miscompare is to be told with its offset: nvefs_sntl_miscompare */
	uint16_t wce_at;   /* MODE SELECT: where its parameter list has WCE */
};

void nvefs_sntl_translate(const struct nvefs_sntl_lu *lu, const struct nvefs_sntl_request *req,
			  struct nvefs_sntl_cmd *cmd);
/*
 * One part came back with this status field (nvme/status.h). True when it was
 * the last and status, sense and the byte counts are valid.
 */
bool nvefs_sntl_complete(struct nvefs_sntl_cmd *cmd, uint16_t nvme_status);
/* The admin command came back with this status field. When it failed, the answer is complete and nparts is 0. */
void nvefs_sntl_admin_done(struct nvefs_sntl_cmd *cmd, uint16_t nvme_status);
/* True when it ended with a miscompare whose offset is to be found, by reading what is there now. */
bool nvefs_sntl_wants_offset(const struct nvefs_sntl_cmd *cmd);
/* The first byte that differs lies at `offset` of the initiator's data (SBC-4, COMPARE AND WRITE). */
void nvefs_sntl_miscompare(struct nvefs_sntl_cmd *cmd, uint32_t offset);

/* SCSI status and sense for any NVMe status field but success, for which GOOD is returned. */
uint8_t nvefs_sntl_status(uint16_t nvme_status, struct nvefs_sense *ret_sense);

/* Pieces of the answers, also for those who print them. */
void nvefs_sntl_block_limits(const struct nvefs_sntl_lu *lu, struct nvefs_scsi_block_limits *ret);
void nvefs_sntl_identity(const struct nvefs_sntl_lu *lu, struct nvefs_scsi_identity *ret);

#endif
