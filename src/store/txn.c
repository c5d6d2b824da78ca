/* SPDX-License-Identifier: MIT */
/*
 * Transactions. A caller's transaction is a stretch under the exclusive meta
 * lock; all of them since the last commit make up the running transaction.
 * Room in the journal, free space for nodes and cached bitmaps are made sure of
 * before it begins, so that nothing in it ever waits.
 */
#include <string.h>

#include "store/state.h"

uint32_t nvefs_txn_max_credits(const struct nvefs_store *st)
{
	return st->journal.max_blks - 1; /* the root block is always one of them */
}

uint64_t nvefs_txn_running(const struct nvefs_store *st)
{
	return __atomic_load_n(&st->txn_running, __ATOMIC_ACQUIRE);
}

uint64_t nvefs_txn_durable(const struct nvefs_store *st)
{
	return __atomic_load_n(&st->txn_durable, __ATOMIC_ACQUIRE);
}

/* Room in the running transaction: a commit makes it. On the commit thread itself (folding), in place. */
static int make_room(struct nvefs_store *st, uint64_t txn)
{
	if (nvefs_commit_thread_is_self(st))
		return nvefs_commit_now(st, false);
	return nvefs_commit_wait_room(st, txn);
}

static bool has_room(const struct nvefs_store *st, uint32_t credits)
{
	return st->cache.ndirty + credits <= nvefs_txn_max_credits(st);
}

int nvefs_txn_begin(struct nvefs_store *st, struct nvefs_queue *q, uint32_t credits, uint32_t flags,
		    struct nvefs_txn *ret_txn)
{
	struct nvefs_miss miss;
	bool reclaimed = false, more;
	uint64_t txn;
	int err;

	assert(credits <= nvefs_txn_max_credits(st));
	for (;;) {
		if (!__atomic_load_n(&st->commit.started, __ATOMIC_ACQUIRE) || nvefs_store_error(st))
			return -EROFS;
		nvefs_store_wrlock(st);
		more = nvefs_alloc_more(st); /* before the room is looked at: it may come back meanwhile */
		if (has_room(st, credits)) {
			err = flags & NVEFS_TXN_NOALLOC ?
				      0 :
				      nvefs_alloc_meta_ready(st, credits, flags, &miss);
			if (!err)
				break;
		} else {
			err = -ENOBUFS;
		}
		txn = st->txn_running;
		nvefs_store_wrunlock(st);

		if (err == -ENOBUFS) {
			err = make_room(st, txn);
		} else if (err == -EAGAIN) {
			err = nvefs_store_load(st, q, &miss);
		} else if (err == -ENOSPC && !reclaimed && more) {
			reclaimed = true;
			err = nvefs_commit_reclaim(st);
		}
		if (err)
			return err;
	}
	if (nvefs_store_error(st)) {
		nvefs_store_wrunlock(st);
		return -EROFS;
	}
	st->in_txn = true;
	*ret_txn = (struct nvefs_txn){.st = st, .id = st->txn_running};
	return 0;
}

void nvefs_txn_end(struct nvefs_txn *t)
{
	struct nvefs_store *st = t->st;

	assert(st->in_txn && t->id == st->txn_running);
	nvefs_alloc_txn_end(t);
	if (st->cache.ndirty || memcmp(&st->root, &st->root_saved, sizeof(st->root)) != 0)
		__atomic_store_n(&st->txn_changed, t->id, __ATOMIC_RELEASE);
	st->in_txn = false;
	nvefs_store_wrunlock(st);
}
