/* SPDX-License-Identifier: MIT */
/*
 * The names side of the file system layer: directories, links, attributes.
 *
 * A name operation is one attempt after the other at the same steps, each in
 * one transaction, thus under the meta lock: get the inodes, look at what is
 * there, prepare every key; then change all, or nothing. An attempt that needs
 * a block from the device, or something done outside the lock first, answers
 * -EAGAIN before its first change, and is made again.
 *
 * [meta] below: the caller holds the meta lock in any mode, -EAGAIN fills *miss.
 */
#ifndef NVEFS_FS_NAMES_H
#define NVEFS_FS_NAMES_H

#include "format/dirent.h"
#include "format/root.h"
#include "format/xattr.h"
#include "fs/fs.h"

/* ---- op.c ---- */

#define NVEFS_NOP_HOLDS 8u

struct nvefs_nop {
	struct nvefs_fs *fs;
	struct nvefs_queue *q;
	struct nvefs_txn t;
	struct timespec now;
	uint32_t nkeys; /* keys that this attempt may change */
	/* with -EAGAIN: do this first */
	uint32_t want_keys;	  /* more keys are to be changed than thought */
	struct nvefs_inode *fold; /* its data is to be folded; held */
	bool folded;
	bool no_room; /* the transaction could not begin for want of space */

	struct nvefs_inode *held[NVEFS_NOP_HOLDS];
	uint32_t nheld;
};
typedef int nvefs_nop_fn(struct nvefs_nop *op, void *arg);

/* Attempts until it is done. nkeys: tree keys changed at most. No lock held. */
int nvefs_nop_run(struct nvefs_fs *fs, struct nvefs_queue *q, uint32_t nkeys, uint32_t txn_flags,
		  nvefs_nop_fn *fn, void *arg);
/* Within an attempt: get an inode, held until the attempt is over. -ESTALE. */
int nvefs_nop_get(struct nvefs_nop *op, uint64_t ino, struct nvefs_inode **ret_in);
/* A directory that has not been removed: else -ENOTDIR, -ENOENT. */
int nvefs_nop_get_dir(struct nvefs_nop *op, uint64_t ino, struct nvefs_inode **ret_in);

/* ---- inode.c ---- */

void nvefs_inode_table_init(struct nvefs_fs *fs);
/* Frees every inode, whatever holds it: nobody may use the mount any more. */
void nvefs_inode_table_done(struct nvefs_fs *fs);
/* At unmount: whatever the kernel still holds is let go, so that orphans can be removed. */
void nvefs_inode_table_release(struct nvefs_fs *fs);

/* [meta] */
int nvefs_inode_get_locked(struct nvefs_fs *fs, uint64_t ino, struct nvefs_miss *miss,
			   struct nvefs_inode **ret_in);
/* [txn] A new inode in memory with one reference; nothing in the tree. -ENOMEM. */
int nvefs_inode_new(struct nvefs_fs *fs, uint64_t ino, const struct nvefs_inode_rec *rec,
		    struct nvefs_inode **ret_in);
/* One lookup reference more; the caller has a reference. */
void nvefs_inode_lookup_ref(struct nvefs_inode *in);
/* Lookups or opens hold it. */
bool nvefs_inode_held(struct nvefs_inode *in);
/* The background thread is alone with this inode (one reference, its own): nobody gets it any more. */
bool nvefs_inode_claim(struct nvefs_inode *in);

/* ---- dir.c ---- */

uint64_t nvefs_dir_hash(const struct nvefs_fs *fs, const char *name, size_t len);
/* [meta] -ENOENT. ret->name is not to be used. */
int nvefs_dir_find(struct nvefs_fs *fs, uint64_t dir, const char *name, size_t len,
		   struct nvefs_miss *miss, struct nvefs_dirent *ret);
/* [txn] Prepare this name's key. With `adding`: -EEXIST, and -ENOSPC when no room is left for it. */
int nvefs_dir_prepare(struct nvefs_nop *op, uint64_t dir, const char *name, size_t len, bool adding);
/* [txn] Prepared. */
int nvefs_dir_add(struct nvefs_nop *op, uint64_t dir, const char *name, size_t len, uint64_t ino,
		  uint32_t mode);
