/* SPDX-License-Identifier: MIT */
/* Names, links, attributes of the file system library. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "../support/suites.h"
#include "fs_fixture.h"

static struct fixture x;
static const struct nvefs_cred root_cred;

static void setup(void)
{
	fixture_make(&x, 64, NULL);
}

static void teardown(void)
{
	if (x.fs) {
		fixture_drain(&x);
		fx_check(&x);
		fixture_remount(&x);
		fx_check(&x);
	}
	fixture_remove(&x);
}

#define NAME(s) (s), strlen(s)

START_TEST(test_root)
{
	struct nvefs_attr a = fx_attr(&x, ROOT);
	struct nvefs_statfs sf;
	struct nvefs_info info;
	struct nvefs_stats st;

	ck_assert_uint_eq(a.mode, S_IFDIR | 0755);
	ck_assert_uint_eq(a.nlink, 2);
	ck_assert_uint_eq(a.size, 0);
	ck_assert_int_eq(nvefs_statfs(x.w, &sf), 0);
	ck_assert_uint_gt(sf.avail_blks, 0);
	ck_assert_uint_ge(sf.free_blks, sf.avail_blks);
	ck_assert_uint_gt(sf.total_blks, sf.free_blks);
	nvefs_stats_get(x.fs, &st);
	ck_assert_uint_eq(st.inodes, 1);
	ck_assert_uint_eq(st.physical_bytes, 0);
	ck_assert_uint_eq(st.logical_bytes, 0);
	ck_assert_int_eq(nvefs_set_label(x.w, "a label"), 0);
	fixture_remount(&x);
	nvefs_info_get(x.fs, &info);
	ck_assert_str_eq(info.label, "a label");
	ck_assert_uint_eq(info.nblks, 16384);
}
END_TEST

START_TEST(test_create)
{
	char longest[257];
	struct nvefs_attr a, b;
	uint64_t f = fx_create(&x, ROOT, "f");

	ck_assert_uint_eq(fx_lookup(&x, ROOT, "f"), f);
	ck_assert_uint_eq(fx_lookup(&x, ROOT, "g"), 0);
	ck_assert_int_eq(nvefs_mknod(x.w, ROOT, NAME("f"), S_IFREG, 0, &root_cred, &a), -EEXIST);
	ck_assert_int_eq(nvefs_mknod(x.w, f, NAME("g"), S_IFREG, 0, &root_cred, &a), -ENOTDIR);
	ck_assert_int_eq(nvefs_lookup(x.w, f, NAME("g"), &a), -ENOTDIR);
	ck_assert_int_eq(nvefs_mknod(x.w, 999, NAME("g"), S_IFREG, 0, &root_cred, &a), -ESTALE);
	ck_assert_int_eq(nvefs_mknod(x.w, ROOT, NAME(""), S_IFREG, 0, &root_cred, &a), -EINVAL);
	ck_assert_int_eq(nvefs_mknod(x.w, ROOT, NAME("a/b"), S_IFREG, 0, &root_cred, &a), -EINVAL);

	memset(longest, 'n', sizeof(longest));
	longest[256] = 0;
	ck_assert_int_eq(nvefs_mknod(x.w, ROOT, longest, 256, S_IFREG, 0, &root_cred, &a), -ENAMETOOLONG);
	ck_assert_int_eq(nvefs_lookup(x.w, ROOT, longest, 256, &a), -ENAMETOOLONG);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, longest, 256), -ENAMETOOLONG);
	ck_assert_int_eq(nvefs_mknod(x.w, ROOT, longest, 255, S_IFREG | 0600, 0, &root_cred, &a), 0);

	ck_assert_int_eq(nvefs_mknod(x.w, ROOT, NAME("dev"), S_IFBLK | 0600, makedev(259, 70000), &root_cred, &a), 0);
	ck_assert_int_eq(nvefs_mknod(x.w, ROOT, NAME("pipe"), S_IFIFO | 0600, 0, &root_cred, &a), 0);
	ck_assert_int_eq(nvefs_mknod(x.w, ROOT, NAME("bad"), S_IFDIR | 0600, 0, &root_cred, &a), -EINVAL);
	fixture_remount(&x);
	b = fx_attr(&x, fx_lookup(&x, ROOT, "dev"));
	ck_assert_uint_eq(b.rdev, makedev(259, 70000));
	ck_assert_uint_eq(b.mode, S_IFBLK | 0600);
	b = fx_attr(&x, fx_lookup(&x, ROOT, "pipe"));
	ck_assert_uint_eq(b.ino, a.ino);
	ck_assert_int_eq(a.mtime.tv_nsec, b.mtime.tv_nsec);
	ck_assert_int_eq(a.btime.tv_sec, b.btime.tv_sec);
	ck_assert_uint_ne(fx_lookup(&x, ROOT, longest + 1), 0);
}
END_TEST

START_TEST(test_dirs)
{
	uint64_t d = fx_mkdir(&x, ROOT, "d"), e = fx_mkdir(&x, d, "e");
	struct nvefs_attr a;

	fx_create(&x, e, "f");
	ck_assert_uint_eq(fx_attr(&x, ROOT).nlink, 3);
	ck_assert_uint_eq(fx_attr(&x, d).nlink, 3);
	ck_assert_uint_eq(fx_attr(&x, d).size, 1);
	ck_assert_int_eq(nvefs_lookup_parent(x.w, e, &a), 0);
	ck_assert_uint_eq(a.ino, d);
	ck_assert_int_eq(nvefs_lookup(x.w, d, NAME(".."), &a), 0);
	ck_assert_uint_eq(a.ino, ROOT);
	ck_assert_int_eq(nvefs_rmdir(x.w, ROOT, NAME("d")), -ENOTEMPTY);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("d")), -EISDIR);
	ck_assert_int_eq(nvefs_rmdir(x.w, e, NAME("f")), -ENOTDIR);
	ck_assert_int_eq(nvefs_rmdir(x.w, e, NAME("g")), -ENOENT);
	ck_assert_int_eq(nvefs_unlink(x.w, e, NAME("g")), -ENOENT);
	ck_assert_int_eq(nvefs_unlink(x.w, e, NAME("f")), 0);
	ck_assert_int_eq(nvefs_lookup_ino(x.w, e, &a), 0);
	ck_assert_int_eq(nvefs_rmdir(x.w, d, NAME("e")), 0);
	ck_assert_uint_eq(fx_attr(&x, d).nlink, 2);
	/* Still held: nothing can be made in it any more. */
	ck_assert_uint_eq(fx_attr(&x, e).nlink, 0);
	ck_assert_int_eq(nvefs_mkdir(x.w, e, NAME("x"), 0755, &root_cred, &a), -ENOENT);
	ck_assert_int_eq(fx_rename(&x, ROOT, "d", e, "d", 0), -ENOENT);
	nvefs_forget(x.w, e, 1);
	fixture_drain(&x);
	ck_assert_int_eq(nvefs_getattr(x.w, e, &a), -ESTALE);
	ck_assert_int_eq(nvefs_lookup_ino(x.w, e, &a), -ESTALE);
	nvefs_forget(x.w, e, 1);
	ck_assert_uint_eq(fx_check(&x), 2);
}
END_TEST

