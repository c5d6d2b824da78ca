/* SPDX-License-Identifier: MIT */
/* Tests only: leave out one step of the order that keeps data safe. tests/crash/ shows each missed. */
#ifndef NVEFS_STORE_MUTATION_H
#define NVEFS_STORE_MUTATION_H

#include <stdbool.h>

enum nvefs_mutation {
	NVEFS_MUTATE_NONE,
	NVEFS_MUTATE_NO_COMMIT_FLUSH,	  /* before the commit block */
	NVEFS_MUTATE_NO_COMMIT_DURABLE,	  /* of the commit block: neither Flush nor FUA */
	NVEFS_MUTATE_COMMIT_FIRST,	  /* the commit block before what it commits */
	NVEFS_MUTATE_NO_CHECKPOINT_FLUSH, /* before the header moves */
	NVEFS_MUTATE_HEADER_FIRST,	  /* the header before the images are home */
	NVEFS_MUTATE_NO_HEADER_FLUSH,	  /* after the header */
	NVEFS_MUTATE_NO_CANCEL,		  /* images of freed blocks go home, too */
	NVEFS_MUTATE_NO_META_TAIL,	  /* freed metadata need not leave the journal */
	NVEFS_MUTATE_NO_EPOCH,		  /* recovery keeps the epoch */
	NVEFS_MUTATE_NO_GROUP_CHECK,	  /* recovery takes groups unverified */
	NVEFS_MUTATE_NO_QUARANTINE,	  /* freed blocks are used again at once */
	NVEFS_MUTATE_REUSE_EARLY,	  /* ... before what freed them is durable */
	NVEFS_MUTATE_NO_READERS,	  /* ... while somebody still reads them */
	NVEFS_MUTATE_NO_REREAD,		  /* a block that fails its checksum is not looked up anew */
	NVEFS_MUTATE_NO_READERS_REREAD,	  /* both */
	NVEFS_MUTATE_DISCARD_EARLY,	  /* freed blocks are discarded before it is durable */
	NVEFS_MUTATE_NO_PIN,		  /* a reference in memory does not keep a block */
	NVEFS_MUTATE_REMAP_EARLY,	  /* a block is mapped before it has been written */
	NVEFS_MUTATE_FOLD_COMMITS,	  /* no step left out: small folds, and a commit between any two */
	NVEFS_MUTATE_FOLD_ORDER,	  /* the same, and windows are folded from the end */
};
extern enum nvefs_mutation nvefs_store_mutation;

static inline bool nvefs_mutated(enum nvefs_mutation m)
{
	return __builtin_expect(nvefs_store_mutation == m, 0);
}

struct nvefs_store;
/* With FOLD_COMMITS or FOLD_ORDER: commit now. No lock held. 0 or -EIO. */
int nvefs_mutation_commit(struct nvefs_store *st);
static inline bool nvefs_mutation_commits(void)
{
	return nvefs_mutated(NVEFS_MUTATE_FOLD_COMMITS) || nvefs_mutated(NVEFS_MUTATE_FOLD_ORDER);
}

#endif
