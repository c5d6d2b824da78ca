/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <nvefs/endian.h>
#include "scsi/pages.h"

/* SAM-5, SPC-4, SBC-3, without a claim of a particular revision (SPC-4, 6.4.2). */
static const uint16_t standards[] = {0x00a0, 0x0460, 0x04c0};

static void text_put(uint8_t *to, const char *from, size_t len)
{
	size_t n = strnlen(from, len);

	memcpy(to, from, n);
	memset(to + n, ' ', len - n);
}

/* Trailing blanks go; bytes that cannot be shown become '?'. `to` has room for len + 1. */
static void text_get(char *to, const uint8_t *from, size_t len)
{
	while (len > 0 && (from[len - 1] == ' ' || from[len - 1] == '\0'))
		len--;
	for (size_t i = 0; i < len; i++)
		to[i] = from[i] >= 0x20 && from[i] < 0x7f ? (char)from[i] : '?';
	to[len] = '\0';
}

uint32_t nvefs_scsi_inquiry_build(const struct nvefs_scsi_inquiry *in,
				  uint8_t buf[NVEFS_INQUIRY_BYTES])
{
	memset(buf, 0, NVEFS_INQUIRY_BYTES);
	buf[0] = in->device_type & 0x1f;
	buf[2] = 0x06; /* SPC-4 */
	buf[3] = 0x02; /* response data format */
	buf[4] = NVEFS_INQUIRY_BYTES - 5;
	buf[6] = in->multi_port ? 0x10 : 0;
	buf[7] = 0x02; /* CMDQUE */
	text_put(buf + 8, in->vendor, 8);
	text_put(buf + 16, in->product, 16);
	text_put(buf + 32, in->revision, 4);
	for (size_t i = 0; i < sizeof(standards) / sizeof(standards[0]); i++)
		be16_store(buf + 58 + 2 * i, standards[i]);
	return NVEFS_INQUIRY_BYTES;
}

int nvefs_scsi_inquiry_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_inquiry *ret)
{
	if (len < 36)
		return -EUCLEAN;
	ret->device_type = buf[0] & 0x1f;
	ret->multi_port = buf[6] & 0x10;
	text_get(ret->vendor, buf + 8, 8);
	text_get(ret->product, buf + 16, 16);
	text_get(ret->revision, buf + 32, 4);
	return 0;
}

static void vpd_start(uint8_t *buf, uint8_t page)
{
	memset(buf, 0, NVEFS_VPD_BYTES);
	buf[1] = page;
}

static uint32_t vpd_finish(uint8_t *buf, uint32_t len)
{
	assert(len >= 4 && len <= NVEFS_VPD_BYTES);
	be16_store(buf + 2, (uint16_t)(len - 4));
	return len;
}

/* The valid length of a page, or 0 when it is another page or not whole. */
static size_t vpd_len(const uint8_t *buf, size_t len, uint8_t page, size_t least)
{
	size_t said;

	if (len < 4 || buf[1] != page)
		return 0;
	said = 4u + be16_load(buf + 2);
	if (said < len)
		len = said;
	return len < least ? 0 : len;
}

uint32_t nvefs_vpd_supported_build(uint8_t buf[NVEFS_VPD_BYTES])
{
	static const uint8_t pages[] = {
	    NVEFS_VPD_SUPPORTED,	NVEFS_VPD_SERIAL,	NVEFS_VPD_IDENTIFICATION,
	    NVEFS_VPD_EXTENDED_INQUIRY, NVEFS_VPD_BLOCK_LIMITS, NVEFS_VPD_CHARACTERISTICS,
	    NVEFS_VPD_PROVISIONING,
	};

	vpd_start(buf, NVEFS_VPD_SUPPORTED);
	memcpy(buf + 4, pages, sizeof(pages));
	return vpd_finish(buf, 4 + sizeof(pages));
}

bool nvefs_vpd_supported_has(const uint8_t *buf, size_t len, uint8_t page)
{
	len = vpd_len(buf, len, NVEFS_VPD_SUPPORTED, 5);
	return len && memchr(buf + 4, page, len - 4) != NULL;
}

