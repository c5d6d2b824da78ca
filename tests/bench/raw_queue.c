/* SPDX-License-Identifier: MIT */
/*
 * What a queue costs: commands per second and per second of processor time,
 * for a target and a route, without any file system. One JSON line for each
 * combination of route and operation.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <nvefs/device.h>
#include <nvefs/drive.h>

#include "base/buf.h"
#include "base/thread.h"

struct setup {
	const char *target;
	uint32_t depth, blks, nthreads;
	double seconds;
	uint64_t ncommands; /* of each thread; 0: as many as fit into the time */
	uint8_t op;
	bool random, watch;
};

struct lane {
	const struct setup *setup;
	struct nvefs_dev *dev;
	uint64_t first_pblk, nplaces, next, seed, deadline_ns;
	uint64_t nstarted, ncommands, cpu_ns, elapsed_ns;
	struct nvefs_queue *q;
	int err;
};

struct slot {
	struct nvefs_io io;
	struct lane *lane;
};

static uint64_t place(struct lane *lane)
{
	uint64_t x = lane->seed += 0x9e3779b97f4a7c15u;

	if (!lane->setup->random)
		return lane->next++ % lane->nplaces;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) % lane->nplaces;
}

static void next_command(struct slot *s)
{
	if (s->lane->setup->ncommands && s->lane->nstarted == s->lane->setup->ncommands)
		return;
	s->lane->nstarted++;
	s->io.pblk = s->lane->first_pblk + place(s->lane) * s->lane->setup->blks;
	nvefs_queue_submit(s->lane->q, &s->io);
}

