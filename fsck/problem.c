/* SPDX-License-Identifier: MIT */
#include "problem.h"

#include <stdio.h>
#include <string.h>

#define NOTE NVEFS_SEV_NOTE
#define LEAK NVEFS_SEV_LEAK
#define ERROR NVEFS_SEV_ERROR
#define LOSS NVEFS_SEV_LOSS
#define MEND(who) NVEFS_MEND_##who

static const struct nvefs_problem_info table[] = {
	{NVEFS_P_SUPER_DAMAGED, ERROR, MEND(SUPER), true, "superblock slot {found} at block {pblk}: {why}"},
	{NVEFS_P_SUPER_OLD, NOTE, MEND(SUPER), true, "superblock slot {found} at block {pblk} is older than the newest"},
	{NVEFS_P_SUPER_DIFFERS, ERROR, MEND(SUPER), true, "superblock slot {found} at block {pblk} contradicts the newest"},
	{NVEFS_P_DEVICE_SHORT, LOSS, MEND(NONE), false, "the device has {found} blocks, the file system {expected}"},
	{NVEFS_P_JHEADERS, LOSS, MEND(TREE), false, "journal: neither header slot can be used: {why}"},
	{NVEFS_P_OPEN, LOSS, MEND(TREE), false, "the metadata cannot be opened: {why}"},
	{NVEFS_P_JHEADER_SLOT, NOTE, MEND(NONE), false, "journal header slot {found} at block {pblk}: {why}"},
	{NVEFS_P_NODE_DAMAGED, LOSS, MEND(TREE), false, "tree node at block {pblk}, level {found}: {why}"},
	{NVEFS_P_NODE_LEVEL, LOSS, MEND(TREE), false, "tree node at block {pblk} says level {found}, its parent {expected}"},
	{NVEFS_P_NODE_LAYOUT, LOSS, MEND(TREE), false, "tree node at block {pblk}: {why}"},
	{NVEFS_P_KEY_ORDER, ERROR, MEND(TREE), false, "tree node at block {pblk}: item {found} is out of order"},
	{NVEFS_P_KEY_BOUNDS, ERROR, MEND(TREE), false, "tree node at block {pblk}: keys lie outside of what its parent says"},
	{NVEFS_P_NODE_TWICE, ERROR, MEND(TREE), false, "tree node at block {pblk}: the block is in use already"},
	{NVEFS_P_NODE_FIXED, ERROR, MEND(TREE), false, "tree node at block {pblk}: address {found} is reserved or out of range"},
	{NVEFS_P_NODE_LOST, LOSS, MEND(TREE), false, "tree node at block {pblk}, level {found}: nothing leads to it"},
	{NVEFS_P_ITEM_KIND, ERROR, MEND(INODE), false, "inode {ino}: item of unknown kind {found} at block {pblk}"},
	{NVEFS_P_ITEM_VALUE, LOSS, MEND(INODE), false, "inode {ino}: damaged {why} item, offset {found}, at block {pblk}"},
	{NVEFS_P_INODE_ABSENT, LOSS, MEND(INODE), false, "inode {ino}: has {why} items, but no inode item"},
	{NVEFS_P_INODE_BLKS, ERROR, MEND(INODE), true, "inode {ino}: says {found} mapped blocks, has {expected}"},
	{NVEFS_P_INODE_MISFIT, ERROR, MEND(INODE), false, "inode {ino}: has {why} items, which its type cannot have"},
	{NVEFS_P_SYMLINK, LOSS, MEND(INODE), false, "inode {ino}: symbolic link of {expected} bytes has {found}"},
	{NVEFS_P_DIR_SIZE, ERROR, MEND(INODE), true, "inode {ino}: directory says {found} entries, has {expected}"},
	{NVEFS_P_DIR_SUBDIRS, ERROR, MEND(INODE), true, "inode {ino}: directory says {found} subdirectories, has {expected}"},
	{NVEFS_P_XVALUE_SHORT, LOSS, MEND(INODE), false,
	 "inode {ino}: attribute value {lblk}: {found} of {expected} bytes are there"},
	{NVEFS_P_XVALUE_UNUSED, LEAK, MEND(INODE), true, "inode {ino}: attribute value {found} belongs to no attribute"},
	{NVEFS_P_XVALUE_NEXT, ERROR, MEND(INODE), true, "inode {ino}: next attribute value number {found} is in use already"},
	{NVEFS_P_XATTR_HASH, ERROR, MEND(INODE), false, "inode {ino}: extended attribute {name} is filed under a wrong hash"},
	{NVEFS_P_DIRENT_HASH, ERROR, MEND(INODE), false, "directory {ino}: entry {name} is filed under a wrong hash"},
	{NVEFS_P_INODE_NUMBER, ERROR, MEND(ROOT), true, "inode {ino}: number not below the next free one, {expected}"},
	{NVEFS_P_ROOT_INODE, LOSS, MEND(INODE), false, "the root directory is missing or no directory"},
	{NVEFS_P_DIRENT_ABSENT, LOSS, MEND(INODE), false, "directory {ino}: entry {name} names inode {found}, which is not there"},
	{NVEFS_P_DIRENT_TYPE, ERROR, MEND(INODE), true, "directory {ino}: entry {name} has type {found}, its inode {expected}"},
	{NVEFS_P_DIR_TWICE, ERROR, MEND(TWICE), false, "directory {found} has a second name, {name} in directory {ino}"},
	{NVEFS_P_DIR_PARENT, ERROR, MEND(INODE), true, "directory {found} says its parent is {expected}, but is found in {ino}"},
	{NVEFS_P_NLINK, ERROR, MEND(INODE), true, "inode {ino}: says {found} links, has {expected}"},
	{NVEFS_P_INODE_LOST, ERROR, MEND(LOST), true, "inode {ino}: has no name and is no orphan"},
	{NVEFS_P_ORPHAN_ABSENT, ERROR, MEND(ORPHAN), true, "orphan {ino}: there is no such inode"},
	{NVEFS_P_ORPHAN_NAMED, ERROR, MEND(ORPHAN), true, "orphan {ino}: to be removed, but has {found} links"},
	{NVEFS_P_DIR_LOOP, ERROR, MEND(LOOP), false, "directory {ino} is not connected to the root directory"},
	{NVEFS_P_SHARE_COUNT, ERROR, MEND(SHARES), true, "block {pblk}: {found} references, but its count says {expected}"},
	{NVEFS_P_SHARE_UNUSED, ERROR, MEND(SHARES), true, "block {pblk}: nothing refers to it, but its count says {expected}"},
	{NVEFS_P_BLOCK_LEAKED, LEAK, MEND(BLOCKS), true, "blocks {pblk} to {found}: marked in use, but nothing uses them"},
	{NVEFS_P_BLOCK_FREE, ERROR, MEND(BLOCKS), true, "blocks {pblk} to {found}: in use, but marked free"},
	{NVEFS_P_MAP_META, ERROR, MEND(MAPS), false, "inode {ino}: block {lblk} is mapped to metadata block {pblk}"},
	{NVEFS_P_BITMAP_DAMAGED, ERROR, MEND(BLOCKS), true, "group {found}: bitmap at block {pblk}: {why}"},
	{NVEFS_P_GROUP_FREE, ERROR, MEND(BLOCKS), true, "group {lblk}: says {found} free blocks, its bitmap {expected}"},
	{NVEFS_P_BITMAP_TXN, ERROR, MEND(BLOCKS), true,
	 "group {lblk}: bitmap of transaction {found}, expected {expected}: a write was lost"},
	{NVEFS_P_GROUP_ABSENT, ERROR, MEND(TREE), false, "group {found}: its item is missing"},
	{NVEFS_P_GROUP_EXTRA, ERROR, MEND(ITEM), true, "group {found}: lies beyond the file system's {expected} groups"},
	{NVEFS_P_ROOT_FREE, ERROR, MEND(BLOCKS), true, "root: says {found} free blocks, the bitmaps {expected}"},
	{NVEFS_P_ROOT_META, ERROR, MEND(ROOT), true, "root: says {found} tree nodes, there are {expected}"},
	{NVEFS_P_ROOT_INODES, ERROR, MEND(ROOT), true, "root: says {found} inodes, there are {expected}"},
	{NVEFS_P_ROOT_SHARED, ERROR, MEND(ROOT), true, "root: says {found} shared blocks, there are {expected}"},
	{NVEFS_P_ROOT_REFS, ERROR, MEND(ROOT), true, "root: says sharing saves {found} blocks, it saves {expected}"},
	{NVEFS_P_ROOT_NEXT_INO, ERROR, MEND(ROOT), true, "root: next inode number {found} is not above {expected}"},
	{NVEFS_P_DATA_CHECKSUM, LOSS, MEND(NONE), false, "inode {ino}: data block {lblk} at block {pblk} fails its checksum"},
	{NVEFS_P_DATA_UNREADABLE, LOSS, MEND(NONE), false, "inode {ino}: data block {lblk} at block {pblk}: {why}"},
	{NVEFS_P_COPY_BAD, ERROR, MEND(COPY), true,
	 "metadata: the copy at block {pblk}: {why}; the other one, at block {found}, is good"},
	{NVEFS_P_COPY_HEADER, NOTE, MEND(COPY), true,
	 "journal header: the copy at block {pblk}: {why}; the other one, at block {found}, is good"},
	{NVEFS_P_MMP_CLAIM, NOTE, MEND(NONE), false,
	 "multiple mount protection: claim at block {pblk}: {why}; whoever takes the file system writes it anew"},
	{NVEFS_P_MMP_BEAT, NOTE, MEND(NONE), false,
	 "multiple mount protection: beat at block {pblk}: {why}; whoever takes the file system writes it anew"},
};

