/* SPDX-License-Identifier: MIT */
/*
 * Without libFuzzer: each seed, each file of the corpus, and so many random
 * variations of them.
 *
 *	replay_TARGET [-s SEED] [-n VARIATIONS] [FILE|DIRECTORY]...
 *	replay_TARGET -w DIRECTORY	write the seeds there
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "target.h"

struct replay {
	unsigned int seed, start_seed;
	unsigned long nvariations;
	unsigned long ninputs, nsound;
};

static void run(struct replay *r, const uint8_t *input, size_t len)
{
	r->ninputs++;
	r->nsound += (unsigned long)fuzz_one(input, len);
}

static size_t vary(struct replay *r, uint8_t *input, size_t len)
{
	static const uint8_t edges[] = {0, 1, 2, 7, 8, 0x7f, 0x80, 0xff};
	size_t reach = len < 300 || rand_r(&r->seed) % 2 ? len : 300;
	int n = 1 + rand_r(&r->seed) % 4;

	while (n-- > 0) {
		size_t at = 1 + (size_t)rand_r(&r->seed) % (reach > 1 ? reach - 1 : 1);

		switch (rand_r(&r->seed) % 4) {
		case 0:
			input[at] = edges[(size_t)rand_r(&r->seed) % sizeof(edges)];
			break;
		case 1:
			input[at] ^= (uint8_t)(1u << rand_r(&r->seed) % 8);
			break;
		case 2:
			input[at] = (uint8_t)(input[at] + (rand_r(&r->seed) % 2 ? 1 : -1));
			break;
		default:
			if (rand_r(&r->seed) % 8 == 0)
				len = 1 + (size_t)rand_r(&r->seed) % len;
			break;
		}
		if (reach > len)
			reach = len;
	}
	return len;
}

static void run_all(struct replay *r, const uint8_t *input, size_t len)
{
	uint8_t copy[FUZZ_INPUT_MAX];

	run(r, input, len);
	for (unsigned long i = 0; i < r->nvariations; i++) {
		memcpy(copy, input, len);
		run(r, copy, vary(r, copy, len));
	}
}

static int run_file(struct replay *r, const char *path)
{
	uint8_t input[FUZZ_INPUT_MAX];
	FILE *f = fopen(path, "rb");
	size_t len;

	if (!f) {
		fprintf(stderr, "replay_%s: %s: %s\n", fuzz_name, path, strerror(errno));
		return 1;
	}
	len = fread(input, 1, sizeof(input), f);
	fclose(f);
	if (len)
		run_all(r, input, len);
	return 0;
}

static int run_path(struct replay *r, const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	char name[4096];
	int rc = 0;

	if (!dir)
		return run_file(r, path);
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		rc |= run_file(r, name);
	}
	closedir(dir);
	return rc;
}

static int seeds_write(const char *dir)
{
	uint8_t input[FUZZ_INPUT_MAX];
	char name[4096];
	size_t len;

	for (unsigned int i = 0; (len = fuzz_seed(i, input)); i++) {
		FILE *f;

		snprintf(name, sizeof(name), "%s/seed-%02u", dir, i);
		f = fopen(name, "wb");
		if (!f || fwrite(input, 1, len, f) != len || fclose(f)) {
			fprintf(stderr, "replay_%s: %s: %s\n", fuzz_name, name, strerror(errno));
			return 1;
		}
	}
	return 0;
}

static int seeds_run(struct replay *r)
{
	uint8_t input[FUZZ_INPUT_MAX];
	size_t len;

	for (unsigned int i = 0; (len = fuzz_seed(i, input)); i++) {
		unsigned long before = r->nsound;

		run(r, input, len);
		if (r->nsound == before) {
			fprintf(stderr, "replay_%s: seed %u is refused\n", fuzz_name, i);
			return 1;
		}
		run_all(r, input, len);
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct replay r = {.nvariations = 1000};
	int opt, rc;

	r.start_seed = (unsigned int)time(NULL);
	while ((opt = getopt(argc, argv, "s:n:w:")) != -1) {
		switch (opt) {
		case 's':
			r.start_seed = (unsigned int)strtoul(optarg, NULL, 0);
			break;
		case 'n':
			r.nvariations = strtoul(optarg, NULL, 0);
			break;
		case 'w':
			return seeds_write(optarg);
		default:
			return 2;
		}
	}
	r.seed = r.start_seed;
	/* Not to standard output: a target may have put that aside. */
	fprintf(stderr, "replay_%s -s %u -n %lu\n", fuzz_name, r.start_seed, r.nvariations);
	rc = seeds_run(&r);
	for (int i = optind; i < argc; i++)
		rc |= run_path(&r, argv[i]);
	fprintf(stderr, "%lu inputs, %lu of them sound\n", r.ninputs, r.nsound);
	return rc;
}
