/* SPDX-License-Identifier: MIT */
/* The daemon's answers in words and aligned columns. */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "base/fact.h"
#include "ctl/nvefsctl.h"
#include "device/drive.h"

static struct json_object *at(struct json_object *o, const char *key)
{
	struct json_object *v;

	return o && json_object_object_get_ex(o, key, &v) ? v : NULL;
}

static uint64_t number(struct json_object *o, const char *key)
{
	return json_object_get_uint64(at(o, key));
}

static const char *text(struct json_object *o, const char *key)
{
	struct json_object *v = at(o, key);

	return v ? json_object_get_string(v) : "";
}

static void heading(const char *name)
{
	printf("\n%s\n", name);
}

static void line_bytes(const char *name, uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	int u = 0;

	while (v >= 1024 && u < 6) {
		v /= 1024;
		u++;
	}
	printf("  %-24s %20" PRIu64 "  %8.*f %s\n", name, bytes, u ? 1 : 0, v, units[u]);
}

static void line_count(const char *name, uint64_t n)
{
	printf("  %-24s %20" PRIu64 "\n", name, n);
}

static void line_text(const char *name, const char *value)
{
	printf("  %-24s %s\n", name, value);
}

static void show_space(struct json_object *s)
{
	heading("space");
	line_bytes("total", number(s, "total_bytes"));
	line_bytes("free", number(s, "free_bytes"));
	line_bytes("available", number(s, "available_bytes"));
	line_bytes("logical (files map)", number(s, "logical_bytes"));
	line_bytes("physical (data)", number(s, "physical_bytes"));
	line_bytes("shared (saved)", number(s, "shared_bytes"));
	printf("  %-24s %20.2f\n", "dedup ratio", json_object_get_double(at(s, "dedup_ratio")));
	line_bytes("metadata", number(s, "metadata_bytes"));
	line_bytes("freed, not reusable yet", number(s, "quarantined_bytes"));
	line_count("inodes", number(s, "inodes"));
}

static void show_dedup(struct json_object *d)
{
	heading("dedup");
	line_text("state", json_object_get_boolean(at(d, "enabled")) ? "on" : "off");
	line_count("index entries", number(d, "index_entries"));
	line_count("index capacity", number(d, "index_capacity"));
	line_bytes("index memory", number(d, "index_bytes"));
	line_count("lookups", number(d, "lookups"));
	line_count("hits", number(d, "hits"));
	line_count("false hits", number(d, "false_hits"));
	line_count("evictions", number(d, "evictions"));
}

static void show_memory(struct json_object *journal, struct json_object *cache)
{
	heading("journal");
	line_count("commits", number(journal, "commits"));
	line_count("checkpoints", number(journal, "checkpoints"));
	line_count("blocks", number(journal, "blocks"));
	line_count("blocks live", number(journal, "live_blocks"));
	line_count("transactions recovered", number(journal, "recovered_transactions"));
	heading("cache");
	line_count("metadata blocks", number(cache, "blocks"));
	line_count("metadata blocks dirty", number(cache, "dirty_blocks"));
	line_bytes("maps dirty", number(cache, "dirty_map_bytes"));
}

static void show_device(struct json_object *d)
{
	struct json_object *commands = at(d, "commands"), *bytes = at(d, "bytes");

	heading("device");
	line_text("route", text(d, "route"));
	printf("  %-24s %20s  %20s\n", "command", "count", "bytes");
	if (commands) {
		json_object_object_foreach(commands, name, count) {
			printf("  %-24s %20" PRIu64, name, json_object_get_uint64(count));
			if (at(bytes, name))
				printf("  %20" PRIu64, number(bytes, name));
			putchar('\n');
		}
	}
	line_count("writes with FUA", number(d, "fua_writes"));
	line_count("split for limits", number(d, "splits"));
	line_count("refused for their size", number(d, "refused_for_size"));
	line_count("errors", number(d, "errors"));
	if (number(d, "media_write_bytes"))
		line_bytes("written to the medium", number(d, "media_write_bytes"));
}

