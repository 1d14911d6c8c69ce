// SPDX-License-Identifier: Apache-2.0
/* launch/bind_mount - the writable paths in the view, and what is read-only in them. */
#pragma once

#include "launch/rootfs.h"

/* Add the working directory, spec->rw and spec->ro to the trees. A working
 * directory like "/" or the home directory stays read-only. Return: 0; -EINVAL: a path
 * that was named is none, or can't be had like this; another -errno: this machine's. */
int place_plan(struct rootfs *v, struct err *err) MUST_CHECK;
/* Attach them. */
int place_build(struct rootfs *v, struct err *err) MUST_CHECK;

/* Is @path one of the first @count paths of the view, and not behind a link? Those that
 * --rw names come first, then those of --ro. */
bool place_is_among(const struct rootfs *v, size_t count, const char *path);
/* Is @path below a writable path, or one? */
bool place_is_writable(const struct rootfs *v, const char *path);
/* In the builder: no directory on the way from a writable path to @path can be renamed.
 */
int place_pin_way(struct rootfs *v, const char *path, struct err *err) MUST_CHECK;

/* A directory of the host's, as it is: not seen through an overlay. */
bool tree_is_bare(const struct tree *t);
bool place_is_bare(const struct rootfs *v, const char *path);
