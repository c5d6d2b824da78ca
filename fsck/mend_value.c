/* SPDX-License-Identifier: MIT */
#include "mend_value.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "format/layout.h"
#include "format/xattr.h"

/* ---- Directory entries ---- */

/* A value in the making. */
struct made {
	uint8_t val[NVEFS_VALUE_MAX] __attribute__((aligned(8)));
	uint32_t len;
	bool changed; /* against the old one */
};

/*
 * The entry at *pos as far as it can be used: 0, 1: not at all, but the next
 * one may be, -1: the end.
 */
static int raw_entry(const struct nvefs_mend_item *it, uint32_t *pos, struct nvefs_dirent *ret)
{
	const struct nvefs_disk_dirent *d = (const void *)(it->val + *pos);
	uint32_t bytes;

	if (*pos >= it->len || it->len - *pos < sizeof(*d) || !d->namelen)
		return -1;
	bytes = ((uint32_t)sizeof(*d) + d->namelen + 7) & ~7u;
	if (bytes > it->len - *pos)
		return -1;
	*pos += bytes;
	if (!le64_get(d->ino) || nvefs_name_check((const char *)d->name, d->namelen))
		return 1;
	*ret = (struct nvefs_dirent){.ino = le64_get(d->ino),
				     .name = (const char *)d->name,
				     .namelen = d->namelen,
				     .dtype = d->dtype,
				     .slot = d->slot};
	return 0;
}

static bool dtype_known(uint8_t dtype)
{
	return dtype == DT_REG || dtype == DT_DIR || dtype == DT_LNK || dtype == DT_CHR || dtype == DT_BLK ||
	       dtype == DT_FIFO || dtype == DT_SOCK;
}

/* What the entry should be. False: nothing. */
static bool judge_entry(struct nvefs_check_ctx *c, struct nvefs_dirent *d)
{
	const struct nvefs_inode_entry *e = nvefs_check_inodes_find(&c->inodes, d->ino);

	if (d->ino == NVEFS_ROOT_INO)
		return false;
	if (e)
		d->dtype = e->dtype;
	else if (!c->incomplete)
		return false;
	if (!dtype_known(d->dtype))
		d->dtype = DT_REG;
	return true;
}

int nvefs_mend_add_name(struct nvefs_check_ctx *c, uint64_t dir, const struct nvefs_dirent *d)
{
	struct nvefs_key key =
		nvefs_key_make(dir, NVEFS_KIND_DIRENT, nvefs_name_hash(c->sb.hash_seed, d->name, d->namelen));
	struct nvefs_mend_item it;
	uint8_t slot;
	int err = nvefs_mend_get(c, &key, &it);

	if (err == -ENOENT)
		it.len = 0;
	else if (err)
		return err;
	err = nvefs_dirent_add(it.val, &it.len, d->name, d->namelen, d->ino, d->dtype, &slot);
	if (err) /* it is there; or the item is damaged or full: without a name the inode goes to lost+found */
		return 0;
	return nvefs_mend_put(c, &key, it.val, it.len);
}

static int make_dirents(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it, struct made *m)
{
	struct nvefs_dirent d;
	uint32_t pos = 0;
	int rc, err = 0;

	while (!err && (rc = raw_entry(it, &pos, &d)) >= 0) {
		uint8_t dtype = d.dtype, slot;

		if (rc || !judge_entry(c, &d)) {
			m->changed = true;
			continue;
		}
		m->changed |= d.dtype != dtype;
		if (nvefs_name_hash(c->sb.hash_seed, d.name, d.namelen) != it->key.offset) {
			m->changed = true;
			err = nvefs_mend_add_name(c, it->key.ino, &d);
		} else if (nvefs_dirent_add(m->val, &m->len, d.name, d.namelen, d.ino, d.dtype, &slot)) {
			m->changed = true; /* twice */
		}
	}
	return err;
}

static int put_made(struct nvefs_check_ctx *c, const struct nvefs_key *key, const struct made *m)
{
	if (!m->changed)
		return 0;
	return m->len ? nvefs_mend_put(c, key, m->val, m->len) : nvefs_mend_del(c, key);
}

int nvefs_mend_dirents(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it)
{
	struct made m = {.changed = nvefs_dirent_check(it->val, it->len) != 0};
	int err = make_dirents(c, it, &m);

	return err ? err : put_made(c, &it->key, &m);
}

/* ---- Extended attributes ---- */

static int move_xattr(struct nvefs_check_ctx *c, uint64_t ino, const struct nvefs_xattr *x)
{
	struct nvefs_key key =
		nvefs_key_make(ino, NVEFS_KIND_XATTR, nvefs_name_hash(c->sb.hash_seed, x->name, x->namelen));
	struct nvefs_mend_item it;
	struct nvefs_xattr there;
	int err = nvefs_mend_get(c, &key, &it);

	if (err == -ENOENT)
		it.len = 0;
	else if (err)
		return err;
	if (it.len && nvefs_xattr_find(it.val, it.len, x->name, x->namelen, &there) != -ENOENT)
		return 0;
	return nvefs_xattr_set(it.val, &it.len, x) ? 0 : nvefs_mend_put(c, &key, it.val, it.len);
}

