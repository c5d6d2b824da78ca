/* SPDX-License-Identifier: MIT */
/*
 * The bytes of each on-disk structure for fixed content, all fields different,
 * against the dump that belongs to this disk version. A difference means that
 * the format has changed: that takes a new disk version or a feature bit, a
 * new dump, and a word in SPEC.md.
 *
 *	format_bytes FILE	compare
 *	format_bytes -w FILE	write it anew
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static FILE *out;
static union {
	uint8_t bytes[NVEFS_BLOCK_BYTES];
	uint64_t align;
} block;

/* 16 bytes a line; left out are lines of zeros, and those that repeat the one before. */
static void dump(const char *name, const void *data, size_t len)
{
	static const uint8_t zeros[16];
	const uint8_t *b = data;

	fprintf(out, "%s: %zu bytes\n", name, len);
	for (size_t i = 0; i < len; i += 16) {
		size_t n = len - i < 16 ? len - i : 16;

		if (!memcmp(b + i, zeros, n) || (i && n == 16 && !memcmp(b + i, b + i - 16, n)))
			continue;
		fprintf(out, "  %04zx ", i);
		for (size_t k = 0; k < n; k++)
			fprintf(out, " %02x", b[i + k]);
		fputc('\n', out);
	}
}

static void dump_block(const char *name)
{
	nvefs_block_seal(block.bytes);
	dump(name, block.bytes, sizeof(block.bytes));
	memset(&block, 0, sizeof(block));
}

static void super_make(struct nvefs_super *sb)
{
	memset(sb, 0, sizeof(*sb));
	for (unsigned int i = 0; i < 16; i++) {
		sb->uuid[i] = (uint8_t)(0x10 + i);
		sb->nguid[i] = (uint8_t)(0x30 + i);
		sb->eui64[i / 2] = (uint8_t)(0x50 + i / 2);
	}
	sb->disk_version = NVEFS_DISK_VERSION;
	sb->feature_compat = 0x0102030405060708ull;
	sb->feature_ro_compat = 0x1112131415161718ull;
	sb->seq = 0x2122232425262728ull;
	sb->flags = NVEFS_SB_DEDUP | NVEFS_SB_META_DUP;
	sb->hash_seed = 0x0123456789abcdefull;
	sb->created = (struct timespec){.tv_sec = 0x65000000, .tv_nsec = 0x0a0b0c0d};
	sb->iu_blks = 16;
	sb->lba_bytes = 512;
	memcpy(sb->serial, "serial number", 13);
	memcpy(sb->label, "golden label", 12);
	memcpy(sb->creator, "format_bytes", 12);
	if (nvefs_layout_make(7 * NVEFS_GROUP_BLKS + 5000, 0, sb))
		abort();
}

static void dump_fixed(const struct nvefs_super *sb)
{
	const struct nvefs_root root = {
		.tree_pblk = 0x10001, .tree_txn = 0x2002, .tree_height = 3, .next_ino = 0x4004,
		.free_blks = 0x5005, .meta_blks = 0x6006, .inodes = 0x7007, .shared_blks = 0x8008,
		.shared_refs = 0x9009, .mount_count = 0xa00a, .written_s = 0x65000001,
		.tree_twin = 0x20001};

	nvefs_super_encode(sb, 1, block.bytes);
	dump_block("superblock");
	nvefs_root_encode(&root, sb, 0x2003, block.bytes);
	dump_block("root");
	nvefs_layout_bitmap_init(sb, 7, 5, block.bytes);
	dump_block("bitmap of the last group");
}

static void dump_mmp(const struct nvefs_super *plain)
{
	const struct nvefs_mmp_rec rec = {.nonce = 0x0123456789abcdefull, .seq = 0x1112131415161718ull,
					  .state = NVEFS_MMP_FSCK, .interval_ms = 0xa1b,
					  .time_s = 0x65000002, .host = "golden host", .target = "/dev/golden"};
	struct nvefs_super sb = *plain;

	sb.feature_incompat = NVEFS_INCOMPAT_MMP;
	sb.mmp_interval_ms = 0x1c1d;
	nvefs_super_encode(&sb, 0, block.bytes);
	dump_block("superblock with multiple mount protection");
	nvefs_mmp_encode(&rec, &sb, NVEFS_BT_CLAIM, block.bytes);
	dump_block("claim");
	nvefs_mmp_encode(&rec, &sb, NVEFS_BT_BEAT, block.bytes);
	dump_block("beat");
}

static void dump_journal(const struct nvefs_super *sb)
{
	const struct nvefs_jheader h = {.seq = 0x1001, .epoch = 0x2002, .tail_txn = 0x3003,
					.tail_pos = 0x404, .log_blks = nvefs_journal_log_blks(sb),
					.root_txn = 0x3002};
	const struct nvefs_jcommit c = {.txn = 0x3003, .epoch = 0x2002, .nblks = 5, .nimages = 4,
					.group_checksum = 0x1122334455667788ull};

	nvefs_jheader_encode(&h, sb, 1, block.bytes);
	dump_block("journal header");
	nvefs_jdesc_init(block.bytes, sb, 0x404, 0x3003, 0x2002, 1);
	nvefs_jdesc_add(block.bytes, NVEFS_ROOT_PBLK);
	nvefs_jdesc_add(block.bytes, 0x10001);
	dump_block("journal descriptor");
	nvefs_jcommit_encode(&c, sb, 0x409, block.bytes);
	dump_block("journal commit");
}

