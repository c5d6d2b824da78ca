/* SPDX-License-Identifier: MIT */
#include "format/item.h"

#include <errno.h>

#include "format/dirent.h"
#include "format/inode.h"
#include "format/layout.h"
#include "format/map.h"
#include "format/xattr.h"

struct nvefs_disk_group nvefs_group_encode(const struct nvefs_group_rec *rec)
{
	return (struct nvefs_disk_group){
		.free_blks = le32_make(rec->free_blks),
		.bitmap_txn = le64_make(rec->bitmap_txn),
	};
}

int nvefs_group_decode(const void *val, uint32_t len, struct nvefs_group_rec *ret_rec)
{
	struct nvefs_disk_group d;

	if (len != sizeof(d))
		return -EUCLEAN;
	memcpy(&d, val, sizeof(d));
	if (le32_get(d.free_blks) >= NVEFS_GROUP_BLKS)
		return -EUCLEAN;
	ret_rec->free_blks = le32_get(d.free_blks);
	ret_rec->bitmap_txn = le64_get(d.bitmap_txn);
	return 0;
}

struct nvefs_disk_orphan nvefs_orphan_encode(uint32_t reason)
{
	return (struct nvefs_disk_orphan){.reason = le32_make(reason)};
}

int nvefs_orphan_decode(const void *val, uint32_t len, uint32_t *ret_reason)
{
	struct nvefs_disk_orphan d;
	uint32_t reason;

	if (len != sizeof(d))
		return -EUCLEAN;
	memcpy(&d, val, sizeof(d));
	reason = le32_get(d.reason);
	if (!reason || reason & ~(NVEFS_ORPHAN_UNLINKED | NVEFS_ORPHAN_TRUNCATE))
		return -EUCLEAN;
	*ret_reason = reason;
	return 0;
}

struct nvefs_disk_share nvefs_share_encode(uint32_t count)
{
	return (struct nvefs_disk_share){.count = le32_make(count)};
}

int nvefs_share_decode(const void *val, uint32_t len, uint32_t *ret_count)
{
	struct nvefs_disk_share d;
	uint32_t count;

	if (len != sizeof(d))
		return -EUCLEAN;
	memcpy(&d, val, sizeof(d));
	count = le32_get(d.count);
	if (count < 2 || count > NVEFS_SHARE_MAX)
		return -EUCLEAN;
	*ret_count = count;
	return 0;
}

static int own_item_check(const struct nvefs_key *key, const void *val, uint32_t len,
			  const struct nvefs_super *sb)
{
	struct nvefs_group_rec group;
	uint32_t u32;

	switch (key->kind) {
	case NVEFS_KIND_GROUP:
		return key->offset < sb->ngroups ? nvefs_group_decode(val, len, &group) : -EUCLEAN;
	case NVEFS_KIND_ORPHAN:
		return key->offset ? nvefs_orphan_decode(val, len, &u32) : -EUCLEAN;
	case NVEFS_KIND_SHARE:
		if (nvefs_layout_is_fixed(sb, key->offset))
			return -EUCLEAN;
		return nvefs_share_decode(val, len, &u32);
	default:
		return -EUCLEAN;
	}
}

static int inode_item_check(const struct nvefs_key *key, const void *val, uint32_t len,
			    const struct nvefs_super *sb)
{
	struct nvefs_inode_rec inode;
	struct nvefs_window window;

	switch (key->kind) {
	case NVEFS_KIND_INODE:
		return key->offset ? -EUCLEAN : nvefs_inode_decode(val, len, &inode);
	case NVEFS_KIND_SYMLINK:
		return len && len <= NVEFS_PIECE_BYTES && !memchr(val, 0, len) &&
				       key->offset <= NVEFS_SYMLINK_MAX / NVEFS_PIECE_BYTES
			       ? 0
			       : -EUCLEAN;
	case NVEFS_KIND_XATTR:
		return key->offset >> NVEFS_NAME_HASH_BITS ? -EUCLEAN : nvefs_xattr_check(val, len);
	case NVEFS_KIND_XVALUE:
		return len && len <= NVEFS_PIECE_BYTES && key->offset >> 8 ? 0 : -EUCLEAN;
	case NVEFS_KIND_DIRENT:
		return key->offset >> NVEFS_NAME_HASH_BITS ? -EUCLEAN : nvefs_dirent_check(val, len);
	case NVEFS_KIND_MAP:
		if (key->offset >= NVEFS_MAX_LBLK / NVEFS_WINDOW_BLKS)
			return -EUCLEAN;
		return nvefs_map_decode(val, len, sb, &window);
	default:
		return -EUCLEAN;
	}
}

int nvefs_item_check(const struct nvefs_key *key, const void *val, uint32_t len,
		     const struct nvefs_super *sb)
{
	return key->ino ? inode_item_check(key, val, len, sb) : own_item_check(key, val, len, sb);
}
