/* SPDX-License-Identifier: MIT */
/*
 * References to data blocks.
 *
 * Whether a block has a tree reference (`notree`) changes only in a
 * transaction, that is under the meta lock for writing, and under the group
 * lock; memory references change under the group lock alone. Whoever drops the
 * last reference of both kinds quarantines the block:
 *  - ref_down, when there is no memory reference: until this transaction is durable;
 *  - unpin, when there is no tree reference: if the block had one (`wastree`),
 *    until the transaction that dropped it is durable (last_down is that one or
 *    a later one that changed something, hence will be committed); if it never
 *    was in the tree, nothing on disk can know it and only readers count.
 */
#include <assert.h>

#include "store/alloc_parts.h"

static uint64_t bit_of(uint32_t off)
{
	return UINT64_C(1) << (off % NVEFS_CHUNK_BLKS);
}

static bool is_busy(const struct nvefs_group_mem *m, uint32_t off)
{
	uint64_t held = m->trimming ? m->trimming[off / 64] : 0;

	return (m->busy[off / 64] & ~held) >> (off % 64) & 1;
}

static int pin_locked(struct nvefs_alloc *a, struct nvefs_group_mem *m, uint32_t off)
{
	struct nvefs_chunk *c = m->chunks[off / NVEFS_CHUNK_BLKS];
	uint64_t bit = bit_of(off);
	uint16_t *refs;

	if (!is_busy(m, off))
		return -ESTALE;
	if (c) {
		bool in_mem = c->refs[off % NVEFS_CHUNK_BLKS] != 0;

		if (c->meta & bit || nvefs_quarantine_has(c, bit) || (c->notree & bit && !in_mem))
			return -ESTALE;
		if (c->full & bit)
			return -EMLINK;
	} else {
		c = nvefs_chunk_get(a, m, off);
		if (!c)
			return -ENOMEM;
	}
	refs = &c->refs[off % NVEFS_CHUNK_BLKS];
	if (*refs == UINT16_MAX)
		return -EMLINK;
	++*refs;
	c->nrefs++;
	m->age = 0;
	return 0;
}

int nvefs_block_pin(struct nvefs_store *st, uint64_t pblk)
{
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_mutex *lock;
	struct nvefs_group_mem *m;
	int err = -ESTALE;
	uint32_t g;

	if (nvefs_layout_is_fixed(&st->super, pblk))
		return -ESTALE;
	g = nvefs_layout_group(pblk);
	lock = nvefs_group_lock(a, g);
	nvefs_mutex_lock(lock);
	m = a->groups[g].mem;
	if (m)
		err = pin_locked(a, m, nvefs_group_off(pblk));
	nvefs_mutex_unlock(lock);
	return err;
}

int nvefs_block_pin_load(struct nvefs_store *st, struct nvefs_queue *q, uint64_t pblk)
{
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_mutex *lock;
	bool there;
	uint32_t g;

	if (nvefs_layout_is_fixed(&st->super, pblk))
		return -ESTALE;
	g = nvefs_layout_group(pblk);
	lock = nvefs_group_lock(a, g);
	nvefs_mutex_lock(lock);
	there = a->groups[g].mem != NULL;
	if (there)
		a->groups[g].mem->age = 0; /* stays for the pin that comes */
	nvefs_mutex_unlock(lock);
	return there ? 0 : nvefs_group_load(st, q, g);
}

bool nvefs_block_unpin(struct nvefs_store *st, uint64_t pblk)
{
	struct nvefs_alloc *a = st->alloc;
	uint32_t g = nvefs_layout_group(pblk), off = nvefs_group_off(pblk);
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	uint64_t bit = bit_of(off);
	struct nvefs_group_mem *m;
	struct nvefs_chunk *c;
	bool last = false;

	nvefs_mutex_lock(lock);
	m = a->groups[g].mem;
	c = m->chunks[off / NVEFS_CHUNK_BLKS];
	assert(c->refs[off % NVEFS_CHUNK_BLKS]);
	c->nrefs--;
	if (!--c->refs[off % NVEFS_CHUNK_BLKS] && c->notree & bit &&
	    !nvefs_quarantine_has(c, bit)) {
		uint64_t txn = 0;

		if (c->wastree & bit)
			txn = __atomic_load_n(&a->last_down, __ATOMIC_ACQUIRE);
		nvefs_quarantine_add(a, m, off, NVEFS_QUAR_DATA, txn);
		last = true;
	} else {
		nvefs_chunk_drop_idle(a, m, c);
	}
	nvefs_mutex_unlock(lock);
	return last;
}

