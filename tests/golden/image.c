/* SPDX-License-Identifier: MIT */
/*
 * An image of a disk version with something of everything, and the check that
 * a program still reads it all.
 *
 *	golden_image make FILE	ends without unmounting: part of it is in the journal only
 *	golden_image make-single FILE	the same, without second copies of metadata
 *	golden_image ro FILE	check, and mount without writing anything
 *	golden_image rw FILE	mount, check, write, unmount, check again
 *	golden_image refuse FILE	of an older disk version: neither mounted nor checked
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <nvefs/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "../support/calls.h"
#include "fsck/check.h"

#define BIG_BYTES (1u << 20)
#define CHANGED_OFF (3u * 4096)
#define NNAMES 300u

#define HOLDS(c)                                                                                   \
	do {                                                                                       \
		if (!(c)) {                                                                        \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #c);      \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static const struct nvefs_cred root = {0}, user = {.uid = 1000, .gid = 100, .umask = 022};
static struct nvefs_fs *fs;
static struct nvefs_worker *w;

static struct nvefs_dev *dev_open(const char *file, uint32_t flags)
{
	struct nvefs_dev_open_opts opts = {.flags = flags, .create_bytes = 64u << 20};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;

	if (nvefs_dev_open(file, &opts, &dev, &err)) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	return dev;
}

static void mount_fs(struct nvefs_dev *dev, bool read_only)
{
	const struct nvefs_mount_opts opts = {
		.read_only = read_only, .replay_in_memory = read_only, .noatime = true};
	struct nvefs_error err = {""};

	if (nvefs_mount(dev, &opts, &fs, &err)) {
		fprintf(stderr, "mount: %s\n", err.text);
		exit(1);
	}
	HOLDS(!nvefs_worker_open(fs, &w));
}

static void unmount_fs(void)
{
	nvefs_worker_close(w);
	HOLDS(!nvefs_unmount(fs));
}

/* Differs from block to block and from file to file, and still packs well. */
static void pattern(uint8_t *buf, size_t len, uint32_t file)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(i % 4096 < 8 ? (i / 4096 * 7 + file) >> (i % 4096) : file);
}

static uint64_t lookup(uint64_t dir, const char *name, struct nvefs_attr *ret_attr)
{
	HOLDS(!nvefs_lookup(w, dir, name, strlen(name), ret_attr));
	return ret_attr->ino;
}

/* ---- Make ---- */

static uint64_t file_make(uint64_t dir, const char *name)
{
	struct nvefs_attr a;

	HOLDS(!nvefs_mknod(w, dir, name, strlen(name), S_IFREG | 0640, 0, &user, &a));
	return a.ino;
}

static void names_make(void)
{
	static char target[3001], value[20000];
	struct nvefs_attr dir, a;
	uint64_t ino;

	HOLDS(!nvefs_mkdir(w, 1, "dir", 3, 0750, &user, &dir));
	ino = file_make(dir.ino, "hello");
	HOLDS(!h_write(w, ino, 0, "hello, disk version 2\n", 22, 0));
	HOLDS(!nvefs_link(w, ino, 1, "hard", 4, &a));
	memset(value, 'v', sizeof(value));
	HOLDS(!nvefs_setxattr(w, ino, "user.small", "small value", 11, 0));
	HOLDS(!nvefs_setxattr(w, ino, "user.large", value, sizeof(value), 0));
	memset(target, 'x', 3000);
	HOLDS(!nvefs_symlink(w, 1, "short link", 10, "dir/hello", &user, &a));
	HOLDS(!nvefs_symlink(w, 1, "long link", 9, target, &user, &a));
	HOLDS(!nvefs_mknod(w, 1, "fifo", 4, S_IFIFO | 0600, 0, &root, &a));
	HOLDS(!nvefs_mknod(w, 1, "device", 6, S_IFCHR | 0620, makedev(5, 1), &root, &a));
	HOLDS(!nvefs_mkdir(w, 1, "many", 4, 0755, &root, &dir));
	for (uint32_t i = 0; i < NNAMES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "name-%04u", i);
		(void)file_make(dir.ino, name);
	}
}

