/* SPDX-License-Identifier: MIT */
/* Commands answered from Identify data, without a command to the controller. */
#include <stdio.h>
#include <string.h>
#include <nvefs/endian.h>
#include "scsi/sntl_private.h"

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t max_write_same_lbas(const struct nvefs_sntl_lu *lu, uint32_t transfer)
{
	/* Any pattern must work up to the announced length, and one that is not zeros is written.
	 */
	uint32_t wz = nvefs_nvme_limit_bytes(lu->ctrl->wzsl, 12) / lu->ns->lba_bytes;

	return lu->ctrl->write_zeroes && lu->ctrl->wzsl ? min_u32(transfer, wz) : transfer;
}

static uint32_t max_unmap_lbas(const struct nvefs_nvme_ctrl_info *ctrl)
{
	uint32_t lbas = UINT32_MAX;

	if (ctrl->dmrsl)
		lbas = min_u32(lbas, ctrl->dmrsl);
	if (ctrl->dmsl && ctrl->dmsl < lbas)
		lbas = (uint32_t)ctrl->dmsl;
	return lbas;
}

/* Counts are in logical blocks of the namespace's real size, never in 512 bytes. */
void nvefs_sntl_block_limits(const struct nvefs_sntl_lu *lu, struct nvefs_scsi_block_limits *ret)
{
	const struct nvefs_nvme_ns_info *ns = lu->ns;
	uint32_t transfer = min_u32(lu->max_transfer_bytes / ns->lba_bytes, NVEFS_NVME_MAX_NLBS);

	memset(ret, 0, sizeof(*ret));
	ret->no_zero_write_same = true;
	ret->max_transfer = transfer;
	ret->optimal_transfer = min_u32(ns->nows, transfer);
	ret->granularity = (uint16_t)min_u32(ns->npwg > 1 ? ns->npwg : 0, UINT16_MAX);
	ret->max_write_same = max_write_same_lbas(lu, transfer);
	if (lu->ctrl->fused_compare_write) {
		uint32_t acwu = ns->nacwu ? ns->nacwu : lu->ctrl->acwu;

		ret->max_compare_and_write = (uint8_t)min_u32(min_u32(acwu, transfer), 255);
	}
	if (!lu->ctrl->dsm)
		return;
	ret->max_unmap = max_unmap_lbas(lu->ctrl);
	ret->max_unmap_descs = lu->ctrl->dmrl ? lu->ctrl->dmrl : NVEFS_NVME_DSM_MAX_RANGES;
	ret->unmap_granularity = ns->npdg > 1 ? ns->npdg : 0;
	ret->unmap_alignment_valid = ret->unmap_granularity != 0;
}

void nvefs_sntl_identity(const struct nvefs_sntl_lu *lu, struct nvefs_scsi_identity *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->nguid, lu->ns->nguid, sizeof(ret->nguid));
	memcpy(ret->eui64, lu->ns->eui64, sizeof(ret->eui64));
	memcpy(ret->uuid, lu->ns->uuid, sizeof(ret->uuid));
	snprintf(ret->t10, sizeof(ret->t10), "NVMe    %-40.40s%-20.20s", lu->ctrl->model,
		 lu->ctrl->serial);
	if (lu->mistakes & NVEFS_SNTL_OTHER_IDENTITY) {
		ret->nguid[15] ^= 0xff;
		ret->eui64[7] ^= 0xff;
		ret->uuid[15] ^= 0xff;
	}
}

static void standard_inquiry(struct sntl_ctx *x)
{
	struct nvefs_scsi_inquiry in = {.vendor = "NVMe"};
	const char *fr = x->lu->ctrl->firmware;
	size_t fr_len = strlen(fr);
	uint8_t buf[NVEFS_INQUIRY_BYTES];

	snprintf(in.product, sizeof(in.product), "%.16s", x->lu->ctrl->model);
	/* The last four characters tell revisions apart best (SNTL, 6.1.1). */
	snprintf(in.revision, sizeof(in.revision), "%.4s", fr_len > 4 ? fr + fr_len - 4 : fr);
	sntl_answer(x, buf, nvefs_scsi_inquiry_build(&in, buf));
}

/* Groups of four hexadecimal digits, as the Reference writes identifiers: 0011_2233_..._EEFF. */
static void format_id(char *to, size_t len, const uint8_t *id, size_t id_len)
{
	size_t pos = 0;

	for (size_t i = 0; i < id_len; i++)
		pos += (size_t)snprintf(to + pos, len - pos, "%02X%s", id[i],
					i + 1 == id_len ? "."
					: i % 2		? "_"
							: "");
}

