/* SPDX-License-Identifier: MIT */
/* The beginning, and one sequence from it to a power cut. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ace.h"
#include "device/embedded.h"
#include "device/wrap.h"
#include "fs/names.h"
#include "steady.h"

#define DEVICE_BLKS 16384u
#define JOURNAL_BLKS 512u
#define LEAVE_BLKS 60u
#define LEAVE_DUP_BLKS 120u /* what a request pledges for metadata is twice as much */
#define LOG_BYTES (64u << 20)
#define FIRST_TAG 100u
#define SECONDS 1700000000u
#define F_BYTES 10240u
#define AF_BYTES 8192u

static const uint32_t f_tags[] = {1, 2, 3}, af_tags[] = {1, 50};

int ace_device(const struct ace *a, struct nvefs_cow *layer, struct nvefs_dev **ret_dev)
{
	struct nvefs_embedded_options o;
	struct nvefs_media *media;
	int err = nvefs_media_cow_open(layer, false, &media);

	if (err)
		return err;
	nvefs_embedded_options_init(&o);
	o.ctrl.lba_bytes = a->cfg.lba_bytes;
	o.ctrl.vwc = a->cfg.vwc;
	o.ctrl.iu_bytes = a->cfg.tight ? 8192 : 4096; /* nearly every free block is in a run */
	return nvefs_embedded_open_media("ace", &o.ctrl, media, ret_dev, NULL);
}

static int write_tags(struct nvefs_worker *w, uint64_t ino, const uint32_t *tags, uint64_t len)
{
	uint8_t buf[3 * 4096];
	uint64_t i;

	for (i = 0; i * 4096 < len; i++)
		ace_block(buf + i * 4096, tags[i]);
	return h_write(w, ino, 0, buf, len, 0);
}

static int take_space(struct nvefs_worker *w, uint32_t leave)
{
	struct nvefs_statfs s;
	uint64_t ino;
	int err = h_create(w, "filler", &ino);

	if (!err)
		err = h_sync(w);
	if (!err)
		err = nvefs_statfs(w, &s);
	return err ? err : h_fallocate(w, ino, 0, 0, (s.avail_blks - leave) * 4096);
}

static int populate(struct ace *a, struct nvefs_worker *w)
{
	struct nvefs_cred cred = {0};
	struct nvefs_attr attr;
	uint64_t f;
	int err = h_create(w, "f", &f);

	if (!err)
		err = write_tags(w, f, f_tags, F_BYTES);
	if (!err)
		err = nvefs_mkdir(w, NVEFS_ROOT_INO, "A", 1, 0755, &cred, &attr);
	a->f_ino = f;
	a->a_ino = attr.ino;
	if (!err)
		err = nvefs_mknod(w, attr.ino, "f", 1, S_IFREG | 0644, 0, &cred, &attr);
	if (!err)
		err = write_tags(w, attr.ino, af_tags, AF_BYTES);
	a->af_ino = attr.ino;
	return !err && a->cfg.tight ? take_space(w, a->cfg.single ? LEAVE_BLKS : LEAVE_DUP_BLKS) : err;
}

int ace_base_make(struct ace *a)
{
	static const uint8_t uuid[16] = "crash states";
	struct nvefs_mkfs_opts mk = {.hash_seed = 7,
				     .journal_blks = JOURNAL_BLKS,
				     .uuid = uuid,
				     .metadata_single = a->cfg.single};
	struct nvefs_error e = {{0}};
	struct nvefs_worker *w = NULL;
	struct nvefs_dev *dev;
	struct nvefs_fs *fs;
	int err, rc;

	steady_set(SECONDS, 1);
	a->opts = (struct nvefs_mount_opts){.dedup = a->cfg.dedup ? NVEFS_ON : NVEFS_OFF,
					    .dedup_bytes = 256 << 10,
					    .cache_bytes = 16 << 20,
					    .commit_interval_s = 3600,
					    .fua_commit = a->cfg.fua,
					    .discard = a->cfg.discard};
	a->base = nvefs_cow_new(NULL, DEVICE_BLKS);
	if (!a->base)
		return -ENOMEM;
	err = ace_device(a, a->base, &dev);
	if (!err)
		err = nvefs_mkfs(dev, &mk, &e);
	if (!err)
		err = nvefs_mount(dev, &a->opts, &fs, &e);
	if (err)
		return err;
	err = nvefs_worker_open(fs, &w);
	if (!err)
		err = populate(a, w);
	nvefs_worker_close(w);
	rc = nvefs_unmount(fs);
	return err ? err : rc;
}

void ace_base_free(struct ace *a)
{
	nvefs_cow_free(a->base);
	a->base = NULL;
}

static int model_file(struct ace *a, uint64_t ino, const uint32_t *tags, uint64_t size)
{
	int file = oracle_new_file(&a->o, ino, false);
	struct oracle_version *v = oracle_newest(&a->o, file);
	uint64_t i;

	for (i = 0; i * 4096 < size; i++)
		ace_block(v->bytes + i * 4096, tags[i]);
	memset(v->bytes + size, 0, a->o.max_bytes - size);
	v->size = size;
	return file;
}

