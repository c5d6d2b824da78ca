/* SPDX-License-Identifier: MIT */
/* Names that go, and names for what has none. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "format/dirent.h"
#include "mend.h"
#include "mend_value.h"

#define LOST_NAMES 10u /* lost+found, lost+found.1 ... */

int nvefs_mend_orphans(struct nvefs_check_ctx *c)
{
	int err = 0;

	nvefs_numbers_sort(&c->todo.orphans);
	for (size_t i = 0; i < c->todo.orphans.n && !err; i++) {
		uint64_t ino = c->todo.orphans.tab[i];
		struct nvefs_key key = nvefs_orphan_key(ino);
		uint32_t reason = nvefs_check_orphan_reason(c, ino) & ~NVEFS_ORPHAN_UNLINKED;
		struct nvefs_disk_orphan d = nvefs_orphan_encode(reason);

		/* What lies behind its end is still to be removed. */
		if (reason && nvefs_check_inodes_find(&c->inodes, ino))
			err = nvefs_mend_put(c, &key, &d, sizeof(d));
		else
			err = nvefs_mend_del(c, &key);
	}
	return err;
}

int nvefs_mend_remove_name(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it, uint64_t ino)
{
	uint8_t val[NVEFS_VALUE_MAX] __attribute__((aligned(8)));
	uint32_t len = it->len, pos = 0;
	struct nvefs_dirent d;

	memcpy(val, it->val, len);
	while (!nvefs_dirent_next(it->val, it->len, &pos, &d))
		if (d.ino == ino) {
			nvefs_dirent_remove(val, &len, d.name, d.namelen);
			break;
		}
	if (len == it->len)
		return 0;
	/* Its counts follow: it is among the sick from now on. */
	if (nvefs_numbers_add(&c->todo.sick, it->key.ino))
		return -ENOMEM;
	c->todo.menders |= 1u << NVEFS_MEND_INODE;
	return len ? nvefs_mend_put(c, &it->key, val, len) : nvefs_mend_del(c, &it->key);
}

/* ---- Directories with more than one name ---- */

/* The name to keep is the one in the directory that it calls its parent; else the first. */
static bool keep(struct nvefs_inode_entry *e, uint64_t dir)
{
	if (e->at_home ? e->parent != dir : e->kept)
		return false;
	if (e->kept)
		return false;
	e->kept = true;
	return true;
}

/* One name too many in this item, or 0. */
static uint64_t surplus(struct nvefs_check_ctx *c, const struct nvefs_mend_item *it, uint32_t *pos)
{
	struct nvefs_dirent d;

	while (!nvefs_dirent_next(it->val, it->len, pos, &d)) {
		struct nvefs_inode_entry *e = nvefs_check_inodes_find(&c->inodes, d.ino);

		if (!e || e->dtype != DT_DIR)
			continue;
		if (e->ino == NVEFS_ROOT_INO || (e->names > 1 && !keep(e, it->key.ino)))
			return d.ino;
	}
	return 0;
}

static int drop_surplus(struct nvefs_check_ctx *c, struct nvefs_mend_item *it)
{
	uint32_t pos = 0;
	uint64_t ino;
	int err = 0;

	while (!err && (ino = surplus(c, it, &pos))) {
		err = nvefs_mend_remove_name(c, it, ino);
		if (!err)
			err = nvefs_mend_get(c, &it->key, it);
		/* What was kept before must not be taken for a second name now. */
		if (!err)
			return 0;
	}
	return err == -ENOENT ? 0 : err;
}

int nvefs_mend_twice(struct nvefs_check_ctx *c)
{
	struct nvefs_key key = nvefs_key_make(1, 0, 0);
	struct nvefs_mend_item it;
	int err = 0;

	while (!err && !(err = nvefs_mend_next(c, &key, &it))) {
		key = nvefs_key_after(&it.key);
		if (it.key.kind == NVEFS_KIND_DIRENT)
			err = drop_surplus(c, &it);
	}
	return err == -ENOENT ? 0 : err;
}

/* ---- Directories above themselves ---- */

