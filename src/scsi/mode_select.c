/* SPDX-License-Identifier: MIT */
/*
 * The parameter list of MODE SELECT: a header, at most one block descriptor, pages (SPC-4, 7.5).
 * All of it is checked before anything is done. What is sent back as MODE SENSE gave it, with what is reserved
 * in this direction cleared (the data length, DPOFUA, PS), is sound.
 */
#include <errno.h>
#include <string.h>
#include <nvefs/endian.h>
#include "scsi/pages.h"

struct list {
	const uint8_t *bytes;
	size_t len, at; /* `at`: what is checked next */
	struct nvefs_sense *fault;
};

static int wrong(struct list *l, size_t byte, uint8_t bits)
{
	nvefs_sense_set_field(l->fault, NVEFS_ASC_FIELD_IN_PARAMETERS, (uint16_t)byte, bits);
	return -EINVAL;
}

static int too_short(struct list *l)
{
	*l->fault = (struct nvefs_sense){.key = NVEFS_SENSE_ILLEGAL_REQUEST,
					 .asc = NVEFS_ASC_PARAMETER_LENGTH};
	return -EINVAL;
}

static size_t left(const struct list *l)
{
	return l->len - l->at;
}

/* Bytes that must be zero but for the bits of `ignored`. */
static int check_zeros(struct list *l, size_t byte, size_t n, uint8_t ignored)
{
	for (size_t i = byte; i < byte + n; i++)
		if (l->bytes[i] & (uint8_t)~ignored)
			return wrong(l, i, l->bytes[i] & (uint8_t)~ignored);
	return 0;
}

/*
 * The data length and the medium type are reserved or zero here. WP of the
 * device specific parameter is ignored, the rest of it reserved (SBC-3, 6.5.1).
 */
static int check_header(struct list *l, bool ten, bool *ret_long, size_t *ret_desc_bytes)
{
	size_t specific = ten ? 3 : 2;
	int err;

	if (left(l) < (ten ? 8u : 4u))
		return too_short(l);
	err = check_zeros(l, 0, specific, 0);
	if (!err)
		err = check_zeros(l, specific, 1, 0x80);
	if (!err && ten)
		err = check_zeros(l, 4, 1, 0x01);
	if (!err && ten)
		err = check_zeros(l, 5, 1, 0);
	if (err)
		return err;
	*ret_long = ten && (l->bytes[4] & 0x01);
	*ret_desc_bytes = ten ? be16_load(l->bytes + 6) : l->bytes[3];
	if (*ret_desc_bytes != 0 && *ret_desc_bytes != (*ret_long ? 16 : 8))
		return wrong(l, ten ? 6 : 3, 0);
	l->at = ten ? 8 : 4;
	return 0;
}

/* The number of blocks may be left as it is by saying so, by 0 and by all ones (SBC-3, 6.5.2). */
static int check_short_descriptor(struct list *l, const struct nvefs_scsi_mode *now)
{
	const uint8_t *d = l->bytes + l->at;
	uint32_t nlbas = be32_load(d);

	if (nlbas != 0 && nlbas != UINT32_MAX && nlbas != now->nlbas)
		return wrong(l, l->at, 0);
	if (d[4])
		return wrong(l, l->at + 4, d[4]);
	return be24_load(d + 5) == now->lba_bytes ? 0 : wrong(l, l->at + 5, 0);
}

static int check_long_descriptor(struct list *l, const struct nvefs_scsi_mode *now)
{
	const uint8_t *d = l->bytes + l->at;
	uint64_t nlbas = be64_load(d);
	int err;

	if (nlbas != 0 && nlbas != UINT64_MAX && nlbas != now->nlbas)
		return wrong(l, l->at, 0);
	err = check_zeros(l, l->at + 8, 4, 0);
	if (err)
		return err;
	return be32_load(d + 12) == now->lba_bytes ? 0 : wrong(l, l->at + 12, 0);
}

/* A page must be whole, and differ from what is in nothing that cannot be changed. */
static int check_page(struct list *l, const struct nvefs_scsi_mode *now,
		      struct nvefs_scsi_mode_change *change)
{
	uint8_t is[NVEFS_MODE_BYTES] = {0}, may[NVEFS_MODE_BYTES] = {0};
	const uint8_t *p = l->bytes + l->at;
	uint32_t len;

	if (left(l) < 2)
		return too_short(l);
	if (p[0] & 0xc0) /* PS is reserved, and no page of ours has sub-pages */
		return wrong(l, l->at, p[0] & 0xc0);
	len = nvefs_scsi_mode_page_build(now, NVEFS_MODE_CURRENT, p[0], is);
	if (!len)
		return wrong(l, l->at, 0x3f);
	if (p[1] != len - 2)
		return wrong(l, l->at + 1, 0);
	if (left(l) < len)
		return too_short(l);
	nvefs_scsi_mode_page_build(now, NVEFS_MODE_CHANGEABLE, p[0], may);
	for (uint32_t i = 2; i < len; i++) {
		uint8_t bits = (p[i] ^ is[i]) & (uint8_t)~may[i];

		if (bits)
			return wrong(l, l->at + i, bits);
	}
	if (p[0] == NVEFS_MODE_CACHING) {
		change->has_caching = true;
		change->write_cache = p[2] & 0x04;
		change->wce_at = (uint16_t)(l->at + 2);
	}
	l->at += len;
	return 0;
}

int nvefs_scsi_mode_select_parse(const struct nvefs_scsi_mode *now, const uint8_t *list, size_t len,
				 bool ten, struct nvefs_scsi_mode_change *ret,
				 struct nvefs_sense *fault)
{
	struct list l = {.bytes = list, .len = len, .fault = fault};
	struct nvefs_scsi_mode_change change = {0};
	size_t desc_bytes;
	bool is_long;
	int err = check_header(&l, ten, &is_long, &desc_bytes);

	if (err)
		return err;
	if (desc_bytes > left(&l))
		return too_short(&l);
	if (desc_bytes)
		err = is_long ? check_long_descriptor(&l, now) : check_short_descriptor(&l, now);
	l.at += desc_bytes;
	while (!err && left(&l))
		err = check_page(&l, now, &change);
	if (!err)
		*ret = change;
	return err;
}
