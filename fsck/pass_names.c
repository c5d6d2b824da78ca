/* SPDX-License-Identifier: MIT */
/* The second walk: names against inodes. Then what has no name, and what hangs in the air. */
#include <dirent.h>
#include <errno.h>

#include "context.h"
#include "format/dirent.h"

enum { MARK_NEW, MARK_ON_WAY, MARK_CONNECTED };

static void report_entry(struct nvefs_check_ctx *c, uint32_t code, uint64_t dir, const struct nvefs_dirent *d,
			 uint64_t found, uint64_t expected)
{
	struct nvefs_problem p = {.code = code,
				  .ino = dir,
				  .found = found,
				  .expected = expected,
				  .name = d->name,
				  .namelen = d->namelen};

	nvefs_check_report(c, &p);
}

static void report(struct nvefs_check_ctx *c, uint32_t code, uint64_t ino, uint64_t found, uint64_t expected)
{
	struct nvefs_problem p = {.code = code, .ino = ino, .found = found, .expected = expected};

	nvefs_check_report(c, &p);
}

static void check_entry(struct nvefs_check_ctx *c, uint64_t dir, const struct nvefs_dirent *d)
{
	struct nvefs_inode_entry *e = nvefs_check_inodes_find(&c->inodes, d->ino);

	if (!e) {
		if (!c->incomplete)
			report_entry(c, NVEFS_P_DIRENT_ABSENT, dir, d, d->ino, 0);
		return;
	}
	if (e->dtype != d->dtype)
		report_entry(c, NVEFS_P_DIRENT_TYPE, dir, d, d->dtype, e->dtype);
	e->names++;
	if (e->dtype != DT_DIR)
		return;
	e->at_home |= e->parent == dir;
	if (!e->dir)
		e->dir = dir;
	if (e->names > 1 || e->ino == NVEFS_ROOT_INO)
		report_entry(c, NVEFS_P_DIR_TWICE, dir, d, d->ino, 0);
	else if (e->parent != dir)
		report_entry(c, NVEFS_P_DIR_PARENT, dir, d, d->ino, e->parent);
}

static int take_item(struct nvefs_check_ctx *c, void *arg, const struct nvefs_key *key, const void *val,
		     uint32_t len, uint64_t pblk)
{
	struct nvefs_dirent d;
	uint32_t pos = 0;

	(void)arg;
	(void)pblk;
	if (!key->ino || key->kind != NVEFS_KIND_DIRENT || nvefs_dirent_check(val, len))
		return 0;
	while (!nvefs_dirent_next(val, len, &pos, &d))
		check_entry(c, key->ino, &d);
	return 0;
}

/* Both lists ascend: one step through them together. */
static void check_links(struct nvefs_check_ctx *c)
{
	uint64_t o = 0;

	for (size_t i = 0; i < c->inodes.n; i++) {
		struct nvefs_inode_entry *e = &c->inodes.tab[i];
		bool unlinked = false;
		uint64_t links;

		while (o < c->norphans && c->orphans[o].ino < e->ino)
			report(c, NVEFS_P_ORPHAN_ABSENT, c->orphans[o++].ino, 0, 0);
		if (o < c->norphans && c->orphans[o].ino == e->ino)
			unlinked = c->orphans[o++].reason & NVEFS_ORPHAN_UNLINKED;
		if (unlinked && (e->names || e->nlink))
			report(c, NVEFS_P_ORPHAN_NAMED, e->ino, e->nlink, 0);
		if (unlinked || e->ino == NVEFS_ROOT_INO)
			continue;
		if (!e->names) {
			report(c, NVEFS_P_INODE_LOST, e->ino, 0, 0);
			continue;
		}
		/* A directory's links were compared with its subdirectories by its item's check. */
		links = e->names;
		if (e->dtype != DT_DIR && e->nlink != links)
			report(c, NVEFS_P_NLINK, e->ino, e->nlink, links);
	}
	while (o < c->norphans)
		report(c, NVEFS_P_ORPHAN_ABSENT, c->orphans[o++].ino, 0, 0);
}

/* Follow the parents up to what is known to be connected; each directory is on one way only. */
static bool connected(struct nvefs_check_ctx *c, struct nvefs_inode_entry *e)
{
	struct nvefs_inode_entry *at = e;
	bool good;

	while (at && at->mark == MARK_NEW && at->ino != NVEFS_ROOT_INO) {
		at->mark = MARK_ON_WAY;
		at = at->names ? nvefs_check_inodes_find(&c->inodes, at->parent) : NULL;
	}
	/* Without a name: that was reported as such, and is no loop. */
	good = !at || at->mark != MARK_ON_WAY;
	for (at = e; at && at->mark == MARK_ON_WAY && good; at = nvefs_check_inodes_find(&c->inodes, at->parent))
		at->mark = MARK_CONNECTED;
	return good;
}

static void check_loops(struct nvefs_check_ctx *c)
{
	for (size_t i = 0; i < c->inodes.n; i++) {
		struct nvefs_inode_entry *e = &c->inodes.tab[i];

		if (e->dtype == DT_DIR && e->mark == MARK_NEW && !connected(c, e))
			report(c, NVEFS_P_DIR_LOOP, e->ino, 0, 0);
	}
}

/* From here on a directory is where it was found. */
static void settle_parents(struct nvefs_check_ctx *c)
{
	for (size_t i = 0; i < c->inodes.n; i++) {
		struct nvefs_inode_entry *e = &c->inodes.tab[i];

		if (e->dir && !e->at_home)
			e->parent = e->dir;
	}
}

int nvefs_pass_names(struct nvefs_check_ctx *c)
{
	struct nvefs_check_walk w = {.item = take_item};
	struct nvefs_inode_entry *root = nvefs_check_inodes_find(&c->inodes, NVEFS_ROOT_INO);
	int err = nvefs_check_walk(c, &w);

	if (err)
		return err;
	if (c->tree_broken && !root)
		; /* it may be in what was not seen */
	else if (!root || root->dtype != DT_DIR)
		report(c, NVEFS_P_ROOT_INODE, NVEFS_ROOT_INO, 0, 0);
	else if (root->parent != NVEFS_ROOT_INO)
		report(c, NVEFS_P_DIR_PARENT, NVEFS_ROOT_INO, NVEFS_ROOT_INO, root->parent);
	settle_parents(c);
	if (c->incomplete)
		return 0;
	check_links(c);
	check_loops(c);
	return 0;
}
