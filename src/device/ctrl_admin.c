/* SPDX-License-Identifier: MIT */
/* Admin commands of the embedded controller (NVMe base 2.0, section 5). */
#include <stdio.h>
#include <string.h>

#include <nvefs/drive.h>

#include "device/controller.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/status.h"

#define SPARE_THRESHOLD 10u
#define DNR(status) ((uint16_t)((status) | NVEFS_NVME_DNR))

static uint8_t exponent(uint32_t value)
{
	return (uint8_t)__builtin_ctz(value);
}

static void put_text(char *field, size_t len, const char *text)
{
	memset(field, ' ', len);
	memcpy(field, text, strlen(text) < len ? strlen(text) : len);
}

static uint32_t max_lbas(const struct nvefs_ctrl *c)
{
	uint32_t lbas = c->cfg.mdts_bytes / c->cfg.lba_bytes;

	return lbas < NVEFS_NVME_MAX_NLBS ? lbas : NVEFS_NVME_MAX_NLBS;
}

static void identify_ctrl(struct nvefs_ctrl *c, struct nvefs_nvme_id_ctrl *id)
{
	char serial[21];
	uint16_t oncs =
	    NVEFS_NVME_ONCS_COMPARE | NVEFS_NVME_ONCS_VERIFY | NVEFS_NVME_ONCS_SAVE_SELECT;

	if (c->media->can_deallocate)
		oncs |= NVEFS_NVME_ONCS_DSM | NVEFS_NVME_ONCS_WRITE_ZEROES;
	snprintf(serial, sizeof(serial), "%02X%02X%02X%02X%02X%02X%02X%02X", c->media->nguid[0],
		 c->media->nguid[1], c->media->nguid[2], c->media->nguid[3], c->media->nguid[4],
		 c->media->nguid[5], c->media->nguid[6], c->media->nguid[7]);
	put_text(id->sn, sizeof(id->sn), serial);
	put_text(id->mn, sizeof(id->mn), "nvefs embedded controller");
	put_text(id->fr, sizeof(id->fr), NVEFS_VERSION);
	id->mdts = exponent(c->cfg.mdts_bytes / 4096);
	id->cntlid = le16_make(1);
	id->ver = le32_make(0x00020000);
	id->ctratt = le32_make(NVEFS_NVME_CTRATT_ENDURANCE_GROUPS);
	id->cntrltype = 1;
	id->lpa = NVEFS_NVME_LPA_EXTENDED;
	id->endgidmax = le16_make(NVEFS_CTRL_ENDURANCE_GROUP);
	id->sqes = 0x66;
	id->cqes = 0x44;
	id->maxcmd = le16_make((uint16_t)c->cfg.depth);
	id->nn = le32_make(1);
	id->oncs = le16_make(oncs);
	id->fuses = le16_make(NVEFS_NVME_FUSES_COMPARE_WRITE);
	/* What one transfer can carry; a pair is alone with the medium, however long it is. */
	id->acwu = le16_make((uint16_t)(max_lbas(c) - 1));
	id->vwc = (c->cfg.vwc ? NVEFS_NVME_VWC_PRESENT : 0) | NVEFS_NVME_VWC_FLUSH_ALL_YES;
	id->sgls = le32_make(1);
	snprintf(id->subnqn, sizeof(id->subnqn), "nqn.2014-08.org.nvmexpress:uuid:nvefs-%s",
		 serial);
}

static void identify_ns(struct nvefs_ctrl *c, struct nvefs_nvme_id_ns *id)
{
	uint32_t iu_lbas = c->cfg.iu_bytes / c->cfg.lba_bytes;

	id->nsze = id->ncap = id->nuse = le64_make(c->nlbas);
	id->nsfeat = NVEFS_NVME_NSFEAT_OPTPERF;
	id->nlbaf = 0;
	id->dlfeat = NVEFS_NVME_DLFEAT_READ_ZEROS | NVEFS_NVME_DLFEAT_DEAC;
	nvefs_nvme_u128_set(id->nvmcap, c->nlbas * c->cfg.lba_bytes);
	id->npwg = id->npwa = le16_make((uint16_t)(iu_lbas - 1));
	id->npdg = id->npda = le16_make((uint16_t)(4096 / c->cfg.lba_bytes - 1));
	id->nows = le16_make((uint16_t)(iu_lbas - 1));
	id->nmic = c->cfg.shared ? 1 : 0;
	id->nsattr = c->cfg.write_protected ? NVEFS_NVME_NSATTR_WRITE_PROTECTED : 0;
	id->endgid = le16_make(NVEFS_CTRL_ENDURANCE_GROUP);
	memcpy(id->nguid, c->media->nguid, sizeof(id->nguid));
	id->lbaf[0].lbads = exponent(c->cfg.lba_bytes);
}

