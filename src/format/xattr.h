/* SPDX-License-Identifier: MIT */
/*
 * The value of an XATTR item: the extended attributes of one inode whose names
 * share one hash. Values read are untrusted: -EUCLEAN when damaged. Pure.
 */
#ifndef NVEFS_FORMAT_XATTR_H
#define NVEFS_FORMAT_XATTR_H

#include <nvefs/format.h>
#include <stdint.h>

struct nvefs_xattr {
	const char *name; /* with its prefix; points into the value; not terminated */
	const void *value; /* inline bytes, or NULL when they lie in XVALUE pieces */
	uint32_t value_len;
	uint32_t value_no; /* of the XVALUE pieces; 0: inline */
	uint8_t namelen;
};

/* The attribute at *pos (start with 0), *pos moved on. 0, -ENOENT at the end, -EUCLEAN. */
int nvefs_xattr_next(const void *val, uint32_t len, uint32_t *pos, struct nvefs_xattr *ret);
/* 0, -ENOENT, -EUCLEAN. */
int nvefs_xattr_find(const void *val, uint32_t len, const char *name, uint32_t namelen,
		     struct nvefs_xattr *ret);
/* The whole value is sound and each name unique. 0 or -EUCLEAN. */
int nvefs_xattr_check(const void *val, uint32_t len);

/*
 * Changes, on a copy of the value in a buffer of NVEFS_VALUE_MAX bytes; *len in
 * and out (0 to start a new one; 0 afterwards: remove the item).
 */
/*
 * Add or replace x->name; x points outside of val. -ENOSPC: no room (nothing
 * changed; an inline value may go to pieces then), -ERANGE: no such name,
 * -E2BIG: no such value.
 */
int nvefs_xattr_set(void *val, uint32_t *len, const struct nvefs_xattr *x);
/* -ENOENT. */
int nvefs_xattr_remove(void *val, uint32_t *len, const char *name, uint32_t namelen);

#endif
