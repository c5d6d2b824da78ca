/* SPDX-License-Identifier: MIT */
/*
 * A device that writes down what passes it: every command with its data, the
 * order in which commands were submitted and completed over all queues, Flush
 * and FUA. replay.h builds from it what a power cut could have left.
 *
 * The log outlives the device. It holds the contents that the device had when the
 * recording began, and at most `max_bytes` of data after that; when it is full the
 * recording ends there and says so, the device works on.
 */
#ifndef NVEFS_DEVICE_RECORD_H
#define NVEFS_DEVICE_RECORD_H

#include "device/backend.h"
#include "device/cow.h"

struct nvefs_record;

/* `below` is taken over on success only, and has no queues. Reads all of it. 0 or -errno. */
int nvefs_record_wrap(struct nvefs_dev *below, uint64_t max_bytes, struct nvefs_dev **ret_dev,
		      struct nvefs_record **ret_log);
/* The same without reading: `base` is what the device holds. It stays the caller's and outlives
 * the log. */
int nvefs_record_wrap_on(struct nvefs_dev *below, const struct nvefs_cow *base, uint64_t max_bytes,
			 struct nvefs_dev **ret_dev, struct nvefs_record **ret_log);
/* The device is closed. NULL is fine. */
void nvefs_record_free(struct nvefs_record *log);

/*
 * Number of events so far: a command handed to the device is one, its
 * completion (before its callback runs) another. What was acknowledged to somebody at
 * position p must hold in every state of a cut at p or later. Any thread.
 */
uint32_t nvefs_record_position(struct nvefs_record *log);
bool nvefs_record_overflowed(struct nvefs_record *log);

/* What follows is for replay.c, and for tests of the order of commands; no queue is left. */
struct nvefs_record_cmd {
	uint8_t op; /* enum nvefs_io_op; NVEFS_IO_NOPS: another raw command */
	bool fua;
	uint32_t submitted, completed; /* events; completed UINT32_MAX: never */
	int err;
	uint64_t off, len;   /* bytes */
	const uint8_t *data; /* of a write; of a discard NULL */
};
struct nvefs_record_event {
	uint32_t cmd;
	bool completion;
};
uint32_t nvefs_record_nevents(const struct nvefs_record *log);
uint32_t nvefs_record_ncmds(const struct nvefs_record *log);
const struct nvefs_record_cmd *nvefs_record_cmd_at(const struct nvefs_record *log, uint32_t index);
const struct nvefs_record_event *nvefs_record_event_at(const struct nvefs_record *log,
						       uint32_t index);
const struct nvefs_dev_limits *nvefs_record_limits(const struct nvefs_record *log);
const struct nvefs_cow *nvefs_record_base(const struct nvefs_record *log); /* the first contents */

#endif
