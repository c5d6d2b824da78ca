/* SPDX-License-Identifier: MIT */
/* fsck.nvefs: check and mend a file system that is not mounted. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "device/uri.h"
#include "report.h"

/* Exit status bits of fsck(8). */
enum { EXIT_CLEAN = 0, EXIT_MENDED = 1, EXIT_ERRORS_LEFT = 4, EXIT_OPERATION = 8, EXIT_USAGE = 16, EXIT_CANCELLED = 32 };

struct fsck_options {
	bool no_change, preen, yes, force, data, mmp_force;
	bool ask; /* no -n, -p or -y, on a terminal */
	uint64_t said_ms; /* of waiting for another host */
	struct nvefs_report report;
};

static const char usage[] =
	"usage: fsck.nvefs [OPTIONS] TARGET\n"
	"Check the nvefs file system on TARGET, which must not be mounted.\n"
	"\n"
	"  -n               change nothing: replay the journal in memory only\n"
	"  -p, -a           as at boot: replay the journal, look at superblocks and root;\n"
	"                   if they are damaged, check all and mend what is safe to mend\n"
	"  -y               mend all that can be mended\n"
	"                   (without these, on a terminal: ask what to mend; elsewhere\n"
	"                   problems are named and left)\n"
	"  -f               check all even if it looks clean\n"
	"  --data           read all data, too, and compare it with its checksums\n"
	"  --mmp=force      check even what another host has mounted: take it from that one\n"
	"                   (with -n: look at it all the same)\n"
	"  -C[FD]           show progress, on the terminal or as lines on descriptor FD\n"
	"  --json           report as one JSON document\n"
	"  -h, --help       this text\n"
	"  -V, --version    version\n"
	"\n"
	"Exit status: 0 clean, 1 problems were mended, 4 problems are left (5: both),\n"
	"8 the check could not be made, 16 usage, 32 cancelled.\n"
	"\n"
	"TARGET, with its options after commas:\n";

static int ended_input = -1; /* a pipe that nobody writes to */

/*
 * A read from the terminal that waits comes back with EINTR. One that is about to wait would not, whatever was looked at
 * before, so that standard input ends here as well. Blocking the signals but in a ppoll(2) would not do: a ^C
 * takes the line away that the poll saw, and the read then waits with the signals blocked.
 */
static void on_signal(int sig)
{
	int saved = errno;

	(void)sig;
	nvefs_report_cancel();
	if (ended_input >= 0)
		dup2(ended_input, STDIN_FILENO);
	errno = saved;
}

/* 0 or -errno. `ask`: answers are going to be read from standard input. */
static int catch_signals(bool ask)
{
	struct sigaction sa = {.sa_handler = on_signal};
	int fds[2];

	if (ask && pipe2(fds, O_CLOEXEC))
		return -errno;
	if (ask) {
		close(fds[1]);
		ended_input = fds[0];
	}
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	return 0;
}

static int usage_error(const char *text)
{
	fprintf(stderr, "fsck.nvefs: %s: see fsck.nvefs --help\n", text);
	return EXIT_USAGE;
}

static void parse_progress(struct fsck_options *o, const char *arg)
{
	o->report.progress_fd = arg ? atoi(arg) : 0;
	o->report.bar = o->report.progress_fd <= 0 && isatty(STDOUT_FILENO);
}

static int parse_one(struct fsck_options *o, int opt, const char *arg)
{
	switch (opt) {
	case 'n':
		o->no_change = true;
		return 0;
	case 'p':
	case 'a':
		o->preen = true;
		return 0;
	case 'y':
		o->yes = true;
		return 0;
	case 'f':
		o->force = true;
		return 0;
	case 'd':
		o->data = true;
		return 0;
	case 'j':
		o->report.json = true;
		return 0;
	case 'M':
		o->mmp_force = !strcmp(arg, "force");
		return o->mmp_force ? 0 : EXIT_USAGE;
	case 'C':
		parse_progress(o, arg);
		return 0;
	case 'h':
		printf("%s%s", usage, nvefs_dev_help());
		exit(0);
	case 'V':
		puts("fsck.nvefs " NVEFS_VERSION);
		exit(0);
	}
	return EXIT_USAGE;
}

