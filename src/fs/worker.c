/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/request.h"
#include "fs/window.h"

#define POOL_OPS 128u
#define POOL_IOS 512u

static int register_worker(struct nvefs_worker *w)
{
	struct nvefs_fs *fs = w->fs;
	int err = -EBUSY;
	uint32_t i;

	nvefs_mutex_lock(&fs->workers_lock);
	for (i = 0; i < fs->max_workers; i++) {
		if (fs->workers[i])
			continue;
		fs->workers[i] = w;
		fs->nworkers++;
		w->index = i;
		err = 0;
		break;
	}
	nvefs_mutex_unlock(&fs->workers_lock);
	return err;
}

static void unregister_worker(struct nvefs_worker *w)
{
	nvefs_mutex_lock(&w->fs->workers_lock);
	w->fs->workers[w->index] = NULL;
	w->fs->nworkers--;
	nvefs_mutex_unlock(&w->fs->workers_lock);
}

static const uint32_t buf_blks[NVEFS_BUF_CLASSES] = {1, 33, NVEFS_CHUNK_BLKS};
static const uint32_t buf_idle[NVEFS_BUF_CLASSES] = {256, 64, 16};

static void done_bufs(struct nvefs_worker *w)
{
	uint32_t i;

	for (i = 0; i < NVEFS_BUF_CLASSES; i++)
		if (w->bufs[i].free)
			nvefs_buf_pool_done(&w->bufs[i]);
}

static int init_bufs(struct nvefs_worker *w)
{
	uint32_t i;

	for (i = 0; i < NVEFS_BUF_CLASSES; i++) {
		int err = nvefs_buf_pool_init(&w->bufs[i], (size_t)buf_blks[i] * NVEFS_BLOCK_SIZE,
					      buf_idle[i]);

		if (err) {
			done_bufs(w);
			return err;
		}
	}
	return 0;
}

void *nvefs_worker_buf_get(struct nvefs_worker *w, uint32_t nblks, uint8_t *ret_class)
{
	uint8_t c = 0;

	while (buf_blks[c] < nblks)
		c++;
	assert(c < NVEFS_BUF_CLASSES);
	*ret_class = c;
	return nvefs_buf_pool_get(&w->bufs[c]);
}

void nvefs_worker_buf_put(struct nvefs_worker *w, void *buf, uint8_t class)
{
	nvefs_buf_pool_put(&w->bufs[class], buf);
}

int nvefs_worker_open(struct nvefs_fs *fs, struct nvefs_worker **ret_w)
{
	struct nvefs_worker *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	w->fs = fs;
	nvefs_list_init(&w->ready);
	nvefs_list_init(&w->inbox);
	nvefs_mutex_init(&w->inbox_lock);
	err = init_bufs(w);
	if (err)
		goto free_worker;
	err = nvefs_queue_init(fs->dev, 0, &w->q);
	if (err)
		goto done_bufs;
	err = register_worker(w);
	if (err)
		goto done_queue;
	w->cursor.seed = w->index + 1;
	*ret_w = w;
	return 0;

done_queue:
	nvefs_queue_done(w->q);
done_bufs:
	done_bufs(w);
free_worker:
	nvefs_mutex_done(&w->inbox_lock);
	free(w);
	return err;
}

void nvefs_worker_close(struct nvefs_worker *w)
{
	if (!w)
		return;
	assert(!w->inflight);
	unregister_worker(w);
	nvefs_share_free_all(w);
	nvefs_queue_done(w->q);
	while (w->free_ops) {
		struct nvefs_op *op = w->free_ops;

		w->free_ops = (void *)op->link.next;
		free(op);
	}
	while (w->free_ios) {
		struct nvefs_op_io *oi = w->free_ios;

		w->free_ios = oi->next;
		free(oi);
	}
	done_bufs(w);
	nvefs_mutex_done(&w->inbox_lock);
	free(w);
}

struct nvefs_queue *nvefs_worker_queue(struct nvefs_worker *w)
{
	return w->q;
}

struct nvefs_fs *nvefs_worker_fs(struct nvefs_worker *w)
{
	return w->fs;
}

uint32_t nvefs_worker_inflight(const struct nvefs_worker *w)
{
	return w->inflight;
}

int nvefs_worker_fd(struct nvefs_worker *w)
{
	return nvefs_queue_fd(w->q);
}

void nvefs_worker_wake(struct nvefs_worker *w)
{
	nvefs_queue_wake(w->q);
}

