/* SPDX-License-Identifier: MIT */
#include "format/super.h"

#include <errno.h>

#include "format/block.h"
#include "format/layout.h"

static const uint8_t no_uuid[NVEFS_UUID_BYTES];

uint64_t nvefs_super_slot_pblk(uint64_t nblks, unsigned int slot)
{
	return slot < NVEFS_SUPER_SLOTS - 1 ? slot : nblks - 1;
}

void nvefs_super_encode(const struct nvefs_super *sb, uint64_t pblk, void *ret_block)
{
	struct nvefs_disk_super *d = ret_block;

	memset(d, 0, sizeof(*d));
	nvefs_block_fill(d, NVEFS_BT_SUPER, pblk, 0, sb->uuid);
	d->disk_version = le32_make(sb->disk_version);
	d->block_bytes = le32_make(NVEFS_BLOCK_BYTES);
	d->feature_compat = le64_make(sb->feature_compat);
	d->feature_ro_compat = le64_make(sb->feature_ro_compat);
	d->feature_incompat = le64_make(sb->feature_incompat);
	d->seq = le64_make(sb->seq);
	d->nblks = le64_make(sb->nblks);
	d->group_blks = le32_make(sb->group_blks);
	d->ngroups = le32_make(sb->ngroups);
	d->journal_pblk = le64_make(sb->journal_pblk);
	d->journal_blks = le32_make(sb->journal_blks);
	d->flags = le32_make(sb->flags);
	d->root_pblk = le64_make(sb->root_pblk);
	d->hash_seed = le64_make(sb->hash_seed);
	d->created_s = le64_make((uint64_t)sb->created.tv_sec);
	d->created_ns = le32_make((uint32_t)sb->created.tv_nsec);
	d->iu_blks = le32_make(sb->iu_blks);
	d->lba_bytes = le32_make(sb->lba_bytes);
	memcpy(d->nguid, sb->nguid, sizeof(d->nguid));
	memcpy(d->eui64, sb->eui64, sizeof(d->eui64));
	memcpy(d->serial, sb->serial, strnlen(sb->serial, sizeof(d->serial)));
	memcpy(d->label, sb->label, strnlen(sb->label, sizeof(d->label) - 1));
	memcpy(d->creator, sb->creator, strnlen(sb->creator, sizeof(d->creator) - 1));
	if (nvefs_super_mmp(sb))
		d->mmp_interval_ms = le32_make(sb->mmp_interval_ms);
	if (sb->feature_ro_compat & NVEFS_ROCOMPAT_UUID)
		memcpy(d->public_uuid, sb->public_uuid, sizeof(d->public_uuid));
}

static void super_copy(const struct nvefs_disk_super *d, struct nvefs_super *sb)
{
	memset(sb, 0, sizeof(*sb));
	memcpy(sb->uuid, d->hdr.uuid, sizeof(sb->uuid));
	sb->disk_version = le32_get(d->disk_version);
	sb->feature_compat = le64_get(d->feature_compat);
	sb->feature_ro_compat = le64_get(d->feature_ro_compat);
	sb->feature_incompat = le64_get(d->feature_incompat);
	sb->seq = le64_get(d->seq);
	sb->nblks = le64_get(d->nblks);
	sb->group_blks = le32_get(d->group_blks);
	sb->ngroups = le32_get(d->ngroups);
	sb->journal_pblk = le64_get(d->journal_pblk);
	sb->journal_blks = le32_get(d->journal_blks);
	sb->flags = le32_get(d->flags);
	sb->root_pblk = le64_get(d->root_pblk);
	sb->hash_seed = le64_get(d->hash_seed);
	sb->created.tv_sec = (time_t)le64_get(d->created_s);
	sb->created.tv_nsec = le32_get(d->created_ns);
	sb->iu_blks = le32_get(d->iu_blks);
	sb->lba_bytes = le32_get(d->lba_bytes);
	memcpy(sb->nguid, d->nguid, sizeof(sb->nguid));
	memcpy(sb->eui64, d->eui64, sizeof(sb->eui64));
	memcpy(sb->serial, d->serial, sizeof(d->serial));
	memcpy(sb->label, d->label, sizeof(sb->label) - 1);
	memcpy(sb->creator, d->creator, sizeof(sb->creator) - 1);
	if (nvefs_super_mmp(sb))
		sb->mmp_interval_ms = le32_get(d->mmp_interval_ms);
	if (sb->feature_ro_compat & NVEFS_ROCOMPAT_UUID)
		memcpy(sb->public_uuid, d->public_uuid, sizeof(sb->public_uuid));
}

/* What settings have of the feature masks: the rest are facts. */
static uint64_t fixed_incompat(const struct nvefs_super *sb)
{
	return sb->feature_incompat & ~NVEFS_INCOMPAT_MMP;
}

static uint64_t fixed_ro_compat(const struct nvefs_super *sb)
{
	return sb->feature_ro_compat & ~NVEFS_ROCOMPAT_UUID;
}

