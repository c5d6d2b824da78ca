/* SPDX-License-Identifier: MIT */
/* What the matrix measured, as a table and as JSON. */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench/matrix.h"

#define MIB (1024.0 * 1024.0)

/* The other route with the same dedup state; UINT32_MAX: not measured. */
static uint32_t partner(const struct nvefs_matrix *m, uint32_t config)
{
	for (uint32_t i = 0; i < m->nconfigs; i++)
		if (m->configs[i].dedup == m->configs[config].dedup && m->configs[i].route != m->configs[config].route)
			return i;
	return UINT32_MAX;
}

static bool ratio(const struct nvefs_matrix *m, uint32_t native, uint32_t cell, enum nvefs_metric metric, double *ret)
{
	uint32_t scsi = partner(m, native);
	struct nvefs_spread a, b;

	if (m->configs[native].route != NVEFS_ROUTE_NATIVE || scsi == UINT32_MAX ||
	    !nvefs_matrix_spread(m, native, cell, metric, &a) || !nvefs_matrix_spread(m, scsi, cell, metric, &b) ||
	    b.median <= 0)
		return false;
	*ret = a.median / b.median;
	return true;
}

static void print_row(const struct nvefs_matrix *m, uint32_t cell, uint32_t config, bool first)
{
	const struct nvefs_config *c = &m->configs[config];
	struct nvefs_spread bytes, iops, lat, cpu;
	double r;

	printf("%-15s %-5s %-6s", first ? nvefs_cells[cell].name : "", c->dedup ? "on" : "off",
	       nvefs_route_text(c->route));
	if (!nvefs_matrix_spread(m, config, cell, NVEFS_METRIC_BYTES, &bytes)) {
		printf("  not measured\n");
		return;
	}
	nvefs_matrix_spread(m, config, cell, NVEFS_METRIC_IOPS, &iops);
	nvefs_matrix_spread(m, config, cell, NVEFS_METRIC_LATENCY, &lat);
	nvefs_matrix_spread(m, config, cell, NVEFS_METRIC_CPU, &cpu);
	printf(" %9.1f %9.0f", bytes.median / MIB, iops.median);
	if (m->rounds > 1 && iops.median > 0)
		printf(" %5.1f%%", 50 * (iops.max - iops.min) / iops.median);
	else
		printf(" %6s", "-");
	printf(" %9.3f %6.1f", lat.median / 1e6, cpu.median);
	if (ratio(m, config, cell, NVEFS_METRIC_IOPS, &r))
		printf(" %11.2f %9.2f", r, nvefs_cells[cell].native.iops / nvefs_cells[cell].scsi.iops);
	putchar('\n');
}

void nvefs_matrix_print_table(const struct nvefs_matrix *m)
{
	printf("%s: %u job%s x depth %u, %llu MiB each, %g s a cell, %u round%s; %s\n", m->target, m->jobs,
	       m->jobs == 1 ? "" : "s", m->depth, (unsigned long long)(m->size_bytes >> 20), m->runtime_s, m->rounds,
	       m->rounds == 1 ? "" : "s", m->fio_version);
	printf("%-15s %-5s %-6s %9s %9s %6s %9s %6s %11s %9s\n", "workload", "dedup", "route", "MiB/s", "IOPS", "+-",
	       "mean ms", "CPU %", "native/scsi", "published");
	for (uint32_t cell = 0; cell < NVEFS_NCELLS; cell++)
		for (uint32_t config = 0, first = 1; config < m->nconfigs && m->cells[cell]; config++, first = 0)
			print_row(m, cell, config, first);
	puts("Medians over the rounds. CPU: all processors of the machine. native/scsi: IOPS of the two routes, and what");
	puts("was published for Windows Server 2025's native stack against its SCSI stack on fifteen drives.");
}

static void put(struct json_object *o, const char *key, double v)
{
	json_object_object_add(o, key, json_object_new_double(v));
}

