/* SPDX-License-Identifier: MIT */
#include "format/map.h"

#include <errno.h>
#include <stdbool.h>

#include "format/layout.h"

/* First hole-free entry at or after i, and the end of the extent that starts there. */
static uint32_t extent_start(const struct nvefs_window *w, uint32_t i)
{
	while (i < NVEFS_WINDOW_BLKS && !w->pblk[i])
		i++;
	return i;
}

static uint32_t extent_end(const struct nvefs_window *w, uint32_t start)
{
	uint32_t i = start + 1;

	/* The type is in the top byte of both, so that one compare covers type and address. */
	while (i < NVEFS_WINDOW_BLKS && w->pblk[i] == w->pblk[start] + (i - start))
		i++;
	return i;
}

uint32_t nvefs_map_bytes(const struct nvefs_window *w)
{
	uint32_t nextents = 0, nsums = 0, end;

	for (uint32_t i = extent_start(w, 0); i < NVEFS_WINDOW_BLKS; i = extent_start(w, end)) {
		end = extent_end(w, i);
		nextents++;
		if (nvefs_went_type(w->pblk[i]) == NVEFS_EXT_DATA)
			nsums += end - i;
	}
	if (!nextents)
		return 0;
	return (uint32_t)(sizeof(struct nvefs_disk_map) +
			  nextents * sizeof(struct nvefs_disk_extent) + nsums * sizeof(le64));
}

uint32_t nvefs_map_encode(const struct nvefs_window *w, void *ret_val)
{
	struct nvefs_disk_map *d = ret_val;
	le64 sums[NVEFS_WINDOW_BLKS];
	uint32_t nextents = 0, nsums = 0, end;

	memset(d, 0, sizeof(*d));
	for (uint32_t i = extent_start(w, 0); i < NVEFS_WINDOW_BLKS; i = extent_start(w, end)) {
		end = extent_end(w, i);
		d->extents[nextents++] = (struct nvefs_disk_extent){
			.pblk = le64_make(nvefs_went_pblk(w->pblk[i])),
			.off = le16_make((uint16_t)i),
			.len = le16_make((uint16_t)(end - i)),
			.type = le16_make(nvefs_went_type(w->pblk[i])),
		};
		if (nvefs_went_type(w->pblk[i]) != NVEFS_EXT_DATA)
			continue;
		for (uint32_t b = i; b < end; b++)
			sums[nsums++] = le64_make(w->csum[b]);
	}
	if (!nextents)
		return 0;
	d->nextents = le16_make((uint16_t)nextents);
	d->nsums = le16_make((uint16_t)nsums);
	memcpy(&d->extents[nextents], sums, nsums * sizeof(sums[0]));
	return (uint32_t)(sizeof(*d) + nextents * sizeof(d->extents[0]) + nsums * sizeof(sums[0]));
}

static bool extent_ok(const struct nvefs_disk_extent *e, const struct nvefs_super *sb, uint32_t from)
{
	uint32_t off = le16_get(e->off), len = le16_get(e->len), type = le16_get(e->type);

	if (off < from || !len || off + len > NVEFS_WINDOW_BLKS)
		return false;
	if (type != NVEFS_EXT_DATA && type != NVEFS_EXT_UNWRITTEN && type != NVEFS_EXT_NOSUM)
		return false;
	return nvefs_layout_run_ok(sb, le64_get(e->pblk), len);
}

int nvefs_map_decode(const void *val, uint32_t len, const struct nvefs_super *sb,
		     struct nvefs_window *ret_w)
{
	const struct nvefs_disk_map *d = val;
	const le64 *sums;
	uint32_t nextents, nsums, from = 0, sum = 0;

	if (len < sizeof(*d))
		return -EUCLEAN;
	nextents = le16_get(d->nextents);
	nsums = le16_get(d->nsums);
	if (!nextents || nextents > NVEFS_WINDOW_BLKS || nsums > NVEFS_WINDOW_BLKS ||
	    len != sizeof(*d) + nextents * sizeof(d->extents[0]) + nsums * sizeof(*sums))
		return -EUCLEAN;
	sums = (const le64 *)&d->extents[nextents];
	memset(ret_w, 0, sizeof(*ret_w));
	for (uint32_t i = 0; i < nextents; i++) {
		const struct nvefs_disk_extent *e = &d->extents[i];
		uint8_t type = (uint8_t)le16_get(e->type);
		bool data = type == NVEFS_EXT_DATA;

		if (!extent_ok(e, sb, from) || (data && sum + le16_get(e->len) > nsums))
			return -EUCLEAN;
		from = (uint32_t)le16_get(e->off) + le16_get(e->len);
		for (uint32_t b = le16_get(e->off), k = 0; b < from; b++, k++) {
			ret_w->pblk[b] = nvefs_went_make(type, le64_get(e->pblk) + k);
			if (data)
				ret_w->csum[b] = le64_get(sums[sum++]);
		}
	}
	return sum == nsums ? 0 : -EUCLEAN;
}
