/* SPDX-License-Identifier: MIT */
/*
 * What wrappers that pass ios on one by one have in common: a queue on the
 * device below, one slot for each io on its way, and completions held back
 * until a time. The owner thread of the upper queue only.
 */
#ifndef NVEFS_DEVICE_LAYER_H
#define NVEFS_DEVICE_LAYER_H

#include "device/backend.h"

struct nvefs_layer_slot {
	struct nvefs_raw_io lower; /* what goes down: lower.io, raw when its op says so */
	struct nvefs_io *upper;
	struct nvefs_queue *q; /* the upper queue */
	/* Runs when lower.io is done; the default is nvefs_layer_finish. */
	void (*then)(struct nvefs_layer_slot *slot);
	void *buf; /* freed with the slot */
	uint64_t due_ns;
	/* Runs from poll when due_ns has come, in place of the end of the upper io; may be NULL. */
	void (*when_due)(struct nvefs_layer_slot *slot);
	struct nvefs_list link;
	void *extra; /* the wrapper's own, of the size given to nvefs_layer_queue_init */
};

/* For the ops table of a wrapper whose queue priv is the layer's. */
int nvefs_layer_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q, size_t extra_bytes);
void nvefs_layer_queue_done(struct nvefs_queue *q);
void nvefs_layer_poll(struct nvefs_queue *q, uint32_t max);
bool nvefs_layer_prepare_wait(struct nvefs_queue *q);

/* A slot whose lower io is a copy of `io`; NULL when all are on their way: -EAGAIN. */
struct nvefs_layer_slot *nvefs_layer_slot_get(struct nvefs_queue *q, struct nvefs_io *io);
/* Make lower.io read or write the byte range with slot->buf, of whole LBAs; raw where the device
 * below takes it. */
void nvefs_layer_slot_aim(struct nvefs_layer_slot *slot, uint8_t op, uint64_t off, uint64_t len);
/* Make lower.io what the upper io is, again. */
void nvefs_layer_slot_restore(struct nvefs_layer_slot *slot);
/* Wait for due_ns with nothing sent; then when_due runs, from poll. */
void nvefs_layer_hold(struct nvefs_layer_slot *slot);
/* Send lower.io down. */
void nvefs_layer_send(struct nvefs_layer_slot *slot);
/* From poll: the upper io ends as lower.io did, at once or not before due_ns. */
void nvefs_layer_finish(struct nvefs_layer_slot *slot);
/* The queue below, for commands that the wrapper sends beside the slots. */
struct nvefs_queue *nvefs_layer_lower(struct nvefs_queue *q);
/* The slot is free again without an end of the upper io, which the wrapper brings about itself. */
void nvefs_layer_slot_put(struct nvefs_layer_slot *slot);

#endif
