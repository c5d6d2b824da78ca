/* SPDX-License-Identifier: MIT */
#include "format/xattr.h"

#include <errno.h>

static uint32_t entry_bytes(uint32_t namelen, uint32_t value_len, uint32_t value_no)
{
	uint32_t bytes = (uint32_t)sizeof(struct nvefs_disk_xattr) + namelen;

	return (bytes + (value_no ? 0 : value_len) + 7) & ~7u;
}

int nvefs_xattr_next(const void *val, uint32_t len, uint32_t *pos, struct nvefs_xattr *ret)
{
	const struct nvefs_disk_xattr *d;
	uint32_t bytes, value_len, value_no;

	if (*pos == len)
		return -ENOENT;
	if (*pos > len || len - *pos < sizeof(*d))
		return -EUCLEAN;
	d = (const void *)((const char *)val + *pos);
	value_len = le32_get(d->value_len);
	value_no = le32_get(d->value_no);
	if (value_len > (value_no ? NVEFS_XATTR_VALUE_MAX : NVEFS_VALUE_MAX))
		return -EUCLEAN;
	bytes = entry_bytes(d->namelen, value_len, value_no);
	if (bytes > len - *pos || !d->namelen || memchr(d->name, 0, d->namelen))
		return -EUCLEAN;
	*ret = (struct nvefs_xattr){
		.name = (const char *)d->name,
		.namelen = d->namelen,
		.value = value_no ? NULL : d->name + d->namelen,
		.value_len = value_len,
		.value_no = value_no,
	};
	*pos += bytes;
	return 0;
}

static int entry_find(const void *val, uint32_t len, const char *name, uint32_t namelen,
		      struct nvefs_xattr *ret, uint32_t *ret_pos)
{
	struct nvefs_xattr x;
	uint32_t pos = 0, start = 0;
	int err;

	while (!(err = nvefs_xattr_next(val, len, &pos, &x))) {
		if (x.namelen == namelen && !memcmp(x.name, name, namelen)) {
			*ret = x;
			*ret_pos = start;
			return 0;
		}
		start = pos;
	}
	return err;
}

int nvefs_xattr_find(const void *val, uint32_t len, const char *name, uint32_t namelen,
		     struct nvefs_xattr *ret)
{
	uint32_t pos;

	return entry_find(val, len, name, namelen, ret, &pos);
}

int nvefs_xattr_check(const void *val, uint32_t len)
{
	struct nvefs_xattr x, other;
	uint32_t pos = 0, start = 0, found;
	int err;

	while (!(err = nvefs_xattr_next(val, len, &pos, &x))) {
		if (entry_find(val, len, x.name, x.namelen, &other, &found) || found != start)
			return -EUCLEAN;
		start = pos;
	}
	return err == -ENOENT && len ? 0 : -EUCLEAN;
}

int nvefs_xattr_set(void *val, uint32_t *len, const struct nvefs_xattr *x)
{
	uint32_t bytes = entry_bytes(x->namelen, x->value_len, x->value_no), pos, old_bytes = 0;
	struct nvefs_disk_xattr *d;
	struct nvefs_xattr old;
	int err;

	if (!x->namelen || memchr(x->name, 0, x->namelen))
		return -ERANGE;
	if (x->value_len > NVEFS_XATTR_VALUE_MAX)
		return -E2BIG;
	err = entry_find(val, *len, x->name, x->namelen, &old, &pos);
	if (err && err != -ENOENT)
		return err;
	if (!err)
		old_bytes = entry_bytes(old.namelen, old.value_len, old.value_no);
	if (*len - old_bytes + bytes > NVEFS_VALUE_MAX)
		return -ENOSPC;
	if (old_bytes)
		(void)nvefs_xattr_remove(val, len, x->name, x->namelen);
	d = (void *)((char *)val + *len);
	memset(d, 0, bytes);
	d->value_len = le32_make(x->value_len);
	d->value_no = le32_make(x->value_no);
	d->namelen = x->namelen;
	memcpy(d->name, x->name, x->namelen);
	if (!x->value_no && x->value_len)
		memcpy(d->name + x->namelen, x->value, x->value_len);
	*len += bytes;
	return 0;
}

int nvefs_xattr_remove(void *val, uint32_t *len, const char *name, uint32_t namelen)
{
	struct nvefs_xattr x;
	uint32_t pos, bytes;
	int err = entry_find(val, *len, name, namelen, &x, &pos);

	if (err)
		return err;
	bytes = entry_bytes(x.namelen, x.value_len, x.value_no);
	memmove((char *)val + pos, (char *)val + pos + bytes, *len - pos - bytes);
	*len -= bytes;
	return 0;
}
