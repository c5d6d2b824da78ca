/* SPDX-License-Identifier: MIT */
/* The operations of the crash loop, each on the file system and on the model. */
#include "fs_life.h"

#include <errno.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAVE_BLKS 170u

const char *const life_names[ORACLE_NAMES] = {"a", "b", "c", "d", "e", "f", "g", "h"};
const struct oracle_path life_paths[ORACLE_NAMES] = {
    {-1, "a"}, {-1, "b"}, {-1, "c"}, {-1, "d"}, {-1, "e"}, {-1, "f"}, {-1, "g"}, {-1, "h"}};

static uint32_t at(struct life *l)
{
	return nvefs_record_position(l->log);
}

static int pick(struct life *l, bool present)
{
	uint32_t i, k = (uint32_t)rnd_below(&l->rnd, ORACLE_NAMES);

	for (i = 0; i < ORACLE_NAMES; i++, k = (k + 1) % ORACLE_NAMES)
		if ((l->o.names[k] >= 0) == present)
			return (int)k;
	return -1;
}

static void fill(struct life *l, uint8_t *p, uint64_t n)
{
	uint8_t v = (uint8_t)(1 + rnd_below(&l->rnd, 5));
	uint64_t i;

	for (i = 0; i < n; i++)
		p[i] = (uint8_t)(v + (i & 4095) / 512);
	if (rnd_below(&l->rnd, 2))
		for (i = 0; i < n; i += 2048)
			p[i] = (uint8_t)rnd_next(&l->rnd);
}

static int op_create(struct life *l)
{
	int k = pick(l, false), err;
	uint64_t ino;

	if (k < 0 || l->o.nfiles == ORACLE_FILES)
		return 0;
	oracle_begin(&l->o, at(l), "create %s", life_names[k]);
	err = h_create(l->w, life_names[k], &ino);
	if (!err)
		l->o.names[k] = oracle_new_file(&l->o, ino, false);
	oracle_end(&l->o, at(l));
	return err;
}

static int op_write(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t off, n;
	uint8_t *buf;

	if (k < 0)
		return 0;
	off = rnd_below(&l->rnd, l->max_bytes - 1);
	n = 1 + rnd_below(&l->rnd, 6 * 4096);
	if (rnd_below(&l->rnd, 3)) {
		off &= ~UINT64_C(4095);
		n = (n + 4095) & ~UINT64_C(4095);
	}
	if (n > l->max_bytes - off)
		n = l->max_bytes - off;
	buf = malloc(n);
	fill(l, buf, n);
	oracle_begin(&l->o, at(l), "write %s %llu+%llu", life_names[k], (unsigned long long)off,
		     (unsigned long long)n);
	err = h_write(l->w, l->o.files[l->o.names[k]].ino, off, buf, n, 0);
	if (!err) {
		struct oracle_version *v = oracle_touch(&l->o, l->o.names[k]);

		memcpy(v->bytes + off, buf, n);
		if (v->size < off + n)
			v->size = off + n;
	}
	oracle_end(&l->o, at(l));
	free(buf);
	return err;
}

