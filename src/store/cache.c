/* SPDX-License-Identifier: MIT */
/*
 * The cache of metadata blocks.
 *
 * A reader looks up under the shared lock and only marks what it touched;
 * insertion, eviction and every state change happen under the exclusive lock.
 *
 * Reading a block happens under no lock, so the block may be loaded by somebody
 * else, changed, freed, even reused meanwhile. All of these need it in the
 * cache first. Therefore what was read is dropped when the block is cached by
 * now, or when a block of the same hash has left the cache since the miss
 * (`gens`); only else it is what the miss asked for, and judged.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "format/block.h"
#include "store/copies.h"
#include "store/state.h"

static uint64_t hash_pblk(uint64_t pblk)
{
	return (pblk * 0x9e3779b97f4a7c15ull) >> 32;
}

static struct nvefs_mblk **bucket(struct nvefs_store *st, uint64_t pblk)
{
	return &st->cache.buckets[hash_pblk(pblk) & (st->cache.nbuckets - 1)];
}

static uint32_t *gen(struct nvefs_store *st, uint64_t pblk)
{
	return &st->cache.gens[hash_pblk(pblk) & (NVEFS_CACHE_GENS - 1)];
}

int nvefs_cache_init(struct nvefs_store *st)
{
	struct nvefs_cache *c = &st->cache;
	uint64_t bytes = st->opts.cache_bytes ? st->opts.cache_bytes : NVEFS_CACHE_BYTES_DEFAULT;

	if (bytes < NVEFS_CACHE_BYTES_MIN)
		bytes = NVEFS_CACHE_BYTES_MIN;
	if (bytes >> NVEFS_BLOCK_SHIFT > UINT32_MAX / 4)
		bytes = (uint64_t)(UINT32_MAX / 4) << NVEFS_BLOCK_SHIFT;
	c->max_blks = (uint32_t)(bytes >> NVEFS_BLOCK_SHIFT);
	for (c->nbuckets = 1024; c->nbuckets < c->max_blks; c->nbuckets *= 2)
		;
	nvefs_list_init(&c->clock);
	nvefs_list_init(&c->dirty);
	nvefs_list_init(&c->freed);
	nvefs_list_init(&c->home);
	nvefs_list_init(&c->heal);
	c->buckets = calloc(c->nbuckets, sizeof(*c->buckets));
	c->gens = calloc(NVEFS_CACHE_GENS, sizeof(*c->gens));
	return c->buckets && c->gens ? 0 : -ENOMEM;
}

static void mblk_free(struct nvefs_mblk *b)
{
	nvefs_buf_free(b->data);
	nvefs_buf_free(b->image);
	free(b);
}

void nvefs_cache_done(struct nvefs_store *st)
{
	struct nvefs_cache *c = &st->cache;

	for (uint32_t i = 0; c->buckets && i < c->nbuckets; i++) {
		struct nvefs_mblk *b = c->buckets[i], *next;

		for (; b; b = next) {
			next = b->hash_next;
			mblk_free(b);
		}
	}
	free(c->buckets);
	free(c->gens);
	memset(c, 0, sizeof(*c));
}

struct nvefs_mblk *nvefs_cache_peek(struct nvefs_store *st, uint64_t pblk)
{
	struct nvefs_mblk *b = *bucket(st, pblk);

	while (b && b->pblk != pblk)
		b = b->hash_next;
	return b;
}

/* The clock holds exactly the blocks that may be evicted. Call after any change of what that depends on. */
static void clock_update(struct nvefs_store *st, struct nvefs_mblk *b)
{
	struct nvefs_cache *c = &st->cache;
	bool evictable = !b->dirty_txn && !b->image && !b->freed && !b->pinned && !b->bad;
	bool on_clock = !nvefs_list_empty(&b->lru);

	if (evictable && !on_clock) {
		nvefs_list_push(&c->clock, &b->lru);
		c->nclean++;
	} else if (!evictable && on_clock) {
		nvefs_list_del(&b->lru);
		c->nclean--;
	}
}

