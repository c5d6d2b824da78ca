/* SPDX-License-Identifier: MIT */
/* A target mounted by the daemon for as long as a measurement takes. */
#ifndef NVEFS_BENCH_MOUNT_H
#define NVEFS_BENCH_MOUNT_H

#include <nvefs/device.h>
#include <sys/types.h>

struct nvefs_bench_mount {
	char program[4096]; /* the daemon */
	char dir[64];	    /* temporary directory, mounted on; empty: none */
	pid_t pid;	    /* of the daemon; 0: none */
	int err_fd;	    /* what the daemon says */
};

/* Finds the daemon. */
int nvefs_bench_mount_init(struct nvefs_bench_mount *m, struct nvefs_error *err);
/* Mount the target; `options` is the -o list. */
int nvefs_bench_mount_start(struct nvefs_bench_mount *m, const char *target, const char *options,
			    struct nvefs_error *err);
/* Unmount and wait until the daemon has ended well. Fine when nothing is mounted. */
int nvefs_bench_mount_stop(struct nvefs_bench_mount *m, struct nvefs_error *err);

#endif
