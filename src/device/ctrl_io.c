/* SPDX-License-Identifier: MIT */
/* I/O commands of the embedded controller (NVM command set 1.0, section 3). */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "device/controller.h"
#include "nvme/status.h"

#define DNR(status) ((uint16_t)((status) | NVEFS_NVME_DNR))

static void count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static void fail(struct nvefs_ctrl_cmd *cmd, uint16_t status)
{
	cmd->status = status;
	nvefs_ctrl_complete(cmd);
}

/* What the host's file answered, as a drive would say it. */
static uint16_t media_status(const struct nvefs_ctrl_cmd *cmd)
{
	switch (cmd->req.err) {
	case 0:
		return NVEFS_NVME_SC_SUCCESS;
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
		return NVEFS_NVME_SC_CAPACITY;
	case -ENOMEM:
		return NVEFS_NVME_SC_INTERNAL;
	case -EROFS:
		return DNR(NVEFS_NVME_SC_NS_WRITE_PROTECTED);
	default:
		return cmd->req.kind == NVEFS_MEDIA_READ ? NVEFS_NVME_SC_READ_ERROR
							 : NVEFS_NVME_SC_WRITE_FAULT;
	}
}

static void finish(struct nvefs_ctrl_cmd *cmd)
{
	cmd->status = media_status(cmd);
	if (cmd->status)
		count(&cmd->cq->stats.media_errors, 1);
	nvefs_ctrl_complete(cmd);
}

/* Hand cmd->req to the medium; `next` runs when it is done, which may be now. */
static void media_submit(struct nvefs_ctrl_cmd *cmd, void (*next)(struct nvefs_ctrl_cmd *))
{
	cmd->next = next;
	if (cmd->cq->ctrl->media->ops->submit(cmd->cq->mq, &cmd->req))
		next(cmd);
}

/* The same for what changes the medium: not while a fused pair is at work. */
static void change(struct nvefs_ctrl_cmd *cmd, void (*begin)(struct nvefs_ctrl_cmd *))
{
	cmd->next = begin;
	if (nvefs_ctrl_gate_enter(cmd, false))
		begin(cmd);
}

/* The data pointer as a scatter list of exactly `bytes`. 0 or a status. */
static uint16_t map_data(struct nvefs_ctrl_cmd *cmd, uint64_t bytes)
{
	uint64_t addr = le64_get(cmd->sqe.dptr[0]), dword = le64_get(cmd->sqe.dptr[1]), total = 0;
	uint32_t len = (uint32_t)dword;

	if ((cmd->sqe.flags & NVEFS_NVME_PSDT_MASK) != NVEFS_PSDT_SGL)
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	switch (dword >> 56) {
	case NVEFS_SGL_DATA_BLOCK:
		cmd->one = (struct iovec){(void *)(uintptr_t)addr, len};
		cmd->iov = &cmd->one;
		cmd->niov = 1;
		break;
	case NVEFS_SGL_IOVEC:
		if (!len || len % sizeof(struct iovec))
			return DNR(NVEFS_NVME_SC_SGL_SEGMENT);
		cmd->iov = (struct iovec *)(uintptr_t)addr;
		cmd->niov = len / (uint32_t)sizeof(struct iovec);
		break;
	default:
		return DNR(NVEFS_NVME_SC_SGL_TYPE);
	}
	for (uint32_t i = 0; i < cmd->niov; i++)
		total += cmd->iov[i].iov_len;
	return total == bytes ? 0 : DNR(NVEFS_NVME_SC_SGL_DATA_LEN);
}

/* Fill req with the LBA range of dwords 10 to 12. 0 or a status. */
static uint16_t map_range(struct nvefs_ctrl_cmd *cmd, uint8_t kind)
{
	const struct nvefs_ctrl *c = cmd->cq->ctrl;
	uint64_t slba = nvefs_nvme_sqe_slba(&cmd->sqe);
	uint32_t nlbs = nvefs_nvme_sqe_nlbs(&cmd->sqe), cdw12 = le32_get(cmd->sqe.cdw12);

	/* No protection information, streams or storage tags are there to be asked for. */
	if (cdw12 & (NVEFS_NVME_CDW12_PRINFO_MASK | NVEFS_NVME_CDW12_DTYPE_MASK))
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	if (slba >= c->nlbas || nlbs > c->nlbas - slba)
		return DNR(NVEFS_NVME_SC_LBA_RANGE);
	cmd->req.kind = kind;
	cmd->req.fua = cdw12 & NVEFS_NVME_CDW12_FUA;
	cmd->req.off = slba * c->cfg.lba_bytes;
	cmd->req.len = (uint64_t)nlbs * c->cfg.lba_bytes;
	cmd->req.iov = NULL;
	cmd->req.niov = 0;
	if (!__atomic_load_n(&c->write_cache, __ATOMIC_RELAXED))
		cmd->req.fua = true;
	return 0;
}

