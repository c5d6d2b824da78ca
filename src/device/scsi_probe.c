/* SPDX-License-Identifier: MIT */
/* What a SCSI unit says about itself, turned into limits and identity. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <nvefs/endian.h>

#include "device/drive.h"
#include "device/scsi_initiator.h"
#include "scsi/cdb.h"
#include "scsi/pages.h"

struct probe {
	nvefs_scsi_send_fn *send;
	void *arg;
	const char *target;
	struct nvefs_error *err;
	uint8_t in[512];
	uint32_t len; /* of the last answer */

	struct nvefs_scsi_inquiry inquiry;
	struct nvefs_scsi_capacity capacity;
	struct nvefs_scsi_block_limits limits;
	struct nvefs_scsi_provisioning provisioning;
	struct nvefs_scsi_mode mode;
	bool may_cache; /* a write cache is on, or can be switched on */
	bool changeable; /* by MODE SELECT */
	uint8_t pages[NVEFS_VPD_BYTES];
	uint32_t pages_len;
	bool verify_data; /* VERIFY(16) compares */
};

/* Up to c->count bytes into p->in. */
static int ask(struct probe *p, struct nvefs_cdb *c)
{
	p->len = 0;
	memset(p->in, 0, sizeof(p->in));
	return nvefs_scsi_ask(p->send, p->arg, c, p->in, &p->len);
}

static int fail(struct probe *p, int code, const char *what)
{
	return nvefs_error_set(p->err, code, "%s: %s: %s", p->target, what, strerror(-code));
}

static int ask_vpd(struct probe *p, uint8_t page)
{
	struct nvefs_cdb c = {
	    .opcode = NVEFS_SCSI_INQUIRY, .evpd = true, .page = page, .count = NVEFS_VPD_BYTES - 1};

	return ask(p, &c);
}

static bool has_page(const struct probe *p, uint8_t page)
{
	return nvefs_vpd_supported_has(p->pages, p->pages_len, page);
}

static int probe_inquiry(struct probe *p)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_INQUIRY, .count = NVEFS_INQUIRY_BYTES};
	int err = ask(p, &c);

	if (!err)
		err = nvefs_scsi_inquiry_parse(p->in, p->len, &p->inquiry);
	if (err)
		return fail(p, err, "INQUIRY");
	if (p->inquiry.device_type != 0)
		return nvefs_error_set(p->err, -ENOTSUP,
				       "%s: not a direct access block device: use a disk",
				       p->target);
	if (!ask_vpd(p, NVEFS_VPD_SUPPORTED)) {
		memcpy(p->pages, p->in, sizeof(p->pages));
		p->pages_len = p->len;
	}
	return 0;
}

static int probe_capacity(struct probe *p)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_SERVICE_ACTION_IN_16,
			      .service_action = NVEFS_SCSI_SAI_READ_CAPACITY_16,
			      .count = NVEFS_CAPACITY_16_BYTES};
	int err = ask(p, &c);

	if (!err)
		err = nvefs_scsi_capacity16_parse(p->in, p->len, &p->capacity);
	if (err)
		return fail(p, err, "READ CAPACITY(16)");
	if (p->capacity.lba_bytes != 512 && p->capacity.lba_bytes != 4096)
		return nvefs_error_set(p->err, -ENOTSUP,
				       "%s: logical blocks of %u bytes: 512 or 4096 are needed",
				       p->target, p->capacity.lba_bytes);
	if (p->capacity.protection)
		return nvefs_error_set(
		    p->err, -ENOTSUP,
		    "%s: formatted with protection information: format it without", p->target);
	return 0;
}

static int probe_limits(struct probe *p)
{
	int err = 0;

	if (has_page(p, NVEFS_VPD_BLOCK_LIMITS)) {
		err = ask_vpd(p, NVEFS_VPD_BLOCK_LIMITS);
		if (!err)
			err = nvefs_vpd_limits_parse(p->in, p->len, &p->limits);
	}
	if (!err && has_page(p, NVEFS_VPD_PROVISIONING)) {
		err = ask_vpd(p, NVEFS_VPD_PROVISIONING);
		if (!err)
			err = nvefs_vpd_provisioning_parse(p->in, p->len, &p->provisioning);
	}
	return err ? fail(p, err, "INQUIRY of block limits or provisioning") : 0;
}

/* The caching page: its values now, or a mask of those that MODE SELECT may change. */
static int ask_caching(struct probe *p, uint8_t pc, struct nvefs_scsi_mode *ret)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_MODE_SENSE_10,
			      .dbd = true,
			      .pc = pc,
			      .page = NVEFS_MODE_CACHING,
			      .count = 255};
	int err = ask(p, &c);

	if (!err)
		err = nvefs_scsi_mode_parse(p->in, p->len, true, ret);
	if (err == -EINVAL || err == -EOPNOTSUPP) {
		*ret = (struct nvefs_scsi_mode){0};
		err = 0;
	}
	return err;
}

