/* SPDX-License-Identifier: MIT */
/*
 * The table of inodes in memory.
 *
 * An inode that is not in the table has nothing in memory that the tree does
 * not have: whoever changes one holds a reference, and one that is in the list
 * of dirty inodes stays in the table. So reading its item under the meta lock and entering it into
 * the table under the same hold of that lock cannot miss a change.
 *
 * End of an inode that lost its last name, in this order:
 *	orphan      (unlink's transaction)
 *	bg_queued   no lookups, opens or references are left
 *	dying       the background thread is alone with it; the table hides it
 *	gone        its items are out of the tree
 *	freed       with the background thread's reference
 */
#include <stdlib.h>

#include "fs/fill.h"
#include "fs/names.h"

static struct nvefs_inode_shard *inode_shard(struct nvefs_fs *fs, uint64_t ino)
{
	return &fs->shards[ino % NVEFS_INODE_SHARDS];
}

static struct nvefs_inode **inode_slot(struct nvefs_inode_shard *s, uint64_t ino)
{
	uint64_t h = ino / NVEFS_INODE_SHARDS * 0x9e3779b97f4a7c15ull;

	return &s->buckets[(h >> 32) & (s->nbuckets - 1)];
}

static struct nvefs_inode *inode_find_locked(struct nvefs_inode_shard *s, uint64_t ino)
{
	struct nvefs_inode *in;

	if (!s->nbuckets)
		return NULL;
	for (in = *inode_slot(s, ino); in; in = in->hash_next)
		if (in->ino == ino)
			return in;
	return NULL;
}

/* Grow to keep chains short; a failure only makes them longer. */
static int inode_grow_locked(struct nvefs_inode_shard *s)
{
	struct nvefs_inode **old = s->buckets, **slot, *in;
	uint32_t nold = s->nbuckets, i;

	if (s->count < nold)
		return 0;
	s->buckets = calloc(nold ? nold * 2 : 16, sizeof(struct nvefs_inode *));
	if (!s->buckets) {
		s->buckets = old;
		return nold ? 0 : -ENOMEM;
	}
	s->nbuckets = nold ? nold * 2 : 16;
	for (i = 0; i < nold; i++) {
		while ((in = old[i])) {
			old[i] = in->hash_next;
			slot = inode_slot(s, in->ino);
			in->hash_next = *slot;
			*slot = in;
		}
	}
	free(old);
	return 0;
}

static void inode_unhash_locked(struct nvefs_inode_shard *s, struct nvefs_inode *in)
{
	struct nvefs_inode **p = inode_slot(s, in->ino);

	while (*p != in)
		p = &(*p)->hash_next;
	*p = in->hash_next;
	s->count--;
}

static struct nvefs_inode *inode_alloc(struct nvefs_fs *fs, uint64_t ino,
				       const struct nvefs_inode_rec *rec)
{
	struct nvefs_inode *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->fs = fs;
	in->ino = ino;
	in->refs = 1;
	in->rec = *rec;
	in->disk_size = rec->size;
	in->disk_blks = rec->blks;
	in->orphan = !rec->nlink;
	nvefs_list_init(&in->bg_link);
	nvefs_list_init(&in->fold_link);
	nvefs_mutex_init(&in->lock);
	nvefs_inode_data_init(in);
	return in;
}

static void inode_free(struct nvefs_inode *in)
{
	nvefs_inode_data_done(in);
	nvefs_mutex_done(&in->lock);
	free(in);
}

/* Enter it, or take what another thread has entered meanwhile. */
static int inode_enter(struct nvefs_inode *in, struct nvefs_inode **ret_in)
{
	struct nvefs_inode_shard *s = inode_shard(in->fs, in->ino);
	struct nvefs_inode *other;
	int err;

	nvefs_mutex_lock(&s->lock);
	other = inode_find_locked(s, in->ino);
	if (other) {
		err = other->dying ? -ESTALE : 0;
		if (!err)
			other->refs++;
	} else {
		err = inode_grow_locked(s);
		if (!err) {
			in->hash_next = *inode_slot(s, in->ino);
			*inode_slot(s, in->ino) = in;
			s->count++;
		}
	}
	nvefs_mutex_unlock(&s->lock);
	if (other || err)
		inode_free(in);
	if (!err)
		*ret_in = other ? other : in;
	return err;
}

/* From the table only. 0 with *ret_in NULL: not there. */
static int inode_take(struct nvefs_fs *fs, uint64_t ino, struct nvefs_inode **ret_in)
{
	struct nvefs_inode_shard *s = inode_shard(fs, ino);
	struct nvefs_inode *in;
	int err = 0;

	nvefs_mutex_lock(&s->lock);
	in = inode_find_locked(s, ino);
	if (in && in->dying)
		err = -ESTALE;
	else if (in)
		in->refs++;
	nvefs_mutex_unlock(&s->lock);
	if (!err)
		*ret_in = in;
	return err;
}

