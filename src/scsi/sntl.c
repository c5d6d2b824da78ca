/* SPDX-License-Identifier: MIT */
#include <string.h>
#include "nvme/admin.h"
#include "nvme/status.h"
#include "scsi/sntl_private.h"

void sntl_good(struct sntl_ctx *x)
{
	x->cmd->nparts = 0;
	x->cmd->status = NVEFS_SCSI_GOOD;
}

void sntl_fail(struct sntl_ctx *x, const struct nvefs_sense *s)
{
	struct nvefs_sntl_cmd *cmd = x->cmd;

	cmd->nparts = 0;
	cmd->in_bytes = cmd->out_bytes = 0;
	cmd->status = NVEFS_SCSI_CHECK_CONDITION;
	cmd->sense_len = nvefs_sense_build(s, cmd->descriptor_sense, cmd->sense);
}

void sntl_illegal(struct sntl_ctx *x, uint16_t asc)
{
	struct nvefs_sense s = {.key = NVEFS_SENSE_ILLEGAL_REQUEST, .asc = asc};

	sntl_fail(x, &s);
}

static void illegal_field(struct sntl_ctx *x, uint16_t asc, uint16_t byte, int bit)
{
	struct nvefs_sense s;

	nvefs_sense_set_field(&s, asc, byte, bit < 0 ? 0 : (uint8_t)(1u << bit));
	sntl_fail(x, &s);
}

void sntl_illegal_cdb(struct sntl_ctx *x, uint16_t byte, int bit)
{
	illegal_field(x, NVEFS_ASC_FIELD_IN_CDB, byte, bit);
}

void sntl_illegal_parameter(struct sntl_ctx *x, uint16_t byte, int bit)
{
	illegal_field(x, NVEFS_ASC_FIELD_IN_PARAMETERS, byte, bit);
}

void sntl_answer(struct sntl_ctx *x, const void *data, uint32_t len)
{
	const struct nvefs_sntl_request *req = x->req;
	const struct nvefs_cdb_format *f =
	    nvefs_cdb_format_find(x->cdb.opcode, x->cdb.service_action);

	if (f->count_width && len > x->cdb.count)
		len = x->cdb.count;
	if (!req->in)
		len = 0;
	else if (len > req->in_len)
		len = (uint32_t)req->in_len;
	if (len > 0)
		memcpy(req->in, data, len);
	x->cmd->in_bytes = len;
	sntl_good(x);
}

struct nvefs_sntl_part *sntl_send(struct sntl_ctx *x)
{
	struct nvefs_sntl_part *p = &x->cmd->part[x->cmd->nparts++];

	memset(p, 0, sizeof(*p));
	p->repeat = 1;
	x->cmd->left = x->cmd->nparts;
	return p;
}

void sntl_send_admin(struct sntl_ctx *x, enum nvefs_sntl_admin when, uint8_t fid, uint32_t value)
{
	x->cmd->admin_when = when;
	nvefs_nvme_sqe_set_features(&x->cmd->admin, 0, fid, false, value);
}

static void dispatch(struct sntl_ctx *x)
{
	switch (x->cdb.opcode) {
	case NVEFS_SCSI_READ_6:
	case NVEFS_SCSI_READ_10:
	case NVEFS_SCSI_READ_12:
	case NVEFS_SCSI_READ_16:
		return sntl_read_write(x, false);
	case NVEFS_SCSI_WRITE_6:
	case NVEFS_SCSI_WRITE_10:
	case NVEFS_SCSI_WRITE_12:
	case NVEFS_SCSI_WRITE_16:
		return sntl_read_write(x, true);
	case NVEFS_SCSI_VERIFY_10:
	case NVEFS_SCSI_VERIFY_12:
	case NVEFS_SCSI_VERIFY_16:
		return sntl_verify(x);
	case NVEFS_SCSI_COMPARE_AND_WRITE:
		return sntl_compare_and_write(x);
	case NVEFS_SCSI_WRITE_SAME_10:
	case NVEFS_SCSI_WRITE_SAME_16:
		return sntl_write_same(x);
	case NVEFS_SCSI_UNMAP:
		return sntl_unmap(x);
	case NVEFS_SCSI_SYNCHRONIZE_CACHE_10:
	case NVEFS_SCSI_SYNCHRONIZE_CACHE_16:
		return sntl_synchronize_cache(x);
	case NVEFS_SCSI_INQUIRY:
		return sntl_inquiry(x);
	case NVEFS_SCSI_READ_CAPACITY_10:
	case NVEFS_SCSI_SERVICE_ACTION_IN_16:
		return sntl_read_capacity(x);
	case NVEFS_SCSI_MODE_SENSE_6:
	case NVEFS_SCSI_MODE_SENSE_10:
		return sntl_mode_sense(x);
	case NVEFS_SCSI_MODE_SELECT_6:
	case NVEFS_SCSI_MODE_SELECT_10:
		return sntl_mode_select(x);
	case NVEFS_SCSI_LOG_SENSE:
		return sntl_log_sense(x);
	case NVEFS_SCSI_REPORT_LUNS:
		return sntl_report_luns(x);
	case NVEFS_SCSI_MAINTENANCE_IN:
		return sntl_report_opcodes(x);
	case NVEFS_SCSI_REQUEST_SENSE:
		return sntl_request_sense(x);
	case NVEFS_SCSI_TEST_UNIT_READY:
		return sntl_good(x);
	case NVEFS_SCSI_START_STOP_UNIT:
		return sntl_start_stop_unit(x);
	default:
		return sntl_illegal(x, NVEFS_ASC_INVALID_OPCODE);
	}
}

void nvefs_sntl_translate(const struct nvefs_sntl_lu *lu, const struct nvefs_sntl_request *req,
			  struct nvefs_sntl_cmd *cmd)
{
	struct sntl_ctx x = {.lu = lu, .req = req, .cmd = cmd};
	struct nvefs_sense fault;

	cmd->nparts = cmd->left = 0;
	cmd->admin_when = NVEFS_SNTL_NO_ADMIN;
	cmd->wce_at = 0;
	cmd->tells_offset = false;
	cmd->status = NVEFS_SCSI_GOOD;
	cmd->sense_len = 0;
	cmd->in_bytes = cmd->out_bytes = 0;
	cmd->nvme_status = NVEFS_NVME_SC_SUCCESS;
	cmd->descriptor_sense = lu->descriptor_sense;
	if (nvefs_cdb_parse(req->cdb, req->cdb_len, &x.cdb, &fault) < 0)
		sntl_fail(&x, &fault);
	else
		dispatch(&x);
}
