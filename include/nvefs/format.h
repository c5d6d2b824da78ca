/* SPDX-License-Identifier: MIT */
/*
 * The on-disk format, disk version 2. src/format/SPEC.md explains every byte;
 * src/format/ converts to and from host structs. No code here.
 *
 * Everything is little-endian, naturally aligned, without bit fields. Blocks
 * are 4096 bytes; an address is a block number on the device (`pblk`).
 */
#ifndef NVEFS_FORMAT_H
#define NVEFS_FORMAT_H

#include <assert.h>
#include <nvefs/endian.h>
#include <stddef.h>

#define NVEFS_DISK_VERSION 2u

/* ---- Common header of every metadata block ---- */

enum nvefs_block_type {
	NVEFS_BT_SUPER = 1,
	NVEFS_BT_ROOT = 2,
	NVEFS_BT_NODE = 3,
	NVEFS_BT_BITMAP = 4,
	NVEFS_BT_JHEADER = 5,
	NVEFS_BT_JDESC = 6,
	NVEFS_BT_JCOMMIT = 7,
	NVEFS_BT_CLAIM = 8,
	NVEFS_BT_BEAT = 9,
};
#define NVEFS_MAGIC 0x5346564eu /* "NVFS" on disk */

struct nvefs_disk_header {
	le32 magic;
	le16 type; /* enum nvefs_block_type */
	le16 version;
	le64 checksum; /* XXH3-64, seed 0, of the whole block with this field zero */
	le64 pblk;     /* the block's own address */
	le64 txn;      /* the transaction that wrote this content */
	uint8_t uuid[16];
	le64 twin;     /* address of the second copy, which has the same bytes; 0: there is none */
	le64 reserved;
};
static_assert(sizeof(struct nvefs_disk_header) == 64, "header");

/* ---- Superblock: static facts. Slots at pblk 0, 1 and the last block ---- */

#define NVEFS_SUPER_SLOTS 3
#define NVEFS_ROOT_PBLK 2
#define NVEFS_BITMAP0_PBLK 3	 /* bitmap of group 0; of group g > 0: its first block */
#define NVEFS_BITMAP1_TWIN_PBLK 4 /* second copies of bitmaps and the rest: see format/layout.h */
#define NVEFS_CLAIM_PBLK 8	 /* with NVEFS_INCOMPAT_MMP: who has the file system */
#define NVEFS_BEAT_PBLK 12	 /* with NVEFS_INCOMPAT_MMP: that he is alive */
#define NVEFS_JOURNAL_PBLK 16	 /* two header slots, then the log */
#define NVEFS_JOURNAL_HEADERS 2
#define NVEFS_GROUP_BLKS 32256u	 /* blocks that one bitmap block covers: (4096 - 64) * 8 */
#define NVEFS_MIN_BLKS 16384u	 /* 64 MiB */
#define NVEFS_JOURNAL_MIN_BLKS 512u
#define NVEFS_JOURNAL_DEFAULT_MIN_BLKS 2048u
#define NVEFS_JOURNAL_MAX_BLKS 16384u
#define NVEFS_LABEL_MAX 63

#define NVEFS_COMPAT_KNOWN 0ull
#define NVEFS_ROCOMPAT_UUID 1ull /* the UUID was changed: public_uuid */
#define NVEFS_ROCOMPAT_KNOWN NVEFS_ROCOMPAT_UUID
#define NVEFS_INCOMPAT_MMP 1ull /* multiple mount protection: blocks 8 and 12 */
#define NVEFS_INCOMPAT_KNOWN NVEFS_INCOMPAT_MMP

#define NVEFS_SB_DEDUP 1u    /* flags: dedup is on unless the mount says otherwise */
#define NVEFS_SB_META_DUP 2u /* flags: metadata blocks have a second copy */

