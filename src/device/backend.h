/* SPDX-License-Identifier: MIT */
/*
 * What stands behind the device seam: back ends (embedded controller, Linux
 * passthrough, SG_IO) and wrappers (scsi route, fault, delay, record).
 *
 * A back end embeds struct nvefs_dev as its first member, fills limits and
 * identity at open and supplies one const ops table. Above it queue.c does, for
 * all of them alike, ownership, splitting, backlog, counters and waiting, so a
 * back end sees only ios that fit its limits.
 *
 * A wrapper is a back end whose dev.below is another device. For each of its
 * queues it opens one on the device below with nvefs_queue_init, sends ios of its own
 * there with nvefs_queue_submit, and finishes the upper io from their callbacks; its
 * poll is nvefs_queue_poll of the lower queue. Wrappers pass NVEFS_IO_RAW through
 * when the device below takes it.
 */
#ifndef NVEFS_DEVICE_BACKEND_H
#define NVEFS_DEVICE_BACKEND_H

#include <pthread.h>
#include <stddef.h>

#include <nvefs/device.h>
#include <nvefs/drive.h>

#include "base/list.h"
#include "base/thread.h"
#include "nvme/command.h"

/*
 * A whole NVMe submission entry as an io. Never split; NSID, opcode, flags and
 * CDW10-15 are the caller's, CID and data pointer are set by the transport.
 * `iov` covers exactly `data_bytes`; nblks and pblk are unused. Only for devices
 * whose nvefs_dev_takes_raw is true.
 */
#define NVEFS_IO_RAW ((uint8_t)NVEFS_IO_NOPS)
struct nvefs_raw_io {
	struct nvefs_io io;
	struct nvefs_nvme_sqe sqe;
	uint32_t data_bytes;
	uint32_t result; /* CDW0 of the completion */
};
static inline struct nvefs_raw_io *nvefs_raw_from_io(struct nvefs_io *io)
{
	return nvefs_container_of(io, struct nvefs_raw_io, io);
}

struct nvefs_backend_ops {
	const char *name;
	bool raw;   /* takes NVEFS_IO_RAW and admin */
	bool fused; /* two raw entries, one submitted right after the other, may be a fused pair */
	/* No queue is left. Frees the device, not the one below it. */
	void (*close)(struct nvefs_dev *dev);
	/* May be NULL: front text only. */
	void (*describe)(const struct nvefs_dev *dev, char *buf, size_t len);
	/* Bytes that the medium took; NULL: 0. Any thread. */
	uint64_t (*media_write_bytes)(struct nvefs_dev *dev);
	/*
	 * One admin command, waited for. `data` of `len` bytes goes in the direction of the
	 * opcode. 0 when the controller answered: *ret_status (SC | SCT << 8 | DNR << 14) and
	 * *ret_result (CDW0) say what; negative errno when it could not be asked. Any thread.
	 */
	int (*admin)(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data,
		     uint32_t len, uint32_t *ret_result, uint16_t *ret_status);
	/* As nvefs_dev_health; NULL: by admin commands. */
	int (*health)(struct nvefs_dev *dev, struct nvefs_drive_health *ret, struct nvefs_error *err);

	/* q->depth is what was asked for and may be lowered. Sets q->priv. 0 or -errno. */
	int (*queue_init)(struct nvefs_dev *dev, struct nvefs_queue *q);
	void (*queue_done)(struct nvefs_queue *q);
	/*
	 * 0: the io will be finished by a later poll (or was given to
	 * nvefs_queue_finish_later). -EAGAIN: full, try after the next completion; a back end that
	 * is full without a command of this queue in flight wakes the queue when there is room.
	 * Nothing else.
	 */
	int (*submit)(struct nvefs_queue *q, struct nvefs_io *io);
	/*
	 * Reap what is there now, at most `max` (0: all), with nvefs_queue_finish for each.
	 * Callbacks may submit and may poll again, so state is consistent before each one.
	 */
	void (*poll)(struct nvefs_queue *q, uint32_t max);
	/* True when sleeping on the queue's descriptor is right, false when poll would reap. */
	bool (*prepare_wait)(struct nvefs_queue *q);
};

struct nvefs_dev {
	const struct nvefs_backend_ops *ops;
	struct nvefs_dev *below; /* wrapper: owned */
	struct nvefs_dev_limits limits;
	struct nvefs_dev_identity identity;
	struct nvefs_drive drive;
	enum nvefs_route route;

