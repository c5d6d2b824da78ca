/* SPDX-License-Identifier: MIT */
#include "fuse/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Kept for libfuse and the kernel. A trailing '=' means that a value follows. */
static const char *const fuse_words[] = {
	"allow_other", "allow_root", "auto_unmount", "default_permissions", "max_read=",
	"ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "async", "sync", "dirsync",
	"noatime", "nodiratime", "context=", "fscontext=", "defcontext=", "rootcontext=",
};

/* Words of fstab and mount(8) that mean nothing to a file system, or that are the default here. */
static const char *const ignored_words[] = {
	"defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev",
	"nofail", "relatime", "norelatime", "strictatime", "nostrictatime", "lazytime", "nolazytime",
	"atime", "diratime", "silent", "loud", "nomand", "iversion", "noiversion", "symfollow",
};
static const char *const ignored_prefixes[] = {"x-", "X-", "comment=", "user=", "uhelper=", "helper="};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool word_in(const char *const *words, size_t n, const char *word)
{
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(words[i]);

		if (words[i][len - 1] == '=' ? strncmp(words[i], word, len) == 0 : strcmp(words[i], word) == 0)
			return true;
	}
	return false;
}

static bool has_prefix(const char *word)
{
	for (size_t i = 0; i < COUNT(ignored_prefixes); i++)
		if (strncmp(word, ignored_prefixes[i], strlen(ignored_prefixes[i])) == 0)
			return true;
	return false;
}

int nvefs_options_add(struct nvefs_options *o, const char *word, const char *value)
{
	size_t old = o->fuse_opts ? strlen(o->fuse_opts) : 0;
	size_t need = old + strlen(word) + 3 + (value ? 2 * strlen(value) : 0);
	char *s = realloc(o->fuse_opts, need);
	char *p;

	if (!s)
		return -ENOMEM;
	o->fuse_opts = s;
	p = s + old;
	if (old)
		*p++ = ',';
	p = stpcpy(p, word);
	if (value) {
		*p++ = '=';
		for (; *value; value++) {
			if (*value == ',' || *value == '\\')
				*p++ = '\\';
			*p++ = *value;
		}
	}
	*p = '\0';
	return 0;
}

/* A number with an optional suffix k, M, G, T. */
static int parse_size(const char *text, uint64_t *ret)
{
	static const char suffixes[] = "kmgt";
	unsigned long long v;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	if (*end) {
		const char *s = strchr(suffixes, *end | 0x20);
		unsigned int shift;

		if (!s || !*s || end[1])
			return -EINVAL;
		shift = 10 * (unsigned int)(s - suffixes + 1);
		if (v > UINT64_MAX >> shift)
			return -EINVAL;
		v <<= shift;
	}
	*ret = v;
	return 0;
}

static int parse_number(const char *text, uint64_t min, uint64_t max, uint32_t *ret)
{
	uint64_t v;

	if (parse_size(text, &v) || v < min || v > max)
		return -EINVAL;
	*ret = (uint32_t)v;
	return 0;
}

static int parse_switch(const char *text, enum nvefs_switch *ret)
{
	if (strcmp(text, "on") == 0)
		*ret = NVEFS_ON;
	else if (strcmp(text, "off") == 0)
		*ret = NVEFS_OFF;
	else
		return -EINVAL;
	return 0;
}

static int set_route(struct nvefs_options *o, const char *v)
{
	if (strcmp(v, "native") == 0)
		o->route = NVEFS_ROUTE_NATIVE;
	else if (strcmp(v, "scsi") == 0)
		o->route = NVEFS_ROUTE_SCSI;
	else
		return -EINVAL;
	return 0;
}
static int set_dedup(struct nvefs_options *o, const char *v)
{
	return parse_switch(v, &o->mount.dedup);
}
static int set_dedup_mem(struct nvefs_options *o, const char *v)
{
	return parse_size(v, &o->mount.dedup_bytes);
}
static int set_cache(struct nvefs_options *o, const char *v)
{
	return parse_size(v, &o->mount.cache_bytes);
}
static int set_queues(struct nvefs_options *o, const char *v)
{
	return parse_number(v, 1, NVEFS_MAX_SERVERS, &o->queues);
}
static int set_mmp(struct nvefs_options *o, const char *v)
{
	o->mount.mmp_force = strcmp(v, "force") == 0;
	return o->mount.mmp_force ? 0 : -EINVAL;
}
static int set_commit(struct nvefs_options *o, const char *v)
{
	return parse_number(v, 1, 3600, &o->mount.commit_interval_s);
}

static const struct {
	const char *name; /* with '=' */
	int (*set)(struct nvefs_options *o, const char *value);
	const char *want;
} valued[] = {
	{"route=", set_route, "native or scsi"},
	{"dedup=", set_dedup, "on or off"},
	{"dedup_mem=", set_dedup_mem, "a size such as 64M"},
	{"cache=", set_cache, "a size such as 128M"},
	{"queues=", set_queues, "a number from 1 to 64"},
	{"commit=", set_commit, "seconds from 1 to 3600"},
	{"mmp=", set_mmp, "force, or leave it out"},
};

static int one_valued(struct nvefs_options *o, const char *word, struct nvefs_error *err)
{
	for (size_t i = 0; i < COUNT(valued); i++) {
		size_t len = strlen(valued[i].name);

		if (strncmp(word, valued[i].name, len) != 0)
			continue;
		if (valued[i].set(o, word + len))
			return nvefs_error_set(err, -EINVAL, "option '%s': use %s", word, valued[i].want);
		return 0;
	}
	return -ENOENT;
}

