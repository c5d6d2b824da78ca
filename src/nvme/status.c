/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "nvme/status.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

struct status_entry {
	uint16_t status;
	int err;
	const char *text;
};

/*
 * EAGAIN is absent on purpose: at the device seam it means a full queue, and
 * whether to retry is what nvefs_nvme_status_retryable says.
 */
static const struct status_entry table[] = {
    {NVEFS_NVME_SC_INVALID_OPCODE, -EOPNOTSUPP, "invalid command opcode"},
    {NVEFS_NVME_SC_INVALID_FIELD, -EINVAL, "invalid field in command"},
    {NVEFS_NVME_SC_CID_CONFLICT, -EINVAL, "command identifier conflict"},
    {NVEFS_NVME_SC_DATA_TRANSFER, -EIO, "data transfer error"},
    {NVEFS_NVME_SC_POWER_LOSS, -EIO, "aborted by power loss"},
    {NVEFS_NVME_SC_INTERNAL, -EIO, "internal error"},
    {NVEFS_NVME_SC_ABORT_REQUESTED, -ECANCELED, "abort requested"},
    {NVEFS_NVME_SC_SQ_DELETED, -ECANCELED, "aborted by submission queue deletion"},
    {NVEFS_NVME_SC_FUSED_FAILED, -ECANCELED, "aborted: other fused command failed"},
    {NVEFS_NVME_SC_FUSED_MISSING, -EINVAL, "aborted: other fused command missing"},
    {NVEFS_NVME_SC_INVALID_NS, -ENODEV, "invalid namespace or format"},
    {NVEFS_NVME_SC_SEQUENCE, -EINVAL, "command sequence error"},
    {NVEFS_NVME_SC_SGL_SEGMENT, -EINVAL, "invalid SGL segment descriptor"},
    {NVEFS_NVME_SC_SGL_COUNT, -EINVAL, "invalid number of SGL descriptors"},
    {NVEFS_NVME_SC_SGL_DATA_LEN, -EINVAL, "data SGL length invalid"},
    {NVEFS_NVME_SC_SGL_META_LEN, -EINVAL, "metadata SGL length invalid"},
    {NVEFS_NVME_SC_SGL_TYPE, -EINVAL, "SGL descriptor type invalid"},
    {NVEFS_NVME_SC_CMB_USE, -EINVAL, "invalid use of controller memory buffer"},
    {NVEFS_NVME_SC_PRP_OFFSET, -EINVAL, "PRP offset invalid"},
    {NVEFS_NVME_SC_ATOMIC_EXCEEDED, -EINVAL, "atomic write unit exceeded"},
    {NVEFS_NVME_SC_OPERATION_DENIED, -EACCES, "operation denied"},
    {NVEFS_NVME_SC_SGL_OFFSET, -EINVAL, "SGL offset invalid"},
    {NVEFS_NVME_SC_HOST_ID_FORMAT, -EINVAL, "host identifier inconsistent format"},
    {NVEFS_NVME_SC_KEEP_ALIVE_INVALID, -EINVAL, "keep alive timeout invalid"},
    {NVEFS_NVME_SC_PREEMPT_ABORT, -ECANCELED, "aborted by preempt and abort"},
    {NVEFS_NVME_SC_SANITIZE_FAILED, -EIO, "sanitize failed"},
    {NVEFS_NVME_SC_SANITIZE_RUNNING, -EBUSY, "sanitize in progress"},
    {NVEFS_NVME_SC_SGL_GRANULARITY, -EINVAL, "SGL data block granularity invalid"},
    {NVEFS_NVME_SC_CMB_QUEUE, -EINVAL, "not supported for a queue in the controller memory buffer"},
    {NVEFS_NVME_SC_NS_WRITE_PROTECTED, -EROFS, "namespace is write protected"},
    {NVEFS_NVME_SC_INTERRUPTED, -EIO, "command interrupted"},
    {NVEFS_NVME_SC_TRANSIENT_TRANSPORT, -EIO, "transient transport error"},
    {NVEFS_NVME_SC_LOCKDOWN, -EACCES, "prohibited by command and feature lockdown"},
    {NVEFS_NVME_SC_MEDIA_NOT_READY, -EBUSY, "admin command: media not ready"},
    {NVEFS_NVME_SC_LBA_RANGE, -ERANGE, "LBA out of range"},
    {NVEFS_NVME_SC_CAPACITY, -ENOSPC, "capacity exceeded"},
    {NVEFS_NVME_SC_NS_NOT_READY, -EBUSY, "namespace not ready"},
    {NVEFS_NVME_SC_RESERVATION, -EBADE, "reservation conflict"},
    {NVEFS_NVME_SC_FORMATTING, -EBUSY, "format in progress"},
    {NVEFS_NVME_SC_CQ_INVALID, -EINVAL, "completion queue invalid"},
    {NVEFS_NVME_SC_QID_INVALID, -EINVAL, "invalid queue identifier"},
    {NVEFS_NVME_SC_QSIZE_INVALID, -EINVAL, "invalid queue size"},
    {NVEFS_NVME_SC_ABORT_LIMIT, -EBUSY, "abort command limit exceeded"},
    {NVEFS_NVME_SC_ASYNC_EVENT_LIMIT, -EBUSY, "asynchronous event request limit exceeded"},
    {NVEFS_NVME_SC_VECTOR_INVALID, -EINVAL, "invalid interrupt vector"},
    {NVEFS_NVME_SC_LOG_PAGE_INVALID, -EINVAL, "invalid log page"},
    {NVEFS_NVME_SC_FORMAT_INVALID, -EINVAL, "invalid format"},
    {NVEFS_NVME_SC_QUEUE_DELETION, -EINVAL, "invalid queue deletion"},
    {NVEFS_NVME_SC_FEATURE_NOT_SAVEABLE, -EINVAL, "feature not saveable"},
    {NVEFS_NVME_SC_FEATURE_NOT_CHANGEABLE, -EINVAL, "feature not changeable"},
    {NVEFS_NVME_SC_FEATURE_NOT_NS, -EINVAL, "feature not namespace specific"},
    {NVEFS_NVME_SC_CONFLICTING_ATTRIBUTES, -EINVAL, "conflicting attributes"},
    {NVEFS_NVME_SC_INVALID_PI, -EINVAL, "invalid protection information"},
    {NVEFS_NVME_SC_READ_ONLY_RANGE, -EROFS, "attempted write to read-only range"},
    {NVEFS_NVME_SC_SIZE_LIMIT, -EINVAL, "command size limit exceeded"},
    {NVEFS_NVME_SC_WRITE_FAULT, -EIO, "write fault"},
    {NVEFS_NVME_SC_READ_ERROR, -EIO, "unrecovered read error"},
    {NVEFS_NVME_SC_GUARD_CHECK, -EIO, "end-to-end guard check error"},
    {NVEFS_NVME_SC_APPTAG_CHECK, -EIO, "end-to-end application tag check error"},
    {NVEFS_NVME_SC_REFTAG_CHECK, -EIO, "end-to-end reference tag check error"},
    {NVEFS_NVME_SC_COMPARE_FAILED, -EILSEQ, "compare failure"},
    {NVEFS_NVME_SC_ACCESS_DENIED, -EACCES, "access denied"},
    {NVEFS_NVME_SC_UNWRITTEN, -EIO, "deallocated or unwritten logical block"},
    {NVEFS_NVME_SC_STORAGE_TAG_CHECK, -EIO, "end-to-end storage tag check error"},
    {NVEFS_NVME_SC_PATH_INTERNAL, -EIO, "internal path error"},
    {NVEFS_NVME_SC_ANA_LOSS, -EIO, "asymmetric access persistent loss"},
    {NVEFS_NVME_SC_ANA_INACCESSIBLE, -EIO, "asymmetric access inaccessible"},
    {NVEFS_NVME_SC_ANA_TRANSITION, -EIO, "asymmetric access transition"},
    {NVEFS_NVME_SC_CTRL_PATH, -EIO, "controller pathing error"},
    {NVEFS_NVME_SC_HOST_PATH, -EIO, "host pathing error"},
    {NVEFS_NVME_SC_HOST_ABORTED, -ECANCELED, "aborted by host"},
};

