/* SPDX-License-Identifier: MIT */
/* mkfs.nvefs: make an empty file system on a target. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uuid/uuid.h>

#include <nvefs/format.h>
#include <nvefs/nvefs.h>

#include "base/buf.h"
#include "device/drive.h"
#include "device/uri.h"
#include "format/layout.h"
#include "fs/settings.h"
#include "probe.h"
#include "store/mmp.h"

#define WIPE_BLKS 256u /* 1 MiB at each end: where other formats keep what identifies them */

struct mkfs_options {
	struct nvefs_mkfs_opts fs;
	struct nvefs_settings_args settings;
	uint64_t size_bytes; /* 0: as the target is */
	bool mmp_force, force, dry_run, quiet;
	const char *target;
};

static const char usage[] =
	"usage: mkfs.nvefs [OPTIONS] TARGET\n"
	"Make an empty nvefs file system on TARGET.\n"
	"\n"
	"  -L LABEL         label, at most 63 bytes\n"
	"  -U UUID|random   identity of the file system; random otherwise\n"
	"  -s SIZE          make the regular file TARGET, or size it; k, M, G, T are powers of 1024\n"
	"  -J size=SIZE     journal of this size, 2M to 64M; by default a 64th of the target, 8M at least\n"
	"  --dedup=on|off   deduplication as later mounts have it by default; off otherwise\n"
	"  --metadata=dup|single\n"
	"                   two copies of each metadata block, or one; dup otherwise\n"
	"  -O mmp           multiple mount protection: for a device that several hosts can reach\n"
	"  -E mmp_update_interval=TIME\n"
	"                   with it: time between heartbeats, 100ms to 60s; 2s otherwise\n"
	"  --mmp=force      overwrite even what another host has mounted\n"
	"  -f               overwrite the file system or partition table that is there\n"
	"  -n               say what would be made, change nothing\n"
	"  -q               say nothing unless it fails\n"
	"  -h, --help       this text\n"
	"  -V, --version    version\n"
	"\n"
	"TARGET, with its options after commas:\n";

static void complain(const struct nvefs_error *err)
{
	fprintf(stderr, "mkfs.nvefs: %s\n", err->text);
}

/* As mke2fs(8) has it, with the one key that makes sense here. */
static int parse_journal(struct mkfs_options *o, const char *arg, struct nvefs_error *err)
{
	uint64_t bytes;

	if (strncmp(arg, "size=", 5) != 0 || !nvefs_value_size(arg + 5, &bytes))
		return nvefs_error_set(err, -EINVAL, "-J: '%s': write it as size=16M", arg);
	if (bytes % NVEFS_BLOCK_SIZE || bytes < (uint64_t)NVEFS_JOURNAL_MIN_BLKS * NVEFS_BLOCK_SIZE ||
	    bytes > (uint64_t)NVEFS_JOURNAL_MAX_BLKS * NVEFS_BLOCK_SIZE)
		return nvefs_error_set(err, -EINVAL, "-J: '%s': use 2M to 64M, in blocks of 4k", arg);
	o->fs.journal_blks = (uint32_t)(bytes / NVEFS_BLOCK_SIZE);
	return 0;
}

static int parse_one(struct mkfs_options *o, int opt, const char *arg, struct nvefs_error *err)
{
	switch (opt) {
	case 'L':
	case 'U':
	case 'O':
	case 'E':
		return nvefs_settings_parse(&o->settings, opt, arg, err);
	case 's':
		if (!nvefs_value_size(arg, &o->size_bytes) || !o->size_bytes)
			return nvefs_error_set(err, -EINVAL, "-s: '%s' is not a size: write it as 4G", arg);
		return 0;
	case 'J':
		return parse_journal(o, arg, err);
	case 'M':
		o->mmp_force = !strcmp(arg, "force");
		return o->mmp_force ? 0 : nvefs_error_set(err, -EINVAL, "--mmp: '%s': use force, or leave it out", arg);
	case 'd':
		if (!nvefs_value_on_off(arg, &o->fs.dedup))
			return nvefs_error_set(err, -EINVAL, "--dedup: '%s': use on or off", arg);
		return 0;
	case 'm':
		o->fs.metadata_single = !strcmp(arg, "single");
		if (!o->fs.metadata_single && strcmp(arg, "dup") != 0)
			return nvefs_error_set(err, -EINVAL, "--metadata: '%s': use dup or single", arg);
		return 0;
	case 'f':
		o->force = true;
		return 0;
	case 'n':
		o->dry_run = true;
		return 0;
	case 'q':
		o->quiet = true;
		return 0;
	}
	return nvefs_error_set(err, -EINVAL, "see mkfs.nvefs --help");
}

