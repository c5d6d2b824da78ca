/* SPDX-License-Identifier: MIT */
#include "bench/fio.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "bench/process.h"

#define MAX_ARGS 24
#define JOB_FILE "nvefs-bench"

/* fio's arguments with their text. */
struct command {
	char text[MAX_ARGS][512];
	const char *argv[MAX_ARGS + 1];
	int n;
};

__attribute__((format(printf, 2, 3))) static void add(struct command *c, const char *fmt, ...)
{
	va_list ap;

	if (c->n >= MAX_ARGS)
		return;
	va_start(ap, fmt);
	vsnprintf(c->text[c->n], sizeof(c->text[0]), fmt, ap);
	va_end(ap);
	c->argv[c->n] = c->text[c->n];
	c->argv[++c->n] = NULL;
}

/* What all runs have in common. The same files serve every cell. */
static void add_base(struct command *c, const struct nvefs_fio_params *p)
{
	add(c, "fio");
	add(c, "--name=%s", JOB_FILE);
	add(c, "--directory=%s", p->dir);
	add(c, "--filename_format=%s.$jobnum", JOB_FILE);
	add(c, "--output-format=json");
	add(c, "--ioengine=libaio");
	add(c, "--direct=1");
	add(c, "--numjobs=%u", p->jobs);
	add(c, "--size=%llu", (unsigned long long)p->size_bytes);
	add(c, "--group_reporting");
	add(c, "--fallocate=none");
	add(c, "--randrepeat=0");
}

static void make_prepare(struct command *c, const struct nvefs_fio_params *p)
{
	add_base(c, p);
	add(c, "--iodepth=8");
	add(c, "--rw=write");
	add(c, "--bs=128k");
	add(c, "--end_fsync=1");
}

static void make_cell(struct command *c, const struct nvefs_fio_params *p, const struct nvefs_cell *cell)
{
	add_base(c, p);
	add(c, "--iodepth=%u", p->depth);
	add(c, "--rw=%s", cell->fio_rw);
	add(c, "--bs=%uk", cell->block_kib);
	add(c, "--time_based");
	add(c, "--runtime=%.0fms", p->runtime_s * 1000);
	add(c, "--norandommap");
}

int nvefs_fio_version(char *ret, size_t len, struct nvefs_error *err)
{
	const char *argv[] = {"fio", "--version", NULL};
	char *out, *errors;
	int status, code = nvefs_process_run(argv, &out, &errors, &status);

	if (code)
		return nvefs_error_set(err, code, "fio: %s: install fio(1), for example: apt-get install fio",
				       code == -ENOENT ? "not found" : strerror(-code));
	out[strcspn(out, "\n")] = '\0';
	snprintf(ret, len, "%s", out);
	free(out);
	free(errors);
	return 0;
}

static struct json_object *get(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	return o && json_object_object_get_ex(o, key, &v) ? v : NULL;
}

static double number(struct json_object *o, const char *key)
{
	return json_object_get_double(get(o, key));
}

static int parse(const char *text, const struct nvefs_cell *cell, struct nvefs_fio_result *ret)
{
	/* fio may print notes before the document. */
	const char *start = strchr(text, '{');
	struct json_object *doc = start ? json_tokener_parse(start) : NULL;
	struct json_object *jobs = get(doc, "jobs"), *job, *side, *percentile;

	if (!jobs || !json_object_array_length(jobs)) {
		json_object_put(doc);
		return -EIO;
	}
	job = json_object_array_get_idx(jobs, 0);
	side = get(job, cell->write ? "write" : "read");
	percentile = get(get(side, "clat_ns"), "percentile");
	ret->bytes_s = number(side, "bw_bytes");
	ret->iops = number(side, "iops");
	ret->latency_ns = number(get(side, "lat_ns"), "mean");
	ret->p50_ns = number(percentile, "50.000000");
	ret->p99_ns = number(percentile, "99.000000");
	ret->fio_user_percent = number(job, "usr_cpu");
	ret->fio_system_percent = number(job, "sys_cpu");
	json_object_put(doc);
	return ret->iops > 0 ? 0 : -EIO;
}

