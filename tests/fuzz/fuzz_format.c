/* SPDX-License-Identifier: MIT */
/* For libFuzzer: clang only, see meson.build. Start it with a corpus directory. */
#include "format_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)fuzz_format_one(data, size);
	return 0;
}