/*
 * Without a caching page a cache must be assumed, and a cache that is off but may be switched on by
 * anybody at any time counts as one: flushing in vain is harmless, the other way is not.
 */
static int probe_mode(struct probe *p)
{
	struct nvefs_scsi_mode changeable = {0};
	int err = ask_caching(p, NVEFS_MODE_CURRENT, &p->mode);

	if (!err && p->mode.has_caching)
		err = ask_caching(p, NVEFS_MODE_CHANGEABLE, &changeable);
	p->changeable = changeable.write_cache;
	p->may_cache = !p->mode.has_caching || p->mode.write_cache || p->changeable;
	return err ? fail(p, err, "MODE SENSE") : 0;
}

/* By the usage map of VERIFY(16): does it let BYTCHK 01b through? An older unit cannot tell: no. */
static void probe_verify(struct probe *p)
{
	struct nvefs_cdb c = {.opcode = NVEFS_SCSI_MAINTENANCE_IN,
			      .service_action = NVEFS_SCSI_MI_REPORT_OPCODES,
			      .report_option = 1,
			      .req_opcode = NVEFS_SCSI_VERIFY_16,
			      .count = 32};

	p->verify_data = !ask(p, &c) && p->len >= 6 && (p->in[1] & 7) == 3 && (p->in[5] & 0x02);
}

/* B1h: whether it turns (SBC-3, 6.6.2). Only told. */
static void probe_rotation(struct probe *p, struct nvefs_drive_scsi *d)
{
	d->has_b1 = has_page(p, NVEFS_VPD_CHARACTERISTICS) && !ask_vpd(p, NVEFS_VPD_CHARACTERISTICS) &&
		    p->len >= 6 && p->in[1] == NVEFS_VPD_CHARACTERISTICS;
	if (d->has_b1)
		d->rotation = be16_load(p->in + 4);
}

static uint8_t cache_state(const struct probe *p)
{
	if (!p->may_cache)
		return NVEFS_CACHE_NONE;
	return p->mode.has_caching && !p->mode.write_cache ? NVEFS_CACHE_OFF : NVEFS_CACHE_ON;
}

static uint64_t lbas_bytes(const struct probe *p, uint64_t lbas)
{
	return lbas > UINT64_MAX / p->capacity.lba_bytes ? UINT64_MAX : lbas * p->capacity.lba_bytes;
}

/* After fill_identity, which asks for the serial number and page 83h. */
static void fill_drive(struct probe *p, const struct nvefs_dev *dev, struct nvefs_drive_scsi *d)
{
	memcpy(d->vendor, p->inquiry.vendor, sizeof(d->vendor));
	memcpy(d->product, p->inquiry.product, sizeof(d->product));
	memcpy(d->revision, p->inquiry.revision, sizeof(d->revision));
	memcpy(d->vpd83, dev->identity.vpd83, sizeof(d->vpd83));
	d->vpd83_len = dev->identity.vpd83_len;
	d->there = true;
	d->size_bytes = lbas_bytes(p, p->capacity.nlbas);
	d->lba_bytes = p->capacity.lba_bytes;
	d->physical_block_bytes = p->capacity.lba_bytes << p->capacity.physical_exponent;
	d->cache = cache_state(p);
	d->cache_changeable = p->changeable;
	d->dpofua = p->mode.dpofua;
	d->write_protected = p->mode.write_protected;
	d->has_b0 = has_page(p, NVEFS_VPD_BLOCK_LIMITS);
	d->has_b2 = has_page(p, NVEFS_VPD_PROVISIONING);
	d->max_transfer_bytes = lbas_bytes(p, p->limits.max_transfer);
	d->optimal_transfer_bytes = lbas_bytes(p, p->limits.optimal_transfer);
	d->granularity_bytes = lbas_bytes(p, p->limits.granularity);
	d->max_unmap_bytes =
	    p->limits.max_unmap == UINT32_MAX ? UINT64_MAX : lbas_bytes(p, p->limits.max_unmap);
	d->max_unmap_descriptors = p->limits.max_unmap_descs;
	d->unmap_granularity_bytes = lbas_bytes(p, p->limits.unmap_granularity);
	d->unmap_alignment_bytes =
	    p->limits.unmap_alignment_valid ? lbas_bytes(p, p->limits.unmap_alignment) : 0;
	d->max_write_same_bytes = lbas_bytes(p, p->limits.max_write_same);
	d->unmap = p->capacity.lbpme && p->provisioning.unmap;
	d->write_same_unmap = p->provisioning.write_same_16;
	d->reads_zeros = p->capacity.lbprz;
	d->provisioning = p->provisioning.type;
}

