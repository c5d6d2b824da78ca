/* SPDX-License-Identifier: MIT */
/*
 * The embedded NVMe controller: one namespace, NSID 1, on a medium. It knows
 * commands only as submission entries in rings (rings.h) and answers only with
 * completion entries.
 *
 * Data pointer: PSDT must be 01b; the SGL 1 descriptor in DPTR holds in its
 * first 8 bytes a host address, then a 32-bit length in bytes, and in its last
 * byte the descriptor type: 00h, a data block, the address of the data itself;
 * or F0h, vendor specific, the address of an array of struct iovec, the length
 * being that of the array. Buffers stay valid until the completion.
 *
 * Queues are made by function call instead of the Create commands, since
 * their memory is shared as host pointers. A queue belongs to one thread; admin
 * commands come from any.
 */
#ifndef NVEFS_DEVICE_CONTROLLER_H
#define NVEFS_DEVICE_CONTROLLER_H

#include "base/list.h"
#include "base/thread.h"
#include "device/media.h"
#include "device/rings.h"

#define NVEFS_CTRL_NSID 1u
#define NVEFS_CTRL_ENDURANCE_GROUP 1u
#define NVEFS_SGL_DATA_BLOCK 0x00u
#define NVEFS_SGL_IOVEC 0xf0u
#define NVEFS_PSDT_SGL 0x40u

struct nvefs_ctrl_config {
	uint32_t lba_bytes;
	uint32_t mdts_bytes; /* power of two, at least 4096 */
	uint32_t max_queues, depth;
	uint32_t iu_bytes; /* NPWG; the medium is written in these */
	uint64_t latency_ns;
	uint8_t spare_percent; /* available spare, as the SMART log tells it */
	bool vwc;
	bool write_protected; /* what the namespace says of itself */
	bool read_only;	      /* every write is refused */
	bool worn; /* the medium takes no more writes, which the SMART log tells */
	bool shared; /* says so in NMIC */
};

struct nvefs_ctrl_stats {
	uint64_t read_cmds, write_cmds, read_bytes, write_bytes, media_bytes, media_errors, error_entries;
};

struct nvefs_ctrl {
	struct nvefs_ctrl_config cfg;
	struct nvefs_media *media;
	uint64_t nlbas;
	bool write_cache; /* the feature's value, atomic */
	uint32_t granted_queues;
	uint64_t unsafe_shutdowns; /* atomic */
	uint32_t gate; /* atomic; not 0: closed, see ctrl_gate.c */

	struct nvefs_mutex lock; /* below */
	struct nvefs_list queues;
	uint32_t nqueues;
	uint64_t qids[16]; /* bitmap of those in use */
	struct nvefs_ctrl_stats past;
};

struct nvefs_ctrl_queue;
/* Where a command stands with the gate of ctrl_gate.c. */
enum nvefs_ctrl_gate { NVEFS_GATE_NONE, NVEFS_GATE_CHANGING, NVEFS_GATE_PAIR, NVEFS_GATE_OWNER };
/* One command that the controller works on. */
struct nvefs_ctrl_cmd {
	struct nvefs_list link;
	struct nvefs_ctrl_queue *cq;
	struct nvefs_nvme_sqe sqe;
	struct nvefs_media_req req;
	void (*next)(struct nvefs_ctrl_cmd *cmd); /* runs when req is done */
	struct iovec *iov, one, inner;
	uint32_t niov, step;
	void *bounce;
	uint64_t due_ns;
	uint32_t result;
	uint16_t status;
	uint8_t gate;		     /* enum nvefs_ctrl_gate */
	struct nvefs_ctrl_cmd *pair; /* the other one of a fused pair */
};

struct nvefs_ctrl_queue {
	struct nvefs_ctrl *ctrl;
	struct nvefs_queue *queue; /* to wake */
	struct nvefs_rings rings;
	struct nvefs_media_queue *mq;
	struct nvefs_ctrl_cmd *cmds;
	struct nvefs_list free, timed; /* timed: finished but not due, by due_ns */
	struct nvefs_list held;	       /* they wait for the gate */
	uint32_t changing; /* atomic, written by the owner: commands at work that change the medium */
	int timer_fd;	   /* -1 without latency */
	struct nvefs_list link;
	struct nvefs_ctrl_stats stats; /* written by the owner, read by any, relaxed */
};

/* Takes the medium over, on failure too. 0 or -errno. */
int nvefs_ctrl_new(const struct nvefs_ctrl_config *cfg, struct nvefs_media *media,
		   struct nvefs_ctrl **ret_ctrl);
void nvefs_ctrl_free(struct nvefs_ctrl *c);

/* -EBUSY when the granted number is in use. */
int nvefs_ctrl_queue_new(struct nvefs_ctrl *c, struct nvefs_queue *q, uint32_t depth,
			 struct nvefs_ctrl_queue **ret_cq);
void nvefs_ctrl_queue_free(struct nvefs_ctrl_queue *cq);
/* The tail doorbell was written: fetch and execute. */
void nvefs_ctrl_doorbell(struct nvefs_ctrl_queue *cq);
/* Let finished media requests and due commands be posted. */
void nvefs_ctrl_run(struct nvefs_ctrl_queue *cq);
/* As in backend.h: true when the watched descriptors will tell. */
bool nvefs_ctrl_prepare_wait(struct nvefs_ctrl_queue *cq);

/* Execute one admin entry with `data`; returns the status field. ctrl_admin.c. */
uint16_t nvefs_ctrl_admin(struct nvefs_ctrl *c, const struct nvefs_nvme_sqe *sqe, void *data,
			  uint32_t len, uint32_t *ret_result);
/* Begin a fetched I/O command; it ends in nvefs_ctrl_complete. ctrl_io.c. */
void nvefs_ctrl_execute(struct nvefs_ctrl_cmd *cmd);
/* The same for a fused pair (NVM command set 1.0, 3.2.2 and base 2.0, 3.4.2). */
void nvefs_ctrl_execute_pair(struct nvefs_ctrl_cmd *first, struct nvefs_ctrl_cmd *second);
/* cmd->status is set: post it, now or when it is due. */
void nvefs_ctrl_complete(struct nvefs_ctrl_cmd *cmd);

/*
 * The gate. A command that changes the medium enters before it does, cmd->next being what
 * begins it: false means that it is held, and that next runs later. So does a fused
 * pair, which then is alone with the medium, by its first command. Both leave when they are done.
 */
bool nvefs_ctrl_gate_enter(struct nvefs_ctrl_cmd *cmd, bool pair);
void nvefs_ctrl_gate_leave(struct nvefs_ctrl_cmd *cmd);
/* Try what is held again. */
void nvefs_ctrl_gate_resume(struct nvefs_ctrl_queue *cq);
/* Would a try help? */
bool nvefs_ctrl_gate_ready(const struct nvefs_ctrl_queue *cq);

void nvefs_ctrl_stats(struct nvefs_ctrl *c, struct nvefs_ctrl_stats *ret);

#endif