int nvefs_ref_prepare(struct nvefs_txn *t, uint64_t pblk)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	struct nvefs_key key = nvefs_share_key(pblk);
	struct nvefs_mutex *lock;
	struct nvefs_chunk *c;
	uint32_t g;
	int err;

	if (nvefs_layout_is_fixed(&st->super, pblk))
		return -EUCLEAN;
	g = nvefs_layout_group(pblk);
	err = nvefs_group_cached(st, g, &t->miss);
	if (err)
		return err;
	err = nvefs_tree_prepare(t, &key);
	if (err)
		return err;
	lock = nvefs_group_lock(a, g);
	nvefs_mutex_lock(lock);
	c = nvefs_chunk_prepare(a, a->groups[g].mem, nvefs_group_off(pblk));
	nvefs_mutex_unlock(lock);
	return c ? 0 : -ENOMEM;
}

/* Tree references by the share item: *ret_count 0 when there is none (so: one, if the bit is set).
 */
static int share_get(struct nvefs_store *st, uint64_t pblk, struct nvefs_miss *miss,
		     uint32_t *ret_count)
{
	struct nvefs_key key = nvefs_share_key(pblk);
	const void *val;
	uint32_t len;
	int err = nvefs_tree_get(st, &key, miss, &val, &len);

	if (err == -ENOENT) {
		*ret_count = 0;
		return 0;
	}
	return err ? err : nvefs_share_decode(val, len, ret_count);
}

/* [txn] The item says `count` from now on; `old` is what share_get said. */
static int share_set(struct nvefs_txn *t, uint64_t pblk, uint32_t old, uint32_t count)
{
	struct nvefs_root *root = nvefs_store_root(t->st);
	struct nvefs_key key = nvefs_share_key(pblk);
	struct nvefs_disk_share d;
	int err;

	if (count >= 2) {
		d = nvefs_share_encode(count);
		err = nvefs_tree_put(t, &key, &d, sizeof(d));
		if (err)
			return err;
		root->shared_blks += !old;
		root->shared_refs += (int64_t)count - (old ? old : 1);
		return 0;
	}
	err = nvefs_tree_del(t, &key);
	if (err)
		return err == -ENOENT ? -EUCLEAN : err;
	root->shared_blks--;
	root->shared_refs--;
	return 0;
}

enum where { WHERE_UNKNOWN, WHERE_BAD, WHERE_MEM, WHERE_TREE };

/* Where the block's references are; BAD: it has none, or must not have any; UNKNOWN: group not in
 * memory. */
static enum where where_is(struct nvefs_alloc *a, uint32_t g, uint32_t off)
{
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	enum where w = WHERE_BAD;
	const struct nvefs_group_mem *m;

	nvefs_mutex_lock(lock);
	m = a->groups[g].mem;
	if (!m) {
		w = WHERE_UNKNOWN;
	} else if (is_busy(m, off)) {
		const struct nvefs_chunk *c = m->chunks[off / NVEFS_CHUNK_BLKS];
		uint64_t bit = bit_of(off);

		if (!c)
			w = WHERE_TREE;
		else if (c->meta & bit || nvefs_quarantine_has(c, bit))
			w = WHERE_BAD;
		else if (!(c->notree & bit))
			w = WHERE_TREE;
		else if (c->refs[off % NVEFS_CHUNK_BLKS])
			w = WHERE_MEM;
	}
	nvefs_mutex_unlock(lock);
	return w;
}

/* No more pins once the count comes so near to its limit that pins in memory could exceed it. */
static void mark_full(struct nvefs_alloc *a, uint32_t g, uint32_t off, uint32_t count)
{
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	struct nvefs_chunk *c;

	nvefs_mutex_lock(lock);
	c = a->groups[g].mem->chunks[off / NVEFS_CHUNK_BLKS];
	if (!c)
		; /* not prepared: ref_up will say -EMLINK in the end */
	else if (count >= a->share_max - UINT16_MAX)
		c->full |= bit_of(off);
	else
		c->full &= ~bit_of(off);
	nvefs_mutex_unlock(lock);
}

