// SPDX-License-Identifier: Apache-2.0
/* opensandbox/policy - how a sidecar's policy becomes a plan: the same for the
 * supervisor, who needs one to start with, and for control, who changes it. */
#pragma once

#include "opensandbox/document.h"
#include "opensandbox/static_rules.h"

/* The files deny.always and allow.always. */
struct static_rules_file {
	const char *path;
	struct text text; /* empty: no file */
};
/* The policy that is in force: deny.always, allow.always, then the document, whose
 * faults are reported as those of @file. A target that is neither name, address nor
 * CIDR, which the reference takes for a name, is an error here. @ret borrows targets from
 * @d. Return: 0, -EINVAL with @faults, -ENOMEM. */
int document_policy(const struct document *d, const struct static_rules_file *deny,
		    const struct static_rules_file *allow, const char *file,
		    const struct policy_reader *r, struct policy *ret) MUST_CHECK;

/* What a policy is built for. */
struct sidecar_policy_context {
	bool filters; /* address rules count: mode dns+nft and above */
	bool names;   /* the relay looks for names: mode dns+nft+tls */
	bool daemon; /* of `weir daemon`: it does so where the policy says, and public DoH
		      * resolvers are closed as in `weir run` */
	struct text static_rules[STATIC_RULES_COUNT];
	const char *paths[STATIC_RULES_COUNT]; /* for messages */
	const char *file; /* where the document came from, for messages */
};

/* What a plan says of where its rules came from, once they are in force. Whoever compiles
 * what is in force again tells by the bytes whether the engine has that. */
#define POLICY_IN_FORCE "policy"

/* Compile @d. *@ret_plan is malloc'ed, owned by the caller. Return: 0; -EINVAL with the
 * first error in @err (@on_fault, which may be NULL, is told all faults); -ENOMEM. */
typedef void sidecar_fault_fn(void *data, const char *text, enum fault_level level);
int sidecar_policy_build(const struct sidecar_policy_context *c, const struct document *d,
			 sidecar_fault_fn *on_fault, void *data, uint8_t **ret_plan,
			 size_t *ret_size, struct err *err) MUST_CHECK;
