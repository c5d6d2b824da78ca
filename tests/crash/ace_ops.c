/* SPDX-License-Identifier: MIT */
/* The operations, each on the file system and on the model. */
#include <errno.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "ace.h"
#include "fs/names.h"

#define NOT_NOW 1

const struct oracle_path ace_paths[ORACLE_NAMES] = {
    [ACE_F] = {-1, "f"},     [ACE_G] = {-1, "g"},     [ACE_A] = {-1, "A"},
    [ACE_B] = {-1, "B"},     [ACE_AF] = {ACE_A, "f"}, [ACE_AG] = {ACE_A, "g"},
    [ACE_BF] = {ACE_B, "f"}, [ACE_BG] = {ACE_B, "g"},
};

struct op {
	const char *name;
	int (*run)(struct ace *a, const struct op *op);
	int path, path2;
	uint64_t off, len, to;
	int arg;
};

void ace_block(uint8_t *p, uint32_t tag)
{
	uint32_t i;

	for (i = 0; i < 4096; i += 8)
		memcpy(p + i, &(uint64_t){((uint64_t)tag << 32 | i / 512) * UINT64_C(0x9e3779b97f4a7c15)},
		       8);
}

static int there(const struct ace *a, int path)
{
	return a->o.names[path];
}

static uint64_t ino_of(const struct ace *a, int file)
{
	return a->o.files[file].ino;
}

/* The directory of a path as the oracle numbers it; -1: it is not there. */
static int dir_of(const struct ace *a, int path)
{
	return ace_paths[path].dir < 0 ? a->root : there(a, ace_paths[path].dir);
}

static bool is_dir_path(int path)
{
	return path == ACE_A || path == ACE_B;
}

static int child(int dir_path, int k)
{
	return (dir_path == ACE_A ? ACE_AF : ACE_BF) + k;
}

static bool is_empty_dir(const struct ace *a, int path)
{
	return there(a, child(path, 0)) < 0 && there(a, child(path, 1)) < 0;
}

static const char *name_of(int path)
{
	return ace_paths[path].name;
}

static void begin(struct ace *a, const struct op *op)
{
	a->last_begun = nvefs_record_position(a->log);
	oracle_begin(&a->o, a->last_begun, "%s", op->name);
}

static int end(struct ace *a, int err)
{
	oracle_end(&a->o, nvefs_record_position(a->log));
	return err;
}

/* The name changed: what hangs on it, and in which directory. */
static void named(struct ace *a, int file, int dir)
{
	oracle_named(&a->o, file);
	oracle_named(&a->o, dir);
	a->target = file;
	a->dir = dir;
}

/* Without a name, nothing keeps it any more. */
static void forget_nameless(struct ace *a, int file)
{
	uint32_t i;

	for (i = 0; i < ORACLE_NAMES; i++)
		if (a->o.names[i] == file)
			return;
	nvefs_forget(a->w, ino_of(a, file), 1000);
}

static int op_create(struct ace *a, const struct op *op)
{
	struct nvefs_cred cred = {0};
	struct nvefs_attr attr;
	int dir = dir_of(a, op->path), err;

	if (dir < 0 || there(a, op->path) >= 0)
		return NOT_NOW;
	begin(a, op);
	if (is_dir_path(op->path))
		err = nvefs_mkdir(a->w, ino_of(a, dir), name_of(op->path), 1, 0755, &cred, &attr);
	else
		err = nvefs_mknod(a->w, ino_of(a, dir), name_of(op->path), 1, S_IFREG | 0644, 0,
				  &cred, &attr);
	if (!err) {
		a->o.names[op->path] = oracle_new_file(&a->o, attr.ino, is_dir_path(op->path));
		named(a, there(a, op->path), dir);
	}
	return end(a, err);
}

static int op_remove(struct ace *a, const struct op *op)
{
	int file = there(a, op->path), dir = dir_of(a, op->path), err;

	if (file < 0 || (is_dir_path(op->path) && !is_empty_dir(a, op->path)))
		return NOT_NOW;
	begin(a, op);
	if (is_dir_path(op->path))
		err = nvefs_rmdir(a->w, ino_of(a, dir), name_of(op->path), 1);
	else
		err = nvefs_unlink(a->w, ino_of(a, dir), name_of(op->path), 1);
	if (!err) {
		a->o.names[op->path] = -1;
		named(a, file, dir);
		forget_nameless(a, file);
	}
	return end(a, err);
}

