/* SPDX-License-Identifier: MIT */
/*
 * The session with the kernel: mount, agree on the protocol, detach.
 *
 * libfuse writes its replies through our function, because a reply belongs to
 * the descriptor that the request was read from and each server has its own.
 */
#include "fuse/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"

#define INIT_TIMEOUT_MS 10000
#define INIT_BYTES (64u << 10)

static _Thread_local int reply_fd = -1;

void nvefs_reply_fd_set(int fd)
{
	reply_fd = fd;
}

/* ---- Capabilities ---- */

static void want(struct fuse_conn_info *conn, uint64_t cap, bool on)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	if (!on)
		fuse_unset_feature_flag(conn, cap);
	else if (conn->capable_ext & cap)
		fuse_set_feature_flag(conn, cap);
#else
	if (!on)
		conn->want &= (unsigned int)~cap;
	else if (conn->capable & cap)
		conn->want |= (unsigned int)cap;
#endif
}

/*
 * What is on: nobody else writes the device, so names, attributes, pages and
 * links may be cached; the file system keeps ACLs, applies the umask itself
 * (a default ACL overrides it), and clears setuid and setgid when the kernel
 * says so (version 2). What is off: O_TRUNC within open, since a truncation is
 * a request of its own here; version 1 of killpriv, with which the kernel says
 * nothing; invalidation by change time, which only remote writers need;
 * write-back caching; splicing, as the data is wanted in memory.
 */
static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->max_write = NVEFS_MAX_WRITE;
	conn->max_readahead = NVEFS_MAX_WRITE;
	conn->max_background = 1024;
	conn->congestion_threshold = 768;
	conn->time_gran = 1;
	want(conn, FUSE_CAP_ASYNC_READ, true);
	want(conn, FUSE_CAP_ASYNC_DIO, true);
	want(conn, FUSE_CAP_PARALLEL_DIROPS, true);
	want(conn, FUSE_CAP_READDIRPLUS, true);
	want(conn, FUSE_CAP_READDIRPLUS_AUTO, true);
	want(conn, FUSE_CAP_EXPORT_SUPPORT, true);
	want(conn, FUSE_CAP_DONT_MASK, true);
	want(conn, FUSE_CAP_POSIX_ACL, true);
	want(conn, FUSE_CAP_IOCTL_DIR, true);
	want(conn, FUSE_CAP_CACHE_SYMLINKS, true);
	want(conn, FUSE_CAP_ATOMIC_O_TRUNC, false);
	want(conn, FUSE_CAP_AUTO_INVAL_DATA, false);
	want(conn, FUSE_CAP_EXPLICIT_INVAL_DATA, false);
	want(conn, FUSE_CAP_HANDLE_KILLPRIV, false);
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
	want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2, true);
#endif
	want(conn, FUSE_CAP_WRITEBACK_CACHE, false);
	want(conn, FUSE_CAP_SPLICE_READ, false);
	want(conn, FUSE_CAP_SPLICE_WRITE, false);
	want(conn, FUSE_CAP_SPLICE_MOVE, false);
	want(conn, FUSE_CAP_POSIX_LOCKS, false);
	want(conn, FUSE_CAP_FLOCK_LOCKS, false);
}

/* ---- Our own writing and reading for libfuse ---- */

/*
 * The answer to the kernel's first request passes here, too. An older libfuse
 * does not know killpriv version 2, without which the kernel asks for
 * security.capability before each write; the flag is added to its answer, as is the
 * one for FUSE_SETXATTR in the form that raw.c reads.
 */
static ssize_t session_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct nvefs_daemon *d = userdata;

	(void)fd;
	if (d->add_init_flags && count == 2 &&
	    iov[1].iov_len >= offsetof(struct fuse_init_out, max_background)) {
		struct fuse_init_out *out = iov[1].iov_base;

		out->flags |= d->add_init_flags;
		d->add_init_flags = 0;
	}
	return writev(reply_fd, iov, count);
}

