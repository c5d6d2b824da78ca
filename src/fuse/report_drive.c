/* SPDX-License-Identifier: MIT */
#include <json-c/json.h>
#include <string.h>

#include "device/drive.h"
#include "fuse/report.h"

static struct json_object *words(const char *list)
{
	struct json_object *a = json_object_new_array();

	while (*list) {
		const char *comma = strstr(list, ", ");
		size_t len = comma ? (size_t)(comma - list) : strlen(list);

		json_object_array_add(a, json_object_new_string_len(list, (int)len));
		list += comma ? len + 2 : len;
	}
	return a;
}

static void add_fact(void *arg, const struct nvefs_fact *f)
{
	struct json_object *o = arg, *value = NULL;

	switch (f->kind) {
	case NVEFS_FACT_TEXT:
		value = json_object_new_string(f->text);
		break;
	case NVEFS_FACT_LIST:
		value = words(f->text);
		break;
	case NVEFS_FACT_NUMBER:
		value = json_object_new_int64(f->value);
		break;
	case NVEFS_FACT_BOOL:
		value = json_object_new_boolean(f->value != 0);
		break;
	}
	json_object_object_add(o, f->key, value);
}

void nvefs_report_add_drive(struct json_object *to, const struct nvefs_drive *drive)
{
	struct json_object *o;

	if (drive->scsi.there) {
		o = json_object_new_object();
		nvefs_drive_scsi_facts(drive, add_fact, o);
		json_object_object_add(to, "scsi", o);
	}
	if (drive->nvme.there) {
		o = json_object_new_object();
		nvefs_drive_nvme_facts(drive, add_fact, o);
		json_object_object_add(to, "nvme", o);
	}
}

char *nvefs_report_health(const struct nvefs_drive_health *health)
{
	struct json_object *o = json_object_new_object();
	const char *text;
	char *copy;

	nvefs_drive_health_facts(health, add_fact, o);
	text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
	copy = text ? strdup(text) : NULL;
	json_object_put(o);
	return copy;
}
