/* SPDX-License-Identifier: MIT */
/*
 * What a logical unit says about itself: INQUIRY data and vital product data
 * pages (SPC-4 sections 6.4 and 7.8, SBC-3 section 6.6), READ CAPACITY data
 * (SBC-3 section 5.15), and mode parameters (SPC-4 section 7.5, SBC-3 section
 * 6.5). Each has a host structure, a builder and a parser. Pure.
 *
 * Builders return the length of the whole answer; the caller cuts it to the
 * allocation length. Parsers take what arrived, however short, and return
 * -EUCLEAN for what cannot be such an answer; parts that are missing are zero.
 */
#ifndef NVEFS_SCSI_PAGES_H
#define NVEFS_SCSI_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "scsi/sense.h"

#define NVEFS_INQUIRY_BYTES 96u
struct nvefs_scsi_inquiry {
	uint8_t device_type; /* 0: direct access block device */
	bool multi_port;     /* MULTIP (SPC-5, 6.7.2): more than one port leads to it */
	char vendor[9], product[17], revision[5];
};
uint32_t nvefs_scsi_inquiry_build(const struct nvefs_scsi_inquiry *in,
				  uint8_t buf[NVEFS_INQUIRY_BYTES]);
int nvefs_scsi_inquiry_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_inquiry *ret);

enum nvefs_vpd_page {
	NVEFS_VPD_SUPPORTED = 0x00,
	NVEFS_VPD_SERIAL = 0x80,
	NVEFS_VPD_IDENTIFICATION = 0x83,
	NVEFS_VPD_EXTENDED_INQUIRY = 0x86,
	NVEFS_VPD_BLOCK_LIMITS = 0xb0,
	NVEFS_VPD_CHARACTERISTICS = 0xb1,
	NVEFS_VPD_PROVISIONING = 0xb2,
};
#define NVEFS_VPD_BYTES 256u /* room for each of the pages built here */

/* Pages 00h and B1h (not rotating) have fixed contents, 86h but for V_SUP. */
uint32_t nvefs_vpd_supported_build(uint8_t buf[NVEFS_VPD_BYTES]);
uint32_t nvefs_vpd_extended_build(bool volatile_cache, uint8_t buf[NVEFS_VPD_BYTES]);
uint32_t nvefs_vpd_characteristics_build(uint8_t buf[NVEFS_VPD_BYTES]);
bool nvefs_vpd_supported_has(const uint8_t *buf, size_t len, uint8_t page);

/* Page 80h. `serial` of at most 64 characters. Parsing fills `ret` of `ret_len` bytes, 0-ended. */
uint32_t nvefs_vpd_serial_build(const char *serial, uint8_t buf[NVEFS_VPD_BYTES]);
int nvefs_vpd_serial_parse(const uint8_t *buf, size_t len, char *ret, size_t ret_len);

/* Page 83h: identifiers that are all zeros are left out. */
struct nvefs_scsi_identity {
	uint8_t nguid[16], eui64[8], uuid[16];
	char t10[69]; /* vendor identification (8 characters) and the vendor's own identifier */
};
uint32_t nvefs_vpd_identification_build(const struct nvefs_scsi_identity *id,
					uint8_t buf[NVEFS_VPD_BYTES]);
int nvefs_vpd_identification_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_identity *ret);

/* Page B0h. All counts in logical blocks, 0: not reported. */
struct nvefs_scsi_block_limits {
	bool no_zero_write_same; /* WSNZ: WRITE SAME of 0 blocks is refused */
	uint8_t max_compare_and_write;
	uint16_t granularity; /* optimal transfer length granularity */
	uint32_t max_transfer, optimal_transfer;
	uint32_t max_unmap, max_unmap_descs; /* 0xffffffff: no limit */
	uint32_t unmap_granularity, unmap_alignment;
	bool unmap_alignment_valid;
	uint64_t max_write_same;
};
uint32_t nvefs_vpd_limits_build(const struct nvefs_scsi_block_limits *l,
				uint8_t buf[NVEFS_VPD_BYTES]);
int nvefs_vpd_limits_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_block_limits *ret);

