/* SPDX-License-Identifier: MIT */
#include "device/rings.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"

int nvefs_rings_init(struct nvefs_rings *r, uint16_t sqid, uint32_t depth)
{
	memset(r, 0, sizeof(*r));
	r->entries = depth + 1;
	r->sqid = sqid;
	r->sq = nvefs_buf_new_zeroed(r->entries * sizeof(*r->sq));
	r->cq = nvefs_buf_new_zeroed(r->entries * sizeof(*r->cq));
	/* A fresh ring holds zeros, so the first round posts ones. */
	r->host.phase = r->ctrl.phase = true;
	if (r->sq && r->cq)
		return 0;
	nvefs_rings_done(r);
	return -ENOMEM;
}

void nvefs_rings_done(struct nvefs_rings *r)
{
	nvefs_buf_free(r->sq);
	nvefs_buf_free(r->cq);
	r->sq = NULL;
	r->cq = NULL;
}

static uint32_t next(const struct nvefs_rings *r, uint32_t index)
{
	return index + 1 == r->entries ? 0 : index + 1;
}

bool nvefs_rings_push(struct nvefs_rings *r, const struct nvefs_nvme_sqe *sqe)
{
	uint32_t tail = next(r, r->host.sq_tail);

	if (tail == r->host.sq_head)
		return false;
	r->sq[r->host.sq_tail] = *sqe;
	r->host.sq_tail = tail;
	return true;
}

void nvefs_rings_ring(struct nvefs_rings *r)
{
	r->sq_tail_doorbell = r->host.sq_tail;
}

bool nvefs_rings_has_completion(const struct nvefs_rings *r)
{
	return nvefs_nvme_cqe_phase(&r->cq[r->host.cq_head]) == r->host.phase;
}

bool nvefs_rings_reap(struct nvefs_rings *r, struct nvefs_nvme_cqe *ret_cqe)
{
	if (!nvefs_rings_has_completion(r))
		return false;
	*ret_cqe = r->cq[r->host.cq_head];
	r->host.sq_head = le16_get(ret_cqe->sqhd);
	r->host.cq_head = next(r, r->host.cq_head);
	if (!r->host.cq_head)
		r->host.phase = !r->host.phase;
	r->cq_head_doorbell = r->host.cq_head;
	return true;
}

bool nvefs_rings_peek(const struct nvefs_rings *r, struct nvefs_nvme_sqe *ret_sqe)
{
	if (r->ctrl.sq_head == r->sq_tail_doorbell)
		return false;
	*ret_sqe = r->sq[r->ctrl.sq_head];
	return true;
}

bool nvefs_rings_fetch(struct nvefs_rings *r, struct nvefs_nvme_sqe *ret_sqe)
{
	if (!nvefs_rings_peek(r, ret_sqe))
		return false;
	r->ctrl.sq_head = next(r, r->ctrl.sq_head);
	return true;
}

void nvefs_rings_post(struct nvefs_rings *r, uint16_t cid, uint32_t result, uint16_t status)
{
	struct nvefs_nvme_cqe *cqe = &r->cq[r->ctrl.cq_tail];

	assert(next(r, r->ctrl.cq_tail) != r->cq_head_doorbell);
	*cqe = (struct nvefs_nvme_cqe){
	    .dw0 = le32_make(result),
	    .sqhd = le16_make((uint16_t)r->ctrl.sq_head),
	    .sqid = le16_make(r->sqid),
	    .cid = le16_make(cid),
	    .status = nvefs_nvme_cqe_make_status(status, r->ctrl.phase),
	};
	r->ctrl.cq_tail = next(r, r->ctrl.cq_tail);
	if (!r->ctrl.cq_tail)
		r->ctrl.phase = !r->ctrl.phase;
}