struct nvefs_disk_super {
	struct nvefs_disk_header hdr; /* txn: 0 */
	le32 disk_version;
	le32 block_bytes; /* 4096 */
	le64 feature_compat, feature_ro_compat, feature_incompat;
	le64 seq; /* highest valid slot wins */
	le64 nblks;
	le32 group_blks; /* NVEFS_GROUP_BLKS */
	le32 ngroups;
	le64 journal_pblk;
	le32 journal_blks; /* header slots included */
	le32 flags;
	le64 root_pblk;
	le64 hash_seed; /* fingerprints, name hashes */
	le64 created_s;
	le32 created_ns;
	le32 iu_blks; /* of the device at mkfs, a hint */
	le32 lba_bytes;
	le32 reserved0;
	uint8_t nguid[16], eui64[8]; /* of the device at mkfs, a hint */
	uint8_t serial[24];
	uint8_t label[64];   /* NUL-terminated UTF-8 */
	uint8_t creator[32]; /* "mkfs.nvefs 0.1.0", NUL-terminated */
	le32 mmp_interval_ms; /* with NVEFS_INCOMPAT_MMP, else 0 */
	uint8_t public_uuid[16]; /* with NVEFS_ROCOMPAT_UUID, else 0; headers keep the UUID of mkfs */
	uint8_t reserved[3756];
};
static_assert(offsetof(struct nvefs_disk_super, nblks) == 104, "super");
static_assert(offsetof(struct nvefs_disk_super, label) == 224, "super");
static_assert(offsetof(struct nvefs_disk_super, mmp_interval_ms) == 320, "super");
static_assert(offsetof(struct nvefs_disk_super, public_uuid) == 324, "super");
static_assert(sizeof(struct nvefs_disk_super) == 4096, "super");

/* ---- Claim and beat: multiple mount protection, see SPEC.md section 9. Outside of the journal, one copy ---- */

#define NVEFS_MMP_MIN_MS 10u
#define NVEFS_MMP_MAX_MS 60000u
#define NVEFS_MMP_DEFAULT_MS 2000u

enum nvefs_mmp_state {
	NVEFS_MMP_FREE = 1, /* nobody has it: who had it last has written all and let it go */
	NVEFS_MMP_MOUNTED = 2,
	NVEFS_MMP_FSCK = 3,
};

struct nvefs_disk_mmp {
	struct nvefs_disk_header hdr; /* txn: 0 */
	le64 nonce; /* of whoever wrote it, random for each taking */
	le64 seq;
	le32 state; /* enum nvefs_mmp_state */
	le32 interval_ms; /* the writer's */
	le64 time_s; /* its wall clock: for people */
	uint8_t host[72];    /* its name, NUL-terminated; for people */
	uint8_t target[256]; /* how it calls the device; likewise */
	uint8_t reserved[3672];
};
static_assert(offsetof(struct nvefs_disk_mmp, state) == 80, "mmp");
static_assert(offsetof(struct nvefs_disk_mmp, host) == 96, "mmp");
static_assert(offsetof(struct nvefs_disk_mmp, target) == 168, "mmp");
static_assert(sizeof(struct nvefs_disk_mmp) == 4096, "mmp");

/* ---- Root block: the one fixed block that each transaction rewrites ---- */

struct nvefs_disk_root {
	struct nvefs_disk_header hdr;
	le64 tree_pblk; /* root node */
	le64 tree_txn;	/* its generation: hdr.txn of that node */
	le32 tree_height; /* 1: the root is a leaf */
	le32 flags;
	le64 next_ino;
	le64 free_blks; /* zero bits over all bitmaps */
	le64 meta_blks; /* blocks of tree nodes, both copies */
	le64 inodes;	/* inode items, orphans included */
	le64 shared_blks; /* share items */
	le64 shared_refs; /* sum over share items of (count - 1) */
	le64 mount_count;
	le64 written_s; /* wall clock of the last commit */
	le64 tree_twin; /* second copy of the root node; 0: none */
	uint8_t reserved[3936];
};
static_assert(sizeof(struct nvefs_disk_root) == 4096, "root");

/* ---- Bitmap block: bit set means in use ---- */

struct nvefs_disk_bitmap {
	struct nvefs_disk_header hdr;
	uint8_t bits[NVEFS_GROUP_BLKS / 8];
};
static_assert(sizeof(struct nvefs_disk_bitmap) == 4096, "bitmap");

/* ---- Tree ---- */

/*
 * Keys order as (ino, kind, offset): kind and offset are one 64-bit number
 * with the kind in the top byte.
 */
struct nvefs_disk_key {
	le64 ino;
	le64 kind_offset;
};
static_assert(sizeof(struct nvefs_disk_key) == 16, "key");

