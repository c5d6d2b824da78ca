/* SPDX-License-Identifier: MIT */
/*
 * The drive's health for the control channel. The drive is asked by a thread of its
 * own, which may have to wait for it, so that no server does. Who asks while it is
 * being asked gets the next answer.
 */
#ifndef NVEFS_FUSE_HEALTH_H
#define NVEFS_FUSE_HEALTH_H

#include "fuse/daemon.h"

#define NVEFS_HEALTH_WAITING_MAX 16u

struct nvefs_health;

/* `answer` is called in the thread: err 0 and JSON, or a negative errno and why. Text is its own to free. */
typedef void nvefs_health_answer_fn(fuse_req_t req, int err, char *text);

int nvefs_health_new(struct nvefs_daemon *d, nvefs_health_answer_fn *answer, struct nvefs_health **ret);
/* Who waits is answered first. NULL is fine. */
void nvefs_health_free(struct nvefs_health *h);
/* `fuse_fd` is where the answer goes. -EBUSY: so many wait already; then nothing is answered. */
int nvefs_health_ask(struct nvefs_health *h, fuse_req_t req, int fuse_fd);

#endif
