/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>
#include <nvefs/endian.h>
#include "scsi/sense.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Response codes (SPC-4, 4.5.1). */
enum { FIXED_CURRENT = 0x70, FIXED_DEFERRED = 0x71, DESC_CURRENT = 0x72, DESC_DEFERRED = 0x73 };
enum { DESC_INFORMATION = 0x00, DESC_KEY_SPECIFIC = 0x02 };

void nvefs_sense_set_field(struct nvefs_sense *s, uint16_t asc, uint16_t byte, uint8_t bits)
{
	*s = (struct nvefs_sense){.key = NVEFS_SENSE_ILLEGAL_REQUEST,
				  .asc = asc,
				  .has_field = true,
				  .in_cdb = asc != NVEFS_ASC_FIELD_IN_PARAMETERS,
				  .has_bit = bits,
				  .byte = byte};
	while (bits >>= 1)
		s->bit++;
}

static void key_specific_put(const struct nvefs_sense *s, uint8_t *p)
{
	p[0] = (uint8_t)(0x80 | (s->in_cdb ? 0x40 : 0) | (s->has_bit ? 0x08 | (s->bit & 7) : 0));
	be16_store(p + 1, s->byte);
}

static void key_specific_get(const uint8_t *p, struct nvefs_sense *s)
{
	if (!(p[0] & 0x80) || s->key != NVEFS_SENSE_ILLEGAL_REQUEST)
		return;
	s->has_field = true;
	s->in_cdb = p[0] & 0x40;
	s->has_bit = p[0] & 0x08;
	s->bit = s->has_bit ? p[0] & 7 : 0;
	s->byte = be16_load(p + 1);
}

static uint8_t build_fixed(const struct nvefs_sense *s, uint8_t *buf)
{
	buf[0] = s->deferred ? FIXED_DEFERRED : FIXED_CURRENT;
	buf[2] = s->key & 0xf;
	if (s->has_info && s->info <= UINT32_MAX) {
		buf[0] |= 0x80;
		be32_store(buf + 3, (uint32_t)s->info);
	}
	buf[7] = NVEFS_SENSE_FIXED_BYTES - 8;
	be16_store(buf + 12, s->asc);
	if (s->has_field)
		key_specific_put(s, buf + 15);
	return NVEFS_SENSE_FIXED_BYTES;
}

static uint8_t build_descriptor(const struct nvefs_sense *s, uint8_t *buf)
{
	uint8_t len = 8;

	buf[0] = s->deferred ? DESC_DEFERRED : DESC_CURRENT;
	buf[1] = s->key & 0xf;
	be16_store(buf + 2, s->asc);
	if (s->has_info) {
		buf[len] = DESC_INFORMATION;
		buf[len + 1] = 0x0a;
		buf[len + 2] = 0x80;
		be64_store(buf + len + 4, s->info);
		len += 12;
	}
	if (s->has_field) {
		buf[len] = DESC_KEY_SPECIFIC;
		buf[len + 1] = 0x06;
		key_specific_put(s, buf + len + 4);
		len += 8;
	}
	buf[7] = len - 8;
	return len;
}

uint8_t nvefs_sense_build(const struct nvefs_sense *s, bool descriptor,
			  uint8_t buf[NVEFS_SENSE_MAX])
{
	memset(buf, 0, NVEFS_SENSE_MAX);
	return descriptor ? build_descriptor(s, buf) : build_fixed(s, buf);
}

static void parse_fixed(const uint8_t *buf, size_t len, struct nvefs_sense *s)
{
	/* The additional length may say that less is valid than was transferred. */
	if (len >= 8 && len > 8u + buf[7])
		len = 8u + buf[7];
	if (len > 2)
		s->key = buf[2] & 0xf;
	if ((buf[0] & 0x80) && len >= 7) {
		s->has_info = true;
		s->info = be32_load(buf + 3);
	}
	if (len >= 13)
		s->asc = (uint16_t)(buf[12] << 8);
	if (len >= 14)
		s->asc |= buf[13];
	if (len >= 18)
		key_specific_get(buf + 15, s);
}

