/* SPDX-License-Identifier: MIT */
/*
 * Every field of every structure on disk, damaged one at a time: torn (the
 * checksum betrays it), or wrong under a right checksum. Each: the expected
 * code and exit status of the first run, a clean second one, and every file that the
 * damage does not lie in is there byte by byte. Fields of which any value is as good
 * as another, and reserved ones, say so: nothing is found.
 */
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../support/suites.h"
#include "base/buf.h"
#include "base/log.h"
#include "format/block.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/map.h"
#include "format/mmp.h"
#include "format/node.h"
#include "fsck/check.h"
#include "store/super.h"
#include "victim.h"

/* Where a structure stands. */
enum place {
	AT_SUPER, /* slot 0 */
	AT_ROOT,
	AT_BITMAP,
	AT_JHEADER, /* the one that counts */
	AT_JDESC,   /* of the newest group, not home yet */
	AT_JCOMMIT,
	AT_INNER,
	AT_CHILD, /* second entry of an inner node */
	AT_LEAF,
	AT_SLOT, /* of an item in the middle of a leaf */
	AT_GROUP, /* items' values from here on */
	AT_SHARE,
	AT_INODE,
	AT_DIR, /* a directory's inode */
	AT_SYMLINK,
	AT_XATTR,
	AT_XVALUE,
	AT_DIRENT,
	AT_MAP,
	AT_EXTENT,
	AT_CSUM,
	/* With multiple mount protection, which the image gets for these. */
	AT_MMP_SUPER,
	AT_CLAIM,
	AT_BEAT,
};

/* Expected of a field that is wrong under a right checksum. */
#define NOTHING 0u /* any value is right, or it is reserved */
#define ANY_CODE 1u /* by what the value happens to be; it is found */

