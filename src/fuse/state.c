/* SPDX-License-Identifier: MIT */
#include "fuse/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NPLACES 2 /* where a run file may lie: ordinary users without a login session have no run directory */

/* Directory and path of a run file; false when this user has no such place. */
static bool state_path(const struct nvefs_mountinfo *mi, uid_t uid, int place, char dir[64], char ret[128])
{
	if (uid == 0 && place == 0)
		snprintf(dir, 64, "/run/nvefs");
	else if (uid && place == 0)
		snprintf(dir, 64, "/run/user/%u/nvefs", (unsigned int)uid);
	else if (uid)
		snprintf(dir, 64, "/tmp/nvefs-%u", (unsigned int)uid);
	else
		return false;
	snprintf(ret, 128, "%s/%u:%u", dir, mi->major, mi->minor);
	return true;
}

/* Below /tmp anybody can have made it first, so it counts only when it is the user's own. */
static int dir_check(const char *dir, uid_t uid)
{
	struct stat st;

	if (lstat(dir, &st))
		return -errno;
	return S_ISDIR(st.st_mode) && st.st_uid == uid && !(st.st_mode & (S_IWGRP | S_IWOTH)) ? 0 : -EPERM;
}

/* The path of the run file which is this open one; false when no name leads to it any more. */
static bool state_name(int fd, const struct nvefs_mountinfo *mi, uid_t uid, char path[128])
{
	struct stat ours, named;
	char dir[64];

	for (int place = 0; place < NPLACES; place++)
		if (state_path(mi, uid, place, dir, path) && fstat(fd, &ours) == 0 && lstat(path, &named) == 0 &&
		    ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
			return true;
	return false;
}

static int state_create(const char *path)
{
	char text[64];
	int fd, len, err;

	/* A file of this name belongs to a daemon that died, or that still writes out an earlier mount. */
	if (unlink(path) && errno != ENOENT)
		return -errno;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;
	len = snprintf(text, sizeof(text), "pid %ld\n", (long)getpid());
	if (flock(fd, LOCK_EX | LOCK_NB) || write(fd, text, (size_t)len) != len) {
		err = errno ? -errno : -EIO;
		unlink(path);
		close(fd);
		return err;
	}
	return fd;
}

int nvefs_state_make(const struct nvefs_mountinfo *mi)
{
	char dir[64], path[128];
	int fd = -ENOENT;

	for (int place = 0; place < NPLACES && fd < 0; place++) {
		if (!state_path(mi, geteuid(), place, dir, path))
			continue;
		if (mkdir(dir, 0755) && errno != EEXIST) {
			fd = -errno;
			continue;
		}
		fd = dir_check(dir, geteuid());
		if (!fd)
			fd = state_create(path);
	}
	return fd;
}

void nvefs_state_end(int fd, const struct nvefs_mountinfo *mi, int result)
{
	char path[128], text[64];
	int len;

	if (fd < 0)
		return;
	len = snprintf(text, sizeof(text), "result %d\n", result);
	/* A lost line reads as a daemon that died, which is the safe side. */
	if (write(fd, text, (size_t)len) == len && state_name(fd, mi, geteuid(), path))
		unlink(path);
	/* Not closed: the lock ends with the process. */
}

int nvefs_state_open(const struct nvefs_mountinfo *mi)
{
	char dir[64], path[128];
	int fd = -ENOENT;

	for (int place = 0; place < NPLACES && fd < 0; place++) {
		if (!state_path(mi, mi->user_id, place, dir, path))
			continue;
		fd = dir_check(dir, mi->user_id);
		if (fd)
			continue;
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			fd = -errno;
	}
	return fd;
}

bool nvefs_state_locked(int fd)
{
	if (flock(fd, LOCK_SH | LOCK_NB))
		return errno == EWOULDBLOCK || errno == EINTR;
	flock(fd, LOCK_UN);
	return false;
}

bool nvefs_state_current(int fd, const struct nvefs_mountinfo *mi)
{
	char path[128];

	/* Both sides ask: the daemon runs as the user who mounted. */
	return state_name(fd, mi, mi->user_id, path);
}

int nvefs_state_result(int fd, int *ret_result)
{
	char text[128];
	const char *p;
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	if (n < 0)
		return -errno;
	text[n] = '\0';
	p = strstr(text, "\nresult ");
	if (!p)
		return -ENODATA;
	*ret_result = atoi(p + strlen("\nresult "));
	return 0;
}
