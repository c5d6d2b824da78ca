/* SPDX-License-Identifier: MIT */
/*
 * What a store must hold: random items and data blocks of one thread, and which
 * transaction put each there, so that the content as of any transaction can be told.
 */
#ifndef TESTS_CRASH_STORE_MODEL_H
#define TESTS_CRASH_STORE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "store/alloc.h"
#include "store/store.h"
#include "store/tree.h"

#define MODEL_SLOTS 1500u

struct model_op {
	uint64_t txn;
	uint64_t seed; /* of the new content; 0: removed */
	uint32_t slot;
};

struct model {
	uint32_t id;
	uint64_t base[MODEL_SLOTS]; /* before all ops */
	struct model_op *ops;
	uint32_t nops, cap;
	/* While running. */
	uint64_t now[MODEL_SLOTS];
	struct nvefs_alloc_cursor cursor;
	unsigned int rand;
	uint64_t next_seed;
	uint32_t steps;
};

void model_init(struct model *m, uint32_t id, unsigned int seed);
void model_done(struct model *m);
/* One random transaction. 0 or -errno. */
int model_step(struct model *m, struct nvefs_store *st, struct nvefs_queue *q);
/* Contents as of transaction `txn`. */
void model_at(const struct model *m, uint64_t txn, uint64_t *ret_seeds);

/*
 * Compare the store with seeds[]. 0, -EUCLEAN or -EIO as the store says, or 1
 * with *ret_why: it answers, and wrongly. `data`: data blocks, too; *ret_blks
 * counts these.
 */
int model_check(const struct model *m, struct nvefs_store *st, struct nvefs_queue *q,
		const uint64_t *seeds, bool data, uint64_t *ret_blks, char *ret_why, uint32_t len);

#endif