	/* Who is told of slow ios, and when; see nvefs_dev_watch. */
	uint64_t watch_ns;
	nvefs_slow_fn *watch_fn;
	void *watch_arg;

	/* The front's. */
	struct nvefs_mutex lock; /* queues, nqueues, past */
	struct nvefs_list queues;
	uint32_t nqueues;
	struct nvefs_dev_counters past; /* of queues that are gone */
	uint64_t writes_until;		/* atomic: see nvefs_dev_allow_writes */
	bool writes_held;		/* atomic: some queue waits for it to move */
};

/* Call first; with `below` limits, identity, drive and route are taken over from it. */
void nvefs_dev_init(struct nvefs_dev *dev, const struct nvefs_backend_ops *ops,
		    struct nvefs_dev *below);
/* Undo nvefs_dev_init; for a back end whose open fails. */
void nvefs_dev_done(struct nvefs_dev *dev);
bool nvefs_dev_takes_raw(const struct nvefs_dev *dev);
bool nvefs_dev_takes_fused(const struct nvefs_dev *dev);
/* ops->admin, or that of the device below for a wrapper without its own; -ENOTSUP. */
int nvefs_dev_admin(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data,
		    uint32_t len, uint32_t *ret_result, uint16_t *ret_status);

struct nvefs_split;
struct nvefs_io_fifo {
	struct nvefs_io *head, *tail;
};

struct nvefs_watch {
	struct nvefs_io *oldest, *newest;
	uint64_t due_ns;  /* of the next look; 0: the timer is off */
	uint64_t told_ns; /* what was submitted until then has been told of when it had to be */
	int timer_fd;	  /* -1: nobody wants to be told */
};

struct nvefs_queue {
	struct nvefs_dev *dev;
	void *priv; /* the back end's */
	uint32_t depth;

	/* The front's, see queue.c. */
	pthread_t owner;
	uint32_t inflight, polling;
	uint64_t ncallbacks;
	struct nvefs_io_fifo backlog, late;
	struct nvefs_split *splits_free;
	void *splits;
	struct nvefs_watch watch;
	int event_fd, epoll_fd;
	uint32_t woken; /* atomic; set by any thread */
	bool wake_held;
	bool unlimited; /* see nvefs_queue_set_unlimited */
	struct nvefs_dev_counters counters; /* written by the owner, read by any thread, relaxed */
	struct nvefs_list link;
};

/*
 * For back ends, from poll only: run the callback (or count a part of a split io as done). With
 * -EMSGSIZE a read, write or compare is sent again in parts of half its size; a raw entry ends so.
 */
void nvefs_queue_finish(struct nvefs_queue *q, struct nvefs_io *io, int err);
/* For back ends, from submit: the next poll finishes the io with `err`. */
void nvefs_queue_finish_later(struct nvefs_queue *q, struct nvefs_io *io, int err);
/* Add a descriptor (ring, timer, lower queue) that makes the queue want attention. 0 or -errno. */
int nvefs_queue_watch_fd(struct nvefs_queue *q, int fd);
/* Set io->status from a completion's status field and return the errno for it. */
int nvefs_io_set_nvme_status(struct nvefs_io *io, uint16_t status);

/*
 * What an io or a raw entry does to the namespace, in bytes, for wrappers that
 * look at both alike. op is NVEFS_IO_NOPS for any other raw command; a raw
 * Dataset Management is NVEFS_IO_DISCARD with len 0: its ranges are data.
 */
struct nvefs_io_view {
	uint8_t op;
	bool fua;
	uint64_t off, len;
};
void nvefs_io_view(const struct nvefs_dev *dev, struct nvefs_io *io,
		   struct nvefs_io_view *ret_view);

static inline void nvefs_io_fifo_push(struct nvefs_io_fifo *f, struct nvefs_io *io)
{
	io->q.next = NULL;
	if (f->tail)
		f->tail->q.next = io;
	else
		f->head = io;
	f->tail = io;
}
static inline struct nvefs_io *nvefs_io_fifo_pop(struct nvefs_io_fifo *f)
{
	struct nvefs_io *io = f->head;

	if (!io)
		return NULL;
	f->head = io->q.next;
	if (!f->head)
		f->tail = NULL;
	return io;
}

#endif
