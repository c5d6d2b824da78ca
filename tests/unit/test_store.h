/* SPDX-License-Identifier: MIT */
/* What the files of the store test share: a store on a device, and blocks that hold one number. */
#ifndef TEST_STORE_H
#define TEST_STORE_H

#include <check.h>

#include "store/mkfs.h"
#include "store/state.h"

Suite *store_ahead_suite(void);
Suite *store_journal_suite(void);
Suite *store_damage_suite(void);
Suite *store_copies_suite(void);
Suite *store_cache_suite(void);

struct fixture {
	struct nvefs_dev *dev;
	struct nvefs_queue *q; /* the test's own */
	struct nvefs_super sb;
	struct nvefs_store *st;
};

/* A device with a new store, opened and started with `opts` (NULL: defaults). */
void fixture_init(struct fixture *f, const char *uri, const struct nvefs_store_opts *opts);
/* With second copies of metadata; no cells then. */
void fixture_init_dup(struct fixture *f, const char *uri, const struct nvefs_store_opts *opts);
void fixture_open(struct fixture *f, const struct nvefs_store_opts *opts);
/* Open without starting; what nvefs_store_open says. */
int fixture_try_open(struct fixture *f, const struct nvefs_store_opts *opts, struct nvefs_error *err);
/* Orderly: stop and free. */
void fixture_close(struct fixture *f);
/* Nothing more reaches the device, and the store is gone: what is not durable is lost. */
void fixture_crash(struct fixture *f);
void fixture_done(struct fixture *f);

/*
 * "Cells": metadata blocks at addresses that no tree uses, each with one
 * number. A cell belongs to one thread at a time.
 */
#define CELLS 20000u
uint64_t cell_pblk(const struct fixture *f, uint32_t cell);
/* Change cells [first, first + n) to `value` in one transaction. 0 or -errno of nvefs_txn_begin. */
int cells_put(struct fixture *f, struct nvefs_queue *q, uint32_t first, uint32_t n, uint64_t value);
/* The value of a cell, 0 when it was never written. */
uint64_t cell_get(struct fixture *f, struct nvefs_queue *q, uint32_t cell);

struct nvefs_queue *test_queue(struct nvefs_dev *dev);
void device_read(struct fixture *f, uint64_t pblk, void *buf);
void device_write(struct fixture *f, uint64_t pblk, const void *buf);
/* Turn over one byte of a block. */
void device_damage(struct fixture *f, uint64_t pblk, uint32_t byte);

#endif
