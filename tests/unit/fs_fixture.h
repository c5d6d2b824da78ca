/* SPDX-License-Identifier: MIT */
/* A file system on an image that outlives its mounts, for tests of src/fs. Failures end the test. */
#ifndef TEST_FS_FIXTURE_H
#define TEST_FS_FIXTURE_H

#include <nvefs/nvefs.h>

#define ROOT 1ull

struct fixture {
	char path[256];
	struct nvefs_mount_opts opts;
	struct nvefs_fs *fs;
	struct nvefs_worker *w;
	bool damaged; /* on purpose: not to be checked */
};

/* A new image of `mib` MiB with an empty file system, mounted with these options (NULL: defaults). */
void fixture_make(struct fixture *x, uint32_t mib, const struct nvefs_mount_opts *opts);
void fixture_mount(struct fixture *x);
void fixture_unmount(struct fixture *x); /* and check it all */
void fixture_remount(struct fixture *x);
/* As if the power had failed; mounts again. */
void fixture_crash(struct fixture *x);
/* All that was done is durable. */
void fixture_sync(struct fixture *x);
/* Wait until unlinked inodes are removed. */
void fixture_drain(struct fixture *x);
void fixture_remove(struct fixture *x);

/* Calls with C strings, as root with umask 0; the new inode's number, no lookup reference left. */
uint64_t fx_mkdir(struct fixture *x, uint64_t dir, const char *name);
uint64_t fx_create(struct fixture *x, uint64_t dir, const char *name);
uint64_t fx_lookup(struct fixture *x, uint64_t dir, const char *name); /* 0: ENOENT */
int fx_rename(struct fixture *x, uint64_t dir, const char *name, uint64_t newdir, const char *newname,
	      uint32_t flags);
struct nvefs_attr fx_attr(struct fixture *x, uint64_t ino);

/*
 * Walk everything: link counts, sizes of directories, "..", types in entries;
 * the number of inodes is what the mount counts. Returns how many there are.
 */
uint64_t fx_check(struct fixture *x);

#endif