static bool all_zeros(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

static uint32_t serial_page(const struct sntl_ctx *x, uint8_t *buf)
{
	struct nvefs_scsi_identity id;
	char serial[64];

	nvefs_sntl_identity(x->lu, &id);
	if (!all_zeros(id.nguid, 16))
		format_id(serial, sizeof(serial), id.nguid, 16);
	else if (!all_zeros(id.eui64, 8))
		format_id(serial, sizeof(serial), id.eui64, 8);
	else
		snprintf(serial, sizeof(serial), "%s_%08X.", x->lu->ctrl->serial, x->lu->nsid);
	return nvefs_vpd_serial_build(serial, buf);
}

static uint32_t provisioning_page(const struct sntl_ctx *x, uint8_t *buf)
{
	const struct nvefs_nvme_ns_info *ns = x->lu->ns;
	struct nvefs_scsi_provisioning p = {
	    .unmap = x->lu->ctrl->dsm,
	    .reads_zeros =
		(ns->dlfeat & NVEFS_NVME_DLFEAT_READ_MASK) == NVEFS_NVME_DLFEAT_READ_ZEROS,
	};

	p.write_same_16 = p.write_same_10 =
	    x->lu->ctrl->write_zeroes && (ns->dlfeat & NVEFS_NVME_DLFEAT_DEAC);
	if (p.unmap || p.write_same_16)
		p.type = ns->thin ? 2 : 1;
	return nvefs_vpd_provisioning_build(&p, buf);
}

void sntl_inquiry(struct sntl_ctx *x)
{
	uint8_t buf[NVEFS_VPD_BYTES];
	struct nvefs_scsi_block_limits limits;
	struct nvefs_scsi_identity id;

	if (!x->cdb.evpd)
		return x->cdb.page ? sntl_illegal_cdb(x, 2, -1) : standard_inquiry(x);
	switch (x->cdb.page) {
	case NVEFS_VPD_SUPPORTED:
		return sntl_answer(x, buf, nvefs_vpd_supported_build(buf));
	case NVEFS_VPD_SERIAL:
		return sntl_answer(x, buf, serial_page(x, buf));
	case NVEFS_VPD_IDENTIFICATION:
		nvefs_sntl_identity(x->lu, &id);
		return sntl_answer(x, buf, nvefs_vpd_identification_build(&id, buf));
	case NVEFS_VPD_EXTENDED_INQUIRY:
		return sntl_answer(x, buf, nvefs_vpd_extended_build(x->lu->ctrl->vwc, buf));
	case NVEFS_VPD_BLOCK_LIMITS:
		nvefs_sntl_block_limits(x->lu, &limits);
		return sntl_answer(x, buf, nvefs_vpd_limits_build(&limits, buf));
	case NVEFS_VPD_CHARACTERISTICS:
		return sntl_answer(x, buf, nvefs_vpd_characteristics_build(buf));
	case NVEFS_VPD_PROVISIONING:
		return sntl_answer(x, buf, provisioning_page(x, buf));
	default:
		return sntl_illegal_cdb(x, 2, -1);
	}
}

void sntl_read_capacity(struct sntl_ctx *x)
{
	const struct nvefs_nvme_ns_info *ns = x->lu->ns;
	uint8_t buf[NVEFS_CAPACITY_16_BYTES];
	bool deac = x->lu->ctrl->write_zeroes && (ns->dlfeat & NVEFS_NVME_DLFEAT_DEAC);
	struct nvefs_scsi_capacity c = {
	    .nlbas = ns->nsze,
	    .lba_bytes = ns->lba_bytes,
	    .lbpme = x->lu->ctrl->dsm || deac,
	};

	/* The physical block is what is written without read-merge-write. */
	while (c.physical_exponent < 15 && ns->npwg && ns->npwg % (2u << c.physical_exponent) == 0)
		c.physical_exponent++;
	c.lbprz =
	    c.lbpme && (ns->dlfeat & NVEFS_NVME_DLFEAT_READ_MASK) == NVEFS_NVME_DLFEAT_READ_ZEROS;
	if (x->cdb.opcode == NVEFS_SCSI_READ_CAPACITY_10)
		sntl_answer(x, buf, nvefs_scsi_capacity10_build(&c, buf));
	else
		sntl_answer(x, buf, nvefs_scsi_capacity16_build(&c, buf));
}

/* SELECT REPORT (SPC-4, 6.33): 0 and 2 include LUN 0, 1 asks for well known units, of which there
 * are none. */
void sntl_report_luns(struct sntl_ctx *x)
{
	uint8_t buf[16] = {0};
	uint32_t list_bytes = x->cdb.select_report == 1 ? 0 : 8;

	if (x->cdb.select_report > 2)
		return sntl_illegal_cdb(x, 2, -1);
	be32_store(buf, list_bytes);
	sntl_answer(x, buf, 8 + list_bytes);
}

void sntl_request_sense(struct sntl_ctx *x)
{
	struct nvefs_sense none = {.key = NVEFS_SENSE_NO_SENSE};
	uint8_t buf[NVEFS_SENSE_MAX];

	/* Sense data goes with the command that failed, so there is never any left. */
	sntl_answer(x, buf, nvefs_sense_build(&none, x->cdb.desc, buf));
}

static bool is_verify(uint8_t opcode)
{
	return opcode == NVEFS_SCSI_VERIFY_10 || opcode == NVEFS_SCSI_VERIFY_12 ||
	       opcode == NVEFS_SCSI_VERIFY_16;
}

/* A command whose NVMe counterpart is missing is not supported either. */
static bool format_supported(const struct nvefs_sntl_lu *lu, const struct nvefs_cdb_format *f)
{
	struct nvefs_scsi_block_limits limits;

	nvefs_sntl_block_limits(lu, &limits);
	switch (f->opcode) {
	case NVEFS_SCSI_UNMAP:
		return limits.max_unmap_descs != 0;
	case NVEFS_SCSI_COMPARE_AND_WRITE:
		return limits.max_compare_and_write != 0;
	default:
		return !is_verify(f->opcode) || lu->ctrl->verify || lu->ctrl->compare;
	}
}

/* Command timeouts descriptor (SPC-4, 6.35.4): none is given. */
static uint32_t timeouts_put(uint8_t *p)
{
	memset(p, 0, 12);
	be16_store(p, 0x0a);
	return 12;
}

#define ALL_OPCODES_BYTES 1024u

static void report_all_opcodes(struct sntl_ctx *x)
{
	uint8_t buf[ALL_OPCODES_BYTES] = {0};
	const struct nvefs_cdb_format *f;
	uint32_t pos = 4;

	for (size_t i = 0; (f = nvefs_cdb_format_at(i)) != NULL && pos + 20 <= sizeof(buf); i++) {
		uint8_t *d = buf + pos;

		if (!format_supported(x->lu, f))
			continue;
		d[0] = f->opcode;
		if (f->service_action != NVEFS_SCSI_NO_SA) {
			d[3] = f->service_action;
			d[5] = 0x01; /* SERVACTV */
		}
		d[5] |= x->cdb.rctd ? 0x02 : 0;
		be16_store(d + 6, f->len);
		pos += 8;
		if (x->cdb.rctd)
			pos += timeouts_put(buf + pos);
	}
	be32_store(buf, pos - 4);
	sntl_answer(x, buf, pos);
}

static void report_one_opcode(struct sntl_ctx *x, bool service_action)
{
	const struct nvefs_cdb_format *f = NULL;
	uint8_t buf[4 + NVEFS_CDB_MAX + 12] = {0};
	uint32_t pos = 4;

	if (x->cdb.req_sa <= 0x1f || !service_action)
		f = nvefs_cdb_format_find(x->cdb.req_opcode,
					  service_action ? (uint8_t)x->cdb.req_sa : 0);
	if (f && !format_supported(x->lu, f))
		f = NULL;
	buf[1] = f ? 0x03 : 0x01; /* supported as the standard says, or not */
	if (f) {
		buf[1] |= x->cdb.rctd ? 0x80 : 0;
		be16_store(buf + 2, f->len);
		memcpy(buf + pos, f->mask, f->len);
		if (is_verify(f->opcode) && !x->lu->ctrl->compare)
			buf[pos + 1] &= (uint8_t)~0x06; /* BYTCHK */
		pos += f->len;
		if (x->cdb.rctd)
			pos += timeouts_put(buf + pos);
	}
	sntl_answer(x, buf, pos);
}

/*
 * REPORTING OPTIONS (SPC-4, 6.35): 0 all, 1 an opcode, 2 with service action, 3 either. Of an opcode that is not
 * in the table nothing is known, service actions neither: it is not supported, however it is asked for.
 */
void sntl_report_opcodes(struct sntl_ctx *x)
{
	bool has_sa = nvefs_cdb_has_service_action(x->cdb.req_opcode);
	bool known = has_sa || nvefs_cdb_format_find(x->cdb.req_opcode, 0);

	switch (x->cdb.report_option) {
	case 0:
		return report_all_opcodes(x);
	case 1:
		return has_sa ? sntl_illegal_cdb(x, 2, 2) : report_one_opcode(x, false);
	case 2:
		return has_sa || !known ? report_one_opcode(x, true) : sntl_illegal_cdb(x, 2, 2);
	case 3:
		if (!has_sa && x->cdb.req_sa != 0) {
			static const uint8_t none[4] = {0, 0x01};

			return sntl_answer(x, none, sizeof(none));
		}
		return report_one_opcode(x, has_sa);
	default:
		return sntl_illegal_cdb(x, 2, 2);
	}
}
