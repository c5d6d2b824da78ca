/* SPDX-License-Identifier: MIT */
#include "fuse/mountinfo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* proc(5): space, tab, newline and backslash are written as octal escapes. */
static void unescape(const char *in, size_t len, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++) {
		if (in[i] == '\\' && i + 3 < len && in[i + 1] >= '0' && in[i + 1] <= '3') {
			out[n++] = (char)((in[i + 1] - '0') << 6 | (in[i + 2] - '0') << 3 | (in[i + 3] - '0'));
			i += 3;
		} else {
			out[n++] = in[i];
		}
	}
	out[n] = '\0';
}

/* The next word of a line; NULL at its end. */
static const char *next_word(const char **line, size_t *ret_len)
{
	const char *p = *line + strspn(*line, " \n");

	*ret_len = strcspn(p, " \n");
	*line = p + *ret_len;
	return *ret_len ? p : NULL;
}

static bool parse_line(const char *line, struct nvefs_mountinfo *mi)
{
	const char *word, *id;
	size_t len;

	memset(mi, 0, sizeof(*mi));
	for (int field = 0; field < 5; field++) {
		word = next_word(&line, &len);
		if (!word)
			return false;
		if (field == 2 && sscanf(word, "%u:%u", &mi->major, &mi->minor) != 2)
			return false;
		if (field == 4)
			unescape(word, len, mi->mountpoint, sizeof(mi->mountpoint));
	}
	do
		word = next_word(&line, &len);
	while (word && !(len == 1 && *word == '-'));
	word = word ? next_word(&line, &len) : NULL;
	if (!word)
		return false;
	unescape(word, len, mi->fstype, sizeof(mi->fstype));
	word = next_word(&line, &len);
	if (word)
		unescape(word, len, mi->source, sizeof(mi->source));
	id = strstr(line, "user_id=");
	if (id)
		mi->user_id = (uint32_t)strtoul(id + strlen("user_id="), NULL, 10);
	return true;
}

/* Calls fn for each mount that a process sees, oldest first. file: its mountinfo. */
static int each_mount(const char *file, void (*fn)(void *arg, const struct nvefs_mountinfo *mi), void *arg)
{
	FILE *f = fopen(file, "re");
	struct nvefs_mountinfo mi;
	char *line = NULL;
	size_t size = 0;

	if (!f)
		return -errno;
	while (getline(&line, &size, f) > 0)
		if (parse_line(line, &mi))
			fn(arg, &mi);
	free(line);
	fclose(f);
	return 0;
}

#define FUSE_CTL_SUPER_MAGIC 0x65735543

static const char own_mounts[] = "/proc/self/mountinfo";

struct query {
	const char *mountpoint, *source;
	unsigned int major, minor;
	bool found;
	struct nvefs_mountinfo *ret;
};

static void match(void *arg, const struct nvefs_mountinfo *mi)
{
	struct query *q = arg;

	if (q->mountpoint && strcmp(q->mountpoint, mi->mountpoint) != 0)
		return;
	if (q->source && (strcmp(q->source, mi->source) != 0 || strcmp(mi->fstype, NVEFS_FSTYPE) != 0))
		return;
	if (!q->mountpoint && !q->source && (q->major != mi->major || q->minor != mi->minor))
		return;
	q->found = true;
	if (q->ret)
		*q->ret = *mi;
}

int nvefs_mountinfo_find(const char *mountpoint, struct nvefs_mountinfo *ret)
{
	struct query q = {.mountpoint = mountpoint, .ret = ret};
	int err = each_mount(own_mounts, match, &q);

	return err ? err : q.found ? 0 : -ENOENT;
}

int nvefs_mountinfo_find_source(const char *source, struct nvefs_mountinfo *ret)
{
	struct query q = {.source = source, .ret = ret};
	int err = each_mount(own_mounts, match, &q);

	return err ? err : q.found ? 0 : -ENOENT;
}

/* The name of a process's mount name space; false for one that may not be asked or has ended. */
static bool name_space(const char *pid, char ret[64])
{
	char path[300];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%s/ns/mnt", pid);
	len = readlink(path, ret, 63);
	ret[len > 0 ? len : 0] = '\0';
	return len > 0;
}

