/* SPDX-License-Identifier: MIT */
/* Targets as the user writes them: "target,option,option=value". Nothing here opens or changes
 * anything. */
#ifndef NVEFS_DEVICE_URI_H
#define NVEFS_DEVICE_URI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <nvefs/device.h>

struct nvefs_uri {
	const char *text;    /* whole, the caller's */
	char name[PATH_MAX]; /* without options; a path without "file:", "ram:4G" with its prefix */
	const char *options; /* into text, after the comma; NULL: none */
	bool is_ram, exists;
	struct stat st; /* when exists */
};

/*
 * A path that exists as a whole, commas included, is that path; else the
 * longest part up to a comma that exists, else up to the first comma. "file:"
 * and "ram:" in front settle what it is. 0, -EINVAL or -ENAMETOOLONG.
 */
int nvefs_uri_parse(const char *text, struct nvefs_uri *ret, struct nvefs_error *err);

/*
 * Whether the commands of a target take rights of their own from the process
 * that sends them, so that it cannot do without: a device node, whose driver
 * asks for them, or a system that allows io_uring only to those who have them.
 */
bool nvefs_uri_privileged(const struct nvefs_uri *uri);
/*
 * For a program with one thread that has opened its target and will only read
 * and write it from now on: give up all other rights (base/rights.h). Not being
 * able to is an error; a kernel without system call filters is not.
 */
int nvefs_target_confine(const char *target, struct nvefs_error *err);

/* `value` is NULL when the option was written without '='. 0, or a negative errno for a bad value.
 */
struct nvefs_uri_option {
	const char *name;
	const char *values; /* for people: "512|4096"; NULL: takes none */
	const char *help;
	int (*set)(void *config, const char *value);
};
/* Options that belong together and what they set. A table ends with a NULL name. */
struct nvefs_uri_option_set {
	const struct nvefs_uri_option *table;
	void *config;
};
/* Apply every option; an unknown one is -EINVAL, and *err names it and those that exist. */
int nvefs_uri_apply(const struct nvefs_uri *uri, const struct nvefs_uri_option_set *sets,
		    size_t nsets, struct nvefs_error *err);

/* Values. False when `s` (may be NULL) is not one. Sizes take k, M, G, T (powers of 1024). */
bool nvefs_value_size(const char *s, uint64_t *ret_bytes);
bool nvefs_value_count(const char *s, uint32_t min, uint32_t max, uint32_t *ret);
bool nvefs_value_on_off(const char *s, bool *ret);
/* A number with ns, us, ms or s. */
bool nvefs_value_duration(const char *s, uint64_t *ret_ns);

#endif