/* What populate made, durable from the start; a lookup keeps each in memory, if it can be. */
static void begin_model(struct ace *a)
{
	struct oracle_op *op;
	struct nvefs_attr attr;

	nvefs_lookup(a->w, NVEFS_ROOT_INO, "f", 1, &attr);
	nvefs_lookup(a->w, NVEFS_ROOT_INO, "A", 1, &attr);
	nvefs_lookup(a->w, a->a_ino, "f", 1, &attr);
	oracle_init(&a->o, ace_paths, ACE_MAX_BYTES);
	op = oracle_begin(&a->o, 0, "beginning");
	op->durable_names = (int)a->o.nops;
	op->durable_file = -2;
	a->root = oracle_new_file(&a->o, NVEFS_ROOT_INO, true);
	a->o.names[ACE_F] = model_file(a, a->f_ino, f_tags, F_BYTES);
	a->o.names[ACE_A] = oracle_new_file(&a->o, a->a_ino, true);
	a->o.names[ACE_AF] = model_file(a, a->af_ino, af_tags, AF_BYTES);
	oracle_end(&a->o, 0);
	a->target = a->dir = -1;
	a->tag = FIRST_TAG;
}

/* Asked for explicitly, it is the data that is late; the journal is not. */
int ace_slow(struct ace *a, uint64_t delay_ns)
{
	struct nvefs_fault f = {.op = NVEFS_FAULT_ANY,
				.action = NVEFS_FAULT_DELAY,
				.every = 1,
				.delay_ns = delay_ns ? delay_ns : a->cfg.delay_ns,
				.seed = delay_ns ? 0 : 1};

	if (delay_ns) {
		f.op = NVEFS_IO_WRITE;
		f.first_pblk = NVEFS_JOURNAL_PBLK + JOURNAL_BLKS;
		f.end_pblk = DEVICE_BLKS;
	}
	nvefs_fault_clear(a->slow);
	return f.delay_ns ? nvefs_fault_add(a->slow, &f) : 0;
}

/* From the medium up: delay, record, route. */
static int stack(struct ace *a, struct nvefs_dev *dev, struct nvefs_dev **ret_dev)
{
	struct nvefs_dev *top;
	int err;

	err = nvefs_fault_wrap(dev, NULL, 0, &top);
	if (err)
		goto close;
	dev = a->slow = top;
	err = a->fault ? nvefs_fault_add(a->slow, a->fault) : ace_slow(a, 0);
	if (err)
		goto close;
	err = nvefs_record_wrap_on(dev, a->base, LOG_BYTES, &top, &a->log);
	if (err)
		goto close;
	dev = top;
	if (a->cfg.route == NVEFS_ROUTE_SCSI) {
		err = nvefs_scsi_wrap(dev, &top, NULL);
		if (err)
			goto close;
		dev = top;
	}
	*ret_dev = dev;
	return 0;
close:
	nvefs_dev_close(dev);
	return err;
}

int ace_start(struct ace *a, struct nvefs_cow *layer, struct nvefs_error *e)
{
	struct nvefs_dev *dev;
	int err = ace_device(a, layer, &dev);

	a->log = NULL;
	a->fs = NULL;
	a->w = NULL;
	memset(&a->o, 0, sizeof(a->o));
	memset(a->doubt, 0, sizeof(a->doubt));
	steady_set(SECONDS, 2);
	if (!err)
		err = stack(a, dev, &dev);
	if (err)
		return err;
	err = nvefs_mount(dev, &a->opts, &a->fs, e);
	if (err) {
		nvefs_dev_close(dev);
		a->fs = NULL;
		return err;
	}
	err = nvefs_worker_open(a->fs, &a->w);
	if (!err)
		begin_model(a);
	return err;
}

static int steps_run(struct ace *a, const struct ace_step *steps, uint32_t n, uint32_t *ret_done)
{
	uint32_t i;
	int err = 0;

	for (i = 0; !err && i < n; i++) {
		steady_set(SECONDS + 1 + i, 2 + i);
		err = ace_step_run(a, steps[i]);
		if (err == 1 && a->lenient)
			err = 0;
		*ret_done = i + (err == 0);
	}
	/* How far an operation came that found no space is not known. */
	a->full = err == -ENOSPC && a->cfg.tight;
	return a->full ? 0 : err;
}

int ace_sequence_run(struct ace *a, const struct ace_step *steps, uint32_t n, uint32_t *ret_done)
{
	struct nvefs_cow *layer = nvefs_cow_new(a->base, DEVICE_BLKS);
	int err = layer ? 0 : -ENOMEM;

	struct nvefs_error e = {{0}};

	*ret_done = 0;
	a->log = NULL;
	a->fs = NULL;
	a->w = NULL;
	memset(&a->o, 0, sizeof(a->o));
	if (!err)
		err = ace_start(a, layer, &e);
	if (!err)
		err = steps_run(a, steps, n, ret_done);
	nvefs_worker_close(a->w);
	if (a->fs)
		nvefs_abandon(a->fs);
	nvefs_cow_free(layer);
	return err;
}

void ace_sequence_done(struct ace *a)
{
	nvefs_record_free(a->log);
	a->log = NULL;
	oracle_done(&a->o);
}