static int op_link(struct ace *a, const struct op *op)
{
	int file = there(a, op->path), dir = dir_of(a, op->path2), err;
	struct nvefs_attr attr;

	if (file < 0 || dir < 0 || there(a, op->path2) >= 0)
		return NOT_NOW;
	begin(a, op);
	err = nvefs_link(a->w, ino_of(a, file), ino_of(a, dir), name_of(op->path2), 1, &attr);
	if (!err) {
		a->o.names[op->path2] = file;
		named(a, file, dir);
	}
	return end(a, err);
}

static void swap_names(struct ace *a, int x, int y)
{
	int tmp = a->o.names[x];

	a->o.names[x] = a->o.names[y];
	a->o.names[y] = tmp;
}

static void model_rename(struct ace *a, int from, int to, bool exchange)
{
	int k;

	swap_names(a, from, to);
	for (k = 0; is_dir_path(from) && k < 2; k++)
		swap_names(a, child(from, k), child(to, k));
	if (!exchange)
		a->o.names[from] = -1;
}

static bool can_rename(const struct ace *a, int from, int to, bool exchange)
{
	int file = there(a, from), old = there(a, to);

	if (file < 0 || dir_of(a, to) < 0 || file == old || (exchange && old < 0))
		return false;
	return exchange || !is_dir_path(to) || old < 0 || is_empty_dir(a, to);
}

static int op_rename(struct ace *a, const struct op *op)
{
	int dir = dir_of(a, op->path), dir2 = dir_of(a, op->path2), err;
	int file = there(a, op->path), old = there(a, op->path2);
	bool exchange = op->arg & 2;

	if (!can_rename(a, op->path, op->path2, exchange))
		return NOT_NOW;
	begin(a, op);
	err = nvefs_rename(a->w, ino_of(a, dir), name_of(op->path), 1, ino_of(a, dir2),
			   name_of(op->path2), 1, (uint32_t)op->arg);
	if (!err) {
		model_rename(a, op->path, op->path2, exchange);
		if (old >= 0)
			oracle_named(&a->o, old);
		oracle_named(&a->o, dir);
		named(a, file, dir2);
		if (old >= 0)
			forget_nameless(a, old);
	}
	return end(a, err);
}

/* ---- Data ---- */

static void target_file(struct ace *a, int path)
{
	a->target = there(a, path);
	a->dir = dir_of(a, path);
}

static void model_write(struct ace *a, int file, uint64_t off, const uint8_t *buf, uint64_t len)
{
	struct oracle_version *v = oracle_touch(&a->o, file);

	memcpy(v->bytes + off, buf, len);
	if (v->size < off + len)
		v->size = off + len;
}

enum { WRITE_NEW, WRITE_AS_F, WRITE_TWINS, WRITE_SYNC };

/*
 * With a failing device an operation that changes several blocks may end in between: each is old
 * or new. The model takes it as done and remembers the doubt.
 */
static bool maybe_done(struct ace *a, int file, int err)
{
	if (err && (err != -EIO || !a->fault))
		return false;
	if (err && !a->doubt[file])
		a->doubt[file] = a->o.files[file].nv;
	return true;
}

/* off UINT64_MAX: at the end. */
static int op_write(struct ace *a, const struct op *op)
{
	static uint8_t buf[ACE_MAX_BYTES];
	int file = there(a, op->path), err;
	uint64_t off = op->off, i;

	if (file < 0)
		return NOT_NOW;
	if (off == UINT64_MAX)
		off = oracle_newest(&a->o, file)->size;
	if (off + op->len > ACE_MAX_BYTES)
		return NOT_NOW;
	for (i = 0; i * 4096 < op->len; i++) {
		if (op->arg == WRITE_AS_F)
			ace_block(buf + i * 4096, 1 + (uint32_t)(i + off / 4096));
		else
			ace_block(buf + i * 4096, a->tag);
		a->tag += op->arg != WRITE_TWINS;
	}
	a->tag++;
	begin(a, op);
	if (op->arg == WRITE_SYNC) {
		a->o.ops[a->o.nops].durable_file = file;
		a->o.ops[a->o.nops].durable_names = (int)a->o.files[file].last_op;
	}
	err = h_write(a->w, ino_of(a, file), off, buf, op->len,
		      op->arg == WRITE_SYNC ? NVEFS_WRITE_SYNC : 0);
	if (!err)
		model_write(a, file, off, buf, op->len);
	target_file(a, op->path);
	return end(a, err);
}

