/* SPDX-License-Identifier: MIT */
/* POSIX ACLs (acl(5)) in the form that the kernel gives its system.posix_acl_* attributes. Pure. */
#include "fs/acl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <nvefs/endian.h>

#define ACL_VERSION 2u
#define ACL_PERMS 7u

enum acl_tag {
	ACL_USER_OBJ = 0x01,
	ACL_USER = 0x02,
	ACL_GROUP_OBJ = 0x04,
	ACL_GROUP = 0x08,
	ACL_MASK = 0x10,
	ACL_OTHER = 0x20,
};

struct acl_entry {
	le16 tag, perm;
	le32 id;
};
static_assert(sizeof(struct acl_entry) == 8, "acl");

/* The value is what a caller handed over, so at any alignment. */
static size_t acl_count(size_t len)
{
	return (len - 4) / sizeof(struct acl_entry);
}
static struct acl_entry acl_get(const void *acl, size_t i)
{
	struct acl_entry e;

	memcpy(&e, (const uint8_t *)acl + 4 + i * sizeof(e), sizeof(e));
	return e;
}
static void acl_set_perm(void *acl, size_t i, uint32_t perm)
{
	struct acl_entry e = acl_get(acl, i);

	e.perm = le16_make((uint16_t)perm);
	memcpy((uint8_t *)acl + 4 + i * sizeof(e), &e, sizeof(e));
}

static uint32_t acl_rank(uint32_t tag)
{
	return tag == ACL_MASK ? 5 : tag == ACL_OTHER ? 6 : (uint32_t)__builtin_ctz(tag);
}

int nvefs_acl_check(const void *acl, size_t len)
{
	uint32_t seen = 0, tag, last = 0;
	struct acl_entry e;
	le32 version;
	size_t i;

	if (len < 4 || (len - 4) % sizeof(struct acl_entry))
		return -EINVAL;
	memcpy(&version, acl, 4);
	if (le32_get(version) != ACL_VERSION)
		return -EOPNOTSUPP;
	if (len > NVEFS_ACL_MAX_BYTES)
		return -ENOSPC;
	for (i = 0; i < acl_count(len); i++) {
		e = acl_get(acl, i);
		tag = le16_get(e.tag);
		if (!tag || (tag & (tag - 1)) || tag > ACL_OTHER || (le16_get(e.perm) & ~ACL_PERMS))
			return -EINVAL;
		if (i && acl_rank(tag) < acl_rank(last))
			return -EINVAL;
		if ((seen & tag) && tag != ACL_USER && tag != ACL_GROUP)
			return -EINVAL;
		seen |= tag;
		last = tag;
	}
	if (!(seen & ACL_USER_OBJ) || !(seen & ACL_GROUP_OBJ) || !(seen & ACL_OTHER))
		return -EINVAL;
	if ((seen & (ACL_USER | ACL_GROUP)) && !(seen & ACL_MASK))
		return -EINVAL;
	return 0;
}

/* Which three permission bits of a mode an entry stands for: their shift, or -1. */
static int acl_shift(uint32_t tag, bool has_mask)
{
	switch (tag) {
	case ACL_USER_OBJ:
		return 6;
	case ACL_GROUP_OBJ:
		return has_mask ? -1 : 3;
	case ACL_MASK:
		return 3;
	case ACL_OTHER:
		return 0;
	default:
		return -1;
	}
}

static bool acl_has(const void *acl, size_t len, uint32_t tags)
{
	size_t i;

	for (i = 0; i < acl_count(len); i++)
		if (le16_get(acl_get(acl, i).tag) & tags)
			return true;
	return false;
}

bool nvefs_acl_to_mode(const void *acl, size_t len, uint32_t *mode)
{
	bool has_mask = acl_has(acl, len, ACL_MASK);
	uint32_t m = *mode & ~0777u;
	struct acl_entry e;
	size_t i;
	int shift;

	for (i = 0; i < acl_count(len); i++) {
		e = acl_get(acl, i);
		shift = acl_shift(le16_get(e.tag), has_mask);
		if (shift >= 0)
			m |= (uint32_t)le16_get(e.perm) << shift;
	}
	*mode = m;
	return !acl_has(acl, len, ACL_USER | ACL_GROUP | ACL_MASK);
}

void nvefs_acl_chmod(void *acl, size_t len, uint32_t mode)
{
	bool has_mask = acl_has(acl, len, ACL_MASK);
	size_t i;
	int shift;

	for (i = 0; i < acl_count(len); i++) {
		shift = acl_shift(le16_get(acl_get(acl, i).tag), has_mask);
		if (shift >= 0)
			acl_set_perm(acl, i, mode >> shift & ACL_PERMS);
	}
}

bool nvefs_acl_create(void *acl, size_t len, uint32_t *mode)
{
	bool has_mask = acl_has(acl, len, ACL_MASK);
	struct acl_entry e;
	uint32_t perm;
	size_t i;
	int shift;

	for (i = 0; i < acl_count(len); i++) {
		e = acl_get(acl, i);
		shift = acl_shift(le16_get(e.tag), has_mask);
		if (shift < 0)
			continue;
		perm = le16_get(e.perm) & (*mode >> shift);
		acl_set_perm(acl, i, perm);
		*mode &= ~(ACL_PERMS << shift) | perm << shift;
	}
	return acl_has(acl, len, ACL_USER | ACL_GROUP | ACL_MASK);
}
