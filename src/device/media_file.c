/* SPDX-License-Identifier: MIT */
/*
 * A regular file as medium, through one io_uring per queue.
 *
 * Direct I/O is used when the host's file system takes it, which is asked once at open and
 * told in the description; commands that are finer than its alignment
 * (512-byte LBAs) then go through a second, buffered descriptor of the file. Flush
 * is fdatasync, which covers both. A durable zero or deallocate is the change and then a sync.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif

#include "base/buf.h"
#include "base/hash.h"
#include "base/list.h"
#include "device/backend.h"
#include "device/media.h"

struct file {
	struct nvefs_media media;
	int fd;		       /* buffered; holds the lock */
	bool created;	       /* by this open */
	int direct_fd;	       /* -1: none */
	uint32_t direct_align; /* of offset and length */
};

struct file_queue {
	struct file *file;
	struct io_uring ring;
	uint32_t unsent;
};

static struct file_queue *fq_from(struct nvefs_media_queue *mq)
{
	return (struct file_queue *)(void *)mq;
}

static int file_queue_init(struct nvefs_media *m, struct nvefs_queue *q, uint32_t depth,
			   struct nvefs_media_queue **ret_mq)
{
	struct file_queue *fq = calloc(1, sizeof(*fq));
	int err;

	if (!fq)
		return -ENOMEM;
	fq->file = nvefs_container_of(m, struct file, media);
	err = io_uring_queue_init(depth, &fq->ring, IORING_SETUP_CLAMP);
	if (err)
		goto free_fq;
	err = nvefs_queue_watch_fd(q, fq->ring.ring_fd);
	if (err)
		goto exit_ring;
	*ret_mq = (struct nvefs_media_queue *)(void *)fq;
	return 0;

exit_ring:
	io_uring_queue_exit(&fq->ring);
free_fq:
	free(fq);
	return err;
}

static void file_queue_done(struct nvefs_media_queue *mq)
{
	struct file_queue *fq = fq_from(mq);

	io_uring_queue_exit(&fq->ring);
	free(fq);
}

static void ring_send(struct file_queue *fq)
{
	/* What the kernel does not take now (-EBUSY, -EAGAIN) is sent by a later poll. */
	int n = io_uring_submit(&fq->ring);

	if (n > 0)
		fq->unsent -= (uint32_t)n < fq->unsent ? (uint32_t)n : fq->unsent;
}

static bool fits_direct(const struct file *f, const struct nvefs_media_req *req)
{
	const uint64_t align = f->direct_align, mem = f->media.mem_align;

	if (req->off % align || req->len % align)
		return false;
	for (uint32_t i = 0; i < req->niov; i++)
		if ((uintptr_t)req->iov[i].iov_base % mem || req->iov[i].iov_len % align)
			return false;
	return true;
}

static void prepare_rw(const struct file *f, struct io_uring_sqe *sqe,
		       const struct nvefs_media_req *req)
{
	int fd = f->direct_fd >= 0 && fits_direct(f, req) ? f->direct_fd : f->fd;

	if (req->kind == NVEFS_MEDIA_READ)
		io_uring_prep_readv2(sqe, fd, req->iov, req->niov, req->off, 0);
	else
		io_uring_prep_writev2(sqe, fd, req->iov, req->niov, req->off,
				      req->fua ? RWF_DSYNC : 0);
}

/* Step 0 is the command itself; step 1 makes a zero or deallocate durable. */
static void start(struct file_queue *fq, struct nvefs_media_req *req)
{
	const struct file *f = fq->file;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&fq->ring);

	assert(sqe); /* the ring has room for every request that the queue can have */
	if (req->kind == NVEFS_MEDIA_FLUSH || req->step)
		io_uring_prep_fsync(sqe, f->fd, IORING_FSYNC_DATASYNC);
	else if (req->kind == NVEFS_MEDIA_READ || req->kind == NVEFS_MEDIA_WRITE)
		prepare_rw(f, sqe, req);
	else
		io_uring_prep_fallocate(sqe, f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					(off_t)req->off, (off_t)req->len);
	io_uring_sqe_set_data(sqe, req);
	fq->unsent++;
}

static bool file_submit(struct nvefs_media_queue *mq, struct nvefs_media_req *req)
{
	req->err = 0;
	req->step = 0;
	req->tries = 0;
	start(fq_from(mq), req);
	return false;
}

/*
 * A short transfer happens at a full host file system, at a file that somebody cut, or when a
 * signal came between: the whole request is tried once more, and then it is an error.
 */
