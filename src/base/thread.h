/* SPDX-License-Identifier: MIT */
/*
 * Threads and locks. Thin wrappers of pthreads that abort on misuse and carry
 * Clang's thread safety attributes. The one lock order is in src/README.md.
 */
#ifndef NVEFS_BASE_THREAD_H
#define NVEFS_BASE_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__)
#define NVEFS_TSA(x) __attribute__((x))
#else
#define NVEFS_TSA(x)
#endif

#define NVEFS_ACQUIRE(...) NVEFS_TSA(acquire_capability(__VA_ARGS__))
#define NVEFS_ACQUIRE_SHARED(...) NVEFS_TSA(acquire_shared_capability(__VA_ARGS__))
#define NVEFS_RELEASE(...) NVEFS_TSA(release_capability(__VA_ARGS__))
#define NVEFS_RELEASE_SHARED(...) NVEFS_TSA(release_shared_capability(__VA_ARGS__))
#define NVEFS_REQUIRES(...) NVEFS_TSA(requires_capability(__VA_ARGS__))
#define NVEFS_REQUIRES_SHARED(...) NVEFS_TSA(requires_shared_capability(__VA_ARGS__))
#define NVEFS_NO_TSA NVEFS_TSA(no_thread_safety_analysis)

struct NVEFS_TSA(capability("mutex")) nvefs_mutex {
	pthread_mutex_t m;
};
struct NVEFS_TSA(capability("rwlock")) nvefs_rwlock {
	pthread_rwlock_t l;
};
struct nvefs_cond {
	pthread_cond_t c;
};

void nvefs_mutex_init(struct nvefs_mutex *m);
void nvefs_mutex_done(struct nvefs_mutex *m);
void nvefs_mutex_lock(struct nvefs_mutex *m) NVEFS_ACQUIRE(m);
void nvefs_mutex_unlock(struct nvefs_mutex *m) NVEFS_RELEASE(m);

/* Writers are preferred, so that a stream of readers cannot starve a commit. Not recursive. */
void nvefs_rwlock_init(struct nvefs_rwlock *l);
void nvefs_rwlock_done(struct nvefs_rwlock *l);
void nvefs_rwlock_rdlock(struct nvefs_rwlock *l) NVEFS_ACQUIRE_SHARED(l);
void nvefs_rwlock_rdunlock(struct nvefs_rwlock *l) NVEFS_RELEASE_SHARED(l);
void nvefs_rwlock_wrlock(struct nvefs_rwlock *l) NVEFS_ACQUIRE(l);
void nvefs_rwlock_wrunlock(struct nvefs_rwlock *l) NVEFS_RELEASE(l);

/* Condition variables run on CLOCK_MONOTONIC. */
void nvefs_cond_init(struct nvefs_cond *c);
void nvefs_cond_done(struct nvefs_cond *c);
void nvefs_cond_wait(struct nvefs_cond *c, struct nvefs_mutex *m) NVEFS_REQUIRES(m);
/* False when `deadline_ns` (as nvefs_now_ns counts) passed first. */
bool nvefs_cond_wait_until(struct nvefs_cond *c, struct nvefs_mutex *m, uint64_t deadline_ns)
	NVEFS_REQUIRES(m);
void nvefs_cond_signal(struct nvefs_cond *c);
void nvefs_cond_broadcast(struct nvefs_cond *c);

/* 0 or -errno. All signals are blocked in the new thread. `name` is cut to 15 bytes. */
int nvefs_thread_start(pthread_t *ret_thread, const char *name, void *(*fn)(void *), void *arg);
void nvefs_thread_join(pthread_t thread);

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t nvefs_now_ns(void);
/* Of CLOCK_BOOTTIME, which also counts the time for which the host was suspended. */
uint64_t nvefs_boot_ns(void);

#endif
