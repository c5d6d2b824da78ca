/* SPDX-License-Identifier: MIT */
/* Which target a URI names, and how it is opened: the one list of all targets. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/backend.h"
#include "device/embedded.h"
#include "device/fault.h"
#include "device/node.h"
#include "device/nvme_linux.h"
#include "device/scsi_linux.h"
#include "device/scsi_route.h"
#include "device/uri.h"

struct target {
	bool (*match)(const struct nvefs_uri *uri);
	/* *scsi holds the defaults, and is set by the options of the target. */
	int (*open)(const struct nvefs_uri *uri, const struct nvefs_dev_open_opts *opts,
		    struct nvefs_scsi_route_opts *scsi, struct nvefs_dev **ret_dev,
		    struct nvefs_error *err);
};

static bool match_ram(const struct nvefs_uri *uri)
{
	return uri->is_ram;
}

/* A name that does not exist is a file that might be created, unless it is in /dev. */
static bool match_file(const struct nvefs_uri *uri)
{
	if (uri->exists)
		return S_ISREG(uri->st.st_mode);
	/* What is not there yet is a file to be made, but not among the device nodes. */
	return strncmp(uri->name, "/dev/", 5) || !strncmp(uri->name, "/dev/shm/", 9);
}

static bool match_absent(const struct nvefs_uri *uri)
{
	return !uri->exists;
}

static bool match_node(const struct nvefs_uri *uri)
{
	return S_ISCHR(uri->st.st_mode) || S_ISBLK(uri->st.st_mode);
}

static bool match_any(const struct nvefs_uri *uri)
{
	(void)uri;
	return true;
}

/* Takes `below` over, on failure too. */
static int put_faults(const struct nvefs_fault_options *f, const char *uri, struct nvefs_dev *below,
		      struct nvefs_dev **ret_dev, struct nvefs_error *err)
{
	int code;

	if (!f->nfaults) {
		*ret_dev = below;
		return 0;
	}
	code = nvefs_fault_wrap(below, f->faults, f->nfaults, ret_dev);
	if (!code)
		return 0;
	nvefs_dev_close(below);
	return nvefs_error_set(err, code, "%s: out of memory", uri);
}

static int open_embedded(const struct nvefs_uri *uri, const struct nvefs_dev_open_opts *opts,
			 struct nvefs_scsi_route_opts *scsi, struct nvefs_dev **ret_dev,
			 struct nvefs_error *err)
{
	struct nvefs_embedded_options o;
	struct nvefs_fault_options f = {.nfaults = 0};
	const struct nvefs_uri_option_set sets[] = {{nvefs_embedded_option_table, &o},
						    {nvefs_fault_option_table, &f},
						    {nvefs_scsi_route_option_table, scsi}};
	struct nvefs_dev *dev;
	uint64_t size = 0;
	int code;

	nvefs_embedded_options_init(&o);
	code = nvefs_uri_apply(uri, sets, sizeof(sets) / sizeof(sets[0]), err);
	if (code)
		return code;
	if (opts->flags & NVEFS_OPEN_RDONLY)
		o.ctrl.read_only = true;
	if (uri->is_ram && !nvefs_value_size(uri->name + strlen("ram:"), &size))
		return nvefs_error_set(err, -EINVAL, "%s: not a size: use ram:SIZE, such as ram:4G",
				       uri->name);
	if (uri->is_ram)
		code = nvefs_embedded_open_ram(uri->text, size, &o, &dev, err);
	else
		code = nvefs_embedded_open_file(uri->text, uri->name, &o, opts, &dev, err);
	return code ? code : put_faults(&f, uri->text, dev, ret_dev, err);
}

static int refuse_absent(const struct nvefs_uri *uri, const struct nvefs_dev_open_opts *opts,
			 struct nvefs_scsi_route_opts *scsi, struct nvefs_dev **ret_dev,
			 struct nvefs_error *err)
{
	(void)opts;
	(void)scsi;
	(void)ret_dev;
	return nvefs_error_set(err, -ENOENT, "%s: no such device: check the name (nvme list)",
			       uri->name);
}

static int open_nvme(const struct nvefs_uri *uri, const struct nvefs_node *node,
		     const struct nvefs_dev_open_opts *opts, struct nvefs_scsi_route_opts *scsi,
		     struct nvefs_dev **ret_dev, struct nvefs_error *err)
{
	struct nvefs_nvme_linux_options o = {.passthrough = NVEFS_PASSTHROUGH_AUTO};
	struct nvefs_fault_options f = {.nfaults = 0};
	const struct nvefs_uri_option_set sets[] = {{nvefs_nvme_linux_option_table, &o},
						    {nvefs_fault_option_table, &f},
						    {nvefs_scsi_route_option_table, scsi}};
	struct nvefs_dev *dev;
	int code = nvefs_uri_apply(uri, sets, sizeof(sets) / sizeof(sets[0]), err);

	if (!code)
		code = nvefs_nvme_linux_open(uri, node, &o, opts, &dev, err);
	return code ? code : put_faults(&f, uri->text, dev, ret_dev, err);
}

static int open_scsi(const struct nvefs_uri *uri, const struct nvefs_node *node,
		     const struct nvefs_dev_open_opts *opts, struct nvefs_dev **ret_dev,
		     struct nvefs_error *err)
{
	struct nvefs_scsi_linux_options o = {.sg_io = NVEFS_SG_IO_AUTO};
	struct nvefs_fault_options f = {.nfaults = 0};
	const struct nvefs_uri_option_set sets[] = {{nvefs_scsi_linux_option_table, &o},
						    {nvefs_fault_option_table, &f}};
	struct nvefs_dev *dev;
	int code = nvefs_uri_apply(uri, sets, sizeof(sets) / sizeof(sets[0]), err);

