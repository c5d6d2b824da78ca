/* SPDX-License-Identifier: MIT */
#include "salvage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "mend.h"

static int init(struct nvefs_salvage *s, struct nvefs_check_ctx *c)
{
	*s = (struct nvefs_salvage){.c = c};
	s->block = nvefs_buf_new(NVEFS_BLOCK_SIZE);
	s->bits = calloc(c->sb.ngroups, sizeof(*s->bits));
	s->bits_txn = calloc(c->sb.ngroups, sizeof(*s->bits_txn));
	if (!s->block || !s->bits || !s->bits_txn)
		return -ENOMEM;
	return nvefs_usage_init(&s->claims, &c->sb);
}

static void done(struct nvefs_salvage *s)
{
	for (uint32_t g = 0; s->bits && g < s->c->sb.ngroups; g++)
		free(s->bits[g]);
	free(s->bits);
	free(s->bits_txn);
	free(s->leaves);
	free(s->segs);
	nvefs_buf_free(s->block);
	nvefs_usage_done(&s->claims);
}

/* The blocks that candidates lie in are not to be written over before the switch. */
static int mark_candidates(struct nvefs_salvage *s)
{
	int err = 0;

	for (size_t i = 0; i < s->nleaves && (!err || err == -ELOOP); i++) {
		err = nvefs_usage_add_meta(&s->claims, s->leaves[i].home);
		if (s->leaves[i].twin && (!err || err == -ELOOP))
			err = nvefs_usage_add_meta(&s->claims, s->leaves[i].twin);
	}
	return err == -ELOOP ? 0 : err;
}

int nvefs_salvage(struct nvefs_check_ctx *c)
{
	struct nvefs_salvage s;
	int err = init(&s, c);

	if (!err)
		err = nvefs_salvage_scan(&s);
	if (!err && !s.nleaves)
		err = -EUCLEAN;
	if (!err)
		err = nvefs_salvage_segments(&s);
	if (!err)
		err = mark_candidates(&s);
	if (!err)
		err = nvefs_salvage_build(&s);
	done(&s);
	return err;
}
