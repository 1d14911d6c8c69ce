// SPDX-License-Identifier: Apache-2.0
/* run/audit - what passes in an audit, and the policy that was asked for would have
 * refused. */
#pragma once

#include "event/event.h"
#include "run/policies.h"

/* @e has passed: add to @would what the policy of its moment would have said. */
void audit_note(struct event_ring *would, const struct run_policy *newest,
		const struct event *e);
/* The run is over: replace *@would by a ring without the look-ups that a connection
 * repeats. Return: the occurrences that found no place in either. */
uint64_t audit_settle(struct event_ring **would) MUST_CHECK;
