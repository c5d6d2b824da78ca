/* SPDX-License-Identifier: MIT */
#include "ask.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

/* Whether the work mends one thing by its number. */
static bool one_by_one(enum nvefs_mender mender)
{
	return mender == NVEFS_MEND_ITEM || mender == NVEFS_MEND_ORPHAN || mender == NVEFS_MEND_LOOP ||
	       mender == NVEFS_MEND_LOST || mender == NVEFS_MEND_INODE;
}

static uint64_t key_of(const struct nvefs_problem *p, enum nvefs_mender mender)
{
	if (!one_by_one(mender))
		return 0;
	if (mender == NVEFS_MEND_ITEM)
		return (uint64_t)p->kind << 56 | p->lblk;
	/* As todo.c has it: the other directory is the one that changes. */
	return p->code == NVEFS_P_DIR_PARENT ? p->found : p->ino;
}

static int remember(struct nvefs_answers *a, uint64_t key, enum nvefs_mender mender, bool yes)
{
	if (a->n == a->max) {
		size_t max = a->max ? a->max * 2 : 32;
		struct nvefs_answer *tab = reallocarray(a->tab, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		a->tab = tab;
		a->max = max;
	}
	a->tab[a->n++] = (struct nvefs_answer){key, mender, yes};
	return yes;
}

/*
 * The next line: its length without its end, its first byte. -1 at the end of input, at a failure and after an
 * interrupt. Byte by byte, so that no answer waits in a buffer of ours; a line of any length is one line.
 */
static ssize_t read_line(char *ret_first)
{
	ssize_t len = 0, n;
	char c;

	for (;;) {
		n = read(STDIN_FILENO, &c, 1);
		if (n == 1 && c == '\n')
			return len;
		if (n == 1) {
			if (!len++)
				*ret_first = c;
			continue;
		}
		if (!n || (errno != EINTR && errno != EAGAIN) || nvefs_report_is_cancelled())
			return -1;
		/* Somebody who shares the terminal made it one that does not wait. */
		if (errno == EAGAIN)
			poll(&(struct pollfd){.fd = STDIN_FILENO, .events = POLLIN}, 1, -1);
	}
}

/* 'y', 'n', 'a' or 'q', which the end of input is, too; 0: interrupted. */
static char read_answer(enum nvefs_mender mender)
{
	char first = 0;
	ssize_t len;

	do {
		printf("  %s%s? [y]es, [n]o, [a]ll, [q]uit asking: ", nvefs_mender_text(mender),
		       one_by_one(mender) ? "" : " (all of these)");
		fflush(stdout);
		len = read_line(&first);
	} while (len >= 0 && (len != 1 || !memchr("ynaq", first, 4)));
	if (nvefs_report_is_cancelled())
		first = 0;
	else if (len < 0)
		first = 'q';
	if (len < 0)
		putchar('\n');
	return first;
}

static int ask(struct nvefs_answers *a, const char *target, const struct nvefs_problem *p, enum nvefs_mender mender)
{
	char text[1024];
	char answer;

	nvefs_problem_text(p, text, sizeof(text));
	printf("%s: NV%04x: %s: %s\n", target, p->code, nvefs_severity_text(nvefs_problem_info(p->code)->severity), text);
	answer = read_answer(mender);
	if (!answer)
		return -ECANCELED;
	a->all |= answer == 'a';
	a->none |= answer == 'q';
	return remember(a, key_of(p, mender), mender, answer == 'y' || answer == 'a');
}

int nvefs_answers_get(struct nvefs_answers *a, const char *target, const struct nvefs_problem *p,
		      enum nvefs_mender mender, bool *ret_asked)
{
	uint64_t key = key_of(p, mender);

	*ret_asked = false;
	for (size_t i = 0; i < a->n; i++)
		if (a->tab[i].mender == mender && a->tab[i].key == key)
			return a->tab[i].yes;
	if (a->all || a->none)
		return a->all;
	*ret_asked = true;
	return ask(a, target, p, mender);
}

void nvefs_answers_done(struct nvefs_answers *a)
{
	free(a->tab);
	*a = (struct nvefs_answers){0};
}
