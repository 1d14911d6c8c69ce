// SPDX-License-Identifier: Apache-2.0
/* sidecar/host_network - is this the host's own network namespace? A sidecar there would
 * close the whole machine. */
#pragma once

#include "base/err.h"

/* Looks at the namespace that the caller is in. Return: 0; -EPERM with what gives the
 * host away; or -errno when it can't be told. */
int host_network_check(struct err *err) MUST_CHECK;
