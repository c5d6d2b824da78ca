/* SPDX-License-Identifier: MIT */
/* Commands that touch the medium: each one becomes one NVMe command, or is refused. */
#include <string.h>
#include "scsi/sntl_private.h"

static uint32_t max_transfer_lbas(const struct nvefs_sntl_lu *lu)
{
	uint32_t lbas = lu->max_transfer_bytes / lu->ns->lba_bytes;

	return lbas < NVEFS_NVME_MAX_NLBS ? lbas : NVEFS_NVME_MAX_NLBS;
}

/*
 * False, with the command ended, when the blocks are not all there or are more
 * than `max_lbas`. A range of no blocks must still begin on the medium.
 */
static bool check_range(struct sntl_ctx *x, uint64_t max_lbas)
{
	uint64_t nlbas = x->lu->ns->nsze;

	if (x->cdb.lba >= nlbas || x->cdb.count > nlbas - x->cdb.lba) {
		struct nvefs_sense s = {.key = NVEFS_SENSE_ILLEGAL_REQUEST,
					.asc = NVEFS_ASC_LBA_RANGE,
					.has_info = true,
					.info = x->cdb.lba < nlbas ? nlbas : x->cdb.lba};

		sntl_fail(x, &s);
		return false;
	}
	if (x->cdb.count > max_lbas) {
		sntl_illegal_cdb(x, nvefs_cdb_count_byte(&x->cdb), -1);
		return false;
	}
	return true;
}

/* Nothing is transferred in part. */
bool sntl_check_data(struct sntl_ctx *x, uint64_t bytes, bool out)
{
	if (bytes <= (out ? x->req->out_len : x->req->in_len))
		return true;
	sntl_illegal_cdb(x, nvefs_cdb_count_byte(&x->cdb), -1);
	return false;
}

static struct nvefs_sntl_part *send_rw(struct sntl_ctx *x, uint8_t opcode, uint32_t flags)
{
	struct nvefs_sntl_part *p = sntl_send(x);

	nvefs_nvme_sqe_rw(&p->sqe, opcode, x->lu->nsid, x->cdb.lba, x->cdb.count, flags);
	return p;
}

/* Data of the part from the initiator: `nlbas` logical blocks, or one over and over. */
static void data_from_out(struct sntl_ctx *x, struct nvefs_sntl_part *p, uint32_t offset,
			  bool one_repeated)
{
	uint32_t lba_bytes = x->lu->ns->lba_bytes;

	p->data = NVEFS_SNTL_FROM_OUT;
	p->offset = offset;
	p->bytes = one_repeated ? lba_bytes : x->cdb.count * lba_bytes;
	p->repeat = one_repeated ? x->cdb.count : 1;
	x->cmd->out_bytes = offset + p->bytes;
}

static uint32_t fua_flag(const struct sntl_ctx *x)
{
	bool fua = x->cdb.fua && !(x->lu->mistakes & NVEFS_SNTL_DROP_FUA);

	return fua ? NVEFS_NVME_CDW12_FUA : 0;
}

void sntl_read_write(struct sntl_ctx *x, bool write)
{
	uint64_t bytes = (uint64_t)x->cdb.count * x->lu->ns->lba_bytes;
	struct nvefs_sntl_part *p;

	if (!check_range(x, max_transfer_lbas(x->lu)) || !sntl_check_data(x, bytes, write))
		return;
	if (x->cdb.count == 0)
		return sntl_good(x);
	p = send_rw(x, write ? NVEFS_NVME_WRITE : NVEFS_NVME_READ, fua_flag(x));
	if (write) {
		data_from_out(x, p, 0, false);
	} else {
		p->data = NVEFS_SNTL_TO_IN;
		p->bytes = (uint32_t)bytes;
		x->cmd->in_bytes = (uint32_t)bytes;
	}
}