static void count_down(struct nvefs_req *req)
{
	--*(uint32_t *)req->arg;
}

/* The write is under way while everything before it is made durable. */
static int op_write_beside_sync(struct ace *a, const struct op *op)
{
	static uint8_t buf[ACE_MAX_BYTES];
	int file = there(a, op->path);
	uint32_t left = 2;
	struct nvefs_req sync = {.op = NVEFS_REQ_SYNC, .done = count_down, .arg = &left};
	struct nvefs_req w = {.op = NVEFS_REQ_WRITE, .buf = buf, .done = count_down, .arg = &left};
	struct pollfd p = {.fd = nvefs_worker_fd(a->w), .events = POLLIN};
	uint64_t i;

	if (file < 0)
		return NOT_NOW;
	for (i = 0; i * 4096 < op->len; i++)
		ace_block(buf + i * 4096, a->tag++);
	w.ino = ino_of(a, file);
	w.off = op->off;
	w.len = op->len;
	begin(a, op);
	ace_slow(a, 3000000);
	nvefs_req_start(a->w, &w);
	nvefs_req_start(a->w, &sync);
	while (left)
		if (!nvefs_worker_run(a->w) && left && nvefs_worker_prepare_wait(a->w))
			poll(&p, 1, -1);
	ace_slow(a, 0);
	if (!w.err)
		model_write(a, file, op->off, buf, op->len);
	target_file(a, op->path);
	return end(a, w.err ? w.err : sync.err);
}

static int op_truncate(struct ace *a, const struct op *op)
{
	int file = there(a, op->path), err;
	struct oracle_version *v;

	if (file < 0)
		return NOT_NOW;
	begin(a, op);
	err = h_truncate(a->w, ino_of(a, file), op->off);
	if (maybe_done(a, file, err)) {
		v = oracle_touch(&a->o, file);
		if (op->off < v->size)
			memset(v->bytes + op->off, 0, v->size - op->off);
		v->size = op->off;
	}
	target_file(a, op->path);
	return end(a, err);
}

/* arg: the mode of fallocate. */
static int op_falloc(struct ace *a, const struct op *op)
{
	uint64_t stop = op->off + op->len;
	int file = there(a, op->path), err;
	struct oracle_version *v;

	if (file < 0)
		return NOT_NOW;
	begin(a, op);
	err = h_fallocate(a->w, ino_of(a, file), (uint32_t)op->arg, op->off, op->len);
	if (maybe_done(a, file, err)) {
		v = oracle_touch(&a->o, file);
		if (!(op->arg & FALLOC_FL_KEEP_SIZE) && v->size < stop)
			v->size = stop;
		if (stop > v->size)
			stop = v->size;
		if (op->arg & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && op->off < stop)
			memset(v->bytes + op->off, 0, stop - op->off);
	}
	target_file(a, op->path);
	return end(a, err);
}

static int op_clone(struct ace *a, const struct op *op)
{
	int from = there(a, op->path), to = there(a, op->path2);
	const struct oracle_version *s;
	int64_t got;

	if (from < 0 || to < 0)
		return NOT_NOW;
	s = oracle_newest(&a->o, from);
	if (op->off >= s->size || (from == to && op->off + op->len > op->to))
		return NOT_NOW;
	begin(a, op);
	got = h_copy(a->w, ino_of(a, from), op->off, ino_of(a, to), op->to, op->len);
	if (got > 0) {
		static uint8_t buf[ACE_MAX_BYTES];

		memcpy(buf, oracle_newest(&a->o, from)->bytes + op->off, (size_t)got);
		model_write(a, to, op->to, buf, (uint64_t)got);
	}
	target_file(a, op->path2);
	return end(a, got < 0 ? (int)got : 0);
}

/* ---- The rest ---- */