int nvefs_inode_get_locked(struct nvefs_fs *fs, uint64_t ino, struct nvefs_miss *miss,
			   struct nvefs_inode **ret_in)
{
	struct nvefs_key key = nvefs_key_make(ino, NVEFS_KIND_INODE, 0);
	struct nvefs_inode_rec rec;
	struct nvefs_inode *in;
	const void *val;
	uint32_t len;
	int err;

	if (!ino)
		return -ESTALE;
	err = inode_take(fs, ino, &in);
	if (err)
		return err;
	if (in) {
		*ret_in = in;
		return 0;
	}
	err = nvefs_tree_get(fs->st, &key, miss, &val, &len);
	if (err)
		return err == -ENOENT ? -ESTALE : err;
	err = nvefs_inode_decode(val, len, &rec);
	if (err)
		return err;
	in = inode_alloc(fs, ino, &rec);
	if (!in)
		return -ENOMEM;
	/* Whatever the mount says, this one wants an index. Without memory for it there are no savings. */
	if ((rec.flags & NVEFS_INODE_DEDUP_ON) && !fs->index && !fs->read_only)
		nvefs_dedup_ensure(fs);
	return inode_enter(in, ret_in);
}

int nvefs_inode_get(struct nvefs_fs *fs, struct nvefs_queue *q, uint64_t ino, struct nvefs_inode **ret_in)
{
	struct nvefs_miss miss;
	struct nvefs_inode *in;
	int err;

	err = inode_take(fs, ino, &in);
	if (err)
		return err;
	if (in) {
		*ret_in = in;
		return 0;
	}
	do {
		nvefs_store_rdlock(fs->st);
		err = nvefs_inode_get_locked(fs, ino, &miss, ret_in);
		nvefs_store_rdunlock(fs->st);
	} while (nvefs_store_retry(fs->st, q, &miss, &err));
	return err;
}

struct nvefs_inode *nvefs_inode_peek(struct nvefs_fs *fs, uint64_t ino)
{
	struct nvefs_inode *in;

	return inode_take(fs, ino, &in) ? NULL : in;
}

int nvefs_inode_new(struct nvefs_fs *fs, uint64_t ino, const struct nvefs_inode_rec *rec,
		    struct nvefs_inode **ret_in)
{
	struct nvefs_inode *in = inode_alloc(fs, ino, rec);

	return in ? inode_enter(in, ret_in) : -ENOMEM;
}

void nvefs_inode_ref(struct nvefs_inode *in)
{
	struct nvefs_inode_shard *s = inode_shard(in->fs, in->ino);

	nvefs_mutex_lock(&s->lock);
	assert(in->refs);
	in->refs++;
	nvefs_mutex_unlock(&s->lock);
}

static bool inode_is_clean(struct nvefs_inode *in)
{
	bool clean;

	nvefs_mutex_lock(&in->fs->dirty_lock);
	clean = nvefs_list_empty(&in->fold_link);
	nvefs_mutex_unlock(&in->fs->dirty_lock);
	return clean;
}

static bool inode_is_orphan(struct nvefs_inode *in)
{
	bool orphan;

	nvefs_mutex_lock(&in->lock);
	orphan = in->orphan && !in->gone;
	nvefs_mutex_unlock(&in->lock);
	return orphan;
}

/* Something let go of it: free it, hand it over, or leave it. Drops the shard's lock. */
static void inode_settle_unlock(struct nvefs_inode_shard *s, struct nvefs_inode *in)
	NVEFS_RELEASE(s->lock)
{
	bool unused = false;

	if (!in->refs && !in->nlookup && !in->nopen) {
		if (!in->fs->read_only && inode_is_orphan(in)) {
			in->refs++;
			in->bg_queued = true;
			nvefs_bg_push(in->fs, in);
		} else if (inode_is_clean(in)) {
			/* A dirty one stays until it has been folded, by somebody with a reference. */
			inode_unhash_locked(s, in);
			unused = true;
		}
	}
	nvefs_mutex_unlock(&s->lock);
	if (unused)
		inode_free(in);
}

void nvefs_inode_put(struct nvefs_inode *in)
{
	struct nvefs_inode_shard *s;

	if (!in)
		return;
	s = inode_shard(in->fs, in->ino);
	nvefs_mutex_lock(&s->lock);
	assert(in->refs);
	in->refs--;
	inode_settle_unlock(s, in);
}

bool nvefs_inode_claim(struct nvefs_inode *in)
{
	struct nvefs_inode_shard *s = inode_shard(in->fs, in->ino);
	bool alone;

	/* What it has in memory only is not worth folding any more. */
	nvefs_inode_data_discard(in);
	nvefs_mutex_lock(&s->lock);
	alone = inode_is_orphan(in) && in->refs == 1 && !in->nlookup && !in->nopen;
	in->dying = alone;
	in->bg_queued = false;
	nvefs_mutex_unlock(&s->lock);
	return alone;
}

