/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/fault.h"
#include "device/uri.h"
#include "nvme/status.h"

static const struct {
	const char *name;
	uint8_t op;
} ops[] = {
    {"read", NVEFS_IO_READ},	   {"write", NVEFS_IO_WRITE},	      {"flush", NVEFS_IO_FLUSH},
    {"discard", NVEFS_IO_DISCARD}, {"zeroes", NVEFS_IO_WRITE_ZEROES}, {"compare", NVEFS_IO_COMPARE},
    {"any", NVEFS_FAULT_ANY},
};

static const struct {
	const char *name;
	uint8_t action;
	uint16_t status;
} actions[] = {
    {"fail", NVEFS_FAULT_FAIL, NVEFS_NVME_SC_INTERNAL},
    {"enospc", NVEFS_FAULT_FAIL, NVEFS_NVME_SC_CAPACITY},
    {"failafter", NVEFS_FAULT_FAIL_AFTER, NVEFS_NVME_SC_INTERNAL},
    {"delay", NVEFS_FAULT_DELAY, 0},
    {"tear", NVEFS_FAULT_TEAR, 0},
    {"drop", NVEFS_FAULT_DROP, 0},
    {"flip", NVEFS_FAULT_FLIP, 0},
    {"late", NVEFS_FAULT_LATE, 0},
    {"stale", NVEFS_FAULT_STALE, 0},
    {"misdirect", NVEFS_FAULT_MISDIRECT, 0},
    {"timeout", NVEFS_FAULT_TIMEOUT, 0},
};

static bool set_op(struct nvefs_fault *f, const char *name)
{
	for (size_t i = 0; name && i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (!strcmp(name, ops[i].name)) {
			f->op = ops[i].op;
			return true;
		}
	}
	return false;
}

static bool set_action(struct nvefs_fault *f, const char *name)
{
	for (size_t i = 0; name && i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (!strcmp(name, actions[i].name)) {
			f->action = actions[i].action;
			f->status = actions[i].status;
			return true;
		}
	}
	return false;
}

static bool set_count(struct nvefs_fault *f, char *text)
{
	char *every = text ? strchr(text, '/') : NULL;
	uint32_t n = 0;

	if (every) {
		*every++ = '\0';
		if (!nvefs_value_count(every, 1, UINT32_MAX, &n))
			return false;
		f->every = n;
	}
	if (!nvefs_value_count(text, 1, UINT32_MAX, &n))
		return false;
	f->nth = n;
	return true;
}

/* A time for delay and late, blocks for misdirect, commands for timeout, a seed for the others. */
static bool set_value(struct nvefs_fault *f, const char *text)
{
	uint32_t n = 0;

	if (f->action == NVEFS_FAULT_DELAY || f->action == NVEFS_FAULT_LATE)
		return nvefs_value_duration(text, &f->delay_ns);
	if (text && !nvefs_value_count(text, 1, UINT32_MAX, &n))
		return false;
	if (f->action == NVEFS_FAULT_MISDIRECT)
		f->distance_blks = n ? n : 1;
	else if (f->action == NVEFS_FAULT_TIMEOUT)
		f->late_cmds = n;
	else
		f->seed = n ? n : 1;
	return true;
}

int nvefs_fault_parse(const char *text, struct nvefs_fault *ret_fault)
{
	struct nvefs_fault f = {0};
	char buf[128], *save, *op, *count, *action, *value;

	if (!text || strlen(text) >= sizeof(buf))
		return -EINVAL;
	strcpy(buf, text);
	op = strtok_r(buf, ":", &save);
	count = strtok_r(NULL, ":", &save);
	action = strtok_r(NULL, ":", &save);
	value = strtok_r(NULL, ":", &save);
	if (!set_op(&f, op) || !set_count(&f, count) || !set_action(&f, action) ||
	    !set_value(&f, value) || strtok_r(NULL, ":", &save))
		return -EINVAL;
	*ret_fault = f;
	return 0;
}

static int set_fault(void *config, const char *value)
{
	struct nvefs_fault_options *o = config;

	if (o->nfaults == sizeof(o->faults) / sizeof(o->faults[0]))
		return -EINVAL;
	if (nvefs_fault_parse(value, &o->faults[o->nfaults]))
		return -EINVAL;
	o->nfaults++;
	return 0;
}

const struct nvefs_uri_option nvefs_fault_option_table[] = {
    {"fault", "OP:NTH[/EVERY]:ACTION[:VALUE]",
     "fail on purpose, for tests: OP is read, write, flush, discard, zeroes, compare or any; "
     "ACTION\n"
     "                           fail, enospc, failafter, delay:TIME, late:TIME, tear, drop, flip, stale,\n"
     "                           misdirect, timeout[:COMMANDS] (carried out later, after so many or at the end)",
     set_fault},
    {NULL, NULL, NULL, NULL},
};
