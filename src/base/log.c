/* SPDX-License-Identifier: MIT */
#include "base/log.h"
#include "base/thread.h"

#include <stdarg.h>
#include <stdio.h>

static void stderr_sink(enum nvefs_log_level level, const char *line)
{
	(void)level;
	fprintf(stderr, "nvefs: %s\n", line);
}

static nvefs_log_fn *log_sink = stderr_sink;
static enum nvefs_log_level log_max = NVEFS_LOG_INFO;

void nvefs_log_setup(nvefs_log_fn *sink, enum nvefs_log_level max)
{
	log_sink = sink ? sink : stderr_sink;
	log_max = max;
}

void nvefs_log_discard(enum nvefs_log_level level, const char *line)
{
	(void)level;
	(void)line;
}

void nvefs_log(enum nvefs_log_level level, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (level > log_max)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	log_sink(level, line);
}

static bool lifted;

void nvefs_ratelimit_lift(void)
{
	lifted = true;
}

bool nvefs_ratelimit_ok(struct nvefs_ratelimit *rl, uint32_t *ret_missed)
{
	uint64_t now = nvefs_now_ns();
	bool ok;

	while (__atomic_exchange_n(&rl->lock, 1, __ATOMIC_ACQUIRE))
		;
	if (!rl->start_ns || now - rl->start_ns >= rl->interval_s * UINT64_C(1000000000)) {
		rl->start_ns = now;
		rl->count = 0;
	}
	ok = lifted || rl->count < rl->burst;
	if (ok) {
		rl->count++;
		*ret_missed = rl->missed;
		rl->missed = 0;
	} else {
		rl->missed++;
	}
	__atomic_store_n(&rl->lock, 0, __ATOMIC_RELEASE);
	return ok;
}