static int apply_settings(struct mkfs_options *o, struct nvefs_error *err)
{
	const struct nvefs_settings_args *s = &o->settings;

	if (s->mmp_interval_ms && s->mmp != NVEFS_ON)
		return nvefs_error_set(err, -EINVAL, "-E: mmp_update_interval is for -O mmp: give that as well");
	if (s->mmp == NVEFS_ON)
		o->fs.mmp_interval_ms = s->mmp_interval_ms ? s->mmp_interval_ms : NVEFS_MMP_DEFAULT_MS;
	if (s->have_uuid)
		o->fs.uuid = s->uuid;
	o->fs.label = s->label;
	return 0;
}

static int parse_options(int argc, char **argv, struct mkfs_options *o, struct nvefs_error *err)
{
	static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {"dedup", required_argument, NULL, 'd'},
					      {"metadata", required_argument, NULL, 'm'},
					      {"label", required_argument, NULL, 'L'},
					      {"uuid", required_argument, NULL, 'U'},
					      {"journal", required_argument, NULL, 'J'},
					      {"mmp", required_argument, NULL, 'M'},
					      {"size", required_argument, NULL, 's'},
					      {"force", no_argument, NULL, 'f'},
					      {"dry-run", no_argument, NULL, 'n'},
					      {"quiet", no_argument, NULL, 'q'},
					      {0}};
	int opt, ret;

	while ((opt = getopt_long(argc, argv, "L:U:s:J:O:E:fnqhV", longs, NULL)) != -1) {
		if (opt == 'h') {
			printf("%s%s", usage, nvefs_dev_help());
			exit(0);
		}
		if (opt == 'V') {
			puts("mkfs.nvefs " NVEFS_VERSION);
			exit(0);
		}
		ret = parse_one(o, opt, optarg, err);
		if (ret)
			return ret;
	}
	if (optind + 1 != argc)
		return nvefs_error_set(err, -EINVAL, "%s: see mkfs.nvefs --help",
				       optind == argc ? "no target is named" : "more than one target is named");
	o->target = argv[optind];
	return apply_settings(o, err);
}

/* Whether a file system fits into so many blocks, before any of them is changed. */
static int check_layout(const struct mkfs_options *o, uint64_t nblks, struct nvefs_error *err)
{
	struct nvefs_super sb;

	switch (nvefs_layout_make(nblks, o->fs.journal_blks, &sb)) {
	case 0:
		return 0;
	case -ENOSPC:
		return nvefs_error_set(err, -ENOSPC, "%s: has %llu bytes, too small: nvefs needs at least 64 MiB%s", o->target,
				       (unsigned long long)nblks * NVEFS_BLOCK_SIZE, o->size_bytes ? "" : ": give -s SIZE");
	case -EFBIG:
		return nvefs_error_set(err, -EFBIG, "%s: is larger than an nvefs can be: give -s SIZE", o->target);
	}
	return nvefs_error_set(err, -EINVAL, "%s: -J: the journal must end in the first half of the target: give less",
			       o->target);
}

/* Refuse what cannot work before anything is opened for writing. */
static int check_target(const struct mkfs_options *o, const struct nvefs_uri *uri, struct nvefs_error *err)
{
	int ret = o->size_bytes ? check_layout(o, o->size_bytes / NVEFS_BLOCK_SIZE, err) : 0;

	if (ret)
		return ret;
	if (uri->is_ram)
		return 0;
	if (!uri->exists && !o->size_bytes)
		return nvefs_error_set(err, -ENOENT, "%s: no such file or device: give -s SIZE to make a file",
				       uri->name);
	if (uri->exists && o->size_bytes && !S_ISREG(uri->st.st_mode))
		return nvefs_error_set(err, -EINVAL, "%s: is not a regular file: leave out -s", uri->name);
	if (uri->exists && !o->size_bytes && S_ISREG(uri->st.st_mode))
		return check_layout(o, (uint64_t)uri->st.st_size / NVEFS_BLOCK_SIZE, err);
	return 0;
}

struct waiting {
	const char *target;
	uint64_t said_ms;
};

static int tell_wait(void *arg, const struct nvefs_host_wait *w)
{
	struct waiting *waiting = arg;
	char text[512];

	if (nvefs_host_wait_text(w, &waiting->said_ms, text, sizeof(text)))
		fprintf(stderr, "mkfs.nvefs: %s: %s\n", waiting->target, text);
	return 0;
}

