/* SPDX-License-Identifier: MIT */
/* Handlers that work on the data of files. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>
#include <unistd.h>

#include "fuse/daemon.h"

static struct nvefs_worker *worker(void)
{
	return nvefs_server_self()->worker;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int err = nvefs_open(worker(), ino);

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	fi->keep_cache = 1;
	fi->noflush = 1;
	if (fuse_reply_open(req, fi))
		nvefs_release(worker(), ino);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	fuse_reply_err(req, -nvefs_release(worker(), ino));
}

static void read_done(struct nvefs_req *r)
{
	struct nvefs_call *c = r->arg;

	if (r->err)
		fuse_reply_err(c->fuse, -r->err);
	else
		fuse_reply_buf(c->fuse, r->data, r->result);
	nvefs_call_free(c);
}

/*
 * A short answer to a read for the page cache is the end of the file to the kernel, which cuts
 * the size it knows: there a bad block has to fail the whole read. The kernel then asks for single
 * pages, so that who reads gets all up to the bad one.
 */
static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct nvefs_call *c = nvefs_call_new(req, NVEFS_REQ_READ, ino);

	if (!c)
		return;
	if (!(fi->flags & O_DIRECT))
		c->req.flags = NVEFS_READ_WHOLE;
	c->req.off = (uint64_t)off;
	c->req.len = size;
	nvefs_call_start(c, read_done);
}

/* For requests that answer with a count of bytes. */
static void count_done(struct nvefs_req *r)
{
	struct nvefs_call *c = r->arg;

	if (r->err)
		fuse_reply_err(c->fuse, -r->err);
	else
		fuse_reply_write(c->fuse, r->result);
	nvefs_call_free(c);
}

static void write_done(struct nvefs_req *r)
{
	struct nvefs_call *c = r->arg;

	/*
	 * The kernel does not learn from the answer that setuid or setgid is
	 * gone, and would go by the mode that it has. No page lock is involved.
	 */
	if (!r->err && c->was_suid)
		fuse_lowlevel_notify_inval_inode(c->server->daemon->se, r->ino, -1, 0);
	count_done(r);
}

static bool may_lose_suid(uint64_t ino)
{
	struct nvefs_attr attr;

	return nvefs_getattr(worker(), ino, &attr) == 0 && (attr.mode & (S_ISUID | S_ISGID));
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	/* libfuse has no place for write_flags: they are read where it read the rest, before the data. */
	const struct fuse_write_in *in = (const void *)(buf - sizeof(*in));
	struct nvefs_server *s = nvefs_server_self();
	struct nvefs_call *c = nvefs_call_new(req, NVEFS_REQ_WRITE, ino);

	if (!c)
		return;
	c->req.off = (uint64_t)off;
	c->req.len = size;
	c->req.buf = (char *)(uintptr_t)buf;
	if (fi->flags & (O_SYNC | O_DSYNC))
		c->req.flags |= NVEFS_WRITE_SYNC;
	if (in->write_flags & FUSE_WRITE_KILL_SUIDGID) {
		c->req.flags |= NVEFS_WRITE_KILL_SUID;
		c->was_suid = may_lose_suid(ino);
	}
	c->rx = s->rx;
	s->rx = NULL;
	nvefs_call_start(c, write_done);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct nvefs_call *c = nvefs_call_new(req, NVEFS_REQ_FSYNC, ino);

	(void)datasync;
	(void)fi;
	if (c)
		nvefs_call_start(c, nvefs_call_done_plain);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	struct nvefs_call *c = nvefs_call_new(req, NVEFS_REQ_FALLOCATE, ino);

	(void)fi;
	if (!c)
		return;
	c->req.flags = (uint32_t)mode;
	c->req.off = (uint64_t)off;
	c->req.len = (uint64_t)len;
	nvefs_call_start(c, nvefs_call_done_plain);
}

static void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in,
			       fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len,
			       int flags)
{
	struct nvefs_call *c;

	(void)fi_in;
	(void)fi_out;
	if (flags) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	c = nvefs_call_new(req, NVEFS_REQ_COPY, ino_in);
	if (!c)
		return;
	c->req.off = (uint64_t)off_in;
	/* The answer has 32 bits; whole blocks, so that the next part can be shared, too. */
	c->req.len = len < (1u << 31) ? len : 1u << 31;
	c->req.ino_out = ino_out;
	c->req.off_out = (uint64_t)off_out;
	nvefs_call_start(c, count_done);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	uint64_t found;
	int err = nvefs_seek(worker(), ino, (uint64_t)off, whence, &found);

	(void)fi;
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_lseek(req, (off_t)found);
}

/*
 * flush and access are left out: the answer ENOSYS makes the kernel stop
 * asking. Locks stay in the kernel, which is the only one to see them.
 */
void nvefs_ops_files(struct fuse_lowlevel_ops *ops)
{
	ops->open = op_open;
	ops->release = op_release;
	ops->read = op_read;
	ops->write = op_write;
	ops->fsync = op_fsync;
	ops->fallocate = op_fallocate;
	ops->copy_file_range = op_copy_file_range;
	ops->lseek = op_lseek;
}
