// SPDX-License-Identifier: Apache-2.0
#include "sandbox/rebinding_check.h"

#include "base/special.h"

/* An address rule of the policy denies @a, or the IPv4 address inside it. */
static bool is_denied(const struct plan *p, const struct addr *a)
{
	struct plan_verdict v = plan_match_addr(p, a, IPPROTO_TCP, 0);
	struct addr inner;

	if (v.action == POLICY_DENY && v.rule != PLAN_NO_RULE)
		return true;
	return addr_embedded_v4(a, &inner) && is_denied(p, &inner);
}

const char *rebinding_fault(const struct plan *p, const struct plan_verdict *v,
			    const struct addr *a)
{
	enum addr_special kind = addr_special(a);

	if (is_denied(p, a))
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
