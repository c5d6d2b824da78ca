/* SPDX-License-Identifier: MIT */
#include "device/identify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/drive.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/status.h"

const char *nvefs_admin_error_text(int code)
{
	switch (code) {
	case -ETIMEDOUT:
		return "timed out: the controller does not answer";
	case -EACCES:
	case -EPERM:
		return "refused by the kernel: be root (CAP_SYS_ADMIN)";
	case -ENODEV:
		return "the device is gone";
	default:
		return strerror(-code);
	}
}

struct asker {
	struct nvefs_dev *dev;
	const char *target;
	struct nvefs_error *err;
	struct nvefs_nvme_ctrl_info ctrl;
	struct nvefs_nvme_ns_info ns;
	uint8_t page[NVEFS_NVME_IDENTIFY_BYTES] __attribute__((aligned(4096)));
};

/* 0: the answer is there. 1: the controller refuses it, in *ret_status. -errno: it is not to be asked. */
static int ask(struct asker *a, uint32_t nsid, uint8_t cns, const char *what, uint16_t *ret_status)
{
	struct nvefs_nvme_sqe sqe;
	uint32_t result;
	int code;

	nvefs_nvme_sqe_identify(&sqe, nsid, cns, NVEFS_NVME_CSI_NVM);
	code = a->dev->ops->admin(a->dev, &sqe, a->page, sizeof(a->page), &result, ret_status);
	if (code)
		return nvefs_error_set(a->err, code, "%s: %s: %s", a->target, what,
				       nvefs_admin_error_text(code));
	return *ret_status ? 1 : 0;
}

