/* SPDX-License-Identifier: MIT */
/*
 * Log pages, of those that LOG SENSE gives: what a unit says of its health (SPC-4,
 * 7.3; SBC-3, 6.4; page 19h: SPC-4, 7.3.9). Pure.
 */
#ifndef NVEFS_SCSI_LOG_H
#define NVEFS_SCSI_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nvefs_log_page {
	NVEFS_LOG_SUPPORTED = 0x00,
	NVEFS_LOG_WRITE_ERRORS = 0x02,
	NVEFS_LOG_READ_ERRORS = 0x03,
	NVEFS_LOG_VERIFY_ERRORS = 0x05,
	NVEFS_LOG_TEMPERATURE = 0x0d,
	NVEFS_LOG_START_STOP = 0x0e,
	NVEFS_LOG_SOLID_STATE = 0x11,
	NVEFS_LOG_BACKGROUND_SCAN = 0x15,
	NVEFS_LOG_STATISTICS = 0x19,
	NVEFS_LOG_EXCEPTIONS = 0x2f,
};
#define NVEFS_LOG_PC_CUMULATIVE 1u  /* of LOG SENSE: values as they are now */
#define NVEFS_LOG_NO_TEMPERATURE 0xff

/* ASC of informational exceptions (page 2Fh). */
#define NVEFS_LOG_ASC_WARNING 0x0b
#define NVEFS_LOG_ASC_FAILURE 0x5d /* FAILURE PREDICTION THRESHOLD EXCEEDED, and impending failures */

/* What pages say together; each group is valid with its flag. Counts saturate. */
struct nvefs_scsi_health {
	bool has_temperature, has_exception, has_used, has_errors, has_power_on, has_statistics, has_start_stop;
	uint8_t temperature_celsius; /* 0: also below */
	uint8_t asc, ascq;	     /* informational exception; 0: none */
	uint8_t used_percent;
	uint64_t uncorrected_errors; /* of the pages 02h, 03h, 05h that were read, together */
	uint32_t power_on_minutes;
	uint64_t read_commands, write_commands, read_lbas, written_lbas;
	uint32_t start_stop_cycles;
};

/* Whether page 00h, or what of it has arrived, lists `page`. */
bool nvefs_log_supported_has(const uint8_t *buf, size_t len, uint8_t page);
/*
 * Add to *h what `page` says, as far as it has arrived: a parameter that is cut, too short for what
 * it is to hold, or of an unknown code is passed over. -EUCLEAN, and *h as before, when these bytes are not the
 * beginning of that page.
 */
int nvefs_log_page_parse(uint8_t page, const uint8_t *buf, size_t len, struct nvefs_scsi_health *h);

#endif
