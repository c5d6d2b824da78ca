/* SPDX-License-Identifier: MIT */
/* XXH3-64: checksums, fingerprints, name hashes. The one includer of xxHash is hash.c. Pure. */
#ifndef NVEFS_BASE_HASH_H
#define NVEFS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t nvefs_hash(const void *data, size_t len_bytes, uint64_t seed);

/* A hash over parts: feed any number of pieces, then finish. Same value as one call over all. */
struct nvefs_hash_stream {
	void *state;
};
int nvefs_hash_stream_init(struct nvefs_hash_stream *s, uint64_t seed); /* 0 or -ENOMEM */
void nvefs_hash_stream_feed(struct nvefs_hash_stream *s, const void *data, size_t len_bytes);
uint64_t nvefs_hash_stream_value(const struct nvefs_hash_stream *s);
void nvefs_hash_stream_done(struct nvefs_hash_stream *s);

#endif
