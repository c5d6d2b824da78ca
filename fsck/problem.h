/* SPDX-License-Identifier: MIT */
/* What can be wrong, as a table: code, weight, whether and by whom it is mended, words. */
#ifndef NVEFS_FSCK_PROBLEM_H
#define NVEFS_FSCK_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shown as NV and four hexadecimal digits: the first two are the area. A code never changes its meaning. */
enum nvefs_problem_code {
	NVEFS_P_SUPER_DAMAGED = 0x0101,
	NVEFS_P_SUPER_OLD = 0x0102,
	NVEFS_P_SUPER_DIFFERS = 0x0103,
	NVEFS_P_DEVICE_SHORT = 0x0104,
	NVEFS_P_JHEADERS = 0x0201,
	NVEFS_P_OPEN = 0x0202,
	NVEFS_P_JHEADER_SLOT = 0x0203,
	NVEFS_P_NODE_DAMAGED = 0x0301,
	NVEFS_P_NODE_LEVEL = 0x0302,
	NVEFS_P_NODE_LAYOUT = 0x0303,
	NVEFS_P_KEY_ORDER = 0x0304,
	NVEFS_P_KEY_BOUNDS = 0x0305,
	NVEFS_P_NODE_TWICE = 0x0306,
	NVEFS_P_NODE_FIXED = 0x0307,
	NVEFS_P_NODE_LOST = 0x0308,
	NVEFS_P_ITEM_KIND = 0x0309,
	NVEFS_P_ITEM_VALUE = 0x0310,
	NVEFS_P_INODE_ABSENT = 0x0401,
	NVEFS_P_INODE_BLKS = 0x0402,
	NVEFS_P_INODE_MISFIT = 0x0403,
	NVEFS_P_SYMLINK = 0x0404,
	NVEFS_P_DIR_SIZE = 0x0405,
	NVEFS_P_DIR_SUBDIRS = 0x0406,
	NVEFS_P_XVALUE_SHORT = 0x0407,
	NVEFS_P_XVALUE_UNUSED = 0x0408,
	NVEFS_P_XVALUE_NEXT = 0x0409,
	NVEFS_P_XATTR_HASH = 0x0410,
	NVEFS_P_DIRENT_HASH = 0x0411,
	NVEFS_P_INODE_NUMBER = 0x0412,
	NVEFS_P_ROOT_INODE = 0x0413,
	NVEFS_P_DIRENT_ABSENT = 0x0501,
	NVEFS_P_DIRENT_TYPE = 0x0502,
	NVEFS_P_DIR_TWICE = 0x0503,
	NVEFS_P_DIR_PARENT = 0x0504,
	NVEFS_P_NLINK = 0x0505,
	NVEFS_P_INODE_LOST = 0x0506,
	NVEFS_P_ORPHAN_ABSENT = 0x0507,
	NVEFS_P_ORPHAN_NAMED = 0x0508,
	NVEFS_P_DIR_LOOP = 0x0509,
	NVEFS_P_SHARE_COUNT = 0x0601,
	NVEFS_P_SHARE_UNUSED = 0x0602,
	NVEFS_P_BLOCK_LEAKED = 0x0603,
	NVEFS_P_BLOCK_FREE = 0x0604,
	NVEFS_P_MAP_META = 0x0605,
	NVEFS_P_BITMAP_DAMAGED = 0x0606,
	NVEFS_P_GROUP_FREE = 0x0607,
	NVEFS_P_BITMAP_TXN = 0x0608,
	NVEFS_P_GROUP_ABSENT = 0x0609,
	NVEFS_P_GROUP_EXTRA = 0x0610,
	NVEFS_P_ROOT_FREE = 0x0701,
	NVEFS_P_ROOT_META = 0x0702,
	NVEFS_P_ROOT_INODES = 0x0703,
	NVEFS_P_ROOT_SHARED = 0x0704,
	NVEFS_P_ROOT_REFS = 0x0705,
	NVEFS_P_ROOT_NEXT_INO = 0x0706,
	NVEFS_P_DATA_CHECKSUM = 0x0801,
	NVEFS_P_DATA_UNREADABLE = 0x0802,
	NVEFS_P_COPY_BAD = 0x0901,
	NVEFS_P_COPY_HEADER = 0x0902,
	NVEFS_P_MMP_CLAIM = 0x0a01,
	NVEFS_P_MMP_BEAT = 0x0a02,
};

enum nvefs_severity {
	NVEFS_SEV_NOTE,	 /* a power cut leaves such a state: no damage */
	NVEFS_SEV_LEAK,	 /* space is lost, no data */
	NVEFS_SEV_ERROR, /* something is not what it must be */
	NVEFS_SEV_LOSS,	 /* data, names or metadata cannot be read any more */
};

/* Who mends a problem. Their order is the order of work, see mend.c. */
enum nvefs_mender {
	NVEFS_MEND_NONE,   /* nobody can: what it speaks of is gone */
	NVEFS_MEND_SUPER,  /* superblock slots from the best one */
	NVEFS_MEND_COPY,   /* a bad copy of a metadata block from the good one */
	NVEFS_MEND_TREE,   /* a new tree from what is left of the old one */
	NVEFS_MEND_BLOCKS, /* bitmaps and group items from the recount */
	NVEFS_MEND_ITEM,   /* an item of the file system itself: removed */
	NVEFS_MEND_MAPS,   /* mappings of blocks that are somebody else's */
	NVEFS_MEND_SHARES, /* share items from the recount */
	NVEFS_MEND_ROOT,   /* the root's counts */
	NVEFS_MEND_ORPHAN, /* an orphan item: removed */
	NVEFS_MEND_TWICE,  /* further names of a directory: removed */
	NVEFS_MEND_LOOP,   /* the name of a directory that is its own ancestor: removed */
	NVEFS_MEND_INODE,  /* an inode's items, made to agree with each other and with its names */
	NVEFS_MEND_LOST,   /* a name in lost+found */
	NVEFS_MENDERS
};

/* The fields that a problem's text uses are set; others are 0 or NULL. */
struct nvefs_problem {
	uint32_t code;
	uint64_t ino, pblk, lblk;
	uint64_t found, expected;
	const char *name; /* of a directory entry or attribute; not terminated */
	uint32_t namelen;
	const char *why; /* words */
	uint8_t kind;	 /* of an item of the file system itself, `found` its offset */
	bool mend;	 /* it is going to be mended */
};

struct nvefs_problem_info {
	uint32_t code;
	uint8_t severity; /* enum nvefs_severity */
	uint8_t mender;	  /* enum nvefs_mender */
	bool safe;	  /* what is right follows from the rest: -p mends it, too */
	/* {ino} {pblk} {lblk} {found} {expected} {name} {why} stand for the fields. */
	const char *text;
};

/* The table's row; never NULL for a code of the enum. */
const struct nvefs_problem_info *nvefs_problem_info(uint32_t code);
/* What the mender does, as an order: "write ... anew". */
const char *nvefs_mender_text(enum nvefs_mender mender);
const char *nvefs_severity_text(enum nvefs_severity severity);
/* The text with its fields, cut to `len`; bytes of names that are not printable are escaped. */
void nvefs_problem_text(const struct nvefs_problem *p, char *ret, size_t len);

#endif
