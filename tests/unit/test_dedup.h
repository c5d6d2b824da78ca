/* SPDX-License-Identifier: MIT */
#ifndef TEST_DEDUP_H
#define TEST_DEDUP_H

#include <check.h>

TCase *test_dedup_batch(void);

#endif