static uint16_t check_mdts(const struct nvefs_ctrl_cmd *cmd)
{
	return cmd->req.len > cmd->cq->ctrl->cfg.mdts_bytes ? DNR(NVEFS_NVME_SC_INVALID_FIELD) : 0;
}

static uint16_t check_writable(const struct nvefs_ctrl_cmd *cmd)
{
	if (cmd->cq->ctrl->cfg.worn)
		return DNR(NVEFS_NVME_SC_READ_ONLY_RANGE);
	return cmd->cq->ctrl->cfg.read_only ? DNR(NVEFS_NVME_SC_NS_WRITE_PROTECTED) : 0;
}

/* A unit that is not written whole is read, merged and written by the medium. */
static void count_media(struct nvefs_ctrl_cmd *cmd)
{
	uint64_t iu = cmd->cq->ctrl->cfg.iu_bytes, end = cmd->req.off + cmd->req.len;
	uint64_t first = cmd->req.off / iu * iu, last = (end + iu - 1) / iu * iu;

	count(&cmd->cq->stats.media_bytes, last - first);
}

static void write_done(struct nvefs_ctrl_cmd *cmd)
{
	if (!cmd->req.err)
		count_media(cmd);
	finish(cmd);
}

static void cmd_read(struct nvefs_ctrl_cmd *cmd)
{
	uint16_t status = map_range(cmd, NVEFS_MEDIA_READ);

	if (!status)
		status = check_mdts(cmd);
	if (!status)
		status = map_data(cmd, cmd->req.len);
	if (status) {
		fail(cmd, status);
		return;
	}
	cmd->req.iov = cmd->iov;
	cmd->req.niov = cmd->niov;
	count(&cmd->cq->stats.read_cmds, 1);
	count(&cmd->cq->stats.read_bytes, cmd->req.len);
	media_submit(cmd, finish);
}

static uint16_t prepare_write(struct nvefs_ctrl_cmd *cmd)
{
	uint16_t status = map_range(cmd, NVEFS_MEDIA_WRITE);

	if (!status)
		status = check_mdts(cmd);
	if (!status)
		status = check_writable(cmd);
	if (!status)
		status = map_data(cmd, cmd->req.len);
	cmd->req.iov = cmd->iov;
	cmd->req.niov = cmd->niov;
	return status;
}

static void submit_write(struct nvefs_ctrl_cmd *cmd, void (*next)(struct nvefs_ctrl_cmd *))
{
	count(&cmd->cq->stats.write_cmds, 1);
	count(&cmd->cq->stats.write_bytes, cmd->req.len);
	media_submit(cmd, next);
}

static void begin_write(struct nvefs_ctrl_cmd *cmd)
{
	submit_write(cmd, write_done);
}

static void cmd_write(struct nvefs_ctrl_cmd *cmd)
{
	uint16_t status = prepare_write(cmd);

	if (status)
		fail(cmd, status);
	else
		change(cmd, begin_write);
}

static void cmd_flush(struct nvefs_ctrl_cmd *cmd)
{
	cmd->req = (struct nvefs_media_req){.kind = NVEFS_MEDIA_FLUSH, .done = cmd->req.done};
	if (cmd->cq->ctrl->cfg.read_only)
		nvefs_ctrl_complete(cmd);
	else
		media_submit(cmd, finish);
}

static void begin_zeroes(struct nvefs_ctrl_cmd *cmd)
{
	count(&cmd->cq->stats.write_cmds, 1);
	media_submit(cmd, finish);
}

static void cmd_write_zeroes(struct nvefs_ctrl_cmd *cmd)
{
	uint16_t status = map_range(cmd, NVEFS_MEDIA_ZERO);

	if (!status)
		status = check_writable(cmd);
	if (!status && !cmd->cq->ctrl->media->can_deallocate)
		status = DNR(NVEFS_NVME_SC_INVALID_OPCODE);
	if (status)
		fail(cmd, status);
	else
		change(cmd, begin_zeroes);
}

/* All of them, before the first is deallocated. */
static uint16_t check_ranges(const struct nvefs_ctrl_cmd *cmd)
{
	const struct nvefs_nvme_dsm_range *range = cmd->bounce;
	uint64_t nlbas = cmd->cq->ctrl->nlbas;

	for (uint32_t i = 0; i < nvefs_nvme_sqe_dsm_nranges(&cmd->sqe); i++)
		if (le64_get(range[i].slba) > nlbas ||
		    le32_get(range[i].nlbs) > nlbas - le64_get(range[i].slba))
			return DNR(NVEFS_NVME_SC_LBA_RANGE);
	return 0;
}

