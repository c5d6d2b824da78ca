/* SPDX-License-Identifier: MIT */
/* Sound inputs to start from: at least one for each kind. */
#include <sys/stat.h>

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
#include "format_target.h"

static const uint8_t uuid[16] = "fuzz";

static void super_fill(struct nvefs_super *sb)
{
	memset(sb, 0, sizeof(*sb));
	memcpy(sb->uuid, uuid, sizeof(uuid));
	sb->disk_version = NVEFS_DISK_VERSION;
	(void)nvefs_layout_make(100000, 0, sb);
}

static void leaf_seed(uint8_t *block)
{
	static const uint8_t val[700] = {1, 2, 3};
	struct nvefs_key key = nvefs_key_make(3, NVEFS_KIND_MAP, 0);

	nvefs_block_fill(block, NVEFS_BT_NODE, 5000, 9, uuid);
	nvefs_node_init(block, 0);
	for (uint32_t i = 0; i < 9; i++) {
		key.offset = i * 5;
		(void)nvefs_leaf_insert(block, i, &key, val, i * 77);
	}
	nvefs_leaf_remove(block, 4);
}

static void inner_seed(uint8_t *block)
{
	struct nvefs_key key = nvefs_key_make(0, 0, 0);

	nvefs_block_fill(block, NVEFS_BT_NODE, 5001, 9, uuid);
	nvefs_node_init(block, 2);
	for (uint32_t i = 0; i < 20; i++) {
		key.ino = i;
		nvefs_inner_insert(block, i, &key,
				   (struct nvefs_block_ref){.pblk = 6000 + i, .txn = 1 + i % 9});
	}
}

static size_t block_seed(enum fuzz_format what, const struct nvefs_super *sb, uint8_t *block)
{
	const struct nvefs_root root = {
		.tree_pblk = 5000, .tree_txn = 2, .tree_height = 2, .next_ino = 20};
	const struct nvefs_jheader h = {
		.seq = 4, .epoch = 3, .tail_txn = 9, .log_blks = nvefs_journal_log_blks(sb)};
	const struct nvefs_jcommit c = {.txn = 9, .epoch = 3, .nblks = 4, .nimages = 3};
	const struct nvefs_mmp_rec mmp = {.nonce = 5, .seq = 6, .state = NVEFS_MMP_MOUNTED, .interval_ms = 2000,
					  .host = "host", .target = "/dev/ng0n1"};

	switch (what) {
	case FUZZ_SUPER:
		nvefs_super_encode(sb, 1, block);
		break;
	case FUZZ_ROOT:
		nvefs_root_encode(&root, sb, 3, block);
		break;
	case FUZZ_NODE:
		leaf_seed(block);
		break;
	case FUZZ_JHEADER:
		nvefs_jheader_encode(&h, sb, 0, block);
		break;
	case FUZZ_JDESC:
		nvefs_jdesc_init(block, sb, 7, 9, 3, 0);
		nvefs_jdesc_add(block, NVEFS_ROOT_PBLK);
		nvefs_jdesc_add(block, NVEFS_GROUP_BLKS);
		nvefs_jdesc_add(block, 5000);
		break;
	case FUZZ_MMP:
		nvefs_mmp_encode(&mmp, sb, NVEFS_BT_BEAT, block);
		break;
	default:
		nvefs_jcommit_encode(&c, sb, 11, block);
		break;
	}
	return NVEFS_BLOCK_BYTES;
}

static size_t map_seed(uint8_t *val)
{
	struct nvefs_window w = {0};

	for (uint32_t i = 2; i < 30; i++)
		w.pblk[i] = nvefs_went_make(i < 20 ? NVEFS_EXT_DATA : NVEFS_EXT_UNWRITTEN,
					    7000 + (i < 11 ? i : 3 * i));
	return nvefs_map_encode(&w, val);
}

static size_t value_seed(enum fuzz_format what, uint8_t *val)
{
	const struct nvefs_inode_rec rec = {.mode = S_IFREG | 0644, .nlink = 1, .size = 5000, .blks = 2};
	const struct nvefs_xattr x = {
		.name = "user.a", .namelen = 6, .value = "value", .value_len = 5};
	const struct nvefs_xattr far = {
		.name = "user.b", .namelen = 6, .value_len = 5000, .value_no = 3};
	const struct nvefs_key key = nvefs_key_make(9, NVEFS_KIND_MAP, 4);
	struct nvefs_disk_key d = nvefs_key_encode(&key);
	uint32_t len = 0;
	uint8_t slot;

	switch (what) {
	case FUZZ_INODE:
		nvefs_inode_encode(&rec, (void *)val);
		return sizeof(struct nvefs_disk_inode);
	case FUZZ_MAP:
		return map_seed(val);
	case FUZZ_DIRENT:
		(void)nvefs_dirent_add(val, &len, "a", 1, 16, 8, &slot);
		(void)nvefs_dirent_add(val, &len, "directory", 9, 17, 4, &slot);
		(void)nvefs_dirent_add(val, &len, "another name", 12, 18, 10, &slot);
		return len;
	case FUZZ_XATTR:
		(void)nvefs_xattr_set(val, &len, &x);
		(void)nvefs_xattr_set(val, &len, &far);
		return len;
	default:
		len = (uint32_t)map_seed(val);
		memcpy(val + len, &d, sizeof(d));
		return len + sizeof(d);
	}
}

size_t fuzz_seed(unsigned int number, uint8_t *ret_input)
{
	uint64_t buf[NVEFS_BLOCK_BYTES / 8] = {0};
	uint8_t *bytes = (uint8_t *)buf;
	struct nvefs_super sb;
	size_t len;

	super_fill(&sb);
	if (number > FUZZ_FORMATS)
		return 0;
	ret_input[0] = number == FUZZ_FORMATS ? FUZZ_NODE : (uint8_t)number;
	if (number == FUZZ_FORMATS) {
		inner_seed(bytes);
		len = NVEFS_BLOCK_BYTES;
	} else if (number <= FUZZ_JCOMMIT || number == FUZZ_MMP) {
		len = block_seed(number, &sb, bytes);
	} else {
		len = value_seed(number, bytes);
	}
	memcpy(ret_input + 1, bytes, len);
	return len + 1;
}
