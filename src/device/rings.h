/* SPDX-License-Identifier: MIT */
/*
 * One submission and one completion ring with their doorbells (NVMe base 2.0,
 * 3.3.1): the host writes entries and the tail doorbell, the controller fetches,
 * posts completions whose phase tag turns with every round, and the host
 * gives the head back. Both sides run on the queue's thread.
 */
#ifndef NVEFS_DEVICE_RINGS_H
#define NVEFS_DEVICE_RINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/command.h"

struct nvefs_rings {
	struct nvefs_nvme_sqe *sq;
	struct nvefs_nvme_cqe *cq;
	uint32_t entries; /* of each; one stays unused */
	uint16_t sqid;

	uint32_t sq_tail_doorbell, cq_head_doorbell;
	struct { /* host's side */
		uint32_t sq_tail, sq_head, cq_head;
		bool phase;
	} host;
	struct { /* controller's side */
		uint32_t sq_head, cq_tail;
		bool phase;
	} ctrl;
};

/* Room for `depth` commands in flight. 0 or -ENOMEM. */
int nvefs_rings_init(struct nvefs_rings *r, uint16_t sqid, uint32_t depth);
void nvefs_rings_done(struct nvefs_rings *r);

/* Host: copy an entry in (false: full); make all of them known; take the next completion. */
bool nvefs_rings_push(struct nvefs_rings *r, const struct nvefs_nvme_sqe *sqe);
void nvefs_rings_ring(struct nvefs_rings *r);
bool nvefs_rings_has_completion(const struct nvefs_rings *r);
bool nvefs_rings_reap(struct nvefs_rings *r, struct nvefs_nvme_cqe *ret_cqe);

/* Controller: look at the next entry; take it; post a completion, for which there is always room. */
bool nvefs_rings_peek(const struct nvefs_rings *r, struct nvefs_nvme_sqe *ret_sqe);
bool nvefs_rings_fetch(struct nvefs_rings *r, struct nvefs_nvme_sqe *ret_sqe);
void nvefs_rings_post(struct nvefs_rings *r, uint16_t cid, uint32_t result, uint16_t status);

#endif
