/* SPDX-License-Identifier: MIT */
#include "base/thread.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A failing lock call is a bug of ours: going on would corrupt data. */
static void must(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "nvefs: %s: %s\n", what, strerror(err));
	abort();
}

void nvefs_mutex_init(struct nvefs_mutex *m)
{
	must(pthread_mutex_init(&m->m, NULL), "mutex init");
}

void nvefs_mutex_done(struct nvefs_mutex *m)
{
	must(pthread_mutex_destroy(&m->m), "mutex done");
}

void nvefs_mutex_lock(struct nvefs_mutex *m) NVEFS_NO_TSA
{
	must(pthread_mutex_lock(&m->m), "mutex lock");
}

void nvefs_mutex_unlock(struct nvefs_mutex *m) NVEFS_NO_TSA
{
	must(pthread_mutex_unlock(&m->m), "mutex unlock");
}

void nvefs_rwlock_init(struct nvefs_rwlock *l)
{
	pthread_rwlockattr_t a;

	must(pthread_rwlockattr_init(&a), "rwlock attr");
	must(pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP),
	     "rwlock kind");
	must(pthread_rwlock_init(&l->l, &a), "rwlock init");
	pthread_rwlockattr_destroy(&a);
}

void nvefs_rwlock_done(struct nvefs_rwlock *l)
{
	must(pthread_rwlock_destroy(&l->l), "rwlock done");
}

void nvefs_rwlock_rdlock(struct nvefs_rwlock *l) NVEFS_NO_TSA
{
	must(pthread_rwlock_rdlock(&l->l), "rwlock rdlock");
}

void nvefs_rwlock_rdunlock(struct nvefs_rwlock *l) NVEFS_NO_TSA
{
	must(pthread_rwlock_unlock(&l->l), "rwlock unlock");
}

void nvefs_rwlock_wrlock(struct nvefs_rwlock *l) NVEFS_NO_TSA
{
	must(pthread_rwlock_wrlock(&l->l), "rwlock wrlock");
}

void nvefs_rwlock_wrunlock(struct nvefs_rwlock *l) NVEFS_NO_TSA
{
	must(pthread_rwlock_unlock(&l->l), "rwlock unlock");
}

void nvefs_cond_init(struct nvefs_cond *c)
{
	pthread_condattr_t a;

	must(pthread_condattr_init(&a), "cond attr");
	must(pthread_condattr_setclock(&a, CLOCK_MONOTONIC), "cond clock");
	must(pthread_cond_init(&c->c, &a), "cond init");
	pthread_condattr_destroy(&a);
}

void nvefs_cond_done(struct nvefs_cond *c)
{
	must(pthread_cond_destroy(&c->c), "cond done");
}

void nvefs_cond_wait(struct nvefs_cond *c, struct nvefs_mutex *m)
{
	must(pthread_cond_wait(&c->c, &m->m), "cond wait");
}

bool nvefs_cond_wait_until(struct nvefs_cond *c, struct nvefs_mutex *m, uint64_t deadline_ns)
{
	struct timespec ts = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
			      .tv_nsec = (long)(deadline_ns % 1000000000u)};
	int err = pthread_cond_timedwait(&c->c, &m->m, &ts);

	if (err == ETIMEDOUT)
		return false;
	must(err, "cond timedwait");
	return true;
}

void nvefs_cond_signal(struct nvefs_cond *c)
{
	must(pthread_cond_signal(&c->c), "cond signal");
}

void nvefs_cond_broadcast(struct nvefs_cond *c)
{
	must(pthread_cond_broadcast(&c->c), "cond broadcast");
}

int nvefs_thread_start(pthread_t *ret_thread, const char *name, void *(*fn)(void *), void *arg)
{
	char cut[16];
	sigset_t all, old;
	pthread_t t;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = -pthread_create(&t, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return err;
	snprintf(cut, sizeof(cut), "%s", name);
	pthread_setname_np(t, cut);
	*ret_thread = t;
	return 0;
}

void nvefs_thread_join(pthread_t thread)
{
	must(pthread_join(thread, NULL), "thread join");
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t nvefs_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t nvefs_boot_ns(void)
{
	return clock_ns(CLOCK_BOOTTIME);
}
