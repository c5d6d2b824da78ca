/* SPDX-License-Identifier: MIT */
/* nvefsctl(8): statistics and control of a mounted nvefs. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/nvefsctl.h"

static const char usage[] =
	"Usage: nvefsctl COMMAND [OPTIONS] MOUNTPOINT [ARGUMENT]\n"
	"\n"
	"Commands:\n"
	"  stats                 space, sharing, dedup, journal, cache, device commands\n"
	"  info                  what is mounted, from where, by which daemon\n"
	"  dedup [on|off]        show or switch inline deduplication\n"
	"  label [TEXT]          show or set the label\n"
	"  sync                  return when all earlier changes are durable\n"
	"  trim                  tell the device which blocks are free\n"
	"  scrub                 read and check everything, name the damaged files\n"
	"\n"
	"Options:\n"
	"  --json                print one JSON object\n"
	"  --start=BYTES, --length=BYTES, --minimum=BYTES\n"
	"                        trim: part of the device, shortest run\n"
	"  --stop                scrub: stop the one that runs\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage, 4 scrub found damage.\n";

static const struct {
	const char *name;
	int (*run)(struct nvefs_client *c);
	int max_args; /* after the mount point */
} commands[] = {
	{"stats", nvefs_client_stats, 0}, {"info", nvefs_client_info, 0}, {"dedup", nvefs_client_dedup, 1},
	{"label", nvefs_client_label, 1}, {"sync", nvefs_client_sync, 0}, {"trim", nvefs_client_trim, 0},
	{"scrub", nvefs_client_scrub, 0},
};

/* Bytes with an optional suffix k, M, G, T. */
static int parse_bytes(const char *text, uint64_t *ret)
{
	static const char suffixes[] = "kmgt";
	char *end;
	uint64_t v;
	unsigned int shift = 0;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 0);
	if (*end) {
		const char *s = strchr(suffixes, *end | 0x20);

		if (!s || !*s || end[1])
			return -EINVAL;
		shift = 10 * (unsigned int)(s - suffixes + 1);
	}
	if (errno || v > UINT64_MAX >> shift)
		return -EINVAL;
	*ret = v << shift;
	return 0;
}

static int wrong_usage(const char *what, const char *text)
{
	fprintf(stderr, "nvefsctl: %s: %s; see nvefsctl --help\n", what, text);
	return NVEFSCTL_USAGE;
}

static int parse_options(struct nvefs_client *c, int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},	   {"start", required_argument, NULL, 's'},
		{"length", required_argument, NULL, 'l'},  {"minimum", required_argument, NULL, 'm'},
		{"stop", no_argument, NULL, 'S'},	   {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},	   {0},
	};
	int o;

	while ((o = getopt_long(argc, argv, "jhV", options, NULL)) != -1) {
		uint64_t *bytes = o == 's' ? &c->start : o == 'l' ? &c->length : o == 'm' ? &c->minimum : NULL;

		if (bytes && parse_bytes(optarg, bytes))
			return wrong_usage(optarg, "not a number of bytes");
		if (o == 'j')
			c->json = true;
		else if (o == 'S')
			c->stop = true;
		else if (o == 'h')
			c->show_help = true;
		else if (o == 'V')
			c->show_version = true;
		else if (o == '?')
			return NVEFSCTL_USAGE;
	}
	return NVEFSCTL_OK;
}

static int dispatch(struct nvefs_client *c, int nargs, char **args)
{
	size_t i;
	int code;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(args[0], commands[i].name) == 0)
			break;
	if (i == sizeof(commands) / sizeof(commands[0]))
		return wrong_usage(args[0], "no such command");
	if (nargs < 2)
		return wrong_usage(args[0], "a mount point is missing");
	if (nargs > 2 + commands[i].max_args)
		return wrong_usage(args[2 + commands[i].max_args], "too many arguments");
	c->path = args[1];
	c->argument = nargs > 2 ? args[2] : NULL;
	/* "dedup on /mnt" is as clear. */
	if (c->argument && commands[i].run == nvefs_client_dedup &&
	    (strcmp(args[1], "on") == 0 || strcmp(args[1], "off") == 0)) {
		c->path = args[2];
		c->argument = args[1];
	}
	code = nvefs_client_open(c);
	if (code == NVEFSCTL_OK)
		code = commands[i].run(c);
	nvefs_client_close(c);
	return code;
}

int main(int argc, char **argv)
{
	struct nvefs_client c = {.fd = -1, .length = UINT64_MAX};
	int code = parse_options(&c, argc, argv);

	if (code)
		return code;
	if (c.show_help) {
		fputs(usage, stdout);
		return NVEFSCTL_OK;
	}
	if (c.show_version) {
		puts("nvefsctl " NVEFS_VERSION);
		return NVEFSCTL_OK;
	}
	if (optind == argc) {
		fputs(usage, stderr);
		return NVEFSCTL_USAGE;
	}
	code = dispatch(&c, argc - optind, argv + optind);
	if (fflush(stdout) || ferror(stdout)) {
		perror("nvefsctl: standard output");
		code = code ? code : NVEFSCTL_FAIL;
	}
	return code;
}
