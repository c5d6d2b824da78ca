/* SPDX-License-Identifier: MIT */
/* Second copies of metadata: each kind of block, each kind of damage, used and written anew. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "device/fault.h"
#include "format/item.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/node.h"
#include "store/tree.h"
#include "test_store.h"

#define ITEMS 450u /* two to a leaf: a tree of three levels */

static const struct nvefs_store_opts by_hand = {.commit_interval_ns = 1000000000000};
static const struct nvefs_store_opts in_memory = {.read_only = true, .replay_in_memory = true};

enum kind { KIND_ROOT_BLOCK, KIND_BITMAP, KIND_ROOT_NODE, KIND_INNER, KIND_LEAF, NKINDS };
enum damage {
	DAMAGE_BYTE,
	DAMAGE_ZEROS,
	DAMAGE_STALE,
	DAMAGE_MISDIRECTED,
	DAMAGE_UNREADABLE,
	DAMAGE_CONTENT,
	NDAMAGES
};

static struct nvefs_key item_key(uint32_t i)
{
	return nvefs_key_make(1000 + i, NVEFS_KIND_XVALUE, 256);
}

static void items_put(struct fixture *f, uint32_t n, uint64_t value)
{
	uint64_t val[NVEFS_VALUE_MAX / 8];

	for (uint32_t i = 0; i < n; i++) {
		struct nvefs_key key = item_key(i);
		struct nvefs_txn t;
		int err;

		for (size_t k = 0; k < sizeof(val) / sizeof(val[0]); k++)
			val[k] = value * 1000 + i;
		do {
			ck_assert_int_eq(nvefs_txn_begin(f->st, f->q, nvefs_tree_credits(f->st), 0, &t), 0);
			err = nvefs_tree_prepare(&t, &key);
			if (!err)
				ck_assert_int_eq(nvefs_tree_put(&t, &key, val, sizeof(val)), 0);
			nvefs_txn_end(&t);
		} while (nvefs_store_retry(f->st, f->q, &t.miss, &err));
		ck_assert_int_eq(err, 0);
	}
}

/* How many of the items can be read; those that can are right. */
static uint32_t items_check(struct fixture *f, uint64_t value)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ITEMS; i++) {
		struct nvefs_key key = item_key(i);
		struct nvefs_miss miss;
		const void *val;
		uint32_t len;
		int err;

		do {
			nvefs_store_rdlock(f->st);
			err = nvefs_tree_get(f->st, &key, &miss, &val, &len);
			if (!err)
				ck_assert_uint_eq(*(const uint64_t *)val, value * 1000 + i);
			nvefs_store_rdunlock(f->st);
		} while (nvefs_store_retry(f->st, f->q, &miss, &err));
		ck_assert(err == 0 || err == -EUCLEAN || err == -EIO);
		n += !err;
	}
	return n;
}

static void bitmaps_load(struct fixture *f)
{
	for (uint32_t g = 0; g < f->sb.ngroups; g++)
		(void)nvefs_block_pin_load(f->st, f->q, nvefs_layout_group_start(g) + 5000);
}

/* Where the block of this kind lies, and what it must be. Everything is home. */
static struct nvefs_block_expect place_of(struct fixture *f, enum kind kind)
{
	struct nvefs_block_expect want = {.pblk = f->sb.root_pblk,
					  .twin = nvefs_layout_root_twin(&f->sb),
					  .uuid = f->sb.uuid,
					  .type = NVEFS_BT_ROOT};
	uint8_t *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_root root;

	if (kind == KIND_BITMAP) {
		want.pblk = nvefs_layout_bitmap_pblk(0);
		want.twin = nvefs_layout_bitmap_twin(&f->sb, 0);
		want.type = NVEFS_BT_BITMAP;
	} else if (kind != KIND_ROOT_BLOCK) {
		device_read(f, want.pblk, buf);
		ck_assert_int_eq(nvefs_root_decode(buf, &f->sb, &root), 0);
		ck_assert_uint_eq(root.tree_height, 3);
		want.pblk = root.tree_pblk;
		want.twin = root.tree_twin;
		want.txn = root.tree_txn;
		want.type = NVEFS_BT_NODE;
		for (int down = kind - KIND_ROOT_NODE; down > 0; down--) {
			struct nvefs_block_ref child;

			device_read(f, want.pblk, buf);
			child = nvefs_inner_child(buf, nvefs_node_nitems(buf) - 1);
			want.pblk = child.pblk;
			want.twin = child.twin;
			want.txn = child.txn;
		}
	}
	nvefs_buf_free(buf);
	return want;
}

