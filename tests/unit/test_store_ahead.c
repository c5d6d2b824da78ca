/* SPDX-License-Identifier: MIT */
/* Reading ahead: a walk sees what it sees without, whatever is damaged, and never reads more than is bounded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "device/fault.h"
#include "format/node.h"
#include "store/ahead.h"
#include "store/tree.h"
#include "test_store.h"

#define ITEMS 3000u
#define ITEM_BYTES 500u
#define LEAVES_MIN 300u
#define LATE_NODES 250u

static const struct nvefs_store_opts in_memory = {.read_only = true, .replay_in_memory = true};
static const struct nvefs_fault late = {.op = NVEFS_IO_READ, .action = NVEFS_FAULT_DELAY, .delay_ns = 2000000, .every = 1};

static unsigned int start_seed; /* of random damage */

#define HOLDS(c)                                                                                   \
	do {                                                                                       \
		if (!(c))                                                                          \
			ck_abort_msg("%s does not hold (NVEFS_TEST_SEED=%u)", #c, start_seed);     \
	} while (0)

/* A tree of three levels behind a device that takes faults; not opened. */
static void make(struct fixture *f, uint32_t flags)
{
	static const uint8_t val[ITEM_BYTES];
	struct nvefs_mkfs_item *items = calloc(ITEMS, sizeof(*items));
	struct nvefs_mkfs_params params = {
		.creator = "test_store_ahead", .flags = flags, .journal_blks = 512, .items = items, .nitems = ITEMS};
	struct nvefs_dev *ram;
	struct nvefs_error err = {""};

	for (uint32_t i = 0; i < ITEMS; i++)
		items[i] = (struct nvefs_mkfs_item){
			.key = nvefs_key_make(NVEFS_FIRST_INO, NVEFS_KIND_MAP, i), .val = val, .len = sizeof(val)};
	memset(f, 0, sizeof(*f));
	ck_assert_msg(!nvefs_dev_open("ram:64M", &(struct nvefs_dev_open_opts){0}, &ram, &err), "%s", err.text);
	ck_assert_int_eq(nvefs_fault_wrap(ram, NULL, 0, &f->dev), 0);
	ck_assert_msg(!nvefs_store_mkfs(f->dev, &params, &f->sb, &err), "%s", err.text);
	free(items);
	f->q = test_queue(f->dev);
}

static void fault_reads(struct fixture *f, uint64_t pblk)
{
	const struct nvefs_fault unreadable = {.op = NVEFS_IO_READ,
					       .action = NVEFS_FAULT_FAIL,
					       .err = -EIO,
					       .every = 1,
					       .first_pblk = pblk,
					       .end_pblk = pblk + 1};

	ck_assert_int_eq(nvefs_fault_add(f->dev, &unreadable), 0);
}

/* What a walk has seen. */
struct seen {
	struct fixture *f;
	struct nvefs_ahead *ahead;
	uint64_t hash, nodes, errors, reads, inner[16], first_leaf, last_leaf;
	uint32_t ninner, peak, late_peak, end_after; /* of commands in flight; behind LATE_NODES nodes */
};

static int visit(void *arg, const struct nvefs_tree_visit *v)
{
	struct seen *s = arg;
	const uint64_t what[] = {s->hash, v->pblk, v->twin, v->txn, v->level, (uint64_t)v->err, v->low.offset};
	uint32_t inflight = nvefs_queue_inflight(s->f->q);

	s->hash = nvefs_hash(what, sizeof(what), 1);
	s->nodes++;
	s->errors += v->err != 0;
	if (inflight > s->peak)
		s->peak = inflight;
	if (s->nodes > LATE_NODES && inflight > s->late_peak)
		s->late_peak = inflight;
	if (v->level && s->ninner < 16)
		s->inner[s->ninner++] = v->pblk;
	if (!v->level)
		s->last_leaf = v->pblk;
	if (!v->level && !s->first_leaf)
		s->first_leaf = v->pblk;
	return s->nodes == s->end_after ? -ECANCELED : 0;
}

enum way { PLAIN, AHEAD, AHEAD_BOTH, NWAYS };

/* A store of its own, so that nothing is cached but what opening reads. */
static struct seen walk(struct fixture *f, enum way way, uint32_t end_after)
{
	struct nvefs_dev_counters before, after;
	struct nvefs_ahead ahead = {0};
	struct seen s = {.f = f, .end_after = end_after};

	fixture_open(f, &in_memory);
	ck_assert_int_eq(nvefs_ahead_init(&ahead, f->q, f->sb.nblks), 0);
	ahead.twins = way == AHEAD_BOTH;
	nvefs_dev_counters(f->dev, &before);
	ck_assert_int_eq(nvefs_tree_walk(f->st, f->q, way == PLAIN ? NULL : &ahead, visit, &s), end_after ? -ECANCELED : 0);
	nvefs_dev_counters(f->dev, &after);
	s.reads = after.commands[NVEFS_IO_READ] - before.commands[NVEFS_IO_READ];
	ck_assert_uint_eq(nvefs_queue_inflight(f->q), 0);
	ck_assert_uint_eq(ahead.nidle, NVEFS_AHEAD_BLKS);
	nvefs_ahead_done(&ahead);
	nvefs_store_free(f->st);
	f->st = NULL;
	return s;
}

static void done(struct fixture *f)
{
	nvefs_queue_done(f->q);
	nvefs_dev_close(f->dev);
}

/* Every way sees the same; a node costs no more than its one read, or two for both copies, and one more if it fails. */
static void expect_same(struct fixture *f)
{
	struct seen plain = walk(f, PLAIN, 0);

	for (enum way way = AHEAD; way < NWAYS; way++) {
		struct seen s = walk(f, way, 0);

		HOLDS(s.nodes == plain.nodes && s.errors == plain.errors && s.hash == plain.hash);
		HOLDS(s.peak <= NVEFS_AHEAD_BLKS);
		HOLDS(s.reads <= (way == AHEAD_BOTH ? 2 : 1) * plain.nodes + 4 * plain.errors);
	}
}

START_TEST(a_sound_tree)
{
	struct fixture f;
	struct seen plain, s;

	make(&f, _i ? NVEFS_SB_META_DUP : 0);
	expect_same(&f);
	plain = walk(&f, PLAIN, 0);
	s = walk(&f, AHEAD, 0);
	ck_assert_uint_ge(s.nodes, LEAVES_MIN);
	ck_assert_uint_ge(s.ninner, 3);
	ck_assert_uint_eq(s.errors, 0);
	ck_assert_uint_eq(s.reads, plain.reads);
	done(&f);
}
END_TEST

START_TEST(many_are_in_flight)
{
	struct fixture f;

	make(&f, NVEFS_SB_META_DUP);
	ck_assert_int_eq(nvefs_fault_add(f.dev, &late), 0);
	ck_assert_uint_eq(walk(&f, PLAIN, 20).peak, 0);
	ck_assert_uint_ge(walk(&f, AHEAD, 20).peak, NVEFS_AHEAD_LEAVES - 2);
	ck_assert_uint_ge(walk(&f, AHEAD_BOTH, 20).peak, 2 * NVEFS_AHEAD_LEAVES - 4);
	ck_assert_uint_ge(walk(&f, AHEAD_BOTH, LATE_NODES + 50).late_peak, NVEFS_AHEAD_LEAVES / 2);
	done(&f);
}
END_TEST

/* The way back from an early end is waited for, and nothing is left. */
START_TEST(an_early_end)
{
	struct fixture f;

	make(&f, NVEFS_SB_META_DUP);
	ck_assert_int_eq(nvefs_fault_add(f.dev, &late), 0);
	for (uint32_t nodes = 1; nodes < 8; nodes++)
		(void)walk(&f, AHEAD_BOTH, nodes);
	done(&f);
}
END_TEST

/* The same bytes with other children, at the place of the node and of its second copy. */
static void point(struct fixture *f, uint64_t pblk, uint32_t n, struct nvefs_block_ref child)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint64_t twin;

	device_read(f, pblk, buf);
	twin = nvefs_block_twin(buf);
	for (uint32_t i = 1; i <= n; i++)
		nvefs_inner_set(buf, i, child);
	nvefs_block_seal(buf);
	device_write(f, pblk, buf);
	if (twin)
		device_write(f, twin, buf);
	nvefs_buf_free(buf);
}

