/* SPDX-License-Identifier: MIT */
/*
 * The volatile write cache of the RAM medium, kept the other way round: the
 * medium holds the newest data, the cache the contents that LBAs had before
 * each write that was not flushed. A power cut puts some of them back; a flush
 * forgets them. When it is full the oldest versions become durable, as a
 * drive writes back on its own. The caller provides the locking.
 */
#ifndef NVEFS_DEVICE_WRITE_CACHE_H
#define NVEFS_DEVICE_WRITE_CACHE_H

#include <stdint.h>

struct nvefs_write_cache;

/* At most `max_lbas` old contents are held. NULL when memory is out. */
struct nvefs_write_cache *nvefs_write_cache_new(uint32_t lba_bytes, uint32_t max_lbas);
void nvefs_write_cache_free(struct nvefs_write_cache *c);

/* `old` (lba_bytes) is what the LBA holds now; call before it is overwritten. 0 or -ENOMEM. */
int nvefs_write_cache_note(struct nvefs_write_cache *c, uint64_t lba, const void *old);
/* The LBA is durable as it is now. */
void nvefs_write_cache_settle(struct nvefs_write_cache *c, uint64_t lba);
void nvefs_write_cache_flush(struct nvefs_write_cache *c);

/*
 * For each LBA with unflushed writes choose by `seed` how many of them, oldest
 * first, made it to the medium, and put back what it held then. Empties the
 * cache. Returns how many LBAs lost a write.
 */
uint64_t nvefs_write_cache_cut(struct nvefs_write_cache *c, uint64_t seed, uint8_t *medium);

#endif
