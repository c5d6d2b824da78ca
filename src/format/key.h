/* SPDX-License-Identifier: MIT */
/* Keys of the tree, and the hash that names have in them. Pure. */
#ifndef NVEFS_FORMAT_KEY_H
#define NVEFS_FORMAT_KEY_H

#include <nvefs/format.h>
#include <stdint.h>

#define NVEFS_OFFSET_MAX ((1ull << NVEFS_OFFSET_BITS) - 1)

struct nvefs_key {
	uint64_t ino;
	uint64_t offset; /* < 2^56 */
	uint8_t kind;	 /* enum nvefs_kind */
};

static inline struct nvefs_key nvefs_key_make(uint64_t ino, uint8_t kind, uint64_t offset)
{
	return (struct nvefs_key){.ino = ino, .offset = offset, .kind = kind};
}
/* Below, equal, above: < 0, 0, > 0. */
int nvefs_key_cmp(const struct nvefs_key *a, const struct nvefs_key *b);
/* The next possible key; the largest one stays itself. */
struct nvefs_key nvefs_key_after(const struct nvefs_key *key);

static inline struct nvefs_key nvefs_key_decode(const struct nvefs_disk_key *d)
{
	uint64_t ko = le64_get(d->kind_offset);

	return nvefs_key_make(le64_get(d->ino), (uint8_t)(ko >> NVEFS_OFFSET_BITS),
			      ko & NVEFS_OFFSET_MAX);
}
static inline struct nvefs_disk_key nvefs_key_encode(const struct nvefs_key *key)
{
	return (struct nvefs_disk_key){
		.ino = le64_make(key->ino),
		.kind_offset = le64_make((uint64_t)key->kind << NVEFS_OFFSET_BITS |
					 (key->offset & NVEFS_OFFSET_MAX)),
	};
}

/* What an item of this kind is called in messages: "inode"; "unknown" for a kind that does not exist. */
const char *nvefs_kind_text(uint8_t kind);

/* Offset of a name's DIRENT or XATTR key: 52 bits of XXH3 seeded per file system. */
uint64_t nvefs_name_hash(uint64_t seed, const char *name, uint32_t len);
/*
 * For tests only: keep so many low bits (1 to 52), so that names collide. The
 * one piece of state in this folder; set it before any thread hashes.
 */
void nvefs_name_hash_limit(unsigned int bits);

/* A name that may stand in a directory: 1 to 255 bytes, no '/', no NUL, neither "." nor "..". */
int nvefs_name_check(const char *name, uint32_t len); /* 0, -ENAMETOOLONG or -EINVAL */

#endif