static void parse_descriptor(const uint8_t *buf, size_t len, struct nvefs_sense *s)
{
	size_t pos = 8;

	if (len > 1)
		s->key = buf[1] & 0xf;
	if (len >= 4)
		s->asc = be16_load(buf + 2);
	if (len < 8)
		return;
	if (len > 8u + buf[7])
		len = 8u + buf[7];
	while (len - pos >= 2) {
		const uint8_t *d = buf + pos;
		size_t dlen = 2u + d[1];

		if (dlen > len - pos)
			return;
		if (d[0] == DESC_INFORMATION && dlen >= 12 && (d[2] & 0x80)) {
			s->has_info = true;
			s->info = be64_load(d + 4);
		} else if (d[0] == DESC_KEY_SPECIFIC && dlen >= 8) {
			key_specific_get(d + 4, s);
		}
		pos += dlen;
	}
}

int nvefs_sense_parse(const uint8_t *buf, size_t len, struct nvefs_sense *ret)
{
	struct nvefs_sense s = {0};
	uint8_t code;

	if (len == 0)
		return -EUCLEAN;
	code = buf[0] & 0x7f;
	if (code < FIXED_CURRENT || code > DESC_DEFERRED)
		return -EUCLEAN;
	s.deferred = code == FIXED_DEFERRED || code == DESC_DEFERRED;
	if (code >= DESC_CURRENT)
		parse_descriptor(buf, len, &s);
	else
		parse_fixed(buf, len, &s);
	*ret = s;
	return 0;
}

static int illegal_request_errno(uint16_t asc)
{
	switch (asc) {
	case NVEFS_ASC_INVALID_OPCODE:
		return -EOPNOTSUPP;
	case NVEFS_ASC_NO_ACCESS_RIGHTS:
		return -EACCES;
	case NVEFS_ASC_INVALID_LU:
	case NVEFS_ASC_LU_NOT_SUPPORTED:
		return -ENODEV;
	case NVEFS_ASC_LBA_RANGE:
		return -ERANGE;
	default:
		return -EINVAL;
	}
}

static int check_condition_errno(const struct nvefs_sense *s)
{
	switch (s->key) {
	case NVEFS_SENSE_NO_SENSE:
	case NVEFS_SENSE_RECOVERED:
	case NVEFS_SENSE_COMPLETED:
		return s->deferred ? -EIO : 0;
	case NVEFS_SENSE_NOT_READY:
		return s->asc >> 8 == NVEFS_ASC_NO_MEDIUM >> 8 ? -ENOMEDIUM
		       : s->asc == NVEFS_ASC_ACCESS_TRANSITION ||
			       s->asc == NVEFS_ASC_TARGET_PORT_UNAVAILABLE
			   ? -EIO
			   : -EBUSY;
	case NVEFS_SENSE_ILLEGAL_REQUEST:
		return illegal_request_errno(s->asc);
	case NVEFS_SENSE_DATA_PROTECT:
		return s->asc == NVEFS_ASC_SPACE_ALLOCATION ? -ENOSPC : -EROFS;
	case NVEFS_SENSE_ABORTED_COMMAND:
		return s->asc == NVEFS_ASC_NONE ? -ECANCELED : -EIO;
	case NVEFS_SENSE_VOLUME_OVERFLOW:
		return -ENOSPC;
	case NVEFS_SENSE_MISCOMPARE:
		return -EILSEQ;
	default:
		return -EIO;
	}
}

int nvefs_sense_errno(uint8_t scsi_status, const struct nvefs_sense *s)
{
	switch (scsi_status) {
	case NVEFS_SCSI_GOOD:
		return 0;
	case NVEFS_SCSI_CHECK_CONDITION:
		return s ? check_condition_errno(s) : -EIO;
	case NVEFS_SCSI_BUSY:
	case NVEFS_SCSI_TASK_SET_FULL:
		return -EBUSY;
	case NVEFS_SCSI_RESERVATION_CONFLICT:
		return -EBADE;
	case NVEFS_SCSI_TASK_ABORTED:
		return s && s->asc != NVEFS_ASC_NONE ? -EIO : -ECANCELED;
	default:
		return -EIO;
	}
}

bool nvefs_sense_retryable(uint8_t scsi_status, const struct nvefs_sense *s)
{
	switch (scsi_status) {
	case NVEFS_SCSI_BUSY:
	case NVEFS_SCSI_TASK_SET_FULL:
	case NVEFS_SCSI_TASK_ABORTED:
		return true;
	case NVEFS_SCSI_CHECK_CONDITION:
		return s && (s->key == NVEFS_SENSE_UNIT_ATTENTION ||
			     s->key == NVEFS_SENSE_ABORTED_COMMAND ||
			     (s->key == NVEFS_SENSE_NOT_READY &&
			      (s->asc == NVEFS_ASC_BECOMING_READY ||
			       s->asc == NVEFS_ASC_ACCESS_TRANSITION)));
	default:
		return false;
	}
}

