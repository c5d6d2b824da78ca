/* SPDX-License-Identifier: MIT */
#include "format_target.h"

#include <string.h>

#include "base/hash.h"
#include "format/block.h"
#include "format/dirent.h"
#include "format/inode.h"
#include "format/item.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/map.h"
#include "format/mmp.h"
#include "format/node.h"
#include "format/root.h"
#include "format/xattr.h"

const char fuzz_name[] = "format";

static struct nvefs_super sb = {.disk_version = NVEFS_DISK_VERSION};

static bool super_one(uint8_t *block)
{
	struct nvefs_super got;
	const char *why = NULL;
	uint64_t pblk = nvefs_block_pblk(block);
	int err = nvefs_super_decode(block, pblk, &got, &why);

	if (err) {
		PROMISE(why);
		return false;
	}
	PROMISE(got.nblks >= NVEFS_MIN_BLKS && nvefs_layout_blks(got.nblks) == got.nblks);
	PROMISE(nvefs_layout_is_fixed(&got, got.nblks - 1));
	PROMISE(strlen(got.label) < sizeof(got.label) && strlen(got.creator) < sizeof(got.creator));
	for (uint32_t g = 0; g < got.ngroups && g < 3; g++)
		PROMISE(nvefs_layout_group_fixed(&got, g) < nvefs_layout_group_len(&got, g));
	return true;
}

static bool root_one(const uint8_t *block)
{
	struct nvefs_root r;

	if (nvefs_root_decode(block, &sb, &r))
		return false;
	PROMISE(r.tree_height >= 1 && r.tree_height <= NVEFS_TREE_MAX_HEIGHT);
	return !nvefs_layout_is_fixed(&sb, r.tree_pblk);
}

static void leaf_edit(uint8_t *block)
{
	uint8_t right[NVEFS_BLOCK_BYTES] __attribute__((aligned(8)));
	static const uint8_t val[NVEFS_VALUE_MAX];
	uint32_t n = nvefs_node_nitems(block), len;

	for (uint32_t i = 0; i < n; i++) {
		struct nvefs_key key = nvefs_node_key(block, i);
		const void *v = nvefs_leaf_value(block, i, &len);
		bool exact;

		PROMISE(nvefs_node_find(block, &key, &exact) == i && exact);
		(void)nvefs_item_check(&key, v, len, &sb);
	}
	nvefs_leaf_compact(block);
	PROMISE(!nvefs_node_check(block));
	if (n > 1) {
		struct nvefs_key key = nvefs_node_key(block, n / 2);

		nvefs_leaf_remove(block, n / 2);
		PROMISE(!nvefs_node_check(block));
		if (nvefs_leaf_insert(block, n / 2, &key, val, sizeof(val))) {
			struct nvefs_split s = nvefs_leaf_split_point(block, n / 2, &key, sizeof(val));

			memcpy(right, block, sizeof(right));
			nvefs_node_init(right, 0);
			nvefs_leaf_split(block, s.at, right);
			PROMISE(!nvefs_leaf_insert(s.right ? right : block,
						   s.right ? n / 2 - s.at : n / 2, &key, val,
						   sizeof(val)));
			PROMISE(!nvefs_node_check(right));
		}
	}
	PROMISE(!nvefs_node_check(block));
}

static bool node_one(uint8_t *block)
{
	const struct nvefs_key zero = nvefs_key_make(0, 0, 0);

	if (nvefs_node_check(block))
		return false;
	if (!nvefs_node_level(block)) {
		leaf_edit(block);
		return true;
	}
	for (uint32_t i = 0; i < nvefs_node_nitems(block); i++) {
		struct nvefs_key key = nvefs_node_key(block, i);

		PROMISE(nvefs_inner_find(block, &key) == i);
	}
	PROMISE(nvefs_inner_find(block, &zero) == 0);
	return true;
}

static bool jdesc_one(const uint8_t *block)
{
	struct nvefs_jdesc d;

	if (nvefs_jdesc_decode(block, &sb, &d))
		return false;
	for (uint32_t i = 0; i < d.nimages; i++)
		PROMISE(nvefs_jdesc_home(block, i) < sb.nblks - 1);
	return true;
}

static bool mmp_one(const uint8_t *block)
{
	uint8_t again[NVEFS_BLOCK_BYTES] __attribute__((aligned(8)));
	uint16_t type = nvefs_block_type(block) == NVEFS_BT_BEAT ? NVEFS_BT_BEAT : NVEFS_BT_CLAIM;
	struct nvefs_super own = sb;
	struct nvefs_mmp_rec rec, rec2;

	memcpy(own.uuid, ((const struct nvefs_disk_header *)block)->uuid, sizeof(own.uuid));
	memset(&rec, 0, sizeof(rec));
	memset(&rec2, 0, sizeof(rec2));
	if (nvefs_mmp_decode(block, &own, type, &rec) != NVEFS_BLOCK_OK)
		return false;
	PROMISE(strlen(rec.host) < sizeof(rec.host) && strlen(rec.target) < sizeof(rec.target));
	PROMISE(rec.interval_ms >= NVEFS_MMP_MIN_MS && rec.interval_ms <= NVEFS_MMP_MAX_MS);
	nvefs_mmp_encode(&rec, &own, type, again);
	nvefs_block_seal(again);
	PROMISE(nvefs_mmp_decode(again, &own, type, &rec2) == NVEFS_BLOCK_OK);
	PROMISE(rec2.nonce == rec.nonce && rec2.seq == rec.seq && rec2.state == rec.state);
	PROMISE(!strcmp(rec2.host, rec.host) && !strcmp(rec2.target, rec.target));
	return true;
}