/* BYTCHK (SBC-3, 5.34): 0 the medium alone, 1 against as many blocks, 3 against one block. */
void sntl_verify(struct sntl_ctx *x)
{
	uint8_t bytchk = x->cdb.bytchk;
	uint64_t blocks = bytchk == 0 ? 0 : bytchk == 1 ? x->cdb.count : x->cdb.count != 0;

	if (bytchk == 2 || (bytchk && !x->lu->ctrl->compare))
		return sntl_illegal_cdb(x, 1, 2);
	if (!bytchk && !x->lu->ctrl->verify)
		return sntl_illegal(x, NVEFS_ASC_INVALID_OPCODE);
	if (!check_range(x, max_transfer_lbas(x->lu)) ||
	    !sntl_check_data(x, blocks * x->lu->ns->lba_bytes, true))
		return;
	if (x->cdb.count == 0)
		return sntl_good(x);
	if (!bytchk)
		send_rw(x, NVEFS_NVME_VERIFY, 0);
	else
		data_from_out(x, send_rw(x, NVEFS_NVME_COMPARE, 0), 0, bytchk == 3);
}

/* The initiator's data: the blocks to compare with, then the blocks to write. */
void sntl_compare_and_write(struct sntl_ctx *x)
{
	struct nvefs_scsi_block_limits limits;
	struct nvefs_sntl_part *p;
	uint32_t half = x->cdb.count * x->lu->ns->lba_bytes;

	nvefs_sntl_block_limits(x->lu, &limits);
	if (limits.max_compare_and_write == 0)
		return sntl_illegal(x, NVEFS_ASC_INVALID_OPCODE);
	if (!check_range(x, limits.max_compare_and_write) || !sntl_check_data(x, 2ull * half, true))
		return;
	if (x->cdb.count == 0)
		return sntl_good(x);
	x->cmd->tells_offset = true;
	p = send_rw(x, NVEFS_NVME_COMPARE, 0);
	p->sqe.flags = NVEFS_NVME_FUSE_FIRST;
	data_from_out(x, p, 0, false);
	p = send_rw(x, NVEFS_NVME_WRITE, fua_flag(x));
	p->sqe.flags = NVEFS_NVME_FUSE_SECOND;
	data_from_out(x, p, half, false);
}