int nvefs_ref_up(struct nvefs_txn *t, uint64_t pblk)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	uint32_t g = nvefs_layout_group(pblk), off = nvefs_group_off(pblk), count;
	struct nvefs_mutex *lock;
	struct nvefs_chunk *c;
	enum where w;
	int err;

	if (nvefs_layout_is_fixed(&st->super, pblk))
		return -EUCLEAN;
	w = where_is(a, g, off);
	if (w == WHERE_UNKNOWN)
		return -EIO; /* not prepared */
	if (w == WHERE_BAD)
		return -EUCLEAN;
	if (w == WHERE_TREE) {
		err = share_get(st, pblk, &t->miss, &count);
		if (err)
			return err == -EAGAIN ? -EIO : err;
		if (count >= a->share_max)
			return -EMLINK;
		err = share_set(t, pblk, count, count ? count + 1 : 2);
		if (!err)
			mark_full(a, g, off, count + 1);
		return err;
	}
	err = nvefs_group_change(t, g, off, true);
	if (err)
		return err;
	lock = nvefs_group_lock(a, g);
	nvefs_mutex_lock(lock);
	c = a->groups[g].mem->chunks[off / NVEFS_CHUNK_BLKS];
	c->notree &= ~bit_of(off);
	c->wastree &= ~bit_of(off);
	nvefs_mutex_unlock(lock);
	return 0;
}

/* The block has left the tree, on disk as well. True when nothing in memory holds it either. */
static bool drop_tree(struct nvefs_txn *t, uint32_t g, uint32_t off, struct nvefs_chunk *c)
{
	struct nvefs_alloc *a = t->st->alloc;
	struct nvefs_mutex *lock = nvefs_group_lock(a, g);
	bool last;

	nvefs_mutex_lock(lock);
	c->notree |= bit_of(off);
	last = !c->refs[off % NVEFS_CHUNK_BLKS] || nvefs_mutated(NVEFS_MUTATE_NO_PIN);
	if (last) {
		nvefs_quarantine_add(a, a->groups[g].mem, off, NVEFS_QUAR_DATA, t->id);
	} else {
		c->wastree |= bit_of(off);
		__atomic_store_n(&a->last_down, t->id, __ATOMIC_RELEASE);
	}
	nvefs_mutex_unlock(lock);
	return last;
}

int nvefs_ref_down(struct nvefs_txn *t, uint64_t pblk, bool *ret_last)
{
	struct nvefs_store *st = t->st;
	struct nvefs_alloc *a = st->alloc;
	uint32_t g = nvefs_layout_group(pblk), off = nvefs_group_off(pblk), count;
	struct nvefs_mutex *lock;
	struct nvefs_chunk *c;
	bool last = false;
	int err;

	if (nvefs_layout_is_fixed(&st->super, pblk) || where_is(a, g, off) != WHERE_TREE)
		return -EUCLEAN;
	err = share_get(st, pblk, &t->miss, &count);
	if (err)
		return err == -EAGAIN ? -EIO : err;
	if (count) {
		err = share_set(t, pblk, count, count - 1);
		if (!err)
			mark_full(a, g, off, count - 1);
	} else {
		lock = nvefs_group_lock(a, g);
		nvefs_mutex_lock(lock);
		c = nvefs_chunk_prepare(a, a->groups[g].mem, off);
		nvefs_mutex_unlock(lock);
		err = c ? nvefs_group_change(t, g, off, false) : -ENOMEM;
		if (!err)
			last = drop_tree(t, g, off, c);
	}
	if (!err && ret_last)
		*ret_last = last;
	return err;
}

uint32_t nvefs_ref_credits(const struct nvefs_store *st)
{
	const struct nvefs_root *root = &st->root;

	/* The bitmap, the path to its group item (the tree may grow), and what the share item
	 * takes. */
	return 1 + __atomic_load_n(&root->tree_height, __ATOMIC_RELAXED) + 1 +
	       nvefs_tree_credits(st);
}

int nvefs_ref_count(struct nvefs_store *st, uint64_t pblk, struct nvefs_miss *miss,
		    uint32_t *ret_count)
{
	uint32_t count;
	enum where w;
	int err;

	if (nvefs_layout_is_fixed(&st->super, pblk))
		return -EUCLEAN;
	do { /* the collector may drop an idle group again */
		err = nvefs_group_get(st, nvefs_layout_group(pblk), miss);
		if (err)
			return err;
		w = where_is(st->alloc, nvefs_layout_group(pblk), nvefs_group_off(pblk));
	} while (w == WHERE_UNKNOWN);
	if (w != WHERE_TREE) {
		*ret_count = 0;
		return 0;
	}
	err = share_get(st, pblk, miss, &count);
	if (!err)
		*ret_count = count ? count : 1;
	return err;
}
