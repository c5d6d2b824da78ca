/* SPDX-License-Identifier: MIT */
/*
 * Requests in flight: state machines that a worker steps. A step runs on the
 * worker's own thread from nvefs_worker_run, never inside a nested wait, and
 * with no lock held; it starts device commands and returns. Completion
 * callbacks, range grants and commit notices only put the operation on the
 * worker's list of ready ones.
 *
 *	start -> ready -> step -> (ios in flight | range awaited | commit awaited) -> ready -> step ... -> finish
 */
#ifndef NVEFS_FS_REQUEST_H
#define NVEFS_FS_REQUEST_H

#include "dedup/batch.h"
#include "fs/fs.h"
#include "fs/range.h"
#include "fs/pledge.h"

/* One chunk of a read or write: 1 MiB at any alignment. */
#define NVEFS_CHUNK_BLKS 257u

/* Sizes of pooled buffers in blocks: one, a middling request at any alignment, a chunk. */
#define NVEFS_BUF_CLASSES 3
#define NVEFS_SHARE_CLASSES 2

struct nvefs_share;

struct nvefs_op;
typedef void nvefs_step_fn(struct nvefs_op *op);

/* A device command of an operation, from the worker's pool. */
struct nvefs_op_io {
	struct nvefs_io io;
	struct iovec iov[3]; /* staged head, the caller's middle, staged tail */
	struct nvefs_op *op;
	struct nvefs_op_io *next; /* in op->ios, or the pool */
	uint32_t first, count;	  /* blocks of the chunk */
};

struct nvefs_op {
	struct nvefs_list link; /* ready or inbox */
	struct nvefs_worker *w;
	struct nvefs_req *req;
	struct nvefs_inode *in, *in2; /* references; in2: second inode of a copy */
	struct nvefs_range range, range2;
	struct nvefs_commit_waiter commit;
	nvefs_step_fn *step; /* next step */
	uint32_t pending;    /* ios in flight */
	struct nvefs_op_io *ios;
	uint32_t pledged; /* metadata blocks pledged and not handed to a window */
	bool pledging;	  /* counted in fs->pledge_holders */
	bool turn;	  /* alone with what space there is, see pledge.h */
	bool last_resort; /* there is none: a part of the reserve may be used */
	bool punched;	  /* FALLOCATE: what is to become zero is a hole by now */
	struct nvefs_share_run run; /* COPY */
	uint8_t space_tries;
	bool space_coming; /* blocks were quarantined at the last look */
	uint32_t reader; /* token while `reading` */
	bool reading;

	/* byte range under work, and its present chunk */
	uint64_t pos, end;
	uint32_t max_blks; /* in a chunk from here on, since space is short; 0: as many as there may be */
	uint64_t lblk;	/* first block of the chunk */
	uint32_t nblks; /* in the chunk */
	uint64_t start; /* WRITE: where the request's bytes go */
	uint8_t *data; /* READ: where the chunk goes when not to the caller; WRITE: aligned copy, or NULL */
	uint8_t data_class;
	uint8_t *head, *tail; /* WRITE: staged partial blocks, or NULL */
	uint64_t map[NVEFS_CHUNK_BLKS];	 /* READ: entries; WRITE: the new ones */
	uint64_t csum[NVEFS_CHUNK_BLKS]; /* expected; of the new content */
	uint8_t how[NVEFS_CHUNK_BLKS];	 /* WRITE: enum nvefs_write_how */
	uint8_t share_blks[NVEFS_CHUNK_BLKS / NVEFS_WINDOW_BLKS + 2]; /* WRITE: pledged for shared blocks, by window */
	struct nvefs_share *share; /* WRITE: the dedup step under way */
};

struct nvefs_worker {
	struct nvefs_fs *fs;
	struct nvefs_queue *q;
	struct nvefs_alloc_cursor cursor;
	uint32_t index;	   /* in fs->workers */
	uint32_t inflight; /* requests */
	uint32_t answered; /* by the present nvefs_worker_run */
	bool stepping;
	struct nvefs_list ready;

	struct nvefs_mutex inbox_lock; /* innermost */
	struct nvefs_list inbox;       /* operations that other threads made ready */

	struct nvefs_op *free_ops; /* linked by link.next */
	struct nvefs_op_io *free_ios;
	uint32_t nfree_ops, nfree_ios;
	struct nvefs_buf_pool bufs[NVEFS_BUF_CLASSES];
	struct nvefs_share *free_shares[NVEFS_SHARE_CLASSES];
};

