/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include <nvefs/drive.h>

#include "base/log.h"
#include "format/layout.h"
#include "fs/fill.h"
#include "fs/names.h"
#include "fs/pledge.h"
#include "store/mmp.h"

#define DEFAULT_CACHE_BYTES (128ull << 20)
#define DEFAULT_DEDUP_BYTES (64ull << 20)
#define DEFAULT_COMMIT_S 5u
#define DEFAULT_WORKERS 8u
#define DEFAULT_SLOW_IO_NS 10000000000ull
#define OWN_QUEUES 2u /* commit thread, background thread; with a claim, the heartbeat's as well */
#define UNMOUNT_ORPHANS_NS 10000000000ull

/* As the kernel's "hung task": it waits on, but somebody should know. */
static void tell_slow(void *arg, const struct nvefs_slow *slow)
{
	static const char *const names[] = {"read", "write", "flush", "discard", "zeroing", "compare", "command"};
	struct nvefs_fs *fs = arg;
	char where[64] = "", others[64] = "", swallowed[48] = "";
	uint32_t missed;

	if (!nvefs_ratelimit_ok(&fs->log_limit, &missed))
		return;
	if (slow->nblks)
		snprintf(where, sizeof(where), " of %u blocks at block %llu", slow->nblks,
			 (unsigned long long)slow->pblk);
	if (slow->others)
		snprintf(others, sizeof(others), ", and to %u others", slow->others);
	if (missed)
		snprintf(swallowed, sizeof(swallowed), " (%u messages left out)", missed);
	nvefs_log(NVEFS_LOG_WARN, "%s: the device has not answered a %s%s for %.1f s%s%s; waiting on",
		  nvefs_dev_identity(fs->dev)->target, names[slow->op < NVEFS_IO_NOPS ? slow->op : NVEFS_IO_NOPS], where,
		  (double)slow->age_ns / 1e9, others, swallowed);
}

static void fill_opts(struct nvefs_mount_opts *o)
{
	if (!o->cache_bytes)
		o->cache_bytes = DEFAULT_CACHE_BYTES;
	if (!o->dedup_bytes)
		o->dedup_bytes = DEFAULT_DEDUP_BYTES;
	if (!o->commit_interval_s)
		o->commit_interval_s = DEFAULT_COMMIT_S;
	if (!o->max_workers)
		o->max_workers = DEFAULT_WORKERS;
	if (!o->slow_io_ns)
		o->slow_io_ns = DEFAULT_SLOW_IO_NS;
	if (!o->fingerprint_bits)
		o->fingerprint_bits = 64;
	if (!o->name_hash_bits)
		o->name_hash_bits = NVEFS_NAME_HASH_BITS;
}

static struct nvefs_fs *fs_new(struct nvefs_dev *dev, const struct nvefs_mount_opts *opts)
{
	struct nvefs_fs *fs = calloc(1, sizeof(*fs));

	if (!fs)
		return NULL;
	fs->dev = dev;
	if (opts)
		fs->opts = *opts;
	fill_opts(&fs->opts);
	fs->max_workers = fs->opts.max_workers;
	fs->workers = calloc(fs->max_workers, sizeof(struct nvefs_worker *));
	if (!fs->workers) {
		free(fs);
		return NULL;
	}
	nvefs_inode_table_init(fs);
	nvefs_mutex_init(&fs->dirty_lock);
	nvefs_list_init(&fs->dirty_inodes);
	nvefs_space_init(fs);
	nvefs_mutex_init(&fs->workers_lock);
	nvefs_mutex_init(&fs->bg_lock);
	nvefs_cond_init(&fs->bg_cond);
	nvefs_list_init(&fs->bg_orphans);
	fs->log_limit.interval_s = 5;
	fs->log_limit.burst = 10;
	return fs;
}

