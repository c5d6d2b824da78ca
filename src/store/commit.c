/* SPDX-License-Identifier: MIT */
/*
 * The commit thread. It works in rounds: take all requests that are there, let
 * the layer above fold, commit, answer, then release blocks and checkpoint.
 * Requests that arrive during a round share the next one.
 */
#include <string.h>

#include "base/log.h"
#include "store/journal.h"
#include "store/state.h"

bool nvefs_commit_thread_is_self(struct nvefs_store *st)
{
	return __atomic_load_n(&st->commit.started, __ATOMIC_ACQUIRE) &&
	       pthread_equal(pthread_self(), st->commit.self);
}

/* What is durable once this is, is all that w asked for. */
static bool waiter_durable(const struct nvefs_store *st, const struct nvefs_commit_waiter *w)
{
	uint64_t changed = __atomic_load_n(&st->txn_changed, __ATOMIC_ACQUIRE);
	uint64_t target = w->txn < changed ? w->txn : changed;

	return nvefs_txn_durable(st) >= target;
}

void nvefs_commit_request(struct nvefs_store *st, struct nvefs_commit_waiter *w)
{
	struct nvefs_commit *c = &st->commit;
	bool queued = false;

	if (!w->txn)
		w->txn = nvefs_txn_running(st);
	w->err = 0;
	if (w->fold || w->reclaim || !waiter_durable(st, w)) {
		nvefs_mutex_lock(&c->lock);
		if (c->up && !nvefs_store_error(st)) {
			nvefs_list_push(&c->waiters, &w->link);
			nvefs_cond_signal(&c->wake);
			queued = true;
		} else if (!st->opts.read_only) {
			w->err = nvefs_store_error(st) ? -EIO : -EROFS;
		}
		nvefs_mutex_unlock(&c->lock);
	}
	if (!queued)
		w->done(w);
}

struct sync_waiter {
	struct nvefs_commit_waiter w;
	struct nvefs_mutex lock;
	struct nvefs_cond cond;
	bool done;
};

static void sync_waiter_wake(struct nvefs_commit_waiter *w)
{
	struct sync_waiter *s = nvefs_container_of(w, struct sync_waiter, w);

	nvefs_mutex_lock(&s->lock);
	s->done = true;
	nvefs_cond_signal(&s->cond);
	nvefs_mutex_unlock(&s->lock);
}

int nvefs_commit_run(struct nvefs_store *st, bool fold)
{
	struct sync_waiter s = {.w = {.fold = fold, .done = sync_waiter_wake}};

	assert(!nvefs_commit_thread_is_self(st));
	nvefs_mutex_init(&s.lock);
	nvefs_cond_init(&s.cond);
	nvefs_commit_request(st, &s.w);
	nvefs_mutex_lock(&s.lock);
	while (!s.done)
		nvefs_cond_wait(&s.cond, &s.lock);
	nvefs_mutex_unlock(&s.lock);
	nvefs_cond_done(&s.cond);
	nvefs_mutex_done(&s.lock);
	return s.w.err;
}

int nvefs_mutation_commit(struct nvefs_store *st)
{
	if (!nvefs_mutation_commits())
		return 0;
	return nvefs_commit_thread_is_self(st) ? nvefs_commit_now(st, false) :
						 nvefs_commit_run(st, false);
}

void nvefs_commit_kick(struct nvefs_store *st)
{
	struct nvefs_commit *c = &st->commit;

	nvefs_mutex_lock(&c->lock);
	c->kick = true;
	nvefs_cond_signal(&c->wake);
	nvefs_mutex_unlock(&c->lock);
}

int nvefs_commit_wait_room(struct nvefs_store *st, uint64_t txn)
{
	struct nvefs_commit *c = &st->commit;

	nvefs_mutex_lock(&c->lock);
	while (c->up && !nvefs_store_error(st) && nvefs_txn_running(st) == txn) {
		c->ask = true;
		nvefs_cond_signal(&c->wake);
		nvefs_cond_wait(&c->change, &c->lock);
	}
	nvefs_mutex_unlock(&c->lock);
	return nvefs_store_error(st) ? -EIO : 0;
}

