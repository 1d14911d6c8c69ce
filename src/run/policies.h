// SPDX-License-Identifier: Apache-2.0
/* run/policies - the policy of a run, and those that it had before: an event names its
 * rule by a number in the policy of its moment. */
#pragma once

#include "event/event.h"
#include "run/options.h"

struct run_policy {
	uint32_t number; /* event.sandbox of what it decided; of the first one 0 */
	struct arena arena;
	struct policy policy;
	struct plan asked;    /* of @policy; bytes NULL: the run did not get so far */
	struct plan plan;     /* in force: the same, or an open one (policy/advice.h) */
	int64_t evaluated_ms; /* wall clock: what had ended then is as if it weren't there
			       */
	uint8_t *bytes, *open_bytes; /* owned */
	struct run_policy *before;   /* owned */
};

/* What the options and files say; faults are printed. Return: 0 or the exit status. */
int run_policy_build(const struct run_spec *spec, struct run_policy *ret,
		     struct err *err) MUST_CHECK;
/* A name server is needed. */
bool run_policy_asks_names(const struct run_spec *spec, const struct run_policy *p);
/* The one that the options and files say, once more: --policy @file has @text by now. Or,
 * where @file is NULL, another one for a run that is under way: @text takes the place of
 * --policy, --profile, --allow and --deny; --verify and what .weir.yaml says stay.
 * Return: 0 with a policy that the caller owns; -EINVAL with the first fault in @err;
 * -ENOMEM. */
int run_policy_read(const struct run_spec *spec, const char *file, struct text text,
		    struct run_policy **ret, struct err *err) MUST_CHECK;
void run_policy_done(struct run_policy *p);
/* Free @p, which run_policy_read() has made, and each policy before it. */
void run_policy_free(struct run_policy *p);

/* The one that decided @e, among @newest and those before. */
const struct run_policy *run_policy_of(const struct run_policy *newest,
				       const struct event *e);
/* Free those before @newest for which @is_needed says false. */
void run_policy_forget(struct run_policy *newest,
		       bool (*is_needed)(const void *data, uint32_t number),
		       const void *data);
