/* SPDX-License-Identifier: MIT */
/* NVMe status to SCSI status and sense (SNTL, section 7). */
#include "nvme/status.h"
#include "scsi/sntl.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

struct sense_entry {
	uint16_t nvme;
	uint8_t status, key;
	uint16_t asc;
};

#define CHECK(nvme, key, asc)                                                                      \
	{                                                                                          \
		NVEFS_NVME_SC_##nvme, NVEFS_SCSI_CHECK_CONDITION, NVEFS_SENSE_##key,               \
		    NVEFS_ASC_##asc                                                                \
	}
#define ABORTED(nvme, asc)                                                                         \
	{                                                                                          \
		NVEFS_NVME_SC_##nvme, NVEFS_SCSI_TASK_ABORTED, NVEFS_SENSE_ABORTED_COMMAND,        \
		    NVEFS_ASC_##asc                                                                \
	}
#define PLAIN(nvme, status)                                                                        \
	{                                                                                          \
		NVEFS_NVME_SC_##nvme, NVEFS_SCSI_##status, NVEFS_SENSE_NO_SENSE, NVEFS_ASC_NONE    \
	}

static const struct sense_entry table[] = {
    CHECK(INVALID_OPCODE, ILLEGAL_REQUEST, INVALID_OPCODE),
    CHECK(INVALID_FIELD, ILLEGAL_REQUEST, FIELD_IN_CDB),
    CHECK(DATA_TRANSFER, MEDIUM_ERROR, NONE),
    ABORTED(POWER_LOSS, POWER_LOSS),
    CHECK(INTERNAL, HARDWARE_ERROR, INTERNAL),
    ABORTED(ABORT_REQUESTED, NONE),
    ABORTED(SQ_DELETED, NONE),
    ABORTED(FUSED_FAILED, NONE),
    CHECK(INVALID_NS, ILLEGAL_REQUEST, INVALID_LU),
    CHECK(OPERATION_DENIED, ILLEGAL_REQUEST, NO_ACCESS_RIGHTS),
    ABORTED(PREEMPT_ABORT, NONE),
    CHECK(SANITIZE_FAILED, MEDIUM_ERROR, SANITIZE_FAILED),
    CHECK(SANITIZE_RUNNING, NOT_READY, SANITIZING),
    CHECK(NS_WRITE_PROTECTED, DATA_PROTECT, WRITE_PROTECTED),
    CHECK(INTERRUPTED, ABORTED_COMMAND, COMMANDS_CLEARED),
    CHECK(TRANSIENT_TRANSPORT, ABORTED_COMMAND, DATA_PHASE),
    CHECK(LOCKDOWN, ILLEGAL_REQUEST, NO_ACCESS_RIGHTS),
    CHECK(MEDIA_NOT_READY, NOT_READY, BECOMING_READY),
    CHECK(LBA_RANGE, ILLEGAL_REQUEST, LBA_RANGE),
    CHECK(CAPACITY, DATA_PROTECT, SPACE_ALLOCATION),
    CHECK(NS_NOT_READY, NOT_READY, NOT_READY),
    PLAIN(RESERVATION, RESERVATION_CONFLICT),
    CHECK(FORMATTING, NOT_READY, FORMATTING),
    PLAIN(ABORT_LIMIT, BUSY),
    PLAIN(ASYNC_EVENT_LIMIT, BUSY),
    CHECK(FORMAT_INVALID, ILLEGAL_REQUEST, FORMAT_FAILED),
    CHECK(READ_ONLY_RANGE, DATA_PROTECT, WRITE_PROTECTED),
    CHECK(WRITE_FAULT, MEDIUM_ERROR, WRITE_FAULT),
    CHECK(READ_ERROR, MEDIUM_ERROR, READ_ERROR),
    CHECK(GUARD_CHECK, MEDIUM_ERROR, GUARD_CHECK),
    CHECK(APPTAG_CHECK, MEDIUM_ERROR, APPTAG_CHECK),
    CHECK(REFTAG_CHECK, MEDIUM_ERROR, REFTAG_CHECK),
    CHECK(COMPARE_FAILED, MISCOMPARE, MISCOMPARE),
    CHECK(ACCESS_DENIED, ILLEGAL_REQUEST, NO_ACCESS_RIGHTS),
    CHECK(UNWRITTEN, MEDIUM_ERROR, READ_ERROR),
    CHECK(STORAGE_TAG_CHECK, MEDIUM_ERROR, REFTAG_CHECK),
    CHECK(ANA_LOSS, NOT_READY, TARGET_PORT_UNAVAILABLE),
    CHECK(ANA_INACCESSIBLE, NOT_READY, TARGET_PORT_UNAVAILABLE),
    CHECK(ANA_TRANSITION, NOT_READY, ACCESS_TRANSITION),
    ABORTED(HOST_ABORTED, NONE),
};

