// SPDX-License-Identifier: Apache-2.0
#include "sandbox/rebinding_check.h"

#include "base/special.h"

const char *rebinding_fault(const struct plan *p, const struct plan_verdict *v,
			    const struct addr *a)
{
	enum addr_special kind = addr_special(a);

	if (plan_denies_addr(p, a))
		return "an address that a rule denies";
	if (kind == SPECIAL_NOT)
		return NULL;
	if (kind != SPECIAL_INVALID && plan_names_addr(p, a))
		return NULL;
	if (kind != SPECIAL_INVALID && kind != SPECIAL_METADATA &&
	    v->flags & PLAN_PRIVATE)
		return NULL;
	return addr_special_name(kind);
}