/* Another host may have it mounted: -f is not enough then. */
static int check_hosts(const struct mkfs_options *o, struct nvefs_dev *dev, struct nvefs_error *err)
{
	struct waiting waiting = {.target = o->target};
	const struct nvefs_mmp_opts mo = {.force = o->mmp_force,
					  .force_how = "--mmp=force",
					  .wait = tell_wait,
					  .wait_arg = &waiting};

	return nvefs_mmp_look(dev, &mo, err);
}

/* What is there, with the target locked while we look. Refuses unless forced. */
static int check_content(const struct mkfs_options *o, const struct nvefs_uri *uri, char *what, size_t len,
			 struct nvefs_error *err)
{
	struct nvefs_dev_open_opts open_opts = {.flags = NVEFS_OPEN_RDONLY};
	const char *path = S_ISCHR(uri->st.st_mode) ? NULL : uri->name;
	struct nvefs_dev *dev = NULL;
	int ret;

	what[0] = '\0';
	if (uri->is_ram || !uri->exists || (S_ISREG(uri->st.st_mode) && !uri->st.st_size))
		return 0;
	/* A file with no whole block cannot be opened as a device, but can be anything else. */
	if (!S_ISREG(uri->st.st_mode) || uri->st.st_size >= NVEFS_BLOCK_SIZE) {
		ret = nvefs_dev_open(o->target, &open_opts, &dev, err);
		if (ret)
			return ret;
		if (nvefs_dev_identity(dev)->block_node[0])
			path = nvefs_dev_identity(dev)->block_node;
	}
	ret = nvefs_probe_target(path, dev, what, len, err);
	if (!ret && what[0] && !o->force)
		ret = nvefs_error_set(err, -EEXIST, "%s: holds a file system already (%s): use -f to overwrite it",
				      uri->name, what);
	if (!ret && what[0] && dev && !o->dry_run)
		ret = check_hosts(o, dev, err);
	nvefs_dev_close(dev);
	return ret;
}

static int wipe_run(struct nvefs_queue *q, uint64_t pblk, uint32_t nblks, const void *zeros)
{
	return nblks ? nvefs_queue_write(q, pblk, nblks, zeros, 0) : 0;
}

/* Signatures of what was there before must not be found beside ours. */
static int wipe(struct nvefs_dev *dev, struct nvefs_error *err)
{
	uint64_t nblks = nvefs_dev_limits(dev)->nblks;
	uint32_t run = nblks < 2 * WIPE_BLKS ? (uint32_t)(nblks / 2) : WIPE_BLKS;
	void *zeros = nvefs_buf_new_zeroed((size_t)WIPE_BLKS * NVEFS_BLOCK_SIZE);
	struct nvefs_queue *q = NULL;
	int ret = zeros ? nvefs_queue_init(dev, 0, &q) : -ENOMEM;

	if (!ret)
		ret = wipe_run(q, 0, run, zeros);
	if (!ret)
		ret = wipe_run(q, nblks - run, run, zeros);
	if (!ret)
		ret = nvefs_queue_flush(q);
	nvefs_queue_done(q);
	nvefs_buf_free(zeros);
	if (ret)
		return nvefs_error_set(err, ret, "%s: old signatures cannot be wiped: %s",
				       nvefs_dev_identity(dev)->target, strerror(-ret));
	return 0;
}

static void report(const struct mkfs_options *o, const struct nvefs_dev *dev, const char *verb)
{
	char uuid[37] = "random", text[256];

	if (o->quiet)
		return;
	if (o->fs.uuid)
		uuid_unparse(o->fs.uuid, uuid);
	printf("mkfs.nvefs: %s: %s an nvefs, disk version %u, UUID %s%s%s, dedup %s, metadata %s%s\n", o->target,
	       verb,
	       NVEFS_DISK_VERSION, uuid, o->fs.label ? ", label " : "", o->fs.label ? o->fs.label : "",
	       o->fs.dedup ? "on" : "off", o->fs.metadata_single ? "single" : "dup",
	       o->fs.mmp_interval_ms ? ", multiple mount protection" : "");
	if (!dev)
		return;
	nvefs_dev_describe(dev, text, sizeof(text));
	printf("mkfs.nvefs: %s: %s\n", o->target, text);
}

static void print_fact(void *arg, const struct nvefs_fact *f)
{
	char label[64], text[1100];

	(void)arg;
	nvefs_fact_label(f, label, sizeof(label));
	nvefs_fact_text(f, text, sizeof(text));
	printf("  %-24s %s\n", label, text);
}

static void print_reported(void *arg, const struct nvefs_fact *f)
{
	if (nvefs_drive_fact_reported(f))
		print_fact(arg, f);
}