enum nvefs_kind {
	/* ino 0: the file system's own items */
	NVEFS_KIND_GROUP = 0x10,  /* offset: group number */
	NVEFS_KIND_ORPHAN = 0x11, /* offset: inode number */
	NVEFS_KIND_SHARE = 0x12,  /* offset: pblk */
	/* ino > 0: an inode's items */
	NVEFS_KIND_INODE = 0x20,   /* offset 0 */
	NVEFS_KIND_SYMLINK = 0x21, /* offset: piece number; bytes of the target */
	NVEFS_KIND_XATTR = 0x22,   /* offset: name hash (52 bits) */
	NVEFS_KIND_XVALUE = 0x23,  /* offset: value number << 8 | piece number; bytes */
	NVEFS_KIND_DIRENT = 0x24,  /* offset: name hash (52 bits) */
	NVEFS_KIND_MAP = 0x25,	   /* offset: window number */
};
#define NVEFS_OFFSET_BITS 56
#define NVEFS_NAME_HASH_BITS 52

struct nvefs_disk_node {
	struct nvefs_disk_header hdr;
	le16 level;	/* 0: leaf */
	le16 nitems;
	le16 heap_low;	/* leaf: lowest byte offset in the block used by a value; 4096: none */
	le16 heap_used; /* leaf: bytes of live values */
	le64 reserved;
	uint8_t body[4016];
};
static_assert(sizeof(struct nvefs_disk_node) == 4096, "node");

/* Leaf: slots grow up from the start of body, values down from the block's end. */
struct nvefs_disk_slot {
	struct nvefs_disk_key key;
	le16 value_off; /* from the block's start, multiple of 8; 4096 for an empty value */
	le16 value_len; /* bytes; the heap uses them rounded up to 8 */
	le32 reserved;
};
static_assert(sizeof(struct nvefs_disk_slot) == 24, "slot");

/*
 * Inner node: child i > 0 holds the keys from key[i] on, below key[i + 1]. Child
 * 0 begins where the node itself does; key[0] lies in the node's range, below key[1].
 */
struct nvefs_disk_child {
	struct nvefs_disk_key key;
	le64 pblk;
	le64 txn;  /* hdr.txn of the child: tells a lost write */
	le64 twin; /* its second copy; 0: none */
};
static_assert(sizeof(struct nvefs_disk_child) == 40, "child");

#define NVEFS_NODE_BODY 4016u
#define NVEFS_NODE_MAX_CHILDREN (NVEFS_NODE_BODY / 40u) /* 100 */
/* An item (slot and value) takes at most half of a node, so that one split always makes room. */
#define NVEFS_VALUE_MAX 1984u
#define NVEFS_TREE_MAX_HEIGHT 12

/* ---- Values ---- */

struct nvefs_disk_group {
	le32 free_blks;
	le32 flags; /* 0 */
	le64 bitmap_txn; /* hdr.txn of the bitmap block */
};
static_assert(sizeof(struct nvefs_disk_group) == 16, "group");

/* Bits; at least one is set. */
#define NVEFS_ORPHAN_UNLINKED 1u /* no name is left: remove data, then the inode */
#define NVEFS_ORPHAN_TRUNCATE 2u /* mappings beyond the size are to be removed */
struct nvefs_disk_orphan {
	le32 reason;
	le32 reserved;
};
static_assert(sizeof(struct nvefs_disk_orphan) == 8, "orphan");

struct nvefs_disk_share {
	le32 count; /* references to the block, 2 or more */
	le32 reserved;
};
static_assert(sizeof(struct nvefs_disk_share) == 8, "share");
#define NVEFS_SHARE_MAX 0xffffff00u

struct nvefs_disk_time {
	le64 s; /* signed seconds since 1970 */
	le32 ns;
	le32 reserved;
};
static_assert(sizeof(struct nvefs_disk_time) == 16, "time");

#define NVEFS_INODE_DEDUP_ON 1u	 /* flags: dedup whatever the mount says */
#define NVEFS_INODE_DEDUP_OFF 2u

struct nvefs_disk_inode {
	le32 mode; /* S_IF* and permission bits */
	le32 uid, gid;
	le32 nlink;
	le64 size; /* bytes; symlink: length of the target; directory: number of entries without . and .. */
	le64 blks; /* mapped blocks, unwritten ones included */
	struct nvefs_disk_time atime, mtime, ctime, btime;
	le64 rdev; /* major << 32 | minor */
	le64 parent; /* directory: inode number of "..", else 0 */
	le32 flags;
	le32 xvalue_next; /* next number for KIND_XVALUE */
	le64 subdirs; /* directory: number of subdirectories, nlink - 2 */
	uint8_t reserved[32];
};
static_assert(sizeof(struct nvefs_disk_inode) == 160, "inode");

