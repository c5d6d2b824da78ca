/* SPDX-License-Identifier: MIT */
/*
 * What the embedded controller stores on. Addresses are bytes, multiples of
 * the LBA size; the controller has checked them. A request belongs to one
 * media queue, which belongs to the thread of the controller's queue.
 */
#ifndef NVEFS_DEVICE_MEDIA_H
#define NVEFS_DEVICE_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <nvefs/device.h>

enum nvefs_media_kind {
	NVEFS_MEDIA_READ,
	NVEFS_MEDIA_WRITE,
	NVEFS_MEDIA_FLUSH, /* all that was completed before is durable afterwards */
	NVEFS_MEDIA_ZERO,
	NVEFS_MEDIA_DEALLOCATE, /* reads as zeros afterwards, space is given back */
};

struct nvefs_media_req {
	uint8_t kind;
	bool fua; /* durable when done */
	uint64_t off, len;
	struct iovec *iov;
	uint32_t niov;
	void (*done)(struct nvefs_media_req *req); /* only when submit said false */
	int err;				   /* 0 or -errno of the host */
	uint32_t step, tries;			   /* the media's own */
};

struct nvefs_media;
struct nvefs_media_queue;
struct nvefs_media_ops {
	void (*close)(struct nvefs_media *m);
	/* `q` to watch descriptors with. 0 or -errno. */
	int (*queue_init)(struct nvefs_media *m, struct nvefs_queue *q, uint32_t depth,
			  struct nvefs_media_queue **ret_mq);
	void (*queue_done)(struct nvefs_media_queue *mq);
	/* True: finished, err is set. False: done is called by a later poll. At most `depth` at
	 * once. */
	bool (*submit)(struct nvefs_media_queue *mq, struct nvefs_media_req *req);
	void (*poll)(struct nvefs_media_queue *mq);
	/* Start what is queued; true when poll has nothing to report. */
	bool (*prepare_wait)(struct nvefs_media_queue *mq);
	/* Forget a seeded choice of what was never flushed. -ENOTSUP when the media cannot. */
	int (*power_cut)(struct nvefs_media *m, uint64_t seed, uint64_t *ret_lost_lbas);
};

struct nvefs_media {
	const struct nvefs_media_ops *ops;
	uint64_t size_bytes;
	uint32_t mem_align;
	bool can_deallocate; /* and zero */
	bool read_only;
	uint8_t nguid[16]; /* the same for the same medium; zeros: not reported */
	char text[96];	   /* for describe */
};

/*
 * Memory, sparse until written. With `cache`, unflushed writes can be lost by
 * power_cut in units of lba_bytes. 0 or -errno.
 */
int nvefs_media_ram_open(uint64_t size_bytes, uint32_t lba_bytes, bool cache,
			 struct nvefs_media **ret_media);

/*
 * A regular file, locked against every other opener for as long as it is open.
 * Its size is that at open, rounded down to blocks; `create_bytes` is used with
 * NVEFS_OPEN_CREATE. 0 or -errno with *err.
 */
struct nvefs_media_file_opts {
	uint32_t flags; /* NVEFS_OPEN_* */
	uint64_t create_bytes;
};
int nvefs_media_file_open(const char *path, const struct nvefs_media_file_opts *opts,
			  struct nvefs_media **ret_media, struct nvefs_error *err);

#endif
