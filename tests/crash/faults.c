/* SPDX-License-Identifier: MIT */
/*
 * Devices that fail, one command at a time. A mixed workload runs again and again;
 * in each run one fault hits: the n-th command of a kind, or that and all that
 * follow, or every n-th, for every n there is, from mount on.
 *
 *	faults [--seconds N] [--stride N] [--kind NAME] [--only MODE.N] [--config TEXT] [--verbose]
 *
 * A fault that the device reports: each call gives 0, EIO or, once the file system is
 * read-only, EROFS; a single fault fails one call, or ends writing, which is said in one
 * message; then no fsync succeeds any more. Without that, everything goes on as if
 * nothing had been. When the device is well again all that was not refused is there, no
 * space is lost, and after a new mount all that was synced; the check finds nothing.
 *
 * A fault that it does not report: what is read is right or an error, never anything else; an
 * error says what it met. After a new mount a whole step back in time is possible when
 * a write was lost, and counted; nothing else is.
 *
 * --kind, --only and --config repeat one run, as a violation tells it.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ace.h"
#include "base/log.h"
#include "base/thread.h"
#include "fsck/check.h"
#include "judge.h"
#include "nvme/status.h"

#define WATCHDOG_S 120u
#define DEVICE_BLKS 16384u
#define MAX_LOG 8192u

enum mode { ONCE, FROM, EVERY, MODES };
static const char *const mode_names[] = {"once", "from", "every"};

struct kind {
	const char *name;
	bool silent;
	struct nvefs_fault fault;
};

static const struct kind kinds[] = {
    {"read-error",
     false,
     {.op = NVEFS_IO_READ, .action = NVEFS_FAULT_FAIL, .status = NVEFS_NVME_SC_READ_ERROR}},
    {"write-error",
     false,
     {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_FAIL, .status = NVEFS_NVME_SC_WRITE_FAULT}},
    {"write-error-done",
     false,
     {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_FAIL_AFTER, .status = NVEFS_NVME_SC_INTERNAL}},
    {"flush-error",
     false,
     {.op = NVEFS_IO_FLUSH, .action = NVEFS_FAULT_FAIL, .status = NVEFS_NVME_SC_INTERNAL}},
    {"time-out",
     false,
     {.op = NVEFS_FAULT_ANY, .action = NVEFS_FAULT_FAIL_AFTER, .err = -ETIMEDOUT}},
    {"time-out-late",
     false,
     {.op = NVEFS_FAULT_ANY, .action = NVEFS_FAULT_TIMEOUT, .err = -ETIMEDOUT, .late_cmds = 30}},
    {"torn-write",
     false,
     {.op = NVEFS_IO_WRITE,
      .action = NVEFS_FAULT_TEAR,
      .status = NVEFS_NVME_SC_WRITE_FAULT,
      .seed = 3}},
    {"torn-silently", true, {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_TEAR, .seed = 5}},
    {"dropped-write", true, {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_DROP}},
    {"misdirected",
     true,
     {.op = NVEFS_IO_WRITE, .action = NVEFS_FAULT_MISDIRECT, .distance_blks = 37}},
    {"stale-read", true, {.op = NVEFS_IO_READ, .action = NVEFS_FAULT_STALE}},
    {"bit-flip", true, {.op = NVEFS_IO_READ, .action = NVEFS_FAULT_FLIP, .seed = 7}},
};
#define NKINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Between the operations everything is read, too. */
static const struct {
	const char *op;
	uint8_t persist;
} work[] = {
    {"overwrite f", ACE_NOTHING},
    {"create g", ACE_FSYNC},
    {"write what f has to g", ACE_NOTHING},
    {"set huge attribute of g", ACE_SYNC},
    {"mkdir B", ACE_FSYNC_DIR},
    {"overwrite part of f", ACE_FSYNC},
    {"clone f to A/f", ACE_NOTHING},
    {"exchange A B", ACE_SYNC},
    {"create A/g", ACE_NOTHING},
    {"rename f A/f", ACE_FSYNC},
    {"unlink g", ACE_SYNC},
    {"append to A/f", ACE_NOTHING},
    {"punch part of f", ACE_NOTHING},
    {"create g", ACE_NOTHING},
    {"write g", ACE_FSYNC},
    {"rename g f", ACE_NOTHING},
    {"write twins to f", ACE_SYNC},
    {"truncate f to 5000", ACE_FSYNC},
    {"allocate f, keep size", ACE_NOTHING},
    {"write f beyond its end", ACE_FSYNC},
    {"set attribute of f", ACE_FSYNC},
    {"link f A/g", ACE_NOTHING},
    {"link f g", ACE_FSYNC_DIR},
    {"dedup off", ACE_NOTHING},
    {"overwrite f", ACE_FSYNC},
    {"dedup on", ACE_NOTHING},
    {"truncate f to 30000", ACE_NOTHING},
    {"clone within f", ACE_FSYNC},
    {"zero part of A/f", ACE_NOTHING},
    {"unlink g", ACE_SYNC},
    {"remove attribute of f", ACE_NOTHING},
    {"rename f g", ACE_FSYNC_DIR},
    {"write g", ACE_NOTHING},
    {"rename g f", ACE_SYNC},
    {"truncate f to 0", ACE_FSYNC},
};
#define NWORK (sizeof(work) / sizeof(work[0]))

