/* SPDX-License-Identifier: MIT */
/* One item of the tree, in words. Values are untrusted. */
#include <stdio.h>
#include <sys/stat.h>

#include "ctl/dump.h"
#include "format/dirent.h"
#include "format/item.h"
#include "format/map.h"
#include "format/xattr.h"

static const char *type_text(uint32_t mode)
{
	static const char *const texts[16] = {
		[S_IFIFO >> 12] = "fifo",     [S_IFCHR >> 12] = "character device", [S_IFDIR >> 12] = "directory",
		[S_IFBLK >> 12] = "block device", [S_IFREG >> 12] = "file",	  [S_IFLNK >> 12] = "symlink",
		[S_IFSOCK >> 12] = "socket"};
	const char *text = texts[(mode & S_IFMT) >> 12];

	return text ? text : "unknown";
}

static int add_inode(struct json_object *o, const void *val, uint32_t len)
{
	struct nvefs_inode_rec r;
	char mode[8];
	int err = nvefs_inode_decode(val, len, &r);

	if (err)
		return err;
	snprintf(mode, sizeof(mode), "%04o", r.mode & 07777);
	nvefs_dump_str(o, "type", type_text(r.mode));
	nvefs_dump_str(o, "mode", mode);
	nvefs_dump_num(o, "uid", r.uid);
	nvefs_dump_num(o, "gid", r.gid);
	nvefs_dump_num(o, "nlink", r.nlink);
	nvefs_dump_num(o, "size", r.size);
	nvefs_dump_num(o, "blks", r.blks);
	nvefs_dump_num(o, "flags", r.flags);
	if (S_ISDIR(r.mode)) {
		nvefs_dump_num(o, "parent", r.parent);
		nvefs_dump_num(o, "subdirs", r.subdirs);
	}
	if (S_ISCHR(r.mode) || S_ISBLK(r.mode)) {
		nvefs_dump_num(o, "major", r.rdev_major);
		nvefs_dump_num(o, "minor", r.rdev_minor);
	}
	nvefs_dump_num(o, "xvalue_next", r.xvalue_next);
	nvefs_dump_time(o, "atime", &r.atime);
	nvefs_dump_time(o, "mtime", &r.mtime);
	nvefs_dump_time(o, "ctime", &r.ctime);
	nvefs_dump_time(o, "btime", &r.btime);
	return 0;
}

static struct json_object *add_list(struct json_object *o, const char *key)
{
	struct json_object *list = json_object_new_array();

	json_object_object_add(o, key, list);
	return list;
}

static int add_dirents(struct json_object *o, const void *val, uint32_t len)
{
	struct json_object *list = add_list(o, "entries");
	struct nvefs_dirent e;
	uint32_t pos = 0;

	if (nvefs_dirent_check(val, len))
		return -1;
	while (!nvefs_dirent_next(val, len, &pos, &e)) {
		struct json_object *one = json_object_new_object();

		nvefs_dump_bytes(one, "name", e.name, e.namelen);
		nvefs_dump_num(one, "ino", e.ino);
		nvefs_dump_str(one, "type", type_text((uint32_t)e.dtype << 12));
		nvefs_dump_num(one, "slot", e.slot);
		json_object_array_add(list, one);
	}
	return 0;
}

static int add_xattrs(struct json_object *o, const void *val, uint32_t len)
{
	struct json_object *list = add_list(o, "attributes");
	struct nvefs_xattr x;
	uint32_t pos = 0;

	if (nvefs_xattr_check(val, len))
		return -1;
	while (!nvefs_xattr_next(val, len, &pos, &x)) {
		struct json_object *one = json_object_new_object();

		nvefs_dump_bytes(one, "name", x.name, x.namelen);
		nvefs_dump_num(one, "length", x.value_len);
		if (x.value_no)
			nvefs_dump_num(one, "value_no", x.value_no);
		else
			nvefs_dump_bytes(one, "value", x.value, x.value_len);
		json_object_array_add(list, one);
	}
	return 0;
}

