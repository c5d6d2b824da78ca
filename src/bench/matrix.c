/* SPDX-License-Identifier: MIT */
#include "bench/matrix.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "bench/mount.h"
#include "bench/process.h"

const char *nvefs_route_text(enum nvefs_route route)
{
	return route == NVEFS_ROUTE_SCSI ? "scsi" : "native";
}

static struct nvefs_fio_params params(const struct nvefs_matrix *m, const char *dir)
{
	return (struct nvefs_fio_params){.dir = dir,
					 .jobs = m->jobs,
					 .depth = m->depth,
					 .size_bytes = m->size_bytes,
					 .runtime_s = m->runtime_s};
}

/* Progress on the terminal, one line that is written over. */
static void show(const struct nvefs_matrix *m, uint32_t round, const struct nvefs_config *config, const char *what)
{
	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[Kround %u of %u, %s, dedup %s: %s", round + 1, m->rounds,
		nvefs_route_text(config->route), config->dedup ? "on" : "off", what);
	fflush(stderr);
}

static void show_end(void)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}

/* The job files, of the size asked for. They stay between the configurations, so that all read the same. */
static int prepare(const struct nvefs_matrix *m, const struct nvefs_fio_params *p, struct nvefs_error *err)
{
	uint64_t want = m->size_bytes * m->jobs, have = 0;
	struct statvfs sv;
	char path[4200];

	for (uint32_t i = 0; i < m->jobs; i++) {
		struct stat st;

		snprintf(path, sizeof(path), "%s/nvefs-bench.%u", p->dir, i);
		if (!stat(path, &st) && (uint64_t)st.st_size == m->size_bytes)
			have += m->size_bytes;
	}
	if (have == want)
		return 0;
	if (statvfs(p->dir, &sv))
		return nvefs_error_set(err, -errno, "%s: statvfs: %s", m->target, strerror(errno));
	/* Out-of-place writing wants room beyond the files themselves. */
	if ((uint64_t)sv.f_bavail * sv.f_frsize < want + want / 4)
		return nvefs_error_set(err, -ENOSPC,
				       "%s: %llu MiB are free, the job files need %llu: give a smaller --size or --jobs",
				       m->target, (unsigned long long)((uint64_t)sv.f_bavail * sv.f_frsize >> 20),
				       (unsigned long long)((want + want / 4) >> 20));
	return nvefs_fio_prepare(p, err);
}

static int run_cells(struct nvefs_matrix *m, uint32_t round, uint32_t config, const struct nvefs_bench_mount *mnt,
		     struct nvefs_error *err)
{
	struct nvefs_fio_params p = params(m, mnt->dir);
	int code = 0;

	show(m, round, &m->configs[config], "writing the job files");
	code = prepare(m, &p, err);
	for (uint32_t i = 0; i < NVEFS_NCELLS && !code; i++) {
		if (!m->cells[i])
			continue;
		if (nvefs_process_interrupted())
			return nvefs_error_set(err, -EINTR, "interrupted");
		show(m, round, &m->configs[config], nvefs_cells[i].name);
		code = nvefs_fio_run(&p, &nvefs_cells[i], mnt->pid, &m->results[round][config][i], err);
		m->have[round][config][i] = !code;
	}
	return code;
}

static int run_config(struct nvefs_matrix *m, struct nvefs_bench_mount *mnt, uint32_t round, uint32_t config,
		      bool last, struct nvefs_error *err)
{
	const struct nvefs_config *c = &m->configs[config];
	struct nvefs_error stop_err = {""};
	struct nvefs_fio_params p;
	char options[64];
	int code, stop_code;

	snprintf(options, sizeof(options), "route=%s,dedup=%s", nvefs_route_text(c->route), c->dedup ? "on" : "off");
	show(m, round, c, "mounting");
	code = nvefs_bench_mount_start(mnt, m->target, options, err);
	if (code)
		return code;
	code = run_cells(m, round, config, mnt, err);
	p = params(m, mnt->dir);
	if (code || last)
		nvefs_fio_remove(&p);
	show(m, round, c, "unmounting");
	stop_code = nvefs_bench_mount_stop(mnt, &stop_err);
	if (stop_code && !code) {
		code = stop_code;
		*err = stop_err;
	}
	return code;
}

int nvefs_matrix_run(struct nvefs_matrix *m, struct nvefs_error *err)
{
	struct nvefs_bench_mount mnt;
	time_t now = time(NULL);
	struct tm tm;
	int code;

	m->results = calloc(m->rounds, sizeof(*m->results));
	m->have = calloc(m->rounds, sizeof(*m->have));
	if (!m->results || !m->have)
		return nvefs_error_set(err, -ENOMEM, "out of memory");
	if (gmtime_r(&now, &tm))
		strftime(m->started, sizeof(m->started), "%Y-%m-%dT%H:%M:%SZ", &tm);
	code = nvefs_fio_version(m->fio_version, sizeof(m->fio_version), err);
	if (!code)
		code = nvefs_bench_mount_init(&mnt, err);
	if (code)
		return code;
	snprintf(m->daemon, sizeof(m->daemon), "%s", mnt.program);
	nvefs_process_catch();
	/* A B A B: what changes on the machine meanwhile hits all configurations alike. */
	for (uint32_t round = 0; round < m->rounds && !code; round++)
		for (uint32_t config = 0; config < m->nconfigs && !code; config++)
			code = run_config(m, &mnt, round, config,
					  round + 1 == m->rounds && config + 1 == m->nconfigs, err);
	show_end();
	m->complete = !code;
	return code;
}

static double metric_of(const struct nvefs_fio_result *r, enum nvefs_metric metric)
{
	switch (metric) {
	case NVEFS_METRIC_BYTES:
		return r->bytes_s;
	case NVEFS_METRIC_IOPS:
		return r->iops;
	case NVEFS_METRIC_LATENCY:
		return r->latency_ns;
	case NVEFS_METRIC_CPU:
		break;
	}
	return r->machine_percent;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

bool nvefs_matrix_spread(const struct nvefs_matrix *m, uint32_t config, uint32_t cell, enum nvefs_metric metric,
			 struct nvefs_spread *ret)
{
	double v[NVEFS_MAX_ROUNDS];
	uint32_t n = 0;

	for (uint32_t r = 0; r < m->rounds; r++)
		if (m->have[r][config][cell])
			v[n++] = metric_of(&m->results[r][config][cell], metric);
	if (!n)
		return false;
	qsort(v, n, sizeof(v[0]), compare);
	ret->min = v[0];
	ret->max = v[n - 1];
	ret->median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
	return true;
}
