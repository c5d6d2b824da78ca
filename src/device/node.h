/* SPDX-License-Identifier: MIT */
/*
 * Device nodes of the kernel: what one stands for, by which other names the
 * same device goes, and how it is kept from everybody else. Names come from
 * sysfs, never from the path that the user gave: links and renamed nodes are fine.
 */
#ifndef NVEFS_DEVICE_NODE_H
#define NVEFS_DEVICE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include <nvefs/device.h>

enum nvefs_node_kind {
	NVEFS_NODE_NVME, /* a namespace */
	NVEFS_NODE_SCSI, /* a logical unit */
	NVEFS_NODE_PARTITION,
	NVEFS_NODE_CONTROLLER, /* /dev/nvme0: no namespace is named */
	NVEFS_NODE_OTHER,
};

#define NVEFS_NODE_NAME_MAX 32
struct nvefs_node {
	enum nvefs_node_kind kind;
	bool by_block; /* the node given is the block node */
	/* The kernel's names; "" where there is no such node. For a partition, `block` is its disk. */
	char block[NVEFS_NODE_NAME_MAX], character[NVEFS_NODE_NAME_MAX];
};

/* `sysfs` is "/sys", but for tests. -ENOENT when sysfs does not know the number. */
int nvefs_node_look(const char *sysfs, const struct stat *st, struct nvefs_node *ret);

/*
 * Open /dev/<name> of the node's device, block or character; the number must be the
 * one that sysfs gives the name. A descriptor or a negative errno; -ENODEV when
 * the name is "" or belongs to something else.
 */
int nvefs_node_open(const char *sysfs, const struct nvefs_node *node, bool block, int flags);

/* What one passthrough command may carry, by the kernel. 0 where the block node is missing. */
struct nvefs_node_limits {
	uint32_t max_bytes; /* the smaller of the next two */
	uint32_t transfer_bytes; /* max_hw_sectors_kb */
	uint32_t segments_bytes; /* max_segments, of one page each; 0: no such limit */
	uint32_t hw_queues; /* of the path with the most, where there are several */
	bool multipath; /* the node stands for several paths, all of which may be away for a moment */
};
void nvefs_node_limits(const char *sysfs, const struct nvefs_node *node,
		       struct nvefs_node_limits *ret);

/* How a namespace with several paths can be reached now. */
enum nvefs_node_paths {
	NVEFS_PATHS_ONE,  /* it has not several: never looked at */
	NVEFS_PATHS_LIVE, /* by one at least */
	NVEFS_PATHS_AWAY, /* by none for the moment */
	NVEFS_PATHS_GONE, /* no more: the kernel has taken the namespace away, what is open of it stays dead */
};
/* Of a node whose limits say `multipath`; by what sysfs tells, in some microseconds. Any thread. */
enum nvefs_node_paths nvefs_node_paths(const char *sysfs, const struct nvefs_node *node);

/*
 * Hold the device for ourselves by its block node: no mount, no second open of
 * this kind, whichever name it goes by. What the kernel has cached of it is written and
 * forgotten, now and at the end, since passthrough goes round that cache. Without a
 * block node: -ENODEV. The descriptor or a negative errno with *err naming `target`.
 */
int nvefs_node_lock(const char *sysfs, const struct nvefs_node *node, bool read_only,
		    const char *target, struct nvefs_error *err);
/* -1 is fine. */
void nvefs_node_unlock(int fd, bool read_only);

#endif