static struct json_object *make_extent(const struct nvefs_window *w, uint32_t i, uint32_t n, uint64_t lblk)
{
	static const char *const types[] = {"hole", "data", "unwritten", "nosum"};
	struct json_object *one = json_object_new_object();
	uint8_t type = nvefs_went_type(w->pblk[i]);
	struct json_object *sums;

	nvefs_dump_num(one, "lblk", lblk + i);
	nvefs_dump_num(one, "blks", n);
	nvefs_dump_num(one, "pblk", nvefs_went_pblk(w->pblk[i]));
	nvefs_dump_str(one, "type", types[type & 3]);
	if (type != NVEFS_EXT_DATA)
		return one;
	sums = add_list(one, "checksums");
	for (uint32_t j = 0; j < n; j++) {
		char hex[17];

		snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)w->csum[i + j]);
		json_object_array_add(sums, json_object_new_string(hex));
	}
	return one;
}

static int add_map(const struct nvefs_dump *d, struct json_object *o, const struct nvefs_key *key,
		   const void *val, uint32_t len)
{
	struct json_object *list = add_list(o, "extents");
	struct nvefs_window w;

	if (nvefs_map_decode(val, len, &d->sb, &w))
		return -1;
	for (uint32_t i = 0, n; i < NVEFS_WINDOW_BLKS; i += n) {
		n = 1;
		if (!w.pblk[i])
			continue;
		while (i + n < NVEFS_WINDOW_BLKS && w.pblk[i + n] == w.pblk[i] + n)
			n++;
		json_object_array_add(list, make_extent(&w, i, n, key->offset * NVEFS_WINDOW_BLKS));
	}
	return 0;
}

static int add_own(struct json_object *o, const struct nvefs_key *key, const void *val, uint32_t len)
{
	struct nvefs_group_rec g;
	uint32_t n;

	switch (key->kind) {
	case NVEFS_KIND_GROUP:
		if (nvefs_group_decode(val, len, &g))
			return -1;
		nvefs_dump_num(o, "free_blks", g.free_blks);
		nvefs_dump_num(o, "bitmap_txn", g.bitmap_txn);
		return 0;
	case NVEFS_KIND_ORPHAN:
		if (nvefs_orphan_decode(val, len, &n))
			return -1;
		nvefs_dump_hex(o, "reason", n);
		return 0;
	case NVEFS_KIND_SHARE:
		if (nvefs_share_decode(val, len, &n))
			return -1;
		nvefs_dump_num(o, "count", n);
		return 0;
	}
	return -1;
}

static int add_value(const struct nvefs_dump *d, struct json_object *o, const struct nvefs_key *key,
		     const void *val, uint32_t len)
{
	switch (key->kind) {
	case NVEFS_KIND_INODE:
		return add_inode(o, val, len);
	case NVEFS_KIND_DIRENT:
		return add_dirents(o, val, len);
	case NVEFS_KIND_XATTR:
		return add_xattrs(o, val, len);
	case NVEFS_KIND_MAP:
		return add_map(d, o, key, val, len);
	case NVEFS_KIND_SYMLINK:
	case NVEFS_KIND_XVALUE:
		nvefs_dump_bytes(o, "bytes", val, len);
		return 0;
	}
	return add_own(o, key, val, len);
}

struct json_object *nvefs_dump_item(const struct nvefs_dump *d, const struct nvefs_key *key, const void *val,
				    uint32_t len)
{
	struct json_object *o = json_object_new_object();

	nvefs_dump_num(o, "ino", key->ino);
	nvefs_dump_str(o, "kind", nvefs_kind_text(key->kind));
	nvefs_dump_num(o, "offset", key->offset);
	nvefs_dump_num(o, "length", len);
	if (add_value(d, o, key, val, len)) {
		json_object_object_del(o, "entries");
		json_object_object_del(o, "attributes");
		json_object_object_del(o, "extents");
		nvefs_dump_str(o, "damaged", "yes");
		nvefs_dump_bytes(o, "bytes", val, len > NVEFS_VALUE_MAX ? NVEFS_VALUE_MAX : len);
	}
	return o;
}
