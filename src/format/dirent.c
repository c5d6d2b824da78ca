/* SPDX-License-Identifier: MIT */
#include "format/dirent.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>

#include "base/bitmap.h"
#include "format/key.h"

static uint32_t entry_bytes(uint32_t namelen)
{
	return ((uint32_t)sizeof(struct nvefs_disk_dirent) + namelen + 7) & ~7u;
}

static bool dtype_ok(uint8_t dtype)
{
	switch (dtype) {
	case DT_REG:
	case DT_DIR:
	case DT_LNK:
	case DT_CHR:
	case DT_BLK:
	case DT_FIFO:
	case DT_SOCK:
		return true;
	default:
		return false;
	}
}

int nvefs_dirent_next(const void *val, uint32_t len, uint32_t *pos, struct nvefs_dirent *ret)
{
	const struct nvefs_disk_dirent *d;
	uint32_t bytes;

	if (*pos == len)
		return -ENOENT;
	if (*pos > len || len - *pos < sizeof(*d))
		return -EUCLEAN;
	d = (const void *)((const char *)val + *pos);
	bytes = entry_bytes(d->namelen);
	if (bytes > len - *pos)
		return -EUCLEAN;
	if (!le64_get(d->ino) || !dtype_ok(d->dtype) ||
	    nvefs_name_check((const char *)d->name, d->namelen))
		return -EUCLEAN;
	*ret = (struct nvefs_dirent){
		.ino = le64_get(d->ino),
		.name = (const char *)d->name,
		.namelen = d->namelen,
		.dtype = d->dtype,
		.slot = d->slot,
	};
	*pos += bytes;
	return 0;
}

/* As nvefs_dirent_find, with the entry's place. */
static int entry_find(const void *val, uint32_t len, const char *name, uint32_t namelen,
		      struct nvefs_dirent *ret, uint32_t *ret_pos)
{
	struct nvefs_dirent e;
	uint32_t pos = 0, start = 0;
	int err;

	while (!(err = nvefs_dirent_next(val, len, &pos, &e))) {
		if (e.namelen == namelen && !memcmp(e.name, name, namelen)) {
			*ret = e;
			*ret_pos = start;
			return 0;
		}
		start = pos;
	}
	return err;
}

int nvefs_dirent_find(const void *val, uint32_t len, const char *name, uint32_t namelen,
		      struct nvefs_dirent *ret)
{
	uint32_t pos;

	return entry_find(val, len, name, namelen, ret, &pos);
}

/* Which slots are taken: a bitmap of 256. 0 or -EUCLEAN, also when one is taken twice. */
static int slots_collect(const void *val, uint32_t len, uint8_t *ret_slots)
{
	struct nvefs_dirent e;
	uint32_t pos = 0;
	int err;

	while (!(err = nvefs_dirent_next(val, len, &pos, &e))) {
		if (nvefs_bitmap_test(ret_slots, e.slot))
			return -EUCLEAN;
		nvefs_bitmap_set(ret_slots, e.slot);
	}
	return err == -ENOENT ? 0 : err;
}

int nvefs_dirent_check(const void *val, uint32_t len)
{
	struct nvefs_dirent e, other;
	uint8_t slots[32] = {0};
	uint32_t pos = 0, start = 0, found;
	int err = slots_collect(val, len, slots);

	if (err || !len)
		return -EUCLEAN;
	while (!nvefs_dirent_next(val, len, &pos, &e)) {
		if (entry_find(val, len, e.name, e.namelen, &other, &found) || found != start)
			return -EUCLEAN;
		start = pos;
	}
	return 0;
}

int nvefs_dirent_add(void *val, uint32_t *len, const char *name, uint32_t namelen, uint64_t ino,
		     uint8_t dtype, uint8_t *ret_slot)
{
	struct nvefs_disk_dirent *d = (void *)((char *)val + *len);
	struct nvefs_dirent e;
	uint8_t slots[32] = {0};
	uint32_t slot;
	int err = nvefs_name_check(name, namelen);

	if (err)
		return err;
	err = nvefs_dirent_find(val, *len, name, namelen, &e);
	if (err != -ENOENT)
		return err ? err : -EEXIST;
	err = slots_collect(val, *len, slots);
	if (err)
		return err;
	slot = nvefs_bitmap_next_zero(slots, 0, 256);
	if (*len + entry_bytes(namelen) > NVEFS_VALUE_MAX || slot == 256)
		return -ENOSPC;
	memset(d, 0, entry_bytes(namelen));
	d->ino = le64_make(ino);
	d->dtype = dtype;
	d->slot = (uint8_t)slot;
	d->namelen = (uint8_t)namelen;
	memcpy(d->name, name, namelen);
	*len += entry_bytes(namelen);
	*ret_slot = (uint8_t)slot;
	return 0;
}

int nvefs_dirent_set(void *val, uint32_t len, const char *name, uint32_t namelen, uint64_t ino,
		     uint8_t dtype)
{
	struct nvefs_disk_dirent *d;
	struct nvefs_dirent e;
	uint32_t pos;
	int err = entry_find(val, len, name, namelen, &e, &pos);

	if (err)
		return err;
	d = (void *)((char *)val + pos);
	d->ino = le64_make(ino);
	d->dtype = dtype;
	return 0;
}

int nvefs_dirent_remove(void *val, uint32_t *len, const char *name, uint32_t namelen)
{
	struct nvefs_dirent e;
	uint32_t pos, bytes = entry_bytes(namelen);
	int err = entry_find(val, *len, name, namelen, &e, &pos);

	if (err)
		return err;
	memmove((char *)val + pos, (char *)val + pos + bytes, *len - pos - bytes);
	*len -= bytes;
	return 0;
}
