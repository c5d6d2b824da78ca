/* SPDX-License-Identifier: MIT */
#include "victim.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "format/journal.h"
#include "format/key.h"
#include "format/map.h"
#include "format/node.h"
#include "store/store.h"
#include "store/tree.h"
#include "../support/calls.h"

#define FILES_AT_FIRST 90u
#define MAX_FILE_BYTES (90u * 4096u)

/* ---- Content ---- */

struct maker {
	struct nvefs_worker *w;
	struct victim_image *img; /* files only, growing */
	struct rnd r;
	uint64_t dirs[4];
};

static uint64_t make_dir(struct maker *m, uint64_t in, const char *name)
{
	const struct nvefs_cred cred = {0};
	struct nvefs_attr a;

	ck_assert_int_eq(nvefs_mkdir(m->w, in, name, strlen(name), 0755, &cred, &a), 0);
	return a.ino;
}

static struct victim_file *new_file(struct maker *m, uint32_t mode)
{
	struct victim_file *f = &m->img->files[m->img->nfiles++];

	ck_assert_uint_le(m->img->nfiles, VICTIM_FILES);
	snprintf(f->name, sizeof(f->name), "file-%u", m->img->nfiles);
	f->mode = mode;
	return f;
}

static void fill(struct rnd *r, uint8_t *p, uint64_t len)
{
	for (uint64_t i = 0; i + 8 <= len; i += 8) {
		uint64_t v = rnd_next(r);

		memcpy(p + i, &v, 8);
	}
}

static void write_some(struct maker *m, struct victim_file *f, uint64_t off, uint64_t len)
{
	if (!f->bytes)
		f->bytes = calloc(1, MAX_FILE_BYTES);
	if (off + len > MAX_FILE_BYTES)
		len = MAX_FILE_BYTES - off;
	fill(&m->r, f->bytes + off, len);
	ck_assert_int_eq(h_write(m->w, f->ino, off, f->bytes + off, len, 0), 0);
	if (off + len > f->size)
		f->size = off + len;
}

/* Now and then a long attribute: its pieces fill leaves, and make the tree high. */
static void add_xattrs(struct maker *m, const struct victim_file *f)
{
	uint8_t val[20000];

	if (rnd_below(&m->r, 2))
		return;
	fill(&m->r, val, sizeof(val));
	ck_assert_int_eq(nvefs_setxattr(m->w, f->ino, "user.long", val, sizeof(val), 0), 0);
	ck_assert_int_eq(nvefs_setxattr(m->w, f->ino, "user.short", "value", 5, 0), 0);
}

static void make_file(struct maker *m)
{
	const struct nvefs_cred cred = {0};
	struct victim_file *f = new_file(m, S_IFREG | 0644);
	uint64_t dir = m->dirs[rnd_below(&m->r, 4)];
	struct nvefs_attr a;

	ck_assert_int_eq(nvefs_mknod(m->w, dir, f->name, strlen(f->name), f->mode, 0, &cred, &a), 0);
	f->ino = a.ino;
	for (uint32_t n = (uint32_t)rnd_below(&m->r, 4); n; n--)
		write_some(m, f, rnd_below(&m->r, 40) * 1000, 1 + rnd_below(&m->r, 30000));
	if (!rnd_below(&m->r, 8))
		write_some(m, f, 70 * 4096, 20000); /* another window, a hole before it */
	add_xattrs(m, f);
}

static void make_link(struct maker *m)
{
	const struct nvefs_cred cred = {0};
	struct victim_file *f = new_file(m, S_IFLNK | 0777);
	uint64_t dir = m->dirs[rnd_below(&m->r, 4)];
	struct nvefs_attr a;

	f->size = 1 + rnd_below(&m->r, 3000);
	f->bytes = calloc(1, f->size + 1);
	memset(f->bytes, 'a' + (int)(f->size % 26), f->size);
	ck_assert_int_eq(nvefs_symlink(m->w, dir, f->name, strlen(f->name), (char *)f->bytes, &cred, &a), 0);
	f->ino = a.ino;
}

/* Shares blocks with an earlier file. */
static void make_clone(struct maker *m)
{
	const struct victim_file *from = &m->img->files[rnd_below(&m->r, m->img->nfiles)];
	const struct nvefs_cred cred = {0};
	struct victim_file *f;
	struct nvefs_attr a;

	if (!S_ISREG(from->mode) || !from->size)
		return;
	f = new_file(m, S_IFREG | 0600);
	ck_assert_int_eq(nvefs_mknod(m->w, m->dirs[1], f->name, strlen(f->name), f->mode, 0, &cred, &a), 0);
	f->ino = a.ino;
	f->size = from->size;
	f->bytes = calloc(1, MAX_FILE_BYTES);
	memcpy(f->bytes, from->bytes, from->size);
	ck_assert_int_ge(h_copy(m->w, from->ino, 0, f->ino, 0, from->size), 0);
}