static const struct status_entry *status_find(uint16_t status)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].status == (status & NVEFS_NVME_STATUS_MASK))
			return &table[i];
	return NULL;
}

int nvefs_nvme_status_errno(uint16_t status)
{
	const struct status_entry *e;

	if ((status & NVEFS_NVME_STATUS_MASK) == NVEFS_NVME_SC_SUCCESS)
		return 0;
	e = status_find(status);
	return e ? e->err : -EIO;
}

const char *nvefs_nvme_status_text(uint16_t status)
{
	static const char *const by_type[8] = {
	    "unknown generic status", "unknown command specific status", "unknown media status",
	    "unknown path status",    "unknown status, type 4",		 "unknown status, type 5",
	    "unknown status, type 6", "vendor specific status",
	};
	const struct status_entry *e;

	if ((status & NVEFS_NVME_STATUS_MASK) == NVEFS_NVME_SC_SUCCESS)
		return "success";
	e = status_find(status);
	return e ? e->text : by_type[(status & NVEFS_NVME_SCT_MASK) >> NVEFS_NVME_SCT_SHIFT];
}

bool nvefs_nvme_status_retryable(uint16_t status)
{
	return (status & NVEFS_NVME_STATUS_MASK) != NVEFS_NVME_SC_SUCCESS &&
	       !(status & NVEFS_NVME_DNR);
}

uint16_t nvefs_nvme_status_known(size_t index)
{
	return index < ARRAY_LEN(table) ? table[index].status : NVEFS_NVME_SC_SUCCESS;
}
