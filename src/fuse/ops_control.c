/* SPDX-License-Identifier: MIT */
/* ioctl: FITRIM, and the control channel of <nvefs/ctl.h>. */
#include <errno.h>
#include <linux/fs.h>
#include <nvefs/ctl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "fuse/daemon.h"
#include "fuse/health.h"
#include "fuse/jobs.h"
#include "fuse/report.h"

static void trim(fuse_req_t req, const void *in, size_t in_size)
{
	struct nvefs_server *s = nvefs_server_self();
	struct fstrim_range range;
	int err;

	if (fuse_req_ctx(req)->uid != 0) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (in_size < sizeof(range)) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	memcpy(&range, in, sizeof(range));
	err = nvefs_jobs_trim(s->daemon->jobs, req, &range, s->fuse_fd);
	if (err)
		fuse_reply_err(req, -err);
}

/* ---- Control ---- */

/* Answer: outcome, and a text that is moved into the data. NULL text: none. Frees it. */
static void reply_ctl(fuse_req_t req, struct nvefs_ctl *ctl, int err, char *text)
{
	size_t len = text ? strlen(text) : 0;

	if (len >= NVEFS_CTL_DATA_BYTES) {
		nvefs_log(NVEFS_LOG_ERR, "control channel: an answer of %zu bytes is too long", len);
		len = 0;
		err = -EMSGSIZE;
	}
	if (len)
		memcpy(ctl->data, text, len);
	ctl->data[len] = '\0';
	ctl->len = (uint32_t)len;
	ctl->err = err;
	free(text);
	fuse_reply_ioctl(req, 0, ctl, offsetof(struct nvefs_ctl, data) + len + 1);
}

static void reply_text(fuse_req_t req, struct nvefs_ctl *ctl, char *text)
{
	reply_ctl(req, ctl, text ? 0 : -ENOMEM, text);
}

void nvefs_ops_health_answer(fuse_req_t req, int err, char *text)
{
	struct nvefs_ctl ctl = {.version = NVEFS_CTL_VERSION, .cmd = NVEFS_CTL_HEALTH};

	reply_ctl(req, &ctl, err, text);
}

static void health(fuse_req_t req, struct nvefs_ctl *ctl)
{
	struct nvefs_server *s = nvefs_server_self();
	int err = nvefs_health_ask(s->daemon->health, req, s->fuse_fd);

	if (err)
		reply_ctl(req, ctl, err, strdup("too many are asking the drive already: try again"));
}

static void sync_done(struct nvefs_req *r)
{
	struct nvefs_call *c = r->arg;
	struct nvefs_ctl ctl = {.version = NVEFS_CTL_VERSION, .cmd = NVEFS_CTL_SYNC};

	reply_ctl(c->fuse, &ctl, r->err, NULL);
	nvefs_call_free(c);
}

static void set_label(fuse_req_t req, struct nvefs_ctl *ctl)
{
	char label[256];
	uint32_t len = ctl->len;

	if (len >= sizeof(label) || memchr(ctl->data, 0, len)) {
		reply_ctl(req, ctl, -EINVAL, strdup("a label has at most 63 bytes"));
		return;
	}
	memcpy(label, ctl->data, len);
	label[len] = '\0';
	reply_ctl(req, ctl, nvefs_set_label(nvefs_server_self()->worker, label), NULL);
}

static void run_command(fuse_req_t req, struct nvefs_ctl *ctl)
{
	struct nvefs_daemon *d = nvefs_server_self()->daemon;
	struct nvefs_call *c;

	switch (ctl->cmd) {
	case NVEFS_CTL_STATS:
		reply_text(req, ctl, nvefs_report_stats(d));
		return;
	case NVEFS_CTL_INFO:
		reply_text(req, ctl, nvefs_report_info(d));
		return;
	case NVEFS_CTL_DEDUP:
		reply_ctl(req, ctl, nvefs_dedup_switch(d->fs, ctl->arg != 0), NULL);
		return;
	case NVEFS_CTL_SYNC:
		c = nvefs_call_new(req, NVEFS_REQ_SYNC, 0);
		if (c)
			nvefs_call_start(c, sync_done);
		return;
	case NVEFS_CTL_LABEL:
		set_label(req, ctl);
		return;
	case NVEFS_CTL_SCRUB_START:
		reply_ctl(req, ctl, nvefs_jobs_scrub_start(d->jobs), NULL);
		return;
	case NVEFS_CTL_SCRUB_STATUS:
		reply_text(req, ctl, nvefs_report_scrub(d));
		return;
	case NVEFS_CTL_SCRUB_EVENTS:
		reply_text(req, ctl, nvefs_report_scrub_events(d, ctl->arg, NVEFS_CTL_DATA_BYTES));
		return;
	case NVEFS_CTL_HEALTH:
		health(req, ctl);
		return;
	case NVEFS_CTL_SCRUB_STOP:
		nvefs_jobs_scrub_stop(d->jobs);
		reply_ctl(req, ctl, 0, NULL);
		return;
	}
	reply_ctl(req, ctl, -EOPNOTSUPP, strdup("the daemon does not know this command: it may be older"));
}

static void control(fuse_req_t req, fuse_ino_t ino, const void *in, size_t in_size)
{
	const struct nvefs_daemon *d = nvefs_server_self()->daemon;
	uid_t uid = fuse_req_ctx(req)->uid;
	struct nvefs_ctl ctl;

	if (ino != FUSE_ROOT_ID) {
		fuse_reply_err(req, ENOTTY);
		return;
	}
	if (uid != 0 && uid != d->owner) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (in_size != sizeof(ctl)) {
		fuse_reply_err(req, EPROTO);
		return;
	}
	memcpy(&ctl, in, sizeof(ctl));
	if (ctl.version != NVEFS_CTL_VERSION) {
		fuse_reply_err(req, EPROTO);
		return;
	}
	run_command(req, &ctl);
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
		     unsigned int flags, const void *in, size_t in_size, size_t out_size)
{
	(void)arg;
	(void)fi;
	(void)flags;
	(void)out_size;
	if (cmd == FITRIM)
		trim(req, in, in_size);
	else if (cmd == NVEFS_IOC_CTL)
		control(req, ino, in, in_size);
	else
		fuse_reply_err(req, ENOTTY);
}

void nvefs_ops_control(struct fuse_lowlevel_ops *ops)
{
	ops->ioctl = op_ioctl;
}
