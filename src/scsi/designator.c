/* SPDX-License-Identifier: MIT */
#include "scsi/designator.h"

#include <stdio.h>

#include <nvefs/endian.h>

static const char *const types[16] = {
    "vendor", "t10",  "eui64",	  "naa",  "relative-port", "port-group", "logical-unit-group", "md5",
    "name",   "page", "uuid", "type-11", "type-12",	   "type-13",	 "type-14",	       "type-15",
};
enum { CODE_BINARY = 1 };
enum { ASSOCIATION_PORT = 1, ASSOCIATION_DEVICE = 2 };

static size_t put_value(const uint8_t *d, char *buf, size_t len)
{
	size_t n = d[3], at = 0, first = 0;

	/* A UUID is preceded by its kind. */
	if ((d[1] & 0xf) == 0xa && n == 18)
		first = 2;
	for (size_t i = first; i < n && at + 2 < len; i++) {
		uint8_t c = d[4 + i];

		if ((d[0] & 0xf) == CODE_BINARY)
			at += (size_t)snprintf(buf + at, len - at, "%02x", c);
		else if (c)
			at += (size_t)snprintf(buf + at, len - at, "%c", c >= 0x20 && c < 0x7f && c != ',' ? c : '?');
	}
	while (at && buf[at - 1] == ' ')
		at--;
	buf[at] = '\0';
	return at;
}

bool nvefs_vpd_designator_text(const uint8_t *page, size_t len, size_t *pos, char *buf, size_t buf_len)
{
	const char *whose = "";
	const uint8_t *d;
	uint8_t association;
	char value[192];

	if (len >= 4 && 4u + be16_load(page + 2) < len)
		len = 4u + be16_load(page + 2);
	if (*pos > len || len - *pos < 4)
		return false;
	d = page + *pos;
	if (len - *pos < 4u + d[3])
		return false;
	*pos += 4u + d[3];
	association = d[1] >> 4 & 3;
	if (association == ASSOCIATION_PORT)
		whose = "port ";
	else if (association == ASSOCIATION_DEVICE)
		whose = "device ";
	put_value(d, value, sizeof(value));
	snprintf(buf, buf_len, "%s%s %s", whose, types[d[1] & 0xf], value);
	return true;
}