struct run {
	const struct kind *kind;
	enum mode mode;
	uint64_t n;
	struct ace a;
	struct judge j;
	struct nvefs_cow *layer;
	bool verbose;
	/* this run */
	uint32_t failed;     /* calls that gave an error */
	bool was_ro;	     /* writing had ended before the present call */
	bool blind;	     /* data could not be read after an operation on it had failed */
	char said[MAX_LOG];  /* all messages */
	char why[1600];
	/* all runs */
	uint64_t runs, hits, refused, read_only, errors, harmless, back, mounts_failed;
};

static struct run r;
static struct nvefs_mutex said_lock;
static char label[160];

static void note(enum nvefs_log_level level, const char *line)
{
	size_t at;

	if (level > NVEFS_LOG_WARN)
		return;
	nvefs_mutex_lock(&said_lock);
	at = strlen(r.said);
	snprintf(r.said + at, sizeof(r.said) - at, "%s\n", line);
	nvefs_mutex_unlock(&said_lock);
}

static void hung(int sig)
{
	ssize_t n = write(2, label, strlen(label));

	(void)sig;
	(void)n;
	n = write(2, ": hangs\n", 8);
	abort();
}

static bool bad(const char *what, int err)
{
	if (!r.why[0])
		snprintf(r.why, sizeof(r.why), "%s: %d", what, err);
	return false;
}

static int store_error(void)
{
	struct nvefs_stats st;

	nvefs_stats_get(r.a.fs, &st);
	return st.error;
}

static bool is_allowed(int err)
{
	if (!err || err == -EIO)
		return true;
	if (err == -EROFS)
		return r.was_ro || store_error(); /* the commit thread may have met it since the last call */
	return r.kind->silent && err == -EUCLEAN;
}

/* One call came back. */
static bool judge_call(const char *what, int err, bool durable)
{
	if (!is_allowed(err))
		return bad(what, err);
	r.failed += err != 0;
	if (durable && !err && r.was_ro)
		return bad("claims to be durable after writing had ended", 0);
	r.was_ro = store_error() != 0;
	return true;
}

/* ---- The workload ---- */

/* Each block as in the newest version; of a file in doubt, as in one since then. */
static bool is_right(int file, const uint8_t *buf, uint64_t n)
{
	const struct oracle_file *f = &r.a.o.files[file];
	uint32_t first = r.a.doubt[file] ? r.a.doubt[file] - 1 : f->nv - 1, i;
	uint64_t off, len;

	for (off = 0; off < n; off += len) {
		len = n - off < 4096 ? n - off : 4096;
		for (i = first; i < f->nv; i++)
			if (f->v[i].size >= off + len && !memcmp(buf + off, f->v[i].bytes + off, len))
				break;
		if (i == f->nv)
			return false;
	}
	return true;
}

