/* SPDX-License-Identifier: MIT */
/*
 * Last: a path for each inode that a problem has named. One more walk finds an
 * entry of each; from there up, each directory's name is looked for in its parent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "format/dirent.h"

#define MAX_PATH 4096u
#define MAX_DEPTH 2048u

struct entry {
	uint64_t ino, dir; /* dir 0: no entry was found */
	uint32_t len;
	char name[NVEFS_NAME_MAX];
};

struct entries {
	struct entry *tab;
	uint32_t n;
};

static int compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int take_item(struct nvefs_check_ctx *c, void *arg, const struct nvefs_key *key, const void *val,
		     uint32_t len, uint64_t pblk)
{
	struct entries *es = arg;
	struct nvefs_dirent d;
	uint32_t pos = 0;

	(void)c;
	(void)pblk;
	if (!key->ino || key->kind != NVEFS_KIND_DIRENT)
		return 0;
	while (!nvefs_dirent_next(val, len, &pos, &d)) {
		struct entry want = {.ino = d.ino};
		struct entry *e = bsearch(&want, es->tab, es->n, sizeof(want), compare);

		if (!e || e->dir)
			continue;
		e->dir = key->ino;
		e->len = d.namelen;
		memcpy(e->name, d.name, d.namelen);
	}
	return 0;
}

/* The name that `ino` has in `dir`. 0, -ENOENT, ... */
static int name_in(struct nvefs_check_ctx *c, uint64_t dir, uint64_t ino, char *ret_name, uint32_t *ret_len)
{
	struct nvefs_key key = nvefs_key_make(dir, NVEFS_KIND_DIRENT, 0), got;
	struct nvefs_miss miss;
	int err;

	for (;;) {
		const void *val;
		uint32_t len, pos = 0;
		struct nvefs_dirent d;
		bool found = false;

		do {
			nvefs_store_rdlock(c->st);
			err = nvefs_tree_next(c->st, &key, &miss, &got, &val, &len);
			while (!err && got.kind == NVEFS_KIND_DIRENT && !found && !nvefs_dirent_next(val, len, &pos, &d))
				found = d.ino == ino;
			if (found) {
				*ret_len = d.namelen;
				memcpy(ret_name, d.name, d.namelen);
			}
			nvefs_store_rdunlock(c->st);
		} while (err && nvefs_store_retry(c->st, c->q, &miss, &err));
		if (err || found)
			return err;
		if (got.ino != dir || got.kind != NVEFS_KIND_DIRENT)
			return -ENOENT;
		key = nvefs_key_after(&got);
	}
}

/* Put "/name" in front of what begins at *at. */
static bool prepend(char *path, uint32_t *at, const char *name, uint32_t len)
{
	if (*at < len + 1)
		return false;
	*at -= len + 1;
	path[*at] = '/';
	memcpy(path + *at + 1, name, len);
	return true;
}

static void tell(struct nvefs_check_ctx *c, const struct entry *e)
{
	char path[MAX_PATH + 1] = {0}, name[NVEFS_NAME_MAX];
	uint32_t at = MAX_PATH, len, depth = 0;
	uint64_t dir = e->dir;

	prepend(path, &at, e->name, e->len);
	while (dir != NVEFS_ROOT_INO) {
		const struct nvefs_inode_entry *d = nvefs_check_inodes_find(&c->inodes, dir);

		if (!d || ++depth > MAX_DEPTH || name_in(c, d->parent, dir, name, &len) ||
		    !prepend(path, &at, name, len)) {
			prepend(path, &at, "...", 3);
			break;
		}
		dir = d->parent;
	}
	c->opts->name(c->opts->arg, e->ino, path + at);
}

int nvefs_pass_paths(struct nvefs_check_ctx *c)
{
	struct entries es = {0};
	struct nvefs_check_walk w = {.item = take_item, .arg = &es};
	int err;

	if (!c->nbad_inos || c->past->named)
		return 0;
	c->past->named = true;
	es.tab = calloc(c->nbad_inos, sizeof(*es.tab));
	if (!es.tab)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->nbad_inos; i++)
		es.tab[i].ino = c->bad_inos[i];
	qsort(es.tab, c->nbad_inos, sizeof(*es.tab), compare);
	for (uint32_t i = 0; i < c->nbad_inos; i++)
		if (!es.n || es.tab[es.n - 1].ino != es.tab[i].ino)
			es.tab[es.n++] = es.tab[i];
	err = nvefs_check_walk(c, &w);
	for (uint32_t i = 0; i < es.n && !err; i++)
		if (es.tab[i].dir)
			tell(c, &es.tab[i]);
	free(es.tab);
	return err;
}