static void fill_identity(struct probe *p, struct nvefs_dev_identity *id, struct nvefs_drive_scsi *d)
{
	struct nvefs_scsi_identity names;

	snprintf(id->model, sizeof(id->model), "%s %s", p->inquiry.vendor, p->inquiry.product);
	snprintf(id->firmware, sizeof(id->firmware), "%s", p->inquiry.revision);
	memset(id->nguid, 0, sizeof(id->nguid));
	memset(id->eui64, 0, sizeof(id->eui64));
	id->vpd83_len = 0;
	id->nsid = 0;
	if (has_page(p, NVEFS_VPD_SERIAL) && !ask_vpd(p, NVEFS_VPD_SERIAL))
		nvefs_vpd_serial_parse(p->in, p->len, d->serial, sizeof(d->serial));
	snprintf(id->serial, sizeof(id->serial), "%.*s", (int)sizeof(id->serial) - 1, d->serial);
	if (!has_page(p, NVEFS_VPD_IDENTIFICATION) || ask_vpd(p, NVEFS_VPD_IDENTIFICATION) ||
	    nvefs_vpd_identification_parse(p->in, p->len, &names))
		return;
	memcpy(id->nguid, names.nguid, sizeof(id->nguid));
	memcpy(id->eui64, names.eui64, sizeof(id->eui64));
	id->vpd83_len = p->len < sizeof(id->vpd83) ? p->len : sizeof(id->vpd83);
	memcpy(id->vpd83, p->in, id->vpd83_len);
}

/* Logical blocks to blocks of ours, rounded down; what was reported stays reported. */
static uint32_t to_blks(uint64_t lbas, uint32_t shift)
{
	uint64_t blks = lbas >> shift;

	if (lbas && !blks)
		blks = 1;
	return blks > UINT32_MAX ? UINT32_MAX : (uint32_t)blks;
}

static uint32_t at_least_one(uint32_t v)
{
	return v ? v : 1;
}

static void fill_limits(const struct probe *p, const struct nvefs_scsi_unit *unit,
			struct nvefs_dev_limits *l)
{
	uint32_t shift = unit->lba_shift;
	uint32_t most = to_blks(p->limits.max_transfer, shift);
	bool unmap = p->capacity.lbpme && p->provisioning.unmap && p->limits.max_unmap_descs;

	l->nblks = p->capacity.nlbas >> shift;
	l->lba_bytes = unit->lba_bytes;
	if (most && (!l->max_transfer_blks || most < l->max_transfer_blks))
		l->max_transfer_blks = most;
	l->max_transfer_blks = at_least_one(l->max_transfer_blks);
	l->max_discard_blks = unmap ? (p->limits.max_unmap >> shift) : 0;
	l->max_zeroes_blks = p->limits.max_write_same ? to_blks(p->limits.max_write_same, shift)
						      : l->max_transfer_blks;
	l->iu_blks = at_least_one(to_blks(p->limits.granularity, shift));
	l->iu_align_blks = at_least_one((1u << p->capacity.physical_exponent) >> shift);
	l->optimal_blks = to_blks(p->limits.optimal_transfer, shift);
	l->discard_gran_blks = at_least_one(to_blks(p->limits.unmap_granularity, shift));
	l->discard_align_blks = l->discard_gran_blks;
	l->atomic_blks = unit->lba_bytes == NVEFS_BLOCK_SIZE ? 1 : 0;
	l->volatile_cache = p->may_cache;
	l->fua = p->mode.dpofua;
	l->compare = p->verify_data;
	l->read_only = l->read_only || p->mode.write_protected;
	l->shared = l->shared || p->inquiry.multi_port;
	l->discard_zeroes = p->capacity.lbprz;
}

int nvefs_scsi_probe(struct nvefs_dev *dev, struct nvefs_scsi_unit *ret_unit,
		     nvefs_scsi_send_fn *send, void *arg, struct nvefs_error *err)
{
	struct probe p = {.send = send, .arg = arg, .target = dev->identity.target, .err = err};
	int code;

	code = probe_inquiry(&p);
	if (!code)
		code = probe_capacity(&p);
	if (!code)
		code = probe_limits(&p);
	if (!code)
		code = probe_mode(&p);
	if (code)
		return code;
	probe_verify(&p);
	fill_identity(&p, &dev->identity, &dev->drive.scsi);
	fill_drive(&p, dev, &dev->drive.scsi);
	probe_rotation(&p, &dev->drive.scsi);
	memset(ret_unit, 0, sizeof(*ret_unit));
	ret_unit->lba_bytes = p.capacity.lba_bytes;
	ret_unit->lba_shift = p.capacity.lba_bytes == 512 ? NVEFS_BLOCK_SHIFT - 9 : 0;
	ret_unit->write_same_unmap = p.provisioning.write_same_16;
	fill_limits(&p, ret_unit, &dev->limits);
	ret_unit->unmap = dev->limits.max_discard_blks > 0;
	nvefs_drive_set_transfer(&dev->drive, dev->limits.max_transfer_blks);
	return 0;
}