/* `clean`: all that was to be written is durable. The heartbeat may still tell of a slow device: it ends before fs does. */
static void fs_free(struct nvefs_fs *fs, bool clean)
{
	nvefs_inode_table_done(fs);
	nvefs_fill_done(fs);
	nvefs_store_free(fs->st);
	nvefs_mmp_release(fs->mmp, clean);
	nvefs_dev_watch(fs->dev, 0, NULL, NULL);
	nvefs_cond_done(&fs->bg_cond);
	nvefs_mutex_done(&fs->bg_lock);
	nvefs_mutex_done(&fs->workers_lock);
	nvefs_space_done(fs);
	nvefs_mutex_done(&fs->dirty_lock);
	free(fs->workers);
	free(fs);
}

static int open_store(struct nvefs_fs *fs, struct nvefs_error *err)
{
	const struct nvefs_mount_opts *o = &fs->opts;
	struct nvefs_store_opts so = {
		.read_only = o->read_only,
		.no_recovery = o->no_recovery,
		.replay_in_memory = o->replay_in_memory,
		.discard = o->discard,
		.fua_commit = o->fua_commit,
		.cache_bytes = o->cache_bytes / 2, /* the other half is for segment maps */
		.commit_interval_ns = o->commit_interval_s * 1000000000ull,
		.mmp = fs->mmp,
		.fold = nvefs_fs_fold,
		.fold_arg = fs,
	};
	const struct nvefs_super *sb;
	uint32_t g;
	int rc;

	rc = nvefs_store_open(fs->dev, &so, &fs->st, err);
	if (rc)
		return rc;
	sb = nvefs_store_super(fs->st);
	fs->read_only = o->read_only;
	fs->hash_seed = sb->hash_seed;
	for (g = 0; g < sb->ngroups; g++)
		fs->fixed_blks += nvefs_layout_group_fixed(sb, g);
	nvefs_name_hash_limit(o->name_hash_bits);
	if (o->dedup == NVEFS_ON || (o->dedup == NVEFS_DEFAULT && (sb->flags & NVEFS_SB_DEDUP)))
		rc = fs->read_only ? 0 : nvefs_dedup_switch(fs, true);
	if (rc)
		return nvefs_error_set(err, rc, "%s: no memory for a dedup index of %llu bytes",
				       nvefs_dev_identity(fs->dev)->target,
				       (unsigned long long)o->dedup_bytes);
	return 0;
}

/* Before anything is read that another host may be changing. */
static int claim(struct nvefs_fs *fs, struct nvefs_error *err)
{
	const struct nvefs_mount_opts *o = &fs->opts;
	const struct nvefs_mmp_opts mo = {.state = NVEFS_MMP_MOUNTED,
					  .force = o->mmp_force,
					  .force_how = o->mmp_force_how,
					  .host = o->host,
					  .alone = o->mmp_alone,
					  .wait = o->host_wait,
					  .wait_arg = o->host_wait_arg};

	/* Who only reads is no danger to others, and finds out whether they are one. */
	if (o->read_only && (o->no_recovery || o->replay_in_memory))
		return nvefs_mmp_look(fs->dev, &mo, err);
	return nvefs_mmp_take(fs->dev, &mo, &fs->mmp, err);
}

static int count_mount_txn(struct nvefs_nop *op, void *arg)
{
	(void)arg;
	nvefs_store_root(op->fs->st)->mount_count++;
	return 0;
}

/* The root must be a directory, or there is nothing to mount. */
static int check_root(struct nvefs_fs *fs, struct nvefs_queue *q)
{
	struct nvefs_inode *in;
	bool is_dir;
	int err;

	err = nvefs_inode_get(fs, q, NVEFS_ROOT_INO, &in);
	if (err)
		return err == -ESTALE ? -EUCLEAN : err;
	is_dir = S_ISDIR(nvefs_inode_mode(in));
	nvefs_inode_put(in);
	return is_dir ? 0 : -EUCLEAN;
}

