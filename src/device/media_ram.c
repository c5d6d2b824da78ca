/* SPDX-License-Identifier: MIT */
/* Memory as medium: a private mapping without reserved swap, so that only what is written costs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/list.h"
#include "base/thread.h"
#include "device/media.h"
#include "device/write_cache.h"

#define CACHE_MAX_BYTES (64u << 20)
#define HUGE_FROM_BYTES (1u << 30)

struct ram {
	struct nvefs_media media;
	uint8_t *data;
	uint32_t lba_bytes;
	struct nvefs_write_cache *cache; /* NULL: every write is durable at once */
	struct nvefs_mutex lock;	 /* cache, and data while the cache takes note of it */
};

static struct ram *ram_from(struct nvefs_media *m)
{
	return nvefs_container_of(m, struct ram, media);
}

/* Nothing is kept per queue: the queue is the medium. */
static int ram_queue_init(struct nvefs_media *m, struct nvefs_queue *q, uint32_t depth,
			  struct nvefs_media_queue **ret_mq)
{
	(void)q;
	(void)depth;
	*ret_mq = (struct nvefs_media_queue *)(void *)ram_from(m);
	return 0;
}

static void ram_queue_done(struct nvefs_media_queue *mq)
{
	(void)mq;
}

static void copy_out(struct ram *r, struct nvefs_media_req *req)
{
	const uint8_t *from = r->data + req->off;

	for (uint32_t i = 0; i < req->niov; i++) {
		memcpy(req->iov[i].iov_base, from, req->iov[i].iov_len);
		from += req->iov[i].iov_len;
	}
}

static void copy_in(struct ram *r, struct nvefs_media_req *req)
{
	uint8_t *to = r->data + req->off;

	for (uint32_t i = 0; i < req->niov; i++) {
		memcpy(to, req->iov[i].iov_base, req->iov[i].iov_len);
		to += req->iov[i].iov_len;
	}
}

/* Whole pages go back to the kernel and read as zeros from then on. */
static void clear(struct ram *r, uint64_t off, uint64_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t first = (off + page - 1) / page * page, last = (off + len) / page * page;

	if (first >= last || madvise(r->data + first, last - first, MADV_DONTNEED)) {
		memset(r->data + off, 0, len);
		return;
	}
	memset(r->data + off, 0, first - off);
	memset(r->data + last, 0, off + len - last);
}

static void change(struct ram *r, struct nvefs_media_req *req)
{
	if (req->kind == NVEFS_MEDIA_WRITE)
		copy_in(r, req);
	else
		clear(r, req->off, req->len);
}

static void change_cached(struct ram *r, struct nvefs_media_req *req)
{
	uint64_t first = req->off / r->lba_bytes, end = first + req->len / r->lba_bytes;

	nvefs_mutex_lock(&r->lock);
	for (uint64_t lba = first; lba < end && !req->err; lba++) {
		if (req->fua)
			nvefs_write_cache_settle(r->cache, lba);
		else
			req->err =
			    nvefs_write_cache_note(r->cache, lba, r->data + lba * r->lba_bytes);
	}
	if (!req->err)
		change(r, req);
	nvefs_mutex_unlock(&r->lock);
}

static bool ram_submit(struct nvefs_media_queue *mq, struct nvefs_media_req *req)
{
	struct ram *r = (struct ram *)(void *)mq;

	req->err = 0;
	switch (req->kind) {
	case NVEFS_MEDIA_READ:
		copy_out(r, req);
		break;
	case NVEFS_MEDIA_FLUSH:
		if (!r->cache)
			break;
		nvefs_mutex_lock(&r->lock);
		nvefs_write_cache_flush(r->cache);
		nvefs_mutex_unlock(&r->lock);
		break;
	default:
		if (r->cache)
			change_cached(r, req);
		else
			change(r, req);
		break;
	}
	return true;
}

static void ram_poll(struct nvefs_media_queue *mq)
{
	(void)mq;
}

static bool ram_prepare_wait(struct nvefs_media_queue *mq)
{
	(void)mq;
	return true;
}

static int ram_power_cut(struct nvefs_media *m, uint64_t seed, uint64_t *ret_lost_lbas)
{
	struct ram *r = ram_from(m);

	*ret_lost_lbas = 0;
	if (!r->cache)
		return 0;
	nvefs_mutex_lock(&r->lock);
	*ret_lost_lbas = nvefs_write_cache_cut(r->cache, seed, r->data);
	nvefs_mutex_unlock(&r->lock);
	return 0;
}

static void ram_close(struct nvefs_media *m)
{
	struct ram *r = ram_from(m);

	munmap(r->data, m->size_bytes);
	nvefs_write_cache_free(r->cache);
	nvefs_mutex_done(&r->lock);
	free(r);
}

static const struct nvefs_media_ops ram_ops = {
    .close = ram_close,
    .queue_init = ram_queue_init,
    .queue_done = ram_queue_done,
    .submit = ram_submit,
    .poll = ram_poll,
    .prepare_wait = ram_prepare_wait,
    .power_cut = ram_power_cut,
};

static void media_init(struct ram *r, void *data, uint64_t size_bytes, uint32_t lba_bytes)
{
	r->data = data;
	r->lba_bytes = lba_bytes;
	r->media.ops = &ram_ops;
	r->media.size_bytes = size_bytes;
	r->media.mem_align = 1;
	r->media.can_deallocate = true;
	if (getrandom(r->media.nguid, sizeof(r->media.nguid), 0) != sizeof(r->media.nguid))
		memset(r->media.nguid, 0, sizeof(r->media.nguid));
	snprintf(r->media.text, sizeof(r->media.text), "memory");
	nvefs_mutex_init(&r->lock);
}

int nvefs_media_ram_open(uint64_t size_bytes, uint32_t lba_bytes, bool cache,
			 struct nvefs_media **ret_media)
{
	struct ram *r = calloc(1, sizeof(*r));
	int err = -ENOMEM;
	void *data;

	if (!r)
		return err;
	if (cache) {
		r->cache = nvefs_write_cache_new(lba_bytes, CACHE_MAX_BYTES / lba_bytes);
		if (!r->cache)
			goto free_ram;
	}
	data = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (data == MAP_FAILED) {
		err = -errno;
		goto free_cache;
	}
	/* Where much will be written, fewer faults are worth the coarser grain; only a hint. */
	if (size_bytes >= HUGE_FROM_BYTES)
		madvise(data, size_bytes, MADV_HUGEPAGE);
	media_init(r, data, size_bytes, lba_bytes);
	*ret_media = &r->media;
	return 0;

free_cache:
	nvefs_write_cache_free(r->cache);
free_ram:
	free(r);
	return err;
}
