/* SPDX-License-Identifier: MIT */
#include "device/scsi_target.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "device/scsi_initiator.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/status.h"

static void answer_header(sg_io_hdr_t *hdr, const struct nvefs_sntl_cmd *cmd, int host_err)
{
	uint32_t moved = hdr->dxfer_direction == SG_DXFER_FROM_DEV ? cmd->in_bytes : cmd->out_bytes;

	hdr->host_status = host_err == -ETIMEDOUT ? NVEFS_SCSI_HOST_TIME_OUT
			   : host_err		  ? NVEFS_SCSI_HOST_ERROR
						  : 0;
	hdr->status = host_err ? 0 : cmd->status;
	hdr->masked_status = hdr->status >> 1 & 0x1f;
	hdr->resid = (int)(hdr->dxfer_len - (host_err ? 0 : moved));
	if (!host_err && cmd->sense_len) {
		hdr->sb_len_wr = cmd->sense_len < hdr->mx_sb_len ? cmd->sense_len : hdr->mx_sb_len;
		memcpy(hdr->sbp, cmd->sense, hdr->sb_len_wr);
		hdr->driver_status = NVEFS_SCSI_DRIVER_SENSE;
	}
	hdr->info = host_err || hdr->status ? SG_INFO_CHECK : SG_INFO_OK;
}

static void part_done(struct nvefs_io *io)
{
	struct nvefs_scsi_exec_part *part = io->arg;
	struct nvefs_scsi_exec *exec = part->exec;

	nvefs_buf_free(part->bounce);
	part->bounce = NULL;
	if (io->err && io->status.kind != NVEFS_STATUS_NVME && exec->host_err != -ETIMEDOUT)
		exec->host_err = io->err;
	if (!nvefs_sntl_complete(&exec->cmd, io->status.nvme))
		return;
	answer_header(exec->hdr, &exec->cmd, exec->host_err);
	exec->done(exec);
}

static void gather(const sg_io_hdr_t *hdr, uint32_t offset, uint32_t bytes, uint8_t *to)
{
	const struct iovec one = {hdr->dxferp, hdr->dxfer_len};
	const struct iovec *iov = hdr->iovec_count ? hdr->dxferp : &one;

	for (; bytes > 0; iov++) {
		uint32_t len;

		if (offset >= iov->iov_len) {
			offset -= (uint32_t)iov->iov_len;
			continue;
		}
		len = (uint32_t)iov->iov_len - offset;
		if (len > bytes)
			len = bytes;
		memcpy(to, (const uint8_t *)iov->iov_base + offset, len);
		to += len;
		bytes -= len;
		offset = 0;
	}
}

/* A pattern to be written many times over, or a piece of scattered data, in one buffer of its own.
 */
static int map_bounce(struct nvefs_scsi_exec_part *part, const sg_io_hdr_t *hdr,
		      const struct nvefs_sntl_part *p)
{
	uint8_t *buf = nvefs_buf_new((size_t)p->bytes * p->repeat);

	if (!buf)
		return -ENOMEM;
	gather(hdr, p->offset, p->bytes, buf);
	for (uint32_t i = 1; i < p->repeat; i++)
		memcpy(buf + (size_t)i * p->bytes, buf, p->bytes);
	part->bounce = buf;
	part->raw.io.one = (struct iovec){buf, (size_t)p->bytes * p->repeat};
	return 0;
}