/* fio's complaint, shortened to its first line. */
static int failed(const struct nvefs_fio_params *p, int status, const char *errors, struct nvefs_error *err)
{
	size_t len = strcspn(errors, "\n");

	if (nvefs_process_interrupted())
		return nvefs_error_set(err, -EINTR, "interrupted");
	if (WIFSIGNALED(status))
		return nvefs_error_set(err, -EIO, "%s: fio ended by signal %d", p->dir, WTERMSIG(status));
	return nvefs_error_set(err, -EIO, "%s: fio failed: %.*s", p->dir, (int)(len ? len : 12),
			       len ? errors : "says nothing");
}

static int run(struct command *c, const struct nvefs_fio_params *p, char **ret_out, struct nvefs_error *err)
{
	char *errors;
	int status, code = nvefs_process_run(c->argv, ret_out, &errors, &status);

	if (code)
		return nvefs_error_set(err, code, "fio: cannot be run: %s", strerror(-code));
	if (!WIFEXITED(status) || WEXITSTATUS(status) || nvefs_process_interrupted()) {
		code = failed(p, status, errors, err);
		free(*ret_out);
	}
	free(errors);
	return code;
}

int nvefs_fio_prepare(const struct nvefs_fio_params *p, struct nvefs_error *err)
{
	struct command c = {.n = 0};
	char *out;
	int code;

	make_prepare(&c, p);
	code = run(&c, p, &out, err);
	if (!code)
		free(out);
	return code;
}

struct cpu {
	uint64_t busy, all, user, system, ns;
};

static void sample(pid_t daemon, struct cpu *ret)
{
	memset(ret, 0, sizeof(*ret));
	nvefs_machine_cpu(&ret->busy, &ret->all);
	if (daemon)
		nvefs_process_cpu(daemon, &ret->user, &ret->system);
	ret->ns = nvefs_now_ns();
}

int nvefs_fio_run(const struct nvefs_fio_params *p, const struct nvefs_cell *cell, pid_t daemon,
		  struct nvefs_fio_result *ret, struct nvefs_error *err)
{
	double hz = (double)sysconf(_SC_CLK_TCK);
	struct command c = {.n = 0};
	struct cpu before, after;
	char *out;
	int code;

	make_cell(&c, p, cell);
	memset(ret, 0, sizeof(*ret));
	sample(daemon, &before);
	code = run(&c, p, &out, err);
	sample(daemon, &after);
	if (code)
		return code;
	code = parse(out, cell, ret);
	free(out);
	if (code)
		return nvefs_error_set(err, code, "%s: fio's report on %s cannot be read", p->dir, cell->name);
	if (after.all > before.all)
		ret->machine_percent = 100.0 * (double)(after.busy - before.busy) / (double)(after.all - before.all);
	ret->daemon_user_s = (double)(after.user - before.user) / hz;
	ret->daemon_system_s = (double)(after.system - before.system) / hz;
	ret->elapsed_s = (double)(after.ns - before.ns) / 1e9;
	return 0;
}

void nvefs_fio_command(const struct nvefs_fio_params *p, const struct nvefs_cell *cell, char *ret, size_t len)
{
	struct command c = {.n = 0};
	size_t at = 0;

	make_cell(&c, p, cell);
	ret[0] = '\0';
	for (int i = 0; i < c.n && at < len; i++)
		at += (size_t)snprintf(ret + at, len - at, "%s%s", i ? " " : "", c.argv[i]);
}

void nvefs_fio_remove(const struct nvefs_fio_params *p)
{
	char path[4200];

	for (uint32_t i = 0; i < p->jobs; i++) {
		snprintf(path, sizeof(path), "%s/%s.%u", p->dir, JOB_FILE, i);
		unlink(path);
	}
}
