/* SPDX-License-Identifier: MIT */
/*
 * One fuzz target for all decoders of the disk format. The first byte of the
 * input chooses the decoder, the rest is what it reads. Metadata blocks get a
 * good checksum first: an accident seldom has one, an attacker always.
 */
#ifndef NVEFS_FUZZ_FORMAT_TARGET_H
#define NVEFS_FUZZ_FORMAT_TARGET_H

#include <stddef.h>
#include <stdint.h>

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
	FUZZ_FORMATS
};

/* Aborts when a decoder breaks a promise. True when it took the input for sound. */
int fuzz_format_one(const uint8_t *data, size_t size);

/* A sound input for each kind; returns its length, 0 when there is none with this number. */
#define FUZZ_INPUT_MAX 4097u
size_t fuzz_format_seed(unsigned int number, uint8_t *ret_input);

#endif
