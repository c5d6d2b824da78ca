/* SPDX-License-Identifier: MIT */
/*
 * What a file system may look like after a power cut: a model of a few files
 * and directories, kept in versions, one per operation.
 *
 * Names: a fixed set of paths, each of which leads to a file, to a directory or
 * nowhere. The whole name space, extended attributes included, is as after some one
 * operation between the last one that was acknowledged as durable and the last
 * one that had begun.
 * Data: each block of a file, and its size, is of some version between the
 * file's last durable one and the last one begun; a block's version reaches as far as the size.
 */
#ifndef NVEFS_TESTS_ORACLE_H
#define NVEFS_TESTS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORACLE_NAMES 8u
#define ORACLE_FILES 160u
#define ORACLE_OPS 400u
#define ORACLE_MAX_BYTES (96u * 4096u)

/* A directory stands before the paths in it. */
struct oracle_path {
	int dir; /* the path of its directory; -1: the root */
	const char *name;
};

struct oracle_version {
	uint32_t op;
	uint64_t size;
	uint8_t *bytes; /* max_bytes of the oracle, zeros beyond size */
};

struct oracle_file {
	uint64_t ino;
	bool dir;
	uint16_t xattr; /* the value that its attribute has; 0: none */
	struct oracle_version *v;
	uint32_t nv;
	uint32_t last_op; /* that changed it or a name of it: an fsync makes all up to there durable */
};

struct oracle_op {
	uint32_t begun, ended; /* positions in the record */
	int durable_names;     /* operations up to this one are durable for names by it; -1: none */
	int durable_file;      /* file made durable by it; -1 none, -2 all */
	int names[ORACLE_NAMES]; /* after the op: file, or -1 */
	uint16_t xattrs[ORACLE_NAMES]; /* of these files */
	char what[96];
};

struct oracle {
	const struct oracle_path *paths; /* ORACLE_NAMES */
	uint64_t max_bytes;		 /* of a file */
	struct oracle_file files[ORACLE_FILES];
	uint32_t nfiles;
	struct oracle_op ops[ORACLE_OPS];
	uint32_t nops;
	int names[ORACLE_NAMES];
};

/* `paths` (ORACLE_NAMES) outlive the oracle. No file is longer than max_bytes. */
void oracle_init(struct oracle *o, const struct oracle_path *paths, uint64_t max_bytes);
void oracle_done(struct oracle *o);
/* One operation: begin, change the model, end. */
struct oracle_op *oracle_begin(struct oracle *o, uint32_t position, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void oracle_end(struct oracle *o, uint32_t position);
int oracle_new_file(struct oracle *o, uint64_t ino, bool dir);
/* A new version of the file, a copy of the newest, for the present op to change. */
struct oracle_version *oracle_touch(struct oracle *o, int file);
struct oracle_version *oracle_newest(struct oracle *o, int file);

/* The last operation begun by a cut, and the last durable one for names and for a file. */
uint32_t oracle_last_begun(const struct oracle *o, uint32_t cut);
uint32_t oracle_durable(const struct oracle *o, uint32_t cut, int file); /* file -1: names */
/* How many operations that make something durable had ended by a cut. */
uint32_t oracle_acks(const struct oracle *o, uint32_t cut);
/* Are these names (file numbers, -1: absent) and attributes right for a cut at that position? */
bool oracle_names_ok(const struct oracle *o, uint32_t cut, const int *names, const uint16_t *xattrs);
/* Size and bytes of a file. False: *why says which byte or size. */
bool oracle_file_ok(const struct oracle *o, uint32_t cut, int file, uint64_t size, const uint8_t *bytes,
		    char *why, size_t len);
/* The present operation changes a name of this file. */
void oracle_named(struct oracle *o, int file);
int oracle_find(const struct oracle *o, uint64_t ino);

#endif
