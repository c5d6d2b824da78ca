/* SPDX-License-Identifier: MIT */
#include "oracle.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void oracle_init(struct oracle *o, const struct oracle_path *paths, uint64_t max_bytes)
{
	uint32_t i;

	memset(o, 0, sizeof(*o));
	o->paths = paths;
	o->max_bytes = max_bytes;
	for (i = 0; i < ORACLE_NAMES; i++)
		o->names[i] = -1;
	/* Operation 0: the empty file system, durable. */
	oracle_begin(o, 0, "mkfs")->durable_names = 0;
	o->ops[0].durable_file = -2;
	oracle_end(o, 0);
}

void oracle_done(struct oracle *o)
{
	uint32_t i, k;

	for (i = 0; i < o->nfiles; i++) {
		for (k = 0; k < o->files[i].nv; k++)
			free(o->files[i].v[k].bytes);
		free(o->files[i].v);
	}
}

struct oracle_op *oracle_begin(struct oracle *o, uint32_t position, const char *fmt, ...)
{
	struct oracle_op *op = &o->ops[o->nops];
	va_list ap;

	assert(o->nops < ORACLE_OPS);
	memset(op, 0, sizeof(*op));
	op->begun = position;
	op->ended = UINT32_MAX;
	op->durable_file = -1;
	op->durable_names = -1;
	va_start(ap, fmt);
	vsnprintf(op->what, sizeof(op->what), fmt, ap);
	va_end(ap);
	return op;
}

void oracle_end(struct oracle *o, uint32_t position)
{
	struct oracle_op *op = &o->ops[o->nops++];
	uint32_t i;

	op->ended = position;
	memcpy(op->names, o->names, sizeof(op->names));
	for (i = 0; i < ORACLE_NAMES; i++)
		op->xattrs[i] = o->names[i] < 0 ? 0 : o->files[o->names[i]].xattr;
}

int oracle_new_file(struct oracle *o, uint64_t ino, bool dir)
{
	struct oracle_file *f = &o->files[o->nfiles];

	assert(o->nfiles < ORACLE_FILES);
	f->ino = ino;
	f->dir = dir;
	f->last_op = o->nops;
	if (!dir)
		oracle_touch(o, (int)o->nfiles);
	return (int)o->nfiles++;
}

struct oracle_version *oracle_newest(struct oracle *o, int file)
{
	struct oracle_file *f = &o->files[file];

	return &f->v[f->nv - 1];
}

struct oracle_version *oracle_touch(struct oracle *o, int file)
{
	struct oracle_file *f = &o->files[file];
	struct oracle_version *v;

	f->v = realloc(f->v, (f->nv + 1) * sizeof(*v));
	assert(f->v);
	v = &f->v[f->nv];
	v->op = o->nops;
	v->size = f->nv ? v[-1].size : 0;
	v->bytes = calloc(1, o->max_bytes);
	assert(v->bytes);
	if (f->nv)
		memcpy(v->bytes, v[-1].bytes, o->max_bytes);
	f->nv++;
	f->last_op = o->nops;
	return v;
}

uint32_t oracle_last_begun(const struct oracle *o, uint32_t cut)
{
	uint32_t i = o->nops - 1;

	while (i && o->ops[i].begun > cut)
		i--;
	return i;
}

uint32_t oracle_durable(const struct oracle *o, uint32_t cut, int file)
{
	uint32_t i, last = 0;

	for (i = 0; i < o->nops; i++) {
		const struct oracle_op *op = &o->ops[i];

		if (op->ended > cut)
			break;
		if (file < 0 && op->durable_names > (int)last)
			last = (uint32_t)op->durable_names;
		if (file >= 0 && (op->durable_file == file || op->durable_file == -2))
			last = i;
	}
	return last;
}

uint32_t oracle_acks(const struct oracle *o, uint32_t cut)
{
	uint32_t i, n = 0;

	for (i = 0; i < o->nops && o->ops[i].ended <= cut; i++)
		n += o->ops[i].durable_names >= 0 || o->ops[i].durable_file != -1;
	return n;
}

bool oracle_names_ok(const struct oracle *o, uint32_t cut, const int *names, const uint16_t *xattrs)
{
	uint32_t i, last = oracle_last_begun(o, cut);

	for (i = oracle_durable(o, cut, -1); i <= last; i++)
		if (!memcmp(o->ops[i].names, names, sizeof(o->ops[i].names)) &&
		    !memcmp(o->ops[i].xattrs, xattrs, sizeof(o->ops[i].xattrs)))
			return true;
	return false;
}

void oracle_named(struct oracle *o, int file)
{
	if (file >= 0)
		o->files[file].last_op = o->nops;
}

int oracle_find(const struct oracle *o, uint64_t ino)
{
	uint32_t i;

	for (i = 0; i < o->nfiles; i++)
		if (o->files[i].ino == ino)
			return (int)i;
	return -1;
}

/* Versions that a cut may show: the one that was current at the durable op, and all begun since. */
static void allowed(const struct oracle *o, uint32_t cut, int file, uint32_t *ret_first, uint32_t *ret_end)
{
	const struct oracle_file *f = &o->files[file];
	uint32_t durable = oracle_durable(o, cut, file), last = oracle_last_begun(o, cut), i;

	*ret_first = 0;
	for (i = 0; i < f->nv && f->v[i].op <= last; i++)
		if (f->v[i].op <= durable)
			*ret_first = i;
	*ret_end = i;
}

/*
 * The block may be of a version that is longer than the size seen, but not of a
 * shorter one: a file never becomes longer than the data that belongs to it.
 */
static bool block_ok(const struct oracle_version *v, uint64_t off, uint64_t len, const uint8_t *bytes)
{
	return v->size >= off + len && !memcmp(v->bytes + off, bytes + off, len);
}

bool oracle_file_ok(const struct oracle *o, uint32_t cut, int file, uint64_t size, const uint8_t *bytes,
		    char *why, size_t len)
{
	const struct oracle_file *f = &o->files[file];
	uint64_t off, low = UINT64_MAX, high = 0;
	uint32_t first, end, i;

	allowed(o, cut, file, &first, &end);
	for (i = first; i < end; i++) {
		low = f->v[i].size < low ? f->v[i].size : low;
		high = f->v[i].size > high ? f->v[i].size : high;
	}
	if (size < low || size > high) {
		snprintf(why, len, "size %llu is not within %llu..%llu (versions %u..%u)", (unsigned long long)size,
			 (unsigned long long)low, (unsigned long long)high, first, end);
		return false;
	}
	for (off = 0; off < size; off += 4096) {
		uint64_t n = size - off < 4096 ? size - off : 4096;

		for (i = first; i < end && !block_ok(&f->v[i], off, n, bytes); i++)
			;
		if (i == end) {
			snprintf(why, len, "block %llu (of %llu bytes) is of none of the versions %u..%u: starts %02x %02x",
				 (unsigned long long)off / 4096, (unsigned long long)size, first, end, bytes[off],
				 bytes[off + 1]);
			return false;
		}
	}
	return true;
}