struct nvefs_mblk *nvefs_cache_insert(struct nvefs_store *st, uint64_t pblk, void *data, bool pinned)
{
	struct nvefs_mblk *b = calloc(1, sizeof(*b)), **slot = bucket(st, pblk);

	if (!b)
		return NULL;
	b->pblk = pblk;
	b->data = data;
	b->pinned = pinned;
	b->referenced = 1;
	nvefs_list_init(&b->lru);
	nvefs_list_init(&b->dirty_link);
	nvefs_list_init(&b->home_link);
	nvefs_list_init(&b->heal_link);
	b->hash_next = *slot;
	*slot = b;
	st->cache.nblks++;
	clock_update(st, b);
	return b;
}

/* Out of the cache and gone. */
static void mblk_drop(struct nvefs_store *st, struct nvefs_mblk *b)
{
	struct nvefs_mblk **p = bucket(st, b->pblk);

	while (*p != b)
		p = &(*p)->hash_next;
	*p = b->hash_next;
	++*gen(st, b->pblk);
	nvefs_list_del(&b->dirty_link);
	if (b->image)
		nvefs_cache_image_drop(st, b);
	nvefs_cache_heal_drop(st, b);
	b->pinned = true;
	clock_update(st, b); /* off the clock, whatever it was */
	st->cache.nblks--;
	mblk_free(b);
}

void nvefs_cache_image_set(struct nvefs_store *st, struct nvefs_mblk *b, void *image, uint64_t txn)
{
	if (b->image) {
		nvefs_buf_free(b->image);
	} else {
		nvefs_list_push(&st->cache.home, &b->home_link);
		st->cache.nhome++;
	}
	b->image = image;
	b->image_txn = txn;
	clock_update(st, b);
}

void nvefs_cache_image_drop(struct nvefs_store *st, struct nvefs_mblk *b)
{
	nvefs_buf_free(b->image);
	b->image = NULL;
	nvefs_list_del(&b->home_link);
	st->cache.nhome--;
	clock_update(st, b);
}

void nvefs_cache_heal_add(struct nvefs_store *st, struct nvefs_mblk *b, uint8_t bad)
{
	struct nvefs_cache *c = &st->cache;

	if (!b->bad) {
		nvefs_list_push(&c->heal, &b->heal_link);
		__atomic_store_n(&c->nheal, c->nheal + 1, __ATOMIC_RELAXED);
	}
	b->bad |= bad;
	clock_update(st, b);
}

void nvefs_cache_heal_drop(struct nvefs_store *st, struct nvefs_mblk *b)
{
	struct nvefs_cache *c = &st->cache;

	if (!b->bad)
		return;
	b->bad = 0;
	nvefs_list_del(&b->heal_link);
	__atomic_store_n(&c->nheal, c->nheal - 1, __ATOMIC_RELAXED);
	clock_update(st, b);
}

void nvefs_cache_purge(struct nvefs_store *st, uint64_t durable)
{
	struct nvefs_list *l = &st->cache.freed;

	while (!nvefs_list_empty(l)) {
		struct nvefs_mblk *b = nvefs_container_of(l->next, struct nvefs_mblk, dirty_link);

		if (b->dirty_txn > durable)
			break;
		if (b->image && nvefs_mutated(NVEFS_MUTATE_NO_CANCEL))
			break;
		mblk_drop(st, b);
	}
}

/* What was touched since the hand came by last gets another round. */
void nvefs_cache_shrink(struct nvefs_store *st)
{
	struct nvefs_cache *c = &st->cache;
	uint32_t steps = 2 * c->nclean;

	assert(!st->in_txn);
	while (c->nclean > c->max_blks && steps--) {
		struct nvefs_mblk *b = nvefs_container_of(c->clock.next, struct nvefs_mblk, lru);

		if (!__atomic_load_n(&b->referenced, __ATOMIC_RELAXED)) {
			mblk_drop(st, b);
			continue;
		}
		__atomic_store_n(&b->referenced, 0, __ATOMIC_RELAXED);
		nvefs_list_del(&b->lru);
		nvefs_list_push(&c->clock, &b->lru);
	}
}

