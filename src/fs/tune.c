/* SPDX-License-Identifier: MIT */
/*
 * Settings of a file system that is not mounted, <nvefs/tune.h>. Steps:
 *  1. with protection the file system is claimed, as whoever writes to it must;
 *  2. journal and superblocks are looked at, and written to by nobody;
 *  3. protection that is new: claim and beat, free, Flush. Nothing looks at them yet;
 *  4. each superblock slot with the next seq, Flush. From the first on the settings are the new ones;
 *  5. the claim is let go. Where protection has just ended, nobody looks at what that writes.
 */
#include <nvefs/tune.h>

#include <errno.h>
#include <string.h>

#include "format/super.h"
#include "store/mmp.h"
#include "store/store.h"
#include "store/super.h"

struct tune {
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	const struct nvefs_tune_opts *opts;
	const char *target;
	struct nvefs_mmp *mmp;
	struct nvefs_super old, next;
	bool failed; /* in writing: what is there is not known */
	struct nvefs_error *err;
};

static void settings_of(const struct nvefs_super *sb, struct nvefs_settings *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->uuid, nvefs_super_public_uuid(sb), sizeof(ret->uuid));
	memcpy(ret->mkfs_uuid, sb->uuid, sizeof(ret->mkfs_uuid));
	memcpy(ret->label, sb->label, sizeof(sb->label));
	ret->mmp_interval_ms = sb->mmp_interval_ms;
}

static int no_queue(struct nvefs_error *err, const char *target, int rc)
{
	return nvefs_error_set(err, rc, "%s: cannot get a queue: %s", target, strerror(-rc));
}

int nvefs_settings_get(struct nvefs_dev *dev, struct nvefs_settings *ret, struct nvefs_error *err)
{
	struct nvefs_super sb;
	struct nvefs_queue *q;
	int rc = nvefs_queue_init(dev, 0, &q);

	if (rc)
		return no_queue(err, nvefs_dev_identity(dev)->target, rc);
	rc = nvefs_super_read(dev, q, &sb, err);
	nvefs_queue_done(q);
	if (!rc)
		settings_of(&sb, ret);
	return rc;
}

static int check_opts(struct tune *t)
{
	static const uint8_t none[16];
	const struct nvefs_tune_opts *o = t->opts;

	if (o->label && strlen(o->label) > NVEFS_LABEL_MAX)
		return nvefs_error_set(t->err, -EINVAL, "%s: label is longer than %d bytes", t->target, NVEFS_LABEL_MAX);
	if (o->uuid && !memcmp(o->uuid, none, sizeof(none)))
		return nvefs_error_set(t->err, -EINVAL, "%s: all zeros are no UUID", t->target);
	if (o->mmp_interval_ms && (o->mmp_interval_ms < NVEFS_MMP_MIN_MS || o->mmp_interval_ms > NVEFS_MMP_MAX_MS))
		return nvefs_error_set(t->err, -EINVAL,
				       "%s: interval of multiple mount protection out of range: %u to %u ms",
				       t->target, NVEFS_MMP_MIN_MS, NVEFS_MMP_MAX_MS);
	if (!o->dry_run && nvefs_dev_limits(t->dev)->read_only)
		return nvefs_error_set(t->err, -EROFS, "%s: the device is read-only", t->target);
	return 0;
}

/* A field of an unknown feature would be lost. */
static int check_features(const struct tune *t)
{
	if (nvefs_feature_unknown(t->old.feature_compat, NVEFS_COMPAT_KNOWN) ||
	    nvefs_feature_unknown(t->old.feature_ro_compat, NVEFS_ROCOMPAT_KNOWN))
		return nvefs_error_set(t->err, -ENOTSUP,
				       "%s: has a feature that this program does not know: use a newer one", t->target);
	return 0;
}

static int check_clean(struct tune *t)
{
	const struct nvefs_store_opts so = {.read_only = true, .replay_in_memory = true, .mmp = t->mmp};
	struct nvefs_store_stats stats;
	struct nvefs_store *st;
	int rc = nvefs_store_open(t->dev, &so, &st, t->err);

	if (rc)
		return rc;
	t->old = *nvefs_store_super(st);
	nvefs_store_stats(st, &stats);
	nvefs_store_free(st);
	rc = check_features(t);
	if (rc)
		return rc;
	if (stats.recovered_txns)
		return nvefs_error_set(t->err, -EUCLEAN,
				       "%s: was not unmounted, its journal holds changes: mount and unmount it once, or "
				       "run fsck.nvefs",
				       t->target);
	rc = nvefs_super_agree(t->q, &t->old);
	if (rc == -EUCLEAN)
		return nvefs_error_set(t->err, rc, "%s: its superblocks contradict each other: run fsck.nvefs", t->target);
	return rc ? nvefs_error_set(t->err, rc, "%s: out of memory", t->target) : 0;
}

