// SPDX-License-Identifier: Apache-2.0
/* launch/mask - what lies in the writable paths of the view and leads out of the sandbox:
 * unix sockets of the host, and the kernel's own file systems. Nothing is mounted over
 * it.
 *
 * All of it is looked for in what the sandbox is shown, when everything else is mounted,
 * and masked by descriptor. What isn't found where it was seen has been moved, and is
 * looked for again. */
#pragma once

#include "launch/rootfs.h"

/* Mount nothing over @at, which is @path: an empty read-only file or directory, or the
 * directory @own of the stage, which can still be written to. */
int mask_place(int at, const char *own, const char *path, struct err *err) MUST_CHECK;
int mask_build(struct rootfs *v, struct err *err) MUST_CHECK;
