/* SPDX-License-Identifier: MIT */
/* What a metadata block of any type says, judged by itself. Pure. */
#ifndef NVEFS_FORMAT_CONTENT_H
#define NVEFS_FORMAT_CONTENT_H

#include <stdbool.h>

#include "format/super.h"

/*
 * Whether 4096 bytes whose header and checksum are good can be true: a tree node, root block, bitmap or journal
 * header; a block of any other type can. Bounds, level and counts that others tell of it are not looked at.
 */
bool nvefs_content_possible(const struct nvefs_super *sb, const void *block);

#endif
