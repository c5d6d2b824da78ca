/* SPDX-License-Identifier: MIT */
/*
 * Recovery: steps 10 and 11 of journal.h. The whole log (at most 64 MiB) is
 * read into memory, judged there, and the images are written home from there.
 * All of it is untrusted. A block of the log that cannot be read matters where
 * the next group would need it, and nowhere else.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/buf.h"
#include "base/hash.h"
#include "format/block.h"
#include "format/journal.h"
#include "format/layout.h"
#include "store/checkpoint.h"
#include "store/iobatch.h"
#include "store/journal.h"
#include "store/state.h"

#define READ_BLKS 256u
#define READ_DEPTH 32u

struct recovery {
	struct nvefs_store *st;
	struct nvefs_queue *q;
	struct nvefs_error *err;
	const char *target;
	struct nvefs_jheader head;
	struct nvefs_copies head_copies; /* of its slot */
	uint8_t *log;
	uint8_t *unread;	  /* bitmap of log blocks that cannot be read; NULL: none */
	struct nvefs_home *homes; /* images of the groups taken; room for two of each block of the log */
	uint32_t nhomes;
	uint64_t txn; /* of the next group */
	uint32_t pos; /* where it would start */
	uint64_t ngroups;
};

static int fail(const struct recovery *r, int err, const char *what)
{
	return nvefs_error_set(r->err, err, "%s: journal: %s", r->target, what);
}

static void *log_at(const struct recovery *r, uint32_t pos)
{
	return r->log + (size_t)(pos % r->head.log_blks) * NVEFS_BLOCK_SIZE;
}

/* The block at this position is what a group of transaction txn (0: any) has there. */
static bool log_is(const struct recovery *r, uint32_t pos, uint16_t type, uint64_t txn)
{
	pos %= r->head.log_blks;
	const struct nvefs_block_expect want = {.pblk = r->st->journal.log_pblk + pos,
						.txn = txn,
						.uuid = r->st->super.uuid,
						.type = type};

	return nvefs_block_type(log_at(r, pos)) == type &&
	       nvefs_block_check(log_at(r, pos), &want) == NVEFS_BLOCK_OK;
}

static int read_header_slot(struct recovery *r, unsigned int slot, void *buf, bool *found)
{
	const struct nvefs_super *sb = &r->st->super;
	const struct nvefs_block_expect want = {.pblk = nvefs_journal_header_pblk(sb, slot),
						.twin = nvefs_journal_header_twin(sb, slot),
						.uuid = sb->uuid,
						.type = NVEFS_BT_JHEADER,
						.super = sb};
	struct nvefs_copies c;
	struct nvefs_jheader h;
	int err = nvefs_copies_read(r->q, &want, true, buf, &c);

	if (err)
		return err == -EUCLEAN ? 0 : err;
	if (nvefs_jheader_decode(buf, sb, &h) != 0)
		return 0;
	if (!*found || h.seq > r->head.seq) {
		r->head = h;
		r->head_copies = c;
	}
	*found = true;
	return 0;
}

static struct nvefs_block_expect header_place(const struct recovery *r)
{
	unsigned int slot = r->head.seq % NVEFS_JOURNAL_HEADERS;

	return (struct nvefs_block_expect){.pblk = nvefs_journal_header_pblk(&r->st->super, slot),
					   .twin = nvefs_journal_header_twin(&r->st->super, slot)};
}

/* A torn slot is the normal trace of a cut: the other one holds, and the log from its tail on, too. */
static int read_header(struct recovery *r)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	bool found = false;
	int err0, err1;

	if (!buf)
		return fail(r, -ENOMEM, "out of memory");
	err0 = read_header_slot(r, 0, buf, &found);
	err1 = read_header_slot(r, 1, buf, &found);
	nvefs_buf_free(buf);
	if (found && r->head_copies.bad) {
		const struct nvefs_block_expect at = header_place(r);

		nvefs_heal_note(r->st, &at, &r->head_copies);
	}
	if (found)
		return 0;
	if (err0 || err1)
		return fail(r, err0 ? err0 : err1, "cannot read its header");
	return fail(r, -EUCLEAN, "both headers are damaged");
}

