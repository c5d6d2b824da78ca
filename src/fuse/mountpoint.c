/* SPDX-License-Identifier: MIT */
#include "fuse/mountpoint.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "fuse/mountinfo.h"

int nvefs_mountpoint_prepare(const char *path, char *ret, size_t size, struct nvefs_error *err)
{
	struct nvefs_mountinfo mi;
	struct stat st;
	int e = nvefs_mountpoint_path(path, ret, size);

	/* Bounded: each round takes one dead mount away. */
	for (int round = 0; !e && stat(ret, &st) && round < 16; round++) {
		e = -errno;
		if (e != -ENOTCONN)
			break;
		if (nvefs_mountinfo_find(ret, &mi) || strcmp(mi.fstype, NVEFS_FSTYPE) != 0)
			return nvefs_error_set(err, e,
					       "%s: a mount whose server has died is in the way: unmount it first",
					       path);
		e = nvefs_mountpoint_detach(ret, MNT_DETACH);
		if (e)
			return nvefs_error_set(err, e, "%s: cannot clear the dead mount that is here: %s", path,
					       strerror(-e));
	}
	if (e == -ENOENT)
		return nvefs_error_set(err, e, "%s: the mount point does not exist: make the directory", path);
	if (e)
		return nvefs_error_set(err, e, "%s: the mount point cannot be used: %s", path, strerror(-e));
	if (!S_ISDIR(st.st_mode))
		return nvefs_error_set(err, -ENOTDIR, "%s: the mount point is not a directory", path);
	return 0;
}