void nvefs_show_stats(struct json_object *s)
{
	struct json_object *errors = at(s, "errors");

	printf("%s\n", text(s, "target"));
	show_space(s);
	show_dedup(at(s, "dedup"));
	show_memory(at(s, "journal"), at(s, "cache"));
	show_device(at(s, "device"));
	heading("trouble");
	line_count("checksum errors", number(errors, "checksum"));
	line_count("I/O errors", number(errors, "io"));
	line_count("bad copies of metadata", number(errors, "metadata_copies_bad"));
	line_count("  written anew", number(errors, "metadata_copies_healed"));
	line_count("  could not be", number(errors, "metadata_copies_unhealed"));
	line_count("late heartbeats", number(errors, "late_heartbeats"));
	line_text("writable", json_object_get_boolean(at(s, "read_only")) ? "no" : "yes");
	if (at(s, "stopped_by"))
		line_text("writing stopped by", text(s, "stopped_by"));
}

/* ---- What the drive says ---- */

static void join_words(struct json_object *array, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < json_object_array_length(array) && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "",
				       json_object_get_string(json_object_array_get_idx(array, i)));
}

static void show_fact(const char *key, struct json_object *value, bool zeros)
{
	char label[64], text[1100], list[1024];
	struct nvefs_fact f = {.key = key};

	switch (json_object_get_type(value)) {
	case json_type_array:
		join_words(value, list, sizeof(list));
		f.kind = NVEFS_FACT_LIST;
		f.text = list;
		break;
	case json_type_int:
		f.kind = NVEFS_FACT_NUMBER;
		f.value = json_object_get_int64(value);
		break;
	case json_type_boolean:
		f.kind = NVEFS_FACT_BOOL;
		f.value = json_object_get_boolean(value);
		break;
	default:
		f.kind = NVEFS_FACT_TEXT;
		f.text = json_object_get_string(value);
		break;
	}
	if (!zeros && !nvefs_drive_fact_reported(&f))
		return;
	nvefs_fact_label(&f, label, sizeof(label));
	nvefs_fact_text(&f, text, sizeof(text));
	line_text(label, text);
}

/* `zeros`: those that may mean "not reported" as well. */
static void show_facts(const char *name, struct json_object *facts, bool zeros)
{
	if (!facts)
		return;
	heading(name);
	json_object_object_foreach(facts, key, value)
		show_fact(key, value, zeros);
}

void nvefs_show_info(struct json_object *info)
{
	static const char *const keys[][2] = {
		{"target", "target"},
		{"mounted on", "mountpoint"},
		{"device", "device"},
		{"route", "route"},
		{"UUID", "uuid"},
		{"label", "label"},
		{"made by", "creator"},
		{"disk version", "disk_version"},
		{"daemon version", "daemon_version"},
		{"daemon process", "daemon_pid"},
		{"libfuse", "libfuse_version"},
		{"queues", "queues"},
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		printf("%-16s %s\n", keys[i][0], text(info, keys[i][1]));
	printf("%-16s %" PRIu64 " bytes\n", "size", number(info, "total_bytes"));
	printf("%-16s %" PRIu64 " bytes\n", "journal", number(info, "journal_bytes"));
	printf("%-16s %s\n", "writable", json_object_get_boolean(at(info, "read_only")) ? "no" : "yes");
	if (json_object_get_boolean(at(info, "multiple_mount_protection")))
		printf("%-16s on, a heartbeat every %" PRIu64 " ms\n", "other hosts", number(info, "heartbeat_ms"));
	else
		printf("%-16s %s\n", "other hosts",
		       json_object_get_boolean(at(info, "shared")) ?
			       "can reach the device, and would not be noticed (no multiple mount protection)" :
			       "would not be noticed (no multiple mount protection)");
	show_facts("SCSI", at(at(info, "drive"), "scsi"), false);
	show_facts("NVMe", at(at(info, "drive"), "nvme"), false);
	show_facts("health", at(info, "health"), true);
	if (at(info, "health_error"))
		line_text("health", text(info, "health_error"));
}
