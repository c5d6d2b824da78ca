/* SPDX-License-Identifier: MIT */
/*
 * SCSI status and sense data in fixed and in descriptor format (SAM-5 section
 * 5.3, SPC-4 section 4.5). Pure.
 */
#ifndef NVEFS_SCSI_SENSE_H
#define NVEFS_SCSI_SENSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nvefs_scsi_status {
	NVEFS_SCSI_GOOD = 0x00,
	NVEFS_SCSI_CHECK_CONDITION = 0x02,
	NVEFS_SCSI_BUSY = 0x08,
	NVEFS_SCSI_RESERVATION_CONFLICT = 0x18,
	NVEFS_SCSI_TASK_SET_FULL = 0x28,
	NVEFS_SCSI_TASK_ABORTED = 0x40,
};

enum nvefs_sense_key {
	NVEFS_SENSE_NO_SENSE = 0x0,
	NVEFS_SENSE_RECOVERED = 0x1,
	NVEFS_SENSE_NOT_READY = 0x2,
	NVEFS_SENSE_MEDIUM_ERROR = 0x3,
	NVEFS_SENSE_HARDWARE_ERROR = 0x4,
	NVEFS_SENSE_ILLEGAL_REQUEST = 0x5,
	NVEFS_SENSE_UNIT_ATTENTION = 0x6,
	NVEFS_SENSE_DATA_PROTECT = 0x7,
	NVEFS_SENSE_BLANK_CHECK = 0x8,
	NVEFS_SENSE_ABORTED_COMMAND = 0xb,
	NVEFS_SENSE_VOLUME_OVERFLOW = 0xd,
	NVEFS_SENSE_MISCOMPARE = 0xe,
	NVEFS_SENSE_COMPLETED = 0xf,
};

/* Additional sense code and qualifier in one number: ASC << 8 | ASCQ. */
enum nvefs_asc {
	NVEFS_ASC_NONE = 0x0000,
	NVEFS_ASC_WRITE_FAULT = 0x0300,
	NVEFS_ASC_NOT_READY = 0x0400,
	NVEFS_ASC_BECOMING_READY = 0x0401,
	NVEFS_ASC_FORMATTING = 0x0404,
	NVEFS_ASC_ACCESS_TRANSITION = 0x040a,
	NVEFS_ASC_TARGET_PORT_UNAVAILABLE = 0x040c,
	NVEFS_ASC_SANITIZING = 0x041b,
	NVEFS_ASC_POWER_LOSS = 0x0b08,
	NVEFS_ASC_GUARD_CHECK = 0x1001,
	NVEFS_ASC_APPTAG_CHECK = 0x1002,
	NVEFS_ASC_REFTAG_CHECK = 0x1003,
	NVEFS_ASC_READ_ERROR = 0x1100,
	NVEFS_ASC_PARAMETER_LENGTH = 0x1a00,
	NVEFS_ASC_MISCOMPARE = 0x1d00,
	NVEFS_ASC_INVALID_OPCODE = 0x2000,
	NVEFS_ASC_NO_ACCESS_RIGHTS = 0x2002,
	NVEFS_ASC_INVALID_LU = 0x2009,
	NVEFS_ASC_LBA_RANGE = 0x2100,
	NVEFS_ASC_FIELD_IN_CDB = 0x2400,
	NVEFS_ASC_LU_NOT_SUPPORTED = 0x2500,
	NVEFS_ASC_FIELD_IN_PARAMETERS = 0x2600,
	NVEFS_ASC_WRITE_PROTECTED = 0x2700,
	NVEFS_ASC_SPACE_ALLOCATION = 0x2707,
	NVEFS_ASC_RESET = 0x2900,
	NVEFS_ASC_COMMANDS_CLEARED = 0x2f02,
	NVEFS_ASC_FORMAT_FAILED = 0x3101,
	NVEFS_ASC_SANITIZE_FAILED = 0x3103,
	NVEFS_ASC_SAVING_NOT_SUPPORTED = 0x3900,
	NVEFS_ASC_NO_MEDIUM = 0x3a00,
	NVEFS_ASC_INTERNAL = 0x4400,
	NVEFS_ASC_DATA_PHASE = 0x4b00,
};

#define NVEFS_SENSE_FIXED_BYTES 18u
#define NVEFS_SENSE_MAX 32u

struct nvefs_sense {
	uint8_t key;
	uint16_t asc; /* ASC << 8 | ASCQ */
	bool deferred;
	bool has_info;
	uint64_t info;
	/* Field pointer, with ILLEGAL REQUEST: the first wrong byte and, when has_bit, its highest
	 * wrong bit. */
	bool has_field, in_cdb, has_bit;
	uint8_t bit;
	uint16_t byte;
};

/*
 * Make it ILLEGAL REQUEST with a field pointer to `byte` and, of the `bits` that are wrong there, the
 * highest; 0: to the byte as a whole. NVEFS_ASC_FIELD_IN_PARAMETERS points into the parameter list,
 * every other code into the CDB.
 */
void nvefs_sense_set_field(struct nvefs_sense *s, uint16_t asc, uint16_t byte, uint8_t bits);

/*
 * Write sense data, in descriptor format or fixed; returns its length, at most
 * NVEFS_SENSE_MAX. In fixed format an `info` of more than 32 bits is left out.
 */
uint8_t nvefs_sense_build(const struct nvefs_sense *s, bool descriptor,
			  uint8_t buf[NVEFS_SENSE_MAX]);
/* Read either format from what a device sent; -EUCLEAN when it is neither. Missing parts are zero.
 */
int nvefs_sense_parse(const uint8_t *buf, size_t len, struct nvefs_sense *ret);

/*
 * The negative errno for a SCSI status and its sense data (NULL: none came
 * with it); 0 for GOOD and for recovered errors. The same errnos as
 * nvefs_nvme_status_errno gives, -EILSEQ for a miscompare among them.
 */
int nvefs_sense_errno(uint8_t scsi_status, const struct nvefs_sense *s);
/* UNIT ATTENTION, BUSY, an aborted command: the same command may succeed when tried again. */
bool nvefs_sense_retryable(uint8_t scsi_status, const struct nvefs_sense *s);

/* Texts, for any value, never NULL. */
const char *nvefs_scsi_status_text(uint8_t scsi_status);
const char *nvefs_sense_key_text(uint8_t key);
const char *nvefs_asc_text(uint16_t asc);

#endif
