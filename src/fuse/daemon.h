/* SPDX-License-Identifier: MIT */
/*
 * The daemon: one mounted file system served to the kernel.
 *
 * Threads. The main thread mounts, answers the kernel's first request, then
 * waits for signals and for the end. Each *server* is a thread with a device
 * queue (struct nvefs_worker) and its own clone of the session's descriptor:
 * it reads a request, starts it, and answers it from its own loop. A reply has
 * to go to the descriptor that its request was read from, which is therefore
 * kept per thread. Long work (scrub, trim) and questions to the drive have
 * threads of their own (jobs.h, health.h).
 */
#ifndef NVEFS_FUSE_DAEMON_H
#define NVEFS_FUSE_DAEMON_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <nvefs/nvefs.h>
#include <stdatomic.h>

#include "base/thread.h"
#include "fuse/options.h"

#define NVEFS_MAX_WRITE (1u << 20)
#define NVEFS_SCRATCH_BYTES (128u << 10)
#define NVEFS_TIMEOUT_S 86400.0 /* of names and attributes: nobody else writes the device */

struct nvefs_daemon;
struct nvefs_health;
struct nvefs_jobs;

/* One asynchronous request under way. */
struct nvefs_call {
	struct nvefs_req req;
	fuse_req_t fuse;
	struct nvefs_server *server;
	char *rx;	  /* receive buffer that holds the data of a write, or NULL */
	bool was_suid;	  /* write: the kernel's cached mode may turn stale */
	struct nvefs_call *next;
};

struct nvefs_server {
	struct nvefs_daemon *daemon;
	pthread_t thread;
	uint32_t index;
	int cpu; /* to run on, or -1 */
	struct nvefs_worker *worker;
	int fuse_fd, epoll_fd;

	char *rx;     /* buffer of the request at hand; a write that keeps it sets NULL */
	char *rx_base, **rx_free;
	uint32_t rx_nfree, rx_touched;
	struct nvefs_call *calls; /* free ones */
	char *scratch;	 /* NVEFS_SCRATCH_BYTES, for one answer */
};

struct nvefs_daemon {
	struct nvefs_options *opts;
	struct nvefs_dev *dev;
	struct nvefs_fs *fs; /* owns dev once it is there */
	struct fuse_session *se;
	struct nvefs_jobs *jobs;
	struct nvefs_health *health;
	char mountpoint[4096]; /* absolute */
	char source[8448];     /* the target as shown by findmnt(8) */
	uid_t owner;
	bool privileged; /* the target takes rights of its own: see nvefs_uri_privileged */
	uint32_t add_init_flags; /* to the answer to FUSE_INIT */
	bool setxattr_ext;	 /* FUSE_SETXATTR comes in its long form */
	int state_fd;	  /* run file, see state.h; -1: none */
	unsigned int dev_major, dev_minor; /* of the mounted file system */
	int end_fd;	  /* eventfd: a server ended by itself */
	int signal_fd, report_fd; /* of main.c; report_fd -1: in the foreground */
	uint64_t said_ms;	  /* while the mount waits for another host */

	struct nvefs_server *servers;
	uint32_t nservers, nstarted;

	struct nvefs_mutex lock; /* all below */
	struct nvefs_cond cond;
	uint32_t nready, nfailed;
	bool go, give_up;
	struct nvefs_error start_err;

	_Atomic bool stopping; /* servers finish what is under way and leave */
};

/* The server whose thread this is. */
struct nvefs_server *nvefs_server_self(void);
/* Where this thread's replies go. */
void nvefs_reply_fd_set(int fd);

/* ---- server.c ---- */

/* Start all threads; each opens its worker. On failure those started have ended. */
int nvefs_servers_start(struct nvefs_daemon *d, struct nvefs_error *err);
/* Give each its descriptor and let them serve; or (go false) let them end. */
int nvefs_servers_go(struct nvefs_daemon *d, bool go, struct nvefs_error *err);
void nvefs_servers_stop(struct nvefs_daemon *d); /* from any thread; they drain first */
void nvefs_servers_join(struct nvefs_daemon *d);
/* Their workers and descriptors, once all have been joined: until its end each may wake the others. */
void nvefs_servers_close(struct nvefs_daemon *d);

/* A call for the request at hand; NULL when memory is out (the request is answered then). */
struct nvefs_call *nvefs_call_new(fuse_req_t req, enum nvefs_req_op op, uint64_t ino);
void nvefs_call_start(struct nvefs_call *c, void (*done)(struct nvefs_req *req));
/* After the reply. */
void nvefs_call_free(struct nvefs_call *c);
/* A done function for requests that answer with nothing but success. */
void nvefs_call_done_plain(struct nvefs_req *req);

/* ---- session.c ---- */

/* Everything but the mount itself. */
int nvefs_session_open(struct nvefs_daemon *d, struct nvefs_error *err);
/* Mount, and agree with the kernel on the protocol. */
int nvefs_session_mount(struct nvefs_daemon *d, struct nvefs_error *err);
/* A descriptor of its own for one server, -errno when that fails. */
int nvefs_session_clone(struct nvefs_daemon *d);
/* Detach from the file hierarchy; requests go on until the last user is gone. */
void nvefs_session_detach(struct nvefs_daemon *d);
void nvefs_session_close(struct nvefs_daemon *d);

/* ---- ops_*.c: the handlers, one table ---- */

void nvefs_ops_names(struct fuse_lowlevel_ops *ops);
void nvefs_ops_attrs(struct fuse_lowlevel_ops *ops);
void nvefs_ops_dirs(struct fuse_lowlevel_ops *ops);
void nvefs_ops_files(struct fuse_lowlevel_ops *ops);
void nvefs_ops_control(struct fuse_lowlevel_ops *ops);
/* Answers NVEFS_CTL_HEALTH: health.h. */
void nvefs_ops_health_answer(fuse_req_t req, int err, char *text);

void nvefs_stat_fill(const struct nvefs_attr *a, struct stat *ret);
void nvefs_entry_fill(const struct nvefs_attr *a, struct fuse_entry_param *ret);

#endif