/* arg: length in bytes; 0: remove. The value is its number again and again. */
static int op_xattr(struct ace *a, const struct op *op)
{
	static uint16_t buf[8192];
	int file = there(a, op->path), err;
	uint16_t value = (uint16_t)(a->tag++ & 0x7fff);
	int i;

	if (file < 0 || (!op->arg && !a->o.files[file].xattr))
		return NOT_NOW;
	for (i = 0; i < op->arg / 2; i++)
		buf[i] = value;
	begin(a, op);
	if (op->arg)
		err = nvefs_setxattr(a->w, ino_of(a, file), "user.x", buf, (size_t)op->arg, 0);
	else
		err = nvefs_removexattr(a->w, ino_of(a, file), "user.x");
	if (!err) {
		a->o.files[file].xattr = op->arg ? value : 0;
		oracle_named(&a->o, file);
	}
	target_file(a, op->path);
	return end(a, err);
}

static int op_dedup(struct ace *a, const struct op *op)
{
	begin(a, op);
	return end(a, nvefs_dedup_switch(a->fs, op->arg));
}

#define END UINT64_MAX
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

static const struct op ops[] = {
    {"create g", op_create, ACE_G, 0, 0, 0, 0, 0},
    {"create A/g", op_create, ACE_AG, 0, 0, 0, 0, 0},
    {"create B/f", op_create, ACE_BF, 0, 0, 0, 0, 0},
    {"mkdir B", op_create, ACE_B, 0, 0, 0, 0, 0},
    {"unlink f", op_remove, ACE_F, 0, 0, 0, 0, 0},
    {"unlink g", op_remove, ACE_G, 0, 0, 0, 0, 0},
    {"unlink A/f", op_remove, ACE_AF, 0, 0, 0, 0, 0},
    {"rmdir A", op_remove, ACE_A, 0, 0, 0, 0, 0},
    {"rmdir B", op_remove, ACE_B, 0, 0, 0, 0, 0},
    {"link f g", op_link, ACE_F, ACE_G, 0, 0, 0, 0},
    {"link f A/g", op_link, ACE_F, ACE_AG, 0, 0, 0, 0},
    {"link A/f B/g", op_link, ACE_AF, ACE_BG, 0, 0, 0, 0},
    {"rename f g", op_rename, ACE_F, ACE_G, 0, 0, 0, 0},
    {"rename f A/f", op_rename, ACE_F, ACE_AF, 0, 0, 0, 0},
    {"rename A/f g", op_rename, ACE_AF, ACE_G, 0, 0, 0, 0},
    {"rename g f", op_rename, ACE_G, ACE_F, 0, 0, 0, 0},
    {"rename A B", op_rename, ACE_A, ACE_B, 0, 0, 0, 0},
    {"exchange f A/f", op_rename, ACE_F, ACE_AF, 0, 0, 0, RENAME_EXCHANGE},
    {"exchange A B", op_rename, ACE_A, ACE_B, 0, 0, 0, RENAME_EXCHANGE},
    {"overwrite f", op_write, ACE_F, 0, 0, 8192, 0, WRITE_NEW},
    {"overwrite part of f", op_write, ACE_F, 0, 1000, 5000, 0, WRITE_NEW},
    {"overwrite A/f", op_write, ACE_AF, 0, 4096, 4096, 0, WRITE_NEW},
    {"write g", op_write, ACE_G, 0, 0, 12288, 0, WRITE_NEW},
    {"append to f", op_write, ACE_F, 0, END, 100, 0, WRITE_NEW},
    {"append to A/f", op_write, ACE_AF, 0, END, 5000, 0, WRITE_NEW},
    {"write f, synchronous", op_write, ACE_F, 0, 4096, 4096, 0, WRITE_SYNC},
    {"overwrite f beside a sync", op_write_beside_sync, ACE_F, 0, 0, 8192, 0, 0},
    {"write f beyond its end", op_write, ACE_F, 0, 20480, 4096, 0, WRITE_NEW},
    {"write what f has to A/f", op_write, ACE_AF, 0, 0, 8192, 0, WRITE_AS_F},
    {"write what f has to g", op_write, ACE_G, 0, 0, 8192, 0, WRITE_AS_F},
    {"write twins to f", op_write, ACE_F, 0, 4096, 12288, 0, WRITE_TWINS},
    {"truncate f to 0", op_truncate, ACE_F, 0, 0, 0, 0, 0},
    {"truncate f to 5000", op_truncate, ACE_F, 0, 5000, 0, 0, 0},
    {"truncate f to 30000", op_truncate, ACE_F, 0, 30000, 0, 0, 0},
    {"truncate A/f to 4096", op_truncate, ACE_AF, 0, 4096, 0, 0, 0},
    {"punch a block of f", op_falloc, ACE_F, 0, 4096, 4096, 0, PUNCH},
    {"punch part of f", op_falloc, ACE_F, 0, 100, 5000, 0, PUNCH},
    {"zero part of A/f", op_falloc, ACE_AF, 0, 2000, 6000, 0, FALLOC_FL_ZERO_RANGE},
    {"allocate f, keep size", op_falloc, ACE_F, 0, 16384, 8192, 0, FALLOC_FL_KEEP_SIZE},
    {"allocate A/f", op_falloc, ACE_AF, 0, 4096, 16384, 0, 0},
    {"clone f to A/f", op_clone, ACE_F, ACE_AF, 0, 8192, 4096, 0},
    {"clone f to g", op_clone, ACE_F, ACE_G, 0, 12288, 0, 0},
    {"clone within f", op_clone, ACE_F, ACE_F, 0, 8192, 8192, 0},
    {"set attribute of f", op_xattr, ACE_F, 0, 0, 0, 0, 20},
    {"set long attribute of f", op_xattr, ACE_F, 0, 0, 0, 0, 3000},
    {"set huge attribute of g", op_xattr, ACE_G, 0, 0, 0, 0, 14000},
    {"set attribute of A", op_xattr, ACE_A, 0, 0, 0, 0, 200},
    {"remove attribute of f", op_xattr, ACE_F, 0, 0, 0, 0, 0},
    {"dedup off", op_dedup, 0, 0, 0, 0, 0, 0},
    {"dedup on", op_dedup, 0, 0, 0, 0, 0, 1},
};
const uint32_t ace_nops = sizeof(ops) / sizeof(ops[0]);