int nvefs_dir_set(struct nvefs_nop *op, uint64_t dir, const char *name, size_t len, uint64_t ino,
		  uint32_t mode);
int nvefs_dir_remove(struct nvefs_nop *op, uint64_t dir, const char *name, size_t len);
/* [txn] Its inode item, prepared: entries and subdirectories more or less, times now. */
int nvefs_dir_update(struct nvefs_nop *op, struct nvefs_inode *dir, int entries, int subdirs);
/* The inode's type, from what its record says. */
uint32_t nvefs_inode_mode(struct nvefs_inode *in);

/* ---- unlink.c ---- */

/* The inode may lose a name: -ENOTDIR, -EISDIR, -ENOTEMPTY as rmdir (want_dir) and unlink have it. */
int nvefs_unlink_check(struct nvefs_inode *in, bool want_dir);
/* [txn] One name less. */
int nvefs_unlink_prepare(struct nvefs_nop *op, struct nvefs_inode *in);
int nvefs_unlink_inode(struct nvefs_nop *op, struct nvefs_inode *in);

/* ---- xattr.c ---- */

#define NVEFS_XATTR_ACCESS "system.posix_acl_access"
#define NVEFS_XATTR_DEFAULT "system.posix_acl_default"
#define NVEFS_XATTR_MAX_PIECES ((NVEFS_XATTR_VALUE_MAX + NVEFS_PIECE_BYTES - 1) / NVEFS_PIECE_BYTES)

/* [meta] The value; *ret_len is its length even with -ERANGE. -ENODATA. */
int nvefs_xattr_read(struct nvefs_fs *fs, uint64_t ino, const char *name, struct nvefs_miss *miss,
		     void *buf, size_t size, size_t *ret_len);

/* A change of one attribute. val NULL: remove it. */
struct nvefs_xattr_change {
	const char *name;
	const void *val;
	size_t len;
	int flags; /* XATTR_CREATE, XATTR_REPLACE */
	/* set by prepare */
	uint32_t old_no, old_len, new_no;
	bool absent; /* there is nothing to remove */
};
/* [txn] -EEXIST, -ENODATA by flags; -ENOSPC. The inode's item has to be prepared, too. */
int nvefs_xattr_prepare(struct nvefs_nop *op, struct nvefs_inode *in, struct nvefs_xattr_change *c);
/* [txn] May raise rec.xvalue_next: write the inode afterwards. */
int nvefs_xattr_apply(struct nvefs_nop *op, struct nvefs_inode *in, const struct nvefs_xattr_change *c);

/* ---- symlink.c ---- */

#define NVEFS_SYMLINK_PIECES ((NVEFS_SYMLINK_MAX + NVEFS_PIECE_BYTES - 1) / NVEFS_PIECE_BYTES)
int nvefs_symlink_prepare(struct nvefs_nop *op, uint64_t ino, size_t len);
int nvefs_symlink_put(struct nvefs_nop *op, uint64_t ino, const char *target, size_t len);

/* ---- background.c, orphan.c ---- */

/* [shard lock] Hand over an orphan, with a reference. */
void nvefs_bg_push(struct nvefs_fs *fs, struct nvefs_inode *in);
/* Orphans wait to be removed. */
bool nvefs_bg_behind(struct nvefs_fs *fs);
/* Before a name is removed: wait a little when the background thread is far behind. No lock held. */
void nvefs_bg_throttle(struct nvefs_fs *fs);
/* Wait until no orphan is left to be removed. False: the deadline (as nvefs_now_ns counts) passed. */
bool nvefs_bg_drain(struct nvefs_fs *fs, uint64_t deadline_ns);
/* One orphan in memory, with the caller's reference, which it takes over. */
void nvefs_orphan_reap(struct nvefs_fs *fs, struct nvefs_queue *q, struct nvefs_inode *in);
/* Orphan items from *ino on, *ino moved on; -ENOENT at the end. */
int nvefs_orphan_next(struct nvefs_fs *fs, struct nvefs_queue *q, uint64_t *ino, uint32_t *ret_reason);
/* At mount, before anybody reads: cut what a truncate has left. */
int nvefs_orphan_truncates(struct nvefs_fs *fs, struct nvefs_queue *q);

#endif
