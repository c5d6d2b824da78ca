/* SPDX-License-Identifier: MIT */
/* nvefs-bench matrix: what was asked for, and what was measured. */
#ifndef NVEFS_BENCH_MATRIX_H
#define NVEFS_BENCH_MATRIX_H

#include <nvefs/device.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench/cells.h"
#include "bench/fio.h"

#define NVEFS_MAX_CONFIGS 4u
#define NVEFS_MAX_ROUNDS 99u

struct nvefs_config {
	enum nvefs_route route;
	bool dedup;
};

struct nvefs_matrix {
	const char *target, *out_dir; /* out_dir NULL: none */
	struct nvefs_config configs[NVEFS_MAX_CONFIGS];
	uint32_t nconfigs;
	bool cells[NVEFS_NCELLS]; /* chosen */
	uint32_t rounds, jobs, depth;
	uint64_t size_bytes; /* of each job's file */
	double runtime_s;
	bool json;

	/* measured: [round][config][cell] */
	struct nvefs_fio_result (*results)[NVEFS_MAX_CONFIGS][NVEFS_NCELLS];
	bool (*have)[NVEFS_MAX_CONFIGS][NVEFS_NCELLS];
	bool complete;
	char fio_version[64], daemon[4096], started[32];
};

/* Run all of it. What was measured until an error or an interrupt (-EINTR) is kept. 0 or -errno. */
int nvefs_matrix_run(struct nvefs_matrix *m, struct nvefs_error *err);

/* Median, smallest and largest over the rounds; false: nothing was measured. */
struct nvefs_spread {
	double median, min, max;
};
enum nvefs_metric { NVEFS_METRIC_BYTES, NVEFS_METRIC_IOPS, NVEFS_METRIC_LATENCY, NVEFS_METRIC_CPU };
bool nvefs_matrix_spread(const struct nvefs_matrix *m, uint32_t config, uint32_t cell, enum nvefs_metric metric,
			 struct nvefs_spread *ret);

void nvefs_matrix_print_table(const struct nvefs_matrix *m);
/* results.json in out_dir, or on standard output when there is none. */
int nvefs_matrix_write_json(const struct nvefs_matrix *m, struct nvefs_error *err);

const char *nvefs_route_text(enum nvefs_route route);

#endif
