/* SPDX-License-Identifier: MIT */
/*
 * One medium that several devices reach, as several hosts reach one namespace:
 * nothing keeps them apart but what the test is about. Each write is noted with
 * its time and by whom it came; each host's commands can be delayed or failed.
 */
#ifndef NVEFS_TESTS_TWO_HOSTS_H
#define NVEFS_TESTS_TWO_HOSTS_H

#include "../support/calls.h"
#include "device/cow.h"
#include "device/fault.h"

#define HOSTS_BYTES (64ull << 20)
#define HOSTS_BLKS (HOSTS_BYTES / 4096)
#define HOSTS_NOTES 100000u

struct medium_note {
	uint64_t boot_ns, pblk;
	uint32_t host, nblks;
};

struct shared_medium {
	struct nvefs_cow *cow;
	struct nvefs_mutex lock; /* below, and one command at a time */
	struct medium_note *notes;
	uint32_t nnotes;
	/* NULL, or called after each write, with the lock held. */
	void (*written)(struct shared_medium *m, uint32_t host, uint64_t pblk);
};

void shared_init(struct shared_medium *m);
void shared_done(struct shared_medium *m);
/* A device of host number `host` on it, with the fault wrapper on top. The caller's. */
struct nvefs_dev *shared_open(struct shared_medium *m, uint32_t host);
/* Copies of a block, in and out. */
void shared_read(struct shared_medium *m, uint64_t pblk, void *block);
void shared_write(struct shared_medium *m, uint64_t pblk, const void *block);
void shared_write_locked(struct shared_medium *m, uint64_t pblk, const void *block);
/* Blocks that the host wrote from `from_ns` to `to_ns` (nvefs_boot_ns), those of claim and beat left out. */
uint32_t shared_count(struct shared_medium *m, uint32_t host, uint64_t from_ns, uint64_t to_ns);

#endif
