/* SPDX-License-Identifier: MIT */
/*
 * One inode's items, made to agree with each other. Three goes over them:
 * values that are damaged are replaced by what can be read of them; then all
 * are counted; then what belongs to nothing goes, and the inode's own item is written.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/dirent.h"
#include "format/xattr.h"
#include "mend.h"
#include "mend_value.h"

struct value {
	uint32_t no, len, got;
};

struct facts {
	uint64_t ino;
	bool known, there; /* the inode's item is sound; there is one */
	struct nvefs_inode_rec rec;
	uint32_t kinds; /* bits, of MAP, DIRENT and SYMLINK items */
	uint64_t blks, end_lblk, link_bytes, entries, subdirs;
	struct value *values;
	uint32_t nvalues, max_values, value_top;
};

static uint32_t kind_bit(uint8_t kind)
{
	return 1u << (kind - NVEFS_KIND_INODE);
}

/* Walk the inode's items from the first one on; each is a copy, and may be changed or removed in the tree. */
static int next_of(struct nvefs_check_ctx *c, uint64_t ino, struct nvefs_key *key, struct nvefs_mend_item *it)
{
	int err = nvefs_mend_next(c, key, it);

	if (!err && it->key.ino != ino)
		err = -ENOENT;
	if (!err)
		*key = nvefs_key_after(&it->key);
	return err;
}

/* ---- First: values ---- */

static int mend_value(struct nvefs_check_ctx *c, struct nvefs_mend_item *it)
{
	bool sound = !nvefs_item_check(&it->key, it->val, it->len, &c->sb);

	switch (it->key.kind) {
	case NVEFS_KIND_INODE:
		return it->key.offset ? nvefs_mend_del(c, &it->key) : 0; /* third */
	case NVEFS_KIND_DIRENT:
		return nvefs_mend_dirents(c, it);
	case NVEFS_KIND_XATTR:
		return nvefs_mend_xattrs(c, it);
	case NVEFS_KIND_MAP:
		return sound ? 0 : nvefs_mend_map_value(c, it);
	default:
		return sound ? 0 : nvefs_mend_del(c, &it->key);
	}
}

/* ---- Second: facts ---- */

static int add_value(struct facts *f, const struct nvefs_xattr *x)
{
	if (f->nvalues == f->max_values) {
		uint32_t max = f->max_values ? f->max_values * 2 : 8;
		struct value *tab = reallocarray(f->values, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		f->values = tab;
		f->max_values = max;
	}
	f->values[f->nvalues++] = (struct value){.no = x->value_no, .len = x->value_len};
	if (x->value_no > f->value_top)
		f->value_top = x->value_no;
	return 0;
}

static struct value *find_value(const struct facts *f, uint64_t no)
{
	for (uint32_t i = 0; i < f->nvalues; i++)
		if (f->values[i].no == no)
			return &f->values[i];
	return NULL;
}

static int take_xattr(struct facts *f, const struct nvefs_mend_item *it)
{
	struct nvefs_xattr x;
	uint32_t pos = 0;
	int err = 0;

	while (!err && !nvefs_xattr_next(it->val, it->len, &pos, &x))
		if (x.value_no)
			err = add_value(f, &x);
	return err;
}

static void take_xvalue(struct facts *f, const struct nvefs_mend_item *it)
{
	struct value *v = find_value(f, it->key.offset >> 8);

	if (v && (it->key.offset & 0xff) * NVEFS_PIECE_BYTES == v->got)
		v->got += it->len;
}

static void take_map(struct nvefs_check_ctx *c, struct facts *f, const struct nvefs_mend_item *it)
{
	struct nvefs_window w;

	if (nvefs_map_decode(it->val, it->len, &c->sb, &w))
		return;
	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++) {
		if (!w.pblk[i])
			continue;
		f->blks++;
		f->end_lblk = it->key.offset * NVEFS_WINDOW_BLKS + i + 1;
	}
}

static void take_dirent(struct facts *f, const struct nvefs_mend_item *it)
{
	struct nvefs_dirent d;
	uint32_t pos = 0;

	while (!nvefs_dirent_next(it->val, it->len, &pos, &d)) {
		f->entries++;
		f->subdirs += d.dtype == DT_DIR;
	}
}

