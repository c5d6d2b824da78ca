/* SPDX-License-Identifier: MIT */
/*
 * One fuzz target for all decoders of the disk format. The first byte of the
 * input chooses the decoder, the rest is what it reads. Metadata blocks get a
 * good checksum first: an accident seldom has one, an attacker always.
 */
#ifndef NVEFS_FUZZ_FORMAT_TARGET_H
#define NVEFS_FUZZ_FORMAT_TARGET_H

#include "target.h"

enum fuzz_format {
	FUZZ_SUPER,
	FUZZ_ROOT,
	FUZZ_NODE,
	FUZZ_JHEADER,
	FUZZ_JDESC,
	FUZZ_JCOMMIT,
	FUZZ_INODE,
	FUZZ_MAP,
	FUZZ_DIRENT,
	FUZZ_XATTR,
	FUZZ_ITEM,
	FUZZ_MMP, /* a block again: the numbers before are in the corpus */
	FUZZ_FORMATS
};

#endif