static void set_uuid(struct nvefs_super *sb, const uint8_t *uuid)
{
	/* Where it goes back to what the headers say nothing has to be remembered. */
	bool same = !memcmp(sb->uuid, uuid, sizeof(sb->uuid));

	memset(sb->public_uuid, 0, sizeof(sb->public_uuid));
	sb->feature_ro_compat &= ~NVEFS_ROCOMPAT_UUID;
	if (same)
		return;
	memcpy(sb->public_uuid, uuid, sizeof(sb->public_uuid));
	sb->feature_ro_compat |= NVEFS_ROCOMPAT_UUID;
}

static int apply(struct tune *t)
{
	const struct nvefs_tune_opts *o = t->opts;
	struct nvefs_super *sb = &t->next;

	*sb = t->old;
	if (o->label) {
		memset(sb->label, 0, sizeof(sb->label));
		memcpy(sb->label, o->label, strlen(o->label));
	}
	if (o->uuid)
		set_uuid(sb, o->uuid);
	if (o->mmp == NVEFS_ON)
		sb->feature_incompat |= NVEFS_INCOMPAT_MMP;
	if (o->mmp == NVEFS_OFF)
		sb->feature_incompat &= ~NVEFS_INCOMPAT_MMP;
	if (o->mmp_interval_ms && !nvefs_super_mmp(sb))
		return nvefs_error_set(t->err, -EINVAL,
				       "%s: has no multiple mount protection that could have an interval", t->target);
	if (!nvefs_super_mmp(sb))
		sb->mmp_interval_ms = 0;
	else if (o->mmp_interval_ms)
		sb->mmp_interval_ms = o->mmp_interval_ms;
	else if (!sb->mmp_interval_ms)
		sb->mmp_interval_ms = NVEFS_MMP_DEFAULT_MS;
	sb->seq++;
	return 0;
}

static int write_next(struct tune *t)
{
	int rc = 0;

	if (nvefs_super_mmp(&t->next) && !nvefs_super_mmp(&t->old))
		rc = nvefs_mmp_make(t->dev, t->q, &t->next);
	for (unsigned int slot = 0; slot < NVEFS_SUPER_SLOTS && !rc; slot++)
		rc = nvefs_super_write_slot(t->dev, t->q, &t->next, slot);
	t->failed = rc;
	if (!rc)
		rc = nvefs_mmp_check(t->mmp, t->err);
	else
		nvefs_error_set(t->err, rc, "%s: the superblock cannot be written: %s: run fsck.nvefs, and see what the "
					    "settings are", t->target, strerror(-rc));
	return rc;
}

static int claim(struct tune *t)
{
	const struct nvefs_tune_opts *o = t->opts;
	const struct nvefs_mmp_opts mo = {.state = NVEFS_MMP_FSCK,
					  .force = o->mmp_force,
					  .force_how = o->mmp_force_how,
					  .wait = o->host_wait,
					  .wait_arg = o->host_wait_arg};

	return o->dry_run ? nvefs_mmp_look(t->dev, &mo, t->err) : nvefs_mmp_take(t->dev, &mo, &t->mmp, t->err);
}

static int run(struct tune *t)
{
	int rc = claim(t);

	if (!rc)
		rc = check_clean(t);
	if (!rc)
		rc = apply(t);
	if (!rc && !t->opts->dry_run && !nvefs_super_same_settings(&t->old, &t->next))
		rc = write_next(t);
	nvefs_mmp_release(t->mmp, !t->failed);
	return rc;
}

int nvefs_tune(struct nvefs_dev *dev, const struct nvefs_tune_opts *opts, struct nvefs_settings *ret_before,
	       struct nvefs_settings *ret_now, struct nvefs_error *err)
{
	struct tune t = {.dev = dev, .opts = opts, .target = nvefs_dev_identity(dev)->target, .err = err};
	int rc = check_opts(&t);

	if (rc)
		return rc;
	rc = nvefs_queue_init(dev, 0, &t.q);
	if (rc)
		return no_queue(err, t.target, rc);
	rc = run(&t);
	nvefs_queue_done(t.q);
	if (rc)
		return rc;
	settings_of(&t.old, ret_before);
	settings_of(&t.next, ret_now);
	return 0;
}
