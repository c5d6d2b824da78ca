/* SPDX-License-Identifier: MIT */
/*
 * The second half of a write: places for the blocks that are not shared, the
 * device commands, and, only when all of them have completed, the remap.
 * Nothing of a chunk is mapped when any of its commands failed.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "fs/window.h"
#include "fs/write.h"
#include "store/mutation.h"

static void write_done(struct nvefs_op *op);
static int remap(struct nvefs_op *op);

/* Give back what the chunk holds: nothing of it was mapped. */
static void release_places(struct nvefs_op *op)
{
	struct nvefs_store *st = op->w->fs->st;
	uint32_t i;

	for (i = 0; i < op->nblks; i++) {
		uint64_t pblk = nvefs_went_pblk(op->map[i]);

		if (op->how[i] == NVEFS_HOW_NEW_DOUBT)
			nvefs_block_retire(st, pblk, 1);
		else if (op->how[i] == NVEFS_HOW_NEW)
			nvefs_block_unreserve(st, pblk, 1);
		else if (op->how[i] == NVEFS_HOW_SHARED || op->how[i] == NVEFS_HOW_PLACE)
			nvefs_data_unpin(op->w->fs, pblk, op->csum[i]);
		op->how[i] = NVEFS_HOW_NONE;
	}
}

static void place_failed(struct nvefs_op *op, int err)
{
	release_places(op);
	if (err != -ENOSPC || !nvefs_write_wait(op))
		nvefs_write_next(op, err);
}

/* An unwritten block keeps its place: that is what fallocate promised. */
static int place_unwritten(struct nvefs_op *op)
{
	uint64_t entry[NVEFS_CHUNK_BLKS], csum[NVEFS_CHUNK_BLKS];
	uint32_t i;
	int err = nvefs_blocks_look(op->in, op->w->q, op->lblk, op->nblks, entry, csum);

	for (i = 0; i < op->nblks && !err; i++) {
		if (op->how[i] != NVEFS_HOW_NONE || nvefs_went_type(entry[i]) != NVEFS_EXT_UNWRITTEN)
			continue;
		/* Pinned from here on: the reference goes into the map when it has been written. */
		err = nvefs_block_pin_load(op->w->fs->st, op->w->q, nvefs_went_pblk(entry[i]));
		if (!err)
			err = nvefs_block_pin(op->w->fs->st, nvefs_went_pblk(entry[i]));
		if (err)
			break;
		op->how[i] = NVEFS_HOW_PLACE;
		op->map[i] = nvefs_went_make(NVEFS_EXT_DATA, nvefs_went_pblk(entry[i]));
	}
	return err;
}

/* By window: what the tree may need for references to blocks that had one only. Twins of a new block are such, too. */
static uint32_t count_shares(struct nvefs_op *op)
{
	struct nvefs_share_run run = {0}, twins = {0};
	uint32_t i, n = 0, all = 0, win = 0;

	for (i = 0; i < op->nblks; i++) {
		if (op->how[i] == NVEFS_HOW_SHARED)
			n += nvefs_share_need(&run, nvefs_went_pblk(op->map[i]));
		else if (op->how[i] == NVEFS_HOW_TWIN)
			n += nvefs_share_need(&twins, 2 * (1 + op->map[i]));
		if (i + 1 < op->nblks && (op->lblk + i + 1) % NVEFS_WINDOW_BLKS)
			continue;
		op->share_blks[win++] = (uint8_t)n;
		all += n;
		n = 0;
		run = twins = (struct nvefs_share_run){0};
	}
	return all;
}

static int pledge_shares(struct nvefs_op *op)
{
	uint32_t n = count_shares(op);

	return n ? nvefs_op_pledge(op, n) : 0;
}

static int place_new(struct nvefs_op *op)
{
	uint32_t i = 0, k;

	while (i < op->nblks) {
		uint32_t want = 0, got;
		uint64_t pblk;
		int err;

		if (op->how[i] != NVEFS_HOW_NONE) {
			i++;
			continue;
		}
		for (k = i; k < op->nblks && op->how[k] == NVEFS_HOW_NONE; k++)
			want++;
		err = nvefs_alloc_data(op->w->fs->st, op->w->q, &op->w->cursor, want, &pblk, &got, NULL);
		if (err)
			return err;
		for (k = 0; k < got; k++) {
			op->how[i + k] = NVEFS_HOW_NEW;
			op->map[i + k] = nvefs_went_make(NVEFS_EXT_DATA, pblk + k);
		}
		i += got;
	}
	return 0;
}

/* Head, middle and tail lie in up to three pieces of memory. */
static uint16_t fill_iov(struct nvefs_op *op, struct nvefs_op_io *oi)
{
	uint16_t n = 0;
	uint32_t i;

	for (i = 0; i < oi->count; i++) {
		uint8_t *mem = (uint8_t *)(uintptr_t)nvefs_write_bytes(op, oi->first + i);
		struct iovec *v = n ? &oi->iov[n - 1] : NULL;

		if (v && (uint8_t *)v->iov_base + v->iov_len == mem) {
			v->iov_len += NVEFS_BLOCK_SIZE;
			continue;
		}
		assert(n < 3);
		oi->iov[n].iov_base = mem;
		oi->iov[n++].iov_len = NVEFS_BLOCK_SIZE;
	}
	return n;
}

