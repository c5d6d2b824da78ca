/* SPDX-License-Identifier: MIT */
/*
 * The control channel of a mount: one ioctl on the mount's root directory,
 * answered by the daemon, for the mount's owner and root only. It is what
 * nvefsctl(8) uses. Texts are JSON objects, whose keys nvefsctl(8) lists.
 *
 * The ioctl itself fails with -ENOTTY where there is no nvefs, -EPERM for
 * others, -EPROTO for another version of this structure. Otherwise it succeeds
 * and `err` has the outcome: 0 with the answer in `data`, or a negative errno
 * with a message for a person in `data`.
 */
#ifndef NVEFS_CTL_H
#define NVEFS_CTL_H

#include <assert.h>
#include <linux/ioctl.h>
#include <stdint.h>

#define NVEFS_CTL_VERSION 1u
#define NVEFS_CTL_DATA_BYTES 15872u

enum nvefs_ctl_cmd {
	NVEFS_CTL_STATS = 1,
	NVEFS_CTL_INFO,
	NVEFS_CTL_DEDUP, /* arg: 0 off, 1 on */
	NVEFS_CTL_SYNC,	 /* answered when all earlier operations are durable */
	NVEFS_CTL_LABEL, /* data: the new label, `len` bytes */
	NVEFS_CTL_SCRUB_START, /* -EALREADY when one runs */
	NVEFS_CTL_SCRUB_STATUS,
	NVEFS_CTL_SCRUB_EVENTS, /* arg: number of the first; as many as fit, "next" is where to go on */
	NVEFS_CTL_SCRUB_STOP,
	NVEFS_CTL_HEALTH, /* the drive is asked: -ENOTSUP, -ETIMEDOUT ...; -EBUSY when many ask at once */
};

struct nvefs_ctl {
	uint32_t version; /* NVEFS_CTL_VERSION */
	uint32_t cmd;	  /* enum nvefs_ctl_cmd */
	uint64_t arg;
	int32_t err;
	uint32_t len; /* bytes of data, without a terminating NUL, which the answer has too */
	uint64_t reserved[5];
	char data[NVEFS_CTL_DATA_BYTES];
};
static_assert(sizeof(struct nvefs_ctl) == 64 + NVEFS_CTL_DATA_BYTES, "ctl");
static_assert(sizeof(struct nvefs_ctl) < 1u << _IOC_SIZEBITS, "fits an ioctl number");

#define NVEFS_IOC_CTL _IOWR('n', 0x4e, struct nvefs_ctl)

#endif