/* Right, or an error. */
static bool read_file(uint32_t path)
{
	static uint8_t buf[ACE_MAX_BYTES + 4096];
	int file = r.a.o.names[path], err;
	uint64_t ino;
	int64_t n;
	struct nvefs_attr a;

	if (file < 0 || r.a.o.files[file].dir)
		return true;
	ino = r.a.o.files[file].ino;
	err = nvefs_getattr(r.a.w, ino, &a);
	if (err)
		return judge_call("getattr", err, false);
	if (!r.blind && a.size != oracle_newest(&r.a.o, file)->size)
		return bad("the size is another one", (int)path);
	n = h_read(r.a.w, ino, 0, buf, sizeof(buf));
	if (n < 0)
		return judge_call("read", (int)n, false);
	if ((uint64_t)n > a.size || (!r.blind && !is_right(file, buf, (uint64_t)n)))
		return bad("a read gives something else than was written", (int)path);
	/* A short read ends before a block that cannot be read; read from there says why. */
	if ((uint64_t)n < a.size)
		n = h_read(r.a.w, ino, (uint64_t)n, buf, 1);
	return n < 0 ? judge_call("read", (int)n, false) : true;
}

static bool read_all(void)
{
	uint32_t i;

	for (i = 0; i < ORACLE_NAMES; i++)
		if (!read_file(i))
			return false;
	return true;
}

/*
 * A failed operation on a file's data: what it left counts from now on, each block old or new. When that
 * cannot be read either, nothing is known of the file's data in this run.
 */
static bool settle(int file)
{
	static uint8_t buf[ACE_MAX_BYTES];
	struct oracle_version *v;
	struct nvefs_attr a;
	uint64_t size;
	int64_t n;

	if (!r.a.doubt[file])
		return true;
	v = oracle_newest(&r.a.o, file);
	size = v[-1].size;
	n = nvefs_getattr(r.a.w, r.a.o.files[file].ino, &a);
	if (!n)
		n = h_read(r.a.w, r.a.o.files[file].ino, 0, buf, sizeof(buf));
	if (n < 0 || (uint64_t)n != a.size) {
		r.blind = true;
		return true;
	}
	if (a.size != v->size && a.size != size)
		return bad("a failed operation leaves a size that is neither old nor new", file);
	if (!is_right(file, buf, a.size))
		return bad("a failed operation leaves a block that is neither old nor new", file);
	memset(v->bytes, 0, ACE_MAX_BYTES);
	memcpy(v->bytes, buf, a.size);
	v->size = a.size;
	r.a.doubt[file] = 0;
	return true;
}

static bool work_run(void)
{
	uint32_t i;

	for (i = 0; i < NWORK; i++) {
		struct ace_step s = {ace_op_named(work[i].op), ACE_NOTHING};
		int err = ace_step_run(&r.a, s);

		if (r.verbose && err)
			fprintf(stderr, "%s: %s: %d\n", label, work[i].op, err);
		/* An operation that needs one that failed has nothing to work on. */
		if (err != 1 && !judge_call(work[i].op, err, false))
			return false;
		if (err == -EIO && r.a.target >= 0 && !settle(r.a.target))
			return false;
		if (work[i].persist != ACE_NOTHING) {
			err = ace_persist(&r.a, work[i].persist);
			if (!judge_call("fsync", err, true))
				return false;
		}
		if (i % 3 == 2 && !read_all())
			return false;
	}
	return true;
}

/* ---- Afterwards, with a device that is well again ---- */

static uint32_t count_said(const char *text)
{
	const char *p = r.said;
	uint32_t n = 0;

	while ((p = strstr(p, text))) {
		n++;
		p += strlen(text);
	}
	return n;
}

/* The newest of everything, as a reader sees it now. */
static bool compare_live(void)
{
	struct oracle_op *op = oracle_begin(&r.a.o, UINT32_MAX - 1, "now");
	bool ok;

	op->durable_names = (int)r.a.o.nops;
	op->durable_file = r.blind ? -1 : -2;
	oracle_end(&r.a.o, UINT32_MAX - 1);
	judge_begin(&r.j, &r.a.o, &r.a.opts);
	ok = judge_compare(&r.j, r.a.w, UINT32_MAX - 1);
	r.a.o.nops--;
	return ok ? true : bad(r.j.why, 0);
}

static bool free_blks(struct nvefs_worker *w, uint64_t *ret)
{
	struct nvefs_statfs s;
	int err = h_sync(w);

	if (!err)
		err = nvefs_statfs(w, &s);
	*ret = s.free_blks;
	return err ? bad("sync of a device that is well again", err) : true;
}