static void process_name(const char *pid, char *ret, size_t size)
{
	char path[300];
	ssize_t len = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		len = read(fd, ret, size - 1);
		close(fd);
	}
	ret[len > 0 ? len : 0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	for (char *p = ret; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 127)
			*p = '?';
}

/*
 * The other name spaces, by way of the processes that live in them. Those of other users do not tell which
 * one they are in, but what is mounted there.
 */
static void match_elsewhere(struct query *q, struct nvefs_mount_place *ret)
{
	char own[64], other[64], file[300];
	DIR *d = opendir("/proc");
	struct dirent *de;

	if (!d || !name_space("self", own))
		goto close;
	while (!q->found && (de = readdir(d))) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		if (name_space(de->d_name, other) && strcmp(own, other) == 0)
			continue;
		snprintf(file, sizeof(file), "/proc/%s/mountinfo", de->d_name);
		(void)each_mount(file, match, q);
		if (!q->found)
			continue;
		ret->pid = strtol(de->d_name, NULL, 10);
		process_name(de->d_name, ret->process, sizeof(ret->process));
	}
close:
	if (d)
		closedir(d);
}

bool nvefs_mountinfo_has_dev(unsigned int major, unsigned int minor, struct nvefs_mount_place *ret)
{
	struct nvefs_mountinfo mi;
	struct query q = {.major = major, .minor = minor, .ret = &mi};

	ret->pid = 0;
	ret->process[0] = '\0';
	if (each_mount(own_mounts, match, &q) == 0 && !q.found)
		match_elsewhere(&q, ret);
	if (q.found)
		memcpy(ret->mountpoint, mi.mountpoint, sizeof(ret->mountpoint));
	return q.found;
}

/* The kernel's list of connections need not be mounted: a mount of our own that is attached nowhere will do. */
static int open_fusectl(void)
{
	int fs, fd = open("/sys/fs/fuse/connections", O_PATH | O_DIRECTORY | O_CLOEXEC), err;
	struct statfs s;

	if (fd >= 0 && fstatfs(fd, &s) == 0 && s.f_type == FUSE_CTL_SUPER_MAGIC)
		return fd;
	if (fd >= 0)
		close(fd);
	fs = fsopen("fusectl", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	fd = fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) ? -1 : fsmount(fs, FSMOUNT_CLOEXEC, 0);
	err = fd < 0 ? -errno : fd;
	close(fs);
	return err;
}

int nvefs_mountinfo_connection(unsigned int minor)
{
	int dir = open_fusectl(), found;
	char name[16];

	if (dir < 0)
		return dir;
	snprintf(name, sizeof(name), "%u", minor);
	found = faccessat(dir, name, F_OK, 0) == 0 ? 1 : errno == ENOENT ? 0 : -errno;
	close(dir);
	return found;
}

int nvefs_mountpoint_path(const char *path, char *ret, size_t size)
{
	char full[PATH_MAX], copy[PATH_MAX], *base;
	size_t len = strlen(path);

	if (realpath(path, full))
		return (size_t)snprintf(ret, size, "%s", full) < size ? 0 : -ENAMETOOLONG;
	if (errno != ENOTCONN)
		return -errno;
	/* The last part cannot be looked at; what it lies in can. */
	if (len >= sizeof(copy))
		return -ENAMETOOLONG;
	memcpy(copy, path, len + 1);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	base = strrchr(copy, '/');
	if (base)
		*base = '\0';
	if (!realpath(base ? (*copy ? copy : "/") : ".", full))
		return -errno;
	return (size_t)snprintf(ret, size, "%s/%s", strcmp(full, "/") ? full : "", base ? base + 1 : copy) < size
		       ? 0
		       : -ENAMETOOLONG;
}

static int run_fusermount(const char *path, int flags)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		execlp("fusermount3", "fusermount3", flags & MNT_DETACH ? "-uz" : "-u", "--", path, (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOEXEC;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

int nvefs_mountpoint_detach(const char *path, int flags)
{
	if (umount2(path, flags | UMOUNT_NOFOLLOW) == 0)
		return 0;
	return errno == EPERM && geteuid() ? run_fusermount(path, flags) : -errno;
}
