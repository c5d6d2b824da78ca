/* SPDX-License-Identifier: MIT */
#include "fs/settings.h"

#include <errno.h>
#include <string.h>
#include <uuid/uuid.h>

#include <nvefs/format.h>

#include "device/uri.h"

#define MIN_INTERVAL_NS 100000000ull /* below that an ordinary hiccup of a host would matter */

static int parse_label(struct nvefs_settings_args *a, const char *arg, struct nvefs_error *err)
{
	if (strlen(arg) > NVEFS_LABEL_MAX)
		return nvefs_error_set(err, -EINVAL, "-L: the label has %zu bytes: use at most %d",
				       strlen(arg), NVEFS_LABEL_MAX);
	a->label = arg;
	return 0;
}

static int parse_uuid(struct nvefs_settings_args *a, const char *arg, struct nvefs_error *err)
{
	if (!strcmp(arg, "random"))
		uuid_generate_random(a->uuid);
	else if (uuid_parse(arg, a->uuid))
		return nvefs_error_set(err, -EINVAL, "-U: '%s' is not a UUID: see uuidgen(1)", arg);
	if (uuid_is_null(a->uuid))
		return nvefs_error_set(err, -EINVAL, "-U: all zeros say that there is no UUID: see uuidgen(1)");
	a->have_uuid = true;
	return 0;
}

static int parse_features(struct nvefs_settings_args *a, const char *arg, struct nvefs_error *err)
{
	while (*arg) {
		size_t len = strcspn(arg, ",");

		if (len == 3 && !strncmp(arg, "mmp", 3))
			a->mmp = NVEFS_ON;
		else if (len == 4 && !strncmp(arg, "^mmp", 4))
			a->mmp = NVEFS_OFF;
		else
			return nvefs_error_set(err, -EINVAL, "-O: '%.*s' is no feature: there is mmp", (int)len, arg);
		arg += len + (arg[len] != 0);
	}
	return 0;
}

/* A number alone is seconds. */
static int parse_extended(struct nvefs_settings_args *a, const char *arg, struct nvefs_error *err)
{
	static const char key[] = "mmp_update_interval=";
	uint32_t seconds;
	uint64_t ns;

	if (strncmp(arg, key, sizeof(key) - 1) != 0)
		return nvefs_error_set(err, -EINVAL, "-E: '%s': write it as mmp_update_interval=2s", arg);
	arg += sizeof(key) - 1;
	if (nvefs_value_count(arg, 1, 60, &seconds))
		ns = seconds * 1000000000ull;
	else if (!nvefs_value_duration(arg, &ns) || ns < MIN_INTERVAL_NS || ns > NVEFS_MMP_MAX_MS * 1000000ull ||
		 ns % 1000000)
		return nvefs_error_set(err, -EINVAL, "-E: mmp_update_interval=%s: use 100ms to 60s", arg);
	a->mmp_interval_ms = (uint32_t)(ns / 1000000);
	return 0;
}

int nvefs_settings_parse(struct nvefs_settings_args *a, int option, const char *arg, struct nvefs_error *err)
{
	switch (option) {
	case 'L':
		return parse_label(a, arg, err);
	case 'U':
		return parse_uuid(a, arg, err);
	case 'O':
		return parse_features(a, arg, err);
	case 'E':
		return parse_extended(a, arg, err);
	}
	return nvefs_error_set(err, -EINVAL, "-%c is no setting", option);
}
