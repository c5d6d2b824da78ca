/* SPDX-License-Identifier: MIT */
#include "device/scsi_health.h"

#include <errno.h>
#include <string.h>

#include "scsi/cdb.h"

#define LOG_BYTES 512u /* of a page; what matters of each comes first */

/* In this order: the temperature's own page before that of exceptions, which may have one as well. */
static const uint8_t pages[] = {
    NVEFS_LOG_TEMPERATURE,  NVEFS_LOG_EXCEPTIONS,    NVEFS_LOG_SOLID_STATE, NVEFS_LOG_WRITE_ERRORS,
    NVEFS_LOG_READ_ERRORS,  NVEFS_LOG_VERIFY_ERRORS, NVEFS_LOG_START_STOP,  NVEFS_LOG_BACKGROUND_SCAN,
    NVEFS_LOG_STATISTICS,
};

/*
 * Informational exceptions (SPC-5, annex F) as warnings. Those of a temperature: 01h, and 0Ah to 0Dh of
 * SPC-5; those of a cache that power loss would empty: 06h, 07h; those of self-tests and media scans: 03h to 05h.
 */
static uint16_t warning_of(uint8_t asc, uint8_t ascq)
{
	if (asc == NVEFS_LOG_ASC_FAILURE)
		return NVEFS_WARN_FAILING;
	if (asc != NVEFS_LOG_ASC_WARNING)
		return 0;
	switch (ascq) {
	case 0x01:
	case 0x0a:
	case 0x0b:
	case 0x0c:
	case 0x0d:
		return NVEFS_WARN_TEMPERATURE;
	case 0x03:
	case 0x04:
	case 0x05:
		return NVEFS_WARN_RELIABILITY;
	case 0x06:
	case 0x07:
		return NVEFS_WARN_BACKUP;
	}
	return 0;
}

static uint64_t lbas_bytes(uint64_t lbas, uint32_t lba_bytes)
{
	return lbas > UINT64_MAX / lba_bytes ? UINT64_MAX : lbas * lba_bytes;
}

void nvefs_scsi_health_tell(const struct nvefs_scsi_health *h, uint32_t lba_bytes, struct nvefs_drive_health *ret)
{
	*ret = (struct nvefs_drive_health){
	    .critical_warning = h->has_exception ? warning_of(h->asc, h->ascq) : 0,
	    .has_exception = h->has_exception,
	    .exception = (uint16_t)(h->asc << 8 | h->ascq),
	    .has_temperature = h->has_temperature,
	    .temperature_celsius = h->temperature_celsius,
	    .has_used = h->has_used,
	    .used_percent = h->used_percent,
	    .has_media_errors = h->has_errors,
	    .media_errors = h->uncorrected_errors,
	    .has_power_on = h->has_power_on,
	    .power_on_hours = h->power_on_minutes / 60,
	    .has_traffic = h->has_statistics,
	    .read_commands = h->read_commands,
	    .write_commands = h->write_commands,
	    .read_bytes = lbas_bytes(h->read_lbas, lba_bytes),
	    .written_bytes = lbas_bytes(h->written_lbas, lba_bytes),
	    .has_start_stop = h->has_start_stop,
	    .start_stop_cycles = h->start_stop_cycles,
	};
}

static int ask(nvefs_scsi_send_fn *send, void *arg, uint8_t page, uint8_t buf[LOG_BYTES], uint32_t *ret_len)
{
	struct nvefs_cdb c = {
	    .opcode = NVEFS_SCSI_LOG_SENSE, .pc = NVEFS_LOG_PC_CUMULATIVE, .page = page, .count = LOG_BYTES};

	return nvefs_scsi_ask(send, arg, &c, buf, ret_len);
}

static int failed(const char *target, uint8_t page, int code, struct nvefs_error *err)
{
	return nvefs_error_set(err, code, "%s: LOG SENSE of page %02Xh: %s", target, page,
			       code == -EUCLEAN ? "the answer cannot be such a page" : strerror(-code));
}

static bool refused(int code)
{
	return code == -EINVAL || code == -EOPNOTSUPP;
}

int nvefs_scsi_health(nvefs_scsi_send_fn *send, void *arg, const char *target, uint32_t lba_bytes,
		      struct nvefs_drive_health *ret, struct nvefs_error *err)
{
	uint8_t list[LOG_BYTES], buf[LOG_BYTES];
	struct nvefs_scsi_health h = {0};
	uint32_t list_len, len, n = 0;
	int code = ask(send, arg, NVEFS_LOG_SUPPORTED, list, &list_len);

	if (refused(code))
		return nvefs_error_set(err, -ENOTSUP, "%s: the unit has no log pages", target);
	if (code)
		return failed(target, NVEFS_LOG_SUPPORTED, code, err);
	for (size_t i = 0; i < sizeof(pages); i++) {
		if (!nvefs_log_supported_has(list, list_len, pages[i]))
			continue;
		code = ask(send, arg, pages[i], buf, &len);
		if (refused(code)) /* listed, and yet not to be had: not told */
			continue;
		if (!code)
			code = nvefs_log_page_parse(pages[i], buf, len, &h);
		if (code)
			return failed(target, pages[i], code, err);
		n++;
	}
	if (!n)
		return nvefs_error_set(err, -ENOTSUP, "%s: the unit has no log page of its health", target);
	nvefs_scsi_health_tell(&h, lba_bytes, ret);
	return 0;
}
