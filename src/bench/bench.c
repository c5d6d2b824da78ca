/* SPDX-License-Identifier: MIT */
/* nvefs-bench: what a storage route and deduplication cost. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/matrix.h"
#include "device/uri.h"

static const char usage[] =
	"usage: nvefs-bench matrix [OPTIONS] TARGET\n"
	"Measure an nvefs file system over both routes, with and without deduplication. TARGET must hold an nvefs\n"
	"that is not mounted; it is mounted for each configuration, and what the jobs wrote is removed at the end.\n"
	"\n"
	"  --routes LIST    native,scsi (the default: both)\n"
	"  --dedup LIST     off,on (the default: both)\n"
	"  --cells LIST     workloads, all by default: read-rand-4k,read-rand-64k,read-seq-64k,read-seq-128k,\n"
	"                   write-rand-4k,write-rand-64k,write-seq-64k,write-seq-128k\n"
	"  --runtime S      seconds for each cell (10)\n"
	"  --rounds N       rounds over all configurations, interleaved (3)\n"
	"  --jobs N         fio jobs (2)\n"
	"  --depth N        commands in flight for each job (32)\n"
	"  --size SIZE      of each job's file (512M)\n"
	"  --quick          1 second, 1 round, 64M files\n"
	"  --out DIR        write results.json there\n"
	"  --json           print the results as JSON in place of the table\n"
	"  -h, --help       this text\n"
	"  -V, --version    version\n";

static int bad(struct nvefs_error *err, const char *option, const char *value, const char *want)
{
	return nvefs_error_set(err, -EINVAL, "%s: '%s': %s", option, value, want);
}

/* True when `list` names `word`; the words seen are counted. */
static bool listed(const char *list, const char *word, int *seen)
{
	size_t len = strlen(word);

	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, word, len) && (at[len] == ',' || !at[len])) {
			++*seen;
			return true;
		}
	}
	return false;
}

static int words_in(const char *list)
{
	int n = 1;

	for (const char *at = list; (at = strchr(at, ',')); at++)
		n++;
	return n;
}

static int choose_cells(struct nvefs_matrix *m, const char *list, struct nvefs_error *err)
{
	int seen = 0;

	for (uint32_t i = 0; i < NVEFS_NCELLS; i++)
		m->cells[i] = listed(list, nvefs_cells[i].name, &seen);
	if (seen != words_in(list))
		return bad(err, "--cells", list, "names a workload that is not there: see nvefs-bench --help");
	return 0;
}

static int choose_configs(struct nvefs_matrix *m, const char *routes, const char *dedup, struct nvefs_error *err)
{
	int nroutes = 0, ndedup = 0;
	bool native = listed(routes, "native", &nroutes), scsi = listed(routes, "scsi", &nroutes);
	bool off = listed(dedup, "off", &ndedup), on = listed(dedup, "on", &ndedup);

	if (nroutes != words_in(routes))
		return bad(err, "--routes", routes, "use native, scsi or native,scsi");
	if (ndedup != words_in(dedup))
		return bad(err, "--dedup", dedup, "use off, on or off,on");
	for (int d = 0; d < 2; d++) {
		if (!(d ? on : off))
			continue;
		if (native)
			m->configs[m->nconfigs++] = (struct nvefs_config){NVEFS_ROUTE_NATIVE, d};
		if (scsi)
			m->configs[m->nconfigs++] = (struct nvefs_config){NVEFS_ROUTE_SCSI, d};
	}
	return 0;
}

struct words {
	const char *routes, *dedup, *cells;
};