static ssize_t session_read(int fd, void *buf, size_t len, void *userdata)
{
	(void)fd;
	(void)userdata;
	return read(reply_fd, buf, len);
}

/* ---- Open and mount ---- */

/* What libfuse said last, for the message about a failed mount. */
static char last_complaint[256];
static bool mounted, detached;

static void log_from_fuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char line[512];
	size_t len;

	vsnprintf(line, sizeof(line), fmt, ap);
	len = strlen(line);
	while (len && line[len - 1] == '\n')
		line[--len] = '\0';
	if (level < FUSE_LOG_DEBUG && !mounted) {
		if (len)
			snprintf(last_complaint, sizeof(last_complaint), ": %.250s",
				 strncmp(line, "fuse: ", 6) == 0 ? line + 6 : line);
		return;
	}
	nvefs_log(level <= FUSE_LOG_ERR	      ? NVEFS_LOG_ERR
		  : level == FUSE_LOG_WARNING ? NVEFS_LOG_WARN
		  : level <= FUSE_LOG_INFO    ? NVEFS_LOG_INFO
					      : NVEFS_LOG_DEBUG,
		  "%s", line);
}

static int session_options(struct nvefs_daemon *d)
{
	struct nvefs_options all = {0}, *o = d->opts;
	int e = 0;

	/* As a kernel file system has it; what the user says comes later and wins. */
	if (d->owner == 0) {
		e = nvefs_options_add(&all, "dev", NULL);
		e = e ? e : nvefs_options_add(&all, "suid", NULL);
		if (!o->fuse_opts || !strstr(o->fuse_opts, "allow_root"))
			e = e ? e : nvefs_options_add(&all, "allow_other", NULL);
	}
	e = e ? e : nvefs_options_add(&all, "default_permissions", NULL);
	if (o->fuse_opts)
		e = e ? e : nvefs_options_add(&all, o->fuse_opts, NULL);
	e = e ? e : nvefs_options_add(&all, "subtype=nvefs", NULL);
	e = e ? e : nvefs_options_add(&all, "fsname", d->source);
	free(o->fuse_opts);
	o->fuse_opts = all.fuse_opts;
	return e;
}

int nvefs_session_open(struct nvefs_daemon *d, struct nvefs_error *err)
{
	struct fuse_lowlevel_ops ops = {.init = op_init};
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	nvefs_ops_names(&ops);
	nvefs_ops_attrs(&ops);
	nvefs_ops_dirs(&ops);
	nvefs_ops_files(&ops);
	nvefs_ops_control(&ops);
	fuse_set_log_func(log_from_fuse);
	if (session_options(d) || fuse_opt_add_arg(&args, "nvefs") || fuse_opt_add_arg(&args, "-o") ||
	    fuse_opt_add_arg(&args, d->opts->fuse_opts) || (d->opts->debug && fuse_opt_add_arg(&args, "-d"))) {
		fuse_opt_free_args(&args);
		return nvefs_error_set(err, -ENOMEM, "out of memory");
	}
	d->se = fuse_session_new(&args, &ops, sizeof(ops), d);
	fuse_opt_free_args(&args);
	if (!d->se)
		return nvefs_error_set(err, -EINVAL, "%s: options '%s'%s", d->mountpoint,
				       d->opts->fuse_opts, last_complaint);
	return 0;
}

