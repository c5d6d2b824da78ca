/* SPDX-License-Identifier: MIT */
/* One run of fio(1) and what it measured. */
#ifndef NVEFS_BENCH_FIO_H
#define NVEFS_BENCH_FIO_H

#include <nvefs/device.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench/cells.h"

struct nvefs_fio_params {
	const char *dir; /* where the job files are, or are made */
	uint32_t jobs, depth;
	uint64_t size_bytes; /* of each job's file */
	double runtime_s;
};

struct nvefs_fio_result {
	double bytes_s, iops, latency_ns; /* mean, submission to completion */
	double p50_ns, p99_ns;
	double fio_user_percent, fio_system_percent; /* of one processor */
	double machine_percent;			     /* busy share of all processors meanwhile */
	double daemon_user_s, daemon_system_s;
	double elapsed_s;
};

/* fio's version, "fio-3.33". -ENOENT with *err: not installed. */
int nvefs_fio_version(char *ret, size_t len, struct nvefs_error *err);
/* Write the job files in full, once, sequentially. */
int nvefs_fio_prepare(const struct nvefs_fio_params *p, struct nvefs_error *err);
/* `daemon`: whose processor time is accounted; 0: nobody's. */
int nvefs_fio_run(const struct nvefs_fio_params *p, const struct nvefs_cell *cell, pid_t daemon,
		  struct nvefs_fio_result *ret, struct nvefs_error *err);
/* The command line of a run, for the record. */
void nvefs_fio_command(const struct nvefs_fio_params *p, const struct nvefs_cell *cell, char *ret, size_t len);
/* Remove the job files. */
void nvefs_fio_remove(const struct nvefs_fio_params *p);

#endif