bool nvefs_super_same_facts(const struct nvefs_super *a, const struct nvefs_super *b)
{
	return !memcmp(a->uuid, b->uuid, sizeof(a->uuid)) && a->nblks == b->nblks &&
	       a->group_blks == b->group_blks && a->ngroups == b->ngroups &&
	       a->journal_pblk == b->journal_pblk && a->journal_blks == b->journal_blks &&
	       a->root_pblk == b->root_pblk && a->hash_seed == b->hash_seed &&
	       a->feature_compat == b->feature_compat && fixed_ro_compat(a) == fixed_ro_compat(b) &&
	       fixed_incompat(a) == fixed_incompat(b) && a->flags == b->flags &&
	       a->created.tv_sec == b->created.tv_sec && a->created.tv_nsec == b->created.tv_nsec &&
	       a->iu_blks == b->iu_blks && a->lba_bytes == b->lba_bytes &&
	       !memcmp(a->nguid, b->nguid, sizeof(a->nguid)) && !memcmp(a->eui64, b->eui64, sizeof(a->eui64)) &&
	       !strcmp(a->serial, b->serial) && !memcmp(a->creator, b->creator, sizeof(a->creator));
}

bool nvefs_super_same_settings(const struct nvefs_super *a, const struct nvefs_super *b)
{
	return !strcmp(a->label, b->label) && a->feature_incompat == b->feature_incompat &&
	       a->mmp_interval_ms == b->mmp_interval_ms && a->feature_ro_compat == b->feature_ro_compat &&
	       !memcmp(a->public_uuid, b->public_uuid, sizeof(a->public_uuid));
}

/* NULL when the values fit each other, else what does not. */
static const char *super_fault(const struct nvefs_super *sb, uint64_t pblk)
{
	if (sb->group_blks != NVEFS_GROUP_BLKS)
		return "superblock: impossible group size";
	if (sb->nblks < NVEFS_MIN_BLKS || sb->nblks > NVEFS_MAX_BLKS)
		return "superblock: impossible number of blocks";
	if (nvefs_layout_blks(sb->nblks) != sb->nblks)
		return "superblock: the last group is too short";
	if (sb->ngroups != nvefs_layout_ngroups(sb->nblks))
		return "superblock: number of groups does not fit the number of blocks";
	if (sb->journal_pblk != NVEFS_JOURNAL_PBLK || sb->journal_blks < NVEFS_JOURNAL_MIN_BLKS ||
	    sb->journal_blks > NVEFS_JOURNAL_MAX_BLKS ||
	    sb->journal_pblk + sb->journal_blks > sb->nblks / 2)
		return "superblock: impossible journal";
	if (sb->root_pblk != NVEFS_ROOT_PBLK)
		return "superblock: impossible root block address";
	if (sb->created.tv_nsec >= 1000000000)
		return "superblock: impossible creation time";
	if (nvefs_super_mmp(sb) &&
	    (sb->mmp_interval_ms < NVEFS_MMP_MIN_MS || sb->mmp_interval_ms > NVEFS_MMP_MAX_MS))
		return "superblock: impossible interval of the heartbeat";
	if (sb->feature_ro_compat & NVEFS_ROCOMPAT_UUID && !memcmp(sb->public_uuid, no_uuid, sizeof(no_uuid)))
		return "superblock: impossible UUID";
	if (pblk > 1 && pblk != sb->nblks - 1)
		return "superblock: not at one of its slots";
	return NULL;
}

int nvefs_super_decode(const void *block, uint64_t pblk, struct nvefs_super *ret_sb,
		       const char **ret_why)
{
	const struct nvefs_block_expect want = {.pblk = pblk, .type = NVEFS_BT_SUPER};
	const struct nvefs_disk_super *d = block;
	enum nvefs_block_status status = nvefs_block_check(block, &want);
	struct nvefs_super sb;

	*ret_why = nvefs_block_status_text(status);
	if (status == NVEFS_BLOCK_ZERO || status == NVEFS_BLOCK_MAGIC || status == NVEFS_BLOCK_TYPE)
		return -EMEDIUMTYPE;
	if (status == NVEFS_BLOCK_VERSION) {
		*ret_why = le16_get(d->hdr.version) > NVEFS_DISK_VERSION ?
				   "the disk version is newer than this program knows: use a newer one" :
				   "the disk version is older than this program reads: copy the "
				   "files with a program of that time";
		return -ENOTSUP;
	}
	if (status != NVEFS_BLOCK_OK)
		return -EUCLEAN;
	super_copy(d, &sb);
	if (sb.disk_version != NVEFS_DISK_VERSION || le32_get(d->block_bytes) != NVEFS_BLOCK_BYTES) {
		*ret_why = "disk version or block size is not one this program knows: use a newer one";
		return -ENOTSUP;
	}
	if (nvefs_feature_unknown(sb.feature_incompat, NVEFS_INCOMPAT_KNOWN)) {
		*ret_why = "has an incompatible feature that this program does not know: use a newer one";
		return -ENOTSUP;
	}
	*ret_why = super_fault(&sb, pblk);
	if (*ret_why)
		return -EUCLEAN;
	*ret_sb = sb;
	return 0;
}