static bool to_write(const struct nvefs_op *op, uint32_t i)
{
	return op->how[i] == NVEFS_HOW_NEW || op->how[i] == NVEFS_HOW_PLACE;
}

static int submit_writes(struct nvefs_op *op)
{
	uint32_t i = 0;

	op->step = write_done;
	while (i < op->nblks) {
		struct nvefs_op_io *oi;
		uint32_t n = 1;

		if (!to_write(op, i)) {
			i++;
			continue;
		}
		while (i + n < op->nblks && to_write(op, i + n) && op->map[i + n] == op->map[i] + n)
			n++;
		oi = nvefs_op_io_new(op, NVEFS_IO_WRITE, nvefs_went_pblk(op->map[i]), n);
		if (!oi)
			return -ENOMEM;
		oi->first = i;
		oi->count = n;
		oi->io.niov = fill_iov(op, oi);
		nvefs_op_io_submit(oi);
		i += n;
	}
	return 0;
}

void nvefs_write_place(struct nvefs_op *op)
{
	int err = place_unwritten(op);

	if (!err)
		err = pledge_shares(op);
	if (!err)
		err = place_new(op);
	if (err) {
		place_failed(op, err);
		return;
	}
	op->commit.err = submit_writes(op);
	if (nvefs_mutated(NVEFS_MUTATE_REMAP_EARLY) && !op->commit.err)
		op->commit.err = remap(op);
	if (!op->pending)
		write_done(op);
}

/*
 * The reference that comes with the entry. A written block gets its first one,
 * a twin one more; shared and unwritten blocks brought theirs along.
 */
static int take_reference(struct nvefs_op *op, uint32_t i)
{
	struct nvefs_store *st = op->w->fs->st;

	switch (op->how[i]) {
	case NVEFS_HOW_NEW:
		nvefs_block_map(st, nvefs_went_pblk(op->map[i]), 1);
		return 0;
	case NVEFS_HOW_TWIN:
		op->map[i] = op->map[op->map[i]];
		return nvefs_block_pin(st, nvefs_went_pblk(op->map[i]));
	default:
		return 0;
	}
}

static int take_references(struct nvefs_op *op)
{
	uint32_t i;
	int err;

	for (i = 0; i < op->nblks; i++) {
		err = take_reference(op, i);
		if (err)
			goto drop_taken;
	}
	return 0;

drop_taken:
	while (i--) {
		nvefs_data_unpin(op->w->fs, nvefs_went_pblk(op->map[i]), op->csum[i]);
		op->how[i] = NVEFS_HOW_NONE;
	}
	release_places(op);
	return err == -EMLINK ? -EIO : err;
}

static void update_inode_locked(struct nvefs_op *op, uint64_t end)
{
	struct nvefs_inode *in = op->in;
	struct nvefs_inode_rec *r = &in->rec;

	if (end > op->end)
		end = op->end;
	if (r->size < end)
		r->size = end;
	r->mtime = r->ctime = nvefs_time_now();
	if (op->req->op == NVEFS_REQ_WRITE && op->req->flags & NVEFS_WRITE_KILL_SUID) {
		r->mode &= ~(uint32_t)S_ISUID;
		if (r->mode & S_IXGRP)
			r->mode &= ~(uint32_t)S_ISGID;
	}
	nvefs_inode_mark_dirty_locked(in);
}

/* Entries of one window, under the inode lock. False: the window must be loaded first. */
static int install_window(struct nvefs_op *op, uint32_t *i)
{
	struct nvefs_inode *in = op->in;
	uint64_t widx = (op->lblk + *i) / NVEFS_WINDOW_BLKS, win = widx - op->lblk / NVEFS_WINDOW_BLKS;
	uint32_t n = op->nblks - *i, off = (op->lblk + *i) % NVEFS_WINDOW_BLKS;
	struct nvefs_window_mem *w;

	if (n > NVEFS_WINDOW_BLKS - off)
		n = NVEFS_WINDOW_BLKS - off;
	w = nvefs_window_find(in, widx);
	if (!w)
		return -EAGAIN;
	w = nvefs_window_reserve(in, w, off + n - 1);
	if (!w)
		return -ENOMEM;
	for (; n; n--, off++, (*i)++)
		nvefs_window_set(in, w, off, op->map[*i], op->csum[*i], &op->pledged);
	nvefs_window_pledge(w, op->share_blks[win], &op->pledged);
	return 0;
}

static int install(struct nvefs_op *op)
{
	uint32_t i = 0, k;
	int err = 0;

	while (i < op->nblks && !err) {
		nvefs_mutex_lock(&op->in->lock);
		err = op->in->gone ? -ESTALE : install_window(op, &i);
		if (!err) /* with each window: no fold may find data beyond the size */
			update_inode_locked(op, (op->lblk + i) * NVEFS_BLOCK_SIZE);
		nvefs_mutex_unlock(&op->in->lock);
		if (err == -EAGAIN)
			err = nvefs_window_load(op->in, op->w->q, (op->lblk + i) / NVEFS_WINDOW_BLKS);
	}
	for (k = i; k < op->nblks; k++)
		nvefs_data_unpin(op->w->fs, nvefs_went_pblk(op->map[k]), op->csum[k]);
	return err;
}

