/* SPDX-License-Identifier: MIT */
/* What lies outside of transactions, read straight from the device: superblock slots, journal headers; then the store. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "context.h"
#include "format/block.h"
#include "format/journal.h"
#include "format/layout.h"
#include "mend.h"
#include "store/copies.h"
#include "store/super.h"

struct slot {
	uint64_t pblk;
	int err;
	const char *why;
	struct nvefs_super sb;
};

static void read_slot(struct nvefs_check_ctx *c, void *buf, struct slot *s)
{
	s->why = "cannot be read";
	s->err = nvefs_queue_read(c->q, s->pblk, 1, buf);
	if (!s->err)
		s->err = nvefs_super_decode(buf, s->pblk, &s->sb, &s->why);
}

/* Settings change, but not without being counted. */
static bool contradict(const struct nvefs_super *a, const struct nvefs_super *b)
{
	return !nvefs_super_same_facts(a, b) || (a->seq == b->seq && !nvefs_super_same_settings(a, b));
}

/*
 * Facts do not change, and so the slots outvote one that says something else;
 * among those that agree the one with the highest sequence number counts. NULL: none is valid.
 */
static struct slot *best_of(struct slot *slots)
{
	struct slot *best = NULL;
	int best_votes = 0;

	for (int i = 0; i < NVEFS_SUPER_SLOTS; i++) {
		int votes = 0;

		if (slots[i].err)
			continue;
		for (int k = 0; k < NVEFS_SUPER_SLOTS; k++)
			votes += !slots[k].err && !contradict(&slots[k].sb, &slots[i].sb);
		if (!best || votes > best_votes || (votes == best_votes && slots[i].sb.seq > best->sb.seq)) {
			best = &slots[i];
			best_votes = votes;
		}
	}
	return best;
}

static void report_slot(struct nvefs_check_ctx *c, uint32_t code, const struct slot *s, unsigned int nr)
{
	struct nvefs_problem p = {.code = code, .pblk = s->pblk, .found = nr, .why = s->why};

	nvefs_check_report(c, &p);
}

/* No slot can be used: tell "no nvefs" from "a newer one" from "damaged". */
static int no_slot(struct nvefs_check_ctx *c, const struct slot *slots)
{
	const char *target = nvefs_dev_identity(c->dev)->target;
	bool damaged = false;

	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++) {
		if (slots[i].err == -ENOTSUP)
			return nvefs_error_set(c->err, -ENOTSUP, "%s: %s", target, slots[i].why);
		damaged |= slots[i].err == -EUCLEAN;
	}
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++)
		if (slots[i].err == -EIO || slots[i].err == -ENOMEM)
			return nvefs_error_set(c->err, slots[i].err, "%s: superblock slot %u cannot be read: %s",
					       target, i, strerror(-slots[i].err));
	if (!damaged)
		return nvefs_error_set(c->err, -EMEDIUMTYPE,
				       "%s: there is no nvefs file system: make one with mkfs.nvefs", target);
	c->past->repair = NVEFS_REPAIR_NONE; /* there is nothing to go by */
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++)
		report_slot(c, NVEFS_P_SUPER_DAMAGED, &slots[i], i);
	c->stop = true;
	return 0;
}

/* Most of the slots are of a newer version: they are not damaged. */
static bool newer(const struct slot *slots)
{
	int n = 0;

	for (int i = 0; i < NVEFS_SUPER_SLOTS; i++)
		n += slots[i].err == -ENOTSUP;
	return n > NVEFS_SUPER_SLOTS / 2;
}

static int check_slots(struct nvefs_check_ctx *c, void *buf)
{
	uint64_t dev_blks = nvefs_dev_limits(c->dev)->nblks;
	struct slot slots[NVEFS_SUPER_SLOTS] = {{0}};
	struct slot *best;

	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++) {
		slots[i].pblk = nvefs_super_slot_pblk(nvefs_layout_blks(dev_blks), i);
		read_slot(c, buf, &slots[i]);
	}
	best = best_of(slots);
	if (!best || newer(slots))
		return no_slot(c, slots);
	c->sb = best->sb;
	if (c->sb.nblks > dev_blks)
		c->past->repair = NVEFS_REPAIR_NONE; /* a part of it is elsewhere, maybe whole */
	/* The device may have grown since: the last slot is where the file system ends. */
	if (c->sb.nblks <= dev_blks && slots[2].pblk != nvefs_super_slot_pblk(c->sb.nblks, 2)) {
		slots[2].pblk = nvefs_super_slot_pblk(c->sb.nblks, 2);
		read_slot(c, buf, &slots[2]);
	}
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++) {
		if (slots[i].err)
			report_slot(c, NVEFS_P_SUPER_DAMAGED, &slots[i], i);
		else if (contradict(&slots[i].sb, &best->sb))
			report_slot(c, NVEFS_P_SUPER_DIFFERS, &slots[i], i);
		else if (slots[i].sb.seq != best->sb.seq)
			report_slot(c, NVEFS_P_SUPER_OLD, &slots[i], i);
	}
	return 0;
}

