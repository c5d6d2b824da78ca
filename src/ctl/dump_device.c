/* SPDX-License-Identifier: MIT */
/* dump.nvefs: what lies at fixed places, read straight from the device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "ctl/dump.h"
#include "format/block.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/mmp.h"
#include "format/root.h"

static int no_memory(struct nvefs_dump *d)
{
	return nvefs_error_set(&d->err, -ENOMEM, "%s: out of memory", d->target);
}

static struct json_object *super_record(const struct nvefs_super *sb)
{
	struct json_object *o = json_object_new_object();

	nvefs_dump_uuid(o, "uuid", nvefs_super_public_uuid(sb));
	nvefs_dump_uuid(o, "mkfs_uuid", sb->uuid);
	nvefs_dump_str(o, "label", sb->label);
	nvefs_dump_num(o, "disk_version", sb->disk_version);
	nvefs_dump_hex(o, "feature_compat", sb->feature_compat);
	nvefs_dump_hex(o, "feature_ro_compat", sb->feature_ro_compat);
	nvefs_dump_hex(o, "feature_incompat", sb->feature_incompat);
	nvefs_dump_num(o, "seq", sb->seq);
	nvefs_dump_num(o, "nblks", sb->nblks);
	nvefs_dump_num(o, "ngroups", sb->ngroups);
	nvefs_dump_num(o, "group_blks", sb->group_blks);
	nvefs_dump_num(o, "journal_pblk", sb->journal_pblk);
	nvefs_dump_num(o, "journal_blks", sb->journal_blks);
	nvefs_dump_num(o, "root_pblk", sb->root_pblk);
	nvefs_dump_hex(o, "flags", sb->flags);
	nvefs_dump_str(o, "dedup", sb->flags & NVEFS_SB_DEDUP ? "on" : "off");
	nvefs_dump_str(o, "metadata", nvefs_super_dup(sb) ? "dup" : "single");
	nvefs_dump_hex(o, "hash_seed", sb->hash_seed);
	nvefs_dump_time(o, "created", &sb->created);
	nvefs_dump_str(o, "creator", sb->creator);
	nvefs_dump_num(o, "lba_bytes", sb->lba_bytes);
	nvefs_dump_num(o, "iu_blks", sb->iu_blks);
	nvefs_dump_str(o, "serial", sb->serial);
	nvefs_dump_str(o, "multiple_mount_protection", nvefs_super_mmp(sb) ? "on" : "off");
	if (nvefs_super_mmp(sb))
		nvefs_dump_num(o, "heartbeat_ms", sb->mmp_interval_ms);
	return o;
}

int nvefs_dump_super(struct nvefs_dump *d, const char *arg)
{
	uint64_t nblks = nvefs_layout_blks(nvefs_dev_limits(d->dev)->nblks);
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	(void)arg;
	if (!buf)
		return no_memory(d);
	if (d->have_sb)
		nblks = d->sb.nblks;
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++) {
		uint64_t pblk = nvefs_super_slot_pblk(nblks, i);
		const char *why = "cannot be read";
		struct json_object *o;
		struct nvefs_super sb;
		int err = nvefs_queue_read(d->q, pblk, 1, buf);

		if (!err)
			err = nvefs_super_decode(buf, pblk, &sb, &why);
		o = err ? json_object_new_object() : super_record(&sb);
		nvefs_dump_num(o, "slot", i);
		nvefs_dump_num(o, "pblk", pblk);
		if (err)
			nvefs_dump_str(o, "damaged", why);
		nvefs_dump_print(d, o);
	}
	nvefs_buf_free(buf);
	return 0;
}

static void dump_mmp_block(struct nvefs_dump *d, uint16_t type, void *buf)
{
	static const char *const states[] = {"", "free", "mounted", "fsck"};
	struct json_object *o = json_object_new_object();
	enum nvefs_block_status status = NVEFS_BLOCK_CHECKSUM;
	struct nvefs_mmp_rec rec;
	struct timespec at = {0};

	if (!nvefs_queue_read(d->q, nvefs_mmp_pblk(type), 1, buf))
		status = nvefs_mmp_decode(buf, &d->sb, type, &rec);
	nvefs_dump_str(o, "what", type == NVEFS_BT_CLAIM ? "claim" : "beat");
	nvefs_dump_num(o, "pblk", nvefs_mmp_pblk(type));
	if (status != NVEFS_BLOCK_OK) {
		nvefs_dump_print(d, nvefs_dump_str(o, "damaged", nvefs_block_status_text(status)));
		return;
	}
	at.tv_sec = (time_t)rec.time_s;
	nvefs_dump_str(o, "state", states[rec.state]);
	nvefs_dump_bytes(o, "host", rec.host, strlen(rec.host));
	nvefs_dump_bytes(o, "target", rec.target, strlen(rec.target));
	nvefs_dump_time(o, "time", &at);
	nvefs_dump_hex(o, "nonce", rec.nonce);
	nvefs_dump_num(o, "seq", rec.seq);
	nvefs_dump_num(o, "interval_ms", rec.interval_ms);
	nvefs_dump_print(d, o);
}

int nvefs_dump_mmp(struct nvefs_dump *d, const char *arg)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	(void)arg;
	if (!buf)
		return no_memory(d);
	if (!nvefs_super_mmp(&d->sb)) {
		nvefs_buf_free(buf);
		return nvefs_error_set(&d->err, -ENOENT, "%s: has no multiple mount protection", d->target);
	}
	dump_mmp_block(d, NVEFS_BT_CLAIM, buf);
	dump_mmp_block(d, NVEFS_BT_BEAT, buf);
	nvefs_buf_free(buf);
	return 0;
}

int nvefs_dump_root(struct nvefs_dump *d, const char *arg)
{
	struct json_object *o = json_object_new_object();
	struct timespec written = {0};
	struct nvefs_root r;

	(void)arg;
	nvefs_store_rdlock(d->st);
	r = *nvefs_store_root(d->st);
	nvefs_store_rdunlock(d->st);
	written.tv_sec = (time_t)r.written_s;
	nvefs_dump_num(o, "tree_pblk", r.tree_pblk);
	nvefs_dump_num(o, "tree_twin", r.tree_twin);
	nvefs_dump_num(o, "tree_txn", r.tree_txn);
	nvefs_dump_num(o, "tree_height", r.tree_height);
	nvefs_dump_num(o, "next_ino", r.next_ino);
	nvefs_dump_num(o, "free_blks", r.free_blks);
	nvefs_dump_num(o, "meta_blks", r.meta_blks);
	nvefs_dump_num(o, "inodes", r.inodes);
	nvefs_dump_num(o, "shared_blks", r.shared_blks);
	nvefs_dump_num(o, "shared_refs", r.shared_refs);
	nvefs_dump_num(o, "mount_count", r.mount_count);
	nvefs_dump_time(o, "written", &written);
	nvefs_dump_print(d, o);
	return 0;
}

/* ---- Journal ---- */