static int parse_options(int argc, char **argv, struct fsck_options *o)
{
	static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {"data", no_argument, NULL, 'd'},
					      {"json", no_argument, NULL, 'j'},
					      {"mmp", required_argument, NULL, 'M'},
					      {0}};
	int opt;

	while ((opt = getopt_long(argc, argv, "npayfC::hV", longs, NULL)) != -1)
		if (parse_one(o, opt, optarg))
			return usage_error(opt == 'M' ? "--mmp takes force and nothing else" : "unknown option");
	if (o->no_change + o->preen + o->yes > 1)
		return usage_error("only one of -n, -p (or -a) and -y can be given");
	if (optind + 1 != argc)
		return usage_error(optind == argc ? "no target is named" : "more than one target is named");
	o->report.target = argv[optind];
	o->ask = !o->no_change && !o->preen && !o->yes && !o->report.json && isatty(STDIN_FILENO) &&
		 isatty(STDOUT_FILENO);
	return 0;
}

static int tell_wait(void *arg, const struct nvefs_host_wait *w)
{
	struct fsck_options *o = arg;
	char text[512];

	if (nvefs_host_wait_text(w, &o->said_ms, text, sizeof(text)))
		fprintf(stderr, "fsck.nvefs: %s: %s\n", o->report.target, text);
	return nvefs_report_is_cancelled();
}

static int check(struct fsck_options *o, struct nvefs_dev *dev)
{
	struct nvefs_check_opts opts = {
		.repair = o->yes || o->ask ? NVEFS_REPAIR_ALL : o->preen ? NVEFS_REPAIR_SAFE : NVEFS_REPAIR_NONE,
		.replay_in_memory = o->no_change,
		.quick = o->preen && !o->force && !o->data,
		.data = o->data,
		.report = nvefs_report_problem,
		.ask = o->ask ? nvefs_report_ask : NULL,
		.name = nvefs_report_name,
		.progress = nvefs_report_progress,
		.arg = &o->report,
		.mmp_force = o->mmp_force,
		.mmp_force_how = "--mmp=force",
		.host_wait = tell_wait,
		.host_wait_arg = o,
	};
	struct nvefs_check_result res;
	struct nvefs_error err = {""};
	int code = nvefs_check(dev, &opts, &res, &err), status;

	if (code) {
		status = code == -ECANCELED ? EXIT_CANCELLED : EXIT_OPERATION;
		nvefs_report_failed(&o->report, err.text, status);
		return status;
	}
	status = (res.problems > res.left ? EXIT_MENDED : EXIT_CLEAN) | (res.left ? EXIT_ERRORS_LEFT : EXIT_CLEAN);
	nvefs_report_done(&o->report, &res, status);
	return status;
}

int main(int argc, char **argv)
{
	struct fsck_options o = {0};
	struct nvefs_dev_open_opts open_opts = {0};
	struct nvefs_dev *dev = NULL;
	struct nvefs_error err = {""};
	int status = parse_options(argc, argv, &o), code;

	if (status)
		return status;
	code = catch_signals(o.ask);
	if (code) {
		fprintf(stderr, "fsck.nvefs: %s: cannot prepare for signals: %s\n", o.report.target, strerror(-code));
		return EXIT_OPERATION;
	}
	nvefs_report_init(&o.report);
	open_opts.flags = o.no_change ? NVEFS_OPEN_RDONLY : 0;
	if (nvefs_dev_open(o.report.target, &open_opts, &dev, &err)) {
		nvefs_report_failed(&o.report, err.text, EXIT_OPERATION);
		return EXIT_OPERATION;
	}
	if (nvefs_target_confine(o.report.target, &err)) {
		nvefs_dev_close(dev);
		nvefs_report_failed(&o.report, err.text, EXIT_OPERATION);
		return EXIT_OPERATION;
	}
	status = check(&o, dev);
	nvefs_dev_close(dev);
	return status;
}
