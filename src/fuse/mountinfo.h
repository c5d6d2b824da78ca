/* SPDX-License-Identifier: MIT */
/* What proc(5)'s mountinfo files say, and unmounting. */
#ifndef NVEFS_FUSE_MOUNTINFO_H
#define NVEFS_FUSE_MOUNTINFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVEFS_FSTYPE "fuse.nvefs"

struct nvefs_mountinfo {
	unsigned int major, minor; /* of the mounted file system */
	char mountpoint[4096];
	char fstype[64];
	char source[1024];
	uint32_t user_id; /* FUSE's: who mounted it */
};

/* The topmost mount on this absolute path; -ENOENT when it is none. Touches no file system. */
int nvefs_mountinfo_find(const char *mountpoint, struct nvefs_mountinfo *ret);
/* The latest mount of this source and type fuse.nvefs. */
int nvefs_mountinfo_find_source(const char *source, struct nvefs_mountinfo *ret);
/* Where else a file system is mounted. */
struct nvefs_mount_place {
	char mountpoint[4096]; /* as the process sees it */
	long pid;	       /* a process in whose name space it is; 0: in our own */
	char process[64];      /* its name, as it can be shown */
};
/*
 * Is the file system with this device number mounted anywhere, in our name
 * space or in that of a process whose mounts we may read? Then where, the first that is found.
 */
bool nvefs_mountinfo_has_dev(unsigned int major, unsigned int minor, struct nvefs_mount_place *ret);

/*
 * Is there a FUSE connection of this minor device number? It goes with the last
 * mount of its file system, wherever that is. 1, 0, or -errno when it cannot be told.
 */
int nvefs_mountinfo_connection(unsigned int minor);

/* An absolute path without symbolic links, of a mount point which may be dead. 0 or -errno. */
int nvefs_mountpoint_path(const char *path, char *ret, size_t size);
/*
 * umount2(2), by way of fusermount3 for ordinary users, which says itself what is wrong. flags: MNT_DETACH,
 * MNT_FORCE. 0 or -errno; of fusermount3 -ENOEXEC (it is not installed) or -EPERM.
 */
int nvefs_mountpoint_detach(const char *path, int flags);

#endif
