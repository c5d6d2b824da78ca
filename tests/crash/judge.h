/* SPDX-License-Identifier: MIT */
/*
 * The verdict on a state that a power cut left. In this order, each on a layer of
 * its own over the state, or on what the one before left:
 *
 *	now and then: the check, replaying in memory, finds nothing
 *	now and then: it is mounted for writing, what the past left is finished, it is
 *	  written to, synced, unmounted; then the check finds nothing
 *	now and then: recovery is recorded and cut in its turn
 *	always: it is mounted, which replays the journal; names, attributes, sizes and each byte
 *	  are what the oracle allows
 *	always: the check finds nothing, leaks included
 *
 * A state that is the same, byte for byte, as one that was judged with as much acknowledged is
 * not judged again; of one that another life left only the contents are. After recovery the check
 * is made once for all media that differ in nothing but free blocks and the journal's dead log, neither of which
 * it looks at. Distinct states are counted over all processes that share a table.
 */
#ifndef NVEFS_TESTS_JUDGE_H
#define NVEFS_TESTS_JUDGE_H

#include <nvefs/nvefs.h>

#include "device/replay.h"
#include "oracle.h"

struct judge_counts {
	uint64_t states;   /* enumerated */
	uint64_t judged;   /* not seen before by this process with as much acknowledged */
	uint64_t distinct; /* media that no process had seen */
	uint64_t remounts; /* mounted for writing, too */
	uint64_t checks;   /* made */
	uint64_t recuts;   /* states after a second cut, in recovery */
};

/* Every so manieth state; 0: none. */
struct judge_depth {
	uint32_t precheck, remount, recut;
};

struct judge_seen; /* hashes of media, shared by processes */
struct judge_view;

struct judge {
	const struct oracle *o;
	const struct nvefs_mount_opts *opts; /* of mounts for writing */
	struct judge_depth depth;
	struct judge_seen *seen; /* may be NULL: then judged states count as distinct */
	struct judge_counts n;
	uint64_t deadline_ns;
	char why[1200]; /* of the violation, with the state */
	int err;	/* what it met there */
	/* private */
	struct nvefs_cow *scratch;
	struct judge_view *view;
	struct judge_seen *checked; /* recovered media, without what the check does not look at */
	struct {
		uint64_t hash;
		uint32_t acks, life;
	} *here; /* states of this replay */
	uint32_t life;
};

struct judge_seen *judge_seen_new(void);
/* True when it was not in there. Any process. */
bool judge_seen_add(struct judge_seen *s, uint64_t hash);

int judge_init(struct judge *j, struct judge_seen *seen);
void judge_done(struct judge *j);
/* A new life: its oracle, and the options that it is mounted with. */
void judge_begin(struct judge *j, const struct oracle *o, const struct nvefs_mount_opts *opts);
/* All states of the replay's present cut. False: a violation, j->why tells all. */
bool judge_cut(struct judge *j, struct nvefs_replay *r);

/* What is mounted, as the oracle allows it at a cut; mounted anew from a device, which is taken over,
 * and with `write` used and unmounted; and the check's word on a device, taken over, too. */
bool judge_compare(struct judge *j, struct nvefs_worker *w, uint32_t cut);
bool judge_mount(struct judge *j, struct nvefs_dev *dev, uint32_t cut, bool write);
bool judge_check(struct judge *j, struct nvefs_dev *dev, const char *when);

uint64_t judge_now_ns(void);

#endif
