/* SPDX-License-Identifier: MIT */
/*
 * The first walk: every node, every item. Items come in key order, so that all
 * of one inode are seen together: what can be told of an inode by itself is
 * checked here, blocks are counted, and the table of inodes is made.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "context.h"
#include "format/dirent.h"
#include "format/inode.h"
#include "format/xattr.h"
#include "mend_value.h"

struct value {
	uint32_t no, len, got;
};

struct one_inode {
	uint64_t ino;
	bool known, orphan;
	struct nvefs_inode_rec rec;
	uint64_t blks, link_bytes, entries, subdirs;
	struct value *values;
	uint32_t nvalues, max_values;
	bool values_sorted;
	uint8_t misfit; /* kinds reported already: MAP 1, DIRENT 2, SYMLINK 4, absent 8 */
};

static void report(struct nvefs_check_ctx *c, uint32_t code, uint64_t ino, uint64_t found, uint64_t expected)
{
	struct nvefs_problem p = {.code = code, .ino = ino, .found = found, .expected = expected};

	nvefs_check_report(c, &p);
}

uint32_t nvefs_check_orphan_reason(const struct nvefs_check_ctx *c, uint64_t ino)
{
	uint64_t low = 0, high = c->norphans;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;

		if (c->orphans[mid].ino < ino)
			low = mid + 1;
		else
			high = mid;
	}
	return low < c->norphans && c->orphans[low].ino == ino ? c->orphans[low].reason : 0;
}

/* ---- The file system's own items ---- */

static int take_group(struct nvefs_check_ctx *c, const struct nvefs_key *key, const void *val, uint32_t len)
{
	struct nvefs_check_group *g;

	if (key->offset >= c->sb.ngroups) {
		struct nvefs_problem p = {.code = NVEFS_P_GROUP_EXTRA,
					  .kind = NVEFS_KIND_GROUP,
					  .lblk = key->offset,
					  .found = key->offset,
					  .expected = c->sb.ngroups};

		nvefs_check_report(c, &p);
		return 0;
	}
	g = &c->groups[key->offset];
	g->known = !nvefs_group_decode(val, len, &g->rec);
	return 0;
}