/* Those that differ in anything from what counts, one after the other, each flushed. */
int nvefs_mend_super(struct nvefs_check_ctx *c)
{
	struct slot s = {0};
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err = buf ? 0 : -ENOMEM;

	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS && !err; i++) {
		s.pblk = nvefs_super_slot_pblk(c->sb.nblks, i);
		read_slot(c, buf, &s);
		if (s.err || contradict(&s.sb, &c->sb) || s.sb.seq != c->sb.seq)
			err = nvefs_super_write_slot(c->dev, c->q, &c->sb, i);
	}
	nvefs_buf_free(buf);
	return err;
}

int nvefs_pass_super(struct nvefs_check_ctx *c)
{
	struct nvefs_problem p = {.code = NVEFS_P_DEVICE_SHORT, .found = nvefs_dev_limits(c->dev)->nblks};
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err;

	if (!buf)
		return -ENOMEM;
	err = check_slots(c, buf);
	nvefs_buf_free(buf);
	if (err || c->stop)
		return err;
	nvefs_check_mmp(c);
	memcpy(c->res->uuid, nvefs_super_public_uuid(&c->sb), sizeof(c->res->uuid));
	memcpy(c->res->label, c->sb.label, sizeof(c->res->label));
	c->res->nblks = c->sb.nblks;
	p.expected = c->sb.nblks;
	if (p.found < p.expected) {
		nvefs_check_report(c, &p);
		c->stop = true;
	}
	return 0;
}

/* One of the two is enough: they are written in turns, and a power cut may tear the one being written. */
static int check_jheaders(struct nvefs_check_ctx *c)
{
	struct nvefs_problem bad = {.code = NVEFS_P_JHEADERS};
	struct nvefs_jheader h;
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_copies copies;
	bool good = false;

	if (!buf)
		return -ENOMEM;
	for (unsigned int i = 0; i < NVEFS_JOURNAL_HEADERS; i++) {
		struct nvefs_block_expect want = {.pblk = nvefs_journal_header_pblk(&c->sb, i),
						  .twin = nvefs_journal_header_twin(&c->sb, i),
						  .uuid = c->sb.uuid,
						  .type = NVEFS_BT_JHEADER,
						  .super = &c->sb};
		struct nvefs_problem p = {
			.code = NVEFS_P_JHEADER_SLOT, .pblk = want.pblk, .found = i, .why = "cannot be read"};
		enum nvefs_block_status status = NVEFS_BLOCK_CONTENT;

		int err = nvefs_copies_read(c->q, &want, false, buf, &copies);

		if (!err || err == -EUCLEAN) {
			status = err ? copies.status[0] : NVEFS_BLOCK_OK;
			if (status == NVEFS_BLOCK_OK && nvefs_jheader_decode(buf, &c->sb, &h))
				status = NVEFS_BLOCK_CONTENT;
			p.why = nvefs_block_status_text(status);
		}
		good |= status == NVEFS_BLOCK_OK;
		if (status != NVEFS_BLOCK_OK)
			nvefs_check_report(c, &p);
		bad.why = p.why;
	}
	nvefs_buf_free(buf);
	if (!good) {
		nvefs_check_report(c, &bad);
		c->stop = true;
	}
	return 0;
}

int nvefs_pass_journal(struct nvefs_check_ctx *c)
{
	struct nvefs_store_opts opts = {
		.read_only = true, .replay_in_memory = c->opts->replay_in_memory, .mmp = c->past->mmp};
	struct nvefs_error why = {""};
	struct nvefs_problem p = {.code = NVEFS_P_OPEN, .why = why.text};
	struct nvefs_store_stats stats;
	int err = check_jheaders(c);

	if (err || c->stop)
		return err;
	err = nvefs_store_open(c->dev, &opts, &c->st, &why);
	if (err == -EUCLEAN || err == -EMEDIUMTYPE) {
		nvefs_check_report(c, &p);
		c->stop = true;
		return 0;
	}
	if (err)
		return nvefs_error_set(c->err, err, "%s", why.text);
	err = nvefs_ahead_init(&c->ahead, c->q, c->sb.nblks);
	if (err)
		return err;
	nvefs_store_stats(c->st, &stats);
	c->res->replayed_txns = stats.recovered_txns;
	nvefs_store_rdlock(c->st);
	c->root = *nvefs_store_root(c->st);
	nvefs_store_rdunlock(c->st);
	c->res->free_blks = c->root.free_blks;
	err = nvefs_check_fixed_copies(c);
	if (err)
		return err;
	if (c->opts->quick && !c->problems && !c->res->problems) {
		c->res->skipped = true;
		c->stop = true;
	}
	return 0;
}
