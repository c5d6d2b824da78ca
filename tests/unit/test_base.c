/* SPDX-License-Identifier: MIT */
/* src/base: giving up rights, in processes of their own, since nothing brings them back. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/suites.h"
#include "base/rights.h"

/* What went wrong in the child comes back as its exit code: the line. */
#define HOLDS(what)                                                                                               \
	do {                                                                                                      \
		if (!(what))                                                                                      \
			_exit((__LINE__ % 250) + 1);                                                              \
	} while (0)

static void in_child(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		fn();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "line %d (mod 250) does not hold",
		      WEXITSTATUS(status) - 1);
}

static bool has(cap_value_t cap, cap_flag_t set)
{
	cap_t caps = cap_get_proc();
	cap_flag_value_t v = CAP_CLEAR;

	cap_get_flag(caps, cap, set, &v);
	cap_free(caps);
	return v == CAP_SET;
}

static void no_capability(void)
{
	cap_t caps;
	char *text;

	HOLDS(!nvefs_rights_reduce(false));
	caps = cap_get_proc();
	text = cap_to_text(caps, NULL);
	HOLDS(text && (!*text || (text[0] == '=' && !text[1])));
	cap_free(text);
	cap_free(caps);
	HOLDS(umount2("/", 0) == -1 && errno == EPERM);
	HOLDS(!nvefs_rights_reduce(false)); /* again: nothing more to do */
}

static void mounter(void)
{
	HOLDS(!nvefs_rights_reduce(true));
	HOLDS(has(CAP_SYS_ADMIN, CAP_EFFECTIVE) && has(CAP_DAC_READ_SEARCH, CAP_EFFECTIVE));
	HOLDS(!has(CAP_SETPCAP, CAP_PERMITTED) && !has(CAP_DAC_OVERRIDE, CAP_PERMITTED) &&
	      !has(CAP_SYS_PTRACE, CAP_PERMITTED));
	HOLDS(cap_get_bound(CAP_SYS_ADMIN) == 0);
}

static int pipe_fds[2];

/* A thread that was there before the seal is under it, too. */
static void *try_calls(void *arg)
{
	char *const argv[] = {(char *)"true", NULL}, *const envp[] = {NULL};
	char c;

	(void)arg;
	HOLDS(read(pipe_fds[0], &c, 1) == 1);
	HOLDS(execve("/bin/true", argv, envp) == -1 && errno == EPERM);
	HOLDS(socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM);
	HOLDS(chroot("/") == -1 && errno == EPERM);
	return NULL;
}

static void sealed(void)
{
	pthread_t t;
	int fd;

	HOLDS(!pipe(pipe_fds));
	HOLDS(!pthread_create(&t, NULL, try_calls, NULL));
	HOLDS(!nvefs_rights_seal());
	HOLDS(write(pipe_fds[1], "", 1) == 1);
	HOLDS(!pthread_join(t, NULL));
	HOLDS((fd = socket(AF_UNIX, SOCK_DGRAM, 0)) >= 0); /* for syslog(3) */
	close(fd);
}

START_TEST(capabilities_go)
{
	if (geteuid()) { /* there is nothing to give up, which must be no error */
		ck_assert_int_eq(nvefs_rights_reduce(false), 0);
		return;
	}
	in_child(no_capability);
	in_child(mounter);
}
END_TEST

START_TEST(calls_are_refused)
{
	in_child(sealed);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base");
	TCase *c = tcase_create("rights");

	tcase_add_test(c, capabilities_go);
	tcase_add_test(c, calls_are_refused);
	suite_add_tcase(s, c);
	return run_suites(s, NULL);
}
