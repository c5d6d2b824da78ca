/* SPDX-License-Identifier: MIT */
/*
 * For LD_PRELOAD: lets a program that speaks SG_IO talk to the translation over
 * any target. $NVEFS_SHIM_TARGET is the target, $NVEFS_SHIM_NODE the path that
 * stands for it, which need not exist: the program is told that it is a sg node.
 *
 * One descriptor is the device's at a time; more opens of the node share it. All calls come from
 * one thread, or from one after the other under the lock here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "device/scsi_route.h"

#define SG_MAJOR 21
#define MAX_FDS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvefs_dev *dev;
static struct nvefs_queue *queue;
static int fds[MAX_FDS], nfds;
static __thread int inside; /* our own library's calls go through */

static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static bool is_node(const char *path)
{
	const char *node = getenv("NVEFS_SHIM_NODE");

	return !inside && node && path && !strcmp(path, node);
}

static bool is_ours(int fd)
{
	for (int i = 0; i < nfds; i++)
		if (fds[i] == fd)
			return true;
	return false;
}

static int dev_open(void)
{
	struct nvefs_dev_open_opts opts = {.route = NVEFS_ROUTE_SCSI};
	struct nvefs_error err = {""};
	int code;

	if (dev)
		return 0;
	code = nvefs_dev_open(getenv("NVEFS_SHIM_TARGET"), &opts, &dev, &err);
	if (!code)
		code = nvefs_queue_init(dev, 0, &queue);
	if (code) {
		fprintf(stderr, "shim: %s: %s\n", err.text, strerror(-code));
		nvefs_dev_close(dev);
		dev = NULL;
	}
	return code;
}

static int node_open(void)
{
	int fd = -1, code;

	pthread_mutex_lock(&lock);
	inside++;
	code = nfds == MAX_FDS ? -EMFILE : dev_open();
	if (!code) {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		fds[nfds++] = fd;
	}
	inside--;
	pthread_mutex_unlock(&lock);
	errno = code ? -code : errno;
	return fd;
}

int open(const char *path, int flags, ...);
int open64(const char *path, int flags, ...);

#define OPEN(name)                                                                                 \
	int name(const char *path, int flags, ...)                                                 \
	{                                                                                          \
		int (*next)(const char *, int, ...) = real(#name);                                 \
		va_list ap;                                                                        \
		int mode;                                                                          \
                                                                                                   \
		if (is_node(path))                                                                 \
			return node_open();                                                        \
		va_start(ap, flags);                                                               \
		mode = va_arg(ap, int);                                                            \
		va_end(ap);                                                                        \
		return next(path, flags, mode);                                                    \
	}
OPEN(open)
OPEN(open64)

/* What a fortified program calls. */
#define OPEN_2(name)                                                                               \
	int name(const char *path, int flags);                                                     \
	int name(const char *path, int flags)                                                      \
	{                                                                                          \
		int (*next)(const char *, int) = real(#name);                                      \
                                                                                                   \
		return is_node(path) ? node_open() : next(path, flags);                            \
	}
OPEN_2(__open_2)
OPEN_2(__open64_2)

int close(int fd)
{
	int (*next)(int) = real("close");

	if (inside)
		return next(fd);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < nfds; i++) {
		if (fds[i] != fd)
			continue;
		fds[i] = fds[--nfds];
		if (!nfds) {
			inside++;
			nvefs_queue_done(queue);
			nvefs_dev_close(dev);
			dev = NULL;
			inside--;
		}
		break;
	}
	pthread_mutex_unlock(&lock);
	return next(fd);
}

static int answer(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

/* What a sg node answers beside SG_IO (linux/sg.h). */
static int other_ioctl(unsigned long request, void *arg)
{
	switch (request) {
	case SG_GET_VERSION_NUM:
		*(int *)arg = 30536;
		return 0;
	case SG_GET_TIMEOUT:
		return 6000;
	case SG_SET_TIMEOUT:
	case SG_SET_RESERVED_SIZE:
		return 0;
	case SG_GET_RESERVED_SIZE:
		*(int *)arg = 128 << 10;
		return 0;
	case SG_GET_SCSI_ID:
		memset(arg, 0, sizeof(struct sg_scsi_id));
		return 0;
	default:
		return -ENOTTY;
	}
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, void *) = real("ioctl");
	va_list ap;
	void *arg;
	int ret;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (inside || !is_ours(fd))
		return next(fd, request, arg);
	pthread_mutex_lock(&lock);
	inside++;
	if (request == SG_IO)
		ret = nvefs_scsi_route_sg_io(queue, arg);
	else
		ret = other_ioctl(request, arg);
	inside--;
	pthread_mutex_unlock(&lock);
	return ret < 0 ? answer(ret) : ret;
}

int access(const char *path, int mode)
{
	int (*next)(const char *, int) = real("access");

	return is_node(path) ? 0 : next(path, mode);
}

static void sg_stat(struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_mode = S_IFCHR | 0600;
	st->st_rdev = makedev(SG_MAJOR, 0);
}

/* On 64-bit machines the two forms are one. */
#define STAT(name, st_type)                                                                        \
	int name(const char *restrict path, struct st_type *restrict st)                           \
	{                                                                                          \
		int (*next)(const char *, struct st_type *) = real(#name);                         \
                                                                                                   \
		if (!is_node(path))                                                                \
			return next(path, st);                                                     \
		sg_stat((struct stat *)(void *)st);                                                \
		return 0;                                                                          \
	}
#define FSTAT(name, st_type)                                                                       \
	int name(int fd, struct st_type *st)                                                       \
	{                                                                                          \
		int (*next)(int, struct st_type *) = real(#name);                                  \
                                                                                                   \
		if (inside || !is_ours(fd))                                                        \
			return next(fd, st);                                                       \
		sg_stat((struct stat *)(void *)st);                                                \
		return 0;                                                                          \
	}
STAT(stat, stat)
STAT(stat64, stat64)
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)
