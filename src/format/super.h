/* SPDX-License-Identifier: MIT */
/*
 * The superblock: facts that mkfs settles, in three slots. Pure.
 *
 * A reader takes the valid slot with the highest seq. The last slot is found
 * without the others by nvefs_layout_blks (format/layout.h) of the device size.
 */
#ifndef NVEFS_FORMAT_SUPER_H
#define NVEFS_FORMAT_SUPER_H

#include <nvefs/format.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct nvefs_super {
	uint8_t uuid[16]; /* from mkfs: in the header of each metadata block */
	uint32_t disk_version;
	uint64_t feature_compat, feature_ro_compat, feature_incompat;
	uint64_t seq;
	uint64_t nblks;
	uint32_t group_blks, ngroups;
	uint64_t journal_pblk;
	uint32_t journal_blks; /* header slots included */
	uint32_t flags;	       /* NVEFS_SB_* */
	uint64_t root_pblk;
	uint64_t hash_seed;
	struct timespec created;
	uint32_t iu_blks, lba_bytes;
	uint8_t nguid[16], eui64[8];
	char serial[24 + 1];
	char label[NVEFS_LABEL_MAX + 1];
	char creator[32];
	uint32_t mmp_interval_ms; /* 0: without multiple mount protection */
	uint8_t public_uuid[16];  /* all zeros: it was never changed */
};

/* Address of slot 0 to NVEFS_SUPER_SLOTS - 1. */
uint64_t nvefs_super_slot_pblk(uint64_t nblks, unsigned int slot);

/* The whole block for one slot, not sealed. */
void nvefs_super_encode(const struct nvefs_super *sb, uint64_t pblk, void *ret_block);

/*
 * Decode 4096 untrusted bytes read at `pblk`. -EMEDIUMTYPE: not an nvefs
 * superblock at all; -EUCLEAN: one, but damaged; -ENOTSUP: of another disk
 * version or with an incompatible feature. *ret_why: a constant text, set on
 * failure. ro_compat features are for the caller (nvefs_super_must_be_ro).
 */
int nvefs_super_decode(const void *block, uint64_t pblk, struct nvefs_super *ret_sb,
		       const char **ret_why);

/* Metadata blocks have a second copy. */
static inline bool nvefs_super_dup(const struct nvefs_super *sb)
{
	return (sb->flags & NVEFS_SB_META_DUP) != 0;
}
/* Whoever writes must have claimed it: store/mmp.h. */
static inline bool nvefs_super_mmp(const struct nvefs_super *sb)
{
	return (sb->feature_incompat & NVEFS_INCOMPAT_MMP) != 0;
}
/* The UUID that people and other programs know the file system by. */
static inline const uint8_t *nvefs_super_public_uuid(const struct nvefs_super *sb)
{
	return sb->feature_ro_compat & NVEFS_ROCOMPAT_UUID ? sb->public_uuid : sb->uuid;
}
/*
 * Two superblocks of one file system at most differ in settings, which change one after the other, and in
 * seq, which counts that: everything else is as mkfs made it.
 */
bool nvefs_super_same_facts(const struct nvefs_super *a, const struct nvefs_super *b);
bool nvefs_super_same_settings(const struct nvefs_super *a, const struct nvefs_super *b);
/* Unknown features that forbid writing. */
static inline bool nvefs_super_must_be_ro(const struct nvefs_super *sb)
{
	return (sb->feature_ro_compat & ~NVEFS_ROCOMPAT_KNOWN) != 0;
}
/* Features of this mask unknown to this program; `known` is one of NVEFS_*COMPAT_KNOWN. */
static inline uint64_t nvefs_feature_unknown(uint64_t features, uint64_t known)
{
	return features & ~known;
}

#endif