/* The header that counts, as it is in its good copy, over the bad one. */
static void heal_header(struct recovery *r)
{
	const struct nvefs_block_expect at = header_place(r);
	void *buf;

	if (!r->head_copies.bad)
		return;
	buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	if (!buf)
		return;
	nvefs_jheader_encode(&r->head, &r->st->super, r->head.seq % NVEFS_JOURNAL_HEADERS, buf);
	nvefs_block_seal(buf);
	if (nvefs_copies_rewrite(r->q, &at, buf, r->head_copies.bad, false))
		nvefs_stat_add(r->st, copies_unhealed, 1);
	else
		nvefs_stat_add(r->st, copies_healed, 1);
	nvefs_buf_free(buf);
}

/* Some block of the log cannot be read: find out which. They read as zeros, and are noted. */
static int read_log_singly(struct recovery *r)
{
	const struct nvefs_journal *j = &r->st->journal;

	r->unread = calloc((j->log_blks + 7) / 8, 1);
	if (!r->unread)
		return -ENOMEM;
	for (uint32_t i = 0, n; i < j->log_blks; i += n) {
		n = j->log_blks - i < READ_BLKS ? j->log_blks - i : READ_BLKS;
		if (!nvefs_queue_read(r->q, j->log_pblk + i, n, log_at(r, i)))
			continue;
		for (uint32_t k = i; k < i + n; k++) {
			if (!nvefs_queue_read(r->q, j->log_pblk + k, 1, log_at(r, k)))
				continue;
			memset(log_at(r, k), 0, NVEFS_BLOCK_SIZE);
			nvefs_bitmap_set(r->unread, k);
		}
	}
	return 0;
}

static int read_log(struct recovery *r)
{
	const struct nvefs_journal *j = &r->st->journal;
	struct nvefs_iobatch batch = {0};
	struct iovec *iov = NULL;
	int err = -ENOMEM;

	r->log = nvefs_buf_new((size_t)j->log_blks * NVEFS_BLOCK_SIZE);
	r->homes = calloc(2u * (size_t)j->log_blks, sizeof(*r->homes));
	iov = calloc(j->log_blks, sizeof(*iov));
	if (!r->log || !r->homes || !iov || nvefs_iobatch_init(&batch, r->q, READ_DEPTH) != 0)
		goto out;
	for (uint32_t i = 0; i < j->log_blks; i++)
		iov[i] = (struct iovec){log_at(r, i), NVEFS_BLOCK_SIZE};
	for (uint32_t i = 0, n; i < j->log_blks; i += n) {
		n = j->log_blks - i < READ_BLKS ? j->log_blks - i : READ_BLKS;
		nvefs_iobatch_submit(&batch, NVEFS_IO_READ, j->log_pblk + i, iov + i, n);
	}
	err = nvefs_iobatch_wait(&batch);
	if (err && err != -ENOMEM)
		err = read_log_singly(r);
out:
	nvefs_iobatch_done(&batch);
	free(iov);
	return err ? fail(r, err, strerror(-err)) : 0;
}

/* One of n blocks of the log from pos on could not be read. */
static bool is_unread(const struct recovery *r, uint32_t pos, uint32_t n)
{
	for (uint32_t i = 0; r->unread && i < n; i++)
		if (nvefs_bitmap_test(r->unread, (pos + i) % r->head.log_blks))
			return true;
	return false;
}

static int fail_unread(const struct recovery *r)
{
	return nvefs_error_set(r->err, -EIO,
			       "%s: journal: a block of the log cannot be read where transaction %llu "
			       "is, or would be: whether it was committed is not known",
			       r->target, (unsigned long long)r->txn);
}

static int check_image(struct recovery *r, const void *image, uint64_t home)
{
	const uint16_t type = nvefs_block_type(image);
	const struct nvefs_block_expect want = {
		.pblk = home, .twin = NVEFS_TWIN_ANY, .txn = r->txn, .uuid = r->st->super.uuid, .type = type};

	if (!nvefs_image_home_ok(image, &r->st->super))
		return -EUCLEAN;
	return nvefs_block_status_errno(nvefs_block_check(image, &want));
}

