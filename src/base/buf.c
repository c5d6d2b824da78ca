/* SPDX-License-Identifier: MIT */
#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t round_up(size_t n)
{
	return (n + NVEFS_BUF_ALIGN - 1) & ~(size_t)(NVEFS_BUF_ALIGN - 1);
}

void *nvefs_buf_new(size_t size_bytes)
{
	void *p;

	if (posix_memalign(&p, NVEFS_BUF_ALIGN, round_up(size_bytes ? size_bytes : 1)))
		return NULL;
	return p;
}

void *nvefs_buf_new_zeroed(size_t size_bytes)
{
	void *p = nvefs_buf_new(size_bytes);

	if (p)
		memset(p, 0, round_up(size_bytes));
	return p;
}

void nvefs_buf_free(void *buf)
{
	free(buf);
}

int nvefs_buf_pool_init(struct nvefs_buf_pool *p, size_t size_bytes, uint32_t max_free)
{
	p->free = calloc(max_free ? max_free : 1, sizeof(*p->free));
	if (!p->free)
		return -ENOMEM;
	p->nfree = 0;
	p->max_free = max_free;
	p->size_bytes = size_bytes;
	return 0;
}

void nvefs_buf_pool_done(struct nvefs_buf_pool *p)
{
	while (p->nfree)
		nvefs_buf_free(p->free[--p->nfree]);
	free(p->free);
	p->free = NULL;
}

void *nvefs_buf_pool_get(struct nvefs_buf_pool *p)
{
	return p->nfree ? p->free[--p->nfree] : nvefs_buf_new(p->size_bytes);
}

void nvefs_buf_pool_put(struct nvefs_buf_pool *p, void *buf)
{
	if (buf && p->nfree < p->max_free)
		p->free[p->nfree++] = buf;
	else
		nvefs_buf_free(buf);
}
