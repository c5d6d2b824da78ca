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

static void answer(struct nvefs_scsi_exec *exec)
{
	answer_header(exec->hdr, &exec->cmd, exec->host_err);
	exec->done(exec);
}

/* Waits for the controller: no io of the file system's comes here. */
static void run_admin(struct nvefs_scsi_exec *exec)
{
	uint16_t status = 0;
	uint32_t result;

	exec->host_err =
	    nvefs_dev_admin(exec->target->below, &exec->cmd.admin, NULL, 0, &result, &status);
	if (!exec->host_err)
		nvefs_sntl_admin_done(&exec->cmd, status);
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

/* What the blocks hold has been read, in front of what they should hold. It may have changed again. */
static void offset_done(struct nvefs_io *io)
{
	struct nvefs_scsi_exec_part *part = io->arg;
	uint32_t len = part->raw.data_bytes, i = 0;
	const uint8_t *is = part->bounce, *wanted = is + len;

	while (i < len && is[i] == wanted[i])
		i++;
	if (!io->err && i < len)
		nvefs_sntl_miscompare(&part->exec->cmd, i);
	nvefs_buf_free(part->bounce);
	part->bounce = NULL;
	answer(part->exec);
}

/* NVMe tells that blocks differ, not where: they are read. False, and no offset, without memory. */
static bool find_offset(struct nvefs_scsi_exec *exec)
{
	struct nvefs_scsi_exec_part *part = &exec->part[0];
	struct nvefs_raw_io *raw = &part->raw;
	uint32_t len = raw->data_bytes;
	uint64_t slba = nvefs_nvme_sqe_slba(&raw->sqe);
	uint32_t nlbs = nvefs_nvme_sqe_nlbs(&raw->sqe);

	part->bounce = nvefs_buf_new(2 * (size_t)len);
	if (!part->bounce)
		return false;
	gather(exec->hdr, exec->cmd.part[0].offset, len, (uint8_t *)part->bounce + len);
	nvefs_nvme_sqe_rw(&raw->sqe, NVEFS_NVME_READ, exec->target->lu.nsid, slba, nlbs, 0);
	raw->io.one = (struct iovec){part->bounce, len};
	raw->io.iov = &raw->io.one;
	raw->io.niov = 1;
	raw->io.done = offset_done;
	nvefs_queue_submit(exec->queue, &raw->io);
	return true;
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
	if (exec->cmd.admin_when == NVEFS_SNTL_ADMIN_LAST && !exec->host_err &&
	    exec->cmd.status == NVEFS_SCSI_GOOD)
		run_admin(exec);
	if (exec->host_err || !nvefs_sntl_wants_offset(&exec->cmd) || !find_offset(exec))
		answer(exec);
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

static bool cache_feature(struct nvefs_dev *below, uint8_t sel, uint32_t *ret_value)
{
	struct nvefs_nvme_sqe sqe;
	uint16_t status;

	nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE, sel);
	return !nvefs_dev_admin(below, &sqe, NULL, 0, ret_value, &status) && !status;
}

/*
 * The cache as it is now: others may have switched it. A controller that does not
 * tell has it on; whether it can be switched turns out when it is tried.
 */
static void learn_cache(const struct nvefs_scsi_target *t, struct nvefs_sntl_lu *lu)
{
	bool select = t->ctrl.oncs & NVEFS_NVME_ONCS_SAVE_SELECT;
	uint32_t v;

	if (!t->ctrl.vwc)
		return;
	lu->write_cache = !cache_feature(t->below, NVEFS_NVME_SEL_CURRENT, &v) ||
			  (v & NVEFS_NVME_WRITE_CACHE_ENABLE);
	lu->cache_default = lu->write_cache;
	if (select && cache_feature(t->below, NVEFS_NVME_SEL_DEFAULT, &v))
		lu->cache_default = v & NVEFS_NVME_WRITE_CACHE_ENABLE;
	lu->cache_changeable = !select ||
			       !cache_feature(t->below, NVEFS_NVME_SEL_CAPABILITIES, &v) ||
			       (v & NVEFS_NVME_FEATURE_CAP_CHANGEABLE);
}

static bool about_mode(const sg_io_hdr_t *hdr)
{
	switch (hdr->cmd_len ? hdr->cmdp[0] : NVEFS_SCSI_TEST_UNIT_READY) {
	case NVEFS_SCSI_MODE_SENSE_6:
	case NVEFS_SCSI_MODE_SENSE_10:
	case NVEFS_SCSI_MODE_SELECT_6:
	case NVEFS_SCSI_MODE_SELECT_10:
		return true;
	default:
		return false;
	}
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
	} else if (about_mode(hdr)) {
		now = t->lu;
		learn_cache(t, &now);
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
	exec->target = t;
	exec->queue = q;
	translate(t, exec->hdr, exec->ranges, exec->max_ranges, &exec->cmd);
	if (exec->cmd.admin_when == NVEFS_SNTL_ADMIN_FIRST)
		run_admin(exec);
	nparts = exec->host_err ? 0 : exec->cmd.nparts;
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
	if (cmd.nparts > 0 || cmd.admin_when)
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
	uint32_t nsid = below->identity.nsid;
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
	t->lu = (struct nvefs_sntl_lu){.ctrl = &t->ctrl,
				       .ns = &t->ns,
				       .nsid = nsid,
				       .max_transfer_bytes = below->limits.max_transfer_blks
							     << NVEFS_BLOCK_SHIFT,
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
