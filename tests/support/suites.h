/* SPDX-License-Identifier: MIT */
/* How a program of Check suites ends. */
#ifndef NVEFS_TESTS_SUITES_H
#define NVEFS_TESTS_SUITES_H

#include <check.h>

/*
 * Runs first and the suites behind it, up to NULL, in one go: each test in a process of its own, unless
 * the environment has CK_FORK=no. Frees them. Returns main's value: 0, or 1 when a check failed.
 */
int run_suites(Suite *first, ...) __attribute__((sentinel));

/* The same, all in this process. */
int run_suites_nofork(Suite *first, ...) __attribute__((sentinel));

#endif
