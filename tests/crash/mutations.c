/* SPDX-License-Identifier: MIT */
#include "mutations.h"

#include <stdio.h>
#include <string.h>

#include "dedup/batch.h"
#include "store/mutation.h"

static const struct {
	const char *name;
	enum nvefs_mutation store;
	enum nvefs_dedup_mutation dedup;
} table[] = {
    {"no-commit-flush", NVEFS_MUTATE_NO_COMMIT_FLUSH, 0},
    {"no-commit-durable", NVEFS_MUTATE_NO_COMMIT_DURABLE, 0},
    {"commit-first", NVEFS_MUTATE_COMMIT_FIRST, 0},
    {"no-checkpoint-flush", NVEFS_MUTATE_NO_CHECKPOINT_FLUSH, 0},
    {"header-first", NVEFS_MUTATE_HEADER_FIRST, 0},
    {"no-header-flush", NVEFS_MUTATE_NO_HEADER_FLUSH, 0},
    {"no-cancel", NVEFS_MUTATE_NO_CANCEL, 0},
    {"no-meta-tail", NVEFS_MUTATE_NO_META_TAIL, 0},
    {"no-epoch", NVEFS_MUTATE_NO_EPOCH, 0},
    {"no-group-check", NVEFS_MUTATE_NO_GROUP_CHECK, 0},
    {"no-quarantine", NVEFS_MUTATE_NO_QUARANTINE, 0},
    {"reuse-early", NVEFS_MUTATE_REUSE_EARLY, 0},
    {"no-readers", NVEFS_MUTATE_NO_READERS, 0},
    {"no-reread", NVEFS_MUTATE_NO_REREAD, 0},
    {"no-readers-no-reread", NVEFS_MUTATE_NO_READERS_REREAD, 0},
    {"discard-early", NVEFS_MUTATE_DISCARD_EARLY, 0},
    {"no-pin", NVEFS_MUTATE_NO_PIN, 0},
    {"remap-early", NVEFS_MUTATE_REMAP_EARLY, 0},
    {"fold-commits", NVEFS_MUTATE_FOLD_COMMITS, 0},
    {"fold-order", NVEFS_MUTATE_FOLD_ORDER, 0},
    {"dedup-no-pin", 0, NVEFS_DEDUP_MUTATE_NO_PIN},
    {"dedup-no-compare", 0, NVEFS_DEDUP_MUTATE_NO_COMPARE},
};

bool mutation_set(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (strcmp(name, table[i].name))
			continue;
		nvefs_store_mutation = table[i].store;
		nvefs_dedup_mutation = table[i].dedup;
		return true;
	}
	fprintf(stderr, "no mutation %s; there are:", name);
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		fprintf(stderr, " %s", table[i].name);
	fprintf(stderr, "\n");
	return false;
}
