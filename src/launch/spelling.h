// SPDX-License-Identifier: Apache-2.0
/* launch/spelling - file systems that find a file by other spellings of its name.
 *
 * Those of Windows and macOS take no notice of the case of letters. Where the kernel
 * mounts one by itself (vfat, NTFS, ext4 with that option), a file has one place whatever
 * the spelling. Through virtiofs, 9p or CIFS the kernel takes each spelling for a name of
 * its own, and what is mounted over one covers no other: `WEIR.YAML` is what the command
 * may write to, though `weir.yaml` is read-only. */
#pragma once

#include "launch/rootfs.h"

/* Does @p lie in a writable directory, though its path spells that otherwise?
 * Return: as the view names the directory, or NULL. */
const char *spelling_writable_above(const struct rootfs *v, const struct path *p);
/* When all is mounted: is something that is read-only or hidden in the view there
 * under another spelling, and is not so? Return: 0, or -EPERM with @err; of files that
 * run outside later a warning is sent. */
int spelling_check(const struct rootfs *v, struct err *err) MUST_CHECK;
/* Is the unix socket at @path, which has been masked, there under another spelling, and
 * not masked? Return: 0, or -EPERM with @err. */
int spelling_check_socket(const struct rootfs *v, const char *path, uint32_t inode,
			  struct err *err) MUST_CHECK;
