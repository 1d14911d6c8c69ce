// SPDX-License-Identifier: Apache-2.0
/* policy/edit - a rule added to a policy's file as text: YAML or JSON, whose comments,
 * order and layout stay. */
#pragma once

#include "policy/policy.h"

struct policy_edited {
	struct text text; /* of the file then */
	const char *rule; /* the line that is added, or what is put into a list */
	uint32_t line;	  /* where; 0: the policy has this rule already */
};

/* @rule is JSON, of rule_write_json(). It stands in front of the others or, @sorted,
 * where it belongs by its target as far as that can be had. Warnings about it go to
 * stderr. Everything in @arena. Return: 0; -EINVAL with @err: it can't be done, or the
 * policy isn't valid; -ENOMEM. */
int policy_edit(const char *path, struct text text, const char *rule, bool sorted,
		struct arena *arena, struct policy_edited *ret,
		struct err *err) MUST_CHECK;
