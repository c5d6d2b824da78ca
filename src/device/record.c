/* SPDX-License-Identifier: MIT */
#include "device/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "device/layer.h"

struct nvefs_record {
	struct nvefs_dev_limits limits;
	const struct nvefs_cow *base;
	struct nvefs_cow *own_base; /* NULL when the caller keeps it */
	uint64_t max_bytes;

	struct nvefs_mutex lock; /* below */
	struct nvefs_record_cmd *cmds;
	struct nvefs_record_event *events;
	uint32_t ncmds, max_cmds, nevents, max_events;
	uint64_t used_bytes;
	bool full;
};

struct record_dev {
	struct nvefs_dev dev;
	struct nvefs_record *log;
};

/* What a slot keeps: a raw Dataset Management is one command for each of its ranges. */
struct record_slot {
	uint32_t first, count;
};

static struct record_dev *record_from(struct nvefs_dev *dev)
{
	return nvefs_container_of(dev, struct record_dev, dev);
}

static int grow(void **array, uint32_t *max, size_t size)
{
	uint32_t want = *max ? *max * 2 : 1024;
	void *bigger = reallocarray(*array, want, size);

	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	*max = want;
	return 0;
}

static bool has_room(struct nvefs_record *log, uint64_t bytes)
{
	if (log->full)
		return false;
	bytes += sizeof(struct nvefs_record_cmd) + 2 * sizeof(struct nvefs_record_event);
	log->full = bytes > log->max_bytes - log->used_bytes;
	if (!log->full && log->ncmds == log->max_cmds)
		log->full = grow((void **)&log->cmds, &log->max_cmds, sizeof(*log->cmds));
	/* A completion that comes later finds its place, too. */
	while (!log->full && 2 * (log->ncmds + 1) > log->max_events)
		log->full = grow((void **)&log->events, &log->max_events, sizeof(*log->events));
	if (!log->full)
		log->used_bytes += bytes;
	return !log->full;
}

static const uint8_t *copy_data(const struct nvefs_io *io, uint64_t len)
{
	uint8_t *data = malloc(len), *to = data;

	for (uint32_t i = 0; data && i < io->niov; i++) {
		memcpy(to, io->iov[i].iov_base, io->iov[i].iov_len);
		to += io->iov[i].iov_len;
	}
	return data;
}

static void add_cmd(struct nvefs_record *log, const struct nvefs_io_view *view,
		    const struct nvefs_io *io)
{
	struct nvefs_record_cmd cmd = {.op = view->op,
				       .fua = view->fua,
				       .off = view->off,
				       .len = view->len,
				       .submitted = log->nevents,
				       .completed = UINT32_MAX};

	if (view->op == NVEFS_IO_WRITE) {
		cmd.data = copy_data(io, view->len);
		if (!cmd.data) {
			log->full = true;
			return;
		}
	}
	log->events[log->nevents++] = (struct nvefs_record_event){.cmd = log->ncmds};
	log->cmds[log->ncmds++] = cmd;
}

/* Range by range; the data pointer was checked against the count of ranges by nobody yet. */
static void add_ranges(struct nvefs_record *log, const struct nvefs_io *io)
{
	uint64_t left = nvefs_raw_from_io((struct nvefs_io *)(uintptr_t)io)->data_bytes;
	const uint8_t *data = copy_data(io, left);
	struct nvefs_nvme_dsm_range range;

	for (const uint8_t *p = data; data && left >= sizeof(range); p += sizeof(range)) {
		struct nvefs_io_view view = {.op = NVEFS_IO_DISCARD};

		memcpy(&range, p, sizeof(range));
		left -= sizeof(range);
		view.off = le64_get(range.slba) * log->limits.lba_bytes;
		view.len = (uint64_t)le32_get(range.nlbs) * log->limits.lba_bytes;
		if (has_room(log, 0))
			add_cmd(log, &view, io);
	}
	free((void *)(uintptr_t)data);
}

static void record_submit_locked(struct nvefs_record *log, struct nvefs_dev *dev,
				 struct nvefs_io *io, struct record_slot *rs)
{
	struct nvefs_io_view view;

	nvefs_io_view(dev, io, &view);
	rs->first = log->ncmds;
	if (view.op == NVEFS_IO_DISCARD && io->op == NVEFS_IO_RAW)
		add_ranges(log, io);
	else if (has_room(log, view.op == NVEFS_IO_WRITE ? view.len : 0))
		add_cmd(log, &view, io);
	rs->count = log->ncmds - rs->first;
}

static void then_completed(struct nvefs_layer_slot *slot)
{
	struct nvefs_record *log = record_from(slot->q->dev)->log;
	const struct record_slot *rs = slot->extra;

	nvefs_mutex_lock(&log->lock);
	for (uint32_t i = rs->first; i < rs->first + rs->count; i++) {
		log->cmds[i].completed = log->nevents;
		log->cmds[i].err = slot->lower.io.err;
		log->events[log->nevents++] = (struct nvefs_record_event){i, true};
	}
	nvefs_mutex_unlock(&log->lock);
	nvefs_layer_finish(slot);
}

static int record_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct nvefs_layer_slot *slot = nvefs_layer_slot_get(q, io);
	struct nvefs_record *log = record_from(q->dev)->log;

	if (!slot)
		return -EAGAIN;
	nvefs_mutex_lock(&log->lock);
	record_submit_locked(log, q->dev, io, slot->extra);
	nvefs_mutex_unlock(&log->lock);
	slot->then = then_completed;
	nvefs_layer_send(slot);
	return 0;
}

