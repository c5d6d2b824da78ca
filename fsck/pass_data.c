/* SPDX-License-Identifier: MIT */
/* Read all data in use and compare it with the checksums of the segment maps. */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "context.h"

struct data_pass {
	void *buf; /* one window */
	uint64_t seen_blks;
};

static void report(struct nvefs_check_ctx *c, uint32_t code, uint64_t ino, uint64_t lblk, uint64_t pblk, int err)
{
	struct nvefs_problem p = {
		.code = code, .ino = ino, .lblk = lblk, .pblk = pblk, .why = err ? strerror(-err) : NULL};

	nvefs_check_report(c, &p);
}

/* Blocks of the window from `i` on that lie one after the other on the device. */
static uint32_t run_of(const struct nvefs_window *w, uint32_t i)
{
	uint32_t n = 1;

	while (i + n < NVEFS_WINDOW_BLKS && w->pblk[i + n] == w->pblk[i] + n)
		n++;
	return n;
}

static void check_run(struct nvefs_check_ctx *c, struct data_pass *d, uint64_t ino, uint64_t lblk,
		      const struct nvefs_window *w, uint32_t i, uint32_t n)
{
	uint64_t pblk = nvefs_went_pblk(w->pblk[i]);
	int err = nvefs_queue_read(c->q, pblk, n, d->buf);

	for (uint32_t j = 0; j < n; j++) {
		const char *block = (const char *)d->buf + (size_t)j * NVEFS_BLOCK_SIZE;

		/* One bad block must not condemn its neighbours. */
		int one = err && n > 1 ? nvefs_queue_read(c->q, pblk + j, 1, (void *)block) : err;

		c->res->data_checked_blks++;
		if (one)
			report(c, NVEFS_P_DATA_UNREADABLE, ino, lblk + j, pblk + j, one);
		else if (nvefs_hash(block, NVEFS_BLOCK_SIZE, c->sb.hash_seed) != w->csum[i + j])
			report(c, NVEFS_P_DATA_CHECKSUM, ino, lblk + j, pblk + j, 0);
	}
}

static int take_item(struct nvefs_check_ctx *c, void *arg, const struct nvefs_key *key, const void *val,
		     uint32_t len, uint64_t node_pblk)
{
	struct data_pass *d = arg;
	struct nvefs_window w;

	(void)node_pblk;
	if (!key->ino || key->kind != NVEFS_KIND_MAP || nvefs_map_decode(val, len, &c->sb, &w))
		return 0;
	for (uint32_t i = 0, n; i < NVEFS_WINDOW_BLKS; i += n) {
		n = 1;
		if (!w.pblk[i])
			continue;
		n = run_of(&w, i);
		d->seen_blks += n;
		if (nvefs_went_type(w.pblk[i]) == NVEFS_EXT_DATA)
			check_run(c, d, key->ino, key->offset * NVEFS_WINDOW_BLKS + i, &w, i, n);
	}
	return nvefs_check_progress(c, d->seen_blks, c->mapped_blks);
}

int nvefs_pass_data(struct nvefs_check_ctx *c)
{
	struct data_pass d = {0};
	struct nvefs_check_walk w = {.item = take_item, .arg = &d};
	int err;

	/* Another round will follow, and read what is there then. */
	if (!c->opts->data || c->todo.menders)
		return 0;
	d.buf = nvefs_buf_new((size_t)NVEFS_WINDOW_BLKS * NVEFS_BLOCK_SIZE);
	if (!d.buf)
		return -ENOMEM;
	err = nvefs_check_walk(c, &w);
	nvefs_buf_free(d.buf);
	return err;
}