int nvefs_commit_reclaim(struct nvefs_store *st)
{
	struct nvefs_commit *c = &st->commit;
	uint64_t want;

	if (nvefs_commit_thread_is_self(st))
		return nvefs_commit_now(st, true);
	nvefs_mutex_lock(&c->lock);
	want = c->reclaims_asked + 1;
	c->reclaim = true;
	nvefs_cond_signal(&c->wake);
	while (c->up && !nvefs_store_error(st) && c->reclaims_done < want)
		nvefs_cond_wait(&c->change, &c->lock);
	nvefs_mutex_unlock(&c->lock);
	return nvefs_store_error(st) ? -EIO : 0;
}

static void release(struct nvefs_store *st)
{
	const struct nvefs_journal *j = &st->journal;
	uint64_t durable = nvefs_txn_durable(st);

	nvefs_store_wrlock(st);
	nvefs_cache_purge(st, durable);
	nvefs_cache_shrink(st);
	nvefs_store_wrunlock(st);
	nvefs_alloc_release(st, st->commit.q, durable, j->tail_txn);
}

/* After a commit: blocks come back, and the log is emptied when it is half full or must be. */
static int settle(struct nvefs_store *st, bool checkpoint)
{
	const struct nvefs_journal *j = &st->journal;
	int err;

	release(st);
	if (!j->live_blks || (!checkpoint && j->live_blks <= j->log_blks / 2))
		return 0;
	err = nvefs_journal_checkpoint(st, st->commit.q);
	if (!err)
		release(st);
	return err;
}

int nvefs_commit_now(struct nvefs_store *st, bool checkpoint)
{
	bool wrote;
	int err = nvefs_journal_commit(st, st->commit.q, &wrote);

	return err ? err : settle(st, checkpoint);
}

static void answer(struct nvefs_store *st, struct nvefs_list *batch, int fold_err)
{
	struct nvefs_list *l;

	while ((l = nvefs_list_pop(batch))) {
		struct nvefs_commit_waiter *w =
			nvefs_container_of(l, struct nvefs_commit_waiter, link);

		if (w->fold && fold_err)
			w->err = nvefs_store_error(st) ? -EIO : fold_err;
		else
			w->err = waiter_durable(st, w) ? 0 : -EIO;
		w->done(w);
	}
}

struct round {
	struct nvefs_list batch;
	struct nvefs_list late; /* answered when blocks have come back */
	bool timer, fold, reclaim, stop;
};

/* Sleep until there is something to do, then take all of it. */
static void round_take(struct nvefs_store *st, struct round *r, uint64_t deadline)
{
	struct nvefs_commit *c = &st->commit;
	struct nvefs_list *l, *tmp;

	memset(r, 0, sizeof(*r));
	nvefs_list_init(&r->batch);
	nvefs_list_init(&r->late);
	nvefs_mutex_lock(&c->lock);
	while (nvefs_list_empty(&c->waiters) && !c->kick && !c->ask && !c->reclaim && !c->stop &&
	       !r->timer)
		r->timer = !nvefs_cond_wait_until(&c->wake, &c->lock, deadline);
	nvefs_list_for_each_safe (l, tmp, &c->waiters) {
		const struct nvefs_commit_waiter *w = nvefs_container_of(l, struct nvefs_commit_waiter, link);

		r->fold |= w->fold;
		nvefs_list_del(l);
		nvefs_list_push(w->reclaim ? &r->late : &r->batch, l);
	}
	r->fold |= c->kick || c->stop || r->timer;
	r->reclaim = c->reclaim || c->stop || !nvefs_list_empty(&r->late);
	r->stop = c->stop;
	c->kick = c->ask = c->reclaim = false;
	if (r->reclaim)
		c->reclaims_asked++;
	nvefs_mutex_unlock(&c->lock);
}

/* Those that need no folding and came while others were folded can share this commit. */
static void round_join(struct nvefs_store *st, struct round *r)
{
	struct nvefs_commit *c = &st->commit;
	struct nvefs_list *l, *tmp;

	nvefs_mutex_lock(&c->lock);
	nvefs_list_for_each_safe (l, tmp, &c->waiters) {
		const struct nvefs_commit_waiter *w = nvefs_container_of(l, struct nvefs_commit_waiter, link);

		if (w->fold || w->reclaim)
			continue;
		nvefs_list_del(l);
		nvefs_list_push(&r->batch, l);
	}
	nvefs_mutex_unlock(&c->lock);
}