START_TEST(test_symlink)
{
	char target[4097], buf[5000];
	struct nvefs_attr a;
	size_t len, i;

	for (i = 0; i < sizeof(target); i++)
		target[i] = (char)('a' + i % 26);
	target[4096] = 0;
	ck_assert_int_eq(nvefs_symlink(x.w, ROOT, NAME("l"), target, &root_cred, &a), -ENAMETOOLONG);
	ck_assert_int_eq(nvefs_symlink(x.w, ROOT, NAME("l"), "", &root_cred, &a), -ENOENT);
	target[4095] = 0;
	ck_assert_int_eq(nvefs_symlink(x.w, ROOT, NAME("l"), target, &root_cred, &a), 0);
	ck_assert_uint_eq(a.size, 4095);
	ck_assert_uint_eq(a.mode, S_IFLNK | 0777);
	fixture_remount(&x);
	ck_assert_int_eq(nvefs_readlink(x.w, a.ino, buf, sizeof(buf), &len), 0);
	ck_assert_uint_eq(len, 4095);
	ck_assert_int_eq(memcmp(buf, target, len), 0);
	ck_assert_int_eq(nvefs_readlink(x.w, ROOT, buf, sizeof(buf), &len), -EINVAL);
	ck_assert_int_eq(nvefs_symlink(x.w, ROOT, NAME("s"), "t", &root_cred, &a), 0);
	ck_assert_int_eq(nvefs_readlink(x.w, a.ino, buf, sizeof(buf), &len), 0);
	ck_assert_uint_eq(len, 1);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("l")), 0);
}
END_TEST

