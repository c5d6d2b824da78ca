/* SPDX-License-Identifier: MIT */
/*
 * One lock for both lists. The descriptor is written when the done list turns
 * from empty to not empty, and made quiet, under the same lock, only when the
 * list is empty: so no completion is slept through.
 */
#include "device/callers.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

struct nvefs_callers {
	void (*run)(struct nvefs_job *job);
	int event_fd;
	uint32_t nthreads;
	struct nvefs_mutex lock; /* all below */
	struct nvefs_cond work;
	struct nvefs_list todo, done;
	bool ending;
	pthread_t threads[];
};

static struct nvefs_job *job_from(struct nvefs_list *link)
{
	return link ? nvefs_container_of(link, struct nvefs_job, link) : NULL;
}

static void finished_locked(struct nvefs_callers *c, struct nvefs_job *job)
{
	uint64_t one = 1;
	bool first = nvefs_list_empty(&c->done);

	nvefs_list_push(&c->done, &job->link);
	if (first && write(c->event_fd, &one, sizeof(one)) < 0)
		return; /* a full counter is readable, too */
}

static void *caller_main(void *arg)
{
	struct nvefs_callers *c = arg;
	struct nvefs_job *job;

	nvefs_mutex_lock(&c->lock);
	for (;;) {
		job = job_from(nvefs_list_pop(&c->todo));
		if (!job && c->ending)
			break;
		if (!job) {
			nvefs_cond_wait(&c->work, &c->lock);
			continue;
		}
		nvefs_mutex_unlock(&c->lock);
		c->run(job);
		nvefs_mutex_lock(&c->lock);
		finished_locked(c, job);
	}
	nvefs_mutex_unlock(&c->lock);
	return NULL;
}

int nvefs_callers_new(uint32_t nthreads, void (*run)(struct nvefs_job *job),
		      struct nvefs_callers **ret)
{
	struct nvefs_callers *c = calloc(1, sizeof(*c) + nthreads * sizeof(c->threads[0]));
	int err = 0;

	if (!c)
		return -ENOMEM;
	c->run = run;
	nvefs_mutex_init(&c->lock);
	nvefs_cond_init(&c->work);
	nvefs_list_init(&c->todo);
	nvefs_list_init(&c->done);
	c->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->event_fd < 0)
		err = -errno;
	while (!err && c->nthreads < nthreads) {
		err = nvefs_thread_start(&c->threads[c->nthreads], "caller", caller_main, c);
		if (!err)
			c->nthreads++;
	}
	if (err) {
		nvefs_callers_free(c);
		return err;
	}
	*ret = c;
	return 0;
}

void nvefs_callers_free(struct nvefs_callers *c)
{
	if (!c)
		return;
	nvefs_mutex_lock(&c->lock);
	c->ending = true;
	nvefs_cond_broadcast(&c->work);
	nvefs_mutex_unlock(&c->lock);
	for (uint32_t i = 0; i < c->nthreads; i++)
		nvefs_thread_join(c->threads[i]);
	if (c->event_fd >= 0)
		close(c->event_fd);
	nvefs_cond_done(&c->work);
	nvefs_mutex_done(&c->lock);
	free(c);
}

int nvefs_callers_fd(const struct nvefs_callers *c)
{
	return c->event_fd;
}

void nvefs_callers_start(struct nvefs_callers *c, struct nvefs_job *job)
{
	nvefs_mutex_lock(&c->lock);
	nvefs_list_push(&c->todo, &job->link);
	nvefs_cond_signal(&c->work);
	nvefs_mutex_unlock(&c->lock);
}

struct nvefs_job *nvefs_callers_reap(struct nvefs_callers *c)
{
	struct nvefs_job *job;

	nvefs_mutex_lock(&c->lock);
	job = job_from(nvefs_list_pop(&c->done));
	nvefs_mutex_unlock(&c->lock);
	return job;
}

bool nvefs_callers_prepare_wait(struct nvefs_callers *c)
{
	uint64_t value;
	bool quiet;

	nvefs_mutex_lock(&c->lock);
	quiet = nvefs_list_empty(&c->done);
	if (quiet && read(c->event_fd, &value, sizeof(value)) < 0)
		value = 0; /* it was quiet already */
	nvefs_mutex_unlock(&c->lock);
	return quiet;
}
