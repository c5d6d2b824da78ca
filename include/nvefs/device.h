/* SPDX-License-Identifier: MIT */
/*
 * The device seam: everything above src/device/ reaches storage through this.
 *
 * A device is opened once and has queues. A queue belongs to one thread, which
 * alone calls every function on it, except nvefs_queue_wake. An io is one
 * command in our terms; it completes exactly once through its callback, which
 * runs only inside nvefs_queue_poll of the owning thread, with 0 or -errno.
 *
 * NVMe orders nothing between commands in flight: never have two commands in
 * flight on one block unless both read (NVMe base 2.0, 3.4.1; NVM command set, 2.1.4).
 * A Flush covers only writes whose completion was seen before it was submitted.
 *
 * Addresses are in blocks of 4096 bytes (`pblk`), whatever the LBA size is.
 */
#ifndef NVEFS_DEVICE_H
#define NVEFS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define NVEFS_BLOCK_SIZE 4096u
#define NVEFS_BLOCK_SHIFT 12

struct nvefs_dev;
struct nvefs_queue;
struct nvefs_io;

/* A message for a person: "target: what: what to do", without newline or program name. */
struct nvefs_error {
	char text[512];
};
/* Fills err->text (err may be NULL) and returns `code`, a negative errno. */
int nvefs_error_set(struct nvefs_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

enum nvefs_route { NVEFS_ROUTE_NATIVE, NVEFS_ROUTE_SCSI };

enum nvefs_io_op {
	NVEFS_IO_READ,
	NVEFS_IO_WRITE,
	NVEFS_IO_FLUSH,	       /* pblk and nblks unused: the whole namespace */
	NVEFS_IO_DISCARD,      /* a hint; afterwards the blocks hold anything */
	NVEFS_IO_WRITE_ZEROES, /* afterwards the blocks read as zeros */
	NVEFS_IO_COMPARE,      /* -EILSEQ when the medium differs from the buffers */
	NVEFS_IO_NOPS
};
#define NVEFS_IO_FUA 1u /* the write is durable when it completes */

/* Where the status of a finished io came from, kept for messages and tests. */
enum nvefs_status_kind { NVEFS_STATUS_NONE, NVEFS_STATUS_NVME, NVEFS_STATUS_SENSE, NVEFS_STATUS_HOST };
struct nvefs_io_status {
	uint8_t kind;	     /* enum nvefs_status_kind */
	uint8_t sense_len;   /* bytes of sense that are valid */
	uint16_t nvme;	     /* status field of the completion, without phase: SC | SCT << 8 | ... | DNR << 14 */
	int host_errno;	     /* negative errno of the host's call, kind HOST */
	uint8_t sense[32];   /* SPC sense data */
};

typedef void nvefs_io_fn(struct nvefs_io *io);

/*
 * Owned by the caller; from submit until the callback by the queue. The
 * buffers of a read or write cover nblks * 4096 bytes in `niov` pieces, each a
 * multiple of limits.mem_align in address and length; they and the iovec array
 * stay valid until the callback. The callback may free or submit the io again.
 */
struct nvefs_io {
	uint8_t op;    /* enum nvefs_io_op */
	uint8_t flags; /* NVEFS_IO_FUA */
	uint16_t niov;
	uint32_t nblks;
	uint64_t pblk;
	struct iovec *iov;
	struct iovec one; /* room for the common case: iov = &io->one, niov = 1 */
	nvefs_io_fn *done;
	void *arg;

	/*
	 * Result, set before the callback. -ETIMEDOUT: nobody knows whether the device is still to carry
	 * the command out; nothing else may be written to the same place while it may.
	 */
	int err;
	struct nvefs_io_status status;

	/* The queue's own, opaque to the caller. */
	struct {
		struct nvefs_io *next, *parent, *older, *newer;
		void *ctx;
		uint64_t ns;
		uint32_t left, tag;
		uint64_t u[4];
	} q;
};

/* Read at open from the device; 0 means "not reported" unless said otherwise. */
struct nvefs_dev_limits {
	uint64_t nblks;		    /* size in 4096-byte blocks */
	uint32_t lba_bytes;	    /* 512 or 4096 */
	uint32_t max_transfer_blks; /* one command, the smaller of MDTS and the transport's limit; never 0 */
	uint32_t max_segments;	    /* iovec pieces in one command; never 0 */
	uint32_t max_discard_blks;  /* one command; 0: discard unsupported */
	uint32_t max_zeroes_blks;   /* one command; 0: write zeroes unsupported */
	uint32_t iu_blks;	    /* NPWG in blocks, at least 1 */
	uint32_t iu_align_blks;	    /* NPWA in blocks, at least 1 */
	uint32_t optimal_blks;	    /* NOWS */
	uint32_t discard_gran_blks, discard_align_blks; /* NPDG, NPDA; at least 1 */
	uint32_t atomic_blks;	    /* NAWUPF, at least 1 when lba_bytes is 4096 */
	uint32_t mem_align;	    /* of buffers, a power of two; 1: any */
	uint32_t max_queues;	    /* at least 1 */
	uint32_t queue_depth;	    /* commands in flight on one queue */
	bool volatile_cache;	    /* there is one, switched on or not: Flush matters (VWC, WCE) */
	bool fua;
	bool compare;
	bool read_only;
	bool discard_zeroes;	    /* reported only; nothing may rely on it */
	bool shared;		    /* says that more than one controller or port leads to it: NMIC, MULTIP */
};

/* Hints of identity, compared and never used as a key. Empty string or zeros: not reported. */
struct nvefs_dev_identity {
	char target[256]; /* as the user wrote it */
	char model[41], serial[21], firmware[9];
	uint8_t nguid[16], eui64[8];
	uint8_t vpd83[256]; /* the SCSI route's device identification page, raw */
	uint32_t vpd83_len;
	uint32_t nsid;
	char block_node[64]; /* path of the kernel's block node of the same device; empty: there is none */
};

struct nvefs_dev_counters {
	uint64_t commands[NVEFS_IO_NOPS]; /* as sent to the device, after splitting */
	uint64_t bytes[NVEFS_IO_NOPS];
	uint64_t fua, errors, splits;
	uint64_t refused; /* by the host, for their size: sent again in smaller parts */
	uint64_t media_write_bytes; /* embedded controller with iu=: what the medium took */
};

#define NVEFS_OPEN_RDONLY 1u
#define NVEFS_OPEN_CREATE 2u /* make a regular file of create_bytes when absent, or resize it */

struct nvefs_dev_open_opts {
	uint32_t flags;
	uint64_t create_bytes;
	enum nvefs_route route; /* SCSI: the translating route is put on top */
};

/*
 * Open the target named by `uri` (see nvefs(8), TARGETS) and lock it against
 * every other opener, by whichever of its names, until close. Fails with
 * -EBUSY when it is in use, -EINVAL for a bad option, -ENOTSUP for a target
 * that this build cannot drive, -EROFS, -ENOENT, ...; *err says it in words.
 * Nothing on the target is changed. Any thread.
 */
int nvefs_dev_open(const char *uri, const struct nvefs_dev_open_opts *opts, struct nvefs_dev **ret_dev,
		   struct nvefs_error *err);
/* All queues must be done. NULL is fine. A wrapper closes the device below it. */
void nvefs_dev_close(struct nvefs_dev *dev);

const struct nvefs_dev_limits *nvefs_dev_limits(const struct nvefs_dev *dev);
const struct nvefs_dev_identity *nvefs_dev_identity(const struct nvefs_dev *dev);
enum nvefs_route nvefs_dev_route(const struct nvefs_dev *dev);
/* One line for a person: kind, size, LBA, queues, cache. */
void nvefs_dev_describe(const struct nvefs_dev *dev, char *buf, size_t len);
/* Sum over all queues that were ever opened. Any thread. */
void nvefs_dev_counters(struct nvefs_dev *dev, struct nvefs_dev_counters *ret);
/* Text of the targets and options, for --help. */
const char *nvefs_dev_help(void);

/*
 * A limit in time for all that changes the medium: writes, discards and write
 * zeroes are sent only before `until_ns` (as nvefs_boot_ns counts). Later ones
 * wait in their queues, in order, until the limit has moved; with
 * NVEFS_WRITES_NEVER they fail with -EROFS, those that wait included. What was
 * sent before is not called back. At open: NVEFS_WRITES_ALWAYS. Any thread.
 */
#define NVEFS_WRITES_ALWAYS UINT64_MAX
#define NVEFS_WRITES_NEVER 0ull
void nvefs_dev_allow_writes(struct nvefs_dev *dev, uint64_t until_ns);

/*
 * A queue for the calling thread. `depth` 0: the device's own. -EBUSY when
 * limits.max_queues are in use. *ret_queue untouched on failure.
 */
int nvefs_queue_init(struct nvefs_dev *dev, uint32_t depth, struct nvefs_queue **ret_queue);
/* Nothing may be in flight. NULL is fine. May be called by a thread that joined the owner. */
void nvefs_queue_done(struct nvefs_queue *q);
/* The limit of nvefs_dev_allow_writes is not for this queue: it is the one by which the limit is moved. */
void nvefs_queue_set_unlimited(struct nvefs_queue *q);

/*
 * Hand over an io. Never blocks and never fails: errors, too, arrive by the
 * callback. Requests above the limits are split here, and only here; what does
 * not fit into the queue waits in order and is sent by later polls. (A back
 * end's own submit says -EAGAIN when its ring is full.)
 */
void nvefs_queue_submit(struct nvefs_queue *q, struct nvefs_io *io);
/* Run callbacks of completed ios, at most `max` (0: all that are there now). Returns how many. */
uint32_t nvefs_queue_poll(struct nvefs_queue *q, uint32_t max);
/* Number of ios submitted and not yet called back. */
uint32_t nvefs_queue_inflight(const struct nvefs_queue *q);

/*
 * Waiting. nvefs_queue_fd gives a descriptor for poll/epoll that is readable
 * when the queue wants attention. Before sleeping on it call
 * nvefs_queue_prepare_wait: true means sleep is allowed; false that something
 * is there already and poll must be called. nvefs_queue_wait does all that for
 * a thread with nothing else to wait for; it returns early when woken
 * (timeout_ns: UINT64_MAX is for ever).
 */
int nvefs_queue_fd(struct nvefs_queue *q);
bool nvefs_queue_prepare_wait(struct nvefs_queue *q);
void nvefs_queue_wait(struct nvefs_queue *q, uint64_t timeout_ns);
/* Make a sleeping or next wait of the queue return. Any thread, also in a signal handler. */
void nvefs_queue_wake(struct nvefs_queue *q);

/*
 * Submit and wait for this one io, polling (and thereby running callbacks of
 * others) meanwhile. io->done and io->arg are overwritten. Returns io->err.
 */
int nvefs_queue_run(struct nvefs_queue *q, struct nvefs_io *io);
/* The same for one contiguous buffer; flush has no buffer. */
int nvefs_queue_read(struct nvefs_queue *q, uint64_t pblk, uint32_t nblks, void *buf);
int nvefs_queue_write(struct nvefs_queue *q, uint64_t pblk, uint32_t nblks, const void *buf, uint32_t flags);
int nvefs_queue_flush(struct nvefs_queue *q);

#endif
