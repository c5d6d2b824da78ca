/* SPDX-License-Identifier: MIT */
/*
 * What the kernel's own ways to a SCSI disk cost: 4 KiB commands by SG_IO, which waits, from
 * several threads; or by write(2) and read(2) of a sg node, which do not, from one. Without anything of
 * nvefs; raw_queue has the device layer. One JSON line.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "device/scsi_initiator.h"

#define BLOCK 4096u
#define MAX_DEPTH 64u

struct setup {
	const char *node;
	uint32_t depth, lba_bytes, nplaces;
	uint64_t ncommands;
	bool write, async, direct, own_fd;
};

struct lane {
	const struct setup *s;
	int fd;
	uint64_t seed, ncommands, ndirect;
};

struct command {
	sg_io_hdr_t hdr;
	uint8_t cdb[10], sense[32];
	uint8_t *buf;
};

static void die(const char *what)
{
	fprintf(stderr, "scsi_nodes: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint32_t place(struct lane *l)
{
	l->seed = l->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(l->seed >> 33) % l->s->nplaces;
}

/* READ(10) or WRITE(10). */
static void build(struct lane *l, struct command *c, int id)
{
	uint32_t per_block = BLOCK / l->s->lba_bytes, lba = place(l) * per_block;

	memset(&c->hdr, 0, sizeof(c->hdr));
	memset(c->cdb, 0, sizeof(c->cdb));
	c->cdb[0] = l->s->write ? 0x2a : 0x28;
	for (int i = 0; i < 4; i++)
		c->cdb[2 + i] = (uint8_t)(lba >> (24 - 8 * i));
	c->cdb[8] = (uint8_t)per_block;
	c->hdr.interface_id = 'S';
	c->hdr.dxfer_direction = l->s->write ? SG_DXFER_TO_DEV : SG_DXFER_FROM_DEV;
	c->hdr.dxfer_len = BLOCK;
	c->hdr.dxferp = c->buf;
	c->hdr.cmdp = c->cdb;
	c->hdr.cmd_len = sizeof(c->cdb);
	c->hdr.sbp = c->sense;
	c->hdr.mx_sb_len = sizeof(c->sense);
	c->hdr.timeout = NVEFS_SCSI_TIMEOUT_MS;
	c->hdr.pack_id = id;
	c->hdr.usr_ptr = c;
	c->hdr.flags = l->s->direct ? SG_FLAG_DIRECT_IO : 0;
}

static void check(struct lane *l, const sg_io_hdr_t *hdr)
{
	if ((hdr->info & SG_INFO_OK_MASK) != SG_INFO_OK) {
		fprintf(stderr, "scsi_nodes: %s: status %02xh, host status %02xh\n", l->s->node, hdr->status,
			hdr->host_status);
		exit(1);
	}
	l->ndirect += (hdr->info & SG_INFO_DIRECT_IO_MASK) == SG_INFO_DIRECT_IO;
	l->ncommands++;
}

static uint8_t *buffer(void)
{
	void *p;

	if (posix_memalign(&p, BLOCK, BLOCK))
		die("memory");
	memset(p, 0x5a, BLOCK);
	return p;
}

static void *by_ioctl(void *arg)
{
	struct lane *l = arg;
	uint64_t n = l->s->ncommands / l->s->depth;
	struct command c = {.buf = buffer()};

	while (n--) {
		build(l, &c, 0);
		if (ioctl(l->fd, SG_IO, &c.hdr))
			die("SG_IO");
		check(l, &c.hdr);
	}
	free(c.buf);
	return NULL;
}

static void start(struct lane *l, struct command *c, int id)
{
	build(l, c, id);
	if (write(l->fd, &c->hdr, sizeof(c->hdr)) != (ssize_t)sizeof(c->hdr))
		die("write");
}

static void by_write(struct lane *l)
{
	static struct command commands[MAX_DEPTH];
	uint64_t started = 0;

	for (uint32_t i = 0; i < l->s->depth; i++, started++) {
		commands[i].buf = buffer();
		start(l, &commands[i], (int)i);
	}
	while (l->ncommands < l->s->ncommands) {
		sg_io_hdr_t back = {.interface_id = 'S', .pack_id = -1};

		if (read(l->fd, &back, sizeof(back)) != (ssize_t)sizeof(back))
			die("read");
		check(l, &back);
		if (started < l->s->ncommands) {
			start(l, back.usr_ptr, back.pack_id);
			started++;
		}
	}
}

static int open_node(const struct setup *s)
{
	int fd = open(s->node, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(s->node);
	return fd;
}

static void run(const struct setup *s)
{
	struct lane lanes[MAX_DEPTH];
	pthread_t threads[MAX_DEPTH];
	struct timespec a, b;
	uint32_t nlanes = s->async ? 1 : s->depth;
	uint64_t n = 0, ndirect = 0;
	int fd = open_node(s);

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint32_t i = 0; i < nlanes; i++) {
		lanes[i] = (struct lane){.s = s, .fd = s->own_fd ? open_node(s) : fd, .seed = i + 1};
		if (s->async)
			by_write(&lanes[i]);
		else if (pthread_create(&threads[i], NULL, by_ioctl, &lanes[i]))
			die("thread");
	}
	for (uint32_t i = 0; i < nlanes; i++) {
		if (!s->async)
			pthread_join(threads[i], NULL);
		n += lanes[i].ncommands;
		ndirect += lanes[i].ndirect;
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("{\"bench\":\"scsi_nodes\",\"node\":\"%s\",\"commands\":%llu,\"direct\":%llu,\"seconds\":%.6f}\n", s->node,
	       (unsigned long long)n, (unsigned long long)ndirect,
	       (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9);
}

static const char usage[] =
    "usage: scsi_nodes [-a] [-D] [-f] [-o read|write] [-d DEPTH] [-l LBA_BYTES] -n COMMANDS -p PLACES NODE\n"
    "4 KiB commands at random of the first PLACES blocks. -a: by write and read of a sg node, else by SG_IO from as\n"
    "many threads as DEPTH, with -f each by a descriptor of its own. -D: direct I/O is asked for.\n"
    "Writing destroys what the disk holds.\n";

int main(int argc, char **argv)
{
	struct setup s = {.depth = 4, .lba_bytes = 512};
	int c;

	while ((c = getopt(argc, argv, "aDfo:d:l:n:p:")) != -1) {
		if (c == 'a')
			s.async = true;
		else if (c == 'D')
			s.direct = true;
		else if (c == 'f')
			s.own_fd = true;
		else if (c == 'o')
			s.write = !strcmp(optarg, "write");
		else if (c == 'd')
			s.depth = (uint32_t)atoi(optarg);
		else if (c == 'l')
			s.lba_bytes = (uint32_t)atoi(optarg);
		else if (c == 'n')
			s.ncommands = strtoull(optarg, NULL, 10);
		else if (c == 'p')
			s.nplaces = (uint32_t)atoi(optarg);
		else
			break;
	}
	if (c != -1 || optind != argc - 1 || !s.depth || s.depth > MAX_DEPTH || !s.lba_bytes || !s.nplaces ||
	    s.ncommands < s.depth) {
		fputs(usage, stderr);
		return 2;
	}
	s.node = argv[optind];
	run(&s);
	return 0;
}