static int parse_one(struct nvefs_matrix *m, struct words *w, int opt, const char *arg, struct nvefs_error *err)
{
	char *end = NULL;

	switch (opt) {
	case 'r':
		w->routes = arg;
		return 0;
	case 'd':
		w->dedup = arg;
		return 0;
	case 'c':
		w->cells = arg;
		return 0;
	case 't':
		m->runtime_s = strtod(arg, &end);
		if (*end || !(m->runtime_s >= 0.1 && m->runtime_s <= 86400))
			return bad(err, "--runtime", arg, "give seconds, 0.1 to 86400");
		return 0;
	case 'n':
		return nvefs_value_count(arg, 1, NVEFS_MAX_ROUNDS, &m->rounds) ? 0 :
									 bad(err, "--rounds", arg, "use 1 to 99");
	case 'J':
		return nvefs_value_count(arg, 1, 256, &m->jobs) ? 0 : bad(err, "--jobs", arg, "use 1 to 256");
	case 'D':
		return nvefs_value_count(arg, 1, 4096, &m->depth) ? 0 : bad(err, "--depth", arg, "use 1 to 4096");
	case 's':
		if (!nvefs_value_size(arg, &m->size_bytes) || m->size_bytes < 1 << 20)
			return bad(err, "--size", arg, "give a size of at least 1M");
		return 0;
	case 'o':
		m->out_dir = arg;
		return 0;
	case 'j':
		m->json = true;
		return 0;
	case 'q':
		m->runtime_s = 1;
		m->rounds = 1;
		m->size_bytes = 64 << 20;
		return 0;
	}
	return nvefs_error_set(err, -EINVAL, "see nvefs-bench --help");
}

static int parse_matrix(int argc, char **argv, struct nvefs_matrix *m, struct nvefs_error *err)
{
	static const struct option longs[] = {
		{"routes", required_argument, NULL, 'r'}, {"dedup", required_argument, NULL, 'd'},
		{"cells", required_argument, NULL, 'c'},  {"runtime", required_argument, NULL, 't'},
		{"rounds", required_argument, NULL, 'n'}, {"jobs", required_argument, NULL, 'J'},
		{"depth", required_argument, NULL, 'D'},  {"size", required_argument, NULL, 's'},
		{"quick", no_argument, NULL, 'q'},	  {"out", required_argument, NULL, 'o'},
		{"json", no_argument, NULL, 'j'},	  {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},	  {0}};
	struct words w = {"native,scsi", "off,on", NULL};
	int opt, code = 0;

	while (!code && (opt = getopt_long(argc, argv, "hV", longs, NULL)) != -1) {
		if (opt == 'h') {
			fputs(usage, stdout);
			exit(0);
		}
		if (opt == 'V') {
			puts("nvefs-bench " NVEFS_VERSION);
			exit(0);
		}
		code = parse_one(m, &w, opt, optarg, err);
	}
	if (!code && optind + 1 != argc)
		code = nvefs_error_set(err, -EINVAL, "%s: see nvefs-bench --help",
				       optind == argc ? "no target is named" : "more than one target is named");
	if (!code)
		code = choose_configs(m, w.routes, w.dedup, err);
	for (uint32_t i = 0; i < NVEFS_NCELLS; i++)
		m->cells[i] = true;
	if (!code && w.cells)
		code = choose_cells(m, w.cells, err);
	if (!code)
		m->target = argv[optind];
	return code;
}

static bool measured(const struct nvefs_matrix *m)
{
	for (uint32_t r = 0; r < m->rounds && m->have; r++)
		for (uint32_t c = 0; c < m->nconfigs; c++)
			for (uint32_t i = 0; i < NVEFS_NCELLS; i++)
				if (m->have[r][c][i])
					return true;
	return false;
}

static int matrix(int argc, char **argv)
{
	struct nvefs_matrix m = {.rounds = 3, .jobs = 2, .depth = 32, .size_bytes = 512 << 20, .runtime_s = 10};
	struct nvefs_error err = {""}, json_err = {""};
	int code = parse_matrix(argc, argv, &m, &err);

	if (code) {
		fprintf(stderr, "nvefs-bench: %s\n", err.text);
		return 2;
	}
	code = nvefs_matrix_run(&m, &err);
	if (measured(&m)) {
		if (!m.json)
			nvefs_matrix_print_table(&m);
		if ((m.json || m.out_dir) && nvefs_matrix_write_json(&m, &json_err)) {
			fprintf(stderr, "nvefs-bench: %s\n", json_err.text);
			code = code ? code : -EIO;
		}
	}
	if (code && err.text[0])
		fprintf(stderr, "nvefs-bench: %s%s\n", err.text,
			measured(&m) ? ": the results are partial" : "");
	free(m.results);
	free(m.have);
	return code == -EINTR ? 130 : code ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "matrix"))
		return matrix(argc - 1, argv + 1);
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		puts("nvefs-bench " NVEFS_VERSION);
		return 0;
	}
	fprintf(stderr, "nvefs-bench: %s%s: see nvefs-bench --help\n", argc > 1 ? argv[1] : "no command",
		argc > 1 ? ": no such command" : " is named");
	return 2;
}
