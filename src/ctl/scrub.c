/* SPDX-License-Identifier: MIT */
/* nvefsctl scrub: start one, or join the one that runs; follow it; name what is damaged. */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl/nvefsctl.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

static uint64_t u64_of(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_uint64(v) : 0;
}

static bool bool_of(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) && json_object_get_boolean(v);
}

static const char *text_of(struct json_object *o, const char *key)
{
	struct json_object *v;

	return json_object_object_get_ex(o, key, &v) && v ? json_object_get_string(v) : NULL;
}

static void show_progress(const struct nvefs_client *c, struct json_object *status, bool last)
{
	uint64_t done = u64_of(status, "done_blocks"), total = u64_of(status, "total_blocks");

	if (c->json || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%s: %5.1f %% of %" PRIu64 " MiB checked%s", c->path,
		total ? 100.0 * (double)done / (double)total : 100.0, total >> 8, last ? "\n" : "");
}

static void show_event(struct json_object *ev)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	printf("damaged: %s: offset %" PRIu64 " (device block %" PRIu64 "): %s\n", text_of(ev, "path"),
	       u64_of(ev, "file_block") * 4096, u64_of(ev, "device_block"), text_of(ev, "error"));
}

/* Fetch what is new; it is shown, or for JSON collected in `all`. */
static int fetch_events(struct nvefs_client *c, uint64_t *next, struct json_object *all)
{
	for (;;) {
		struct json_object *answer, *list;
		size_t n;
		int code = nvefs_client_ask(c, NVEFS_CTL_SCRUB_EVENTS, *next, &answer);

		if (code)
			return code;
		n = json_object_object_get_ex(answer, "events", &list) ? json_object_array_length(list) : 0;
		for (size_t i = 0; i < n; i++) {
			struct json_object *ev = json_object_array_get_idx(list, i);

			if (c->json)
				json_object_array_add(all, json_object_get(ev));
			else
				show_event(ev);
		}
		*next = u64_of(answer, "next");
		json_object_put(answer);
		if (!n)
			return NVEFSCTL_OK;
	}
}

/* Follow until it ends. *ret_status is the last status, the caller's. */
static int follow(struct nvefs_client *c, struct json_object *all, struct json_object **ret_status)
{
	const struct timespec pause = {.tv_nsec = 200000000};
	struct json_object *status;
	uint64_t next = 0;
	bool running;
	int code;

	for (;;) {
		code = nvefs_client_ask(c, NVEFS_CTL_SCRUB_STATUS, 0, &status);
		if (code)
			return code;
		running = bool_of(status, "running");
		code = fetch_events(c, &next, all);
		if (code) {
			json_object_put(status);
			return code;
		}
		show_progress(c, status, !running);
		if (!running)
			break;
		json_object_put(status);
		if (interrupted)
			nvefs_client_send(c, NVEFS_CTL_SCRUB_STOP, 0);
		nanosleep(&pause, NULL);
	}
	*ret_status = status;
	return NVEFSCTL_OK;
}

static int conclude(const struct nvefs_client *c, struct json_object *status)
{
	uint64_t damaged = u64_of(status, "damaged_blocks"), done = u64_of(status, "done_blocks");
	uint64_t copies = u64_of(status, "bad_copies");
	const char *error = text_of(status, "error");

	if (error)
		fprintf(stderr, "nvefsctl: %s: scrub did not finish: %s\n", c->path, error);
	if (!c->json)
		printf("%s: %" PRIu64 " blocks (%" PRIu64 " MiB) checked, %" PRIu64 " damaged\n", c->path, done,
		       done >> 8, damaged);
	if (!c->json && copies)
		printf("%s: %" PRIu64 " bad copies of metadata blocks, to be written anew from the good ones: "
		       "see nvefsctl stats\n",
		       c->path, copies);
	return damaged ? NVEFSCTL_DAMAGE : error ? NVEFSCTL_FAIL : NVEFSCTL_OK;
}

int nvefs_client_scrub(struct nvefs_client *c)
{
	struct sigaction sa = {.sa_handler = on_signal};
	struct json_object *status, *all, *started;
	int code;

	if (c->stop) {
		code = nvefs_client_ask(c, NVEFS_CTL_SCRUB_STATUS, 0, &status);
		if (code)
			return code;
		json_object_put(status);
		return nvefs_client_send(c, NVEFS_CTL_SCRUB_STOP, 0) ? NVEFSCTL_FAIL : NVEFSCTL_OK;
	}
	/* Asking first says in clear words when this is no nvefs. */
	code = nvefs_client_ask(c, NVEFS_CTL_INFO, 0, &started);
	if (code)
		return code;
	json_object_put(started);
	c->ctl.len = 0;
	if (nvefs_client_send(c, NVEFS_CTL_SCRUB_START, 0) || (c->ctl.err && c->ctl.err != -EALREADY))
		return nvefs_client_fail(c, "scrub cannot start", c->ctl.err ? c->ctl.err : -errno);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	all = json_object_new_array();
	code = follow(c, all, &status);
	if (code) {
		json_object_put(all);
		return code;
	}
	code = conclude(c, status);
	if (c->json) {
		json_object_object_add(status, "damaged", all);
		nvefs_client_print(status);
	} else {
		json_object_put(all);
		json_object_put(status);
	}
	return code;
}
