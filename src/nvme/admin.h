/* SPDX-License-Identifier: MIT */
/*
 * Admin commands: opcodes, builders and readers of the fields of their
 * submission entries (NVM Express base 2.0, section 5). Pure. As in
 * nvme/command.h, every builder clears the entry.
 */
#ifndef NVEFS_NVME_ADMIN_H
#define NVEFS_NVME_ADMIN_H

#include "nvme/command.h"

enum nvefs_nvme_admin_opcode {
	NVEFS_NVME_ADMIN_DELETE_SQ = 0x00,
	NVEFS_NVME_ADMIN_CREATE_SQ = 0x01,
	NVEFS_NVME_ADMIN_GET_LOG_PAGE = 0x02,
	NVEFS_NVME_ADMIN_DELETE_CQ = 0x04,
	NVEFS_NVME_ADMIN_CREATE_CQ = 0x05,
	NVEFS_NVME_ADMIN_IDENTIFY = 0x06,
	NVEFS_NVME_ADMIN_ABORT = 0x08,
	NVEFS_NVME_ADMIN_SET_FEATURES = 0x09,
	NVEFS_NVME_ADMIN_GET_FEATURES = 0x0a,
	NVEFS_NVME_ADMIN_ASYNC_EVENT = 0x0c,
	NVEFS_NVME_ADMIN_KEEP_ALIVE = 0x18,
};

/* Identify, CNS values of cdw10 bits 7:0 (base 2.0, figure 274). */
enum nvefs_nvme_cns {
	NVEFS_NVME_CNS_NS = 0x00,
	NVEFS_NVME_CNS_CTRL = 0x01,
	NVEFS_NVME_CNS_ACTIVE_NS_LIST = 0x02,
	NVEFS_NVME_CNS_NS_DESCS = 0x03,
	NVEFS_NVME_CNS_CSI_NS = 0x05, /* NVM command set: nvme/identify.h */
	NVEFS_NVME_CNS_CSI_CTRL = 0x06,
	NVEFS_NVME_CNS_NS_INDEPENDENT = 0x08,
};
#define NVEFS_NVME_CSI_NVM 0u
#define NVEFS_NVME_CSI_KV 1u
#define NVEFS_NVME_CSI_ZNS 2u

void nvefs_nvme_sqe_identify(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint8_t cns, uint8_t csi);
static inline uint8_t nvefs_nvme_sqe_cns(const struct nvefs_nvme_sqe *sqe)
{
	return (uint8_t)le32_get(sqe->cdw10);
}
static inline uint8_t nvefs_nvme_sqe_csi(const struct nvefs_nvme_sqe *sqe)
{
	return (uint8_t)(le32_get(sqe->cdw11) >> 24);
}

/* Feature and log page identifiers are in nvme/features.h. `sel`: enum nvefs_nvme_feature_sel. */
void nvefs_nvme_sqe_get_features(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint8_t fid,
				 uint8_t sel);
void nvefs_nvme_sqe_set_features(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint8_t fid, bool save,
				 uint32_t value);
/* `len_bytes` a multiple of 4 and not 0; `lsi` the log's own specifier, such as an endurance group.
 */
void nvefs_nvme_sqe_get_log(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint8_t lid, uint16_t lsi,
			    uint64_t offset_bytes, uint32_t len_bytes);
static inline uint64_t nvefs_nvme_sqe_log_len(const struct nvefs_nvme_sqe *sqe)
{
	return ((uint64_t)((le32_get(sqe->cdw10) >> 16) | (le32_get(sqe->cdw11) & 0xffff) << 16) +
		1) *
	       4;
}
static inline uint64_t nvefs_nvme_sqe_log_offset(const struct nvefs_nvme_sqe *sqe)
{
	return le32_get(sqe->cdw12) | (uint64_t)le32_get(sqe->cdw13) << 32;
}
static inline uint16_t nvefs_nvme_sqe_log_lsi(const struct nvefs_nvme_sqe *sqe)
{
	return (uint16_t)(le32_get(sqe->cdw11) >> 16);
}

#endif
