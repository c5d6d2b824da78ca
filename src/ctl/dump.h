/* SPDX-License-Identifier: MIT */
/* Inside dump.nvefs: what its commands share. */
#ifndef NVEFS_CTL_DUMP_H
#define NVEFS_CTL_DUMP_H

#include <json-c/json.h>
#include <nvefs/device.h>
#include <stdbool.h>

#include "format/inode.h"
#include "format/key.h"
#include "format/super.h"
#include "store/store.h"
#include "store/tree.h"

struct nvefs_dump {
	const char *target;
	struct nvefs_dev *dev;
	struct nvefs_queue *q;
	struct nvefs_store *st; /* NULL for commands that look at the device below the store */
	struct nvefs_super sb;	/* of the store, or of the first sound slot */
	bool have_sb;
	bool json;
	uint64_t nprinted;
	struct nvefs_error err; /* what a command says when it fails */
};

/*
 * Print one record, which is consumed. Text: "name value" pairs on a line,
 * nested lists indented below. JSON: an element of the one array printed.
 */
void nvefs_dump_print(struct nvefs_dump *d, struct json_object *record);

/* Building records; return the object itself. */
struct json_object *nvefs_dump_num(struct json_object *o, const char *key, uint64_t v);
struct json_object *nvefs_dump_hex(struct json_object *o, const char *key, uint64_t v);
struct json_object *nvefs_dump_str(struct json_object *o, const char *key, const char *s);
/* Bytes that may not be text: escaped where they are not printable. */
struct json_object *nvefs_dump_bytes(struct json_object *o, const char *key, const void *bytes, size_t len);
struct json_object *nvefs_dump_uuid(struct json_object *o, const char *key, const uint8_t *uuid);
struct json_object *nvefs_dump_time(struct json_object *o, const char *key, const struct timespec *t);

/* The key and value of one tree item. */
struct json_object *nvefs_dump_item(const struct nvefs_dump *d, const struct nvefs_key *key, const void *val,
				    uint32_t len);

/* Commands: 0 or a negative errno with d->err set. `arg` as on the command line, NULL: none. */
int nvefs_dump_super(struct nvefs_dump *d, const char *arg);
int nvefs_dump_mmp(struct nvefs_dump *d, const char *arg);
int nvefs_dump_root(struct nvefs_dump *d, const char *arg);
int nvefs_dump_journal(struct nvefs_dump *d, const char *arg);
int nvefs_dump_block(struct nvefs_dump *d, const char *arg);
int nvefs_dump_groups(struct nvefs_dump *d, const char *arg);
int nvefs_dump_tree(struct nvefs_dump *d, const char *arg);
int nvefs_dump_inode(struct nvefs_dump *d, const char *arg);
int nvefs_dump_map(struct nvefs_dump *d, const char *arg);

#endif
