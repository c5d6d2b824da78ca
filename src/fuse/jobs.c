/* SPDX-License-Identifier: MIT */
#include "fuse/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Trim goes in slices, so that an unmount need not wait for all of it. */
#define TRIM_SLICE_BYTES (16ull << 30)
#define PATH_KEPT 2000 /* so that one, escaped, fits an answer of the control channel */

struct job {
	pthread_t thread;
	bool started; /* to be joined */
	bool running;
};

struct nvefs_jobs {
	struct nvefs_daemon *daemon;
	_Atomic bool stop_scrub, stop_trim;

	struct nvefs_mutex lock; /* all below */
	struct job scrub, trim;
	struct nvefs_scrub_state state;
	struct nvefs_damage *damage;

	/* of the trim under way */
	fuse_req_t trim_req;
	struct fstrim_range trim_range;
	int trim_fd;
};

int nvefs_jobs_new(struct nvefs_daemon *d, struct nvefs_jobs **ret_jobs)
{
	struct nvefs_jobs *j = calloc(1, sizeof(*j));

	if (!j)
		return -ENOMEM;
	j->damage = calloc(NVEFS_SCRUB_EVENTS_MAX, sizeof(*j->damage));
	if (!j->damage) {
		free(j);
		return -ENOMEM;
	}
	j->daemon = d;
	nvefs_mutex_init(&j->lock);
	*ret_jobs = j;
	return 0;
}

static void forget_damage_locked(struct nvefs_jobs *j) NVEFS_REQUIRES(&j->lock)
{
	for (uint32_t i = 0; i < j->state.nkept; i++)
		free(j->damage[i].path);
	j->state = (struct nvefs_scrub_state){0};
}

static void job_join(struct job *job)
{
	if (job->started)
		nvefs_thread_join(job->thread);
	job->started = false;
}

void nvefs_jobs_free(struct nvefs_jobs *j)
{
	if (!j)
		return;
	atomic_store(&j->stop_scrub, true);
	atomic_store(&j->stop_trim, true);
	job_join(&j->scrub);
	job_join(&j->trim);
	nvefs_mutex_lock(&j->lock);
	forget_damage_locked(j);
	nvefs_mutex_unlock(&j->lock);
	nvefs_mutex_done(&j->lock);
	free(j->damage);
	free(j);
}

/* Start a thread for a job; the thread of its last run has ended. */
static int job_start_locked(struct nvefs_jobs *j, struct job *job, const char *name, void *(*fn)(void *))
	NVEFS_REQUIRES(&j->lock)
{
	int err;

	job_join(job);
	job->running = true;
	err = nvefs_thread_start(&job->thread, name, fn, j);
	job->started = !err;
	job->running = !err;
	return err;
}

/* ---- Scrub ---- */

static int scrub_event(void *arg, const struct nvefs_scrub_event *ev)
{
	struct nvefs_jobs *j = arg;

	nvefs_mutex_lock(&j->lock);
	j->state.done_blks = ev->done_blks;
	j->state.total_blks = ev->total_blks;
	j->state.bad_copies = ev->bad_copies;
	if (ev->path) {
		j->state.damaged++;
		if (j->state.nkept < NVEFS_SCRUB_EVENTS_MAX) {
			char *path = strndup(ev->path, PATH_KEPT);

			if (path)
				j->damage[j->state.nkept++] = (struct nvefs_damage){
					.path = path,
					.ino = ev->ino,
					.lblk = ev->lblk,
					.pblk = ev->pblk,
					.err = ev->err,
				};
		}
	}
	nvefs_mutex_unlock(&j->lock);
	return atomic_load(&j->stop_scrub) ? -ECANCELED : 0;
}

static void *scrub_main(void *arg)
{
	struct nvefs_jobs *j = arg;
	struct nvefs_worker *w = NULL;
	int err = nvefs_worker_open(j->daemon->fs, &w);

	if (!err)
		err = nvefs_scrub(w, scrub_event, j);
	nvefs_worker_close(w);
	nvefs_mutex_lock(&j->lock);
	j->state.err = err;
	j->state.running = false;
	j->scrub.running = false;
	nvefs_mutex_unlock(&j->lock);
	return NULL;
}

