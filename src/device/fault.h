/* SPDX-License-Identifier: MIT */
/*
 * A device that fails on purpose. Faults are rules; the first that hits a
 * command decides what becomes of it. Commands are counted per rule over all queues,
 * from 1, from when the rule was added. Also reached by the target
 * option fault=, see nvefs_dev_help.
 */
#ifndef NVEFS_DEVICE_FAULT_H
#define NVEFS_DEVICE_FAULT_H

#include "device/backend.h"
#include "device/uri.h"

#define NVEFS_FAULT_ANY 0xffu

enum nvefs_fault_action {
	NVEFS_FAULT_FAIL,	/* not done; ends with `status`, or with `err` when status is 0 */
	NVEFS_FAULT_FAIL_AFTER, /* done, and then it ends so all the same */
	NVEFS_FAULT_DELAY,	/* the completion comes delay_ns later; with `seed`, up to that much
				   later */
	NVEFS_FAULT_TEAR, /* write: each LBA is written or not, by `seed`; ends with `status`, 0:
			     success */
	NVEFS_FAULT_DROP, /* reported as success and not done */
	NVEFS_FAULT_FLIP, /* read: one bit of the data is wrong, which one by `seed` */
	NVEFS_FAULT_LATE,  /* not even begun before delay_ns have passed */
	NVEFS_FAULT_STALE, /* read: blocks written since the rule was added read as before the last
			      time */
	NVEFS_FAULT_MISDIRECT, /* write: lands `distance_blks` further, wrapping at the end */
	/*
	 * Ends at once with -ETIMEDOUT. What changes the medium is carried out all the same, with the
	 * data of now: before the late_cmds-th command that comes to the device after it, on whichever
	 * queue, or else (and with 0 always) when the device is closed.
	 */
	NVEFS_FAULT_TIMEOUT,
};

struct nvefs_fault {
	uint8_t op; /* enum nvefs_io_op or NVEFS_FAULT_ANY */
	uint8_t action;
	uint16_t status; /* NVMe status field */
	int err;
	uint64_t nth;	/* the first one hit; 0 is 1 */
	uint64_t every; /* 0: only that one; n: and each n-th after it */
	uint64_t first_pblk,
	    end_pblk; /* only commands that touch these; end 0: all. Flush has no place. */
	uint64_t delay_ns, seed, distance_blks, late_cmds;
};

/* `below` is taken over on success only. 0 or -errno. */
int nvefs_fault_wrap(struct nvefs_dev *below, const struct nvefs_fault *faults, size_t nfaults,
		     struct nvefs_dev **ret_dev);
/* Every completion comes `delay_ns` later; with `seed`, a random time up to that, which mixes their
 * order. */
int nvefs_delay_wrap(struct nvefs_dev *below, uint64_t delay_ns, uint64_t seed,
		     struct nvefs_dev **ret_dev);

/* On a device that nvefs_fault_wrap made. Any thread, also with commands in flight. */
int nvefs_fault_add(struct nvefs_dev *dev,
		    const struct nvefs_fault *fault); /* -ENOSPC above 32 rules */
void nvefs_fault_clear(struct nvefs_dev *dev);
uint64_t
nvefs_fault_hits(struct nvefs_dev *dev); /* commands that a rule hit, since the device was made */

/*
 * "OP:NTH[/EVERY]:ACTION[:VALUE]", such as "write:5:fail", "read:1/3:flip", "flush:1/1:drop",
 * "any:1/1:delay:2ms", "write:4:timeout:100". 0 or -EINVAL.
 */
int nvefs_fault_parse(const char *text, struct nvefs_fault *ret_fault);

/* The target option fault=, which may be given several times. */
struct nvefs_fault_options {
	struct nvefs_fault faults[8];
	size_t nfaults;
};
extern const struct nvefs_uri_option nvefs_fault_option_table[];

#endif
