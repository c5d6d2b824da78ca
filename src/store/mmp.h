/* SPDX-License-Identifier: MIT */
/*
 * Multiple mount protection: of the hosts that reach one device, one at a time
 * writes. Two fixed blocks (format.h): the *claim* names who has the file
 * system; the *beat* moves while he is alive. I is the file system's interval.
 *
 *  Holder, each I:
 *   1. notes the time s; reads the claim: another's ends him at once
 *   2. writes the beat
 *   3. reads the claim again: still his own, then he may write until s + 5 I, the
 *      end of the *lease*
 *   4. outside of the lease the device sends nothing that changes the medium
 *      (nvefs_dev_allow_writes): it waits. A commit is told as durable only when
 *      the lease was there after its last command had completed (nvefs_mmp_confirm)
 *   5. whose lease has run out goes on with 1: he may have been suspended, or the device
 *      slow, and nobody need have come. If the device answers with errors then, he ends.
 *
 *  Taker:
 *   6. a claim that says free, with a beat of the same nonce, needs no watch. Otherwise
 *      reads both blocks for 10 I: a change means that somebody is alive
 *   7. reads both once more and writes the claim; waits I / 2; reads both: the claim must
 *      still be his, the beat as before
 *   8. if that writing took more than I / 4 from its reading on, or the beat has moved, or
 *      the claim was taken by force without a watch: waits 10 I more, and the claim must be his
 *   9. the first beat, by 1 to 3; only now is anything else read for use or written
 *
 *  Why no two write. A write and a read of one block by two hosts have an order, and
 *  so have all hosts' commands on a block that have completed. Let A be the holder
 *  whose last lease comes from beat k, begun at s, and B take after him.
 *   - A's step 3 is before B's claim, or A would have seen it. So beat k was there when B read
 *     the beat in step 7 after its claim. It was as at the start of B's watch: so A began
 *     k before that start, and his lease, 5 I, was over 5 I before the end of B's watch, 10 I. A
 *     gets no further one, since step 3 now reads B's claim.
 *   - In step 8 the 10 I begin after the claim, and A's last lease began before it.
 *   - Two takers of one state: the one whose claim is written last finds it in step 7; the
 *     other one read before that, at most I / 4 before it, and looks I / 2 after his own. A claim
 *     written later than that may hit one that is verified already: its owner ends with
 *     his next beat, and whoever wrote waits by step 8 until that lease is over, too.
 *   - Free with a nonce other than the beat's is what a holder wrote who was no longer one.
 *  The spare 5 I are for clocks that run at different rates and for commands that were sent
 *  within the lease and take effect later. What lies beyond this: a command that the kernel or
 *  the device carries out more than 5 I after the lease; a host that stops between its look at the
 *  clock and the sending; a virtual machine that is paused together with its clock,
 *  which notices with its first beat afterwards. Only the device could keep these out (reservations).
 *
 * Cost: in each interval two reads, one write; a reading of the clock for each command that
 * writes and each commit. Beats need no Flush: whoever reads them asks the same device. The claim has one.
 */
#ifndef NVEFS_STORE_MMP_H
#define NVEFS_STORE_MMP_H

#include <nvefs/nvefs.h>

#include "format/mmp.h"

struct nvefs_mmp;

#define NVEFS_MMP_LEASE 5u  /* intervals */
#define NVEFS_MMP_WATCH 10u

struct nvefs_mmp_opts {
	uint32_t state; /* what the claim says: NVEFS_MMP_MOUNTED, NVEFS_MMP_FSCK */
	bool force;	/* from whoever has it; nvefs_mmp_look: do not look */
	const char *force_how; /* what gives that, for the message; NULL: nothing does */
	const char *host; /* NULL: the host's name */
	bool alone; /* tests only: there is no other host, so nothing is waited for */
	nvefs_host_wait_fn *wait; /* may be NULL */
	void *wait_arg;
};

/*
 * For who does not write to it, or is about to destroy it: steps 6. 0: nobody is alive;
 * or what can be read there has no protection. -EBUSY, -ECANCELED, -EIO, -ENOMEM.
 */
int nvefs_mmp_look(struct nvefs_dev *dev, const struct nvefs_mmp_opts *opts, struct nvefs_error *err);
/*
 * Steps 6 to 9, and a thread that beats from then on, with a queue of its own. *ret_m NULL:
 * what can be read there has no protection. -EBUSY: another host has it; as above.
 */
int nvefs_mmp_take(struct nvefs_dev *dev, const struct nvefs_mmp_opts *opts, struct nvefs_mmp **ret_m,
		   struct nvefs_error *err);
/* `lost` is called, once, when the claim is lost: at once, if it is already. NULL: nobody any more. */
typedef void nvefs_mmp_lost_fn(void *arg, int err, const char *why);
void nvefs_mmp_set_lost(struct nvefs_mmp *m, nvefs_mmp_lost_fn *lost, void *arg);
/* Step 4: waits for a lease. 0, or -EROFS when the claim is lost. Any thread; m NULL: 0. */
int nvefs_mmp_confirm(struct nvefs_mmp *m);
/* 0; or -EBUSY and why, when the claim is lost. m NULL: 0. */
int nvefs_mmp_check(struct nvefs_mmp *m, struct nvefs_error *err);
/*
 * End the thread and give the device back its freedom. `clean`: all that was to be written is
 * durable, and the claim says free, if it is still ours; otherwise, and when that
 * fails, the next one watches. NULL is fine.
 */
void nvefs_mmp_release(struct nvefs_mmp *m, bool clean);

/*
 * Both blocks as mkfs makes them: free, nobody ever had it; Flush. `sb` has the feature, which the device
 * does not say yet. 0 or -errno.
 */
int nvefs_mmp_make(struct nvefs_dev *dev, struct nvefs_queue *q, const struct nvefs_super *sb);

/* Beats that came after the end of a lease. m NULL: 0. */
uint64_t nvefs_mmp_late(struct nvefs_mmp *m);

#endif