/* A store whose tree was written twice, so that there are old versions. *ret_old: of this kind of block. */
static struct nvefs_block_expect make(struct fixture *f, enum kind kind, uint8_t *ret_old)
{
	struct nvefs_block_expect want;
	struct nvefs_dev *ram = NULL;

	fixture_init_dup(f, "ram:256M", &by_hand);
	items_put(f, ITEMS * 2 / 3, 1);
	fixture_close(f);
	want = place_of(f, kind);
	device_read(f, want.pblk, ret_old);
	nvefs_queue_done(f->q);
	ram = f->dev;
	ck_assert_int_eq(nvefs_fault_wrap(ram, NULL, 0, &f->dev), 0);
	f->q = test_queue(f->dev);
	fixture_open(f, &by_hand);
	items_put(f, ITEMS, 2);
	fixture_close(f);
	return place_of(f, kind);
}

/* As if memory had gone bad at one of the two writings: everything is right but what the block says. */
static void make_impossible(uint8_t *buf)
{
	switch (nvefs_block_type(buf)) {
	case NVEFS_BT_ROOT:
		((struct nvefs_disk_root *)(void *)buf)->tree_height = le32_make(99);
		break;
	case NVEFS_BT_BITMAP:
		((struct nvefs_disk_bitmap *)(void *)buf)->bits[0] = 0;
		break;
	default:
		((struct nvefs_disk_node *)(void *)buf)->heap_used = le16_make(5);
	}
	nvefs_block_seal(buf);
}

static void damage_do(struct fixture *f, const struct nvefs_block_expect *want, bool twin, enum damage damage,
		      const uint8_t *old)
{
	uint64_t pblk = twin ? want->twin : want->pblk;
	const struct nvefs_fault unreadable = {.op = NVEFS_IO_READ,
					       .action = NVEFS_FAULT_FAIL,
					       .err = -EIO,
					       .nth = 1,
					       .every = 1,
					       .first_pblk = pblk,
					       .end_pblk = pblk + 1};
	uint8_t *buf = nvefs_buf_new_zeroed(NVEFS_BLOCK_SIZE);

	if (damage == DAMAGE_BYTE)
		device_damage(f, pblk, 2000);
	else if (damage == DAMAGE_STALE)
		device_write(f, pblk, old);
	else if (damage == DAMAGE_UNREADABLE)
		ck_assert_int_eq(nvefs_fault_add(f->dev, &unreadable), 0);
	else if (damage == DAMAGE_MISDIRECTED)
		device_read(f, nvefs_layout_bitmap_pblk(2), buf);
	if (damage == DAMAGE_CONTENT) {
		device_read(f, pblk, buf);
		make_impossible(buf);
	}
	if (damage == DAMAGE_ZEROS || damage == DAMAGE_MISDIRECTED || damage == DAMAGE_CONTENT)
		device_write(f, pblk, buf);
	nvefs_buf_free(buf);
}

static void expect_both_good(struct fixture *f, const struct nvefs_block_expect *want)
{
	uint8_t *a = nvefs_buf_new(NVEFS_BLOCK_SIZE), *b = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	device_read(f, want->pblk, a);
	device_read(f, want->twin, b);
	ck_assert_int_eq(nvefs_block_check(a, want), NVEFS_BLOCK_OK);
	ck_assert_int_eq(nvefs_block_check(b, want), NVEFS_BLOCK_OK);
	ck_assert_mem_eq(a, b, NVEFS_BLOCK_SIZE);
	nvefs_buf_free(a);
	nvefs_buf_free(b);
}

static void use_all(struct fixture *f, uint32_t want_items)
{
	ck_assert_uint_eq(items_check(f, 2), want_items);
	bitmaps_load(f);
}

/* One bad first copy: everything is read, it is counted, and written anew without being asked. */
START_TEST(a_bad_first_copy_is_healed)
{
	enum kind kind = (enum kind)(_i / NDAMAGES);
	enum damage damage = (enum damage)(_i % NDAMAGES);
	uint8_t *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_block_expect want;
	struct fixture f;

	want = make(&f, kind, old);
	damage_do(&f, &want, false, damage, old);

	/* Nothing is written by those who only look. */
	fixture_open(&f, &in_memory);
	use_all(&f, ITEMS);
	ck_assert_uint_eq(f.st->stats.copies_bad, 1);
	ck_assert_uint_eq(f.st->stats.copies_healed, 0);
	nvefs_store_free(f.st);

	fixture_open(&f, &by_hand);
	use_all(&f, ITEMS);
	ck_assert_uint_eq(f.st->stats.copies_bad, 1);
	ck_assert_int_eq(nvefs_commit_reclaim(f.st), 0);
	ck_assert_int_eq(nvefs_commit_reclaim(f.st), 0);
	ck_assert_uint_eq(f.st->stats.copies_healed, 1);
	nvefs_fault_clear(f.dev);
	expect_both_good(&f, &want);
	fixture_close(&f);

	fixture_open(&f, &by_hand);
	use_all(&f, ITEMS);
	ck_assert_uint_eq(f.st->stats.copies_bad, 0);
	nvefs_buf_free(old);
	fixture_done(&f);
}
END_TEST

