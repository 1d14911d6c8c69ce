// SPDX-License-Identifier: Apache-2.0
/* policy/open - policies that open what is public, so that it can be seen what a command
 * uses, and what another policy would have said of that.
 *
 * Such a policy is no fence. What it leaves closed: addresses that aren't public, unless
 * the policy asked for opens them, metadata services, ports 53 and 853. Names are looked
 * up all alike, and what a connection shows is judged as ever, so that it is known. */
#pragma once

#include "event/event.h"
#include "policy/policy.h"

/* Change @p into one that refuses nothing of what is public, on every port: its denies
 * go, its allow rules stay as far as they open what isn't public.
 * Return: 0, or -ENOMEM. All lives in @arena. */
int policy_open_audit(struct policy *p, struct arena *arena) MUST_CHECK;

/* Change @p into one that opens public names besides, on the ports of web servers, or
 * with @any_port on all but 53 and 853. What a rule of @p denies stays denied, and what
 * @ceiling, which may be NULL, denies by rule or default does too. Public DoH resolvers
 * are denied as well. Return: 0; -EINVAL: @ceiling allows no name; -ENOMEM. */
int policy_open_learn(struct policy *p, const struct policy *ceiling, bool any_port,
		      struct arena *arena, struct err *err) MUST_CHECK;

/* Would @p have refused @e, which has passed? Then *@ret is that refusal, of as many
 * packets and bytes, with its rule, its reason and the advice. */
bool policy_would_refuse(const struct plan *p, const struct event *e, struct event *ret);
/* The same, and nothing more said of it. */
bool policy_refuses(const struct plan *p, const struct event *e);
