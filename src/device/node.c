/* SPDX-License-Identifier: MIT */
#include "device/node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

static bool starts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool set_name(char name[NVEFS_NODE_NAME_MAX], const char *prefix, const char *rest)
{
	int n = snprintf(name, NVEFS_NODE_NAME_MAX, "%s%s", prefix, rest);

	if (n < NVEFS_NODE_NAME_MAX)
		return true;
	name[0] = '\0';
	return false;
}

static bool exists(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
	       !access(path, F_OK);
}

/* The first entry of `dir`/`sub`, of which there is one or none. */
static void first_entry(const char *dir, const char *sub, char name[NVEFS_NODE_NAME_MAX])
{
	char path[PATH_MAX];
	struct dirent *e;
	DIR *d;

	name[0] = '\0';
	if (snprintf(path, sizeof(path), "%s/%s", dir, sub) >= (int)sizeof(path))
		return;
	d = opendir(path);
	if (!d)
		return;
	while (!name[0] && (e = readdir(d)))
		if (e->d_name[0] != '.')
			set_name(name, "", e->d_name);
	closedir(d);
}

/* "nvme0n1" and not "nvme0": the character in between is the namespace's. */
static bool is_namespace(const char *name, const char *prefix)
{
	const char *rest = name + strlen(prefix);

	if (!starts(name, prefix))
		return false;
	rest += strspn(rest, "0123456789");
	return rest[0] == 'n' && rest[1] && rest[1 + strspn(rest + 1, "0123456789")] == '\0';
}

static void keep_if_there(const char *sysfs, const char *class, char name[NVEFS_NODE_NAME_MAX])
{
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s/class/%s", sysfs, class);
	if (!exists(dir, name))
		name[0] = '\0';
}

static void look_block(const char *sysfs, const char *dir, struct nvefs_node *node)
{
	const char *name = last_part(dir);

	node->by_block = true;
	if (exists(dir, "partition")) {
		char disk[PATH_MAX];

		node->kind = NVEFS_NODE_PARTITION;
		snprintf(disk, sizeof(disk), "%s", dir);
		*strrchr(disk, '/') = '\0';
		set_name(node->block, "", last_part(disk));
		return;
	}
	set_name(node->block, "", name);
	if (is_namespace(name, "nvme")) {
		node->kind = NVEFS_NODE_NVME;
		set_name(node->character, "ng", name + strlen("nvme"));
		keep_if_there(sysfs, "nvme-generic", node->character);
	} else if (starts(name, "sd")) {
		node->kind = NVEFS_NODE_SCSI;
		first_entry(dir, "device/scsi_generic", node->character);
	}
}

static void look_character(const char *sysfs, const char *dir, const char *class,
			   struct nvefs_node *node)
{
	const char *name = last_part(dir);

	set_name(node->character, "", name);
	if (!strcmp(class, "nvme-generic") && is_namespace(name, "ng")) {
		node->kind = NVEFS_NODE_NVME;
		set_name(node->block, "nvme", name + strlen("ng"));
		keep_if_there(sysfs, "block", node->block);
	} else if (!strcmp(class, "scsi_generic")) {
		node->kind = NVEFS_NODE_SCSI;
		first_entry(dir, "device/block", node->block);
	} else if (!strcmp(class, "nvme")) {
		node->kind = NVEFS_NODE_CONTROLLER;
	}
}

int nvefs_node_look(const char *sysfs, const struct stat *st, struct nvefs_node *ret)
{
	char path[PATH_MAX], dir[PATH_MAX], class[PATH_MAX];
	bool block = S_ISBLK(st->st_mode);

	snprintf(path, sizeof(path), "%s/dev/%s/%u:%u", sysfs, block ? "block" : "char",
		 major(st->st_rdev), minor(st->st_rdev));
	if (!realpath(path, dir))
		return -errno;
	memset(ret, 0, sizeof(*ret));
	ret->kind = NVEFS_NODE_OTHER;
	if (block) {
		look_block(sysfs, dir, ret);
		return 0;
	}
	snprintf(path, sizeof(path), "%.4000s/subsystem", dir);
	if (!realpath(path, class))
		return -errno;
	look_character(sysfs, dir, last_part(class), ret);
	return 0;
}