START_TEST(test_link)
{
	uint64_t f = fx_create(&x, ROOT, "f"), d = fx_mkdir(&x, ROOT, "d");
	struct nvefs_attr a, t;

	ck_assert_int_eq(nvefs_link(x.w, f, d, NAME("g"), &a), 0);
	ck_assert_uint_eq(a.nlink, 2);
	ck_assert_uint_eq(a.ino, f);
	nvefs_forget(x.w, f, 1);
	ck_assert_int_eq(nvefs_link(x.w, f, d, NAME("g"), &a), -EEXIST);
	ck_assert_int_eq(nvefs_link(x.w, d, d, NAME("h"), &a), -EPERM);
	ck_assert_int_eq(nvefs_link(x.w, 4711, d, NAME("h"), &a), -ESTALE);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("f")), 0);
	ck_assert_uint_eq(fx_attr(&x, f).nlink, 1);
	ck_assert_uint_eq(fx_lookup(&x, d, "g"), f);

	ck_assert_int_eq(nvefs_tmpfile(x.w, d, 0600, &root_cred, &t), 0);
	ck_assert_uint_eq(t.nlink, 0);
	ck_assert_int_eq(nvefs_link(x.w, t.ino, d, NAME("t"), &a), 0);
	ck_assert_uint_eq(a.nlink, 1);
	nvefs_forget(x.w, t.ino, 2);
	ck_assert_int_eq(nvefs_tmpfile(x.w, d, 0600, &root_cred, &a), 0);
	nvefs_forget(x.w, a.ino, 1);
	fixture_drain(&x);
	ck_assert_int_eq(nvefs_getattr(x.w, a.ino, &a), -ESTALE);
	fixture_sync(&x);
	fixture_crash(&x);
	fixture_drain(&x);
	ck_assert_uint_eq(fx_lookup(&x, d, "t"), t.ino);
	ck_assert_uint_eq(fx_check(&x), 4);
}
END_TEST

START_TEST(test_rename_plain)
{
	uint64_t d = fx_mkdir(&x, ROOT, "d"), e = fx_mkdir(&x, ROOT, "e"), f = fx_create(&x, ROOT, "f");
	uint64_t g = fx_create(&x, d, "g"), s = fx_mkdir(&x, d, "s");
	struct nvefs_attr a;

	ck_assert_int_eq(fx_rename(&x, ROOT, "none", ROOT, "x", 0), -ENOENT);
	ck_assert_int_eq(fx_rename(&x, ROOT, "f", ROOT, "f", 0), 0);
	ck_assert_int_eq(fx_rename(&x, ROOT, "f", d, "g", RENAME_NOREPLACE), -EEXIST);
	ck_assert_int_eq(fx_rename(&x, ROOT, "f", d, "s", 0), -EISDIR);
	ck_assert_int_eq(fx_rename(&x, d, "s", ROOT, "f", 0), -ENOTDIR);
	ck_assert_int_eq(fx_rename(&x, ROOT, "e", ROOT, "d", 0), -ENOTEMPTY);
	ck_assert_int_eq(fx_rename(&x, ROOT, "d", s, "d", 0), -EINVAL);
	ck_assert_int_eq(fx_rename(&x, ROOT, "d", d, "d", 0), -EINVAL);
	ck_assert_int_eq(fx_rename(&x, ROOT, "f", ROOT, "x", 64), -EINVAL);
	ck_assert_int_eq(fx_rename(&x, ROOT, "f", ROOT, "x", RENAME_NOREPLACE | RENAME_EXCHANGE), -EINVAL);
	/* over an open file: it lives on */
	ck_assert_int_eq(nvefs_open(x.w, g), 0);
	ck_assert_int_eq(fx_rename(&x, ROOT, "f", d, "g", 0), 0);
	ck_assert_uint_eq(fx_lookup(&x, d, "g"), f);
	ck_assert_uint_eq(fx_lookup(&x, ROOT, "f"), 0);
	ck_assert_uint_eq(fx_attr(&x, g).nlink, 0);
	ck_assert_int_eq(nvefs_release(x.w, g), 0);
	fixture_drain(&x);
	ck_assert_int_eq(nvefs_getattr(x.w, g, &a), -ESTALE);
	/* a directory to another parent, over an empty one */
	ck_assert_int_eq(fx_rename(&x, d, "s", ROOT, "e", 0), 0);
	ck_assert_uint_eq(fx_lookup(&x, ROOT, "e"), s);
	ck_assert_uint_eq(fx_attr(&x, d).nlink, 2);
	ck_assert_uint_eq(fx_attr(&x, ROOT).nlink, 4);
	ck_assert_int_eq(nvefs_lookup_parent(x.w, s, &a), 0);
	ck_assert_uint_eq(a.ino, ROOT);
	fixture_drain(&x);
	ck_assert_int_eq(nvefs_getattr(x.w, e, &a), -ESTALE);
	/* two names of one inode: nothing happens */
	ck_assert_int_eq(nvefs_link(x.w, f, ROOT, NAME("f2"), &a), 0);
	ck_assert_int_eq(fx_rename(&x, ROOT, "f2", d, "g", 0), 0);
	ck_assert_uint_eq(fx_lookup(&x, ROOT, "f2"), f);
	ck_assert_uint_eq(fx_attr(&x, f).nlink, 2);
}
END_TEST