static int map_part(struct nvefs_scsi_exec_part *part, const sg_io_hdr_t *hdr,
		    const struct nvefs_sntl_part *p, struct nvefs_nvme_dsm_range *ranges)
{
	struct nvefs_io *io = &part->raw.io;
	bool whole = p->offset == 0 && p->bytes == hdr->dxfer_len && p->repeat == 1;

	io->iov = &io->one;
	io->niov = 1;
	part->raw.data_bytes = p->bytes * p->repeat;
	switch (p->data) {
	case NVEFS_SNTL_NO_DATA:
		io->niov = 0;
		return 0;
	case NVEFS_SNTL_RANGES:
		io->one = (struct iovec){ranges, p->bytes};
		return 0;
	case NVEFS_SNTL_FROM_OUT:
	case NVEFS_SNTL_TO_IN:
		break;
	}
	if (hdr->iovec_count && whole) {
		io->iov = hdr->dxferp;
		io->niov = hdr->iovec_count;
		return 0;
	}
	if (!hdr->iovec_count && p->repeat == 1) {
		io->one = (struct iovec){(uint8_t *)hdr->dxferp + p->offset, p->bytes};
		return 0;
	}
	return p->data == NVEFS_SNTL_FROM_OUT ? map_bounce(part, hdr, p) : -EINVAL;
}

/* The SMART log as it is now. Waits for the controller: no io of the file system's comes here. */
static bool learn_health(struct nvefs_dev *below, struct nvefs_nvme_health *ret)
{
	struct nvefs_nvme_smart_log log;
	struct nvefs_nvme_sqe sqe;
	uint32_t result;
	uint16_t status;

	nvefs_nvme_sqe_get_log(&sqe, NVEFS_NVME_NSID_ALL, NVEFS_NVME_LOG_SMART, 0, 0, sizeof(log));
	if (nvefs_dev_admin(below, &sqe, &log, sizeof(log), &result, &status) || status)
		return false;
	nvefs_nvme_smart_parse(&log, ret);
	return true;
}

static void translate(const struct nvefs_scsi_target *t, const sg_io_hdr_t *hdr,
		      struct nvefs_nvme_dsm_range *ranges, uint32_t max_ranges,
		      struct nvefs_sntl_cmd *cmd)
{
	struct nvefs_sntl_request req = {
	    .cdb = hdr->cmdp, .cdb_len = hdr->cmd_len, .ranges = ranges, .max_ranges = max_ranges};
	void *data = hdr->iovec_count ? NULL : hdr->dxferp;
	const struct nvefs_sntl_lu *lu = &t->lu;
	struct nvefs_nvme_health health;
	struct nvefs_sntl_lu now;

	if (hdr->cmd_len && hdr->cmdp[0] == NVEFS_SCSI_LOG_SENSE &&
	    learn_health(t->below, &health)) {
		now = t->lu;
		now.health = &health;
		lu = &now;
	}
	if (hdr->dxfer_direction == SG_DXFER_TO_DEV) {
		req.out = data;
		req.out_len = hdr->dxfer_len;
	} else if (hdr->dxfer_direction == SG_DXFER_FROM_DEV) {
		req.in = data;
		req.in_len = hdr->dxfer_len;
	}
	nvefs_sntl_translate(lu, &req, cmd);
}

bool nvefs_scsi_exec_start(struct nvefs_scsi_exec *exec, const struct nvefs_scsi_target *t,
			   struct nvefs_queue *q)
{
	uint32_t nparts, i;

	exec->host_err = 0;
	translate(t, exec->hdr, exec->ranges, exec->max_ranges, &exec->cmd);
	nparts = exec->cmd.nparts;
	for (i = 0; i < nparts && !exec->host_err; i++) {
		struct nvefs_scsi_exec_part *part = &exec->part[i];
		struct nvefs_io *io = &part->raw.io;

		part->exec = exec;
		part->bounce = NULL;
		part->raw.sqe = exec->cmd.part[i].sqe;
		io->op = NVEFS_IO_RAW;
		io->flags = 0;
		io->done = part_done;
		io->arg = part;
		exec->host_err = map_part(part, exec->hdr, &exec->cmd.part[i], exec->ranges);
	}
	if (exec->host_err || nparts == 0) {
		while (i-- > 0)
			nvefs_buf_free(exec->part[i].bounce);
		answer_header(exec->hdr, &exec->cmd, exec->host_err);
		return false;
	}
	/* All parts are mapped: a pair goes out together or not at all. */
	for (i = 0; i < nparts; i++)
		nvefs_queue_submit(q, &exec->part[i].raw.io);
	return true;
}

