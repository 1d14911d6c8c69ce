// SPDX-License-Identifier: Apache-2.0
/* events/report_event - one event in words, the same in every form of the report. */
#pragma once

#include <stdbool.h>

#include "event/event.h"
#include "policy/plan.h"

enum {
	REPORT_WHAT_SIZE = EVENT_NAME_SIZE + ENDPOINT_TEXT_SIZE + 32,
	REPORT_WHY_SIZE = 704,
};

/* A denial or a limit that was reached. */
bool report_is_refusal(const struct event *e);
/* Something that is allowed did not work. */
bool report_is_failure(const struct event *e);

/* "api.evil.example", "93.184.216.34 tcp/443", "pypi.org (151.101.0.223) tcp/80".
 * Return: @buf, of REPORT_WHAT_SIZE. */
const char *report_what(const struct event *e, char *buf);
/* The reason, or the deciding rule and where it stands; "" when neither is known.
 * Return: @buf, of REPORT_WHY_SIZE. */
const char *report_why(const struct plan *plan, const struct event *e, char *buf);
/* "tcp", "udp", "icmp", "ip". */
const char *report_protocol(uint8_t protocol);
/* The limit that was reached, "on_denies" too; "": none. */
const char *report_limit(const struct event *e);
