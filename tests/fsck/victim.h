/* SPDX-License-Identifier: MIT */
/*
 * A file system with content that is known, for damaging it over and over: made once,
 * kept in memory, put on a fresh RAM device each time. Three versions of it: an early one, the
 * same later after more changes, unmounted; and once more later with live groups in
 * its journal, as a power cut leaves it.
 */
#ifndef NVEFS_TESTS_FSCK_VICTIM_H
#define NVEFS_TESTS_FSCK_VICTIM_H

#include <nvefs/device.h>
#include <nvefs/nvefs.h>
#include <stdbool.h>

#include "format/root.h"
#include "format/super.h"

#define VICTIM_BYTES (64ull << 20)
#define VICTIM_BLKS (VICTIM_BYTES / 4096)
#define VICTIM_FILES 160u

enum victim_version {
	VICTIM_EARLY,
	VICTIM_CLEAN,
	VICTIM_CUT,
	VICTIM_BARE, /* VICTIM_CLEAN with nothing in its log: no older images to go back to */
	VICTIM_VERSIONS
};

struct victim_file {
	char name[32];
	uint64_t ino;
	uint32_t mode;
	uint64_t size;
	uint8_t *bytes; /* of a file; target of a symbolic link */
};

/* Where it lies, in one version: blocks of its data, leaves with items of it. By file. */
struct victim_deps {
	uint64_t *leaves, *twins, *data; /* twins: of each leaf its second copy, or 0 */
	uint32_t nleaves, ndata;
};

struct victim_image {
	uint8_t *blocks; /* all */
	bool used[VICTIM_BLKS]; /* not zeros */
	struct nvefs_super sb;
	struct nvefs_root root;
	struct victim_file files[VICTIM_FILES];
	uint32_t nfiles;
	struct victim_deps deps[VICTIM_FILES];
	uint64_t *nodes, *inner; /* leaves; the nodes above */
	uint32_t nnodes, ninner;
};

struct victim {
	struct victim_image v[VICTIM_VERSIONS];
};

/* `dup`: with second copies of metadata. */
void victim_init(struct victim *v, bool dup);
void victim_done(struct victim *v);

static inline uint8_t *victim_block(const struct victim_image *img, uint64_t pblk)
{
	return img->blocks + pblk * 4096;
}

/* A RAM device with this content. The caller's. */
struct nvefs_dev *victim_device(const struct victim_image *img);

/* How a file came through. */
enum victim_fate {
	VICTIM_WHOLE,	/* all there, and by its name */
	VICTIM_RENAMED, /* all there, by another name */
	VICTIM_ERRORS,	/* some of it gives an error, the rest is right */
	VICTIM_DIFFERS, /* something was read that it never held */
	VICTIM_GONE,
};
/* Mounts the device read-only, and closes it. ret_fates by file. 0, or the mount's error. */
int victim_judge(const struct victim_image *img, struct nvefs_dev *dev, enum victim_fate *ret_fates);

#endif