static bool all_zeros(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

static void send_deallocate(struct sntl_ctx *x, uint32_t nranges)
{
	struct nvefs_sntl_part *p = sntl_send(x);

	nvefs_nvme_sqe_dsm(&p->sqe, x->lu->nsid, nranges, NVEFS_NVME_DSM_CDW11_AD);
	p->data = NVEFS_SNTL_RANGES;
	p->bytes = nranges * (uint32_t)sizeof(struct nvefs_nvme_dsm_range);
}

static void put_range(struct nvefs_nvme_dsm_range *r, uint64_t slba, uint32_t nlbas)
{
	r->cattr = le32_make(0);
	r->nlbs = le32_make(nlbas);
	r->slba = le64_make(slba);
}

/*
 * Write Zeroes promises zeros, deallocating is only how; so a controller that
 * cannot deallocate that way just writes them, as SBC-3 (4.7.3.4.4) allows.
 */
static void write_same_zeros(struct sntl_ctx *x)
{
	bool deallocate = x->cdb.unmap && (x->lu->ns->dlfeat & NVEFS_NVME_DLFEAT_DEAC);

	if ((x->lu->mistakes & NVEFS_SNTL_ZEROES_DISCARD) && x->req->max_ranges > 0) {
		put_range(x->req->ranges, x->cdb.lba, x->cdb.count);
		send_deallocate(x, 1);
		return;
	}
	send_rw(x, NVEFS_NVME_WRITE_ZEROES, deallocate ? NVEFS_NVME_CDW12_DEAC : 0);
}

void sntl_write_same(struct sntl_ctx *x)
{
	struct nvefs_scsi_block_limits limits;
	uint32_t lba_bytes = x->lu->ns->lba_bytes;
	bool zeros = x->cdb.ndob;

	nvefs_sntl_block_limits(x->lu, &limits);
	if (x->cdb.ndob && !x->lu->ctrl->write_zeroes)
		return sntl_illegal_cdb(x, 1, 0);
	if (x->cdb.count == 0) /* to the end of the medium: WSNZ in page B0h says no */
		return sntl_illegal_cdb(x, nvefs_cdb_count_byte(&x->cdb), -1);
	if (!check_range(x, limits.max_write_same))
		return;
	if (!zeros) {
		/* One block and no more: anything else was meant for another block size. */
		if (x->req->out_len != lba_bytes || !x->req->out)
			return sntl_illegal_cdb(x, nvefs_cdb_count_byte(&x->cdb), -1);
		zeros = all_zeros(x->req->out, lba_bytes);
		x->cmd->out_bytes = lba_bytes;
	}
	if (zeros && x->lu->ctrl->write_zeroes)
		return write_same_zeros(x);
	data_from_out(x, send_rw(x, NVEFS_NVME_WRITE, 0), 0, true);
}

/* UNMAP parameter list (SBC-3, 5.28.2): an 8-byte header, then descriptors of 16 bytes. */
#define UNMAP_HEADER_BYTES 8u
#define UNMAP_DESC_BYTES 16u

/*
 * Check all descriptors and turn those that are not empty into ranges. False
 * when the command was ended. Big-endian on this side, little-endian on that.
 */
static bool unmap_ranges(struct sntl_ctx *x, const uint8_t *list, uint32_t ndescs,
			 const struct nvefs_scsi_block_limits *limits, uint32_t *ret_nranges)
{
	uint64_t nlbas = x->lu->ns->nsze, total = 0;
	uint32_t nranges = 0;

	for (uint32_t i = 0; i < ndescs; i++) {
		uint32_t at = UNMAP_HEADER_BYTES + i * UNMAP_DESC_BYTES;
		uint64_t lba = be64_load(list + at);
		uint32_t count = be32_load(list + at + 8);

		if (be32_load(list + at + 12) != 0)
			return sntl_illegal_parameter(x, (uint16_t)(at + 12), -1), false;
		if (lba > nlbas || count > nlbas - lba)
			return sntl_illegal(x, NVEFS_ASC_LBA_RANGE), false;
		total += count;
		if (total > limits->max_unmap)
			return sntl_illegal_parameter(x, (uint16_t)(at + 8), -1), false;
		if (count > 0)
			put_range(&x->req->ranges[nranges++], lba, count);
	}
	*ret_nranges = nranges;
	return true;
}

void sntl_unmap(struct sntl_ctx *x)
{
	const uint8_t *list = x->req->out;
	struct nvefs_scsi_block_limits limits;
	uint32_t len = x->cdb.count, desc_bytes, nranges;

	nvefs_sntl_block_limits(x->lu, &limits);
	if (limits.max_unmap_descs == 0)
		return sntl_illegal(x, NVEFS_ASC_INVALID_OPCODE);
	if (len == 0)
		return sntl_good(x);
	if (!sntl_check_data(x, len, true))
		return;
	if (len < UNMAP_HEADER_BYTES)
		return sntl_illegal(x, NVEFS_ASC_PARAMETER_LENGTH);
	if (!list)
		return sntl_illegal_cdb(x, 7, -1);
	desc_bytes = be16_load(list + 2);
	if (desc_bytes > len - UNMAP_HEADER_BYTES)
		return sntl_illegal(x, NVEFS_ASC_PARAMETER_LENGTH);
	if (be16_load(list) < desc_bytes + 6)
		return sntl_illegal_parameter(x, 0, -1);
	if (be32_load(list + 4) != 0)
		return sntl_illegal_parameter(x, 4, -1);
	/* An incomplete last descriptor is ignored (SBC-3, 5.28.2), too many are not. */
	if (desc_bytes / UNMAP_DESC_BYTES > limits.max_unmap_descs ||
	    desc_bytes / UNMAP_DESC_BYTES > x->req->max_ranges)
		return sntl_illegal_parameter(x, 2, -1);
	if (!unmap_ranges(x, list, desc_bytes / UNMAP_DESC_BYTES, &limits, &nranges))
		return;
	x->cmd->out_bytes = len;
	if (nranges == 0)
		return sntl_good(x);
	send_deallocate(x, nranges);
}

/*
 * Flush knows no range and covers the whole namespace; IMMED is answered with
 * the status of the finished Flush, which is more than was asked for. It is
 * sent without a look at the cache's state, which may change at any time.
 */
void sntl_synchronize_cache(struct sntl_ctx *x)
{
	if (!check_range(x, UINT32_MAX))
		return;
	if (x->lu->mistakes & NVEFS_SNTL_FLUSH_NOT_SENT)
		return sntl_good(x);
	nvefs_nvme_sqe_flush(&sntl_send(x)->sqe, x->lu->nsid);
}
