/* SPDX-License-Identifier: MIT */
/* Mode parameters and power conditions: what of a unit's state can be asked for and changed. */
#include <errno.h>
#include <string.h>
#include "scsi/sntl_private.h"

/* With the mistake of hiding it there is no cache, and so nothing to be switched. */
static struct nvefs_scsi_mode mode_now(const struct nvefs_sntl_lu *lu)
{
	bool hidden = lu->mistakes & NVEFS_SNTL_CACHE_HIDDEN;

	return (struct nvefs_scsi_mode){
	    .write_protected = lu->ns->write_protected,
	    .dpofua = true,
	    .write_cache = lu->write_cache && !hidden,
	    .write_cache_default = lu->cache_default && !hidden,
	    .write_cache_changeable = lu->cache_changeable && !hidden,
	    .descriptor_sense = lu->descriptor_sense,
	    .nlbas = lu->ns->nsze,
	    .lba_bytes = lu->ns->lba_bytes,
	};
}

void sntl_mode_sense(struct sntl_ctx *x)
{
	const struct nvefs_cdb *c = &x->cdb;
	struct nvefs_scsi_mode mode = mode_now(x->lu);
	struct nvefs_scsi_mode_ask ask = {.ten = c->opcode == NVEFS_SCSI_MODE_SENSE_10,
					  .dbd = c->dbd,
					  .llbaa = c->llbaa,
					  .pc = c->pc,
					  .page = c->page};
	uint8_t buf[NVEFS_MODE_BYTES];

	if (c->page != NVEFS_MODE_CACHING && c->page != NVEFS_MODE_CONTROL &&
	    c->page != NVEFS_MODE_POWER && c->page != NVEFS_MODE_ALL)
		return sntl_illegal_cdb(x, 2, 5);
	if (c->subpage != 0 && c->subpage != 0xff)
		return sntl_illegal_cdb(x, 3, -1);
	if (c->pc == NVEFS_MODE_SAVED)
		return sntl_illegal(x, NVEFS_ASC_SAVING_NOT_SUPPORTED);
	sntl_answer(x, buf, nvefs_scsi_mode_build(&mode, &ask, buf));
}

/*
 * WCE goes to Set Features. A cache that is switched off is flushed as well,
 * which the Reference does not ask for: first off, then flushed, so that every write is behind
 * one of the two.
 */
void sntl_mode_select(struct sntl_ctx *x)
{
	bool ten = x->cdb.opcode == NVEFS_SCSI_MODE_SELECT_10;
	struct nvefs_scsi_mode now = mode_now(x->lu);
	struct nvefs_scsi_mode_change change;
	struct nvefs_sense fault;

	if (x->cdb.count == 0)
		return sntl_good(x);
	if (!x->cdb.pf)
		return sntl_illegal_cdb(x, 1, 4);
	if (!sntl_check_data(x, x->cdb.count, true))
		return;
	if (!x->req->out)
		return sntl_illegal_cdb(x, nvefs_cdb_count_byte(&x->cdb), -1);
	if (nvefs_scsi_mode_select_parse(&now, x->req->out, x->cdb.count, ten, &change, &fault))
		return sntl_fail(x, &fault);
	x->cmd->out_bytes = x->cdb.count;
	if (!change.has_caching || change.write_cache == now.write_cache)
		return sntl_good(x);
	x->cmd->wce_at = change.wce_at;
	sntl_send_admin(x, NVEFS_SNTL_ADMIN_FIRST, NVEFS_NVME_FEATURE_WRITE_CACHE,
			change.write_cache ? NVEFS_NVME_WRITE_CACHE_ENABLE : 0);
	if (!change.write_cache)
		nvefs_nvme_sqe_flush(&sntl_send(x)->sqe, x->lu->nsid);
}

/* POWER CONDITION (SBC-3, 5.25), as the Reference maps it to power states. */
enum { POWER_START_VALID, POWER_ACTIVE, POWER_IDLE, POWER_STANDBY };

/* False: there is none for that condition and modifier; *ret_byte is the field that is wrong. */
static bool power_state(const struct sntl_ctx *x, uint8_t *ret_state, uint8_t *ret_byte)
{
	static const uint8_t max_modifier[] = {0, 0, 2, 1};
	uint8_t condition = x->cdb.power_condition, modifier = x->cdb.power_modifier;
	uint8_t lowest = x->lu->ctrl->npss;

	*ret_byte = condition > POWER_STANDBY ? 4 : 3;
	if (condition > POWER_STANDBY || modifier > max_modifier[condition])
		return false;
	if (condition == POWER_START_VALID)
		*ret_state = x->cdb.start ? 0 : lowest;
	else if (condition == POWER_ACTIVE)
		*ret_state = 0;
	else if (condition == POWER_IDLE)
		*ret_state = modifier + 1;
	else
		*ret_state = lowest + modifier < 2 ? 0 : lowest + modifier - 2;
	*ret_byte = modifier ? 3 : 4;
	return *ret_state <= lowest;
}

/*
 * The cache is flushed first, unless NO_FLUSH: a Flush afterwards would wake the drive. A unit that
 * has stopped stays ready, for a drive in any power state answers to commands; IMMED gets
 * the status of what is done.
 */
void sntl_start_stop_unit(struct sntl_ctx *x)
{
	uint8_t state, byte;

	if (!power_state(x, &state, &byte))
		return sntl_illegal_cdb(x, byte, byte == 4 ? 7 : 3);
	sntl_send_admin(x, x->cdb.no_flush ? NVEFS_SNTL_ADMIN_FIRST : NVEFS_SNTL_ADMIN_LAST,
			NVEFS_NVME_FEATURE_POWER, state);
	if (!x->cdb.no_flush)
		nvefs_nvme_sqe_flush(&sntl_send(x)->sqe, x->lu->nsid);
}
