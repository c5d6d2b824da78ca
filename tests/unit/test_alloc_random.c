/* SPDX-License-Identifier: MIT */
/* Random lives of many blocks against a plain account of them; then the same from several threads.
 */
#include "test_alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct blk {
	uint32_t mem, tree;
	bool reserved, dead; /* dead: dropped, must not be handed out until `txn` is durable */
	uint64_t txn;
};

struct model {
	struct fake *f;
	struct blk *blks;
	uint64_t *known; /* blocks that are reserved or live */
	uint32_t nknown, cap;
	struct nvefs_alloc_cursor c[3];
	unsigned int seed;
};

static uint32_t rnd(struct model *m, uint32_t n)
{
	return (uint32_t)rand_r(&m->seed) % n;
}

static void forget(struct model *m, uint32_t i)
{
	m->known[i] = m->known[--m->nknown];
}

static void op_alloc(struct model *m)
{
	uint64_t pblk;
	uint32_t got;

	if (m->nknown + 40 > m->cap)
		return;
	if (nvefs_alloc_data(&m->f->st, Q(m->f), &m->c[rnd(m, 3)], 1 + rnd(m, 40), &pblk, &got,
			     NULL))
		return;
	for (uint32_t i = 0; i < got; i++) {
		struct blk *b = &m->blks[pblk + i];

		ck_assert_msg(!b->reserved && !b->mem && !b->tree, "block %lu is in use", pblk + i);
		ck_assert_msg(!b->dead || b->txn <= m->f->st.txn_durable,
			      "block %lu came back early", pblk + i);
		*b = (struct blk){.reserved = true};
		m->known[m->nknown++] = pblk + i;
	}
}

static void drop_mem(struct model *m, uint32_t i, uint64_t pblk)
{
	struct blk *b = &m->blks[pblk];
	bool last = nvefs_block_unpin(&m->f->st, pblk);

	b->mem--;
	ck_assert_int_eq(last, !b->mem && !b->tree);
	if (last) {
		b->dead = true;
		forget(m, i);
	}
}

static void op_known(struct model *m)
{
	struct nvefs_store *st = &m->f->st;
	uint32_t i = rnd(m, m->nknown), what = rnd(m, 8);
	uint64_t pblk = m->known[i];
	struct blk *b = &m->blks[pblk];
	struct nvefs_txn t;
	bool last = false;

	if (b->reserved) {
		b->reserved = false;
		if (what) {
			nvefs_block_map(st, pblk, 1);
			b->mem = 1;
		} else {
			nvefs_block_unreserve(st, pblk, 1);
			forget(m, i);
		}
		return;
	}
	if (what < 2) {
		ck_assert_int_eq(nvefs_block_pin(st, pblk), 0);
		b->mem++;
	} else if (what < 4 && b->mem) {
		drop_mem(m, i, pblk);
	} else if (what < 6) {
		ck_assert_int_eq(fake_begin(m->f, 60, 0, &t), 0);
		ck_assert_int_eq(fake_ref_up(m->f, &t, pblk), 0);
		fake_end(m->f, &t);
		b->tree++;
	} else if (b->tree) {
		ck_assert_int_eq(fake_begin(m->f, 60, 0, &t), 0);
		ck_assert_int_eq(fake_ref_down(m->f, &t, pblk, &last), 0);
		fake_end(m->f, &t);
		b->tree--;
		b->txn = t.id;
		ck_assert_int_eq(last, !b->tree && !b->mem);
		if (last) {
			b->dead = true;
			forget(m, i);
		}
	}
}

static void check_known(struct model *m)
{
	struct nvefs_miss miss;
	uint32_t n;

	fake_check(m->f);
	for (uint32_t i = 0; i < m->nknown; i++) {
		const struct blk *b = &m->blks[m->known[i]];

		ck_assert_int_eq(fake_on_disk(m->f, m->known[i]), b->tree != 0);
		ck_assert_int_eq(nvefs_ref_count(&m->f->st, m->known[i], &miss, &n), 0);
		ck_assert_uint_eq(n, b->tree);
	}
}

/* Drop everything: every block must come back. */
static void drain(struct model *m, uint64_t free0)
{
	struct nvefs_space s;

	while (m->nknown) {
		uint64_t pblk = m->known[0];
		struct blk *b = &m->blks[pblk];
		struct nvefs_txn t;

		if (b->reserved) {
			nvefs_block_unreserve(&m->f->st, pblk, 1);
			forget(m, 0);
		} else if (b->mem) {
			drop_mem(m, 0, pblk);
		} else {
			ck_assert_int_eq(fake_begin(m->f, 60, 0, &t), 0);
			ck_assert_int_eq(fake_ref_down(m->f, &t, pblk, NULL), 0);
			fake_end(m->f, &t);
			if (!--b->tree)
				forget(m, 0);
		}
	}
	fake_commit(m->f, true);
	fake_commit(m->f, true);
	fake_check(m->f);
	nvefs_space_get(&m->f->st, &s);
	ck_assert_uint_eq(s.free, free0);
	ck_assert_uint_eq(s.quarantined, 0);
	ck_assert_uint_eq(s.reserved, 0);
}

