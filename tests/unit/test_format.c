/* SPDX-License-Identifier: MIT */
/* The codecs of the disk format: what goes in comes out, and damage is refused. */
#include "../support/suites.h"
#include "test_format.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/bitmap.h"
#include "format/block.h"
#include "format/dirent.h"
#include "format/inode.h"
#include "format/item.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/mmp.h"
#include "format/root.h"
#include "format/xattr.h"

void test_super_make(struct nvefs_super *sb, uint64_t dev_blks)
{
	memset(sb, 0, sizeof(*sb));
	for (unsigned int i = 0; i < sizeof(sb->uuid); i++)
		sb->uuid[i] = (uint8_t)(0xa0 + i);
	sb->disk_version = NVEFS_DISK_VERSION;
	sb->seq = 7;
	sb->hash_seed = 0x1234567890abcdefull;
	sb->created.tv_sec = 1700000000;
	sb->created.tv_nsec = 999999999;
	sb->iu_blks = 16;
	sb->lba_bytes = 512;
	memcpy(sb->serial, "0123456789abcdef01234567", sizeof(sb->serial));
	strcpy(sb->label, "a label");
	strcpy(sb->creator, "test 1");
	ck_assert_int_eq(nvefs_layout_make(dev_blks, 0, sb), 0);
}

START_TEST(block_statuses_differ)
{
	struct {
		struct nvefs_disk_header hdr;
		uint8_t body[NVEFS_BLOCK_BYTES - 64];
	} b = {0};
	const uint8_t uuid[16] = "one", other[16] = "two";
	struct nvefs_block_expect want = {.pblk = 77, .txn = 5, .uuid = uuid, .type = NVEFS_BT_NODE};

	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_ZERO);
	b.body[9] = 1;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_MAGIC);
	nvefs_block_fill(&b, NVEFS_BT_NODE, 77, 5, uuid);
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_CHECKSUM);
	nvefs_block_seal(&b);
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_OK);
	want.txn = 6;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_STALE);
	want.txn = 4;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_FUTURE);
	want.txn = 0;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_OK);
	want.type = NVEFS_BT_BITMAP;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_TYPE);
	want.twin = 99;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_MISDIRECTED);
	want.twin = NVEFS_TWIN_ANY;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_TYPE);
	want.pblk = 78;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_MISDIRECTED);
	want.uuid = other;
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_FOREIGN);
	b.hdr.version = le16_make(NVEFS_DISK_VERSION + 1);
	nvefs_block_seal(&b);
	ck_assert_int_eq(nvefs_block_check(&b, &want), NVEFS_BLOCK_VERSION);
	for (int s = NVEFS_BLOCK_ZERO; s <= NVEFS_BLOCK_CONTENT; s++) {
		ck_assert_int_eq(nvefs_block_status_errno(s), -EUCLEAN);
		ck_assert_str_ne(nvefs_block_status_text(s), "unknown status");
	}
}
END_TEST

