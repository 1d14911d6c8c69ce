// SPDX-License-Identifier: Apache-2.0
/* run/device - the sandbox's /dev: harmless nodes, terminals of its own, /dev/shm. */
#pragma once

#include "run/rootfs.h"

int device_build(struct rootfs *v, struct err *err) MUST_CHECK;
