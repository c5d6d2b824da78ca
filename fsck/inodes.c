/* SPDX-License-Identifier: MIT */
#include "inodes.h"

#include <errno.h>
#include <stdlib.h>

void nvefs_check_inodes_done(struct nvefs_inode_table *t)
{
	free(t->tab);
	*t = (struct nvefs_inode_table){0};
}

int nvefs_check_inodes_add(struct nvefs_inode_table *t, const struct nvefs_inode_entry *e)
{
	if (t->n == t->max) {
		size_t max = t->max ? t->max * 2 : 64;
		struct nvefs_inode_entry *tab = reallocarray(t->tab, max, sizeof(*tab));

		if (!tab)
			return -ENOMEM;
		t->tab = tab;
		t->max = max;
	}
	t->tab[t->n++] = *e;
	return 0;
}

struct nvefs_inode_entry *nvefs_check_inodes_find(const struct nvefs_inode_table *t, uint64_t ino)
{
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (t->tab[mid].ino < ino)
			low = mid + 1;
		else
			high = mid;
	}
	return low < t->n && t->tab[low].ino == ino ? &t->tab[low] : NULL;
}
