/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/scsi_route.h"
#include "scsi/sntl.h"

static int set_queue(void *config, const char *value)
{
	struct nvefs_scsi_route_opts *o = config;

	if (!value || (strcmp(value, "one") != 0 && strcmp(value, "many") != 0))
		return -EINVAL;
	o->single_queue = strcmp(value, "one") == 0;
	return 0;
}

static int set_depth(void *config, const char *value)
{
	struct nvefs_scsi_route_opts *o = config;

	return nvefs_value_count(value, 1, 65535, &o->depth) ? 0 : -EINVAL;
}

static int set_translate(void *config, const char *value)
{
	struct nvefs_scsi_route_opts *o = config;

	return nvefs_value_on_off(value, &o->translate) ? 0 : -EINVAL;
}

static const struct {
	const char *name;
	uint32_t mistake;
} mistake_names[] = {
    {"fua", NVEFS_SNTL_DROP_FUA},
    {"flush", NVEFS_SNTL_FLUSH_NOT_SENT},
    {"zeroes", NVEFS_SNTL_ZEROES_DISCARD},
    {"cache", NVEFS_SNTL_CACHE_HIDDEN},
    {"identity", NVEFS_SNTL_OTHER_IDENTITY},
};
#define NMISTAKES (sizeof(mistake_names) / sizeof(mistake_names[0]))

static int set_mistake(void *config, const char *value)
{
	struct nvefs_scsi_route_opts *o = config;

	for (size_t i = 0; value && i < NMISTAKES; i++) {
		if (strcmp(value, mistake_names[i].name) == 0) {
			o->mistakes |= mistake_names[i].mistake;
			return 0;
		}
	}
	return -EINVAL;
}

void nvefs_scsi_mistakes_text(uint32_t mistakes, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < NMISTAKES && at < len; i++)
		if (mistakes & mistake_names[i].mistake)
			at += (size_t)snprintf(buf + at, len - at, " %s", mistake_names[i].name);
}

const struct nvefs_uri_option nvefs_scsi_route_option_table[] = {
    {"scsi_queue", "one|many", "logical-unit queues: one for all threads, or one each (one)",
     set_queue},
    {"scsi_depth", "N", "commands outstanding in a logical-unit queue (254)", set_depth},
    {"scsi_translate", "on|off", "off: the queue alone, without SCSI in between (on)",
     set_translate},
    {"scsi_mistake", "fua|flush|zeroes|cache|identity",
     "translate wrongly, for tests; may be repeated (none)", set_mistake},
    {NULL, NULL, NULL, NULL},
};
