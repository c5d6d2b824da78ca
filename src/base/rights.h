/* SPDX-License-Identifier: MIT */
/*
 * Giving up rights, for programs that read what a stranger may have written.
 * Nothing here can be undone. Sources: capabilities(7), seccomp(2).
 */
#ifndef NVEFS_BASE_RIGHTS_H
#define NVEFS_BASE_RIGHTS_H

#include <stdbool.h>

/*
 * The calling thread, and those that it starts from now on, keep no capability,
 * or with `mounter` those that umount2(2) of any path takes (CAP_SYS_ADMIN,
 * CAP_DAC_READ_SEARCH); the bounding set is emptied. Other threads stay as they
 * are. Nothing happens to a thread without capabilities. 0 or -errno.
 */
int nvefs_rights_reduce(bool mounter);

/*
 * All threads of the process: no program is executed any more, no privilege
 * gained, and system calls that nvefs never makes (tracing, loading into the
 * kernel, name spaces, other socket families than AF_UNIX ...) fail with EPERM.
 * -errno when the kernel does not offer it: then nothing has changed.
 */
int nvefs_rights_seal(void);

#endif
