/* SPDX-License-Identifier: MIT */
/* Hosts on one medium, which mount, write, crash. In one process: the medium and the last line that was logged are shared. */
#ifndef TEST_MMP_H
#define TEST_MMP_H

#include <check.h>

#include "base/log.h"
#include "two_hosts.h"

#define MS 1000000ull
#define ROOM_MS 30000u /* for a machine that does other things */

extern struct shared_medium medium;
extern char last_log[512];

struct host {
	uint32_t number;
	struct nvefs_dev *dev; /* while mounted, the file system's */
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
	struct nvefs_mount_opts opts;
	struct nvefs_error err;
	/* what it was told while it waited */
	uint32_t ntold, nslow, give_up_after;
	struct nvefs_host_wait told;
	uint64_t mount_ms;
};

void medium_setup(void);
void medium_teardown(void);
/* alpha, beta and gamma are the numbers 0 to 2. */
void host_init(struct host *h, uint32_t number);
void medium_make(uint32_t interval_ms);
int host_try_mount(struct host *h);
void host_mount(struct host *h);
int host_unmount(struct host *h);
void host_crash(struct host *h);
int host_write(struct host *h, const char *name, uint8_t value);
void host_expect(struct host *h, const char *name, uint8_t value);
void medium_expect_sound(void);
int host_stopped_by(struct host *h);
uint32_t medium_claim(uint64_t *ret_nonce);
/* A new file system, which a, alpha, has mounted; b is beta. */
void host_pair(struct host *a, struct host *b, uint32_t interval_ms);

Suite *mmp_late_suite(void);

#endif
