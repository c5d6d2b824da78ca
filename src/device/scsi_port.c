/* SPDX-License-Identifier: MIT */
#include "device/scsi_port.h"

#include <stdlib.h>

struct nvefs_scsi_port *nvefs_scsi_port_new(uint32_t depth)
{
	struct nvefs_scsi_port *port = malloc(sizeof(*port) + depth * sizeof(port->free[0]));

	if (!port)
		return NULL;
	nvefs_mutex_init(&port->lock);
	nvefs_list_init(&port->waiting);
	port->depth = port->nfree = depth;
	for (uint32_t i = 0; i < depth; i++)
		port->free[i] = depth - 1 - i;
	return port;
}

void nvefs_scsi_port_free(struct nvefs_scsi_port *port)
{
	if (!port)
		return;
	nvefs_mutex_done(&port->lock);
	free(port);
}

void nvefs_scsi_turn_init(struct nvefs_scsi_turn *turn, struct nvefs_queue *queue)
{
	nvefs_list_init(&turn->link);
	turn->queue = queue;
	turn->granted = false;
}

static void put_locked(struct nvefs_scsi_port *port, const struct nvefs_scsi_turn *mine,
		       uint32_t slot)
{
	struct nvefs_list *first = nvefs_list_pop(&port->waiting);
	struct nvefs_scsi_turn *turn;

	if (!first) {
		port->free[port->nfree++] = slot;
		return;
	}
	turn = nvefs_container_of(first, struct nvefs_scsi_turn, link);
	turn->granted = true;
	turn->slot = slot;
	/*
	 * Under the lock: the queue cannot be done before it has left the line. The caller's
	 * own queue is being polled and sends its backlog next, without a wake.
	 */
	if (turn != mine)
		nvefs_queue_wake(turn->queue);
}

void nvefs_scsi_turn_done(struct nvefs_scsi_turn *turn, struct nvefs_scsi_port *port)
{
	nvefs_mutex_lock(&port->lock);
	nvefs_list_del(&turn->link);
	if (turn->granted)
		put_locked(port, turn, turn->slot);
	turn->granted = false;
	nvefs_mutex_unlock(&port->lock);
}

bool nvefs_scsi_port_get(struct nvefs_scsi_port *port, struct nvefs_scsi_turn *turn,
			 uint32_t *ret_slot)
{
	bool got = true;

	nvefs_mutex_lock(&port->lock);
	if (turn->granted) {
		turn->granted = false;
		*ret_slot = turn->slot;
	} else if (port->nfree > 0) {
		*ret_slot = port->free[--port->nfree];
	} else {
		got = false;
		if (nvefs_list_empty(&turn->link)) /* else it keeps its place */
			nvefs_list_push(&port->waiting, &turn->link);
	}
	nvefs_mutex_unlock(&port->lock);
	return got;
}

void nvefs_scsi_port_put(struct nvefs_scsi_port *port, const struct nvefs_scsi_turn *mine,
			 uint32_t slot)
{
	nvefs_mutex_lock(&port->lock);
	put_locked(port, mine, slot);
	nvefs_mutex_unlock(&port->lock);
}
