/* SPDX-License-Identifier: MIT */
/*
 * `image` holds what is durable at the present cut, in a memory file. A state
 * is a private mapping of it, with some of the uncertain commands applied on top:
 * the kernel copies the pages that are touched, so that a state costs
 * what it changes.
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
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "device/embedded.h"

const struct nvefs_replay_opts nvefs_replay_defaults = {
    .exhaustive = 6, .torn = 4, .samples = 24, .seed = 1};

struct nvefs_replay {
	const struct nvefs_record *log;
	struct nvefs_replay_opts opts;
	uint32_t cut, nevents;
	bool started;
	uint64_t size_bytes, nlbas;
	uint32_t lba_bytes;
	int image_fd;
	uint8_t *image;
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

static void put_lba(const struct nvefs_replay *r, uint8_t *to, const struct nvefs_record_cmd *cmd,
		    uint64_t lba)
{
	uint64_t off = lba * r->lba_bytes;

	if (cmd->op == NVEFS_IO_WRITE)
		memcpy(to + off, cmd->data + (off - cmd->off), r->lba_bytes);
	else
		memset(to + off, cmd->op == NVEFS_IO_DISCARD ? NVEFS_REPLAY_DISCARDED : 0,
		       r->lba_bytes);
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

static void make_durable(struct nvefs_replay *r, uint32_t index)
{
	const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, index);

	for (uint64_t lba = lba_first(r, cmd); lba < lba_end(r, cmd); lba++) {
		if (r->version[lba] > index + 1)
			continue;
		r->version[lba] = index + 1;
		put_lba(r, r->image, cmd, lba);
	}
}

/* A Flush covers what completed before it was submitted; a write that failed stays uncertain. */
static void flush_completed(struct nvefs_replay *r, const struct nvefs_record_cmd *flush)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < r->nuncertain; i++) {
		const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, r->uncertain[i]);

		if (cmd->completed < flush->submitted && !cmd->err)
			make_durable(r, r->uncertain[i]);
		else
			r->uncertain[kept++] = r->uncertain[i];
	}
	r->nuncertain = kept;
}

static void write_completed(struct nvefs_replay *r, uint32_t index)
{
	uint32_t kept = 0;

	make_durable(r, index);
	for (uint32_t i = 0; i < r->nuncertain; i++)
		if (r->uncertain[i] != index)
			r->uncertain[kept++] = r->uncertain[i];
	r->nuncertain = kept;
}

static void step(struct nvefs_replay *r)
{
	const struct nvefs_record_event *e = nvefs_record_event_at(r->log, r->cut++);
	const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, e->cmd);

	if (!e->completion) {
		if (changes(cmd))
			r->uncertain[r->nuncertain++] = e->cmd;
	} else if (cmd->op == NVEFS_IO_FLUSH && !cmd->err) {
		flush_completed(r, cmd);
	} else if (durable_when_done(r, cmd)) {
		write_completed(r, e->cmd);
	}
}

/* Holes of the base stay holes. */
static int rewind_image(struct nvefs_replay *r)
{
	int base = nvefs_record_base_fd(r->log);
	off_t at = 0, end;

	if (ftruncate(r->image_fd, 0) || ftruncate(r->image_fd, (off_t)r->size_bytes))
		return -errno;
	while ((at = lseek(base, at, SEEK_DATA)) >= 0) {
		end = lseek(base, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		for (; at < end;) {
			ssize_t n = pread(base, r->image + at, (size_t)(end - at), at);

			if (n <= 0)
				return n ? -errno : -EIO;
			at += n;
		}
	}
	memset(r->version, 0, r->nlbas * sizeof(*r->version));
	r->nuncertain = 0;
	r->cut = 0;
	return 0;
}

static int image_init(struct nvefs_replay *r)
{
	r->image_fd = memfd_create("nvefs-replay", MFD_CLOEXEC);
	if (r->image_fd < 0 || ftruncate(r->image_fd, (off_t)r->size_bytes))
		return -errno;
	r->image = mmap(NULL, r->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->image_fd, 0);
	return r->image == MAP_FAILED ? -errno : 0;
}

int nvefs_replay_new(const struct nvefs_record *log, const struct nvefs_replay_opts *opts,
		     struct nvefs_replay **ret_replay)
{
	const struct nvefs_dev_limits *l = nvefs_record_limits(log);
	struct nvefs_replay *r;
	int err = -ENOMEM;

	if (nvefs_record_overflowed((struct nvefs_record *)(uintptr_t)log))
		return -EOVERFLOW;
	r = calloc(1, sizeof(*r));
	if (!r)
		return err;
	r->log = log;
	r->opts = opts ? *opts : nvefs_replay_defaults;
	if (r->opts.exhaustive > 16)
		r->opts.exhaustive = 16;
	r->nevents = nvefs_record_nevents(log);
	r->lba_bytes = l->lba_bytes;
	r->size_bytes = l->nblks << NVEFS_BLOCK_SHIFT;
	r->nlbas = r->size_bytes / r->lba_bytes;
	r->image_fd = -1;
	r->image = MAP_FAILED;
	r->version = calloc(r->nlbas, sizeof(*r->version));
	r->uncertain = calloc(nvefs_record_ncmds(log) + 1, sizeof(*r->uncertain));
	if (r->version && r->uncertain)
		err = image_init(r);
	if (!err)
		err = rewind_image(r);
	if (err) {
		nvefs_replay_free(r);
		return err;
	}
	*ret_replay = r;
	return 0;
}

void nvefs_replay_free(struct nvefs_replay *r)
{
	if (!r)
		return;
	if (r->image != MAP_FAILED)
		munmap(r->image, r->size_bytes);
	if (r->image_fd >= 0)
		close(r->image_fd);
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
		err = rewind_image(r);
	while (!err && r->cut < cut)
		step(r);
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

static void apply(const struct nvefs_replay *r, uint32_t state, uint32_t i, uint8_t *to)
{
	uint32_t index = r->uncertain[i];
	const struct nvefs_record_cmd *cmd = nvefs_record_cmd_at(r->log, index);
	enum fate f = fate(r, state, i);

	if (f == ABSENT)
		return;
	for (uint64_t lba = lba_first(r, cmd); lba < lba_end(r, cmd); lba++) {
		if (r->version[lba] > index + 1 || (f == TORN && draw(r, state, i, lba + 2) & 1))
			continue;
		put_lba(r, to, cmd, lba);
	}
}

int nvefs_replay_open(struct nvefs_replay *r, uint32_t state, struct nvefs_dev **ret_dev)
{
	const struct nvefs_dev_limits *l = nvefs_record_limits(r->log);
	struct nvefs_embedded_options o;
	struct nvefs_media *media;
	char target[64];
	void *map;
	int err;

	assert(state < nvefs_replay_nstates(r));
	map = mmap(NULL, r->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
		   r->image_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	for (uint32_t i = 0; i < r->nuncertain; i++)
		apply(r, state, i, map);
	err = nvefs_media_ram_adopt(map, r->size_bytes, &media);
	if (err) {
		munmap(map, r->size_bytes);
		return err;
	}
	nvefs_embedded_options_init(&o);
	o.ctrl.lba_bytes = l->lba_bytes;
	o.ctrl.vwc = l->volatile_cache;
	o.ctrl.iu_bytes = l->iu_blks << NVEFS_BLOCK_SHIFT;
	o.ctrl.mdts_bytes = l->max_transfer_blks << NVEFS_BLOCK_SHIFT;
	snprintf(target, sizeof(target), "replay:%u/%u", r->cut, state);
	return nvefs_embedded_open_media(target, &o.ctrl, media, ret_dev, NULL);
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