static void zero(struct fixture *f, uint64_t pblk)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	uint64_t twin;

	device_read(f, pblk, buf);
	twin = nvefs_block_twin(buf);
	memset(buf, 0, NVEFS_BLOCK_SIZE);
	device_write(f, pblk, buf);
	if (twin)
		device_write(f, twin, buf);
	nvefs_buf_free(buf);
}

START_TEST(damage)
{
	struct fixture f;
	struct seen s;
	struct nvefs_block_ref child;

	make(&f, _i % 2 ? NVEFS_SB_META_DUP : 0);
	s = walk(&f, PLAIN, 0);
	child = (struct nvefs_block_ref){.pblk = s.first_leaf, .txn = 1};
	switch (_i / 2) {
	case 0: /* first copies, or only ones, that cannot be read */
		fault_reads(&f, s.first_leaf);
		fault_reads(&f, s.last_leaf);
		fault_reads(&f, s.inner[2]);
		break;
	case 1:
		zero(&f, s.last_leaf);
		zero(&f, s.inner[1]);
		break;
	case 2: /* many parents of one leaf */
		point(&f, s.inner[1], 30, child);
		break;
	case 3: /* a node that is its own child, and its parent's */
		child.pblk = s.inner[1];
		point(&f, s.inner[1], 20, child);
		break;
	case 4: /* beyond the end: the parent is none */
		child.pblk = f.sb.nblks + 5;
		point(&f, s.inner[1], 2, child);
		break;
	}
	expect_same(&f);
	s = walk(&f, AHEAD, 0);
	ck_assert(s.errors || (_i / 2 == 0 && _i % 2));
	done(&f);
}
END_TEST