static void put_int(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

static void put_text(struct json_object *o, const char *key, const char *v)
{
	json_object_object_add(o, key, json_object_new_string(v));
}

static struct json_object *round_json(const struct nvefs_fio_result *r)
{
	struct json_object *o = json_object_new_object();

	put(o, "bytes_per_s", r->bytes_s);
	put(o, "iops", r->iops);
	put(o, "latency_mean_ns", r->latency_ns);
	put(o, "latency_p50_ns", r->p50_ns);
	put(o, "latency_p99_ns", r->p99_ns);
	put(o, "machine_cpu_percent", r->machine_percent);
	put(o, "fio_user_percent", r->fio_user_percent);
	put(o, "fio_system_percent", r->fio_system_percent);
	put(o, "daemon_user_s", r->daemon_user_s);
	put(o, "daemon_system_s", r->daemon_system_s);
	put(o, "elapsed_s", r->elapsed_s);
	return o;
}

static void add_medians(struct json_object *o, const struct nvefs_matrix *m, uint32_t config, uint32_t cell)
{
	static const char *const names[] = {"bytes_per_s", "iops", "latency_mean_ns", "machine_cpu_percent"};
	double r;

	for (int i = 0; i < 4; i++) {
		struct json_object *s = json_object_new_object();
		struct nvefs_spread spread;

		if (nvefs_matrix_spread(m, config, cell, (enum nvefs_metric)i, &spread)) {
			put(s, "median", spread.median);
			put(s, "min", spread.min);
			put(s, "max", spread.max);
		}
		json_object_object_add(o, names[i], s);
	}
	if (ratio(m, config, cell, NVEFS_METRIC_IOPS, &r))
		put(o, "native_to_scsi_iops", r);
	if (ratio(m, config, cell, NVEFS_METRIC_LATENCY, &r))
		put(o, "native_to_scsi_latency", r);
}

static struct json_object *config_json(const struct nvefs_matrix *m, uint32_t config, uint32_t cell)
{
	struct json_object *o = json_object_new_object(), *rounds = json_object_new_array();

	put_text(o, "workload", nvefs_cells[cell].name);
	put_text(o, "route", nvefs_route_text(m->configs[config].route));
	json_object_object_add(o, "dedup", json_object_new_boolean(m->configs[config].dedup));
	for (uint32_t r = 0; r < m->rounds; r++)
		if (m->have[r][config][cell])
			json_object_array_add(rounds, round_json(&m->results[r][config][cell]));
	add_medians(o, m, config, cell);
	json_object_object_add(o, "rounds", rounds);
	return o;
}

static struct json_object *published_json(void)
{
	struct json_object *o = json_object_new_object();

	for (uint32_t i = 0; i < NVEFS_NCELLS; i++) {
		struct json_object *one = json_object_new_object();

		put(one, "native_to_scsi_iops", nvefs_cells[i].native.iops / nvefs_cells[i].scsi.iops);
		put(one, "native_to_scsi_latency", nvefs_cells[i].native.latency_ms / nvefs_cells[i].scsi.latency_ms);
		put(one, "native_iops", nvefs_cells[i].native.iops);
		put(one, "scsi_iops", nvefs_cells[i].scsi.iops);
		json_object_object_add(o, nvefs_cells[i].name, one);
	}
	return o;
}

static struct json_object *document(const struct nvefs_matrix *m)
{
	struct json_object *doc = json_object_new_object(), *list = json_object_new_array();
	struct nvefs_fio_params p = {"DIR", m->jobs, m->depth, m->size_bytes, m->runtime_s};
	struct utsname un = {0};
	char kernel[256], line[2048];

	uname(&un);
	snprintf(kernel, sizeof(kernel), "%.60s %.60s %.60s", un.sysname, un.release, un.machine);
	put_text(doc, "tool", "nvefs-bench matrix " NVEFS_VERSION);
	put_text(doc, "started", m->started);
	json_object_object_add(doc, "complete", json_object_new_boolean(m->complete));
	put_text(doc, "target", m->target);
	put_text(doc, "kernel", kernel);
	put_int(doc, "processors", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	put_text(doc, "fio", m->fio_version);
	put_text(doc, "daemon", m->daemon);
	put_int(doc, "jobs", m->jobs);
	put_int(doc, "depth", m->depth);
	put_int(doc, "size_bytes", m->size_bytes);
	put(doc, "runtime_s", m->runtime_s);
	put_int(doc, "rounds", m->rounds);
	for (uint32_t cell = 0; cell < NVEFS_NCELLS; cell++) {
		struct json_object *one;

		for (uint32_t config = 0; config < m->nconfigs && m->cells[cell]; config++) {
			one = config_json(m, config, cell);
			nvefs_fio_command(&p, &nvefs_cells[cell], line, sizeof(line));
			put_text(one, "command", line);
			json_object_array_add(list, one);
		}
	}
	json_object_object_add(doc, "results", list);
	json_object_object_add(doc, "published", published_json());
	return doc;
}

int nvefs_matrix_write_json(const struct nvefs_matrix *m, struct nvefs_error *err)
{
	int flags = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE;
	struct json_object *doc = document(m);
	char path[4200];
	int code = 0;

	if (!m->out_dir) {
		puts(json_object_to_json_string_ext(doc, flags));
		json_object_put(doc);
		return 0;
	}
	snprintf(path, sizeof(path), "%s/results.json", m->out_dir);
	if ((mkdir(m->out_dir, 0777) && errno != EEXIST) || json_object_to_file_ext(path, doc, flags))
		code = nvefs_error_set(err, errno ? -errno : -EIO, "%s: cannot be written: %s", path, strerror(errno));
	json_object_put(doc);
	return code;
}
