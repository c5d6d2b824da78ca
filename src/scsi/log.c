/* SPDX-License-Identifier: MIT */
#include "scsi/log.h"

#include <errno.h>

#include <nvefs/endian.h>

#define HEADER_BYTES 4u
#define PARAMETER_BYTES 4u /* before its value */

/* One parameter of a page: its value, all of which is there. */
struct parameter {
	uint16_t code;
	uint8_t len;
	const uint8_t *value;
};

bool nvefs_log_supported_has(const uint8_t *buf, size_t len, uint8_t page)
{
	size_t end;

	if (len < HEADER_BYTES || (buf[0] & 0x3f) != NVEFS_LOG_SUPPORTED || buf[1])
		return false;
	end = HEADER_BYTES + (size_t)be16_load(buf + 2);
	if (end > len)
		end = len;
	for (size_t i = HEADER_BYTES; i < end; i++)
		if ((buf[i] & 0x3f) == page)
			return true;
	return false;
}

/* A counter of any width, as the error counter pages have them. */
static uint64_t counter(const struct parameter *p)
{
	uint64_t v = 0;

	for (uint8_t i = 0; i < p->len; i++) {
		if (v >> 56)
			return UINT64_MAX;
		v = v << 8 | p->value[i];
	}
	return v;
}

static void take_errors(const struct parameter *p, struct nvefs_scsi_health *h)
{
	uint64_t n;

	if (p->code != 6 || !p->len)
		return;
	n = counter(p);
	h->has_errors = true;
	h->uncorrected_errors = n > UINT64_MAX - h->uncorrected_errors ? UINT64_MAX : h->uncorrected_errors + n;
}

static void set_temperature(uint8_t celsius, struct nvefs_scsi_health *h)
{
	if (celsius == NVEFS_LOG_NO_TEMPERATURE)
		return;
	h->has_temperature = true;
	h->temperature_celsius = celsius;
}

static void take_temperature(const struct parameter *p, struct nvefs_scsi_health *h)
{
	if (p->code == 0 && p->len >= 2)
		set_temperature(p->value[1], h);
}

/* Its temperature counts where the page of that name has told none. */
static void take_exception(const struct parameter *p, struct nvefs_scsi_health *h)
{
	if (p->code != 0 || p->len < 2)
		return;
	h->has_exception = true;
	h->asc = p->value[0];
	h->ascq = p->value[1];
	if (p->len >= 3 && !h->has_temperature && p->value[2])
		set_temperature(p->value[2], h);
}

static void take_start_stop(const struct parameter *p, struct nvefs_scsi_health *h)
{
	if (p->code != 4 || p->len < 4)
		return;
	h->has_start_stop = true;
	h->start_stop_cycles = be32_load(p->value);
}

static void take_solid_state(const struct parameter *p, struct nvefs_scsi_health *h)
{
	if (p->code != 1 || p->len < 4)
		return;
	h->has_used = true;
	h->used_percent = p->value[3];
}

static void take_background_scan(const struct parameter *p, struct nvefs_scsi_health *h)
{
	if (p->code != 0 || p->len < 4)
		return;
	h->has_power_on = true;
	h->power_on_minutes = be32_load(p->value);
}

/* "Received" and "transmitted" are the unit's own words. */
static void take_statistics(const struct parameter *p, struct nvefs_scsi_health *h)
{
	if (p->code != 1 || p->len < 32)
		return;
	h->has_statistics = true;
	h->read_commands = be64_load(p->value);
	h->write_commands = be64_load(p->value + 8);
	h->written_lbas = be64_load(p->value + 16);
	h->read_lbas = be64_load(p->value + 24);
}

typedef void take_fn(const struct parameter *p, struct nvefs_scsi_health *h);

static take_fn *taker(uint8_t page)
{
	switch (page) {
	case NVEFS_LOG_WRITE_ERRORS:
	case NVEFS_LOG_READ_ERRORS:
	case NVEFS_LOG_VERIFY_ERRORS:
		return take_errors;
	case NVEFS_LOG_TEMPERATURE:
		return take_temperature;
	case NVEFS_LOG_START_STOP:
		return take_start_stop;
	case NVEFS_LOG_SOLID_STATE:
		return take_solid_state;
	case NVEFS_LOG_BACKGROUND_SCAN:
		return take_background_scan;
	case NVEFS_LOG_STATISTICS:
		return take_statistics;
	case NVEFS_LOG_EXCEPTIONS:
		return take_exception;
	}
	return NULL;
}

int nvefs_log_page_parse(uint8_t page, const uint8_t *buf, size_t len, struct nvefs_scsi_health *h)
{
	take_fn *take = taker(page);
	size_t pos = HEADER_BYTES, end;

	/* Byte 1 is the subpage, or reserved in a unit that has none. */
	if (!take || len < HEADER_BYTES || (buf[0] & 0x3f) != page || buf[1])
		return -EUCLEAN;
	end = HEADER_BYTES + (size_t)be16_load(buf + 2);
	if (end > len)
		end = len;
	while (end - pos >= PARAMETER_BYTES) {
		struct parameter p = {
		    .code = be16_load(buf + pos), .len = buf[pos + 3], .value = buf + pos + PARAMETER_BYTES};

		pos += PARAMETER_BYTES;
		if (p.len > end - pos)
			break; /* cut */
		take(&p, h);
		pos += p.len;
	}
	return 0;
}