/* Answer FUSE_INIT here, so that a mount is reported only when it serves. */
static int handshake(struct nvefs_daemon *d, int fd)
{
	static const struct fuse_custom_io io = {.writev = session_writev, .read = session_read};
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	struct fuse_buf buf = {.mem = malloc(INIT_BYTES + NVEFS_MAX_WRITE)};
	const struct fuse_in_header *in = buf.mem;
	const struct fuse_init_in *init;
	ssize_t n;
	int e;

	if (!buf.mem)
		return -ENOMEM;
	do
		e = poll(&pfd, 1, INIT_TIMEOUT_MS);
	while (e < 0 && errno == EINTR);
	n = e > 0 ? read(fd, buf.mem, INIT_BYTES + NVEFS_MAX_WRITE) : -1;
	if (n < (ssize_t)(sizeof(*in) + offsetof(struct fuse_init_in, flags2)) || in->opcode != FUSE_INIT) {
		e = e == 0 ? -ETIMEDOUT : n < 0 ? -errno : -EPROTO;
		free(buf.mem);
		return e;
	}
	init = (const void *)(in + 1);
	/* Served by raw.c whatever libfuse knows of it. */
	d->setxattr_ext = init->flags & FUSE_SETXATTR_EXT;
	d->add_init_flags = init->flags & FUSE_SETXATTR_EXT;
#ifndef FUSE_CAP_HANDLE_KILLPRIV_V2
	d->add_init_flags |= init->flags & FUSE_HANDLE_KILLPRIV_V2;
#endif
	buf.size = (size_t)n;
	nvefs_log(NVEFS_LOG_DEBUG, "kernel's FUSE protocol %u.%u, flags %#x", init->major, init->minor, init->flags);
	nvefs_reply_fd_set(fd);
	e = fuse_session_custom_io(d->se, &io, fd);
	if (!e) {
		fuse_session_process_buf(d->se, &buf);
		d->add_init_flags = 0;
		e = fuse_session_exited(d->se) ? -EPROTO : 0;
	}
	free(buf.mem);
	return e;
}

int nvefs_session_mount(struct nvefs_daemon *d, struct nvefs_error *err)
{
	int e, fd;

	if (fuse_session_mount(d->se, d->mountpoint))
		return nvefs_error_set(err, -EIO, "%s: cannot mount%s%s", d->mountpoint, last_complaint,
				       access("/dev/fuse", F_OK) ? ": load the kernel's fuse module" : "");
	mounted = true;
	fd = fuse_session_fd(d->se);
	e = handshake(d, fd);
	if (e) {
		nvefs_session_detach(d);
		return nvefs_error_set(err, e, "%s: the kernel and libfuse %s do not agree: %s", d->mountpoint,
				       fuse_pkgversion(), strerror(-e));
	}
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return nvefs_error_set(err, -errno, "%s: fcntl: %s", d->mountpoint, strerror(errno));
	return 0;
}

int nvefs_session_clone(struct nvefs_daemon *d)
{
	uint32_t source = (uint32_t)fuse_session_fd(d->se);
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && ioctl(fd, FUSE_DEV_IOC_CLONE, &source) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	/* Without the right to open it: share one. Slower, nothing else. */
	nvefs_log(NVEFS_LOG_INFO, "/dev/fuse cannot be cloned: %s: queues share one descriptor", strerror(errno));
	fd = fcntl((int)source, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}

/* The kernel has ended the connection: our mount is gone, and what is mounted there now is another's. */
static bool has_ended(const struct nvefs_daemon *d)
{
	struct pollfd pfd = {.fd = fuse_session_fd(d->se)};

	return poll(&pfd, 1, 0) == 1 && pfd.revents & POLLERR;
}

/*
 * As root by umount2(2) itself: libfuse may want umount(8) for it, depending on
 * version and /etc/mtab, and we execute no programs. Others need fusermount3,
 * which libfuse finds.
 */
void nvefs_session_detach(struct nvefs_daemon *d)
{
	if (d->owner) {
		fuse_session_unmount(d->se);
		return;
	}
	if (mounted && !detached && !has_ended(d) && umount2(d->mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW))
		nvefs_log(NVEFS_LOG_ERR, "%s: cannot unmount: %s", d->mountpoint, strerror(errno));
	detached = true;
}

void nvefs_session_close(struct nvefs_daemon *d)
{
	/* With the connection at its end libfuse only gives memory and descriptor back. */
	if (d->se && !d->owner && has_ended(d))
		fuse_session_unmount(d->se);
	if (d->se)
		fuse_session_destroy(d->se);
	d->se = NULL;
}
