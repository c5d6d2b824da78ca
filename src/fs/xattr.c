/* SPDX-License-Identifier: MIT */
/*
 * Extended attributes. A value up to NVEFS_XATTR_INLINE_MAX lies beside its
 * name; a longer one in pieces of its own, under a number never used before for
 * this inode, so that old and new value never mix.
 */
#include <stdlib.h>
#include <sys/xattr.h>

#include "fs/acl.h"
#include "fs/names.h"

static struct nvefs_key xattr_key(const struct nvefs_fs *fs, uint64_t ino, const char *name)
{
	return nvefs_key_make(ino, NVEFS_KIND_XATTR, nvefs_dir_hash(fs, name, strlen(name)));
}

static struct nvefs_key piece_key(uint64_t ino, uint32_t value_no, uint32_t piece)
{
	return nvefs_key_make(ino, NVEFS_KIND_XVALUE, (uint64_t)value_no << 8 | piece);
}

static uint32_t piece_count(size_t len)
{
	return (uint32_t)((len + NVEFS_PIECE_BYTES - 1) / NVEFS_PIECE_BYTES);
}

static uint32_t piece_len(size_t len, uint32_t piece)
{
	size_t left = len - (size_t)piece * NVEFS_PIECE_BYTES;

	return left < NVEFS_PIECE_BYTES ? (uint32_t)left : NVEFS_PIECE_BYTES;
}

/* 0, or what xattr(7) has for a name that this file system does not keep. */
static int xattr_name_check(const char *name)
{
	static const char *const prefixes[] = {"user.", "trusted.", "security."};
	size_t i, n;

	if (!*name || strlen(name) > NVEFS_XATTR_NAME_MAX)
		return -ERANGE;
	if (!strcmp(name, NVEFS_XATTR_ACCESS) || !strcmp(name, NVEFS_XATTR_DEFAULT))
		return 0;
	for (i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		n = strlen(prefixes[i]);
		if (!strncmp(name, prefixes[i], n))
			return name[n] ? 0 : -EINVAL;
	}
	return -EOPNOTSUPP;
}

/* [meta] Find it. The result points into the tree. */
static int xattr_find(struct nvefs_fs *fs, uint64_t ino, const char *name, struct nvefs_miss *miss,
		      struct nvefs_xattr *ret)
{
	struct nvefs_key key = xattr_key(fs, ino, name);
	const void *val;
	uint32_t len;
	int err;

	err = nvefs_tree_get(fs->st, &key, miss, &val, &len);
	if (!err)
		err = nvefs_xattr_find(val, len, name, (uint32_t)strlen(name), ret);
	return err == -ENOENT ? -ENODATA : err;
}

static int xattr_read_pieces(struct nvefs_fs *fs, uint64_t ino, const struct nvefs_xattr *x,
			     struct nvefs_miss *miss, uint8_t *buf)
{
	struct nvefs_key key;
	const void *val;
	uint32_t i, len;
	int err;

	for (i = 0; i < piece_count(x->value_len); i++) {
		key = piece_key(ino, x->value_no, i);
		err = nvefs_tree_get(fs->st, &key, miss, &val, &len);
		if (err)
			return err == -ENOENT ? -EUCLEAN : err;
		if (len != piece_len(x->value_len, i))
			return -EUCLEAN;
		memcpy(buf + (size_t)i * NVEFS_PIECE_BYTES, val, len);
	}
	return 0;
}

int nvefs_xattr_read(struct nvefs_fs *fs, uint64_t ino, const char *name, struct nvefs_miss *miss,
		     void *buf, size_t size, size_t *ret_len)
{
	struct nvefs_xattr x;
	int err;

	err = xattr_find(fs, ino, name, miss, &x);
	if (err)
		return err;
	*ret_len = x.value_len;
	if (!size)
		return 0;
	if (size < x.value_len)
		return -ERANGE;
	if (x.value_no)
		return xattr_read_pieces(fs, ino, &x, miss, buf);
	if (x.value_len)
		memcpy(buf, x.value, x.value_len);
	return 0;
}

/* ---- Changing ---- */

/* The item's value with the change made, in buf. */
static int xattr_edit(struct nvefs_nop *op, uint64_t ino, const struct nvefs_xattr_change *c, void *buf,
		      uint32_t *ret_len)
{
	struct nvefs_key key = xattr_key(op->fs, ino, c->name);
	struct nvefs_xattr x = {.name = c->name, .namelen = (uint8_t)strlen(c->name)};
	const void *val;
	uint32_t len;
	int err;

	err = nvefs_tree_get(op->fs->st, &key, &op->t.miss, &val, &len);
	if (err && err != -ENOENT)
		return err;
	if (err)
		len = 0;
	else if (len > NVEFS_VALUE_MAX)
		return -EUCLEAN;
	else
		memcpy(buf, val, len);
	if (c->val) {
		x.value_len = (uint32_t)c->len;
		x.value_no = c->new_no;
		x.value = c->new_no ? NULL : c->val;
		err = nvefs_xattr_set(buf, &len, &x);
	} else {
		err = nvefs_xattr_remove(buf, &len, c->name, x.namelen);
	}
	if (!err)
		*ret_len = len;
	return err;
}

