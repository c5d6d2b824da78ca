/* SPDX-License-Identifier: MIT */
/* Which target a URI means, what is said about a bad one, and the lock. */
#include "test_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/uri.h"

static void make(const char *name, long long bytes)
{
	int fd = open(device_path(name), O_RDWR | O_CREAT, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	close(fd);
}

static void expect_uri(const char *text, const char *name, const char *options)
{
	struct nvefs_uri uri;

	ck_assert_int_eq(nvefs_uri_parse(text, &uri, NULL), 0);
	ck_assert_msg(!strcmp(uri.name, name), "%s: name is %s, not %s", text, uri.name, name);
	ck_assert_msg((!uri.options && !options) ||
			  (uri.options && options && !strcmp(uri.options, options)),
		      "%s: options are %s, not %s", text, uri.options, options);
}

START_TEST(test_parse)
{
	ck_assert_int_eq(chdir(device_path("")), 0);
	make("a", 8192);
	make("a,ro", 8192);
	make("ram:1M", 8192);
	expect_uri("a", "a", NULL);
	expect_uri("a,ro", "a,ro", NULL);
	expect_uri("file:a,ro", "a,ro", NULL);
	expect_uri("a,ro,lba=512", "a,ro", "lba=512");
	expect_uri("a,lba=512,ro", "a", "lba=512,ro");
	expect_uri("absent,ro", "absent", "ro");
	expect_uri("ram:1M", "ram:1M", NULL);
	expect_uri("ram:1M,ro", "ram:1M", "ro");
	expect_uri("file:ram:1M", "ram:1M", NULL);
	expect_uri("./ram:1M,ro", "./ram:1M", "ro");
	ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

START_TEST(test_values)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0},	     {"17", 17},	 {"4k", 4096},	    {"4K", 4096},
		    {"3m", 3 << 20}, {"4G", 4ull << 30}, {"2T", 2ull << 40}};
	static const char *const bad[] = {
	    "", "k", "-1", "+1", " 1", "1 ", "4kb", "4q", "99999999999999999999", "99999999999T"};
	uint64_t value;
	bool on;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_msg(nvefs_value_size(good[i].text, &value), "%s", good[i].text);
		ck_assert_uint_eq(value, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!nvefs_value_size(bad[i], &value), "'%s' is a size", bad[i]);
	ck_assert(!nvefs_value_size(NULL, &value));
	ck_assert(nvefs_value_duration("100us", &value));
	ck_assert_uint_eq(value, 100000);
	ck_assert(nvefs_value_duration("2s", &value));
	ck_assert_uint_eq(value, 2000000000);
	ck_assert(!nvefs_value_duration("100", &value));
	ck_assert(!nvefs_value_duration("1h", &value));
	ck_assert(nvefs_value_on_off("on", &on) && on);
	ck_assert(nvefs_value_on_off("off", &on) && !on);
	ck_assert(!nvefs_value_on_off("yes", &on));
}
END_TEST

