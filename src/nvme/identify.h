/* SPDX-License-Identifier: MIT */
/*
 * Identify data: the structures as a controller sends them (NVM Express base
 * 2.0, section 5.17.2; NVM command set 1.0, section 4.1.5) and what this
 * project reads out of them, as plain host structures. Pure.
 */
#ifndef NVEFS_NVME_IDENTIFY_H
#define NVEFS_NVME_IDENTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nvme/identify_wire.h"

/* CNS 03h: each descriptor is this and then `len` bytes; type 0 ends the list. */
struct nvefs_nvme_ns_desc {
	uint8_t type, len, rsvd[2];
};
static_assert(sizeof(struct nvefs_nvme_ns_desc) == 4, "namespace identification descriptor");
enum nvefs_nvme_ns_desc_type {
	NVEFS_NVME_NIDT_EUI64 = 1,
	NVEFS_NVME_NIDT_NGUID = 2,
	NVEFS_NVME_NIDT_UUID = 3,
	NVEFS_NVME_NIDT_CSI = 4,
};

/* From CNS 01h and, where the controller has it, CNS 06h. Counts are real counts. */
struct nvefs_nvme_ctrl_info {
	char model[41], serial[21],
	    firmware[9]; /* trailing blanks removed, other bytes made printable */
	char subnqn[257];
	uint16_t vid, cntlid, oacs, oncs, endgidmax;
	uint16_t warning_kelvin; /* WCTEMP; 0: not reported */
	uint32_t ver, nn;
	uint8_t mdts;	    /* exponent over the minimum page size, 0: no limit */
	uint8_t sqes, cqes; /* required (3:0) and largest (7:4) entry sizes, as exponents */
	uint8_t lpa;
	uint8_t npss; /* the highest power state: the one that takes least */
	bool compare, write_uncorrectable, dsm, write_zeroes, verify, fused_compare_write;
	bool vwc; /* a volatile write cache is there */
	bool sgl;
	uint32_t awun, awupf, acwu; /* LBAs; acwu 0: none */
	uint16_t crdt[3];	    /* Command Retry Delay Times, 100 ms; 0: none */
	/* From CNS 06h; 0 where it is missing or there is no limit. */
	uint8_t vsl, wzsl, dmrl; /* vsl, wzsl: exponents as mdts; dmrl: ranges */
	uint32_t dmrsl;		 /* LBAs in one range */
	uint64_t dmsl;		 /* LBAs in one command */
};

/* From CNS 00h, CNS 03h for the UUID and the command set, and CNS 08h. */
struct nvefs_nvme_ns_info {
	uint64_t nsze, ncap, nuse; /* LBAs */
	uint32_t lba_bytes;
	uint8_t format, nformats; /* index of the LBA format in use, of so many */
	uint16_t metadata_bytes; /* per LBA in the format in use */
	bool metadata_extended;
	uint8_t pi_type; /* 0: no protection information */
	bool thin;
	bool dealloc_error; /* reads of deallocated blocks may fail */
	uint8_t dlfeat; /* as on the wire: bits 2:0 value read, bit 3 Write Zeroes may deallocate */
	bool shared;
	bool write_protected; /* NSATTR */
	bool not_ready;	      /* CNS 08h, NSTAT */
	uint16_t endgid;
	uint8_t csi; /* I/O command set; 0, NVM, unless CNS 03h says another */
	/* LBAs; 1 or 0 stands for what the namespace does not report, as the comments say. */
	uint32_t npwg, npwa, npdg, npda;       /* 1 */
	uint32_t nows, noiob;		       /* 0 */
	uint32_t nawun, nawupf, nacwu;	       /* 0: the controller's values count */
	uint32_t nabsn, nabspf, nabo;	       /* 0: no boundary */
	uint8_t nguid[16], eui64[8], uuid[16]; /* all zeros: none */
};

/*
 * Each takes the 4096 bytes of the answer and fills *ret; fields of another
 * structure stay as they are. -EUCLEAN when the data cannot be: a format index
 * past the table, an LBA size outside 512 bytes to 64 KiB, a size of zero with
 * capacity. An inactive namespace (all zeros) is -ENODEV.
 */
void nvefs_nvme_ctrl_parse(const struct nvefs_nvme_id_ctrl *id, struct nvefs_nvme_ctrl_info *ret);
void nvefs_nvme_ctrl_parse_nvm(const struct nvefs_nvme_id_ctrl_nvm *id,
			       struct nvefs_nvme_ctrl_info *ret);
int nvefs_nvme_ns_parse(const struct nvefs_nvme_id_ns *id, struct nvefs_nvme_ns_info *ret);
/* CNS 08h, where the controller has it: what does not depend on the command set. */
void nvefs_nvme_ns_parse_independent(const struct nvefs_nvme_id_ns_independent *id,
				     struct nvefs_nvme_ns_info *ret);
/* CNS 03h: `len` bytes of descriptors. Stops at the first that cannot be, with -EUCLEAN. */
int nvefs_nvme_ns_parse_descs(const void *data, size_t len, struct nvefs_nvme_ns_info *ret);

/* Append one CNS 03h descriptor at *pos of `data`; false when it does not fit. */
bool nvefs_nvme_ns_desc_put(void *data, size_t len, size_t *pos, uint8_t type, const void *id,
			    uint8_t id_len);

/* Bytes that an exponent such as MDTS allows over pages of 1 << page_shift; UINT32_MAX: no limit.
 */
uint32_t nvefs_nvme_limit_bytes(uint8_t exponent, uint32_t page_shift);

#endif
