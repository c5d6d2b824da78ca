/* SPDX-License-Identifier: MIT */
/* Settings as command lines have them: the same letters and words for mkfs.nvefs and tune.nvefs, as in mke2fs(8) and tune2fs(8). */
#ifndef NVEFS_FS_SETTINGS_H
#define NVEFS_FS_SETTINGS_H

#include <nvefs/nvefs.h>

struct nvefs_settings_args {
	const char *label; /* NULL: not given */
	bool have_uuid;
	uint8_t uuid[16];
	enum nvefs_switch mmp;	  /* NVEFS_DEFAULT: not given */
	uint32_t mmp_interval_ms; /* 0: not given */
};

/*
 * -L LABEL, -U UUID|random, -O FEATURE[,...] with ^ for without, -E mmp_update_interval=TIME. `arg`
 * outlives *a. -EINVAL.
 */
int nvefs_settings_parse(struct nvefs_settings_args *a, int option, const char *arg, struct nvefs_error *err);

#endif