static int take_orphan(struct nvefs_check_ctx *c, const struct nvefs_key *key, const void *val, uint32_t len)
{
	struct nvefs_check_orphan o = {.ino = key->offset};

	if (nvefs_orphan_decode(val, len, &o.reason))
		return 0;
	if (c->norphans == c->max_orphans) {
		uint64_t max = c->max_orphans ? c->max_orphans * 2 : 16;
		struct nvefs_check_orphan *tab = reallocarray(c->orphans, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		c->orphans = tab;
		c->max_orphans = max;
	}
	c->orphans[c->norphans++] = o;
	return 0;
}

static int take_share(struct nvefs_check_ctx *c, const struct nvefs_key *key, const void *val, uint32_t len)
{
	uint32_t count = 0;

	if (nvefs_share_decode(val, len, &count))
		return 0;
	c->share_items++;
	c->share_refs += count - 1;
	return nvefs_usage_add_share(&c->usage, key->offset, count);
}

/* ---- An inode's items ---- */

static int take_inode(struct nvefs_check_ctx *c, struct one_inode *in, const void *val, uint32_t len)
{
	struct nvefs_inode_entry e = {.ino = in->ino};

	if (nvefs_inode_decode(val, len, &in->rec))
		return 0;
	in->known = true;
	in->orphan = nvefs_check_orphan_reason(c, in->ino) != 0;
	c->inode_items++;
	if (in->ino > c->max_ino)
		c->max_ino = in->ino;
	if (in->ino >= c->root.next_ino)
		report(c, NVEFS_P_INODE_NUMBER, in->ino, in->ino, c->root.next_ino);
	e.parent = in->rec.parent;
	e.nlink = in->rec.nlink;
	e.dtype = IFTODT(in->rec.mode);
	if (S_ISDIR(in->rec.mode))
		c->res->dirs++;
	else if (S_ISREG(in->rec.mode))
		c->res->files++;
	else
		c->res->others++;
	return nvefs_check_inodes_add(&c->inodes, &e);
}

static int take_map(struct nvefs_check_ctx *c, struct one_inode *in, const struct nvefs_key *key,
		    const void *val, uint32_t len)
{
	struct nvefs_window w;

	if (!nvefs_map_salvage(val, len, &c->sb, &w))
		return 0;
	for (uint32_t i = 0; i < NVEFS_WINDOW_BLKS; i++) {
		uint64_t pblk = nvefs_went_pblk(w.pblk[i]);
		int err;

		if (!w.pblk[i])
			continue;
		in->blks++;
		c->mapped_blks++;
		err = nvefs_usage_add_data(&c->usage, pblk);
		if (err == -EEXIST) {
			struct nvefs_problem p = {.code = NVEFS_P_MAP_META,
						  .ino = in->ino,
						  .pblk = pblk,
						  .lblk = key->offset * NVEFS_WINDOW_BLKS + i};

			nvefs_check_report(c, &p);
		} else if (err) {
			return err;
		}
	}
	return 0;
}

static int take_dirent(struct nvefs_check_ctx *c, struct one_inode *in, const struct nvefs_key *key,
		       const void *val, uint32_t len)
{
	struct nvefs_dirent d;
	uint32_t pos = 0;

	while (!nvefs_dirent_next(val, len, &pos, &d)) {
		in->entries++;
		in->subdirs += d.dtype == DT_DIR;
		if (nvefs_name_hash(c->sb.hash_seed, d.name, d.namelen) != key->offset) {
			struct nvefs_problem p = {.code = NVEFS_P_DIRENT_HASH,
						  .ino = in->ino,
						  .name = d.name,
						  .namelen = d.namelen};

			nvefs_check_report(c, &p);
		}
	}
	return 0;
}

static int add_value(struct one_inode *in, const struct nvefs_xattr *x)
{
	if (in->nvalues == in->max_values) {
		uint32_t max = in->max_values ? in->max_values * 2 : 8;
		struct value *tab = reallocarray(in->values, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		in->values = tab;
		in->max_values = max;
	}
	in->values[in->nvalues++] = (struct value){.no = x->value_no, .len = x->value_len};
	in->values_sorted = false;
	return 0;
}

static int take_xattr(struct nvefs_check_ctx *c, struct one_inode *in, const struct nvefs_key *key,
		      const void *val, uint32_t len)
{
	struct nvefs_xattr x;
	uint32_t pos = 0;

	while (!nvefs_xattr_next(val, len, &pos, &x)) {
		if (nvefs_name_hash(c->sb.hash_seed, x.name, x.namelen) != key->offset) {
			struct nvefs_problem p = {.code = NVEFS_P_XATTR_HASH,
						  .ino = in->ino,
						  .name = x.name,
						  .namelen = x.namelen};

			nvefs_check_report(c, &p);
		}
		if (in->known && x.value_no >= in->rec.xvalue_next && x.value_no)
			report(c, NVEFS_P_XVALUE_NEXT, in->ino, in->rec.xvalue_next, 0);
		if (x.value_no && add_value(in, &x))
			return -ENOMEM;
	}
	return 0;
}

static int compare_values(const void *a, const void *b)
{
	const struct value *x = a, *y = b;

	return x->no < y->no ? -1 : x->no > y->no;
}

static int take_xvalue(struct nvefs_check_ctx *c, struct one_inode *in, const struct nvefs_key *key, uint32_t len)
{
	struct value want = {.no = (uint32_t)(key->offset >> 8)}, *v;

	if (!in->values_sorted && in->nvalues)
		qsort(in->values, in->nvalues, sizeof(want), compare_values);
	in->values_sorted = true;
	v = in->nvalues ? bsearch(&want, in->values, in->nvalues, sizeof(want), compare_values) : NULL;
	if (!v) {
		if (!in->orphan && !(key->offset & 0xff))
			report(c, NVEFS_P_XVALUE_UNUSED, in->ino, want.no, 0);
		return 0;
	}
	/* Pieces come in order, all full but the last: a gap shows in the sum. */
	if ((key->offset & 0xff) * NVEFS_PIECE_BYTES == v->got)
		v->got += len;
	return 0;
}

static void misfit(struct nvefs_check_ctx *c, struct one_inode *in, uint8_t bit, bool fits, uint8_t kind)
{
	struct nvefs_problem p = {.ino = in->ino, .why = nvefs_kind_text(kind)};

	if (!in->known) {
		/* It may be made anew: names that lead to it are no proof of anything. */
		c->incomplete = true;
		p.code = NVEFS_P_INODE_ABSENT;
		bit = 8;
	} else if (!fits) {
		p.code = NVEFS_P_INODE_MISFIT;
	}
	if (!p.code || in->misfit & bit)
		return;
	in->misfit |= bit;
	nvefs_check_report(c, &p);
}

static int take_inode_item(struct nvefs_check_ctx *c, struct one_inode *in, const struct nvefs_key *key,
			   const void *val, uint32_t len)
{
	switch (key->kind) {
	case NVEFS_KIND_INODE:
		return take_inode(c, in, val, len);
	case NVEFS_KIND_SYMLINK:
		misfit(c, in, 4, S_ISLNK(in->rec.mode), key->kind);
		if (key->offset * NVEFS_PIECE_BYTES == in->link_bytes)
			in->link_bytes += len;
		return 0;
	case NVEFS_KIND_XATTR:
		misfit(c, in, 16, true, key->kind);
		return take_xattr(c, in, key, val, len);
	case NVEFS_KIND_XVALUE:
		misfit(c, in, 16, true, key->kind);
		return take_xvalue(c, in, key, len);
	case NVEFS_KIND_DIRENT:
		misfit(c, in, 2, S_ISDIR(in->rec.mode), key->kind);
		return take_dirent(c, in, key, val, len);
	case NVEFS_KIND_MAP:
		misfit(c, in, 1, S_ISREG(in->rec.mode), key->kind);
		return take_map(c, in, key, val, len);
	}
	return 0;
}

static void finish_values(struct nvefs_check_ctx *c, const struct one_inode *in)
{
	for (uint32_t i = 0; i < in->nvalues; i++) {
		struct nvefs_problem p = {.code = NVEFS_P_XVALUE_SHORT,
					  .ino = in->ino,
					  .lblk = in->values[i].no,
					  .found = in->values[i].got,
					  .expected = in->values[i].len};

		if (p.found != p.expected)
			nvefs_check_report(c, &p);
	}
}

/*
 * All items of this inode were seen. An orphan may be half removed. Where nodes
 * are missing, sums prove nothing.
 */
static void finish_inode(struct nvefs_check_ctx *c, struct one_inode *in)
{
	if (in->known && !c->incomplete) {
		if (in->rec.blks != in->blks)
			report(c, NVEFS_P_INODE_BLKS, in->ino, in->rec.blks, in->blks);
		if (S_ISDIR(in->rec.mode) && in->rec.size != in->entries)
			report(c, NVEFS_P_DIR_SIZE, in->ino, in->rec.size, in->entries);
		if (S_ISDIR(in->rec.mode) && in->rec.subdirs != in->subdirs)
			report(c, NVEFS_P_DIR_SUBDIRS, in->ino, in->rec.subdirs, in->subdirs);
		if (S_ISDIR(in->rec.mode) && !in->orphan && in->rec.nlink != 2 + in->subdirs)
			report(c, NVEFS_P_NLINK, in->ino, in->rec.nlink, 2 + in->subdirs);
		if (S_ISLNK(in->rec.mode) && in->rec.size != in->link_bytes && !in->orphan)
			report(c, NVEFS_P_SYMLINK, in->ino, in->link_bytes, in->rec.size);
		if (!in->orphan)
			finish_values(c, in);
	}
	in->known = in->orphan = false;
	in->rec = (struct nvefs_inode_rec){0};
	in->blks = in->link_bytes = in->entries = in->subdirs = 0;
	in->nvalues = 0;
	in->misfit = 0;
}

/* ---- The walk ---- */

static bool known_kind(const struct nvefs_key *key)
{
	return key->ino ? key->kind >= NVEFS_KIND_INODE && key->kind <= NVEFS_KIND_MAP :
			  key->kind >= NVEFS_KIND_GROUP && key->kind <= NVEFS_KIND_SHARE;
}

static bool sound(struct nvefs_check_ctx *c, const struct nvefs_key *key, const void *val, uint32_t len,
		  uint64_t pblk)
{
	struct nvefs_problem p = {.code = NVEFS_P_ITEM_VALUE,
				  .ino = key->ino,
				  .pblk = pblk,
				  .lblk = key->offset,
				  .kind = key->kind,
				  .found = key->offset,
				  .why = nvefs_kind_text(key->kind)};

	if (!nvefs_item_check(key, val, len, &c->sb))
		return true;
	if (key->kind == NVEFS_KIND_GROUP && !key->ino && key->offset >= c->sb.ngroups)
		return true; /* has a code of its own */
	if (!known_kind(key)) {
		p.code = NVEFS_P_ITEM_KIND;
		p.found = key->kind;
	}
	c->incomplete = true;
	nvefs_check_report(c, &p);
	return false;
}

static int take_item(struct nvefs_check_ctx *c, void *arg, const struct nvefs_key *key, const void *val,
		     uint32_t len, uint64_t pblk)
{
	struct one_inode *in = arg;

	if (in->ino != key->ino) {
		finish_inode(c, in);
		in->ino = key->ino;
	}
	if (!sound(c, key, val, len, pblk)) {
		if (key->kind == NVEFS_KIND_INODE)
			in->misfit = 8; /* it is there, in a way: do not say that it is absent */
		/* The blocks that can be told from a damaged map are not free. */
		return key->ino && key->kind == NVEFS_KIND_MAP ? take_map(c, in, key, val, len) : 0;
	}
	if (key->ino)
		return take_inode_item(c, in, key, val, len);
	switch (key->kind) {
	case NVEFS_KIND_GROUP:
		return take_group(c, key, val, len);
	case NVEFS_KIND_ORPHAN:
		return take_orphan(c, key, val, len);
	}
	return take_share(c, key, val, len);
}

int nvefs_pass_tree(struct nvefs_check_ctx *c)
{
	struct one_inode in = {0};
	struct nvefs_check_walk w = {.item = take_item, .arg = &in, .report = true};
	int err = nvefs_usage_init(&c->usage, &c->sb);

	if (err)
		return err;
	c->groups = calloc(c->sb.ngroups, sizeof(*c->groups));
	if (!c->groups)
		return -ENOMEM;
	err = nvefs_check_walk(c, &w);
	if (!err)
		finish_inode(c, &in);
	free(in.values);
	c->res->meta_blks = c->tree_nodes * (nvefs_super_dup(&c->sb) ? 2 : 1);
	c->res->orphans = c->norphans;
	return err;
}