START_TEST(test_rename_exchange)
{
	uint64_t d = fx_mkdir(&x, ROOT, "d"), e = fx_mkdir(&x, d, "e"), f = fx_create(&x, ROOT, "f");
	struct nvefs_attr a;

	ck_assert_int_eq(fx_rename(&x, ROOT, "f", ROOT, "none", RENAME_EXCHANGE), -ENOENT);
	ck_assert_int_eq(fx_rename(&x, d, "e", ROOT, "d", RENAME_EXCHANGE), -EINVAL);
	ck_assert_int_eq(fx_rename(&x, ROOT, "d", d, "e", RENAME_EXCHANGE), -EINVAL);
	ck_assert_int_eq(fx_rename(&x, d, "e", ROOT, "f", RENAME_EXCHANGE), 0);
	ck_assert_uint_eq(fx_lookup(&x, d, "e"), f);
	ck_assert_uint_eq(fx_lookup(&x, ROOT, "f"), e);
	ck_assert_uint_eq(fx_attr(&x, d).nlink, 2);
	ck_assert_uint_eq(fx_attr(&x, ROOT).nlink, 4);
	ck_assert_int_eq(nvefs_lookup_parent(x.w, e, &a), 0);
	ck_assert_uint_eq(a.ino, ROOT);
	ck_assert_int_eq(fx_rename(&x, ROOT, "d", ROOT, "f", RENAME_EXCHANGE), 0);
	ck_assert_uint_eq(fx_lookup(&x, ROOT, "d"), e);
	ck_assert_uint_eq(fx_check(&x), 4);
}
END_TEST

START_TEST(test_setattr)
{
	uint64_t f = fx_create(&x, ROOT, "f");
	struct nvefs_attr a = {.mode = 06755, .uid = 7, .gid = 8}, r;

	ck_assert_int_eq(nvefs_setattr(x.w, f, NVEFS_SET_MODE, &a, &r), 0);
	ck_assert_uint_eq(r.mode, S_IFREG | 06755);
	ck_assert_int_eq(nvefs_setattr(x.w, f, NVEFS_SET_UID | NVEFS_SET_GID, &a, &r), 0);
	ck_assert_uint_eq(r.mode, S_IFREG | 0755);
	ck_assert_uint_eq(r.uid, 7);
	ck_assert_uint_eq(r.gid, 8);
	a.mode = 06705;
	ck_assert_int_eq(nvefs_setattr(x.w, f, NVEFS_SET_MODE, &a, &r), 0);
	ck_assert_int_eq(nvefs_setattr(x.w, f, NVEFS_SET_KILL_SUID, &a, &r), 0);
	ck_assert_uint_eq(r.mode, S_IFREG | 02705);
	a.atime = (struct timespec){-5, 999999999};
	a.mtime = (struct timespec){5000000000, 1};
	ck_assert_int_eq(nvefs_setattr(x.w, f, NVEFS_SET_ATIME | NVEFS_SET_MTIME, &a, &r), 0);
	fixture_remount(&x);
	r = fx_attr(&x, f);
	ck_assert_int_eq(r.atime.tv_sec, -5);
	ck_assert_int_eq(r.atime.tv_nsec, 999999999);
	ck_assert_int_eq(r.mtime.tv_sec, 5000000000);
	ck_assert_int_eq(r.mtime.tv_nsec, 1);
	ck_assert_int_eq(nvefs_setattr(x.w, f, NVEFS_SET_MTIME_NOW, &a, &r), 0);
	ck_assert_int_ge(r.mtime.tv_sec, r.btime.tv_sec);
	ck_assert_int_lt(r.mtime.tv_sec, 5000000000);
	ck_assert_int_eq(nvefs_setattr(x.w, 12345, NVEFS_SET_MODE, &a, &r), -ESTALE);
	a.flags = 3;
	ck_assert_int_eq(nvefs_setattr(x.w, f, NVEFS_SET_FLAGS, &a, &r), -EINVAL);
}
END_TEST

/* ---- Inheritance ---- */

#define ACL_ENTRY(tag, perm, id) tag, 0, perm, 0, (id) & 255, (id) >> 8 & 255, 0, 0
#define NO_ID 255, 255, 255, 255
#define ACL_PLAIN(tag, perm) tag, 0, perm, 0, NO_ID