static int op_truncate(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t size = rnd_below(&l->rnd, l->max_bytes);

	if (k < 0)
		return 0;
	oracle_begin(&l->o, at(l), "truncate %s %llu", life_names[k], (unsigned long long)size);
	err = h_truncate(l->w, l->o.files[l->o.names[k]].ino, size);
	if (!err) {
		struct oracle_version *v = oracle_touch(&l->o, l->o.names[k]);

		if (size < v->size)
			memset(v->bytes + size, 0, v->size - size);
		v->size = size;
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_punch(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t off = rnd_below(&l->rnd, l->max_bytes - 1), n = 1 + rnd_below(&l->rnd, 5 * 4096),
		 end;

	if (k < 0)
		return 0;
	oracle_begin(&l->o, at(l), "punch %s %llu+%llu", life_names[k], (unsigned long long)off,
		     (unsigned long long)n);
	err = h_fallocate(l->w, l->o.files[l->o.names[k]].ino,
			  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, n);
	if (!err) {
		struct oracle_version *v = oracle_touch(&l->o, l->o.names[k]);

		end = off + n < v->size ? off + n : v->size;
		if (off < end)
			memset(v->bytes + off, 0, end - off);
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_clone(struct life *l)
{
	int from = pick(l, true), to = pick(l, true);
	uint64_t off, n, to_off;
	struct oracle_version *v, *s;
	int64_t got;

	if (from < 0 || to < 0 || l->o.names[from] == l->o.names[to])
		return 0;
	off = rnd_below(&l->rnd, l->max_bytes / 8192) * 4096;
	to_off = rnd_below(&l->rnd, l->max_bytes / 8192) * 4096;
	n = (1 + rnd_below(&l->rnd, l->max_bytes / 8192)) * 4096;
	oracle_begin(&l->o, at(l), "clone %s %llu+%llu to %s %llu", life_names[from],
		     (unsigned long long)off, (unsigned long long)n, life_names[to],
		     (unsigned long long)to_off);
	got = h_copy(l->w, l->o.files[l->o.names[from]].ino, off, l->o.files[l->o.names[to]].ino,
		     to_off, n);
	if (got > 0) {
		v = oracle_touch(&l->o, l->o.names[to]);
		s = oracle_newest(&l->o, l->o.names[from]);
		memcpy(v->bytes + to_off, s->bytes + off, (size_t)got);
		if (v->size < to_off + (uint64_t)got)
			v->size = to_off + (uint64_t)got;
	}
	oracle_end(&l->o, at(l));
	return got < 0 ? (int)got : 0;
}

/* The last name went: the kernel would forget it now, and its blocks are free. */
static void forget_nameless(struct life *l, int file)
{
	uint32_t i;

	for (i = 0; i < ORACLE_NAMES; i++)
		if (l->o.names[i] == file)
			return;
	nvefs_forget(l->w, l->o.files[file].ino, 100);
}

static int op_unlink(struct life *l)
{
	int k = pick(l, true), err;

	if (k < 0)
		return 0;
	oracle_begin(&l->o, at(l), "unlink %s", life_names[k]);
	err = h_unlink(l->w, life_names[k]);
	if (!err) {
		int file = l->o.names[k];

		oracle_named(&l->o, file);
		l->o.names[k] = -1;
		forget_nameless(l, file);
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_rename(struct life *l)
{
	int from = pick(l, true), to = (int)rnd_below(&l->rnd, ORACLE_NAMES), err, tmp;
	bool swap;

	if (from < 0 || from == to)
		return 0;
	swap = l->o.names[to] >= 0 && rnd_below(&l->rnd, 3) == 0;
	oracle_begin(&l->o, at(l), "rename %s %s%s", life_names[from], life_names[to],
		     swap ? " exchange" : "");
	err = nvefs_rename(l->w, 1, life_names[from], 1, 1, life_names[to], 1, swap ? 2 : 0);
	if (!err && l->o.names[from] != l->o.names[to]) {
		tmp = l->o.names[to];
		l->o.names[to] = l->o.names[from];
		l->o.names[from] = swap ? tmp : -1;
		oracle_named(&l->o, l->o.names[to]);
		if (!swap && tmp >= 0)
			forget_nameless(l, tmp);
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_link(struct life *l)
{
	int from = pick(l, true), to = pick(l, false), err;
	struct nvefs_attr a;

	if (from < 0 || to < 0)
		return 0;
	oracle_begin(&l->o, at(l), "link %s %s", life_names[from], life_names[to]);
	err = nvefs_link(l->w, l->o.files[l->o.names[from]].ino, 1, life_names[to], 1, &a);
	if (!err) {
		l->o.names[to] = l->o.names[from];
		oracle_named(&l->o, l->o.names[to]);
	}
	oracle_end(&l->o, at(l));
	return err;
}

static int op_fsync(struct life *l)
{
	int k = pick(l, true), err;
	struct oracle_op *op;

	if (k < 0)
		return 0;
	op = oracle_begin(&l->o, at(l), "fsync %s", life_names[k]);
	op->durable_names = (int)l->o.files[l->o.names[k]].last_op;
	op->durable_file = l->o.names[k];
	err = h_fsync(l->w, l->o.files[l->o.names[k]].ino);
	oracle_end(&l->o, at(l));
	return err;
}

static int op_sync(struct life *l)
{
	struct oracle_op *op = oracle_begin(&l->o, at(l), "sync");
	int err;

	op->durable_names = (int)l->o.nops;
	op->durable_file = -2;
	err = h_sync(l->w);
	oracle_end(&l->o, at(l));
	return err;
}

/* Asking for holes folds the file's map into the tree, and commits nothing. */
static int op_fold(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t off;

	if (k < 0)
		return 0;
	oracle_begin(&l->o, at(l), "fold %s", life_names[k]);
	err = nvefs_seek(l->w, l->o.files[l->o.names[k]].ino, 0, SEEK_HOLE, &off);
	oracle_end(&l->o, at(l));
	return err == -ENXIO ? 0 : err;
}

/* The whole file anew, no block like another: all its old blocks are free after the next fold. */
static int op_rewrite(struct life *l)
{
	int k = pick(l, true), err;
	uint64_t off;
	uint8_t *buf;

	if (k < 0)
		return 0;
	buf = malloc(l->max_bytes);
	fill(l, buf, l->max_bytes);
	for (off = 0; off < l->max_bytes; off += 4096)
		memcpy(buf + off, &(uint64_t){rnd_next(&l->rnd)}, 8);
	oracle_begin(&l->o, at(l), "rewrite %s", life_names[k]);
	err = h_write(l->w, l->o.files[l->o.names[k]].ino, 0, buf, l->max_bytes, 0);
	if (!err) {
		struct oracle_version *v = oracle_touch(&l->o, l->o.names[k]);

		memcpy(v->bytes, buf, l->max_bytes);
		if (v->size < l->max_bytes)
			v->size = l->max_bytes;
	}
	oracle_end(&l->o, at(l));
	free(buf);
	return err;
}

int life_step(struct life *l)
{
	uint64_t kind = rnd_below(&l->rnd, 20);

	/* Long stretches without a commit in which folds free blocks and writes take them. */
	if (l->tight && kind >= 9 && kind <= 12 && rnd_below(&l->rnd, 8))
		return op_fold(l);
	if (l->tight && kind > 12)
		return op_rewrite(l);
	switch (kind) {
	case 0:
	case 1:
		return op_create(l);
	case 2:
		return op_truncate(l);
	case 3:
		return op_punch(l);
	case 4:
	case 5:
		return op_clone(l);
	case 6:
		return op_unlink(l);
	case 7:
		return op_rename(l);
	case 8:
		return op_link(l);
	case 9:
	case 10:
	case 11:
		return op_fsync(l);
	case 12:
		return op_sync(l);
	default:
		return op_write(l);
	}
}

int life_take_space(struct life *l)
{
	struct nvefs_statfs s;
	uint64_t ino;
	int err = h_create(l->w, "filler", &ino);

	if (!err)
		err = nvefs_statfs(l->w, &s);
	if (!err)
		err = h_fallocate(l->w, ino, 0, 0, (s.avail_blks - LEAVE_BLKS) * 4096);
	return err ? err : h_sync(l->w);
}
