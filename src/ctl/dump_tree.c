/* SPDX-License-Identifier: MIT */
/* dump.nvefs: what is found by way of the tree. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/dump.h"
#include "format/dirent.h"
#include "format/item.h"
#include "store/ahead.h"

static int tree_error(struct nvefs_dump *d, int err)
{
	return nvefs_error_set(&d->err, err, "%s: the tree cannot be read: %s: see fsck.nvefs -n", d->target,
			       strerror(-err));
}

/*
 * Print the items from `key` on while `within` says yes. 0 or -errno; *ret_n (may be NULL) counts them.
 */
static int print_range(struct nvefs_dump *d, struct nvefs_key key,
		       bool (*within)(const struct nvefs_key *key, const struct nvefs_key *first), uint64_t *ret_n)
{
	const struct nvefs_key first = key;
	struct nvefs_miss miss;
	uint64_t n = 0;
	int err;

	for (;;) {
		struct json_object *o = NULL;
		struct nvefs_key got, after;
		const void *val;
		uint32_t len;

		do {
			nvefs_store_rdlock(d->st);
			err = nvefs_tree_next(d->st, &key, &miss, &got, &val, &len);
			if (!err && within(&got, &first))
				o = nvefs_dump_item(d, &got, val, len);
			nvefs_store_rdunlock(d->st);
		} while (err && nvefs_store_retry(d->st, d->q, &miss, &err));
		if (err || !o)
			break;
		nvefs_dump_print(d, o);
		n++;
		after = nvefs_key_after(&got);
		if (!nvefs_key_cmp(&after, &got))
			break;
		key = after;
	}
	if (ret_n)
		*ret_n = n;
	return err && err != -ENOENT ? tree_error(d, err) : 0;
}

static bool same_kind(const struct nvefs_key *key, const struct nvefs_key *first)
{
	return key->ino == first->ino && key->kind == first->kind;
}

static bool same_inode(const struct nvefs_key *key, const struct nvefs_key *first)
{
	return key->ino == first->ino;
}

int nvefs_dump_groups(struct nvefs_dump *d, const char *arg)
{
	(void)arg;
	return print_range(d, nvefs_group_key(0), same_kind, NULL);
}

/* ---- tree ---- */

static struct json_object *child_record(const struct nvefs_disk_child *c)
{
	struct nvefs_key key = nvefs_key_decode(&c->key);
	struct json_object *o = json_object_new_object();

	nvefs_dump_num(o, "ino", key.ino);
	nvefs_dump_hex(o, "kind", key.kind);
	nvefs_dump_num(o, "offset", key.offset);
	nvefs_dump_num(o, "pblk", le64_get(c->pblk));
	nvefs_dump_num(o, "twin", le64_get(c->twin));
	nvefs_dump_num(o, "txn", le64_get(c->txn));
	return o;
}

static void add_items(const struct nvefs_dump *d, struct json_object *o, const struct nvefs_disk_node *node)
{
	const struct nvefs_disk_slot *slots = (const void *)node->body;
	const struct nvefs_disk_child *children = (const void *)node->body;
	struct json_object *list = json_object_new_array();
	size_t one = le16_get(node->level) ? sizeof(*children) : sizeof(*slots);

	for (uint32_t i = 0; i < le16_get(node->nitems) && (i + 1) * one <= sizeof(node->body); i++) {
		uint32_t off = le16_get(slots[i].value_off), len = le16_get(slots[i].value_len);
		struct nvefs_key key;

		if (le16_get(node->level)) {
			json_object_array_add(list, child_record(&children[i]));
			continue;
		}
		key = nvefs_key_decode(&slots[i].key);
		if (off % 8 || off + len > NVEFS_BLOCK_SIZE)
			len = 0;
		json_object_array_add(list, nvefs_dump_item(d, &key, (const char *)node + off % NVEFS_BLOCK_SIZE, len));
	}
	json_object_object_add(o, le16_get(node->level) ? "children" : "items", list);
}