void nvefs_copies_look(struct nvefs_store *st, struct nvefs_block_ref at, uint16_t type,
		       struct nvefs_copies_look *ret)
{
	const struct nvefs_mblk *b = nvefs_cache_peek(st, at.pblk);

	*ret = (struct nvefs_copies_look){
		.at = at, .type = type, .b = b, .settled = true, .gen = *gen(st, at.pblk)};
	if (b) {
		ret->settled = !b->dirty_txn && !b->image && !b->freed && !b->replayed;
		ret->at.txn = nvefs_block_txn(b->data);
	}
}

/* [meta] Nothing has happened to the block since. */
static bool look_holds(struct nvefs_store *st, const struct nvefs_copies_look *look)
{
	struct nvefs_copies_look now;

	nvefs_copies_look(st, look->at, look->type, &now);
	return now.b == look->b && now.gen == look->gen && now.settled && now.at.txn == look->at.txn;
}

/*
 * [meta for writing] *buf (taken over, then NULL): what the good copy has, if there
 * is one. *ret_known: what was known to be bad already.
 */
static int leave_to_heal(struct nvefs_store *st, const struct nvefs_copies_look *look, void **buf,
			 const struct nvefs_copies *c, uint8_t *ret_known)
{
	struct nvefs_mblk *b = nvefs_cache_peek(st, look->at.pblk);

	*ret_known = b ? b->bad : 0;
	if (st->opts.read_only || (!b && c->good < 0))
		return 0;
	if (!b)
		b = nvefs_cache_insert(st, look->at.pblk, *buf, false);
	if (!b)
		return -ENOMEM;
	if (b->data == *buf)
		*buf = NULL;
	nvefs_cache_heal_add(st, b, c->bad);
	return 0;
}

int nvefs_copies_check(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_copies_look *look,
		       struct nvefs_copies *ret)
{
	const struct nvefs_block_expect want = {.pblk = look->at.pblk,
						.twin = look->at.twin,
						.txn = look->at.txn,
						.uuid = st->super.uuid,
						.type = look->type,
						.super = &st->super};
	struct nvefs_copies fresh;
	uint8_t known = 0;
	void *buf;
	int err, read_err;

	*ret = (struct nvefs_copies){.good = 0};
	if (!look->settled)
		return 0;
	buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	err = read_err = buf ? nvefs_copies_read_ahead(q, look->ahead, &want, true, buf, ret) : -ENOMEM;
	if (err != -ENOMEM && ret->bad) {
		nvefs_store_wrlock(st);
		err = look_holds(st, look) ? leave_to_heal(st, look, &buf, ret, &known) : -ESTALE;
		nvefs_store_wrunlock(st);
		fresh = *ret;
		fresh.bad &= (uint8_t)~known;
		if (!err && fresh.bad)
			nvefs_heal_note(st, &want, &fresh);
		if (!err && !look->b)
			err = read_err;
	}
	nvefs_buf_free(buf);
	return err;
}

static int cached_mismatch(const struct nvefs_mblk *b, uint16_t type, const struct nvefs_block_ref *at)
{
	static struct nvefs_ratelimit rl = {.interval_s = 5, .burst = 10};
	const struct nvefs_disk_header *h = b->data;
	uint32_t missed;

	if (nvefs_ratelimit_ok(&rl, &missed))
		nvefs_log(NVEFS_LOG_ERR,
			  "metadata block %llu is type %u of transaction %llu, second copy at %llu%s; "
			  "its parent expects type %u of transaction %llu, second copy at %llu "
			  "(%u more such messages)",
			  (unsigned long long)b->pblk, le16_get(h->type),
			  (unsigned long long)le64_get(h->txn), (unsigned long long)le64_get(h->twin),
			  b->freed ? ", freed" : "", type, (unsigned long long)at->txn,
			  (unsigned long long)at->twin, missed);
	return -EUCLEAN;
}

