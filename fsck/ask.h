/* SPDX-License-Identifier: MIT */
/* Whoever sits at the terminal says what is mended. */
#ifndef NVEFS_FSCK_ASK_H
#define NVEFS_FSCK_ASK_H

#include <stdbool.h>
#include <stddef.h>

#include "problem.h"

/*
 * Answers that were given. What is mended one by one (an inode, an item) is asked about one by one, all else once for
 * all that the same work mends.
 */
struct nvefs_answers {
	bool all, none; /* to what has not been answered */
	size_t n, max;
	struct nvefs_answer {
		uint64_t key;
		enum nvefs_mender mender;
		bool yes;
	} *tab;
};

/*
 * Standard input and output are terminals; the end of input says no to all that follows. 1, 0; -ECANCELED
 * after an interrupt (nvefs_report_cancel), -ENOMEM. *ret_asked: it was a new question.
 */
int nvefs_answers_get(struct nvefs_answers *a, const char *target, const struct nvefs_problem *p,
		      enum nvefs_mender mender, bool *ret_asked);
void nvefs_answers_done(struct nvefs_answers *a);

#endif
