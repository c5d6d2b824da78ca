/* SPDX-License-Identifier: MIT */
/*
 * umount.nvefs: what umount(8) calls. Unmounts, and waits until the daemon has
 * made everything durable and ended, which umount(2) of a FUSE mount does not.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include "fuse/options.h"
#include "fuse/state.h"

/* Looking into all name spaces takes a while where there are many processes. */
#define FIRST_LOOK_MS 500u
#define LOOK_MS 1000u
#define TELL_MS (FIRST_LOOK_MS + 9 * LOOK_MS)

static const char usage[] =
	"Usage: umount.nvefs [-f] [-l] [-n] [-v] DIRECTORY|TARGET\n"
	"\n"
	"Unmount an nvefs file system and wait until its last write is durable.\n"
	"umount(8) calls this helper by itself.\n"
	"\n"
	"  -f  abort requests that hang\n"
	"  -l  detach now, do not wait; the daemon ends with the last user\n"
	"  -v  say what is done\n"
	"  -n, -r, -t TYPE, -N NAMESPACE  accepted for umount(8)\n"
	"  --help, --version\n";

static int fail(const char *what, const char *text)
{
	fprintf(stderr, "umount.nvefs: %s: %s\n", what, text);
	return NVEFS_EXIT_FAIL;
}

/*
 * The file system lives on when it is mounted elsewhere, or in another name
 * space; a process in a chroot there shows no mount, but the connection does.
 * Just after umount2(2) has come back the connection cannot be another's.
 */
static bool in_use_elsewhere(const char *what, int fd, const struct nvefs_mountinfo *mi, bool connected)
{
	struct nvefs_mount_place place;

	if (nvefs_mountinfo_has_dev(mi->major, mi->minor, &place)) {
		if (place.pid)
			fprintf(stderr,
				"umount.nvefs: %s: still mounted elsewhere: at %s in the mount name space of process %ld (%s): "
				"not waiting\n",
				what, place.mountpoint, place.pid, place.process);
		else
			fprintf(stderr, "umount.nvefs: %s: still mounted elsewhere: at %s: not waiting\n", what,
				place.mountpoint);
		return true;
	}
	if (!connected || nvefs_mountinfo_connection(mi->minor) != 1 || !nvefs_state_current(fd, mi))
		return false;
	fprintf(stderr,
		"umount.nvefs: %s: still mounted or open elsewhere, by a process that does not show it: not waiting\n",
		what);
	return true;
}

static int wait_for_daemon(const char *what, int fd, const struct nvefs_mountinfo *mi)
{
	struct timespec pause = {.tv_nsec = 1000000};
	bool connected = nvefs_mountinfo_connection(mi->minor) == 1;
	uint64_t look_ms = FIRST_LOOK_MS;
	int result, err;

	for (uint64_t waited_ms = 0; nvefs_state_locked(fd); waited_ms += (uint64_t)pause.tv_nsec / 1000000) {
		if (waited_ms > look_ms) {
			if (in_use_elsewhere(what, fd, mi, connected))
				return NVEFS_EXIT_OK;
			if (look_ms == TELL_MS)
				fprintf(stderr, "umount.nvefs: %s: waiting for the daemon to end\n", what);
			look_ms += LOOK_MS;
		}
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 50000000)
			pause.tv_nsec *= 2;
	}
	err = nvefs_state_result(fd, &result);
	if (err) {
		fprintf(stderr,
			"umount.nvefs: %s: the daemon had died: what was not synced is lost; the next mount recovers\n",
			what);
		return NVEFS_EXIT_OK;
	}
	if (result) {
		fprintf(stderr, "umount.nvefs: %s: the last writes could not be made durable: %s: run fsck.nvefs\n",
			what, strerror(-result));
		return NVEFS_EXIT_FAIL;
	}
	return NVEFS_EXIT_OK;
}

static const char *detach_fault(int err)
{
	switch (err) {
	case -EBUSY:
		return "in use: close what is open there, or use umount -l";
	case -ENOEXEC:
		return "fusermount3 is not there, by which ordinary users unmount: install fuse3";
	}
	if (err == -EPERM && geteuid() && access("/etc/mtab", R_OK))
		return "fusermount3 wants /etc/mtab, which cannot be read: have root make it: ln -s /proc/self/mounts /etc/mtab";
	return strerror(-err);
}

static int unmount(const char *what, int flags, bool verbose)
{
	struct nvefs_mountinfo mi;
	char path[4096];
	int fd, err, code = NVEFS_EXIT_OK;

	err = nvefs_mountpoint_path(what, path, sizeof(path));
	if (err && err != -ENOENT)
		return fail(what, strerror(-err));
	if ((err || nvefs_mountinfo_find(path, &mi)) && nvefs_mountinfo_find_source(err ? what : path, &mi))
		return fail(what, "not mounted");
	if (strcmp(mi.fstype, NVEFS_FSTYPE) != 0)
		return fail(what, "not an nvefs mount");
	fd = nvefs_state_open(&mi);
	err = nvefs_mountpoint_detach(mi.mountpoint, flags);
	if (err) {
		if (fd >= 0)
			close(fd);
		return fail(mi.mountpoint, detach_fault(err));
	}
	if (verbose)
		printf("umount.nvefs: %s unmounted\n", mi.mountpoint);
	if (flags & MNT_DETACH)
		goto close;
	if (fd < 0)
		fprintf(stderr, "umount.nvefs: %s: cannot wait for the daemon: no run file: %s\n", mi.mountpoint,
			strerror(-fd));
	else
		code = wait_for_daemon(mi.mountpoint, fd, &mi);
close:
	if (fd >= 0)
		close(fd);
	return code;
}

int main(int argc, char **argv)
{
	bool verbose = false;
	int c, flags = 0;

	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		puts("umount.nvefs " NVEFS_VERSION);
		return 0;
	}
	while ((c = getopt(argc, argv, "flnrvt:N:")) != -1) {
		if (c == 'f')
			flags |= MNT_FORCE;
		else if (c == 'l')
			flags |= MNT_DETACH;
		else if (c == 'v')
			verbose = true;
		else if (c == '?') {
			fputs(usage, stderr);
			return NVEFS_EXIT_USAGE;
		}
	}
	if (optind + 1 != argc) {
		fputs(usage, stderr);
		return NVEFS_EXIT_USAGE;
	}
	return unmount(argv[optind], flags, verbose);
}
