/* SPDX-License-Identifier: MIT */
/* Running other programs. One thread. */
#ifndef NVEFS_BENCH_PROCESS_H
#define NVEFS_BENCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Run argv[0] (looked up in PATH), wait for it, and collect what it wrote;
 * ret_out and ret_err are zero-terminated and the caller's to free. The result
 * is 0 when it ran, whatever its exit status (*ret_status, as waitpid gives).
 * -ENOENT: no such program.
 */
int nvefs_process_run(const char *const argv[], char **ret_out, char **ret_err, int *ret_status);
/* Start it in a process group of its own, standard error to the open file `err_fd`. 0 or -errno. */
int nvefs_process_start(const char *const argv[], int err_fd, pid_t *ret_pid);
/* Wait at most so long for it to end. True: it ended, *ret_status is set. */
bool nvefs_process_wait(pid_t pid, uint64_t timeout_ns, int *ret_status);

/* User and system time that a living process has used, ticks of sysconf(_SC_CLK_TCK). 0 or -errno. */
int nvefs_process_cpu(pid_t pid, uint64_t *ret_user, uint64_t *ret_system);
/* Busy and all ticks of the whole machine since boot. */
int nvefs_machine_cpu(uint64_t *ret_busy, uint64_t *ret_all);

/*
 * Path of another program of this project: beside this one as installed, in
 * the build tree's folder `folder`, or in PATH. -ENOENT.
 */
int nvefs_process_find(const char *name, const char *folder, char *ret_path, size_t len);

/* Set by SIGINT and SIGTERM once nvefs_process_catch has run. */
void nvefs_process_catch(void);
bool nvefs_process_interrupted(void);

#endif
