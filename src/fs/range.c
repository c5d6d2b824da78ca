/* SPDX-License-Identifier: MIT */
#include "fs/range.h"

static bool conflict(const struct nvefs_range *a, const struct nvefs_range *b)
{
	return a->lo < b->hi && b->lo < a->hi && (a->exclusive || b->exclusive);
}

/* Free to go: no holder and no earlier waiter is in the way, so that nobody is overtaken for ever. */
static bool may_hold(struct nvefs_inode *in, struct nvefs_range *r)
{
	struct nvefs_list *p;

	nvefs_list_for_each(p, &in->ranges)
		if (conflict(r, nvefs_container_of(p, struct nvefs_range, link)))
			return false;
	nvefs_list_for_each(p, &in->range_waiters) {
		struct nvefs_range *w = nvefs_container_of(p, struct nvefs_range, link);

		if (w == r)
			break;
		if (conflict(r, w))
			return false;
	}
	return true;
}

bool nvefs_range_get(struct nvefs_inode *in, struct nvefs_range *r, uint64_t lo, uint64_t hi, bool exclusive)
{
	bool held;

	r->lo = lo;
	r->hi = hi;
	r->exclusive = exclusive;
	r->held = false;
	nvefs_mutex_lock(&in->lock);
	held = may_hold(in, r);
	r->held = held;
	nvefs_list_push(held ? &in->ranges : &in->range_waiters, &r->link);
	nvefs_mutex_unlock(&in->lock);
	return held;
}

void nvefs_range_put(struct nvefs_inode *in, struct nvefs_range *r)
{
	struct nvefs_list *p, *tmp;

	if (!r->held)
		return;
	nvefs_mutex_lock(&in->lock);
	nvefs_list_del(&r->link);
	r->held = false;
	nvefs_list_for_each_safe(p, tmp, &in->range_waiters) {
		struct nvefs_range *w = nvefs_container_of(p, struct nvefs_range, link);

		if (!may_hold(in, w))
			continue;
		nvefs_list_del(&w->link);
		nvefs_list_push(&in->ranges, &w->link);
		w->held = true;
		/* Told under the lock: once told, the owner may put and free it. */
		w->granted(w);
	}
	nvefs_mutex_unlock(&in->lock);
}
