/* SPDX-License-Identifier: MIT */
/* POSIX access control lists in the form that the kernel stores as extended attributes (acl(5)). Pure. */
#ifndef NVEFS_FS_ACL_H
#define NVEFS_FS_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* So many bytes at most, so that two of them fit into one item. */
#define NVEFS_ACL_MAX_BYTES 900u

int nvefs_acl_check(const void *acl, size_t len); /* 0, -EINVAL, -EOPNOTSUPP (version), -ENOSPC (too long) */
/* Permission bits of *mode from the ACL. True when the ACL says nothing that the mode does not. */
bool nvefs_acl_to_mode(const void *acl, size_t len, uint32_t *mode);
/* chmod: the ACL's entries from the permission bits. */
void nvefs_acl_chmod(void *acl, size_t len, uint32_t mode);
/*
 * A new object in a directory with this default ACL: turns *acl into its
 * access ACL and cuts *mode. True when the access ACL has to be stored.
 */
bool nvefs_acl_create(void *acl, size_t len, uint32_t *mode);

#endif
