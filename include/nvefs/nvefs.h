/* SPDX-License-Identifier: MIT */
/*
 * The file system as a library: all that the daemon, the tools and the tests
 * call. Semantics are POSIX.1-2017 and, where Linux goes further, the Linux
 * manual pages (rename(2), fallocate(2), copy_file_range(2), xattr(7)).
 *
 * A *worker* is one thread's context: it owns a device queue, and only its
 * thread uses it. Calls named nvefs_<op>(w, ...) finish before they return and
 * may wait for the device; while waiting they run completion bookkeeping, but
 * no callback of a request. Requests (struct nvefs_req) are asynchronous:
 * many can be under way on one worker, and their `done` runs from
 * nvefs_worker_run on the worker that started them.
 *
 * No permission is checked here: the kernel does it (default_permissions).
 * All calls return 0 or a negative errno; outputs stay untouched on failure.
 */
#ifndef NVEFS_NVEFS_H
#define NVEFS_NVEFS_H

#include <nvefs/device.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

struct nvefs_fs;
struct nvefs_worker;

enum nvefs_switch { NVEFS_DEFAULT, NVEFS_OFF, NVEFS_ON };

/* ---- mkfs, mount ---- */

/* What a call that waits to see whether another host is alive knows of that host. */
struct nvefs_host_wait {
	char host[72], target[256]; /* its name, and how it calls the device; empty: not known */
	uint64_t seen_s;	    /* when it last said so, by its own clock; 0: not known */
	bool fsck;		    /* it was checking; else it had it mounted */
	bool taken;		    /* from it, already: it gets the time to notice */
	uint64_t waited_ms, total_ms;
};
/* Called when the waiting begins, and then at least five times a second. Non-zero gives up: -ECANCELED. */
typedef int nvefs_host_wait_fn(void *arg, const struct nvefs_host_wait *w);
/*
 * Words for a person about it: at its beginning, and every five seconds. True when there is something
 * to say now. *said_ms is the caller's, 0 at first.
 */
bool nvefs_host_wait_text(const struct nvefs_host_wait *w, uint64_t *said_ms, char *buf, size_t len);
/*
 * What a person must know of a device that says that other hosts reach it: that nothing keeps them out.
 * NULL: nothing, since it does not say so, or since there is multiple mount protection (interval not 0).
 */
const char *nvefs_shared_warning(const struct nvefs_dev *dev, uint32_t mmp_interval_ms);

struct nvefs_mkfs_opts {
	const char *label; /* NULL: none; at most 63 bytes */
	const uint8_t *uuid; /* 16 bytes; NULL: random */
	bool dedup;	   /* default of later mounts */
	bool metadata_single; /* no second copy of metadata blocks */
	uint64_t hash_seed; /* 0: random */
	uint32_t journal_blks; /* 512 to 16384; 0: by the device's size */
	uint32_t mmp_interval_ms; /* multiple mount protection, 10 to 60000; 0: without */
};
/* Make an empty file system on the whole device. -ENOSPC: smaller than 64 MiB. */
int nvefs_mkfs(struct nvefs_dev *dev, const struct nvefs_mkfs_opts *opts, struct nvefs_error *err);

struct nvefs_mount_opts {
	bool read_only, no_recovery, replay_in_memory;
	bool noatime; /* else relatime */
	bool discard;
	bool fua_commit;
	enum nvefs_switch dedup;
	uint64_t dedup_bytes; /* budget of the index; 0: default 64 MiB */
	uint64_t cache_bytes; /* metadata and segment maps; 0: default 128 MiB */
	uint32_t commit_interval_s; /* 0: default 5 */
	uint32_t max_workers;	    /* 0: default 8 */
	uint64_t slow_io_ns;	    /* a command that waits as long is logged; 0: default 10 s */
	bool mmp_force; /* take it from the host that has it; with read_only: do not ask whether one has */
	const char *mmp_force_how; /* what the user can give to have mmp_force, for the message; NULL: nothing */
	const char *host; /* tests only; NULL: the host's name */
	bool mmp_alone;	  /* tests only: there is no other host, so nothing is waited for */
	nvefs_host_wait_fn *host_wait; /* may be NULL */
	void *host_wait_arg;
	uint32_t fingerprint_bits;  /* tests only; 0: 64 */
	uint32_t name_hash_bits;    /* tests only; 0: 52 */
};