static int pieces_prepare(struct nvefs_nop *op, uint64_t ino, uint32_t value_no, size_t len)
{
	struct nvefs_key key;
	uint32_t i;
	int err = 0;

	for (i = 0; !err && i < piece_count(len); i++) {
		key = piece_key(ino, value_no, i);
		err = nvefs_tree_prepare(&op->t, &key);
	}
	return err;
}

/* Is the value to lie inline or in pieces? */
static int xattr_place(struct nvefs_nop *op, struct nvefs_inode *in, struct nvefs_xattr_change *c)
{
	uint8_t buf[NVEFS_VALUE_MAX];
	uint32_t len;
	int err = -ENOSPC;

	c->new_no = 0;
	if (!c->val)
		return 0;
	if (c->len <= NVEFS_XATTR_INLINE_MAX)
		err = xattr_edit(op, in->ino, c, buf, &len);
	if (err != -ENOSPC)
		return err;
	nvefs_mutex_lock(&in->lock);
	c->new_no = in->rec.xvalue_next ? in->rec.xvalue_next : 1;
	nvefs_mutex_unlock(&in->lock);
	if (c->new_no == UINT32_MAX)
		return -ENOSPC;
	return xattr_edit(op, in->ino, c, buf, &len);
}

int nvefs_xattr_prepare(struct nvefs_nop *op, struct nvefs_inode *in, struct nvefs_xattr_change *c)
{
	struct nvefs_key key = xattr_key(op->fs, in->ino, c->name);
	struct nvefs_xattr old = {0};
	uint32_t pieces;
	int err;

	err = xattr_find(op->fs, in->ino, c->name, &op->t.miss, &old);
	if (err && err != -ENODATA)
		return err;
	if (!err && (c->flags & XATTR_CREATE))
		return -EEXIST;
	if (err && (c->flags & XATTR_REPLACE))
		return -ENODATA;
	c->absent = err && !c->val;
	if (c->absent)
		return 0;
	c->old_no = old.value_no;
	c->old_len = old.value_len;
	err = xattr_place(op, in, c);
	if (err)
		return err;
	pieces = (c->old_no ? piece_count(c->old_len) : 0) + (c->new_no ? piece_count(c->len) : 0);
	if (pieces && op->nkeys < pieces + 4) {
		op->want_keys = pieces + 4;
		return -EAGAIN;
	}
	err = nvefs_tree_prepare(&op->t, &key);
	if (!err && c->old_no)
		err = pieces_prepare(op, in->ino, c->old_no, c->old_len);
	if (!err && c->new_no)
		err = pieces_prepare(op, in->ino, c->new_no, c->len);
	return err;
}

int nvefs_xattr_apply(struct nvefs_nop *op, struct nvefs_inode *in, const struct nvefs_xattr_change *c)
{
	struct nvefs_key key = xattr_key(op->fs, in->ino, c->name), pkey;
	uint8_t buf[NVEFS_VALUE_MAX];
	uint32_t i, len;
	int err;

	if (c->absent)
		return 0;
	err = xattr_edit(op, in->ino, c, buf, &len);
	if (!err)
		err = len ? nvefs_tree_put(&op->t, &key, buf, len) : nvefs_tree_del(&op->t, &key);
	for (i = 0; !err && c->old_no && i < piece_count(c->old_len); i++) {
		pkey = piece_key(in->ino, c->old_no, i);
		err = nvefs_tree_del(&op->t, &pkey);
	}
	for (i = 0; !err && c->new_no && i < piece_count(c->len); i++) {
		pkey = piece_key(in->ino, c->new_no, i);
		err = nvefs_tree_put(&op->t, &pkey, (const uint8_t *)c->val + (size_t)i * NVEFS_PIECE_BYTES,
				     piece_len(c->len, i));
	}
	if (!err && c->new_no) {
		nvefs_mutex_lock(&in->lock);
		in->rec.xvalue_next = c->new_no + 1;
		nvefs_mutex_unlock(&in->lock);
	}
	return err;
}

/* ---- The calls ---- */

struct xattr_arg {
	uint64_t ino;
	struct nvefs_xattr_change c;
	bool kill_sgid; /* by an access ACL */
};

/* An ACL sets permission bits, and one that says no more than they do is not kept. */
static int xattr_acl_rules(struct nvefs_xattr_change *c, uint32_t *mode)
{
	int err;

	if (!c->val || strncmp(c->name, "system.", 7))
		return 0;
	err = nvefs_acl_check(c->val, c->len);
	if (err)
		return err;
	if (!strcmp(c->name, NVEFS_XATTR_DEFAULT))
		return S_ISDIR(*mode) ? 0 : -EACCES;
	if (S_ISLNK(*mode))
		return -EOPNOTSUPP;
	if (nvefs_acl_to_mode(c->val, c->len, mode) && !c->flags)
		c->val = NULL;
	return 0;
}

