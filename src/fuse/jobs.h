/* SPDX-License-Identifier: MIT */
/*
 * Long work on behalf of the control channel, each in a thread with a worker
 * of its own, so that no server waits for it: scrub, and trim. At most one of
 * each at a time.
 */
#ifndef NVEFS_FUSE_JOBS_H
#define NVEFS_FUSE_JOBS_H

#include <linux/fs.h>

#include "fuse/daemon.h"

#define NVEFS_SCRUB_EVENTS_MAX 4096u

struct nvefs_damage {
	char *path; /* owned */
	uint64_t ino, lblk, pblk;
	int err;
};

struct nvefs_scrub_state {
	bool ran, running;
	int err; /* of the run as a whole */
	uint64_t done_blks, total_blks;
	uint64_t bad_copies; /* of metadata: the other one was good */
	uint64_t damaged; /* all of them; only the first NVEFS_SCRUB_EVENTS_MAX are kept */
	uint32_t nkept;
};

int nvefs_jobs_new(struct nvefs_daemon *d, struct nvefs_jobs **ret_jobs);
/* Stops what runs and waits for it. NULL is fine. */
void nvefs_jobs_free(struct nvefs_jobs *j);

/* -EALREADY when one runs. The damage of the run before is forgotten. */
int nvefs_jobs_scrub_start(struct nvefs_jobs *j);
void nvefs_jobs_scrub_stop(struct nvefs_jobs *j);
void nvefs_jobs_scrub_state(struct nvefs_jobs *j, struct nvefs_scrub_state *ret);
/* Calls fn for kept damage from number `first` on until it returns false; under the lock of the jobs. */
void nvefs_jobs_scrub_events(struct nvefs_jobs *j, uint64_t first,
			     bool (*fn)(void *arg, const struct nvefs_damage *damage), void *arg);

/* Answers `req` when done, through this thread's reply descriptor. -EBUSY: one runs; then nothing is answered. */
int nvefs_jobs_trim(struct nvefs_jobs *j, fuse_req_t req, const struct fstrim_range *range, int fuse_fd);

#endif
