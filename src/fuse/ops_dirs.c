/* SPDX-License-Identifier: MIT */
/* Handlers that read directories. */
#include <errno.h>
#include <string.h>

#include "fuse/daemon.h"

static struct nvefs_worker *worker(void)
{
	return nvefs_server_self()->worker;
}

/* Opens count, so that a removed directory lives until it is closed: they cannot be skipped. */
static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int err = nvefs_open(worker(), ino);

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	if (fuse_reply_open(req, fi))
		nvefs_release(worker(), ino);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	fuse_reply_err(req, -nvefs_release(worker(), ino));
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct nvefs_call *c = nvefs_call_new(req, NVEFS_REQ_FSYNC, ino);

	(void)datasync;
	(void)fi;
	if (c)
		nvefs_call_start(c, nvefs_call_done_plain);
}

struct dir_answer {
	fuse_req_t req;
	char *buf;
	size_t size, used;
};

static int add_entry(struct dir_answer *a, size_t need)
{
	if (need > a->size - a->used)
		return 1;
	a->used += need;
	return 0;
}

/* libfuse wants terminated names; those of the library are counted. */
static int take_plain(void *arg, const char *name, size_t len, const struct nvefs_attr *attr, uint64_t next_pos)
{
	struct dir_answer *a = arg;
	struct stat st = {.st_ino = attr->ino, .st_mode = attr->mode};
	char text[256];

	memcpy(text, name, len);
	text[len] = '\0';
	return add_entry(a, fuse_add_direntry(a->req, a->buf + a->used, a->size - a->used, text, &st,
					      (off_t)next_pos));
}

static int take_plus(void *arg, const char *name, size_t len, const struct nvefs_attr *attr, uint64_t next_pos)
{
	struct dir_answer *a = arg;
	struct fuse_entry_param e;
	char text[256];

	memcpy(text, name, len);
	text[len] = '\0';
	nvefs_entry_fill(attr, &e);
	/* The kernel takes no reference for these two. */
	if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
		e.ino = 0;
	return add_entry(a, fuse_add_direntry_plus(a->req, a->buf + a->used, a->size - a->used, text, &e,
						   (off_t)next_pos));
}

static void read_entries(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct nvefs_server *s = nvefs_server_self();
	struct dir_answer a = {
		.req = req,
		.buf = s->scratch,
		.size = size < NVEFS_SCRATCH_BYTES ? size : NVEFS_SCRATCH_BYTES,
	};
	int err = nvefs_readdir(s->worker, ino, (uint64_t)off, plus, plus ? take_plus : take_plain, &a);

	/* What is there is good: an error comes at the next call, from where this one stopped. */
	if (err && !a.used)
		fuse_reply_err(req, -err);
	else
		fuse_reply_buf(req, a.buf, a.used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	read_entries(req, ino, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	read_entries(req, ino, size, off, true);
}

void nvefs_ops_dirs(struct fuse_lowlevel_ops *ops)
{
	ops->opendir = op_opendir;
	ops->releasedir = op_releasedir;
	ops->fsyncdir = op_fsyncdir;
	ops->readdir = op_readdir;
	ops->readdirplus = op_readdirplus;
}
