/* SPDX-License-Identifier: MIT */
/*
 * Little-endian and big-endian integers as they lie on disk and in commands.
 *
 * The little-endian types are structs, so that using one without conversion
 * does not compile. They have natural alignment. Pure; any thread.
 */
#ifndef NVEFS_ENDIAN_H
#define NVEFS_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

typedef struct {
	uint16_t v;
} le16;
typedef struct {
	uint32_t v;
} le32;
typedef struct {
	uint64_t v;
} le64;

static inline uint16_t le16_get(le16 x)
{
	return le16toh(x.v);
}
static inline uint32_t le32_get(le32 x)
{
	return le32toh(x.v);
}
static inline uint64_t le64_get(le64 x)
{
	return le64toh(x.v);
}
static inline le16 le16_make(uint16_t v)
{
	return (le16){htole16(v)};
}
static inline le32 le32_make(uint32_t v)
{
	return (le32){htole32(v)};
}
static inline le64 le64_make(uint64_t v)
{
	return (le64){htole64(v)};
}

/* Big-endian fields at any alignment, as SCSI has them (SAM: MSB first). */
static inline uint16_t be16_load(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}
static inline uint32_t be24_load(const void *p)
{
	const uint8_t *b = p;

	return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
}
static inline uint32_t be32_load(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}
static inline uint64_t be64_load(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}
static inline void be16_store(void *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, sizeof(v));
}
static inline void be24_store(void *p, uint32_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)(v >> 16);
	b[1] = (uint8_t)(v >> 8);
	b[2] = (uint8_t)v;
}
static inline void be32_store(void *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}
static inline void be64_store(void *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

#endif
