/* SPDX-License-Identifier: MIT */
/*
 * The small items of the file system itself: allocation groups, orphans, share
 * counts. Decoders take untrusted values: 0 or -EUCLEAN. Pure.
 */
#ifndef NVEFS_FORMAT_ITEM_H
#define NVEFS_FORMAT_ITEM_H

#include <nvefs/format.h>
#include <stdint.h>

#include "format/key.h"
#include "format/super.h"

static inline struct nvefs_key nvefs_group_key(uint32_t group)
{
	return nvefs_key_make(0, NVEFS_KIND_GROUP, group);
}
static inline struct nvefs_key nvefs_orphan_key(uint64_t ino)
{
	return nvefs_key_make(0, NVEFS_KIND_ORPHAN, ino);
}
static inline struct nvefs_key nvefs_share_key(uint64_t pblk)
{
	return nvefs_key_make(0, NVEFS_KIND_SHARE, pblk);
}

struct nvefs_group_rec {
	uint32_t free_blks;
	uint64_t bitmap_txn;
};
struct nvefs_disk_group nvefs_group_encode(const struct nvefs_group_rec *rec);
int nvefs_group_decode(const void *val, uint32_t len, struct nvefs_group_rec *ret_rec);

struct nvefs_disk_orphan nvefs_orphan_encode(uint32_t reason); /* NVEFS_ORPHAN_* bits, at least one */
int nvefs_orphan_decode(const void *val, uint32_t len, uint32_t *ret_reason);

struct nvefs_disk_share nvefs_share_encode(uint32_t count);
int nvefs_share_decode(const void *val, uint32_t len, uint32_t *ret_count);

/*
 * One item of the tree, key and value, as far as it can be judged alone: known
 * kind, key in range, value sound. 0 or -EUCLEAN. For checking and fuzzing.
 */
int nvefs_item_check(const struct nvefs_key *key, const void *val, uint32_t len,
		     const struct nvefs_super *sb);

#endif
