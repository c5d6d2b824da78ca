/* SPDX-License-Identifier: MIT */
/*
 * Features and log pages (NVM Express base 2.0, sections 5.27.1 and 5.16.1):
 * identifiers, values, and the two logs that this project reads and, in its
 * embedded controller, writes. Pure.
 */
#ifndef NVEFS_NVME_FEATURES_H
#define NVEFS_NVME_FEATURES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <nvefs/endian.h>

enum nvefs_nvme_feature {
	NVEFS_NVME_FEATURE_ARBITRATION = 0x01,
	NVEFS_NVME_FEATURE_POWER = 0x02,
	NVEFS_NVME_FEATURE_TEMPERATURE = 0x04,
	NVEFS_NVME_FEATURE_ERROR_RECOVERY = 0x05,
	NVEFS_NVME_FEATURE_WRITE_CACHE = 0x06,
	NVEFS_NVME_FEATURE_QUEUES = 0x07,
	NVEFS_NVME_FEATURE_WRITE_ATOMICITY = 0x0a,
	NVEFS_NVME_FEATURE_ASYNC_EVENT = 0x0b,
};
enum nvefs_nvme_feature_sel {
	NVEFS_NVME_SEL_CURRENT,
	NVEFS_NVME_SEL_DEFAULT,
	NVEFS_NVME_SEL_SAVED,
	NVEFS_NVME_SEL_CAPABILITIES,
};
#define NVEFS_NVME_FEATURE_CAP_SAVEABLE (1u << 0)
#define NVEFS_NVME_FEATURE_CAP_NS (1u << 1)
#define NVEFS_NVME_FEATURE_CAP_CHANGEABLE (1u << 2)
#define NVEFS_NVME_POWER_STATE_MASK 0x1fu /* value of the power management feature */
#define NVEFS_NVME_WRITE_CACHE_ENABLE (1u << 0) /* value of the write cache feature */

/* Number of queues, in cdw11 of Set Features and dword 0 of the answer: both 0-based. */
static inline uint32_t nvefs_nvme_queues_encode(uint32_t nsqs, uint32_t ncqs)
{
	return (nsqs - 1) | (ncqs - 1) << 16;
}
static inline uint32_t nvefs_nvme_queues_sqs(uint32_t value)
{
	return (value & 0xffff) + 1;
}
static inline uint32_t nvefs_nvme_queues_cqs(uint32_t value)
{
	return (value >> 16) + 1;
}

enum nvefs_nvme_log {
	NVEFS_NVME_LOG_SUPPORTED = 0x00,
	NVEFS_NVME_LOG_ERROR = 0x01,
	NVEFS_NVME_LOG_SMART = 0x02,
	NVEFS_NVME_LOG_ENDURANCE_GROUP = 0x09, /* LSI: the endurance group */
};

/* 128-bit counters are little-endian bytes. */
struct nvefs_nvme_smart_log {
	uint8_t critical_warning;
	uint8_t temperature[2]; /* kelvin, little-endian, unaligned */
	uint8_t avail_spare, spare_threshold, percent_used, egcws, rsvd7[25];
	uint8_t data_units_read[16],
	    data_units_written[16]; /* thousands of 512 bytes, rounded up */
	uint8_t host_reads[16], host_writes[16];
	uint8_t busy_minutes[16], power_cycles[16], power_on_hours[16], unsafe_shutdowns[16];
	uint8_t media_errors[16], error_log_entries[16];
	le32 warning_minutes, critical_minutes;
	le16 sensors[8];
	uint8_t rsvd216[296];
};
static_assert(sizeof(struct nvefs_nvme_smart_log) == 512, "SMART log");
static_assert(offsetof(struct nvefs_nvme_smart_log, data_units_read) == 32, "SMART log");
static_assert(offsetof(struct nvefs_nvme_smart_log, media_errors) == 160, "SMART log");
static_assert(offsetof(struct nvefs_nvme_smart_log, sensors) == 200, "SMART log");

struct nvefs_nvme_endurance_log {
	uint8_t critical_warning, features, rsvd2;
	uint8_t avail_spare, spare_threshold, percent_used;
	le16 domain;
	uint8_t rsvd8[24];
	uint8_t estimate[16];
	/* thousands of millions of bytes, rounded up; media units include what the drive writes by
	 * itself */
	uint8_t data_units_read[16], data_units_written[16], media_units_written[16];
	uint8_t host_reads[16], host_writes[16];
	uint8_t media_errors[16], error_log_entries[16];
	uint8_t total_capacity[16], unallocated_capacity[16];
	uint8_t rsvd192[320];
};
static_assert(sizeof(struct nvefs_nvme_endurance_log) == 512, "endurance group log");
static_assert(offsetof(struct nvefs_nvme_endurance_log, media_units_written) == 80,
	      "endurance log");
static_assert(offsetof(struct nvefs_nvme_endurance_log, total_capacity) == 160, "endurance log");

#define NVEFS_NVME_SMART_UNIT_BYTES 512000ull
#define NVEFS_NVME_ENDURANCE_UNIT_BYTES 1000000000ull

/* What is read of both; bytes and counts saturate at UINT64_MAX. */
struct nvefs_nvme_health {
	uint8_t critical_warning, avail_spare, spare_threshold, percent_used;
	uint16_t temperature_kelvin;
	uint64_t read_bytes, written_bytes,
	    media_written_bytes; /* the last: endurance group log only */
	uint64_t host_reads, host_writes, power_cycles, power_on_hours, unsafe_shutdowns;
	uint64_t media_errors, error_log_entries, busy_minutes;
};
void nvefs_nvme_smart_parse(const struct nvefs_nvme_smart_log *log, struct nvefs_nvme_health *ret);
/* Sets what the endurance group log alone has: media_written_bytes. */
void nvefs_nvme_endurance_parse(const struct nvefs_nvme_endurance_log *log,
				struct nvefs_nvme_health *ret);

/* 128-bit little-endian counters. The getter saturates. */
uint64_t nvefs_nvme_u128_get(const uint8_t v[16]);
void nvefs_nvme_u128_set(uint8_t v[16], uint64_t value);

#endif
