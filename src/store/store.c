/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "format/layout.h"
#include "store/journal.h"
#include "store/mmp.h"
#include "store/state.h"
#include "store/super.h"

enum nvefs_mutation nvefs_store_mutation = NVEFS_MUTATE_NONE;

const struct nvefs_super *nvefs_store_super(const struct nvefs_store *st)
{
	return &st->super;
}

struct nvefs_dev *nvefs_store_dev(const struct nvefs_store *st)
{
	return st->dev;
}

struct nvefs_root *nvefs_store_root(struct nvefs_store *st)
{
	return &st->root;
}

void nvefs_store_rdlock(struct nvefs_store *st) NVEFS_NO_TSA
{
	nvefs_rwlock_rdlock(&st->meta);
}

void nvefs_store_rdunlock(struct nvefs_store *st) NVEFS_NO_TSA
{
	nvefs_rwlock_rdunlock(&st->meta);
}

void nvefs_store_wrlock(struct nvefs_store *st) NVEFS_NO_TSA
{
	nvefs_rwlock_wrlock(&st->meta);
}

void nvefs_store_wrunlock(struct nvefs_store *st) NVEFS_NO_TSA
{
	nvefs_rwlock_wrunlock(&st->meta);
}

int nvefs_store_error(const struct nvefs_store *st)
{
	return __atomic_load_n(&st->error, __ATOMIC_ACQUIRE);
}

int nvefs_caller_errno(int err)
{
	switch (err) {
	case 0:
	case -ENOSPC:
	case -EROFS:
	case -ENOMEM:
	case -EUCLEAN:
		return err;
	default:
		return -EIO;
	}
}