static int out_of_range(const struct nvefs_store *st, uint64_t pblk)
{
	static struct nvefs_ratelimit rl = {.interval_s = 5, .burst = 10};
	uint32_t missed;

	if (nvefs_ratelimit_ok(&rl, &missed))
		nvefs_log(NVEFS_LOG_ERR,
			  "metadata refers to block %llu, but there are %llu (%u more such messages)",
			  (unsigned long long)pblk, (unsigned long long)st->super.nblks, missed);
	return -EUCLEAN;
}

int nvefs_cache_get(struct nvefs_store *st, struct nvefs_block_ref at, uint16_t type,
		    struct nvefs_miss *miss, struct nvefs_mblk **ret_b)
{
	struct nvefs_mblk *b = nvefs_cache_peek(st, at.pblk);
	const struct nvefs_disk_header *h;

	if (!b) {
		if (at.pblk >= st->super.nblks || at.twin >= st->super.nblks)
			return out_of_range(st, at.pblk < st->super.nblks ? at.twin : at.pblk);
		*miss = (struct nvefs_miss){.pblk = at.pblk,
					    .twin = at.twin,
					    .txn = at.txn,
					    .type = type,
					    .gen = *gen(st, at.pblk)};
		return -EAGAIN;
	}
	h = b->data;
	if (b->freed || le16_get(h->type) != type || le64_get(h->twin) != at.twin ||
	    (at.txn && le64_get(h->txn) != at.txn))
		return cached_mismatch(b, type, &at);
	if (!__atomic_load_n(&b->referenced, __ATOMIC_RELAXED))
		__atomic_store_n(&b->referenced, 1, __ATOMIC_RELAXED);
	*ret_b = b;
	return 0;
}

bool nvefs_cache_has(struct nvefs_store *st, uint64_t pblk)
{
	return nvefs_cache_peek(st, pblk) != NULL;
}

bool nvefs_cache_dirty(struct nvefs_txn *t, struct nvefs_mblk *b)
{
	struct nvefs_disk_header *h = b->data;
	struct nvefs_cache *c = &t->st->cache;

	assert(t->st->in_txn && !b->freed);
	if (b->dirty_txn)
		return false;
	b->dirty_txn = t->id;
	h->txn = le64_make(t->id);
	nvefs_list_push(&c->dirty, &b->dirty_link);
	c->ndirty++;
	clock_update(t->st, b);
	return true;
}

int nvefs_cache_new(struct nvefs_txn *t, uint64_t pblk, uint16_t type, struct nvefs_mblk **ret_b)
{
	struct nvefs_store *st = t->st;
	struct nvefs_mblk *b = nvefs_cache_peek(st, pblk);
	const struct nvefs_block_ref at = {.pblk = pblk, .txn = t->id};

	if (!b) {
		void *data = nvefs_buf_new(NVEFS_BLOCK_SIZE);

		b = data ? nvefs_cache_insert(st, pblk, data, false) : NULL;
		if (!b) {
			nvefs_buf_free(data);
			return -ENOMEM;
		}
	} else if (!b->freed) {
		/* Cached means in use: the bitmap is wrong. */
		return cached_mismatch(b, type, &at);
	} else {
		/* Only without the quarantine: the address came back early. */
		nvefs_list_del(&b->dirty_link);
		b->freed = false;
		b->dirty_txn = 0;
	}
	memset(b->data, 0, NVEFS_BLOCK_SIZE);
	nvefs_block_fill(b->data, type, pblk, t->id, st->super.uuid);
	nvefs_cache_dirty(t, b);
	*ret_b = b;
	return 0;
}

