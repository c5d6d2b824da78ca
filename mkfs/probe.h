/* SPDX-License-Identifier: MIT */
/* What is on a target already. Nothing here changes it. */
#ifndef NVEFS_MKFS_PROBE_H
#define NVEFS_MKFS_PROBE_H

#include <nvefs/device.h>

/*
 * Look for a file system, RAID member or partition table in the file or
 * device `path` (as libblkid knows them) and for an nvefs on `dev`, the same
 * target opened. Either may be NULL. `ret_what` gets words for a person when
 * something is there, else an empty string. 0 or -errno.
 */
int nvefs_probe_target(const char *path, struct nvefs_dev *dev, char *ret_what, size_t len,
		       struct nvefs_error *err);

#endif