/* What the drive says of itself, for -n. */
static void report_drive(const struct mkfs_options *o, struct nvefs_dev *dev, const struct nvefs_drive_health *h)
{
	const struct nvefs_drive *drive = nvefs_dev_drive(dev);

	if (o->quiet)
		return;
	if (drive->scsi.there) {
		puts("SCSI");
		nvefs_drive_scsi_facts(drive, print_reported, NULL);
	}
	if (drive->nvme.there) {
		puts("NVMe");
		nvefs_drive_nvme_facts(drive, print_reported, NULL);
	}
	if (h) {
		puts("health");
		nvefs_drive_health_facts(h, print_fact, NULL);
	}
}

/* False: the drive does not say. What it warns of, and that it does not answer, goes to standard error. */
static bool ask_health(const struct mkfs_options *o, struct nvefs_dev *dev, struct nvefs_drive_health *ret)
{
	struct nvefs_error err = {""};
	int code = nvefs_dev_health(dev, ret, &err);
	uint16_t left = code ? 0 : ret->critical_warning;
	const char *warning;
	char wear[128];

	if (code && code != -ENOTSUP)
		fprintf(stderr, "mkfs.nvefs: warning: %s\n", err.text);
	while ((warning = nvefs_drive_warning(&left))) {
		nvefs_drive_wear_text(ret, wear, sizeof(wear));
		fprintf(stderr, "mkfs.nvefs: %s: warning: the drive's %s (%s)\n", o->target, warning, wear);
	}
	return !code;
}

static void warn_shared(const struct mkfs_options *o, const struct nvefs_dev *dev)
{
	const char *text = nvefs_shared_warning(dev, o->fs.mmp_interval_ms);

	if (text)
		fprintf(stderr, "mkfs.nvefs: %s: warning: %s\n", o->target, text);
}

static int make(struct mkfs_options *o, const struct nvefs_uri *uri, bool had_content, struct nvefs_error *err)
{
	struct nvefs_dev_open_opts open_opts = {.flags = o->size_bytes && !uri->is_ram ? NVEFS_OPEN_CREATE : 0,
						.create_bytes = o->size_bytes};
	struct nvefs_drive_health health;
	struct nvefs_dev *dev = NULL;
	int ret = nvefs_dev_open(o->target, &open_opts, &dev, err);

	if (ret)
		return ret;
	ask_health(o, dev, &health);
	/* Chosen here and not by the library, so that it can be told. */
	if (!o->fs.uuid)
		uuid_generate_random(o->settings.uuid);
	o->fs.uuid = o->settings.uuid;
	ret = check_layout(o, nvefs_dev_limits(dev)->nblks, err);
	if (!ret && had_content)
		ret = wipe(dev, err);
	if (!ret)
		ret = nvefs_mkfs(dev, &o->fs, err);
	if (!ret) {
		report(o, dev, "made");
		warn_shared(o, dev);
	}
	nvefs_dev_close(dev);
	if (ret && !uri->is_ram && !uri->exists)
		unlink(uri->name);
	return ret;
}

static int dry_run(const struct mkfs_options *o, const struct nvefs_uri *uri, struct nvefs_error *err)
{
	struct nvefs_dev_open_opts open_opts = {.flags = NVEFS_OPEN_RDONLY};
	struct nvefs_drive_health health;
	struct nvefs_dev *dev = NULL;
	int ret = 0;

	if (uri->is_ram || (uri->exists && !o->size_bytes))
		ret = nvefs_dev_open(o->target, &open_opts, &dev, err);
	if (!ret && dev)
		ret = check_layout(o, nvefs_dev_limits(dev)->nblks, err);
	if (!ret)
		report(o, dev, "would make");
	if (!ret && dev)
		report_drive(o, dev, ask_health(o, dev, &health) ? &health : NULL);
	if (!ret && dev)
		warn_shared(o, dev);
	nvefs_dev_close(dev);
	return ret;
}

int main(int argc, char **argv)
{
	struct mkfs_options o = {0};
	struct nvefs_error err = {""};
	struct nvefs_uri uri;
	char what[128];
	int ret;

	ret = parse_options(argc, argv, &o, &err);
	if (!ret)
		ret = nvefs_uri_parse(o.target, &uri, &err);
	if (!ret)
		ret = check_target(&o, &uri, &err);
	if (!ret)
		ret = check_content(&o, &uri, what, sizeof(what), &err);
	if (!ret)
		ret = o.dry_run ? dry_run(&o, &uri, &err) : make(&o, &uri, o.force || what[0], &err);
	if (!ret)
		return 0;
	complain(&err);
	return 1;
}
