/* SPDX-License-Identifier: MIT */
#include "fake_store.h"

#include <check.h>
#include <stdlib.h>

#include "base/bitmap.h"

enum nvefs_mutation nvefs_store_mutation;

static struct fake *fake_of(const struct nvefs_store *st)
{
	return nvefs_container_of(st, struct fake, st);
}

/* ---- What the allocator calls ---- */

void nvefs_store_rdlock(struct nvefs_store *st) NVEFS_NO_TSA
{
	nvefs_rwlock_rdlock(&st->meta);
}
void nvefs_store_rdunlock(struct nvefs_store *st) NVEFS_NO_TSA
{
	nvefs_rwlock_rdunlock(&st->meta);
}
void nvefs_store_wrlock(struct nvefs_store *st) NVEFS_NO_TSA
{
	nvefs_rwlock_wrlock(&st->meta);
}
void nvefs_store_wrunlock(struct nvefs_store *st) NVEFS_NO_TSA
{
	nvefs_rwlock_wrunlock(&st->meta);
}
struct nvefs_root *nvefs_store_root(struct nvefs_store *st)
{
	return &st->root;
}
uint64_t nvefs_txn_durable(const struct nvefs_store *st)
{
	return __atomic_load_n(&st->txn_durable, __ATOMIC_ACQUIRE);
}
const struct nvefs_dev_limits *nvefs_dev_limits(const struct nvefs_dev *dev)
{
	return &((const struct fake *)(const void *)dev)->lim;
}

void nvefs_store_fail(struct nvefs_store *st, int err, const char *why)
{
	(void)st;
	ck_abort_msg("the store failed: %d, %s", err, why);
}

bool nvefs_store_retry(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_miss *miss,
		       int *err)
{
	struct fake *f = fake_of(st);

	(void)q;
	if (*err != -EAGAIN)
		return false;
	nvefs_rwlock_wrlock(&st->meta);
	f->loads++;
	if (miss->type == NVEFS_BT_BITMAP) {
		*err = f->bitmap_err[nvefs_layout_group(miss->pblk)];
		f->bitmap_cached[nvefs_layout_group(miss->pblk)] = !*err;
	} else {
		f->item_cached[miss->pblk] = true;
		*err = 0;
	}
	nvefs_rwlock_wrunlock(&st->meta);
	return !*err;
}

int nvefs_cache_get(struct nvefs_store *st, struct nvefs_block_ref at, uint16_t type,
		    struct nvefs_miss *miss, struct nvefs_mblk **ret_b)
{
	struct fake *f = fake_of(st);
	uint32_t g = nvefs_layout_group(at.pblk);

	ck_assert_uint_eq(type, NVEFS_BT_BITMAP);
	ck_assert_uint_eq(at.pblk, nvefs_layout_bitmap_pblk(g));
	ck_assert_uint_eq(at.twin, nvefs_layout_bitmap_twin(&st->super, g));
	if (!f->bitmap_cached[g]) {
		*miss = (struct nvefs_miss){
			.pblk = at.pblk, .twin = at.twin, .txn = at.txn, .type = type};
		return -EAGAIN;
	}
	ck_assert_uint_eq(at.txn, le64_get(f->bitmaps[g].hdr.txn));
	*ret_b = &f->mblks[g];
	return 0;
}

bool nvefs_cache_dirty(struct nvefs_txn *t, struct nvefs_mblk *b)
{
	struct nvefs_disk_header *h = b->data;
	bool fresh = le64_get(h->txn) != t->id;

	h->txn = le64_make(t->id);
	return fresh;
}

int nvefs_tree_get(struct nvefs_store *st, const struct nvefs_key *key, struct nvefs_miss *miss,
		   const void **ret_val, uint32_t *ret_len)
{
	struct fake *f = fake_of(st);

	ck_assert_uint_eq(key->ino, 0);
	if (key->kind == NVEFS_KIND_GROUP) {
		if (!f->item_cached[key->offset]) {
			*miss = (struct nvefs_miss){.pblk = key->offset, .type = NVEFS_BT_NODE};
			return -EAGAIN;
		}
		*ret_val = &f->items[key->offset];
		*ret_len = sizeof(f->items[0]);
		return 0;
	}
	ck_assert_uint_eq(key->kind, NVEFS_KIND_SHARE);
	if (!f->shares[key->offset])
		return -ENOENT;
	f->share_val = nvefs_share_encode(f->shares[key->offset]);
	*ret_val = &f->share_val;
	*ret_len = sizeof(f->share_val);
	return 0;
}

int nvefs_tree_prepare(struct nvefs_txn *t, const struct nvefs_key *key)
{
	(void)t;
	(void)key;
	return 0;
}

