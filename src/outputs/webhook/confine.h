// SPDX-License-Identifier: Apache-2.0
/* outputs/webhook/confine - what the program may still do once it listens: read and write
 * the descriptors that it gets, and compute. No file, no socket of its own, no
 * connection, no program, no capability. */
#pragma once

#include "base/err.h"

/* Return: 0, or -errno: don't go on. */
int confine(struct err *err) MUST_CHECK;
