/* SPDX-License-Identifier: MIT */
/* Identify data structures, byte for byte as they are on the wire. See nvme/identify.h. */
#ifndef NVEFS_NVME_IDENTIFY_WIRE_H
#define NVEFS_NVME_IDENTIFY_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <nvefs/endian.h>

#define NVEFS_NVME_IDENTIFY_BYTES 4096u

/* ONCS bits. */
#define NVEFS_NVME_ONCS_COMPARE (1u << 0)
#define NVEFS_NVME_ONCS_WRITE_UNCORRECTABLE (1u << 1)
#define NVEFS_NVME_ONCS_DSM (1u << 2)
#define NVEFS_NVME_ONCS_WRITE_ZEROES (1u << 3)
#define NVEFS_NVME_ONCS_SAVE_SELECT (1u << 4)
#define NVEFS_NVME_ONCS_VERIFY (1u << 7)
/* VWC: bit 0 present; bits 2:1 what Flush to NSID FFFFFFFFh does (10b refused, 11b all). */
#define NVEFS_NVME_VWC_PRESENT 0x01u
#define NVEFS_NVME_VWC_FLUSH_ALL_MASK 0x06u
#define NVEFS_NVME_VWC_FLUSH_ALL_NO 0x04u
#define NVEFS_NVME_VWC_FLUSH_ALL_YES 0x06u
/* LPA, FUSES, CTRATT. */
#define NVEFS_NVME_LPA_SMART_NS (1u << 0)
#define NVEFS_NVME_LPA_EXTENDED (1u << 2) /* offsets and 32-bit lengths in Get Log Page */
#define NVEFS_NVME_FUSES_COMPARE_WRITE (1u << 0)
#define NVEFS_NVME_CTRATT_ENDURANCE_GROUPS (1u << 4)

struct nvefs_nvme_id_ctrl {
	le16 vid, ssvid;
	char sn[20], mn[40], fr[8];
	uint8_t rab, ieee[3], cmic, mdts;
	le16 cntlid;
	le32 ver, rtd3r, rtd3e, oaes, ctratt;
	le16 rrls;
	uint8_t rsvd102[9], cntrltype, fguid[16];
	le16 crdt[3];
	uint8_t rsvd134[122];
	le16 oacs;
	uint8_t acl, aerl, frmw, lpa, elpe, npss, avscc, apsta;
	le16 wctemp, cctemp, mtfa;
	le32 hmpre, hmmin;
	uint8_t tnvmcap[16], unvmcap[16]; /* 128-bit, little-endian */
	le32 rpmbs;
	le16 edstt;
	uint8_t dsto, fwug;
	le16 kas, hctma, mntmt, mxtmt;
	le32 sanicap, hmminds;
	le16 hmmaxd, nsetidmax, endgidmax;
	uint8_t anatt, anacap;
	le32 anagrpmax, nanagrpid, pels;
	le16 domainid;
	uint8_t rsvd358[10], megcap[16], rsvd384[128];
	uint8_t sqes, cqes;
	le16 maxcmd;
	le32 nn;
	le16 oncs, fuses;
	uint8_t fna, vwc;
	le16 awun, awupf; /* 0-based */
	uint8_t icsvscc, nwpc;
	le16 acwu, cdfs;
	le32 sgls, mnan;
	uint8_t maxdna[16];
	le32 maxcna;
	uint8_t rsvd564[204];
	char subnqn[256];
	uint8_t rsvd1024[1024];
	uint8_t psd[32][32];
	uint8_t vs[1024];
};
static_assert(sizeof(struct nvefs_nvme_id_ctrl) == 4096, "identify controller");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, mdts) == 77, "mdts");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, cntrltype) == 111, "cntrltype");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, oacs) == 256, "oacs");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, tnvmcap) == 280, "tnvmcap");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, endgidmax) == 340, "endgidmax");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, sqes) == 512, "sqes");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, vwc) == 525, "vwc");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, sgls) == 536, "sgls");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, subnqn) == 768, "subnqn");
static_assert(offsetof(struct nvefs_nvme_id_ctrl, psd) == 2048, "psd");

