/* SPDX-License-Identifier: MIT */
/*
 * Settings of a file system that is not mounted: label, UUID, multiple mount
 * protection. They are in the superblock, which is written slot by slot, each
 * flushed; the first slot that is durable makes the change, whole, and a power cut
 * leaves what was there before or what is there after. The next mount, or fsck,
 * brings the other slots up to date.
 */
#ifndef NVEFS_TUNE_H
#define NVEFS_TUNE_H

#include <nvefs/nvefs.h>

struct nvefs_settings {
	uint8_t uuid[16];
	uint8_t mkfs_uuid[16]; /* in the header of each metadata block: the same, unless it was changed later */
	char label[64];
	uint32_t mmp_interval_ms; /* 0: without multiple mount protection */
};

struct nvefs_tune_opts {
	const char *label;   /* NULL: as it is; at most 63 bytes */
	const uint8_t *uuid; /* NULL: as it is; 16 bytes, not all zeros */
	enum nvefs_switch mmp; /* NVEFS_DEFAULT: as it is */
	uint32_t mmp_interval_ms; /* 10 to 60000; 0: as it is, or NVEFS_MMP_DEFAULT_MS. Not without protection */
	bool dry_run; /* all checks, and nothing is written: the device may be open for reading only */
	bool mmp_force; /* take it from the host that has it */
	const char *mmp_force_how; /* what gives that, for the message; NULL: nothing does */
	nvefs_host_wait_fn *host_wait; /* may be NULL */
	void *host_wait_arg;
};

/* As they are; nobody is asked whether another host has it. -EMEDIUMTYPE, -EUCLEAN, -ENOTSUP, -EIO. */
int nvefs_settings_get(struct nvefs_dev *dev, struct nvefs_settings *ret, struct nvefs_error *err);
/*
 * Change them; what they were, and what they are now. The device stays the caller's. Nothing is written, and
 * the file system is as before, on
 *  -EINVAL      a setting that cannot be;
 *  -EBUSY       another host has it, where that can be told;
 *  -ENOTSUP     a feature that this program does not know, of whatever kind;
 *  -EUCLEAN     damaged, or the journal holds changes: mount it once, or run fsck;
 *  -EROFS       the device is read-only.
 * Any other error: old or new, whole. Settings that are as wanted already are not written.
 */
int nvefs_tune(struct nvefs_dev *dev, const struct nvefs_tune_opts *opts, struct nvefs_settings *ret_before,
	       struct nvefs_settings *ret_now, struct nvefs_error *err);

#endif
