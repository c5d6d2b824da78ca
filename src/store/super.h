/* SPDX-License-Identifier: MIT */
/* Superblock slots on a device. */
#ifndef NVEFS_STORE_SUPER_H
#define NVEFS_STORE_SUPER_H

#include "store/store.h"

/*
 * The best of the slots, found without knowing the size of the file system.
 * -EMEDIUMTYPE, -EUCLEAN, -ENOTSUP, -EIO; also when the device is smaller than
 * the file system.
 */
int nvefs_super_read(struct nvefs_dev *dev, struct nvefs_queue *q, struct nvefs_super *ret_sb,
		     struct nvefs_error *err);
/*
 * Compare all slots with what is in memory; those that are damaged or older are
 * counted, and written anew unless the store is read-only. Not under any lock. 0, or -ENOMEM.
 */
int nvefs_super_heal(struct nvefs_store *st, struct nvefs_queue *q);
/* Whether all sound slots are of this file system; one that is not needs fsck, which lets them vote. 0, -EUCLEAN, -ENOMEM. */
int nvefs_super_agree(struct nvefs_queue *q, const struct nvefs_super *sb);
/* One slot, and Flush. */
int nvefs_super_write_slot(struct nvefs_dev *dev, struct nvefs_queue *q, const struct nvefs_super *sb,
			   unsigned int slot);

#endif
