/* SPDX-License-Identifier: MIT */
/* The steps that can be left out, by name. */
#ifndef NVEFS_TESTS_MUTATIONS_H
#define NVEFS_TESTS_MUTATIONS_H

#include <stdbool.h>

/* False: there is none of that name; all names are on stderr then. */
bool mutation_set(const char *name);

#endif
