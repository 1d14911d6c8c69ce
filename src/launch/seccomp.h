// SPDX-License-Identifier: Apache-2.0
/* launch/seccomp - the system calls that the command may not make.
 *
 * The namespaces, not this list, keep the command in. The list closes what namespaces
 * don't cover: address families that know no network namespace (vsock), kernel
 * machinery that makes calls without a filter seeing them (io_uring), terminal
 * input that the caller's shell would read, and parts of the kernel that are no use
 * without capabilities but wide open to attack. */
#pragma once

#include "base/err.h"

/* Return: a sealed memfd with the filter as BPF, at its start; or -errno. */
int seccomp_filter_open(struct err *err) MUST_CHECK;
