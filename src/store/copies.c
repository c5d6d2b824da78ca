/* SPDX-License-Identifier: MIT */
#include "store/copies.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "format/content.h"
#include "store/ahead.h"

/* Read and judge one copy. */
static void copy_read(struct nvefs_queue *q, struct nvefs_ahead *ahead, const struct nvefs_block_expect *want, int i,
		      void *buf, struct nvefs_copies *c)
{
	uint64_t pblk = nvefs_copies_pblk(want, i);

	c->err[i] = ahead && nvefs_ahead_get(ahead, pblk, buf) ? 0 : nvefs_queue_read(q, pblk, 1, buf);
	if (!c->err[i])
		c->status[i] = nvefs_block_check(buf, want);
	if (c->err[i] || c->status[i])
		c->bad |= (uint8_t)(1u << i);
}

/* Damage says more than a device that does not answer: it is what fsck can mend. */
static int copies_errno(const struct nvefs_copies *c)
{
	for (int i = 0; i < 2; i++)
		if (c->bad & 1u << i && !c->err[i])
			return -EUCLEAN;
	return c->err[0];
}

/* Both were read. True when the content of the second is the better one. */
static bool twin_is_better(struct nvefs_copies *c, const void *first, const void *twin)
{
	uint64_t a = nvefs_block_txn(first), b = nvefs_block_txn(twin);

	if (c->bad)
		return c->bad == NVEFS_COPY_FIRST;
	if (a == b)
		return false;
	c->status[a > b] = NVEFS_BLOCK_STALE;
	c->bad = a > b ? NVEFS_COPY_TWIN : NVEFS_COPY_FIRST;
	return b > a;
}

/* Copy i is intact as far as its header and checksum tell, and yet cannot be true. */
static bool is_odd(const struct nvefs_block_expect *want, const struct nvefs_copies *c, int i, const void *buf)
{
	return want->super && !(c->bad & 1u << i) && !nvefs_content_possible(want->super, buf);
}

/*
 * Both copies are written with the same bytes. Should they differ all the same (bad memory at one of the two
 * writings), the one that can be true is.
 */
static void judge_content(const struct nvefs_block_expect *want, struct nvefs_copies *c, const void *first,
			  const void *twin)
{
	bool odd[2] = {is_odd(want, c, 0, first), is_odd(want, c, 1, twin)};
	int i = odd[0] ? 0 : 1;

	if (c->bad || odd[0] == odd[1] || nvefs_block_txn(first) != nvefs_block_txn(twin))
		return;
	c->status[i] = NVEFS_BLOCK_CONTENT;
	c->bad = (uint8_t)(1u << i);
}

int nvefs_copies_read(struct nvefs_queue *q, const struct nvefs_block_expect *want, bool both, void *buf,
		      struct nvefs_copies *ret)
{
	return nvefs_copies_read_ahead(q, NULL, want, both, buf, ret);
}

int nvefs_copies_read_ahead(struct nvefs_queue *q, struct nvefs_ahead *ahead, const struct nvefs_block_expect *want,
			    bool both, void *buf, struct nvefs_copies *ret)
{
	struct nvefs_copies c = {.good = -1};
	void *twin = NULL;

	copy_read(q, ahead, want, 0, buf, &c);
	if (c.err[0] == -ENOMEM)
		return -ENOMEM;
	if (!c.bad)
		c.good = 0;
	if (want->twin && (c.bad || both || is_odd(want, &c, 0, buf))) {
		twin = nvefs_buf_new(NVEFS_BLOCK_SIZE);
		if (!twin)
			return -ENOMEM;
		copy_read(q, ahead, want, 1, twin, &c);
		if (c.err[1] == -ENOMEM) {
			nvefs_buf_free(twin);
			return -ENOMEM;
		}
		judge_content(want, &c, buf, twin);
		if (twin_is_better(&c, buf, twin)) {
			c.good = 1;
			memcpy(buf, twin, NVEFS_BLOCK_SIZE);
		}
		nvefs_buf_free(twin);
	}
	*ret = c;
	return c.good < 0 ? copies_errno(&c) : 0;
}

int nvefs_copies_rewrite(struct nvefs_queue *q, const struct nvefs_block_expect *want, const void *buf,
			 uint8_t bad, bool flush)
{
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		if (bad & 1u << i)
			err = nvefs_queue_write(q, nvefs_copies_pblk(want, i), 1, buf, 0);
	return err || !flush ? err : nvefs_queue_flush(q);
}

const char *nvefs_copies_text(const struct nvefs_copies *c, int i)
{
	return c->err[i] ? strerror(-c->err[i]) : nvefs_block_status_text(c->status[i]);
}