struct nvefs_nvme_lbaf {
	le16 ms;
	uint8_t lbads, rp; /* lbads: exponent of the LBA size */
};

/* NSFEAT bits. */
#define NVEFS_NVME_NSFEAT_THIN (1u << 0)
#define NVEFS_NVME_NSFEAT_ATOMIC (1u << 1) /* NAWUN, NAWUPF, NACWU are the namespace's own */
#define NVEFS_NVME_NSFEAT_DEALLOC_ERR (1u << 2)
#define NVEFS_NVME_NSFEAT_OPTPERF (1u << 4) /* NPWG, NPWA, NPDG, NPDA, NOWS are valid */
/* DLFEAT: bits 2:0 what deallocated blocks read as; bit 3 Write Zeroes honours DEAC. */
#define NVEFS_NVME_DLFEAT_READ_MASK 0x07u
#define NVEFS_NVME_DLFEAT_READ_ZEROS 0x01u
#define NVEFS_NVME_DLFEAT_READ_ONES 0x02u
#define NVEFS_NVME_DLFEAT_DEAC (1u << 3)
#define NVEFS_NVME_NSATTR_WRITE_PROTECTED (1u << 0)

struct nvefs_nvme_id_ns {
	le64 nsze, ncap, nuse;
	uint8_t nsfeat, nlbaf, flbas, mc, dpc, dps, nmic, rescap, fpi, dlfeat;
	le16 nawun, nawupf, nacwu; /* 0-based */
	le16 nabsn, nabo, nabspf;  /* nabsn and nabspf 0-based, 0: none */
	le16 noiob;
	uint8_t nvmcap[16];
	le16 npwg, npwa, npdg, npda, nows; /* 0-based */
	le16 mssrl;
	le32 mcl;
	uint8_t msrc, rsvd81[11];
	le32 anagrpid;
	uint8_t rsvd96[3], nsattr;
	le16 nvmsetid, endgid;
	uint8_t nguid[16], eui64[8]; /* big-endian identifiers */
	struct nvefs_nvme_lbaf lbaf[64];
	uint8_t vs[3712];
};
static_assert(sizeof(struct nvefs_nvme_id_ns) == 4096, "identify namespace");
static_assert(offsetof(struct nvefs_nvme_id_ns, dlfeat) == 33, "dlfeat");
static_assert(offsetof(struct nvefs_nvme_id_ns, npwg) == 64, "npwg");
static_assert(offsetof(struct nvefs_nvme_id_ns, nsattr) == 99, "nsattr");
static_assert(offsetof(struct nvefs_nvme_id_ns, nguid) == 104, "nguid");
static_assert(offsetof(struct nvefs_nvme_id_ns, lbaf) == 128, "lbaf");

/* CNS 08h (base 2.0, 5.17.2.8). */
#define NVEFS_NVME_NSTAT_READY (1u << 0)
struct nvefs_nvme_id_ns_independent {
	uint8_t nsfeat, nmic, rescap, fpi;
	le32 anagrpid;
	uint8_t nsattr, rsvd9;
	le16 nvmsetid, endgid;
	uint8_t nstat, rsvd15[4081];
};
static_assert(sizeof(struct nvefs_nvme_id_ns_independent) == 4096, "identify, independent");
static_assert(offsetof(struct nvefs_nvme_id_ns_independent, nstat) == 14, "nstat");

/* CNS 05h and 06h with CSI 0 (NVM command set). */
struct nvefs_nvme_id_ns_nvm {
	le64 lbstm;
	uint8_t pic, rsvd9[3];
	le32 elbaf[64];
	uint8_t rsvd268[3828];
};
static_assert(sizeof(struct nvefs_nvme_id_ns_nvm) == 4096, "identify namespace, NVM command set");

struct nvefs_nvme_id_ctrl_nvm {
	uint8_t vsl, wzsl, wusl, dmrl;
	le32 dmrsl;
	le64 dmsl;
	uint8_t rsvd16[4080];
};
static_assert(sizeof(struct nvefs_nvme_id_ctrl_nvm) == 4096,
	      "identify controller, NVM command set");

#endif
