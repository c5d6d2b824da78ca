/* SPDX-License-Identifier: MIT */
/*
 * The command line of nvefs(8) and mount.nvefs(8). Our own options are taken
 * out of the -o list; those of FUSE and of mount(8) are kept for libfuse, and
 * everything else is an error that names it.
 */
#ifndef NVEFS_FUSE_OPTIONS_H
#define NVEFS_FUSE_OPTIONS_H

#include <nvefs/nvefs.h>

#define NVEFS_MAX_SERVERS 64u

/* Exit codes, those of mount(8). */
enum nvefs_exit { NVEFS_EXIT_OK, NVEFS_EXIT_USAGE = 1, NVEFS_EXIT_FAIL = 32 };

struct nvefs_options {
	const char *program; /* for messages */
	const char *target;
	const char *mountpoint;
	enum nvefs_route route;
	struct nvefs_mount_opts mount;
	uint32_t queues; /* 0: choose */
	bool foreground, debug;
	bool fake, verbose, sloppy; /* mount.nvefs -f, -v, -s */
	bool show_help, show_version;
	char *fuse_opts; /* comma separated, for libfuse; owned */
};

/* `as_mount`: the conventions of mount(8) for helpers. -EINVAL with *err set on a bad command line. */
int nvefs_options_parse(struct nvefs_options *o, int argc, char **argv, bool as_mount, struct nvefs_error *err);
void nvefs_options_done(struct nvefs_options *o);
/* Append to o->fuse_opts; `value` NULL: a plain word, else "word=value" with commas escaped. 0 or -ENOMEM. */
int nvefs_options_add(struct nvefs_options *o, const char *word, const char *value);

#endif
