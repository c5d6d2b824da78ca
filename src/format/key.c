/* SPDX-License-Identifier: MIT */
#include "format/key.h"

#include <errno.h>

#include "base/hash.h"

static uint64_t name_hash_mask = (1ull << NVEFS_NAME_HASH_BITS) - 1;

int nvefs_key_cmp(const struct nvefs_key *a, const struct nvefs_key *b)
{
	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return 0;
}

struct nvefs_key nvefs_key_after(const struct nvefs_key *key)
{
	struct nvefs_key k = *key;

	if (k.offset < NVEFS_OFFSET_MAX) {
		k.offset++;
	} else if (k.kind < UINT8_MAX) {
		k.kind++;
		k.offset = 0;
	} else if (k.ino < UINT64_MAX) {
		k.ino++;
		k.kind = 0;
		k.offset = 0;
	}
	return k;
}

uint64_t nvefs_name_hash(uint64_t seed, const char *name, uint32_t len)
{
	return nvefs_hash(name, len, seed) & name_hash_mask;
}

void nvefs_name_hash_limit(unsigned int bits)
{
	assert(bits >= 1 && bits <= NVEFS_NAME_HASH_BITS);
	name_hash_mask = (1ull << bits) - 1;
}

int nvefs_name_check(const char *name, uint32_t len)
{
	if (len > NVEFS_NAME_MAX)
		return -ENAMETOOLONG;
	if (!len || memchr(name, '/', len) || memchr(name, 0, len))
		return -EINVAL;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return -EINVAL;
	return 0;
}

const char *nvefs_kind_text(uint8_t kind)
{
	switch (kind) {
	case NVEFS_KIND_GROUP:
		return "group";
	case NVEFS_KIND_ORPHAN:
		return "orphan";
	case NVEFS_KIND_SHARE:
		return "share";
	case NVEFS_KIND_INODE:
		return "inode";
	case NVEFS_KIND_SYMLINK:
		return "symlink";
	case NVEFS_KIND_XATTR:
		return "xattr";
	case NVEFS_KIND_XVALUE:
		return "xvalue";
	case NVEFS_KIND_DIRENT:
		return "dirent";
	case NVEFS_KIND_MAP:
		return "map";
	}
	return "unknown";
}