uint32_t nvefs_vpd_extended_build(bool volatile_cache, uint8_t buf[NVEFS_VPD_BYTES])
{
	vpd_start(buf, NVEFS_VPD_EXTENDED_INQUIRY);
	buf[5] = 0x01; /* SIMPSUP: simple task attributes */
	buf[6] = volatile_cache ? 0x01 : 0; /* V_SUP */
	return vpd_finish(buf, 64);
}

uint32_t nvefs_vpd_characteristics_build(uint8_t buf[NVEFS_VPD_BYTES])
{
	vpd_start(buf, NVEFS_VPD_CHARACTERISTICS);
	be16_store(buf + 4, 1); /* non-rotating medium */
	return vpd_finish(buf, 64);
}

uint32_t nvefs_vpd_serial_build(const char *serial, uint8_t buf[NVEFS_VPD_BYTES])
{
	size_t n = strnlen(serial, 64);

	vpd_start(buf, NVEFS_VPD_SERIAL);
	memcpy(buf + 4, serial, n);
	return vpd_finish(buf, (uint32_t)(4 + n));
}

int nvefs_vpd_serial_parse(const uint8_t *buf, size_t len, char *ret, size_t ret_len)
{
	len = vpd_len(buf, len, NVEFS_VPD_SERIAL, 4);
	if (!len)
		return -EUCLEAN;
	len -= 4;
	if (len > ret_len - 1)
		len = ret_len - 1;
	text_get(ret, buf + 4, len);
	return 0;
}

/* Designators (SPC-4, 7.8.6). */
enum { CODE_BINARY = 1, CODE_ASCII = 2 };
enum { TYPE_T10 = 1, TYPE_EUI64 = 2, TYPE_UUID = 0xa };

static uint32_t designator_put(uint8_t *buf, uint32_t pos, uint8_t code, uint8_t type,
			       const void *id, uint8_t len)
{
	assert(pos + 4u + len <= NVEFS_VPD_BYTES);
	buf[pos] = code;
	buf[pos + 1] = type; /* association 00b: the logical unit */
	buf[pos + 3] = len;
	memcpy(buf + pos + 4, id, len);
	return pos + 4 + len;
}

static bool all_zeros(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

uint32_t nvefs_vpd_identification_build(const struct nvefs_scsi_identity *id,
					uint8_t buf[NVEFS_VPD_BYTES])
{
	uint32_t pos = 4;
	size_t n = strnlen(id->t10, sizeof(id->t10) - 1);

	vpd_start(buf, NVEFS_VPD_IDENTIFICATION);
	if (!all_zeros(id->nguid, 16))
		pos = designator_put(buf, pos, CODE_BINARY, TYPE_EUI64, id->nguid, 16);
	if (!all_zeros(id->eui64, 8))
		pos = designator_put(buf, pos, CODE_BINARY, TYPE_EUI64, id->eui64, 8);
	if (!all_zeros(id->uuid, 16)) {
		uint8_t uuid[18] = {0x10};

		memcpy(uuid + 2, id->uuid, 16);
		pos = designator_put(buf, pos, CODE_BINARY, TYPE_UUID, uuid, 18);
	}
	if (n > 0)
		pos = designator_put(buf, pos, CODE_ASCII, TYPE_T10, id->t10, (uint8_t)n);
	return vpd_finish(buf, pos);
}

static void designator_get(const uint8_t *d, struct nvefs_scsi_identity *ret)
{
	uint8_t code = d[0] & 0xf, association = d[1] >> 4 & 3, type = d[1] & 0xf, len = d[3];

	if (association != 0)
		return;
	if (type == TYPE_EUI64 && code == CODE_BINARY && len == 16)
		memcpy(ret->nguid, d + 4, 16);
	else if (type == TYPE_EUI64 && code == CODE_BINARY && len == 8)
		memcpy(ret->eui64, d + 4, 8);
	else if (type == TYPE_UUID && code == CODE_BINARY && len == 18)
		memcpy(ret->uuid, d + 6, 16);
	else if (type == TYPE_T10)
		text_get(ret->t10, d + 4, len < sizeof(ret->t10) ? len : sizeof(ret->t10) - 1);
}

int nvefs_vpd_identification_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_identity *ret)
{
	size_t pos = 4;

	len = vpd_len(buf, len, NVEFS_VPD_IDENTIFICATION, 4);
	if (!len)
		return -EUCLEAN;
	memset(ret, 0, sizeof(*ret));
	while (len - pos >= 4) {
		size_t dlen = 4u + buf[pos + 3];

		if (dlen > len - pos)
			return -EUCLEAN;
		designator_get(buf + pos, ret);
		pos += dlen;
	}
	return 0;
}

