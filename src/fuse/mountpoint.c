/* SPDX-License-Identifier: MIT */
#include "fuse/mountpoint.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "fuse/state.h"

/*
 * Is it one of ours without a daemon? stat(2) may be answered from the kernel's
 * memory for a day, so the run file is asked; without one statfs(2), which
 * always goes to the daemon.
 */
static bool is_dead(const char *path, const struct nvefs_mountinfo *mi)
{
	struct statfs fs;
	int fd = nvefs_state_open(mi);
	bool locked;

	if (fd < 0)
		return statfs(path, &fs) && errno == ENOTCONN;
	locked = nvefs_state_locked(fd);
	close(fd);
	return !locked;
}

static int clear_dead(const char *path, const char *full, struct nvefs_error *err)
{
	struct nvefs_mountinfo mi;
	int e;

	/* Bounded: each round takes one dead mount away. */
	for (int round = 0; round < 16; round++) {
		if (nvefs_mountinfo_find(full, &mi) || strcmp(mi.fstype, NVEFS_FSTYPE) != 0 || !is_dead(full, &mi))
			return 0;
		e = nvefs_mountpoint_detach(full, MNT_DETACH);
		if (e)
			return nvefs_error_set(err, e, "%s: cannot clear the dead mount that is here: %s", path,
					       strerror(-e));
	}
	return 0;
}

int nvefs_mountpoint_prepare(const char *path, char *ret, size_t size, struct nvefs_error *err)
{
	struct stat st;
	int e = nvefs_mountpoint_path(path, ret, size);

	if (!e) {
		e = clear_dead(path, ret, err);
		if (e)
			return e;
		e = stat(ret, &st) ? -errno : 0;
	}
	if (e == -ENOENT)
		return nvefs_error_set(err, e, "%s: the mount point does not exist: make the directory", path);
	if (e == -ENOTCONN)
		return nvefs_error_set(err, e,
				       "%s: the mount point has a mount whose server has died: unmount it first", path);
	if (e)
		return nvefs_error_set(err, e, "%s: the mount point cannot be used: %s", path, strerror(-e));
	if (!S_ISDIR(st.st_mode))
		return nvefs_error_set(err, -ENOTDIR, "%s: the mount point is not a directory", path);
	return 0;
}