void nvefs_inode_lookup_ref(struct nvefs_inode *in)
{
	struct nvefs_inode_shard *s = inode_shard(in->fs, in->ino);

	nvefs_mutex_lock(&s->lock);
	in->nlookup++;
	nvefs_mutex_unlock(&s->lock);
}

bool nvefs_inode_held(struct nvefs_inode *in)
{
	struct nvefs_inode_shard *s = inode_shard(in->fs, in->ino);
	bool held;

	nvefs_mutex_lock(&s->lock);
	held = in->nlookup || in->nopen;
	nvefs_mutex_unlock(&s->lock);
	return held;
}

void nvefs_forget(struct nvefs_worker *w, uint64_t ino, uint64_t count)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	struct nvefs_inode_shard *s = inode_shard(fs, ino);
	struct nvefs_inode *in;

	nvefs_mutex_lock(&s->lock);
	in = inode_find_locked(s, ino);
	if (!in) {
		nvefs_mutex_unlock(&s->lock);
		return;
	}
	in->nlookup -= count < in->nlookup ? count : in->nlookup;
	inode_settle_unlock(s, in);
}

int nvefs_open(struct nvefs_worker *w, uint64_t ino)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	struct nvefs_inode_shard *s = inode_shard(fs, ino);
	struct nvefs_inode *in;
	int err;

	err = nvefs_inode_get(fs, nvefs_worker_queue(w), ino, &in);
	if (err)
		return err;
	nvefs_mutex_lock(&s->lock);
	in->nopen++;
	nvefs_mutex_unlock(&s->lock);
	nvefs_inode_put(in);
	return 0;
}

int nvefs_release(struct nvefs_worker *w, uint64_t ino)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	struct nvefs_inode_shard *s = inode_shard(fs, ino);
	struct nvefs_inode *in;

	nvefs_mutex_lock(&s->lock);
	in = inode_find_locked(s, ino);
	if (!in || !in->nopen) {
		nvefs_mutex_unlock(&s->lock);
		return -ESTALE;
	}
	in->nopen--;
	inode_settle_unlock(s, in);
	return 0;
}

int nvefs_inode_prepare(struct nvefs_txn *t, struct nvefs_inode *in)
{
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_INODE, 0);

	return nvefs_tree_prepare(t, &key);
}

int nvefs_inode_write_locked(struct nvefs_txn *t, struct nvefs_inode *in)
{
	struct nvefs_key key = nvefs_key_make(in->ino, NVEFS_KIND_INODE, 0);
	struct nvefs_inode_rec rec = in->rec;
	struct nvefs_disk_inode d;
	int err;

	if (!S_ISREG(rec.mode)) {
		in->disk_size = rec.size;
		in->disk_blks = rec.blks;
	}
	rec.size = in->disk_size;
	rec.blks = in->disk_blks;
	nvefs_inode_encode(&rec, &d);
	err = nvefs_tree_put(t, &key, &d, sizeof(d));
	if (err)
		return err;
	in->last_txn = t->id;
	in->rec_dirty = rec.size != in->rec.size || rec.blks != in->rec.blks;
	if (!in->rec_dirty && !in->ndirty) {
		nvefs_mutex_lock(&in->fs->dirty_lock);
		nvefs_list_del(&in->fold_link);
		nvefs_mutex_unlock(&in->fs->dirty_lock);
	}
	return 0;
}

void nvefs_inode_table_init(struct nvefs_fs *fs)
{
	uint32_t i;

	for (i = 0; i < NVEFS_INODE_SHARDS; i++)
		nvefs_mutex_init(&fs->shards[i].lock);
}

void nvefs_inode_table_release(struct nvefs_fs *fs)
{
	struct nvefs_inode_shard *s;
	struct nvefs_inode *in;
	uint32_t i, b;

	for (i = 0; i < NVEFS_INODE_SHARDS; i++) {
		s = &fs->shards[i];
		nvefs_mutex_lock(&s->lock);
		for (b = 0; b < s->nbuckets; b++) {
			for (in = s->buckets[b]; in; in = in->hash_next) {
				in->nlookup = in->nopen = 0;
				if (in->bg_queued || fs->read_only || !inode_is_orphan(in))
					continue;
				in->refs++;
				in->bg_queued = true;
				nvefs_bg_push(fs, in);
			}
		}
		nvefs_mutex_unlock(&s->lock);
	}
}

void nvefs_inode_table_done(struct nvefs_fs *fs)
{
	struct nvefs_inode_shard *s;
	struct nvefs_inode *in;
	uint32_t i, b;

	for (i = 0; i < NVEFS_INODE_SHARDS; i++) {
		s = &fs->shards[i];
		for (b = 0; b < s->nbuckets; b++) {
			while ((in = s->buckets[b])) {
				nvefs_inode_data_discard(in);
				s->buckets[b] = in->hash_next;
				inode_free(in);
			}
		}
		free(s->buckets);
		nvefs_mutex_done(&s->lock);
	}
}
