/* SPDX-License-Identifier: MIT */
/*
 * The journal: whole images of metadata blocks, in groups, in a circular log.
 *
 * The legal order, step by step; each needs the one before to be through:
 *
 *   commit of transaction N
 *    1. data writes that N's mappings speak of have completed (the layer above
 *       puts a mapping into the tree only then)
 *    2. freeze: under the meta lock copy all dirty blocks, N+1 becomes the
 *       running transaction
 *    3. descriptors and images are written to the log, and have completed
 *    4. Flush: 1 and 3 are on the medium
 *    5. the commit block is written, and a second Flush (or FUA) completed:
 *       N is durable. With multiple mount protection: and we were still the one
 *       host that may write (mmp.h). The waiters are told.
 *   group N+1 is written only after that, so that a valid commit block N+1
 *   proves that N was durable.
 *
 *   checkpoint, when more than half of the log is live
 *    6. the newest image of each block, of a durable transaction, is written
 *       home. Blocks freed by a durable transaction are left out
 *    7. Flush
 *    8. the header with the new tail is written to its older slot; Flush
 *    9. only now is the log space used again, and metadata blocks freed before
 *       the tail may become something else
 *
 *   recovery
 *   10. read the log; take groups from the header's tail on, as long as number,
 *       epoch, address and the checksum over the whole group are right. By 5
 *       the first that does not match was never durable, and nothing newer may
 *       be valid: if it is, the device lost a write, and we say so
 *   11. as 6 and 7, then a header with a new epoch, Flush. A cut at any point
 *       of this leaves the old header and log: recovery starts over
 *
 * Any failed write or Flush in 3 to 9 ends writing for good (nvefs_store_fail).
 */
#ifndef NVEFS_STORE_JOURNAL_H
#define NVEFS_STORE_JOURNAL_H

#include "store/store.h"

/* All of these: on the commit thread (or the opening one in its place), outside locks. */

/* Steps 2 to 5. *ret_wrote: there was something to commit. An error has failed the store. */
int nvefs_journal_commit(struct nvefs_store *st, struct nvefs_queue *q, bool *ret_wrote);
/* Steps 6 to 8. An error has failed the store. */
int nvefs_journal_checkpoint(struct nvefs_store *st, struct nvefs_queue *q);
/* Steps 10 and 11, reading the header first. Sets the transaction numbers and the root record. */
int nvefs_journal_recover(struct nvefs_store *st, struct nvefs_queue *q, struct nvefs_error *err);

/* Step 8: a header with the tail at the head, for the next transaction to come. */
int nvefs_journal_write_header(struct nvefs_store *st, struct nvefs_queue *q, uint64_t epoch);
/* Flush if the device has a volatile cache. */
int nvefs_journal_flush(struct nvefs_store *st, struct nvefs_queue *q);

#endif
