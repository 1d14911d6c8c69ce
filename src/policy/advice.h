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
#include "policy/plan.h"

/* For the refusal @e, by @plan, that an allow rule may have prevented. Return: @buf, of
 * EVENT_ADVICE_SIZE; "" where no rule could, where the rule would open what nobody should
 * open by accident (cloud metadata, loopback, link-local), or where it doesn't fit. */
const char *advice_write(const struct plan *plan, const struct event *e, char *buf);

/* The same as a rule of a policy: {"action":"allow","target":"api.test","ports":
 * ["tcp/443"]}. @advice may come from a store. Return: false, and @buf, of
 * ADVICE_RULE_SIZE, is "", where @advice is none that advice_write() could have made. */
enum { ADVICE_RULE_SIZE = 2048 };
bool advice_rule(const char *advice, char *buf);