/* Read and judge a block; a status other than OK also when it cannot be read. */
static enum nvefs_block_status read_block(struct nvefs_dump *d, uint64_t pblk, uint16_t type, void *buf)
{
	struct nvefs_block_expect want = {.pblk = pblk, .uuid = d->sb.uuid, .type = type};

	return nvefs_queue_read(d->q, pblk, 1, buf) ? NVEFS_BLOCK_CHECKSUM : nvefs_block_check(buf, &want);
}

/* One copy of a header slot: the first one, or the second. */
static bool dump_jheader(struct nvefs_dump *d, unsigned int slot, bool twin, void *buf, struct nvefs_jheader *best)
{
	const struct nvefs_block_expect want = {.pblk = nvefs_journal_header_pblk(&d->sb, slot),
						.twin = nvefs_journal_header_twin(&d->sb, slot),
						.uuid = d->sb.uuid,
						.type = NVEFS_BT_JHEADER};
	uint64_t pblk = twin ? want.twin : want.pblk;
	enum nvefs_block_status status;
	struct json_object *o = json_object_new_object();
	struct nvefs_jheader h;

	status = nvefs_queue_read(d->q, pblk, 1, buf) ? NVEFS_BLOCK_CHECKSUM : nvefs_block_check(buf, &want);
	nvefs_dump_str(o, "what", "header");
	nvefs_dump_num(o, "slot", slot);
	nvefs_dump_num(o, "copy", twin ? 2 : 1);
	nvefs_dump_num(o, "pblk", pblk);
	if (status == NVEFS_BLOCK_OK && nvefs_jheader_decode(buf, &d->sb, &h))
		status = NVEFS_BLOCK_CONTENT;
	if (status != NVEFS_BLOCK_OK) {
		nvefs_dump_print(d, nvefs_dump_str(o, "damaged", nvefs_block_status_text(status)));
		return false;
	}
	nvefs_dump_num(o, "seq", h.seq);
	nvefs_dump_num(o, "epoch", h.epoch);
	nvefs_dump_num(o, "tail_txn", h.tail_txn);
	nvefs_dump_num(o, "tail_pos", h.tail_pos);
	nvefs_dump_num(o, "log_blks", h.log_blks);
	nvefs_dump_num(o, "root_txn", h.root_txn);
	nvefs_dump_print(d, o);
	if (h.seq < best->seq)
		return false;
	*best = h;
	return true;
}

static struct json_object *jdesc_record(const void *buf, const struct nvefs_jdesc *desc)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	nvefs_dump_str(o, "what", "descriptor");
	nvefs_dump_num(o, "txn", desc->txn);
	nvefs_dump_num(o, "index", desc->index);
	nvefs_dump_num(o, "images", desc->nimages);
	for (uint32_t i = 0; i < desc->nimages; i++)
		json_object_array_add(list, json_object_new_uint64(nvefs_jdesc_home(buf, i)));
	json_object_object_add(o, "home", list);
	return o;
}

