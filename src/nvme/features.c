/* SPDX-License-Identifier: MIT */
#include "nvme/features.h"

uint64_t nvefs_nvme_u128_get(const uint8_t v[16])
{
	uint64_t low = 0;

	for (int i = 15; i >= 8; i--)
		if (v[i])
			return UINT64_MAX;
	for (int i = 7; i >= 0; i--)
		low = low << 8 | v[i];
	return low;
}

void nvefs_nvme_u128_set(uint8_t v[16], uint64_t value)
{
	for (int i = 0; i < 16; i++) {
		v[i] = (uint8_t)value;
		value >>= 8;
	}
}

static uint64_t units_to_bytes(const uint8_t v[16], uint64_t unit_bytes)
{
	uint64_t units = nvefs_nvme_u128_get(v);

	return units > UINT64_MAX / unit_bytes ? UINT64_MAX : units * unit_bytes;
}

void nvefs_nvme_smart_parse(const struct nvefs_nvme_smart_log *log, struct nvefs_nvme_health *ret)
{
	ret->critical_warning = log->critical_warning;
	ret->avail_spare = log->avail_spare;
	ret->spare_threshold = log->spare_threshold;
	ret->percent_used = log->percent_used;
	ret->temperature_kelvin = (uint16_t)(log->temperature[0] | log->temperature[1] << 8);
	ret->read_bytes = units_to_bytes(log->data_units_read, NVEFS_NVME_SMART_UNIT_BYTES);
	ret->written_bytes = units_to_bytes(log->data_units_written, NVEFS_NVME_SMART_UNIT_BYTES);
	ret->host_reads = nvefs_nvme_u128_get(log->host_reads);
	ret->host_writes = nvefs_nvme_u128_get(log->host_writes);
	ret->power_cycles = nvefs_nvme_u128_get(log->power_cycles);
	ret->power_on_hours = nvefs_nvme_u128_get(log->power_on_hours);
	ret->unsafe_shutdowns = nvefs_nvme_u128_get(log->unsafe_shutdowns);
	ret->media_errors = nvefs_nvme_u128_get(log->media_errors);
	ret->error_log_entries = nvefs_nvme_u128_get(log->error_log_entries);
	ret->busy_minutes = nvefs_nvme_u128_get(log->busy_minutes);
}

void nvefs_nvme_endurance_parse(const struct nvefs_nvme_endurance_log *log,
				struct nvefs_nvme_health *ret)
{
	ret->media_written_bytes =
	    units_to_bytes(log->media_units_written, NVEFS_NVME_ENDURANCE_UNIT_BYTES);
}