uint8_t ace_op_named(const char *name)
{
	uint32_t i = 0;

	while (strcmp(ops[i].name, name))
		i++;
	return (uint8_t)i;
}

const char *ace_op_name(uint32_t op)
{
	return ops[op].name;
}

/* One that failed promises nothing. */
static int end_durable(struct ace *a, struct oracle_op *op, int err)
{
	if (err)
		op->durable_names = op->durable_file = -1;
	return end(a, err);
}

static int do_sync(struct ace *a)
{
	struct oracle_op *op = oracle_begin(&a->o, nvefs_record_position(a->log), "sync");

	op->durable_names = (int)a->o.nops;
	op->durable_file = -2;
	return end_durable(a, op, h_sync(a->w));
}

static bool has_name(const struct ace *a, int file)
{
	uint32_t i;

	for (i = 0; i < ORACLE_NAMES; i++)
		if (a->o.names[i] == file)
			return true;
	return file == a->root;
}

/* What has no name any more is not there to be synced; its directory may be. */
static int do_fsync(struct ace *a, int file)
{
	struct oracle_op *op;

	if (file < 0 || !has_name(a, file))
		file = a->dir;
	if (file < 0 || !has_name(a, file))
		return do_sync(a);
	op = oracle_begin(&a->o, nvefs_record_position(a->log), "fsync of file %d", file);
	op->durable_names = (int)a->o.files[file].last_op;
	op->durable_file = a->o.files[file].dir ? -1 : file;
	return end_durable(a, op, h_fsync(a->w, ino_of(a, file)));
}

int ace_step_run(struct ace *a, struct ace_step s)
{
	int err = ops[s.op].run(a, &ops[s.op]);

	if (err)
		return err;
	nvefs_bg_drain(a->fs, UINT64_MAX);
	return ace_persist(a, s.persist);
}

int ace_persist(struct ace *a, uint8_t persist)
{
	switch (persist) {
	case ACE_FSYNC:
		return do_fsync(a, a->target);
	case ACE_FSYNC_DIR:
		return do_fsync(a, a->dir);
	case ACE_SYNC:
		return do_sync(a);
	default:
		return 0;
	}
}
