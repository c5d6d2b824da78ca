/* SPDX-License-Identifier: MIT */
/* poke IMAGE FIELD VALUE: set a field in all superblocks of an image, checksums made right. For tests. */
#include <fcntl.h>
#include <nvefs/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

static int set_field(struct nvefs_disk_super *sb, const char *field, uint64_t value)
{
	if (strcmp(field, "disk_version") == 0)
		sb->disk_version = le32_make((uint32_t)value);
	else if (strcmp(field, "feature_compat") == 0)
		sb->feature_compat = le64_make(value);
	else if (strcmp(field, "feature_ro_compat") == 0)
		sb->feature_ro_compat = le64_make(value);
	else if (strcmp(field, "feature_incompat") == 0)
		sb->feature_incompat = le64_make(value);
	else
		return -1;
	sb->hdr.checksum = le64_make(0);
	sb->hdr.checksum = le64_make(nvefs_hash(sb, sizeof(*sb), 0));
	return 0;
}

int main(int argc, char **argv)
{
	struct nvefs_disk_super sb;
	struct stat st;
	int fd;

	if (argc != 4)
		return 2;
	fd = open(argv[1], O_RDWR);
	if (fd < 0 || fstat(fd, &st)) {
		perror(argv[1]);
		return 1;
	}
	for (int i = 0; i < NVEFS_SUPER_SLOTS; i++) {
		off_t at = i < NVEFS_SUPER_SLOTS - 1 ? i * (off_t)sizeof(sb) : st.st_size - (off_t)sizeof(sb);

		if (pread(fd, &sb, sizeof(sb), at) != sizeof(sb) ||
		    set_field(&sb, argv[2], strtoull(argv[3], NULL, 0)) ||
		    pwrite(fd, &sb, sizeof(sb), at) != sizeof(sb)) {
			fprintf(stderr, "poke: %s: %s\n", argv[1], argv[2]);
			return 1;
		}
	}
	return close(fd) ? 1 : 0;
}
