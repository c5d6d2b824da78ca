/* SPDX-License-Identifier: MIT */
/*
 * Segment maps in memory: one window is 64 blocks of a file, as two flat
 * arrays (mapping, checksum). A small file's only window holds no more entries
 * than the file has blocks, rounded up to a power of two.
 *
 * An entry is as in struct nvefs_window: 0 (hole), or an address with its extent
 * type in the top byte.
 * `changed` has a bit for each entry that differs from the tree; such an entry,
 * when it has an address, holds one memory reference on its block. A window
 * with changed entries is dirty: it has a metadata pledge and its inode is in
 * the list of dirty inodes.
 *
 * [inode lock] unless said otherwise. Pointers to windows do not outlive it.
 */
#ifndef NVEFS_FS_WINDOW_H
#define NVEFS_FS_WINDOW_H

#include "format/map.h"
#include "fs/fs.h"

#define NVEFS_WINDOW_PLEDGE 2u /* metadata blocks pledged per dirty window: its item's leaf, and what is above */
#define NVEFS_WINDOW_PLEDGE_MAX (NVEFS_WINDOW_PLEDGE + NVEFS_WINDOW_BLKS) /* with a new share item for each block */

struct nvefs_window_mem {
	struct nvefs_window_mem *next; /* hash bucket */
	struct nvefs_list dirty_link;
	uint64_t widx;
	uint64_t changed;
	uint32_t cap; /* entries that there is room for; the others are holes */
	bool dirty;
	uint8_t pledge; /* metadata blocks, while it is dirty */
	uint64_t *csum; /* cap checksums, behind the mappings */
	uint64_t map[];
};

struct nvefs_window_mem *nvefs_window_find(struct nvefs_inode *in, uint64_t widx);
static inline uint64_t nvefs_window_entry(const struct nvefs_window_mem *w, uint32_t off)
{
	return off < w->cap ? w->map[off] : 0;
}

/* No lock held: make sure the window is in memory, reading the tree if need be. */
int nvefs_window_load(struct nvefs_inode *in, struct nvefs_queue *q, uint64_t widx);

/*
 * Make room for entries up to and including `off`; may move the window, so it
 * gives the new address. NULL when memory is out.
 */
struct nvefs_window_mem *nvefs_window_reserve(struct nvefs_inode *in, struct nvefs_window_mem *w, uint32_t off);

/*
 * Set one entry (room reserved). `entry` with an address brings one memory
 * reference along, which the window takes over; the old entry's reference is
 * dropped. The window becomes dirty; when it was clean it takes a pledge:
 * *pledged (of the caller) is lowered.
 */
void nvefs_window_set(struct nvefs_inode *in, struct nvefs_window_mem *w, uint32_t off, uint64_t entry,
		      uint64_t csum, uint32_t *pledged);

/* The window, dirty, takes over a pledge for share items, as much of it as it can need. */
void nvefs_window_pledge(struct nvefs_window_mem *w, uint32_t blks, uint32_t *pledged);

/* After folding: nothing differs from the tree any more. The pledge is given back. */
void nvefs_window_clean(struct nvefs_inode *in, struct nvefs_window_mem *w);
/* Forget entries from `off` on without telling the tree; drops their memory references. */
void nvefs_window_cut(struct nvefs_inode *in, struct nvefs_window_mem *w, uint32_t off);
/* Free a window that is clean. */
void nvefs_window_drop(struct nvefs_inode *in, struct nvefs_window_mem *w);

/* Memory references of a block: drop one, forgetting the dedup hint when it was the last of any kind. */
void nvefs_data_unpin(struct nvefs_fs *fs, uint64_t pblk, uint64_t csum);
/* The hint for a block whose last reference went. */
void nvefs_data_forget_hint(struct nvefs_fs *fs, uint64_t pblk, uint64_t csum);
/* The index sees the checksum through the test-only truncation. */
uint64_t nvefs_data_fingerprint(const struct nvefs_fs *fs, uint64_t csum);

#endif
