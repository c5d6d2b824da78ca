/* SPDX-License-Identifier: MIT */
/*
 * `image` is a layer over the recording's base that holds what is durable at the
 * present cut. A state is a layer over that, with some of the uncertain commands
 * applied, so that it costs what it changes.
 *
 * `version` says for each LBA which command (its index plus 1) the image holds,
 * so that a command that turns durable late cannot hide a younger one.
 */
#include "device/replay.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device/embedded.h"

const struct nvefs_replay_opts nvefs_replay_defaults = {
    .exhaustive = 6, .torn = 4, .samples = 24, .seed = 1};

struct nvefs_replay {
	const struct nvefs_record *log;
	struct nvefs_replay_opts opts;
	uint32_t cut, nevents;
	bool started;
	uint64_t nlbas;
	uint32_t lba_bytes;
	struct nvefs_cow *image;
	uint32_t *version;
	uint32_t *uncertain; /* commands, by index, in order of submission */
	uint32_t nuncertain;
};

enum fate { ABSENT, WHOLE, TORN };

static bool changes(const struct nvefs_record_cmd *cmd)
{
	return cmd->op == NVEFS_IO_WRITE || cmd->op == NVEFS_IO_WRITE_ZEROES ||
	       cmd->op == NVEFS_IO_DISCARD;
}

static bool durable_when_done(const struct nvefs_replay *r, const struct nvefs_record_cmd *cmd)
{
	return changes(cmd) && !cmd->err &&
	       (cmd->fua || !nvefs_record_limits(r->log)->volatile_cache);
}

/* Does the event change which states are possible? */
static bool matters(const struct nvefs_replay *r, uint32_t index)
{
	const struct nvefs_record_event *e = nvefs_record_event_at(r->log, index);
	const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, e->cmd);

	if (!e->completion)
		return changes(cmd);
	return cmd->op == NVEFS_IO_FLUSH || durable_when_done(r, cmd);
}

static int put_lba(const struct nvefs_replay *r, struct nvefs_cow *to,
		   const struct nvefs_record_cmd *cmd, uint64_t lba)
{
	uint64_t off = lba * r->lba_bytes;
	const uint8_t *data = cmd->op == NVEFS_IO_WRITE ? cmd->data + (off - cmd->off) : NULL;

	return nvefs_cow_write(to, off, r->lba_bytes, data,
			       cmd->op == NVEFS_IO_DISCARD ? NVEFS_REPLAY_DISCARDED : 0);
}

/* The LBAs of a command, cut to the device: what lies behind its end failed. */
static uint64_t lba_first(const struct nvefs_replay *r, const struct nvefs_record_cmd *cmd)
{
	return cmd->off / r->lba_bytes;
}

static uint64_t lba_end(const struct nvefs_replay *r, const struct nvefs_record_cmd *cmd)
{
	uint64_t first = lba_first(r, cmd), n = cmd->len / r->lba_bytes;

	return first >= r->nlbas || n > r->nlbas - first ? first : first + n;
}

static int make_durable(struct nvefs_replay *r, uint32_t index)
{
	const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, index);
	int err = 0;

	for (uint64_t lba = lba_first(r, cmd); !err && lba < lba_end(r, cmd); lba++) {
		if (r->version[lba] > index + 1)
			continue;
		r->version[lba] = index + 1;
		err = put_lba(r, r->image, cmd, lba);
	}
	return err;
}

/* A Flush covers what completed before it was submitted; a write that failed stays uncertain. */
static int flush_completed(struct nvefs_replay *r, const struct nvefs_record_cmd *flush)
{
	uint32_t kept = 0;
	int err = 0;

	for (uint32_t i = 0; !err && i < r->nuncertain; i++) {
		const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, r->uncertain[i]);

		if (cmd->completed < flush->submitted && !cmd->err)
			err = make_durable(r, r->uncertain[i]);
		else
			r->uncertain[kept++] = r->uncertain[i];
	}
	r->nuncertain = kept;
	return err;
}

static int write_completed(struct nvefs_replay *r, uint32_t index)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < r->nuncertain; i++)
		if (r->uncertain[i] != index)
			r->uncertain[kept++] = r->uncertain[i];
	r->nuncertain = kept;
	return make_durable(r, index);
}

static int step(struct nvefs_replay *r)
{
	const struct nvefs_record_event *e = nvefs_record_event_at(r->log, r->cut++);
	const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, e->cmd);

	if (!e->completion) {
		if (changes(cmd))
			r->uncertain[r->nuncertain++] = e->cmd;
		return 0;
	}
	if (cmd->op == NVEFS_IO_FLUSH)
		return cmd->err ? 0 : flush_completed(r, cmd);
	return durable_when_done(r, cmd) ? write_completed(r, e->cmd) : 0;
}