int nvefs_tree_put(struct nvefs_txn *t, const struct nvefs_key *key, const void *val, uint32_t len)
{
	struct fake *f = fake_of(t->st);

	if (key->kind == NVEFS_KIND_GROUP) {
		ck_assert(f->item_cached[key->offset]);
		memcpy(&f->items[key->offset], val, len);
		return 0;
	}
	return nvefs_share_decode(val, len, &f->shares[key->offset]);
}

int nvefs_tree_del(struct nvefs_txn *t, const struct nvefs_key *key)
{
	struct fake *f = fake_of(t->st);

	if (!f->shares[key->offset])
		return -ENOENT;
	f->shares[key->offset] = 0;
	return 0;
}

uint32_t nvefs_tree_credits(const struct nvefs_store *st)
{
	(void)st;
	return 10;
}

/* One queue that completes at once; only discards come here. */
static struct nvefs_io *pending;

void nvefs_queue_submit(struct nvefs_queue *q, struct nvefs_io *io)
{
	struct fake *f = (struct fake *)(void *)q;

	ck_assert_int_eq(io->op, NVEFS_IO_DISCARD);
	f->discarded += io->nblks;
	if (io->pblk < f->discard_min_pblk)
		f->discard_min_pblk = io->pblk;
	if (io->pblk + io->nblks > f->discard_max_pblk)
		f->discard_max_pblk = io->pblk + io->nblks;
	if (f->on_discard)
		f->on_discard(f, io->pblk, io->nblks);
	io->q.next = pending;
	pending = io;
}

uint32_t nvefs_queue_poll(struct nvefs_queue *q, uint32_t max)
{
	uint32_t n = 0;

	(void)q;
	(void)max;
	while (pending) {
		struct nvefs_io *io = pending;

		pending = io->q.next;
		io->done(io);
		n++;
	}
	return n;
}

void nvefs_queue_wait(struct nvefs_queue *q, uint64_t timeout_ns)
{
	(void)q;
	(void)timeout_ns;
	ck_abort_msg("nothing to wait for");
}

/* ---- For tests ---- */

static void make_bitmaps(struct fake *f)
{
	struct nvefs_super *sb = &f->st.super;

	for (uint32_t g = 0; g < sb->ngroups; g++) {
		struct nvefs_group_rec rec = {.bitmap_txn = 1};

		nvefs_layout_bitmap_init(sb, g, 1, &f->bitmaps[g]);
		rec.free_blks =
		    NVEFS_GROUP_BLKS - nvefs_bitmap_count(f->bitmaps[g].bits, NVEFS_GROUP_BLKS);
		f->items[g] = nvefs_group_encode(&rec);
		f->st.root.free_blks += rec.free_blks;
		f->mblks[g].pblk = nvefs_layout_bitmap_pblk(g);
		f->mblks[g].data = &f->bitmaps[g];
	}
}

struct fake *fake_new(uint32_t ngroups, uint32_t iu)
{
	struct fake *f = calloc(1, sizeof(*f));

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_le(ngroups, FAKE_GROUPS);
	f->lim.iu_blks = f->lim.iu_align_blks = iu;
	f->lim.max_discard_blks = 1u << 30;
	f->lim.discard_gran_blks = f->lim.discard_align_blks = 1;
	f->discard_min_pblk = UINT64_MAX;
	f->st.dev = (struct nvefs_dev *)(void *)f;
	f->st.txn_running = 2;
	f->st.txn_durable = 1;
	nvefs_rwlock_init(&f->st.meta);
	/* A short last group. */
	ck_assert_int_eq(
	    nvefs_layout_make((uint64_t)ngroups * NVEFS_GROUP_BLKS - 1000, 0, &f->st.super), 0);
	ck_assert_uint_eq(f->st.super.ngroups, ngroups);
	f->bitmaps = calloc(ngroups, sizeof(*f->bitmaps));
	f->shares = calloc(f->st.super.nblks, sizeof(*f->shares));
	ck_assert(f->bitmaps && f->shares);
	make_bitmaps(f);
	ck_assert_int_eq(nvefs_alloc_init(&f->st, (struct nvefs_queue *)(void *)f), 0);
	return f;
}

int fake_reopen(struct fake *f)
{
	nvefs_alloc_done(&f->st);
	return nvefs_alloc_init(&f->st, (struct nvefs_queue *)(void *)f);
}

void fake_free(struct fake *f)
{
	nvefs_alloc_done(&f->st);
	nvefs_rwlock_done(&f->st.meta);
	free(f->bitmaps);
	free(f->shares);
	free(f);
}

int fake_begin(struct fake *f, uint32_t credits, uint32_t flags, struct nvefs_txn *t) NVEFS_NO_TSA
{
	struct nvefs_miss miss;
	int err;

	for (;;) {
		nvefs_rwlock_wrlock(&f->st.meta);
		err = nvefs_alloc_meta_ready(&f->st, credits, flags, &miss);
		if (!err)
			break;
		nvefs_rwlock_wrunlock(&f->st.meta);
		if (!nvefs_store_retry(&f->st, NULL, &miss, &err))
			return err;
	}
	*t = (struct nvefs_txn){.st = &f->st, .id = f->st.txn_running};
	return 0;
}

