// SPDX-License-Identifier: Apache-2.0
/* policy/args - the options that say a policy, alike in every verb that has them; the
 * policy that they ask for is read by policy/load. */
#pragma once

#include "policy/policy.h"
#include "sys/options.h"

struct policy_args {
	struct option_list deny;     /* --deny TARGET */
	struct option_list allow;    /* --allow TARGET[:PORTS] */
	const char *file;	     /* --policy FILE, or NULL */
	struct option_list profiles; /* --profile NAME */
	bool has_verify;	     /* --verify: whatever the documents say */
	enum policy_verify verify;   /* of --verify; else where no document says */
	bool verify_tls;	     /* whatever the documents say */
	struct option_list narrow;   /* denied by the file @narrow_file */
	const char *narrow_file;
};

/* clang-format off */
/* Rows for a table of options whose target @type has these arguments as @field. */
#define POLICY_ARGS_ROWS(type, field) \
	{ "policy", "FILE", "read the policy from FILE (YAML or JSON)", \
	  OPTION_IN(TEXT_ONCE, type, field.file) }, \
	{ "profile", "NAME", "add a profile's rules behind the policy's; may be repeated", \
	  .separator = ' ', OPTION_IN(LIST, type, field.profiles) }, \
	{ "allow", "TARGET[:PORTS]", "allow one target, before the policy; may be repeated", \
	  .separator = ' ', OPTION_IN(LIST, type, field.allow) }, \
	{ "deny", "TARGET", "deny one target, before every allow; may be repeated", \
	  .separator = ' ', OPTION_IN(LIST, type, field.deny) }
#define POLICY_VERIFY_ROW(type, field, help) \
	{ "verify", "dns|tls", help, policy_args_set_verify, OPTION_IN(CUSTOM, type, field) }
/* clang-format on */

/* A setter of --verify: @args is a struct policy_args. Return: 0, or -EINVAL with @err.
 */
int policy_args_set_verify(void *args, const char *value, struct err *err) MUST_CHECK;
