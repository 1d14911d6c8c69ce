// SPDX-License-Identifier: Apache-2.0
/* policy/on_denies - `on_denies` in words. */
#pragma once

#include "policy/plan.h"

/* "10m", "90s" */
enum { POLICY_WINDOW_SIZE = 16 };
char *policy_window_text(uint32_t seconds, char *buf);
/* "more than 50 packets in 10m: stop"; "" when nothing is counted. Return: @buf. */
enum { POLICY_ON_DENIES_SIZE = 64 };
char *policy_on_denies_text(const struct plan_on_denies *d, char *buf);
const char *policy_on_denies_name(uint8_t action); /* "event", "stop" */
