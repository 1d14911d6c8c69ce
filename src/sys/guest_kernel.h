// SPDX-License-Identifier: Apache-2.0
/* sys/guest_kernel - processes whose packets don't come from this machine's kernel.
 *
 * gVisor has a network stack of its own and sends its packets by a packet socket; a
 * virtual machine sends them by a tap device. Neither passes the output hook of the
 * network namespace that it sits in, so no rule there holds it. */
#pragma once

#include "base/err.h"

/* Refuse @where, a process's number or a path /proc/PID/…, where that is such a process
 * by what its program and its first argument are called. Return: 0, also of any other
 * path and of a process that can't be seen; -EOPNOTSUPP with @err. */
int guest_kernel_refuse(const char *where, struct err *err) MUST_CHECK;