int nvefs_mend_xattrs(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it)
{
	struct made m = {.changed = nvefs_xattr_check(it->val, it->len) != 0};
	struct nvefs_xattr x, there;
	uint32_t pos = 0;
	int err = 0;

	while (!err && !nvefs_xattr_next(it->val, it->len, &pos, &x)) {
		if (nvefs_name_hash(c->sb.hash_seed, x.name, x.namelen) != it->key.offset) {
			m.changed = true;
			err = move_xattr(c, it->key.ino, &x);
		} else if (nvefs_xattr_find(m.val, m.len, x.name, x.namelen, &there) == -ENOENT) {
			if (nvefs_xattr_set(m.val, &m.len, &x))
				m.changed = true;
		}
	}
	return err ? err : put_made(c, &it->key, &m);
}

/* ---- Segment maps ---- */

static bool extent_usable(const struct nvefs_disk_extent *e, const struct nvefs_super *sb, uint32_t from)
{
	uint32_t off = le16_get(e->off), len = le16_get(e->len), type = le16_get(e->type);

	if (off < from || !len || off + len > NVEFS_WINDOW_BLKS)
		return false;
	if (type != NVEFS_EXT_DATA && type != NVEFS_EXT_UNWRITTEN && type != NVEFS_EXT_NOSUM)
		return false;
	return nvefs_layout_run_ok(sb, le64_get(e->pblk), len);
}

/*
 * The checksums lie behind as many extents as there are; where one extent cannot
 * be used, it is its length that says where those of the next begin.
 */
bool nvefs_map_salvage(const void *val, uint32_t len, const struct nvefs_super *sb, struct nvefs_window *ret_w)
{
	const struct nvefs_disk_map *d = val;
	uint32_t n, room, sum = 0, from = 0;
	const le64 *sums;
	bool any = false;

	memset(ret_w, 0, sizeof(*ret_w));
	if (len < sizeof(*d))
		return false;
	n = le16_get(d->nextents);
	if (n > NVEFS_WINDOW_BLKS || n * sizeof(d->extents[0]) > len - sizeof(*d))
		return false;
	sums = (const le64 *)&d->extents[n];
	room = (uint32_t)((len - sizeof(*d) - n * sizeof(d->extents[0])) / sizeof(*sums));
	for (uint32_t i = 0; i < n; i++) {
		const struct nvefs_disk_extent *e = &d->extents[i];
		bool data = le16_get(e->type) == NVEFS_EXT_DATA, good = extent_usable(e, sb, from);

		for (uint32_t k = 0; good && k < le16_get(e->len); k++) {
			uint32_t b = le16_get(e->off) + k;

			if (data && sum + k >= room)
				break;
			ret_w->pblk[b] = nvefs_went_make((uint8_t)le16_get(e->type), le64_get(e->pblk) + k);
			ret_w->csum[b] = data ? le64_get(sums[sum + k]) : 0;
			any = true;
		}
		if (good)
			from = (uint32_t)le16_get(e->off) + le16_get(e->len);
		if (data)
			sum += le16_get(e->len);
	}
	return any;
}

int nvefs_mend_map_value(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it)
{
	struct nvefs_window w;
	struct made m = {.changed = true};

	if (it->key.offset < NVEFS_MAX_LBLK / NVEFS_WINDOW_BLKS &&
	    nvefs_map_salvage(it->val, it->len, &c->sb, &w))
		m.len = nvefs_map_encode(&w, m.val);
	return put_made(c, &it->key, &m);
}

/* ---- Inodes ---- */

static struct timespec time_value(const struct nvefs_disk_time *d)
{
	uint32_t ns = le32_get(d->ns);

	return (struct timespec){.tv_sec = (time_t)le64_get(d->s), .tv_nsec = ns < 1000000000 ? ns : 0};
}

static uint32_t mode_value(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFCHR:
	case S_IFBLK:
	case S_IFIFO:
	case S_IFSOCK:
		return mode & (S_IFMT | 07777);
	}
	return mode & 07777;
}

void nvefs_mend_inode_value(const void *val, uint32_t len, struct nvefs_inode_rec *ret_rec)
{
	struct nvefs_disk_inode d = {0};

	memcpy(&d, val, len < sizeof(d) ? len : sizeof(d));
	*ret_rec = (struct nvefs_inode_rec){
		.mode = mode_value(le32_get(d.mode)),
		.uid = le32_get(d.uid),
		.gid = le32_get(d.gid),
		.nlink = le32_get(d.nlink) <= NVEFS_LINK_MAX ? le32_get(d.nlink) : 1,
		.size = le64_get(d.size), /* settled by the caller */
		.atime = time_value(&d.atime),
		.mtime = time_value(&d.mtime),
		.ctime = time_value(&d.ctime),
		.btime = time_value(&d.btime),
		.rdev_major = (uint32_t)(le64_get(d.rdev) >> 32),
		.rdev_minor = (uint32_t)le64_get(d.rdev),
		.parent = le64_get(d.parent),
		.flags = le32_get(d.flags),
		.xvalue_next = le32_get(d.xvalue_next),
	};
}