int nvefs_jobs_scrub_start(struct nvefs_jobs *j)
{
	int err = -EALREADY;

	nvefs_mutex_lock(&j->lock);
	if (!j->scrub.running) {
		forget_damage_locked(j);
		atomic_store(&j->stop_scrub, false);
		j->state.ran = j->state.running = true;
		err = job_start_locked(j, &j->scrub, "nvefs-scrub", scrub_main);
		if (err)
			j->state = (struct nvefs_scrub_state){0};
	}
	nvefs_mutex_unlock(&j->lock);
	return err;
}

void nvefs_jobs_scrub_stop(struct nvefs_jobs *j)
{
	atomic_store(&j->stop_scrub, true);
}

void nvefs_jobs_scrub_state(struct nvefs_jobs *j, struct nvefs_scrub_state *ret)
{
	nvefs_mutex_lock(&j->lock);
	*ret = j->state;
	nvefs_mutex_unlock(&j->lock);
}

void nvefs_jobs_scrub_events(struct nvefs_jobs *j, uint64_t first,
			     bool (*fn)(void *arg, const struct nvefs_damage *damage), void *arg)
{
	nvefs_mutex_lock(&j->lock);
	for (uint64_t i = first; i < j->state.nkept; i++)
		if (!fn(arg, &j->damage[i]))
			break;
	nvefs_mutex_unlock(&j->lock);
}

/* ---- Trim ---- */

static int trim_slices(struct nvefs_jobs *j, struct nvefs_worker *w, const struct fstrim_range *r, uint64_t *ret)
{
	uint64_t end = r->len > UINT64_MAX - r->start ? UINT64_MAX : r->start + r->len;
	struct nvefs_info info;
	uint64_t size, sum = 0;
	int err = 0;

	nvefs_info_get(j->daemon->fs, &info);
	size = info.nblks * NVEFS_BLOCK_SIZE;
	if (r->start >= size)
		return -EINVAL;
	if (end > size)
		end = size;
	for (uint64_t at = r->start; at < end && !err; at += TRIM_SLICE_BYTES) {
		uint64_t len = end - at < TRIM_SLICE_BYTES ? end - at : TRIM_SLICE_BYTES;
		uint64_t trimmed = 0;

		err = atomic_load(&j->stop_trim) ? -EINTR : nvefs_trim(w, at, len, r->minlen, &trimmed);
		sum += err ? 0 : trimmed;
	}
	*ret = sum;
	return err;
}

static void *trim_main(void *arg)
{
	struct nvefs_jobs *j = arg;
	struct fstrim_range range = j->trim_range;
	struct nvefs_worker *w = NULL;
	uint64_t trimmed = 0;
	int err = nvefs_worker_open(j->daemon->fs, &w);

	if (!err)
		err = trim_slices(j, w, &range, &trimmed);
	nvefs_worker_close(w);
	nvefs_reply_fd_set(j->trim_fd);
	range.len = trimmed;
	nvefs_mutex_lock(&j->lock);
	j->trim.running = false;
	nvefs_mutex_unlock(&j->lock);
	if (err)
		fuse_reply_err(j->trim_req, -err);
	else
		fuse_reply_ioctl(j->trim_req, 0, &range, sizeof(range));
	return NULL;
}

int nvefs_jobs_trim(struct nvefs_jobs *j, fuse_req_t req, const struct fstrim_range *range, int fuse_fd)
{
	int err = -EBUSY;

	nvefs_mutex_lock(&j->lock);
	if (!j->trim.running) {
		job_join(&j->trim);
		j->trim_req = req;
		j->trim_range = *range;
		j->trim_fd = fuse_fd;
		err = job_start_locked(j, &j->trim, "nvefs-trim", trim_main);
	}
	nvefs_mutex_unlock(&j->lock);
	return err;
}
