// SPDX-License-Identifier: Apache-2.0
/* cli/report - at the end of a run, what was refused and what would allow it. */
#pragma once

#include <stdio.h>

#include "policy/plan.h"
#include "store/event.h"

/* Occurrences that were refused: denials and limits. */
size_t report_refusals(const struct event_ring *ring);

/* Print them, one paragraph each; nothing at all when there are none. @missed counts
 * events that were never recorded (rate limit, lost packets). */
void report_print(FILE *out, const struct plan *plan, const struct event_ring *ring,
		  uint64_t missed);
