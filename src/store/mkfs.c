/* SPDX-License-Identifier: MIT */
#include "store/mkfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/bitmap.h"
#include "base/buf.h"
#include "format/block.h"
#include "format/journal.h"
#include "format/layout.h"
#include "format/mmp.h"
#include "format/root.h"
#include "store/mkfs_tree.h"
#include "store/super.h"

#define FIRST_TXN 1u

struct mkfs {
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	const struct nvefs_mkfs_params *params;
	struct nvefs_super sb;
	struct nvefs_mkfs_tree tree;
	struct nvefs_spool spool;
};

static int random_fill(void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -EIO;
}

static int settle_identity(struct mkfs *m)
{
	static const uint8_t none[16];
	int err = 0;

	memcpy(m->sb.uuid, m->params->uuid, sizeof(m->sb.uuid));
	if (!memcmp(m->sb.uuid, none, sizeof(none))) {
		err = random_fill(m->sb.uuid, sizeof(m->sb.uuid));
		m->sb.uuid[6] = (uint8_t)((m->sb.uuid[6] & 0x0f) | 0x40); /* RFC 9562: version 4 */
		m->sb.uuid[8] = (uint8_t)((m->sb.uuid[8] & 0x3f) | 0x80);
	}
	m->sb.hash_seed = m->params->hash_seed;
	while (!err && !m->sb.hash_seed)
		err = random_fill(&m->sb.hash_seed, sizeof(m->sb.hash_seed));
	return err;
}

static int settle(struct mkfs *m, struct nvefs_error *err)
{
	const struct nvefs_dev_limits *lim = nvefs_dev_limits(m->dev);
	const struct nvefs_dev_identity *id = nvefs_dev_identity(m->dev);
	const struct nvefs_mkfs_params *p = m->params;
	struct nvefs_super *sb = &m->sb;
	int rc;

	if (lim->read_only)
		return nvefs_error_set(err, -EROFS, "%s: the device is read-only", id->target);
	if (p->size_blks > lim->nblks)
		return nvefs_error_set(err, -EINVAL, "%s: has only %llu blocks", id->target,
				       (unsigned long long)lim->nblks);
	if (p->mmp_interval_ms && (p->mmp_interval_ms < NVEFS_MMP_MIN_MS || p->mmp_interval_ms > NVEFS_MMP_MAX_MS))
		return nvefs_error_set(err, -EINVAL, "%s: interval of multiple mount protection out of range: %u to %u ms",
				       id->target, NVEFS_MMP_MIN_MS, NVEFS_MMP_MAX_MS);
	sb->flags = p->flags;
	sb->feature_incompat = p->mmp_interval_ms ? NVEFS_INCOMPAT_MMP : 0;
	sb->mmp_interval_ms = p->mmp_interval_ms;
	rc = nvefs_layout_make(p->size_blks ? p->size_blks : lim->nblks, p->journal_blks, sb);
	if (rc)
		return nvefs_error_set(err, rc, "%s: %s", id->target,
				       rc == -EINVAL  ? "journal size out of range"
				       : rc == -EFBIG ? "too large"
						      : "too small: 64 MiB at least");
	rc = settle_identity(m);
	if (rc)
		return nvefs_error_set(err, rc, "%s: no random numbers from the system", id->target);
	sb->disk_version = NVEFS_DISK_VERSION;
	sb->seq = 1;
	sb->created = p->created;
	sb->iu_blks = lim->iu_blks;
	sb->lba_bytes = lim->lba_bytes;
	memcpy(sb->nguid, id->nguid, sizeof(sb->nguid));
	memcpy(sb->eui64, id->eui64, sizeof(sb->eui64));
	memcpy(sb->serial, id->serial, sizeof(id->serial));
	memcpy(sb->label, p->label, strnlen(p->label, NVEFS_LABEL_MAX));
	memcpy(sb->creator, p->creator, strnlen(p->creator, sizeof(sb->creator) - 1));
	rc = nvefs_mkfs_tree_plan(&m->tree, sb, p, FIRST_TXN);
	if (rc)
		return nvefs_error_set(err, rc, "%s: the first items do not fit", id->target);
	return 0;
}

static int flush(struct mkfs *m)
{
	return nvefs_dev_limits(m->dev)->volatile_cache ? nvefs_queue_flush(m->q) : 0;
}

/* Also the last slot of an older, larger file system: it is where a reader looks. */
static int wipe_old(struct mkfs *m)
{
	uint64_t dev_blks = nvefs_dev_limits(m->dev)->nblks;
	const uint64_t slots[] = {0, 1, m->sb.nblks - 1, nvefs_layout_blks(dev_blks) - 1};
	void *zeros = nvefs_buf_new_zeroed(NVEFS_BLOCK_SIZE);
	int err = zeros ? 0 : -ENOMEM;

	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]) && !err; i++)
		err = nvefs_queue_write(m->q, slots[i], 1, zeros, 0);
	nvefs_buf_free(zeros);
	return err ? err : flush(m);
}

