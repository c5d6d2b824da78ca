/* SPDX-License-Identifier: MIT */
/*
 * Find, verify, share for the blocks of one write, without waiting.
 *
 *	start: blocks that equal an earlier one of the batch are found in memory;
 *	  for the others candidates are looked up and pinned, and their reads
 *	  submitted. Returns 0: all decided (no candidate), or 1: done() follows.
 *	done(): called from nvefs_queue_poll when the last read has completed.
 *	  Records only; the owner's loop then calls
 *	finish: compares and decides.
 *
 * A batch belongs to the thread of its queue and is used again and again. The
 * data of the blocks stays unchanged from start to the end of finish.
 */
#ifndef NVEFS_DEDUP_BATCH_H
#define NVEFS_DEDUP_BATCH_H

#include "dedup/index.h"
#include "store/store.h"

#define NVEFS_DEDUP_BATCH_MAX 1024u

enum nvefs_dedup_verdict {
	NVEFS_DEDUP_UNIQUE, /* store it */
	/*
	 * Equal to block `of` of the batch, which is UNIQUE: when that one has been
	 * written and mapped, pin its pblk for this block (on failure store it).
	 */
	NVEFS_DEDUP_TWIN,
	NVEFS_DEDUP_SHARED, /* equal to block `pblk` on the device, pinned: the reference is the
			       caller's */
};

struct nvefs_dedup_block {
	/* in */
	const void *data; /* 4096 bytes */
	uint64_t fp;
	/* out */
	enum nvefs_dedup_verdict verdict;
	uint32_t of;
	uint64_t pblk;
};

struct nvefs_dedup_read;

struct nvefs_dedup_batch {
	/* set by init, private */
	struct nvefs_store *st;
	struct nvefs_queue *q;
	uint32_t max_blks;
	uint8_t *buf;			/* candidates, in the order of their address */
	struct nvefs_dedup_read *reads; /* candidates, likewise */
	struct nvefs_io *ios;		/* one per run of neighbours */
	uint16_t *table;		/* fingerprint -> block, within the batch */
	uint32_t table_mask;
	/* the owner's, before start */
	struct nvefs_dedup_index *ix;
	struct nvefs_dedup_block *blks;
	uint32_t nblks;
	void (*done)(struct nvefs_dedup_batch *b);
	void *arg;
	/* private */
	uint32_t nreads, inflight;
};

/* For batches of up to max_blks. 0, -EINVAL (above NVEFS_DEDUP_BATCH_MAX), -ENOMEM. */
int nvefs_dedup_batch_init(struct nvefs_dedup_batch *b, struct nvefs_store *st,
			   struct nvefs_queue *q, uint32_t max_blks);
/* Nothing in flight. Harmless on a zeroed one. */
void nvefs_dedup_batch_done(struct nvefs_dedup_batch *b);

/* Under no lock: it may have to read an allocation bitmap (a nested wait on q). */
int nvefs_dedup_batch_start(struct nvefs_dedup_batch *b);
/* After done(). Fills every verdict. */
void nvefs_dedup_batch_finish(struct nvefs_dedup_batch *b);
/* Give the pins of SHARED blocks back that the caller cannot map after all. */
void nvefs_dedup_batch_drop(struct nvefs_dedup_batch *b);

/* Tests only: leave out a step that keeps data right. */
enum nvefs_dedup_mutation {
	NVEFS_DEDUP_MUTATE_NONE,
	NVEFS_DEDUP_MUTATE_NO_COMPARE, /* fingerprints are trusted */
	NVEFS_DEDUP_MUTATE_NO_PIN,     /* the candidate may go while it is compared */
};
extern enum nvefs_dedup_mutation nvefs_dedup_mutation;

#endif