static int never_bad(void *arg, uint64_t pblk, int err)
{
	(void)arg;
	ck_abort_msg("block %llu: %d", (unsigned long long)pblk, err);
	return err;
}

static int node_never_bad(void *arg, const struct nvefs_tree_visit *v)
{
	return never_bad(arg, v->pblk, v->err);
}

static void scrub(struct fixture *f)
{
	ck_assert_int_eq(nvefs_store_heal(f->st), 0);
	ck_assert_int_eq(nvefs_store_fixed_check(f->st, f->q, never_bad, NULL), 0);
	ck_assert_int_eq(nvefs_tree_verify(f->st, f->q, node_never_bad, NULL), 0);
	ck_assert_int_eq(nvefs_store_heal(f->st), 0);
}

/* Nobody reads a second copy but who looks for it. */
START_TEST(scrub_heals_a_bad_second_copy)
{
	enum kind kind = (enum kind)(_i / NDAMAGES);
	enum damage damage = (enum damage)(_i % NDAMAGES);
	uint8_t *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_block_expect want;
	struct fixture f;

	want = make(&f, kind, old);
	damage_do(&f, &want, true, damage, old);
	fixture_open(&f, &by_hand);
	use_all(&f, ITEMS);
	/* The age of the root block is not known, so both are read. */
	ck_assert_uint_eq(f.st->stats.copies_bad, kind == KIND_ROOT_BLOCK);
	if (kind == KIND_ROOT_BLOCK)
		nvefs_fault_clear(f.dev);
	scrub(&f);
	ck_assert_uint_eq(f.st->stats.copies_bad, 1);
	ck_assert_uint_eq(f.st->stats.copies_healed, 1);
	nvefs_fault_clear(f.dev);
	expect_both_good(&f, &want);
	scrub(&f);
	ck_assert_uint_eq(f.st->stats.copies_bad, 1);
	nvefs_buf_free(old);
	fixture_done(&f);
}
END_TEST

/* What is in memory is as good as a second copy. */
START_TEST(scrub_heals_from_memory)
{
	uint8_t *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_block_expect want;
	struct fixture f;

	want = make(&f, KIND_LEAF, old);
	fixture_open(&f, &by_hand);
	use_all(&f, ITEMS);
	damage_do(&f, &want, false, DAMAGE_BYTE, old);
	damage_do(&f, &want, true, DAMAGE_STALE, old);
	scrub(&f);
	ck_assert_uint_eq(f.st->stats.copies_bad, 2);
	ck_assert_uint_eq(f.st->stats.copies_healed, 2);
	expect_both_good(&f, &want);
	nvefs_buf_free(old);
	fixture_done(&f);
}
END_TEST

/* The header that counts, and a superblock slot. */
START_TEST(scrub_looks_at_header_and_superblock)
{
	struct nvefs_block_expect want = {.type = NVEFS_BT_JHEADER};
	struct fixture f;
	unsigned int slot;

	fixture_init_dup(&f, "ram:256M", &by_hand);
	items_put(&f, ITEMS, 1);
	scrub(&f);
	slot = f.st->journal.header_seq % 2;
	want.uuid = f.sb.uuid;
	want.pblk = nvefs_journal_header_pblk(&f.sb, slot);
	want.twin = nvefs_journal_header_twin(&f.sb, slot);
	device_damage(&f, _i ? want.twin : want.pblk, 80);
	device_damage(&f, nvefs_super_slot_pblk(f.sb.nblks, 1 + (unsigned int)_i), 300);
	scrub(&f);
	ck_assert_uint_eq(f.st->stats.copies_bad, 2);
	ck_assert_uint_eq(f.st->stats.copies_healed, 2);
	expect_both_good(&f, &want);
	fixture_done(&f);
}
END_TEST