/*
 * What is not in the table goes by its type: a generic or command specific
 * status is our own malformed command, so ILLEGAL REQUEST; a media status a
 * medium error; the rest, path and vendor's, an internal failure.
 */
static struct sense_entry by_type(uint16_t nvme_status)
{
	bool known = false;
	struct sense_entry e = CHECK(INTERNAL, HARDWARE_ERROR, INTERNAL);
	uint16_t sct = (nvme_status & NVEFS_NVME_SCT_MASK) >> NVEFS_NVME_SCT_SHIFT;

	for (size_t i = 0; nvefs_nvme_status_known(i) && !known; i++)
		known = nvefs_nvme_status_known(i) == (nvme_status & NVEFS_NVME_STATUS_MASK);
	if (sct == 2)
		e = (struct sense_entry)CHECK(READ_ERROR, MEDIUM_ERROR, NONE);
	else if (sct <= 1 && known)
		e = (struct sense_entry)CHECK(INVALID_FIELD, ILLEGAL_REQUEST, FIELD_IN_CDB);
	return e;
}

uint8_t nvefs_sntl_status(uint16_t nvme_status, struct nvefs_sense *ret_sense)
{
	uint16_t status = nvme_status & NVEFS_NVME_STATUS_MASK;
	struct sense_entry e;

	*ret_sense = (struct nvefs_sense){0};
	if (status == NVEFS_NVME_SC_SUCCESS)
		return NVEFS_SCSI_GOOD;
	e = by_type(status);
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].nvme == status)
			e = table[i];
	ret_sense->key = e.key;
	ret_sense->asc = e.asc;
	return e.status;
}

/*
 * Of a fused pair, the half that failed by itself decides; the other one is
 * only told that its partner failed.
 */
static bool decides(uint16_t old, uint16_t new)
{
	uint16_t status = new &NVEFS_NVME_STATUS_MASK;

	if (status == NVEFS_NVME_SC_SUCCESS)
		return false;
	return (old & NVEFS_NVME_STATUS_MASK) == NVEFS_NVME_SC_SUCCESS ||
	       (old & NVEFS_NVME_STATUS_MASK) == NVEFS_NVME_SC_FUSED_FAILED;
}

static void end(struct nvefs_sntl_cmd *cmd, uint8_t status, const struct nvefs_sense *s)
{
	cmd->status = status;
	if (status == NVEFS_SCSI_GOOD)
		return;
	cmd->in_bytes = 0;
	if (status == NVEFS_SCSI_CHECK_CONDITION || status == NVEFS_SCSI_TASK_ABORTED)
		cmd->sense_len = nvefs_sense_build(s, cmd->descriptor_sense, cmd->sense);
}

/* Of a parameter list only WCE gets as far as the controller: what it does not like there is that. */
void nvefs_sntl_admin_done(struct nvefs_sntl_cmd *cmd, uint16_t nvme_status)
{
	uint16_t code = nvme_status & NVEFS_NVME_STATUS_MASK;
	struct nvefs_sense s;
	uint8_t status = nvefs_sntl_status(nvme_status, &s);

	if (status == NVEFS_SCSI_GOOD)
		return;
	if (cmd->wce_at && (code == NVEFS_NVME_SC_INVALID_FIELD ||
			    code == NVEFS_NVME_SC_FEATURE_NOT_CHANGEABLE))
		nvefs_sense_set_field(&s, NVEFS_ASC_FIELD_IN_PARAMETERS, cmd->wce_at, 0x04);
	cmd->nvme_status = nvme_status;
	cmd->nparts = cmd->left = 0;
	cmd->out_bytes = 0;
	end(cmd, status, &s);
}

bool nvefs_sntl_wants_offset(const struct nvefs_sntl_cmd *cmd)
{
	return cmd->tells_offset &&
	       (cmd->nvme_status & NVEFS_NVME_STATUS_MASK) == NVEFS_NVME_SC_COMPARE_FAILED;
}

void nvefs_sntl_miscompare(struct nvefs_sntl_cmd *cmd, uint32_t offset)
{
	struct nvefs_sense s = {.key = NVEFS_SENSE_MISCOMPARE,
				.asc = NVEFS_ASC_MISCOMPARE,
				.has_info = true,
				.info = offset};

	end(cmd, NVEFS_SCSI_CHECK_CONDITION, &s);
}

bool nvefs_sntl_complete(struct nvefs_sntl_cmd *cmd, uint16_t nvme_status)
{
	struct nvefs_sense s;

	if (decides(cmd->nvme_status, nvme_status))
		cmd->nvme_status = nvme_status;
	if (--cmd->left > 0)
		return false;
	end(cmd, nvefs_sntl_status(cmd->nvme_status, &s), &s);
	return true;
}
