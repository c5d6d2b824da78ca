/* SPDX-License-Identifier: MIT */
/* tune.nvefs: show and change the settings of a file system that is not mounted. */
#include <getopt.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid/uuid.h>

#include <nvefs/tune.h>

#include "device/uri.h"
#include "fs/settings.h"

enum { EXIT_FAIL = 1, EXIT_USAGE = 2 };

struct tune_options {
	struct nvefs_settings_args settings;
	bool dry_run, quiet, json, mmp_force;
	const char *target;
	uint64_t said_ms; /* of waiting for another host */
};

static const char usage[] =
	"usage: tune.nvefs [OPTIONS] TARGET\n"
	"Show or change the settings of the nvefs file system on TARGET, which must not be mounted.\n"
	"\n"
	"  -L LABEL         label, at most 63 bytes; '' for none\n"
	"  -U UUID|random   identity of the file system\n"
	"  -O mmp, -O ^mmp  with or without multiple mount protection\n"
	"  -E mmp_update_interval=TIME\n"
	"                   time between its heartbeats, 100ms to 60s\n"
	"  --mmp=force      change even what another host has mounted: take it from that one\n"
	"  -n               do all checks, say what would be changed, change nothing\n"
	"  -q               say nothing unless it fails\n"
	"  --json           say it as one JSON object\n"
	"  -h, --help       this text\n"
	"  -V, --version    version\n"
	"\n"
	"Without -L, -U, -O and -E the settings are shown.\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n"
	"\n"
	"TARGET, with its options after commas:\n";

static int usage_error(const char *text)
{
	fprintf(stderr, "tune.nvefs: %s: see tune.nvefs --help\n", text);
	return EXIT_USAGE;
}

static int parse_setting(struct tune_options *o, int opt)
{
	struct nvefs_error err = {""};

	if (!nvefs_settings_parse(&o->settings, opt, optarg, &err))
		return 0;
	fprintf(stderr, "tune.nvefs: %s\n", err.text);
	return EXIT_USAGE;
}

static int parse_one(struct tune_options *o, int opt)
{
	switch (opt) {
	case 'L':
	case 'U':
	case 'O':
	case 'E':
		return parse_setting(o, opt);
	case 'M':
		o->mmp_force = !strcmp(optarg, "force");
		return o->mmp_force ? 0 : usage_error("--mmp takes force and nothing else");
	case 'n':
		o->dry_run = true;
		return 0;
	case 'q':
		o->quiet = true;
		return 0;
	case 'j':
		o->json = true;
		return 0;
	case 'h':
		printf("%s%s", usage, nvefs_dev_help());
		exit(0);
	case 'V':
		puts("tune.nvefs " NVEFS_VERSION);
		exit(0);
	}
	return usage_error("unknown option");
}

static int parse_options(int argc, char **argv, struct tune_options *o)
{
	static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {"label", required_argument, NULL, 'L'},
					      {"uuid", required_argument, NULL, 'U'},
					      {"mmp", required_argument, NULL, 'M'},
					      {"dry-run", no_argument, NULL, 'n'},
					      {"quiet", no_argument, NULL, 'q'},
					      {"json", no_argument, NULL, 'j'},
					      {0}};
	int opt, code;

	while ((opt = getopt_long(argc, argv, "L:U:O:E:nqhV", longs, NULL)) != -1) {
		code = parse_one(o, opt);
		if (code)
			return code;
	}
	if (optind + 1 != argc)
		return usage_error(optind == argc ? "no target is named" : "more than one target is named");
	o->target = argv[optind];
	if (o->settings.mmp == NVEFS_OFF && o->settings.mmp_interval_ms)
		return usage_error("-E: mmp_update_interval has no meaning with -O ^mmp");
	return 0;
}

static bool wants_change(const struct tune_options *o)
{
	const struct nvefs_settings_args *s = &o->settings;

	return s->label || s->have_uuid || s->mmp != NVEFS_DEFAULT || s->mmp_interval_ms;
}

static int tell_wait(void *arg, const struct nvefs_host_wait *w)
{
	struct tune_options *o = arg;
	char text[512];

	if (nvefs_host_wait_text(w, &o->said_ms, text, sizeof(text)))
		fprintf(stderr, "tune.nvefs: %s: %s\n", o->target, text);
	return 0;
}

struct outcome {
	struct nvefs_settings before, now; /* shown only: the same */
	bool changed;
};

