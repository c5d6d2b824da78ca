/* SPDX-License-Identifier: MIT */
#include "device/scsi_initiator.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include <nvefs/endian.h>

#include "scsi/cdb.h"

/* A scatter list of the io goes into the header as it is. */
static_assert(sizeof(sg_iovec_t) == sizeof(struct iovec), "scatter list of SG");
static_assert(offsetof(sg_iovec_t, iov_base) == offsetof(struct iovec, iov_base), "SG base");
static_assert(offsetof(sg_iovec_t, iov_len) == offsetof(struct iovec, iov_len), "SG length");

static void set_io_data(sg_io_hdr_t *hdr, const struct nvefs_io *io, int direction)
{
	hdr->dxfer_direction = direction;
	hdr->dxfer_len = io->nblks << NVEFS_BLOCK_SHIFT;
	if (io->niov == 1) {
		hdr->dxferp = io->iov[0].iov_base;
		return;
	}
	hdr->iovec_count = io->niov;
	hdr->dxferp = io->iov;
}

static void set_own_data(sg_io_hdr_t *hdr, const void *data, uint32_t len)
{
	hdr->dxfer_direction = SG_DXFER_TO_DEV;
	hdr->dxfer_len = len;
	hdr->dxferp = (void *)(uintptr_t)data;
}

/* UNMAP's parameter list with one descriptor (SBC-3, 5.28.2). */
static void unmap_list(uint8_t list[24], uint64_t lba, uint32_t count)
{
	memset(list, 0, 24);
	be16_store(list, 22);
	be16_store(list + 2, 16);
	be64_store(list + 8, lba);
	be32_store(list + 16, count);
}

static void build_cdb(struct nvefs_scsi_task *task, const struct nvefs_scsi_unit *unit,
		      const struct nvefs_io *io, struct nvefs_cdb *c)
{
	sg_io_hdr_t *hdr = &task->hdr;

	c->lba = io->pblk << unit->lba_shift;
	c->count = io->nblks << unit->lba_shift;
	switch (io->op) {
	case NVEFS_IO_READ:
		c->opcode = NVEFS_SCSI_READ_16;
		set_io_data(hdr, io, SG_DXFER_FROM_DEV);
		break;
	case NVEFS_IO_WRITE:
		c->opcode = NVEFS_SCSI_WRITE_16;
		c->fua = io->flags & NVEFS_IO_FUA;
		set_io_data(hdr, io, SG_DXFER_TO_DEV);
		break;
	case NVEFS_IO_COMPARE:
		c->opcode = NVEFS_SCSI_VERIFY_16;
		c->bytchk = 1;
		set_io_data(hdr, io, SG_DXFER_TO_DEV);
		break;
	case NVEFS_IO_FLUSH:
		c->opcode = unit->sync_10 ? NVEFS_SCSI_SYNCHRONIZE_CACHE_10
					  : NVEFS_SCSI_SYNCHRONIZE_CACHE_16;
		c->lba = c->count = 0;
		break;
	case NVEFS_IO_DISCARD:
		c->opcode = NVEFS_SCSI_UNMAP;
		unmap_list(task->unmap, c->lba, c->count);
		c->count = sizeof(task->unmap);
		set_own_data(hdr, task->unmap, sizeof(task->unmap));
		break;
	case NVEFS_IO_WRITE_ZEROES:
		c->opcode = NVEFS_SCSI_WRITE_SAME_16;
		c->unmap = unit->write_same_unmap;
		set_own_data(hdr, unit->zeros, unit->lba_bytes);
		break;
	default:
		break;
	}
}

int nvefs_scsi_task_build(struct nvefs_scsi_task *task, const struct nvefs_scsi_unit *unit,
			  const struct nvefs_io *io, int pack_id)
{
	sg_io_hdr_t *hdr = &task->hdr;
	struct nvefs_cdb c = {0};
	int len;

	if (io->op >= NVEFS_IO_NOPS || (io->op == NVEFS_IO_DISCARD && !unit->unmap))
		return -ENOTSUP;
	memset(hdr, 0, sizeof(*hdr));
	hdr->interface_id = 'S';
	hdr->dxfer_direction = SG_DXFER_NONE;
	build_cdb(task, unit, io, &c);
	len = nvefs_cdb_build(&c, task->cdb);
	if (len < 0)
		return len;
	hdr->cmd_len = (unsigned char)len;
	hdr->cmdp = task->cdb;
	hdr->mx_sb_len = sizeof(task->sense);
	hdr->sbp = task->sense;
	hdr->timeout = NVEFS_SCSI_TIMEOUT_MS;
	hdr->pack_id = pack_id;
	return 0;
}

static bool has_io_data(const struct nvefs_io *io)
{
	return io->op == NVEFS_IO_READ || io->op == NVEFS_IO_WRITE || io->op == NVEFS_IO_COMPARE;
}

static int host_error(struct nvefs_io *io, int err)
{
	io->status.kind = NVEFS_STATUS_HOST;
	io->status.host_errno = err;
	return err;
}

int nvefs_scsi_task_result(const struct nvefs_scsi_task *task, struct nvefs_io *io)
{
	const sg_io_hdr_t *hdr = &task->hdr;
	struct nvefs_sense s;
	const struct nvefs_sense *sense = NULL;

	if (hdr->host_status)
		return host_error(io, hdr->host_status == NVEFS_SCSI_HOST_TIME_OUT ? -ETIMEDOUT : -EIO);
	if (hdr->sb_len_wr > 0 && !nvefs_sense_parse(task->sense, hdr->sb_len_wr, &s))
		sense = &s;
	io->status.kind = NVEFS_STATUS_SENSE;
	io->status.sense_len = hdr->sb_len_wr;
	memcpy(io->status.sense, task->sense, hdr->sb_len_wr);
	/* A command that says "good" and has not moved all data has not done what was asked. */
	if (hdr->status == NVEFS_SCSI_GOOD && hdr->resid != 0 && has_io_data(io))
		return host_error(io, -EIO);
	return nvefs_sense_errno(hdr->status, sense);
}

int nvefs_scsi_ask(nvefs_scsi_send_fn *send, void *arg, struct nvefs_cdb *c, void *buf, uint32_t *ret_len)
{
	uint8_t cdb[NVEFS_CDB_MAX], sense[NVEFS_SENSE_MAX];
	sg_io_hdr_t hdr = {.interface_id = 'S',
			   .dxfer_direction = SG_DXFER_FROM_DEV,
			   .mx_sb_len = sizeof(sense),
			   .dxfer_len = c->count,
			   .dxferp = buf,
			   .cmdp = cdb,
			   .sbp = sense,
			   .timeout = NVEFS_SCSI_TIMEOUT_MS};
	struct nvefs_sense s;
	bool has_sense;
	int err;

	err = nvefs_cdb_build(c, cdb);
	if (err < 0)
		return err;
	hdr.cmd_len = (unsigned char)err;
	memset(buf, 0, c->count);
	err = send(arg, &hdr);
	if (!err && hdr.host_status)
		err = hdr.host_status == NVEFS_SCSI_HOST_TIME_OUT ? -ETIMEDOUT : -EIO;
	if (err)
		return err;
	has_sense = hdr.sb_len_wr > 0 && !nvefs_sense_parse(sense, hdr.sb_len_wr, &s);
	err = nvefs_sense_errno(hdr.status, has_sense ? &s : NULL);
	if (err)
		return err;
	*ret_len = hdr.resid >= 0 && (uint32_t)hdr.resid <= c->count ? c->count - (uint32_t)hdr.resid : 0;
	return 0;
}