static int take(struct nvefs_check_ctx *c, struct facts *f, const struct nvefs_mend_item *it)
{
	switch (it->key.kind) {
	case NVEFS_KIND_INODE:
		f->there = true;
		f->known = !nvefs_inode_decode(it->val, it->len, &f->rec);
		if (!f->known)
			nvefs_mend_inode_value(it->val, it->len, &f->rec);
		return 0;
	case NVEFS_KIND_SYMLINK:
		if (it->key.offset * NVEFS_PIECE_BYTES == f->link_bytes)
			f->link_bytes += it->len;
		break;
	case NVEFS_KIND_XATTR:
		return take_xattr(f, it);
	case NVEFS_KIND_XVALUE:
		take_xvalue(f, it);
		return 0;
	case NVEFS_KIND_DIRENT:
		take_dirent(f, it);
		break;
	case NVEFS_KIND_MAP:
		take_map(c, f, it);
		break;
	}
	f->kinds |= kind_bit(it->key.kind);
	return 0;
}

static int gather(struct nvefs_check_ctx *c, struct facts *f)
{
	struct nvefs_key key = nvefs_key_make(f->ino, 0, 0);
	struct nvefs_mend_item it;
	int err;

	while (!(err = next_of(c, f->ino, &key, &it))) {
		err = take(c, f, &it);
		if (err)
			return err;
	}
	return err == -ENOENT ? 0 : err;
}

/* ---- Third: the inode ---- */

static uint32_t kind_of_type(uint32_t mode)
{
	if (S_ISREG(mode))
		return kind_bit(NVEFS_KIND_MAP);
	if (S_ISDIR(mode))
		return kind_bit(NVEFS_KIND_DIRENT);
	return S_ISLNK(mode) ? kind_bit(NVEFS_KIND_SYMLINK) : 0;
}

static uint32_t type_of_kind(uint32_t kinds)
{
	if (kinds & kind_bit(NVEFS_KIND_DIRENT))
		return S_IFDIR;
	return kinds & kind_bit(NVEFS_KIND_MAP) ? S_IFREG : S_IFLNK;
}

/*
 * What the items are says more than one word in the inode: content of a kind
 * is not there by accident. 0: there is nothing to make an inode of.
 */
static uint32_t type_of(const struct facts *f)
{
	uint32_t type = f->rec.mode & S_IFMT;

	if (f->ino == NVEFS_ROOT_INO)
		return S_IFDIR;
	if (f->there && type && (!f->kinds || f->kinds & kind_of_type(type)))
		return type;
	if (f->kinds)
		return type_of_kind(f->kinds);
	return f->there ? S_IFREG : 0;
}

static uint32_t links_of(const struct nvefs_check_ctx *c, const struct facts *f)
{
	const struct nvefs_inode_entry *e = nvefs_check_inodes_find(&c->inodes, f->ino);

	if (nvefs_check_orphan_reason(c, f->ino) & NVEFS_ORPHAN_UNLINKED && !(e && e->names))
		return 0;
	if (S_ISDIR(f->rec.mode))
		return f->subdirs < NVEFS_LINK_MAX - 2 ? 2 + (uint32_t)f->subdirs : NVEFS_LINK_MAX;
	if (e && e->names && !c->incomplete)
		return e->names;
	return f->known || f->rec.nlink ? f->rec.nlink : 1;
}

static void settle_dir(const struct nvefs_check_ctx *c, struct facts *f)
{
	const struct nvefs_inode_entry *e = nvefs_check_inodes_find(&c->inodes, f->ino);

	f->rec.size = f->entries;
	f->rec.subdirs = f->subdirs;
	f->rec.blks = 0;
	/* The names' pass has put there where it found the directory. */
	if (e && e->parent)
		f->rec.parent = e->parent;
	if (!f->rec.parent || f->ino == NVEFS_ROOT_INO)
		f->rec.parent = NVEFS_ROOT_INO;
}

