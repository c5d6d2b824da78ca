/* SPDX-License-Identifier: MIT */
/*
 * Where messages for a person go. Libraries below src/fs do not log; they
 * return errors. The file system logs events that no caller is there to be
 * told of (a damaged block, a failed commit). Any thread.
 */
#ifndef NVEFS_BASE_LOG_H
#define NVEFS_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum nvefs_log_level { NVEFS_LOG_ERR, NVEFS_LOG_WARN, NVEFS_LOG_INFO, NVEFS_LOG_DEBUG };

/* Receives each line, without newline. The default writes to stderr. */
typedef void nvefs_log_fn(enum nvefs_log_level level, const char *line);

/* Set sink (NULL: the default) and the least urgent level shown. Not while other threads log. */
void nvefs_log_setup(nvefs_log_fn *sink, enum nvefs_log_level max);

/* A sink that forgets. Lines are made all the same, so that a sanitizer sees what goes into them. */
void nvefs_log_discard(enum nvefs_log_level level, const char *line);

void nvefs_log(enum nvefs_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Allow `burst` events per `interval_s` seconds. True when this one may be
 * logged; *ret_missed counts those swallowed since the last one that was.
 */
struct nvefs_ratelimit {
	uint64_t start_ns;
	uint32_t interval_s, burst, count, missed;
	int lock;
};
bool nvefs_ratelimit_ok(struct nvefs_ratelimit *rl, uint32_t *ret_missed);
/* Tests only, before other threads: each event may be logged from now on. */
void nvefs_ratelimit_lift(void);

#endif
