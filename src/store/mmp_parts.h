/* SPDX-License-Identifier: MIT */
/* Inside multiple mount protection: mmp.c, mmp_take.c. */
#ifndef NVEFS_STORE_MMP_PARTS_H
#define NVEFS_STORE_MMP_PARTS_H

#include "base/thread.h"
#include "store/mmp.h"

struct nvefs_mmp {
	struct nvefs_dev *dev;
	struct nvefs_super sb;
	/* What goes into both blocks; seq is the last beat's. The thread's, or its owner's while there is none. */
	struct nvefs_mmp_rec rec;
	uint8_t *buf; /* likewise */
	char why[160]; /* likewise: what the last beat met */
	bool failing;  /* likewise */
	uint64_t lease_ns; /* atomic: end of the lease; 0: there was none yet */
	uint64_t nlate;	   /* atomic */

	struct nvefs_mutex lock; /* below; `lost` is called under it */
	struct nvefs_cond wake;	  /* the thread has work */
	struct nvefs_cond change; /* it has started, the lease has moved, the claim is lost */
	bool stop, kick, up;
	int start_err, lost_err;
	nvefs_mmp_lost_fn *lost;
	void *lost_arg;
	pthread_t thread;
};

static inline uint64_t nvefs_mmp_ns(const struct nvefs_super *sb, uint32_t intervals)
{
	return (uint64_t)sb->mmp_interval_ms * intervals * 1000000u;
}

/* No thread yet, no lease. NULL: out of memory. */
struct nvefs_mmp *nvefs_mmp_new(struct nvefs_dev *dev, const struct nvefs_super *sb,
				const struct nvefs_mmp_opts *opts);
void nvefs_mmp_free(struct nvefs_mmp *m);
/* Start the thread, which has the lease from nvefs_mmp_beat. 0 or -errno. */
int nvefs_mmp_start(struct nvefs_mmp *m);

/* Seal and write one of the two blocks; `buf` has room for it. */
int nvefs_mmp_write(struct nvefs_queue *q, const struct nvefs_super *sb, const struct nvefs_mmp_rec *rec,
		    uint16_t type, void *buf);
/* Steps 1 to 3. -EBUSY: the claim is another's, or gone; else what the device said. m->why says it in words. */
int nvefs_mmp_beat(struct nvefs_mmp *m, struct nvefs_queue *q);
/* The name of a host as it can be shown. */
void nvefs_mmp_host_text(const char *host, char *ret, size_t len);

#endif
