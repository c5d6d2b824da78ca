/* SPDX-License-Identifier: MIT */
/*
 * A plug to be pulled: a wrapper of a device that counts the commands which
 * change something (writes, flushes) and from a given one on fails everything,
 * so that a power cut can be put between any two commands.
 */
#ifndef TEST_PLUG_H
#define TEST_PLUG_H

#include <stdint.h>

#include "device/backend.h"

struct plug {
	struct nvefs_dev dev;
	int64_t left;	/* atomic; changing commands until the plug is out; negative: out */
	uint64_t count; /* atomic; changing commands seen */
	bool fail_one;	/* only that one command fails */
};

/* Takes `below` over. */
struct plug *plug_open(struct nvefs_dev *below);
#define PLUG_NEVER INT64_MAX
void plug_pull_after(struct plug *p, int64_t commands);

#endif
