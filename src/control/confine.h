// SPDX-License-Identifier: Apache-2.0
/* control/confine - what weir-control gives up before it hears its first caller: every
 * capability, every file but those it was started to read and write, and every system
 * call that it doesn't need, among them all that make sockets and processes. */
#pragma once

#include "proto/settings.h"

/* Before the first thread. @ret_missing, ERR_TEXT_SIZE bytes, says what this kernel could
 * not do ("" when all of it stands). Return: 0, or -errno: do not go on. */
int confine_control(const struct sidecar_spec *spec, char *ret_missing,
		    struct err *err) MUST_CHECK;
