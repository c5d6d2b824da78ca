/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/names.h"
#include "fs_fixture.h"
#include "../support/harness.h"

static struct nvefs_dev *open_image(struct fixture *x, uint32_t mib)
{
	struct nvefs_dev_open_opts o = {0};
	struct nvefs_error err = {{0}};
	struct nvefs_dev *dev = NULL;
	char uri[300];

	if (mib) {
		o.flags = NVEFS_OPEN_CREATE;
		o.create_bytes = (uint64_t)mib << 20;
	}
	snprintf(uri, sizeof(uri), "file:%s", x->path);
	ck_assert_msg(!nvefs_dev_open(uri, &o, &dev, &err), "%s", err.text);
	return dev;
}

void fixture_make(struct fixture *x, uint32_t mib, const struct nvefs_mount_opts *opts)
{
	struct nvefs_mkfs_opts mo = {.hash_seed = 42};
	const char *dir = getenv("TMPDIR");
	struct nvefs_error err = {{0}};
	struct nvefs_mount_opts keep = {0};
	struct nvefs_dev *dev;
	int fd;

	if (opts)
		keep = *opts; /* may be x's own */
	memset(x, 0, sizeof(*x));
	if (!dir) /* memory rather than a disk: mounts and syncs are many here */
		dir = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
	snprintf(x->path, sizeof(x->path), "%s/nvefs-names-XXXXXX", dir);
	fd = mkstemp(x->path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	x->opts = keep;
	dev = open_image(x, mib);
	ck_assert_msg(!nvefs_mkfs(dev, &mo, &err), "%s", err.text);
	nvefs_dev_close(dev);
	fixture_mount(x);
}

void fixture_mount(struct fixture *x)
{
	struct nvefs_error err = {{0}};
	struct nvefs_dev *dev = open_image(x, 0);

	ck_assert_msg(!nvefs_mount(dev, &x->opts, &x->fs, &err), "%s", err.text);
	ck_assert_int_eq(nvefs_worker_open(x->fs, &x->w), 0);
}

void fixture_unmount(struct fixture *x)
{
	struct nvefs_dev *dev;

	nvefs_worker_close(x->w);
	ck_assert_int_eq(nvefs_unmount(x->fs), 0);
	x->fs = NULL;
	if (x->damaged)
		return;
	dev = open_image(x, 0);
	harness_check_dev(dev, "after unmounting");
	nvefs_dev_close(dev);
}

void fixture_remount(struct fixture *x)
{
	fixture_unmount(x);
	fixture_mount(x);
}

void fixture_crash(struct fixture *x)
{
	nvefs_worker_close(x->w);
	nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
	nvefs_abandon(x->fs);
	nvefs_log_setup(NULL, NVEFS_LOG_INFO);
	fixture_mount(x);
}

void fixture_sync(struct fixture *x)
{
	ck_assert_int_eq(nvefs_commit_run(x->fs->st, true), 0);
}

void fixture_drain(struct fixture *x)
{
	ck_assert(nvefs_bg_drain(x->fs, nvefs_now_ns() + 20000000000ull));
}

void fixture_remove(struct fixture *x)
{
	if (x->fs)
		fixture_unmount(x);
	unlink(x->path);
}

static const struct nvefs_cred root_cred;

uint64_t fx_mkdir(struct fixture *x, uint64_t dir, const char *name)
{
	struct nvefs_attr a;

	ck_assert_int_eq(nvefs_mkdir(x->w, dir, name, strlen(name), 0755, &root_cred, &a), 0);
	nvefs_forget(x->w, a.ino, 1);
	return a.ino;
}

uint64_t fx_create(struct fixture *x, uint64_t dir, const char *name)
{
	struct nvefs_attr a;
	int err;

	err = nvefs_mknod(x->w, dir, name, strlen(name), S_IFREG | 0644, 0, &root_cred, &a);
	ck_assert_msg(!err, "create %s: %d", name, err);
	nvefs_forget(x->w, a.ino, 1);
	return a.ino;
}

uint64_t fx_lookup(struct fixture *x, uint64_t dir, const char *name)
{
	struct nvefs_attr a;
	int err;

	err = nvefs_lookup(x->w, dir, name, strlen(name), &a);
	if (err) {
		ck_assert_int_eq(err, -ENOENT);
		return 0;
	}
	nvefs_forget(x->w, a.ino, 1);
	return a.ino;
}

int fx_rename(struct fixture *x, uint64_t dir, const char *name, uint64_t newdir, const char *newname,
	      uint32_t flags)
{
	return nvefs_rename(x->w, dir, name, strlen(name), newdir, newname, strlen(newname), flags);
}

struct nvefs_attr fx_attr(struct fixture *x, uint64_t ino)
{
	struct nvefs_attr a;

	ck_assert_int_eq(nvefs_getattr(x->w, ino, &a), 0);
	return a;
}

/* ---- Checking all ---- */

struct seen {
	uint64_t ino;
	uint32_t links, nlink;
};

struct walk {
	struct fixture *x;
	struct seen *seen;
	uint64_t nseen, cap;
	/* of the directory being listed */
	uint64_t dir, parent, entries, subdirs;
	uint64_t *todo, ntodo, todo_cap; /* pairs: directory, parent */
};

static void walk_push(struct walk *k, uint64_t dir, uint64_t parent)
{
	if (k->ntodo + 2 > k->todo_cap) {
		k->todo_cap = k->todo_cap * 2 + 64;
		k->todo = realloc(k->todo, k->todo_cap * sizeof(uint64_t));
	}
	k->todo[k->ntodo++] = dir;
	k->todo[k->ntodo++] = parent;
}

static void walk_note(struct walk *k, const struct nvefs_attr *a)
{
	if (k->nseen == k->cap) {
		k->cap = k->cap * 2 + 64;
		k->seen = realloc(k->seen, k->cap * sizeof(struct seen));
	}
	k->seen[k->nseen++] = (struct seen){.ino = a->ino, .links = 1, .nlink = a->nlink};
}

static int walk_entry(void *arg, const char *name, size_t len, const struct nvefs_attr *a, uint64_t pos)
{
	struct walk *k = arg;

	ck_assert(pos && pos <= INT64_MAX);
	if (len <= 2 && !memcmp(name, "..", len)) {
		ck_assert_uint_eq(a->ino, len == 1 ? k->dir : k->parent);
		return 0;
	}
	k->entries++;
	if (S_ISDIR(a->mode)) {
		k->subdirs++;
		walk_push(k, a->ino, k->dir);
	}
	walk_note(k, a);
	return 0;
}

static int by_ino(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* Names per inode are its link count; how many inodes there are. */
static uint64_t walk_count(struct walk *k)
{
	uint64_t i, j, inodes = 1;

	if (k->nseen)
		qsort(k->seen, k->nseen, sizeof(struct seen), by_ino);
	for (i = 0; i < k->nseen; i = j, inodes++) {
		for (j = i + 1; j < k->nseen && k->seen[j].ino == k->seen[i].ino; j++)
			continue;
		if (S_ISDIR(fx_attr(k->x, k->seen[i].ino).mode))
			ck_assert_uint_eq(j - i, 1);
		else
			ck_assert_msg(j - i == k->seen[i].nlink, "inode %llu: %llu names, nlink %u",
				      (unsigned long long)k->seen[i].ino, (unsigned long long)(j - i),
				      k->seen[i].nlink);
	}
	return inodes;
}

uint64_t fx_check(struct fixture *x)
{
	struct walk k = {.x = x};
	struct nvefs_stats stats;
	struct nvefs_attr a;
	uint64_t inodes, i;

	walk_push(&k, ROOT, ROOT);
	while (k.ntodo) {
		k.parent = k.todo[--k.ntodo];
		k.dir = k.todo[--k.ntodo];
		k.entries = k.subdirs = 0;
		i = k.nseen;
		ck_assert_int_eq(nvefs_readdir(x->w, k.dir, 0, true, walk_entry, &k), 0);
		for (; i < k.nseen; i++)
			nvefs_forget(x->w, k.seen[i].ino, 1);
		a = fx_attr(x, k.dir);
		ck_assert_uint_eq(a.size, k.entries);
		ck_assert_uint_eq(a.nlink, k.subdirs + 2);
	}
	inodes = walk_count(&k);
	nvefs_stats_get(x->fs, &stats);
	ck_assert_uint_eq(stats.inodes, inodes);
	free(k.seen);
	free(k.todo);
	return inodes;
}
