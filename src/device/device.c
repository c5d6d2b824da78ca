/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/backend.h"
#include "nvme/status.h"

int nvefs_error_set(struct nvefs_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

void nvefs_dev_init(struct nvefs_dev *dev, const struct nvefs_backend_ops *ops,
		    struct nvefs_dev *below)
{
	memset(dev, 0, sizeof(*dev));
	dev->ops = ops;
	dev->below = below;
	if (below) {
		dev->limits = below->limits;
		dev->identity = below->identity;
		dev->drive = below->drive;
		dev->route = below->route;
	}
	nvefs_mutex_init(&dev->lock);
	nvefs_list_init(&dev->queues);
	dev->writes_until = NVEFS_WRITES_ALWAYS;
}

void nvefs_dev_done(struct nvefs_dev *dev)
{
	assert(!dev->nqueues);
	nvefs_mutex_done(&dev->lock);
}

void nvefs_dev_close(struct nvefs_dev *dev)
{
	while (dev) {
		struct nvefs_dev *below = dev->below;

		nvefs_dev_done(dev);
		dev->ops->close(dev);
		dev = below;
	}
}

const struct nvefs_dev_limits *nvefs_dev_limits(const struct nvefs_dev *dev)
{
	return &dev->limits;
}

const struct nvefs_dev_identity *nvefs_dev_identity(const struct nvefs_dev *dev)
{
	return &dev->identity;
}

const struct nvefs_drive *nvefs_dev_drive(const struct nvefs_dev *dev)
{
	return &dev->drive;
}

enum nvefs_route nvefs_dev_route(const struct nvefs_dev *dev)
{
	return dev->route;
}

bool nvefs_dev_takes_raw(const struct nvefs_dev *dev)
{
	return dev->ops->raw;
}

bool nvefs_dev_takes_fused(const struct nvefs_dev *dev)
{
	return dev->ops->fused && dev->limits.queue_depth > 1;
}

int nvefs_dev_admin(struct nvefs_dev *dev, const struct nvefs_nvme_sqe *sqe, void *data,
		    uint32_t len, uint32_t *ret_result, uint16_t *ret_status)
{
	for (; dev; dev = dev->below)
		if (dev->ops->admin)
			return dev->ops->admin(dev, sqe, data, len, ret_result, ret_status);
	return -ENOTSUP;
}

void nvefs_dev_describe(const struct nvefs_dev *dev, char *buf, size_t len)
{
	const struct nvefs_dev_limits *l = &dev->limits;
	char own[160] = "";
	int n;

	if (!len)
		return;
	if (dev->ops->describe)
		dev->ops->describe(dev, own, sizeof(own));
	if (dev->below) {
		n = snprintf(buf, len, "%s%s%s over ", dev->ops->name, own[0] ? ", " : "", own);
		if (n > 0 && (size_t)n < len)
			nvefs_dev_describe(dev->below, buf + n, len - (size_t)n);
		return;
	}
	snprintf(buf, len,
		 "%s%s%s, %llu MiB, LBA %u, %u queues of %u, transfer %llu KiB, write cache %s%s%s",
		 dev->ops->name, own[0] ? ", " : "", own,
		 (unsigned long long)(l->nblks >> (20 - NVEFS_BLOCK_SHIFT)), l->lba_bytes,
		 l->max_queues, l->queue_depth,
		 (unsigned long long)l->max_transfer_blks << (NVEFS_BLOCK_SHIFT - 10),
		 l->volatile_cache ? "on" : "off",
		 l->read_only ? ", read-only" : "", l->shared ? ", shared" : "");
}

static uint64_t load(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void counters_add(struct nvefs_dev_counters *to, const struct nvefs_dev_counters *from)
{
	for (int op = 0; op < NVEFS_IO_NOPS; op++) {
		to->commands[op] += load(&from->commands[op]);
		to->bytes[op] += load(&from->bytes[op]);
	}
	to->fua += load(&from->fua);
	to->errors += load(&from->errors);
	to->splits += load(&from->splits);
	to->refused += load(&from->refused);
}

static void counters_level(struct nvefs_dev *dev, struct nvefs_dev_counters *ret)
{
	struct nvefs_list *pos;

	memset(ret, 0, sizeof(*ret));
	nvefs_mutex_lock(&dev->lock);
	counters_add(ret, &dev->past);
	nvefs_list_for_each(pos, &dev->queues)
	    counters_add(ret, &nvefs_container_of(pos, struct nvefs_queue, link)->counters);
	nvefs_mutex_unlock(&dev->lock);
	if (dev->ops->media_write_bytes)
		ret->media_write_bytes = dev->ops->media_write_bytes(dev);
}

/* Commands are those of the lowest device; errors are what the caller saw; splits happen anywhere.
 */
void nvefs_dev_counters(struct nvefs_dev *dev, struct nvefs_dev_counters *ret)
{
	struct nvefs_dev_counters level;
	uint64_t errors = 0, splits = 0, refused = 0;

	for (struct nvefs_dev *d = dev; d; d = d->below) {
		counters_level(d, &level);
		if (d == dev)
			errors = level.errors;
		splits += level.splits;
		refused += level.refused;
	}
	level.errors = errors;
	level.splits = splits;
	level.refused = refused;
	*ret = level;
}

int nvefs_io_set_nvme_status(struct nvefs_io *io, uint16_t status)
{
	io->status.kind = NVEFS_STATUS_NVME;
	io->status.nvme = status;
	return nvefs_nvme_status_errno(status);
}

static uint8_t raw_op(const struct nvefs_nvme_sqe *sqe)
{
	switch (sqe->opcode) {
	case NVEFS_NVME_READ:
		return NVEFS_IO_READ;
	case NVEFS_NVME_WRITE:
		return NVEFS_IO_WRITE;
	case NVEFS_NVME_FLUSH:
		return NVEFS_IO_FLUSH;
	case NVEFS_NVME_COMPARE:
		return NVEFS_IO_COMPARE;
	case NVEFS_NVME_WRITE_ZEROES:
		return NVEFS_IO_WRITE_ZEROES;
	case NVEFS_NVME_DSM:
		return NVEFS_IO_DISCARD;
	default:
		return NVEFS_IO_NOPS;
	}
}

void nvefs_io_view(const struct nvefs_dev *dev, struct nvefs_io *io, struct nvefs_io_view *ret_view)
{
	const struct nvefs_nvme_sqe *sqe;

	if (io->op != NVEFS_IO_RAW) {
		*ret_view = (struct nvefs_io_view){
		    io->op, io->flags & NVEFS_IO_FUA, io->pblk << NVEFS_BLOCK_SHIFT,
		    io->op == NVEFS_IO_FLUSH ? 0 : (uint64_t)io->nblks << NVEFS_BLOCK_SHIFT};
		return;
	}
	sqe = &nvefs_raw_from_io(io)->sqe;
	*ret_view = (struct nvefs_io_view){.op = raw_op(sqe)};
	if (ret_view->op == NVEFS_IO_NOPS || ret_view->op == NVEFS_IO_FLUSH ||
	    ret_view->op == NVEFS_IO_DISCARD)
		return;
	ret_view->fua = le32_get(sqe->cdw12) & NVEFS_NVME_CDW12_FUA;
	ret_view->off = nvefs_nvme_sqe_slba(sqe) * dev->limits.lba_bytes;
	ret_view->len = (uint64_t)nvefs_nvme_sqe_nlbs(sqe) * dev->limits.lba_bytes;
}
