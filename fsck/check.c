/* SPDX-License-Identifier: MIT */
#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "mend.h"
#include "store/mmp.h"

/* Each round uncovers less: structure, values, names, counts; what is left after so many stays. */
#define MAX_ROUNDS 12u

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

/* A problem that stays is met in each round again. */
static bool told_before(struct nvefs_check_history *h, uint32_t code)
{
	for (uint32_t i = 0; i < h->nleft; i++)
		if (h->left[i] == code)
			return h->round > 0;
	if (h->nleft < sizeof(h->left) / sizeof(h->left[0]))
		h->left[h->nleft++] = code;
	return false;
}

void nvefs_check_report(struct nvefs_check_ctx *c, const struct nvefs_problem *problem)
{
	struct nvefs_problem p = *problem;

	p.mend = nvefs_todo_add(c, &p);
	if (nvefs_problem_info(p.code)->severity != NVEFS_SEV_NOTE) {
		c->problems++;
		c->to_mend += p.mend;
		c->slots_to_mend += p.mend && 1u << nvefs_problem_info(p.code)->mender & NVEFS_MENDERS_ALONE;
		if (!c->res->first_code)
			c->res->first_code = p.code;
	}
	if (!p.mend && told_before(c->past, p.code))
		return;
	note_ino(c, p.ino);
	if (c->opts->report)
		c->opts->report(c->opts->arg, &p);
}

/* Mending comes after the last pass, and is shown in its place. */
int nvefs_check_progress(struct nvefs_check_ctx *c, uint64_t done, uint64_t total)
{
	bool mending = c->pass_no >= NPASSES;
	uint32_t no = mending ? NPASSES - 1 : c->pass_no;

	if (!c->opts->progress)
		return 0;
	return c->opts->progress(c->opts->arg, mending ? "mending" : passes[no].name, no, NPASSES, done, total) ?
		       -ECANCELED :
		       0;
}

static int run_passes(struct nvefs_check_ctx *c)
{
	const char *name = passes[0].name;
	int code = 0;

	for (; !code && !c->stop && c->pass_no < NPASSES; c->pass_no++) {
		name = passes[c->pass_no].name;
		code = nvefs_check_progress(c, 0, 0);
		if (!code)
			code = passes[c->pass_no].run(c);
		if (!code)
			code = c->ask_err;
	}
	nvefs_ahead_done(&c->ahead);
	nvefs_store_free(c->st);
	c->st = NULL;
	if (!code && c->todo.nomem)
		code = -ENOMEM;
	if (code && c->err && !c->err->text[0])
		nvefs_error_set(c->err, code, "%s: the check ended in pass %s: %s",
				nvefs_dev_identity(c->dev)->target, name, strerror(-code));
	return code;
}

/* What counts what is there, not what was found. */
static void reset_counts(struct nvefs_check_result *r)
{
	struct nvefs_check_result kept = {.problems = r->problems,
					  .left = r->left,
					  .first_code = r->first_code,
					  .rounds = r->rounds,
					  .held = r->held,
					  .stopped = r->stopped,
					  .replayed_txns = r->replayed_txns};

	*r = kept;
}

static void ctx_done(struct nvefs_check_ctx *c)
{
	nvefs_usage_done(&c->usage);
	nvefs_check_inodes_done(&c->inodes);
	nvefs_todo_done(&c->todo);
	free(c->groups);
	free(c->orphans);
	free(c->bad_inos);
}

/* *ret_again: something was mended, look again. */
static int one_round(struct nvefs_check_ctx *c, bool *ret_again)
{
	uint64_t replayed = c->res->replayed_txns;
	int code;

	reset_counts(c->res);
	code = run_passes(c);
	c->res->replayed_txns += replayed;
	c->res->left = c->problems;
	*ret_again = false;
	/* What looked safe before the tree turned out to be broken waits. */
	if ((c->past->repair == NVEFS_REPAIR_SAFE && c->incomplete) || c->tree_refused) {
		c->res->held |= c->to_mend > c->slots_to_mend;
		c->to_mend = c->slots_to_mend;
		c->todo.menders &= NVEFS_MENDERS_ALONE;
	}
	if (code || !c->todo.menders) {
		c->res->problems += c->problems;
		return code;
	}
	c->res->problems += c->to_mend;
	c->res->rounds++;
	*ret_again = true;
	code = nvefs_mend(c);
	if (code != -ENOSPC && code != -EUCLEAN)
		return code;
	/* No room, or what was whole a moment ago is not any more: the next round tells what is left. */
	c->past->repair = NVEFS_REPAIR_NONE;
	c->res->stopped = code;
	c->res->problems -= c->to_mend;
	return 0;
}

int nvefs_check(struct nvefs_dev *dev, const struct nvefs_check_opts *opts, struct nvefs_check_result *ret,
		struct nvefs_error *err)
{
	struct nvefs_check_history past = {.repair = opts->replay_in_memory ? NVEFS_REPAIR_NONE : opts->repair};
	struct nvefs_queue *q = NULL;
	bool again = true;
	int code;

	memset(ret, 0, sizeof(*ret));
	if (err)
		err->text[0] = '\0';
	code = nvefs_queue_init(dev, 0, &q);
	if (!code)
		code = nvefs_check_protect(dev, q, opts, &past, err);
	for (; !code && again; past.round++) {
		struct nvefs_check_ctx c = {
			.dev = dev, .q = q, .opts = opts, .res = ret, .err = err, .past = &past};

		if (past.round == MAX_ROUNDS)
			past.repair = NVEFS_REPAIR_NONE;
		code = one_round(&c, &again);
		ctx_done(&c);
		/* What was read while another host wrote means nothing. */
		if (nvefs_mmp_check(past.mmp, err))
			code = -EBUSY;
	}
	nvefs_check_unprotect(&past, true);
	nvefs_queue_done(q);
	if (code && err && !err->text[0])
		nvefs_error_set(err, code, "%s: mending failed: %s", nvefs_dev_identity(dev)->target,
				strerror(-code));
	return code;
}
