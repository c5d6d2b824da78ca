/* SPDX-License-Identifier: MIT */
/*
 * What a second copy of metadata costs: device writes per operation, and how
 * long an fsync takes, with and without, in interleaved rounds on new file
 * systems. One JSON line for each cell, kind and round. What waits to go home at
 * the end of a cell is written, and counted with it.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/calls.h"
#include "base/thread.h"
#include "fs/fs.h"

#define FILE_BLKS 8192u
#define MAX_OPS 100000u

struct bench {
	const char *target, *only;
	uint32_t rounds, ops;

	struct nvefs_fs *fs;
	struct nvefs_worker *w;
	struct rnd rnd;
	uint64_t big; /* a file of FILE_BLKS blocks */
	uint64_t *sync_ns;
	uint32_t nsyncs;
	uint8_t block[4096];
};

static void die(const char *what, int err)
{
	fprintf(stderr, "meta_copies: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static void must(const char *what, int err)
{
	if (err)
		die(what, err);
}

static void timed_fsync(struct bench *b, uint64_t ino)
{
	uint64_t start = nvefs_now_ns();

	must("fsync", h_fsync(b->w, ino));
	b->sync_ns[b->nsyncs++] = nvefs_now_ns() - start;
}

static uint64_t create(struct bench *b, uint32_t i)
{
	char name[32];
	uint64_t ino;

	snprintf(name, sizeof(name), "file-%06u", i);
	must("create", h_create(b->w, name, &ino));
	return ino;
}

static void random_block(struct bench *b, uint64_t ino, uint64_t lblk)
{
	uint64_t tag = rnd_next(&b->rnd);

	memcpy(b->block, &tag, sizeof(tag));
	must("write", h_write(b->w, ino, lblk * 4096, b->block, sizeof(b->block), 0));
}

/* ---- Cells: one operation each ---- */

static void op_overwrite_fsync(struct bench *b, uint32_t i)
{
	(void)i;
	random_block(b, b->big, rnd_below(&b->rnd, FILE_BLKS));
	timed_fsync(b, b->big);
}

static void op_create_write_fsync(struct bench *b, uint32_t i)
{
	uint64_t ino = create(b, i);

	random_block(b, ino, 0);
	timed_fsync(b, ino);
}

static void op_create(struct bench *b, uint32_t i)
{
	(void)create(b, 200000 + i);
}

static void op_overwrite(struct bench *b, uint32_t i)
{
	(void)i;
	random_block(b, b->big, rnd_below(&b->rnd, FILE_BLKS));
}

static void op_unlink(struct bench *b, uint32_t i)
{
	char name[32];

	snprintf(name, sizeof(name), "file-%06u", 200000 + i);
	must("unlink", h_unlink(b->w, name));
}

static const struct {
	const char *name;
	void (*op)(struct bench *b, uint32_t i);
} cells[] = {
	{"overwrite-4k-fsync", op_overwrite_fsync}, {"create-write-4k-fsync", op_create_write_fsync},
	{"overwrite-4k", op_overwrite},		    {"create", op_create},
	{"unlink", op_unlink},
};

/* ---- One file system ---- */

static void start(struct bench *b, bool single)
{
	const struct nvefs_mkfs_opts mk = {.hash_seed = 1, .metadata_single = single};
	const struct nvefs_mount_opts opts = {.dedup = NVEFS_OFF};
	const struct nvefs_dev_open_opts dev_opts = {0};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;

	if (nvefs_dev_open(b->target, &dev_opts, &dev, &err) || nvefs_mkfs(dev, &mk, &err) ||
	    nvefs_mount(dev, &opts, &b->fs, &err)) {
		fprintf(stderr, "meta_copies: %s\n", err.text);
		exit(1);
	}
	must("worker", nvefs_worker_open(b->fs, &b->w));
	b->rnd.s = 42;
	must("create", h_create(b->w, "big", &b->big));
	for (uint64_t i = 0; i < FILE_BLKS; i++)
		random_block(b, b->big, i);
	must("sync", h_sync(b->w));
	must("checkpoint", nvefs_commit_reclaim(b->fs->st));
}

static void stop(struct bench *b)
{
	nvefs_worker_close(b->w);
	must("unmount", nvefs_unmount(b->fs));
}

static int by_time(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double us_at(struct bench *b, double part)
{
	return b->nsyncs ? (double)b->sync_ns[(uint32_t)((b->nsyncs - 1) * part)] / 1e3 : 0;
}

static void run_cell(struct bench *b, size_t cell, bool single, uint32_t round)
{
	struct nvefs_dev_counters c0, c1;
	uint64_t t0, t1;
	double n = b->ops;

	b->nsyncs = 0;
	nvefs_dev_counters(b->fs->dev, &c0);
	t0 = nvefs_now_ns();
	for (uint32_t i = 0; i < b->ops; i++)
		cells[cell].op(b, i);
	t1 = nvefs_now_ns();
	must("sync", h_sync(b->w));
	must("checkpoint", nvefs_commit_reclaim(b->fs->st));
	nvefs_dev_counters(b->fs->dev, &c1);
	qsort(b->sync_ns, b->nsyncs, sizeof(*b->sync_ns), by_time);
	printf("{\"cell\": \"%s\", \"metadata\": \"%s\", \"round\": %u, \"target\": \"%s\", \"ops\": %u, "
	       "\"write_commands_per_op\": %.3f, \"write_blocks_per_op\": %.3f, \"flushes_per_op\": %.3f, "
	       "\"us_per_op\": %.2f, \"fsync_us_p50\": %.2f, \"fsync_us_p99\": %.2f}\n",
	       cells[cell].name, single ? "single" : "dup", round, b->target, b->ops,
	       (double)(c1.commands[NVEFS_IO_WRITE] - c0.commands[NVEFS_IO_WRITE]) / n,
	       (double)(c1.bytes[NVEFS_IO_WRITE] - c0.bytes[NVEFS_IO_WRITE]) / 4096 / n,
	       (double)(c1.commands[NVEFS_IO_FLUSH] - c0.commands[NVEFS_IO_FLUSH]) / n,
	       (double)(t1 - t0) / 1e3 / n, us_at(b, 0.5), us_at(b, 0.99));
	fflush(stdout);
}

static void usage(void)
{
	puts("meta_copies [--target URI] [--rounds N] [--ops N] [--cell NAME]");
	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
		printf("  %s\n", cells[i].name);
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"target", required_argument, NULL, 't'},
						{"rounds", required_argument, NULL, 'r'},
						{"ops", required_argument, NULL, 'o'},
						{"cell", required_argument, NULL, 'c'},
						{0}};
	static struct bench b = {.target = "ram:1G,vwc=on,latency=20us", .rounds = 5, .ops = 2000};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 't': b.target = optarg; break;
		case 'r': b.rounds = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'o': b.ops = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'c': b.only = optarg; break;
		default: usage();
		}
	}
	if (!b.ops || b.ops > MAX_OPS)
		usage();
	b.sync_ns = calloc(b.ops, sizeof(*b.sync_ns));
	if (!b.sync_ns)
		die("memory", -ENOMEM);
	for (uint32_t round = 0; round < b.rounds; round++) {
		for (int k = 0; k < 2; k++) {
			bool single = (k ^ (int)round) & 1; /* each is first in every other round */

			start(&b, single);
			for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
				if (!b.only || !strcmp(b.only, cells[i].name))
					run_cell(&b, i, single, round);
			stop(&b);
		}
	}
	free(b.sync_ns);
	return 0;
}
