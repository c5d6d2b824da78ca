/* SPDX-License-Identifier: MIT */
#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"

static const struct {
	const char *name;
	int (*run)(struct nvefs_check_ctx *c);
} passes[] = {
	{"superblocks", nvefs_pass_super}, {"journal", nvefs_pass_journal},   {"tree", nvefs_pass_tree},
	{"names", nvefs_pass_names},	   {"blocks", nvefs_pass_blocks},     {"counters", nvefs_pass_counters},
	{"data", nvefs_pass_data},	   {"paths", nvefs_pass_paths},
};
#define NPASSES (sizeof(passes) / sizeof(passes[0]))

/* Most problems of one inode come one after the other. */
static void note_ino(struct nvefs_check_ctx *c, uint64_t ino)
{
	if (!ino || !c->opts->name || c->nbad_inos == NVEFS_CHECK_MAX_NAMES)
		return;
	if (c->nbad_inos && c->bad_inos[c->nbad_inos - 1] == ino)
		return;
	if (!c->bad_inos)
		c->bad_inos = calloc(NVEFS_CHECK_MAX_NAMES, sizeof(*c->bad_inos));
	if (c->bad_inos)
		c->bad_inos[c->nbad_inos++] = ino;
}

void nvefs_check_report(struct nvefs_check_ctx *c, const struct nvefs_problem *p)
{
	if (nvefs_problem_info(p->code)->severity != NVEFS_SEV_NOTE) {
		c->res->problems++;
		if (!c->res->first_code)
			c->res->first_code = p->code;
	}
	note_ino(c, p->ino);
	if (c->opts->report)
		c->opts->report(c->opts->arg, p);
}

int nvefs_check_progress(struct nvefs_check_ctx *c, uint64_t done, uint64_t total)
{
	if (!c->opts->progress)
		return 0;
	return c->opts->progress(c->opts->arg, passes[c->pass_no].name, c->pass_no, NPASSES, done, total) ?
		       -ECANCELED :
		       0;
}

int nvefs_check(struct nvefs_dev *dev, const struct nvefs_check_opts *opts, struct nvefs_check_result *ret,
		struct nvefs_error *err)
{
	struct nvefs_check_ctx c = {.dev = dev, .opts = opts, .res = ret, .err = err};
	const char *name = passes[0].name;
	int code = nvefs_queue_init(dev, 0, &c.q);

	memset(ret, 0, sizeof(*ret));
	if (err)
		err->text[0] = '\0';
	for (; !code && !c.stop && c.pass_no < NPASSES; c.pass_no++) {
		name = passes[c.pass_no].name;
		code = nvefs_check_progress(&c, 0, 0);
		if (!code)
			code = passes[c.pass_no].run(&c);
	}
	nvefs_store_free(c.st);
	nvefs_queue_done(c.q);
	nvefs_usage_done(&c.usage);
	nvefs_check_inodes_done(&c.inodes);
	free(c.groups);
	free(c.orphans);
	free(c.bad_inos);
	if (code && err && !err->text[0])
		nvefs_error_set(err, code, "%s: the check ended in pass %s: %s",
				nvefs_dev_identity(dev)->target, name, strerror(-code));
	return code;
}
