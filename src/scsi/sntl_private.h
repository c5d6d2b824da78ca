/* SPDX-License-Identifier: MIT */
/* Between the parts of the translation: a command under way and how it ends. */
#ifndef NVEFS_SCSI_SNTL_PRIVATE_H
#define NVEFS_SCSI_SNTL_PRIVATE_H

#include "scsi/sntl.h"

struct sntl_ctx {
	const struct nvefs_sntl_lu *lu;
	const struct nvefs_sntl_request *req;
	struct nvefs_cdb cdb;
	struct nvefs_sntl_cmd *cmd;
};

/* End with GOOD; cmd->in_bytes and out_bytes as they are. */
void sntl_good(struct sntl_ctx *x);
/* End with CHECK CONDITION. */
void sntl_fail(struct sntl_ctx *x, const struct nvefs_sense *s);
/* ILLEGAL REQUEST without and with a field pointer; bit -1: the whole byte. */
void sntl_illegal(struct sntl_ctx *x, uint16_t asc);
void sntl_illegal_cdb(struct sntl_ctx *x, uint16_t byte, int bit);
void sntl_illegal_parameter(struct sntl_ctx *x, uint16_t byte, int bit);
/* End with GOOD and `len` bytes of data, cut to the allocation length and the buffer. */
void sntl_answer(struct sntl_ctx *x, const void *data, uint32_t len);
/* Add a part; returns it with the entry cleared. */
struct nvefs_sntl_part *sntl_send(struct sntl_ctx *x);

/* Set Features to be sent beside the parts. */
void sntl_send_admin(struct sntl_ctx *x, enum nvefs_sntl_admin when, uint8_t fid, uint32_t value);

/* sntl_io.c: commands that touch the medium. */
void sntl_read_write(struct sntl_ctx *x, bool write);
void sntl_verify(struct sntl_ctx *x);
void sntl_compare_and_write(struct sntl_ctx *x);
void sntl_write_same(struct sntl_ctx *x);
void sntl_unmap(struct sntl_ctx *x);
void sntl_synchronize_cache(struct sntl_ctx *x);
/* False, with the command ended, when the initiator's buffer is shorter than what the CDB asks for. */
bool sntl_check_data(struct sntl_ctx *x, uint64_t bytes, bool out);

/* sntl_query.c: commands answered from Identify data. */
void sntl_inquiry(struct sntl_ctx *x);
void sntl_read_capacity(struct sntl_ctx *x);
void sntl_report_luns(struct sntl_ctx *x);
void sntl_report_opcodes(struct sntl_ctx *x);
void sntl_request_sense(struct sntl_ctx *x);

/* sntl_mode.c: mode parameters, and power conditions. */
void sntl_mode_sense(struct sntl_ctx *x);
void sntl_mode_select(struct sntl_ctx *x);
void sntl_start_stop_unit(struct sntl_ctx *x);

/* sntl_log.c */
void sntl_log_sense(struct sntl_ctx *x);

#endif