static void identify_independent(struct nvefs_ctrl *c, struct nvefs_nvme_id_ns_independent *id)
{
	id->nsattr = c->cfg.write_protected ? NVEFS_NVME_NSATTR_WRITE_PROTECTED : 0;
	id->endgid = le16_make(NVEFS_CTRL_ENDURANCE_GROUP);
	id->nstat = NVEFS_NVME_NSTAT_READY;
}

static void identify_descs(struct nvefs_ctrl *c, uint8_t *page)
{
	static const uint8_t csi = NVEFS_NVME_CSI_NVM;
	size_t pos = 0;

	nvefs_nvme_ns_desc_put(page, NVEFS_NVME_IDENTIFY_BYTES, &pos, NVEFS_NVME_NIDT_NGUID,
			       c->media->nguid, sizeof(c->media->nguid));
	nvefs_nvme_ns_desc_put(page, NVEFS_NVME_IDENTIFY_BYTES, &pos, NVEFS_NVME_NIDT_CSI, &csi, 1);
}

static void identify_ctrl_nvm(struct nvefs_ctrl *c, struct nvefs_nvme_id_ctrl_nvm *id)
{
	id->vsl = exponent(c->cfg.mdts_bytes / 4096);
	id->dmrl = NVEFS_NVME_DSM_MAX_RANGES - 1;
}

static uint16_t admin_identify(struct nvefs_ctrl *c, const struct nvefs_nvme_sqe *sqe, void *data,
			       uint32_t len)
{
	uint32_t nsid = le32_get(sqe->nsid);
	uint8_t cns = nvefs_nvme_sqe_cns(sqe);
	uint8_t page[NVEFS_NVME_IDENTIFY_BYTES] __attribute__((aligned(8))) = {0};

	if (len != sizeof(page))
		return DNR(NVEFS_NVME_SC_SGL_DATA_LEN);
	if ((cns == NVEFS_NVME_CNS_CSI_NS || cns == NVEFS_NVME_CNS_CSI_CTRL) &&
	    nvefs_nvme_sqe_csi(sqe) != NVEFS_NVME_CSI_NVM)
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	if ((cns == NVEFS_NVME_CNS_NS || cns == NVEFS_NVME_CNS_NS_DESCS ||
	     cns == NVEFS_NVME_CNS_CSI_NS || cns == NVEFS_NVME_CNS_NS_INDEPENDENT) &&
	    nsid != NVEFS_CTRL_NSID && !(nsid == NVEFS_NVME_NSID_ALL && cns == NVEFS_NVME_CNS_NS))
		return DNR(NVEFS_NVME_SC_INVALID_NS);
	switch (cns) {
	case NVEFS_NVME_CNS_NS:
		identify_ns(c, (void *)page);
		break;
	case NVEFS_NVME_CNS_CTRL:
		identify_ctrl(c, (void *)page);
		break;
	case NVEFS_NVME_CNS_ACTIVE_NS_LIST:
		if (nsid >= NVEFS_NVME_NSID_ALL - 1)
			return DNR(NVEFS_NVME_SC_INVALID_NS);
		page[0] = nsid < NVEFS_CTRL_NSID ? NVEFS_CTRL_NSID : 0;
		break;
	case NVEFS_NVME_CNS_NS_DESCS:
		identify_descs(c, page);
		break;
	case NVEFS_NVME_CNS_CSI_NS:
		break;
	case NVEFS_NVME_CNS_NS_INDEPENDENT:
		identify_independent(c, (void *)page);
		break;
	case NVEFS_NVME_CNS_CSI_CTRL:
		identify_ctrl_nvm(c, (void *)page);
		break;
	default:
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	}
	memcpy(data, page, sizeof(page));
	return 0;
}

static uint32_t feature_value(struct nvefs_ctrl *c, uint8_t fid, uint8_t sel)
{
	bool vwc = fid == NVEFS_NVME_FEATURE_WRITE_CACHE;

	if (fid == NVEFS_NVME_FEATURE_POWER && sel != NVEFS_NVME_SEL_CAPABILITIES)
		return 0; /* there is power state 0 only (NPSS) */
	switch (sel) {
	case NVEFS_NVME_SEL_CAPABILITIES:
		return NVEFS_NVME_FEATURE_CAP_CHANGEABLE;
	case NVEFS_NVME_SEL_CURRENT:
		return vwc ? __atomic_load_n(&c->write_cache, __ATOMIC_RELAXED)
			   : nvefs_nvme_queues_encode(c->granted_queues, c->granted_queues);
	default:
		return vwc ? c->cfg.vwc
			   : nvefs_nvme_queues_encode(c->cfg.max_queues, c->cfg.max_queues);
	}
}

