/* SPDX-License-Identifier: MIT */
/*
 * Random name operations against a model in memory: results, errors, and the
 * tree of names afterwards; across remounts; and after a crash, when the file
 * system must be what the model was at some moment since the last sync.
 *
 * NVEFS_SEED and NVEFS_STEPS set the run; a failure names the seed.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "../support/suites.h"
#include "fs/names.h"
#include "fs_fixture.h"

#define NODES 48
#define NAMES 9
#define XATTRS 3
#define HISTORY 60

struct node {
	uint64_t ino; /* 0: unused */
	uint32_t mode, nlink, opens;
	int parent; /* directory */
	int child[NAMES];
	uint32_t target_len; /* symlink; its bytes follow from the inode number */
	uint32_t xlen[XATTRS], xseed[XATTRS]; /* xlen 0: absent */
};

struct model {
	struct node n[NODES];
};

static struct fixture x;
static struct model m, history[HISTORY];
static uint32_t nhistory;
static uint64_t rng, seed;
static const struct nvefs_cred cred = {.uid = 3, .gid = 4, .umask = 022};

static uint32_t rnd(uint32_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)((rng >> 20) % n);
}

static const char *name_of(int k)
{
	static char longest[NAMES][256];

	if (k < NAMES - 2)
		snprintf(longest[k], 256, "n%d", k);
	else /* of full length, different at the end */
		snprintf(longest[k], 256, "%0255d", k);
	return longest[k];
}

static void bytes(uint8_t *p, uint32_t len, uint64_t s)
{
	uint32_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)('a' + (s * 31 + i * (s + 7) / 3) % 26);
}