START_TEST(every_bit_of_a_block_counts)
{
	uint8_t b[NVEFS_BLOCK_BYTES] = {0};
	const uint8_t uuid[16] = "one";
	const struct nvefs_block_expect want = {.pblk = 1, .uuid = uuid, .type = NVEFS_BT_ROOT};

	nvefs_block_fill(b, NVEFS_BT_ROOT, 1, 1, uuid);
	nvefs_block_seal(b);
	for (uint32_t bit = 0; bit < sizeof(b) * 8; bit += 7) {
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
		HOLDS(nvefs_block_check(b, &want) != NVEFS_BLOCK_OK);
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ck_assert_int_eq(nvefs_block_check(b, &want), NVEFS_BLOCK_OK);
}
END_TEST

START_TEST(super_round_trip)
{
	struct nvefs_super sb, got;
	uint8_t b[NVEFS_BLOCK_BYTES];
	const char *why;

	test_super_make(&sb, 1000000);
	for (unsigned int slot = 0; slot < NVEFS_SUPER_SLOTS; slot++) {
		uint64_t pblk = nvefs_super_slot_pblk(sb.nblks, slot);

		nvefs_super_encode(&sb, pblk, b);
		nvefs_block_seal(b);
		memset(&got, 0, sizeof(got));
		ck_assert_int_eq(nvefs_super_decode(b, pblk, &got, &why), 0);
		ck_assert_mem_eq(&got, &sb, sizeof(sb));
		ck_assert_int_eq(nvefs_super_decode(b, pblk + 1, &got, &why), -EUCLEAN);
	}
}
END_TEST

START_TEST(super_refuses)
{
	struct nvefs_super sb, got;
	uint8_t b[NVEFS_BLOCK_BYTES] = {0};
	struct nvefs_disk_super *d = (void *)b;
	const char *why;

	test_super_make(&sb, NVEFS_MIN_BLKS);
	ck_assert_int_eq(nvefs_super_decode(b, 0, &got, &why), -EMEDIUMTYPE);
	nvefs_super_encode(&sb, 0, b);
	ck_assert_int_eq(nvefs_super_decode(b, 0, &got, &why), -EUCLEAN);
	d->feature_incompat = le64_make(NVEFS_INCOMPAT_KNOWN + 1);
	nvefs_block_seal(b);
	ck_assert_int_eq(nvefs_super_decode(b, 0, &got, &why), -ENOTSUP);
	d->feature_incompat = le64_make(0);
	d->feature_ro_compat = le64_make(1ull << 63);
	nvefs_block_seal(b);
	ck_assert_int_eq(nvefs_super_decode(b, 0, &got, &why), 0);
	ck_assert(nvefs_super_must_be_ro(&got));
	for (int v = -1; v <= 1; v += 2) {
		d->hdr.version = le16_make((uint16_t)(NVEFS_DISK_VERSION + v));
		nvefs_block_seal(b);
		ck_assert_int_eq(nvefs_super_decode(b, 0, &got, &why), -ENOTSUP);
		ck_assert_ptr_nonnull(strstr(why, v < 0 ? "older" : "newer"));
	}

#define REFUSED(change)                                                                            \
	do {                                                                                       \
		nvefs_super_encode(&sb, 0, b);                                                     \
		change;                                                                            \
		nvefs_block_seal(b);                                                               \
		ck_assert_msg(nvefs_super_decode(b, 0, &got, &why) == -EUCLEAN, #change);          \
		ck_assert_ptr_nonnull(why);                                                        \
	} while (0)
	REFUSED(d->nblks = le64_make(NVEFS_MIN_BLKS - 1));
	REFUSED(d->nblks = le64_make(UINT64_MAX));
	REFUSED(d->nblks = le64_make(NVEFS_GROUP_BLKS + 1));
	REFUSED(d->ngroups = le32_make(2));
	REFUSED(d->group_blks = le32_make(0));
	REFUSED(d->journal_pblk = le64_make(17));
	REFUSED(d->journal_blks = le32_make(NVEFS_MIN_BLKS));
	REFUSED(d->journal_blks = le32_make(1));
	REFUSED(d->root_pblk = le64_make(99));
	REFUSED(d->created_ns = le32_make(1000000000));
	REFUSED(d->feature_incompat = le64_make(NVEFS_INCOMPAT_MMP));
	sb.feature_incompat = NVEFS_INCOMPAT_MMP;
	sb.mmp_interval_ms = NVEFS_MMP_MIN_MS;
	REFUSED(d->mmp_interval_ms = le32_make(NVEFS_MMP_MIN_MS - 1));
	REFUSED(d->mmp_interval_ms = le32_make(NVEFS_MMP_MAX_MS + 1));
	nvefs_super_encode(&sb, 0, b);
	nvefs_block_seal(b);
	ck_assert_int_eq(nvefs_super_decode(b, 0, &got, &why), 0);
	ck_assert_uint_eq(got.mmp_interval_ms, NVEFS_MMP_MIN_MS);
	/* A UUID of its own, which is not all zeros. */
	sb.feature_ro_compat = NVEFS_ROCOMPAT_UUID;
	REFUSED((void)0);
	sb.public_uuid[15] = 7;
	nvefs_super_encode(&sb, 0, b);
	nvefs_block_seal(b);
	ck_assert_int_eq(nvefs_super_decode(b, 0, &got, &why), 0);
	ck_assert_mem_eq(nvefs_super_public_uuid(&got), sb.public_uuid, 16);
	ck_assert_mem_eq(got.uuid, sb.uuid, 16);
	sb.feature_ro_compat = 0;
	/* Without the feature the field is reserved: not written, not looked at. */
	sb.feature_incompat = 0;
	nvefs_super_encode(&sb, 0, b);
	ck_assert_uint_eq(le32_get(d->mmp_interval_ms), 0);
	d->mmp_interval_ms = le32_make(3);
	nvefs_block_seal(b);
	ck_assert_int_eq(nvefs_super_decode(b, 0, &got, &why), 0);
	ck_assert_uint_eq(got.mmp_interval_ms, 0);
}
END_TEST

START_TEST(mmp_blocks)
{
	struct nvefs_mmp_rec rec = {.nonce = 1ull << 63, .seq = 7, .state = NVEFS_MMP_FREE,
				    .interval_ms = NVEFS_MMP_MAX_MS, .time_s = 99, .host = "a", .target = "b"},
			     got;
	uint8_t b[NVEFS_BLOCK_BYTES];
	struct nvefs_disk_mmp *d = (void *)b;
	struct nvefs_super sb, other;

	test_super_make(&sb, NVEFS_MIN_BLKS);
	test_super_make(&other, NVEFS_MIN_BLKS);
	other.uuid[3] ^= 1;
	/* Neither block is ever handed out. */
	ck_assert(nvefs_layout_is_fixed(&sb, NVEFS_CLAIM_PBLK) && nvefs_layout_is_fixed(&sb, NVEFS_BEAT_PBLK));
	memset(rec.host, 'h', sizeof(rec.host) - 1);
	memset(rec.target, 't', sizeof(rec.target) - 1);
	for (uint16_t type = NVEFS_BT_CLAIM; type <= NVEFS_BT_BEAT; type++) {
		nvefs_mmp_encode(&rec, &sb, type, b);
		ck_assert_int_eq(nvefs_mmp_decode(b, &sb, type, &got), NVEFS_BLOCK_CHECKSUM);
		nvefs_block_seal(b);
		memset(&got, 0, sizeof(got));
		ck_assert_int_eq(nvefs_mmp_decode(b, &sb, type, &got), NVEFS_BLOCK_OK);
		ck_assert_mem_eq(&got, &rec, sizeof(rec));
		ck_assert_int_eq(nvefs_mmp_decode(b, &other, type, &got), NVEFS_BLOCK_FOREIGN);
		ck_assert_int_eq(nvefs_mmp_decode(b, &sb, NVEFS_BT_CLAIM + NVEFS_BT_BEAT - type, &got),
				 NVEFS_BLOCK_MISDIRECTED);
	}
#define MMP_REFUSED(change)                                                                        \
	do {                                                                                       \
		nvefs_mmp_encode(&rec, &sb, NVEFS_BT_CLAIM, b);                                    \
		change;                                                                            \
		nvefs_block_seal(b);                                                               \
		ck_assert_msg(nvefs_mmp_decode(b, &sb, NVEFS_BT_CLAIM, &got) == NVEFS_BLOCK_CONTENT, #change); \
	} while (0)
	MMP_REFUSED(d->state = le32_make(0));
	MMP_REFUSED(d->state = le32_make(NVEFS_MMP_FSCK + 1));
	MMP_REFUSED(d->interval_ms = le32_make(NVEFS_MMP_MIN_MS - 1));
	MMP_REFUSED(d->interval_ms = le32_make(NVEFS_MMP_MAX_MS + 1));
	MMP_REFUSED(d->host[sizeof(d->host) - 1] = 1);
	MMP_REFUSED(d->target[sizeof(d->target) - 1] = 1);
}
END_TEST

/* A second copy lies on a fixed block, and in another group if there is one. */
static void twin_check(const struct nvefs_super *sb, uint64_t pblk, uint64_t twin)
{
	if (!nvefs_super_dup(sb)) {
		ck_assert_uint_eq(twin, 0);
		return;
	}
	ck_assert(twin && twin < sb->nblks && nvefs_layout_is_fixed(sb, twin));
	ck_assert(sb->ngroups == 1 || nvefs_layout_group(pblk) != nvefs_layout_group(twin));
}

/* No two things of fixed place share a block. */
START_TEST(second_copies_have_places_of_their_own)
{
	static uint8_t seen[3 * NVEFS_GROUP_BLKS];
	struct nvefs_super sb;
	uint64_t at[32];
	uint32_t n = 0;

	test_super_make(&sb, 2 * NVEFS_GROUP_BLKS + 64);
	sb.flags = NVEFS_SB_META_DUP;
	memset(seen, 0, sizeof(seen));
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++)
		at[n++] = nvefs_super_slot_pblk(sb.nblks, i);
	for (unsigned int i = 0; i < NVEFS_JOURNAL_HEADERS; i++) {
		at[n++] = nvefs_journal_header_pblk(&sb, i);
		at[n++] = nvefs_journal_header_twin(&sb, i);
		twin_check(&sb, at[n - 2], at[n - 1]);
	}
	at[n++] = sb.root_pblk;
	at[n++] = nvefs_layout_root_twin(&sb);
	twin_check(&sb, at[n - 2], at[n - 1]);
	for (uint32_t g = 0; g < sb.ngroups; g++) {
		at[n++] = nvefs_layout_bitmap_pblk(g);
		at[n++] = nvefs_layout_bitmap_twin(&sb, g);
	}
	while (n-- > 0)
		ck_assert_uint_eq(seen[at[n]]++, 0);
	ck_assert(nvefs_layout_node_ok(&sb, 9000, 9001) && !nvefs_layout_node_ok(&sb, 9000, 9000));
	ck_assert(!nvefs_layout_node_ok(&sb, 9000, 0) && !nvefs_layout_node_ok(&sb, 9000, sb.nblks));
	sb.flags = 0;
	ck_assert(nvefs_layout_node_ok(&sb, 9000, 0) && !nvefs_layout_node_ok(&sb, 9000, 9001));
}
END_TEST

START_TEST(layout_fits_any_size)
{
	static const uint64_t sizes[] = {NVEFS_MIN_BLKS,	  NVEFS_GROUP_BLKS,
					 NVEFS_GROUP_BLKS + 1,	  NVEFS_GROUP_BLKS + 63,
					 NVEFS_GROUP_BLKS + 64,	  3 * NVEFS_GROUP_BLKS - 1,
					 7 * NVEFS_GROUP_BLKS + 5000};
	struct nvefs_super sb;
	uint8_t b[NVEFS_BLOCK_BYTES];
	const struct nvefs_disk_bitmap *bm = (void *)b;

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		test_super_make(&sb, sizes[i]);
		sb.flags = _i ? NVEFS_SB_META_DUP : 0;
		ck_assert_uint_eq(nvefs_layout_blks(sb.nblks), sb.nblks);
		ck_assert(sb.nblks <= sizes[i] && sb.nblks + 64 > sizes[i]);
		for (uint32_t g = 0; g < sb.ngroups; g++) {
			uint32_t len = nvefs_layout_group_len(&sb, g), fixed = 0;

			nvefs_layout_bitmap_init(&sb, g, 1, b);
			for (uint32_t k = 0; k < NVEFS_GROUP_BLKS; k++) {
				uint64_t pblk = nvefs_layout_group_start(g) + k;
				bool set = nvefs_layout_is_fixed(&sb, pblk);

				HOLDS(nvefs_bitmap_test(bm->bits, k) == set);
				HOLDS(nvefs_layout_run_ok(&sb, pblk, 1) == !set);
				fixed += set && k < len;
			}
			ck_assert_uint_eq(nvefs_layout_group_fixed(&sb, g), fixed);
			ck_assert(nvefs_layout_is_fixed(&sb, nvefs_layout_bitmap_pblk(g)));
			twin_check(&sb, nvefs_layout_bitmap_pblk(g), nvefs_layout_bitmap_twin(&sb, g));
		}
	}
}
END_TEST

START_TEST(layout_refuses)
{
	struct nvefs_super sb = {0};

	ck_assert_int_eq(nvefs_layout_make(NVEFS_MIN_BLKS - 1, 0, &sb), -ENOSPC);
	ck_assert_int_eq(nvefs_layout_make(0, 0, &sb), -ENOSPC);
	ck_assert_int_eq(nvefs_layout_make(UINT64_MAX, 0, &sb), -EFBIG);
	ck_assert_int_eq(nvefs_layout_make(NVEFS_MIN_BLKS, 16384, &sb), -EINVAL);
	ck_assert_int_eq(nvefs_layout_make(1 << 20, 100, &sb), -EINVAL);
	ck_assert_int_eq(nvefs_layout_make(1 << 20, 4096, &sb), 0);
	ck_assert_uint_eq(sb.journal_blks, 4096);
	ck_assert_uint_eq(nvefs_layout_journal_blks(1 << 18), 4096);
	ck_assert_uint_eq(nvefs_layout_journal_blks(1ull << 33), NVEFS_JOURNAL_MAX_BLKS);
	/* Runs: into the journal, over a bitmap, past the end, wrapping. */
	ck_assert_int_eq(nvefs_layout_make(3 * NVEFS_GROUP_BLKS, 0, &sb), 0);
	ck_assert(nvefs_layout_run_ok(&sb, 5000, 64));
	ck_assert(!nvefs_layout_run_ok(&sb, sb.journal_pblk + sb.journal_blks - 1, 2));
	ck_assert(!nvefs_layout_run_ok(&sb, NVEFS_GROUP_BLKS - 1, 3));
	ck_assert(!nvefs_layout_run_ok(&sb, sb.nblks - 2, 2));
	ck_assert(!nvefs_layout_run_ok(&sb, UINT64_MAX, 2));
	ck_assert(!nvefs_layout_run_ok(&sb, 5000, UINT64_MAX));
}
END_TEST

START_TEST(root_round_trip)
{
	struct nvefs_super sb;
	struct nvefs_root got, root = {.tree_pblk = 9000, .tree_txn = 3, .tree_height = 2,
				       .next_ino = 17, .free_blks = 100, .meta_blks = 3,
				       .inodes = 2, .shared_blks = 1, .shared_refs = 9,
				       .mount_count = 4, .written_s = 5};
	struct nvefs_root bad;
	uint8_t b[NVEFS_BLOCK_BYTES];

	test_super_make(&sb, NVEFS_MIN_BLKS);
	nvefs_root_encode(&root, &sb, 3, b);
	ck_assert_int_eq(nvefs_root_decode(b, &sb, &got), 0);
	ck_assert_mem_eq(&got, &root, sizeof(root));
#define ROOT_REFUSED(change)                                                                       \
	do {                                                                                       \
		bad = root;                                                                        \
		change;                                                                            \
		nvefs_root_encode(&bad, &sb, 3, b);                                                \
		ck_assert_msg(nvefs_root_decode(b, &sb, &got) == -EUCLEAN, #change);               \
	} while (0)
	ROOT_REFUSED(bad.tree_pblk = 5);
	ROOT_REFUSED(bad.tree_pblk = sb.nblks);
	ROOT_REFUSED(bad.tree_txn = 0);
	ROOT_REFUSED(bad.tree_txn = 4);
	ROOT_REFUSED(bad.tree_height = 0);
	ROOT_REFUSED(bad.tree_height = NVEFS_TREE_MAX_HEIGHT + 1);
	ROOT_REFUSED(bad.next_ino = 1);
	ROOT_REFUSED(bad.free_blks = sb.nblks);
}
END_TEST

START_TEST(journal_blocks)
{
	struct nvefs_super sb;
	struct nvefs_jheader h = {.seq = 1, .epoch = 2, .tail_txn = 3, .tail_pos = 4}, hgot;
	struct nvefs_jcommit c = {.txn = 9, .epoch = 2, .nblks = 3, .nimages = 2,
				  .group_checksum = 77}, cgot;
	struct nvefs_jdesc d;
	uint8_t b[NVEFS_BLOCK_BYTES];

	test_super_make(&sb, 100000);
	h.log_blks = nvefs_journal_log_blks(&sb);
	nvefs_jheader_encode(&h, &sb, 1, b);
	ck_assert_uint_eq(nvefs_block_pblk(b), NVEFS_JOURNAL_PBLK + 1);
	ck_assert_int_eq(nvefs_jheader_decode(b, &sb, &hgot), 0);
	ck_assert_mem_eq(&h, &hgot, sizeof(h));
	h.tail_pos = h.log_blks;
	nvefs_jheader_encode(&h, &sb, 1, b);
	ck_assert_int_eq(nvefs_jheader_decode(b, &sb, &hgot), -EUCLEAN);

	nvefs_jdesc_init(b, &sb, 10, 9, 2, 1);
	ck_assert_uint_eq(nvefs_block_pblk(b), NVEFS_JOURNAL_PBLK + 2 + 10);
	ck_assert_int_eq(nvefs_jdesc_decode(b, &sb, &d), -EUCLEAN); /* no image */
	nvefs_jdesc_add(b, NVEFS_ROOT_PBLK);
	nvefs_jdesc_add(b, NVEFS_BITMAP0_PBLK);
	nvefs_jdesc_add(b, NVEFS_GROUP_BLKS);
	for (uint32_t i = 3; i < NVEFS_JDESC_MAX; i++)
		nvefs_jdesc_add(b, 10000 + i);
	ck_assert_int_eq(nvefs_jdesc_decode(b, &sb, &d), 0);
	ck_assert(d.txn == 9 && d.epoch == 2 && d.nimages == NVEFS_JDESC_MAX && d.index == 1);
	ck_assert_uint_eq(nvefs_jdesc_home(b, 499), 10499);
	const uint64_t bad[] = {0, 1, NVEFS_JOURNAL_PBLK, NVEFS_JOURNAL_PBLK + 100, sb.nblks - 1, sb.nblks};
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		nvefs_jdesc_init(b, &sb, 10, 9, 2, 1);
		nvefs_jdesc_add(b, bad[i]);
		ck_assert_msg(nvefs_jdesc_decode(b, &sb, &d) == -EUCLEAN, "home %lu", (unsigned long)bad[i]);
	}
	((struct nvefs_disk_jdesc *)b)->nimages = le32_make(NVEFS_JDESC_MAX + 1);
	ck_assert_int_eq(nvefs_jdesc_decode(b, &sb, &d), -EUCLEAN);

	nvefs_jcommit_encode(&c, &sb, 13, b);
	ck_assert_int_eq(nvefs_jcommit_decode(b, &sb, &cgot), 0);
	ck_assert_mem_eq(&c, &cgot, sizeof(c));
	c.nimages = c.nblks;
	nvefs_jcommit_encode(&c, &sb, 13, b);
	ck_assert_int_eq(nvefs_jcommit_decode(b, &sb, &cgot), -EUCLEAN);
}
END_TEST

START_TEST(inode_round_trip)
{
	struct nvefs_inode_rec got, bad, rec = {
		.mode = S_IFREG | 06755, .uid = 1, .gid = 2, .nlink = 3, .size = 1ull << 50,
		.blks = 7, .atime = {-5, 999999999}, .mtime = {2, 3}, .ctime = {1ll << 40, 0},
		.btime = {4, 5}, .flags = NVEFS_INODE_DEDUP_ON, .xvalue_next = 9,
	};
	struct nvefs_disk_inode d;

	nvefs_inode_encode(&rec, &d);
	ck_assert_int_eq(nvefs_inode_decode(&d, sizeof(d), &got), 0);
	ck_assert_mem_eq(&got, &rec, sizeof(rec));
	ck_assert_int_eq(nvefs_inode_decode(&d, sizeof(d) - 1, &got), -EUCLEAN);
#define INODE_REFUSED(change)                                                                      \
	do {                                                                                       \
		bad = rec;                                                                         \
		change;                                                                            \
		nvefs_inode_encode(&bad, &d);                                                      \
		ck_assert_msg(nvefs_inode_decode(&d, sizeof(d), &got) == -EUCLEAN, #change);       \
	} while (0)
	INODE_REFUSED(bad.mode = 0644);
	INODE_REFUSED(bad.mode |= 1u << 20);
	INODE_REFUSED(bad.nlink = NVEFS_LINK_MAX + 1);
	INODE_REFUSED(bad.size = NVEFS_MAX_SIZE_BYTES + 1);
	INODE_REFUSED(bad.mtime.tv_nsec = 1000000000);
	INODE_REFUSED(bad.mode = S_IFDIR); /* no parent */
	INODE_REFUSED((bad.mode = S_IFLNK, bad.size = NVEFS_SYMLINK_MAX + 1, bad.blks = 0));
	INODE_REFUSED((bad.mode = S_IFIFO, bad.blks = 0));
}
END_TEST

static void window_random(struct nvefs_window *w, unsigned int *seed)
{
	memset(w, 0, sizeof(*w));
	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++) {
		int r = rand_r(seed) % 8;
		uint64_t pblk = 10000 + (uint64_t)rand_r(seed) % 5000;

		if (r == 0)
			continue;
		if (r < 5 && i && w->pblk[i - 1])
			w->pblk[i] = w->pblk[i - 1] + 1;
		else
			w->pblk[i] = nvefs_went_make(r == 7 ? NVEFS_EXT_UNWRITTEN : NVEFS_EXT_DATA, pblk);
		if (nvefs_went_type(w->pblk[i]) == NVEFS_EXT_DATA)
			w->csum[i] = (uint64_t)rand_r(seed) << 32 | (uint32_t)rand_r(seed);
	}
}

START_TEST(map_round_trip)
{
	struct nvefs_super sb;
	struct nvefs_window w, got;
	uint64_t val[NVEFS_VALUE_MAX / 8];
	unsigned int seed = 42;

	test_super_make(&sb, NVEFS_MIN_BLKS);
	memset(&w, 0, sizeof(w));
	ck_assert_uint_eq(nvefs_map_encode(&w, val), 0);
	ck_assert_uint_eq(nvefs_map_bytes(&w), 0);
	for (int round = 0; round < 2000; round++) {
		uint32_t len;

		window_random(&w, &seed);
		len = nvefs_map_encode(&w, val);
		HOLDS(nvefs_map_bytes(&w) == len);
		HOLDS(len && len <= NVEFS_VALUE_MAX);
		HOLDS(nvefs_map_decode(val, len, &sb, &got) == 0);
		ck_assert_mem_eq(&w, &got, sizeof(w));
		HOLDS(nvefs_map_decode(val, len - 8, &sb, &got) == -EUCLEAN);
	}
	/* All blocks apart: the largest value. One run: the usual one. */
	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++)
		w.pblk[i] = nvefs_went_make(NVEFS_EXT_DATA, 10000 + 2 * i);
	ck_assert_uint_eq(nvefs_map_encode(&w, val), 8 + 64 * 24);
	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++)
		w.pblk[i] = nvefs_went_make(NVEFS_EXT_DATA, 10000 + i);
	ck_assert_uint_eq(nvefs_map_encode(&w, val), 8 + 16 + 64 * 8);
}
END_TEST