static bool feature_known(const struct nvefs_ctrl *c, uint8_t fid)
{
	return (fid == NVEFS_NVME_FEATURE_WRITE_CACHE && c->cfg.vwc) ||
	       fid == NVEFS_NVME_FEATURE_QUEUES || fid == NVEFS_NVME_FEATURE_POWER;
}

static uint16_t admin_get_features(struct nvefs_ctrl *c, const struct nvefs_nvme_sqe *sqe,
				   uint32_t *ret_result)
{
	uint8_t fid = (uint8_t)le32_get(sqe->cdw10), sel = le32_get(sqe->cdw10) >> 8 & 7;

	if (!feature_known(c, fid) || sel > NVEFS_NVME_SEL_CAPABILITIES)
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	*ret_result = feature_value(c, fid, sel);
	return 0;
}

static uint16_t set_queues(struct nvefs_ctrl *c, uint32_t value, uint32_t *ret_result)
{
	uint32_t sqs = nvefs_nvme_queues_sqs(value), cqs = nvefs_nvme_queues_cqs(value);
	uint32_t want = sqs < cqs ? sqs : cqs;

	if ((value & 0xffff) == 0xffff || value >> 16 == 0xffff)
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	if (c->nqueues)
		return DNR(NVEFS_NVME_SC_SEQUENCE);
	c->granted_queues = want < c->cfg.max_queues ? want : c->cfg.max_queues;
	*ret_result = nvefs_nvme_queues_encode(c->granted_queues, c->granted_queues);
	return 0;
}

/* Switching the cache off makes later writes durable; those before need a Flush, as the host knows.
 */
static uint16_t admin_set_features(struct nvefs_ctrl *c, const struct nvefs_nvme_sqe *sqe,
				   uint32_t *ret_result)
{
	uint8_t fid = (uint8_t)le32_get(sqe->cdw10);
	uint32_t value = le32_get(sqe->cdw11);

	if (!feature_known(c, fid))
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	if (le32_get(sqe->cdw10) >> 31)
		return DNR(NVEFS_NVME_SC_FEATURE_NOT_SAVEABLE);
	if (fid == NVEFS_NVME_FEATURE_QUEUES)
		return set_queues(c, value, ret_result);
	if (fid == NVEFS_NVME_FEATURE_POWER)
		return value & NVEFS_NVME_POWER_STATE_MASK ? DNR(NVEFS_NVME_SC_INVALID_FIELD) : 0;
	__atomic_store_n(&c->write_cache, (bool)(value & NVEFS_NVME_WRITE_CACHE_ENABLE),
			 __ATOMIC_RELAXED);
	return 0;
}

static uint64_t units(uint64_t bytes, uint64_t unit)
{
	return bytes / unit + (bytes % unit != 0);
}

static uint8_t critical_warning(const struct nvefs_ctrl *c)
{
	return (uint8_t)((c->cfg.spare_percent < SPARE_THRESHOLD ? NVEFS_WARN_SPARE : 0) |
			 (c->cfg.worn ? NVEFS_WARN_READ_ONLY : 0));
}

static void log_smart(struct nvefs_ctrl *c, const struct nvefs_ctrl_stats *s,
		      struct nvefs_nvme_smart_log *log)
{
	uint64_t unsafe = __atomic_load_n(&c->unsafe_shutdowns, __ATOMIC_RELAXED);

	log->temperature[0] = (uint8_t)(300 & 0xff); /* kelvin */
	log->temperature[1] = 300 >> 8;
	log->critical_warning = critical_warning(c);
	log->avail_spare = c->cfg.spare_percent;
	log->spare_threshold = SPARE_THRESHOLD;
	nvefs_nvme_u128_set(log->data_units_read,
			    units(s->read_bytes, NVEFS_NVME_SMART_UNIT_BYTES));
	nvefs_nvme_u128_set(log->data_units_written,
			    units(s->write_bytes, NVEFS_NVME_SMART_UNIT_BYTES));
	nvefs_nvme_u128_set(log->host_reads, s->read_cmds);
	nvefs_nvme_u128_set(log->host_writes, s->write_cmds);
	nvefs_nvme_u128_set(log->power_cycles, 1 + unsafe);
	nvefs_nvme_u128_set(log->unsafe_shutdowns, unsafe);
	nvefs_nvme_u128_set(log->media_errors, s->media_errors);
	nvefs_nvme_u128_set(log->error_log_entries, s->error_entries);
}

