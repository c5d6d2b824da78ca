/* SPDX-License-Identifier: MIT */
/* What there is to know about a mount: space, counters, label; and about other hosts. */
#include <stdio.h>

#include "format/layout.h"
#include "fs/fill.h"
#include "fs/names.h"
#include "store/mmp.h"

#define INODES_PER_BLK 8u

/* Data blocks in use: what is neither free, nor on its way, nor metadata. */
static uint64_t data_blks(const struct nvefs_fs *fs, const struct nvefs_space *s)
{
	uint64_t other = s->free + s->reserved + s->meta_blks + fs->fixed_blks;

	return s->total > other ? s->total - other : 0;
}

int nvefs_statfs(struct nvefs_worker *w, struct nvefs_statfs *ret)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	uint64_t copies = nvefs_super_dup(nvefs_store_super(fs->st)) ? 2 : 1;
	struct nvefs_space s;

	nvefs_space_get(fs->st, &s);
	*ret = (struct nvefs_statfs){
		.total_blks = s.total - fs->fixed_blks,
		.free_blks = s.free,
		.avail_blks = s.avail,
		/* An inode takes what its items take, with a name half a KiB at most: so many fit, if nothing else comes. */
		.inodes = s.inodes + s.avail * INODES_PER_BLK / copies,
		.free_inodes = s.avail * INODES_PER_BLK / copies,
	};
	memcpy(ret->uuid, nvefs_super_public_uuid(nvefs_store_super(fs->st)), sizeof(ret->uuid));
	return 0;
}

void nvefs_stats_get(struct nvefs_fs *fs, struct nvefs_stats *ret)
{
	struct nvefs_store_stats st;
	struct nvefs_space s;
	uint64_t data;

	nvefs_space_get(fs->st, &s);
	nvefs_store_stats(fs->st, &st);
	data = data_blks(fs, &s);
	*ret = (struct nvefs_stats){
		.total_bytes = (s.total - fs->fixed_blks) * NVEFS_BLOCK_SIZE,
		.free_bytes = s.free * NVEFS_BLOCK_SIZE,
		.avail_bytes = s.avail * NVEFS_BLOCK_SIZE,
		.logical_bytes = (data + s.shared_refs) * NVEFS_BLOCK_SIZE,
		.physical_bytes = data * NVEFS_BLOCK_SIZE,
		.shared_bytes = s.shared_refs * NVEFS_BLOCK_SIZE,
		.metadata_bytes = s.meta_blks * NVEFS_BLOCK_SIZE,
		.inodes = s.inodes,
		.quarantined_bytes = s.quarantined * NVEFS_BLOCK_SIZE,
		.dedup_on = fs->dedup_on,
		.commits = st.commits,
		.journal_blks = st.journal_blks,
		.journal_live_blks = st.journal_live_blks,
		.checkpoints = st.checkpoints,
		.recovered_txns = st.recovered_txns,
		.cache_blks = st.cache_blks,
		.cache_dirty_blks = st.cache_dirty_blks,
		.dirty_map_bytes = fs->dirty_map_bytes,
		.checksum_errors = fs->checksum_errors,
		.io_errors = fs->io_errors,
		.copies_bad = st.copies_bad,
		.copies_healed = st.copies_healed,
		.copies_unhealed = st.copies_unhealed,
		.late_beats = nvefs_mmp_late(fs->mmp),
		.error = nvefs_store_error(fs->st),
		.route = nvefs_dev_route(fs->dev),
	};
	ret->read_only = fs->read_only || ret->error;
	nvefs_fill_stats(fs, ret);
	nvefs_dev_counters(fs->dev, &ret->dev);
}

