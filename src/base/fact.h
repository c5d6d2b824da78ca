/* SPDX-License-Identifier: MIT */
/*
 * Single things to be told, by name: for people as text, for programs as a key
 * with a value. The unit is in the key's ending: _bytes, _percent, _celsius,
 * _ms, _hours, _minutes.
 */
#ifndef NVEFS_BASE_FACT_H
#define NVEFS_BASE_FACT_H

#include <stddef.h>
#include <stdint.h>

enum nvefs_fact_kind {
	NVEFS_FACT_TEXT,
	NVEFS_FACT_LIST,   /* text: words with ", " in between; "" is the empty list */
	NVEFS_FACT_NUMBER, /* also negative ones: value is an int64_t */
	NVEFS_FACT_BOOL,
};
struct nvefs_fact {
	const char *key;
	enum nvefs_fact_kind kind;
	const char *text;
	int64_t value;
};
/* The fact and its texts are valid during the call. */
typedef void nvefs_fact_fn(void *arg, const struct nvefs_fact *fact);

/* The key as words, without its unit: "media_errors" is "media errors". */
void nvefs_fact_label(const struct nvefs_fact *fact, char *buf, size_t len);
/* The value with its unit; bytes also in the largest unit that fits. */
void nvefs_fact_text(const struct nvefs_fact *fact, char *buf, size_t len);

#endif