/* A bit in any block of the tree, its checksum made right: whatever the walk makes of it, it makes it in every way. */
START_TEST(random_damage)
{
	const char *given = getenv("NVEFS_TEST_SEED");
	unsigned int seed = given ? (unsigned int)strtoul(given, NULL, 0) : 1 + (unsigned int)_i;
	struct fixture f;
	struct seen s;

	start_seed = seed;
	make(&f, seed % 2 ? NVEFS_SB_META_DUP : 0);
	s = walk(&f, PLAIN, 0);
	for (int n = 0; n < 6; n++) {
		uint64_t pblk = rand_r(&seed) % 2 ? s.inner[(uint32_t)rand_r(&seed) % s.ninner] : s.first_leaf;
		uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);

		device_read(&f, pblk, buf);
		buf[64 + (uint32_t)rand_r(&seed) % 4000] ^= (uint8_t)(1u << rand_r(&seed) % 8);
		nvefs_block_seal(buf);
		device_write(&f, pblk, buf);
		nvefs_buf_free(buf);
	}
	expect_same(&f);
	done(&f);
}
END_TEST

static uint64_t reads(struct fixture *f)
{
	struct nvefs_dev_counters c;

	nvefs_dev_counters(f->dev, &c);
	return c.commands[NVEFS_IO_READ];
}

START_TEST(slots)
{
	struct nvefs_block_ref at = {.pblk = 1000, .twin = 2000}, again = at, beyond, other;
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_ahead a;
	struct fixture f;
	uint64_t before;
	uint32_t n = 0;

	make(&f, 0);
	ck_assert_int_eq(nvefs_ahead_init(&a, f.q, f.sb.nblks), 0);
	a.twins = true;
	before = reads(&f);
	/* Asked for twice, read once; there until it has been dropped twice. */
	ck_assert(nvefs_ahead_send(&a, at) && nvefs_ahead_send(&a, again));
	ck_assert(nvefs_ahead_get(&a, 1000, buf) && nvefs_ahead_get(&a, 2000, buf));
	ck_assert_uint_eq(reads(&f) - before, 2);
	nvefs_ahead_drop(&a, at);
	ck_assert(nvefs_ahead_get(&a, 2000, buf));
	nvefs_ahead_drop(&a, again);
	ck_assert(!nvefs_ahead_get(&a, 1000, buf) && !nvefs_ahead_get(&a, 2000, buf) && !nvefs_ahead_get(&a, 0, buf));
	/* Nothing is sent beyond the end, nor for no second copy. */
	beyond = (struct nvefs_block_ref){.pblk = f.sb.nblks, .twin = UINT64_MAX};
	ck_assert(nvefs_ahead_send(&a, beyond) && nvefs_ahead_send(&a, (struct nvefs_block_ref){0}));
	ck_assert_uint_eq(reads(&f) - before, 2);
	nvefs_ahead_drop(&a, beyond);
	/* What fails is left to be read; what is dropped on its way makes room when it has come. */
	fault_reads(&f, 3000);
	ck_assert_int_eq(nvefs_fault_add(f.dev, &late), 0);
	other = (struct nvefs_block_ref){.pblk = 3000, .twin = 3001};
	ck_assert(nvefs_ahead_send(&a, other));
	ck_assert(!nvefs_ahead_get(&a, 3000, buf) && nvefs_ahead_get(&a, 3001, buf));
	for (at = other; nvefs_ahead_send(&a, at); n++)
		at = (struct nvefs_block_ref){.pblk = at.pblk + 2, .twin = at.twin + 2};
	ck_assert_uint_eq(a.nidle, 0);
	at = (struct nvefs_block_ref){.pblk = 3010, .twin = 3011};
	nvefs_ahead_drop(&a, at);
	ck_assert(!nvefs_ahead_send(&a, at) && !nvefs_ahead_get(&a, 3010, buf));
	nvefs_ahead_clear(&a);
	ck_assert_uint_eq(nvefs_queue_inflight(f.q), 0);
	ck_assert(nvefs_ahead_send(&a, at));
	nvefs_ahead_done(&a);
	nvefs_buf_free(buf);
	done(&f);
}
END_TEST

Suite *store_ahead_suite(void)
{
	Suite *s = suite_create("store-ahead");
	TCase *tc = tcase_create("ahead");

	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, a_sound_tree, 0, 2);
	tcase_add_test(tc, many_are_in_flight);
	tcase_add_test(tc, an_early_end);
	tcase_add_loop_test(tc, damage, 0, 10);
	tcase_add_loop_test(tc, random_damage, 0, 8);
	tcase_add_test(tc, slots);
	suite_add_tcase(s, tc);
	return s;
}