/*
 * Mount. Of a file system with multiple mount protection it is refused, -EBUSY, while another host is
 * alive on it, and takes up to 10 intervals to tell when the last one did not unmount. On success the device belongs to the file system; on failure it stays
 * the caller's.
 */
int nvefs_mount(struct nvefs_dev *dev, const struct nvefs_mount_opts *opts, struct nvefs_fs **ret_fs,
		struct nvefs_error *err);
/*
 * All workers must be closed. Writes everything, empties the journal, closes
 * the device. The result tells whether all is durable; memory is freed anyway.
 */
int nvefs_unmount(struct nvefs_fs *fs);
/* As a crash would: nothing more is written. For tests. Closes the device. */
void nvefs_abandon(struct nvefs_fs *fs);

int nvefs_worker_open(struct nvefs_fs *fs, struct nvefs_worker **ret_w);
/* No request may be under way. NULL is fine. */
void nvefs_worker_close(struct nvefs_worker *w);

/*
 * Advance requests; call their `done`. Returns how many were called back. A
 * worker's loop: run until it returns 0; then, if nvefs_worker_prepare_wait
 * says true, sleep on nvefs_worker_fd (and other descriptors).
 */
uint32_t nvefs_worker_run(struct nvefs_worker *w);
bool nvefs_worker_prepare_wait(struct nvefs_worker *w);
int nvefs_worker_fd(struct nvefs_worker *w);
void nvefs_worker_wake(struct nvefs_worker *w); /* any thread */
uint32_t nvefs_worker_inflight(const struct nvefs_worker *w);

/* ---- Attributes ---- */

struct nvefs_attr {
	uint64_t ino, size, blks; /* blks: 4096-byte blocks mapped */
	uint32_t mode, nlink, uid, gid;
	uint64_t rdev; /* as makedev gives */
	struct timespec atime, mtime, ctime, btime;
	uint32_t flags; /* NVEFS_INODE_* of format.h */
};

struct nvefs_cred {
	uint32_t uid, gid;
	uint32_t umask; /* applied unless the directory has a default ACL */
};

#define NVEFS_SET_MODE 1u
#define NVEFS_SET_UID 2u
#define NVEFS_SET_GID 4u
#define NVEFS_SET_SIZE 8u
#define NVEFS_SET_ATIME 16u
#define NVEFS_SET_MTIME 32u
#define NVEFS_SET_CTIME 64u
#define NVEFS_SET_ATIME_NOW 128u
#define NVEFS_SET_MTIME_NOW 256u
#define NVEFS_SET_KILL_SUID 512u /* clear setuid, and setgid where group execute is set */
#define NVEFS_SET_FLAGS 1024u

/*
 * Names are counted bytes, 1 to 255 (else -ENAMETOOLONG, -EINVAL), without '/'.
 *
 * Inodes live while they have lookup references or opens, even without a name.
 * Every call below with ret_attr for a *child* takes one lookup reference,
 * given back by nvefs_forget. nvefs_getattr and nvefs_setattr take none.
 * Unmounting needs no forgets.
 */
int nvefs_lookup(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, struct nvefs_attr *ret_attr);
void nvefs_forget(struct nvefs_worker *w, uint64_t ino, uint64_t count);
/* A reference by number, for "." and ".." lookups of file handles. -ESTALE when there is no such inode. */
int nvefs_lookup_ino(struct nvefs_worker *w, uint64_t ino, struct nvefs_attr *ret_attr);
int nvefs_lookup_parent(struct nvefs_worker *w, uint64_t dir, struct nvefs_attr *ret_attr);
int nvefs_getattr(struct nvefs_worker *w, uint64_t ino, struct nvefs_attr *ret_attr);
/* Everything but size and the opens; a size goes through NVEFS_REQ_SETATTR. */
int nvefs_setattr(struct nvefs_worker *w, uint64_t ino, uint32_t mask, const struct nvefs_attr *attr,
		  struct nvefs_attr *ret_attr);
int nvefs_readlink(struct nvefs_worker *w, uint64_t ino, char *buf, size_t size, size_t *ret_len);

