// SPDX-License-Identifier: Apache-2.0
/* events/draft - a policy drafted from what was used: what `weir learn` writes.
 *
 * HOW IT WORKS
 * What has passed is held against the policy that is there already, and what that would
 * refuse becomes a rule by the advice of a refusal (both are policy/advice.h's), so that
 * learning, reports and reviews can't differ. One rule a name, sorted. Profiles all
 * of whose hosts were used take their place. What a person should decide is proposed in a
 * comment, and opens nothing: wildcards, telemetry, names that were only looked up.
 *
 * Names, commands and reasons may be a sandbox's making: they are printable ASCII in a
 * comment, and JSON's strings elsewhere. */
#pragma once

#include <stdio.h>

#include "event/event.h"
#include "policy/policy.h"

/* A profile that may stand for rules; all borrowed. */
struct draft_profile {
	const char *name;
	const struct policy *policy;
	const struct plan *plan;
};

struct draft_args {
	const struct event_ring *used;	  /* EVENT_ALLOW; of look-ups, too */
	const struct event_ring *refused; /* or NULL */
	const struct plan *asked;	  /* what it allows needs no rule */
	bool refused_too;		  /* what was refused becomes a rule as well */
	const struct draft_profile *profiles;
	size_t profile_count;
	const char *const *extends; /* profiles that were asked for */
	size_t extend_count;
	const char *program; /* whose use it was, for the head */
	uint64_t unseen; /* so much more has passed, or was refused with refused_too */
};

/* A rule that is proposed, and why it isn't one. */
struct draft_proposal {
	struct rule rule;
	const char *why;
};

struct draft {
	struct arena arena;
	struct faults faults;
	const struct draft_args *args;
	struct draft_use *uses; /* what was used, by destination */
	size_t use_count;
	struct policy policy; /* the rules, sorted, each with its comment */
	const char **extends;
	size_t extend_count;
	struct draft_proposal *proposals;
	size_t proposal_count, proposal_capacity;
};

/* @args is borrowed until draft_done(). Return: 0 or -ENOMEM. */
int draft_make(struct draft *ret, const struct draft_args *args) MUST_CHECK;
void draft_done(struct draft *d);
/* A whole document. */
void draft_write(const struct draft *d, FILE *out);
/* What @plan, of the file @file, lacks for what was used and refused, and what of it was
 * not used. */
void draft_write_difference(const struct draft *d, const struct plan *plan,
			    const char *file, FILE *out);
