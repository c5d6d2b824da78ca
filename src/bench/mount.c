/* SPDX-License-Identifier: MIT */
#include "bench/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "bench/process.h"

#define MOUNT_TIMEOUT_NS 60000000000ull
#define END_TIMEOUT_NS 120000000000ull
#define BUSY_TIMEOUT_NS 60000000000ull

int nvefs_bench_mount_init(struct nvefs_bench_mount *m, struct nvefs_error *err)
{
	memset(m, 0, sizeof(*m));
	m->err_fd = -1;
	if (nvefs_process_find("nvefs", "fuse", m->program, sizeof(m->program)))
		return nvefs_error_set(err, -ENOENT, "nvefs: the daemon is neither beside this program nor in PATH");
	return 0;
}

/* A mounted directory is on another device than its parent. */
static bool is_mounted(const char *dir)
{
	char parent[80];
	struct stat a, b;

	snprintf(parent, sizeof(parent), "%s/..", dir);
	return !stat(dir, &a) && !stat(parent, &b) && a.st_dev != b.st_dev;
}

/* The last line that the daemon wrote, without its own name. */
static void last_words(const struct nvefs_bench_mount *m, char *ret, size_t len)
{
	ssize_t n = pread(m->err_fd, ret, len - 1, 0);
	char *line;

	ret[n > 0 ? n : 0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	line = strncmp(ret, "nvefs: ", 7) ? ret : ret + 7;
	memmove(ret, line, strlen(line) + 1);
	if (!ret[0])
		snprintf(ret, len, "the daemon ended without a word");
}

static int wait_mounted(struct nvefs_bench_mount *m, struct nvefs_error *err)
{
	uint64_t end = nvefs_now_ns() + MOUNT_TIMEOUT_NS;
	struct timespec pause = {.tv_nsec = 5000000};
	char words[400];
	int status;

	while (!is_mounted(m->dir)) {
		if (nvefs_process_wait(m->pid, 0, &status)) {
			m->pid = 0;
			last_words(m, words, sizeof(words));
			return nvefs_error_set(err, -EIO, "%s", words);
		}
		if (nvefs_now_ns() > end || nvefs_process_interrupted())
			return nvefs_error_set(err, nvefs_process_interrupted() ? -EINTR : -ETIMEDOUT,
					       "%s: was not mounted", m->dir);
		nanosleep(&pause, NULL);
	}
	return 0;
}

int nvefs_bench_mount_start(struct nvefs_bench_mount *m, const char *target, const char *options,
			    struct nvefs_error *err)
{
	const char *argv[] = {m->program, "-f", target, m->dir, "-o", options, NULL};
	const char *tmp = getenv("TMPDIR");
	struct nvefs_error ignored;
	int code;

	if ((size_t)snprintf(m->dir, sizeof(m->dir), "%s/nvefs-bench.XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp") >=
		    sizeof(m->dir) ||
	    !mkdtemp(m->dir)) {
		m->dir[0] = '\0';
		return nvefs_error_set(err, -errno, "no temporary directory: %s", strerror(errno));
	}
	m->err_fd = memfd_create("nvefs-bench", MFD_CLOEXEC);
	code = nvefs_process_start(argv, m->err_fd, &m->pid);
	if (code)
		code = nvefs_error_set(err, code, "%s: cannot be run: %s", m->program, strerror(-code));
	else
		code = wait_mounted(m, err);
	if (code)
		nvefs_bench_mount_stop(m, &ignored);
	return code;
}

/* As root by the system call, else by FUSE's helper. */
static int unmount(const char *dir)
{
	const char *argv[] = {"fusermount3", "-u", dir, NULL};
	char *out, *errors;
	int status, code;

	if (!umount2(dir, 0))
		return 0;
	if (errno != EPERM)
		return -errno;
	code = nvefs_process_run(argv, &out, &errors, &status);
	if (code)
		return code;
	free(out);
	free(errors);
	return status ? -EBUSY : 0;
}

static int end_daemon(struct nvefs_bench_mount *m, struct nvefs_error *err)
{
	char words[400];
	int status = 0;

	if (!nvefs_process_wait(m->pid, END_TIMEOUT_NS, &status)) {
		kill(m->pid, SIGTERM);
		if (!nvefs_process_wait(m->pid, END_TIMEOUT_NS, &status))
			return nvefs_error_set(err, -ETIMEDOUT, "%s: the daemon (process %d) does not end", m->dir,
					       (int)m->pid);
	}
	m->pid = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		last_words(m, words, sizeof(words));
		return nvefs_error_set(err, -EIO, "%s: %s", m->dir, words);
	}
	return 0;
}

int nvefs_bench_mount_stop(struct nvefs_bench_mount *m, struct nvefs_error *err)
{
	struct timespec pause = {.tv_nsec = 50000000};
	bool was_mounted = m->dir[0] && is_mounted(m->dir);
	uint64_t busy_end = nvefs_now_ns() + BUSY_TIMEOUT_NS;
	int code = 0;

	if (m->pid && !was_mounted)
		kill(m->pid, SIGTERM);
	/* Busy for a moment: a process that was ended may still be closing its files. */
	while (was_mounted && is_mounted(m->dir)) {
		code = unmount(m->dir);
		if (code != -EBUSY || nvefs_now_ns() > busy_end)
			break;
		nanosleep(&pause, NULL);
	}
	if (code)
		nvefs_error_set(err, code, "%s: cannot be unmounted: %s", m->dir, strerror(-code));
	else if (m->pid)
		code = end_daemon(m, err);
	if (m->err_fd >= 0)
		close(m->err_fd);
	m->err_fd = -1;
	if (!code && m->dir[0]) {
		rmdir(m->dir);
		m->dir[0] = '\0';
	}
	return code;
}