/* Page B2h. */
struct nvefs_scsi_provisioning {
	bool unmap, write_same_16, write_same_10; /* LBPU, LBPWS, LBPWS10 */
	bool reads_zeros;			  /* LBPRZ is 001b */
	uint8_t type;				  /* 0: full, 1: resource, 2: thin provisioned */
};
uint32_t nvefs_vpd_provisioning_build(const struct nvefs_scsi_provisioning *p,
				      uint8_t buf[NVEFS_VPD_BYTES]);
int nvefs_vpd_provisioning_parse(const uint8_t *buf, size_t len,
				 struct nvefs_scsi_provisioning *ret);

struct nvefs_scsi_capacity {
	uint64_t nlbas;
	uint32_t lba_bytes;
	uint8_t physical_exponent; /* logical blocks per physical block */
	bool protection;
	bool lbpme, lbprz; /* unmapping is there; unmapped blocks read as zeros */
};
#define NVEFS_CAPACITY_16_BYTES 32u
#define NVEFS_CAPACITY_10_BYTES 8u
uint32_t nvefs_scsi_capacity16_build(const struct nvefs_scsi_capacity *c,
				     uint8_t buf[NVEFS_CAPACITY_16_BYTES]);
uint32_t nvefs_scsi_capacity10_build(const struct nvefs_scsi_capacity *c,
				     uint8_t buf[NVEFS_CAPACITY_10_BYTES]);
int nvefs_scsi_capacity16_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_capacity *ret);
/* nlbas 0x100000000 stands for a larger unit, to be asked with READ CAPACITY(16). */
int nvefs_scsi_capacity10_parse(const uint8_t *buf, size_t len, struct nvefs_scsi_capacity *ret);

enum nvefs_mode_page {
	NVEFS_MODE_CACHING = 0x08,
	NVEFS_MODE_CONTROL = 0x0a,
	NVEFS_MODE_POWER = 0x1a, /* power condition */
	NVEFS_MODE_ALL = 0x3f,
};
enum nvefs_mode_pc {
	NVEFS_MODE_CURRENT,
	NVEFS_MODE_CHANGEABLE,
	NVEFS_MODE_DEFAULT,
	NVEFS_MODE_SAVED
};

struct nvefs_scsi_mode {
	bool write_protected, dpofua;
	bool has_caching, write_cache; /* page 08h, WCE; asked for as changeable: whether it is */
	bool write_cache_default, write_cache_changeable; /* for builders only */
	bool has_control, descriptor_sense;
	bool has_power; /* page 1Ah, whose timers are all off */
	uint64_t nlbas; /* block descriptor; 0: none was there */
	uint32_t lba_bytes;
};
/* How MODE SENSE asked. `page` 08h, 0Ah, 1Ah or 3Fh (all). */
struct nvefs_scsi_mode_ask {
	bool ten, dbd, llbaa;
	uint8_t pc, page;
};
#define NVEFS_MODE_BYTES 128u
uint32_t nvefs_scsi_mode_build(const struct nvefs_scsi_mode *m,
			       const struct nvefs_scsi_mode_ask *ask,
			       uint8_t buf[NVEFS_MODE_BYTES]);
int nvefs_scsi_mode_parse(const uint8_t *buf, size_t len, bool ten, struct nvefs_scsi_mode *ret);
/* One page into 40 bytes or less that are zeros; returns its length, 0 when there is no such page. */
uint32_t nvefs_scsi_mode_page_build(const struct nvefs_scsi_mode *m, uint8_t pc, uint8_t page,
				    uint8_t *p);

/* MODE SELECT: what a sound parameter list asks for. Of all fields only WCE can be another than it is. */
struct nvefs_scsi_mode_change {
	bool has_caching, write_cache;
	uint16_t wce_at; /* the byte of the list that has WCE */
};
/* Check a list against `now` (SPC-4, 7.5; SBC-3, 6.5). 0, or -EINVAL with *fault and nothing else. */
int nvefs_scsi_mode_select_parse(const struct nvefs_scsi_mode *now, const uint8_t *list, size_t len,
				 bool ten, struct nvefs_scsi_mode_change *ret,
				 struct nvefs_sense *fault);

#endif