const char *nvefs_scsi_status_text(uint8_t scsi_status)
{
	switch (scsi_status) {
	case NVEFS_SCSI_GOOD:
		return "good";
	case NVEFS_SCSI_CHECK_CONDITION:
		return "check condition";
	case NVEFS_SCSI_BUSY:
		return "busy";
	case NVEFS_SCSI_RESERVATION_CONFLICT:
		return "reservation conflict";
	case NVEFS_SCSI_TASK_SET_FULL:
		return "task set full";
	case NVEFS_SCSI_TASK_ABORTED:
		return "task aborted";
	default:
		return "unknown status";
	}
}

const char *nvefs_sense_key_text(uint8_t key)
{
	static const char *const text[16] = {
	    "no sense",	      "recovered error", "not ready",	   "medium error",
	    "hardware error", "illegal request", "unit attention", "data protect",
	    "blank check",    "vendor specific", "copy aborted",   "aborted command",
	    "reserved",	      "volume overflow", "miscompare",	   "completed",
	};

	return text[key & 0xf];
}

static const struct {
	uint16_t asc;
	const char *text;
} asc_table[] = {
    {NVEFS_ASC_NONE, "no additional sense"},
    {NVEFS_ASC_WRITE_FAULT, "peripheral device write fault"},
    {NVEFS_ASC_NOT_READY, "not ready, cause not reportable"},
    {NVEFS_ASC_BECOMING_READY, "becoming ready"},
    {NVEFS_ASC_FORMATTING, "not ready, format in progress"},
    {NVEFS_ASC_ACCESS_TRANSITION, "not ready, access state transition"},
    {NVEFS_ASC_TARGET_PORT_UNAVAILABLE, "not ready, target port unavailable"},
    {NVEFS_ASC_SANITIZING, "not ready, sanitize in progress"},
    {NVEFS_ASC_POWER_LOSS, "power loss expected"},
    {NVEFS_ASC_GUARD_CHECK, "guard check failed"},
    {NVEFS_ASC_APPTAG_CHECK, "application tag check failed"},
    {NVEFS_ASC_REFTAG_CHECK, "reference tag check failed"},
    {NVEFS_ASC_READ_ERROR, "unrecovered read error"},
    {NVEFS_ASC_PARAMETER_LENGTH, "parameter list length error"},
    {NVEFS_ASC_MISCOMPARE, "miscompare during verify"},
    {NVEFS_ASC_INVALID_OPCODE, "invalid command operation code"},
    {NVEFS_ASC_NO_ACCESS_RIGHTS, "access denied, no access rights"},
    {NVEFS_ASC_INVALID_LU, "access denied, invalid logical unit identifier"},
    {NVEFS_ASC_LBA_RANGE, "logical block address out of range"},
    {NVEFS_ASC_FIELD_IN_CDB, "invalid field in CDB"},
    {NVEFS_ASC_LU_NOT_SUPPORTED, "logical unit not supported"},
    {NVEFS_ASC_FIELD_IN_PARAMETERS, "invalid field in parameter list"},
    {NVEFS_ASC_WRITE_PROTECTED, "write protected"},
    {NVEFS_ASC_SPACE_ALLOCATION, "space allocation failed"},
    {NVEFS_ASC_RESET, "power on, reset or bus device reset occurred"},
    {NVEFS_ASC_COMMANDS_CLEARED, "commands cleared by the device server"},
    {NVEFS_ASC_FORMAT_FAILED, "format command failed"},
    {NVEFS_ASC_SANITIZE_FAILED, "sanitize command failed"},
    {NVEFS_ASC_SAVING_NOT_SUPPORTED, "saving parameters not supported"},
    {NVEFS_ASC_NO_MEDIUM, "medium not present"},
    {NVEFS_ASC_INTERNAL, "internal target failure"},
    {NVEFS_ASC_DATA_PHASE, "data phase error"},
};

const char *nvefs_asc_text(uint16_t asc)
{
	for (size_t i = 0; i < ARRAY_LEN(asc_table); i++)
		if (asc_table[i].asc == asc)
			return asc_table[i].text;
	return "other additional sense";
}