static int one_option(struct nvefs_options *o, const char *word, struct nvefs_error *err)
{
	int e = one_valued(o, word, err);

	if (e != -ENOENT)
		return e;
	if (strcmp(word, "remount") == 0)
		return nvefs_error_set(err, -EINVAL,
				       "option 'remount': not supported: unmount, then mount with the new options");
	if (strcmp(word, "norecovery") == 0)
		o->mount.no_recovery = true;
	else if (strcmp(word, "discard") == 0 || strcmp(word, "nodiscard") == 0)
		o->mount.discard = word[0] == 'd';
	else if (strcmp(word, "fua") == 0 || strcmp(word, "nofua") == 0)
		o->mount.fua_commit = word[0] == 'f';
	else if (word_in(fuse_words, COUNT(fuse_words), word)) {
		if (strcmp(word, "ro") == 0 || strcmp(word, "rw") == 0)
			o->mount.read_only = word[1] == 'o';
		if (strcmp(word, "noatime") == 0)
			o->mount.noatime = true;
		return nvefs_options_add(o, word, NULL);
	} else if (strcmp(word, "relatime") == 0)
		o->mount.noatime = false;
	else if (!word_in(ignored_words, COUNT(ignored_words), word) && !has_prefix(word) && !o->sloppy)
		return nvefs_error_set(err, -EINVAL, "unknown option '%s': see nvefs(8)", word);
	return 0;
}

static int option_list(struct nvefs_options *o, const char *list, struct nvefs_error *err)
{
	char *copy = strdup(list), *rest = copy, *word;
	int e = 0;

	if (!copy)
		return nvefs_error_set(err, -ENOMEM, "out of memory");
	while (!e && (word = strsep(&rest, ",")))
		if (*word)
			e = one_option(o, word, err);
	free(copy);
	return e;
}

/* Long options are few: --help, --version. Returns 1 when `arg` was one. */
static int long_option(struct nvefs_options *o, const char *arg, struct nvefs_error *err)
{
	if (strncmp(arg, "--", 2) != 0 || !arg[2])
		return 0;
	if (strcmp(arg, "--help") == 0)
		o->show_help = true;
	else if (strcmp(arg, "--version") == 0)
		o->show_version = true;
	else
		return nvefs_error_set(err, -EINVAL, "unknown option '%s': see --help", arg);
	return 1;
}

static int short_option(struct nvefs_options *o, int c, const char *value, bool as_mount, struct nvefs_error *err)
{
	switch (c) {
	case 'o':
		return option_list(o, value, err);
	case 'f':
		*(as_mount ? &o->fake : &o->foreground) = true;
		return 0;
	case 'd':
		o->debug = o->foreground = true;
		return 0;
	case 'h':
		o->show_help = true;
		return 0;
	case 'V':
		o->show_version = true;
		return 0;
	case 'v':
		o->verbose = true;
		return 0;
	case 'r':
		return option_list(o, "ro", err);
	case 'w':
		return option_list(o, "rw", err);
	case 's':
		o->sloppy = true;
		return 0;
	case 'n': /* no /etc/mtab; there is none */
	case 't':
	case 'N':
		return 0;
	}
	return nvefs_error_set(err, -EINVAL, "unknown option '-%c': see --help", c);
}

static int check(const struct nvefs_options *o, int nargs, struct nvefs_error *err)
{
	if (o->show_help || o->show_version)
		return 0;
	if (nargs != 2)
		return nvefs_error_set(err, -EINVAL, "%s: give a target and a mount point; see --help",
				       nargs > 2 ? "too many arguments" : "too few arguments");
	if (!o->target[0])
		return nvefs_error_set(err, -EINVAL, "the target is empty: name a file, ram:SIZE or a device");
	if (o->mount.no_recovery && !o->mount.read_only)
		return nvefs_error_set(err, -EINVAL, "option 'norecovery' needs 'ro': the journal would be lost");
	return 0;
}

int nvefs_options_parse(struct nvefs_options *o, int argc, char **argv, bool as_mount, struct nvefs_error *err)
{
	const char *with_value = as_mount ? "otN" : "o";
	const char *known = as_mount ? "onsvfrwtNhV" : "ofdrhV";
	bool only_args = false;
	int nargs = 0, e = 0;

	for (int i = 1; i < argc && !e; i++) {
		const char *arg = argv[i];

		if (only_args || arg[0] != '-' || !arg[1]) {
			if (nargs < 2)
				*(nargs ? &o->mountpoint : &o->target) = arg;
			nargs++;
			continue;
		}
		if (strcmp(arg, "--") == 0) {
			only_args = true;
			continue;
		}
		e = long_option(o, arg, err);
		if (e) {
			e = e > 0 ? 0 : e;
			continue;
		}
		for (const char *c = arg + 1; *c && !e; c++) {
			const char *value = NULL;

			if (!strchr(known, *c))
				return nvefs_error_set(err, -EINVAL, "unknown option '-%c': see --help", *c);
			if (strchr(with_value, *c)) {
				value = c[1] ? c + 1 : i + 1 < argc ? argv[++i] : NULL;
				if (!value)
					return nvefs_error_set(err, -EINVAL, "option '-%c': a value is missing", *c);
			}
			e = short_option(o, *c, value, as_mount, err);
			if (value)
				break;
		}
	}
	return e ? e : check(o, nargs, err);
}

void nvefs_options_done(struct nvefs_options *o)
{
	free(o->fuse_opts);
	o->fuse_opts = NULL;
}