void nvefs_info_get(struct nvefs_fs *fs, struct nvefs_info *ret)
{
	struct nvefs_super sb;

	nvefs_store_super_copy(fs->st, &sb);
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->uuid, nvefs_super_public_uuid(&sb), sizeof(ret->uuid));
	memcpy(ret->label, sb.label, sizeof(ret->label));
	memcpy(ret->creator, sb.creator, sizeof(sb.creator));
	ret->disk_version = sb.disk_version;
	ret->nblks = sb.nblks;
	ret->journal_blks = sb.journal_blks;
	ret->mmp_interval_ms = sb.mmp_interval_ms;
	ret->shared = nvefs_dev_limits(fs->dev)->shared;
	nvefs_dev_describe(fs->dev, ret->device, sizeof(ret->device));
}

int nvefs_set_label(struct nvefs_worker *w, const char *label)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	struct nvefs_super sb;

	if (strlen(label) > NVEFS_LABEL_MAX)
		return -EINVAL;
	if (fs->read_only || nvefs_store_error(fs->st))
		return -EROFS;
	nvefs_store_super_copy(fs->st, &sb);
	memset(sb.label, 0, sizeof(sb.label));
	memcpy(sb.label, label, strlen(label));
	return nvefs_store_super_write(fs->st, nvefs_worker_queue(w), &sb);
}

int nvefs_trim(struct nvefs_worker *w, uint64_t start, uint64_t len, uint64_t min_len, uint64_t *ret_trimmed)
{
	struct nvefs_fs *fs = nvefs_worker_fs(w);
	uint64_t nblks = nvefs_store_super(fs->st)->nblks, first, end, blks = 0, min_blks;
	int err;

	if (fs->read_only || nvefs_store_error(fs->st))
		return -EROFS;
	if (start >= nblks * NVEFS_BLOCK_SIZE)
		return -EINVAL;
	first = (start + NVEFS_BLOCK_SIZE - 1) / NVEFS_BLOCK_SIZE;
	end = len > UINT64_MAX - start ? nblks : (start + len) / NVEFS_BLOCK_SIZE;
	if (end > nblks)
		end = nblks;
	min_blks = min_len / NVEFS_BLOCK_SIZE + (min_len % NVEFS_BLOCK_SIZE ? 1 : 0);
	if (first < end) {
		err = nvefs_alloc_trim(fs->st, nvefs_worker_queue(w), first, end - first,
				       min_blks ? min_blks : 1, &blks);
		if (err)
			return err;
	}
	*ret_trimmed = blks * NVEFS_BLOCK_SIZE;
	return 0;
}

bool nvefs_host_wait_text(const struct nvefs_host_wait *w, uint64_t *said_ms, char *buf, size_t len)
{
	char when[64] = "";
	time_t seen = (time_t)w->seen_s;
	struct tm tm;

	if (w->waited_ms && w->waited_ms < *said_ms + 5000)
		return false;
	*said_ms = w->waited_ms;
	if (w->waited_ms) {
		snprintf(buf, len, "still waiting for %s: %llu s left",
			 w->taken ? "that host to have noticed" : "a sign of that host",
			 (unsigned long long)(w->total_ms - w->waited_ms + 999) / 1000);
		return true;
	}
	if (w->seen_s && localtime_r(&seen, &tm))
		strftime(when, sizeof(when), ", last heard of on %F at %T by its clock", &tm);
	if (w->host[0])
		snprintf(buf, len, "host '%s' %s it (as %s%s) and has not let it go", w->host,
			 w->fsck ? "was checking" : "had mounted", w->target, when);
	else
		snprintf(buf, len, "nothing says who had it last");
	snprintf(buf + strlen(buf), len - strlen(buf),
		 w->taken ? ": it is taken from there: waiting %llu s, so that whoever it was has noticed" :
			    ": waiting up to %llu s for a sign that somebody is alive",
		 (unsigned long long)(w->total_ms + 999) / 1000);
	return true;
}

const char *nvefs_shared_warning(const struct nvefs_dev *dev, uint32_t mmp_interval_ms)
{
	if (!nvefs_dev_limits(dev)->shared || mmp_interval_ms)
		return NULL;
	return "the device says that more than one host may reach it, and this file system would not notice another one: "
	       "mounts by two at once destroy it; give it to one host only, or protect it with tune.nvefs -O mmp";
}