uint32_t nvefs_vpd_limits_build(const struct nvefs_scsi_block_limits *l,
				uint8_t buf[NVEFS_VPD_BYTES])
{
	vpd_start(buf, NVEFS_VPD_BLOCK_LIMITS);
	buf[4] = l->no_zero_write_same ? 0x01 : 0;
	buf[5] = l->max_compare_and_write;
	be16_store(buf + 6, l->granularity);
	be32_store(buf + 8, l->max_transfer);
	be32_store(buf + 12, l->optimal_transfer);
	be32_store(buf + 20, l->max_unmap);
	be32_store(buf + 24, l->max_unmap_descs);
	be32_store(buf + 28, l->unmap_granularity);
	be32_store(buf + 32, l->unmap_alignment & 0x7fffffff);
	if (l->unmap_alignment_valid)
		buf[32] |= 0x80;
	be64_store(buf + 36, l->max_write_same);
	return vpd_finish(buf, 64);
}

int nvefs_vpd_limits_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_block_limits *ret)
{
	len = vpd_len(buf, len, NVEFS_VPD_BLOCK_LIMITS, 16);
	if (!len)
		return -EUCLEAN;
	memset(ret, 0, sizeof(*ret));
	ret->no_zero_write_same = buf[4] & 0x01;
	ret->max_compare_and_write = buf[5];
	ret->granularity = be16_load(buf + 6);
	ret->max_transfer = be32_load(buf + 8);
	ret->optimal_transfer = be32_load(buf + 12);
	if (len >= 36) { /* SBC-2 ends before these */
		ret->max_unmap = be32_load(buf + 20);
		ret->max_unmap_descs = be32_load(buf + 24);
		ret->unmap_granularity = be32_load(buf + 28);
		ret->unmap_alignment_valid = buf[32] & 0x80;
		ret->unmap_alignment = be32_load(buf + 32) & 0x7fffffff;
	}
	if (len >= 44)
		ret->max_write_same = be64_load(buf + 36);
	return 0;
}

uint32_t nvefs_vpd_provisioning_build(const struct nvefs_scsi_provisioning *p,
				      uint8_t buf[NVEFS_VPD_BYTES])
{
	vpd_start(buf, NVEFS_VPD_PROVISIONING);
	buf[5] = (uint8_t)((p->unmap ? 0x80 : 0) | (p->write_same_16 ? 0x40 : 0) |
			   (p->write_same_10 ? 0x20 : 0) | (p->reads_zeros ? 0x04 : 0));
	buf[6] = p->type & 7;
	return vpd_finish(buf, 8);
}

int nvefs_vpd_provisioning_parse(const uint8_t *buf, size_t len,
				 struct nvefs_scsi_provisioning *ret)
{
	if (!vpd_len(buf, len, NVEFS_VPD_PROVISIONING, 8))
		return -EUCLEAN;
	ret->unmap = buf[5] & 0x80;
	ret->write_same_16 = buf[5] & 0x40;
	ret->write_same_10 = buf[5] & 0x20;
	ret->reads_zeros = (buf[5] >> 2 & 7) == 1;
	ret->type = buf[6] & 7;
	return 0;
}