static void rewind_image(struct nvefs_replay *r)
{
	nvefs_cow_reset(r->image);
	memset(r->version, 0, r->nlbas * sizeof(*r->version));
	r->nuncertain = 0;
	r->cut = 0;
}

int nvefs_replay_new(const struct nvefs_record *log, const struct nvefs_replay_opts *opts,
		     struct nvefs_replay **ret_replay)
{
	const struct nvefs_dev_limits *l = nvefs_record_limits(log);
	struct nvefs_replay *r;

	if (nvefs_record_overflowed((struct nvefs_record *)(uintptr_t)log))
		return -EOVERFLOW;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->log = log;
	r->opts = opts ? *opts : nvefs_replay_defaults;
	if (r->opts.exhaustive > 16)
		r->opts.exhaustive = 16;
	r->nevents = nvefs_record_nevents(log);
	r->lba_bytes = l->lba_bytes;
	r->nlbas = (l->nblks << NVEFS_BLOCK_SHIFT) / r->lba_bytes;
	r->image = nvefs_cow_new(nvefs_record_base(log), l->nblks);
	r->version = calloc(r->nlbas, sizeof(*r->version));
	r->uncertain = calloc(nvefs_record_ncmds(log) + 1, sizeof(*r->uncertain));
	if (!r->version || !r->uncertain || !r->image) {
		nvefs_replay_free(r);
		return -ENOMEM;
	}
	*ret_replay = r;
	return 0;
}

void nvefs_replay_free(struct nvefs_replay *r)
{
	if (!r)
		return;
	nvefs_cow_free(r->image);
	free(r->version);
	free(r->uncertain);
	free(r);
}

uint32_t nvefs_replay_end(const struct nvefs_replay *r)
{
	return r->nevents;
}

uint32_t nvefs_replay_cut(const struct nvefs_replay *r)
{
	return r->cut;
}

uint32_t nvefs_replay_nuncertain(const struct nvefs_replay *r)
{
	return r->nuncertain;
}

int nvefs_replay_seek(struct nvefs_replay *r, uint32_t cut)
{
	int err = 0;

	if (cut > r->nevents)
		return -EINVAL;
	r->started = true;
	if (cut < r->cut)
		rewind_image(r);
	while (!err && r->cut < cut)
		err = step(r);
	return err;
}

int nvefs_replay_next(struct nvefs_replay *r)
{
	uint32_t cut = r->cut;
	int err;

	if (r->started) {
		if (cut == r->nevents)
			return 0;
		cut++;
	}
	while (cut < r->nevents && !matters(r, cut))
		cut++;
	err = nvefs_replay_seek(r, cut);
	return err ? err : 1;
}

uint32_t nvefs_replay_nstates(const struct nvefs_replay *r)
{
	if (r->nuncertain <= r->opts.exhaustive)
		return (1u << r->nuncertain) + (r->nuncertain ? r->opts.torn : 0);
	return 2 + r->opts.samples;
}

static uint64_t draw(const struct nvefs_replay *r, uint32_t state, uint64_t a, uint64_t b)
{
	const uint64_t key[4] = {r->cut, state, a, b};

	return nvefs_hash(key, sizeof(key), r->opts.seed);
}

/* The shapes that a seeded sample takes in turn; the loss of one among many finds the most. */
static enum fate sampled_fate(const struct nvefs_replay *r, uint32_t state, uint32_t i)
{
	uint64_t pick = draw(r, state, UINT64_MAX, 0) % r->nuncertain,
		 random = draw(r, state, i, 1);

	switch (state % 4) {
	case 0: /* all but one */
		return i == pick ? ABSENT : WHOLE;
	case 1: /* only one */
		return i == pick ? WHOLE : ABSENT;
	case 2: /* those up to one, which is torn */
		return i < pick ? WHOLE : i == pick ? TORN : ABSENT;
	default:
		return random % 4 == 0 ? TORN : random % 2 ? WHOLE : ABSENT;
	}
}

static enum fate fate(const struct nvefs_replay *r, uint32_t state, uint32_t i)
{
	if (r->nuncertain <= r->opts.exhaustive) {
		if (state < 1u << r->nuncertain)
			return state >> i & 1 ? WHOLE : ABSENT;
		return (enum fate)(draw(r, state, i, 1) % 3);
	}
	if (state < 2)
		return state ? WHOLE : ABSENT;
	return sampled_fate(r, state, i);
}

