/* SPDX-License-Identifier: MIT */
/*
 * A block belongs to a layer once it has a page there; pages are never taken away but by
 * reset, so that a reader needs no lock. `lock` orders the writers that add pages.
 *
 * The hash is a sum (exclusive or) over all blocks of a hash of block and number.
 * A layer knows its base's and what its own pages change in it.
 */
#include "device/cow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/thread.h"

struct page {
	uint64_t pblk;
	uint64_t change; /* of the layer's hash, when `summed` */
	bool summed;
	_Alignas(8) uint8_t data[NVEFS_BLOCK_SIZE]; /* for who looks at it as a structure */
};

struct nvefs_cow {
	const struct nvefs_cow *base;
	uint64_t nblks;
	struct nvefs_mutex lock; /* below */
	struct page **pages;	 /* by block; read without the lock */
	uint64_t *used;		 /* blocks that have a page */
	uint32_t nused, max_used;
	struct page **spare;
	uint32_t nspare, max_spare;
};

static _Alignas(8) const uint8_t zeros[NVEFS_BLOCK_SIZE];

struct nvefs_cow *nvefs_cow_new(const struct nvefs_cow *base, uint64_t nblks)
{
	struct nvefs_cow *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->base = base;
	c->nblks = nblks;
	nvefs_mutex_init(&c->lock);
	c->pages = calloc(nblks, sizeof(struct page *));
	if (c->pages)
		return c;
	nvefs_cow_free(c);
	return NULL;
}

void nvefs_cow_free(struct nvefs_cow *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->nused; i++)
		free(c->pages[c->used[i]]);
	for (uint32_t i = 0; i < c->nspare; i++)
		free(c->spare[i]);
	free(c->pages);
	free(c->used);
	free(c->spare);
	nvefs_mutex_done(&c->lock);
	free(c);
}

/* There is room in `spare` for every page: see grow. */
void nvefs_cow_reset(struct nvefs_cow *c)
{
	for (uint32_t i = 0; i < c->nused; i++) {
		c->spare[c->nspare++] = c->pages[c->used[i]];
		c->pages[c->used[i]] = NULL;
	}
	c->nused = 0;
}

uint64_t nvefs_cow_nblks(const struct nvefs_cow *c)
{
	return c->nblks;
}

static struct page *page_of(const struct nvefs_cow *c, uint64_t pblk)
{
	return __atomic_load_n(&c->pages[pblk], __ATOMIC_ACQUIRE);
}

bool nvefs_cow_holds(const struct nvefs_cow *c, uint64_t pblk)
{
	return pblk < c->nblks && page_of(c, pblk);
}

const uint8_t *nvefs_cow_block(const struct nvefs_cow *c, uint64_t pblk)
{
	for (; c; c = c->base) {
		const struct page *p = pblk < c->nblks ? page_of(c, pblk) : NULL;

		if (p)
			return p->data;
	}
	return zeros;
}

static int grow_locked(struct nvefs_cow *c)
{
	uint32_t want = c->max_used ? c->max_used * 2 : 64;
	uint64_t *used;
	struct page **spare;

	if (c->nused < c->max_used)
		return 0;
	used = reallocarray(c->used, want, sizeof(*used));
	if (!used)
		return -ENOMEM;
	c->used = used;
	spare = reallocarray(c->spare, want, sizeof(struct page *));
	if (!spare)
		return -ENOMEM;
	c->spare = spare;
	c->max_used = want;
	return 0;
}

static struct page *page_new_locked(struct nvefs_cow *c, uint64_t pblk)
{
	struct page *p = c->pages[pblk];

	if (p)
		return p;
	if (grow_locked(c))
		return NULL;
	p = c->nspare ? c->spare[--c->nspare] : malloc(sizeof(*p));
	if (!p)
		return NULL;
	p->pblk = pblk;
	p->summed = false;
	memcpy(p->data, c->base ? nvefs_cow_block(c->base, pblk) : zeros, NVEFS_BLOCK_SIZE);
	c->used[c->nused++] = pblk;
	__atomic_store_n(&c->pages[pblk], p, __ATOMIC_RELEASE);
	return p;
}

int nvefs_cow_write(struct nvefs_cow *c, uint64_t off, uint32_t len, const void *data,
		    uint8_t value)
{
	uint64_t pblk = off >> NVEFS_BLOCK_SHIFT;
	struct page *p = page_of(c, pblk);

	if (!p) {
		nvefs_mutex_lock(&c->lock);
		p = page_new_locked(c, pblk);
		nvefs_mutex_unlock(&c->lock);
		if (!p)
			return -ENOMEM;
	}
	p->summed = false;
	if (data)
		memcpy(p->data + off % NVEFS_BLOCK_SIZE, data, len);
	else
		memset(p->data + off % NVEFS_BLOCK_SIZE, value, len);
	return 0;
}

