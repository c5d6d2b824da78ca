/* SPDX-License-Identifier: MIT */
/*
 * A whole image with damage in its metadata: mounted and worked on, checked,
 * repaired, dumped.
 *
 * Two images are made at the start, one that was unmounted and one whose journal
 * is full. Input: one byte that chooses the image and what is done with it; then
 * records of 8 bytes, each a change: a metadata block (by its number among them),
 * how, a position, a value. Blocks get a good checksum afterwards unless the record
 * says otherwise: an accident seldom has one, an attacker always.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/calls.h"
#include "ctl/dump.h"
#include "base/log.h"
#include "device/cow.h"
#include "device/embedded.h"
#include "format/block.h"
#include "fsck/check.h"
#include "store/state.h"
#include "target.h"

const char fuzz_name[] = "image";

#define NBLKS 16384u /* 64 MiB */
#define META_MAX 2048u
#define RECORD 8u

#define DO_MOUNT 2u
#define DO_CHECK 4u
#define DO_MEND 8u
#define DO_DUMP 16u
#define DO_READ_ONLY 32u
#define DO_DEDUP 64u

enum how { SET, ADD, COPY, ZERO, SWAP, RAW, HOWS };

static struct image {
	struct nvefs_cow *base;
	uint16_t meta[META_MAX];
	uint32_t nmeta;
} images[2];

static const struct nvefs_mount_opts small = {.cache_bytes = 1 << 20, .dedup_bytes = 4096, .commit_interval_s = 3600};

static struct nvefs_dev *open_cow(struct nvefs_cow *cow)
{
	struct nvefs_embedded_options o;
	struct nvefs_media *media;
	struct nvefs_error err = {""};
	struct nvefs_dev *dev;

	nvefs_embedded_options_init(&o);
	PROMISE(!nvefs_media_cow_open(cow, false, &media));
	PROMISE(!nvefs_embedded_open_media("fuzz", &o.ctrl, media, &dev, &err));
	return dev;
}

/* ---- The images ---- */

static void fill(struct nvefs_worker *w)
{
	const struct nvefs_cred cred = {0, 0, 022};
	static uint8_t buf[300000];
	struct nvefs_attr a;
	char name[32];
	uint64_t ino;

	memset(buf, 'b', sizeof(buf));
	for (uint32_t i = 0; i < sizeof(buf); i += 4096)
		buf[i] = (uint8_t)(i >> 12);
	PROMISE(!nvefs_mkdir(w, 1, "dir", 3, 0755, &cred, &a));
	for (uint32_t i = 0; i < 150; i++) {
		int len = snprintf(name, sizeof(name), "some file %u", i);

		PROMISE(!nvefs_mknod(w, a.ino, name, (size_t)len, S_IFREG | 0644, 0, &cred, &(struct nvefs_attr){0}));
	}
	PROMISE(!nvefs_symlink(w, 1, "link", 4, "dir/some file 1", &cred, &a));
	PROMISE(!h_create(w, "big", &ino));
	PROMISE(!h_write(w, ino, 0, buf, sizeof(buf), 0));
	PROMISE(!h_create(w, "sparse", &ino));
	PROMISE(!h_write(w, ino, 5000000, buf, 9000, 0));
	PROMISE(!h_fallocate(w, ino, 0, 100000, 100000));
	PROMISE(!nvefs_setxattr(w, ino, "user.small", "value", 5, 0));
	PROMISE(!nvefs_setxattr(w, ino, "user.large", buf, 6000, 0));
	PROMISE(!h_create(w, "same", &ino));
	PROMISE(!h_write(w, ino, 0, buf, 100000, 0));
	PROMISE(!nvefs_tmpfile(w, 1, 0600, &cred, &a));
	PROMISE(!h_sync(w));
	PROMISE(!h_unlink(w, "same"));
	PROMISE(!h_sync(w));
}

static void find_meta(struct image *im)
{
	for (uint32_t pblk = 0; pblk < NBLKS && im->nmeta < META_MAX; pblk++)
		if (le32_get(((const struct nvefs_disk_header *)nvefs_cow_block(im->base, pblk))->magic) == NVEFS_MAGIC)
			im->meta[im->nmeta++] = (uint16_t)pblk;
	PROMISE(im->nmeta > 10);
}

static void images_make(void)
{
	const struct nvefs_mkfs_opts mkfs = {.label = "fuzz", .journal_blks = 512, .uuid = (const uint8_t *)"0123456789abcdef",
					     .hash_seed = 1, .dedup = true};

	for (int i = 0; i < 2; i++) {
		struct nvefs_mount_opts mo = small;
		struct nvefs_error err = {""};
		struct nvefs_worker *w;
		struct nvefs_fs *fs;
		struct nvefs_dev *dev;

		images[i].base = nvefs_cow_new(NULL, NBLKS);
		PROMISE(images[i].base);
		dev = open_cow(images[i].base);
		PROMISE(!nvefs_mkfs(dev, &mkfs, &err) && !nvefs_mount(dev, &mo, &fs, &err));
		PROMISE(!nvefs_worker_open(fs, &w));
		fill(w);
		nvefs_worker_close(w);
		if (i)
			nvefs_abandon(fs);
		else
			PROMISE(!nvefs_unmount(fs));
		find_meta(&images[i]);
	}
}

