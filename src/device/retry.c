/* SPDX-License-Identifier: MIT */
#include "device/retry.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "nvme/status.h"

static const uint64_t pauses_ns[] = {10000000, 40000000, 160000000, 640000000, 2560000000, 5000000000};
#define NPAUSES (sizeof(pauses_ns) / sizeof(pauses_ns[0]))
#define MAX_WAIT_NS 60000000000ull

int nvefs_retries_init(struct nvefs_retries *r, struct nvefs_queue *q)
{
	int err;

	nvefs_list_init(&r->waiting);
	r->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (r->timer_fd < 0)
		return -errno;
	err = nvefs_queue_watch_fd(q, r->timer_fd);
	if (err)
		nvefs_retries_done(r);
	return err;
}

void nvefs_retries_done(struct nvefs_retries *r)
{
	if (r->timer_fd >= 0)
		close(r->timer_fd);
	r->timer_fd = -1;
}

bool nvefs_retry_next(struct nvefs_retry *e, struct nvefs_retry_want want, uint64_t *ret_pause_ns)
{
	uint64_t pause_ns = want.delay_ns;

	if (want.kind == NVEFS_RETRY_NEVER || e->tries >= (want.kind == NVEFS_RETRY_ONCE ? 1 : NPAUSES))
		return false;
	if (!pause_ns && want.kind == NVEFS_RETRY_PAUSE)
		pause_ns = pauses_ns[e->tries];
	/* Before its time a try is in vain, and longer nobody wants to wait. */
	if (pause_ns > MAX_WAIT_NS - e->waited_ns)
		return false;
	e->tries++;
	e->waited_ns += pause_ns;
	*ret_pause_ns = pause_ns;
	return true;
}

bool nvefs_retries_add(struct nvefs_retries *r, struct nvefs_retry *e, struct nvefs_retry_want want)
{
	struct nvefs_list *at = r->waiting.prev;
	uint64_t pause_ns;

	if (!nvefs_retry_next(e, want, &pause_ns))
		return false;
	e->due_ns = nvefs_now_ns() + pause_ns;
	while (at != &r->waiting &&
	       nvefs_container_of(at, struct nvefs_retry, link)->due_ns > e->due_ns)
		at = at->prev;
	nvefs_list_push_front(at, &e->link);
	return true;
}

int nvefs_retry_result(const struct nvefs_retry *e, int err)
{
	return err && e->in_doubt ? -ETIMEDOUT : err;
}

static struct nvefs_retry *first(struct nvefs_retries *r)
{
	if (nvefs_list_empty(&r->waiting))
		return NULL;
	return nvefs_container_of(r->waiting.next, struct nvefs_retry, link);
}

struct nvefs_retry *nvefs_retries_due(struct nvefs_retries *r)
{
	struct nvefs_retry *e = first(r);

	if (!e || e->due_ns > nvefs_now_ns())
		return NULL;
	nvefs_list_del(&e->link);
	return e;
}

/* Setting the timer also takes back that it had fired. */
bool nvefs_retries_prepare_wait(struct nvefs_retries *r)
{
	struct nvefs_retry *e = first(r);
	struct itimerspec when = {0};

	if (!e)
		return true;
	if (e->due_ns <= nvefs_now_ns())
		return false;
	when.it_value.tv_sec = (time_t)(e->due_ns / 1000000000u);
	when.it_value.tv_nsec = (long)(e->due_ns % 1000000000u);
	return !timerfd_settime(r->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

enum nvefs_retry_kind nvefs_retry_for_nvme(uint16_t status)
{
	switch (status & NVEFS_NVME_STATUS_MASK) {
	case NVEFS_NVME_SC_COMPARE_FAILED: /* an answer, not a failure */
		return NVEFS_RETRY_NEVER;
	default:
		break;
	}
	if (!nvefs_nvme_status_retryable(status))
		return NVEFS_RETRY_NEVER;
	switch (status & NVEFS_NVME_STATUS_MASK) {
	case NVEFS_NVME_SC_POWER_LOSS:
	case NVEFS_NVME_SC_ABORT_REQUESTED:
	case NVEFS_NVME_SC_SQ_DELETED:
	case NVEFS_NVME_SC_PREEMPT_ABORT:
	case NVEFS_NVME_SC_INTERRUPTED:
	case NVEFS_NVME_SC_TRANSIENT_TRANSPORT:
	case NVEFS_NVME_SC_MEDIA_NOT_READY:
	case NVEFS_NVME_SC_NS_NOT_READY:
		return NVEFS_RETRY_PAUSE;
	default:
		break;
	}
	/* Paths that come and go; all else either works at once or does not. */
	return (status & NVEFS_NVME_SCT_MASK) >> NVEFS_NVME_SCT_SHIFT == 3 ? NVEFS_RETRY_PAUSE
									     : NVEFS_RETRY_ONCE;
}

/*
 * EINTR: the kernel gave the command up, after its time limit or in a reset; the next try waits
 * in the kernel until the controller is back. EAGAIN and EINVAL: a multipath namespace without a
 * usable path for the moment answers so (its paths tell more, see nvme_linux.c); a command that
 * really is malformed only fails some seconds later for it.
 */
enum nvefs_retry_kind nvefs_retry_for_errno(int err)
{
	switch (err) {
	case -EINTR:
		return NVEFS_RETRY_ONCE;
	case -EAGAIN:
	case -EINVAL:
	case -ENOMEM:
	case -EBUSY:
		return NVEFS_RETRY_PAUSE;
	default:
		return NVEFS_RETRY_NEVER;
	}
}

struct nvefs_retry_want nvefs_retry_for_result(int res, const uint32_t crdt_ms[3])
{
	struct nvefs_retry_want want = {.kind = NVEFS_RETRY_NEVER};
	uint32_t crd;

	if (res < 0)
		want.kind = nvefs_retry_for_errno(res);
	if (res <= 0)
		return want;
	want.kind = nvefs_retry_for_nvme((uint16_t)res);
	crd = ((uint32_t)res & NVEFS_NVME_CRD_MASK) >> NVEFS_NVME_CRD_SHIFT;
	if (crd && want.kind != NVEFS_RETRY_NEVER)
		want.delay_ns = crdt_ms[crd - 1] * 1000000ull;
	if (want.delay_ns)
		want.kind = NVEFS_RETRY_PAUSE;
	return want;
}
