/* SPDX-License-Identifier: MIT */
#include "fuse/health.h"

#include <errno.h>
#include <nvefs/drive.h>
#include <stdlib.h>
#include <string.h>

#include "base/rights.h"
#include "fuse/report.h"

struct waiting {
	fuse_req_t req;
	int fd;
};

struct nvefs_health {
	struct nvefs_daemon *daemon;
	nvefs_health_answer_fn *answer;
	pthread_t thread;

	struct nvefs_mutex lock; /* all below */
	struct nvefs_cond cond;
	bool ending;
	uint32_t nwaiting;
	struct waiting waiting[NVEFS_HEALTH_WAITING_MAX];
};

/* Ask once for all of them. */
static void ask_for(struct nvefs_health *h, int rights_err, const struct waiting *w, uint32_t n)
{
	struct nvefs_drive_health health;
	struct nvefs_error error = {""};
	int err = rights_err ? nvefs_error_set(&error, rights_err, "cannot give up capabilities")
			     : nvefs_dev_health(h->daemon->dev, &health, &error);
	char *text = err ? strdup(error.text) : nvefs_report_health(&health);

	if (!err && !text)
		err = -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		nvefs_reply_fd_set(w[i].fd);
		h->answer(w[i].req, err, text ? strdup(text) : NULL);
	}
	free(text);
}

static void *health_main(void *arg)
{
	struct nvefs_health *h = arg;
	struct waiting w[NVEFS_HEALTH_WAITING_MAX];
	int rights_err = h->daemon->privileged ? 0 : nvefs_rights_reduce(false);
	uint32_t n;

	nvefs_mutex_lock(&h->lock);
	while (h->nwaiting || !h->ending) {
		if (!h->nwaiting) {
			nvefs_cond_wait(&h->cond, &h->lock);
			continue;
		}
		n = h->nwaiting;
		memcpy(w, h->waiting, n * sizeof(w[0]));
		h->nwaiting = 0;
		nvefs_mutex_unlock(&h->lock);
		ask_for(h, rights_err, w, n);
		nvefs_mutex_lock(&h->lock);
	}
	nvefs_mutex_unlock(&h->lock);
	return NULL;
}

int nvefs_health_new(struct nvefs_daemon *d, nvefs_health_answer_fn *answer, struct nvefs_health **ret)
{
	struct nvefs_health *h = calloc(1, sizeof(*h));
	int err;

	if (!h)
		return -ENOMEM;
	h->daemon = d;
	h->answer = answer;
	nvefs_mutex_init(&h->lock);
	nvefs_cond_init(&h->cond);
	err = nvefs_thread_start(&h->thread, "nvefs-health", health_main, h);
	if (err) {
		nvefs_cond_done(&h->cond);
		nvefs_mutex_done(&h->lock);
		free(h);
		return err;
	}
	*ret = h;
	return 0;
}

void nvefs_health_free(struct nvefs_health *h)
{
	if (!h)
		return;
	nvefs_mutex_lock(&h->lock);
	h->ending = true;
	nvefs_cond_signal(&h->cond);
	nvefs_mutex_unlock(&h->lock);
	nvefs_thread_join(h->thread);
	nvefs_cond_done(&h->cond);
	nvefs_mutex_done(&h->lock);
	free(h);
}

int nvefs_health_ask(struct nvefs_health *h, fuse_req_t req, int fuse_fd)
{
	int err = -EBUSY;

	nvefs_mutex_lock(&h->lock);
	if (h->nwaiting < NVEFS_HEALTH_WAITING_MAX) {
		h->waiting[h->nwaiting++] = (struct waiting){req, fuse_fd};
		nvefs_cond_signal(&h->cond);
		err = 0;
	}
	nvefs_mutex_unlock(&h->lock);
	return err;
}
