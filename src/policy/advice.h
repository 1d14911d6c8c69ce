// SPDX-License-Identifier: Apache-2.0
/* policy/advice - what would have let a refused query or connection through.
 *
 * The advice is the value of one --allow: "api.test:tcp/443", "nas.test:private",
 * "[2001:db8::1]:tcp/22". Whoever adds it in front of the policy lets through what was
 * refused, and nothing that the advice doesn't name. Of two rules for one name the first
 * decides alone, so advice for a name that a rule allows already names what that rule
 * opens as well. Everything that shows advice shows this one; no other code makes any.
 * Pure. */
#pragma once

#include "event/event.h"
#include "policy/policy.h"

/* For the refusal @e, by @plan, that an allow rule may have prevented. Return: @buf, of
 * EVENT_ADVICE_SIZE; "" where no rule could, where the rule would open what nobody should
 * open by accident (cloud metadata, loopback, link-local), or where it doesn't fit. */
const char *advice_write(const struct plan *plan, const struct event *e, char *buf);

/* The same as a rule of a policy: {"action":"allow","target":"api.test","ports":
 * ["tcp/443"]}. @advice may come from a store. Return: false, and @buf, of
 * ADVICE_RULE_SIZE, is "", where @advice is none that advice_write() could have made. */
enum { ADVICE_RULE_SIZE = 2048 };
bool advice_rule(const char *advice, char *buf);

/* -- policies that open what is public ---------------------------------------------- */

/* They show what a command uses, and what another policy would have said of that.
 *
 * Such a policy is no fence. What it leaves closed: addresses that aren't public, unless
 * the policy asked for opens them, metadata services, ports 53 and 853. Names are looked
 * up all alike, and what a connection shows is judged as ever, so that it is known. */

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