/* Others change the tree meanwhile: nothing of it looks bad. */
static void *changer(void *arg)
{
	struct fixture f = *(struct fixture *)arg;

	f.q = test_queue(f.dev);
	for (uint64_t v = 3; v < 9; v++) {
		items_put(&f, ITEMS, v);
		ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	}
	nvefs_queue_done(f.q);
	return NULL;
}

START_TEST(scrub_while_others_write)
{
	struct nvefs_store_opts opts = {.cache_bytes = 1, .commit_interval_ns = 2000000};
	struct fixture f;
	pthread_t thread;

	fixture_init_dup(&f, "ram:256M", &opts);
	items_put(&f, ITEMS, 2);
	ck_assert_int_eq(nvefs_thread_start(&thread, "changer", changer, &f), 0);
	for (int i = 0; i < 20; i++)
		scrub(&f);
	nvefs_thread_join(thread);
	scrub(&f);
	ck_assert_uint_eq(f.st->stats.copies_bad, 0);
	fixture_done(&f);
}
END_TEST

/* Both are bad: an error for those who need the block, and nothing is written over it. */
START_TEST(two_bad_copies_are_an_error)
{
	enum kind kind = (enum kind)(_i / NDAMAGES);
	enum damage damage = (enum damage)(_i % NDAMAGES);
	uint8_t *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_error err = {""};
	struct nvefs_block_expect want;
	struct fixture f;
	int rc;

	want = make(&f, kind, old);
	damage_do(&f, &want, false, damage, old);
	damage_do(&f, &want, true, damage, old);
	rc = fixture_try_open(&f, &in_memory, &err);
	if (kind == KIND_ROOT_BLOCK) {
		ck_assert_msg(rc == (damage == DAMAGE_UNREADABLE ? -EIO : -EUCLEAN), "%d %s", rc, err.text);
	} else {
		ck_assert_msg(!rc, "%s", err.text);
		ck_assert(kind == KIND_BITMAP || items_check(&f, 2) < ITEMS);
		bitmaps_load(&f);
		/* Of two that say the same impossible thing none is the better one: whoever decodes it tells. */
		if (damage == DAMAGE_CONTENT)
			ck_assert_uint_eq(f.st->stats.copies_bad, 0);
		else
			ck_assert_uint_ge(f.st->stats.copies_bad, 2);
		nvefs_store_free(f.st);
	}
	nvefs_buf_free(old);
	nvefs_queue_done(f.q);
	nvefs_dev_close(f.dev);
}
END_TEST

/* What is bad becomes right as well when the block is changed: a checkpoint writes both copies. */
START_TEST(a_checkpoint_heals)
{
	uint8_t *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_block_expect want;
	struct fixture f;

	want = make(&f, KIND_LEAF, old);
	damage_do(&f, &want, _i, DAMAGE_STALE, old);
	fixture_open(&f, &by_hand);
	items_put(&f, ITEMS, 3);
	fixture_close(&f);
	want = place_of(&f, KIND_LEAF);
	expect_both_good(&f, &want);
	nvefs_buf_free(old);
	fixture_open(&f, &by_hand);
	ck_assert_uint_eq(items_check(&f, 3), ITEMS);
	fixture_done(&f);
}
END_TEST

/* A drive that does not take the bad copy back: told and counted, and the file system goes on. */
START_TEST(a_copy_that_cannot_be_written_is_counted)
{
	uint8_t *old = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_fault unwritable = {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_FAIL, .err = -EIO, .nth = 1,
					 .every = 1};
	struct nvefs_block_expect want;
	struct fixture f;

	want = make(&f, KIND_LEAF, old);
	damage_do(&f, &want, false, DAMAGE_ZEROS, old);
	unwritable.first_pblk = want.pblk;
	unwritable.end_pblk = want.pblk + 1;
	ck_assert_int_eq(nvefs_fault_add(f.dev, &unwritable), 0);
	fixture_open(&f, &by_hand);
	use_all(&f, ITEMS);
	ck_assert_int_eq(nvefs_commit_reclaim(f.st), 0);
	ck_assert_int_eq(nvefs_commit_reclaim(f.st), 0);
	ck_assert_uint_eq(f.st->stats.copies_unhealed, 1);
	ck_assert_uint_eq(f.st->stats.copies_healed, 0);
	ck_assert_int_eq(nvefs_store_error(f.st), 0);
	use_all(&f, ITEMS);
	nvefs_buf_free(old);
	fixture_done(&f);
}
END_TEST

