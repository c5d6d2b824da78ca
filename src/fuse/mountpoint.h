/* SPDX-License-Identifier: MIT */
#ifndef NVEFS_FUSE_MOUNTPOINT_H
#define NVEFS_FUSE_MOUNTPOINT_H

#include <nvefs/device.h>

/*
 * The absolute path of a place to mount on: it must be a directory. Mounts of
 * ours on it whose daemon has died are taken away first. 0 or -errno.
 */
int nvefs_mountpoint_prepare(const char *path, char *ret, size_t size, struct nvefs_error *err);

#endif