static bool map_one(const void *val, uint32_t len)
{
	uint64_t again[NVEFS_VALUE_MAX / 8];
	struct nvefs_window w, w2;
	uint32_t len2;

	if (nvefs_map_decode(val, len, &sb, &w))
		return false;
	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++)
		PROMISE(!w.pblk[i] || !nvefs_layout_is_fixed(&sb, nvefs_went_pblk(w.pblk[i])));
	len2 = nvefs_map_encode(&w, again);
	PROMISE(len2 && len2 <= len && len2 == nvefs_map_bytes(&w));
	PROMISE(!nvefs_map_decode(again, len2, &sb, &w2) && !memcmp(&w, &w2, sizeof(w)));
	return true;
}

static bool dirent_one(const void *val, uint32_t len)
{
	uint64_t copy[NVEFS_VALUE_MAX / 8];
	struct nvefs_dirent e, e2;
	uint32_t pos = 0, n = len;
	uint8_t slot;

	while (!nvefs_dirent_next(val, len, &pos, &e))
		(void)nvefs_dirent_find(val, len, e.name, e.namelen, &e2);
	if (nvefs_dirent_check(val, len) || len > NVEFS_VALUE_MAX)
		return false;
	memcpy(copy, val, len);
	if (!nvefs_dirent_add(copy, &n, "new name", 8, 17, 8, &slot)) {
		PROMISE(!nvefs_dirent_check(copy, n));
		PROMISE(!nvefs_dirent_find(copy, n, "new name", 8, &e) && e.slot == slot);
	}
	pos = 0;
	PROMISE(!nvefs_dirent_next(copy, n, &pos, &e));
	{
		char name[NVEFS_NAME_MAX];
		uint8_t namelen = e.namelen;

		memcpy(name, e.name, namelen);
		PROMISE(!nvefs_dirent_remove(copy, &n, name, namelen));
		PROMISE(!n || !nvefs_dirent_check(copy, n));
	}
	return true;
}

static bool xattr_one(const void *val, uint32_t len)
{
	struct nvefs_xattr x, add = {.name = "user.new", .namelen = 8, .value = "v", .value_len = 1};
	uint64_t copy[NVEFS_VALUE_MAX / 8];
	uint32_t pos = 0, n = len;
	uint64_t sum = 0;

	while (!nvefs_xattr_next(val, len, &pos, &x))
		if (x.value)
			sum += nvefs_hash(x.value, x.value_len, sum);
	if (nvefs_xattr_check(val, len) || len > NVEFS_VALUE_MAX)
		return false;
	memcpy(copy, val, len);
	if (!nvefs_xattr_set(copy, &n, &add)) {
		PROMISE(!nvefs_xattr_check(copy, n));
		PROMISE(!nvefs_xattr_remove(copy, &n, "user.new", 8));
	}
	return true;
}

/* Value first, then 17 bytes that make the key. */
static bool item_one(const uint8_t *val, uint32_t len)
{
	struct nvefs_disk_key d;
	struct nvefs_key key;

	if (len < sizeof(d))
		return false;
	len -= (uint32_t)sizeof(d);
	memcpy(&d, val + len, sizeof(d));
	key = nvefs_key_decode(&d);
	return !nvefs_item_check(&key, val, len, &sb);
}

static bool block_one(enum fuzz_format what, uint8_t *block)
{
	struct nvefs_jheader h;
	struct nvefs_jcommit c;

	((struct nvefs_disk_header *)block)->magic = le32_make(NVEFS_MAGIC);
	nvefs_block_seal(block);
	switch (what) {
	case FUZZ_SUPER:
		return super_one(block);
	case FUZZ_ROOT:
		return root_one(block);
	case FUZZ_NODE:
		return node_one(block);
	case FUZZ_JHEADER:
		return !nvefs_jheader_decode(block, &sb, &h);
	case FUZZ_JDESC:
		return jdesc_one(block);
	case FUZZ_MMP:
		return mmp_one(block);
	default:
		return !nvefs_jcommit_decode(block, &sb, &c);
	}
}

static bool value_one(enum fuzz_format what, const uint8_t *val, uint32_t len)
{
	struct nvefs_inode_rec rec;

	switch (what) {
	case FUZZ_INODE:
		return !nvefs_inode_decode(val, len, &rec);
	case FUZZ_MAP:
		return map_one(val, len);
	case FUZZ_DIRENT:
		return dirent_one(val, len);
	case FUZZ_XATTR:
		return xattr_one(val, len);
	default:
		return item_one(val, len);
	}
}

int fuzz_one(const uint8_t *data, size_t size)
{
	enum fuzz_format what;
	uint8_t *copy;
	size_t len;
	bool sound, block;

	if (!size || data[0] >= FUZZ_FORMATS || size > NVEFS_BLOCK_BYTES + 1)
		return 0;
	if (!sb.nblks && nvefs_layout_make(100000, 0, &sb))
		abort();
	what = data[0];
	block = what <= FUZZ_JCOMMIT || what == FUZZ_MMP;
	len = block ? NVEFS_BLOCK_BYTES : size - 1;
	/* Of exactly this size, so that a sanitizer sees a byte too far. */
	copy = calloc(1, len ? len : 1);
	if (!copy)
		abort();
	memcpy(copy, data + 1, size - 1);
	sound = block ? block_one(what, copy) : value_one(what, copy, (uint32_t)len);
	free(copy);
	return sound;
}