/* ---- Damage ---- */

static void put(struct nvefs_cow *cow, uint32_t pblk, const uint8_t *block)
{
	PROMISE(!nvefs_cow_write(cow, (uint64_t)pblk * NVEFS_BLOCK_BYTES, NVEFS_BLOCK_BYTES, block, 0));
}

static void damage(const struct image *im, struct nvefs_cow *cow, const uint8_t rec[RECORD])
{
	uint64_t room[NVEFS_BLOCK_BYTES / 8], other[NVEFS_BLOCK_BYTES / 8];
	uint32_t pblk = im->meta[(uint32_t)(rec[0] | rec[1] << 8) % im->nmeta];
	uint32_t from = im->meta[(uint32_t)(rec[5] | rec[6] << 8) % im->nmeta];
	uint32_t at = (uint32_t)(rec[3] | rec[4] << 8) % NVEFS_BLOCK_BYTES;
	uint8_t *block = (uint8_t *)room;

	memcpy(room, nvefs_cow_block(cow, pblk), sizeof(room));
	memcpy(other, nvefs_cow_block(cow, from), sizeof(other));
	switch (rec[2] % HOWS) {
	case SET:
	case RAW:
		block[at] = rec[5];
		break;
	case ADD:
		block[at] = (uint8_t)(block[at] + (int8_t)rec[5]);
		break;
	case COPY: /* the body of another block, under this one's header */
		memcpy(block + sizeof(struct nvefs_disk_header), (uint8_t *)other + sizeof(struct nvefs_disk_header),
		       NVEFS_BLOCK_BYTES - sizeof(struct nvefs_disk_header));
		break;
	case ZERO:
		memset(block, 0, NVEFS_BLOCK_BYTES);
		put(cow, pblk, block);
		return;
	case SWAP:
		put(cow, from, block);
		put(cow, pblk, (uint8_t *)other);
		return;
	}
	if (rec[2] % HOWS != RAW)
		nvefs_block_seal(block);
	put(cow, pblk, block);
}

/* ---- What is done with it ---- */

struct seen {
	uint64_t ino[64];
	uint32_t n, entries;
};

static int collect(void *arg, const char *name, size_t len, const struct nvefs_attr *attr, uint64_t next)
{
	struct seen *s = arg;

	(void)name;
	PROMISE(len >= 1 && len <= 255);
	PROMISE(next);
	if (s->n < 64)
		s->ino[s->n++] = attr->ino;
	return ++s->entries > 2000;
}

static void look_at(struct nvefs_worker *w, uint64_t ino)
{
	static uint8_t buf[20000];
	struct nvefs_attr a;
	uint64_t off = 0;
	size_t len;

	if (nvefs_getattr(w, ino, &a))
		return;
	(void)h_read(w, ino, 0, buf, sizeof(buf));
	(void)h_read(w, ino, a.size > 4096 ? a.size - 4096 : 0, buf, 8192);
	for (int i = 0; i < 8 && !nvefs_seek(w, ino, off, i % 2 ? SEEK_HOLE : SEEK_DATA, &off); i++)
		;
	(void)nvefs_listxattr(w, ino, (char *)buf, sizeof(buf), &len);
	(void)nvefs_getxattr(w, ino, "user.large", buf, sizeof(buf), &len);
	(void)nvefs_readlink(w, ino, (char *)buf, sizeof(buf), &len);
}

static void change(struct nvefs_worker *w, uint64_t dir, uint64_t ino)
{
	const struct nvefs_cred cred = {0, 0, 022};
	static const uint8_t buf[9000] = "data";
	struct nvefs_attr a;

	(void)h_write(w, ino, 3000, buf, sizeof(buf), 0);
	(void)h_fallocate(w, ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192);
	(void)h_truncate(w, ino, 100);
	(void)nvefs_setxattr(w, ino, "user.new", buf, 100, 0);
	(void)nvefs_removexattr(w, ino, "user.large");
	if (!nvefs_mknod(w, dir, "new", 3, S_IFREG | 0644, 0, &cred, &a))
		(void)h_copy(w, ino, 0, a.ino, 0, 8192);
	(void)nvefs_rename(w, dir, "new", 3, dir, "link", 4, 0);
	(void)nvefs_unlink(w, dir, "big", 3);
	(void)nvefs_unlink(w, dir, "some file 3", 11);
}