void fake_end(struct fake *f, struct nvefs_txn *t) NVEFS_NO_TSA
{
	nvefs_alloc_txn_end(t);
	nvefs_rwlock_wrunlock(&f->st.meta);
}

void fake_commit(struct fake *f, bool checkpoint)
{
	uint64_t txn, tail = checkpoint ? 0 : f->st.alloc->tail;

	nvefs_rwlock_wrlock(&f->st.meta);
	txn = f->st.txn_running;
	__atomic_store_n(&f->st.txn_durable, txn, __ATOMIC_RELEASE);
	__atomic_store_n(&f->st.txn_running, txn + 1, __ATOMIC_RELEASE);
	nvefs_rwlock_wrunlock(&f->st.meta);
	nvefs_alloc_release(&f->st, (struct nvefs_queue *)(void *)f, txn,
			    checkpoint ? txn + 1 : tail);
}

/* In a transaction a miss is served at once: the fake needs no lock dropped for that. */
static bool serve(struct fake *f, struct nvefs_txn *t, int err)
{
	if (err != -EAGAIN)
		return false;
	if (t->miss.type == NVEFS_BT_BITMAP)
		f->bitmap_cached[nvefs_layout_group(t->miss.pblk)] = true;
	else
		f->item_cached[t->miss.pblk] = true;
	return true;
}

int fake_ref_up(struct fake *f, struct nvefs_txn *t, uint64_t pblk)
{
	int err;

	do
		err = nvefs_ref_prepare(t, pblk);
	while (serve(f, t, err));
	return err ? err : nvefs_ref_up(t, pblk);
}

int fake_ref_down(struct fake *f, struct nvefs_txn *t, uint64_t pblk, bool *last)
{
	int err;

	do
		err = nvefs_ref_prepare(t, pblk);
	while (serve(f, t, err));
	return err ? err : nvefs_ref_down(t, pblk, last);
}

int fake_free_meta(struct fake *f, struct nvefs_txn *t, uint64_t pblk)
{
	int err;

	do
		err = nvefs_free_meta_prepare(t, pblk);
	while (serve(f, t, err));
	return err ? err : nvefs_free_meta(t, pblk);
}

bool fake_on_disk(const struct fake *f, uint64_t pblk)
{
	return nvefs_bitmap_test(f->bitmaps[nvefs_layout_group(pblk)].bits, nvefs_group_off(pblk));
}

void fake_check(struct fake *f)
{
	struct nvefs_alloc *a = f->st.alloc;
	uint64_t zeros = 0, shared = 0, refs = 0, avail = 0;
	struct nvefs_space sp;

	for (uint32_t g = 0; g < a->ngroups; g++) {
		struct nvefs_group_rec rec;
		uint32_t n =
		    NVEFS_GROUP_BLKS - nvefs_bitmap_count(f->bitmaps[g].bits, NVEFS_GROUP_BLKS);
		const struct nvefs_group_mem *m = a->groups[g].mem;

		ck_assert_int_eq(nvefs_group_decode(&f->items[g], sizeof(f->items[g]), &rec), 0);
		ck_assert_uint_eq(rec.free_blks, n);
		ck_assert_uint_eq(rec.bitmap_txn, le64_get(f->bitmaps[g].hdr.txn));
		zeros += n;
		avail += a->groups[g].avail;
		for (uint32_t i = 0; m && i < NVEFS_GROUP_BLKS; i++)
			if (nvefs_bitmap_test(f->bitmaps[g].bits, i))
				ck_assert_msg(m->busy[i / 64] >> (i % 64) & 1, "group %u, %u", g,
					      i);
		for (uint32_t i = 0, k = 0; m && i < NVEFS_GROUP_CHUNKS; i++) {
			k += 64 - (uint32_t)__builtin_popcountll(m->busy[i]);
			if (i == NVEFS_GROUP_CHUNKS - 1)
				ck_assert_uint_eq(k, a->groups[g].avail);
		}
	}
	for (uint64_t i = 0; i < f->st.super.nblks; i++) {
		shared += f->shares[i] != 0;
		refs += f->shares[i] ? f->shares[i] - 1 : 0;
	}
	nvefs_space_get(&f->st, &sp);
	ck_assert_uint_eq(f->st.root.free_blks, zeros);
	ck_assert_uint_eq(sp.shared_blks, shared);
	ck_assert_uint_eq(sp.shared_refs, refs);
	/* Every block is free, in quarantine, in the stash, or held. */
	ck_assert_uint_eq(avail + a->stash[0].len + a->stash[1].len + sp.quarantined, sp.free);
	ck_assert_int_eq(a->room + (int64_t)(a->reserve + sp.pledged),
			 (int64_t)(avail + a->stash[0].len + a->stash[1].len));
}