START_TEST(test_inherit)
{
	const struct nvefs_cred user = {.uid = 10, .gid = 20, .umask = 027};
	uint64_t d = fx_mkdir(&x, ROOT, "d");
	struct nvefs_attr a = {.mode = 02775, .gid = 99}, r;

	ck_assert_int_eq(nvefs_setattr(x.w, d, NVEFS_SET_MODE | NVEFS_SET_GID, &a, &r), 0);
	ck_assert_int_eq(nvefs_mknod(x.w, d, NAME("f"), S_IFREG | 0666, 0, &user, &r), 0);
	ck_assert_uint_eq(r.mode, S_IFREG | 0640);
	ck_assert_uint_eq(r.uid, 10);
	ck_assert_uint_eq(r.gid, 99);
	ck_assert_int_eq(nvefs_mkdir(x.w, d, NAME("s"), 0777, &user, &r), 0);
	ck_assert_uint_eq(r.mode, S_IFDIR | 02750);
	ck_assert_uint_eq(r.gid, 99);
	ck_assert_int_eq(nvefs_mkdir(x.w, ROOT, NAME("e"), 0777, &user, &r), 0);
	ck_assert_uint_eq(r.mode, S_IFDIR | 0750);
	ck_assert_uint_eq(r.gid, 20);
}
END_TEST

START_TEST(test_acl)
{
	const uint8_t dflt[] = {2, 0, 0, 0, ACL_PLAIN(1, 7), ACL_ENTRY(2, 7, 1000), ACL_PLAIN(4, 5),
				ACL_PLAIN(16, 7), ACL_PLAIN(32, 5)};
	const uint8_t plain[] = {2, 0, 0, 0, ACL_PLAIN(1, 6), ACL_PLAIN(4, 4), ACL_PLAIN(32, 0)};
	const uint8_t no_mask[] = {2, 0, 0, 0, ACL_PLAIN(1, 7), ACL_ENTRY(2, 7, 1000), ACL_PLAIN(4, 5),
				   ACL_PLAIN(32, 5)};
	const struct nvefs_cred user = {.uid = 10, .gid = 20, .umask = 077};
	uint64_t d = fx_mkdir(&x, ROOT, "d");
	const char *acc = "system.posix_acl_access", *def = "system.posix_acl_default";
	struct nvefs_attr r, a = {.mode = 0600};
	uint8_t buf[200];
	size_t len;

	ck_assert_int_eq(nvefs_setxattr(x.w, d, def, no_mask, sizeof(no_mask), 0), -EINVAL);
	ck_assert_int_eq(nvefs_setxattr(x.w, d, def, dflt, sizeof(dflt) - 1, 0), -EINVAL);
	ck_assert_int_eq(nvefs_setxattr(x.w, d, def, dflt, sizeof(dflt), 0), 0);
	/* the default ACL takes the place of the umask */
	ck_assert_int_eq(nvefs_mknod(x.w, d, NAME("f"), S_IFREG | 0664, 0, &user, &r), 0);
	ck_assert_uint_eq(r.mode, S_IFREG | 0664);
	ck_assert_int_eq(nvefs_getxattr(x.w, r.ino, acc, buf, sizeof(buf), &len), 0);
	ck_assert_uint_eq(len, sizeof(dflt));
	ck_assert_uint_eq(buf[4 + 2], 6);	  /* owner cut by the mode */
	ck_assert_uint_eq(buf[4 + 8 + 2], 7);	  /* the named user is not */
	ck_assert_uint_eq(buf[4 + 2 * 8 + 2], 5); /* nor the group, the mask is */
	ck_assert_uint_eq(buf[4 + 3 * 8 + 2], 6);
	ck_assert_uint_eq(buf[4 + 4 * 8 + 2], 4);
	ck_assert_int_eq(nvefs_getxattr(x.w, r.ino, def, buf, sizeof(buf), &len), -ENODATA);
	ck_assert_int_eq(nvefs_setxattr(x.w, r.ino, def, dflt, sizeof(dflt), 0), -EACCES);
	/* chmod changes the mask */
	ck_assert_int_eq(nvefs_setattr(x.w, r.ino, NVEFS_SET_MODE, &a, &a), 0);
	ck_assert_int_eq(nvefs_getxattr(x.w, r.ino, acc, buf, sizeof(buf), &len), 0);
	ck_assert_uint_eq(buf[4 + 3 * 8 + 2], 0);
	ck_assert_uint_eq(buf[4 + 2 * 8 + 2], 5);
	/* an ACL that the mode can say is not kept */
	ck_assert_int_eq(nvefs_setxattr(x.w, r.ino, acc, plain, sizeof(plain), 0), 0);
	ck_assert_uint_eq(fx_attr(&x, r.ino).mode, S_IFREG | 0640);
	ck_assert_int_eq(nvefs_getxattr(x.w, r.ino, acc, buf, sizeof(buf), &len), -ENODATA);
	ck_assert_int_eq(nvefs_setxattr(x.w, r.ino, acc, dflt, sizeof(dflt), 0), 0);
	ck_assert_uint_eq(fx_attr(&x, r.ino).mode, S_IFREG | 0775);

	ck_assert_int_eq(nvefs_mkdir(x.w, d, NAME("s"), 0777, &user, &r), 0);
	fixture_remount(&x);
	ck_assert_int_eq(nvefs_getxattr(x.w, r.ino, def, buf, sizeof(buf), &len), 0);
	ck_assert_uint_eq(len, sizeof(dflt));
	ck_assert_int_eq(memcmp(buf, dflt, len), 0);
	ck_assert_uint_eq(fx_attr(&x, r.ino).mode, S_IFDIR | 0775);
}
END_TEST

