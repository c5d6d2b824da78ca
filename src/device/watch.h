/* SPDX-License-Identifier: MIT */
/*
 * Ios that a device does not answer: each queue knows its ios in order of submission, and its
 * thread looks at the oldest whenever a timer, set while something is under way and
 * the thread sleeps, lets it. The queue's thread only.
 */
#ifndef NVEFS_DEVICE_WATCH_H
#define NVEFS_DEVICE_WATCH_H

#include "device/backend.h"

/* Nothing but the list is there when nobody asked to be told. 0 or -errno. */
int nvefs_watch_init(struct nvefs_queue *q);
void nvefs_watch_done(struct nvefs_queue *q);
void nvefs_watch_add(struct nvefs_queue *q, struct nvefs_io *io);
void nvefs_watch_del(struct nvefs_queue *q, struct nvefs_io *io);
/* Before sleeping: look if it is time, and see that the queue wakes for the next look. */
void nvefs_watch_prepare_wait(struct nvefs_queue *q);

#endif