/* Note the images behind a descriptor at pos. */
static int take_images(struct recovery *r, uint32_t pos, uint32_t nimages)
{
	for (uint32_t i = 0; i < nimages; i++)
		r->homes[r->nhomes++] = (struct nvefs_home){
			.pblk = nvefs_jdesc_home(log_at(r, pos), i),
			.order = r->txn,
			.image = log_at(r, pos + 1 + i),
		};
	return 0;
}

static bool group_checksum_ok(const struct recovery *r, const struct nvefs_jcommit *c)
{
	struct nvefs_hash_stream s;
	bool ok;

	if (nvefs_hash_stream_init(&s, r->head.epoch) != 0)
		return false;
	for (uint32_t i = 0; i < c->nblks; i++)
		nvefs_hash_stream_feed(&s, log_at(r, r->pos + i), NVEFS_BLOCK_SIZE);
	ok = nvefs_hash_stream_value(&s) == c->group_checksum;
	nvefs_hash_stream_done(&s);
	return ok;
}

/* The descriptors and images of the next group; *ret_nblks: how far they go. 0: not a group. 1, -errno. */
static int walk_group(struct recovery *r, uint32_t *ret_nblks)
{
	struct nvefs_jdesc d;
	uint32_t n = 0, index = 0;

	while (log_is(r, r->pos + n, NVEFS_BT_JDESC, r->txn)) {
		const void *desc = log_at(r, r->pos + n);
		int err = nvefs_jdesc_decode(desc, &r->st->super, &d);

		if (err)
			return fail(r, err, "a descriptor is intact, but makes no sense");
		if (d.epoch != r->head.epoch || d.index != index)
			return 0;
		if (n + 1 + d.nimages >= r->head.log_blks ||
		    r->nhomes + d.nimages > r->head.log_blks)
			return 0;
		take_images(r, r->pos + n, d.nimages);
		n += 1 + d.nimages;
		index++;
	}
	*ret_nblks = n;
	return n > 0;
}

/* 1: a group was taken; 0: there is none. */
static int take_group(struct recovery *r)
{
	uint32_t first = r->nhomes, n = 0;
	struct nvefs_jcommit c;
	int rc = walk_group(r, &n);

	if (rc < 0)
		return rc;
	/* A group goes on there, ends there, or was never durable: which of these, cannot be told. */
	if (is_unread(r, r->pos + n, 1))
		return fail_unread(r);
	if (!rc || !log_is(r, r->pos + n, NVEFS_BT_JCOMMIT, r->txn) ||
	    nvefs_jcommit_decode(log_at(r, r->pos + n), &r->st->super, &c) != 0)
		goto none;
	if (c.epoch != r->head.epoch || c.nblks != n || c.nimages != r->nhomes - first)
		goto none;
	if (!nvefs_mutated(NVEFS_MUTATE_NO_GROUP_CHECK)) {
		if (is_unread(r, r->pos, n))
			return fail_unread(r);
		if (!group_checksum_ok(r, &c))
			goto none;
		for (uint32_t i = first; i < r->nhomes; i++)
			if (check_image(r, r->homes[i].image, r->homes[i].pblk) != 0)
				return fail(r, -EUCLEAN, "a group is intact, but an image in it is not");
	}
	r->pos = (r->pos + n + 1) % r->head.log_blks;
	r->txn++;
	r->ngroups++;
	return 1;
none:
	r->nhomes = first;
	return 0;
}

/* A commit block proves that everything before it was on the medium. */
static int check_nothing_newer(struct recovery *r)
{
	for (uint32_t pos = 0; pos < r->head.log_blks; pos++) {
		struct nvefs_jcommit c;

		if (!log_is(r, pos, NVEFS_BT_JCOMMIT, 0) ||
		    nvefs_jcommit_decode(log_at(r, pos), &r->st->super, &c) != 0)
			continue;
		if (c.epoch == r->head.epoch && c.txn >= r->txn)
			return nvefs_error_set(
				r->err, -EUCLEAN,
				"%s: journal: transaction %llu is damaged or missing, though transaction "
				"%llu was committed: the device lost or corrupted durable writes",
				r->target, (unsigned long long)r->txn, (unsigned long long)c.txn);
	}
	return 0;
}