/* The first number of an attribute; 0 when it cannot be read. */
/* What the attribute says, without the end of its line. False when it is not there. */
static bool read_text(const char *dir, const char *name, char *buf, size_t len)
{
	char path[PATH_MAX];
	bool ok;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return false;
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(buf, (int)len, f);
	fclose(f);
	if (ok)
		buf[strcspn(buf, "\n")] = '\0';
	return ok;
}

static uint64_t attribute(const char *sysfs, const char *class, const char *name,
			  const char *attribute_name)
{
	char dir[PATH_MAX], text[32];

	snprintf(dir, sizeof(dir), "%s/class/%s/%s", sysfs, class, name);
	return read_text(dir, attribute_name, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

static bool number_is(const char *sysfs, const char *class, const char *name, dev_t number)
{
	unsigned int ma, mi;
	char path[PATH_MAX];
	bool same;
	FILE *f;

	snprintf(path, sizeof(path), "%s/class/%s/%s/dev", sysfs, class, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	same = fscanf(f, "%u:%u", &ma, &mi) == 2 && makedev(ma, mi) == number;
	fclose(f);
	return same;
}

int nvefs_node_open(const char *sysfs, const struct nvefs_node *node, bool block, int flags)
{
	const char *name = block ? node->block : node->character;
	const char *class = block			    ? "block"
			    : node->kind == NVEFS_NODE_NVME ? "nvme-generic"
							    : "scsi_generic";
	char path[sizeof("/dev/") + NVEFS_NODE_NAME_MAX];
	struct stat st;
	int fd;

	if (!name[0])
		return -ENODEV;
	snprintf(path, sizeof(path), "/dev/%s", name);
	/* Not blocking: an sg node that somebody holds must say so. */
	fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && number_is(sysfs, class, name, st.st_rdev))
		return fd;
	close(fd);
	return -ENODEV;
}

static uint32_t queues_of(const char *dir)
{
	char path[PATH_MAX];
	struct dirent *e;
	uint32_t n = 0;
	DIR *d = NULL;

	if (snprintf(path, sizeof(path), "%s/mq", dir) < (int)sizeof(path))
		d = opendir(path);
	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

/*
 * Of a namespace with several paths: the head nvmeSnN has no queues, each path nvmeScCnN has.
 * `look` is called with the directory of each path until it says that this was enough.
 */
static void each_path(const char *sysfs, const char *head, bool (*look)(const char *dir, void *arg), void *arg)
{
	unsigned int subsystem, number, s, c, n;
	char class[PATH_MAX], path[PATH_MAX];
	bool enough = false;
	struct dirent *e;
	DIR *d;
	int end;

	if (sscanf(head, "nvme%un%u", &subsystem, &number) != 2)
		return;
	snprintf(class, sizeof(class), "%s/class/block", sysfs);
	d = opendir(class);
	while (d && !enough && (e = readdir(d))) {
		if (sscanf(e->d_name, "nvme%uc%un%u%n", &s, &c, &n, &end) != 3 || e->d_name[end] ||
		    s != subsystem || n != number)
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", class, e->d_name) < (int)sizeof(path))
			enough = look(path, arg);
	}
	if (d)
		closedir(d);
}

static bool most_queues(const char *dir, void *arg)
{
	uint32_t *most = arg, n = queues_of(dir);

	*most = n > *most ? n : *most;
	return false;
}

static bool is_live(const char *dir, void *arg)
{
	char state[32];

	if (!read_text(dir, "device/state", state, sizeof(state)) || strcmp(state, "live") != 0)
		return false;
	/* Only where the controller reports asymmetric access (NVMe base 2.0, 8.1). */
	if (read_text(dir, "ana_state", state, sizeof(state)) && strcmp(state, "optimized") != 0 &&
	    strcmp(state, "non-optimized") != 0)
		return false;
	*(bool *)arg = true;
	return true;
}

enum nvefs_node_paths nvefs_node_paths(const char *sysfs, const struct nvefs_node *node)
{
	char path[PATH_MAX];
	bool live = false;

	snprintf(path, sizeof(path), "%s/class/block/%s", sysfs, node->block);
	if (access(path, F_OK) && errno == ENOENT)
		return NVEFS_PATHS_GONE;
	each_path(sysfs, node->block, is_live, &live);
	return live ? NVEFS_PATHS_LIVE : NVEFS_PATHS_AWAY;
}

void nvefs_node_limits(const char *sysfs, const struct nvefs_node *node,
		       struct nvefs_node_limits *ret)
{
	uint64_t by_length, by_pages;
	char path[PATH_MAX], parent[PATH_MAX];

	memset(ret, 0, sizeof(*ret));
	if (!node->block[0])
		return;
	by_length = attribute(sysfs, "block", node->block, "queue/max_hw_sectors_kb") << 10;
	by_pages = attribute(sysfs, "block", node->block, "queue/max_segments") * PAGE_BYTES;
	if (by_length > UINT32_MAX)
		by_length = UINT32_MAX;
	if (by_pages > UINT32_MAX)
		by_pages = UINT32_MAX;
	ret->transfer_bytes = (uint32_t)by_length;
	ret->segments_bytes = (uint32_t)by_pages;
	ret->max_bytes = (uint32_t)(by_pages && by_pages < by_length ? by_pages : by_length);
	/* The namespace of a subsystem, and not of one of its controllers. */
	snprintf(path, sizeof(path), "%s/class/block/%s/device/subsystem", sysfs, node->block);
	ret->multipath = realpath(path, parent) && !strcmp(last_part(parent), "nvme-subsystem");
	snprintf(path, sizeof(path), "%s/class/block/%s", sysfs, node->block);
	if (ret->multipath)
		each_path(sysfs, node->block, most_queues, &ret->hw_queues);
	else
		ret->hw_queues = queues_of(path);
}

/* Written and forgotten. */
static int drop_cache(int fd)
{
	return ioctl(fd, BLKFLSBUF, 0) ? -errno : 0;
}

int nvefs_node_lock(const char *sysfs, const struct nvefs_node *node, bool read_only,
		    const char *target, struct nvefs_error *err)
{
	int fd = nvefs_node_open(sysfs, node, true, (read_only ? O_RDONLY : O_RDWR) | O_EXCL);
	int code = fd < 0 ? fd : drop_cache(fd);

	if (!code)
		return fd;
	if (fd >= 0) {
		close(fd);
		return nvefs_error_set(err, code,
				       "%s: what the kernel has cached of it cannot be dropped: %s",
				       target, strerror(-code));
	}
	switch (code) {
	case -EBUSY:
		return nvefs_error_set(err, code,
				       "%s: in use: unmount it or wait for the program that has it",
				       target);
	case -EACCES:
	case -EPERM:
		return nvefs_error_set(err, code, "%s: permission denied: be root", target);
	case -EROFS:
		return nvefs_error_set(err, code, "%s: is read-only: mount it with ro", target);
	default:
		return nvefs_error_set(err, code, "%s: its block node %s%s cannot be opened: %s",
				       target, node->block[0] ? "/dev/" : "", node->block,
				       strerror(-code));
	}
}

/* The kernel looks for partitions again: those of a table that was overwritten go. */
void nvefs_node_unlock(int fd, bool read_only)
{
	if (fd < 0)
		return;
	if (!read_only && !drop_cache(fd))
		ioctl(fd, BLKRRPART, 0);
	close(fd);
}
