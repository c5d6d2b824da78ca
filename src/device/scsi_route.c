/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "device/wrap.h"

int nvefs_scsi_wrap(struct nvefs_dev *below, struct nvefs_dev **ret_dev)
{
	(void)below;
	(void)ret_dev;
	return -ENOTSUP;
}