static int work(struct tune_options *o, struct nvefs_dev *dev, struct outcome *ret, struct nvefs_error *err)
{
	const struct nvefs_tune_opts opts = {
		.label = o->settings.label,
		.uuid = o->settings.have_uuid ? o->settings.uuid : NULL,
		.mmp = o->settings.mmp,
		.mmp_interval_ms = o->settings.mmp_interval_ms,
		.dry_run = o->dry_run,
		.mmp_force = o->mmp_force,
		.mmp_force_how = "--mmp=force",
		.host_wait = tell_wait,
		.host_wait_arg = o,
	};
	int rc;

	if (wants_change(o)) {
		rc = nvefs_tune(dev, &opts, &ret->before, &ret->now, err);
	} else {
		rc = nvefs_settings_get(dev, &ret->now, err);
		ret->before = ret->now;
	}
	ret->changed = memcmp(&ret->before, &ret->now, sizeof(ret->now)) != 0;
	return rc;
}

static void mmp_text(uint32_t interval_ms, char *ret, size_t len)
{
	if (interval_ms)
		snprintf(ret, len, "on, a heartbeat every %u ms", interval_ms);
	else
		snprintf(ret, len, "off");
}

/* One line; what it was is told where that is another. */
static void print_setting(const char *name, const char *before, const char *now)
{
	printf("  %-26s %s", name, *now ? now : "none");
	if (strcmp(before, now) != 0)
		printf(" (before: %s)", *before ? before : "none");
	putchar('\n');
}

static void print_text(const struct tune_options *o, const struct outcome *r)
{
	char before[64], now[64];
	const char *what = !wants_change(o)	    ? "settings"
			   : !r->changed	    ? "as wanted already, nothing is changed"
			   : o->dry_run		    ? "would be changed to"
						    : "changed to";

	printf("tune.nvefs: %s: %s\n", o->target, what);
	print_setting("label", r->before.label, r->now.label);
	uuid_unparse(r->before.uuid, before);
	uuid_unparse(r->now.uuid, now);
	print_setting("UUID", before, now);
	mmp_text(r->before.mmp_interval_ms, before, sizeof(before));
	mmp_text(r->now.mmp_interval_ms, now, sizeof(now));
	print_setting("multiple mount protection", before, now);
}

static void add_uuid(struct json_object *o, const char *key, const uint8_t *uuid)
{
	char text[37];

	uuid_unparse(uuid, text);
	json_object_object_add(o, key, json_object_new_string(text));
}

static void print_json(const struct tune_options *o, const struct outcome *r)
{
	struct json_object *doc = json_object_new_object();

	json_object_object_add(doc, "target", json_object_new_string(o->target));
	json_object_object_add(doc, "changed", json_object_new_boolean(r->changed));
	json_object_object_add(doc, "dry_run", json_object_new_boolean(o->dry_run));
	json_object_object_add(doc, "label", json_object_new_string(r->now.label));
	add_uuid(doc, "uuid", r->now.uuid);
	add_uuid(doc, "mkfs_uuid", r->now.mkfs_uuid);
	json_object_object_add(doc, "multiple_mount_protection", json_object_new_boolean(r->now.mmp_interval_ms != 0));
	json_object_object_add(doc, "heartbeat_ms", json_object_new_uint64(r->now.mmp_interval_ms));
	puts(json_object_to_json_string_ext(doc, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
							 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(doc);
}

int main(int argc, char **argv)
{
	struct tune_options o = {0};
	struct nvefs_dev_open_opts open_opts = {0};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev = NULL;
	struct outcome r = {0};
	int code = parse_options(argc, argv, &o), rc;

	if (code)
		return code;
	open_opts.flags = o.dry_run || !wants_change(&o) ? NVEFS_OPEN_RDONLY : 0;
	rc = nvefs_dev_open(o.target, &open_opts, &dev, &err);
	if (!rc)
		rc = nvefs_target_confine(o.target, &err);
	if (!rc)
		rc = work(&o, dev, &r, &err);
	nvefs_dev_close(dev);
	if (rc) {
		fprintf(stderr, "tune.nvefs: %s\n", err.text);
		return EXIT_FAIL;
	}
	if (o.json)
		print_json(&o, &r);
	else if (!o.quiet)
		print_text(&o, &r);
	if (fflush(stdout) || ferror(stdout)) {
		perror("tune.nvefs: standard output");
		return EXIT_FAIL;
	}
	return 0;
}