static int cut_loop(struct nvefs_check_ctx *c, uint64_t ino)
{
	const struct nvefs_inode_entry *e = nvefs_check_inodes_find(&c->inodes, ino);
	struct nvefs_key key;
	struct nvefs_mend_item it;
	int err = 0;

	if (!e)
		return 0;
	key = nvefs_key_make(e->parent, NVEFS_KIND_DIRENT, 0);
	while (!err && !(err = nvefs_mend_next(c, &key, &it))) {
		if (it.key.ino != e->parent || it.key.kind != NVEFS_KIND_DIRENT)
			break;
		key = nvefs_key_after(&it.key);
		err = nvefs_mend_remove_name(c, &it, ino);
	}
	return err == -ENOENT ? 0 : err;
}

int nvefs_mend_loops(struct nvefs_check_ctx *c)
{
	int err = 0;

	/* One cut opens a loop; whether there is another one, the next round tells. */
	if (c->todo.loops.n)
		err = cut_loop(c, c->todo.loops.tab[0]);
	return err;
}

/* ---- lost+found ---- */

struct lost_dir {
	uint64_t ino;
	struct nvefs_inode_rec rec;
};

static int get_inode(struct nvefs_check_ctx *c, uint64_t ino, struct nvefs_inode_rec *ret)
{
	struct nvefs_key key = nvefs_key_make(ino, NVEFS_KIND_INODE, 0);
	struct nvefs_mend_item it;
	int err = nvefs_mend_get(c, &key, &it);

	return err ? err : nvefs_inode_decode(it.val, it.len, ret);
}

/* The DIRENT item for this name with one more entry; its key. 0, -EEXIST (*ret_ino: what is there), -ENOSPC ... */
static int with_name(struct nvefs_check_ctx *c, uint64_t dir, const struct nvefs_dirent *d,
		     struct nvefs_mend_item *ret, uint64_t *ret_ino)
{
	struct nvefs_dirent there;
	uint8_t slot;
	int err;

	ret->key = nvefs_key_make(dir, NVEFS_KIND_DIRENT, nvefs_name_hash(c->sb.hash_seed, d->name, d->namelen));
	err = nvefs_mend_get(c, &ret->key, ret);
	if (err == -ENOENT)
		ret->len = 0;
	else if (err)
		return err;
	if (ret->len && !nvefs_dirent_find(ret->val, ret->len, d->name, d->namelen, &there)) {
		*ret_ino = there.ino;
		return -EEXIST;
	}
	return nvefs_dirent_add(ret->val, &ret->len, d->name, d->namelen, d->ino, d->dtype, &slot);
}

static void add_to_dir(struct nvefs_inode_rec *dir, bool subdir)
{
	dir->size++;
	dir->subdirs += subdir;
	dir->nlink += subdir;
}

/* Make it, in the root directory: entry, the root's inode and its own, in one transaction. */
static int make_lost_dir(struct nvefs_check_ctx *c, struct nvefs_mend_item *entry, struct lost_dir *l)
{
	struct nvefs_disk_inode root_disk, disk;
	struct nvefs_inode_rec root;
	struct nvefs_mend_op ops[3] = {
		{.key = entry->key, .val = entry->val, .len = entry->len},
		{.key = nvefs_key_make(NVEFS_ROOT_INO, NVEFS_KIND_INODE, 0), .val = &root_disk, .len = sizeof(root_disk)},
		{.key = nvefs_key_make(l->ino, NVEFS_KIND_INODE, 0), .val = &disk, .len = sizeof(disk)}};
	int err = get_inode(c, NVEFS_ROOT_INO, &root);

	if (err)
		return err == -ENOENT ? -EUCLEAN : err;
	l->rec = (struct nvefs_inode_rec){
		.mode = S_IFDIR | 0700, .nlink = 2, .parent = NVEFS_ROOT_INO, .xvalue_next = 1};
	clock_gettime(CLOCK_REALTIME, &l->rec.btime);
	l->rec.atime = l->rec.mtime = l->rec.ctime = l->rec.btime;
	add_to_dir(&root, true);
	nvefs_inode_encode(&root, &root_disk);
	nvefs_inode_encode(&l->rec, &disk);
	return nvefs_mend_change(c, ops, 3, 1);
}

