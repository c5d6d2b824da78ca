/* SPDX-License-Identifier: MIT */
/*
 * Commands that are to be tried again after a while: a bounded number of times, each
 * pause longer than the one before. A controller that is being reset or a path that is
 * changing gets some seconds; a command that the medium failed gets a second
 * chance at once and no third. When the controller itself says how long to wait
 * (CRD), that is done, as long as a minute in all is enough. The queue's thread only.
 */
#ifndef NVEFS_DEVICE_RETRY_H
#define NVEFS_DEVICE_RETRY_H

#include "device/backend.h"

enum nvefs_retry_kind {
	NVEFS_RETRY_NEVER,
	NVEFS_RETRY_ONCE,  /* at once */
	NVEFS_RETRY_PAUSE, /* until it works or the bound is reached: about 8 seconds */
};

struct nvefs_retry { /* in the command's slot */
	struct nvefs_list link;
	uint64_t due_ns, waited_ns;
	uint32_t tries;
	bool in_doubt; /* of one try nobody knows whether it is still to be carried out */
};
static inline void nvefs_retry_begin(struct nvefs_retry *e) /* before the first try */
{
	e->tries = 0;
	e->waited_ns = 0;
	e->in_doubt = false;
}

/* What a command calls for after its last try. */
struct nvefs_retry_want {
	enum nvefs_retry_kind kind;
	uint64_t delay_ns; /* by the controller's own word; 0: it said none */
};

struct nvefs_retries {
	struct nvefs_list waiting; /* by due_ns */
	int timer_fd;
};

/* The queue wakes when a command is due. 0 or -errno. */
int nvefs_retries_init(struct nvefs_retries *r, struct nvefs_queue *q);
void nvefs_retries_done(struct nvefs_retries *r);

/* True: it will come out of nvefs_retries_due. False: it has had its chances. */
bool nvefs_retries_add(struct nvefs_retries *r, struct nvefs_retry *e, struct nvefs_retry_want want);
/*
 * What the command ends with when the last try ended with `err`: a failure is -ETIMEDOUT when one of the
 * tries is in doubt. A success is one: the kernel gives a command up after it has stopped the controller
 * (NVMe) or has had the unit abort it (SCSI), so that an earlier try does not come after a later one.
 */
int nvefs_retry_result(const struct nvefs_retry *e, int err);
/* The next one that is due, or NULL. */
struct nvefs_retry *nvefs_retries_due(struct nvefs_retries *r);
/* True: none is due and the timer is set for the first. */
bool nvefs_retries_prepare_wait(struct nvefs_retries *r);

/* Whether there is another try, after *ret_pause_ns; counts it. For those who wait by themselves. */
bool nvefs_retry_next(struct nvefs_retry *e, struct nvefs_retry_want want, uint64_t *ret_pause_ns);

/* What a status field of a completion calls for (NVMe base 2.0, 3.3.3.2.1: Do Not Retry). */
enum nvefs_retry_kind nvefs_retry_for_nvme(uint16_t status);
/* What a negative errno of passthrough calls for. */
enum nvefs_retry_kind nvefs_retry_for_errno(int err);
/*
 * The same for what passthrough gives: 0, a status field, or a negative errno. A status
 * with CRD names one of the controller's three times, in `crdt_ms`; 0 ms is none.
 */
struct nvefs_retry_want nvefs_retry_for_result(int res, const uint32_t crdt_ms[3]);

#endif
