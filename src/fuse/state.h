/* SPDX-License-Identifier: MIT */
/*
 * The run file of a mount, by which the umount helper waits for the daemon:
 * /run/nvefs/MAJOR:MINOR of the mounted file system (for ordinary users below
 * /run/user/UID, or in /tmp/nvefs-UID where that is missing). The daemon keeps
 * it locked until its last write is durable, and leaves the outcome in it.
 */
#ifndef NVEFS_FUSE_STATE_H
#define NVEFS_FUSE_STATE_H

#include "fuse/mountinfo.h"

/* Make the file and lock it. Returns a descriptor or -errno. */
int nvefs_state_make(const struct nvefs_mountinfo *mi);
/* Write the outcome and remove the name; the end of the process unlocks it. fd -1 is fine. */
void nvefs_state_end(int fd, const struct nvefs_mountinfo *mi, int result);

/* For the waiting side: open the file. Returns a descriptor or -errno. */
int nvefs_state_open(const struct nvefs_mountinfo *mi);
/* Is the daemon still at work? */
bool nvefs_state_locked(int fd);
/* Does the name still lead to this file? Not when the number has been given to another mount. */
bool nvefs_state_current(int fd, const struct nvefs_mountinfo *mi);
/* 0 and the outcome, once unlocked; -ENODATA when the daemon died without one. */
int nvefs_state_result(int fd, int *ret_result);

#endif