	if (!code)
		code = nvefs_scsi_linux_open(uri, node, &o, opts, &dev, err);
	return code ? code : put_faults(&f, uri->text, dev, ret_dev, err);
}

static int open_node(const struct nvefs_uri *uri, const struct nvefs_dev_open_opts *opts,
		     struct nvefs_scsi_route_opts *scsi, struct nvefs_dev **ret_dev,
		     struct nvefs_error *err)
{
	struct nvefs_node node = {.kind = NVEFS_NODE_OTHER};

	/* What sysfs does not know is of no kind that can be driven. */
	nvefs_node_look("/sys", &uri->st, &node);
	switch (node.kind) {
	case NVEFS_NODE_NVME:
		return open_nvme(uri, &node, opts, scsi, ret_dev, err);
	case NVEFS_NODE_SCSI:
		return open_scsi(uri, &node, opts, ret_dev, err);
	case NVEFS_NODE_PARTITION:
		return nvefs_error_set(
		    err, -ENOTSUP,
		    "%s: is a partition: commands would reach the whole device: use /dev/%s",
		    uri->name, node.block);
	case NVEFS_NODE_CONTROLLER:
		return nvefs_error_set(
		    err, -ENOTSUP, "%s: is a controller: name one of its namespaces (nvme list)",
		    uri->name);
	case NVEFS_NODE_OTHER:
		break;
	}
	return nvefs_error_set(err, -ENOTSUP,
			       "%s: neither an NVMe namespace nor a SCSI disk: use one of these, a "
			       "regular file or ram:SIZE",
			       uri->name);
}

static int refuse_other(const struct nvefs_uri *uri, const struct nvefs_dev_open_opts *opts,
			struct nvefs_scsi_route_opts *scsi, struct nvefs_dev **ret_dev,
			struct nvefs_error *err)
{
	bool dir = S_ISDIR(uri->st.st_mode);

	(void)opts;
	(void)scsi;
	(void)ret_dev;
	return nvefs_error_set(err, dir ? -EISDIR : -EINVAL,
			       "%s: %s: a target is a regular file, a device or ram:SIZE",
			       uri->name, dir ? "is a directory" : "is neither file nor device");
}

/* The first match is the target. */
static const struct target targets[] = {
    {match_ram, open_embedded}, {match_file, open_embedded}, {match_absent, refuse_absent},
    {match_node, open_node},	{match_any, refuse_other},
};

static int put_route(const struct nvefs_dev_open_opts *opts,
		     const struct nvefs_scsi_route_opts *scsi, struct nvefs_dev *below,
		     struct nvefs_dev **ret_dev, struct nvefs_error *err)
{
	int code;

	/* A SCSI device goes by no other route. */
	if (opts->route == NVEFS_ROUTE_NATIVE || nvefs_dev_route(below) == NVEFS_ROUTE_SCSI) {
		*ret_dev = below;
		return 0;
	}
	code = nvefs_scsi_route_open(below, scsi, ret_dev, err);
	if (code)
		nvefs_dev_close(below);
	return code;
}

int nvefs_dev_open(const char *text, const struct nvefs_dev_open_opts *opts,
		   struct nvefs_dev **ret_dev, struct nvefs_error *err)
{
	static const struct nvefs_dev_open_opts defaults;
	struct nvefs_scsi_route_opts scsi = nvefs_scsi_route_defaults;
	struct nvefs_uri uri;
	struct nvefs_dev *dev;
	const struct target *t = targets;
	int code;

	if (!opts)
		opts = &defaults;
	code = nvefs_uri_parse(text, &uri, err);
	if (code)
		return code;
	while (!t->match(&uri))
		t++;
	code = t->open(&uri, opts, &scsi, &dev, err);
	return code ? code : put_route(opts, &scsi, dev, ret_dev, err);
}

static char help_text[4096];

static size_t help_options(size_t at, const struct nvefs_uri_option *table)
{
	const size_t len = sizeof(help_text);

	for (const struct nvefs_uri_option *o = table; o->name && at < len; o++) {
		char name[64];

		snprintf(name, sizeof(name), "%s%s%s", o->name, o->values ? "=" : "",
			 o->values ? o->values : "");
		at += (size_t)snprintf(help_text + at, len - at, "  %-24s %s\n", name, o->help);
	}
	return at;
}

static void help_make(void)
{
	size_t at = (size_t)snprintf(
	    help_text, sizeof(help_text),
	    "Targets:\n"
	    "  PATH, file:PATH          a regular file behind the embedded NVMe controller\n"
	    "  ram:SIZE                 memory behind the embedded NVMe controller, such as "
	    "ram:4G\n"
	    "  /dev/ngXnY, /dev/nvmeXnY an NVMe namespace, by passthrough\n"
	    "  /dev/sgX, /dev/sdX       a SCSI disk, by SG_IO\n"
	    "Options of the embedded controller, after the target, separated by commas:\n");

	at = help_options(at, nvefs_embedded_option_table);
	at += (size_t)snprintf(help_text + at, sizeof(help_text) - at,
			       "Options of an NVMe namespace:\n");
	at = help_options(at, nvefs_nvme_linux_option_table);
	at += (size_t)snprintf(help_text + at, sizeof(help_text) - at, "Options of a SCSI disk:\n");
	at = help_options(at, nvefs_scsi_linux_option_table);
	at +=
	    (size_t)snprintf(help_text + at, sizeof(help_text) - at, "Options of every target:\n");
	at = help_options(at, nvefs_fault_option_table);
	at += (size_t)snprintf(help_text + at, sizeof(help_text) - at,
			       "Options of the scsi route, without effect on the native one:\n");
	help_options(at, nvefs_scsi_route_option_table);
}

const char *nvefs_dev_help(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, help_make);
	return help_text;
}