START_TEST(map_refuses)
{
	struct nvefs_super sb;
	struct nvefs_window w = {0}, got;
	uint64_t val[NVEFS_VALUE_MAX / 8];
	struct nvefs_disk_map *d = (void *)val;
	uint32_t len;

	test_super_make(&sb, NVEFS_MIN_BLKS);
	w.pblk[3] = nvefs_went_make(NVEFS_EXT_DATA, 9000);
	w.pblk[4] = nvefs_went_make(NVEFS_EXT_DATA, 9100);
	w.pblk[63] = nvefs_went_make(NVEFS_EXT_UNWRITTEN, 9200);
	len = nvefs_map_encode(&w, val);
	ck_assert_uint_eq(len, 8 + 3 * 16 + 2 * 8);
#define MAP_REFUSED(change)                                                                        \
	do {                                                                                       \
		nvefs_map_encode(&w, val);                                                         \
		ck_assert_int_eq(nvefs_map_decode(val, len, &sb, &got), 0);                        \
		change;                                                                            \
		ck_assert_msg(nvefs_map_decode(val, len, &sb, &got) == -EUCLEAN, #change);         \
	} while (0)
	MAP_REFUSED(d->nextents = le16_make(0));
	MAP_REFUSED(d->nextents = le16_make(65));
	MAP_REFUSED(d->nsums = le16_make(1));
	MAP_REFUSED(d->nsums = le16_make(3));
	MAP_REFUSED(d->extents[1].off = le16_make(3));
	MAP_REFUSED(d->extents[0].off = le16_make(5));
	MAP_REFUSED(d->extents[0].len = le16_make(0));
	MAP_REFUSED(d->extents[0].len = le16_make(2));
	MAP_REFUSED(d->extents[2].len = le16_make(2));
	MAP_REFUSED(d->extents[2].off = le16_make(65535));
	MAP_REFUSED(d->extents[0].type = le16_make(0));
	MAP_REFUSED(d->extents[0].type = le16_make(4));
	MAP_REFUSED(d->extents[0].type = le16_make(0x101));
	MAP_REFUSED(d->extents[2].type = le16_make(NVEFS_EXT_DATA));
	MAP_REFUSED(d->extents[0].type = le16_make(NVEFS_EXT_NOSUM));
	MAP_REFUSED(d->extents[0].pblk = le64_make(0));
	MAP_REFUSED(d->extents[0].pblk = le64_make(sb.nblks - 1));
	MAP_REFUSED(d->extents[0].pblk = le64_make(1ull << 56 | 9000));
	ck_assert_int_eq(nvefs_map_decode(val, 4, &sb, &got), -EUCLEAN);
	ck_assert_int_eq(nvefs_map_decode(val, 0, &sb, &got), -EUCLEAN);
}
END_TEST

START_TEST(dirent_value)
{
	uint64_t buf[NVEFS_VALUE_MAX / 8];
	char name[256];
	struct nvefs_dirent e;
	uint32_t len = 0, n = 0;
	uint8_t slot;
	int err;

	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "b", 1, 20, DT_REG, &slot), 0);
	ck_assert_uint_eq(slot, 0);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "abcdefgh", 8, 21, DT_DIR, &slot), 0);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "c", 1, 22, DT_LNK, &slot), 0);
	ck_assert_uint_eq(slot, 2);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "c", 1, 22, DT_LNK, &slot), -EEXIST);
	ck_assert_int_eq(nvefs_dirent_check(buf, len), 0);
	ck_assert_int_eq(nvefs_dirent_remove(buf, &len, "abcdefgh", 8), 0);
	ck_assert_int_eq(nvefs_dirent_remove(buf, &len, "abcdefgh", 8), -ENOENT);
	ck_assert_int_eq(nvefs_dirent_find(buf, len, "c", 1, &e), 0);
	ck_assert(e.ino == 22 && e.dtype == DT_LNK && e.slot == 2 && e.namelen == 1);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "d", 1, 23, DT_FIFO, &slot), 0);
	ck_assert_uint_eq(slot, 1); /* the free one */
	ck_assert_int_eq(nvefs_dirent_set(buf, len, "c", 1, 99, DT_REG), 0);
	ck_assert_int_eq(nvefs_dirent_find(buf, len, "c", 1, &e), 0);
	ck_assert(e.ino == 99 && e.slot == 2);
	ck_assert_int_eq(nvefs_dirent_remove(buf, &len, "b", 1), 0);
	ck_assert_int_eq(nvefs_dirent_remove(buf, &len, "c", 1), 0);
	ck_assert_int_eq(nvefs_dirent_remove(buf, &len, "d", 1), 0);
	ck_assert_uint_eq(len, 0);

	for (;; n++) {
		memset(name, 'x', sizeof(name));
		name[0] = (char)('a' + n);
		err = nvefs_dirent_add(buf, &len, name, 255, 5, DT_REG, &slot);
		if (err)
			break;
	}
	ck_assert_int_eq(err, -ENOSPC);
	ck_assert_uint_eq(n, NVEFS_VALUE_MAX / 272);
	ck_assert_int_eq(nvefs_dirent_check(buf, len), 0);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, name, 256, 5, DT_REG, &slot), -ENAMETOOLONG);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "..", 2, 5, DT_REG, &slot), -EINVAL);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, ".", 1, 5, DT_REG, &slot), -EINVAL);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "a/b", 3, 5, DT_REG, &slot), -EINVAL);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "", 0, 5, DT_REG, &slot), -EINVAL);
}
END_TEST