/* ---- Extended attributes ---- */

START_TEST(test_xattr)
{
	static const size_t sizes[] = {0, 1, 1024, 1025, 1920, 1921, 65536, 10, 65535, 3840, 0};
	static uint8_t val[65537], buf[65537];
	uint64_t f = fx_create(&x, ROOT, "f");
	char list[600], name[257];
	size_t i, k, len;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (k = 0; k < sizes[i]; k++)
			val[k] = (uint8_t)(k * 7 + i);
		ck_assert_int_eq(nvefs_setxattr(x.w, f, "user.a", val, sizes[i], i ? XATTR_REPLACE : XATTR_CREATE), 0);
		if (i & 1)
			fixture_remount(&x);
		ck_assert_int_eq(nvefs_getxattr(x.w, f, "user.a", NULL, 0, &len), 0);
		ck_assert_uint_eq(len, sizes[i]);
		ck_assert_int_eq(nvefs_getxattr(x.w, f, "user.a", buf, sizeof(buf), &len), 0);
		ck_assert_int_eq(memcmp(buf, val, len), 0);
		if (len > 1)
			ck_assert_int_eq(nvefs_getxattr(x.w, f, "user.a", buf, len - 1, &len), -ERANGE);
	}
	ck_assert_int_eq(nvefs_setxattr(x.w, f, "user.a", val, 65537, 0), -E2BIG);
	ck_assert_int_eq(nvefs_setxattr(x.w, f, "user.a", val, 1, XATTR_CREATE), -EEXIST);
	ck_assert_int_eq(nvefs_setxattr(x.w, f, "user.b", val, 1, XATTR_REPLACE), -ENODATA);
	ck_assert_int_eq(nvefs_setxattr(x.w, f, "other.b", val, 1, 0), -EOPNOTSUPP);
	ck_assert_int_eq(nvefs_setxattr(x.w, f, "user.", val, 1, 0), -EINVAL);
	memset(name, 'n', 256);
	memcpy(name, "user.", 5);
	name[256] = 0;
	ck_assert_int_eq(nvefs_setxattr(x.w, f, name, val, 1, 0), -ERANGE);
	name[255] = 0;
	ck_assert_int_eq(nvefs_setxattr(x.w, f, name, val, 1, 0), 0);
	ck_assert_int_eq(nvefs_setxattr(x.w, f, "trusted.t", val, 2000, 0), 0);
	ck_assert_int_eq(nvefs_listxattr(x.w, f, NULL, 0, &len), 0);
	ck_assert_uint_eq(len, 256 + 7 + 10);
	ck_assert_int_eq(nvefs_listxattr(x.w, f, list, len - 1, &len), -ERANGE);
	ck_assert_int_eq(nvefs_listxattr(x.w, f, list, sizeof(list), &len), 0);
	for (i = k = 0; i < len; i += strlen(list + i) + 1)
		k += !strcmp(list + i, name) + !strcmp(list + i, "user.a") + !strcmp(list + i, "trusted.t");
	ck_assert_uint_eq(k, 3);
	ck_assert_int_eq(nvefs_removexattr(x.w, f, "trusted.t"), 0);
	ck_assert_int_eq(nvefs_removexattr(x.w, f, "trusted.t"), -ENODATA);
	ck_assert_int_eq(nvefs_getxattr(x.w, f, "trusted.t", buf, sizeof(buf), &len), -ENODATA);
	ck_assert_int_eq(nvefs_setxattr(x.w, f, "user.a", val, 65536, 0), 0);
	/* All of that goes with the inode. */
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("f")), 0);
	fixture_drain(&x);
	ck_assert_uint_eq(fx_check(&x), 1);
}
END_TEST

/* ---- Listing ---- */

#define MANY 3000

