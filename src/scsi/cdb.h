/* SPDX-License-Identifier: MIT */
/*
 * SCSI command descriptor blocks: the commands of this project, read and
 * written by one table of formats (SPC-4 section 6, SBC-3 section 5). Pure.
 *
 * The table also knows, for each byte, which bits may be set: a bit outside
 * is a reserved or an unsupported field, and parsing fails with its place.
 */
#ifndef NVEFS_SCSI_CDB_H
#define NVEFS_SCSI_CDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "scsi/sense.h"

enum nvefs_scsi_opcode {
	NVEFS_SCSI_TEST_UNIT_READY = 0x00,
	NVEFS_SCSI_REQUEST_SENSE = 0x03,
	NVEFS_SCSI_FORMAT_UNIT = 0x04,
	NVEFS_SCSI_READ_6 = 0x08,
	NVEFS_SCSI_WRITE_6 = 0x0a,
	NVEFS_SCSI_INQUIRY = 0x12,
	NVEFS_SCSI_MODE_SELECT_6 = 0x15,
	NVEFS_SCSI_MODE_SENSE_6 = 0x1a,
	NVEFS_SCSI_START_STOP_UNIT = 0x1b,
	NVEFS_SCSI_READ_CAPACITY_10 = 0x25,
	NVEFS_SCSI_READ_10 = 0x28,
	NVEFS_SCSI_WRITE_10 = 0x2a,
	NVEFS_SCSI_VERIFY_10 = 0x2f,
	NVEFS_SCSI_SYNCHRONIZE_CACHE_10 = 0x35,
	NVEFS_SCSI_WRITE_SAME_10 = 0x41,
	NVEFS_SCSI_UNMAP = 0x42,
	NVEFS_SCSI_LOG_SENSE = 0x4d,
	NVEFS_SCSI_MODE_SELECT_10 = 0x55,
	NVEFS_SCSI_MODE_SENSE_10 = 0x5a,
	NVEFS_SCSI_READ_16 = 0x88,
	NVEFS_SCSI_COMPARE_AND_WRITE = 0x89,
	NVEFS_SCSI_WRITE_16 = 0x8a,
	NVEFS_SCSI_VERIFY_16 = 0x8f,
	NVEFS_SCSI_SYNCHRONIZE_CACHE_16 = 0x91,
	NVEFS_SCSI_WRITE_SAME_16 = 0x93,
	NVEFS_SCSI_SERVICE_ACTION_IN_16 = 0x9e,
	NVEFS_SCSI_REPORT_LUNS = 0xa0,
	NVEFS_SCSI_MAINTENANCE_IN = 0xa3,
	NVEFS_SCSI_READ_12 = 0xa8,
	NVEFS_SCSI_WRITE_12 = 0xaa,
	NVEFS_SCSI_VERIFY_12 = 0xaf,
};
#define NVEFS_SCSI_SAI_READ_CAPACITY_16 0x10
#define NVEFS_SCSI_MI_REPORT_OPCODES 0x0c /* REPORT SUPPORTED OPERATION CODES */
#define NVEFS_SCSI_NO_SA 0xff		  /* service_action of an opcode that has none */

#define NVEFS_CDB_MAX 16u

/* A command. Fields that its format does not have are zero when parsed and ignored when built. */
struct nvefs_cdb {
	uint8_t opcode, service_action;
	uint8_t len; /* bytes of the format; set by parse and build */
	uint64_t lba;
	uint32_t count; /* blocks, or allocation length, or parameter list length in bytes */
	bool fua, dpo;
	bool unmap, ndob;		   /* WRITE SAME */
	uint8_t bytchk;			   /* VERIFY */
	bool immed, start;		   /* SYNCHRONIZE CACHE, START STOP UNIT */
	bool no_flush;			   /* START STOP UNIT */
	uint8_t power_condition, power_modifier; /* same */
	bool pf;			   /* MODE SELECT: pages as in the standard */
	bool evpd;			   /* INQUIRY */
	uint8_t page, subpage, pc;	   /* INQUIRY, MODE SENSE, LOG SENSE */
	bool dbd, llbaa;		   /* MODE SENSE */
	bool desc;			   /* REQUEST SENSE */
	uint8_t select_report;		   /* REPORT LUNS */
	bool rctd;			   /* REPORT SUPPORTED OPERATION CODES */
	uint8_t report_option, req_opcode; /* same */
	uint16_t req_sa;		   /* same */
};

/*
 * Read `len` bytes. 0, or -EINVAL with *fault telling what the target answers:
 * unknown opcode, unknown service action, a bit that may not be set, or a
 * block that ends early. READ(6) and WRITE(6) of 0 blocks are read as 256.
 */
int nvefs_cdb_parse(const uint8_t *bytes, size_t len, struct nvefs_cdb *ret,
		    struct nvefs_sense *fault);

/*
 * Write c->opcode (and service action) into `bytes`, which is cleared first.
 * Returns the length, -EOPNOTSUPP for an opcode outside the table, -ERANGE when
 * the LBA or the count does not fit the format's fields.
 */
int nvefs_cdb_build(struct nvefs_cdb *c, uint8_t bytes[NVEFS_CDB_MAX]);

/* Where the count and the LBA lie, for field pointers of later checks; 0 when there is none. */
uint8_t nvefs_cdb_count_byte(const struct nvefs_cdb *c);
uint8_t nvefs_cdb_lba_byte(const struct nvefs_cdb *c);

/* One line of the table of formats; NULL past the last. */
struct nvefs_cdb_format {
	const char *name;
	uint8_t opcode, service_action, len;
	uint8_t lba_at, lba_width, count_at, count_width; /* bytes; width 0: none */
	uint8_t mask[NVEFS_CDB_MAX]; /* of bits that may be set; byte 0 is the opcode */
};
const struct nvefs_cdb_format *nvefs_cdb_format_at(size_t index);
/* NULL: not in the table. `service_action` is ignored for opcodes that have none. */
const struct nvefs_cdb_format *nvefs_cdb_format_find(uint8_t opcode, uint8_t service_action);
bool nvefs_cdb_has_service_action(uint8_t opcode);

#endif