/* Queue the next step: own thread / any thread. */
void nvefs_op_ready(struct nvefs_op *op, nvefs_step_fn *step);
void nvefs_op_post(struct nvefs_op *op);
/* Answer the request and free the operation with all that it holds. */
void nvefs_op_finish(struct nvefs_op *op, int err, uint64_t result);

/* Buffers of at least nblks blocks. NULL when memory is out. */
void *nvefs_worker_buf_get(struct nvefs_worker *w, uint32_t nblks, uint8_t *ret_class);
void nvefs_worker_buf_put(struct nvefs_worker *w, void *buf, uint8_t class);

/* Take a command from the pool, bound to op; NULL when memory is out. Goes back with nvefs_op_ios_free. */
struct nvefs_op_io *nvefs_op_io_new(struct nvefs_op *op, uint8_t what, uint64_t pblk, uint32_t nblks);
/* Submit; op->step runs when all of op's commands have completed. */
void nvefs_op_io_submit(struct nvefs_op_io *oi);
void nvefs_op_ios_free(struct nvefs_op *op);
/* The first error among op's completed commands, 0 when there is none. */
int nvefs_op_ios_err(const struct nvefs_op *op);

/* Range lock of op->in (op->in2); step runs when it is held. */
void nvefs_op_range(struct nvefs_op *op, uint64_t lo, uint64_t hi, bool exclusive, nvefs_step_fn *step);
void nvefs_op_range2(struct nvefs_op *op, uint64_t lo, uint64_t hi, bool exclusive, nvefs_step_fn *step);
/* Wait for a commit; step runs afterwards, with op->commit.err. */
void nvefs_op_commit(struct nvefs_op *op, uint64_t txn, bool fold, nvefs_step_fn *step);

/* First steps by kind. */
void nvefs_read_begin(struct nvefs_op *op);
void nvefs_write_begin(struct nvefs_op *op);
void nvefs_fsync_begin(struct nvefs_op *op);
void nvefs_sync_begin(struct nvefs_op *op);
void nvefs_resize_begin(struct nvefs_op *op);
void nvefs_falloc_begin(struct nvefs_op *op);
void nvefs_copy_begin(struct nvefs_op *op);

/*
 * share.c: decide which blocks of a write's chunk are duplicates (op->how,
 * op->map). True: reads are in flight, op->step runs when they are back. Then
 * finish takes the results.
 */
bool nvefs_share_start(struct nvefs_op *op);
void nvefs_share_finish(struct nvefs_op *op);
void nvefs_share_free_all(struct nvefs_worker *w);
/* Give the index, if there is one, a block that was just mapped by a file that deduplicates. */
void nvefs_data_hint(struct nvefs_fs *fs, uint64_t pblk, uint64_t csum);
bool nvefs_data_dedup(struct nvefs_inode *in);

/* Dirty maps are above their bound: the caller should wait for a folding commit. */
bool nvefs_fold_pressure(struct nvefs_fs *fs);

/*
 * Single blocks, waiting in place (edges of truncate, punch and copy). The
 * caller holds a range lock over the block.
 */
struct nvefs_block_view {
	uint64_t entry, csum;
};
/* Entries and checksums of n blocks; loads the windows. No lock held. */
int nvefs_blocks_look(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t lblk, uint32_t n, uint64_t *ret_entry,
		      uint64_t *ret_csum);
int nvefs_block_look(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t lblk, struct nvefs_block_view *ret);
/* Content of the block as a reader sees it (zeros for holes), checked. */
int nvefs_block_read(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t lblk, void *buf);
/*
 * Write 4096 bytes out of place: *ret_pblk is mapped with one memory reference,
 * which the caller installs or drops. -ENOSPC: wait for space.
 */
int nvefs_block_write(struct nvefs_op *op, const void *buf, uint64_t *ret_pblk, uint64_t *ret_csum);
/*
 * Install an entry (with its memory reference, if it has an address) at lblk; `share` as nvefs_share_need said.
 * On failure the reference is dropped. -ENOSPC: there is no pledge to be had, wait for space.
 */
int nvefs_block_install(struct nvefs_op *op, struct nvefs_inode *in, uint64_t lblk, uint64_t entry, uint64_t csum,
			uint32_t share);
/* size at least `size`, mtime and ctime now. */
void nvefs_inode_written(struct nvefs_inode *in, uint64_t size);

/* truncate.c: punch whole blocks [lo, hi) that are exclusively ranged. */
int nvefs_inode_punch(struct nvefs_op *op, uint64_t lo, uint64_t hi);
/* One line about a bad block, rate-limited, and the counter. */
void nvefs_data_complain(struct nvefs_inode *in, uint64_t lblk, uint64_t pblk, int err);

#endif
