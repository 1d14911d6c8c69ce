// SPDX-License-Identifier: Apache-2.0
#include "policy/check.h"

#include <errno.h>

#include "policy/faults.h"
#include "policy/limits.h"

static void at_rule(const struct policy_reader *r, const struct rule *rule,
		    const char *what)
{
	char shown[TEXT_ESCAPED_SIZE];

	faults_add(r->faults, FAULT_ERROR, rule->file, rule->line, rule->column, "",
		   "'%s' %s", text_escape(text_of(rule->target), shown, sizeof(shown)),
		   what);
}

/* Return: whether it is a name that will be resolved. */
static bool check_rule(const struct policy_reader *r, const struct rule *rule)
{
	if (rule->action != POLICY_ALLOW)
		return false;
	if (rule->types != 0)
		at_rule(r, rule,
			"has types, but dns: pinned answers with addresses alone");
	if (rule->kind == TARGET_BELOW || rule->kind == TARGET_WITHIN)
		at_rule(r, rule,
			"is a wildcard, but dns: pinned resolves every name before the "
			"start: write the exact names");
	return rule->kind == TARGET_NAME;
}

static void check_repin(const struct policy_reader *r, const struct policy *p)
{
	if (p->repin_ms != 0)
		faults_add(r->faults, FAULT_WARNING, p->repin_at.file, p->repin_at.line,
			   p->repin_at.column, "repin",
			   "changes nothing without dns: pinned");
}

int policy_check_pinned(const struct policy_reader *r, const struct policy *p)
{
	uint32_t most = p->limits[LIMIT_LEARNED_NAMES]
				?: limit_info(LIMIT_LEARNED_NAMES)->value;
	const struct policy_place *at = &p->dns_at;
	size_t before = r->faults->errors, names = 0;

	if (p->dns != POLICY_DNS_PINNED) {
		check_repin(r, p);
		return 0;
	}
	if (p->default_action == POLICY_ALLOW)
		faults_add(r->faults, FAULT_ERROR, at->file, at->line, at->column, "dns",
			   "'pinned' needs defaultAction: deny: the names that are "
			   "allowed have to be known");
	for (size_t i = 0; i < p->count; i++)
		names += check_rule(r, &p->rules[i]);
	if (names > most)
		faults_add(r->faults, FAULT_ERROR, at->file, at->line, at->column, "dns",
			   "'pinned' with %zu names is over the limit learned_names (%u)",
			   names, most);
	return r->faults->errors > before ? -EINVAL : 0;
}