/* Each bad target: the errno, and words that must be in the message. */
START_TEST(test_errors)
{
	static const struct {
		const char *uri;
		int code;
		const char *words[3];
	} cases[] = {
	    {"", -EINVAL, {"no target"}},
	    {"file:", -EINVAL, {"no target"}},
	    {"ram:", -EINVAL, {"ram:", "size"}},
	    {"ram:4X", -EINVAL, {"ram:4X", "size"}},
	    {"ram:100", -EINVAL, {"ram:100", "4096"}},
	    {"ram:4M,colour=red", -EINVAL, {"'colour'", "latency=", "lba="}},
	    {"ram:4M,lba=1024", -EINVAL, {"'lba'", "1024", "512|4096"}},
	    {"ram:4M,lba", -EINVAL, {"'lba'"}},
	    {"ram:4M,", -EINVAL, {"unknown option"}},
	    {"ram:4M,mdts=4k", -EINVAL, {"'mdts'"}},
	    {"ram:4M,mdts=5000", -EINVAL, {"'mdts'", "5000"}},
	    {"ram:4M,iu=2k", -EINVAL, {"'iu'"}},
	    {"ram:4M,queues=0", -EINVAL, {"'queues'"}},
	    {"ram:4M,depth=99999", -EINVAL, {"'depth'"}},
	    {"ram:4M,vwc=maybe", -EINVAL, {"'vwc'", "on|off"}},
	    {"ram:4M,latency=5", -EINVAL, {"'latency'"}},
	    {"ram:4M,ro=1", -EINVAL, {"'ro'"}},
	    {"/nonexistent/disk.img",
	     -ENOENT,
	     {"/nonexistent/disk.img", "no such file", "mkfs.nvefs"}},
	    {"/dev/ng77n1", -ENOENT, {"/dev/ng77n1", "no such device"}},
	    {"/dev/null", -ENOTSUP, {"/dev/null", "neither an NVMe namespace nor a SCSI disk"}},
	    {"/tmp", -EISDIR, {"/tmp", "directory"}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nvefs_error err = {""};
		struct nvefs_dev *dev = NULL;
		int code = nvefs_dev_open(cases[i].uri, NULL, &dev, &err);

		ck_assert_msg(code == cases[i].code, "'%s': %d, not %d", cases[i].uri, code,
			      cases[i].code);
		ck_assert_ptr_null(dev);
		for (int w = 0; w < 3 && cases[i].words[w]; w++)
			ck_assert_msg(strstr(err.text, cases[i].words[w]), "'%s': no %s in: %s",
				      cases[i].uri, cases[i].words[w], err.text);
		ck_assert_int_eq(nvefs_dev_open(cases[i].uri, NULL, &dev, NULL), code);
	}
}
END_TEST

START_TEST(test_too_small)
{
	struct nvefs_error err;
	struct nvefs_dev *dev;
	struct stat st;

	make("small", 4095);
	ck_assert_int_eq(nvefs_dev_open(device_path("small"), NULL, &dev, &err), -EINVAL);
	ck_assert_msg(strstr(err.text, "4095"), "%s", err.text);
	make("odd", 3 * 4096 + 100);
	dev = device_open(device_path("odd"));
	ck_assert_uint_eq(nvefs_dev_limits(dev)->nblks, 3);
	nvefs_dev_close(dev);
	ck_assert_int_eq(stat(device_path("odd"), &st), 0);
	ck_assert_int_eq(st.st_size, 3 * 4096 + 100);
}
END_TEST

/* A bad option is found before a file is made. */
START_TEST(test_create)
{
	struct nvefs_dev_open_opts opts = {.flags = NVEFS_OPEN_CREATE, .create_bytes = 1 << 20};
	char uri[300];
	struct nvefs_dev *dev;
	struct stat st;

	snprintf(uri, sizeof(uri), "%s,colour=red", device_path("new"));
	ck_assert_int_eq(nvefs_dev_open(uri, &opts, &dev, NULL), -EINVAL);
	ck_assert_int_eq(stat(device_path("new"), &st), -1);
	opts.create_bytes = 100;
	ck_assert_int_eq(nvefs_dev_open(device_path("new"), &opts, &dev, NULL), -EINVAL);
	ck_assert_int_eq(stat(device_path("new"), &st), -1);
	opts.create_bytes = 1 << 20;
	ck_assert_int_eq(nvefs_dev_open(device_path("new"), &opts, &dev, NULL), 0);
	ck_assert_uint_eq(nvefs_dev_limits(dev)->nblks, 256);
	ck_assert_int_eq(stat(device_path("new"), &st), 0);
	ck_assert_int_eq(st.st_blocks, 0); /* sparse */
	opts.create_bytes = 4096;
	{
		struct nvefs_dev *other;

		ck_assert_int_eq(nvefs_dev_open(device_path("new"), &opts, &other, NULL), -EBUSY);
	}
	ck_assert_int_eq(stat(device_path("new"), &st), 0);
	ck_assert_int_eq(st.st_size, 1 << 20); /* not touched by the one that was refused */
	nvefs_dev_close(dev);
}
END_TEST

START_TEST(test_lock)
{
	struct nvefs_dev_open_opts rdonly = {.flags = NVEFS_OPEN_RDONLY};
	static const char *const names[] = {"x", "hard", "soft"};
	struct nvefs_error err;
	struct nvefs_dev *dev, *other;
	int status;

	make("x", 8192);
	ck_assert_int_eq(link(device_path("x"), device_path("hard")), 0);
	ck_assert_int_eq(symlink("x", device_path("soft")), 0);
	for (int by_reader = 0; by_reader < 2; by_reader++) {
		ck_assert_int_eq(
		    nvefs_dev_open(device_path("x"), by_reader ? &rdonly : NULL, &dev, &err), 0);
		for (int i = 0; i < 3; i++) {
			const char *path = device_path(names[i]);

			ck_assert_int_eq(nvefs_dev_open(path, NULL, &other, &err), -EBUSY);
			ck_assert_msg(strstr(err.text, "in use") && strstr(err.text, path), "%s",
				      err.text);
			ck_assert_int_eq(nvefs_dev_open(path, &rdonly, &other, &err), -EBUSY);
		}
		if (!fork())
			_exit(nvefs_dev_open(device_path("hard"), NULL, &other, &err) == -EBUSY
				  ? 0
				  : 1);
		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(status, 0);
		nvefs_dev_close(dev);
		dev = device_open(device_path("hard"));
		nvefs_dev_close(dev);
	}
}
END_TEST

START_TEST(test_describe)
{
	struct nvefs_dev *dev = device_open("ram:4G,lba=512,queues=3,latency=100us,vwc=on,iu=64k");
	const struct nvefs_dev_open_opts scsi = {.route = NVEFS_ROUTE_SCSI};
	const struct nvefs_dev_limits *l = nvefs_dev_limits(dev);
	char text[256];

	nvefs_dev_describe(dev, text, sizeof(text));
	ck_assert_msg(strstr(text, "4096 MiB") && strstr(text, "LBA 512") &&
			  strstr(text, "3 queues") && strstr(text, "cache on") &&
			  strstr(text, "100000 ns"),
		      "%s", text);
	ck_assert_uint_eq(l->nblks, 1 << 20);
	ck_assert_uint_eq(l->iu_blks, 16);
	ck_assert_uint_eq(l->iu_align_blks, 16);
	ck_assert_uint_eq(l->max_transfer_blks, 256);
	ck_assert_uint_eq(l->max_zeroes_blks, 8192);
	ck_assert_uint_eq(l->discard_gran_blks, 1);
	ck_assert_uint_eq(l->mem_align, 1);
	ck_assert(l->volatile_cache && l->fua && l->compare && !l->read_only && !l->shared);
	ck_assert_int_eq(nvefs_dev_route(dev), NVEFS_ROUTE_NATIVE);
	ck_assert_str_eq(nvefs_dev_identity(dev)->target,
			 "ram:4G,lba=512,queues=3,latency=100us,vwc=on,iu=64k");
	ck_assert_str_eq(nvefs_dev_identity(dev)->model, "nvefs embedded controller");
	ck_assert_uint_eq(nvefs_dev_identity(dev)->nsid, 1);
	nvefs_dev_close(dev);
	/* By NMIC, and the scsi route keeps it. */
	dev = device_open("ram:4M,shared=on");
	nvefs_dev_describe(dev, text, sizeof(text));
	ck_assert(nvefs_dev_limits(dev)->shared && strstr(text, ", shared"));
	nvefs_dev_close(dev);
	ck_assert_int_eq(nvefs_dev_open("ram:4M,shared=on", &scsi, &dev, NULL), 0);
	ck_assert(nvefs_dev_limits(dev)->shared);
	nvefs_dev_close(dev);
	dev = device_open("ram:4M");
	ck_assert(!nvefs_dev_limits(dev)->volatile_cache);
	ck_assert_uint_ge(nvefs_dev_limits(dev)->atomic_blks, 1);
	nvefs_dev_close(dev);
	ck_assert(strstr(nvefs_dev_help(), "latency=") && strstr(nvefs_dev_help(), "ram:SIZE"));
}
END_TEST

/* The same file says the same about itself by any name; another says something else. */
START_TEST(test_identity)
{
	struct nvefs_dev_identity a, b, c;
	struct nvefs_dev *dev;

	make("x", 8192);
	make("y", 8192);
	ck_assert_int_eq(link(device_path("x"), device_path("hard")), 0);
	dev = device_open(device_path("x"));
	a = *nvefs_dev_identity(dev);
	nvefs_dev_close(dev);
	dev = device_open(device_path("hard"));
	b = *nvefs_dev_identity(dev);
	nvefs_dev_close(dev);
	dev = device_open(device_path("y"));
	c = *nvefs_dev_identity(dev);
	nvefs_dev_close(dev);
	ck_assert_int_eq(memcmp(a.nguid, b.nguid, 16), 0);
	ck_assert_str_eq(a.serial, b.serial);
	ck_assert_int_ne(memcmp(a.nguid, c.nguid, 16), 0);
}
END_TEST

Suite *device_uri_suite(void)
{
	Suite *s = suite_create("device uri");
	TCase *t = tcase_create("uri");

	tcase_add_checked_fixture(t, device_dir_init, device_dir_done);
	tcase_add_test(t, test_parse);
	tcase_add_test(t, test_values);
	tcase_add_test(t, test_errors);
	tcase_add_test(t, test_too_small);
	tcase_add_test(t, test_create);
	tcase_add_test(t, test_lock);
	tcase_add_test(t, test_describe);
	tcase_add_test(t, test_identity);
	suite_add_tcase(s, t);
	return s;
}