static bool try_again(struct nvefs_media_req *req, int res)
{
	bool rw = req->kind == NVEFS_MEDIA_READ || req->kind == NVEFS_MEDIA_WRITE;

	if (res == -EINTR || res == -EAGAIN)
		return true;
	if (!rw || res < 0 || (uint64_t)res == req->len) {
		req->err = res < 0 ? res : 0;
		return false;
	}
	req->err = req->kind == NVEFS_MEDIA_WRITE ? -ENOSPC : -EIO;
	return !req->tries++;
}

/* Valgrind does not see that the ring's reads fill memory. */
static void tell_valgrind(const struct nvefs_media_req *req)
{
#ifdef VALGRIND_MAKE_MEM_DEFINED
	if (req->kind != NVEFS_MEDIA_READ || req->err)
		return;
	for (uint32_t i = 0; i < req->niov; i++)
		(void)VALGRIND_MAKE_MEM_DEFINED(req->iov[i].iov_base, req->iov[i].iov_len);
#else
	(void)req;
#endif
}

static void finish(struct file_queue *fq, struct nvefs_media_req *req, int res)
{
	if (try_again(req, res)) {
		start(fq, req);
		return;
	}
	if (!req->err && req->fua && req->kind == NVEFS_MEDIA_ZERO && !req->step) {
		req->step = 1;
		start(fq, req);
		return;
	}
	tell_valgrind(req);
	req->done(req);
}

static void file_poll(struct nvefs_media_queue *mq)
{
	struct file_queue *fq = fq_from(mq);
	struct io_uring_cqe *cqe;

	if (fq->unsent)
		ring_send(fq);
	while (!io_uring_peek_cqe(&fq->ring, &cqe)) {
		struct nvefs_media_req *req = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&fq->ring, cqe);
		finish(fq, req, res);
	}
	if (fq->unsent)
		ring_send(fq);
}

static bool file_prepare_wait(struct nvefs_media_queue *mq)
{
	struct file_queue *fq = fq_from(mq);

	if (fq->unsent)
		ring_send(fq);
	return !fq->unsent && !io_uring_cq_ready(&fq->ring);
}