/* The header that counts has a second copy, and is put right at once. */
START_TEST(a_bad_journal_header_is_healed)
{
	struct fixture f;
	uint64_t first[2], twin[2];

	fixture_init_dup(&f, "ram:256M", &by_hand);
	for (unsigned int i = 0; i < 2; i++) {
		first[i] = nvefs_journal_header_pblk(&f.sb, i);
		twin[i] = nvefs_journal_header_twin(&f.sb, i);
	}
	items_put(&f, ITEMS, 1);
	ck_assert_int_eq(nvefs_commit_run(f.st, false), 0);
	fixture_crash(&f);
	/* Of each slot one copy is gone. */
	device_damage(&f, _i ? twin[0] : first[0], 80);
	device_damage(&f, _i ? first[1] : twin[1], 80);
	fixture_open(&f, &by_hand);
	ck_assert_uint_eq(f.st->stats.copies_bad, 1);
	ck_assert_uint_eq(f.st->stats.copies_healed, 1);
	ck_assert_uint_eq(items_check(&f, 1), ITEMS);
	fixture_crash(&f);
	for (unsigned int i = 0; i < 2; i++) {
		const struct nvefs_block_expect want = {
			.pblk = first[i], .twin = twin[i], .uuid = f.sb.uuid, .type = NVEFS_BT_JHEADER};

		expect_both_good(&f, &want);
	}
	fixture_open(&f, &by_hand);
	ck_assert_uint_eq(f.st->stats.copies_bad, 0);
	fixture_done(&f);
}
END_TEST

/* What mkfs writes: two copies of everything, each where the other says. */
START_TEST(mkfs_writes_both_copies)
{
	static const char *const sizes[] = {"ram:64M", "ram:200M", "ram:8G"};
	struct nvefs_block_expect want = {.type = NVEFS_BT_BITMAP};
	struct nvefs_root *root;
	struct fixture f;

	fixture_init_dup(&f, sizes[_i], &by_hand);
	want.uuid = f.sb.uuid;
	for (uint32_t g = 0; g < f.sb.ngroups; g++) {
		want.pblk = nvefs_layout_bitmap_pblk(g);
		want.twin = nvefs_layout_bitmap_twin(&f.sb, g);
		expect_both_good(&f, &want);
	}
	root = nvefs_store_root(f.st);
	want = (struct nvefs_block_expect){.pblk = root->tree_pblk,
					   .twin = root->tree_twin,
					   .txn = root->tree_txn,
					   .uuid = f.sb.uuid,
					   .type = NVEFS_BT_NODE};
	expect_both_good(&f, &want);
	ck_assert(f.sb.ngroups == 1 || nvefs_layout_group(want.pblk) != nvefs_layout_group(want.twin));
	fixture_done(&f);
}
END_TEST

static int twin_visit(void *arg, const struct nvefs_tree_visit *v)
{
	uint32_t *same = arg;

	ck_assert_int_eq(v->err, 0);
	ck_assert_uint_ne(v->twin, 0);
	*same += nvefs_layout_group(v->pblk) == nvefs_layout_group(v->twin);
	return 0;
}

START_TEST(copies_lie_in_different_groups)
{
	struct fixture f;
	uint32_t same = 0;

	fixture_init_dup(&f, "ram:256M", &by_hand);
	items_put(&f, ITEMS, 1);
	ck_assert_int_eq(nvefs_tree_walk(f.st, f.q, NULL, twin_visit, &same), 0);
	ck_assert_uint_eq(same, 0);
	fixture_done(&f);
}
END_TEST

Suite *store_copies_suite(void)
{
	Suite *s = suite_create("store-copies");
	TCase *tc = tcase_create("copies");

	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, a_bad_first_copy_is_healed, 0, NKINDS * NDAMAGES);
	tcase_add_loop_test(tc, scrub_heals_a_bad_second_copy, 0, NKINDS * NDAMAGES);
	tcase_add_test(tc, scrub_heals_from_memory);
	tcase_add_loop_test(tc, scrub_looks_at_header_and_superblock, 0, 2);
	tcase_add_test(tc, scrub_while_others_write);
	tcase_add_loop_test(tc, two_bad_copies_are_an_error, 0, NKINDS * NDAMAGES);
	tcase_add_loop_test(tc, a_checkpoint_heals, 0, 2);
	tcase_add_test(tc, a_copy_that_cannot_be_written_is_counted);
	tcase_add_loop_test(tc, a_bad_journal_header_is_healed, 0, 2);
	tcase_add_loop_test(tc, mkfs_writes_both_copies, 0, 3);
	tcase_add_test(tc, copies_lie_in_different_groups);
	suite_add_tcase(s, tc);
	return s;
}