static void data_make(void)
{
	static uint8_t buf[BIG_BYTES];
	struct nvefs_attr set = {.flags = NVEFS_INODE_DEDUP_OFF}, a;
	uint64_t big = file_make(1, "big"), clone = file_make(1, "clone");
	uint64_t sparse = file_make(1, "sparse"), unwritten = file_make(1, "unwritten");

	pattern(buf, sizeof(buf), 1);
	HOLDS(!h_write(w, big, 0, buf, sizeof(buf), 0));
	HOLDS(h_copy(w, big, 0, clone, 0, sizeof(buf)) == sizeof(buf));
	HOLDS(!h_write(w, sparse, 500000, "in the middle", 13, 0));
	HOLDS(!h_truncate(w, sparse, 1000123));
	HOLDS(!h_fallocate(w, unwritten, 0, 0, 65536));
	HOLDS(!h_fallocate(w, unwritten, FALLOC_FL_KEEP_SIZE, 65536, 65536));
	HOLDS(!h_write(w, unwritten, 8192, buf, 4096, 0));
	HOLDS(!nvefs_setattr(w, unwritten, NVEFS_SET_FLAGS, &set, &a));
}

/* After a second mount, and not written home any more. */
static void late_make(void)
{
	static uint8_t buf[4096];
	struct nvefs_attr a;
	uint64_t gone;

	memset(buf, 'Z', sizeof(buf));
	HOLDS(!h_write(w, lookup(1, "big", &a), CHANGED_OFF, buf, sizeof(buf), 0));
	HOLDS(!h_write(w, file_make(1, "late"), 0, "from the journal", 16, 0));
	gone = file_make(1, "gone");
	HOLDS(!h_write(w, gone, 0, buf, sizeof(buf), 0));
	HOLDS(!nvefs_open(w, gone));
	HOLDS(!h_unlink(w, "gone")); /* open: stays as an orphan */
	HOLDS(!h_sync(w));
}

static void image_make(const char *file, bool single)
{
	static const uint8_t uuid[16] = {0x67, 0x6f, 0x6c, 0x64, 0x65, 0x6e, 0x40, 0x02,
					 0x80, 0x02, 3,	   4,	 5,    6,    7,	   8};
	const struct nvefs_mkfs_opts opts = {
		.label = "golden", .uuid = uuid, .hash_seed = 42, .metadata_single = single};
	struct nvefs_dev *dev = dev_open(file, NVEFS_OPEN_CREATE);
	struct nvefs_error err = {""};

	HOLDS(!nvefs_mkfs(dev, &opts, &err));
	mount_fs(dev, false);
	names_make();
	data_make();
	unmount_fs();
	mount_fs(dev_open(file, 0), false);
	late_make();
	nvefs_worker_close(w);
	nvefs_abandon(fs);
}

/* ---- Check ---- */

static void content_check(uint64_t ino, const uint8_t *want, size_t len)
{
	uint8_t *buf = malloc(len + 1);

	HOLDS(buf);
	HOLDS(h_read(w, ino, 0, buf, len + 1) == (int64_t)len);
	HOLDS(!memcmp(buf, want, len));
	free(buf);
}

static void xattrs_check(uint64_t ino)
{
	static char value[20001];
	size_t len;

	HOLDS(!nvefs_getxattr(w, ino, "user.small", value, sizeof(value), &len));
	HOLDS(len == 11 && !memcmp(value, "small value", 11));
	HOLDS(!nvefs_getxattr(w, ino, "user.large", value, sizeof(value), &len));
	HOLDS(len == 20000);
	for (size_t i = 0; i < len; i++)
		HOLDS(value[i] == 'v');
	HOLDS(nvefs_getxattr(w, ino, "user.none", value, sizeof(value), &len) == -ENODATA);
}

static void links_check(void)
{
	char target[4096];
	struct nvefs_attr a;
	size_t len;

	HOLDS(!nvefs_readlink(w, lookup(1, "short link", &a), target, sizeof(target), &len));
	HOLDS(len == 9 && !memcmp(target, "dir/hello", 9));
	HOLDS(!nvefs_readlink(w, lookup(1, "long link", &a), target, sizeof(target), &len));
	HOLDS(len == 3000 && a.size == 3000 && strspn(target, "x") >= 3000);
}

static int name_count(void *arg, const char *name, size_t len, const struct nvefs_attr *attr,
		      uint64_t next_pos)
{
	(void)attr;
	(void)next_pos;
	*(uint32_t *)arg += len == 9 && !memcmp(name, "name-", 5);
	return 0;
}

