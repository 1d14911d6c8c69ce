// SPDX-License-Identifier: Apache-2.0
/* tools/policy_edit - a rule added to a policy's file as text, in front of the others:
 * YAML or JSON, whose comments, order and layout stay.
 *
 * What comes of it is read again and held against the policy before: the one rule more,
 * first of all, and nothing else may differ, and the rule has to open what it says.
 * Where that can't be had the file isn't touched, and the rule is for a person to add. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/text.h"

struct amended {
	struct text text; /* of the file then */
	const char *rule; /* the line that is added, or what is put into a list */
	uint32_t line;	  /* where; 0: the policy has this rule already */
};

/* @rule is JSON, of review_rule(). Warnings about it go to stderr. Everything in @arena.
 * Return: 0; -EINVAL with @err: it can't be done, or the policy isn't valid; -ENOMEM. */
int policy_edit(const char *path, struct text text, const char *rule, struct arena *arena,
		struct amended *ret, struct err *err) MUST_CHECK;
