/* SPDX-License-Identifier: MIT */
/*
 * nvefs(8) and mount.nvefs(8): from the command line to the end of the mount.
 *
 * Order. Options and mount point are looked at first. Then the process forks,
 * before there are threads or rings; the child opens the target, mounts the
 * file system, starts its servers, and only when all that has worked makes the
 * kernel mount. It reports to the parent, which gives the message and the exit
 * code. At the end: detach, drain, write out, close the target.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include <nvefs/drive.h>

#include "base/log.h"
#include "base/rights.h"
#include "device/uri.h"
#include "fuse/daemon.h"
#include "fuse/health.h"
#include "fuse/jobs.h"
#include "fuse/mountpoint.h"
#include "fuse/state.h"

/* After a signal: how long those who still use the mount are served. */
#define GRACE_MS 2000
#define JOB_WORKERS 2u /* scrub and trim */
/* Queues that are not for servers: the jobs', the commit's, the background's, the heartbeat's. */
#define OTHER_QUEUES 5u

static const char usage[] =
	"Usage: nvefs TARGET MOUNTPOINT [-o OPTION[,OPTION...]] [-f] [-d]\n"
	"       mount -t nvefs [-o OPTION[,OPTION...]] TARGET MOUNTPOINT\n"
	"\n"
	"Mount the nvefs file system on TARGET.\n"
	"\n"
	"  -f         stay in the foreground, log to stderr\n"
	"  -d         print each request; implies -f\n"
	"  -r         as -o ro\n"
	"  --help, --version\n"
	"\n"
	"Options:\n"
	"  route=native|scsi       how reads and writes become device commands (native)\n"
	"  dedup=on|off            inline deduplication (as mkfs.nvefs recorded)\n"
	"  dedup_mem=SIZE          memory of the dedup index (64M)\n"
	"  cache=SIZE              memory for metadata and maps (128M)\n"
	"  queues=N                device queues, one thread each (CPUs, 2 to 8)\n"
	"  commit=SECONDS          longest time until a change is durable by itself (5)\n"
	"  ro, rw                  read-only: nothing at all is written to the target\n"
	"  norecovery              with ro: do not look at the journal\n"
	"  noatime, relatime       access times (relatime)\n"
	"  discard, nodiscard      tell the device at once what is free (nodiscard)\n"
	"  fua, nofua              commit with FUA in place of a second Flush (nofua)\n"
	"  mmp=force               take the file system from another host that has it mounted\n"
	"                          (with ro: mount it although another host has it)\n"
	"and those of FUSE and mount(8): allow_other, allow_root, auto_unmount, max_read=,\n"
	"dev, nodev, suid, nosuid, exec, noexec, sync, dirsync, context=.\n"
	"As root allow_other, default_permissions, dev and suid are on.\n"
	"\n";

/* ---- Messages ---- */

static void log_to_syslog(enum nvefs_log_level level, const char *line)
{
	static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

	syslog(priority[level], "%s", line);
}

static int complain(const struct nvefs_options *o, const struct nvefs_error *err)
{
	fprintf(stderr, "%s: %s\n", o->program, err->text);
	return NVEFS_EXIT_FAIL;
}

/* Also when it goes to the log: whoever called mount(8) looks at its output. */
static void warn(const struct nvefs_daemon *d, const char *text)
{
	nvefs_log(NVEFS_LOG_WARN, "%s: %s", d->source, text);
	if (!d->opts->foreground)
		fprintf(stderr, "%s: %s: %s\n", d->opts->program, d->source, text);
}

/* Says what is waited for. Given up when whoever called has gone, or a signal has come. */
static int host_wait(void *arg, const struct nvefs_host_wait *w)
{
	struct nvefs_daemon *d = arg;
	struct pollfd pfd[2] = {{.fd = d->signal_fd, .events = POLLIN}, {.fd = d->report_fd}};
	char text[512];

	if (nvefs_host_wait_text(w, &d->said_ms, text, sizeof(text)))
		warn(d, text);
	return poll(pfd, d->report_fd < 0 ? 1 : 2, 0) > 0;
}

/* ---- Set up ---- */

