// SPDX-License-Identifier: MIT
#include <stdarg.h>

#include "suites.h"

static int run(enum fork_status fork, Suite *first, va_list more)
{
	SRunner *runner = srunner_create(first);
	Suite *s;
	int failed;

	while ((s = va_arg(more, Suite *)))
		srunner_add_suite(runner, s);
	srunner_set_fork_status(runner, fork);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}

int run_suites(Suite *first, ...)
{
	va_list more;
	int failed;

	va_start(more, first);
	failed = run(CK_FORK_GETENV, first, more);
	va_end(more);
	return failed;
}

int run_suites_nofork(Suite *first, ...)
{
	va_list more;
	int failed;

	va_start(more, first);
	failed = run(CK_NOFORK, first, more);
	va_end(more);
	return failed;
}
