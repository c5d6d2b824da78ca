/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "device/embedded.h"

static int set_lba(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;
	uint32_t n;

	if (!nvefs_value_count(value, 512, 4096, &n) || (n != 512 && n != 4096))
		return -EINVAL;
	o->ctrl.lba_bytes = n;
	return 0;
}

static int power_of_two(const char *value, uint64_t min, uint64_t max, uint32_t *ret)
{
	uint64_t n;

	if (!nvefs_value_size(value, &n) || n < min || n > max || n & (n - 1))
		return -EINVAL;
	*ret = (uint32_t)n;
	return 0;
}

/* The field is an exponent over pages of 4 KiB in which 0 means no limit, so one page cannot be said. */
static int set_mdts(void *config, const char *value)
{
	return power_of_two(value, 8192, 32u << 20,
			    &((struct nvefs_embedded_options *)config)->ctrl.mdts_bytes);
}

static int set_iu(void *config, const char *value)
{
	return power_of_two(value, NVEFS_BLOCK_SIZE, 32u << 20,
			    &((struct nvefs_embedded_options *)config)->ctrl.iu_bytes);
}

static int set_queues(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;

	return nvefs_value_count(value, 1, 1023, &o->ctrl.max_queues) ? 0 : -EINVAL;
}

static int set_depth(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;

	return nvefs_value_count(value, 1, 4096, &o->ctrl.depth) ? 0 : -EINVAL;
}

static int set_vwc(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;

	o->vwc_asked = true;
	return nvefs_value_on_off(value, &o->ctrl.vwc) ? 0 : -EINVAL;
}

static int set_latency(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;

	return nvefs_value_duration(value, &o->ctrl.latency_ns) ? 0 : -EINVAL;
}

static int set_ro(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;

	(void)value;
	o->ctrl.read_only = o->ctrl.write_protected = true;
	return 0;
}

static int set_spare(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;
	uint32_t percent;

	if (!nvefs_value_count(value, 0, 100, &percent))
		return -EINVAL;
	o->ctrl.spare_percent = (uint8_t)percent;
	return 0;
}

static int set_worn(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;

	(void)value;
	o->ctrl.worn = true;
	return 0;
}

static int set_shared(void *config, const char *value)
{
	struct nvefs_embedded_options *o = config;

	return nvefs_value_on_off(value, &o->ctrl.shared) ? 0 : -EINVAL;
}

const struct nvefs_uri_option nvefs_embedded_option_table[] = {
    {"lba", "512|4096", "size of a logical block (4096)", set_lba},
    {"mdts", "SIZE", "largest transfer, a power of two from 8k to 32M (1M)", set_mdts},
    {"queues", "N", "I/O queues, 1 to 1023 (128)", set_queues},
    {"depth", "N", "commands in flight on one queue, 1 to 4096 (128)", set_depth},
    {"iu", "SIZE", "indirection unit, a power of two from 4k to 32M (4k)", set_iu},
    {"vwc", "on|off", "volatile write cache (file: on, ram: off)", set_vwc},
    {"latency", "TIME", "complete each command after this, such as 100us (none)", set_latency},
    {"shared", "on|off", "say that other hosts can reach it, too (off)", set_shared},
    {"ro", NULL, "refuse every write", set_ro},
    {"spare", "PERCENT", "available spare that the SMART log tells (100)", set_spare},
    {"worn", NULL, "the medium is worn out: refuse every write, and warn of it in the SMART log", set_worn},
    {NULL, NULL, NULL, NULL},
};

void nvefs_embedded_options_init(struct nvefs_embedded_options *o)
{
	*o = (struct nvefs_embedded_options){
	    .ctrl = {.lba_bytes = 4096,
		     .mdts_bytes = 1u << 20,
		     .max_queues = 128,
		     .depth = 128,
		     .iu_bytes = 4096,
		     .spare_percent = 100},
	};
}
