/* SPDX-License-Identifier: MIT */
/* New inodes: files, directories, symbolic links, files without a name. */
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "fs/acl.h"
#include "fs/names.h"

struct create_arg {
	uint64_t dir;
	const char *name; /* NULL: none */
	size_t len;
	uint32_t mode;
	uint64_t rdev;
	const struct nvefs_cred *cred;
	const char *target; /* of a symbolic link */
	struct nvefs_attr *ret_attr;
};

/* The ACLs that a new inode starts with. */
struct create_acls {
	uint8_t access[NVEFS_ACL_MAX_BYTES], dflt[NVEFS_ACL_MAX_BYTES];
	struct nvefs_xattr_change c[2];
	uint32_t n;
};

/* The directory's default ACL in place of the umask, or the umask. */
static int create_inherit(struct nvefs_nop *op, const struct create_arg *a, uint32_t *mode,
			  struct create_acls *acls)
{
	size_t len = 0;
	int err;

	acls->n = 0;
	if (S_ISLNK(*mode))
		return 0;
	err = nvefs_xattr_read(op->fs, a->dir, NVEFS_XATTR_DEFAULT, &op->t.miss, acls->dflt,
			       sizeof(acls->dflt), &len);
	if (err == -ENODATA) {
		*mode &= ~(a->cred->umask & 0777);
		return 0;
	}
	if (!err && nvefs_acl_check(acls->dflt, len))
		err = -EUCLEAN;
	if (err)
		return err == -ERANGE ? -EUCLEAN : err;
	memcpy(acls->access, acls->dflt, len);
	if (S_ISDIR(*mode))
		acls->c[acls->n++] = (struct nvefs_xattr_change){
			.name = NVEFS_XATTR_DEFAULT, .val = acls->dflt, .len = len};
	if (nvefs_acl_create(acls->access, len, mode))
		acls->c[acls->n++] = (struct nvefs_xattr_change){
			.name = NVEFS_XATTR_ACCESS, .val = acls->access, .len = len};
	return 0;
}

static void create_rec(const struct nvefs_nop *op, const struct create_arg *a, struct nvefs_inode *dir,
		       uint32_t mode, struct nvefs_inode_rec *rec)
{
	*rec = (struct nvefs_inode_rec){
		.mode = mode,
		.uid = a->cred->uid,
		.gid = a->cred->gid,
		.nlink = S_ISDIR(mode) ? 2 : 1,
		.atime = op->now,
		.mtime = op->now,
		.ctime = op->now,
		.btime = op->now,
		.xvalue_next = 1,
	};
	if (!a->name)
		rec->nlink = 0;
	if (S_ISDIR(mode))
		rec->parent = a->dir;
	if (S_ISLNK(mode))
		rec->size = strlen(a->target);
	if (S_ISCHR(mode) || S_ISBLK(mode)) {
		rec->rdev_major = major(a->rdev);
		rec->rdev_minor = minor(a->rdev);
	}
	nvefs_mutex_lock(&dir->lock);
	if (dir->rec.mode & S_ISGID) {
		rec->gid = dir->rec.gid;
		if (S_ISDIR(mode))
			rec->mode |= S_ISGID;
	}
	if (S_ISREG(mode) || S_ISDIR(mode))
		rec->flags = dir->rec.flags & (NVEFS_INODE_DEDUP_ON | NVEFS_INODE_DEDUP_OFF);
	nvefs_mutex_unlock(&dir->lock);
}

/* May one more subdirectory be in it? */
static int create_link_room(struct nvefs_inode *dir)
{
	int err;

	nvefs_mutex_lock(&dir->lock);
	err = dir->rec.nlink >= NVEFS_LINK_MAX ? -EMLINK : 0;
	nvefs_mutex_unlock(&dir->lock);
	return err;
}

static int create_prepare(struct nvefs_nop *op, const struct create_arg *a, struct nvefs_inode *dir,
			  struct nvefs_inode *in, struct create_acls *acls)
{
	uint32_t i;
	int err;

	err = nvefs_inode_prepare(&op->t, in);
	if (!err && a->name)
		err = nvefs_inode_prepare(&op->t, dir);
	if (!err && !a->name)
		err = nvefs_orphan_prepare(&op->t, in->ino);
	if (!err && a->target)
		err = nvefs_symlink_prepare(op, in->ino, strlen(a->target));
	for (i = 0; !err && i < acls->n; i++)
		err = nvefs_xattr_prepare(op, in, &acls->c[i]);
	return err;
}

static int create_change(struct nvefs_nop *op, const struct create_arg *a, struct nvefs_inode *dir,
			 struct nvefs_inode *in, const struct create_acls *acls)
{
	struct nvefs_root *root = nvefs_store_root(op->fs->st);
	uint32_t i;
	int err;