static void log_endurance(struct nvefs_ctrl *c, const struct nvefs_ctrl_stats *s,
			  struct nvefs_nvme_endurance_log *log)
{
	const uint64_t unit = NVEFS_NVME_ENDURANCE_UNIT_BYTES;

	/* Bits 0, 2 and 3 as in the SMART log; the others are reserved here. */
	log->critical_warning = critical_warning(c) & 0x0d;
	log->avail_spare = c->cfg.spare_percent;
	log->spare_threshold = SPARE_THRESHOLD;
	nvefs_nvme_u128_set(log->data_units_read, units(s->read_bytes, unit));
	nvefs_nvme_u128_set(log->data_units_written, units(s->write_bytes, unit));
	nvefs_nvme_u128_set(log->media_units_written, units(s->media_bytes, unit));
	nvefs_nvme_u128_set(log->host_reads, s->read_cmds);
	nvefs_nvme_u128_set(log->host_writes, s->write_cmds);
	nvefs_nvme_u128_set(log->media_errors, s->media_errors);
	nvefs_nvme_u128_set(log->error_log_entries, s->error_entries);
	nvefs_nvme_u128_set(log->total_capacity, c->nlbas * c->cfg.lba_bytes);
}

static uint16_t admin_get_log(struct nvefs_ctrl *c, const struct nvefs_nvme_sqe *sqe, void *data,
			      uint32_t len)
{
	uint8_t page[1024] __attribute__((aligned(8))) = {0};
	uint64_t off = nvefs_nvme_sqe_log_offset(sqe), size = 512;
	struct nvefs_ctrl_stats stats;
	uint8_t lid = (uint8_t)le32_get(sqe->cdw10);

	if (nvefs_nvme_sqe_log_len(sqe) != len)
		return DNR(NVEFS_NVME_SC_SGL_DATA_LEN);
	nvefs_ctrl_stats(c, &stats);
	switch (lid) {
	case NVEFS_NVME_LOG_SUPPORTED:
		size = 1024;
		page[4 * NVEFS_NVME_LOG_SUPPORTED] = 1;
		page[4 * NVEFS_NVME_LOG_SMART] = 1;
		page[4 * NVEFS_NVME_LOG_ENDURANCE_GROUP] = 1;
		break;
	case NVEFS_NVME_LOG_SMART:
		log_smart(c, &stats, (void *)page);
		break;
	case NVEFS_NVME_LOG_ENDURANCE_GROUP:
		if (nvefs_nvme_sqe_log_lsi(sqe) != NVEFS_CTRL_ENDURANCE_GROUP)
			return DNR(NVEFS_NVME_SC_INVALID_FIELD);
		log_endurance(c, &stats, (void *)page);
		break;
	default:
		return DNR(NVEFS_NVME_SC_LOG_PAGE_INVALID);
	}
	if (off > size || off % 4)
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	memset(data, 0, len);
	memcpy(data, page + off, len < size - off ? len : size - off);
	return 0;
}

uint16_t nvefs_ctrl_admin(struct nvefs_ctrl *c, const struct nvefs_nvme_sqe *sqe, void *data,
			  uint32_t len, uint32_t *ret_result)
{
	uint16_t status;

	*ret_result = 0;
	if (sqe->flags & NVEFS_NVME_FUSE_MASK)
		return DNR(NVEFS_NVME_SC_INVALID_FIELD);
	switch (sqe->opcode) {
	case NVEFS_NVME_ADMIN_IDENTIFY:
		return admin_identify(c, sqe, data, len);
	case NVEFS_NVME_ADMIN_GET_LOG_PAGE:
		return admin_get_log(c, sqe, data, len);
	case NVEFS_NVME_ADMIN_GET_FEATURES:
		return admin_get_features(c, sqe, ret_result);
	case NVEFS_NVME_ADMIN_SET_FEATURES:
		nvefs_mutex_lock(&c->lock);
		status = admin_set_features(c, sqe, ret_result);
		nvefs_mutex_unlock(&c->lock);
		return status;
	case NVEFS_NVME_ADMIN_ABORT:
		*ret_result = 1; /* not aborted: commands end on their own */
		return 0;
	default:
		return DNR(NVEFS_NVME_SC_INVALID_OPCODE);
	}
}
