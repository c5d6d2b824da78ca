/* SPDX-License-Identifier: MIT */
#include "two_hosts.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "device/embedded.h"
#include "nvefs/format.h"

struct host_medium {
	struct nvefs_media media;
	struct shared_medium *shared;
	struct nvefs_media *cow;
	struct nvefs_media_queue *mq; /* of the cow medium: it keeps nothing per queue */
	uint32_t host;
};

static struct host_medium *from(struct nvefs_media *m)
{
	return nvefs_container_of(m, struct host_medium, media);
}

static int host_queue_init(struct nvefs_media *m, struct nvefs_queue *q, uint32_t depth,
			   struct nvefs_media_queue **ret_mq)
{
	(void)q;
	(void)depth;
	*ret_mq = (struct nvefs_media_queue *)(void *)from(m);
	return 0;
}

static void host_queue_done(struct nvefs_media_queue *mq)
{
	(void)mq;
}

static bool host_submit(struct nvefs_media_queue *mq, struct nvefs_media_req *req)
{
	struct host_medium *h = (struct host_medium *)(void *)mq;
	struct shared_medium *s = h->shared;
	bool done;

	nvefs_mutex_lock(&s->lock);
	if (req->kind != NVEFS_MEDIA_READ && req->kind != NVEFS_MEDIA_FLUSH && s->nnotes < HOSTS_NOTES)
		s->notes[s->nnotes++] = (struct medium_note){nvefs_boot_ns(), req->off / 4096, h->host,
							     (uint32_t)(req->len / 4096)};
	done = h->cow->ops->submit(h->mq, req);
	if (s->written && req->kind == NVEFS_MEDIA_WRITE)
		s->written(s, h->host, req->off / 4096);
	nvefs_mutex_unlock(&s->lock);
	return done;
}

static void host_poll(struct nvefs_media_queue *mq)
{
	(void)mq;
}

static bool host_prepare_wait(struct nvefs_media_queue *mq)
{
	(void)mq;
	return true;
}

static void host_close(struct nvefs_media *m)
{
	struct host_medium *h = from(m);

	h->cow->ops->close(h->cow);
	free(h);
}

static const struct nvefs_media_ops host_ops = {
	.close = host_close,
	.queue_init = host_queue_init,
	.queue_done = host_queue_done,
	.submit = host_submit,
	.poll = host_poll,
	.prepare_wait = host_prepare_wait,
};

void shared_init(struct shared_medium *m)
{
	m->cow = nvefs_cow_new(NULL, HOSTS_BLKS);
	m->notes = calloc(HOSTS_NOTES, sizeof(*m->notes));
	m->nnotes = 0;
	m->written = NULL;
	ck_assert(m->cow && m->notes);
	nvefs_mutex_init(&m->lock);
}

void shared_done(struct shared_medium *m)
{
	nvefs_mutex_done(&m->lock);
	nvefs_cow_free(m->cow);
	free(m->notes);
}

struct nvefs_dev *shared_open(struct shared_medium *m, uint32_t host)
{
	struct nvefs_embedded_options o;
	struct host_medium *h = calloc(1, sizeof(*h));
	struct nvefs_dev *dev, *top;
	char name[16];

	nvefs_embedded_options_init(&o);
	ck_assert_int_eq(nvefs_media_cow_open(m->cow, false, &h->cow), 0);
	ck_assert_int_eq(h->cow->ops->queue_init(h->cow, NULL, 1, &h->mq), 0);
	h->media = *h->cow;
	h->media.ops = &host_ops;
	h->shared = m;
	h->host = host;
	snprintf(name, sizeof(name), "disk-of-%u", host);
	ck_assert_int_eq(nvefs_embedded_open_media(name, &o.ctrl, &h->media, &dev, NULL), 0);
	ck_assert_int_eq(nvefs_fault_wrap(dev, NULL, 0, &top), 0);
	return top;
}

void shared_read(struct shared_medium *m, uint64_t pblk, void *block)
{
	nvefs_mutex_lock(&m->lock);
	memcpy(block, nvefs_cow_block(m->cow, pblk), 4096);
	nvefs_mutex_unlock(&m->lock);
}

void shared_write(struct shared_medium *m, uint64_t pblk, const void *block)
{
	nvefs_mutex_lock(&m->lock);
	shared_write_locked(m, pblk, block);
	nvefs_mutex_unlock(&m->lock);
}

void shared_write_locked(struct shared_medium *m, uint64_t pblk, const void *block)
{
	ck_assert_int_eq(nvefs_cow_write(m->cow, pblk * 4096, 4096, block, 0), 0);
}

uint32_t shared_count(struct shared_medium *m, uint32_t host, uint64_t from_ns, uint64_t to_ns)
{
	uint32_t n = 0;

	nvefs_mutex_lock(&m->lock);
	ck_assert_uint_lt(m->nnotes, HOSTS_NOTES);
	for (uint32_t i = 0; i < m->nnotes; i++)
		if (m->notes[i].host == host && m->notes[i].boot_ns > from_ns && m->notes[i].boot_ns <= to_ns &&
		    m->notes[i].pblk != NVEFS_CLAIM_PBLK && m->notes[i].pblk != NVEFS_BEAT_PBLK)
			n += m->notes[i].nblks;
	nvefs_mutex_unlock(&m->lock);
	return n;
}