static int print_node(void *arg, const struct nvefs_tree_visit *v)
{
	struct nvefs_dump *d = arg;
	struct json_object *o = json_object_new_object();

	nvefs_dump_num(o, "node", v->pblk);
	nvefs_dump_num(o, "twin", v->twin);
	nvefs_dump_num(o, "level", v->level);
	nvefs_dump_num(o, "txn", v->txn);
	if (v->err || !v->node) {
		nvefs_dump_str(o, "damaged", strerror(-v->err));
	} else {
		nvefs_dump_num(o, "nitems", le16_get(v->node->nitems));
		nvefs_dump_num(o, "heap_used", le16_get(v->node->heap_used));
		add_items(d, o, v->node);
	}
	nvefs_dump_print(d, o);
	return 0;
}

int nvefs_dump_tree(struct nvefs_dump *d, const char *arg)
{
	struct nvefs_ahead ahead = {0};
	int err = nvefs_ahead_init(&ahead, d->q, d->sb.nblks);

	(void)arg;
	if (!err)
		err = nvefs_tree_walk(d->st, d->q, &ahead, print_node, d);
	nvefs_ahead_done(&ahead);
	return err ? tree_error(d, err) : 0;
}

/* ---- inode, map ---- */

static int find_entry(struct nvefs_dump *d, uint64_t dir, const char *name, uint32_t len, uint64_t *ret_ino)
{
	struct nvefs_key key = nvefs_key_make(dir, NVEFS_KIND_DIRENT, nvefs_name_hash(d->sb.hash_seed, name, len));
	struct nvefs_dirent e;
	struct nvefs_miss miss;
	const void *val;
	uint32_t vlen;
	int err;

	do {
		nvefs_store_rdlock(d->st);
		err = nvefs_tree_get(d->st, &key, &miss, &val, &vlen);
		if (!err)
			err = nvefs_dirent_find(val, vlen, name, len, &e);
		if (!err)
			*ret_ino = e.ino;
		nvefs_store_rdunlock(d->st);
	} while (err && nvefs_store_retry(d->st, d->q, &miss, &err));
	return err;
}

/* A number, or a path from the file system's root. */
static int find_inode(struct nvefs_dump *d, const char *arg, uint64_t *ret_ino)
{
	uint64_t ino = NVEFS_ROOT_INO;
	const char *at = arg;
	char *end;

	if (arg[0] != '/') {
		*ret_ino = strtoull(arg, &end, 0);
		if (end != arg && !*end)
			return 0;
		return nvefs_error_set(&d->err, -EINVAL, "%s: '%s': give an inode number, or a path from /",
				       d->target, arg);
	}
	while (*(at += strspn(at, "/"))) {
		uint32_t len = (uint32_t)strcspn(at, "/");
		int err = find_entry(d, ino, at, len, &ino);

		if (err == -ENOENT)
			return nvefs_error_set(&d->err, err, "%s: %s: no such file or directory", d->target, arg);
		if (err)
			return tree_error(d, err);
		at += len;
	}
	*ret_ino = ino;
	return 0;
}

static int print_inode(struct nvefs_dump *d, const char *arg, uint8_t kind,
		       bool (*within)(const struct nvefs_key *, const struct nvefs_key *))
{
	uint64_t ino = 0, n = 0;
	int err = find_inode(d, arg, &ino);

	if (!err)
		err = print_range(d, nvefs_key_make(ino, kind, 0), within, &n);
	if (!err && !n)
		return nvefs_error_set(&d->err, -ENOENT, "%s: inode %llu has no such items", d->target,
				       (unsigned long long)ino);
	return err;
}

int nvefs_dump_inode(struct nvefs_dump *d, const char *arg)
{
	return print_inode(d, arg, NVEFS_KIND_INODE, same_inode);
}

int nvefs_dump_map(struct nvefs_dump *d, const char *arg)
{
	return print_inode(d, arg, NVEFS_KIND_MAP, same_kind);
}
