/* SPDX-License-Identifier: MIT */
/* The health of a drive: of NVMe asked of the controller by log pages, of others as their back end does it. */
#include <errno.h>

#include "device/backend.h"
#include "device/identify.h"
#include "nvme/admin.h"
#include "nvme/features.h"
#include "nvme/status.h"

#define ZERO_CELSIUS_KELVIN 273

/* 0, 1 when the controller refuses the log, or -errno with *err set. */
static int get_log(struct nvefs_dev *dev, uint8_t lid, uint16_t lsi, void *log, uint32_t len, const char *what,
		   struct nvefs_error *err)
{
	struct nvefs_nvme_sqe sqe;
	uint32_t result;
	uint16_t status;
	int code;

	nvefs_nvme_sqe_get_log(&sqe, NVEFS_NVME_NSID_ALL, lid, lsi, 0, len);
	code = nvefs_dev_admin(dev, &sqe, log, len, &result, &status);
	if (code)
		return nvefs_error_set(err, code, "%s: Get Log Page (%s): %s", dev->identity.target, what,
				       code == -ENOTSUP ? "the target takes no admin commands"
							: nvefs_admin_error_text(code));
	if (status)
		return nvefs_error_set(err, 1, "%s: Get Log Page (%s) failed: %s", dev->identity.target, what,
				       nvefs_nvme_status_text(status));
	return 0;
}

static void set_health(struct nvefs_drive_health *h, const struct nvefs_nvme_health *n)
{
	*h = (struct nvefs_drive_health){
	    .critical_warning = n->critical_warning,
	    .has_temperature = n->temperature_kelvin != 0,
	    .temperature_celsius = n->temperature_kelvin - ZERO_CELSIUS_KELVIN,
	    .has_spare = true,
	    .spare_percent = n->avail_spare,
	    .spare_threshold_percent = n->spare_threshold,
	    .has_used = true,
	    .used_percent = n->percent_used,
	    .has_traffic = true,
	    .read_bytes = n->read_bytes,
	    .written_bytes = n->written_bytes,
	    .read_commands = n->host_reads,
	    .write_commands = n->host_writes,
	    .has_usage = true,
	    .busy_minutes = n->busy_minutes,
	    .power_cycles = n->power_cycles,
	    .has_power_on = true,
	    .power_on_hours = n->power_on_hours,
	    .unsafe_shutdowns = n->unsafe_shutdowns,
	    .has_media_errors = true,
	    .media_errors = n->media_errors,
	    .error_log_entries = n->error_log_entries,
	    .media_written_bytes = n->media_written_bytes,
	};
}

static int nvme_health(struct nvefs_dev *dev, struct nvefs_drive_health *ret, struct nvefs_error *err)
{
	struct nvefs_nvme_smart_log smart;
	struct nvefs_nvme_endurance_log endurance;
	struct nvefs_nvme_health health = {0};
	uint16_t group = dev->drive.nvme.endurance_group;
	bool has_media = false;
	int code = get_log(dev, NVEFS_NVME_LOG_SMART, 0, &smart, sizeof(smart), "SMART / health", err);

	if (code)
		return code > 0 ? -ENOTSUP : code;
	nvefs_nvme_smart_parse(&smart, &health);
	if (group) {
		code = get_log(dev, NVEFS_NVME_LOG_ENDURANCE_GROUP, group, &endurance, sizeof(endurance),
			       "endurance group", err);
		if (code < 0)
			return code;
		has_media = !code;
	}
	if (has_media)
		nvefs_nvme_endurance_parse(&endurance, &health);
	set_health(ret, &health);
	ret->has_media_written = has_media;
	return 0;
}

int nvefs_dev_health(struct nvefs_dev *dev, struct nvefs_drive_health *ret, struct nvefs_error *err)
{
	struct nvefs_dev *d = dev;

	while (d && !d->ops->health)
		d = d->below;
	return d ? d->ops->health(d, ret, err) : nvme_health(dev, ret, err);
}
