/* SPDX-License-Identifier: MIT */
#include "problem.h"

#include <stdio.h>
#include <string.h>

#define NOTE NVEFS_SEV_NOTE
#define LEAK NVEFS_SEV_LEAK
#define ERROR NVEFS_SEV_ERROR
#define LOSS NVEFS_SEV_LOSS

static const struct nvefs_problem_info table[] = {
	{NVEFS_P_SUPER_DAMAGED, ERROR, true, "superblock slot {found} at block {pblk}: {why}"},
	{NVEFS_P_SUPER_OLD, NOTE, true, "superblock slot {found} at block {pblk} is older than the newest"},
	{NVEFS_P_SUPER_DIFFERS, ERROR, true, "superblock slot {found} at block {pblk} contradicts the newest"},
	{NVEFS_P_DEVICE_SHORT, LOSS, false, "the device has {found} blocks, the file system {expected}"},
	{NVEFS_P_JHEADERS, LOSS, false, "journal: neither header slot can be used: {why}"},
	{NVEFS_P_OPEN, LOSS, false, "the metadata cannot be opened: {why}"},
	{NVEFS_P_NODE_DAMAGED, LOSS, false, "tree node at block {pblk}, level {found}: {why}"},
	{NVEFS_P_NODE_LEVEL, LOSS, false, "tree node at block {pblk} says level {found}, its parent {expected}"},
	{NVEFS_P_NODE_LAYOUT, LOSS, false, "tree node at block {pblk}: {why}"},
	{NVEFS_P_KEY_ORDER, ERROR, false, "tree node at block {pblk}: item {found} is out of order"},
	{NVEFS_P_KEY_BOUNDS, ERROR, false, "tree node at block {pblk}: keys lie outside of what its parent says"},
	{NVEFS_P_NODE_TWICE, ERROR, false, "tree node at block {pblk}: the block is in use already"},
	{NVEFS_P_NODE_FIXED, ERROR, false, "tree node at block {pblk}: address {found} is reserved or out of range"},
	{NVEFS_P_ITEM_KIND, ERROR, false, "inode {ino}: item of unknown kind {found} at block {pblk}"},
	{NVEFS_P_ITEM_VALUE, LOSS, false, "inode {ino}: damaged {why} item, offset {found}, at block {pblk}"},
	{NVEFS_P_INODE_ABSENT, LOSS, false, "inode {ino}: has {why} items, but no inode item"},
	{NVEFS_P_INODE_BLKS, ERROR, true, "inode {ino}: says {found} mapped blocks, has {expected}"},
	{NVEFS_P_INODE_MISFIT, ERROR, false, "inode {ino}: has {why} items, which its type cannot have"},
	{NVEFS_P_SYMLINK, LOSS, false, "inode {ino}: symbolic link of {expected} bytes has {found}"},
	{NVEFS_P_DIR_SIZE, ERROR, true, "inode {ino}: directory says {found} entries, has {expected}"},
	{NVEFS_P_DIR_SUBDIRS, ERROR, true, "inode {ino}: directory says {found} subdirectories, has {expected}"},
	{NVEFS_P_XVALUE_SHORT, LOSS, false,
	 "inode {ino}: attribute value {lblk}: {found} of {expected} bytes are there"},
	{NVEFS_P_XVALUE_UNUSED, LEAK, true, "inode {ino}: attribute value {found} belongs to no attribute"},
	{NVEFS_P_XVALUE_NEXT, ERROR, true, "inode {ino}: next attribute value number {found} is in use already"},
	{NVEFS_P_XATTR_HASH, ERROR, false, "inode {ino}: extended attribute {name} is filed under a wrong hash"},
	{NVEFS_P_DIRENT_HASH, ERROR, false, "directory {ino}: entry {name} is filed under a wrong hash"},
	{NVEFS_P_INODE_NUMBER, ERROR, true, "inode {ino}: number not below the next free one, {expected}"},
	{NVEFS_P_ROOT_INODE, LOSS, false, "the root directory is missing or no directory"},
	{NVEFS_P_DIRENT_ABSENT, LOSS, false, "directory {ino}: entry {name} names inode {found}, which is not there"},
	{NVEFS_P_DIRENT_TYPE, ERROR, true, "directory {ino}: entry {name} has type {found}, its inode {expected}"},
	{NVEFS_P_DIR_TWICE, ERROR, false, "directory {found} has a second name, {name} in directory {ino}"},
	{NVEFS_P_DIR_PARENT, ERROR, true, "directory {found} says its parent is {expected}, but is found in {ino}"},
	{NVEFS_P_NLINK, ERROR, true, "inode {ino}: says {found} links, has {expected}"},
	{NVEFS_P_INODE_LOST, ERROR, false, "inode {ino}: has no name and is no orphan"},
	{NVEFS_P_ORPHAN_ABSENT, ERROR, true, "orphan {ino}: there is no such inode"},
	{NVEFS_P_ORPHAN_NAMED, ERROR, true, "orphan {ino}: to be removed, but has {found} links"},
	{NVEFS_P_DIR_LOOP, ERROR, false, "directory {ino} is not connected to the root directory"},
	{NVEFS_P_SHARE_COUNT, ERROR, true, "block {pblk}: {found} references, but its count says {expected}"},
	{NVEFS_P_SHARE_UNUSED, ERROR, true, "block {pblk}: nothing refers to it, but its count says {expected}"},
	{NVEFS_P_BLOCK_LEAKED, LEAK, true, "blocks {pblk} to {found}: marked in use, but nothing uses them"},
	{NVEFS_P_BLOCK_FREE, ERROR, true, "blocks {pblk} to {found}: in use, but marked free"},
	{NVEFS_P_MAP_META, ERROR, false, "inode {ino}: block {lblk} is mapped to metadata block {pblk}"},
	{NVEFS_P_BITMAP_DAMAGED, ERROR, true, "group {found}: bitmap at block {pblk}: {why}"},
	{NVEFS_P_GROUP_FREE, ERROR, true, "group {lblk}: says {found} free blocks, its bitmap {expected}"},
	{NVEFS_P_BITMAP_TXN, ERROR, true,
	 "group {lblk}: bitmap of transaction {found}, expected {expected}: a write was lost"},
	{NVEFS_P_GROUP_ABSENT, ERROR, true, "group {found}: its item is missing"},
	{NVEFS_P_GROUP_EXTRA, ERROR, true, "group {found}: lies beyond the file system's {expected} groups"},
	{NVEFS_P_ROOT_FREE, ERROR, true, "root: says {found} free blocks, the bitmaps {expected}"},
	{NVEFS_P_ROOT_META, ERROR, true, "root: says {found} tree nodes, there are {expected}"},
	{NVEFS_P_ROOT_INODES, ERROR, true, "root: says {found} inodes, there are {expected}"},
	{NVEFS_P_ROOT_SHARED, ERROR, true, "root: says {found} shared blocks, there are {expected}"},
	{NVEFS_P_ROOT_REFS, ERROR, true, "root: says sharing saves {found} blocks, it saves {expected}"},
	{NVEFS_P_ROOT_NEXT_INO, ERROR, true, "root: next inode number {found} is not above {expected}"},
	{NVEFS_P_DATA_CHECKSUM, LOSS, false, "inode {ino}: data block {lblk} at block {pblk} fails its checksum"},
	{NVEFS_P_DATA_UNREADABLE, LOSS, false, "inode {ino}: data block {lblk} at block {pblk}: {why}"},
};

const struct nvefs_problem_info *nvefs_problem_info(uint32_t code)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].code == code)
			return &table[i];
	return NULL;
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