static void make_more(struct maker *m, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (m->img->nfiles && !rnd_below(&m->r, 8))
			make_clone(m);
		else if (!rnd_below(&m->r, 8))
			make_link(m);
		else
			make_file(m);
	}
}

static void change_some(struct maker *m, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct victim_file *f = &m->img->files[rnd_below(&m->r, m->img->nfiles)];

		if (S_ISREG(f->mode) && f->ino)
			write_some(m, f, rnd_below(&m->r, 20) * 4096, 1 + rnd_below(&m->r, 9000));
	}
}

/* ---- Versions ---- */

static struct nvefs_dev *open_file(const char *path)
{
	struct nvefs_dev_open_opts o = {.flags = NVEFS_OPEN_CREATE, .create_bytes = VICTIM_BYTES};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;

	ck_assert_msg(!nvefs_dev_open(path, &o, &dev, &err), "%s", err.text);
	return dev;
}

static struct nvefs_fs *mount_file(const char *path, struct nvefs_worker **ret_w)
{
	struct nvefs_mount_opts opts = {.dedup = NVEFS_ON, .commit_interval_s = 3600};
	struct nvefs_error err = {""};
	struct nvefs_fs *fs;

	ck_assert_msg(!nvefs_mount(open_file(path), &opts, &fs, &err), "%s", err.text);
	ck_assert_int_eq(nvefs_worker_open(fs, ret_w), 0);
	return fs;
}

static void copy_files(struct victim_image *to, const struct victim_image *from)
{
	to->nfiles = from->nfiles;
	for (uint32_t i = 0; i < from->nfiles; i++) {
		to->files[i] = from->files[i];
		to->files[i].bytes = calloc(1, MAX_FILE_BYTES);
		if (from->files[i].bytes)
			memcpy(to->files[i].bytes, from->files[i].bytes, from->files[i].size);
	}
}