static int ask_needed(struct asker *a, uint32_t nsid, uint8_t cns, const char *what)
{
	uint16_t status;
	int code = ask(a, nsid, cns, what, &status);

	if (code <= 0)
		return code;
	return nvefs_error_set(a->err, nvefs_nvme_status_errno(status), "%s: %s failed: %s", a->target, what,
			       nvefs_nvme_status_text(status));
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
	/* Also when it is switched off: an administrator may switch it on at any time. */
	l->volatile_cache = ctrl->vwc;
	l->read_only = ns->write_protected;
	l->shared = ns->shared;
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

static int check_command_set(const struct asker *a)
{
	const char *what = "does not hold blocks";

	if (a->ns.csi == NVEFS_NVME_CSI_NVM)
		return 0;
	if (a->ns.csi == NVEFS_NVME_CSI_ZNS)
		what = "is zoned, and its blocks cannot be written in any order";
	else if (a->ns.csi == NVEFS_NVME_CSI_KV)
		what = "holds keys and values, and no blocks";
	return nvefs_error_set(a->err, -ENOTSUP, "%s: %s (command set %u): use a namespace of plain blocks",
			       a->target, what, a->ns.csi);
}

static int check_format(const struct asker *a)
{
	if (a->ns.pi_type)
		return nvefs_error_set(a->err, -ENOTSUP,
				       "%s: formatted with protection information (type %u): format it without "
				       "(nvme format -i 0)",
				       a->target, a->ns.pi_type);
	if (a->ns.metadata_bytes)
		return nvefs_error_set(
		    a->err, -ENOTSUP,
		    "%s: formatted with %u bytes of metadata per block: format it "
		    "without (nvme format -l)",
		    a->target, a->ns.metadata_bytes);
	if (a->ns.lba_bytes != 512 && a->ns.lba_bytes != 4096)
		return nvefs_error_set(a->err, -ENOTSUP,
				       "%s: blocks of %u bytes: only 512 and 4096 are supported",
				       a->target, a->ns.lba_bytes);
	return 0;
}

static int learn_controller(struct asker *a, bool *ret_has_cns6)
{
	uint16_t status;
	int code = ask_needed(a, 0, NVEFS_NVME_CNS_CTRL, "Identify Controller");

	if (code)
		return code;
	nvefs_nvme_ctrl_parse((const void *)a->page, &a->ctrl);
	/* Controllers older than version 2.0 have no such page, and no such limits. */
	code = ask(a, 0, NVEFS_NVME_CNS_CSI_CTRL, "Identify Controller (command set)", &status);
	if (!code)
		nvefs_nvme_ctrl_parse_nvm((const void *)a->page, &a->ctrl);
	*ret_has_cns6 = !code;
	return code < 0 ? code : 0;
}

static int parse_namespace(struct asker *a, uint32_t nsid)
{
	int code = nvefs_nvme_ns_parse((const void *)a->page, &a->ns);

	if (code == -ENODEV)
		return nvefs_error_set(a->err, code, "%s: namespace %u is not active: attach it (nvme attach-ns)",
				       a->target, nsid);
	return code ? nvefs_error_set(a->err, code,
				      "%s: what Identify Namespace %u says cannot be: a format, a size or both",
				      a->target, nsid)
		    : 0;
}

static int learn_namespace(struct asker *a, uint32_t nsid, struct nvefs_drive_nvme *d)
{
	uint16_t status;
	/* Older than version 1.3: no descriptors, and no other command set either. */
	int code = ask(a, nsid, NVEFS_NVME_CNS_NS_DESCS, "Identify Namespace (descriptors)", &status);

	if (!code)
		nvefs_nvme_ns_parse_descs(a->page, sizeof(a->page), &a->ns);
	if (code >= 0)
		code = check_command_set(a);
	if (!code)
		code = ask_needed(a, nsid, NVEFS_NVME_CNS_NS, "Identify Namespace");
	if (!code)
		code = parse_namespace(a, nsid);
	if (code)
		return code;
	code = ask(a, nsid, NVEFS_NVME_CNS_NS_INDEPENDENT, "Identify Namespace (independent)", &status);
	d->cns8 = !code;
	if (!code)
		nvefs_nvme_ns_parse_independent((const void *)a->page, &a->ns);
	if (code < 0)
		return code;
	code = ask(a, nsid, NVEFS_NVME_CNS_CSI_NS, "Identify Namespace (command set)", &status);
	d->cns5 = !code;
	return code < 0 ? code : check_format(a);
}

/* A feature's value now; false when the controller does not tell. */
static bool feature(struct asker *a, uint8_t fid, uint32_t *ret_value)
{
	struct nvefs_nvme_sqe sqe;
	uint16_t status;

	nvefs_nvme_sqe_get_features(&sqe, 0, fid, NVEFS_NVME_SEL_CURRENT);
	return !a->dev->ops->admin(a->dev, &sqe, NULL, 0, ret_value, &status) && !status;
}

static void set_drive_features(struct asker *a, struct nvefs_drive_nvme *d)
{
	uint32_t value;

	d->cache = a->ctrl.vwc ? NVEFS_CACHE_ON : NVEFS_CACHE_NONE;
	if (a->ctrl.vwc && feature(a, NVEFS_NVME_FEATURE_WRITE_CACHE, &value) &&
	    !(value & NVEFS_NVME_WRITE_CACHE_ENABLE))
		d->cache = NVEFS_CACHE_OFF;
	if (!feature(a, NVEFS_NVME_FEATURE_QUEUES, &value))
		return;
	d->io_queues = nvefs_nvme_queues_sqs(value);
	if (nvefs_nvme_queues_cqs(value) < d->io_queues)
		d->io_queues = nvefs_nvme_queues_cqs(value);
}

int nvefs_dev_identify(struct nvefs_dev *dev, const char *target, uint32_t nsid,
		       uint32_t transport_max_bytes, struct nvefs_error *err)
{
	struct asker a = {.dev = dev, .target = target, .err = err};
	struct nvefs_drive_nvme *d = &dev->drive.nvme;
	int code = learn_controller(&a, &d->cns6);

	if (!code)
		code = learn_namespace(&a, nsid, d);
	if (code)
		return code;
	set_limits(&dev->limits, &a.ctrl, &a.ns, transport_max_bytes);
	set_identity(&dev->identity, target, nsid, &a.ctrl, &a.ns);
	nvefs_drive_set_nvme(&dev->drive, &a.ctrl, &a.ns, nsid);
	set_drive_features(&a, d);
	nvefs_drive_set_transfer(&dev->drive, dev->limits.max_transfer_blks);
	return 0;
}
