/* SPDX-License-Identifier: MIT */
/*
 * The value of a DIRENT item: the entries of one directory whose names share
 * one hash. Values read are untrusted: -EUCLEAN when damaged. Pure.
 */
#ifndef NVEFS_FORMAT_DIRENT_H
#define NVEFS_FORMAT_DIRENT_H

#include <nvefs/format.h>
#include <stdint.h>

struct nvefs_dirent {
	uint64_t ino;
	const char *name; /* points into the value; not terminated */
	uint8_t namelen;
	uint8_t dtype; /* DT_* */
	uint8_t slot;
};

/* The entry at *pos (start with 0), *pos moved on. 0, -ENOENT at the end, -EUCLEAN. */
int nvefs_dirent_next(const void *val, uint32_t len, uint32_t *pos, struct nvefs_dirent *ret);
/* 0, -ENOENT, -EUCLEAN. */
int nvefs_dirent_find(const void *val, uint32_t len, const char *name, uint32_t namelen,
		      struct nvefs_dirent *ret);
/* The whole value is sound: entries, slots and names each unique. 0 or -EUCLEAN. */
int nvefs_dirent_check(const void *val, uint32_t len);

/*
 * Changes, on a copy of the value in a buffer of NVEFS_VALUE_MAX bytes; *len in
 * and out (0 to start a new one; 0 afterwards: remove the item).
 */
/* Takes the lowest free slot. -EEXIST, -ENOSPC: no room, -EINVAL or -ENAMETOOLONG: no such name. */
int nvefs_dirent_add(void *val, uint32_t *len, const char *name, uint32_t namelen, uint64_t ino,
		     uint8_t dtype, uint8_t *ret_slot);
/* Point an existing entry elsewhere; its slot stays. -ENOENT. */
int nvefs_dirent_set(void *val, uint32_t len, const char *name, uint32_t namelen, uint64_t ino,
		     uint8_t dtype);
/* -ENOENT. */
int nvefs_dirent_remove(void *val, uint32_t *len, const char *name, uint32_t namelen);

#endif
