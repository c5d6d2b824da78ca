/* SPDX-License-Identifier: MIT */
/*
 * Threads that make blocking calls for one queue, so that the queue itself
 * stays asynchronous: ioctls of the kernel that return only when a command is
 * done. A job is started and reaped by the queue's thread and run by one of ours.
 */
#ifndef NVEFS_DEVICE_CALLERS_H
#define NVEFS_DEVICE_CALLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct nvefs_job {
	struct nvefs_list link;
};

struct nvefs_callers;

/* `run` is called in a thread of the pool, for one job at a time in each. 0 or -errno. */
int nvefs_callers_new(uint32_t nthreads, void (*run)(struct nvefs_job *job),
		      struct nvefs_callers **ret);
/* No job is under way. NULL is fine. */
void nvefs_callers_free(struct nvefs_callers *c);

/* A descriptor that is readable when jobs are done, once prepare_wait has said true. */
int nvefs_callers_fd(const struct nvefs_callers *c);
void nvefs_callers_start(struct nvefs_callers *c, struct nvefs_job *job);
/* A job that is done, in the order in which they ended; NULL: none is. */
struct nvefs_job *nvefs_callers_reap(struct nvefs_callers *c);
/* True: nothing is done and the descriptor will tell. */
bool nvefs_callers_prepare_wait(struct nvefs_callers *c);

#endif