static uint64_t block_hash(const uint8_t *data, uint64_t pblk)
{
	return nvefs_hash(data, NVEFS_BLOCK_SIZE, pblk);
}

uint64_t nvefs_cow_hash(struct nvefs_cow *c)
{
	return nvefs_cow_hash_some(c, NULL, NULL);
}

uint64_t nvefs_cow_hash_some(struct nvefs_cow *c, nvefs_cow_want_fn *want, const void *arg)
{
	uint64_t sum = 0;

	if (c->base)
		sum = nvefs_cow_hash_some((struct nvefs_cow *)(uintptr_t)c->base, want, arg);
	for (uint32_t i = 0; i < c->nused; i++) {
		struct page *p = c->pages[c->used[i]];
		const uint8_t *old = c->base ? nvefs_cow_block(c->base, p->pblk) : zeros;

		if (!p->summed)
			p->change = block_hash(p->data, p->pblk) ^ block_hash(old, p->pblk);
		p->summed = true;
		if (!want || want(arg, p->pblk))
			sum ^= p->change;
	}
	return sum;
}

/* ---- The medium ---- */

struct media_cow {
	struct nvefs_media media;
	struct nvefs_cow *cow;
	bool own;
};

static struct media_cow *media_from(struct nvefs_media *m)
{
	return nvefs_container_of(m, struct media_cow, media);
}

/* Nothing is kept per queue: the queue is the medium. */
static int cow_queue_init(struct nvefs_media *m, struct nvefs_queue *q, uint32_t depth,
			  struct nvefs_media_queue **ret_mq)
{
	(void)q;
	(void)depth;
	*ret_mq = (struct nvefs_media_queue *)(void *)media_from(m);
	return 0;
}

static void cow_queue_done(struct nvefs_media_queue *mq)
{
	(void)mq;
}

/* The next piece that lies within one block and one part of the caller's memory. */
static uint32_t piece(uint64_t off, uint64_t left, const struct iovec *v, size_t at)
{
	uint64_t n = NVEFS_BLOCK_SIZE - off % NVEFS_BLOCK_SIZE;

	if (n > left)
		n = left;
	if (v && n > v->iov_len - at)
		n = v->iov_len - at;
	return (uint32_t)n;
}

static int transfer(struct nvefs_cow *c, struct nvefs_media_req *req)
{
	bool zero = req->kind == NVEFS_MEDIA_ZERO || req->kind == NVEFS_MEDIA_DEALLOCATE;
	uint64_t off = req->off, end = req->off + req->len;
	const struct iovec *v = zero ? NULL : req->iov;
	size_t at = 0;

	while (off < end) {
		uint32_t n;
		uint8_t *mem;
		int err = 0;

		while (v && at == v->iov_len) {
			v++;
			at = 0;
		}
		n = piece(off, end - off, v, at);
		mem = v ? (uint8_t *)v->iov_base + at : NULL;
		if (req->kind == NVEFS_MEDIA_READ)
			memcpy(mem,
			       nvefs_cow_block(c, off >> NVEFS_BLOCK_SHIFT) +
				   off % NVEFS_BLOCK_SIZE,
			       n);
		else
			err = nvefs_cow_write(c, off, n, mem, 0);
		if (err)
			return err;
		off += n;
		at += n;
	}
	return 0;
}

static bool cow_submit(struct nvefs_media_queue *mq, struct nvefs_media_req *req)
{
	struct media_cow *m = (struct media_cow *)(void *)mq;

	req->err = req->kind == NVEFS_MEDIA_FLUSH ? 0 : transfer(m->cow, req);
	return true;
}

static void cow_poll(struct nvefs_media_queue *mq)
{
	(void)mq;
}

static bool cow_prepare_wait(struct nvefs_media_queue *mq)
{
	(void)mq;
	return true;
}

static void cow_close(struct nvefs_media *media)
{
	struct media_cow *m = media_from(media);

	if (m->own)
		nvefs_cow_free(m->cow);
	free(m);
}

static const struct nvefs_media_ops cow_ops = {
    .close = cow_close,
    .queue_init = cow_queue_init,
    .queue_done = cow_queue_done,
    .submit = cow_submit,
    .poll = cow_poll,
    .prepare_wait = cow_prepare_wait,
};

int nvefs_media_cow_open(struct nvefs_cow *c, bool own, struct nvefs_media **ret_media)
{
	struct media_cow *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->media.ops = &cow_ops;
	m->media.size_bytes = c->nblks << NVEFS_BLOCK_SHIFT;
	m->media.mem_align = 1;
	m->media.can_deallocate = true;
	strcpy(m->media.text, "memory, copy on write");
	m->cow = c;
	m->own = own;
	*ret_media = &m->media;
	return 0;
}