static int record_queue_init(struct nvefs_dev *dev, struct nvefs_queue *q)
{
	return nvefs_layer_queue_init(dev, q, sizeof(struct record_slot));
}

static void record_close(struct nvefs_dev *dev)
{
	free(record_from(dev));
}

static const struct nvefs_backend_ops ops_block = {
    .name = "record",
    .close = record_close,
    .queue_init = record_queue_init,
    .queue_done = nvefs_layer_queue_done,
    .submit = record_submit,
    .poll = nvefs_layer_poll,
    .prepare_wait = nvefs_layer_prepare_wait,
};
static const struct nvefs_backend_ops ops_raw = {
    .name = "record",
    .raw = true,
    .close = record_close,
    .queue_init = record_queue_init,
    .queue_done = nvefs_layer_queue_done,
    .submit = record_submit,
    .poll = nvefs_layer_poll,
    .prepare_wait = nvefs_layer_prepare_wait,
};

static bool is_zero(const uint8_t *p, size_t len)
{
	return !p[0] && !memcmp(p, p + 1, len - 1);
}

static int save_piece(struct nvefs_cow *base, const uint8_t *buf, uint64_t pblk, uint32_t nblks)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < nblks; i++) {
		const uint8_t *blk = buf + ((size_t)i << NVEFS_BLOCK_SHIFT);

		if (!is_zero(blk, NVEFS_BLOCK_SIZE))
			err = nvefs_cow_write(base, (pblk + i) << NVEFS_BLOCK_SHIFT,
					      NVEFS_BLOCK_SIZE, blk, 0);
	}
	return err;
}

static int save_base(struct nvefs_dev *below, struct nvefs_cow *base)
{
	const uint64_t nblks = below->limits.nblks;
	uint32_t step = below->limits.max_transfer_blks;
	struct nvefs_queue *q = NULL;
	uint8_t *buf = nvefs_buf_new((size_t)step << NVEFS_BLOCK_SHIFT);
	int err;

	if (!buf)
		return -ENOMEM;
	err = nvefs_queue_init(below, 0, &q);
	for (uint64_t pblk = 0; !err && pblk < nblks; pblk += step) {
		if (step > nblks - pblk)
			step = (uint32_t)(nblks - pblk);
		err = nvefs_queue_read(q, pblk, step, buf);
		if (!err)
			err = save_piece(base, buf, pblk, step);
	}
	nvefs_queue_done(q);
	nvefs_buf_free(buf);
	return err;
}

int nvefs_record_wrap_on(struct nvefs_dev *below, const struct nvefs_cow *base, uint64_t max_bytes,
			 struct nvefs_dev **ret_dev, struct nvefs_record **ret_log)
{
	struct record_dev *rd = calloc(1, sizeof(*rd));
	struct nvefs_record *log = calloc(1, sizeof(*log));

	if (!rd || !log) {
		free(log);
		free(rd);
		return -ENOMEM;
	}
	log->base = base;
	log->limits = below->limits;
	log->max_bytes = max_bytes;
	nvefs_mutex_init(&log->lock);
	rd->log = log;
	nvefs_dev_init(&rd->dev, nvefs_dev_takes_raw(below) ? &ops_raw : &ops_block, below);
	*ret_dev = &rd->dev;
	*ret_log = log;
	return 0;
}

int nvefs_record_wrap(struct nvefs_dev *below, uint64_t max_bytes, struct nvefs_dev **ret_dev,
		      struct nvefs_record **ret_log)
{
	struct nvefs_cow *base = nvefs_cow_new(NULL, below->limits.nblks);
	int err = base ? save_base(below, base) : -ENOMEM;

	if (!err)
		err = nvefs_record_wrap_on(below, base, max_bytes, ret_dev, ret_log);
	if (err)
		nvefs_cow_free(base);
	else
		(*ret_log)->own_base = base;
	return err;
}

void nvefs_record_free(struct nvefs_record *log)
{
	if (!log)
		return;
	for (uint32_t i = 0; i < log->ncmds; i++)
		free((void *)(uintptr_t)log->cmds[i].data);
	free(log->cmds);
	free(log->events);
	nvefs_cow_free(log->own_base);
	nvefs_mutex_done(&log->lock);
	free(log);
}

uint32_t nvefs_record_position(struct nvefs_record *log)
{
	uint32_t position;

	nvefs_mutex_lock(&log->lock);
	position = log->nevents;
	nvefs_mutex_unlock(&log->lock);
	return position;
}

bool nvefs_record_overflowed(struct nvefs_record *log)
{
	bool full;

	nvefs_mutex_lock(&log->lock);
	full = log->full;
	nvefs_mutex_unlock(&log->lock);
	return full;
}

uint32_t nvefs_record_nevents(const struct nvefs_record *log)
{
	return log->nevents;
}

uint32_t nvefs_record_ncmds(const struct nvefs_record *log)
{
	return log->ncmds;
}

const struct nvefs_record_cmd *nvefs_record_cmd_at(const struct nvefs_record *log, uint32_t index)
{
	return &log->cmds[index];
}

const struct nvefs_record_event *nvefs_record_event_at(const struct nvefs_record *log,
						       uint32_t index)
{
	return &log->events[index];
}

const struct nvefs_dev_limits *nvefs_record_limits(const struct nvefs_record *log)
{
	return &log->limits;
}

const struct nvefs_cow *nvefs_record_base(const struct nvefs_record *log)
{
	return log->base;
}
