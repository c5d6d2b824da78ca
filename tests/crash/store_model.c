/* SPDX-License-Identifier: MIT */
#include "store_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define MAX_CHANGES 3u

struct change {
	uint32_t slot;
	uint64_t seed; /* 0: remove */
	uint64_t new_pblk, old_pblk;
};

struct data_value {
	uint64_t pblk, seed;
};

static bool is_data(uint32_t slot)
{
	return slot % 4 == 0;
}

static struct nvefs_key slot_key(const struct model *m, uint32_t slot)
{
	return nvefs_key_make(100 + m->id, is_data(slot) ? NVEFS_KIND_MAP : NVEFS_KIND_XVALUE, slot);
}

void model_init(struct model *m, uint32_t id, unsigned int seed)
{
	memset(m, 0, sizeof(*m));
	m->id = id;
	m->rand = seed * 31 + id;
	m->cursor.seed = id;
	m->next_seed = ((uint64_t)id << 56) + 1;
}

void model_done(struct model *m)
{
	free(m->ops);
	m->ops = NULL;
}

/* Bytes that follow from the seed; it comes first itself. */
static void content_fill(uint64_t seed, void *buf, uint32_t len)
{
	uint64_t x = seed;

	for (uint32_t i = 0; i < len; i++) {
		((uint8_t *)buf)[i] = (uint8_t)(x >> 56);
		if (i % 8 == 7)
			x = x * 6364136223846793005ull + 1442695040888963407ull;
		else
			x = x << 8 | x >> 56;
	}
}

static uint32_t content_len(uint64_t seed)
{
	uint64_t r = seed * 0x9e3779b97f4a7c15ull >> 40;

	return 8 + (uint32_t)(r % 16 ? r % 500 : r % (NVEFS_VALUE_MAX - 8));
}

static void op_add(struct model *m, uint64_t txn, uint32_t slot, uint64_t seed)
{
	if (m->nops == m->cap) {
		m->cap = m->cap ? 2 * m->cap : 1024;
		m->ops = realloc(m->ops, m->cap * sizeof(*m->ops));
		if (!m->ops)
			abort();
	}
	m->ops[m->nops++] = (struct model_op){txn, seed, slot};
	m->now[slot] = seed;
}

void model_at(const struct model *m, uint64_t txn, uint64_t *ret_seeds)
{
	memcpy(ret_seeds, m->base, sizeof(m->base));
	for (uint32_t i = 0; i < m->nops && m->ops[i].txn <= txn; i++)
		ret_seeds[m->ops[i].slot] = m->ops[i].seed;
}

/* Grow for a while, then shrink, so that nodes split and merge, and blocks come back. */
static uint32_t choose(struct model *m, struct change *c)
{
	uint32_t n = 1 + (uint32_t)rand_r(&m->rand) % MAX_CHANGES;
	bool shrink = m->steps / 400 % 2;

	for (uint32_t i = 0; i < n; i++) {
		bool again;

		do {
			c[i].slot = (uint32_t)rand_r(&m->rand) % MODEL_SLOTS;
			again = shrink && !m->now[c[i].slot] && rand_r(&m->rand) % 4;
			for (uint32_t k = 0; k < i; k++)
				again |= c[k].slot == c[i].slot;
		} while (again);
		c[i].seed = m->now[c[i].slot] && rand_r(&m->rand) % 8 < (shrink ? 7 : 1) ? 0
										      : m->next_seed++;
		c[i].new_pblk = c[i].old_pblk = 0;
	}
	m->steps++;
	return n;
}

static int data_write(struct model *m, struct nvefs_store *st, struct nvefs_queue *q, struct change *c)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint64_t pblk;
	uint32_t got;
	bool more;
	int err = nvefs_alloc_data(st, q, &m->cursor, 1, &pblk, &got, &more);

	if (err == -ENOSPC && more && !nvefs_commit_reclaim(st))
		err = nvefs_alloc_data(st, q, &m->cursor, 1, &pblk, &got, &more);
	if (!err) {
		content_fill(c->seed, buf, NVEFS_BLOCK_SIZE);
		err = nvefs_queue_write(q, pblk, 1, buf, 0);
		if (err) {
			nvefs_block_unreserve(st, pblk, 1);
		} else {
			nvefs_block_map(st, pblk, 1);
			c->new_pblk = pblk;
		}
	}
	nvefs_buf_free(buf);
	return err;
}

static int change_prepare(struct model *m, struct nvefs_txn *t, struct change *c)
{
	struct nvefs_key key = slot_key(m, c->slot);
	const void *val;
	uint32_t len;
	int err = nvefs_tree_prepare(t, &key);

	if (err || !is_data(c->slot))
		return err;
	err = nvefs_tree_get(t->st, &key, &t->miss, &val, &len);
	c->old_pblk = err ? 0 : ((const struct data_value *)val)->pblk;
	if (err && err != -ENOENT)
		return err;
	err = c->old_pblk ? nvefs_ref_prepare(t, c->old_pblk) : 0;
	if (!err && c->new_pblk)
		err = nvefs_ref_prepare(t, c->new_pblk);
	return err;
}