/* Everything is as it should be in the running file system. */
static bool check_live(uint64_t *ret_free)
{
	bool ended = store_error() != 0;
	uint32_t said, i;

	/* The commit thread may be just about to say it. */
	said = count_said("read-only from now on");
	for (i = 0; said != ended && i < 1000; i++) {
		usleep(1000);
		ended = store_error() != 0;
		said = count_said("read-only from now on");
	}
	*ret_free = 0;
	if (said != ended)
		return bad("messages that it is read-only", (int)said);
	r.read_only += ended;
	if (r.mode == ONCE && !ended && !r.kind->silent && r.failed > 1)
		return bad("one fault failed more than one call", (int)r.failed);
	if (!r.kind->silent && !compare_live())
		return false;
	if (r.kind->silent)
		return read_all();
	if (ended)
		return h_sync(r.a.w) ? true : bad("sync succeeds after writing has ended", 0);
	return free_blks(r.a.w, ret_free);
}

static bool remount(uint64_t want_free)
{
	struct nvefs_mount_opts mo = r.a.opts;
	struct nvefs_error e = {{0}};
	struct nvefs_worker *w;
	struct nvefs_dev *dev;
	struct nvefs_fs *fs;
	uint64_t is_free;
	bool ok;

	if (ace_device(&r.a, r.layer, &dev) || !judge_check(&r.j, dev, "after the faults"))
		return bad(r.j.why, 0);
	if (ace_device(&r.a, r.layer, &dev) || nvefs_mount(dev, &mo, &fs, &e))
		return bad(e.text, 0);
	nvefs_worker_open(fs, &w);
	judge_begin(&r.j, &r.a.o, &r.a.opts);
	ok = judge_compare(&r.j, w, UINT32_MAX - 1) || bad(r.j.why, 0);
	ok = ok && free_blks(w, &is_free);
	/* What a time-out left in doubt is out of use until here. */
	if (ok && want_free && is_free != want_free && r.kind->fault.err != -ETIMEDOUT)
		ok = bad("blocks that a new mount finds free", (int)(is_free - want_free));
	nvefs_worker_close(w);
	if (nvefs_unmount(fs) && ok)
		ok = bad("unmount", 0);
	return ok;
}

/* ---- A device that lied ---- */

static bool is_named(const char *text)
{
	static const char *const words[] = {"checksum", "corrupt", "misdirected", "stale",
					    "damaged", "missing", "lost", "never written",
					    "not a metadata block", "newer than expected"};
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(text, words[i]))
			return true;
	return false;
}

/* Names and blocks as after some operations, or an error. *ret_back: older than was durable. */
static bool compare_after_lies(struct nvefs_worker *w, bool *ret_damaged, bool *ret_back)
{
	uint32_t first = 1, last = r.a.o.nops, i;
	bool ok = false;

	judge_begin(&r.j, &r.a.o, &r.a.opts);
	r.j.why[0] = '\0';
	if (judge_compare(&r.j, w, UINT32_MAX - 1))
		return true;
	/* An error is an answer. */
	*ret_damaged = r.j.err == -EIO || r.j.err == -EUCLEAN;
	if (*ret_damaged)
		return true;
	if (r.kind->fault.op == NVEFS_IO_READ)
		return bad(r.j.why, 0);
	/* A step back: as at an earlier time, with no promise kept since. */
	for (i = first; i < last; i++) {
		r.a.o.ops[i].durable_names = -1;
		r.a.o.ops[i].durable_file = -1;
	}
	r.a.o.ops[1].durable_names = 1;
	r.a.o.ops[1].durable_file = -2;
	r.j.why[0] = '\0';
	ok = judge_compare(&r.j, w, UINT32_MAX - 1) || r.j.err == -EIO || r.j.err == -EUCLEAN;
	*ret_back = ok;
	return ok ? true : bad(r.j.why, 0);
}