static int remap(struct nvefs_op *op)
{
	int err = take_references(op);

	return err ? err : install(op);
}

/* ---- Commands that timed out ---- */

/*
 * Nobody knows whether such a command is still to come, so nothing else may be written to its blocks in this
 * mount. New ones are retired. An unwritten one gives way in the map to a fresh unwritten block, so that what
 * fallocate promised holds; when there is none free, to a hole, and then a later write of it may fail for
 * want of space. Its pin stays for good, which keeps it from all use once the map has let it go.
 */
static bool mark_in_doubt(struct nvefs_op *op)
{
	const struct nvefs_op_io *oi;
	bool place = false;
	uint32_t i;

	for (oi = op->ios; oi; oi = oi->next) {
		for (i = oi->first; oi->io.err == -ETIMEDOUT && i < oi->first + oi->count; i++) {
			place |= op->how[i] == NVEFS_HOW_PLACE;
			op->how[i] = op->how[i] == NVEFS_HOW_PLACE ? NVEFS_HOW_PLACE_DOUBT : NVEFS_HOW_NEW_DOUBT;
		}
	}
	return place;
}

/* What comes in the place of an unwritten block, with its memory reference. */
static uint64_t fresh_unwritten(struct nvefs_op *op)
{
	struct nvefs_store *st = op->w->fs->st;
	uint64_t pblk;
	uint32_t got;

	if (nvefs_alloc_data(st, op->w->q, &op->w->cursor, 1, &pblk, &got, NULL))
		return 0;
	nvefs_block_map(st, pblk, 1);
	return nvefs_went_make(NVEFS_EXT_UNWRITTEN, pblk);
}

/* From block *i on, as far as one window goes. Under the inode lock. */
static int replace_in_window(struct nvefs_op *op, uint32_t *i)
{
	struct nvefs_inode *in = op->in;
	struct nvefs_window_mem *w = nvefs_window_find(in, (op->lblk + *i) / NVEFS_WINDOW_BLKS);

	if (in->gone)
		return -ESTALE;
	if (!w)
		return -EAGAIN;
	do {
		uint32_t off = (op->lblk + *i) % NVEFS_WINDOW_BLKS;

		if (op->how[*i] == NVEFS_HOW_PLACE_DOUBT) { /* it is mapped, so there is room for it */
			nvefs_window_set(in, w, off, op->map[*i], 0, &op->pledged);
			op->how[*i] = NVEFS_HOW_NONE;
		}
	} while (++*i < op->nblks && (op->lblk + *i) % NVEFS_WINDOW_BLKS);
	return 0;
}

static int replace_unwritten(struct nvefs_op *op)
{
	uint32_t i = 0, k;
	int err = 0;

	for (k = 0; k < op->nblks; k++)
		if (op->how[k] == NVEFS_HOW_PLACE_DOUBT)
			op->map[k] = fresh_unwritten(op);
	while (i < op->nblks && !err) {
		nvefs_mutex_lock(&op->in->lock);
		err = replace_in_window(op, &i);
		nvefs_mutex_unlock(&op->in->lock);
		if (err == -EAGAIN)
			err = nvefs_window_load(op->in, op->w->q, (op->lblk + i) / NVEFS_WINDOW_BLKS);
	}
	for (k = i; k < op->nblks; k++)
		if (op->how[k] == NVEFS_HOW_PLACE_DOUBT && op->map[k])
			nvefs_data_unpin(op->w->fs, nvefs_went_pblk(op->map[k]), 0);
	return err == -ESTALE ? 0 : err; /* the file is gone, and the pins stay */
}

static void write_failed(struct nvefs_op *op, int err)
{
	bool place = mark_in_doubt(op);

	nvefs_op_ios_free(op);
	if (err != -ENOMEM)
		op->w->fs->io_errors++;
	if (place && replace_unwritten(op))
		nvefs_store_fail(op->w->fs->st, -EIO,
				 "a write into an unwritten block timed out, and the block cannot be replaced");
	release_places(op);
	nvefs_write_next(op, nvefs_caller_errno(err));
}

static void write_done(struct nvefs_op *op)
{
	int err = op->commit.err ? op->commit.err : nvefs_op_ios_err(op);
	bool hint = !err && nvefs_data_dedup(op->in);
	uint32_t i;

	if (err) {
		write_failed(op, err);
		return;
	}
	nvefs_op_ios_free(op);
	if (!nvefs_mutated(NVEFS_MUTATE_REMAP_EARLY))
		err = remap(op);
	for (i = 0; hint && !err && i < op->nblks; i++)
		if (to_write(op, i))
			nvefs_data_hint(op->w->fs, nvefs_went_pblk(op->map[i]), op->csum[i]);
	nvefs_write_next(op, err);
}
