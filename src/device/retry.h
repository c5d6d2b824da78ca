/* SPDX-License-Identifier: MIT */
/*
 * Commands that are to be tried again after a while: a bounded number of times, each
 * pause longer than the one before. A controller that is being reset or a path that is
 * changing gets some seconds; a command that the medium failed gets a second
 * chance at once and no third. The queue's thread only.
 */
#ifndef NVEFS_DEVICE_RETRY_H
#define NVEFS_DEVICE_RETRY_H

#include "device/backend.h"

enum nvefs_retry_kind {
	NVEFS_RETRY_NEVER,
	NVEFS_RETRY_ONCE,  /* at once */
	NVEFS_RETRY_PAUSE, /* until it works or the bound is reached: about 8 seconds */
};

struct nvefs_retry { /* in the command's slot; cleared before the first try */
	struct nvefs_list link;
	uint64_t due_ns;
	uint32_t tries;
};

struct nvefs_retries {
	struct nvefs_list waiting; /* by due_ns */
	int timer_fd;
};

/* The queue wakes when a command is due. 0 or -errno. */
int nvefs_retries_init(struct nvefs_retries *r, struct nvefs_queue *q);
void nvefs_retries_done(struct nvefs_retries *r);

/* True: it will come out of nvefs_retries_due. False: it has had its chances. */
bool nvefs_retries_add(struct nvefs_retries *r, struct nvefs_retry *e, enum nvefs_retry_kind kind);
/* The next one that is due, or NULL. */
struct nvefs_retry *nvefs_retries_due(struct nvefs_retries *r);
/* True: none is due and the timer is set for the first. */
bool nvefs_retries_prepare_wait(struct nvefs_retries *r);

/* What a status field of a completion calls for (NVMe base 2.0, 3.3.3.2.1: Do Not Retry). */
enum nvefs_retry_kind nvefs_retry_for_nvme(uint16_t status);
/* What a negative errno of passthrough calls for. */
enum nvefs_retry_kind nvefs_retry_for_errno(int err);

#endif