static uint64_t bitmaps_write(struct mkfs *m)
{
	uint64_t free_blks = 0;

	for (uint32_t g = 0; g < m->sb.ngroups; g++) {
		struct nvefs_disk_bitmap *d = nvefs_spool_next(&m->spool, nvefs_layout_bitmap_pblk(g));
		struct nvefs_mkfs_run runs[2];

		nvefs_layout_bitmap_init(&m->sb, g, FIRST_TXN, d);
		for (uint32_t n = nvefs_mkfs_tree_group_runs(&m->tree, g, runs); n-- > 0;)
			nvefs_bitmap_set_run(d->bits, runs[n].off, runs[n].len);
		free_blks += nvefs_mkfs_tree_group_free(&m->tree, g);
	}
	return free_blks;
}

static void root_write(struct mkfs *m, uint64_t free_blks)
{
	const struct nvefs_root root = {
		.tree_pblk = nvefs_mkfs_tree_root(&m->tree),
		.tree_twin = nvefs_mkfs_tree_root_twin(&m->tree),
		.tree_txn = FIRST_TXN,
		.tree_height = m->tree.height,
		.next_ino = m->params->next_ino ? m->params->next_ino : NVEFS_FIRST_INO,
		.free_blks = free_blks,
		.meta_blks = m->tree.nnodes * (nvefs_super_dup(&m->sb) ? 2 : 1),
		.inodes = m->params->inodes,
		.written_s = (uint64_t)m->params->created.tv_sec,
	};

	nvefs_root_encode(&root, &m->sb, FIRST_TXN, nvefs_spool_next(&m->spool, m->sb.root_pblk));
}

/* A random epoch: whatever lies in the log, also of a file system with this UUID, does not match. */
static int journal_write(struct mkfs *m)
{
	struct nvefs_jheader h = {.tail_txn = FIRST_TXN + 1,
				  .log_blks = nvefs_journal_log_blks(&m->sb),
				  .root_txn = FIRST_TXN};
	int err = random_fill(&h.epoch, sizeof(h.epoch));

	for (unsigned int slot = 0; slot < NVEFS_JOURNAL_HEADERS && !err; slot++) {
		h.seq = slot;
		nvefs_jheader_encode(&h, &m->sb, slot,
				     nvefs_spool_next(&m->spool, nvefs_journal_header_pblk(&m->sb, slot)));
	}
	return err;
}

/* Free, and the beat of the same nonce. */
static void mmp_write(struct mkfs *m)
{
	const struct nvefs_mmp_rec rec = nvefs_mmp_unused(&m->sb, (uint64_t)m->params->created.tv_sec);

	if (!nvefs_super_mmp(&m->sb))
		return;
	nvefs_mmp_encode(&rec, &m->sb, NVEFS_BT_CLAIM, nvefs_spool_next(&m->spool, NVEFS_CLAIM_PBLK));
	nvefs_mmp_encode(&rec, &m->sb, NVEFS_BT_BEAT, nvefs_spool_next(&m->spool, NVEFS_BEAT_PBLK));
}

static int content_write(struct mkfs *m)
{
	int err = nvefs_spool_init(&m->spool, m->q);

	if (!err) {
		root_write(m, bitmaps_write(m));
		mmp_write(m);
		err = journal_write(m);
	}
	if (!err)
		err = nvefs_mkfs_tree_write(&m->tree, &m->spool);
	if (!err)
		err = nvefs_spool_write(&m->spool);
	nvefs_spool_done(&m->spool);
	return err ? err : flush(m);
}

static int mkfs_run(struct mkfs *m)
{
	int err = wipe_old(m);

	if (!err)
		err = content_write(m);
	for (unsigned int slot = NVEFS_SUPER_SLOTS; slot-- > 0 && !err;)
		err = nvefs_super_write_slot(m->dev, m->q, &m->sb, slot);
	return err;
}

int nvefs_store_mkfs(struct nvefs_dev *dev, const struct nvefs_mkfs_params *params,
		     struct nvefs_super *ret_sb, struct nvefs_error *err)
{
	const char *target = nvefs_dev_identity(dev)->target;
	struct mkfs *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return nvefs_error_set(err, -ENOMEM, "%s: out of memory", target);
	m->dev = dev;
	m->params = params;
	rc = settle(m, err);
	if (rc)
		goto free_mkfs;
	rc = nvefs_queue_init(dev, 0, &m->q);
	if (rc) {
		nvefs_error_set(err, rc, "%s: cannot get a queue: %s", target, strerror(-rc));
		goto free_mkfs;
	}
	rc = mkfs_run(m);
	nvefs_queue_done(m->q);
	if (rc)
		nvefs_error_set(err, rc, "%s: writing the file system failed: %s", target, strerror(-rc));
	else if (ret_sb)
		*ret_sb = m->sb;
free_mkfs:
	free(m);
	return rc;
}