/* Blocks of zeros are not touched, so that they take no memory. */
static void read_image(struct victim_image *img, const char *path)
{
	static uint8_t block[4096];
	int fd = open(path, O_RDONLY);

	ck_assert_int_ge(fd, 0);
	img->blocks = mmap(NULL, VICTIM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(img->blocks, MAP_FAILED);
	for (uint64_t p = 0; p < VICTIM_BLKS; p++) {
		ck_assert_int_eq(pread(fd, block, 4096, (off_t)(p * 4096)), 4096);
		img->used[p] = block[0] || memcmp(block, block + 1, 4095) != 0;
		if (img->used[p])
			memcpy(victim_block(img, p), block, 4096);
	}
	close(fd);
}

/* ---- Who depends on what ---- */

static void note(uint64_t **list, uint32_t *n, uint64_t pblk)
{
	if (*n && (*list)[*n - 1] == pblk)
		return;
	*list = reallocarray(*list, *n + 1, sizeof(**list));
	(*list)[(*n)++] = pblk;
}

static void note_leaf(struct victim_deps *d, const struct nvefs_tree_visit *v)
{
	uint32_t n = d->nleaves;

	note(&d->leaves, &d->nleaves, v->pblk);
	if (d->nleaves == n)
		return;
	d->twins = reallocarray(d->twins, d->nleaves, sizeof(*d->twins));
	d->twins[n] = v->twin;
}

static struct victim_deps *deps_of(struct victim_image *img, uint64_t ino)
{
	for (uint32_t i = 0; i < img->nfiles; i++)
		if (img->files[i].ino == ino)
			return &img->deps[i];
	return NULL;
}

static int visit(void *arg, const struct nvefs_tree_visit *v)
{
	struct victim_image *img = arg;

	ck_assert_int_eq(v->err, 0);
	if (v->level) {
		note(&img->inner, &img->ninner, v->pblk);
		return 0;
	}
	note(&img->nodes, &img->nnodes, v->pblk);
	for (uint32_t i = 0; i < nvefs_node_nitems(v->node); i++) {
		struct nvefs_key key = nvefs_node_key(v->node, i);
		struct victim_deps *d = deps_of(img, key.ino);
		struct nvefs_window w;
		const void *val;
		uint32_t len;

		if (!d)
			continue;
		note_leaf(d, v);
		val = nvefs_leaf_value(v->node, i, &len);
		if (key.kind != NVEFS_KIND_MAP || nvefs_map_decode(val, len, &img->sb, &w))
			continue;
		for (uint32_t k = 0; k < NVEFS_WINDOW_BLKS; k++)
			if (w.pblk[k])
				note(&d->data, &d->ndata, nvefs_went_pblk(w.pblk[k]));
	}
	return 0;
}

static void read_deps(struct victim_image *img)
{
	struct nvefs_store_opts opts = {.read_only = true, .replay_in_memory = true};
	struct nvefs_error err = {""};
	struct nvefs_dev *dev = victim_device(img);
	struct nvefs_queue *q;
	struct nvefs_store *st;

	ck_assert_int_eq(nvefs_queue_init(dev, 0, &q), 0);
	ck_assert_msg(!nvefs_store_open(dev, &opts, &st, &err), "%s", err.text);
	img->sb = *nvefs_store_super(st);
	img->root = *nvefs_store_root(st);
	ck_assert_int_eq(nvefs_tree_walk(st, q, NULL, visit, img), 0);
	nvefs_store_free(st);
	nvefs_queue_done(q);
	nvefs_dev_close(dev);
}

static void make_version(struct victim *v, enum victim_version nr, const char *path, struct maker *m)
{
	struct victim_image *img = &v->v[nr];
	struct nvefs_fs *fs = mount_file(path, &m->w);

	if (nr != VICTIM_EARLY)
		copy_files(img, &v->v[nr - 1]);
	m->img = img;
	if (nr == VICTIM_EARLY) {
		m->dirs[0] = 1;
		m->dirs[1] = make_dir(m, 1, "one");
		m->dirs[2] = make_dir(m, m->dirs[1], "two");
		m->dirs[3] = make_dir(m, m->dirs[2], "three");
		make_more(m, FILES_AT_FIRST);
	} else {
		change_some(m, 20);
		make_more(m, 20);
	}
	ck_assert_int_eq(h_sync(m->w), 0);
	nvefs_worker_close(m->w);
	if (nr == VICTIM_CUT)
		nvefs_abandon(fs);
	else
		ck_assert_int_eq(nvefs_unmount(fs), 0);
	read_image(img, path);
	read_deps(img);
}

static void make_bare(struct victim *v)
{
	const struct victim_image *from = &v->v[VICTIM_CLEAN];
	struct victim_image *img = &v->v[VICTIM_BARE];

	copy_files(img, from);
	img->blocks = mmap(NULL, VICTIM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(img->blocks, MAP_FAILED);
	for (uint64_t p = 0; p < VICTIM_BLKS; p++) {
		img->used[p] = from->used[p] && (p < nvefs_journal_log_pblk(&from->sb, 0) ||
						 p >= from->sb.journal_pblk + from->sb.journal_blks);
		if (img->used[p])
			memcpy(victim_block(img, p), victim_block(from, p), 4096);
	}
	read_deps(img);
}

void victim_init(struct victim *v, bool dup)
{
	static const uint8_t uuid[16] = "victim of damage";
	/* One copy of everything: what is damaged is damaged. */
	const struct nvefs_mkfs_opts mk = {.label = "victim",
					   .uuid = uuid,
					   .hash_seed = 4711,
					   .journal_blks = 512,
					   .metadata_single = !dup};
	struct maker m = {.r = {20260101}}; /* always the same */
	struct nvefs_error err = {""};
	char path[] = "/tmp/nvefs-victim-XXXXXX";
	struct nvefs_dev *dev;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	memset(v, 0, sizeof(*v));
	dev = open_file(path);
	ck_assert_msg(!nvefs_mkfs(dev, &mk, &err), "%s", err.text);
	nvefs_dev_close(dev);
	for (enum victim_version nr = 0; nr <= VICTIM_CUT; nr++)
		make_version(v, nr, path, &m);
	make_bare(v);
	unlink(path);
}

void victim_done(struct victim *v)
{
	for (uint32_t nr = 0; nr < VICTIM_VERSIONS; nr++) {
		struct victim_image *img = &v->v[nr];

		munmap(img->blocks, VICTIM_BYTES);
		for (uint32_t i = 0; i < img->nfiles; i++) {
			free(img->files[i].bytes);
			free(img->deps[i].leaves);
			free(img->deps[i].twins);
			free(img->deps[i].data);
		}
		free(img->nodes);
		free(img->inner);
	}
}

struct nvefs_dev *victim_device(const struct victim_image *img)
{
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;
	struct nvefs_queue *q;

	ck_assert_msg(!nvefs_dev_open("ram:64M,vwc=on", &(struct nvefs_dev_open_opts){0}, &dev, &err), "%s", err.text);
	ck_assert_int_eq(nvefs_queue_init(dev, 0, &q), 0);
	for (uint64_t p = 0, n; p < VICTIM_BLKS; p += n) {
		for (n = 1; p + n < VICTIM_BLKS && n < 32 && img->used[p] == img->used[p + n]; n++)
			;
		if (img->used[p])
			ck_assert_int_eq(nvefs_queue_write(q, p, (uint32_t)n, victim_block(img, p), 0), 0);
	}
	nvefs_queue_done(q);
	return dev;
}

/* ---- Afterwards ---- */

struct named {
	const struct victim_image *img;
	struct nvefs_worker *w;
	bool *found, *by_name; /* by file: by any name, by its own */
	uint64_t dirs[256];
	uint32_t ndirs;
};

static int take_name(void *arg, const char *name, size_t len, const struct nvefs_attr *attr, uint64_t next_pos)
{
	struct named *n = arg;

	(void)next_pos;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return 0;
	for (uint32_t i = 0; i < n->img->nfiles; i++)
		if (n->img->files[i].ino == attr->ino) {
			n->found[i] = true;
			n->by_name[i] |= strlen(n->img->files[i].name) == len && !memcmp(name, n->img->files[i].name, len);
		}
	if (S_ISDIR(attr->mode) && n->ndirs < 256)
		n->dirs[n->ndirs++] = attr->ino;
	return 0;
}

static void find_names(struct named *n)
{
	n->dirs[n->ndirs++] = 1;
	for (uint32_t i = 0; i < n->ndirs; i++)
		nvefs_readdir(n->w, n->dirs[i], 0, false, take_name, n);
}

static enum victim_fate judge_bytes(struct nvefs_worker *w, const struct victim_file *f, uint8_t *buf)
{
	enum victim_fate fate = VICTIM_WHOLE;

	for (uint64_t off = 0; off < f->size; off += 4096) {
		uint64_t len = f->size - off < 4096 ? f->size - off : 4096;
		int64_t got = h_read(w, f->ino, off, buf, len);

		if (got < 0)
			fate = VICTIM_ERRORS;
		else if ((uint64_t)got != len || memcmp(buf, f->bytes + off, len) != 0)
			return VICTIM_DIFFERS;
	}
	return fate;
}

static enum victim_fate judge_file(struct nvefs_worker *w, const struct victim_file *f, uint8_t *buf)
{
	struct nvefs_attr a;
	size_t len;

	if (nvefs_lookup_ino(w, f->ino, &a))
		return VICTIM_GONE;
	if (a.mode != f->mode || a.size != f->size)
		return VICTIM_DIFFERS;
	if (S_ISREG(f->mode)) {
		/* In one go where nothing is wrong, block by block to see what is. */
		if (h_read(w, f->ino, 0, buf, f->size) == (int64_t)f->size && (!f->size || !memcmp(buf, f->bytes, f->size)))
			return VICTIM_WHOLE;
		return judge_bytes(w, f, buf);
	}
	if (nvefs_readlink(w, f->ino, (char *)buf, MAX_FILE_BYTES, &len))
		return VICTIM_ERRORS;
	return len == f->size && !memcmp(buf, f->bytes, len) ? VICTIM_WHOLE : VICTIM_DIFFERS;
}

int victim_judge(const struct victim_image *img, struct nvefs_dev *dev, enum victim_fate *ret_fates)
{
	struct nvefs_mount_opts opts = {.read_only = true, .max_workers = 1, .dedup = NVEFS_OFF};
	struct named names = {.img = img,
			      .found = calloc(img->nfiles, sizeof(bool)),
			      .by_name = calloc(img->nfiles, sizeof(bool))};
	uint8_t *buf = nvefs_buf_new(MAX_FILE_BYTES);
	struct nvefs_fs *fs;
	int err = nvefs_mount(dev, &opts, &fs, NULL);

	if (err) {
		nvefs_dev_close(dev);
		goto out;
	}
	ck_assert_int_eq(nvefs_worker_open(fs, &names.w), 0);
	find_names(&names);
	for (uint32_t i = 0; i < img->nfiles; i++) {
		ret_fates[i] = judge_file(names.w, &img->files[i], buf);
		if (ret_fates[i] != VICTIM_GONE && !names.found[i])
			ret_fates[i] = VICTIM_GONE;
		if (ret_fates[i] == VICTIM_WHOLE && !names.by_name[i])
			ret_fates[i] = VICTIM_RENAMED;
	}
	nvefs_worker_close(names.w);
	nvefs_unmount(fs);
out:
	nvefs_buf_free(buf);
	free(names.found);
	free(names.by_name);
	return err;
}