void nvefs_store_fail(struct nvefs_store *st, int err, const char *why)
{
	int none = 0;

	assert(err < 0);
	if (!__atomic_compare_exchange_n(&st->error, &none, err, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return;
	nvefs_log(NVEFS_LOG_ERR, "%s: %s; the file system is read-only from now on", why,
		  strerror(-err));
	nvefs_mutex_lock(&st->commit.lock);
	nvefs_cond_broadcast(&st->commit.change);
	nvefs_cond_signal(&st->commit.wake);
	nvefs_mutex_unlock(&st->commit.lock);
}

static void claim_lost(void *arg, int err, const char *why)
{
	nvefs_store_fail(arg, err, why);
}

static struct nvefs_store *store_new(struct nvefs_dev *dev, const struct nvefs_store_opts *opts)
{
	struct nvefs_store *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	st->dev = dev;
	if (opts)
		st->opts = *opts;
	st->flush_needed = nvefs_dev_limits(dev)->volatile_cache;
	st->fua_commit = st->opts.fua_commit && nvefs_dev_limits(dev)->fua;
	nvefs_rwlock_init(&st->meta);
	nvefs_mutex_init(&st->super_lock);
	nvefs_mutex_init(&st->super_write);
	nvefs_mutex_init(&st->commit.lock);
	nvefs_cond_init(&st->commit.wake);
	nvefs_cond_init(&st->commit.change);
	nvefs_list_init(&st->commit.waiters);
	nvefs_mmp_set_lost(st->opts.mmp, claim_lost, st);
	if (nvefs_cache_init(st) != 0) {
		nvefs_store_free(st);
		return NULL;
	}
	return st;
}

void nvefs_store_free(struct nvefs_store *st)
{
	if (!st)
		return;
	assert(!st->commit.started);
	nvefs_mmp_set_lost(st->opts.mmp, NULL, NULL);
	nvefs_alloc_done(st);
	nvefs_cache_done(st);
	nvefs_cond_done(&st->commit.change);
	nvefs_cond_done(&st->commit.wake);
	nvefs_mutex_done(&st->commit.lock);
	nvefs_mutex_done(&st->super_write);
	nvefs_mutex_done(&st->super_lock);
	nvefs_rwlock_done(&st->meta);
	free(st);
}

/* Recovery writes, too, unless it is left out or done in memory. */
static bool writes(const struct nvefs_store *st)
{
	return !st->opts.read_only || !(st->opts.no_recovery || st->opts.replay_in_memory);
}

/* All that needs a queue. */
static int store_load(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_error *err)
{
	int rc = nvefs_super_read(st->dev, q, &st->super, err);

	if (rc)
		return rc;
	if (!st->opts.read_only && nvefs_super_must_be_ro(&st->super))
		return nvefs_error_set(err, -EROFS,
				       "%s: has a feature that this version can only read: "
				       "open it read-only",
				       nvefs_dev_identity(st->dev)->target);
	if (nvefs_super_mmp(&st->super) && !st->opts.mmp && writes(st))
		return nvefs_error_set(err, -EBUSY, "%s: has multiple mount protection, and is not claimed",
				       nvefs_dev_identity(st->dev)->target);
	rc = nvefs_journal_recover(st, q, err);
	if (rc)
		return rc;
	if (!st->opts.read_only)
		nvefs_super_heal(st, q);
	rc = nvefs_alloc_init(st, q);
	if (rc)
		return nvefs_error_set(err, rc, "%s: cannot read the allocation groups: %s",
				       nvefs_dev_identity(st->dev)->target, strerror(-rc));
	return 0;
}

int nvefs_store_open(struct nvefs_dev *dev, const struct nvefs_store_opts *opts,
		     struct nvefs_store **ret_st, struct nvefs_error *err)
{
	const char *target = nvefs_dev_identity(dev)->target;
	struct nvefs_queue *q;
	struct nvefs_store *st;
	int rc;

	if (opts && (opts->no_recovery || opts->replay_in_memory) && !opts->read_only)
		return nvefs_error_set(err, -EINVAL, "%s: to leave the journal alone, open read-only",
				       target);
	st = store_new(dev, opts);
	if (!st)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", target);
	if (!st->opts.read_only && nvefs_dev_limits(dev)->read_only) {
		rc = nvefs_error_set(err, -EROFS, "%s: the device is read-only: mount it with ro", target);
		goto free_store;
	}
	rc = nvefs_queue_init(dev, 0, &q);
	if (rc) {
		nvefs_error_set(err, rc, "%s: cannot get a queue: %s", target, strerror(-rc));
		goto free_store;
	}
	rc = store_load(st, q, err);
	nvefs_queue_done(q);
	if (rc)
		goto free_store;
	*ret_st = st;
	return 0;

free_store:
	nvefs_store_free(st);
	return rc;
}

void nvefs_store_stats(struct nvefs_store *st, struct nvefs_store_stats *ret)
{
	struct nvefs_store_stats *s = &st->stats;
	struct nvefs_space sp;

	memset(ret, 0, sizeof(*ret));
	ret->commits = nvefs_stat_get(s->commits);
	ret->commit_blks = nvefs_stat_get(s->commit_blks);
	ret->checkpoints = nvefs_stat_get(s->checkpoints);
	ret->checkpoint_blks = nvefs_stat_get(s->checkpoint_blks);
	ret->loads = nvefs_stat_get(s->loads);
	ret->recovered_txns = nvefs_stat_get(s->recovered_txns);
	ret->recovered_blks = nvefs_stat_get(s->recovered_blks);
	ret->copies_bad = nvefs_stat_get(s->copies_bad);
	ret->copies_healed = nvefs_stat_get(s->copies_healed);
	ret->copies_unhealed = nvefs_stat_get(s->copies_unhealed);
	ret->journal_blks = st->journal.log_blks;
	ret->journal_live_blks = nvefs_stat_get(st->journal.live_blks);
	nvefs_store_rdlock(st);
	ret->cache_blks = st->cache.nblks;
	ret->cache_dirty_blks = st->cache.ndirty;
	nvefs_store_rdunlock(st);
	ret->txn_running = nvefs_txn_running(st);
	ret->txn_durable = nvefs_txn_durable(st);
	nvefs_space_get(st, &sp);
	ret->total_blks = sp.total;
	ret->free_blks = sp.free;
	ret->quarantined_blks = sp.quarantined;
	ret->reserve_blks = sp.meta_reserve;
}
