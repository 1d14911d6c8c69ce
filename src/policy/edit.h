// SPDX-License-Identifier: Apache-2.0
/* policy/edit - rules added to a policy's file as text: YAML or JSON, whose comments,
 * order and layout stay. */
#pragma once

#include "policy/policy.h"

struct policy_edited {
	struct text text; /* of the file then */
	const char *rule; /* the first that is added, as it stands in the list */
	uint32_t line;	  /* of it */
	size_t count; /* rules that are added; 0: the policy has all of them already */
};

/* @rules are JSON, of rule_write(). They stand in front of the others or, @sorted,
 * where each belongs by its target as far as that can be had. All or none is added.
 * Warnings about them go to stderr. *@ret is in @arena. Return: 0; -EINVAL with @err: one
 * of them can't be added, or the policy isn't valid; -ENOTSUP: no rule can be added to
 * this text; -ENOMEM. */
int policy_edit(const char *path, struct text text, const char *const *rules,
		size_t count, bool sorted, struct arena *arena, struct policy_edited *ret,
		struct err *err) MUST_CHECK;