static bool inbox_take(struct nvefs_worker *w)
{
	bool any;

	nvefs_mutex_lock(&w->inbox_lock);
	any = !nvefs_list_empty(&w->inbox);
	nvefs_list_splice(&w->ready, &w->inbox);
	nvefs_mutex_unlock(&w->inbox_lock);
	return any;
}

bool nvefs_worker_prepare_wait(struct nvefs_worker *w)
{
	inbox_take(w);
	return nvefs_list_empty(&w->ready) && nvefs_queue_prepare_wait(w->q);
}

uint32_t nvefs_worker_run(struct nvefs_worker *w)
{
	struct nvefs_list *p;

	assert(!w->stepping);
	w->stepping = true;
	w->answered = 0;
	for (;;) {
		uint32_t polled = nvefs_queue_poll(w->q, 0);

		inbox_take(w);
		p = nvefs_list_pop(&w->ready);
		if (!p && !polled)
			break;
		for (; p; p = nvefs_list_pop(&w->ready)) {
			struct nvefs_op *op = nvefs_container_of(p, struct nvefs_op, link);

			op->step(op);
		}
	}
	w->stepping = false;
	return w->answered;
}

void nvefs_op_ready(struct nvefs_op *op, nvefs_step_fn *step)
{
	op->step = step;
	nvefs_list_push(&op->w->ready, &op->link);
}

void nvefs_op_post(struct nvefs_op *op)
{
	struct nvefs_worker *w = op->w;

	nvefs_mutex_lock(&w->inbox_lock);
	nvefs_list_push(&w->inbox, &op->link);
	/* Woken under the lock: once the owner has seen the operation, it may close the worker. */
	nvefs_queue_wake(w->q);
	nvefs_mutex_unlock(&w->inbox_lock);
}

static struct nvefs_op *op_new(struct nvefs_worker *w)
{
	struct nvefs_op *op = w->free_ops;

	if (op) {
		w->free_ops = (void *)op->link.next;
		w->nfree_ops--;
	} else {
		op = malloc(sizeof(*op));
		if (!op)
			return NULL;
	}
	/* The chunk arrays are filled as they are used. */
	memset(op, 0, offsetof(struct nvefs_op, map));
	op->share = NULL;
	nvefs_list_init(&op->link);
	nvefs_list_init(&op->range.link);
	nvefs_list_init(&op->range2.link);
	op->w = w;
	return op;
}

static void op_free(struct nvefs_op *op)
{
	struct nvefs_worker *w = op->w;

	if (w->nfree_ops >= POOL_OPS) {
		free(op);
		return;
	}
	op->link.next = (void *)w->free_ops;
	w->free_ops = op;
	w->nfree_ops++;
}

static nvefs_step_fn *first_step(uint8_t op)
{
	static nvefs_step_fn *const steps[] = {
		[NVEFS_REQ_READ] = nvefs_read_begin,	    [NVEFS_REQ_WRITE] = nvefs_write_begin,
		[NVEFS_REQ_FSYNC] = nvefs_fsync_begin,	    [NVEFS_REQ_SYNC] = nvefs_sync_begin,
		[NVEFS_REQ_SETATTR] = nvefs_resize_begin,   [NVEFS_REQ_FALLOCATE] = nvefs_falloc_begin,
		[NVEFS_REQ_COPY] = nvefs_copy_begin,
	};

	assert(op < sizeof(steps) / sizeof(steps[0]));
	return steps[op];
}

void nvefs_req_start(struct nvefs_worker *w, struct nvefs_req *req)
{
	struct nvefs_op *op = op_new(w);

	/* Without memory for an operation there is no way to answer but at once. */
	if (!op) {
		req->err = -ENOMEM;
		req->result = 0;
		req->done(req);
		return;
	}
	req->err = 0;
	req->result = 0;
	req->data = NULL;
	op->req = req;
	w->inflight++;
	nvefs_op_ready(op, first_step(req->op));
}

static void note_done(struct nvefs_req *req)
{
	*(bool *)req->arg = true;
}

int nvefs_req_run(struct nvefs_worker *w, struct nvefs_req *req)
{
	bool done = false;

	req->done = note_done;
	req->arg = &done;
	nvefs_req_start(w, req);
	while (!done)
		if (!nvefs_worker_run(w) && !done && nvefs_worker_prepare_wait(w))
			nvefs_queue_wait(w->q, UINT64_MAX);
	return req->err;
}