int nvefs_scsi_exec_query(const struct nvefs_scsi_target *t, sg_io_hdr_t *hdr)
{
	struct nvefs_sntl_cmd cmd;

	translate(t, hdr, NULL, 0, &cmd);
	if (cmd.nparts > 0)
		return -EIO;
	answer_header(hdr, &cmd, 0);
	return 0;
}

/* One admin command to the controller below; a status that is not success is an error. */
static int ask_controller(struct nvefs_dev *below, const struct nvefs_nvme_sqe *sqe, void *data,
			  uint32_t len, uint32_t *ret_result)
{
	uint16_t status = 0;
	int err = nvefs_dev_admin(below, sqe, data, len, ret_result, &status);

	return err ? err : nvefs_nvme_status_errno(status);
}

static int identify(struct nvefs_dev *below, uint32_t nsid, uint8_t cns, void *buf)
{
	struct nvefs_nvme_sqe sqe;
	uint32_t result;

	memset(buf, 0, NVEFS_NVME_IDENTIFY_BYTES);
	nvefs_nvme_sqe_identify(&sqe, nsid, cns, NVEFS_NVME_CSI_NVM);
	return ask_controller(below, &sqe, buf, NVEFS_NVME_IDENTIFY_BYTES, &result);
}

/* CNS 06h and 03h are not there on older controllers. */
static int learn_namespace(struct nvefs_scsi_target *t, struct nvefs_dev *below, void *buf)
{
	uint32_t nsid = below->identity.nsid, cache = 0;
	struct nvefs_nvme_sqe sqe;
	int err = identify(below, 0, NVEFS_NVME_CNS_CTRL, buf);

	if (err)
		return err;
	nvefs_nvme_ctrl_parse(buf, &t->ctrl);
	if (!identify(below, 0, NVEFS_NVME_CNS_CSI_CTRL, buf))
		nvefs_nvme_ctrl_parse_nvm(buf, &t->ctrl);
	t->ctrl.fused_compare_write &= nvefs_dev_takes_fused(below);
	err = identify(below, nsid, NVEFS_NVME_CNS_NS, buf);
	if (!err)
		err = nvefs_nvme_ns_parse(buf, &t->ns);
	if (!err && !identify(below, nsid, NVEFS_NVME_CNS_NS_DESCS, buf))
		err = nvefs_nvme_ns_parse_descs(buf, NVEFS_NVME_IDENTIFY_BYTES, &t->ns);
	if (!err && t->ctrl.vwc) {
		nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE,
					    NVEFS_NVME_SEL_CURRENT);
		err = ask_controller(below, &sqe, NULL, 0, &cache);
	}
	t->lu = (struct nvefs_sntl_lu){.ctrl = &t->ctrl,
				       .ns = &t->ns,
				       .nsid = nsid,
				       .max_transfer_bytes = below->limits.max_transfer_blks
							     << NVEFS_BLOCK_SHIFT,
				       .write_cache = cache & NVEFS_NVME_WRITE_CACHE_ENABLE,
				       /* LBAs of more than 32 bits fit no other format. */
				       .descriptor_sense = true};
	return err;
}

int nvefs_scsi_target_init(struct nvefs_scsi_target *t, struct nvefs_dev *below, uint32_t mistakes,
			   struct nvefs_error *err)
{
	const char *target = below->identity.target;
	void *buf;
	int code;

	if (!nvefs_dev_takes_raw(below))
		return nvefs_error_set(
		    err, -ENOTSUP, "%s: takes no NVMe commands to translate to: use route=native",
		    target);
	buf = nvefs_buf_new(NVEFS_NVME_IDENTIFY_BYTES);
	if (!buf)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", target);
	memset(t, 0, sizeof(*t));
	code = learn_namespace(t, below, buf);
	nvefs_buf_free(buf);
	if (code)
		return nvefs_error_set(err, code, "%s: cannot identify the namespace: %s", target,
				       strerror(-code));
	t->lu.mistakes = mistakes;
	t->below = below;
	return 0;
}