static struct json_object *jcommit_record(const struct nvefs_jcommit *c)
{
	struct json_object *o = json_object_new_object();

	nvefs_dump_str(o, "what", "commit");
	nvefs_dump_num(o, "txn", c->txn);
	nvefs_dump_num(o, "nblks", c->nblks);
	nvefs_dump_num(o, "images", c->nimages);
	nvefs_dump_hex(o, "group_checksum", c->group_checksum);
	return o;
}

/* The record of the block at this position, or NULL where the log ends; *ret_skip: images that follow. */
static struct json_object *log_record(struct nvefs_dump *d, uint32_t pos, uint64_t epoch, void *buf,
				      uint32_t *ret_skip)
{
	uint64_t pblk = nvefs_journal_log_pblk(&d->sb, pos);
	struct nvefs_jdesc desc;
	struct nvefs_jcommit c;

	*ret_skip = 0;
	if (read_block(d, pblk, NVEFS_BT_JDESC, buf) == NVEFS_BLOCK_OK) {
		if (nvefs_jdesc_decode(buf, &d->sb, &desc) || desc.epoch != epoch)
			return NULL;
		*ret_skip = desc.nimages;
		return jdesc_record(buf, &desc);
	}
	if (read_block(d, pblk, NVEFS_BT_JCOMMIT, buf) == NVEFS_BLOCK_OK &&
	    !nvefs_jcommit_decode(buf, &d->sb, &c) && c.epoch == epoch)
		return jcommit_record(&c);
	return NULL;
}

int nvefs_dump_journal(struct nvefs_dump *d, const char *arg)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_jheader h = {0};
	bool any = false;

	(void)arg;
	if (!buf)
		return no_memory(d);
	for (unsigned int i = 0; i < NVEFS_JOURNAL_HEADERS; i++)
		any |= dump_jheader(d, i, false, buf, &h);
	for (unsigned int i = 0; i < NVEFS_JOURNAL_HEADERS && nvefs_super_dup(&d->sb); i++)
		any |= dump_jheader(d, i, true, buf, &h);
	for (uint32_t seen = 0; any && seen < h.log_blks;) {
		uint32_t pos = (h.tail_pos + seen) % h.log_blks, skip;
		struct json_object *o = log_record(d, pos, h.epoch, buf, &skip);

		if (!o)
			break;
		nvefs_dump_num(o, "pos", pos);
		nvefs_dump_print(d, o);
		seen += 1 + skip;
	}
	nvefs_buf_free(buf);
	return 0;
}

/* ---- Any block ---- */

static const char *block_type_text(uint16_t type)
{
	static const char *const texts[] = {"unknown", "superblock", "root", "node", "bitmap", "journal header",
					    "journal descriptor", "journal commit", "claim", "beat"};

	return type < sizeof(texts) / sizeof(texts[0]) ? texts[type] : texts[0];
}

static void add_bytes(struct json_object *o, const uint8_t *block)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < NVEFS_BLOCK_SIZE; i += 32) {
		char line[80];
		int at = snprintf(line, sizeof(line), "%04x:", i);

		for (uint32_t j = 0; j < 32; j++)
			at += snprintf(line + at, sizeof(line) - (size_t)at, "%s%02x", j % 16 ? "" : " ",
				       block[i + j]);
		json_object_array_add(list, json_object_new_string(line));
	}
	json_object_object_add(o, "bytes", list);
}

int nvefs_dump_block(struct nvefs_dump *d, const char *arg)
{
	const uint64_t pblk = strtoull(arg, NULL, 0);
	struct nvefs_block_expect want = {.pblk = pblk, .twin = NVEFS_TWIN_ANY};
	struct json_object *o;
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err;

	if (!buf)
		return no_memory(d);
	err = nvefs_queue_read(d->q, pblk, 1, buf);
	if (err) {
		nvefs_buf_free(buf);
		return nvefs_error_set(&d->err, err, "%s: block %s cannot be read: %s", d->target, arg,
				       strerror(-err));
	}
	want.type = nvefs_block_type(buf);
	if (nvefs_block_twin(buf) == pblk && pblk) /* a second copy is as the first */
		want.pblk = nvefs_block_pblk(buf);
	o = nvefs_dump_num(json_object_new_object(), "pblk", pblk);
	nvefs_dump_str(o, "status", nvefs_block_status_text(nvefs_block_check(buf, &want)));
	nvefs_dump_str(o, "type", block_type_text(want.type));
	nvefs_dump_num(o, "own_pblk", nvefs_block_pblk(buf));
	nvefs_dump_num(o, "twin", nvefs_block_twin(buf));
	nvefs_dump_num(o, "txn", nvefs_block_txn(buf));
	add_bytes(o, buf);
	nvefs_dump_print(d, o);
	nvefs_buf_free(buf);
	return 0;
}
