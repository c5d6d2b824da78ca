/* SPDX-License-Identifier: MIT */
/* The JSON texts of the control channel; nvefsctl(8) lists the keys. Each is the caller's; NULL: out of memory. */
#ifndef NVEFS_FUSE_REPORT_H
#define NVEFS_FUSE_REPORT_H

#include "fuse/daemon.h"

char *nvefs_report_stats(struct nvefs_daemon *d);
char *nvefs_report_info(struct nvefs_daemon *d);
char *nvefs_report_scrub(struct nvefs_daemon *d);
/* Damage from number `first` on, as much as fits `max_bytes`; "next" is the number to go on with. */
char *nvefs_report_scrub_events(struct nvefs_daemon *d, uint64_t first, size_t max_bytes);

#endif
