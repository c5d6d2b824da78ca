/* SPDX-License-Identifier: MIT */
/* For libFuzzer: clang only, see fuzz.sh. Start it with a corpus directory. */
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)fuzz_one(data, size);
	return 0;
}
