/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/nvefsctl.h"

int nvefs_client_fail(const struct nvefs_client *c, const char *what, int err)
{
	fprintf(stderr, "nvefsctl: %s: %s%s%s\n", c->path, what ? what : "", what ? ": " : "", strerror(-err));
	return NVEFSCTL_FAIL;
}

/* Outcomes of the ioctl itself. */
static int fail_ioctl(const struct nvefs_client *c, int err)
{
	switch (err) {
	case -ENOTTY:
	case -EINVAL:
	case -ENOSYS:
		fprintf(stderr, "nvefsctl: %s: not an nvefs mount point\n", c->path);
		return NVEFSCTL_FAIL;
	case -EPERM:
	case -EACCES:
		fprintf(stderr, "nvefsctl: %s: only root and the user who mounted it may do this\n", c->path);
		return NVEFSCTL_FAIL;
	case -EPROTO:
		fprintf(stderr,
			"nvefsctl: %s: the daemon and nvefsctl are of different versions: mount again, or use "
			"the nvefsctl that came with it\n",
			c->path);
		return NVEFSCTL_FAIL;
	}
	return nvefs_client_fail(c, NULL, err);
}

int nvefs_client_open(struct nvefs_client *c)
{
	c->fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->fd >= 0)
		return NVEFSCTL_OK;
	if (errno == ENOTDIR) {
		fprintf(stderr, "nvefsctl: %s: not an nvefs mount point\n", c->path);
		return NVEFSCTL_FAIL;
	}
	if (errno == ENOTCONN) {
		fprintf(stderr, "nvefsctl: %s: the daemon has died: mount again\n", c->path);
		return NVEFSCTL_FAIL;
	}
	return nvefs_client_fail(c, NULL, -errno);
}