static int take_number(struct nvefs_check_ctx *c, uint64_t *ret_ino)
{
	struct nvefs_txn t;
	int err = nvefs_txn_begin(c->st, c->q, 1, NVEFS_TXN_FREEING, &t);

	if (err)
		return err;
	*ret_ino = nvefs_store_root(c->st)->next_ino++;
	nvefs_txn_end(&t);
	return 0;
}

static int find_lost_dir(struct nvefs_check_ctx *c, struct lost_dir *l)
{
	int err = take_number(c, &l->ino);

	for (unsigned int i = 0; i < LOST_NAMES && !err; i++) {
		struct nvefs_mend_item entry;
		char name[24];
		struct nvefs_dirent d = {.ino = l->ino, .name = name, .dtype = DT_DIR};
		uint64_t there;

		d.namelen = (uint8_t)snprintf(name, sizeof(name), i ? "lost+found.%u" : "lost+found", i);
		err = with_name(c, NVEFS_ROOT_INO, &d, &entry, &there);
		if (!err)
			return make_lost_dir(c, &entry, l);
		if (err == -EEXIST && !get_inode(c, there, &l->rec) && S_ISDIR(l->rec.mode)) {
			l->ino = there;
			return 0;
		}
		if (err == -EEXIST || err == -ENOSPC)
			err = 0;
	}
	return err ? err : -ENOSPC;
}

/* "#17", or, when something else has that name, "#17.1" ... */
static int lost_entry(struct nvefs_check_ctx *c, uint64_t dir, uint64_t ino, uint8_t dtype,
		      struct nvefs_mend_item *ret)
{
	char name[40];
	struct nvefs_dirent d = {.ino = ino, .name = name, .dtype = dtype};
	uint64_t there;
	int err = -EEXIST;

	for (unsigned int i = 0; i < LOST_NAMES && (err == -EEXIST || err == -ENOSPC); i++) {
		int len = snprintf(name, sizeof(name), i ? "#%llu.%u" : "#%llu", (unsigned long long)ino, i);

		d.namelen = (uint8_t)len;
		err = with_name(c, dir, &d, ret, &there);
	}
	return err;
}

static int rescue(struct nvefs_check_ctx *c, struct lost_dir *l, uint64_t ino)
{
	struct nvefs_disk_inode dir_disk, disk;
	struct nvefs_inode_rec rec, dir = l->rec;
	struct nvefs_mend_item entry;
	struct nvefs_dirent d = {.ino = ino};
	int err = get_inode(c, ino, &rec);

	if (err == -ENOENT || err == -EUCLEAN || ino == l->ino)
		return 0; /* gone or changed by an earlier step: the next round tells */
	if (err)
		return err;
	d.dtype = IFTODT(rec.mode);
	err = lost_entry(c, l->ino, ino, d.dtype, &entry);
	if (err)
		return err == -EEXIST ? 0 : err;
	add_to_dir(&dir, d.dtype == DT_DIR);
	if (d.dtype == DT_DIR)
		rec.parent = l->ino;
	else
		rec.nlink = 1;
	nvefs_inode_encode(&dir, &dir_disk);
	nvefs_inode_encode(&rec, &disk);

	struct nvefs_mend_op ops[3] = {
		{.key = entry.key, .val = entry.val, .len = entry.len},
		{.key = nvefs_key_make(l->ino, NVEFS_KIND_INODE, 0), .val = &dir_disk, .len = sizeof(dir_disk)},
		{.key = nvefs_key_make(ino, NVEFS_KIND_INODE, 0), .val = &disk, .len = sizeof(disk)}};
	err = nvefs_mend_change(c, ops, 3, 0);
	if (!err)
		l->rec = dir;
	return err;
}

int nvefs_mend_lost(struct nvefs_check_ctx *c)
{
	struct lost_dir l;
	int err = find_lost_dir(c, &l);

	nvefs_numbers_sort(&c->todo.lost);
	for (size_t i = 0; i < c->todo.lost.n && !err; i++)
		err = rescue(c, &l, c->todo.lost.tab[i]);
	return err;
}
