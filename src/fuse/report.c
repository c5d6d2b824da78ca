/* SPDX-License-Identifier: MIT */
#include "fuse/report.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include "fuse/jobs.h"

static const char *const op_names[NVEFS_IO_NOPS] = {
	[NVEFS_IO_READ] = "read",
	[NVEFS_IO_WRITE] = "write",
	[NVEFS_IO_FLUSH] = "flush",
	[NVEFS_IO_DISCARD] = "discard",
	[NVEFS_IO_WRITE_ZEROES] = "write_zeroes",
	[NVEFS_IO_COMPARE] = "compare",
};

static void add_u64(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}
static void add_bool(struct json_object *o, const char *key, bool v)
{
	json_object_object_add(o, key, json_object_new_boolean(v));
}
static void add_text(struct json_object *o, const char *key, const char *v)
{
	json_object_object_add(o, key, v ? json_object_new_string(v) : NULL);
}

/* An object below `o`; NULL when memory is out, which json-c's calls take as nothing to do. */
static struct json_object *add_object(struct json_object *o, const char *key)
{
	struct json_object *sub = json_object_new_object();

	json_object_object_add(o, key, sub);
	return sub;
}

static char *finish(struct json_object *o)
{
	const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
	char *copy = text ? strdup(text) : NULL;

	json_object_put(o);
	return copy;
}

static const char *route_name(uint32_t route)
{
	return route == NVEFS_ROUTE_SCSI ? "scsi" : "native";
}

static void add_space(struct json_object *o, const struct nvefs_stats *st)
{
	double ratio = st->physical_bytes ? (double)st->logical_bytes / (double)st->physical_bytes : 1.0;

	add_u64(o, "total_bytes", st->total_bytes);
	add_u64(o, "free_bytes", st->free_bytes);
	add_u64(o, "available_bytes", st->avail_bytes);
	add_u64(o, "logical_bytes", st->logical_bytes);
	add_u64(o, "physical_bytes", st->physical_bytes);
	add_u64(o, "shared_bytes", st->shared_bytes);
	json_object_object_add(o, "dedup_ratio", json_object_new_double(ratio));
	add_u64(o, "metadata_bytes", st->metadata_bytes);
	add_u64(o, "quarantined_bytes", st->quarantined_bytes);
	add_u64(o, "inodes", st->inodes);
}

static void add_dedup(struct json_object *top, const struct nvefs_stats *st)
{
	struct json_object *o = add_object(top, "dedup");

	add_bool(o, "enabled", st->dedup_on);
	add_u64(o, "index_entries", st->dedup_entries);
	add_u64(o, "index_capacity", st->dedup_capacity);
	add_u64(o, "index_bytes", st->dedup_mem_bytes);
	add_u64(o, "lookups", st->dedup_lookups);
	add_u64(o, "hits", st->dedup_hits);
	add_u64(o, "false_hits", st->dedup_false_hits);
	add_u64(o, "evictions", st->dedup_evictions);
}

static void add_journal_and_cache(struct json_object *top, const struct nvefs_stats *st)
{
	struct json_object *o = add_object(top, "journal");

	add_u64(o, "commits", st->commits);
	add_u64(o, "blocks", st->journal_blks);
	add_u64(o, "live_blocks", st->journal_live_blks);
	add_u64(o, "checkpoints", st->checkpoints);
	add_u64(o, "recovered_transactions", st->recovered_txns);
	o = add_object(top, "cache");
	add_u64(o, "blocks", st->cache_blks);
	add_u64(o, "dirty_blocks", st->cache_dirty_blks);
	add_u64(o, "dirty_map_bytes", st->dirty_map_bytes);
}

static void add_device(struct json_object *top, const struct nvefs_stats *st)
{
	struct json_object *o = add_object(top, "device"), *commands, *bytes;

	add_text(o, "route", route_name(st->route));
	commands = add_object(o, "commands");
	bytes = add_object(o, "bytes");
	for (int i = 0; i < NVEFS_IO_NOPS; i++) {
		add_u64(commands, op_names[i], st->dev.commands[i]);
		if (i != NVEFS_IO_FLUSH)
			add_u64(bytes, op_names[i], st->dev.bytes[i]);
	}
	add_u64(o, "flushes", st->dev.commands[NVEFS_IO_FLUSH]);
	add_u64(o, "fua_writes", st->dev.fua);
	add_u64(o, "splits", st->dev.splits);
	add_u64(o, "refused_for_size", st->dev.refused);
	add_u64(o, "errors", st->dev.errors);
	add_u64(o, "media_write_bytes", st->dev.media_write_bytes);
}

