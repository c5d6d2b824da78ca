/* SPDX-License-Identifier: MIT */
/* Multiple mount protection: fsck is a host like any other, for as long as it works. */
#include <errno.h>

#include "base/buf.h"
#include "context.h"
#include "format/mmp.h"
#include "store/mmp.h"
#include "store/super.h"

static const uint16_t types[2] = {NVEFS_BT_CLAIM, NVEFS_BT_BEAT};

/* Before the claim is written, which makes both new. */
static int look_at_blocks(struct nvefs_queue *q, const struct nvefs_super *sb, struct nvefs_check_history *past)
{
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	struct nvefs_mmp_rec rec;

	if (!buf)
		return -ENOMEM;
	for (int i = 0; i < 2; i++)
		past->mmp_status[i] = nvefs_queue_read(q, nvefs_mmp_pblk(types[i]), 1, buf) ?
					      NVEFS_BLOCK_CHECKSUM :
					      nvefs_mmp_decode(buf, sb, types[i], &rec);
	nvefs_buf_free(buf);
	return 0;
}

int nvefs_check_protect(struct nvefs_dev *dev, struct nvefs_queue *q, const struct nvefs_check_opts *opts,
			struct nvefs_check_history *past, struct nvefs_error *err)
{
	const struct nvefs_mmp_opts mo = {.state = NVEFS_MMP_FSCK,
					  .force = opts->mmp_force,
					  .force_how = opts->mmp_force_how,
					  .host = opts->host,
					  .wait = opts->host_wait,
					  .wait_arg = opts->host_wait_arg};
	struct nvefs_super sb;
	int code;

	/* Without a superblock there is nothing to go by, and nothing will be written. */
	if (nvefs_super_read(dev, q, &sb, NULL) || !nvefs_super_mmp(&sb))
		return 0;
	if (opts->replay_in_memory)
		code = nvefs_mmp_look(dev, &mo, err);
	else
		code = look_at_blocks(q, &sb, past);
	if (code || opts->replay_in_memory)
		return code ? code : look_at_blocks(q, &sb, past);
	return nvefs_mmp_take(dev, &mo, &past->mmp, err);
}

void nvefs_check_unprotect(struct nvefs_check_history *past, bool clean)
{
	nvefs_mmp_release(past->mmp, clean);
	past->mmp = NULL;
}

void nvefs_check_mmp(struct nvefs_check_ctx *c)
{
	if (!nvefs_super_mmp(&c->sb) || c->past->round)
		return;
	for (int i = 0; i < 2; i++) {
		struct nvefs_problem p = {.code = i ? NVEFS_P_MMP_BEAT : NVEFS_P_MMP_CLAIM,
					  .pblk = nvefs_mmp_pblk(types[i]),
					  .why = nvefs_block_status_text(c->past->mmp_status[i])};

		if (c->past->mmp_status[i] != NVEFS_BLOCK_OK)
			nvefs_check_report(c, &p);
	}
}