/* Regular files, FIFOs, sockets, devices by mode. setgid directories and default ACLs are inherited. */
int nvefs_mknod(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, uint32_t mode, uint64_t rdev,
		const struct nvefs_cred *cred, struct nvefs_attr *ret_attr);
int nvefs_mkdir(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, uint32_t mode,
		const struct nvefs_cred *cred, struct nvefs_attr *ret_attr);
int nvefs_symlink(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, const char *target,
		  const struct nvefs_cred *cred, struct nvefs_attr *ret_attr);
/* A file without a name (O_TMPFILE), nlink 0; nvefs_link may give it one. */
int nvefs_tmpfile(struct nvefs_worker *w, uint64_t dir, uint32_t mode, const struct nvefs_cred *cred,
		  struct nvefs_attr *ret_attr);
int nvefs_link(struct nvefs_worker *w, uint64_t ino, uint64_t dir, const char *name, size_t len,
	       struct nvefs_attr *ret_attr);
int nvefs_unlink(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len);
int nvefs_rmdir(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len);
/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE; others -EINVAL. */
int nvefs_rename(struct nvefs_worker *w, uint64_t dir, const char *name, size_t len, uint64_t newdir,
		 const char *newname, size_t newlen, uint32_t flags);

/* Opens count; directories too. The last release of a nameless inode frees it in the background. */
int nvefs_open(struct nvefs_worker *w, uint64_t ino);
int nvefs_release(struct nvefs_worker *w, uint64_t ino);

/*
 * Entries after position `pos` (0: start), "." and ".." included, in a stable
 * order: what exists throughout is reported exactly once. The function gets
 * each entry with the position to continue after it, and returns non-zero to
 * stop *before* taking this one. With `plus` attr is filled and one lookup
 * reference is taken for each taken entry but "." and ".."; otherwise only
 * attr->ino and the type bits of attr->mode are valid.
 */
typedef int nvefs_dirent_fn(void *arg, const char *name, size_t len, const struct nvefs_attr *attr, uint64_t next_pos);
int nvefs_readdir(struct nvefs_worker *w, uint64_t dir, uint64_t pos, bool plus, nvefs_dirent_fn *fn, void *arg);

/*
 * flags: XATTR_CREATE, XATTR_REPLACE; and with an access ACL, when who sets it is neither in the file's group nor
 * privileged, NVEFS_XATTR_KILL_SGID: the setgid bit goes with it. size 0: only *ret_len. -ERANGE when too small, -ENODATA when absent.
 */
#define NVEFS_XATTR_KILL_SGID 0x10000
int nvefs_setxattr(struct nvefs_worker *w, uint64_t ino, const char *name, const void *val, size_t len, int flags);
int nvefs_getxattr(struct nvefs_worker *w, uint64_t ino, const char *name, void *buf, size_t size, size_t *ret_len);
int nvefs_listxattr(struct nvefs_worker *w, uint64_t ino, char *buf, size_t size, size_t *ret_len);
int nvefs_removexattr(struct nvefs_worker *w, uint64_t ino, const char *name);

/* whence SEEK_DATA or SEEK_HOLE. -ENXIO as lseek(2). Unwritten blocks are holes. */
int nvefs_seek(struct nvefs_worker *w, uint64_t ino, uint64_t off, int whence, uint64_t *ret_off);

struct nvefs_statfs {
	uint64_t total_blks, free_blks, avail_blks, inodes, free_inodes;
	uint8_t uuid[16];
};
int nvefs_statfs(struct nvefs_worker *w, struct nvefs_statfs *ret);

/* ---- Requests ---- */

enum nvefs_req_op {
	NVEFS_REQ_READ,
	NVEFS_REQ_WRITE,
	NVEFS_REQ_FSYNC,     /* file or directory; all its earlier completed operations are durable */
	NVEFS_REQ_SYNC,	     /* everything */
	NVEFS_REQ_SETATTR,   /* as nvefs_setattr, with NVEFS_SET_SIZE allowed */
	NVEFS_REQ_FALLOCATE, /* mode in `flags`: FALLOC_FL_*; -EOPNOTSUPP for others */
	NVEFS_REQ_COPY,	     /* copy_file_range; whole blocks are shared */
};