static void dsm_next(struct nvefs_ctrl_cmd *cmd)
{
	const struct nvefs_ctrl *c = cmd->cq->ctrl;
	const struct nvefs_nvme_dsm_range *ranges = cmd->bounce;
	uint32_t nranges = nvefs_nvme_sqe_dsm_nranges(&cmd->sqe);

	while (!cmd->req.err && cmd->step < nranges) {
		const struct nvefs_nvme_dsm_range *range = &ranges[cmd->step++];

		if (!le32_get(range->nlbs))
			continue;
		cmd->req.off = le64_get(range->slba) * c->cfg.lba_bytes;
		cmd->req.len = (uint64_t)le32_get(range->nlbs) * c->cfg.lba_bytes;
		cmd->next = dsm_next;
		if (!c->media->ops->submit(cmd->cq->mq, &cmd->req))
			return;
	}
	finish(cmd);
}

static void copy_from_iov(const struct nvefs_ctrl_cmd *cmd, uint8_t *to)
{
	for (uint32_t i = 0; i < cmd->niov; i++) {
		memcpy(to, cmd->iov[i].iov_base, cmd->iov[i].iov_len);
		to += cmd->iov[i].iov_len;
	}
}

static void cmd_dsm(struct nvefs_ctrl_cmd *cmd)
{
	uint32_t bytes =
	    nvefs_nvme_sqe_dsm_nranges(&cmd->sqe) * (uint32_t)sizeof(struct nvefs_nvme_dsm_range);
	uint16_t status = map_data(cmd, bytes);

	if (!status && !(le32_get(cmd->sqe.cdw11) & NVEFS_NVME_DSM_CDW11_AD)) {
		nvefs_ctrl_complete(cmd); /* hints of access patterns */
		return;
	}
	if (!status) {
		cmd->bounce = nvefs_buf_new(bytes);
		if (!cmd->bounce)
			status = NVEFS_NVME_SC_INTERNAL;
	}
	if (!status) {
		copy_from_iov(cmd, cmd->bounce);
		status = check_ranges(cmd);
	}
	if (!status)
		status = check_writable(cmd);
	if (!status && !cmd->cq->ctrl->media->can_deallocate)
		status = DNR(NVEFS_NVME_SC_INVALID_OPCODE);
	if (status) {
		fail(cmd, status);
		return;
	}
	cmd->req = (struct nvefs_media_req){.kind = NVEFS_MEDIA_DEALLOCATE, .done = cmd->req.done};
	cmd->step = 0;
	change(cmd, dsm_next);
}

/* The medium has been read: 0, or how the command ends. */
static uint16_t compared(struct nvefs_ctrl_cmd *cmd)
{
	const uint8_t *medium = cmd->bounce;

	if (cmd->req.err) {
		count(&cmd->cq->stats.media_errors, 1);
		return media_status(cmd);
	}
	for (uint32_t i = 0; i < cmd->niov; i++) {
		if (memcmp(medium, cmd->iov[i].iov_base, cmd->iov[i].iov_len))
			return DNR(NVEFS_NVME_SC_COMPARE_FAILED);
		medium += cmd->iov[i].iov_len;
	}
	return 0;
}

static void compare_done(struct nvefs_ctrl_cmd *cmd)
{
	cmd->status = compared(cmd);
	nvefs_ctrl_complete(cmd);
}

/* Compare and Verify read the medium into a buffer of the controller's own. */
static uint16_t prepare_inside(struct nvefs_ctrl_cmd *cmd, bool with_data)
{
	uint16_t status = map_range(cmd, NVEFS_MEDIA_READ);

	if (!status)
		status = check_mdts(cmd);
	if (!status && with_data)
		status = map_data(cmd, cmd->req.len);
	if (status)
		return status;
	cmd->bounce = nvefs_buf_new(cmd->req.len);
	cmd->inner = (struct iovec){cmd->bounce, cmd->req.len};
	cmd->req.iov = &cmd->inner;
	cmd->req.niov = 1;
	return cmd->bounce ? 0 : NVEFS_NVME_SC_INTERNAL;
}

static void read_inside(struct nvefs_ctrl_cmd *cmd, uint16_t status,
			void (*next)(struct nvefs_ctrl_cmd *))
{
	if (status) {
		fail(cmd, status);
		return;
	}
	count(&cmd->cq->stats.read_cmds, 1);
	media_submit(cmd, next);
}