static int apply(const struct nvefs_replay *r, uint32_t state, uint32_t i, struct nvefs_cow *to)
{
	uint32_t index = r->uncertain[i];
	const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, index);
	enum fate f = fate(r, state, i);
	int err = 0;

	if (f == ABSENT)
		return 0;
	for (uint64_t lba = lba_first(r, cmd); !err && lba < lba_end(r, cmd); lba++) {
		if (r->version[lba] > index + 1 || (f == TORN && draw(r, state, i, lba + 2) & 1))
			continue;
		err = put_lba(r, to, cmd, lba);
	}
	return err;
}

int nvefs_replay_build(struct nvefs_replay *r, uint32_t state, struct nvefs_cow *to)
{
	int err = 0;

	assert(state < nvefs_replay_nstates(r));
	for (uint32_t i = 0; !err && i < r->nuncertain; i++)
		err = apply(r, state, i, to);
	return err;
}

const struct nvefs_cow *nvefs_replay_image(const struct nvefs_replay *r)
{
	return r->image;
}

static int open_layer(const struct nvefs_replay *r, const char *target, struct nvefs_cow *layer,
		      bool own, struct nvefs_dev **ret_dev)
{
	const struct nvefs_dev_limits *l = nvefs_record_limits(r->log);
	struct nvefs_embedded_options o;
	struct nvefs_media *media;
	int err = nvefs_media_cow_open(layer, own, &media);

	if (err) {
		if (own)
			nvefs_cow_free(layer);
		return err;
	}
	nvefs_embedded_options_init(&o);
	o.ctrl.lba_bytes = l->lba_bytes;
	o.ctrl.vwc = l->volatile_cache;
	o.ctrl.iu_bytes = l->iu_blks << NVEFS_BLOCK_SHIFT;
	o.ctrl.mdts_bytes = l->max_transfer_blks << NVEFS_BLOCK_SHIFT;
	return nvefs_embedded_open_media(target, &o.ctrl, media, ret_dev, NULL);
}

int nvefs_replay_device(const struct nvefs_replay *r, struct nvefs_cow *state,
			struct nvefs_dev **ret_dev)
{
	return open_layer(r, "replay", state, false, ret_dev);
}

int nvefs_replay_open(struct nvefs_replay *r, uint32_t state, struct nvefs_dev **ret_dev)
{
	struct nvefs_cow *layer = nvefs_cow_new(r->image, nvefs_cow_nblks(r->image));
	char target[64];
	int err;

	if (!layer)
		return -ENOMEM;
	snprintf(target, sizeof(target), "replay:%u/%u", r->cut, state);
	err = nvefs_replay_build(r, state, layer);
	if (err)
		nvefs_cow_free(layer);
	else
		err = open_layer(r, target, layer, true, ret_dev);
	return err;
}

static size_t add_text(char *buf, size_t len, size_t at, const struct nvefs_record_cmd *cmd,
		       enum fate f)
{
	static const char *const names[] = {[NVEFS_IO_WRITE] = "write",
					    [NVEFS_IO_WRITE_ZEROES] = "zeroes",
					    [NVEFS_IO_DISCARD] = "discard"};

	if (f == WHOLE || at >= len)
		return at;
	return at + (size_t)snprintf(buf + at, len - at, " %s %s of %llu bytes at block %llu;",
				     f == TORN ? "torn" : "lost", names[cmd->op],
				     (unsigned long long)cmd->len,
				     (unsigned long long)(cmd->off >> NVEFS_BLOCK_SHIFT));
}

void nvefs_replay_describe(const struct nvefs_replay *r, uint32_t state, char *buf, size_t len)
{
	size_t at = (size_t)snprintf(buf, len, "cut %u of %u, state %u of %u, seed %llu:", r->cut,
				     r->nevents, state, nvefs_replay_nstates(r),
				     (unsigned long long)r->opts.seed);

	for (uint32_t i = 0; i < r->nuncertain; i++)
		at = add_text(buf, len, at, nvefs_record_cmd_at(r->log, r->uncertain[i]),
			      fate(r, state, i));
}

int nvefs_replay_each(struct nvefs_replay *r, nvefs_replay_fn *fn, void *arg, uint64_t *ret_nstates)
{
	uint64_t n = 0;
	int err = 0, more;

	while (!err && (more = nvefs_replay_next(r)) != 0) {
		uint32_t nstates = more < 0 ? 0 : nvefs_replay_nstates(r);

		err = more < 0 ? more : 0;
		for (uint32_t state = 0; !err && state < nstates; state++) {
			struct nvefs_dev *dev;

			err = nvefs_replay_open(r, state, &dev);
			if (err)
				break;
			err = fn(dev, r, state, arg);
			n++;
		}
	}
	if (ret_nstates)
		*ret_nstates = n;
	return err;
}
