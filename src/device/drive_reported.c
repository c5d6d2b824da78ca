/* SPDX-License-Identifier: MIT */
/* By itself, since nvefsctl needs no more of this folder. */
#include <string.h>

#include "device/drive.h"

bool nvefs_drive_fact_reported(const struct nvefs_fact *f)
{
	/* Beside sizes in bytes: what is a limit, or nothing, when it is 0. */
	static const char *const limits[] = {"dmrl_ranges", "max_unmap_descriptors", "endurance_group",
					     "io_queues",   "hw_queues",	      "rotation"};
	size_t len = strlen(f->key);

	if (f->kind == NVEFS_FACT_TEXT)
		return f->text[0];
	if (f->kind != NVEFS_FACT_NUMBER || f->value || !strcmp(f->key, "used_bytes"))
		return true;
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (!strcmp(f->key, limits[i]))
			return false;
	return len < 6 || strcmp(f->key + len - 6, "_bytes");
}