static void names_check(void)
{
	struct nvefs_attr dir, a, hard;
	uint32_t count = 0;

	lookup(1, "dir", &dir);
	HOLDS(dir.mode == (S_IFDIR | 0750) && dir.uid == 1000 && dir.gid == 100 && dir.nlink == 2);
	lookup(dir.ino, "hello", &a);
	HOLDS(a.mode == (S_IFREG | 0640) && a.nlink == 2 && a.size == 22);
	HOLDS(lookup(1, "hard", &hard) == a.ino);
	content_check(a.ino, (const uint8_t *)"hello, disk version 2\n", 22);
	xattrs_check(a.ino);
	links_check();
	lookup(1, "fifo", &a);
	HOLDS(a.mode == (S_IFIFO | 0600));
	lookup(1, "device", &a);
	HOLDS(a.mode == (S_IFCHR | 0620) && a.rdev == makedev(5, 1));
	lookup(1, "many", &dir);
	HOLDS(!nvefs_readdir(w, dir.ino, 0, false, name_count, &count));
	HOLDS(count == NNAMES);
	lookup(dir.ino, "name-0299", &a);
	HOLDS(nvefs_lookup(w, 1, "gone", 4, &a) == -ENOENT);
}

static void data_check(void)
{
	static uint8_t want[BIG_BYTES], sparse[1000123], unwritten[65536];
	struct nvefs_attr a;
	uint64_t off;

	pattern(want, sizeof(want), 1);
	memcpy(unwritten + 8192, want, 4096);
	content_check(lookup(1, "clone", &a), want, sizeof(want));
	HOLDS(a.blks == BIG_BYTES / 4096);
	memset(want + CHANGED_OFF, 'Z', 4096);
	content_check(lookup(1, "big", &a), want, sizeof(want));
	memcpy(sparse + 500000, "in the middle", 13);
	content_check(lookup(1, "sparse", &a), sparse, sizeof(sparse));
	HOLDS(a.blks == 1);
	HOLDS(!nvefs_seek(w, a.ino, 0, SEEK_DATA, &off) && off == 500000 / 4096 * 4096);
	content_check(lookup(1, "unwritten", &a), unwritten, sizeof(unwritten));
	HOLDS(a.blks == 32 && a.flags == NVEFS_INODE_DEDUP_OFF);
	content_check(lookup(1, "late", &a), (const uint8_t *)"from the journal", 16);
}

static void problem_print(void *arg, const struct nvefs_problem *p)
{
	char text[512];

	(void)arg;
	nvefs_problem_text(p, text, sizeof(text));
	fprintf(stderr, "check: %s\n", text);
}

static void fsck_run(const char *file, bool replays)
{
	const struct nvefs_check_opts opts = {
		.replay_in_memory = true, .data = true, .report = problem_print};
	struct nvefs_dev *dev = dev_open(file, 0);
	struct nvefs_check_result result;
	struct nvefs_error err = {""};

	if (nvefs_check(dev, &opts, &result, &err)) {
		fprintf(stderr, "check: %s\n", err.text);
		exit(1);
	}
	HOLDS(!result.problems && result.shared_blks && (result.replayed_txns > 0) == replays);
	nvefs_dev_close(dev);
}

static void image_check(const char *file, bool read_only)
{
	uint64_t ino;

	fsck_run(file, true);
	mount_fs(dev_open(file, 0), read_only);
	names_check();
	data_check();
	if (!read_only) {
		HOLDS(!h_create(w, "new", &ino));
		HOLDS(!h_write(w, ino, 0, "new", 3, 0));
	}
	unmount_fs();
	fsck_run(file, read_only);
}

static void image_refuse(const char *file)
{
	const struct nvefs_check_opts opts = {.replay_in_memory = true};
	const struct nvefs_mount_opts mount = {.read_only = true};
	struct nvefs_dev *dev = dev_open(file, 0);
	struct nvefs_check_result result;
	struct nvefs_error err = {""};

	HOLDS(nvefs_mount(dev, &mount, &fs, &err) == -ENOTSUP);
	HOLDS(strstr(err.text, "older"));
	HOLDS(nvefs_check(dev, &opts, &result, &err) == -ENOTSUP);
	HOLDS(strstr(err.text, "older"));
	nvefs_dev_close(dev);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (!strncmp(argv[1], "make", 4))
		image_make(argv[2], !strcmp(argv[1], "make-single"));
	else if (!strcmp(argv[1], "refuse"))
		image_refuse(argv[2]);
	else
		image_check(argv[2], strcmp(argv[1], "rw") != 0);
	return 0;
}