	root->next_ino++;
	root->inodes++;
	nvefs_mutex_lock(&in->lock);
	in->gone = false;
	err = nvefs_inode_write_locked(&op->t, in);
	nvefs_mutex_unlock(&in->lock);
	if (!err && a->target)
		err = nvefs_symlink_put(op, in->ino, a->target, strlen(a->target));
	for (i = 0; !err && i < acls->n; i++)
		err = nvefs_xattr_apply(op, in, &acls->c[i]);
	if (!err && !a->name)
		return nvefs_orphan_put(&op->t, in->ino, NVEFS_ORPHAN_UNLINKED);
	if (!err)
		err = nvefs_dir_add(op, a->dir, a->name, a->len, in->ino, in->rec.mode);
	if (!err)
		err = nvefs_dir_update(op, dir, 1, S_ISDIR(in->rec.mode) ? 1 : 0);
	return err;
}

static int create_txn(struct nvefs_nop *op, void *arg)
{
	struct create_arg *a = arg;
	struct nvefs_inode *dir, *in;
	struct nvefs_inode_rec rec;
	struct create_acls acls;
	uint32_t mode = a->mode;
	int err;

	err = nvefs_nop_get_dir(op, a->dir, &dir);
	if (!err && a->name)
		err = nvefs_dir_prepare(op, a->dir, a->name, a->len, true);
	if (!err && S_ISDIR(mode))
		err = create_link_room(dir);
	if (!err)
		err = create_inherit(op, a, &mode, &acls);
	if (err)
		return err;
	create_rec(op, a, dir, mode, &rec);
	err = nvefs_inode_new(op->fs, nvefs_store_root(op->fs->st)->next_ino, &rec, &in);
	if (err)
		return err;
	op->held[op->nheld++] = in;
	/* Until it is in the tree, dropping it only frees the memory. */
	in->gone = true;
	err = create_prepare(op, a, dir, in, &acls);
	if (!err)
		err = create_change(op, a, dir, in, &acls);
	if (err)
		return err;
	nvefs_mutex_lock(&in->lock);
	nvefs_inode_attr_locked(in, a->ret_attr);
	nvefs_mutex_unlock(&in->lock);
	nvefs_inode_lookup_ref(in);
	return 0;
}

static int create_run(struct nvefs_worker *w, struct create_arg *a)
{
	uint32_t nkeys = 4 + (a->target ? NVEFS_SYMLINK_PIECES : 2);
	int err = 0;

	if (a->name)
		err = nvefs_name_check(a->name, (uint32_t)(a->len < UINT32_MAX ? a->len : UINT32_MAX));
	if (err)
		return err;
	return nvefs_nop_run(nvefs_worker_fs(w), nvefs_worker_queue(w), nkeys, 0, create_txn, a);
}

int nvefs_mknod(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, uint32_t mode,
		uint64_t rdev, const struct nvefs_cred *cred, struct nvefs_attr *ret_attr)
{
	struct create_arg a = {.dir = dir, .name = name, .len = len, .rdev = rdev, .cred = cred,
			       .ret_attr = ret_attr};

	if (!(mode & S_IFMT))
		mode |= S_IFREG;
	if (!S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode) && !S_ISCHR(mode) && !S_ISBLK(mode))
		return -EINVAL;
	a.mode = mode & (S_IFMT | 07777);
	return create_run(w, &a);
}

int nvefs_mkdir(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, uint32_t mode,
		const struct nvefs_cred *cred, struct nvefs_attr *ret_attr)
{
	struct create_arg a = {.dir = dir, .name = name, .len = len, .cred = cred, .ret_attr = ret_attr};

	a.mode = S_IFDIR | (mode & 07777);
	return create_run(w, &a);
}

int nvefs_symlink(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, const char *target,
		  const struct nvefs_cred *cred, struct nvefs_attr *ret_attr)
{
	struct create_arg a = {.dir = dir, .name = name, .len = len, .cred = cred, .target = target,
			       .ret_attr = ret_attr};

	if (!*target)
		return -ENOENT;
	if (strlen(target) > NVEFS_SYMLINK_MAX)
		return -ENAMETOOLONG;
	a.mode = S_IFLNK | 0777;
	return create_run(w, &a);
}

int nvefs_tmpfile(struct nvefs_worker *w, uint64_t dir, uint32_t mode, const struct nvefs_cred *cred,
		  struct nvefs_attr *ret_attr)
{
	struct create_arg a = {.dir = dir, .cred = cred, .ret_attr = ret_attr};

	a.mode = S_IFREG | (mode & 07777);
	return create_run(w, &a);
}
