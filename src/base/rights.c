/* SPDX-License-Identifier: MIT */
/*
 * A list of what is refused, not of what is allowed: the C library, and the
 * sanitizers, make calls that differ between versions, and a file system that
 * stops at an unforeseen one does harm. What is listed is what turns a mistake
 * in reading an image into a way out of the process.
 */
#include "base/rights.h"

#include <errno.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/capability.h>
#include <sys/socket.h>

#if defined(__SANITIZE_ADDRESS__)
#define TRACED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRACED true
#endif
#endif
#ifndef TRACED
#define TRACED false /* true: the leak check stops the process by ptrace(2) */
#endif

static const cap_value_t mounter_caps[] = {CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH};

int nvefs_rights_reduce(bool mounter)
{
	cap_t now = cap_get_proc(), want = cap_init();
	cap_flag_value_t may_bound = CAP_CLEAR;
	int err = now && want ? 0 : -ENOMEM;

	if (!err && cap_get_flag(now, CAP_SETPCAP, CAP_EFFECTIVE, &may_bound))
		err = -errno;
	for (cap_value_t c = 0; !err && may_bound == CAP_SET && c < cap_max_bits(); c++)
		if (cap_get_bound(c) > 0 && cap_drop_bound(c))
			err = -errno;
	for (size_t i = 0; !err && mounter && i < sizeof(mounter_caps) / sizeof(mounter_caps[0]); i++) {
		cap_flag_value_t has = CAP_CLEAR;

		cap_get_flag(now, mounter_caps[i], CAP_PERMITTED, &has);
		if (has == CAP_SET && (cap_set_flag(want, CAP_PERMITTED, 1, &mounter_caps[i], CAP_SET) ||
				       cap_set_flag(want, CAP_EFFECTIVE, 1, &mounter_caps[i], CAP_SET)))
			err = -errno;
	}
	if (!err && cap_set_proc(want))
		err = -errno;
	cap_free(now);
	cap_free(want);
	return err;
}

static const int refused[] = {
	/* other programs and processes */
	SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(kcmp),
	SCMP_SYS(pidfd_getfd),
	/* the kernel's insides */
	SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(init_module), SCMP_SYS(finit_module),
	SCMP_SYS(delete_module), SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(iopl),
	SCMP_SYS(ioperm), SCMP_SYS(modify_ldt), SCMP_SYS(lookup_dcookie), SCMP_SYS(personality),
	/* keys, name spaces, roots, mounts made the new way */
	SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl), SCMP_SYS(setns), SCMP_SYS(unshare),
	SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(mount), SCMP_SYS(move_mount), SCMP_SYS(open_tree),
	SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(open_by_handle_at),
	/* the machine as a whole */
	SCMP_SYS(reboot), SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(acct), SCMP_SYS(quotactl), SCMP_SYS(settimeofday),
	SCMP_SYS(clock_settime), SCMP_SYS(adjtimex), SCMP_SYS(clock_adjtime), SCMP_SYS(sethostname),
	SCMP_SYS(setdomainname), SCMP_SYS(mknod), SCMP_SYS(mknodat), SCMP_SYS(syslog),
};

static int refuse(scmp_filter_ctx ctx, int call)
{
	int err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), call, 0);

	return err == -EDOM ? 0 : err; /* a call that this processor's Linux does not have */
}

int nvefs_rights_seal(void)
{
	static const struct scmp_arg_cmp not_local = {.arg = 0, .op = SCMP_CMP_NE, .datum_a = AF_UNIX};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int err = ctx ? seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1) : -ENOMEM;

	for (size_t i = 0; !err && i < sizeof(refused) / sizeof(refused[0]); i++)
		err = refuse(ctx, refused[i]);
	if (!err && !TRACED)
		err = refuse(ctx, SCMP_SYS(ptrace));
	if (!err)
		err = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1, &not_local);
	if (!err)
		err = seccomp_load(ctx);
	if (ctx)
		seccomp_release(ctx);
	return err;
}
