/* SPDX-License-Identifier: MIT */
/*
 * Second copies. A block of which one copy is good is used by the store as if
 * nothing were wrong with it; here both are looked at, and the bad one is
 * written anew, in place, from the good one. That needs no store and no
 * transaction: the journal has been replayed, and nobody else writes.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "format/journal.h"
#include "format/layout.h"
#include "mend.h"

static int remember(struct nvefs_check_ctx *c, const struct nvefs_block_expect *want, uint8_t bad)
{
	struct nvefs_todo *t = &c->todo;

	if (t->ncopies == t->max_copies) {
		size_t max = t->max_copies ? t->max_copies * 2 : 16;
		struct nvefs_check_copy *tab = reallocarray(t->copies, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		t->copies = tab;
		t->max_copies = max;
	}
	t->copies[t->ncopies++] = (struct nvefs_check_copy){
		.at = {.pblk = want->pblk, .twin = want->twin, .txn = want->txn}, .type = want->type, .bad = bad};
	return 0;
}

static int report_bad(struct nvefs_check_ctx *c, uint32_t code, const struct nvefs_block_expect *want,
		      const struct nvefs_copies *copies)
{
	struct nvefs_problem p = {.code = code,
				  .pblk = nvefs_copies_pblk(want, !copies->good),
				  .found = nvefs_copies_pblk(want, copies->good),
				  .why = nvefs_copies_text(copies, !copies->good)};

	if (!copies->bad || copies->good < 0)
		return 0;
	nvefs_check_report(c, &p);
	return remember(c, want, copies->bad);
}

int nvefs_check_copies(struct nvefs_check_ctx *c, struct nvefs_block_ref at, uint16_t type)
{
	struct nvefs_copies_look look;
	struct nvefs_copies copies;
	struct nvefs_block_expect want;
	int err;

	if (!at.twin)
		return 0;
	nvefs_store_rdlock(c->st);
	nvefs_copies_look(c->st, at, type, &look);
	nvefs_store_rdunlock(c->st);
	look.ahead = &c->ahead;
	err = nvefs_copies_check(c->st, c->q, &look, &copies);
	if (err)
		return err == -ENOMEM ? err : 0; /* none is good: told where the block is read */
	want = (struct nvefs_block_expect){
		.pblk = at.pblk, .twin = at.twin, .txn = look.at.txn, .uuid = c->sb.uuid, .type = type};
	return report_bad(c, NVEFS_P_COPY_BAD, &want, &copies);
}

/* A power cut leaves such a slot, too: the one that was being written. */
static int check_header(struct nvefs_check_ctx *c, unsigned int slot, void *buf)
{
	const struct nvefs_block_expect want = {.pblk = nvefs_journal_header_pblk(&c->sb, slot),
						.twin = nvefs_journal_header_twin(&c->sb, slot),
						.uuid = c->sb.uuid,
						.type = NVEFS_BT_JHEADER,
						.super = &c->sb};
	struct nvefs_copies copies;
	int err = nvefs_copies_read(c->q, &want, true, buf, &copies);

	if (err)
		return err == -ENOMEM ? err : 0;
	return report_bad(c, NVEFS_P_COPY_HEADER, &want, &copies);
}

int nvefs_check_fixed_copies(struct nvefs_check_ctx *c)
{
	const struct nvefs_block_ref root = {.pblk = c->sb.root_pblk, .twin = nvefs_layout_root_twin(&c->sb)};
	void *buf;
	int err;

	if (!nvefs_super_dup(&c->sb))
		return 0;
	buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	err = buf ? 0 : -ENOMEM;
	for (unsigned int i = 0; i < NVEFS_JOURNAL_HEADERS && !err; i++)
		err = check_header(c, i, buf);
	nvefs_buf_free(buf);
	return err ? err : nvefs_check_copies(c, root, NVEFS_BT_ROOT);
}

int nvefs_mend_copies(struct nvefs_check_ctx *c)
{
	bool flush = nvefs_dev_limits(c->dev)->volatile_cache;
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err = buf ? 0 : -ENOMEM;

	for (size_t i = 0; i < c->todo.ncopies && !err; i++) {
		const struct nvefs_check_copy *k = &c->todo.copies[i];
		const struct nvefs_block_expect want = {.pblk = k->at.pblk,
							.twin = k->at.twin,
							.txn = k->at.txn,
							.uuid = c->sb.uuid,
							.type = k->type,
							.super = &c->sb};
		struct nvefs_copies copies;

		err = nvefs_copies_read(c->q, &want, true, buf, &copies);
		/* What the device does not take stays as it is: the next round tells. */
		if (!err && copies.bad)
			(void)nvefs_copies_rewrite(c->q, &want, buf, copies.bad, flush);
		if (err != -ENOMEM)
			err = 0;
	}
	nvefs_buf_free(buf);
	return err;
}