/* The target as findmnt(8) shows it: a path made absolute, options kept. */
static void name_source(struct nvefs_daemon *d)
{
	const char *target = d->opts->target, *path = target, *comma;
	char head[PATH_MAX], full[PATH_MAX];
	size_t len;

	if (strncmp(target, "file:", 5) == 0)
		path += 5;
	comma = access(path, F_OK) ? strchr(path, ',') : NULL;
	len = comma ? (size_t)(comma - path) : strlen(path);
	if (strncmp(target, "ram:", 4) == 0 || len >= sizeof(head)) {
		snprintf(d->source, sizeof(d->source), "%s", target);
		return;
	}
	memcpy(head, path, len);
	head[len] = '\0';
	snprintf(d->source, sizeof(d->source), "%s%.4096s", realpath(head, full) ? full : head, path + len);
}

static uint32_t choose_queues(const struct nvefs_options *o, const struct nvefs_dev_limits *limits)
{
	uint32_t room = limits->max_queues > OTHER_QUEUES ? limits->max_queues - OTHER_QUEUES : 1;
	uint32_t n = o->queues;
	cpu_set_t set;

	if (!n) {
		n = sched_getaffinity(0, sizeof(set), &set) ? 2 : (uint32_t)CPU_COUNT(&set);
		n = n < 2 ? 2 : n > 8 ? 8 : n;
		n = n < room ? n : room;
	}
	return n;
}

/* What the drive warns of is told, and that it does not answer; the mount goes on. */
static void warn_of_health(struct nvefs_daemon *d)
{
	struct nvefs_drive_health h;
	struct nvefs_error err = {""};
	const char *warning;
	char wear[128];
	int e = nvefs_dev_health(d->dev, &h, &err);

	if (e == -ENOTSUP)
		return;
	if (e) {
		nvefs_log(NVEFS_LOG_WARN, "%s", err.text);
		return;
	}
	nvefs_drive_wear_text(&h, wear, sizeof(wear));
	while ((warning = nvefs_drive_warning(&h.critical_warning)))
		nvefs_log(NVEFS_LOG_WARN, "%s: the drive warns: %s (%s)", d->source, warning, wear);
}

static int open_target(struct nvefs_daemon *d, struct nvefs_error *err)
{
	struct nvefs_options *o = d->opts;
	struct nvefs_dev_open_opts open_opts = {
		.flags = o->mount.read_only ? NVEFS_OPEN_RDONLY : 0,
		.route = o->route,
	};
	struct nvefs_uri uri;
	int e = nvefs_uri_parse(o->target, &uri, err);
	bool ram = !e && uri.is_ram;

	if (e)
		return e;
	d->privileged = nvefs_uri_privileged(&uri);
	if (ram)
		open_opts.flags = 0;
	e = nvefs_dev_open(o->target, &open_opts, &d->dev, err);
	if (!e)
		warn_of_health(d);
	if (!e && ram) {
		struct nvefs_mkfs_opts mkfs_opts = {.dedup = o->mount.dedup == NVEFS_ON};

		e = nvefs_mkfs(d->dev, &mkfs_opts, err);
	}
	return e;
}

/*
 * What reads the image has no rights: the file system is mounted, and its
 * threads are started, by a thread that has given up its own. This one still
 * needs them, for mount(2).
 */
struct fs_opening {
	struct nvefs_daemon *d;
	struct nvefs_error *err;
	int e;
};

static void *mount_fs(void *arg)
{
	struct fs_opening *opening = arg;
	struct nvefs_daemon *d = opening->d;
	int e = d->privileged ? 0 : nvefs_rights_reduce(false);

	if (e)
		opening->e = nvefs_error_set(opening->err, e, "cannot give up capabilities: %s", strerror(-e));
	else
		opening->e = nvefs_mount(d->dev, &d->opts->mount, &d->fs, opening->err);
	return NULL;
}

static int open_fs(struct nvefs_daemon *d, struct nvefs_error *err)
{
	struct fs_opening opening = {.d = d, .err = err};
	struct nvefs_options *o = d->opts;
	pthread_t thread;
	int e = open_target(d, err);

	if (e)
		return e;
	d->nservers = choose_queues(o, nvefs_dev_limits(d->dev));
	o->mount.max_workers = d->nservers + JOB_WORKERS;
	o->mount.mmp_force_how = "-o mmp=force";
	o->mount.host_wait = host_wait;
	o->mount.host_wait_arg = d;
	/* A read-only mount leaves the target as it is, journal and all. */
	o->mount.replay_in_memory = o->mount.read_only && !o->mount.no_recovery;
	e = nvefs_thread_start(&thread, "nvefs-mount", mount_fs, &opening);
	if (e)
		return nvefs_error_set(err, e, "cannot start threads: %s", strerror(-e));
	pthread_join(thread, NULL);
	return opening.e;
}

