/* SPDX-License-Identifier: MIT */
/*
 * The check and the repair of a whole file system, as a library: fsck.nvefs and
 * the tests call it.
 *
 * Work goes in rounds. A round opens the store on the device, which replays the
 * journal (into memory only, when asked), and looks at everything without
 * writing. When repair is asked for and something is to be mended, mend.h does
 * it, and the next round looks again: what mending uncovers is mended as well,
 * and the last round tells what is left. A power cut at any point leaves a file
 * system for which all this can be done again.
 *
 * Whatever the device holds, it neither crashes nor runs for ever, and its memory
 * is bounded: one bit for each block in use, 16 bytes for each shared block, 40
 * bytes for each inode; to mend, 8 bytes for each inode with a problem; and what is
 * read ahead, which does not depend on the size.
 */
#ifndef NVEFS_FSCK_CHECK_H
#define NVEFS_FSCK_CHECK_H

#include <nvefs/nvefs.h>

#include "problem.h"

enum nvefs_repair {
	NVEFS_REPAIR_NONE,
	NVEFS_REPAIR_SAFE, /* what follows from the rest, and only in a tree that is whole */
	NVEFS_REPAIR_ALL,
};

struct nvefs_check_opts {
	enum nvefs_repair repair; /* not with replay_in_memory */
	bool replay_in_memory; /* change nothing on the device, not even by replaying */
	bool quick;	       /* superblocks, journal, root: stop there when they are sound */
	bool data;	       /* read all data and compare with its checksums */
	/* Each problem as it is found; may be NULL. Valid during the call. One that is left is reported once. */
	void (*report)(void *arg, const struct nvefs_problem *p);
	/*
	 * Asked before a problem is mended, where `repair` would mend it. 1: mend it; 0: leave it; negative: end the
	 * check, nothing of this round is mended. The same thing is asked again in each round: remember the answer. May be
	 * NULL: 1. Where a new tree is needed and may not be built, only superblock slots and bad copies are mended.
	 */
	int (*ask)(void *arg, const struct nvefs_problem *p, enum nvefs_mender mender);
	/* At the end: one path of an inode that a problem named. May be NULL. Names are bytes. */
	void (*name)(void *arg, uint64_t ino, const char *path);
	/* May be NULL. total 0: not known. Returns non-zero to end the check with -ECANCELED. */
	int (*progress)(void *arg, const char *pass, uint32_t pass_no, uint32_t npasses, uint64_t done,
			uint64_t total);
	void *arg;
	/* Of multiple mount protection: as struct nvefs_mount_opts has them. */
	bool mmp_force;
	const char *mmp_force_how, *host;
	nvefs_host_wait_fn *host_wait;
	void *host_wait_arg;
};

struct nvefs_check_result {
	uint64_t problems;   /* found, in all rounds, notes not counted */
	uint64_t left;	     /* of these, not mended */
	uint32_t rounds;     /* of mending */
	bool held;	     /* safe ones were left, for the tree is not whole */
	int stopped;	     /* why mending ended early: -ENOSPC, -EUCLEAN; 0: it did not */
	uint32_t first_code; /* of the first one; 0: none */
	bool skipped;	     /* quick, and nothing was wrong */
	uint64_t replayed_txns;
	uint8_t uuid[16];
	char label[64];
	uint64_t nblks, free_blks, data_blks, meta_blks, shared_blks;
	uint64_t files, dirs, others, orphans;
	uint64_t data_checked_blks;
};

/*
 * 0: the check was made, *ret says what it found, also when that is too much
 * damage to go on. -EBUSY: another host has it; it is claimed for the time of the check, or with
 * replay_in_memory only looked at (store/mmp.h). -EMEDIUMTYPE: there is no nvefs on the device; -ENOTSUP: of a newer version; -EIO,
 * -ENOMEM, -ECANCELED: the check could not be made, *err says why. The device
 * stays the caller's; one queue of it is used meanwhile, two with a claim.
 */
int nvefs_check(struct nvefs_dev *dev, const struct nvefs_check_opts *opts, struct nvefs_check_result *ret,
		struct nvefs_error *err);

#endif