struct field {
	const char *name;
	enum place place;
	uint32_t off, size;
	uint32_t code;
};
#define F(place, type, member, code) \
	{#type "." #member, place, offsetof(struct nvefs_disk_##type, member), \
	 sizeof(((struct nvefs_disk_##type *)0)->member), code}
#define HEADER(place, code) \
	F(place, header, magic, code), F(place, header, type, code), F(place, header, version, code), \
		F(place, header, pblk, code), F(place, header, txn, code), F(place, header, uuid, code), \
		F(place, header, twin, code), \
		F(place, header, reserved, place == AT_JDESC ? ANY_CODE : NOTHING)

#define MMP(place, code) \
	F(place, header, magic, code), F(place, header, type, code), F(place, header, version, code), \
		F(place, header, pblk, code), F(place, header, txn, NOTHING), F(place, header, uuid, code), \
		F(place, header, twin, code), F(place, header, reserved, NOTHING), \
		F(place, mmp, nonce, NOTHING), F(place, mmp, seq, NOTHING), F(place, mmp, state, code), \
		F(place, mmp, interval_ms, NOTHING), F(place, mmp, time_s, NOTHING), F(place, mmp, host, NOTHING), \
		F(place, mmp, target, NOTHING), F(place, mmp, reserved, NOTHING)

static const struct field fields[] = {
	F(AT_SUPER, header, magic, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, header, type, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, header, version, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, header, pblk, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, header, txn, NOTHING),
	F(AT_SUPER, header, uuid, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, header, twin, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, header, reserved, NOTHING),
	F(AT_SUPER, super, disk_version, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, super, block_bytes, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, super, feature_compat, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, feature_ro_compat, NVEFS_P_SUPER_DAMAGED), /* it needs public_uuid */
	F(AT_SUPER, super, feature_incompat, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, super, seq, NVEFS_P_SUPER_OLD),
	F(AT_SUPER, super, nblks, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, group_blks, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, super, ngroups, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, super, journal_pblk, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, super, journal_blks, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, flags, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, root_pblk, NVEFS_P_SUPER_DAMAGED),
	F(AT_SUPER, super, hash_seed, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, created_s, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, created_ns, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, iu_blks, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, lba_bytes, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, reserved0, NOTHING),
	F(AT_SUPER, super, nguid, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, eui64, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, serial, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, label, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, creator, NVEFS_P_SUPER_DIFFERS),
	F(AT_SUPER, super, mmp_interval_ms, NOTHING), /* reserved, without the feature */
	F(AT_SUPER, super, public_uuid, NOTHING),
	F(AT_SUPER, super, reserved, NOTHING),

	F(AT_MMP_SUPER, super, feature_incompat, NVEFS_P_SUPER_DIFFERS),
	F(AT_MMP_SUPER, super, mmp_interval_ms, NVEFS_P_SUPER_DIFFERS),
	MMP(AT_CLAIM, NVEFS_P_MMP_CLAIM),
	MMP(AT_BEAT, NVEFS_P_MMP_BEAT),

	HEADER(AT_ROOT, NVEFS_P_OPEN),
	F(AT_ROOT, root, tree_pblk, ANY_CODE),
	F(AT_ROOT, root, tree_txn, ANY_CODE),
	F(AT_ROOT, root, tree_twin, NVEFS_P_OPEN),
	F(AT_ROOT, root, tree_height, NVEFS_P_NODE_LEVEL),
	F(AT_ROOT, root, flags, NOTHING),
	F(AT_ROOT, root, next_ino, ANY_CODE),
	F(AT_ROOT, root, free_blks, NVEFS_P_ROOT_FREE),
	F(AT_ROOT, root, meta_blks, NVEFS_P_ROOT_META),
	F(AT_ROOT, root, inodes, NVEFS_P_ROOT_INODES),
	F(AT_ROOT, root, shared_blks, NVEFS_P_ROOT_SHARED),
	F(AT_ROOT, root, shared_refs, NVEFS_P_ROOT_REFS),
	F(AT_ROOT, root, mount_count, NOTHING),
	F(AT_ROOT, root, written_s, NOTHING),
	F(AT_ROOT, root, reserved, NOTHING),

	F(AT_BITMAP, header, magic, NVEFS_P_BITMAP_DAMAGED),
	F(AT_BITMAP, header, type, NVEFS_P_BITMAP_DAMAGED),
	F(AT_BITMAP, header, version, NVEFS_P_BITMAP_DAMAGED),
	F(AT_BITMAP, header, pblk, NVEFS_P_BITMAP_DAMAGED),
	F(AT_BITMAP, header, txn, NVEFS_P_BITMAP_TXN),
	F(AT_BITMAP, header, uuid, NVEFS_P_BITMAP_DAMAGED),
	F(AT_BITMAP, header, twin, NVEFS_P_BITMAP_DAMAGED),
	F(AT_BITMAP, header, reserved, NOTHING),
	F(AT_BITMAP, bitmap, bits, NVEFS_P_BLOCK_FREE),

	/* The other slot is older, and what it says was true. */
	HEADER(AT_JHEADER, NVEFS_P_JHEADER_SLOT),
	F(AT_JHEADER, jheader, seq, ANY_CODE),
	F(AT_JHEADER, jheader, epoch, NOTHING),
	F(AT_JHEADER, jheader, tail_txn, NVEFS_P_JHEADER_SLOT),
	F(AT_JHEADER, jheader, tail_pos, NOTHING),
	F(AT_JHEADER, jheader, log_blks, NVEFS_P_JHEADER_SLOT),
	F(AT_JHEADER, jheader, root_txn, NVEFS_P_OPEN),
	F(AT_JHEADER, jheader, reserved, NOTHING),

	/* Covered by the group's checksum as a whole: reserved bytes, too. */
	HEADER(AT_JDESC, ANY_CODE),
	F(AT_JDESC, jdesc, epoch, ANY_CODE),
	F(AT_JDESC, jdesc, nimages, ANY_CODE),
	F(AT_JDESC, jdesc, index, ANY_CODE),
	F(AT_JDESC, jdesc, reserved, ANY_CODE),
	F(AT_JDESC, jdesc, home, ANY_CODE),
	HEADER(AT_JCOMMIT, ANY_CODE),
	F(AT_JCOMMIT, jcommit, epoch, ANY_CODE),
	F(AT_JCOMMIT, jcommit, nblks, ANY_CODE),
	F(AT_JCOMMIT, jcommit, nimages, ANY_CODE),
	F(AT_JCOMMIT, jcommit, group_checksum, ANY_CODE),
	F(AT_JCOMMIT, jcommit, reserved, NOTHING),

	HEADER(AT_INNER, NVEFS_P_NODE_DAMAGED),
	F(AT_INNER, node, level, NVEFS_P_NODE_LEVEL),
	F(AT_INNER, node, nitems, ANY_CODE),
	F(AT_INNER, node, heap_low, NVEFS_P_NODE_LAYOUT),
	F(AT_INNER, node, heap_used, NVEFS_P_NODE_LAYOUT),
	F(AT_INNER, node, reserved, NOTHING),
	F(AT_CHILD, child, key, ANY_CODE),
	F(AT_CHILD, child, pblk, ANY_CODE),
	F(AT_CHILD, child, txn, ANY_CODE),
	F(AT_CHILD, child, twin, ANY_CODE),

	HEADER(AT_LEAF, NVEFS_P_NODE_DAMAGED),
	F(AT_LEAF, node, level, NVEFS_P_NODE_LEVEL),
	F(AT_LEAF, node, nitems, NVEFS_P_NODE_LAYOUT),
	F(AT_LEAF, node, heap_low, NVEFS_P_NODE_LAYOUT),
	F(AT_LEAF, node, heap_used, NVEFS_P_NODE_LAYOUT),
	F(AT_LEAF, node, reserved, NOTHING),
	F(AT_SLOT, slot, key, ANY_CODE),
	F(AT_SLOT, slot, value_off, NVEFS_P_NODE_LAYOUT),
	F(AT_SLOT, slot, value_len, ANY_CODE),
	F(AT_SLOT, slot, reserved, NOTHING),

	F(AT_GROUP, group, free_blks, NVEFS_P_GROUP_FREE),
	F(AT_GROUP, group, flags, NOTHING),
	F(AT_GROUP, group, bitmap_txn, NVEFS_P_BITMAP_TXN),
	F(AT_SHARE, share, count, NVEFS_P_SHARE_COUNT),
	F(AT_SHARE, share, reserved, NOTHING),

	F(AT_INODE, inode, mode, NOTHING),
	F(AT_INODE, inode, uid, NOTHING),
	F(AT_INODE, inode, gid, NOTHING),
	F(AT_INODE, inode, nlink, NVEFS_P_NLINK),
	F(AT_INODE, inode, size, NOTHING),
	F(AT_INODE, inode, blks, NVEFS_P_INODE_BLKS),
	F(AT_INODE, inode, atime, NOTHING),
	F(AT_INODE, inode, mtime, NOTHING),
	F(AT_INODE, inode, ctime, NOTHING),
	F(AT_INODE, inode, btime, NOTHING),
	F(AT_INODE, inode, rdev, NOTHING),
	F(AT_INODE, inode, parent, NOTHING),
	F(AT_INODE, inode, flags, NOTHING),
	F(AT_INODE, inode, xvalue_next, NOTHING),
	F(AT_INODE, inode, subdirs, NOTHING),
	F(AT_INODE, inode, reserved, NOTHING),
	F(AT_DIR, inode, nlink, NVEFS_P_NLINK),
	F(AT_DIR, inode, size, NVEFS_P_DIR_SIZE),
	F(AT_DIR, inode, blks, NVEFS_P_ITEM_VALUE),
	F(AT_DIR, inode, parent, NVEFS_P_DIR_PARENT),
	F(AT_DIR, inode, subdirs, ANY_CODE),

	{"symlink piece", AT_SYMLINK, 0, 1, NOTHING},
	{"xvalue piece", AT_XVALUE, 0, 1, NOTHING},
	F(AT_XATTR, xattr, value_len, ANY_CODE),
	F(AT_XATTR, xattr, value_no, ANY_CODE),
	F(AT_XATTR, xattr, namelen, ANY_CODE),
	F(AT_XATTR, xattr, reserved, NOTHING),
	{"xattr.name", AT_XATTR, 16, 1, NVEFS_P_XATTR_HASH},
	F(AT_DIRENT, dirent, ino, ANY_CODE),
	F(AT_DIRENT, dirent, dtype, ANY_CODE),
	F(AT_DIRENT, dirent, slot, NOTHING),
	F(AT_DIRENT, dirent, namelen, ANY_CODE),
	F(AT_DIRENT, dirent, reserved, NOTHING),
	{"dirent.name", AT_DIRENT, 16, 1, NVEFS_P_DIRENT_HASH},

	F(AT_MAP, map, nextents, NVEFS_P_ITEM_VALUE),
	F(AT_MAP, map, nsums, NVEFS_P_ITEM_VALUE),
	F(AT_MAP, map, reserved, NOTHING),
	F(AT_EXTENT, extent, pblk, ANY_CODE),
	F(AT_EXTENT, extent, off, ANY_CODE),
	F(AT_EXTENT, extent, len, ANY_CODE),
	F(AT_EXTENT, extent, type, ANY_CODE),
	F(AT_EXTENT, extent, reserved, NOTHING),
	/* The data does not match any more: that is for --data and for reading to tell. */
	{"map checksum", AT_CSUM, 0, 8, NOTHING},
};
#define NFIELDS (sizeof(fields) / sizeof(fields[0]))

static struct victim victim;

/* ---- Finding a place ---- */

struct spot {
	uint64_t pblk;
	uint32_t off;	/* of the structure in its block */
	uint64_t ino;	/* of an item, else 0 */
	uint8_t mask;	/* what is flipped in the field's first byte; 0: its lowest bit */
	uint32_t shift; /* bytes into the field */
};

static const struct victim_image *version_of(const struct field *f)
{
	return &victim.v[f->place == AT_JDESC || f->place == AT_JCOMMIT ? VICTIM_CUT : VICTIM_BARE];
}

static uint8_t kind_of(enum place place)
{
	static const struct {
		enum place place;
		uint8_t kind;
	} kinds[] = {{AT_GROUP, NVEFS_KIND_GROUP},     {AT_SHARE, NVEFS_KIND_SHARE},   {AT_INODE, NVEFS_KIND_INODE},
		     {AT_DIR, NVEFS_KIND_INODE},       {AT_XATTR, NVEFS_KIND_XATTR},   {AT_SYMLINK, NVEFS_KIND_SYMLINK},
		     {AT_XVALUE, NVEFS_KIND_XVALUE},   {AT_DIRENT, NVEFS_KIND_DIRENT}, {AT_MAP, NVEFS_KIND_MAP},
		     {AT_EXTENT, NVEFS_KIND_MAP},      {AT_CSUM, NVEFS_KIND_MAP},      {AT_SLOT, NVEFS_KIND_MAP}};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].place == place)
			return kinds[i].kind;
	return 0;
}

static bool is_dir_inode(const void *val)
{
	return S_ISDIR(le32_get(((const struct nvefs_disk_inode *)val)->mode));
}

/* The first item of the kind, in the middle of a leaf where there is a choice. */
static bool in_leaf(const struct field *f, const uint8_t *leaf, struct spot *ret)
{
	uint8_t kind = kind_of(f->place);
	uint32_t n = nvefs_node_nitems(leaf);

	for (uint32_t i = 0; i < n; i++) {
		struct nvefs_key key = nvefs_node_key(leaf, i);
		const uint8_t *val;
		uint32_t len;

		val = nvefs_leaf_value(leaf, i, &len);
		if (key.kind != kind || (key.ino && f->place != AT_DIRENT && f->place != AT_DIR && key.ino == 1))
			continue;
		if (kind == NVEFS_KIND_INODE && (is_dir_inode(val) != (f->place == AT_DIR) || key.ino == 1))
			continue;
		if (f->place == AT_SLOT && (i < 2 || i + 2 >= n))
			continue;
		ret->ino = key.ino;
		ret->off = (uint32_t)(val - leaf);
		if (f->place == AT_SLOT)
			ret->off = (uint32_t)(offsetof(struct nvefs_disk_node, body) + i * sizeof(struct nvefs_disk_slot));
		if (f->place == AT_EXTENT)
			ret->off += (uint32_t)sizeof(struct nvefs_disk_map);
		if (f->place == AT_CSUM)
			ret->off += len - 8;
		return true;
	}
	return false;
}

static bool find_item(const struct field *f, const struct victim_image *img, struct spot *ret)
{
	for (uint32_t i = 0; i < img->nnodes; i++) {
		ret->pblk = img->nodes[i];
		if (in_leaf(f, victim_block(img, ret->pblk), ret))
			return true;
	}
	return false;
}

/* The block of this type with the highest transaction (journal headers: sequence number). */
static uint64_t newest_in_log(const struct victim_image *img, uint16_t type)
{
	uint64_t best = 0, best_txn = 0;

	for (uint32_t i = 0; i < img->sb.journal_blks; i++) {
		uint64_t pblk = img->sb.journal_pblk + i;
		const struct nvefs_block_expect want = {.pblk = pblk, .uuid = img->sb.uuid, .type = type};
		const uint8_t *b = victim_block(img, pblk);
		uint64_t txn = nvefs_block_txn(b);

		if (type == NVEFS_BT_JHEADER)
			txn = le64_get(((const struct nvefs_disk_jheader *)b)->seq);
		if (nvefs_block_type(b) == type && !nvefs_block_check(b, &want) && txn >= best_txn) {
			best = pblk;
			best_txn = txn;
		}
	}
	return best;
}

/* That belongs to some file. */
static uint64_t mapped_block(const struct victim_image *img)
{
	uint32_t i = 0;

	while (!img->deps[i].ndata)
		i++;
	return img->deps[i].data[0];
}

static void find_spot(const struct field *f, struct spot *ret)
{
	const struct victim_image *img = version_of(f);
	uint64_t data = mapped_block(img);

	*ret = (struct spot){0};
	/* The next epoch is the one to come, and no parent at all is another kind of damage. */
	if (strstr(f->name, "epoch"))
		ret->shift = 5;
	/* Above every number in use. */
	if (strstr(f->name, "next_ino"))
		ret->shift = 4;
	if (f->place == AT_DIR && strstr(f->name, "parent"))
		ret->mask = 0x40;
	switch (f->place) {
	case AT_SUPER:
	case AT_MMP_SUPER:
		ret->pblk = 0;
		return;
	case AT_CLAIM:
		ret->pblk = NVEFS_CLAIM_PBLK;
		return;
	case AT_BEAT:
		ret->pblk = NVEFS_BEAT_PBLK;
		return;
	case AT_ROOT:
		ret->pblk = NVEFS_ROOT_PBLK;
		return;
	case AT_BITMAP:
		ret->pblk = NVEFS_BITMAP0_PBLK;
		if (f->off == offsetof(struct nvefs_disk_bitmap, bits)) {
			ret->shift = (uint32_t)(data / 8);
			ret->mask = (uint8_t)(1u << (data % 8));
		}
		return;
	case AT_JHEADER:
		ret->pblk = newest_in_log(img, NVEFS_BT_JHEADER);
		return;
	case AT_JDESC:
		ret->pblk = newest_in_log(img, NVEFS_BT_JDESC);
		return;
	case AT_JCOMMIT:
		ret->pblk = newest_in_log(img, NVEFS_BT_JCOMMIT);
		return;
	case AT_INNER:
		ret->pblk = img->inner[img->ninner - 1];
		return;
	case AT_CHILD:
		ret->pblk = img->inner[img->ninner - 1];
		ret->off = offsetof(struct nvefs_disk_node, body) + sizeof(struct nvefs_disk_child);
		return;
	case AT_LEAF:
		ret->pblk = img->nodes[img->nnodes / 2];
		return;
	default:
		ck_assert_msg(find_item(f, img, ret), "%s: there is no such item", f->name);
	}
}

/* ---- One field ---- */

struct seen {
	uint32_t codes[64], n;
};

static void take(void *arg, const struct nvefs_problem *p)
{
	struct seen *s = arg;

	if (s->n < 64)
		s->codes[s->n++] = p->code;
}

static void run_fsck(struct nvefs_dev *dev, struct seen *s, struct nvefs_check_result *ret, const char *what)
{
	struct nvefs_check_opts opts = {.repair = NVEFS_REPAIR_ALL, .report = take, .arg = s};
	struct nvefs_error err = {""};
	int code;

	s->n = 0;
	code = nvefs_check(dev, &opts, ret, &err);
	ck_assert_msg(!code, "%s: fsck: %s", what, err.text);
}

static bool is_mmp(const struct field *f)
{
	return f->place >= AT_MMP_SUPER;
}

/* As mkfs would have made it with multiple mount protection. */
static void protect(struct nvefs_dev *dev, const struct victim_image *img)
{
	const struct nvefs_mmp_rec rec = {.state = NVEFS_MMP_FREE, .interval_ms = NVEFS_MMP_MIN_MS};
	uint8_t *block = nvefs_buf_new(4096);
	struct nvefs_super sb = img->sb;
	struct nvefs_queue *q;

	sb.feature_incompat = NVEFS_INCOMPAT_MMP;
	sb.mmp_interval_ms = NVEFS_MMP_MIN_MS;
	ck_assert_int_eq(nvefs_queue_init(dev, 0, &q), 0);
	for (unsigned int slot = 0; slot < NVEFS_SUPER_SLOTS; slot++)
		ck_assert_int_eq(nvefs_super_write_slot(dev, q, &sb, slot), 0);
	for (uint16_t type = NVEFS_BT_CLAIM; type <= NVEFS_BT_BEAT; type++) {
		nvefs_mmp_encode(&rec, &sb, type, block);
		nvefs_block_seal(block);
		ck_assert_int_eq(nvefs_queue_write(q, nvefs_mmp_pblk(type), 1, block, 0), 0);
	}
	nvefs_queue_done(q);
	nvefs_buf_free(block);
}

static void damage(struct nvefs_dev *dev, const struct field *f, const struct spot *s, bool sealed)
{
	uint8_t *block = nvefs_buf_new(4096);
	struct nvefs_queue *q;

	ck_assert_int_eq(nvefs_queue_init(dev, 0, &q), 0);
	ck_assert_int_eq(nvefs_queue_read(q, s->pblk, 1, block), 0);
	block[s->off + f->off + s->shift] ^= s->mask ? s->mask : 1;
	if (sealed)
		nvefs_block_seal(block);
	ck_assert_int_eq(nvefs_queue_write(q, s->pblk, 1, block, 0), 0);
	nvefs_queue_done(q);
	nvefs_buf_free(block);
}

static bool has(const uint64_t *list, uint32_t n, uint64_t v)
{
	for (uint32_t i = 0; i < n; i++)
		if (list[i] == v)
			return true;
	return false;
}

/* The damage lies in what the file is made of. */
static bool is_damaged(const struct victim_image *img, uint32_t i, const struct field *f, const struct spot *s, bool sealed)
{
	const struct victim_image *old = &victim.v[VICTIM_CLEAN];
	bool header = f->off < sizeof(struct nvefs_disk_header) && f->place == AT_LEAF;

	/* Without its newest group a file is what it was before. */
	if (f->place == AT_JDESC || f->place == AT_JCOMMIT)
		return i >= old->nfiles || old->files[i].size != img->files[i].size ||
		       memcmp(old->files[i].bytes ? old->files[i].bytes : (uint8_t *)"",
			      img->files[i].bytes ? img->files[i].bytes : (uint8_t *)"", img->files[i].size) != 0;
	if (sealed && s->ino)
		return img->files[i].ino == s->ino;
	if (sealed && !header)
		return false;
	return has(img->deps[i].leaves, img->deps[i].nleaves, s->pblk);
}

static uint32_t expected_code(const struct field *f, bool sealed)
{
	if (sealed)
		return f->code;
	switch (f->place) {
	case AT_SUPER:
	case AT_MMP_SUPER:
		return NVEFS_P_SUPER_DAMAGED;
	case AT_CLAIM:
		return NVEFS_P_MMP_CLAIM;
	case AT_BEAT:
		return NVEFS_P_MMP_BEAT;
	case AT_ROOT:
		return NVEFS_P_OPEN;
	case AT_BITMAP:
		return NVEFS_P_BITMAP_DAMAGED;
	case AT_JHEADER:
		return NVEFS_P_JHEADER_SLOT;
	case AT_JDESC:
	case AT_JCOMMIT:
		return ANY_CODE;
	default:
		return NVEFS_P_NODE_DAMAGED;
	}
}

static void check_first_run(const struct field *f, bool sealed, const struct seen *s, const struct nvefs_check_result *r,
			    const char *what)
{
	uint32_t want = expected_code(f, sealed);
	bool note = want > ANY_CODE && nvefs_problem_info(want)->severity == NVEFS_SEV_NOTE;

	ck_assert_msg(!r->left, "%s: %llu problems are left after %u rounds, the last NV%04x", what,
		      (unsigned long long)r->left, r->rounds, s->codes[s->n - 1]);
	if (want == ANY_CODE)
		return;
	ck_assert_msg(want != NOTHING || !s->n, "%s: NV%04x was found, but any value is right", what, s->codes[0]);
	ck_assert_msg(want == NOTHING || (s->n && s->codes[0] == want), "%s: NV%04x was expected, NV%04x found first", what,
		      want, s->n ? s->codes[0] : 0);
	ck_assert_msg(want == NOTHING || note || r->problems, "%s: exit status 0", what);
}

START_TEST(test_field)
{
	const struct field *f = &fields[_i / 2];
	const struct victim_image *img = version_of(f);
	struct nvefs_dev *dev = victim_device(img);
	enum victim_fate fates[VICTIM_FILES];
	struct nvefs_check_result r;
	bool sealed = _i % 2;
	struct spot spot;
	struct seen s;
	char what[160];

	find_spot(f, &spot);
	snprintf(what, sizeof(what), "%s (place %d) in block %llu, %s checksum", f->name, f->place,
		 (unsigned long long)spot.pblk, sealed ? "right" : "wrong");
	if (is_mmp(f))
		protect(dev, img);
	damage(dev, f, &spot, sealed);
	run_fsck(dev, &s, &r, what);
	check_first_run(f, sealed, &s, &r, what);
	run_fsck(dev, &s, &r, what);
	ck_assert_msg(!r.problems && (!is_mmp(f) || !s.n), "%s: second run: NV%04x", what, s.codes[0]);
	ck_assert_msg(!victim_judge(img, dev, fates), "%s: does not mount", what);
	for (uint32_t i = 0; i < img->nfiles; i++)
		ck_assert_msg(fates[i] <= VICTIM_RENAMED || is_damaged(img, i, f, &spot, sealed),
			      "%s: %s (inode %llu) lies elsewhere, but its fate is %d", what, img->files[i].name,
			      (unsigned long long)img->files[i].ino, fates[i]);
}
END_TEST

/* Undamaged, all of it is there, in each version; otherwise the rest means nothing. */
START_TEST(test_whole)
{
	const struct victim_image *img = &victim.v[_i];
	struct nvefs_dev *dev = victim_device(img);
	enum victim_fate fates[VICTIM_FILES];
	struct nvefs_check_result r;
	struct seen s;

	run_fsck(dev, &s, &r, "undamaged");
	ck_assert_msg(!r.problems, "undamaged: NV%04x", s.codes[0]);
	ck_assert_uint_ge(img->root.tree_height, 3);
	ck_assert_int_eq(victim_judge(img, dev, fates), 0);
	for (uint32_t i = 0; i < img->nfiles; i++)
		ck_assert_msg(fates[i] == VICTIM_WHOLE, "%s: %d", img->files[i].name, fates[i]);
}
END_TEST

static void setup(void)
{
	victim_init(&victim, false);
}

static void teardown(void)
{
	victim_done(&victim);
}

int main(void)
{
	Suite *s = suite_create("fsck");
	TCase *tc = tcase_create("fields");

	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	tcase_add_unchecked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_whole, 0, VICTIM_VERSIONS);
	tcase_add_loop_test(tc, test_field, 0, 2 * (int)NFIELDS);
	suite_add_tcase(s, tc);
	/* Hundreds of processes with such images in memory cost more than the checks do. */
	return run_suites_nofork(s, NULL);
}
