/* SPDX-License-Identifier: MIT */
/*
 * The workloads of the published measurement that the matrix is compared with
 * (December 2025, Windows Server 2025 with and without its native NVMe stack;
 * fio on fifteen NVMe drives of 30.72 TB with a 64 KiB indirection unit, two
 * processors of 128 cores), and its figures.
 */
#ifndef NVEFS_BENCH_CELLS_H
#define NVEFS_BENCH_CELLS_H

#include <stdbool.h>
#include <stdint.h>

struct nvefs_published {
	double gib_s, iops, latency_ms, cpu_percent;
};

struct nvefs_cell {
	const char *name; /* for --cells: "read-rand-4k" */
	const char *fio_rw;
	bool write;
	uint32_t block_kib;
	struct nvefs_published native, scsi; /* scsi: the non-native stack */
};

#define NVEFS_NCELLS 8u
extern const struct nvefs_cell nvefs_cells[NVEFS_NCELLS];

#endif
