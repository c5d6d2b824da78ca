/* SPDX-License-Identifier: MIT */
/*
 * What a drive says about itself: read at open, kept, and shown by nvefsctl info
 * and mkfs.nvefs -n. Nothing here decides how it is driven: that is in
 * nvefs_dev_limits and nvefs_dev_identity of <nvefs/device.h>.
 *
 * Sizes are bytes, whatever unit the device tells them in. 0, "" and all
 * zeros: not reported, unless said otherwise.
 */
#ifndef NVEFS_DRIVE_H
#define NVEFS_DRIVE_H

#include <nvefs/device.h>

enum nvefs_cache_state { NVEFS_CACHE_NONE, NVEFS_CACHE_OFF, NVEFS_CACHE_ON };

/* Identify Controller and Namespace (NVMe base 2.0, 5.17.2; NVM command set 1.0, 4.1.5). */
struct nvefs_drive_nvme {
	bool there;
	char model[41], serial[21], firmware[9], subnqn[257];
	uint16_t vendor_id, controller_id;
	uint32_t version; /* VS: major << 16 | minor << 8 | tertiary */
	uint32_t nsid;
	uint8_t command_set; /* CSI: 0 is NVM */
	uint8_t nguid[16], eui64[8], uuid[16];
	uint64_t size_bytes, capacity_bytes, used_bytes;
	uint32_t lba_bytes;
	uint32_t lba_format, lba_formats; /* the one in use, of so many */
	uint8_t cache;			  /* enum nvefs_cache_state; VWC and Get Features 06h */
	uint32_t mdts_bytes;		  /* 0: no limit */
	/* max_hw_sectors_kb, and max_segments in pages; 0: there is no kernel in between */
	uint32_t kernel_transfer_bytes, kernel_segments_bytes;
	uint32_t npwg_bytes, npwa_bytes, npdg_bytes, npda_bytes, nows_bytes, noiob_bytes;
	uint32_t nawun_bytes, nawupf_bytes, nacwu_bytes; /* 0: the controller's count */
	uint32_t nabsn_bytes, nabspf_bytes, nabo_bytes;	 /* 0: no boundary */
	uint32_t awun_bytes, awupf_bytes, acwu_bytes;
	uint32_t wzsl_bytes, dmrl_ranges; /* CNS 06h */
	uint64_t dmrsl_bytes, dmsl_bytes;
	uint16_t oncs, endurance_group;
	uint8_t dlfeat;
	bool shared, thin, write_protected;
	bool cns5, cns6, cns8; /* which of the newer data structures the controller has */
	bool not_ready;	       /* CNS 08h, NSTAT */
	uint32_t io_queues;    /* granted by the controller; 0: it does not tell */
	uint32_t hw_queues;    /* of the kernel's driver */
	uint32_t crdt_ms[3];   /* Command Retry Delay Times */
};

#define NVEFS_DRIVE_VPD83_BYTES 256u
/* INQUIRY and its pages (SPC-4, 6.4 and 7.8; SBC-3, 6.6), READ CAPACITY, the caching mode page. */
struct nvefs_drive_scsi {
	bool there;
	char vendor[9], product[17], revision[5], serial[65];
	uint8_t vpd83[NVEFS_DRIVE_VPD83_BYTES];
	uint32_t vpd83_len;
	uint64_t size_bytes;
	uint32_t lba_bytes, physical_block_bytes;
	uint8_t cache; /* enum nvefs_cache_state */
	bool cache_changeable, dpofua, write_protected;
	bool has_b0, has_b1, has_b2;
	uint64_t max_transfer_bytes, optimal_transfer_bytes, granularity_bytes;
	uint64_t max_unmap_bytes; /* UINT64_MAX: no limit */
	uint32_t max_unmap_descriptors;
	uint64_t unmap_granularity_bytes, unmap_alignment_bytes, max_write_same_bytes;
	uint16_t rotation; /* 1: does not rotate, else rounds per minute */
	bool unmap, write_same_unmap, reads_zeros;
	uint8_t provisioning; /* 0 full, 1 resource, 2 thin */
	uint32_t kernel_transfer_bytes;
};