static bool remount_after_lies(void)
{
	struct nvefs_mount_opts mo = r.a.opts;
	struct nvefs_error e = {{0}};
	struct nvefs_check_opts co = {.replay_in_memory = true, .data = true};
	struct nvefs_check_result cr;
	struct nvefs_worker *w;
	struct nvefs_dev *dev;
	struct nvefs_fs *fs;
	bool ok, damaged = false, back = false;
	int err, check_err;

	if (ace_device(&r.a, r.layer, &dev))
		return bad("device", 0);
	check_err = nvefs_check(dev, &co, &cr, &e);
	nvefs_dev_close(dev);
	if (ace_device(&r.a, r.layer, &dev))
		return bad("device", 0);
	mo.read_only = true;
	err = nvefs_mount(dev, &mo, &fs, &e);
	if (err) {
		nvefs_dev_close(dev);
		r.mounts_failed++;
		return is_named(e.text) || is_named(r.said) || bad(e.text, err);
	}
	nvefs_worker_open(fs, &w);
	ok = compare_after_lies(w, &damaged, &back);
	nvefs_worker_close(w);
	nvefs_unmount(fs);
	r.back += back;
	if (damaged && !check_err && !cr.problems)
		ok = bad("what cannot be read is no problem for the check", 0);
	return ok;
}

/* ---- One run ---- */

static void fault_fill(struct nvefs_fault *f)
{
	*f = r.kind->fault;
	f->nth = r.n;
	f->every = r.mode == ONCE ? 0 : r.mode == FROM ? 1 : r.n;
}

/* The mount itself met the fault. */
static bool mount_failed(int err, const struct nvefs_error *e)
{
	r.refused++;
	if (r.kind->silent && (err == -EUCLEAN || err == -EMEDIUMTYPE))
		return is_named(e->text) || is_named(r.said) || bad(e->text, err);
	return err == -EIO || err == r.kind->fault.err || bad(e->text, err);
}

static bool finish(bool mounted)
{
	uint64_t is_free = 0;
	bool ok = true, ended;
	uint32_t i;
	int err;

	for (i = 2; r.blind && i < r.a.o.nops; i++)
		r.a.o.ops[i].durable_file = -1;
	if (mounted) {
		/* What is written home at the end may go astray, too. */
		if (!r.kind->silent || r.kind->fault.op != NVEFS_IO_WRITE)
			nvefs_fault_clear(r.a.slow);
		ok = check_live(&is_free);
		ended = store_error() != 0;
		nvefs_worker_close(r.a.w);
		err = nvefs_unmount(r.a.fs);
		if (ok && !r.kind->silent && !err == ended)
			ok = bad("unmount", err);
	}
	if (ok && r.failed && r.kind->silent && !is_named(r.said))
		ok = bad("an error that nobody explained", 0);
	r.errors += r.failed != 0;
	r.harmless += !r.failed;
	if (!ok || !r.a.o.nops)
		return ok;
	return r.kind->silent ? remount_after_lies() : remount(is_free);
}

/* False: a violation. *ret_hit: the fault met a command. */
static bool run_once(bool *ret_hit)
{
	struct nvefs_error e = {{0}};
	struct nvefs_fault f;
	bool ok = true;
	int err;

	fault_fill(&f);
	snprintf(label, sizeof(label), "faults: %s %s.%llu%s%s", r.kind->name, mode_names[r.mode],
		 (unsigned long long)r.n, r.a.cfg.dedup ? " dedup" : "",
		 r.a.cfg.route == NVEFS_ROUTE_SCSI ? " scsi" : "");
	alarm(WATCHDOG_S);
	r.failed = 0;
	r.was_ro = r.blind = false;
	r.said[0] = r.why[0] = r.j.why[0] = '\0';
	r.layer = nvefs_cow_new(r.a.base, DEVICE_BLKS);
	r.a.fault = &f;
	err = ace_start(&r.a, r.layer, &e);
	*ret_hit = true;
	if (err) {
		ok = mount_failed(err, &e);
	} else {
		ok = work_run();
		*ret_hit = nvefs_fault_hits(r.a.slow) != 0;
	}
	r.runs++;
	r.hits += *ret_hit;
	ok = finish(!err) && ok;
	if (!ok)
		fprintf(stderr, "%s: %s\n  messages:\n%s", label, r.why, r.said);
	ace_sequence_done(&r.a);
	nvefs_cow_free(r.layer);
	return ok;
}

/* All n of one kind and mode, every stride-th, until one is beyond the last command. */
static bool run_mode(uint32_t stride, uint64_t deadline_ns)
{
	bool hit = true, ok = true;

	for (r.n = 1 + (r.runs % stride); ok && hit && judge_now_ns() < deadline_ns; r.n += stride)
		ok = run_once(&hit);
	return ok;
}

