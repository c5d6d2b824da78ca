/* SPDX-License-Identifier: MIT */
/*
 * scribble IMAGE SEED COUNT: damage metadata blocks of an image, with their
 * checksums made right again, so that only what a block says is wrong; mostly
 * alike in both copies. For tests; the same seed does the same damage.
 */
#include <fcntl.h>
#include <nvefs/format.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/block.h"

#define MAX_FOUND 4096u

static uint64_t rng_state;

static uint32_t rnd(uint32_t below)
{
	rng_state = rng_state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rng_state >> 33) % below;
}

static uint32_t find_blocks(int fd, uint64_t *found)
{
	le32 magic;
	uint32_t n = 0;

	for (uint64_t b = 0; n < MAX_FOUND; b++) {
		if (pread(fd, &magic, sizeof(magic), (off_t)(b * NVEFS_BLOCK_BYTES)) != sizeof(magic))
			break;
		if (le32_get(magic) == NVEFS_MAGIC)
			found[n++] = b;
	}
	return n;
}

static void damage(uint8_t *block)
{
	static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
	uint32_t len = 1u << rnd(4);
	/* Fields lie in front; values of items anywhere. */
	uint32_t at = rnd(2) ? 16 + rnd(200) : 16 + rnd(NVEFS_BLOCK_BYTES - 16);

	for (uint32_t i = 0; i < len && at + i < NVEFS_BLOCK_BYTES; i++) {
		if (rnd(2))
			block[at + i] = values[rnd(sizeof(values))];
		else
			block[at + i] ^= (uint8_t)(1u << rnd(8));
	}
}

/* `block` to where it was read, or to both of its copies. */
static int put(int fd, const uint8_t *block, const uint64_t at[2], bool both)
{
	for (int i = 0; i < (both && at[1] ? 2 : 1); i++)
		if (pwrite(fd, block, NVEFS_BLOCK_BYTES, (off_t)(at[i] * NVEFS_BLOCK_BYTES)) != NVEFS_BLOCK_BYTES)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	static uint64_t found[MAX_FOUND];
	uint8_t block[NVEFS_BLOCK_BYTES];
	uint64_t nblks;
	uint32_t n;
	int fd;

	if (argc != 4)
		return 2;
	fd = open(argv[1], O_RDWR);
	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	rng_state = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
	n = find_blocks(fd, found);
	nblks = (uint64_t)lseek(fd, 0, SEEK_END) / NVEFS_BLOCK_BYTES;
	for (int i = atoi(argv[3]); i > 0 && n; i--) {
		uint64_t at[2] = {found[rnd(n)]};
		bool both = rnd(4) > 0;

		if (pread(fd, block, sizeof(block), (off_t)(at[0] * NVEFS_BLOCK_BYTES)) != sizeof(block))
			return 1;
		if (nvefs_block_twin(block) == at[0])
			at[0] = nvefs_block_pblk(block);
		at[1] = nvefs_block_twin(block);
		if (at[0] >= nblks || at[1] >= nblks) /* damaged before */
			continue;
		damage(block);
		nvefs_block_seal(block);
		if (put(fd, block, at, both))
			return 1;
		printf("block %llu\n", (unsigned long long)at[0]);
	}
	return close(fd) ? 1 : 0;
}