static void round_finish(struct nvefs_store *st, const struct round *r)
{
	struct nvefs_commit *c = &st->commit;

	nvefs_mutex_lock(&c->lock);
	if (r->reclaim)
		c->reclaims_done++;
	if (r->stop && nvefs_list_empty(&c->waiters))
		c->up = false;
	nvefs_cond_broadcast(&c->change);
	nvefs_mutex_unlock(&c->lock);
}

static void round_run(struct nvefs_store *st, struct round *r)
{
	bool wrote = false, idle;
	int fold_err = 0;

	if (nvefs_store_error(st)) {
		answer(st, &r->batch, -EIO);
		answer(st, &r->late, -EIO);
		return;
	}
	if (r->fold && st->opts.fold)
		fold_err = st->opts.fold(st->opts.fold_arg, st->commit.q);
	round_join(st, r);
	if (nvefs_journal_commit(st, st->commit.q, &wrote) != 0) {
		answer(st, &r->batch, -EIO);
		answer(st, &r->late, -EIO);
		return;
	}
	answer(st, &r->batch, fold_err);
	idle = r->timer && !wrote;
	settle(st, r->reclaim || idle);
	answer(st, &r->late, fold_err);
	nvefs_heal_run(st, st->commit.q);
	if (r->stop && fold_err && !st->commit.stop_err)
		st->commit.stop_err = fold_err;
}

static void *commit_main(void *arg)
{
	struct nvefs_store *st = arg;
	struct nvefs_commit *c = &st->commit;
	uint64_t interval =
		st->opts.commit_interval_ns ? st->opts.commit_interval_ns : NVEFS_COMMIT_INTERVAL_NS;
	uint64_t deadline = nvefs_now_ns() + interval;
	struct round r;
	bool up;
	int err;

	c->self = pthread_self();
	err = nvefs_queue_init(st->dev, 0, &c->q);
	nvefs_mutex_lock(&c->lock);
	if (!err)
		__atomic_store_n(&c->started, true, __ATOMIC_RELEASE);
	c->start_err = err;
	c->up = up = !err;
	c->tried = true;
	nvefs_cond_broadcast(&c->change);
	nvefs_mutex_unlock(&c->lock);

	while (up) {
		round_take(st, &r, deadline);
		if (r.timer || r.fold)
			deadline = nvefs_now_ns() + interval;
		round_run(st, &r);
		round_finish(st, &r);
		nvefs_mutex_lock(&c->lock);
		up = c->up;
		nvefs_mutex_unlock(&c->lock);
	}
	nvefs_queue_done(c->q);
	c->q = NULL;
	return NULL;
}

int nvefs_store_start(struct nvefs_store *st)
{
	struct nvefs_commit *c = &st->commit;
	int err;

	if (st->opts.read_only)
		return -EROFS;
	assert(!c->started);
	c->tried = c->stop = false;
	c->stop_err = 0;
	err = nvefs_thread_start(&c->thread, "nvefs-commit", commit_main, st);
	if (err)
		return err;
	nvefs_mutex_lock(&c->lock);
	while (!c->tried)
		nvefs_cond_wait(&c->change, &c->lock);
	err = c->start_err;
	nvefs_mutex_unlock(&c->lock);
	if (err)
		nvefs_thread_join(c->thread);
	return err;
}

int nvefs_store_stop(struct nvefs_store *st)
{
	struct nvefs_commit *c = &st->commit;

	if (!c->started)
		return 0;
	nvefs_mutex_lock(&c->lock);
	c->stop = true;
	nvefs_cond_signal(&c->wake);
	nvefs_mutex_unlock(&c->lock);
	nvefs_thread_join(c->thread);
	__atomic_store_n(&c->started, false, __ATOMIC_RELEASE);
	return nvefs_store_error(st) ? -EIO : c->stop_err;
}
