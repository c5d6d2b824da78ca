/* SPDX-License-Identifier: MIT */
#include "usage.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bitmap.h"
#include "format/layout.h"

#define MAP_BYTES (NVEFS_GROUP_BLKS / 8)
#define FIRST_SHARES 256u

int nvefs_usage_init(struct nvefs_usage *u, const struct nvefs_super *sb)
{
	*u = (struct nvefs_usage){.ngroups = sb->ngroups, .max_shares = FIRST_SHARES};
	u->used = calloc(u->ngroups, sizeof(*u->used));
	u->meta = calloc(u->ngroups, sizeof(*u->meta));
	u->shares = calloc(u->max_shares, sizeof(*u->shares));
	if (u->used && u->meta && u->shares)
		return 0;
	nvefs_usage_done(u);
	return -ENOMEM;
}

void nvefs_usage_done(struct nvefs_usage *u)
{
	for (uint32_t g = 0; g < u->ngroups && u->used && u->meta; g++) {
		free(u->used[g]);
		free(u->meta[g]);
	}
	free(u->used);
	free(u->meta);
	free(u->shares);
	*u = (struct nvefs_usage){0};
}

/* Set the block's bit in one of the two sets of bitmaps. 0, 1: was set, -ENOMEM. */
static int set_bit(uint8_t **maps, uint64_t pblk)
{
	uint32_t group = nvefs_layout_group(pblk);
	uint32_t bit = (uint32_t)(pblk - nvefs_layout_group_start(group));

	if (!maps[group]) {
		maps[group] = calloc(1, MAP_BYTES);
		if (!maps[group])
			return -ENOMEM;
	}
	if (nvefs_bitmap_test(maps[group], bit))
		return 1;
	nvefs_bitmap_set(maps[group], bit);
	return 0;
}

static bool test_bit(uint8_t *const *maps, uint64_t pblk)
{
	uint32_t group = nvefs_layout_group(pblk);

	return maps[group] &&
	       nvefs_bitmap_test(maps[group], (uint32_t)(pblk - nvefs_layout_group_start(group)));
}

bool nvefs_usage_test(const struct nvefs_usage *u, uint64_t pblk)
{
	return test_bit(u->used, pblk);
}

static size_t slot_of(const struct nvefs_usage_share *tab, size_t size, uint64_t pblk)
{
	size_t i = (size_t)((pblk * 0x9e3779b97f4a7c15ull) >> 20) & (size - 1);

	while (tab[i].pblk && tab[i].pblk != pblk)
		i = (i + 1) & (size - 1);
	return i;
}

static int grow(struct nvefs_usage *u)
{
	size_t size = u->max_shares * 2;
	struct nvefs_usage_share *tab = calloc(size, sizeof(*tab));

	if (!tab)
		return -ENOMEM;
	for (size_t i = 0; i < u->max_shares; i++)
		if (u->shares[i].pblk)
			tab[slot_of(tab, size, u->shares[i].pblk)] = u->shares[i];
	free(u->shares);
	u->shares = tab;
	u->max_shares = size;
	return 0;
}

/* The entry of the block, made when absent. NULL: out of memory. */
static struct nvefs_usage_share *share_of(struct nvefs_usage *u, uint64_t pblk)
{
	struct nvefs_usage_share *s;

	if (u->nshares >= u->max_shares / 4 * 3 && grow(u))
		return NULL;
	s = &u->shares[slot_of(u->shares, u->max_shares, pblk)];
	if (!s->pblk) {
		s->pblk = pblk;
		u->nshares++;
	}
	return s;
}

int nvefs_usage_add_meta(struct nvefs_usage *u, uint64_t pblk)
{
	int err = set_bit(u->meta, pblk);

	if (err)
		return err > 0 ? -ELOOP : err;
	err = set_bit(u->used, pblk);
	return err > 0 ? -EEXIST : err;
}

int nvefs_usage_add_data(struct nvefs_usage *u, uint64_t pblk)
{
	struct nvefs_usage_share *s;
	int err;

	if (test_bit(u->meta, pblk))
		return -EEXIST;
	err = set_bit(u->used, pblk);
	if (err <= 0)
		return err;
	s = share_of(u, pblk);
	if (!s)
		return -ENOMEM;
	if (s->extra < UINT32_MAX - 1)
		s->extra++;
	return 0;
}

int nvefs_usage_add_share(struct nvefs_usage *u, uint64_t pblk, uint32_t count)
{
	struct nvefs_usage_share *s = share_of(u, pblk);

	if (!s)
		return -ENOMEM;
	s->stated = count;
	return 0;
}

bool nvefs_usage_is_meta(const struct nvefs_usage *u, uint64_t pblk)
{
	return test_bit(u->meta, pblk);
}

const struct nvefs_usage_share *nvefs_usage_find(const struct nvefs_usage *u, uint64_t pblk)
{
	const struct nvefs_usage_share *s = &u->shares[slot_of(u->shares, u->max_shares, pblk)];

	return s->pblk ? s : NULL;
}

void nvefs_usage_drop_data(struct nvefs_usage *u, uint64_t pblk)
{
	struct nvefs_usage_share *s = &u->shares[slot_of(u->shares, u->max_shares, pblk)];
	uint32_t group = nvefs_layout_group(pblk);

	if (s->pblk && s->extra)
		s->extra--;
	else if (u->used[group])
		nvefs_bitmap_clear(u->used[group], (uint32_t)(pblk - nvefs_layout_group_start(group)));
}

void nvefs_usage_drop_meta(struct nvefs_usage *u, uint64_t pblk)
{
	uint32_t group = nvefs_layout_group(pblk), bit = (uint32_t)(pblk - nvefs_layout_group_start(group));

	if (!test_bit(u->meta, pblk))
		return;
	nvefs_bitmap_clear(u->meta[group], bit);
	nvefs_bitmap_clear(u->used[group], bit);
}
