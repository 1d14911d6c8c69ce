// SPDX-License-Identifier: Apache-2.0
#include "opensandbox/policy.h"

#include <errno.h>

#include "policy/policy.h"

struct build {
	struct arena arena;
	struct faults faults;
	struct policy policy;
};

static int tell_faults(const struct faults *f, sidecar_fault_fn *on_fault, void *data,
		       struct err *err)
{
	char text[FAULT_TEXT_SIZE];

	for (size_t i = 0; i < f->count; i++) {
		const struct fault *fault = &f->items[i];

		/* The caller knows where its text is from: only what, and the words. */
		if (fault->level == FAULT_ERROR && err->code == 0)
			err_set(err, -EINVAL, "%s%s%s", fault->path,
				fault->path[0] ? ": " : "", fault->text);
		if (on_fault)
			on_fault(data, fault_format(fault, text, sizeof(text)),
				 fault->level);
	}
	if (f->errors > 0 && err->code == 0)
		err_set(err, -EINVAL, "the policy is not valid");
	return f->errors > 0 ? -EINVAL : 0;
}

/* What the sidecar as it runs can't do. */
#define NO_COUNT "a budget needs the full filter, which isn't enforced here"

static void check_means(const struct sidecar_policy_context *c, struct build *b)
{
	struct policy *p = &b->policy;

	/* OpenSandbox has variables of its own for that. */
	p->open_doh = !c->daemon;
	if (c->names && !c->daemon && !p->has_verify)
		p->verify = POLICY_VERIFY_TLS;
	if (p->verify == POLICY_VERIFY_TLS && !c->names)
		faults_add(&b->faults, FAULT_ERROR, c->file, 0, 0, "verify",
			   "'tls' needs the mode dns+nft+tls");
	if (p->dns == POLICY_DNS_PINNED && !c->daemon)
		faults_add(&b->faults, FAULT_ERROR, c->file, 0, 0, "dns",
			   "'pinned' is not for sidecars");
	for (size_t i = 0; !c->filters && i < p->count; i++)
		if (p->rules[i].budget.sent > 0 || p->rules[i].budget.received > 0)
			faults_add(&b->faults, FAULT_ERROR, c->file, p->rules[i].line,
				   p->rules[i].column, "", NO_COUNT);
	if (p->budget.sent > 0 && !c->filters)
		faults_add(&b->faults, FAULT_ERROR, c->file, 0, 0, "limits.sent_total",
			   NO_COUNT);
	if (p->require_full_isolation && !c->filters)
		faults_add(&b->faults, FAULT_ERROR, c->file, 0, 0,
			   "require_full_isolation",
			   "less than the full filter is enforced here");
}

int sidecar_policy_build(const struct sidecar_policy_context *c, const struct document *d,
			 sidecar_fault_fn *on_fault, void *data, uint8_t **ret_plan,
			 size_t *ret_size, struct err *err)
{
	const struct always_file deny = { c->paths[ALWAYS_DENY], c->always[ALWAYS_DENY] };
	const struct always_file allow = { c->paths[ALWAYS_ALLOW],
					   c->always[ALWAYS_ALLOW] };
	struct build b = { 0 };
	struct policy_reader reader = { .arena = &b.arena, .faults = &b.faults };
	struct err built = { 0 };
	int r = document_policy(d, &deny, &allow, c->file, &reader, &b.policy);

	if (r == 0)
		check_means(c, &b);
	if (r == 0 && b.faults.errors == 0)
		r = policy_build(&reader, &b.policy, ret_plan, ret_size);
	if (r == 0 || r == -EINVAL)
		r = tell_faults(&b.faults, on_fault, data, &built);
	else
		err_sys(&built, r, "cannot compile the policy");
	faults_done(&b.faults);
	arena_done(&b.arena);
	if (r < 0)
		return err_set(err, r, "%s", built.text);
	return 0;
}