void nvefs_op_finish(struct nvefs_op *op, int err, uint64_t result)
{
	struct nvefs_worker *w = op->w;
	struct nvefs_req *req = op->req;

	assert(!op->pending);
	if (op->reading)
		nvefs_reader_exit(w->fs->st, op->reader);
	nvefs_op_ios_free(op);
	if (op->in2)
		nvefs_range_put(op->in2, &op->range2);
	if (op->in)
		nvefs_range_put(op->in, &op->range);
	nvefs_op_unpledge(op);
	if (op->head)
		nvefs_worker_buf_put(w, op->head, 0);
	if (op->tail)
		nvefs_worker_buf_put(w, op->tail, 0);
	if (op->in2)
		nvefs_inode_put(op->in2);
	if (op->in)
		nvefs_inode_put(op->in);
	req->err = nvefs_alloc_errno(w->fs->st, err);
	req->result = result;
	w->inflight--;
	w->answered++;
	req->done(req);
	if (op->data)
		nvefs_worker_buf_put(w, op->data, op->data_class);
	op_free(op);
}

/* ---- Commands ---- */

struct nvefs_op_io *nvefs_op_io_new(struct nvefs_op *op, uint8_t what, uint64_t pblk, uint32_t nblks)
{
	struct nvefs_worker *w = op->w;
	struct nvefs_op_io *oi = w->free_ios;

	if (oi) {
		w->free_ios = oi->next;
		w->nfree_ios--;
	} else {
		oi = malloc(sizeof(*oi));
		if (!oi)
			return NULL;
	}
	memset(&oi->io, 0, sizeof(oi->io));
	oi->io.op = what;
	oi->io.pblk = pblk;
	oi->io.nblks = nblks;
	oi->io.iov = oi->iov;
	oi->op = op;
	oi->next = op->ios;
	op->ios = oi;
	return oi;
}

static void io_done(struct nvefs_io *io)
{
	struct nvefs_op_io *oi = io->arg;

	struct nvefs_op *op = oi->op;

	if (--op->pending)
		return;
	/* The data is here: the blocks need not wait for the step that checks it. */
	if (op->reading) {
		nvefs_reader_exit(op->w->fs->st, op->reader);
		op->reading = false;
	}
	nvefs_op_ready(op, op->step);
}

void nvefs_op_io_submit(struct nvefs_op_io *oi)
{
	oi->io.done = io_done;
	oi->io.arg = oi;
	oi->op->pending++;
	nvefs_queue_submit(oi->op->w->q, &oi->io);
}

void nvefs_op_ios_free(struct nvefs_op *op)
{
	struct nvefs_worker *w = op->w;

	while (op->ios) {
		struct nvefs_op_io *oi = op->ios;

		op->ios = oi->next;
		if (w->nfree_ios >= POOL_IOS) {
			free(oi);
			continue;
		}
		oi->next = w->free_ios;
		w->free_ios = oi;
		w->nfree_ios++;
	}
}

int nvefs_op_ios_err(const struct nvefs_op *op)
{
	const struct nvefs_op_io *oi;

	for (oi = op->ios; oi; oi = oi->next)
		if (oi->io.err)
			return oi->io.err;
	return 0;
}

/* ---- Waiting for ranges and commits ---- */

static void range_granted(struct nvefs_range *r)
{
	nvefs_op_post(nvefs_container_of(r, struct nvefs_op, range));
}

static void range2_granted(struct nvefs_range *r)
{
	nvefs_op_post(nvefs_container_of(r, struct nvefs_op, range2));
}

void nvefs_op_range(struct nvefs_op *op, uint64_t lo, uint64_t hi, bool exclusive, nvefs_step_fn *step)
{
	op->range.granted = range_granted;
	op->step = step;
	if (nvefs_range_get(op->in, &op->range, lo, hi, exclusive))
		nvefs_op_ready(op, step);
}

void nvefs_op_range2(struct nvefs_op *op, uint64_t lo, uint64_t hi, bool exclusive, nvefs_step_fn *step)
{
	op->range2.granted = range2_granted;
	op->step = step;
	if (nvefs_range_get(op->in2, &op->range2, lo, hi, exclusive))
		nvefs_op_ready(op, step);
}

static void commit_done(struct nvefs_commit_waiter *c)
{
	nvefs_op_post(nvefs_container_of(c, struct nvefs_op, commit));
}

void nvefs_op_commit(struct nvefs_op *op, uint64_t txn, bool fold, nvefs_step_fn *step)
{
	op->step = step;
	nvefs_list_init(&op->commit.link);
	op->commit.txn = txn;
	op->commit.fold = fold;
	op->commit.err = 0;
	op->commit.done = commit_done;
	nvefs_commit_request(op->w->fs->st, &op->commit);
}
