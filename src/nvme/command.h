/* SPDX-License-Identifier: MIT */
/*
 * NVMe commands as they lie in queues: the 64-byte submission entry, the
 * 16-byte completion entry, and builders and readers of their fields (NVM
 * Express base 2.0, section 3.3.3; NVM command set 1.0, section 3). Pure.
 * The admin commands are in nvme/admin.h.
 *
 * Every builder clears the whole entry; the caller then sets the command
 * identifier and the data pointer. LBA counts are real counts (1 to 65536
 * where the field is 16 bits and 0-based), never the encoded ones.
 */
#ifndef NVEFS_NVME_COMMAND_H
#define NVEFS_NVME_COMMAND_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <nvefs/endian.h>

enum nvefs_nvme_io_opcode {
	NVEFS_NVME_FLUSH = 0x00,
	NVEFS_NVME_WRITE = 0x01,
	NVEFS_NVME_READ = 0x02,
	NVEFS_NVME_WRITE_UNCORRECTABLE = 0x04,
	NVEFS_NVME_COMPARE = 0x05,
	NVEFS_NVME_WRITE_ZEROES = 0x08,
	NVEFS_NVME_DSM = 0x09, /* Dataset Management */
	NVEFS_NVME_VERIFY = 0x0c,
};

#define NVEFS_NVME_NSID_ALL 0xffffffffu
#define NVEFS_NVME_MAX_NLBS 65536u /* of one command, before MDTS */

/* Submission entry, byte 1. */
#define NVEFS_NVME_FUSE_MASK 0x03u
#define NVEFS_NVME_FUSE_FIRST 0x01u
#define NVEFS_NVME_FUSE_SECOND 0x02u
#define NVEFS_NVME_PSDT_MASK 0xc0u

struct nvefs_nvme_sqe {
	uint8_t opcode;
	uint8_t flags; /* FUSE, PSDT */
	le16 cid;
	le32 nsid;
	le32 cdw2, cdw3;
	le64 mptr;
	le64 dptr[2]; /* PRP 1 and 2, or what the controller's transport agrees on */
	le32 cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
static_assert(sizeof(struct nvefs_nvme_sqe) == 64, "submission queue entry");

struct nvefs_nvme_cqe {
	le32 dw0, dw1;
	le16 sqhd, sqid, cid;
	le16 status; /* bit 0: phase tag; above it the status field (nvme/status.h) */
};
static_assert(sizeof(struct nvefs_nvme_cqe) == 16, "completion queue entry");

static inline bool nvefs_nvme_cqe_phase(const struct nvefs_nvme_cqe *cqe)
{
	return le16_get(cqe->status) & 1;
}
/* The status field without the phase tag. */
static inline uint16_t nvefs_nvme_cqe_status(const struct nvefs_nvme_cqe *cqe)
{
	return (uint16_t)(le16_get(cqe->status) >> 1);
}
static inline le16 nvefs_nvme_cqe_make_status(uint16_t status, bool phase)
{
	return le16_make((uint16_t)(status << 1 | (phase ? 1 : 0)));
}

/* Dword 12 of Read, Write, Compare, Verify and Write Zeroes. */
#define NVEFS_NVME_CDW12_NLB_MASK 0x0000ffffu
#define NVEFS_NVME_CDW12_DTYPE_MASK 0x00f00000u
#define NVEFS_NVME_CDW12_DEAC (1u << 25) /* Write Zeroes: deallocate */
#define NVEFS_NVME_CDW12_PRINFO_MASK (0xfu << 26)
#define NVEFS_NVME_CDW12_FUA (1u << 30)
#define NVEFS_NVME_CDW12_LR (1u << 31) /* limited retry */

/*
 * Any command with SLBA and NLB. `cdw12_flags` is 0 or NVEFS_NVME_CDW12_FUA,
 * _LR, _DEAC. The opcode is one of enum nvefs_nvme_io_opcode.
 */
void nvefs_nvme_sqe_rw(struct nvefs_nvme_sqe *sqe, uint8_t opcode, uint32_t nsid, uint64_t slba,
		       uint32_t nlbs, uint32_t cdw12_flags);
void nvefs_nvme_sqe_flush(struct nvefs_nvme_sqe *sqe, uint32_t nsid);

static inline uint64_t nvefs_nvme_sqe_slba(const struct nvefs_nvme_sqe *sqe)
{
	return le32_get(sqe->cdw10) | (uint64_t)le32_get(sqe->cdw11) << 32;
}
static inline uint32_t nvefs_nvme_sqe_nlbs(const struct nvefs_nvme_sqe *sqe)
{
	return (le32_get(sqe->cdw12) & NVEFS_NVME_CDW12_NLB_MASK) + 1;
}

/* One range of Dataset Management, in the command's data buffer. */
struct nvefs_nvme_dsm_range {
	le32 cattr;
	le32 nlbs; /* a real count, not 0-based */
	le64 slba;
};
static_assert(sizeof(struct nvefs_nvme_dsm_range) == 16, "dataset management range");

#define NVEFS_NVME_DSM_MAX_RANGES 256u
#define NVEFS_NVME_DSM_CDW11_IDR (1u << 0)
#define NVEFS_NVME_DSM_CDW11_IDW (1u << 1)
#define NVEFS_NVME_DSM_CDW11_AD (1u << 2) /* deallocate */

/* `nranges` 1 to 256; `cdw11` of the attributes above. */
void nvefs_nvme_sqe_dsm(struct nvefs_nvme_sqe *sqe, uint32_t nsid, uint32_t nranges,
			uint32_t cdw11);
static inline uint32_t nvefs_nvme_sqe_dsm_nranges(const struct nvefs_nvme_sqe *sqe)
{
	return (le32_get(sqe->cdw10) & 0xff) + 1;
}

#endif
