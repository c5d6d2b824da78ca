/* SPDX-License-Identifier: MIT */
/* Handlers that work on names: lookup, create, link, unlink, rename. */
#include <errno.h>
#include <string.h>

#include "fuse/daemon.h"

static struct nvefs_worker *worker(void)
{
	return nvefs_server_self()->worker;
}

static struct nvefs_cred cred_of(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct nvefs_cred){.uid = ctx->uid, .gid = ctx->gid, .umask = ctx->umask};
}

/* Answer with an entry, or with the error; a reply that nobody took gives the lookup back. */
static void reply_entry(fuse_req_t req, int err, const struct nvefs_attr *attr)
{
	struct fuse_entry_param e;

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	nvefs_entry_fill(attr, &e);
	if (fuse_reply_entry(req, &e))
		nvefs_forget(worker(), attr->ino, 1);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct nvefs_attr attr;
	int err;

	if (strcmp(name, ".") == 0)
		err = nvefs_lookup_ino(worker(), parent, &attr);
	else if (strcmp(name, "..") == 0)
		err = nvefs_lookup_parent(worker(), parent, &attr);
	else
		err = nvefs_lookup(worker(), parent, name, strlen(name), &attr);
	if (err == -ENOENT) {
		/* A name known to be absent may be remembered like any other. */
		struct fuse_entry_param none = {.entry_timeout = NVEFS_TIMEOUT_S};

		fuse_reply_entry(req, &none);
		return;
	}
	reply_entry(req, err, &attr);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	nvefs_forget(worker(), ino, nlookup);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		nvefs_forget(worker(), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char *buf = nvefs_server_self()->scratch;
	size_t len;
	int err = nvefs_readlink(worker(), ino, buf, NVEFS_SCRATCH_BYTES - 1, &len);

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	buf[len] = '\0';
	fuse_reply_readlink(req, buf);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct nvefs_cred cred = cred_of(req);
	struct nvefs_attr attr;
	int err = nvefs_mknod(worker(), parent, name, strlen(name), mode, rdev, &cred, &attr);

	reply_entry(req, err, &attr);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct nvefs_cred cred = cred_of(req);
	struct nvefs_attr attr;
	int err = nvefs_mkdir(worker(), parent, name, strlen(name), mode, &cred, &attr);

	reply_entry(req, err, &attr);
}

static void op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
	struct nvefs_cred cred = cred_of(req);
	struct nvefs_attr attr;
	int err = nvefs_symlink(worker(), parent, name, strlen(name), link, &cred, &attr);

	reply_entry(req, err, &attr);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct nvefs_attr attr;
	int err = nvefs_link(worker(), ino, parent, name, strlen(name), &attr);

	reply_entry(req, err, &attr);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, -nvefs_unlink(worker(), parent, name, strlen(name)));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, -nvefs_rmdir(worker(), parent, name, strlen(name)));
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
		      const char *newname, unsigned int flags)
{
	fuse_reply_err(req, -nvefs_rename(worker(), parent, name, strlen(name), newparent, newname,
					  strlen(newname), flags));
}

/* A new inode with one lookup: open it and answer. */
static void reply_created(fuse_req_t req, const struct nvefs_attr *attr, struct fuse_file_info *fi)
{
	struct fuse_entry_param e;
	int err = nvefs_open(worker(), attr->ino);

	if (err) {
		nvefs_forget(worker(), attr->ino, 1);
		fuse_reply_err(req, -err);
		return;
	}
	fi->keep_cache = 1;
	fi->noflush = 1;
	nvefs_entry_fill(attr, &e);
	if (fuse_reply_create(req, &e, fi)) {
		nvefs_release(worker(), attr->ino);
		nvefs_forget(worker(), attr->ino, 1);
	}
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct nvefs_cred cred = cred_of(req);
	struct nvefs_attr attr;
	int err = nvefs_mknod(worker(), parent, name, strlen(name), (mode & ~(mode_t)S_IFMT) | S_IFREG, 0,
			      &cred, &attr);

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	reply_created(req, &attr, fi);
}

void nvefs_ops_names(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = op_lookup;
	ops->forget = op_forget;
	ops->forget_multi = op_forget_multi;
	ops->readlink = op_readlink;
	ops->mknod = op_mknod;
	ops->mkdir = op_mkdir;
	ops->symlink = op_symlink;
	ops->link = op_link;
	ops->unlink = op_unlink;
	ops->rmdir = op_rmdir;
	ops->rename = op_rename;
	ops->create = op_create;
}