static void cmd_compare(struct nvefs_ctrl_cmd *cmd)
{
	read_inside(cmd, prepare_inside(cmd, true), compare_done);
}

static void cmd_verify(struct nvefs_ctrl_cmd *cmd)
{
	read_inside(cmd, prepare_inside(cmd, false), finish);
}

static void (*const commands[256])(struct nvefs_ctrl_cmd *) = {
    [NVEFS_NVME_FLUSH] = cmd_flush,   [NVEFS_NVME_WRITE] = cmd_write,
    [NVEFS_NVME_READ] = cmd_read,     [NVEFS_NVME_COMPARE] = cmd_compare,
    [NVEFS_NVME_VERIFY] = cmd_verify, [NVEFS_NVME_WRITE_ZEROES] = cmd_write_zeroes,
    [NVEFS_NVME_DSM] = cmd_dsm,
};

/* Both end: the one that failed by itself with its status, the other one for its sake. */
static void pair_fail(struct nvefs_ctrl_cmd *first, uint16_t by_first, uint16_t by_second)
{
	struct nvefs_ctrl_cmd *second = first->pair;

	first->status = by_first ? by_first : DNR(NVEFS_NVME_SC_FUSED_FAILED);
	second->status = by_second ? by_second : DNR(NVEFS_NVME_SC_FUSED_FAILED);
	nvefs_ctrl_complete(first);
	nvefs_ctrl_complete(second);
}

static void pair_written(struct nvefs_ctrl_cmd *second)
{
	struct nvefs_ctrl_cmd *first = second->pair;
	uint16_t status = media_status(second);

	if (status) {
		count(&second->cq->stats.media_errors, 1);
		pair_fail(first, 0, status);
		return;
	}
	count_media(second);
	nvefs_ctrl_complete(first);
	nvefs_ctrl_complete(second);
}

static void pair_compared(struct nvefs_ctrl_cmd *first)
{
	uint16_t status = compared(first);

	if (status)
		pair_fail(first, status, 0);
	else
		submit_write(first->pair, pair_written);
}

static void begin_pair(struct nvefs_ctrl_cmd *first)
{
	read_inside(first, 0, pair_compared);
}

/* Compare and Write of the same LBAs is the one pair that there is. */
void nvefs_ctrl_execute_pair(struct nvefs_ctrl_cmd *first, struct nvefs_ctrl_cmd *second)
{
	uint16_t by_first = DNR(NVEFS_NVME_SC_INVALID_FIELD), by_second = by_first;
	const struct nvefs_nvme_sqe *a = &first->sqe, *b = &second->sqe;

	first->pair = second;
	second->pair = first;
	if (a->opcode == NVEFS_NVME_COMPARE && b->opcode == NVEFS_NVME_WRITE &&
	    nvefs_nvme_sqe_slba(a) == nvefs_nvme_sqe_slba(b) &&
	    nvefs_nvme_sqe_nlbs(a) == nvefs_nvme_sqe_nlbs(b)) {
		by_first = le32_get(a->nsid) == NVEFS_CTRL_NSID ? prepare_inside(first, true)
								: DNR(NVEFS_NVME_SC_INVALID_NS);
		by_second = le32_get(b->nsid) == NVEFS_CTRL_NSID ? prepare_write(second)
								 : DNR(NVEFS_NVME_SC_INVALID_NS);
	}
	first->next = begin_pair;
	if (by_first || by_second)
		pair_fail(first, by_first, by_second);
	else if (nvefs_ctrl_gate_enter(first, true))
		begin_pair(first);
}

void nvefs_ctrl_execute(struct nvefs_ctrl_cmd *cmd)
{
	uint32_t nsid = le32_get(cmd->sqe.nsid);
	uint8_t opcode = cmd->sqe.opcode, fuse = cmd->sqe.flags & NVEFS_NVME_FUSE_MASK;

	if (!commands[opcode])
		fail(cmd, DNR(NVEFS_NVME_SC_INVALID_OPCODE));
	else if (fuse == NVEFS_NVME_FUSE_MASK)
		fail(cmd, DNR(NVEFS_NVME_SC_INVALID_FIELD));
	else if (fuse) /* half of a pair */
		fail(cmd, DNR(NVEFS_NVME_SC_FUSED_MISSING));
	else if (nsid != NVEFS_CTRL_NSID &&
		 !(nsid == NVEFS_NVME_NSID_ALL && opcode == NVEFS_NVME_FLUSH))
		fail(cmd, DNR(NVEFS_NVME_SC_INVALID_NS));
	else
		commands[opcode](cmd);
}
