/* SPDX-License-Identifier: MIT */
#include "nvme/command.h"

static void sqe_clear(struct nvefs_nvme_sqe *sqe, uint8_t opcode, uint32_t nsid)
{
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = opcode;
	sqe->nsid = le32_make(nsid);
}

void nvefs_nvme_sqe_rw(struct nvefs_nvme_sqe *sqe, uint8_t opcode, uint32_t nsid, uint64_t slba,
		       uint32_t nlbs, uint32_t cdw12_flags)
{
	assert(nlbs >= 1 && nlbs <= NVEFS_NVME_MAX_NLBS);
	assert((cdw12_flags & NVEFS_NVME_CDW12_NLB_MASK) == 0);
	sqe_clear(sqe, opcode, nsid);
	sqe->cdw10 = le32_make((uint32_t)slba);
	sqe->cdw11 = le32_make((uint32_t)(slba >> 32));
	sqe->cdw12 = le32_make((nlbs - 1) | cdw12_flags);
}

void nvefs_nvme_sqe_flush(struct nvefs_nvme_sqe *sqe, uint32_t nsid)
{
	sqe_clear(sqe, NVEFS_NVME_FLUSH, nsid);
}

void nvefs_nvme_sqe_dsm(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint32_t nranges, uint32_t cdw11)
{
	assert(nranges >= 1 && nranges <= NVEFS_NVME_DSM_MAX_RANGES);
	sqe_clear(sqe, NVEFS_NVME_DSM, nsid);
	sqe->cdw10 = le32_make(nranges - 1);
	sqe->cdw11 = le32_make(cdw11);
}
