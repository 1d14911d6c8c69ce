// SPDX-License-Identifier: Apache-2.0
#include "sandbox/rebinding_check.h"

#include "base/special.h"

/* By the name's rule alone, whatever address rules say. */
static bool may_lead_to(const struct plan_verdict *v, enum addr_special kind)
{
	return kind == SPECIAL_NOT ||
	       (kind != SPECIAL_INVALID && kind != SPECIAL_METADATA &&
		v->flags & PLAN_PRIVATE);
}

const char *rebinding_fault(const struct plan *p, const struct plan_verdict *v,
			    const struct addr *a)
{
	enum addr_special kind = addr_special(a);

	if (plan_denies_addr(p, a))
		return "an address that a rule denies";
	if (may_lead_to(v, kind) || (kind != SPECIAL_INVALID && plan_names_addr(p, a)))
		return NULL;
	return addr_special_name(kind);
}

bool rebinding_teaches(const struct plan *p, const struct plan_verdict *v,
		       const struct addr *a)
{
	return may_lead_to(v, addr_special(a)) || plan_opens_list(p, a, v->port_list);
}