static void file_close(struct nvefs_media *m)
{
	struct file *f = nvefs_container_of(m, struct file, media);

	if (f->direct_fd >= 0)
		close(f->direct_fd);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

static const struct nvefs_media_ops file_ops = {
    .close = file_close,
    .queue_init = file_queue_init,
    .queue_done = file_queue_done,
    .submit = file_submit,
    .poll = file_poll,
    .prepare_wait = file_prepare_wait,
};

static int open_error(const char *path, int code, bool rdonly, struct nvefs_error *err)
{
	switch (code) {
	case -ENOENT:
		return nvefs_error_set(err, code,
				       "%s: no such file: make it with mkfs.nvefs -s SIZE", path);
	case -EACCES:
	case -EPERM:
		return nvefs_error_set(err, code, "%s: permission denied: check owner and mode",
				       path);
	case -EROFS:
	case -ETXTBSY:
		return nvefs_error_set(err, code, "%s: cannot be opened %s: %s", path,
				       rdonly ? "for reading" : "for writing", strerror(-code));
	default:
		return nvefs_error_set(err, code, "%s: cannot be opened: %s", path,
				       strerror(-code));
	}
}

/* The lock is on the inode, so it holds for every name of the file and in every process. */
static int open_locked(struct file *f, const char *path, uint32_t flags, struct nvefs_error *err)
{
	bool rdonly = flags & NVEFS_OPEN_RDONLY;
	int mode = (rdonly ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

	f->fd = open(path, mode);
	if (f->fd < 0 && errno == ENOENT && flags & NVEFS_OPEN_CREATE && !rdonly) {
		f->fd = open(path, mode | O_CREAT | O_EXCL, 0666);
		f->created = f->fd >= 0;
	}
	if (f->fd < 0)
		return open_error(path, -errno, rdonly, err);
	if (!flock(f->fd, LOCK_EX | LOCK_NB))
		return 0;
	if (errno == EWOULDBLOCK)
		return nvefs_error_set(err, -EBUSY,
				       "%s: in use: unmount it or wait for the program that has it",
				       path);
	return nvefs_error_set(err, -errno, "%s: cannot be locked: %s", path, strerror(errno));
}

static int set_size(struct file *f, const char *path, const struct nvefs_media_file_opts *o,
		    struct nvefs_error *err)
{
	struct stat st;

	if (fstat(f->fd, &st))
		return nvefs_error_set(err, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return nvefs_error_set(err, -EINVAL, "%s: is no regular file", path);
	if (o->flags & NVEFS_OPEN_CREATE && !(o->flags & NVEFS_OPEN_RDONLY) && o->create_bytes) {
		if (ftruncate(f->fd, (off_t)o->create_bytes))
			return nvefs_error_set(
			    err, -errno, "%s: cannot be made %llu bytes large: %s", path,
			    (unsigned long long)o->create_bytes, strerror(errno));
		st.st_size = (off_t)o->create_bytes;
	}
	f->media.size_bytes = (uint64_t)st.st_size & ~(uint64_t)(NVEFS_BLOCK_SIZE - 1);
	if (!f->media.size_bytes)
		return nvefs_error_set(err, -EINVAL,
				       "%s: has %lld bytes, too small for any nvefs, whose blocks have %u", path,
				       (long long)st.st_size, NVEFS_BLOCK_SIZE);
	return 0;
}

/* A read through a direct descriptor tells what no header does on kernels before 6.1. */
static bool probe_direct(int fd)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	ssize_t n = buf ? pread(fd, buf, NVEFS_BLOCK_SIZE, 0) : -1;

	nvefs_buf_free(buf);
	return n == (ssize_t)NVEFS_BLOCK_SIZE;
}

static void direct_alignment(struct file *f)
{
	f->direct_align = NVEFS_BLOCK_SIZE;
	f->media.mem_align = NVEFS_BLOCK_SIZE;
#ifdef STATX_DIOALIGN
	struct statx stx;

	if (!statx(f->direct_fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) &&
	    stx.stx_mask & STATX_DIOALIGN && stx.stx_dio_offset_align) {
		f->direct_align = stx.stx_dio_offset_align;
		f->media.mem_align = stx.stx_dio_mem_align;
	}
#endif
}

static void open_direct(struct file *f, bool rdonly)
{
	char self[64];

	f->media.mem_align = 1;
	/* By descriptor, not by name: a name may mean another file by now. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
	f->direct_fd = open(self, (rdonly ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_DIRECT);
	if (f->direct_fd < 0)
		return;
	direct_alignment(f);
	if (f->direct_align <= NVEFS_BLOCK_SIZE && f->media.mem_align <= NVEFS_BLOCK_SIZE &&
	    probe_direct(f->direct_fd))
		return;
	close(f->direct_fd);
	f->direct_fd = -1;
	f->media.mem_align = 1;
}

/* Punching beyond the end changes nothing and tells whether the file system can. */
static bool probe_punch(const struct file *f)
{
	struct stat st;

	return !fstat(f->fd, &st) &&
	       !fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (st.st_size + NVEFS_BLOCK_SIZE) & ~(off_t)(NVEFS_BLOCK_SIZE - 1),
			  NVEFS_BLOCK_SIZE);
}

/* The same file answers with the same identity, whatever its name is. */
static void set_identity(struct file *f)
{
	struct statx stx;
	uint64_t id[3], half[2];

	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &stx))
		return;
	id[0] = stx.stx_ino;
	id[1] = stx.stx_mask & STATX_BTIME ? (uint64_t)stx.stx_btime.tv_sec : 0;
	id[2] = stx.stx_mask & STATX_BTIME ? stx.stx_btime.tv_nsec : 0;
	half[0] = nvefs_hash(id, sizeof(id), 0);
	half[1] = nvefs_hash(id, sizeof(id), 1);
	memcpy(f->media.nguid, half, sizeof(f->media.nguid));
}

int nvefs_media_file_open(const char *path, const struct nvefs_media_file_opts *opts,
			  struct nvefs_media **ret_media, struct nvefs_error *err)
{
	struct file *f = calloc(1, sizeof(*f));
	bool rdonly = opts->flags & NVEFS_OPEN_RDONLY;
	int code;

	if (!f)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", path);
	f->fd = f->direct_fd = -1;
	f->media.ops = &file_ops;
	f->media.read_only = rdonly;
	code = open_locked(f, path, opts->flags, err);
	if (!code)
		code = set_size(f, path, opts, err);
	if (code) {
		if (f->created)
			unlink(path);
		file_close(&f->media);
		return code;
	}
	open_direct(f, rdonly);
	f->media.can_deallocate = !rdonly && probe_punch(f);
	set_identity(f);
	snprintf(f->media.text, sizeof(f->media.text), "file, %s I/O%s",
		 f->direct_fd >= 0 ? "direct" : "buffered",
		 rdonly || f->media.can_deallocate ? "" : ", no hole punching");
	*ret_media = &f->media;
	return 0;
}
