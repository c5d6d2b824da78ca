/* SPDX-License-Identifier: MIT */
/*
 * The background thread: removes orphans, those of an earlier mount first, and
 * then fills the index of duplicates from the tree.
 */
#include "base/log.h"
#include "fs/fill.h"
#include "fs/names.h"

#define FILL_PAUSE_NS 2000000ull
#define BACKLOG_MAX 4096u	  /* orphans waiting, above which unlinking is slowed down */
#define BACKLOG_PAUSE_NS 5000000ull /* for each name then */

void nvefs_bg_push(struct nvefs_fs *fs, struct nvefs_inode *in)
{
	nvefs_mutex_lock(&fs->bg_lock);
	nvefs_list_push(&fs->bg_orphans, &in->bg_link);
	fs->bg_norphans++;
	nvefs_cond_broadcast(&fs->bg_cond);
	nvefs_mutex_unlock(&fs->bg_lock);
}

static struct nvefs_inode *pop_orphan(struct nvefs_fs *fs, bool scanning)
{
	struct nvefs_list *l;

	nvefs_mutex_lock(&fs->bg_lock);
	l = fs->bg_stop ? NULL : nvefs_list_pop(&fs->bg_orphans);
	fs->bg_norphans -= l != NULL;
	fs->bg_busy = l || scanning;
	if (!fs->bg_busy)
		nvefs_cond_broadcast(&fs->bg_cond);
	nvefs_mutex_unlock(&fs->bg_lock);
	return l ? nvefs_container_of(l, struct nvefs_inode, bg_link) : NULL;
}

static void reap_all(struct nvefs_fs *fs, struct nvefs_queue *q, bool scanning)
{
	struct nvefs_inode *in;

	while ((in = pop_orphan(fs, scanning)))
		nvefs_orphan_reap(fs, q, in);
}

/* Orphan items found at mount. Those of this mount that are met on the way are in use, or queued. */
static void scan_orphans(struct nvefs_fs *fs, struct nvefs_queue *q)
{
	struct nvefs_inode *in;
	uint32_t reason = 0;
	uint64_t ino = 0;

	while (!__atomic_load_n(&fs->bg_stop, __ATOMIC_RELAXED) &&
	       !nvefs_orphan_next(fs, q, &ino, &reason)) {
		/* Without lookups and opens, dropping the reference queues it. */
		if (!nvefs_inode_get(fs, q, ino, &in))
			nvefs_inode_put(in);
		reap_all(fs, q, true);
		ino++;
	}
}

/* Until there is something to do. False: stop. */
static bool bg_wait(struct nvefs_fs *fs, bool filling)
{
	uint64_t deadline = nvefs_now_ns() + FILL_PAUSE_NS;
	bool go_on;

	nvefs_mutex_lock(&fs->bg_lock);
	while (!fs->bg_stop && nvefs_list_empty(&fs->bg_orphans) && (filling || !fs->bg_fill)) {
		if (!filling)
			nvefs_cond_wait(&fs->bg_cond, &fs->bg_lock);
		else if (!nvefs_cond_wait_until(&fs->bg_cond, &fs->bg_lock, deadline))
			break;
	}
	go_on = !fs->bg_stop;
	nvefs_mutex_unlock(&fs->bg_lock);
	return go_on;
}

static bool take_fill(struct nvefs_fs *fs)
{
	bool fill;

	nvefs_mutex_lock(&fs->bg_lock);
	fill = fs->bg_fill;
	fs->bg_fill = false;
	nvefs_mutex_unlock(&fs->bg_lock);
	return fill;
}

static void bg_announce(struct nvefs_fs *fs, int err)
{
	nvefs_mutex_lock(&fs->bg_lock);
	fs->bg_up = true;
	fs->bg_err = err;
	nvefs_cond_broadcast(&fs->bg_cond);
	nvefs_mutex_unlock(&fs->bg_lock);
}

static void *bg_main(void *arg)
{
	struct nvefs_fs *fs = arg;
	struct nvefs_fill fill = {.done = true};
	struct nvefs_queue *q = NULL;
	int err;

	err = nvefs_queue_init(fs->dev, 0, &q);
	bg_announce(fs, err);
	if (err)
		return NULL;
	scan_orphans(fs, q);
	do {
		reap_all(fs, q, false);
		if (take_fill(fs))
			fill = (struct nvefs_fill){.done = false};
		if (!fill.done)
			nvefs_fill_step(fs, q, &fill);
	} while (bg_wait(fs, !fill.done));
	nvefs_queue_done(q);
	return NULL;
}

int nvefs_bg_start(struct nvefs_fs *fs)
{
	int err;

	fs->bg_stop = fs->bg_up = false;
	fs->bg_busy = true;
	err = nvefs_thread_start(&fs->bg_thread, "nvefs-bg", bg_main, fs);
	if (err)
		return err;
	nvefs_mutex_lock(&fs->bg_lock);
	while (!fs->bg_up)
		nvefs_cond_wait(&fs->bg_cond, &fs->bg_lock);
	err = fs->bg_err;
	nvefs_mutex_unlock(&fs->bg_lock);
	fs->bg_started = !err;
	if (err)
		nvefs_thread_join(fs->bg_thread);
	return err;
}

void nvefs_bg_stop(struct nvefs_fs *fs)
{
	if (!fs->bg_started)
		return;
	nvefs_mutex_lock(&fs->bg_lock);
	__atomic_store_n(&fs->bg_stop, true, __ATOMIC_RELAXED);
	nvefs_cond_broadcast(&fs->bg_cond);
	nvefs_mutex_unlock(&fs->bg_lock);
	nvefs_thread_join(fs->bg_thread);
	fs->bg_started = false;
}

bool nvefs_bg_drain(struct nvefs_fs *fs, uint64_t deadline_ns)
{
	bool in_time = true;

	/* From the thread itself, or before there is one, there is nothing to wait for. */
	if (!fs->bg_started || pthread_equal(pthread_self(), fs->bg_thread))
		return true;
	nvefs_mutex_lock(&fs->bg_lock);
	while (in_time && (fs->bg_busy || !nvefs_list_empty(&fs->bg_orphans)))
		in_time = nvefs_cond_wait_until(&fs->bg_cond, &fs->bg_lock, deadline_ns);
	nvefs_mutex_unlock(&fs->bg_lock);
	return in_time;
}

bool nvefs_bg_behind(struct nvefs_fs *fs)
{
	bool behind;

	nvefs_mutex_lock(&fs->bg_lock);
	behind = fs->bg_busy || !nvefs_list_empty(&fs->bg_orphans);
	nvefs_mutex_unlock(&fs->bg_lock);
	return behind;
}

void nvefs_bg_throttle(struct nvefs_fs *fs)
{
	uint64_t deadline;

	nvefs_mutex_lock(&fs->bg_lock);
	if (fs->bg_norphans > BACKLOG_MAX) {
		deadline = nvefs_now_ns() + BACKLOG_PAUSE_NS;
		while (fs->bg_norphans > BACKLOG_MAX &&
		       nvefs_cond_wait_until(&fs->bg_cond, &fs->bg_lock, deadline))
			continue;
	}
	nvefs_mutex_unlock(&fs->bg_lock);
}

void nvefs_orphan_drain(struct nvefs_fs *fs, struct nvefs_queue *q)
{
	(void)q;
	nvefs_bg_drain(fs, nvefs_now_ns() + 30000000000ull);
}
