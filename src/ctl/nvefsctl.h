/* SPDX-License-Identifier: MIT */
/* nvefsctl's connection to a mount, and its commands. */
#ifndef NVEFS_CTL_NVEFSCTL_H
#define NVEFS_CTL_NVEFSCTL_H

#include <nvefs/ctl.h>
#include <stdbool.h>
#include <stdint.h>

enum nvefsctl_exit { NVEFSCTL_OK, NVEFSCTL_FAIL, NVEFSCTL_USAGE, NVEFSCTL_DAMAGE = 4 };

struct json_object;

struct nvefs_client {
	const char *path; /* the mount point as given */
	const char *argument;
	bool json, stop, show_help, show_version;
	uint64_t start, length, minimum; /* trim */
	int fd;
	struct nvefs_ctl ctl; /* the last answer */
};

/* All return an exit code and have said what was wrong. */
int nvefs_client_open(struct nvefs_client *c);
void nvefs_client_close(struct nvefs_client *c);
int nvefs_client_stats(struct nvefs_client *c);
int nvefs_client_info(struct nvefs_client *c);
int nvefs_client_dedup(struct nvefs_client *c);
int nvefs_client_label(struct nvefs_client *c);
int nvefs_client_sync(struct nvefs_client *c);
int nvefs_client_trim(struct nvefs_client *c);
int nvefs_client_scrub(struct nvefs_client *c);

/* One command; its errno comes back, and nothing is said. ctl->data and len go along. */
int nvefs_client_send(struct nvefs_client *c, uint32_t cmd, uint64_t arg);
/* The same, saying what is wrong; for commands that answer with JSON, which is the caller's. */
int nvefs_client_ask(struct nvefs_client *c, uint32_t cmd, uint64_t arg, struct json_object **ret_answer);
int nvefs_client_fail(const struct nvefs_client *c, const char *what, int err);
/* Print an object as one line of JSON, and give it back. */
void nvefs_client_print(struct json_object *o);

/* stats in words, for people. */
void nvefs_show_stats(struct json_object *stats);
void nvefs_show_info(struct json_object *info);

#endif