static int change_apply(struct model *m, struct nvefs_txn *t, const struct change *c)
{
	struct nvefs_key key = slot_key(m, c->slot);
	uint8_t buf[NVEFS_VALUE_MAX];
	uint32_t len = content_len(c->seed);
	int err = 0;

	if (c->new_pblk)
		err = nvefs_ref_up(t, c->new_pblk);
	if (!err && c->old_pblk)
		err = nvefs_ref_down(t, c->old_pblk, NULL);
	if (err)
		return err;
	if (!c->seed) {
		err = nvefs_tree_del(t, &key);
		return err == -ENOENT ? 0 : err;
	}
	if (is_data(c->slot)) {
		struct data_value v = {c->new_pblk, c->seed};

		return nvefs_tree_put(t, &key, &v, sizeof(v));
	}
	content_fill(c->seed, buf, len);
	return nvefs_tree_put(t, &key, buf, len);
}

static int changes_run(struct model *m, struct nvefs_store *st, struct nvefs_queue *q, struct change *c,
		       uint32_t n)
{
	uint32_t credits = n * (nvefs_tree_credits(st) + 2 * nvefs_ref_credits(st));
	struct nvefs_txn t;
	int err;

	do {
		err = nvefs_txn_begin(st, q, credits, 0, &t);
		if (err)
			return err;
		for (uint32_t i = 0; i < n && !err; i++)
			err = change_prepare(m, &t, &c[i]);
		for (uint32_t i = 0; i < n && !err; i++) {
			err = change_apply(m, &t, &c[i]);
			if (!err)
				op_add(m, t.id, c[i].slot, c[i].seed);
		}
		nvefs_txn_end(&t);
	} while (err == -EAGAIN && !(err = nvefs_store_load(st, q, &t.miss)) && (err = -EAGAIN));
	return err;
}

int model_step(struct model *m, struct nvefs_store *st, struct nvefs_queue *q)
{
	struct change c[MAX_CHANGES];
	uint32_t n = choose(m, c);
	int err = 0;

	for (uint32_t i = 0; i < n && !err; i++)
		if (c[i].seed && is_data(c[i].slot))
			err = data_write(m, st, q, &c[i]);
	if (!err)
		err = changes_run(m, st, q, c, n);
	for (uint32_t i = 0; i < n; i++)
		if (c[i].new_pblk)
			nvefs_block_unpin(st, c[i].new_pblk);
	return err;
}

/* ---- Checking ---- */

struct found {
	struct nvefs_key key;
	uint8_t val[NVEFS_VALUE_MAX];
	uint32_t len;
};

/* Copies, since data blocks are read with no lock held. */
static int next_item(struct nvefs_store *st, struct nvefs_queue *q, const struct nvefs_key *from,
		     struct found *f)
{
	struct nvefs_miss miss;
	const void *val;
	int err;

	do {
		nvefs_store_rdlock(st);
		err = nvefs_tree_next(st, from, &miss, &f->key, &val, &f->len);
		if (!err)
			memcpy(f->val, val, f->len);
		nvefs_store_rdunlock(st);
	} while (nvefs_store_retry(st, q, &miss, &err) && (err = -EAGAIN));
	return err;
}

static int check_data(struct nvefs_queue *q, const struct found *f, uint64_t seed, bool read, char *why,
		      uint32_t len)
{
	uint8_t *buf, want[NVEFS_BLOCK_SIZE];
	struct data_value v;
	int rc;

	memcpy(&v, f->val, sizeof(v));
	if (f->len != sizeof(v) || v.seed != seed) {
		snprintf(why, len, "mapping of seed %llx, expected %llx", (unsigned long long)v.seed,
			 (unsigned long long)seed);
		return 1;
	}
	if (!read)
		return 0;
	buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	rc = nvefs_queue_read(q, v.pblk, 1, buf);
	content_fill(seed, want, sizeof(want));
	if (!rc && memcmp(buf, want, sizeof(want)) != 0) {
		snprintf(why, len, "data block %llu of seed %llx holds something else",
			 (unsigned long long)v.pblk, (unsigned long long)seed);
		rc = 1;
	}
	nvefs_buf_free(buf);
	return rc;
}

static int check_value(const struct found *f, uint64_t seed, char *why, uint32_t len)
{
	uint8_t want[NVEFS_VALUE_MAX];

	content_fill(seed, want, content_len(seed));
	if (f->len == content_len(seed) && !memcmp(f->val, want, f->len))
		return 0;
	snprintf(why, len, "item %llu is not that of seed %llx", (unsigned long long)f->key.offset,
		 (unsigned long long)seed);
	return 1;
}

int model_check(const struct model *m, struct nvefs_store *st, struct nvefs_queue *q,
		const uint64_t *seeds, bool data, uint64_t *ret_blks, char *ret_why, uint32_t len)
{
	struct nvefs_key from = nvefs_key_make(100 + m->id, 0, 0);
	uint32_t found = 0, want = 0;
	struct found f;
	int rc;

	for (;;) {
		uint64_t slot;

		rc = next_item(st, q, &from, &f);
		if (rc == -ENOENT || (!rc && f.key.ino != 100 + m->id))
			break;
		if (rc)
			return rc;
		slot = f.key.offset;
		if (slot >= MODEL_SLOTS || !seeds[slot]) {
			snprintf(ret_why, len, "item %llu should not be there", (unsigned long long)slot);
			return 1;
		}
		rc = is_data((uint32_t)slot) ? check_data(q, &f, seeds[slot], data, ret_why, len)
					     : check_value(&f, seeds[slot], ret_why, len);
		if (rc)
			return rc;
		*ret_blks += is_data((uint32_t)slot);
		found++;
		from = nvefs_key_after(&f.key);
	}
	for (uint32_t i = 0; i < MODEL_SLOTS; i++)
		want += seeds[i] != 0;
	if (found == want)
		return 0;
	snprintf(ret_why, len, "%u items, expected %u", found, want);
	return 1;
}
