// SPDX-License-Identifier: Apache-2.0
/* sandbox/rebinding_check - which addresses a name may resolve to, and teach.
 *
 * To an address that is not an ordinary one of the Internet a name resolves only if its
 * rule says `private` or an address rule allows that address; to a metadata address only
 * by an address rule; to what an address rule denies never. What an address rule lets in
 * is open on that rule's ports. So the name teaches it only where that makes none of its
 * own ports more: else whoever decides what a name resolves to would open them. Pure. */
#pragma once

#include "policy/plan.h"

/* Return: NULL when a name with this verdict may resolve to @a, else why not. */
const char *rebinding_fault(const struct plan *p, const struct plan_verdict *v,
			    const struct addr *a);
/* Where rebinding_fault() finds none: does the name teach @a, which opens its ports
 * there?
 */
bool rebinding_teaches(const struct plan *p, const struct plan_verdict *v,
		       const struct addr *a);
