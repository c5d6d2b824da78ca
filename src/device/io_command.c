/* SPDX-License-Identifier: MIT */
#include "device/io_command.h"

static void build_raw(struct nvefs_io_command *c, const struct nvefs_io *io)
{
	c->sqe = nvefs_container_of(io, struct nvefs_raw_io, io)->sqe;
	c->iov = io->iov;
	c->niov = io->niov;
}

void nvefs_io_command_build(struct nvefs_io_command *c, const struct nvefs_io *io, uint32_t nsid,
			    uint32_t lba_shift)
{
	static const uint8_t opcodes[NVEFS_IO_NOPS] = {
	    [NVEFS_IO_READ] = NVEFS_NVME_READ,
	    [NVEFS_IO_WRITE] = NVEFS_NVME_WRITE,
	    [NVEFS_IO_WRITE_ZEROES] = NVEFS_NVME_WRITE_ZEROES,
	    [NVEFS_IO_COMPARE] = NVEFS_NVME_COMPARE,
	};
	uint64_t slba = io->pblk << lba_shift;
	uint32_t nlbs = io->nblks << lba_shift;
	uint32_t flags = io->flags & NVEFS_IO_FUA ? NVEFS_NVME_CDW12_FUA : 0;

	c->niov = 0;
	switch (io->op) {
	case NVEFS_IO_RAW:
		build_raw(c, io);
		break;
	case NVEFS_IO_FLUSH:
		nvefs_nvme_sqe_flush(&c->sqe, nsid);
		break;
	case NVEFS_IO_DISCARD:
		nvefs_nvme_sqe_dsm(&c->sqe, nsid, 1, NVEFS_NVME_DSM_CDW11_AD);
		c->range =
		    (struct nvefs_nvme_dsm_range){.nlbs = le32_make(nlbs), .slba = le64_make(slba)};
		c->range_iov = (struct iovec){&c->range, sizeof(c->range)};
		c->iov = &c->range_iov;
		c->niov = 1;
		break;
	case NVEFS_IO_WRITE_ZEROES:
		nvefs_nvme_sqe_rw(&c->sqe, opcodes[io->op], nsid, slba, nlbs,
				  flags | NVEFS_NVME_CDW12_DEAC);
		break;
	default:
		nvefs_nvme_sqe_rw(&c->sqe, opcodes[io->op], nsid, slba, nlbs, flags);
		c->iov = io->iov;
		c->niov = io->niov;
		break;
	}
}