/* Make the record right. False: the inode is to go. */
static bool settle(struct nvefs_check_ctx *c, struct facts *f)
{
	struct nvefs_inode_rec *r = &f->rec;
	uint32_t type = type_of(f);

	if (!type || (type == S_IFLNK && !f->link_bytes))
		return false;
	if (!f->there)
		r->mode = S_ISDIR(type) ? 0700 : 0600;
	r->mode = (r->mode & 07777) | type;
	if (type != S_IFDIR)
		r->parent = r->subdirs = 0;
	if (type == S_IFDIR) {
		settle_dir(c, f);
	} else if (type == S_IFREG) {
		r->blks = f->blks;
		if (!f->there || r->size > NVEFS_MAX_SIZE_BYTES)
			r->size = f->end_lblk * NVEFS_BLOCK_SIZE;
	} else {
		r->size = type == S_IFLNK ? f->link_bytes : 0;
		r->blks = 0;
	}
	r->nlink = links_of(c, f);
	if (r->xvalue_next <= f->value_top)
		r->xvalue_next = f->value_top + 1;
	if (!r->xvalue_next)
		r->xvalue_next = 1;
	return true;
}

/* Attributes whose value is not whole. */
static int drop_short(struct nvefs_check_ctx *c, const struct facts *f, struct nvefs_mend_item *it)
{
	uint8_t val[NVEFS_VALUE_MAX] __attribute__((aligned(8)));
	uint32_t len = it->len, pos = 0;
	struct nvefs_xattr x;

	memcpy(val, it->val, len);
	while (!nvefs_xattr_next(it->val, it->len, &pos, &x)) {
		const struct value *v = find_value(f, x.value_no);

		if (x.value_no && (!v || v->got != x.value_len || v->len != x.value_len))
			nvefs_xattr_remove(val, &len, x.name, x.namelen);
	}
	if (len == it->len)
		return 0;
	return len ? nvefs_mend_put(c, &it->key, val, len) : nvefs_mend_del(c, &it->key);
}

static bool has_place(const struct facts *f, const struct nvefs_mend_item *it)
{
	const struct value *v;

	switch (it->key.kind) {
	case NVEFS_KIND_INODE:
	case NVEFS_KIND_XATTR:
		return true;
	case NVEFS_KIND_XVALUE:
		v = find_value(f, it->key.offset >> 8);
		return v && v->got == v->len && (it->key.offset & 0xff) * NVEFS_PIECE_BYTES < v->len;
	}
	return kind_bit(it->key.kind) & kind_of_type(f->rec.mode);
}

/* whole: the inode goes, with all that it has. */
static int sweep(struct nvefs_check_ctx *c, const struct facts *f, bool whole)
{
	struct nvefs_key key = nvefs_key_make(f->ino, 0, 0);
	struct nvefs_mend_item it;
	int err;

	while (!(err = next_of(c, f->ino, &key, &it))) {
		if (whole || !has_place(f, &it))
			err = nvefs_mend_del(c, &it.key);
		else if (it.key.kind == NVEFS_KIND_XATTR)
			err = drop_short(c, f, &it);
		if (err)
			return err;
	}
	return err == -ENOENT ? 0 : err;
}

/* The root counts the items that are sound. */
static int write_inode(struct nvefs_check_ctx *c, const struct facts *f)
{
	struct nvefs_disk_inode d;
	struct nvefs_mend_op op = {
		.key = nvefs_key_make(f->ino, NVEFS_KIND_INODE, 0), .val = &d, .len = sizeof(d)};

	nvefs_inode_encode(&f->rec, &d);
	return nvefs_mend_change(c, &op, 1, f->known || c->incomplete ? 0 : 1);
}

static int mend_inode(struct nvefs_check_ctx *c, uint64_t ino)
{
	struct nvefs_key key = nvefs_key_make(ino, 0, 0);
	struct facts f = {.ino = ino};
	struct nvefs_mend_item it;
	int err;

	while (!(err = next_of(c, ino, &key, &it)) && !(err = mend_value(c, &it)))
		;
	if (err == -ENOENT)
		err = gather(c, &f);
	if (!err && settle(c, &f)) {
		err = sweep(c, &f, false);
		if (!err)
			err = write_inode(c, &f);
	} else if (!err) {
		err = sweep(c, &f, true);
		if (!err)
			err = nvefs_mend_change(c, NULL, 0, -1);
	}
	free(f.values);
	return err;
}

int nvefs_mend_inodes(struct nvefs_check_ctx *c)
{
	int err = 0;

	nvefs_numbers_sort(&c->todo.sick);
	for (size_t i = 0; i < c->todo.sick.n && !err; i++)
		err = mend_inode(c, c->todo.sick.tab[i]);
	return err;
}
