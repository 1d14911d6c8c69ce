// SPDX-License-Identifier: Apache-2.0
/* sys/host_addrs - the prefixes that the machine delivers to itself: its own addresses,
 * loopback, broadcasts. What sends for a sandbox from outside must not send there. */
#pragma once

#include "base/addr.h"
#include "base/err.h"

enum { LOCAL_PREFIXES_MAX = 4096 };

/* Of the network namespace that the caller is in, as of now. @ret holds
 * LOCAL_PREFIXES_MAX. -E2BIG: there are more, and nothing half is returned. */
int local_prefixes(struct prefix *ret, size_t *ret_count, struct err *err) MUST_CHECK;