static void dump_nodes(const struct nvefs_super *sb)
{
	struct nvefs_key key = nvefs_key_make(0x1002, NVEFS_KIND_XVALUE, 0x30000000000004);

	nvefs_block_fill(block.bytes, NVEFS_BT_NODE, 0x10001, 0x2002, sb->uuid);
	nvefs_node_init(block.bytes, 0);
	(void)nvefs_leaf_insert(block.bytes, 0, &key, "eleven bytes", 11);
	key.offset++;
	(void)nvefs_leaf_insert(block.bytes, 1, &key, NULL, 0);
	key.offset++;
	(void)nvefs_leaf_insert(block.bytes, 2, &key, "eight by", 8);
	dump_block("leaf");
	nvefs_block_fill(block.bytes, NVEFS_BT_NODE, 0x10002, 0x2002, sb->uuid);
	nvefs_node_init(block.bytes, 1);
	nvefs_block_set_twin(block.bytes, 0x20002);
	nvefs_inner_insert(block.bytes, 0, &key,
			   (struct nvefs_block_ref){.pblk = 0x10001, .twin = 0x20001, .txn = 0x2002});
	key.ino++;
	nvefs_inner_insert(block.bytes, 1, &key,
			   (struct nvefs_block_ref){.pblk = 0x10003, .twin = 0x20003, .txn = 0x1001});
	dump_block("inner node");
}

static void dump_inode(void)
{
	const struct nvefs_inode_rec rec = {
		.mode = S_IFDIR | 01755, .uid = 1000, .gid = 1001, .nlink = 3, .size = 0x505,
		.blks = 0x606, .atime = {-1, 1}, .mtime = {0x65000002, 2}, .ctime = {0x65000003, 3},
		.btime = {0x65000004, 4}, .rdev_major = 8, .rdev_minor = 9, .parent = 0xa0a,
		.flags = NVEFS_INODE_DEDUP_OFF, .xvalue_next = 0xc0c, .subdirs = 1};
	struct nvefs_disk_inode d;

	nvefs_inode_encode(&rec, &d);
	dump("inode", &d, sizeof(d));
}

static void dump_values(void)
{
	const struct nvefs_group_rec group = {.free_blks = 0x101, .bitmap_txn = 0x202};
	const struct nvefs_disk_group dg = nvefs_group_encode(&group);
	const struct nvefs_disk_orphan dor = nvefs_orphan_encode(NVEFS_ORPHAN_TRUNCATE);
	const struct nvefs_disk_share ds = nvefs_share_encode(0x303);
	const struct nvefs_xattr x = {
		.name = "user.near", .namelen = 9, .value = "value", .value_len = 5};
	const struct nvefs_xattr far = {
		.name = "user.far", .namelen = 8, .value_len = 0x404, .value_no = 0x505};
	struct nvefs_window w = {0};
	uint32_t len = 0;
	uint8_t slot;

	dump("group", &dg, sizeof(dg));
	dump("orphan", &dor, sizeof(dor));
	dump("share", &ds, sizeof(ds));
	(void)nvefs_dirent_add(block.bytes, &len, "one", 3, 0x101, 8, &slot);
	(void)nvefs_dirent_add(block.bytes, &len, "number two", 10, 0x202, 4, &slot);
	dump("dirent", block.bytes, len);
	len = 0;
	(void)nvefs_xattr_set(block.bytes, &len, &x);
	(void)nvefs_xattr_set(block.bytes, &len, &far);
	dump("xattr", block.bytes, len);
	for (uint32_t i = 0; i < 3; i++) {
		w.pblk[5 + i] = nvefs_went_make(NVEFS_EXT_DATA, 0x10101 + i);
		w.csum[5 + i] = 0x1111111111111111ull * (i + 1);
		w.pblk[60 + i] = nvefs_went_make(NVEFS_EXT_UNWRITTEN, 0x20202 + i);
	}
	dump("map", block.bytes, nvefs_map_encode(&w, block.bytes));
	fprintf(out, "name hash: %016llx\n",
		(unsigned long long)nvefs_name_hash(0x0123456789abcdefull, "a name", 6));
}

static void dump_all(void)
{
	struct nvefs_super sb;

	super_make(&sb);
	dump_fixed(&sb);
	dump_journal(&sb);
	dump_nodes(&sb);
	dump_inode();
	dump_values();
	dump_mmp(&sb);
}

static int compare(const char *path)
{
	char *now = NULL, want[256];
	size_t len = 0;
	FILE *in = fopen(path, "r");
	int line = 0, bad = 0;
	char *p;

	if (!in) {
		fprintf(stderr, "format_bytes: %s: %s\n", path, strerror(errno));
		return 1;
	}
	out = open_memstream(&now, &len);
	if (!out)
		abort();
	dump_all();
	fclose(out);
	p = now;
	while (fgets(want, sizeof(want), in)) {
		size_t n = strlen(want);

		line++;
		if (strncmp(p, want, n) != 0) {
			fprintf(stderr, "%s:%d: the program makes\n%.*s\nwhere the format has\n%s",
				path, line, (int)strcspn(p, "\n"), p, want);
			bad = 1;
			break;
		}
		p += n;
	}
	if (!bad && *p) {
		fprintf(stderr, "%s: ends too early\n", path);
		bad = 1;
	}
	fclose(in);
	free(now);
	return bad;
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return compare(argv[1]);
	if (argc != 3 || strcmp(argv[1], "-w") != 0)
		return 2;
	out = fopen(argv[2], "w");
	if (!out) {
		fprintf(stderr, "format_bytes: %s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	dump_all();
	return fclose(out) ? 1 : 0;
}