#define expect(got, want)                                                                          \
	do {                                                                                       \
		int g_ = (got), w_ = (want);                                                       \
		ck_assert_msg(g_ == w_, "seed %llu: %s is %d, not %d", (unsigned long long)seed,   \
			      #got, g_, w_);                                                       \
	} while (0)

static int pick_dir(void)
{
	int i;

	do
		i = (int)rnd(NODES);
	while (!m.n[i].ino || !S_ISDIR(m.n[i].mode) || !m.n[i].nlink);
	return i;
}

static int pick_any(void)
{
	int i;

	do
		i = (int)rnd(NODES);
	while (!m.n[i].ino);
	return i;
}

static int pick_free(void)
{
	int i;

	for (i = 0; i < NODES; i++)
		if (!m.n[i].ino)
			return i;
	return -1;
}

static bool is_empty(const struct node *n)
{
	int k;

	for (k = 0; k < NAMES; k++)
		if (n->child[k] >= 0)
			return false;
	return true;
}

static void drop(int i)
{
	if (!m.n[i].nlink && !m.n[i].opens)
		m.n[i].ino = 0;
}

static void node_new(int i, const struct nvefs_attr *a, int parent)
{
	struct node *n = &m.n[i];
	int k;

	memset(n, 0, sizeof(*n));
	n->ino = a->ino;
	n->mode = a->mode;
	n->nlink = a->nlink;
	n->parent = parent;
	for (k = 0; k < NAMES; k++)
		n->child[k] = -1;
	nvefs_forget(x.w, a->ino, 1);
}

/* ---- Operations ---- */

static void op_create(void)
{
	int d = pick_dir(), k = (int)rnd(NAMES), i = pick_free(), what = (int)rnd(4), err;
	const char *name = name_of(k);
	struct nvefs_attr a;
	char target[4096];
	uint32_t len = 1 + rnd(rnd(2) ? 100 : 4095);

	if (i < 0)
		return;
	if (what == 0) {
		err = nvefs_mkdir(x.w, m.n[d].ino, name, strlen(name), 0777, &cred, &a);
	} else if (what == 1) {
		memset(target, 't', len);
		target[len] = 0;
		err = nvefs_symlink(x.w, m.n[d].ino, name, strlen(name), target, &cred, &a);
	} else {
		err = nvefs_mknod(x.w, m.n[d].ino, name, strlen(name), S_IFREG | 0666, 0, &cred, &a);
	}
	expect(err, m.n[d].child[k] >= 0 ? -EEXIST : 0);
	if (err)
		return;
	node_new(i, &a, d);
	m.n[i].target_len = what == 1 ? len : 0;
	ck_assert_uint_eq(a.mode, what == 0 ? S_IFDIR | 0755 : what == 1 ? S_IFLNK | 0777 : S_IFREG | 0644);
	m.n[d].child[k] = i;
	if (what == 0)
		m.n[d].nlink++;
}

static void op_link(void)
{
	int i = pick_any(), d = pick_dir(), k = (int)rnd(NAMES), want = 0, err;
	struct nvefs_attr a;

	if (S_ISDIR(m.n[i].mode))
		want = -EPERM;
	else if (m.n[d].child[k] >= 0)
		want = -EEXIST;
	err = nvefs_link(x.w, m.n[i].ino, m.n[d].ino, name_of(k), strlen(name_of(k)), &a);
	expect(err, want);
	if (err)
		return;
	nvefs_forget(x.w, a.ino, 1);
	m.n[i].nlink++;
	m.n[d].child[k] = i;
	ck_assert_uint_eq(a.nlink, m.n[i].nlink);
}

/* The node loses a name. */
static void node_unlink(int i)
{
	struct node *n = &m.n[i];

	if (S_ISDIR(n->mode))
		n->nlink = 0;
	else
		n->nlink--;
	drop(i);
}

static void op_unlink(void)
{
	int d = pick_dir(), k = (int)rnd(NAMES), i = m.n[d].child[k], err, want = 0;
	bool dir = rnd(2);
	const char *name = name_of(k);

	if (i < 0)
		want = -ENOENT;
	else if (dir && !S_ISDIR(m.n[i].mode))
		want = -ENOTDIR;
	else if (!dir && S_ISDIR(m.n[i].mode))
		want = -EISDIR;
	else if (dir && !is_empty(&m.n[i]))
		want = -ENOTEMPTY;
	err = dir ? nvefs_rmdir(x.w, m.n[d].ino, name, strlen(name)) :
		    nvefs_unlink(x.w, m.n[d].ino, name, strlen(name));
	expect(err, want);
	if (err)
		return;
	m.n[d].child[k] = -1;
	if (dir)
		m.n[d].nlink--;
	node_unlink(i);
}

static bool below(int d, int top)
{
	for (;; d = m.n[d].parent) {
		if (d == top)
			return true;
		if (!d)
			return false;
	}
}

static int rename_want(int d, int k, int e, int l, uint32_t flags)
{
	int i = m.n[d].child[k], j = m.n[e].child[l];
	bool idir = i >= 0 && S_ISDIR(m.n[i].mode), jdir = j >= 0 && S_ISDIR(m.n[j].mode);

	if (i < 0 || ((flags & RENAME_EXCHANGE) && j < 0))
		return -ENOENT;
	if ((flags & RENAME_NOREPLACE) && j >= 0)
		return -EEXIST;
	if (i == j)
		return 0;
	if (idir && d != e && below(e, i))
		return -EINVAL;
	if (flags & RENAME_EXCHANGE)
		return jdir && d != e && below(d, j) ? -EINVAL : 0;
	if (j < 0)
		return 0;
	if (idir && !jdir)
		return -ENOTDIR;
	if (!idir && jdir)
		return -EISDIR;
	return jdir && !is_empty(&m.n[j]) ? -ENOTEMPTY : 0;
}

static void op_rename(void)
{
	static const uint32_t all_flags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
	int d = pick_dir(), e = rnd(3) ? pick_dir() : d, k = (int)rnd(NAMES), l = (int)rnd(NAMES), i, j;
	uint32_t flags = all_flags[rnd(5)];
	bool idir, jdir;
	int want = rename_want(d, k, e, l, flags);

	expect(fx_rename(&x, m.n[d].ino, name_of(k), m.n[e].ino, name_of(l), flags), want);
	i = m.n[d].child[k];
	j = m.n[e].child[l];
	if (want || i == j)
		return;
	idir = S_ISDIR(m.n[i].mode);
	jdir = j >= 0 && S_ISDIR(m.n[j].mode);
	m.n[e].child[l] = i;
	m.n[d].child[k] = flags & RENAME_EXCHANGE ? j : -1;
	m.n[d].nlink -= idir;
	m.n[e].nlink += idir;
	m.n[e].nlink -= jdir;
	if (idir)
		m.n[i].parent = e;
	if (flags & RENAME_EXCHANGE) {
		m.n[d].nlink += jdir;
		if (jdir)
			m.n[j].parent = d;
	} else if (j >= 0) {
		node_unlink(j);
	}
}

static const char *const xnames[XATTRS] = {"user.one", "trusted.two", "security.three"};

static void op_xattr(void)
{
	static uint8_t val[65536];
	static const uint32_t caps[] = {30, 1100, 6000, 65536};
	int i = pick_any(), k = (int)rnd(XATTRS), flags = (int)rnd(3);
	uint32_t len = 1 + rnd(caps[rnd(4)]), s = rnd(1000);
	struct node *n = &m.n[i];
	int want = 0;

	if (!rnd(4)) {
		expect(nvefs_removexattr(x.w, n->ino, xnames[k]), n->xlen[k] ? 0 : -ENODATA);
		n->xlen[k] = 0;
		return;
	}
	bytes(val, len, s);
	if (flags == XATTR_CREATE && n->xlen[k])
		want = -EEXIST;
	if (flags == XATTR_REPLACE && !n->xlen[k])
		want = -ENODATA;
	expect(nvefs_setxattr(x.w, n->ino, xnames[k], val, len, flags), want);
	if (want)
		return;
	n->xlen[k] = len;
	n->xseed[k] = s;
}

static void op_chmod(void)
{
	struct nvefs_attr a = {.mode = rnd(07777 + 1)}, r;
	int i = pick_any();

	/* setgid directories would hand on their group and the bit: not of interest here */
	if (S_ISDIR(m.n[i].mode))
		a.mode &= 01777;
	expect(nvefs_setattr(x.w, m.n[i].ino, NVEFS_SET_MODE, &a, &r), 0);
	m.n[i].mode = (m.n[i].mode & S_IFMT) | a.mode;
	ck_assert_uint_eq(r.mode, m.n[i].mode);
}

static void op_open(void)
{
	int i = pick_any();

	if (m.n[i].opens && rnd(2)) {
		expect(nvefs_release(x.w, m.n[i].ino), 0);
		m.n[i].opens--;
		drop(i);
	} else if (m.n[i].opens < 3) {
		expect(nvefs_open(x.w, m.n[i].ino), 0);
		m.n[i].opens++;
	}
}

static void op_tmpfile(void)
{
	int i = pick_free();
	struct nvefs_attr a;

	if (i < 0)
		return;
	expect(nvefs_tmpfile(x.w, m.n[pick_dir()].ino, 0600, &cred, &a), 0);
	expect(nvefs_open(x.w, a.ino), 0);
	node_new(i, &a, 0);
	m.n[i].opens = 1;
}

/* ---- Comparing ---- */

/* 0, or what differs. */
static const char *compare_node(const struct model *mm, int i)
{
	static uint8_t val[65536], buf[65536];
	const struct node *n = &mm->n[i];
	struct nvefs_attr a;
	size_t len;
	int k, err;

	if (nvefs_getattr(x.w, n->ino, &a))
		return "an inode is missing";
	if (a.mode != n->mode || a.nlink != n->nlink)
		return "mode or nlink";
	if (S_ISLNK(n->mode)) {
		ck_assert_int_eq(nvefs_readlink(x.w, n->ino, (char *)buf, sizeof(buf), &len), 0);
		if (len != n->target_len || (len && buf[len - 1] != 't'))
			return "target";
	}
	for (k = 0; k < XATTRS; k++) {
		err = nvefs_getxattr(x.w, n->ino, xnames[k], buf, sizeof(buf), &len);
		if (err != (n->xlen[k] ? 0 : -ENODATA))
			return "presence of an attribute";
		bytes(val, n->xlen[k], n->xseed[k]);
		if (!err && (len != n->xlen[k] || memcmp(val, buf, len)))
			return "value of an attribute";
	}
	return NULL;
}

static const char *compare(const struct model *mm)
{
	const struct node *n;
	const char *why;
	uint64_t ino;
	int i, k;

	for (i = 0; i < NODES; i++) {
		n = &mm->n[i];
		if (!n->ino || (!n->nlink && !n->opens))
			continue;
		why = compare_node(mm, i);
		if (why)
			return why;
		for (k = 0; S_ISDIR(n->mode) && n->nlink && k < NAMES; k++) {
			ino = fx_lookup(&x, n->ino, name_of(k));
			if (ino != (n->child[k] < 0 ? 0 : mm->n[n->child[k]].ino))
				return "what a name stands for";
		}
	}
	return NULL;
}

/* Nothing is open any more; what has no name is gone. */
static void forget_opens(struct model *mm)
{
	int i;

	for (i = 0; i < NODES; i++) {
		mm->n[i].opens = 0;
		if (!mm->n[i].nlink)
			mm->n[i].ino = 0;
	}
}

static void check_now(void)
{
	const char *why = compare(&m);

	ck_assert_msg(!why, "seed %llu: %s", (unsigned long long)seed, why);
}

static void check_all(void)
{
	uint64_t inodes;
	int i, n = 0;

	fixture_drain(&x);
	inodes = fx_check(&x);
	for (i = 0; i < NODES; i++)
		n += m.n[i].ino && m.n[i].nlink;
	ck_assert_uint_eq(inodes, n);
}

static void op_remount(void)
{
	fixture_remount(&x);
	forget_opens(&m);
	check_now();
	check_all();
	nhistory = 0;
}

static void op_crash(void)
{
	const char *why = "nothing";
	uint32_t i;

	fixture_crash(&x);
	fixture_drain(&x);
	history[nhistory++] = m;
	for (i = nhistory; i--;) {
		forget_opens(&history[i]);
		why = compare(&history[i]);
		if (!why)
			break;
	}
	ck_assert_msg(!why, "seed %llu: after a crash the names are of no moment since the last sync; oldest: %s",
		      (unsigned long long)seed, why);
	m = history[i];
	check_all();
	nhistory = 0;
	fixture_sync(&x);
}

static void op_any(void)
{
	uint32_t what = rnd(100);

	if (what < 30)
		op_create();
	else if (what < 40)
		op_link();
	else if (what < 55)
		op_unlink();
	else if (what < 75)
		op_rename();
	else if (what < 85)
		op_xattr();
	else if (what < 90)
		op_chmod();
	else if (what < 97)
		op_open();
	else
		op_tmpfile();
}

static void run(uint32_t steps)
{
	struct nvefs_attr root;
	uint32_t i;

	memset(&m, 0, sizeof(m));
	root = fx_attr(&x, ROOT);
	nvefs_lookup_ino(x.w, ROOT, &root);
	node_new(0, &root, 0);
	fixture_sync(&x);
	nhistory = 0;
	for (i = 0; i < steps; i++) {
		if (nhistory == HISTORY - 1) {
			fixture_sync(&x);
			nhistory = 0;
		}
		history[nhistory++] = m;
		op_any();
		if (!rnd(20))
			nvefs_commit_kick(x.fs->st);
		if (!rnd(100))
			check_now();
		if (!rnd(150))
			op_crash();
		else if (!rnd(300))
			op_remount();
	}
	check_now();
	op_remount();
}

static uint32_t from_env(const char *name, uint32_t dflt)
{
	const char *s = getenv(name);

	return s ? (uint32_t)strtoul(s, NULL, 0) : dflt;
}

static void start(const struct nvefs_mount_opts *opts, uint32_t salt)
{
	seed = from_env("NVEFS_SEED", (uint32_t)nvefs_now_ns());
	rng = (seed + salt) * 0x9e3779b97f4a7c15ull | 1;
	printf("seed %llu\n", (unsigned long long)seed);
	fixture_make(&x, 64, opts);
	run(from_env("NVEFS_STEPS", 2000));
	fixture_remove(&x);
}

START_TEST(test_model)
{
	start(NULL, 0);
}
END_TEST

START_TEST(test_model_small)
{
	/* Names collide, and the cache is as small as it gets. */
	struct nvefs_mount_opts opts = {.name_hash_bits = 2, .cache_bytes = 1, .commit_interval_s = 1};

	start(&opts, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs-names-model");
	TCase *t = tcase_create("model");

	tcase_set_timeout(t, 300);
	tcase_add_test(t, test_model);
	tcase_add_test(t, test_model_small);
	suite_add_tcase(s, t);
	return run_suites(s, NULL);
}