START_TEST(dirent_refuses)
{
	uint64_t buf[NVEFS_VALUE_MAX / 8], copy[NVEFS_VALUE_MAX / 8];
	struct nvefs_disk_dirent *d = (void *)copy, *d2 = (void *)(copy + 3);
	uint32_t len = 0, pos = 1;
	struct nvefs_dirent e;
	uint8_t slot;

	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "one", 3, 20, DT_REG, &slot), 0);
	ck_assert_int_eq(nvefs_dirent_add(buf, &len, "two", 3, 21, DT_REG, &slot), 0);
	ck_assert_uint_eq(len, 48);
#define DIRENT_REFUSED(change)                                                                     \
	do {                                                                                       \
		memcpy(copy, buf, sizeof(copy));                                                   \
		ck_assert_int_eq(nvefs_dirent_check(copy, len), 0);                                \
		change;                                                                            \
		ck_assert_msg(nvefs_dirent_check(copy, len) == -EUCLEAN, #change);                 \
	} while (0)
	DIRENT_REFUSED(d->ino = le64_make(0));
	DIRENT_REFUSED(d->dtype = 3);
	DIRENT_REFUSED(d->namelen = 0);
	DIRENT_REFUSED(d->namelen = 255);
	DIRENT_REFUSED(d->name[1] = '/');
	DIRENT_REFUSED(d->name[1] = 0);
	DIRENT_REFUSED((d->name[0] = '.', d->name[1] = '.', d->namelen = 2));
	DIRENT_REFUSED(d2->slot = 0);
	DIRENT_REFUSED(memcpy(d2->name, "one", 3));
	DIRENT_REFUSED(d2->namelen = 9);
	ck_assert_int_eq(nvefs_dirent_check(buf, 47), -EUCLEAN);
	ck_assert_int_eq(nvefs_dirent_check(buf, 0), -EUCLEAN);
	ck_assert_int_eq(nvefs_dirent_next(buf, 0, &pos, &e), -EUCLEAN);
}
END_TEST

