/* SPDX-License-Identifier: MIT */
/*
 * Memory for device transfers: aligned to 4096 bytes, so that direct I/O and
 * passthrough take it without a bounce. A pool keeps buffers of one size for
 * one thread's reuse; it is not locked and belongs to one thread.
 */
#ifndef NVEFS_BASE_BUF_H
#define NVEFS_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#define NVEFS_BUF_ALIGN 4096u

/* `size_bytes` rounded up to the alignment, uninitialised; NULL when memory is out. */
void *nvefs_buf_new(size_t size_bytes);
void *nvefs_buf_new_zeroed(size_t size_bytes);
void nvefs_buf_free(void *buf); /* NULL is fine */

struct nvefs_buf_pool {
	void **free;
	uint32_t nfree, max_free;
	size_t size_bytes;
};
/* Keeps at most `max_free` idle buffers. 0 or -ENOMEM. */
int nvefs_buf_pool_init(struct nvefs_buf_pool *p, size_t size_bytes, uint32_t max_free);
void nvefs_buf_pool_done(struct nvefs_buf_pool *p);
void *nvefs_buf_pool_get(struct nvefs_buf_pool *p); /* NULL when memory is out */
void nvefs_buf_pool_put(struct nvefs_buf_pool *p, void *buf);

#endif
