/* SPDX-License-Identifier: MIT */
#ifndef TEST_ALLOC_H
#define TEST_ALLOC_H

#include <check.h>
#include <errno.h>

#include "fake_store.h"

#define Q(f) ((struct nvefs_queue *)(void *)(f))

uint64_t take_one(struct fake *f, struct nvefs_alloc_cursor *c);
/* A block with one tree reference and no other. */
uint64_t make_live(struct fake *f, struct nvefs_alloc_cursor *c);

TCase *test_alloc_life(void);
TCase *test_alloc_place(void);
TCase *test_alloc_random(void);

#endif
