// SPDX-License-Identifier: Apache-2.0
/* launch/mask - what lies in the writable paths of the view and leads out of the
 * sandbox: unix sockets of the host, and the kernel's own file systems. Nothing is
 * mounted over it.
 *
 * All of it is looked for in what the sandbox is shown, when everything else is mounted,
 * and masked by descriptor. What isn't found where it was seen has been moved, and is
 * looked for again.
 *
 * SOCKETS
 * The view's overlays make the host's sockets refuse, but a writable path is the host's
 * own directory. Before the launch the kernel is asked for every socket that is bound to
 * a file, with the file's device and inode. The mount table says under which paths that
 * file shows; where one is in a writable path, an empty file is mounted over it.
 *
 * Whoever may write there can rename a socket or its directory between the look and the
 * mask. So when all is mounted the kernel is asked again. A socket is accounted for when
 * its only name is masked, or was seen outside of the writable paths. Every other one on
 * the same file systems (bound by a relative name, renamed, linked twice, deleted) is
 * searched for by inode in what the sandbox is shown, until a search finds none and
 * nothing was moved while it went on; else the launch is refused.
 *
 * What can't be seen: sockets of other network namespaces (containers) whose files are
 * shared with this one, and those that are bound later.
 *
 * OTHER SPELLINGS
 * There are file systems that find a file by other spellings of its name. Those of
 * Windows and macOS take no notice of the case of letters. Where the kernel mounts one
 * by itself (vfat, NTFS, ext4 with that option), a file has one place whatever the
 * spelling. Through virtiofs, 9p or CIFS the kernel takes each spelling for a name of
 * its own, and what is mounted over one covers no other: `WEIR.YAML` is what the command
 * may write to, though `weir.yaml` is read-only. */
#pragma once

#include "base/err.h"
#include "sys/files.h"
#include "sys/mounts.h"

struct rootfs;

enum {
	SOCKETS_MAX = 1024,	      /* to mask, and to search for; more: refused */
	SOCKETS_ACCOUNTED_MAX = 4096, /* more of them are searched for */
};

struct socket_file {
	uint32_t device; /* as in struct mount */
	uint32_t inode;	 /* its lower half: more isn't told by the kernel */
};

struct sockets {
	int diag_fd;	   /* to ask about the network namespace of control; owned */
	uint32_t *devices; /* of the file systems in the writable paths; owned */
	size_t device_count;
	char *paths[SOCKETS_MAX];	       /* canonical, owned: to be masked */
	struct socket_file files[SOCKETS_MAX]; /* what is there */
	size_t count;
	struct socket_file accounted[SOCKETS_ACCOUNTED_MAX];
	size_t accounted_count;
};

/* Find the sockets in the @count directories @tops. */
int sockets_find(const struct mounts *m, const struct path *const *tops, size_t count,
		 struct sockets *ret, struct err *err) MUST_CHECK;

/* Does @p lie in a writable directory, though its path spells that otherwise?
 * Return: as the view names the directory, or NULL. */
const char *spelling_writable_above(const struct rootfs *v, const struct path *p);
/* When all is mounted: is something that is read-only or hidden in the view there
 * under another spelling, and is not so? Return: 0, or -EPERM with @err; of files that
 * run outside later a warning is sent. */
int spelling_check(const struct rootfs *v, struct err *err) MUST_CHECK;

/* Mount nothing over @at, which is @path: an empty read-only file or directory, or the
 * directory @own of the stage, which can still be written to. */
int mask_place(int at, const char *own, const char *path, struct err *err) MUST_CHECK;
int mask_build(struct rootfs *v, struct err *err) MUST_CHECK;
