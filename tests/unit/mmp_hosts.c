/* SPDX-License-Identifier: MIT */
#include "test_mmp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "format/mmp.h"
#include "fsck/check.h"
#include "store/super.h"

struct shared_medium medium;
char last_log[512];

static void keep_log(enum nvefs_log_level level, const char *line)
{
	(void)level;
	snprintf(last_log, sizeof(last_log), "%s", line);
}

static int told(void *arg, const struct nvefs_host_wait *w)
{
	struct host *h = arg;

	/* A claim that was written slowly is waited for, too: that says nothing of another host. */
	h->ntold += !w->taken;
	h->nslow += w->taken;
	h->told = *w;
	return h->give_up_after && h->ntold >= h->give_up_after;
}

void host_init(struct host *h, uint32_t number)
{
	static const char *const names[] = {"alpha", "beta", "gamma"};

	memset(h, 0, sizeof(*h));
	h->number = number;
	h->opts.host = names[number];
	h->opts.host_wait = told;
	h->opts.host_wait_arg = h;
	h->opts.mmp_force_how = "--take-it";
	h->opts.max_workers = 1;
	h->opts.commit_interval_s = 3600;
}

void medium_make(uint32_t interval_ms)
{
	struct nvefs_mkfs_opts mo = {.mmp_interval_ms = interval_ms, .journal_blks = 512};
	struct nvefs_dev *dev = shared_open(&medium, 9);
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_mkfs(dev, &mo, &err), "%s", err.text);
	nvefs_dev_close(dev);
}

/* What nvefs_mount says; on failure the device is closed. */
int host_try_mount(struct host *h)
{
	uint64_t start = nvefs_now_ns();
	int err;

	h->ntold = h->nslow = 0;
	h->err.text[0] = '\0';
	if (!h->dev)
		h->dev = shared_open(&medium, h->number);
	err = nvefs_mount(h->dev, &h->opts, &h->fs, &h->err);
	h->mount_ms = (nvefs_now_ns() - start) / MS;
	if (!err)
		err = nvefs_worker_open(h->fs, &h->w);
	else
		nvefs_dev_close(h->dev);
	if (err)
		h->dev = NULL;
	return err;
}

void host_mount(struct host *h)
{
	ck_assert_msg(!host_try_mount(h), "%s", h->err.text);
}

int host_unmount(struct host *h)
{
	int err;

	nvefs_worker_close(h->w);
	err = nvefs_unmount(h->fs);
	h->fs = NULL;
	h->dev = NULL;
	return err;
}

void host_crash(struct host *h)
{
	nvefs_worker_close(h->w);
	nvefs_abandon(h->fs);
	h->fs = NULL;
	h->dev = NULL;
}

int host_write(struct host *h, const char *name, uint8_t value)
{
	uint8_t buf[8192];
	uint64_t ino;
	int err = h_create(h->w, name, &ino);

	memset(buf, value, sizeof(buf));
	if (!err)
		err = h_write(h->w, ino, 0, buf, sizeof(buf), 0);
	return err ? err : h_fsync(h->w, ino);
}

void host_expect(struct host *h, const char *name, uint8_t value)
{
	struct nvefs_attr a;
	uint8_t buf[8192];

	ck_assert_msg(!nvefs_lookup(h->w, 1, name, strlen(name), &a), "%s is not there", name);
	ck_assert_int_eq(h_read(h->w, a.ino, 0, buf, sizeof(buf)), sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i++)
		ck_assert_msg(buf[i] == value, "%s: byte %zu is %u", name, i, buf[i]);
}

void medium_expect_sound(void)
{
	struct nvefs_check_opts o = {.replay_in_memory = true, .data = true, .mmp_force = true};
	struct nvefs_dev *dev = shared_open(&medium, 9);
	struct nvefs_check_result r;
	struct nvefs_error err = {""};

	ck_assert_msg(!nvefs_check(dev, &o, &r, &err), "%s", err.text);
	ck_assert_msg(!r.problems, "NV%04x", r.first_code);
	nvefs_dev_close(dev);
}

int host_stopped_by(struct host *h)
{
	struct nvefs_stats st;

	nvefs_stats_get(h->fs, &st);
	return st.error;
}

uint32_t medium_claim(uint64_t *ret_nonce)
{
	struct nvefs_mmp_rec rec;
	struct nvefs_super sb;
	uint8_t block[4096] __attribute__((aligned(8)));
	const char *why;

	shared_read(&medium, 0, block);
	ck_assert_int_eq(nvefs_super_decode(block, 0, &sb, &why), 0);
	shared_read(&medium, NVEFS_CLAIM_PBLK, block);
	if (nvefs_mmp_decode(block, &sb, NVEFS_BT_CLAIM, &rec) != NVEFS_BLOCK_OK)
		return 0;
	if (ret_nonce)
		*ret_nonce = rec.nonce;
	return rec.state;
}

void host_pair(struct host *a, struct host *b, uint32_t interval_ms)
{
	medium_make(interval_ms);
	host_init(a, 0);
	host_init(b, 1);
	host_mount(a);
}

void medium_setup(void)
{
	nvefs_log_setup(keep_log, NVEFS_LOG_WARN);
	last_log[0] = '\0';
	shared_init(&medium);
}

void medium_teardown(void)
{
	shared_done(&medium);
}
