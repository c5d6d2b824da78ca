/* SPDX-License-Identifier: MIT */
#ifndef NVEFS_TEST_FORMAT_H
#define NVEFS_TEST_FORMAT_H

#include <check.h>

#include "format/map.h"
#include "format/super.h"

/* As ck_assert, for hot loops: Check notes each ck_assert, even one that holds, through a pipe. */
#define HOLDS(c)                                                                                   \
	do {                                                                                       \
		if (!(c))                                                                          \
			ck_abort_msg("%s does not hold", #c);                                      \
	} while (0)

void test_super_make(struct nvefs_super *sb, uint64_t dev_blks);
TCase *test_node_tcase(void);

#endif