static int xattr_txn(struct nvefs_nop *op, void *arg)
{
	struct xattr_arg *a = arg;
	struct nvefs_xattr_change c = a->c;
	struct nvefs_inode *in;
	uint32_t mode;
	int err;

	err = nvefs_nop_get(op, a->ino, &in);
	if (err)
		return err;
	mode = nvefs_inode_mode(in);
	err = xattr_acl_rules(&c, &mode);
	if (a->kill_sgid && !strcmp(c.name, NVEFS_XATTR_ACCESS))
		mode &= ~(uint32_t)S_ISGID;
	if (!err)
		err = nvefs_inode_prepare(&op->t, in);
	if (!err)
		err = nvefs_xattr_prepare(op, in, &c);
	if (!err)
		err = nvefs_xattr_apply(op, in, &c);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	in->rec.mode = mode;
	in->rec.ctime = op->now;
	err = nvefs_inode_write_locked(&op->t, in);
	nvefs_mutex_unlock(&in->lock);
	return err;
}

int nvefs_setxattr(struct nvefs_worker *w, uint64_t ino, const char *name, const void *val, size_t len,
		   int flags)
{
	struct xattr_arg a = {.ino = ino, .kill_sgid = flags & NVEFS_XATTR_KILL_SGID,
			      .c = {.name = name, .val = len ? val : "", .len = len}};
	int err = xattr_name_check(name);

	flags &= ~NVEFS_XATTR_KILL_SGID;
	a.c.flags = flags;

	if (err)
		return err;
	if (len > NVEFS_XATTR_VALUE_MAX)
		return -E2BIG;
	if ((flags & ~(XATTR_CREATE | XATTR_REPLACE)) || flags == (XATTR_CREATE | XATTR_REPLACE))
		return -EINVAL;
	return nvefs_nop_run(nvefs_worker_fs(w), nvefs_worker_queue(w), 3, 0, xattr_txn, &a);
}

int nvefs_removexattr(struct nvefs_worker *w, uint64_t ino, const char *name)
{
	struct xattr_arg a = {.ino = ino, .c = {.name = name, .flags = XATTR_REPLACE}};
	int err = xattr_name_check(name);

	if (err)
		return err;
	return nvefs_nop_run(nvefs_worker_fs(w), nvefs_worker_queue(w), 3, NVEFS_TXN_FREEING, xattr_txn, &a);
}

int nvefs_getxattr(struct nvefs_worker *w, uint64_t ino, const char *name, void *buf, size_t size,
		   size_t *ret_len)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	struct nvefs_miss miss;
	size_t len;
	int err = xattr_name_check(name);

	if (err)
		return err;
	do {
		nvefs_store_rdlock(fs->st);
		err = nvefs_xattr_read(fs, ino, name, &miss, buf, size, &len);
		nvefs_store_rdunlock(fs->st);
	} while (nvefs_store_retry(fs->st, nvefs_worker_queue(w), &miss, &err));
	if (!err)
		*ret_len = len;
	return err;
}

/* Names of one item, each with its NUL, behind the *ret_len bytes that are there. */
static int list_item(const void *val, uint32_t vlen, char *buf, size_t size, size_t *ret_len)
{
	struct nvefs_xattr x;
	uint32_t pos = 0;
	int err;

	while (!(err = nvefs_xattr_next(val, vlen, &pos, &x))) {
		if (size) {
			if (size - *ret_len < (size_t)x.namelen + 1)
				return -ERANGE;
			memcpy(buf + *ret_len, x.name, x.namelen);
			buf[*ret_len + x.namelen] = 0;
		}
		*ret_len += (size_t)x.namelen + 1;
	}
	return err == -ENOENT ? 0 : err;
}

static int list_locked(struct nvefs_fs *fs, uint64_t ino, struct nvefs_miss *miss, char *buf, size_t size,
		       size_t *ret_len)
{
	struct nvefs_key key = nvefs_key_make(ino, NVEFS_KIND_XATTR, 0), found;
	const void *val;
	uint32_t vlen;
	int err;

	*ret_len = 0;
	for (;;) {
		err = nvefs_tree_next(fs->st, &key, miss, &found, &val, &vlen);
		if (err == -ENOENT || (!err && (found.ino != ino || found.kind != NVEFS_KIND_XATTR)))
			return 0;
		if (!err)
			err = list_item(val, vlen, buf, size, ret_len);
		if (err)
			return err;
		key = nvefs_key_after(&found);
	}
}

int nvefs_listxattr(struct nvefs_worker *w, uint64_t ino, char *buf, size_t size, size_t *ret_len)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	struct nvefs_miss miss;
	size_t len;
	int err;

	do {
		nvefs_store_rdlock(fs->st);
		err = list_locked(fs, ino, &miss, buf, size, &len);
		nvefs_store_rdunlock(fs->st);
	} while (nvefs_store_retry(fs->st, nvefs_worker_queue(w), &miss, &err));
	if (!err)
		*ret_len = len;
	return err;
}