#define NVEFS_WRITE_SYNC 1u	 /* O_SYNC, O_DSYNC: durable before `done` */
#define NVEFS_WRITE_KILL_SUID 2u /* clear setuid and setgid as write(2) does */
#define NVEFS_WRITE_APPEND 4u	 /* at the end of the file, whatever `off` says */
#define NVEFS_READ_WHOLE 8u	 /* an error anywhere fails the read, which otherwise ends short before it */

struct nvefs_req {
	uint8_t op; /* enum nvefs_req_op */
	uint32_t flags;
	uint64_t ino, off, len; /* bytes */
	/*
	 * READ: NULL, then `data` lends the result until `done` returns; or memory
	 * for len bytes. WRITE: the bytes; must stay valid until `done`.
	 */
	void *buf;
	uint64_t ino_out, off_out; /* COPY: destination */
	uint32_t set_mask;	   /* SETATTR; the result's attributes come back in attr */
	struct nvefs_attr attr;
	void (*done)(struct nvefs_req *req);
	void *arg;

	int err;	 /* 0 or -errno */
	uint64_t result; /* bytes read, written, copied */
	const void *data;

	void *priv; /* the library's */
};
/* Always answered by req->done from nvefs_worker_run, never from here. */
void nvefs_req_start(struct nvefs_worker *w, struct nvefs_req *req);
/* Start, and run the worker until this one is done; overwrites done and arg. Not inside a `done`. */
int nvefs_req_run(struct nvefs_worker *w, struct nvefs_req *req);

/* ---- Control ---- */

/* FITRIM: bytes; len UINT64_MAX means to the end. */
int nvefs_trim(struct nvefs_worker *w, uint64_t start, uint64_t len, uint64_t min_len, uint64_t *ret_trimmed);
int nvefs_dedup_switch(struct nvefs_fs *fs, bool on);
int nvefs_set_label(struct nvefs_worker *w, const char *label);

/* Read and check all data and all copies of metadata in use. Called for each damaged block and, with path NULL, for progress. */
struct nvefs_scrub_event {
	const char *path; /* one name of the file, as found; NULL: progress */
	uint64_t ino, lblk, pblk;
	int err;
	uint64_t done_blks, total_blks;
	uint64_t bad_copies; /* of metadata, so far: the other copy was good, and they are written anew */
};
typedef int nvefs_scrub_fn(void *arg, const struct nvefs_scrub_event *ev);
int nvefs_scrub(struct nvefs_worker *w, nvefs_scrub_fn *fn, void *arg);

struct nvefs_stats {
	/* space, bytes */
	uint64_t total_bytes, free_bytes, avail_bytes;
	uint64_t logical_bytes;	 /* what files map: each reference counted */
	uint64_t physical_bytes; /* data blocks in use, each counted once */
	uint64_t shared_bytes;	 /* logical - physical: saved by sharing */
	uint64_t metadata_bytes;
	uint64_t inodes, quarantined_bytes;
	/* dedup */
	bool dedup_on;
	uint64_t dedup_entries, dedup_capacity, dedup_mem_bytes;
	uint64_t dedup_lookups, dedup_hits, dedup_false_hits, dedup_evictions;
	/* journal and cache */
	uint64_t commits, journal_blks, journal_live_blks, checkpoints, recovered_txns;
	uint64_t cache_blks, cache_dirty_blks, dirty_map_bytes;
	/* trouble */
	uint64_t checksum_errors, io_errors;
	/* copies of metadata blocks: found bad; written anew; not, since that failed */
	uint64_t copies_bad, copies_healed, copies_unhealed;
	uint64_t late_beats; /* of multiple mount protection: writes waited */
	int error; /* 0, or why writing has ended */
	bool read_only;
	uint32_t route; /* enum nvefs_route */
	struct nvefs_dev_counters dev;
};
void nvefs_stats_get(struct nvefs_fs *fs, struct nvefs_stats *ret);

struct nvefs_info {
	uint8_t uuid[16];
	char label[64], creator[33];
	uint32_t disk_version;
	uint64_t nblks, journal_blks;
	uint32_t mmp_interval_ms; /* 0: without multiple mount protection */
	bool shared;		  /* the device says that others reach it, too */
	char device[256]; /* nvefs_dev_describe */
};
void nvefs_info_get(struct nvefs_fs *fs, struct nvefs_info *ret);

#endif
