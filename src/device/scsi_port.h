/* SPDX-License-Identifier: MIT */
/*
 * The logical-unit queue of the scsi route: command slots, handed out under
 * one lock to the queues of all threads. A queue that finds none waits in line;
 * a slot that comes back goes to the first in line, which is woken.
 */
#ifndef NVEFS_DEVICE_SCSI_PORT_H
#define NVEFS_DEVICE_SCSI_PORT_H

#include "base/list.h"
#include "base/thread.h"
#include "device/backend.h"

struct nvefs_scsi_port {
	struct nvefs_mutex lock; /* everything here, and each struct nvefs_scsi_turn */
	struct nvefs_list waiting;
	uint32_t depth, nfree;
	uint32_t free[]; /* slot numbers; the first nfree are valid */
};

/* One queue's place in line. Owned by the queue; fields under the port's lock. */
struct nvefs_scsi_turn {
	struct nvefs_list link;
	struct nvefs_queue *queue;
	bool granted; /* `slot` is this queue's */
	uint32_t slot;
};

/* NULL when memory is out. */
struct nvefs_scsi_port *nvefs_scsi_port_new(uint32_t depth);
void nvefs_scsi_port_free(struct nvefs_scsi_port *port);

void nvefs_scsi_turn_init(struct nvefs_scsi_turn *turn, struct nvefs_queue *queue);
/* Leave the line; a slot that was granted and not used goes to the next. */
void nvefs_scsi_turn_done(struct nvefs_scsi_turn *turn, struct nvefs_scsi_port *port);

/* False: none is free; the queue stands in line and is woken when one is its own. */
bool nvefs_scsi_port_get(struct nvefs_scsi_port *port, struct nvefs_scsi_turn *turn,
			 uint32_t *ret_slot);
/* `mine` is the turn of the queue that the caller is polling. */
void nvefs_scsi_port_put(struct nvefs_scsi_port *port, const struct nvefs_scsi_turn *mine,
			 uint32_t slot);

#endif