/* From here on the process unmounts, reads and writes what is open, and nothing else. */
static int give_up_rights(struct nvefs_daemon *d, struct nvefs_error *err)
{
	int e;

	/* An ordinary user has no more than to begin with, and fusermount3 needs its set-user-ID bit. */
	if (d->owner)
		return 0;
	e = d->privileged ? 0 : nvefs_rights_reduce(true);
	if (e)
		return nvefs_error_set(err, e, "cannot give up capabilities: %s", strerror(-e));
	e = nvefs_rights_seal();
	if (e)
		nvefs_log(NVEFS_LOG_INFO, "system calls are not restricted: %s", strerror(-e));
	return 0;
}

static void warn_shared(const struct nvefs_daemon *d)
{
	struct nvefs_info info;
	const char *text;

	nvefs_info_get(d->fs, &info);
	text = nvefs_shared_warning(d->dev, info.mmp_interval_ms);
	if (text)
		warn(d, text);
}

static int set_up(struct nvefs_daemon *d, struct nvefs_error *err)
{
	struct nvefs_mountinfo mi;
	int e;

	d->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->end_fd < 0)
		return nvefs_error_set(err, -errno, "eventfd: %s", strerror(errno));
	e = open_fs(d, err);
	if (e)
		return e;
	warn_shared(d);
	e = nvefs_jobs_new(d, &d->jobs);
	if (!e)
		e = nvefs_health_new(d, nvefs_ops_health_answer, &d->health);
	if (e)
		return nvefs_error_set(err, e, "out of memory");
	e = nvefs_session_open(d, err);
	if (e)
		return e;
	e = nvefs_servers_start(d, err);
	if (e)
		return e;
	e = nvefs_session_mount(d, err);
	if (e) {
		nvefs_servers_go(d, false, NULL);
		return e;
	}
	e = nvefs_servers_go(d, true, err);
	if (!e)
		e = give_up_rights(d, err);
	if (e) {
		nvefs_session_detach(d);
		return e;
	}
	e = nvefs_mountinfo_find(d->mountpoint, &mi);
	if (!e) {
		d->dev_major = mi.major;
		d->dev_minor = mi.minor;
		d->state_fd = nvefs_state_make(&mi);
		e = d->state_fd < 0 ? d->state_fd : 0;
	}
	if (e)
		nvefs_log(NVEFS_LOG_WARN, "%s: no run file: %s: umount will not wait for the daemon",
			  d->mountpoint, strerror(-e));
	return 0;
}

/* ---- Serve and end ---- */

/* Until the kernel ends the connection, or a signal has come and its grace is over. */
static void wait_for_end(struct nvefs_daemon *d, int signal_fd)
{
	struct pollfd pfd[2] = {
		{.fd = d->end_fd, .events = POLLIN},
		{.fd = signal_fd, .events = POLLIN},
	};
	int timeout = -1;

	for (;;) {
		struct signalfd_siginfo si;
		int n = poll(pfd, 2, timeout);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || pfd[0].revents || timeout >= 0)
			return;
		if (read(signal_fd, &si, sizeof(si)) != sizeof(si))
			continue;
		nvefs_log(NVEFS_LOG_INFO, "%s: signal %u: unmounting", d->mountpoint, si.ssi_signo);
		/* The servers go on: the kernel may have pages to write. */
		nvefs_session_detach(d);
		timeout = GRACE_MS;
	}
}

/* Whatever there is, half-built or whole. Returns whether all is durable. */
static int tear_down(struct nvefs_daemon *d)
{
	struct nvefs_mountinfo mi = {.major = d->dev_major, .minor = d->dev_minor, .user_id = d->owner};
	int e = 0;

	if (d->servers) {
		nvefs_servers_stop(d);
		nvefs_servers_join(d);
	}
	nvefs_jobs_free(d->jobs);
	nvefs_health_free(d->health);
	if (d->servers)
		nvefs_servers_close(d);
	if (d->se)
		nvefs_session_detach(d);
	nvefs_session_close(d);
	if (d->fs)
		e = nvefs_unmount(d->fs);
	else
		nvefs_dev_close(d->dev);
	nvefs_state_end(d->state_fd, &mi, e);
	if (d->end_fd >= 0)
		close(d->end_fd);
	return e;
}

static void to_background(int report_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	if (chdir("/") || write(report_fd, "", 1) != 1)
		nvefs_log(NVEFS_LOG_WARN, "cannot report the mount: %s", strerror(errno));
	close(report_fd);
	if (null > 2)
		close(null);
}

