/* SPDX-License-Identifier: MIT */
/*
 * In a program with steady.c the wall clock stands still and random bytes are always
 * the same ones, so that equal operations leave equal media, which can be told by
 * their hash. The monotonic clock goes on.
 */
#ifndef NVEFS_TESTS_STEADY_H
#define NVEFS_TESTS_STEADY_H

#include <stdint.h>

/* Seconds since 1970 from now on, and the start of the random bytes. */
void steady_set(uint64_t seconds, uint64_t seed);

#endif
