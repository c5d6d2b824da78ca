/* SPDX-License-Identifier: MIT */
#include "bench/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

void nvefs_process_catch(void)
{
	struct sigaction sa = {.sa_handler = on_signal};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

bool nvefs_process_interrupted(void)
{
	return interrupted;
}

static void pause_ms(long ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

/* In the child: become the program; tell the parent by the pipe when that fails. */
static void become(const char *const argv[], int fail_fd)
{
	int err;

	signal(SIGPIPE, SIG_DFL);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	err = errno;
	if (write(fail_fd, &err, sizeof(err)) < 0)
		_exit(126);
	_exit(127);
}

/* Fork and exec with the given descriptors as standard output and error. 0 or -errno of the exec. */
static int spawn(const char *const argv[], int out_fd, int err_fd, bool own_group, pid_t *ret_pid)
{
	int fail[2], code = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(fail, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0) {
		code = -errno;
		close(fail[0]);
		close(fail[1]);
		return code;
	}
	if (!pid) {
		int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (own_group)
			setpgid(0, 0);
		dup2(null_fd, STDIN_FILENO);
		dup2(out_fd < 0 ? null_fd : out_fd, STDOUT_FILENO);
		dup2(err_fd < 0 ? null_fd : err_fd, STDERR_FILENO);
		become(argv, fail[1]);
	}
	close(fail[1]);
	do
		n = read(fail[0], &code, sizeof(code));
	while (n < 0 && errno == EINTR);
	if (n != sizeof(code))
		code = 0;
	close(fail[0]);
	if (code) {
		waitpid(pid, NULL, 0);
		return -code;
	}
	*ret_pid = pid;
	return 0;
}

/* What a program writes, growing. */
struct text {
	char *bytes;
	size_t len, max;
};

static int take(struct text *t, int fd)
{
	ssize_t n;

	if (t->max - t->len < 4096) {
		size_t max = t->max ? t->max * 2 : 65536;
		char *bytes = realloc(t->bytes, max);

		if (!bytes)
			return -ENOMEM;
		t->bytes = bytes;
		t->max = max;
	}
	n = read(fd, t->bytes + t->len, t->max - t->len - 1);
	if (n < 0)
		return errno == EINTR ? 1 : -errno;
	t->len += (size_t)n;
	t->bytes[t->len] = '\0';
	return n > 0;
}

static int collect(int out_fd, int err_fd, struct text *out, struct text *err)
{
	struct pollfd fds[2] = {{.fd = out_fd, .events = POLLIN}, {.fd = err_fd, .events = POLLIN}};
	struct text *texts[2] = {out, err};

	while (fds[0].fd >= 0 || fds[1].fd >= 0) {
		if (poll(fds, 2, -1) < 0) {
			if (errno != EINTR)
				return -errno;
			continue; /* what it said of the descriptors is from the time before */
		}
		for (int i = 0; i < 2; i++) {
			int more = 1;

			if (fds[i].fd >= 0 && fds[i].revents)
				more = take(texts[i], fds[i].fd);
			if (more < 0)
				return more;
			if (!more)
				fds[i].fd = -1;
		}
	}
	return 0;
}

static void wait_for(pid_t pid, int *ret_status)
{
	while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
		;
}

int nvefs_process_run(const char *const argv[], char **ret_out, char **ret_err, int *ret_status)
{
	struct text out = {0}, err = {0};
	int out_pipe[2], err_pipe[2], code;
	pid_t pid = 0;

	if (pipe2(out_pipe, O_CLOEXEC))
		return -errno;
	if (pipe2(err_pipe, O_CLOEXEC)) {
		code = -errno;
		goto close_out;
	}
	code = spawn(argv, out_pipe[1], err_pipe[1], false, &pid);
	close(out_pipe[1]);
	close(err_pipe[1]);
	out_pipe[1] = -1;
	if (!code) {
		code = collect(out_pipe[0], err_pipe[0], &out, &err);
		wait_for(pid, ret_status);
	}
	close(err_pipe[0]);
	if (!code) {
		*ret_out = out.bytes ? out.bytes : strdup("");
		*ret_err = err.bytes ? err.bytes : strdup("");
	} else {
		free(out.bytes);
		free(err.bytes);
	}
close_out:
	close(out_pipe[0]);
	if (out_pipe[1] >= 0)
		close(out_pipe[1]);
	return code;
}

int nvefs_process_start(const char *const argv[], int err_fd, pid_t *ret_pid)
{
	return spawn(argv, -1, err_fd, true, ret_pid);
}

bool nvefs_process_wait(pid_t pid, uint64_t timeout_ns, int *ret_status)
{
	uint64_t end = nvefs_now_ns() + timeout_ns;

	for (;;) {
		pid_t got = waitpid(pid, ret_status, WNOHANG);

		if (got == pid || (got < 0 && errno == ECHILD))
			return true;
		if (nvefs_now_ns() >= end)
			return false;
		pause_ms(5);
	}
}

int nvefs_process_cpu(pid_t pid, uint64_t *ret_user, uint64_t *ret_system)
{
	char path[64], line[1024];
	unsigned long long user, system;
	const char *at;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	at = fgets(line, sizeof(line), f);
	fclose(f);
	/* The name in parentheses may hold anything: fields count from its end (proc(5)). */
	at = at ? strrchr(line, ')') : NULL;
	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
		return -EIO;
	*ret_user = user;
	*ret_system = system;
	return 0;
}

int nvefs_machine_cpu(uint64_t *ret_busy, uint64_t *ret_all)
{
	unsigned long long t[8] = {0};
	FILE *f = fopen("/proc/stat", "re");
	int n;

	if (!f)
		return -errno;
	n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5],
		   &t[6], &t[7]);
	fclose(f);
	if (n < 4)
		return -EIO;
	*ret_all = 0;
	for (int i = 0; i < 8; i++)
		*ret_all += t[i];
	*ret_busy = *ret_all - t[3] - t[4]; /* without idle and iowait */
	return 0;
}

/* `dir`/`rel`, when that can be executed. */
static bool try_path(const char *dir, const char *rel, const char *name, char *ret_path, size_t len)
{
	char path[4096];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s/%s", dir, rel, name) >= sizeof(path))
		return false;
	return !access(path, X_OK) && (size_t)snprintf(ret_path, len, "%s", path) < len;
}

int nvefs_process_find(const char *name, const char *folder, char *ret_path, size_t len)
{
	const char *path_list = getenv("PATH");
	char self[4096], rel[64], list[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *save = NULL;

	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
		snprintf(rel, sizeof(rel), "../%s", folder);
		if (try_path(self, ".", name, ret_path, len) || try_path(self, rel, name, ret_path, len) ||
		    try_path(self, "../sbin", name, ret_path, len) ||
		    try_path(self, "../bin", name, ret_path, len))
			return 0;
	}
	snprintf(list, sizeof(list), "%s:/usr/local/sbin:/usr/sbin:/sbin", path_list ? path_list : "/usr/bin:/bin");
	for (char *dir = strtok_r(list, ":", &save); dir; dir = strtok_r(NULL, ":", &save))
		if (try_path(dir, ".", name, ret_path, len))
			return 0;
	return -ENOENT;
}