/* In the process that serves. report_fd -1: in the foreground. */
static int run(struct nvefs_daemon *d, int report_fd)
{
	struct nvefs_error err;
	sigset_t signals;
	int e;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	d->report_fd = report_fd;
	d->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	/* Memory that we ask for must not wait for pages that only we can write. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);

	e = set_up(d, &err);
	if (e) {
		tear_down(d);
		if (report_fd < 0)
			return complain(d->opts, &err);
		if (dprintf(report_fd, "%c%s", NVEFS_EXIT_FAIL, err.text) < 0)
			nvefs_log(NVEFS_LOG_ERR, "%s", err.text);
		return NVEFS_EXIT_FAIL;
	}
	nvefs_log(NVEFS_LOG_INFO, "%s mounted on %s", d->source, d->mountpoint);
	if (report_fd >= 0)
		to_background(report_fd);
	wait_for_end(d, d->signal_fd);
	e = tear_down(d);
	if (e)
		nvefs_log(NVEFS_LOG_ERR, "%s: unmounting: %s: the last writes are not durable: run fsck.nvefs",
			  d->source, strerror(-e));
	else
		nvefs_log(NVEFS_LOG_INFO, "%s unmounted", d->source);
	return e ? NVEFS_EXIT_FAIL : NVEFS_EXIT_OK;
}

/* The parent: wait for the report. */
static int await_report(const struct nvefs_options *o, int fd, pid_t pid)
{
	char text[1 + sizeof(((struct nvefs_error *)0)->text)];
	size_t len = 0;
	ssize_t n;

	while (len < sizeof(text) - 1) {
		n = read(fd, text + len, sizeof(text) - 1 - len);
		if (n > 0)
			len += (size_t)n;
		else if (n == 0 || errno != EINTR)
			break;
	}
	text[len] = '\0';
	if (len == 1 && text[0] == 0)
		return NVEFS_EXIT_OK;
	waitpid(pid, NULL, 0);
	fprintf(stderr, "%s: %s\n", o->program, len > 1 ? text + 1 : "the daemon ended before it had mounted");
	return NVEFS_EXIT_FAIL;
}

static int fork_and_run(struct nvefs_daemon *d)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC)) {
		perror(d->opts->program);
		return NVEFS_EXIT_FAIL;
	}
	pid = fork();
	if (pid < 0) {
		perror(d->opts->program);
		return NVEFS_EXIT_FAIL;
	}
	if (pid > 0) {
		close(fds[1]);
		return await_report(d->opts, fds[0], pid);
	}
	close(fds[0]);
	setsid();
	openlog("nvefs", LOG_PID, LOG_DAEMON);
	nvefs_log_setup(log_to_syslog, NVEFS_LOG_INFO);
	return run(d, fds[1]);
}

static int show(const struct nvefs_options *o)
{
	if (o->show_version)
		printf("%s " NVEFS_VERSION " (libfuse %s)\n", o->program, fuse_pkgversion());
	else
		printf("%s%s", usage, nvefs_dev_help());
	return NVEFS_EXIT_OK;
}

static int mount_and_serve(struct nvefs_options *o)
{
	static struct nvefs_daemon d;
	struct nvefs_error err;
	int code;

	d.opts = o;
	d.owner = geteuid();
	d.state_fd = d.end_fd = -1;
	nvefs_mutex_init(&d.lock);
	nvefs_cond_init(&d.cond);
	if (nvefs_mountpoint_prepare(o->mountpoint, d.mountpoint, sizeof(d.mountpoint), &err))
		return complain(o, &err);
	name_source(&d);
	if (o->fake)
		return NVEFS_EXIT_OK;
	if (o->foreground) {
		nvefs_log_setup(NULL, o->debug ? NVEFS_LOG_DEBUG : NVEFS_LOG_INFO);
		return run(&d, -1);
	}
	code = fork_and_run(&d);
	if (code == NVEFS_EXIT_OK && o->verbose)
		printf("%s: %s mounted on %s\n", o->program, d.source, d.mountpoint);
	return code;
}

int main(int argc, char **argv)
{
	const char *name = basename(argv[0]);
	struct nvefs_options o = {.program = name};
	struct nvefs_error err;
	int code;

	if (nvefs_options_parse(&o, argc, argv, strncmp(name, "mount.", 6) == 0, &err)) {
		complain(&o, &err);
		code = NVEFS_EXIT_USAGE;
	} else {
		code = o.show_help || o.show_version ? show(&o) : mount_and_serve(&o);
	}
	nvefs_options_done(&o);
	return code;
}
