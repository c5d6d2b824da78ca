/* SPDX-License-Identifier: MIT */
/*
 * A fuzz program is one target, which defines these, linked with replay.c or with
 * libfuzzer.c. Whatever the input is, the code under test must not crash, hang,
 * trip a sanitizer or break a promise that the target knows of.
 */
#ifndef NVEFS_FUZZ_TARGET_H
#define NVEFS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define FUZZ_INPUT_MAX 8192u

extern const char fuzz_name[];
/* Aborts when a promise is broken. 1 when it took the input for sound, else 0. */
int fuzz_one(const uint8_t *data, size_t size);
/* A sound input; returns its length, 0 when there is none with this number. */
size_t fuzz_seed(unsigned int number, uint8_t *ret_input);

/* Also without assertions compiled in. */
#define PROMISE(c)                                                                                 \
	do {                                                                                       \
		if (!(c)) {                                                                        \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #c);      \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