static int scan(struct recovery *r)
{
	uint64_t blks = 0;
	int rc;

	r->txn = r->head.tail_txn;
	r->pos = r->head.tail_pos;
	do {
		uint32_t before = r->pos;

		rc = take_group(r);
		if (rc > 0)
			blks += (r->pos + r->head.log_blks - before) % r->head.log_blks;
	} while (rc > 0 && blks < r->head.log_blks);
	if (rc < 0)
		return rc;
	r->nhomes = nvefs_home_sort(r->homes, r->nhomes);
	if (nvefs_mutated(NVEFS_MUTATE_NO_GROUP_CHECK))
		return 0;
	return check_nothing_newer(r);
}

/* For reading only: the images are the content, and stay. */
static int keep_in_memory(struct recovery *r)
{
	for (uint32_t i = 0; i < r->nhomes; i++) {
		void *data = nvefs_buf_new(NVEFS_BLOCK_SIZE);
		struct nvefs_mblk *b;

		if (!data)
			return fail(r, -ENOMEM, "out of memory");
		memcpy(data, r->homes[i].image, NVEFS_BLOCK_SIZE);
		b = nvefs_cache_insert(r->st, r->homes[i].pblk, data, true);
		if (!b) {
			nvefs_buf_free(data);
			return fail(r, -ENOMEM, "out of memory");
		}
		b->replayed = true;
	}
	return 0;
}

static int write_back(struct recovery *r)
{
	struct nvefs_store *st = r->st;
	uint64_t epoch = r->head.epoch + !nvefs_mutated(NVEFS_MUTATE_NO_EPOCH);
	int err;

	if (nvefs_dev_limits(st->dev)->read_only)
		return fail(r, -EROFS,
			    "must be replayed, but the device is read-only: open it without recovery");
	heal_header(r);
	if (nvefs_mutated(NVEFS_MUTATE_HEADER_FIRST))
		nvefs_journal_write_header(st, r->q, epoch);
	err = nvefs_home_write(st, r->q, r->homes, r->nhomes);
	if (!err)
		err = nvefs_journal_write_header(st, r->q, epoch);
	return err ? fail(r, err, "writing during recovery failed") : 0;
}

static struct nvefs_block_expect root_place(const struct nvefs_super *sb)
{
	return (struct nvefs_block_expect){.pblk = sb->root_pblk,
					   .twin = nvefs_layout_root_twin(sb),
					   .uuid = sb->uuid,
					   .type = NVEFS_BT_ROOT,
					   .super = sb};
}

/*
 * The root block, from the cache if recovery has put it there. Its transaction
 * must be the last one there is: older, and a write home was lost; newer, and
 * the journal was.
 */
static int read_root(struct recovery *r, uint64_t min_txn, uint64_t max_txn)
{
	struct nvefs_store *st = r->st;
	const struct nvefs_block_expect want = root_place(&st->super);
	struct nvefs_copies c = {0};
	struct nvefs_mblk *b = nvefs_cache_peek(st, want.pblk);
	enum nvefs_block_status status;
	uint64_t txn;
	int err;

	if (!b) {
		void *data = nvefs_buf_new(NVEFS_BLOCK_SIZE);

		b = data ? nvefs_cache_insert(st, want.pblk, data, true) : NULL;
		if (!b) {
			nvefs_buf_free(data);
			return fail(r, -ENOMEM, "out of memory");
		}
		err = nvefs_copies_read(r->q, &want, true, data, &c);
		if (c.bad)
			nvefs_heal_note(st, &want, &c);
		if (!err && c.bad && !st->opts.read_only)
			nvefs_cache_heal_add(st, b, c.bad);
		if (err && err != -EUCLEAN)
			return nvefs_error_set(r->err, err, "%s: root block: %s", r->target,
					       strerror(-err));
	}
	status = nvefs_block_check(b->data, &want);
	txn = nvefs_block_txn(b->data);
	if (status == NVEFS_BLOCK_OK && txn < min_txn)
		status = NVEFS_BLOCK_STALE;
	if (status == NVEFS_BLOCK_OK && txn > max_txn)
		return nvefs_error_set(r->err, -EUCLEAN,
				       "%s: root block is of transaction %llu, but the journal ends with "
				       "%llu: the device lost durable writes",
				       r->target, (unsigned long long)txn, (unsigned long long)max_txn);
	if (status == NVEFS_BLOCK_OK && nvefs_root_decode(b->data, &st->super, &st->root) != 0)
		status = NVEFS_BLOCK_CONTENT;
	if (status != NVEFS_BLOCK_OK)
		return nvefs_error_set(r->err, -EUCLEAN, "%s: root block: %s", r->target,
				       nvefs_block_status_text(status));
	memcpy(&st->root_saved, &st->root, sizeof(st->root));
	st->root_blk = b;
	return 0;
}

