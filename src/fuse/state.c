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

static int state_path(const struct nvefs_mountinfo *mi, uid_t uid, bool make, char *ret, size_t size)
{
	char dir[64];

	if (uid == 0)
		snprintf(dir, sizeof(dir), "/run/nvefs");
	else
		snprintf(dir, sizeof(dir), "/run/user/%u/nvefs", (unsigned int)uid);
	if (make && mkdir(dir, 0755) && errno != EEXIST)
		return -errno;
	snprintf(ret, size, "%s/%u:%u", dir, mi->major, mi->minor);
	return 0;
}

int nvefs_state_make(const struct nvefs_mountinfo *mi)
{
	char path[128], text[64];
	int fd, len, err = state_path(mi, geteuid(), true, path, sizeof(path));

	if (err)
		return err;
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

void nvefs_state_end(int fd, const struct nvefs_mountinfo *mi, int result)
{
	char path[128], text[64];
	int len;

	if (fd < 0)
		return;
	len = snprintf(text, sizeof(text), "result %d\n", result);
	/* A lost line reads as a daemon that died, which is the safe side. */
	if (write(fd, text, (size_t)len) == len && state_path(mi, geteuid(), false, path, sizeof(path)) == 0 &&
	    nvefs_state_current(fd, mi))
		unlink(path);
	/* Not closed: the lock ends with the process. */
}

int nvefs_state_open(const struct nvefs_mountinfo *mi)
{
	char path[128];
	int fd, err = state_path(mi, mi->user_id, false, path, sizeof(path));

	if (err)
		return err;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
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
	struct stat ours, named;
	char path[128];

	/* Both sides ask: the daemon runs as the user who mounted. */
	return state_path(mi, mi->user_id, false, path, sizeof(path)) == 0 && fstat(fd, &ours) == 0 &&
	       stat(path, &named) == 0 && ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
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