void nvefs_client_close(struct nvefs_client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

int nvefs_client_send(struct nvefs_client *c, uint32_t cmd, uint64_t arg)
{
	c->ctl.version = NVEFS_CTL_VERSION;
	c->ctl.cmd = cmd;
	c->ctl.arg = arg;
	c->ctl.err = 0;
	if (ioctl(c->fd, NVEFS_IOC_CTL, &c->ctl))
		return -errno;
	c->ctl.data[NVEFS_CTL_DATA_BYTES - 1] = '\0';
	return 0;
}

/* Send, and say what is wrong. */
static int command(struct nvefs_client *c, uint32_t cmd, uint64_t arg)
{
	int err = nvefs_client_send(c, cmd, arg);

	if (err)
		return fail_ioctl(c, err);
	if (c->ctl.err) {
		if (c->ctl.len)
			fprintf(stderr, "nvefsctl: %s: %s\n", c->path, c->ctl.data);
		else
			nvefs_client_fail(c, NULL, c->ctl.err);
		return NVEFSCTL_FAIL;
	}
	return NVEFSCTL_OK;
}

int nvefs_client_ask(struct nvefs_client *c, uint32_t cmd, uint64_t arg, struct json_object **ret_answer)
{
	struct json_object *o;
	int code;

	c->ctl.len = 0;
	code = command(c, cmd, arg);
	if (code)
		return code;
	o = json_tokener_parse(c->ctl.data);
	if (!o) {
		fprintf(stderr, "nvefsctl: %s: the daemon's answer is not JSON\n", c->path);
		return NVEFSCTL_FAIL;
	}
	*ret_answer = o;
	return NVEFSCTL_OK;
}

void nvefs_client_print(struct json_object *o)
{
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
						       JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

int nvefs_client_stats(struct nvefs_client *c)
{
	struct json_object *o;
	int code = nvefs_client_ask(c, NVEFS_CTL_STATS, 0, &o);

	if (code)
		return code;
	if (!c->json)
		nvefs_show_stats(o);
	if (c->json)
		nvefs_client_print(o);
	else
		json_object_put(o);
	return NVEFSCTL_OK;
}

/* What the drive says just now, or why it says nothing: neither fails the command. */
static void add_health(struct nvefs_client *c, struct json_object *info)
{
	struct json_object *health = NULL, *error = NULL;

	c->ctl.len = 0;
	if (nvefs_client_send(c, NVEFS_CTL_HEALTH, 0))
		error = json_object_new_string(strerror(errno));
	else if (c->ctl.err)
		error = json_object_new_string(c->ctl.len ? c->ctl.data : strerror(-c->ctl.err));
	else
		health = json_tokener_parse(c->ctl.data);
	json_object_object_add(info, "health", health);
	json_object_object_add(info, "health_error", error);
}

int nvefs_client_info(struct nvefs_client *c)
{
	struct json_object *o;
	int code = nvefs_client_ask(c, NVEFS_CTL_INFO, 0, &o);

	if (code)
		return code;
	add_health(c, o);
	if (!c->json)
		nvefs_show_info(o);
	if (c->json)
		nvefs_client_print(o);
	else
		json_object_put(o);
	return NVEFSCTL_OK;
}

int nvefs_client_dedup(struct nvefs_client *c)
{
	struct json_object *stats, *dedup, *value, *out;
	bool on;
	int code = NVEFSCTL_OK;

	if (c->argument && strcmp(c->argument, "on") != 0 && strcmp(c->argument, "off") != 0) {
		fprintf(stderr, "nvefsctl: %s: say on or off\n", c->argument);
		return NVEFSCTL_USAGE;
	}
	c->ctl.len = 0;
	if (c->argument)
		code = command(c, NVEFS_CTL_DEDUP, strcmp(c->argument, "on") == 0);
	if (!code)
		code = nvefs_client_ask(c, NVEFS_CTL_STATS, 0, &stats);
	if (code)
		return code;
	on = json_object_object_get_ex(stats, "dedup", &dedup) &&
	     json_object_object_get_ex(dedup, "enabled", &value) && json_object_get_boolean(value);
	json_object_put(stats);
	if (c->json) {
		out = json_object_new_object();
		json_object_object_add(out, "dedup", json_object_new_boolean(on));
		nvefs_client_print(out);
	} else {
		printf("dedup is %s\n", on ? "on" : "off");
	}
	return NVEFSCTL_OK;
}

int nvefs_client_label(struct nvefs_client *c)
{
	struct json_object *info, *label, *out;
	int code = NVEFSCTL_OK;

	if (c->argument) {
		size_t len = strlen(c->argument);

		if (len > 63) {
			fprintf(stderr, "nvefsctl: %s: a label has at most 63 bytes\n", c->path);
			return NVEFSCTL_USAGE;
		}
		memcpy(c->ctl.data, c->argument, len);
		c->ctl.len = (uint32_t)len;
		code = command(c, NVEFS_CTL_LABEL, 0);
	}
	if (!code)
		code = nvefs_client_ask(c, NVEFS_CTL_INFO, 0, &info);
	if (code)
		return code;
	json_object_object_get_ex(info, "label", &label);
	if (c->json) {
		out = json_object_new_object();
		json_object_object_add(out, "label", json_object_get(label));
		nvefs_client_print(out);
	} else {
		puts(json_object_get_string(label));
	}
	json_object_put(info);
	return NVEFSCTL_OK;
}

int nvefs_client_sync(struct nvefs_client *c)
{
	struct json_object *out;
	int code;

	/* What programs have left in mapped pages is known to the kernel only. */
	if (syncfs(c->fd))
		return nvefs_client_fail(c, "syncfs", -errno);
	c->ctl.len = 0;
	code = command(c, NVEFS_CTL_SYNC, 0);
	if (!code && c->json) {
		out = json_object_new_object();
		json_object_object_add(out, "durable", json_object_new_boolean(true));
		nvefs_client_print(out);
	}
	return code;
}

int nvefs_client_trim(struct nvefs_client *c)
{
	struct fstrim_range range = {.start = c->start, .len = c->length, .minlen = c->minimum};
	struct json_object *info, *out;
	/* Any file system may know FITRIM: be sure that it is ours. */
	int code = nvefs_client_ask(c, NVEFS_CTL_INFO, 0, &info);

	if (code)
		return code;
	json_object_put(info);
	if (ioctl(c->fd, FITRIM, &range)) {
		if (errno == EOPNOTSUPP)
			fprintf(stderr, "nvefsctl: %s: the device cannot discard\n", c->path);
		else if (errno == EBUSY)
			fprintf(stderr, "nvefsctl: %s: a trim is under way\n", c->path);
		else if (errno == EPERM)
			fprintf(stderr, "nvefsctl: %s: only root may trim\n", c->path);
		else
			nvefs_client_fail(c, "trim", -errno);
		return NVEFSCTL_FAIL;
	}
	if (c->json) {
		out = json_object_new_object();
		json_object_object_add(out, "trimmed_bytes", json_object_new_uint64(range.len));
		nvefs_client_print(out);
	} else {
		printf("%s: %llu bytes trimmed\n", c->path, (unsigned long long)range.len);
	}
	return NVEFSCTL_OK;
}
