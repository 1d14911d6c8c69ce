// SPDX-License-Identifier: Apache-2.0
/* sandbox/grants - which ends of a plan's rules lie ahead.
 *
 * The text of a policy has the end as a time of the wall clock, which anybody's NTP may
 * step. So each end gets a second time when a plan with it comes: on the clock that never
 * steps and goes on during suspend. The rule ends with the earlier of both, and what has
 * ended stays so. An end that the plan before had keeps its second time; after a restart
 * of the process the wall clock alone is left. */
#pragma once

#include "policy/plan.h"

struct grants;

/* Those of @plan, whose ends_ahead are set; @old, which may be NULL, belongs to the plan
 * before and stays the caller's. Return: NULL where @plan has no ends, or memory is out:
 * then none lies ahead. */
struct grants *grants_new(const struct grants *old, struct plan *plan, int64_t wall_ms,
			  int64_t now_ms) MUST_CHECK;
void grants_free(struct grants *g);
/* plan.ends_ahead as of now. */
uint64_t grants_ahead(struct grants *g, int64_t wall_ms, int64_t now_ms);
/* The milliseconds to the next end; INT64_MAX: none lies ahead. */
int64_t grants_next_ms(const struct grants *g, int64_t wall_ms, int64_t now_ms);
