/* SPDX-License-Identifier: MIT */
/* Records of dump.nvefs, as JSON or as lines. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uuid/uuid.h>

#include "ctl/dump.h"

#define LINE_WIDTH 80

static bool is_scalar(struct json_object *v)
{
	return !json_object_is_type(v, json_type_object) && !json_object_is_type(v, json_type_array);
}

static void print_lines(struct json_object *o, int indent);

static void print_nested(struct json_object *v, int indent)
{
	if (json_object_is_type(v, json_type_object)) {
		print_lines(v, indent);
		return;
	}
	for (size_t i = 0; i < json_object_array_length(v); i++) {
		struct json_object *one = json_object_array_get_idx(v, i);

		if (is_scalar(one))
			printf("%*s%s\n", indent, "", json_object_get_string(one));
		else
			print_nested(one, indent);
	}
}

static void print_lines(struct json_object *o, int indent)
{
	int column = printf("%*s", indent, ""), gap = 0;

	json_object_object_foreach(o, key, value)
	{
		if (!is_scalar(value))
			continue;
		if (column > LINE_WIDTH) {
			column = printf("\n%*s", indent + 2, "") - 1;
			gap = 0;
		}
		column += printf("%*s%s %s", gap, "", key, json_object_get_string(value));
		gap = 2;
	}
	putchar('\n');
	json_object_object_foreach(o, name, nested)
	{
		if (is_scalar(nested))
			continue;
		printf("%*s%s:\n", indent + 2, "", name);
		print_nested(nested, indent + 4);
	}
}

void nvefs_dump_print(struct nvefs_dump *d, struct json_object *record)
{
	if (d->json) {
		fputs(d->nprinted ? ",\n" : "[\n", stdout);
		fputs(json_object_to_json_string_ext(record, JSON_C_TO_STRING_NOSLASHESCAPE), stdout);
	} else {
		print_lines(record, 0);
	}
	d->nprinted++;
	json_object_put(record);
}

struct json_object *nvefs_dump_num(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
	return o;
}

struct json_object *nvefs_dump_hex(struct json_object *o, const char *key, uint64_t v)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "0x%" PRIx64, v);
	return nvefs_dump_str(o, key, buf);
}

struct json_object *nvefs_dump_str(struct json_object *o, const char *key, const char *s)
{
	json_object_object_add(o, key, json_object_new_string(s));
	return o;
}

struct json_object *nvefs_dump_bytes(struct json_object *o, const char *key, const void *bytes, size_t len)
{
	char buf[4 * NVEFS_VALUE_MAX + 1];
	const uint8_t *b = bytes;
	size_t at = 0;

	for (size_t i = 0; i < len && at + 5 < sizeof(buf); i++) {
		if (b[i] >= ' ' && b[i] < 127 && b[i] != '\\')
			buf[at++] = (char)b[i];
		else
			at += (size_t)snprintf(buf + at, sizeof(buf) - at, "\\%03o", b[i]);
	}
	buf[at] = '\0';
	return nvefs_dump_str(o, key, buf);
}

struct json_object *nvefs_dump_uuid(struct json_object *o, const char *key, const uint8_t *uuid)
{
	char buf[37];

	uuid_unparse(uuid, buf);
	return nvefs_dump_str(o, key, buf);
}

struct json_object *nvefs_dump_time(struct json_object *o, const char *key, const struct timespec *t)
{
	char buf[64], date[40] = "beyond the calendar";
	struct tm tm;

	if (gmtime_r(&t->tv_sec, &tm))
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf, sizeof(buf), "%s.%09ldZ", date, t->tv_nsec);
	return nvefs_dump_str(o, key, buf);
}
