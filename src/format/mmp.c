/* SPDX-License-Identifier: MIT */
#include "format/mmp.h"

#include <string.h>

void nvefs_mmp_encode(const struct nvefs_mmp_rec *rec, const struct nvefs_super *sb, uint16_t type,
		      void *ret_block)
{
	struct nvefs_disk_mmp *d = ret_block;

	memset(d, 0, sizeof(*d));
	nvefs_block_fill(d, type, nvefs_mmp_pblk(type), 0, sb->uuid);
	d->nonce = le64_make(rec->nonce);
	d->seq = le64_make(rec->seq);
	d->state = le32_make(rec->state);
	d->interval_ms = le32_make(rec->interval_ms);
	d->time_s = le64_make(rec->time_s);
	memcpy(d->host, rec->host, strnlen(rec->host, sizeof(d->host) - 1));
	memcpy(d->target, rec->target, strnlen(rec->target, sizeof(d->target) - 1));
}

enum nvefs_block_status nvefs_mmp_decode(const void *block, const struct nvefs_super *sb, uint16_t type,
					 struct nvefs_mmp_rec *ret)
{
	const struct nvefs_block_expect want = {.pblk = nvefs_mmp_pblk(type), .uuid = sb->uuid, .type = type};
	const struct nvefs_disk_mmp *d = block;
	enum nvefs_block_status status = nvefs_block_check(block, &want);
	struct nvefs_mmp_rec rec = {.nonce = le64_get(d->nonce),
				    .seq = le64_get(d->seq),
				    .state = le32_get(d->state),
				    .interval_ms = le32_get(d->interval_ms),
				    .time_s = le64_get(d->time_s)};

	if (status != NVEFS_BLOCK_OK)
		return status;
	if (rec.state < NVEFS_MMP_FREE || rec.state > NVEFS_MMP_FSCK || rec.interval_ms < NVEFS_MMP_MIN_MS ||
	    rec.interval_ms > NVEFS_MMP_MAX_MS || d->host[sizeof(d->host) - 1] ||
	    d->target[sizeof(d->target) - 1])
		return NVEFS_BLOCK_CONTENT;
	memcpy(rec.host, d->host, sizeof(rec.host));
	memcpy(rec.target, d->target, sizeof(rec.target));
	*ret = rec;
	return NVEFS_BLOCK_OK;
}