const struct nvefs_problem_info *nvefs_problem_info(uint32_t code)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].code == code)
			return &table[i];
	return NULL;
}

const char *nvefs_mender_text(enum nvefs_mender mender)
{
	static const char *const texts[NVEFS_MENDERS] = {
		[NVEFS_MEND_NONE] = "do nothing",
		[NVEFS_MEND_SUPER] = "write superblock slots from the best one",
		[NVEFS_MEND_COPY] = "write bad copies of metadata from the good ones",
		[NVEFS_MEND_TREE] = "build a new tree from what is left of the old one",
		[NVEFS_MEND_BLOCKS] = "write bitmaps and group items from the recount",
		[NVEFS_MEND_ITEM] = "remove the item",
		[NVEFS_MEND_MAPS] = "take away mappings of blocks that belong to something else",
		[NVEFS_MEND_SHARES] = "write share counts from the recount",
		[NVEFS_MEND_ROOT] = "write the root's counts from the recount",
		[NVEFS_MEND_ORPHAN] = "remove the orphan item",
		[NVEFS_MEND_TWICE] = "remove further names of directories",
		[NVEFS_MEND_LOOP] = "remove the name that makes the loop",
		[NVEFS_MEND_INODE] = "make the inode agree with its items and names",
		[NVEFS_MEND_LOST] = "give it a name in lost+found",
	};

	return texts[mender];
}

