/* SPDX-License-Identifier: MIT */
#include "base/hash.h"

#include <errno.h>
#include <xxhash.h>

uint64_t nvefs_hash(const void *data, size_t len_bytes, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len_bytes, seed);
}

int nvefs_hash_stream_init(struct nvefs_hash_stream *s, uint64_t seed)
{
	XXH3_state_t *st = XXH3_createState();

	if (!st)
		return -ENOMEM;
	XXH3_64bits_reset_withSeed(st, seed);
	s->state = st;
	return 0;
}

void nvefs_hash_stream_feed(struct nvefs_hash_stream *s, const void *data, size_t len_bytes)
{
	XXH3_64bits_update(s->state, data, len_bytes);
}

uint64_t nvefs_hash_stream_value(const struct nvefs_hash_stream *s)
{
	return XXH3_64bits_digest(s->state);
}

void nvefs_hash_stream_done(struct nvefs_hash_stream *s)
{
	XXH3_freeState(s->state);
	s->state = NULL;
}