struct nvefs_drive {
	uint32_t transfer_bytes; /* in one command */
	char transfer_limit[32]; /* what limits it */
	/* Both on the scsi route: what the unit says, and the namespace below it. */
	struct nvefs_drive_nvme nvme;
	struct nvefs_drive_scsi scsi;
};
const struct nvefs_drive *nvefs_dev_drive(const struct nvefs_dev *dev);

/*
 * Health: the SMART log of NVMe (base 2.0, 5.16.1.3), or the log pages of SCSI (SPC-4, 7.3), under the
 * same names where they mean the same. Counts and bytes saturate at INT64_MAX.
 */
#define NVEFS_WARN_SPARE 0x01u	       /* available spare below the threshold */
#define NVEFS_WARN_TEMPERATURE 0x02u
#define NVEFS_WARN_RELIABILITY 0x04u
#define NVEFS_WARN_READ_ONLY 0x08u     /* the medium takes no more writes */
#define NVEFS_WARN_BACKUP 0x10u	       /* the volatile memory's backup has failed */
#define NVEFS_WARN_MEMORY_REGION 0x20u /* the persistent memory region is read-only or unreliable */
#define NVEFS_WARN_FAILING 0x100u      /* SCSI: ASC 5Dh, for any of the reasons above and others */
struct nvefs_drive_health {
	uint16_t critical_warning; /* NVEFS_WARN_* */
	bool has_exception;	   /* SCSI: informational exception, ASC << 8 | ASCQ; 0: none */
	uint16_t exception;
	bool has_temperature; /* 0 kelvin, as targets over fabrics say, is none */
	int temperature_celsius;
	bool has_spare;
	uint8_t spare_percent, spare_threshold_percent;
	bool has_used;
	uint8_t used_percent; /* of the life that was planned; up to 255 */
	bool has_traffic;
	uint64_t read_bytes, written_bytes, read_commands, write_commands;
	bool has_usage; /* busy_minutes, power_cycles, unsafe_shutdowns, error_log_entries */
	uint64_t busy_minutes, power_cycles;
	bool has_power_on;
	uint64_t power_on_hours, unsafe_shutdowns;
	bool has_media_errors; /* that the drive could not correct */
	uint64_t media_errors, error_log_entries;
	bool has_start_stop; /* SCSI */
	uint64_t start_stop_cycles;
	bool has_media_written; /* the endurance group's log is there */
	uint64_t media_written_bytes;
};
/*
 * Ask the drive now. Waits for it, some seconds when it does not answer, so never on a
 * thread that others wait for. Any thread. -ENOTSUP: it has no such log; *err
 * (which may be NULL) names the command that failed. A namespace is asked natively whatever the route.
 */
int nvefs_dev_health(struct nvefs_dev *dev, struct nvefs_drive_health *ret, struct nvefs_error *err);

/* One warning in words, of those in *critical_warning, whose bit is cleared; NULL: none is left. */
const char *nvefs_drive_warning(uint16_t *critical_warning);
/* What belongs to a warning, as far as it is told: "spare 3 %, threshold 10 %, used 40 %". */
void nvefs_drive_wear_text(const struct nvefs_drive_health *h, char *buf, size_t len);

/* An io that the device has not answered for some time. It is not given up: its memory is the device's. */
struct nvefs_slow {
	uint8_t op; /* enum nvefs_io_op, or NVEFS_IO_NOPS for one of no such kind */
	uint64_t pblk;
	uint32_t nblks;
	uint64_t age_ns;
	uint32_t others; /* that have become as old and were not told of */
};
typedef void nvefs_slow_fn(void *arg, const struct nvefs_slow *slow);
/*
 * Have `fn` called, by the thread of the queue that it is on, once for each io that has waited for
 * `after_ns`, up to half as much later; several at once are told of together. Before any queue is opened.
 */
void nvefs_dev_watch(struct nvefs_dev *dev, uint64_t after_ns, nvefs_slow_fn *fn, void *arg);

#endif
