/* SPDX-License-Identifier: MIT */
/*
 * From a recording: the states in which a power cut could have left the
 * medium, each handed out as a device of its own.
 *
 * A cut at event k means that exactly the first k events happened. Then
 * - a write is durable when it completed before a Flush was submitted that has completed, when it
 *   has FUA and completed, or when the device has no volatile cache and it completed;
 * - every other write handed over before the cut, completed or not, is absent,
 *   whole, or torn at LBA granularity, whatever became of the others;
 * - the same holds for Write Zeroes, and for discards, whose blocks hold
 *   NVEFS_REPLAY_DISCARDED bytes where they took place.
 * A later write of an LBA that is there hides an earlier one.
 *
 * Few uncertain commands are enumerated in all combinations, and a few torn
 * ones are added; more are sampled by the seed. A replay belongs to one
 * thread; the devices it hands out do not.
 */
#ifndef NVEFS_DEVICE_REPLAY_H
#define NVEFS_DEVICE_REPLAY_H

#include "device/record.h"

#define NVEFS_REPLAY_DISCARDED 0xd5

struct nvefs_replay;
struct nvefs_replay_opts {
	uint32_t
	    exhaustive;	  /* up to that many uncertain commands: all combinations (6; at most 16) */
	uint32_t torn;	  /* states with torn commands beside them (4) */
	uint32_t samples; /* states when there are more (24) */
	uint64_t seed;
};
extern const struct nvefs_replay_opts nvefs_replay_defaults;

/* The log outlives the replay. -EOVERFLOW when the recording ended early. `opts` NULL: defaults. */
int nvefs_replay_new(const struct nvefs_record *log, const struct nvefs_replay_opts *opts,
		     struct nvefs_replay **ret_replay);
void nvefs_replay_free(struct nvefs_replay *r);

/* The number of events, which is the last cut. */
uint32_t nvefs_replay_end(const struct nvefs_replay *r);
/* Go to a cut. No device that was handed out is open. 0 or -errno. */
int nvefs_replay_seek(struct nvefs_replay *r, uint32_t cut);
/*
 * Go to the next cut worth a look: the last one before the set of possible
 * states changes, so that every state is seen together with all that had been acknowledged
 * by then. The first call goes to the first. 1; 0 at the end; or -errno.
 */
int nvefs_replay_next(struct nvefs_replay *r);
uint32_t nvefs_replay_cut(const struct nvefs_replay *r);

/* At this cut. */
uint32_t nvefs_replay_nuncertain(const struct nvefs_replay *r);
uint32_t nvefs_replay_nstates(const struct nvefs_replay *r);
/*
 * A fresh device in that state, with the recorded device's LBA size and cache;
 * what is written to it stays in it. Several may be open, and each is closed before
 * the next seek. 0 or -errno.
 */
int nvefs_replay_open(struct nvefs_replay *r, uint32_t state, struct nvefs_dev **ret_dev);
/*
 * The same in two steps, for many states. The first puts the contents of the state into
 * `to`, a layer over nvefs_replay_image that has been reset or was never used;
 * the second makes a device of a layer, which stays the caller's and outlives it.
 */
int nvefs_replay_build(struct nvefs_replay *r, uint32_t state, struct nvefs_cow *to);
const struct nvefs_cow *nvefs_replay_image(const struct nvefs_replay *r);
int nvefs_replay_device(const struct nvefs_replay *r, struct nvefs_cow *state,
			struct nvefs_dev **ret_dev);
/* What was lost in it, for a failure message: enough to build it again. */
void nvefs_replay_describe(const struct nvefs_replay *r, uint32_t state, char *buf, size_t len);

/*
 * Call `fn` with every state of every cut worth a look; it closes the device.
 * Ends early with what fn returns when that is not 0. *ret_nstates may be NULL.
 */
typedef int nvefs_replay_fn(struct nvefs_dev *dev, const struct nvefs_replay *r, uint32_t state,
			    void *arg);
int nvefs_replay_each(struct nvefs_replay *r, nvefs_replay_fn *fn, void *arg,
		      uint64_t *ret_nstates);

#endif