START_TEST(xattr_value)
{
	uint64_t buf[NVEFS_VALUE_MAX / 8];
	uint8_t big[NVEFS_XATTR_INLINE_MAX];
	struct nvefs_xattr got, x = {.name = "user.a", .namelen = 6, .value = "val", .value_len = 3};
	struct nvefs_xattr ext = {.name = "user.b", .namelen = 6, .value_len = 60000, .value_no = 4};
	uint32_t len = 0;

	memset(big, 7, sizeof(big));
	ck_assert_int_eq(nvefs_xattr_set(buf, &len, &x), 0);
	ck_assert_int_eq(nvefs_xattr_set(buf, &len, &ext), 0);
	ck_assert_int_eq(nvefs_xattr_check(buf, len), 0);
	ck_assert_int_eq(nvefs_xattr_find(buf, len, "user.a", 6, &got), 0);
	ck_assert(got.value_len == 3 && !got.value_no && !memcmp(got.value, "val", 3));
	ck_assert_int_eq(nvefs_xattr_find(buf, len, "user.b", 6, &got), 0);
	ck_assert(got.value_len == 60000 && got.value_no == 4 && !got.value);
	ck_assert_int_eq(nvefs_xattr_find(buf, len, "user.c", 6, &got), -ENOENT);
	x.value = big;
	x.value_len = sizeof(big);
	ck_assert_int_eq(nvefs_xattr_set(buf, &len, &x), 0);
	ck_assert_int_eq(nvefs_xattr_find(buf, len, "user.a", 6, &got), 0);
	ck_assert(got.value_len == sizeof(big) && !memcmp(got.value, big, sizeof(big)));
	x.name = "user.z";
	ck_assert_int_eq(nvefs_xattr_set(buf, &len, &x), -ENOSPC);
	ck_assert_int_eq(nvefs_xattr_find(buf, len, "user.b", 6, &got), 0);
	x.value_len = 0;
	ck_assert_int_eq(nvefs_xattr_set(buf, &len, &x), 0);
	ck_assert_int_eq(nvefs_xattr_find(buf, len, "user.z", 6, &got), 0);
	ck_assert(got.value_len == 0 && got.value);
	x.value_len = NVEFS_XATTR_VALUE_MAX + 1;
	ck_assert_int_eq(nvefs_xattr_set(buf, &len, &x), -E2BIG);
	((struct nvefs_disk_xattr *)buf)->value_len = le32_make(UINT32_MAX);
	ck_assert_int_eq(nvefs_xattr_check(buf, len), -EUCLEAN);
	((struct nvefs_disk_xattr *)buf)->value_len = le32_make(60000);
	ck_assert_int_eq(nvefs_xattr_check(buf, len), 0);
	ck_assert_int_eq(nvefs_xattr_check(buf, len - 8), -EUCLEAN);
	ck_assert_int_eq(nvefs_xattr_remove(buf, &len, "user.a", 6), 0);
	ck_assert_int_eq(nvefs_xattr_remove(buf, &len, "user.b", 6), 0);
	ck_assert_int_eq(nvefs_xattr_remove(buf, &len, "user.z", 6), 0);
	ck_assert_uint_eq(len, 0);
}
END_TEST