/* What has to be done before anybody reads. */
static int finish_past(struct nvefs_fs *fs)
{
	struct nvefs_queue *q;
	int err;

	err = nvefs_queue_init(fs->dev, 0, &q);
	if (err)
		return err;
	err = check_root(fs, q);
	if (!err && !fs->read_only)
		err = nvefs_orphan_truncates(fs, q);
	if (!err && !fs->read_only)
		err = nvefs_nop_run(fs, q, 1, NVEFS_TXN_FREEING, count_mount_txn, NULL); /* also when it is full */
	nvefs_queue_done(q);
	return err;
}

static int start(struct nvefs_fs *fs, struct nvefs_error *err)
{
	const char *target = nvefs_dev_identity(fs->dev)->target;
	int rc;

	if (!fs->read_only) {
		rc = nvefs_store_start(fs->st);
		if (rc)
			return nvefs_error_set(err, rc, "%s: cannot start the commit thread: %s", target,
					       strerror(-rc));
	}
	rc = finish_past(fs);
	if (!rc && !fs->read_only)
		rc = nvefs_bg_start(fs);
	if (!rc)
		return 0;
	nvefs_store_stop(fs->st);
	return nvefs_error_set(err, rc, "%s: cannot mount: %s%s", target, strerror(-rc),
			       rc == -EUCLEAN ? " (damaged; run fsck.nvefs)" : "");
}

static int too_few_queues(const struct nvefs_dev *dev, uint32_t want, struct nvefs_error *err)
{
	return nvefs_error_set(err, -ENOTSUP, "%s: has %u queues, %u are needed", nvefs_dev_identity(dev)->target,
			       nvefs_dev_limits(dev)->max_queues, want);
}

/* What our own threads leave is for workers. */
static int share_queues(struct nvefs_fs *fs, struct nvefs_error *err)
{
	uint32_t have = nvefs_dev_limits(fs->dev)->max_queues, own = OWN_QUEUES + (fs->mmp ? 1 : 0);

	if (have < own + 1)
		return too_few_queues(fs->dev, own + 1, err);
	if (fs->max_workers > have - own)
		fs->max_workers = have - own;
	return 0;
}

int nvefs_mount(struct nvefs_dev *dev, const struct nvefs_mount_opts *opts, struct nvefs_fs **ret_fs,
		struct nvefs_error *err)
{
	const struct nvefs_dev_limits *lim = nvefs_dev_limits(dev);
	const char *target = nvefs_dev_identity(dev)->target;
	struct nvefs_fs *fs;
	int rc;

	if (lim->max_queues < OWN_QUEUES + 1)
		return too_few_queues(dev, OWN_QUEUES + 1, err);
	fs = fs_new(dev, opts);
	if (!fs)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", target);
	nvefs_dev_watch(dev, fs->opts.slow_io_ns, tell_slow, fs);
	rc = claim(fs, err);
	if (!rc)
		rc = share_queues(fs, err);
	if (!rc)
		rc = open_store(fs, err);
	if (!rc)
		rc = start(fs, err);
	if (rc) {
		fs_free(fs, true);
		return rc;
	}
	*ret_fs = fs;
	return 0;
}

int nvefs_unmount(struct nvefs_fs *fs)
{
	struct nvefs_dev *dev = fs->dev;
	int err = 0;

	assert(!fs->nworkers);
	if (!fs->read_only) {
		/* What is open without a name goes now; what takes too long, after the next mount. */
		nvefs_inode_table_release(fs);
		nvefs_bg_drain(fs, nvefs_now_ns() + UNMOUNT_ORPHANS_NS);
		nvefs_bg_stop(fs);
		err = nvefs_store_stop(fs->st);
	}
	fs_free(fs, true);
	nvefs_dev_close(dev);
	return err;
}

void nvefs_abandon(struct nvefs_fs *fs)
{
	struct nvefs_dev *dev = fs->dev;

	if (!fs->read_only) {
		nvefs_store_fail(fs->st, -EIO, "abandoned");
		nvefs_bg_stop(fs);
		nvefs_store_stop(fs->st);
	}
	fs_free(fs, false);
	nvefs_dev_close(dev);
}
