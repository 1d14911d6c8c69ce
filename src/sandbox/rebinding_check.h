// SPDX-License-Identifier: Apache-2.0
/* sandbox/rebinding_check - which addresses a name may teach.
 *
 * An address that is not an ordinary one of the Internet is not taught, unless the name's
 * rule says `private` or an address rule allows it; a metadata address only an address
 * rule can let in; what an address rule denies is not taught whatever it is. Pure. */
#pragma once

#include "policy/plan.h"

/* Return: NULL when a name with this verdict may teach @a, else why not. */
const char *rebinding_fault(const struct plan *p, const struct plan_verdict *v,
			    const struct addr *a);
