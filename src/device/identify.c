/* SPDX-License-Identifier: MIT */
#include "device/identify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/status.h"

static int ask(struct nvefs_dev *dev, uint32_t nsid, uint8_t cns, void *page)
{
	struct nvefs_nvme_sqe sqe;
	uint32_t result;
	uint16_t status;
	int err;

	nvefs_nvme_sqe_identify(&sqe, nsid, cns, NVEFS_NVME_CSI_NVM);
	err = dev->ops->admin(dev, &sqe, page, NVEFS_NVME_IDENTIFY_BYTES, &result, &status);
	return err ? err : nvefs_nvme_status_errno(status);
}

/* The cache may be there and switched off; a controller that does not tell has it on. */
static bool cache_on(struct nvefs_dev *dev, const struct nvefs_nvme_ctrl_info *ctrl)
{
	struct nvefs_nvme_sqe sqe;
	uint32_t value;
	uint16_t status;

	if (!ctrl->vwc)
		return false;
	nvefs_nvme_sqe_get_features(&sqe, 0, NVEFS_NVME_FEATURE_WRITE_CACHE,
				    NVEFS_NVME_SEL_CURRENT);
	if (dev->ops->admin(dev, &sqe, NULL, 0, &value, &status) || status)
		return true;
	return value & NVEFS_NVME_WRITE_CACHE_ENABLE;
}

static uint32_t at_least_1(uint64_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : value ? (uint32_t)value : 1;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void set_limits(struct nvefs_dev_limits *l, const struct nvefs_nvme_ctrl_info *ctrl,
		       const struct nvefs_nvme_ns_info *ns, uint32_t transport_max_bytes)
{
	const uint32_t per_blk = NVEFS_BLOCK_SIZE / ns->lba_bytes;
	const uint32_t nlb_blks = NVEFS_NVME_MAX_NLBS / per_blk, page_shift = 12;
	uint32_t max_bytes =
	    smaller(transport_max_bytes, nvefs_nvme_limit_bytes(ctrl->mdts, page_shift));

	l->nblks = ns->nsze / per_blk;
	l->lba_bytes = ns->lba_bytes;
	l->max_transfer_blks = at_least_1(smaller(max_bytes >> NVEFS_BLOCK_SHIFT, nlb_blks));
	if (ctrl->dsm) {
		l->max_discard_blks = UINT32_MAX / per_blk;
		if (ctrl->dmrsl)
			l->max_discard_blks = smaller(l->max_discard_blks, ctrl->dmrsl / per_blk);
		if (ctrl->dmsl && ctrl->dmsl / per_blk < l->max_discard_blks)
			l->max_discard_blks = (uint32_t)(ctrl->dmsl / per_blk);
	}
	if (ctrl->write_zeroes)
		l->max_zeroes_blks = smaller(
		    nlb_blks, nvefs_nvme_limit_bytes(ctrl->wzsl, page_shift) >> NVEFS_BLOCK_SHIFT);
	l->iu_blks = at_least_1(ns->npwg / per_blk);
	l->iu_align_blks = at_least_1(ns->npwa / per_blk);
	l->optimal_blks = ns->nows / per_blk;
	l->discard_gran_blks = at_least_1(ns->npdg / per_blk);
	l->discard_align_blks = at_least_1(ns->npda / per_blk);
	l->atomic_blks = (ns->nawupf ? ns->nawupf : ctrl->awupf) / per_blk;
	l->read_only = ns->write_protected;
	l->compare = ctrl->compare;
	l->fua = true;
	l->discard_zeroes =
	    (ns->dlfeat & NVEFS_NVME_DLFEAT_READ_MASK) == NVEFS_NVME_DLFEAT_READ_ZEROS;
}

static void set_identity(struct nvefs_dev_identity *id, const char *target, uint32_t nsid,
			 const struct nvefs_nvme_ctrl_info *ctrl,
			 const struct nvefs_nvme_ns_info *ns)
{
	snprintf(id->target, sizeof(id->target), "%s", target);
	snprintf(id->model, sizeof(id->model), "%s", ctrl->model);
	snprintf(id->serial, sizeof(id->serial), "%s", ctrl->serial);
	snprintf(id->firmware, sizeof(id->firmware), "%s", ctrl->firmware);
	memcpy(id->nguid, ns->nguid, sizeof(id->nguid));
	memcpy(id->eui64, ns->eui64, sizeof(id->eui64));
	id->nsid = nsid;
}

static int check_command_set(const char *target, const struct nvefs_nvme_ns_info *ns,
			     struct nvefs_error *err)
{
	if (ns->csi == NVEFS_NVME_CSI_NVM)
		return 0;
	return nvefs_error_set(err, -ENOTSUP, "%s: %s (command set %u): use a namespace of plain blocks",
			       target,
			       ns->csi == NVEFS_NVME_CSI_ZNS
				   ? "is zoned, and its blocks cannot be written in any order"
				   : "does not hold blocks",
			       ns->csi);
}

static int check_format(const char *target, const struct nvefs_nvme_ns_info *ns,
			struct nvefs_error *err)
{
	if (ns->metadata_bytes || ns->pi_type)
		return nvefs_error_set(
		    err, -ENOTSUP,
		    "%s: formatted with %u bytes of metadata per block: format it "
		    "without (nvme format -l)",
		    target, ns->metadata_bytes);
	if (ns->lba_bytes != 512 && ns->lba_bytes != 4096)
		return nvefs_error_set(err, -ENOTSUP,
				       "%s: blocks of %u bytes: only 512 and 4096 are supported",
				       target, ns->lba_bytes);
	return 0;
}

int nvefs_dev_identify(struct nvefs_dev *dev, const char *target, uint32_t nsid,
		       uint32_t transport_max_bytes, struct nvefs_error *err)
{
	uint8_t page[NVEFS_NVME_IDENTIFY_BYTES] __attribute__((aligned(4096)));
	struct nvefs_nvme_ctrl_info ctrl = {0};
	struct nvefs_nvme_ns_info ns = {0};
	int code = ask(dev, 0, NVEFS_NVME_CNS_CTRL, page);

	if (code)
		return nvefs_error_set(err, code, "%s: Identify Controller failed: %s", target,
				       strerror(-code));
	nvefs_nvme_ctrl_parse((const void *)page, &ctrl);
	/* Controllers older than version 2.0 have no such page, and no such limits. */
	if (!ask(dev, 0, NVEFS_NVME_CNS_CSI_CTRL, page))
		nvefs_nvme_ctrl_parse_nvm((const void *)page, &ctrl);
	/* Older than version 1.3: no descriptors, and no other command set either. */
	if (!ask(dev, nsid, NVEFS_NVME_CNS_NS_DESCS, page))
		nvefs_nvme_ns_parse_descs(page, sizeof(page), &ns);
	code = check_command_set(target, &ns, err);
	if (code)
		return code;
	code = ask(dev, nsid, NVEFS_NVME_CNS_NS, page);
	if (!code)
		code = nvefs_nvme_ns_parse((const void *)page, &ns);
	if (code)
		return nvefs_error_set(err, code, "%s: Identify Namespace %u failed: %s", target,
				       nsid, strerror(-code));
	code = check_format(target, &ns, err);
	if (code)
		return code;
	set_limits(&dev->limits, &ctrl, &ns, transport_max_bytes);
	dev->limits.volatile_cache = cache_on(dev, &ctrl);
	set_identity(&dev->identity, target, nsid, &ctrl, &ns);
	return 0;
}