#define NVEFS_ROOT_INO 1ull
#define NVEFS_FIRST_INO 16ull
#define NVEFS_NAME_MAX 255u
#define NVEFS_SYMLINK_MAX 4095u
#define NVEFS_XATTR_NAME_MAX 255u
#define NVEFS_XATTR_VALUE_MAX 65536u
#define NVEFS_XATTR_INLINE_MAX 1024u /* a longer value lies in XVALUE pieces */
#define NVEFS_LINK_MAX 0x7fffffffu
#define NVEFS_PIECE_BYTES 1920u /* SYMLINK and XVALUE pieces, all but the last */

/* DIRENT value: entries whose names share the hash, back to back, each padded to 8 bytes. */
struct nvefs_disk_dirent {
	le64 ino;
	uint8_t dtype; /* DT_* of <dirent.h> */
	uint8_t slot;  /* unique within the value; part of the readdir position */
	uint8_t namelen;
	uint8_t reserved[5];
	uint8_t name[]; /* not terminated */
};
static_assert(sizeof(struct nvefs_disk_dirent) == 16, "dirent");

/* XATTR value: entries likewise. The name carries its prefix ("user."). */
struct nvefs_disk_xattr {
	le32 value_len;
	le32 value_no; /* of KIND_XVALUE; 0: the value is inline, after the name */
	uint8_t namelen;
	uint8_t reserved[7];
	uint8_t name[];
};
static_assert(sizeof(struct nvefs_disk_xattr) == 16, "xattr");

/* ---- Segment map: one window of 64 blocks of a file ---- */

#define NVEFS_WINDOW_BLKS 64u
#define NVEFS_MAX_LBLK (1ull << 44) /* 64 PiB; sizes end here */

enum nvefs_extent_type {
	NVEFS_EXT_DATA = 1,	 /* each block has a checksum */
	NVEFS_EXT_UNWRITTEN = 2, /* allocated, reads as zeros */
	NVEFS_EXT_NOSUM = 3,	 /* data without checksum; not written by this version */
};

struct nvefs_disk_extent {
	le64 pblk;
	le16 off; /* first block within the window */
	le16 len; /* blocks */
	le16 type;
	le16 reserved;
};
static_assert(sizeof(struct nvefs_disk_extent) == 16, "extent");

/* Extents ascend and do not overlap; one checksum per block of type DATA follows, in their order. */
struct nvefs_disk_map {
	le16 nextents; /* at least 1: an empty window has no item */
	le16 nsums;
	le32 reserved;
	struct nvefs_disk_extent extents[];
};
static_assert(sizeof(struct nvefs_disk_map) == 8, "map");
static_assert(8 + NVEFS_WINDOW_BLKS * (16 + 8) <= NVEFS_VALUE_MAX, "a full window fits");

/* ---- Journal ---- */

/*
 * Positions count log blocks from 0 to log_blks - 1 (after the header slots)
 * and wrap. A group is: (descriptor, its images) one or more times, commit.
 */
struct nvefs_disk_jheader {
	struct nvefs_disk_header hdr; /* txn: tail_txn */
	le64 seq;   /* higher valid slot wins */
	le64 epoch; /* groups of another epoch are stale */
	le64 tail_txn; /* first transaction to replay */
	le32 tail_pos; /* where its group starts */
	le32 log_blks;
	le64 root_txn; /* hdr.txn that the home root block has at least */
	uint8_t reserved[3992];
};
static_assert(sizeof(struct nvefs_disk_jheader) == 4096, "jheader");

#define NVEFS_JDESC_MAX 500u
struct nvefs_disk_jdesc {
	struct nvefs_disk_header hdr; /* txn: the group's; pblk: own place in the log */
	le64 epoch;
	le32 nimages; /* that follow this descriptor */
	le32 index;   /* of this descriptor within the group, from 0 */
	uint8_t reserved[16];
	le64 home[NVEFS_JDESC_MAX]; /* pblk of each image */
};
static_assert(sizeof(struct nvefs_disk_jdesc) == 4096, "jdesc");

struct nvefs_disk_jcommit {
	struct nvefs_disk_header hdr;
	le64 epoch;
	le32 nblks; /* of the group, descriptors and images, without this block */
	le32 nimages;
	le64 group_checksum; /* XXH3-64, seed epoch, over those blocks in order */
	uint8_t reserved[4008];
};
static_assert(sizeof(struct nvefs_disk_jcommit) == 4096, "jcommit");

#endif