/* ---- Options ---- */

struct options {
	uint64_t seconds;
	uint32_t stride;
	const char *kind, *only, *config;
};

static bool run_kind(const struct kind *k, const struct options *o, uint64_t deadline_ns)
{
	bool ok = true, hit;
	uint64_t before = r.runs;
	uint32_t m;

	r.kind = k;
	for (m = 0; m < MODES && ok; m++) {
		size_t len = strlen(mode_names[m]);

		r.mode = (enum mode)m;
		if (!o->only) {
			ok = run_mode(o->stride, deadline_ns);
		} else if (!strncmp(o->only, mode_names[m], len) && o->only[len] == '.') {
			r.n = strtoull(o->only + len + 1, NULL, 0);
			ok = run_once(&hit);
			fprintf(stderr, "%s: hit %d, failed calls %u\n%s", label, hit, r.failed, r.said);
		}
	}
	if (r.verbose)
		printf("  %s: %llu runs\n", k->name, (unsigned long long)(r.runs - before));
	return ok;
}

static bool run_config(uint32_t config, const struct options *o, uint64_t deadline_ns)
{
	uint64_t start = judge_now_ns(), slice = (deadline_ns - start) / NKINDS;
	bool ok = true;
	size_t i;

	r.a.cfg = (struct ace_config){.dedup = config & 1,
				      .vwc = true,
				      .lba_bytes = 512,
				      .route = config & 2 ? NVEFS_ROUTE_SCSI : NVEFS_ROUTE_NATIVE};
	if (ace_base_make(&r.a))
		return bad("the beginning", 0);
	for (i = 0; i < NKINDS && ok; i++)
		if (!o->kind || !strcmp(o->kind, kinds[i].name))
			ok = run_kind(&kinds[i], o, o->kind ? deadline_ns : start + (i + 1) * slice);
	ace_base_free(&r.a);
	return ok;
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option opts[] = {{"seconds", 1, 0, 't'}, {"stride", 1, 0, 's'},
					     {"kind", 1, 0, 'k'},    {"only", 1, 0, 'o'},
					     {"config", 1, 0, 'c'},  {"verbose", 0, 0, 'v'},
					     {0}};
	int c;

	while ((c = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (c == 't')
			o->seconds = strtoull(optarg, NULL, 0);
		else if (c == 's')
			o->stride = (uint32_t)strtoul(optarg, NULL, 0);
		else if (c == 'k')
			o->kind = optarg;
		else if (c == 'o')
			o->only = optarg;
		else if (c == 'c')
			o->config = optarg;
		else if (c == 'v')
			r.verbose = true;
		else
			return -EINVAL;
	}
	return o->stride ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	static const char *const configs[] = {"native", "native,dedup", "scsi", "scsi,dedup"};
	struct options o = {.seconds = 3600, .stride = 1};
	uint64_t start = judge_now_ns();
	bool ok = true;
	uint32_t c;

	if (parse(argc, argv, &o) || judge_init(&r.j, NULL))
		return 2;
	nvefs_mutex_init(&said_lock);
	nvefs_log_setup(note, NVEFS_LOG_WARN);
	nvefs_ratelimit_lift();
	signal(SIGALRM, hung);
	for (c = 0; c < 4 && ok; c++)
		if (!o.config || !strcmp(o.config, configs[c]))
			ok = run_config(c, &o,
					start + o.seconds * 1000000000u * (o.config ? 4 : c + 1) / 4);
	printf("faults: %llu runs, %llu hit: %llu mounts refused, %llu read-only, %llu with errors, %llu "
	       "without; lies: %llu later mounts refused, %llu steps back in time; %.1f s: %s\n",
	       (unsigned long long)r.runs, (unsigned long long)r.hits, (unsigned long long)r.refused,
	       (unsigned long long)r.read_only, (unsigned long long)r.errors,
	       (unsigned long long)r.harmless, (unsigned long long)r.mounts_failed,
	       (unsigned long long)r.back, (double)(judge_now_ns() - start) / 1e9,
	       ok ? "no violation" : "VIOLATED");
	judge_done(&r.j);
	return !ok;
}