START_TEST(small_items)
{
	struct nvefs_super sb;
	struct nvefs_group_rec g = {.free_blks = 5, .bitmap_txn = 6}, ggot;
	struct nvefs_disk_group dg = nvefs_group_encode(&g);
	struct nvefs_disk_share ds = nvefs_share_encode(NVEFS_SHARE_MAX);
	struct nvefs_disk_orphan dor = nvefs_orphan_encode(NVEFS_ORPHAN_TRUNCATE);
	struct nvefs_key key = nvefs_group_key(0);
	uint32_t v;

	test_super_make(&sb, NVEFS_MIN_BLKS);
	ck_assert_int_eq(nvefs_group_decode(&dg, sizeof(dg), &ggot), 0);
	ck_assert(ggot.free_blks == 5 && ggot.bitmap_txn == 6);
	ck_assert_int_eq(nvefs_item_check(&key, &dg, sizeof(dg), &sb), 0);
	key = nvefs_group_key(1);
	ck_assert_int_eq(nvefs_item_check(&key, &dg, sizeof(dg), &sb), -EUCLEAN);
	ck_assert_int_eq(nvefs_share_decode(&ds, sizeof(ds), &v), 0);
	ck_assert_uint_eq(v, NVEFS_SHARE_MAX);
	ds = nvefs_share_encode(1);
	ck_assert_int_eq(nvefs_share_decode(&ds, sizeof(ds), &v), -EUCLEAN);
	ck_assert_int_eq(nvefs_orphan_decode(&dor, sizeof(dor), &v), 0);
	ck_assert_uint_eq(v, NVEFS_ORPHAN_TRUNCATE);
	dor = nvefs_orphan_encode(0);
	ck_assert_int_eq(nvefs_orphan_decode(&dor, sizeof(dor), &v), -EUCLEAN);
	key = nvefs_key_make(0, 0x7f, 0);
	ck_assert_int_eq(nvefs_item_check(&key, &dg, sizeof(dg), &sb), -EUCLEAN);
}
END_TEST