void nvefs_cache_forget(struct nvefs_txn *t, struct nvefs_mblk *b)
{
	struct nvefs_cache *c = &t->st->cache;

	assert(t->st->in_txn && !b->freed);
	if (b->dirty_txn) {
		nvefs_list_del(&b->dirty_link);
		c->ndirty--;
	}
	b->freed = true;
	b->dirty_txn = t->id;
	nvefs_list_push(&c->freed, &b->dirty_link);
	clock_update(t->st, b);
}

/* No copy is good: the one that was read last tells what it is. */
static void load_complain(const struct nvefs_miss *miss, const void *data, const struct nvefs_copies *c)
{
	static struct nvefs_ratelimit rl = {.interval_s = 5, .burst = 10};
	uint32_t missed;

	if (!nvefs_ratelimit_ok(&rl, &missed))
		return;
	if (c->err[0])
		nvefs_log(NVEFS_LOG_ERR, "metadata block %llu: %s (%u more such messages)",
			  (unsigned long long)miss->pblk, strerror(-c->err[0]), missed);
	else
		nvefs_log(NVEFS_LOG_ERR,
			  "metadata block %llu: %s (has type %u, transaction %llu; expected type "
			  "%u, transaction %llu; %u more such messages)",
			  (unsigned long long)miss->pblk, nvefs_block_status_text(c->status[0]),
			  nvefs_block_type(data), (unsigned long long)nvefs_block_txn(data),
			  miss->type, (unsigned long long)miss->txn, missed);
	if (miss->twin)
		nvefs_log(NVEFS_LOG_ERR, "metadata block %llu: its second copy at block %llu: %s",
			  (unsigned long long)miss->pblk, (unsigned long long)miss->twin,
			  nvefs_copies_text(c, 1));
}

/*
 * Under the meta lock for writing: *data (taken over, then NULL) is what the
 * device has for the miss, err and c how that went. *ret_judged: it counts.
 */
static int load_insert(struct nvefs_store *st, const struct nvefs_miss *miss, void **data, int err,
		       const struct nvefs_copies *c, bool *ret_judged)
{
	struct nvefs_mblk *b;

	*ret_judged = false;
	if (nvefs_cache_peek(st, miss->pblk) || *gen(st, miss->pblk) != miss->gen)
		return 0;
	*ret_judged = true;
	if (err)
		return err;
	nvefs_cache_shrink(st);
	b = nvefs_cache_insert(st, miss->pblk, *data, false);
	if (!b)
		return -ENOMEM;
	*data = NULL;
	if (c->bad && !st->opts.read_only)
		nvefs_cache_heal_add(st, b, c->bad);
	return 0;
}

int nvefs_store_load(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_miss *miss)
{
	const struct nvefs_block_expect want = {.pblk = miss->pblk,
						.twin = miss->twin,
						.txn = miss->txn,
						.uuid = st->super.uuid,
						.type = miss->type,
						.super = &st->super};
	void *data = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_copies c = {0};
	bool judged;
	int err, read_err;

	if (!data)
		return -ENOMEM;
	read_err = nvefs_copies_read_ahead(q, miss->ahead, &want, false, data, &c);
	nvefs_stat_add(st, loads, 1);

	nvefs_store_wrlock(st);
	err = load_insert(st, miss, &data, nvefs_caller_errno(read_err), &c, &judged);
	nvefs_store_wrunlock(st);
	if (judged && c.bad && read_err && data)
		load_complain(miss, data, &c);
	if (judged && c.bad)
		nvefs_heal_note(st, &want, &c);
	nvefs_buf_free(data);
	return err;
}

bool nvefs_store_retry(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_miss *miss,
		       int *err)
{
	if (*err != -EAGAIN)
		return false;
	*err = nvefs_store_load(st, q, miss);
	return !*err;
}
