/* SPDX-License-Identifier: MIT */
#include "nvme/admin.h"

static void sqe_clear(struct nvefs_nvme_sqe *sqe, uint8_t opcode, uint32_t nsid)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = opcode;
	sqe->nsid = le32_make(nsid);
}

void nvefs_nvme_sqe_identify(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint8_t cns, uint8_t csi)
{
	sqe_clear(sqe, NVEFS_NVME_ADMIN_IDENTIFY, nsid);
	sqe->cdw10 = le32_make(cns);
	sqe->cdw11 = le32_make((uint32_t)csi << 24);
}

void nvefs_nvme_sqe_get_features(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint8_t fid,
				 uint8_t sel)
{
	sqe_clear(sqe, NVEFS_NVME_ADMIN_GET_FEATURES, nsid);
	sqe->cdw10 = le32_make(fid | (uint32_t)(sel & 7) << 8);
}

void nvefs_nvme_sqe_set_features(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint8_t fid, bool save,
				 uint32_t value)
{
	sqe_clear(sqe, NVEFS_NVME_ADMIN_SET_FEATURES, nsid);
	sqe->cdw10 = le32_make(fid | (save ? 1u << 31 : 0));
	sqe->cdw11 = le32_make(value);
}

void nvefs_nvme_sqe_get_log(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint8_t lid, uint16_t lsi,
			    uint64_t offset_bytes, uint32_t len_bytes)
{
	uint32_t numd = len_bytes / 4 - 1;

	assert(len_bytes >= 4 && len_bytes % 4 == 0 && offset_bytes % 4 == 0);
	sqe_clear(sqe, NVEFS_NVME_ADMIN_GET_LOG_PAGE, nsid);
	sqe->cdw10 = le32_make(lid | (numd & 0xffff) << 16);
	sqe->cdw11 = le32_make(numd >> 16 | (uint32_t)lsi << 16);
	sqe->cdw12 = le32_make((uint32_t)offset_bytes);
	sqe->cdw13 = le32_make((uint32_t)(offset_bytes >> 32));
}
