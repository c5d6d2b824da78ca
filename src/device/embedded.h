/* SPDX-License-Identifier: MIT */
/* The embedded controller as a device: its options, its making, and what tests do to it. */
#ifndef NVEFS_DEVICE_EMBEDDED_H
#define NVEFS_DEVICE_EMBEDDED_H

#include "device/controller.h"
#include "device/uri.h"

struct nvefs_embedded_options {
	struct nvefs_ctrl_config ctrl;
	bool vwc_asked;
};
extern const struct nvefs_uri_option nvefs_embedded_option_table[];
void nvefs_embedded_options_init(struct nvefs_embedded_options *o);

/* `target` is as the user wrote it, for identity and messages. */
int nvefs_embedded_open_ram(const char *target, uint64_t size_bytes,
			    const struct nvefs_embedded_options *o, struct nvefs_dev **ret_dev,
			    struct nvefs_error *err);
int nvefs_embedded_open_file(const char *target, const char *path,
			     const struct nvefs_embedded_options *o,
			     const struct nvefs_dev_open_opts *open_opts,
			     struct nvefs_dev **ret_dev, struct nvefs_error *err);

/* On a medium of the caller's, which is taken over, on failure too. */
int nvefs_embedded_open_media(const char *target, const struct nvefs_ctrl_config *cfg,
			      struct nvefs_media *media, struct nvefs_dev **ret_dev,
			      struct nvefs_error *err);

/*
 * The power fails and comes back: of what was written with vwc=on and neither
 * flushed nor FUA, a choice by `seed` is gone, torn at LBA granularity. Wrappers
 * above are looked through. No other thread is in a call on the device. *ret_lost_lbas may be NULL.
 * -ENOTSUP when the medium is a file (its cache is the kernel's) or `dev` is no embedded
 * controller.
 */
int nvefs_embedded_power_cut(struct nvefs_dev *dev, uint64_t seed, uint64_t *ret_lost_lbas);

#endif
