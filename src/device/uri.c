/* SPDX-License-Identifier: MIT */
#include "device/uri.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rights.h"

static bool has_prefix(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* Make `len` bytes of `path` the name and look whether that exists. */
static int try_name(struct nvefs_uri *uri, const char *path, size_t len, struct nvefs_error *err)
{
	if (len >= sizeof(uri->name))
		return nvefs_error_set(err, -ENAMETOOLONG, "%.64s...: the path is too long", path);
	memcpy(uri->name, path, len);
	uri->name[len] = '\0';
	uri->exists = !stat(uri->name, &uri->st);
	uri->options = path[len] == ',' ? path + len + 1 : NULL;
	return 0;
}

static int parse_path(struct nvefs_uri *uri, const char *path, struct nvefs_error *err)
{
	size_t len = strlen(path);
	int ret = try_name(uri, path, len, err);

	while (!ret && !uri->exists) {
		do {
			if (!len)
				return try_name(uri, path, strcspn(path, ","), err);
		} while (path[--len] != ',');
		ret = try_name(uri, path, len, err);
	}
	return ret;
}

int nvefs_uri_parse(const char *text, struct nvefs_uri *ret, struct nvefs_error *err)
{
	const char *path = text;
	int code;

	memset(ret, 0, sizeof(*ret));
	ret->text = text;
	if (has_prefix(text, "ram:")) {
		ret->is_ram = true;
		code = try_name(ret, text, strcspn(text, ","), err);
		ret->exists = false;
		return code;
	}
	if (has_prefix(text, "file:"))
		path += strlen("file:");
	code = parse_path(ret, path, err);
	if (!code && !ret->name[0])
		code = nvefs_error_set(err, -EINVAL, "'%s': no target is named", text);
	return code;
}

static const struct nvefs_uri_option *find_option(const struct nvefs_uri_option_set *set,
						  const char *name, size_t len)
{
	for (const struct nvefs_uri_option *o = set->table; o->name; o++)
		if (strlen(o->name) == len && !memcmp(o->name, name, len))
			return o;
	return NULL;
}

static void list_options(const struct nvefs_uri_option_set *sets, size_t nsets, char *buf,
			 size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < nsets; i++) {
		for (const struct nvefs_uri_option *o = sets[i].table; o->name && at < len; o++)
			at += (size_t)snprintf(buf + at, len - at, "%s%s%s", at ? ", " : "",
					       o->name, o->values ? "=" : "");
	}
}

static int apply_one(const struct nvefs_uri *uri, const struct nvefs_uri_option_set *sets,
		     size_t nsets, const char *opt, size_t len, struct nvefs_error *err)
{
	char buf[256], valid[256];
	char *eq;
	int code;

	if (len >= sizeof(buf))
		return nvefs_error_set(err, -EINVAL, "%s: option '%.40s...' is too long", uri->name,
				       opt);
	memcpy(buf, opt, len);
	buf[len] = '\0';
	eq = strchr(buf, '=');
	if (eq)
		*eq++ = '\0';
	for (size_t i = 0; i < nsets; i++) {
		const struct nvefs_uri_option *o = find_option(&sets[i], buf, strlen(buf));

		if (!o)
			continue;
		code = o->values || !eq ? o->set(sets[i].config, eq) : -EINVAL;
		if (!code)
			return 0;
		return nvefs_error_set(err, code, "%s: option '%s': bad value '%s': use %s%s%s",
				       uri->name, buf, eq ? eq : "", o->name, o->values ? "=" : "",
				       o->values ? o->values : "");
	}
	list_options(sets, nsets, valid, sizeof(valid));
	if (!valid[0])
		return nvefs_error_set(err, -EINVAL,
				       "%s: unknown option '%s': this target takes none", uri->name,
				       buf);
	return nvefs_error_set(err, -EINVAL, "%s: unknown option '%s': valid options are %s",
			       uri->name, buf, valid);
}

int nvefs_uri_apply(const struct nvefs_uri *uri, const struct nvefs_uri_option_set *sets,
		    size_t nsets, struct nvefs_error *err)
{
	const char *opt = uri->options;

	while (opt) {
		size_t len = strcspn(opt, ",");
		int code = apply_one(uri, sets, nsets, opt, len, err);

		if (code)
			return code;
		opt = opt[len] ? opt + len + 1 : NULL;
	}
	return 0;
}

/* Digits only: no sign, no blanks. *end is after them. */
static bool number(const char *s, uint64_t *ret, char **end)
{
	if (!s || !isdigit((unsigned char)s[0]))
		return false;
	errno = 0;
	*ret = strtoull(s, end, 10);
	return !errno;
}

bool nvefs_value_size(const char *s, uint64_t *ret_bytes)
{
	static const char units[] = "kmgt";
	const char *unit;
	uint64_t value;
	char *end;
	int shift;

	if (!number(s, &value, &end))
		return false;
	if (*end) {
		unit = strchr(units, tolower((unsigned char)*end));
		if (!unit || end[1])
			return false;
		shift = 10 * (int)(unit - units + 1);
		if (value > UINT64_MAX >> shift)
			return false;
		value <<= shift;
	}
	*ret_bytes = value;
	return true;
}

bool nvefs_value_count(const char *s, uint32_t min, uint32_t max, uint32_t *ret)
{
	uint64_t value;
	char *end;

	if (!number(s, &value, &end) || *end || value < min || value > max)
		return false;
	*ret = (uint32_t)value;
	return true;
}

bool nvefs_value_on_off(const char *s, bool *ret)
{
	if (!s || (strcmp(s, "on") && strcmp(s, "off")))
		return false;
	*ret = !strcmp(s, "on");
	return true;
}

bool nvefs_value_duration(const char *s, uint64_t *ret_ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
	uint64_t value;
	char *end;

	if (!number(s, &value, &end))
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].unit))
			continue;
		if (value > UINT64_MAX / 4 / units[i].ns)
			return false;
		*ret_ns = value * units[i].ns;
		return true;
	}
	return false;
}

static bool uring_restricted(void)
{
	FILE *f = fopen("/proc/sys/kernel/io_uring_disabled", "re");
	int c = f ? fgetc(f) : EOF; /* older kernels do not have it, and no restriction */

	if (f)
		fclose(f);
	return c == '1';
}

bool nvefs_uri_privileged(const struct nvefs_uri *uri)
{
	return (uri->exists && (S_ISCHR(uri->st.st_mode) || S_ISBLK(uri->st.st_mode))) || uring_restricted();
}

int nvefs_target_confine(const char *target, struct nvefs_error *err)
{
	struct nvefs_uri uri;
	int code = nvefs_uri_parse(target, &uri, err);

	if (code || nvefs_uri_privileged(&uri))
		return code;
	code = nvefs_rights_reduce(false);
	if (code)
		return nvefs_error_set(err, code, "%s: cannot give up capabilities: %s", target, strerror(-code));
	(void)nvefs_rights_seal();
	return 0;
}
