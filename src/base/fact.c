/* SPDX-License-Identifier: MIT */
#include "base/fact.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *ending, *unit;
} units[] = {
    {"_bytes", "B"}, {"_percent", "%"}, {"_celsius", "C"}, {"_ms", "ms"}, {"_hours", "h"}, {"_minutes", "min"},
};
#define NUNITS (sizeof(units) / sizeof(units[0]))

/* NUNITS: the key has no unit. */
static size_t unit_of(const char *key)
{
	size_t len = strlen(key), i;

	for (i = 0; i < NUNITS; i++) {
		size_t n = strlen(units[i].ending);

		if (len > n && !strcmp(key + len - n, units[i].ending))
			break;
	}
	return i;
}

void nvefs_fact_label(const struct nvefs_fact *fact, char *buf, size_t len)
{
	size_t unit = unit_of(fact->key), n = strlen(fact->key);

	if (unit < NUNITS)
		n -= strlen(units[unit].ending);
	snprintf(buf, len, "%.*s", (int)n, fact->key);
	for (char *p = buf; *p; p++)
		if (*p == '_')
			*p = ' ';
}

static void bytes_text(uint64_t bytes, char *buf, size_t len)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	int u = 0;

	while (v >= 1024 && u < 6) {
		v /= 1024;
		u++;
	}
	if (u)
		snprintf(buf, len, "%" PRIu64 " B (%.4g %s)", bytes, v, names[u]);
	else
		snprintf(buf, len, "%" PRIu64 " B", bytes);
}

static void number_text(const struct nvefs_fact *fact, char *buf, size_t len)
{
	size_t unit = unit_of(fact->key);

	if (unit == 0 && fact->value >= 0)
		bytes_text((uint64_t)fact->value, buf, len);
	else
		snprintf(buf, len, "%" PRId64 "%s%s", fact->value, unit < NUNITS ? " " : "",
			 unit < NUNITS ? units[unit].unit : "");
}

void nvefs_fact_text(const struct nvefs_fact *fact, char *buf, size_t len)
{
	switch (fact->kind) {
	case NVEFS_FACT_TEXT:
		snprintf(buf, len, "%s", fact->text);
		break;
	case NVEFS_FACT_LIST:
		snprintf(buf, len, "%s", fact->text[0] ? fact->text : "none");
		break;
	case NVEFS_FACT_BOOL:
		snprintf(buf, len, "%s", fact->value ? "yes" : "no");
		break;
	case NVEFS_FACT_NUMBER:
		number_text(fact, buf, len);
		break;
	}
}