START_TEST(keys_and_names)
{
	struct nvefs_key a = nvefs_key_make(1, 0xff, NVEFS_OFFSET_MAX), b = nvefs_key_after(&a), c;
	struct nvefs_disk_key d = nvefs_key_encode(&a);

	ck_assert(b.ino == 2 && !b.kind && !b.offset && nvefs_key_cmp(&a, &b) < 0);
	c = nvefs_key_decode(&d);
	ck_assert_int_eq(nvefs_key_cmp(&a, &c), 0);
	a = nvefs_key_make(UINT64_MAX, 0xff, NVEFS_OFFSET_MAX);
	b = nvefs_key_after(&a);
	ck_assert_int_eq(nvefs_key_cmp(&a, &b), 0);
	ck_assert(nvefs_name_hash(1, "x", 1) != nvefs_name_hash(2, "x", 1));
	ck_assert_uint_eq(nvefs_name_hash(1, "x", 1) >> NVEFS_NAME_HASH_BITS, 0);
	nvefs_name_hash_limit(2);
	ck_assert_uint_lt(nvefs_name_hash(1, "x", 1), 4);
	nvefs_name_hash_limit(NVEFS_NAME_HASH_BITS);
}
END_TEST

static Suite *format_suite(void)
{
	Suite *s = suite_create("format");
	TCase *tc = tcase_create("codecs");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, block_statuses_differ);
	tcase_add_test(tc, every_bit_of_a_block_counts);
	tcase_add_test(tc, super_round_trip);
	tcase_add_test(tc, super_refuses);
	tcase_add_test(tc, mmp_blocks);
	tcase_add_loop_test(tc, layout_fits_any_size, 0, 2);
	tcase_add_test(tc, second_copies_have_places_of_their_own);
	tcase_add_test(tc, layout_refuses);
	tcase_add_test(tc, root_round_trip);
	tcase_add_test(tc, journal_blocks);
	tcase_add_test(tc, inode_round_trip);
	tcase_add_test(tc, map_round_trip);
	tcase_add_test(tc, map_refuses);
	tcase_add_test(tc, dirent_value);
	tcase_add_test(tc, dirent_refuses);
	tcase_add_test(tc, xattr_value);
	tcase_add_test(tc, small_items);
	tcase_add_test(tc, keys_and_names);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, test_node_tcase());
	return s;
}

int main(void)
{
	return run_suites(format_suite(), NULL);
}