struct listing {
	uint32_t count[MANY], total, stop_after;
	uint64_t pos;
};

static int list_entry(void *arg, const char *name, size_t len, const struct nvefs_attr *a, uint64_t pos)
{
	struct listing *l = arg;
	char s[256];

	if (!l->stop_after--)
		return 1;
	l->pos = pos;
	if (name[0] == '.')
		return 0;
	memcpy(s, name, len);
	s[len] = 0;
	ck_assert_uint_eq(a->mode & S_IFMT, S_IFREG);
	l->count[atoi(s + 1)]++;
	l->total++;
	return 0;
}

static void list_many(bool plus)
{
	static struct listing l;
	char name[20];
	uint64_t last;
	int i;

	memset(&l, 0, sizeof(l));
	for (i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		fx_create(&x, ROOT, name);
	}
	/* Every odd name goes while the directory is being read, in pieces. */
	for (i = 1, last = 1; l.pos != last;) {
		last = l.pos;
		l.stop_after = 7;
		ck_assert_int_eq(nvefs_readdir(x.w, ROOT, l.pos, plus, list_entry, &l), 0);
		for (; i < MANY && i < (int)l.total; i += 2) {
			snprintf(name, sizeof(name), "f%d", i);
			ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME(name)), 0);
		}
	}
	for (i = 0; i < MANY; i++)
		ck_assert_msg(i & 1 ? l.count[i] <= 1 : l.count[i] == 1, "f%d: %u times", i, l.count[i]);
	if (plus)
		for (i = 0; i < MANY; i++) {
			snprintf(name, sizeof(name), "f%d", i);
			last = fx_lookup(&x, ROOT, name);
			if (last)
				nvefs_forget(x.w, last, 1);
		}
}

START_TEST(test_readdir)
{
	list_many(false);
}
END_TEST

START_TEST(test_readdir_colliding)
{
	/* So few hashes that each item holds many names, as many as fit. */
	fixture_remove(&x);
	x.opts.name_hash_bits = 6;
	fixture_make(&x, 64, &x.opts);
	list_many(false);
}
END_TEST

START_TEST(test_readdir_plus)
{
	list_many(true);
	fixture_remount(&x);
}
END_TEST

START_TEST(test_orphan_crash)
{
	uint64_t f = fx_create(&x, ROOT, "f"), keep = fx_create(&x, ROOT, "keep");
	static uint8_t val[50000];
	struct nvefs_attr a, t;

	ck_assert_int_eq(nvefs_setxattr(x.w, f, "user.v", val, sizeof(val), 0), 0);
	ck_assert_int_eq(nvefs_open(x.w, f), 0);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("f")), 0);
	ck_assert_int_eq(nvefs_tmpfile(x.w, ROOT, 0600, &root_cred, &t), 0);
	fixture_drain(&x);
	ck_assert_uint_eq(fx_attr(&x, f).nlink, 0);
	ck_assert_uint_eq(fx_attr(&x, t.ino).nlink, 0);
	fixture_sync(&x);
	fixture_crash(&x);
	fixture_drain(&x);
	ck_assert_int_eq(nvefs_getattr(x.w, f, &a), -ESTALE);
	ck_assert_int_eq(nvefs_getattr(x.w, t.ino, &a), -ESTALE);
	ck_assert_uint_eq(fx_lookup(&x, ROOT, "keep"), keep);
	ck_assert_uint_eq(fx_check(&x), 2);
	/* Unmounting lets go of what is open. */
	ck_assert_int_eq(nvefs_open(x.w, keep), 0);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("keep")), 0);
	fixture_remount(&x);
	ck_assert_uint_eq(fx_check(&x), 1);
}
END_TEST

START_TEST(test_read_only)
{
	struct nvefs_attr a = {0};
	uint64_t f = fx_create(&x, ROOT, "f");

	fixture_unmount(&x);
	x.opts.read_only = true;
	fixture_mount(&x);
	ck_assert_uint_eq(fx_lookup(&x, ROOT, "f"), f);
	ck_assert_int_eq(nvefs_unlink(x.w, ROOT, NAME("f")), -EROFS);
	ck_assert_int_eq(nvefs_setattr(x.w, f, NVEFS_SET_MODE, &a, &a), -EROFS);
	ck_assert_int_eq(nvefs_mkdir(x.w, ROOT, NAME("d"), 0755, &root_cred, &a), -EROFS);
	ck_assert_int_eq(nvefs_set_label(x.w, "no"), -EROFS);
	ck_assert_int_eq(nvefs_dedup_switch(x.fs, true), -EROFS);
	fixture_unmount(&x);
	x.opts.read_only = false;
	fixture_mount(&x);
}
END_TEST

