/* SPDX-License-Identifier: MIT */
#include "probe.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <nvefs/format.h>

#include "base/buf.h"
#include "format/layout.h"
#include "format/super.h"

static const char *value(blkid_probe pr, const char *name)
{
	const char *data = NULL;

	return blkid_probe_lookup_value(pr, name, &data, NULL) ? NULL : data;
}

static void describe(blkid_probe pr, char *ret_what, size_t len)
{
	const char *type = value(pr, "TYPE"), *table = value(pr, "PTTYPE"), *label = value(pr, "LABEL");

	if (type && label)
		snprintf(ret_what, len, "%s labelled '%s'", type, label);
	else if (type)
		snprintf(ret_what, len, "%s", type);
	else
		snprintf(ret_what, len, "%s partition table", table ? table : "unknown");
}

static int probe_blkid(int fd, const char *path, char *ret_what, size_t len, struct nvefs_error *err)
{
	blkid_probe pr = blkid_new_probe();
	int found;

	if (!pr)
		return nvefs_error_set(err, -ENOMEM, "%s: libblkid: out of memory", path);
	if (blkid_probe_set_device(pr, fd, 0, 0)) {
		blkid_free_probe(pr);
		return nvefs_error_set(err, -EIO, "%s: cannot be probed: is it readable?", path);
	}
	blkid_probe_enable_superblocks(pr, 1);
	blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL | BLKID_SUBLKS_BADCSUM);
	blkid_probe_enable_partitions(pr, 1);
	/* "Ambivalent" (-2) is more than one thing: a reason to refuse as well. -1: unreadable or empty. */
	found = blkid_do_safeprobe(pr);
	if (found == 0)
		describe(pr, ret_what, len);
	else if (found == -2)
		snprintf(ret_what, len, "more than one file system or partition table");
	blkid_free_probe(pr);
	return 0;
}

static int probe_path(const char *path, char *ret_what, size_t len, struct nvefs_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t size;
	int ret = 0;

	if (fd < 0)
		return nvefs_error_set(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
	size = lseek(fd, 0, SEEK_END);
	if (size > 0)
		ret = probe_blkid(fd, path, ret_what, len, err);
	close(fd);
	return ret;
}

static bool is_super(const struct nvefs_disk_super *sb)
{
	return le32_get(sb->hdr.magic) == NVEFS_MAGIC && le16_get(sb->hdr.type) == NVEFS_BT_SUPER;
}

/* The magic is enough: a damaged nvefs is somebody's file system, too. */
static int probe_nvefs(struct nvefs_dev *dev, char *ret_what, size_t len, struct nvefs_error *err)
{
	uint64_t nblks = nvefs_dev_limits(dev)->nblks;
	struct nvefs_disk_super *sb = nvefs_buf_new(sizeof(*sb));
	struct nvefs_queue *q = NULL;
	int ret;

	if (!sb)
		return nvefs_error_set(err, -ENOMEM, "out of memory");
	ret = nvefs_queue_init(dev, 0, &q);
	for (unsigned int i = 0; i < NVEFS_SUPER_SLOTS && !ret && !ret_what[0]; i++) {
		uint64_t pblk = nvefs_super_slot_pblk(nvefs_layout_blks(nblks), i);

		if (pblk >= nblks)
			continue;
		ret = nvefs_queue_read(q, pblk, 1, sb);
		if (ret || !is_super(sb))
			continue;
		if (sb->label[0])
			snprintf(ret_what, len, "nvefs labelled '%.63s'", (const char *)sb->label);
		else
			snprintf(ret_what, len, "nvefs");
	}
	nvefs_queue_done(q);
	nvefs_buf_free(sb);
	if (ret)
		return nvefs_error_set(err, ret, "%s: cannot be read: %s", nvefs_dev_identity(dev)->target,
				       strerror(-ret));
	return 0;
}

int nvefs_probe_target(const char *path, struct nvefs_dev *dev, char *ret_what, size_t len,
		       struct nvefs_error *err)
{
	int ret = 0;

	ret_what[0] = '\0';
	if (path)
		ret = probe_path(path, ret_what, len, err);
	if (!ret && !ret_what[0] && dev && nvefs_dev_limits(dev)->nblks)
		ret = probe_nvefs(dev, ret_what, len, err);
	return ret;
}
