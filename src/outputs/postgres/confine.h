// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres/confine - what weir-postgres gives up before it speaks to a server. */
#pragma once

#include "base/err.h"

/* No capability, no program started, files read alone but for those below @directory.
 * Return: 0 or -errno. */
int confine(const char *directory, struct err *err) MUST_CHECK;
