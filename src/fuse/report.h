/* SPDX-License-Identifier: MIT */
/* The JSON texts of the control channel; nvefsctl(8) lists the keys. Each is the caller's; NULL: out of memory. */
#ifndef NVEFS_FUSE_REPORT_H
#define NVEFS_FUSE_REPORT_H

#include <nvefs/drive.h>

#include "fuse/daemon.h"

char *nvefs_report_stats(struct nvefs_daemon *d);
char *nvefs_report_info(struct nvefs_daemon *d);
char *nvefs_report_scrub(struct nvefs_daemon *d);
/* Of the drive, asked just now. */
char *nvefs_report_health(const struct nvefs_drive_health *health);
/* Damage from number `first` on, as much as fits `max_bytes`; "next" is the number to go on with. */
char *nvefs_report_scrub_events(struct nvefs_daemon *d, uint64_t first, size_t max_bytes);

/* The objects "nvme" and "scsi" of what the drive says of itself, where it does. */
struct json_object;
void nvefs_report_add_drive(struct json_object *to, const struct nvefs_drive *drive);

#endif
