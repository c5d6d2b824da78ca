/* SPDX-License-Identifier: MIT */
/*
 * Requests that not every supported libfuse passes on: FUSE_TMPFILE (libfuse
 * 3.17) and FUSE_STATX (3.18), which carries the birth time; and FUSE_SETXATTR in the form with
 * flags of its own (FUSE_SETXATTR_EXT), which no libfuse passes on. They are answered
 * here whatever the library, from <linux/fuse.h>.
 */
#ifndef NVEFS_FUSE_RAW_H
#define NVEFS_FUSE_RAW_H

#include "fuse/daemon.h"

/* True when it was such a request; it has been answered then. */
bool nvefs_raw_serve(struct nvefs_server *s, const void *msg, size_t len);

#endif