const char *nvefs_severity_text(enum nvefs_severity severity)
{
	static const char *const texts[] = {"note", "leak", "error", "loss"};

	return texts[severity];
}

struct out {
	char *at, *end; /* end: where the terminating zero goes at the latest */
};

static void put(struct out *o, const char *s)
{
	while (*s && o->at < o->end)
		*o->at++ = *s++;
}

static void put_number(struct out *o, uint64_t v)
{
	char buf[24];

	snprintf(buf, sizeof(buf), "%llu", (unsigned long long)v);
	put(o, buf);
}

static void put_name(struct out *o, const char *name, uint32_t len)
{
	char buf[8];

	put(o, "'");
	for (uint32_t i = 0; name && i < len; i++) {
		unsigned char c = (unsigned char)name[i];

		/* Bytes above ASCII are left for the terminal to show: names are mostly UTF-8. */
		snprintf(buf, sizeof(buf), c < ' ' || c == 127 || c == '\\' ? "\\%03o" : "%c", c);
		put(o, buf);
	}
	put(o, "'");
}

static void put_field(struct out *o, const struct nvefs_problem *p, const char *field, size_t len)
{
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {{"ino", p->ino},	    {"pblk", p->pblk},	       {"lblk", p->lblk},
		       {"found", p->found}, {"expected", p->expected}};

	if (!strncmp(field, "name", len)) {
		put_name(o, p->name, p->namelen);
		return;
	}
	if (!strncmp(field, "why", len)) {
		put(o, p->why ? p->why : "unknown");
		return;
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (strlen(numbers[i].name) == len && !memcmp(numbers[i].name, field, len))
			put_number(o, numbers[i].value);
}

void nvefs_problem_text(const struct nvefs_problem *p, char *ret, size_t len)
{
	const struct nvefs_problem_info *info = nvefs_problem_info(p->code);
	struct out o = {ret, ret + len - 1};

	for (const char *s = info ? info->text : "unknown problem"; *s; s++) {
		if (*s == '{') {
			size_t n = strcspn(s, "}");

			put_field(&o, p, s + 1, n - 1);
			s += n;
		} else if (o.at < o.end) {
			*o.at++ = *s;
		}
	}
	*o.at = '\0';
}
