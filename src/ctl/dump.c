/* SPDX-License-Identifier: MIT */
/* dump.nvefs: look inside a file system that is not mounted. */
#include "ctl/dump.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "device/uri.h"
#include "format/layout.h"

static const struct command {
	const char *name;
	const char *arg; /* NULL: takes none */
	int (*run)(struct nvefs_dump *d, const char *arg);
	bool raw; /* looks at the device as it is, without opening the store */
} commands[] = {
	{"super", NULL, nvefs_dump_super, true},
	{"mmp", NULL, nvefs_dump_mmp, true},
	{"root", NULL, nvefs_dump_root, false},
	{"groups", NULL, nvefs_dump_groups, false},
	{"tree", NULL, nvefs_dump_tree, false},
	{"inode", "NUMBER|/PATH", nvefs_dump_inode, false},
	{"map", "NUMBER|/PATH", nvefs_dump_map, false},
	{"journal", NULL, nvefs_dump_journal, true},
	{"block", "PBLK", nvefs_dump_block, true},
};
#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char usage[] =
	"usage: dump.nvefs [--json] [--no-replay] TARGET [COMMAND [ARGUMENT]]\n"
	"Show what lies on TARGET, which must not be mounted. Nothing is changed.\n"
	"\n"
	"  super               superblock slots (without a command)\n"
	"  mmp                 claim and beat of multiple mount protection\n"
	"  root                the root block\n"
	"  groups              allocation groups\n"
	"  tree                every node of the tree with its items\n"
	"  inode NUMBER|/PATH  all items of one inode\n"
	"  map NUMBER|/PATH    segment maps of one file: extents and checksums\n"
	"  journal             headers and live groups of the journal\n"
	"  block PBLK          one block: header, and its bytes\n"
	"\n"
	"  --json              one JSON array instead of lines\n"
	"  --no-replay         show the metadata as it lies there, without what the journal still holds\n"
	"  -h, --help          this text\n"
	"  -V, --version       version\n"
	"\n"
	"TARGET, with its options after commas:\n";

struct dump_options {
	bool json, no_replay;
	const char *target, *arg;
	const struct command *command;
};

static int usage_error(const char *what, const char *text)
{
	fprintf(stderr, "dump.nvefs: %s: %s: see dump.nvefs --help\n", what, text);
	return 2;
}

static int parse_command(char **words, int n, struct dump_options *o)
{
	o->command = &commands[0];
	if (n < 1)
		return usage_error("no target", "name one");
	o->target = words[0];
	if (n == 1)
		return 0;
	for (size_t i = 0; i <= NCOMMANDS; i++) {
		if (i == NCOMMANDS)
			return usage_error(words[1], "unknown command");
		o->command = &commands[i];
		if (!strcmp(words[1], o->command->name))
			break;
	}
	o->arg = n > 2 ? words[2] : NULL;
	if (n > 3 || !o->arg != !o->command->arg)
		return usage_error(words[1], o->command->arg ? "takes one argument" : "takes no argument");
	return 0;
}

static int parse_options(int argc, char **argv, struct dump_options *o)
{
	static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {"json", no_argument, NULL, 'j'},
					      {"no-replay", no_argument, NULL, 'r'},
					      {0}};
	int opt;

	while ((opt = getopt_long(argc, argv, "hV", longs, NULL)) != -1) {
		switch (opt) {
		case 'h':
			printf("%s%s", usage, nvefs_dev_help());
			exit(0);
		case 'V':
			puts("dump.nvefs " NVEFS_VERSION);
			exit(0);
		case 'j':
			o->json = true;
			break;
		case 'r':
			o->no_replay = true;
			break;
		default:
			return usage_error("options", "unknown option");
		}
	}
	return parse_command(argv + optind, argc - optind, o);
}

/* Commands below the store still want the geometry: of the newest sound slot, when there is one. */
static int find_super(struct nvefs_dump *d)
{
	uint64_t nblks = nvefs_layout_blks(nvefs_dev_limits(d->dev)->nblks);
	void *buf = nvefs_buf_new(NVEFS_BLOCK_SIZE);

	if (!buf)
		return nvefs_error_set(&d->err, -ENOMEM, "%s: out of memory", d->target);
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS; i++) {
		uint64_t pblk = nvefs_super_slot_pblk(nblks, i);
		struct nvefs_super sb;
		const char *why;

		if (nvefs_queue_read(d->q, pblk, 1, buf) || nvefs_super_decode(buf, pblk, &sb, &why))
			continue;
		if (sb.nblks <= nvefs_dev_limits(d->dev)->nblks && (!d->have_sb || sb.seq > d->sb.seq)) {
			d->sb = sb;
			d->have_sb = true;
		}
	}
	nvefs_buf_free(buf);
	return 0;
}

static int open_store(struct nvefs_dump *d, bool no_replay)
{
	struct nvefs_store_opts opts = {
		.read_only = true, .no_recovery = no_replay, .replay_in_memory = !no_replay};
	int err = nvefs_store_open(d->dev, &opts, &d->st, &d->err);

	if (!err)
		d->sb = *nvefs_store_super(d->st);
	return err;
}

static int run(struct nvefs_dump *d, const struct dump_options *o)
{
	int err = find_super(d);

	if (!err && !o->command->raw)
		err = open_store(d, o->no_replay);
	if (!err && (o->command->run == nvefs_dump_journal || o->command->run == nvefs_dump_mmp) && !d->have_sb)
		err = nvefs_error_set(&d->err, -EUCLEAN, "%s: no superblock slot is sound: see fsck.nvefs -n",
				      d->target);
	if (!err)
		err = o->command->run(d, o->arg);
	if (d->json)
		puts(d->nprinted ? "\n]" : "[]");
	return err;
}

int main(int argc, char **argv)
{
	struct dump_options o = {0};
	struct nvefs_dump d = {0};
	struct nvefs_dev_open_opts open_opts = {.flags = NVEFS_OPEN_RDONLY};
	int err = parse_options(argc, argv, &o);

	if (err)
		return err;
	d.target = o.target;
	d.json = o.json;
	err = nvefs_dev_open(o.target, &open_opts, &d.dev, &d.err);
	if (!err)
		err = nvefs_target_confine(o.target, &d.err);
	if (!err) {
		err = nvefs_queue_init(d.dev, 0, &d.q);
		if (err)
			nvefs_error_set(&d.err, err, "%s: no queue: %s", o.target, strerror(-err));
		else
			err = run(&d, &o);
		nvefs_store_free(d.st);
		nvefs_queue_done(d.q);
		nvefs_dev_close(d.dev);
	}
	if (err)
		fprintf(stderr, "dump.nvefs: %s\n", d.err.text);
	return err ? 1 : 0;
}
