/* SPDX-License-Identifier: MIT */
/* The designators of VPD page 83h one by one, for people (SPC-4, 7.8.6). Pure. */
#ifndef NVEFS_SCSI_DESIGNATOR_H
#define NVEFS_SCSI_DESIGNATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The designator at *pos of the page in words, such as "naa 5000c500a1b2c3d4" or "port t10
 * ATA...", *pos moved behind it. Start with *pos 4. False: none is left, or what is left cannot be one.
 */
bool nvefs_vpd_designator_text(const uint8_t *page, size_t len, size_t *pos, char *buf, size_t buf_len);

#endif