static int count_event(void *arg, const struct nvefs_scrub_event *ev)
{
	int *n = arg;

	n[ev->path ? 1 : 0]++;
	return 0;
}

START_TEST(test_scrub_empty)
{
	int n[2] = {0, 0};

	fx_mkdir(&x, ROOT, "d");
	ck_assert_int_eq(nvefs_scrub(x.w, count_event, n), 0);
	ck_assert_int_gt(n[0], 0);
	ck_assert_int_eq(n[1], 0);
}
END_TEST

/* ---- Threads ---- */

#define THREADS 4
#define THREAD_NAMES 12

struct mixer {
	struct nvefs_worker *w;
	uint64_t dirs[2];
	uint32_t rng;
	int unexpected;
};

static uint32_t mix_rnd(struct mixer *m, uint32_t n)
{
	m->rng = m->rng * 1103515245 + 12345;
	return (m->rng >> 8) % n;
}

static int mix_once(struct mixer *m)
{
	uint64_t d = m->dirs[mix_rnd(m, 2)], e = m->dirs[mix_rnd(m, 2)];
	char a[8], b[8];
	struct nvefs_attr r;
	int err;

	snprintf(a, sizeof(a), "n%u", mix_rnd(m, THREAD_NAMES));
	snprintf(b, sizeof(b), "n%u", mix_rnd(m, THREAD_NAMES));
	switch (mix_rnd(m, 6)) {
	case 0:
		err = nvefs_mknod(m->w, d, NAME(a), S_IFREG | 0644, 0, &root_cred, &r);
		break;
	case 1:
		err = nvefs_mkdir(m->w, d, NAME(a), 0755, &root_cred, &r);
		break;
	case 2:
		return nvefs_unlink(m->w, d, NAME(a));
	case 3:
		return nvefs_rmdir(m->w, d, NAME(a));
	case 4:
		return nvefs_rename(m->w, d, NAME(a), e, NAME(b), mix_rnd(m, 3) ? 0 : RENAME_EXCHANGE);
	default:
		err = nvefs_lookup(m->w, d, NAME(a), &r);
		if (!err) {
			/* It may have lost its name by now. */
			err = nvefs_link(m->w, r.ino, e, NAME(b), &r);
			nvefs_forget(m->w, r.ino, 1);
		}
	}
	if (!err)
		nvefs_forget(m->w, r.ino, 1);
	return err;
}

static void *mix_main(void *arg)
{
	static const int fine[] = {0, -ENOENT, -EEXIST, -EISDIR, -ENOTDIR, -ENOTEMPTY, -EPERM};
	struct mixer *m = arg;
	uint32_t i, k;
	int err;

	for (i = 0; i < 3000 && !m->unexpected; i++) {
		err = mix_once(m);
		for (k = 0; k < sizeof(fine) / sizeof(fine[0]) && fine[k] != err; k++)
			continue;
		if (k == sizeof(fine) / sizeof(fine[0]))
			m->unexpected = err;
	}
	return NULL;
}

START_TEST(test_threads)
{
	uint64_t d = fx_mkdir(&x, ROOT, "d"), e = fx_mkdir(&x, ROOT, "e");
	struct mixer m[THREADS];
	pthread_t t[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		m[i] = (struct mixer){.dirs = {d, e}, .rng = (uint32_t)i + 1};
		ck_assert_int_eq(nvefs_worker_open(x.fs, &m[i].w), 0);
		ck_assert_int_eq(pthread_create(&t[i], NULL, mix_main, &m[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		ck_assert_int_eq(m[i].unexpected, 0);
		nvefs_worker_close(m[i].w);
	}
	fixture_drain(&x);
	fx_check(&x);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs-names");
	TCase *t = tcase_create("names");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, test_root);
	tcase_add_test(t, test_create);
	tcase_add_test(t, test_dirs);
	tcase_add_test(t, test_symlink);
	tcase_add_test(t, test_link);
	tcase_add_test(t, test_rename_plain);
	tcase_add_test(t, test_rename_exchange);
	tcase_add_test(t, test_setattr);
	tcase_add_test(t, test_inherit);
	tcase_add_test(t, test_acl);
	tcase_add_test(t, test_xattr);
	tcase_add_test(t, test_readdir);
	tcase_add_test(t, test_readdir_colliding);
	tcase_add_test(t, test_readdir_plus);
	tcase_add_test(t, test_orphan_crash);
	tcase_add_test(t, test_read_only);
	tcase_add_test(t, test_scrub_empty);
	tcase_add_test(t, test_threads);
	suite_add_tcase(s, t);
	return run_suites(s, NULL);
}
