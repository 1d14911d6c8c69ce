// SPDX-License-Identifier: Apache-2.0
/* events/ocsf - an event as the Open Cybersecurity Schema Framework has it, version
 * 1.3.0: Network Activity (4001), DNS Activity (4003) for lookups, and a base event (0)
 * for what is no traffic: changes of a policy, sandboxes that were ended. */
#pragma once

#include "events/jsonl.h"

enum { EVENT_OCSF_SIZE = 16384 /* holds any row */ };

/* One JSON object in ASCII, as event/json writes it; what isn't known has no key. No line
 * end; NUL behind it. @buf holds EVENT_OCSF_SIZE. Return: the length. */
size_t event_ocsf(const struct event_row *row, char *buf);
