/* SPDX-License-Identifier: MIT */
/* How fsck.nvefs tells what it finds: lines for people, or one JSON document. */
#ifndef NVEFS_FSCK_REPORT_H
#define NVEFS_FSCK_REPORT_H

#include "ask.h"
#include "check.h"

struct json_object;

#define NVEFS_REPORT_PER_CODE 50u /* lines for one kind of problem; the rest is counted */
#define NVEFS_REPORT_CODES 64u

struct nvefs_report {
	const char *target;
	bool json, bar; /* bar: draw progress on the terminal */
	int progress_fd; /* > 0: lines "pass done total" for fsck(8) */
	/* below: report.c only */
	struct json_object *list, *paths;
	uint64_t counts[NVEFS_REPORT_CODES];
	uint32_t codes[NVEFS_REPORT_CODES];
	uint64_t bar_ns;
	bool bar_shown;
	struct nvefs_answers answers;
	struct nvefs_problem asked; /* the last one that was asked about: its line is on the terminal */
};

void nvefs_report_init(struct nvefs_report *r);
/* The check's callbacks. */
void nvefs_report_problem(void *arg, const struct nvefs_problem *p);
int nvefs_report_ask(void *arg, const struct nvefs_problem *p, enum nvefs_mender mender);
void nvefs_report_name(void *arg, uint64_t ino, const char *path);
int nvefs_report_progress(void *arg, const char *pass, uint32_t pass_no, uint32_t npasses, uint64_t done,
			  uint64_t total);
/* The end. `status` is the program's exit status. Frees what the report holds. */
void nvefs_report_done(struct nvefs_report *r, const struct nvefs_check_result *res, int status);
/* The check could not be made. */
void nvefs_report_failed(struct nvefs_report *r, const char *text, int status);

/* Ask the running check to end; safe in a signal handler. */
void nvefs_report_cancel(void);
bool nvefs_report_is_cancelled(void);

#endif
