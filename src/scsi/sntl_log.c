/* SPDX-License-Identifier: MIT */
/* LOG SENSE out of the SMART log (SPC-4, 7.3; SBC-3, 6.4.7; SNTL, 6.3). Cumulative values alone exist. */
#include <string.h>
#include <nvefs/endian.h>
#include "nvme/features.h"
#include "scsi/log.h"
#include "scsi/sntl_private.h"

#define ZERO_CELSIUS 273u /* in kelvin, as the NVMe log rounds it */

/* SMART critical warnings (NVMe base 2.0, 5.16.1.3). */
#define WARNING_TEMPERATURE 0x02u

static uint8_t celsius(uint16_t kelvin)
{
	if (!kelvin)
		return NVEFS_LOG_NO_TEMPERATURE;
	if (kelvin < ZERO_CELSIUS)
		return 0;
	kelvin -= ZERO_CELSIUS;
	return kelvin < NVEFS_LOG_NO_TEMPERATURE ? (uint8_t)kelvin : NVEFS_LOG_NO_TEMPERATURE - 1;
}

/* One parameter in binary format; returns where the next begins. */
static uint32_t parameter_put(uint8_t *buf, uint32_t pos, uint16_t code, const uint8_t *value,
			      uint8_t len)
{
	be16_store(buf + pos, code);
	buf[pos + 2] = 0x03;
	buf[pos + 3] = len;
	memcpy(buf + pos + 4, value, len);
	return pos + 4 + len;
}

static uint32_t temperature(const struct sntl_ctx *x, uint8_t *buf)
{
	const struct nvefs_nvme_health *h = x->lu->health;
	const uint8_t now[2] = {0, h ? celsius(h->temperature_kelvin) : NVEFS_LOG_NO_TEMPERATURE};
	const uint8_t reference[2] = {0, celsius(x->lu->ctrl->warning_kelvin)};

	return parameter_put(buf, parameter_put(buf, 4, 0, now, 2), 1, reference, 2);
}

static uint32_t solid_state(const struct sntl_ctx *x, uint8_t *buf)
{
	const uint8_t used[4] = {0, 0, 0, x->lu->health ? x->lu->health->percent_used : 0};

	return parameter_put(buf, 4, 1, used, sizeof(used));
}

/* A warning of the controller's is the prediction of a failure; of heat, the warning of that name. */
static uint32_t exceptions(const struct sntl_ctx *x, uint8_t *buf)
{
	const struct nvefs_nvme_health *h = x->lu->health;
	uint8_t value[4] = {0, 0, h ? celsius(h->temperature_kelvin) : NVEFS_LOG_NO_TEMPERATURE,
			    celsius(x->lu->ctrl->warning_kelvin)};

	if (h && h->critical_warning & (uint8_t)~WARNING_TEMPERATURE) {
		value[0] = NVEFS_LOG_ASC_FAILURE;
	} else if (h && h->critical_warning) {
		value[0] = NVEFS_LOG_ASC_WARNING;
		value[1] = 0x01;
	}
	return parameter_put(buf, 4, 0, value, sizeof(value));
}

static uint32_t supported(uint8_t *buf)
{
	static const uint8_t pages[] = {NVEFS_LOG_SUPPORTED, NVEFS_LOG_TEMPERATURE, NVEFS_LOG_SOLID_STATE,
					NVEFS_LOG_EXCEPTIONS};

	memcpy(buf + 4, pages, sizeof(pages));
	return 4 + sizeof(pages);
}

void sntl_log_sense(struct sntl_ctx *x)
{
	uint8_t buf[32] = {0};
	uint32_t len;

	if (x->cdb.pc != NVEFS_LOG_PC_CUMULATIVE)
		return sntl_illegal_cdb(x, 2, 7);
	if (x->cdb.subpage)
		return sntl_illegal_cdb(x, 3, -1);
	switch (x->cdb.page) {
	case NVEFS_LOG_SUPPORTED:
		len = supported(buf);
		break;
	case NVEFS_LOG_TEMPERATURE:
		len = temperature(x, buf);
		break;
	case NVEFS_LOG_SOLID_STATE:
		len = solid_state(x, buf);
		break;
	case NVEFS_LOG_EXCEPTIONS:
		len = exceptions(x, buf);
		break;
	default:
		return sntl_illegal_cdb(x, 2, 5);
	}
	buf[0] = x->cdb.page;
	be16_store(buf + 2, (uint16_t)(len - 4));
	sntl_answer(x, buf, len);
}