static bool use(struct nvefs_cow *cow, uint8_t what)
{
	struct nvefs_mount_opts mo = small;
	struct nvefs_dev *dev = open_cow(cow);
	struct nvefs_error err = {""};
	struct nvefs_worker *w;
	struct seen s = {.n = 1, .ino = {1}};
	struct nvefs_fs *fs;
	uint64_t trimmed;

	mo.read_only = what & DO_READ_ONLY;
	mo.replay_in_memory = mo.read_only;
	mo.dedup = what & DO_DEDUP ? NVEFS_ON : NVEFS_OFF;
	if (nvefs_mount(dev, &mo, &fs, &err)) {
		PROMISE(err.text[0]);
		nvefs_dev_close(dev);
		return false;
	}
	PROMISE(!nvefs_worker_open(fs, &w));
	for (uint32_t i = 0; i < s.n && s.entries < 2000; i++) {
		(void)nvefs_readdir(w, s.ino[i], 0, false, collect, &s);
		look_at(w, s.ino[i]);
	}
	for (uint32_t i = 0; i < s.n && i < 8; i++)
		change(w, s.ino[i], s.ino[s.n - 1 - i]);
	(void)nvefs_trim(w, 0, UINT64_MAX, 0, &trimmed);
	(void)h_sync(w);
	nvefs_worker_close(w);
	return !nvefs_unmount(fs);
}

static bool check(struct nvefs_cow *cow, enum nvefs_repair repair, struct nvefs_check_result *ret)
{
	const struct nvefs_check_opts opts = {
		.repair = repair, .replay_in_memory = repair == NVEFS_REPAIR_NONE, .data = true};
	struct nvefs_dev *dev = open_cow(cow);
	struct nvefs_error err = {""};
	int code = nvefs_check(dev, &opts, ret, &err);

	PROMISE(!code || err.text[0]);
	nvefs_dev_close(dev);
	return !code;
}

/* What was mended stays mended: the second look finds what the first one had left, and no more. */
static void mend(struct nvefs_cow *cow)
{
	struct nvefs_check_result first, second;

	if (!check(cow, NVEFS_REPAIR_ALL, &first))
		return;
	if (!first.left)
		PROMISE(check(cow, NVEFS_REPAIR_NONE, &second) && !second.problems);
}

static void dump(struct nvefs_cow *cow)
{
	const struct nvefs_store_opts opts = {.read_only = true, .replay_in_memory = true};
	struct nvefs_dump d = {.target = "fuzz", .json = true, .dev = open_cow(cow)};

	PROMISE(!nvefs_queue_init(d.dev, 0, &d.q));
	(void)nvefs_dump_super(&d, NULL);
	if (!nvefs_store_open(d.dev, &opts, &d.st, &d.err)) {
		d.sb = *nvefs_store_super(d.st);
		d.have_sb = true;
		(void)nvefs_dump_root(&d, NULL);
		(void)nvefs_dump_journal(&d, NULL);
		(void)nvefs_dump_groups(&d, NULL);
		(void)nvefs_dump_tree(&d, NULL);
		(void)nvefs_dump_inode(&d, "/dir");
		(void)nvefs_dump_map(&d, "/big");
	}
	nvefs_store_free(d.st);
	nvefs_queue_done(d.q);
	nvefs_dev_close(d.dev);
}

int fuzz_one(const uint8_t *data, size_t size)
{
	struct nvefs_check_result res = {0};
	const struct image *im;
	struct nvefs_cow *cow;
	bool sound = true;

	if (!size || size > FUZZ_INPUT_MAX)
		return 0;
	if (!images[0].base) {
		nvefs_log_setup(nvefs_log_discard, NVEFS_LOG_ERR);
		images_make();
		/* What is dumped is not looked at. */
		PROMISE(freopen("/dev/null", "w", stdout));
	}
	im = &images[data[0] & 1];
	cow = nvefs_cow_new(im->base, NBLKS);
	PROMISE(cow);
	for (size_t at = 1; at + RECORD <= size && at < 1 + 16 * RECORD; at += RECORD)
		damage(im, cow, data + at);
	if (data[0] & DO_DUMP)
		dump(cow);
	if (data[0] & DO_CHECK)
		sound = check(cow, NVEFS_REPAIR_NONE, &res) && !res.problems;
	if (data[0] & DO_MEND)
		mend(cow);
	if (data[0] & DO_MOUNT)
		sound = use(cow, data[0]) && sound;
	nvefs_cow_free(cow);
	return sound;
}

size_t fuzz_seed(unsigned int number, uint8_t *ret_input)
{
	static const uint8_t seeds[] = {
		DO_CHECK, DO_CHECK | 1, DO_MOUNT, DO_MOUNT | 1, DO_MOUNT | DO_READ_ONLY, DO_MOUNT | DO_DEDUP,
		DO_MOUNT | DO_DEDUP | 1, DO_DUMP | DO_CHECK, DO_MEND | DO_MOUNT, DO_MEND | DO_CHECK | 1,
	};

	if (number >= sizeof(seeds))
		return 0;
	ret_input[0] = seeds[number];
	/* A change of nothing, for variations to start from: a byte made bigger by 0. */
	memset(ret_input + 1, 0, 2 * RECORD);
	ret_input[1 + 2] = ret_input[1 + RECORD + 2] = ADD;
	return 1 + 2 * RECORD;
}