static void command_done(struct nvefs_io *io)
{
	struct slot *s = io->arg;
	struct lane *lane = s->lane;

	lane->ncommands++;
	if (io->err)
		lane->err = io->err;
	/* The clock is read once in a while: it costs as much as a command to memory. */
	if (lane->deadline_ns && !lane->setup->ncommands && lane->ncommands % 64 == 0 &&
	    nvefs_now_ns() >= lane->deadline_ns)
		lane->deadline_ns = 0;
	if (lane->deadline_ns && !lane->err)
		next_command(s);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void lane_run(struct lane *lane, struct slot *slots, uint8_t *buf)
{
	const struct setup *s = lane->setup;
	size_t bytes = (size_t)s->blks << NVEFS_BLOCK_SHIFT;
	uint64_t start = nvefs_now_ns(), cpu = cpu_ns();

	lane->deadline_ns = start + (uint64_t)(s->seconds * 1e9);
	for (uint32_t i = 0; i < s->depth; i++) {
		slots[i] =
		    (struct slot){.lane = lane, .io = {.op = s->op, .nblks = s->blks, .niov = 1}};
		slots[i].io.one = (struct iovec){buf + i * bytes, bytes};
		slots[i].io.iov = &slots[i].io.one;
		slots[i].io.done = command_done;
		slots[i].io.arg = &slots[i];
		next_command(&slots[i]);
	}
	while (nvefs_queue_inflight(lane->q))
		if (!nvefs_queue_poll(lane->q, 0))
			nvefs_queue_wait(lane->q, UINT64_MAX);
	lane->elapsed_ns = nvefs_now_ns() - start;
	lane->cpu_ns = cpu_ns() - cpu;
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;
	const struct setup *s = lane->setup;
	size_t bytes = (size_t)s->blks << NVEFS_BLOCK_SHIFT;
	struct slot *slots = calloc(s->depth, sizeof(*slots));
	uint8_t *buf = nvefs_buf_new_zeroed(s->depth * bytes);

	lane->err = slots && buf ? nvefs_queue_init(lane->dev, s->depth, &lane->q) : -ENOMEM;
	if (!lane->err) {
		lane_run(lane, slots, buf);
		nvefs_queue_done(lane->q);
	}
	nvefs_buf_free(buf);
	free(slots);
	return NULL;
}

static void report(const struct setup *s, enum nvefs_route route, const struct lane *lanes)
{
	static const char *const ops[NVEFS_IO_NOPS] = {
	    [NVEFS_IO_READ] = "read", [NVEFS_IO_WRITE] = "write", [NVEFS_IO_FLUSH] = "flush"};
	uint64_t n = 0, cpu = 0, ns = 1;

	for (uint32_t i = 0; i < s->nthreads; i++) {
		n += lanes[i].ncommands;
		cpu += lanes[i].cpu_ns;
		ns = lanes[i].elapsed_ns > ns ? lanes[i].elapsed_ns : ns;
	}
	printf(
	    "{\"bench\":\"raw_queue\",\"target\":\"%s\",\"route\":\"%s\",\"op\":\"%s\",\"random\":%"
	    "s,"
	    "\"bytes\":%u,\"depth\":%u,\"threads\":%u,\"commands\":%llu,\"seconds\":%.3f,"
	    "\"commands_per_second\":%.0f,\"cpu_seconds\":%.3f,\"commands_per_cpu_second\":%.0f}\n",
	    s->target, route == NVEFS_ROUTE_SCSI ? "scsi" : "native", ops[s->op],
	    s->random ? "true" : "false", s->blks << NVEFS_BLOCK_SHIFT, s->depth, s->nthreads,
	    (unsigned long long)n, (double)ns / 1e9, (double)n * 1e9 / (double)ns,
	    (double)cpu / 1e9, cpu ? (double)n * 1e9 / (double)cpu : 0);
	fflush(stdout);
}

static int run_lanes(const struct setup *s, struct nvefs_dev *dev, struct lane *lanes)
{
	uint64_t nblks = nvefs_dev_limits(dev)->nblks / s->nthreads;
	pthread_t threads[64];
	uint32_t started = 0;
	int err = nblks < s->blks ? -ENOSPC : 0;

	for (; started < s->nthreads && !err; started++) {
		lanes[started] = (struct lane){.setup = s,
					       .dev = dev,
					       .first_pblk = started * nblks,
					       .nplaces = nblks / s->blks,
					       .seed = started + 1};
		err = nvefs_thread_start(&threads[started], "lane", lane_main, &lanes[started]);
		if (err)
			break;
	}
	for (uint32_t i = 0; i < started; i++) {
		nvefs_thread_join(threads[i]);
		if (lanes[i].err)
			err = lanes[i].err;
	}
	return err;
}

#define WATCH_NS 10000000000u /* as the daemon has it */
static void told_slow(void *arg, const struct nvefs_slow *slow)
{
	(void)arg;
	fprintf(stderr, "raw_queue: a command at %llu waits\n", (unsigned long long)slow->pblk);
}

static int run(const struct setup *s, enum nvefs_route route)
{
	const struct nvefs_dev_open_opts opts = {.route = route};
	struct lane lanes[64];
	struct nvefs_error error = {""};
	struct nvefs_dev *dev;
	int err = nvefs_dev_open(s->target, &opts, &dev, &error);

	if (err) {
		fprintf(stderr, "raw_queue: %s\n", error.text);
		return err;
	}
	if (s->watch)
		nvefs_dev_watch(dev, WATCH_NS, told_slow, NULL);
	err = run_lanes(s, dev, lanes);
	if (err)
		fprintf(stderr, "raw_queue: %s: %s\n", s->target, strerror(-err));
	else
		report(s, route, lanes);
	nvefs_dev_close(dev);
	return err;
}

static const char usage[] =
    "usage: raw_queue [-r native|scsi|both] [-o read|write|both] [-d DEPTH] [-b BLOCKS]\n"
    "                 [-t THREADS] [-s SECONDS] [-n COMMANDS] [-S] [-w] TARGET\n"
    "Commands of BLOCKS times 4096 bytes at random places, or with -S in sequence; with -n so many by\n"
    "each thread, however long they take. -w: slow commands are watched for, as the daemon does.\n"
    "Writing destroys what the target holds.\n";

/* Both routes and both operations unless told otherwise; writes come first, so that reads find
 * data. */
static int run_all(struct setup *s, const char *routes, const char *ops)
{
	static const uint8_t op[] = {NVEFS_IO_WRITE, NVEFS_IO_READ};
	static const char *const op_names[] = {"write", "read"}, *const route_names[] = {"native",
											 "scsi"};
	int err = 0;

	for (int o = 0; o < 2 && !err; o++) {
		if (strcmp(ops, "both") && strcmp(ops, op_names[o]))
			continue;
		s->op = op[o];
		for (int r = 0; r < 2 && !err; r++)
			if (!strcmp(routes, "both") || !strcmp(routes, route_names[r]))
				err = run(s, (enum nvefs_route)r);
	}
	return err;
}

int main(int argc, char **argv)
{
	struct setup s = {.depth = 32, .blks = 1, .nthreads = 1, .seconds = 1, .random = true};
	const char *routes = "both", *ops = "read";
	int c;

	while ((c = getopt(argc, argv, "r:o:d:b:t:s:n:Sw")) != -1) {
		if (c == 'r')
			routes = optarg;
		else if (c == 'o')
			ops = optarg;
		else if (c == 'd')
			s.depth = (uint32_t)atoi(optarg);
		else if (c == 'b')
			s.blks = (uint32_t)atoi(optarg);
		else if (c == 't')
			s.nthreads = (uint32_t)atoi(optarg);
		else if (c == 's')
			s.seconds = atof(optarg);
		else if (c == 'n')
			s.ncommands = strtoull(optarg, NULL, 10);
		else if (c == 'S')
			s.random = false;
		else if (c == 'w')
			s.watch = true;
		else
			break;
	}
	if (c != -1 || optind != argc - 1 || !s.depth || !s.blks || !s.nthreads ||
	    s.nthreads > 64 || s.seconds <= 0) {
		fputs(usage, stderr);
		return 2;
	}
	s.target = argv[optind];
	return run_all(&s, routes, ops) ? 1 : 0;
}