/* Before anything is overwritten: an intact root block newer than the journal means that the journal is not whole. */
static int check_home_root(struct recovery *r)
{
	const struct nvefs_block_expect want = root_place(&r->st->super);
	struct nvefs_copies c;
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	int err;

	if (!buf)
		return fail(r, -ENOMEM, "out of memory");
	err = nvefs_copies_read(r->q, &want, true, buf, &c);
	if (!err && nvefs_block_txn(buf) >= r->txn)
		err = fail(r, -EUCLEAN, "its newest groups are missing: the device lost durable writes");
	else
		err = 0; /* torn by a cut; an image of it is in each group */
	nvefs_buf_free(buf);
	return err;
}

static void journal_setup(struct recovery *r)
{
	struct nvefs_journal *j = &r->st->journal;
	uint32_t quarter;

	j->log_pblk = nvefs_journal_log_pblk(&r->st->super, 0);
	j->log_blks = nvefs_journal_log_blks(&r->st->super);
	/* A group takes at most a quarter of the log, descriptors and commit block included. */
	quarter = j->log_blks / 4;
	j->max_blks = quarter - 1 - (quarter + NVEFS_JDESC_MAX) / (NVEFS_JDESC_MAX + 1);
}

static void set_position(struct recovery *r, uint64_t durable)
{
	struct nvefs_journal *j = &r->st->journal;

	j->epoch = r->head.epoch;
	j->header_seq = r->head.seq;
	j->tail_txn = r->head.tail_txn;
	j->tail_pos = r->head.tail_pos;
	j->head_pos = r->pos;
	r->st->txn_durable = r->st->txn_changed = durable;
	r->st->txn_running = durable + 1;
}

static int replay(struct recovery *r)
{
	const struct nvefs_store_opts *o = &r->st->opts;
	int err = read_log(r);

	if (!err)
		err = scan(r);
	if (!err && r->ngroups)
		err = check_home_root(r);
	if (err)
		return err;
	set_position(r, r->txn - 1);
	r->st->stats.recovered_txns = r->ngroups;
	r->st->stats.recovered_blks = r->nhomes;
	/* With nothing to replay the root block must be good as it is; nothing is written if it is not. */
	if (!r->ngroups)
		err = read_root(r, r->head.root_txn, r->txn - 1);
	if (err)
		return err;
	if (o->read_only && o->replay_in_memory)
		err = keep_in_memory(r);
	else if (!o->read_only || r->ngroups)
		err = write_back(r);
	if (err || !r->ngroups)
		return err;
	return read_root(r, r->txn - 1, r->txn - 1);
}

int nvefs_journal_recover(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_error *err)
{
	struct recovery r = {
		.st = st, .q = q, .err = err, .target = nvefs_dev_identity(st->dev)->target};
	int rc;

	journal_setup(&r);
	rc = read_header(&r);
	if (rc)
		return rc;
	if (st->opts.no_recovery) {
		r.pos = r.head.tail_pos;
		rc = read_root(&r, r.head.root_txn, UINT64_MAX);
		if (!rc)
			set_position(&r, nvefs_block_txn(st->root_blk->data));
		return rc;
	}
	rc = replay(&r);
	free(r.homes);
	free(r.unread);
	nvefs_buf_free(r.log);
	return rc;
}