char *nvefs_report_stats(struct nvefs_daemon *d)
{
	struct json_object *top = json_object_new_object(), *o;
	struct nvefs_stats st;

	if (!top)
		return NULL;
	nvefs_stats_get(d->fs, &st);
	add_text(top, "target", d->source);
	add_text(top, "route", route_name(st.route));
	add_space(top, &st);
	add_dedup(top, &st);
	add_journal_and_cache(top, &st);
	add_device(top, &st);
	o = add_object(top, "errors");
	add_u64(o, "checksum", st.checksum_errors);
	add_u64(o, "io", st.io_errors);
	add_u64(o, "metadata_copies_bad", st.copies_bad);
	add_u64(o, "metadata_copies_healed", st.copies_healed);
	add_u64(o, "metadata_copies_unhealed", st.copies_unhealed);
	add_u64(o, "late_heartbeats", st.late_beats);
	add_bool(top, "read_only", st.read_only);
	add_text(top, "stopped_by", st.error ? strerror(st.error < 0 ? -st.error : st.error) : NULL);
	return finish(top);
}

char *nvefs_report_info(struct nvefs_daemon *d)
{
	struct json_object *top = json_object_new_object();
	char uuid[37];
	struct nvefs_stats st;
	struct nvefs_info info;

	if (!top)
		return NULL;
	nvefs_info_get(d->fs, &info);
	nvefs_stats_get(d->fs, &st);
	uuid_unparse(info.uuid, uuid);
	add_text(top, "target", d->source);
	add_text(top, "mountpoint", d->mountpoint);
	add_text(top, "uuid", uuid);
	add_text(top, "label", info.label);
	add_text(top, "creator", info.creator);
	add_u64(top, "disk_version", info.disk_version);
	add_text(top, "daemon_version", NVEFS_VERSION);
	add_u64(top, "daemon_pid", (uint64_t)getpid());
	add_text(top, "libfuse_version", fuse_pkgversion());
	add_text(top, "route", route_name(st.route));
	add_u64(top, "queues", d->nservers);
	add_u64(top, "total_bytes", info.nblks * NVEFS_BLOCK_SIZE);
	add_u64(top, "journal_bytes", info.journal_blks * NVEFS_BLOCK_SIZE);
	add_text(top, "device", info.device);
	add_bool(top, "shared", info.shared);
	add_bool(top, "multiple_mount_protection", info.mmp_interval_ms);
	add_u64(top, "heartbeat_ms", info.mmp_interval_ms);
	nvefs_report_add_drive(add_object(top, "drive"), nvefs_dev_drive(d->dev));
	add_bool(top, "read_only", st.read_only);
	return finish(top);
}

char *nvefs_report_scrub(struct nvefs_daemon *d)
{
	struct json_object *top = json_object_new_object();
	struct nvefs_scrub_state st;

	if (!top)
		return NULL;
	nvefs_jobs_scrub_state(d->jobs, &st);
	add_bool(top, "ran", st.ran);
	add_bool(top, "running", st.running);
	add_u64(top, "done_blocks", st.done_blks);
	add_u64(top, "total_blocks", st.total_blks);
	add_u64(top, "damaged_blocks", st.damaged);
	add_u64(top, "bad_copies", st.bad_copies);
	add_text(top, "error",
		 st.err == -EBUSY      ? "the device has no queue to spare for it"
		 : st.err == -ECANCELED ? "stopped"
		 : st.err	       ? strerror(-st.err)
				       : NULL);
	return finish(top);
}

struct events {
	struct json_object *list;
	size_t left;
	uint64_t taken;
};

static bool add_event(void *arg, const struct nvefs_damage *damage)
{
	struct events *ev = arg;
	struct json_object *o = json_object_new_object();
	size_t len;

	add_text(o, "path", damage->path);
	add_u64(o, "inode", damage->ino);
	add_u64(o, "file_block", damage->lblk);
	add_u64(o, "device_block", damage->pblk);
	add_text(o, "error", damage->err == -EUCLEAN ? "checksum mismatch" : strerror(-damage->err));
	len = strlen(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN)) + 1;
	if (len > ev->left) {
		json_object_put(o);
		return false;
	}
	ev->left -= len;
	ev->taken++;
	json_object_array_add(ev->list, o);
	return true;
}

char *nvefs_report_scrub_events(struct nvefs_daemon *d, uint64_t first, size_t max_bytes)
{
	struct json_object *top = json_object_new_object();
	struct events ev = {.list = json_object_new_array(), .left = max_bytes - 128};

	if (!top || !ev.list) {
		json_object_put(top);
		json_object_put(ev.list);
		return NULL;
	}
	nvefs_jobs_scrub_events(d->jobs, first, add_event, &ev);
	json_object_object_add(top, "events", ev.list);
	add_u64(top, "next", first + ev.taken);
	return finish(top);
}
