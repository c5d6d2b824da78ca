/* SPDX-License-Identifier: MIT */
#include "store/super.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "format/block.h"
#include "format/layout.h"
#include "store/mmp.h"
#include "store/state.h"

struct slot_search {
	struct nvefs_super best;
	bool found;
	int err; /* the most telling failure */
	const char *why;
	uint64_t why_pblk;
};

/* Which failure says most, should no slot be good. */
static int weight(int err)
{
	switch (err) {
	case -ENOTSUP:
		return 4;
	case -EUCLEAN:
		return 3;
	case -EMEDIUMTYPE:
		return 1;
	default:
		return 2;
	}
}

/* Of two that are as new the one that asks for more care. */
static bool better(const struct nvefs_super *sb, const struct nvefs_super *best)
{
	return sb->seq > best->seq || (sb->seq == best->seq && nvefs_super_mmp(sb) && !nvefs_super_mmp(best));
}

static void search_slot(struct slot_search *s, struct nvefs_queue *q, uint64_t pblk, void *buf)
{
	const char *why = "cannot be read";
	struct nvefs_super sb;
	int err = nvefs_queue_read(q, pblk, 1, buf);

	if (!err)
		err = nvefs_super_decode(buf, pblk, &sb, &why);
	if (!err && (!s->found || better(&sb, &s->best))) {
		s->best = sb;
		s->found = true;
	}
	if (err && (!s->err || weight(err) > weight(s->err))) {
		s->err = err;
		s->why = why;
		s->why_pblk = pblk;
	}
}

int nvefs_super_read(struct nvefs_dev *dev, struct nvefs_queue *q, struct nvefs_super *ret_sb,
		     struct nvefs_error *err)
{
	const char *target = nvefs_dev_identity(dev)->target;
	uint64_t dev_blks = nvefs_dev_limits(dev)->nblks;
	struct slot_search s = {0};
	void *buf;

	if (dev_blks < NVEFS_MIN_BLKS)
		return nvefs_error_set(err, -EMEDIUMTYPE, "%s: too small to hold an nvefs file system",
				       target);
	buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	if (!buf)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", target);
	search_slot(&s, q, 0, buf);
	search_slot(&s, q, 1, buf);
	search_slot(&s, q, nvefs_layout_blks(dev_blks) - 1, buf);
	nvefs_buf_free(buf);
	if (!s.found && s.err == -EMEDIUMTYPE)
		return nvefs_error_set(err, s.err, "%s: no nvefs file system here: mkfs.nvefs makes one",
				       target);
	if (!s.found)
		return nvefs_error_set(err, s.err, "%s: no usable superblock: block %llu: %s", target,
				       (unsigned long long)s.why_pblk, s.why);
	if (s.best.nblks > dev_blks)
		return nvefs_error_set(err, -EUCLEAN,
				       "%s: the file system has %llu blocks, the device only %llu",
				       target, (unsigned long long)s.best.nblks,
				       (unsigned long long)dev_blks);
	*ret_sb = s.best;
	return 0;
}

int nvefs_super_agree(struct nvefs_queue *q, const struct nvefs_super *sb)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	bool agree = true;
	const char *why;

	if (!buf)
		return -ENOMEM;
	for (unsigned int slot = 0; slot < NVEFS_SUPER_SLOTS; slot++) {
		uint64_t pblk = nvefs_super_slot_pblk(sb->nblks, slot);
		struct nvefs_super other;

		if (!nvefs_queue_read(q, pblk, 1, buf) && !nvefs_super_decode(buf, pblk, &other, &why))
			agree &= nvefs_super_same_facts(sb, &other);
	}
	nvefs_buf_free(buf);
	return agree ? 0 : -EUCLEAN;
}

int nvefs_super_write_slot(struct nvefs_dev *dev, struct nvefs_queue *q, const struct nvefs_super *sb,
			   unsigned int slot)
{
	uint64_t pblk = nvefs_super_slot_pblk(sb->nblks, slot);
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err;

	if (!buf)
		return -ENOMEM;
	nvefs_super_encode(sb, pblk, buf);
	nvefs_block_seal(buf);
	err = nvefs_queue_write(q, pblk, 1, buf, 0);
	nvefs_buf_free(buf);
	if (!err && nvefs_dev_limits(dev)->volatile_cache)
		err = nvefs_queue_flush(q);
	return err;
}

int nvefs_store_super_write(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_super *sb)
{
	struct nvefs_super next = *sb;
	int err = 0;

	if (st->opts.read_only || nvefs_store_error(st))
		return -EROFS;
	nvefs_mutex_lock(&st->super_write);
	next.seq = st->super.seq + 1;
	for (unsigned int slot = 0; slot < NVEFS_SUPER_SLOTS && !err; slot++)
		err = nvefs_heal_result(st, nvefs_super_write_slot(st->dev, q, &next, slot));
	if (!err)
		err = nvefs_mmp_confirm(st->opts.mmp);
	if (!err) {
		nvefs_mutex_lock(&st->super_lock);
		st->super.seq = next.seq;
		memcpy(st->super.label, next.label, sizeof(next.label));
		nvefs_mutex_unlock(&st->super_lock);
	}
	nvefs_mutex_unlock(&st->super_write);
	return err;
}

/* NULL: the slot is as it must be; else what is wrong. */
static const char *slot_fault(struct nvefs_store *st, struct nvefs_queue *q, uint64_t pblk, void *buf)
{
	const char *why = "cannot be read";
	struct nvefs_super sb;

	if (nvefs_queue_read(q, pblk, 1, buf) || nvefs_super_decode(buf, pblk, &sb, &why))
		return why;
	if (sb.seq != st->super.seq || memcmp(sb.uuid, st->super.uuid, sizeof(sb.uuid)) != 0)
		return nvefs_block_status_text(NVEFS_BLOCK_STALE);
	return NULL;
}

static void slot_heal(struct nvefs_store *st, struct nvefs_queue *q, unsigned int slot, const char *why)
{
	unsigned long long pblk = nvefs_super_slot_pblk(st->super.nblks, slot);

	nvefs_stat_add(st, copies_bad, 1);
	nvefs_log(NVEFS_LOG_WARN, "superblock slot %u (block %llu) is bad: %s; the others are good", slot,
		  pblk, why);
	if (st->opts.read_only || nvefs_store_error(st))
		return;
	if (nvefs_heal_result(st, nvefs_super_write_slot(st->dev, q, &st->super, slot)))
		nvefs_stat_add(st, copies_unhealed, 1);
	else
		nvefs_stat_add(st, copies_healed, 1);
}

int nvefs_super_heal(struct nvefs_store *st, struct nvefs_queue *q)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	if (!buf)
		return -ENOMEM;
	nvefs_mutex_lock(&st->super_write);
	for (unsigned int slot = 0; slot < NVEFS_SUPER_SLOTS; slot++) {
		uint64_t pblk = nvefs_super_slot_pblk(st->super.nblks, slot);
		const char *why = slot_fault(st, q, pblk, buf);

		if (why)
			slot_heal(st, q, slot, why);
	}
	nvefs_mutex_unlock(&st->super_write);
	nvefs_buf_free(buf);
	return 0;
}

void nvefs_store_super_copy(struct nvefs_store *st, struct nvefs_super *ret_sb)
{
	nvefs_mutex_lock(&st->super_lock);
	*ret_sb = st->super;
	nvefs_mutex_unlock(&st->super_lock);
}