START_TEST(random_lives)
{
	const char *env = getenv("NVEFS_TEST_SEED");
	struct model m = {
	    .f = fake_new(3, _i ? 16 : 1), .cap = 4000, .c = {{0}, {.seed = 1}, {.seed = 2}}};
	struct nvefs_space s;

	m.seed =
	    env ? (unsigned int)strtoul(env, NULL, 0) : (unsigned int)time(NULL) + (unsigned int)_i;
	printf("NVEFS_TEST_SEED=%u\n", m.seed);
	m.blks = calloc(m.f->st.super.nblks, sizeof(*m.blks));
	m.known = calloc(m.cap, sizeof(*m.known));
	nvefs_space_get(&m.f->st, &s);
	for (int i = 0; i < 30000; i++) {
		if (!m.nknown || !rnd(&m, 25))
			op_alloc(&m);
		else
			op_known(&m);
		if (!rnd(&m, 300))
			fake_commit(m.f, rnd(&m, 2));
		if (!rnd(&m, 10000))
			check_known(&m);
	}
	check_known(&m);
	drain(&m, s.free);
	free(m.blks);
	free(m.known);
	fake_free(m.f);
}
END_TEST

/* ---- Threads ---- */

struct world {
	struct fake *f;
	uint8_t *owner; /* by pblk, atomic: who has it */
	bool stop;
	struct nvefs_space before; /* any thread has begun */
};

struct worker {
	struct world *w;
	uint32_t id;
	pthread_t thread;
};

static void claim(struct world *w, uint64_t pblk, uint8_t id)
{
	uint8_t was = __atomic_exchange_n(&w->owner[pblk], id, __ATOMIC_SEQ_CST);

	ck_assert_msg(!was, "block %lu of %u given to %u", pblk, was, id);
}

/* Write, fold, overwrite: each block lives in memory, in the tree, and dies. */
static void *worker_main(void *arg)
{
	struct worker *me = arg;
	struct world *w = me->w;
	struct nvefs_store *st = &w->f->st;
	struct nvefs_alloc_cursor c = {.seed = me->id};
	unsigned int seed = me->id;

	for (int round = 0; round < 400; round++) {
		uint32_t token = nvefs_reader_enter(st), got = 0;
		struct nvefs_txn t;
		uint64_t pblk;

		nvefs_reader_exit(st, token);
		if (nvefs_alloc_data(st, Q(w->f), &c, 1 + (uint32_t)rand_r(&seed) % 60, &pblk, &got,
				     NULL))
			continue;
		for (uint32_t i = 0; i < got; i++)
			claim(w, pblk + i, (uint8_t)me->id);
		nvefs_block_map(st, pblk, got);
		ck_assert_int_eq(fake_begin(w->f, 60, 0, &t), 0);
		for (uint32_t i = 0; i < got; i++)
			ck_assert_int_eq(fake_ref_up(w->f, &t, pblk + i), 0);
		fake_end(w->f, &t);
		for (uint32_t i = 0; i < got; i++)
			ck_assert(!nvefs_block_unpin(st, pblk + i));
		ck_assert_int_eq(nvefs_block_pin(st, pblk), 0);
		ck_assert_int_eq(fake_begin(w->f, 60, 0, &t), 0);
		for (uint32_t i = 0; i < got; i++) {
			__atomic_store_n(&w->owner[pblk + i], i ? 0 : (uint8_t)me->id,
					 __ATOMIC_SEQ_CST);
			ck_assert_int_eq(fake_ref_down(w->f, &t, pblk + i, NULL), 0);
		}
		fake_end(w->f, &t);
		__atomic_store_n(&w->owner[pblk], 0, __ATOMIC_SEQ_CST);
		ck_assert(nvefs_block_unpin(st, pblk));
	}
	return NULL;
}

/* df in a loop: never more than is there, never less than the writers can hold. */
static void *df_main(void *arg)
{
	struct world *w = arg;
	struct nvefs_space s0 = w->before, s;

	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		nvefs_space_get(&w->f->st, &s);
		ck_assert_uint_le(s.free, s0.free);
		ck_assert_uint_ge(s.free + 4 * 64, s0.free);
	}
	return NULL;
}

static void *commit_main(void *arg)
{
	struct world *w = arg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		struct timespec ts = {.tv_nsec = 200000};

		fake_commit(w->f, true);
		nanosleep(&ts, NULL);
	}
	return NULL;
}

START_TEST(threads_never_share_a_block)
{
	struct world w = {.f = fake_new(3, 1)};
	struct worker me[4];
	pthread_t commit, df;

	w.owner = calloc(w.f->st.super.nblks, 1);
	nvefs_space_get(&w.f->st, &w.before);
	ck_assert_int_eq(nvefs_thread_start(&df, "df", df_main, &w), 0);
	ck_assert_int_eq(nvefs_thread_start(&commit, "commit", commit_main, &w), 0);
	for (uint32_t i = 0; i < 4; i++) {
		me[i] = (struct worker){.w = &w, .id = i + 1};
		ck_assert_int_eq(nvefs_thread_start(&me[i].thread, "w", worker_main, &me[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++)
		nvefs_thread_join(me[i].thread);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
	nvefs_thread_join(commit);
	nvefs_thread_join(df);
	fake_commit(w.f, true);
	fake_commit(w.f, true);
	fake_check(w.f);
	free(w.owner);
	fake_free(w.f);
}
END_TEST

TCase *test_alloc_random(void)
{
	TCase *tc = tcase_create("random");

	tcase_set_timeout(tc, 50);
	tcase_add_loop_test(tc, random_lives, 0, 2);
	tcase_add_test(tc, threads_never_share_a_block);
	return tc;
}
